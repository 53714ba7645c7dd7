"""`earmark serve`: schedules run on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import StoreOption


def serve(
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The deployments. Default: deploy/prefect.yaml of the clone.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address on which the server and the metrics listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of Prefect's server.")] = 4200,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port of /metrics for Prometheus; 0 switches it off.")
    ] = 9464,
    at_once: Annotated[int, typer.Option(min=1, help="How many runs may work at the same time.")] = 2,
    deploy_only: Annotated[
        bool, typer.Option("--deploy-only", help="Only register the deployments on the server of PREFECT_API_URL.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Run scheduled builds: Prefect's server, a worker and metrics, until Ctrl-C.

    Where PREFECT_API_URL names a server, that one is used and none is started.

    **Example:** `earmark serve`
    """
    from earmark.flows.command.serving import ROOT
    from earmark.flows.command.serving import serve as run

    deploy = ROOT / "deploy"
    run(
        file or deploy / "prefect.yaml",
        deploy / "automations.yaml",
        host=host,
        port=port,
        at_once=at_once,
        metrics_port=metrics_port,
        store=store,
        deploy_only=deploy_only,
    )
