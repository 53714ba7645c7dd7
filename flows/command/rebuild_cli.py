"""`earmark rebuild`: several corpora are brought up to date."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer


def rebuild(
    config: Annotated[
        Path,
        typer.Option(
            "--config", "-c", metavar="FILE", help="A TOML file: the corpora, their configs and repositories."
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which corpora are out of date; build nothing.")
    ] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="DIR", help="The store of versions. Default: EARMARK_STORE, else data/store."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Build each corpus that is out of date, in the order of their inputs, and publish those with a repository.

    A corpus that fails does not stop the others.

    **Examples:**

    `earmark rebuild --config data/demo/rebuild.toml --dry-run`

    `earmark rebuild --config data/demo/rebuild.toml`
    """
    from earmark.flows.command import console
    from earmark.flows.command.rebuild_plan import forecast, read_rebuild
    from earmark.tasks.release.rebuilding import Ending, RebuildFailed
    from earmark.tasks.store.versions import open_store

    place = open_store(store)
    plan = read_rebuild(config)
    stands = forecast(plan, place)
    if dry_run:
        _print(stands) if as_json else console.show_standings(stands)
        return
    failed = None
    if all(one.would == "nothing" and not one.publish for one in stands):
        endings = tuple(Ending(one.corpus, "up to date", one.version) for one in stands)
    else:
        try:
            endings = tuple(_run(plan, place))
        except RebuildFailed as error:
            endings, failed = error.endings, error
    _print(endings) if as_json else console.show_endings(endings)
    if failed is not None:
        raise failed


def _run(plan: Any, place: Any) -> Any:
    from earmark.flows.command.ending import stoppable
    from earmark.flows.command.running import start_prefect
    from earmark.tasks.build.progress import shown

    with stoppable("finished steps and answers are kept: the same command goes on"), shown():
        start_prefect()
        from earmark.flows.rebuild import rebuild as run

        return run(plan, str(place.root.absolute()))


def _print(rows: Any) -> None:
    print(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False))
