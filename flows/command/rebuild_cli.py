"""Implement `earmark rebuild`: bring several corpora up to date."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from earmark.flows.command.options import JsonOption, KeepOption, StoreOption, open_store, option, print_json


def rebuild(
    config: Annotated[Path, option("-c --config FILE", "Corpora, configs and repositories, a TOML file.")],
    dry_run: Annotated[bool, option("--dry-run", "Show what is out of date; build nothing.")] = False,
    store: StoreOption = None,
    keep: KeepOption = True,
    as_json: JsonOption = False,
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

    place = open_store(store)
    plan = read_rebuild(config)
    stands = forecast(plan, place)
    if dry_run:
        print_json([asdict(one) for one in stands]) if as_json else console.show_standings(stands)
        return
    failed = None
    if all(one.would == "nothing" and not one.publish for one in stands):
        endings = tuple(Ending(one.corpus, "up to date", one.version) for one in stands)
    else:
        try:
            endings = tuple(_run(plan, place))
        except RebuildFailed as error:
            endings, failed = error.endings, error
    print_json([asdict(one) for one in endings]) if as_json else console.show_endings(endings)
    if failed is not None:
        raise failed


def _run(plan: Any, place: Any) -> Any:
    from earmark.flows.command.ending import stoppable
    from earmark.flows.command.running import start_prefect
    from earmark.tasks.pipeline.progress import shown

    with stoppable("finished steps and answers are kept: the same command goes on"), shown():
        start_prefect()
        from earmark.flows.rebuild import rebuild as run

        return run(plan, str(place.root.absolute()))
