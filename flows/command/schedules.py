"""Keep schedules on Prefect's server: a deployment of `rebuild` for a build config or a rebuild's config."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from earmark.flows.command.rebuild_plan import places_of, read_rebuild
from earmark.flows.command.running import start_prefect
from earmark.flows.command.serving import POOL, make_pool
from earmark.schemas.errors import ConfigError
from earmark.schemas.rebuild import Member, Publication, Rebuild
from earmark.schemas.toml import first_fault, read_toml
from earmark.tasks.store.versions import Store

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

TAG = "earmark"
ENTRYPOINT = "earmark.flows.rebuild.rebuild"  # a module's path: it loads from a wheel, in any folder
_SECRET = re.compile(r"([A-Z][A-Z0-9_]*)=([a-z0-9][a-z0-9-]*)")


@dataclass(frozen=True)
class Schedule:
    """A deployment as Prefect's server holds it."""

    name: str  # FLOW/NAME
    corpora: tuple[str, ...]
    when: str  # cron expression and time zone
    active: bool
    next_run: datetime | None
    last_state: str | None  # of its newest run
    publishes: str  # the repositories, or nothing


def rebuild_of(path: Path, publication: Publication | None, store: Store) -> Rebuild:
    """Return the rebuild of a file: of the one build config, or of the several that a rebuild's config names."""
    values = read_toml(path)
    if "builds" in values:
        if publication:
            raise ConfigError(f"{path}: expected `publish` in its entries, found --publish beside a rebuild's config")
        config = read_rebuild(path)
    elif "corpus" in values:
        member = Member(corpus=str(values["corpus"]), config=Path(path.name), publish=publication)
        config = Rebuild(builds=(member,), base=path.parent)
    else:
        raise ConfigError(f'{path}: expected corpus = "NAME" or [[builds]], found neither')
    places_of(config, store)  # reads each build config: a fault shows now, not at three in the morning
    return config.model_copy(update={"base": config.base.absolute()})


def name_of(path: Path, config: Rebuild) -> str:
    """Return a deployment's name from its file, with the corpus where the file does not say it."""
    corpora = [member.corpus for member in config.builds]
    return path.stem if len(corpora) > 1 or corpora[0] in path.stem else f"{corpora[0]}-{path.stem}"


def secrets_of(written: Sequence[str]) -> dict[str, str]:
    """Return job variables that fill a run's environment from Secret blocks."""
    found = [(one, _SECRET.fullmatch(one)) for one in written]
    if wrong := [one for one, match in found if match is None]:
        name = wrong[0].partition("=")[0]  # the other half may be the secret itself
        raise ConfigError(
            f"--secret: expected VARIABLE=BLOCK, a Secret block's name on Prefect's page, found '{name}=…'"
        )
    named = (match.groups() for _, match in found if match)
    return {variable: f"{{{{ prefect.blocks.secret.{block} }}}}" for variable, block in named}


def add(
    config: Rebuild, name: str, cron: str, timezone: str, store: Store, environment: dict[str, str]
) -> tuple[str, datetime | None]:
    """Register a schedule, or replace that of the same config and store; return its full name and its next time.

    Raises:
        ConfigError: no cron expression of five fields, one whose times never come, or no time zone; or the name is that
            of a schedule of other configs or of another store.
        DiskError: Prefect's server does not answer or start.
    """
    start_prefect()
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.deployments.runner import RunnerDeployment
    from prefect.schedules import Cron
    from prefect.types.entrypoint import EntrypointType

    from earmark.flows.rebuild import rebuild

    try:
        first = _next(CronSchedule(cron=cron, timezone=timezone))  # it checks both
    except ValidationError as error:
        said = first_fault(error)[1].removeprefix("Value error, ")
        raise ConfigError(
            f'--cron, --timezone: {said}; for example --cron "0 3 * * *" --timezone Europe/Berlin'
        ) from None
    if len(cron.split()) != 5 and not cron.startswith("@"):  # Prefect takes a sixth for seconds, and stands it last
        raise ConfigError(f"--cron: expected minute, hour, day, month, weekday, found {len(cron.split())} in '{cron}'")
    if first is None:
        raise ConfigError(f"--cron: expected times that come, found '{cron}', whose times never do")
    deployment = RunnerDeployment.from_flow(
        rebuild,
        name,
        schedule=Cron(cron, timezone=timezone),
        parameters={"config": config.model_dump(mode="json"), "store": store.absolute().address},
        tags=[TAG, *(member.corpus for member in config.builds)],
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        work_pool_name=POOL,
        job_variables={"env": environment} if environment else {},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    with _client() as client:
        make_pool(client)
        _require_same(client, f"{deployment.flow_name}/{name}", deployment.parameters)
    deployment.apply()
    full = f"{deployment.flow_name}/{name}"
    return full, next((one.next_run for one in schedules() if one.name == full), None)


def schedules() -> list[Schedule]:
    """Return Earmark's schedules on Prefect's server, by name."""
    with _client() as client:
        return sorted((_schedule(client, one) for one in _ours(client)), key=lambda one: one.name)


def pause(name: str, paused: bool) -> None:
    """Pause a schedule, or resume it.

    Raises:
        ConfigError: the server has no schedule of this name.
    """
    with _client() as client:
        client.set_deployment_paused_state(_named(client, name).id, paused)


def remove(name: str) -> None:
    """Remove a schedule; its runs and versions stay.

    Raises:
        ConfigError: the server has no schedule of this name.
    """
    with _client() as client:
        client.delete_deployment(_named(client, name).id)


@contextmanager
def _client() -> Iterator[SyncPrefectClient]:
    start_prefect()
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        yield client


def _ours(client: SyncPrefectClient) -> list[DeploymentResponse]:
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags

    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    return [one for one in client.read_deployments(deployment_filter=ours, limit=200) if one.schedules]


def _named(client: SyncPrefectClient, name: str) -> DeploymentResponse:
    found = {_full_name(client, one): one for one in _ours(client)}
    matching = [one for full, one in found.items() if name in (full, full.partition("/")[2])]
    if len(matching) == 1:
        return matching[0]
    known = ", ".join(sorted(found)) or "none"
    raise ConfigError(f"expected one schedule '{name}', found {len(matching) or 'none'}; schedules: {known}")


def _require_same(client: SyncPrefectClient, full: str, parameters: Mapping[str, Any]) -> None:
    """Refuse to replace the schedule of another project: of another store, or without a config in common."""
    from prefect.exceptions import ObjectNotFound

    try:
        held = [_builds(one) for one in (client.read_deployment_by_name(full).parameters, parameters)]
    except ObjectNotFound:
        return
    (configs, store), (wanted, place) = held
    if store != place or not configs & wanted:
        name = full.partition("/")[2]
        raise ConfigError(
            f"--name: '{name}' schedules {', '.join(sorted(configs)) or 'something else'} into {store} already; give "
            f"this one another --name, or remove that one first: earmark schedule remove {name}"
        )


def _builds(parameters: Mapping[str, Any]) -> tuple[set[str], str]:
    """Return the config files of a deployment of ours, and its store."""
    config = parameters.get("config") or {}
    files = {str(Path(config.get("base", ""), one["config"])) for one in config.get("builds", ())}
    return files, str(parameters.get("store"))


def _full_name(client: SyncPrefectClient, deployment: DeploymentResponse) -> str:
    return f"{client.read_flow(deployment.flow_id).name}/{deployment.name}"


def _schedule(client: SyncPrefectClient, deployment: DeploymentResponse) -> Schedule:
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    runs = client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate({"deployment_id": {"any_": [deployment.id]}}),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
    )
    planned = [run.expected_start_time for run in runs if run.state_type == "SCHEDULED" and run.expected_start_time]
    ended = [run.state_name for run in runs if run.state_type != "SCHEDULED"]
    timed = [one.schedule for one in deployment.schedules if one.active]
    active = bool(timed) and not deployment.paused
    config: dict[str, Any] = deployment.parameters.get("config") or {}
    repos = [one["publish"]["repo"] for one in config.get("builds", []) if one.get("publish")]
    return Schedule(
        _full_name(client, deployment),
        tuple(tag for tag in deployment.tags if tag != TAG),
        "; ".join(_when(one.schedule) for one in deployment.schedules),
        active,
        min(planned, default=_next(timed[0]) if active else None),
        ended[0] if ended else None,
        ", ".join(repos),
    )


def _when(schedule: Any) -> str:
    cron = getattr(schedule, "cron", None)
    return f"{cron} {schedule.timezone or 'UTC'}" if cron else str(getattr(schedule, "interval", "rrule"))


def _next(schedule: Any) -> datetime | None:
    """Return a cron schedule's next time: a new one has no planned runs before the server's scheduler comes by; None
    where it never comes, as on 30 February, which Prefect takes."""
    from prefect.server.schemas.schedules import CronSchedule

    if not getattr(schedule, "cron", None):
        return None
    times = CronSchedule(cron=schedule.cron, timezone=schedule.timezone)
    try:
        return asyncio.run(times.get_dates(1))[0]
    except ValueError:
        return None
