"""Implement `earmark withdraw`: remove withdrawn data from every corpus."""

from __future__ import annotations

import re
from typing import Annotated, Any

from earmark.flows.command.options import JsonOption, StoreOption, open_store, option, print_json


def withdraw(
    reason: Annotated[str, option("TEXT", "The reason, kept unpublished in the store; name nobody.")],
    annotator: Annotated[str | None, option("ID", "The id in the tables, or SOURCE/ID in a vote export.")] = None,
    clip: Annotated[str | None, option("SHA256", "The SHA-256 of a clip or image.")] = None,
    prompt: Annotated[str | None, option("ID", "The prompt's id.")] = None,
    corpus: Annotated[str | None, option("NAME", "Search this corpus alone.")] = None,
    dry_run: Annotated[bool, option("--dry-run", "Count the rows to remove; change nothing.")] = False,
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
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.pipeline.registry import corpora, find_corpus
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
