"""`earmark withdraw`: what someone takes back leaves every corpus."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from earmark.flows.command.options import JsonOption, StoreOption, open_store, print_json


def withdraw(
    reason: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="The reason. The store keeps it and never publishes it; do not write personal data in it.",
        ),
    ],
    annotator: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The annotator's id as in the tables, or SOURCE/ID as in the vote export."),
    ] = None,
    clip: Annotated[str | None, typer.Option(metavar="SHA256", help="The SHA-256 of a clip or image.")] = None,
    prompt: Annotated[str | None, typer.Option(metavar="ID", help="The prompt's id.")] = None,
    corpus: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Search only this corpus, if others use the id for something else."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows to remove; change nothing.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Withdraw an annotator, a clip or a prompt: make new versions without it and all that was made from it.

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

    named = [(kind, value) for kind, value in (("annotator", annotator), ("clip", clip), ("prompt", prompt)) if value]
    if len(named) != 1:
        raise ConfigError("give exactly one of --annotator, --clip and --prompt")
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
        search = withdrawal.search(place, known, kind, value, corpus, others)  # type: ignore[arg-type]
        made: tuple[Any, ...] = ()
        if not dry_run:
            made = withdrawal.withdraw(place, known, search, reason).made
    facts: dict[str, Any] = {
        "withdrawal": search.name,
        "dry_run": dry_run,
        "holding": [
            {"corpus": h.version.corpus, "version": h.version.name, "newest": h.newest, "rows": h.rows}
            for h in search.holdings
        ],
        "made": [{"corpus": one.corpus, "version": one.version} for one in made],
    }
    print_json(facts) if as_json else console.show_withdrawal(facts)
