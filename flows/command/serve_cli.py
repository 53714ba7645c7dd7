"""Implement `earmark rebuild` and `earmark serve`: keep corpora up to date, at once or by schedules."""

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


def serve(
    file: Annotated[Path | None, option("FILE", "Deploy this file first, such as deploy/prefect.yaml.")] = None,
    host: Annotated[str, option("HOST", "The address on which the server and the metrics listen.")] = "127.0.0.1",
    port: Annotated[int, option("N", "The port of Prefect's server.", min=1, max=65535)] = 4200,
    metrics_port: Annotated[int, option("N", "The port of /metrics; 0 switches it off.", min=0, max=65535)] = 9464,
    at_once: Annotated[int, option("N", "Run N runs at the same time.", min=1)] = 2,
    deploy_only: Annotated[bool, option("--deploy-only", "Only register the deployments at PREFECT_API_URL.")] = False,
    store: StoreOption = None,
) -> None:
    """Run what `earmark schedule` planned: Prefect's server, a worker and metrics, until Ctrl-C.

    Where PREFECT_API_URL names a server, that one is used and none is started.

    **Examples:** `earmark serve` · `earmark serve --file deploy/prefect.yaml`
    """
    from earmark.flows.command.serving import AUTOMATIONS
    from earmark.flows.command.serving import serve as run

    run(
        file,
        AUTOMATIONS,
        host=host,
        port=port,
        at_once=at_once,
        metrics_port=metrics_port,
        store=store,
        deploy_only=deploy_only,
    )
