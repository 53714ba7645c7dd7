"""Implement `earmark serve`: run schedules on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from earmark.flows.command.options import StoreOption, option


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
