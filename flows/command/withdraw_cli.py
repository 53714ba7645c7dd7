"""`earmark withdraw`: what someone takes back leaves every corpus."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import typer


def withdraw(
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Why; kept in the store's record as written, so name nobody; never published.",
        ),
    ],
    annotator: Annotated[
        str | None,
        typer.Option(
            "--annotator", metavar="ID", help="An annotator's id as the tables have it, or SOURCE/ID as in its export."
        ),
    ] = None,
    clip: Annotated[str | None, typer.Option("--clip", metavar="SHA256", help="A clip's (or image's) SHA-256.")] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="ID", help="A prompt's id.")] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            "--corpus", metavar="NAME", help="Only in this corpus, where its id means something else elsewhere."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which rows would leave; change nothing.")] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="DIR", help="Where versions lie. Default: EARMARK_STORE, else data/store."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Make new versions without an annotator, a clip or a prompt, and without all that was made from them.

    The versions that hold it can no longer be published, and no later build brings it back.

    **Examples:**

    `earmark withdraw --annotator 3f1c9a… --reason "consent withdrawn" --dry-run`

    `earmark withdraw --clip 9f86d081… --reason "rights"`
    """
    from earmark.flows.command import console
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.build.progress import shown
    from earmark.tasks.build.registry import corpora, find_corpus
    from earmark.tasks.release import withdrawal
    from earmark.tasks.store.versions import open_store

    named = [(kind, value) for kind, value in (("annotator", annotator), ("clip", clip), ("prompt", prompt)) if value]
    if len(named) != 1:
        raise ConfigError("expected one of --annotator, --clip and --prompt")
    kind, value = named[0]
    value = value.lower() if kind == "clip" else value
    others: list[str] = []
    if kind == "clip" and not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ConfigError(f"expected a clip's SHA-256, 64 hexadecimal digits, found '{value}'")
    place = open_store(store)
    if corpus is not None:
        place.find(corpus)
    known = {name: find_corpus(name) for name, one in corpora().items() if not one.package or place.versions(name)}
    if kind == "annotator":
        value, *others = withdrawal.as_tables_have_it(place, value)
    with shown():
        found = withdrawal.search(place, known, kind, value, corpus, others)  # type: ignore[arg-type]
        made: tuple[Any, ...] = ()
        if not dry_run:
            made = withdrawal.withdraw(place, known, found, reason).made
    facts: dict[str, Any] = {
        "withdrawal": found.name,
        "dry_run": dry_run,
        "holding": [
            {"corpus": h.version.corpus, "version": h.version.name, "newest": h.newest, "rows": h.rows}
            for h in found.holdings
        ],
        "made": [{"corpus": one.corpus, "version": one.version} for one in made],
    }
    print(json.dumps(facts, indent=1)) if as_json else console.show_withdrawal(facts)
