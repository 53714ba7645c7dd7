"""Rebuild: bring several corpora up to date, each after those that it reads, and publish them if told so.

A corpus that fails does not stop the others; what reads it is skipped. The end says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.futures import PrefectFuture
from prefect.task_runners import ThreadPoolTaskRunner

from earmark.flows.command.rebuild_plan import places_of
from earmark.flows.command.running import first_line, run_build
from earmark.flows.publish import publish
from earmark.schemas.errors import EarmarkError
from earmark.schemas.rebuild import Publication, Rebuild
from earmark.tasks.build.artifacts import run_name
from earmark.tasks.release.rebuilding import Ending, Place, RebuildFailed, skip_reason
from earmark.tasks.store.runs import list_runs
from earmark.tasks.store.versions import Store, open_store

CORPORA_AT_ONCE = 4


@flow(
    name="rebuild",
    flow_run_name=run_name,
    task_runner=ThreadPoolTaskRunner(max_workers=CORPORA_AT_ONCE),  # type: ignore[arg-type]
)
def rebuild(config: Rebuild, store: str = "data/store") -> list[Ending]:
    """Bring corpora up to date, and publish those that say where.

    Args:
        config: the corpora, their configs, and where they are published.
        store: the store: a folder, or s3://bucket/prefix.

    Returns:
        How each corpus ended.

    Raises:
        RebuildFailed: some did not come to what was wanted.
    """
    place = open_store(store)
    ending: dict[str, PrefectFuture[Ending]] = {}
    for one in places_of(config, place):
        name = one.member.corpus
        before = [ending[other] for other in one.after]
        step = bring_up_to_date.with_options(task_run_name=name)
        ending[name] = step.submit(one, config.base, place, before)  # type: ignore[arg-type]  # futures become endings
    endings = [future.result() for future in ending.values()]
    show_endings(endings)
    if not all(one.good for one in endings):
        raise RebuildFailed(endings)
    return endings


@task
def bring_up_to_date(place: Place, base: Path, store: Store, before: Sequence[Ending]) -> Ending:
    """Build a corpus unless a version is up to date or what it reads is missing; then publish it if told so."""
    member = place.member
    if reason := skip_reason(before):
        return Ending(member.corpus, "skipped", detail=reason, todo="mend that, then rebuild")
    try:
        built = run_build(member.corpus, base / member.config, store)
    except Exception as error:  # noqa: BLE001  (the other corpora go on; this one's fault is told at the end)
        _log(member.corpus, error)
        return Ending(member.corpus, "failed", detail=first_line(error), todo=_way_on(member.corpus, store))
    version, state = built.version.name, "built" if built.new else "up to date"
    if member.publish is None:
        return Ending(member.corpus, state, version)  # type: ignore[arg-type]
    try:
        where = _publish(f"{member.corpus}@{version}", member.publish, base, store)
    except Exception as error:  # noqa: BLE001
        _log(member.corpus, error)
        todo = f"earmark publish {member.corpus}@{version} --repo {member.publish.repo} --dry-run"
        return Ending(member.corpus, "not published", version, first_line(error), todo)
    return Ending(member.corpus, state, version, where)  # type: ignore[arg-type]


def show_endings(endings: Sequence[Ending]) -> None:
    """Leave the table of a rebuild on Prefect's page."""
    create_table_artifact(
        [{name: str(value or "") for name, value in vars(ending).items()} for ending in endings],
        key="rebuild",
        description="How each corpus ended, and what to do.",
    )


def _publish(spec: str, publication: Publication, base: Path, store: Store) -> str:
    values: dict[str, Any] = publication.model_dump(exclude={"allow_findings"})
    if publication.allow_findings is not None:
        values["allow_findings"] = str((base / publication.allow_findings).absolute())
    return str(publish(spec, store=str(store.root.absolute()), **values)["url"])


def _way_on(corpus: str, store: Store) -> str:
    runs = [run for run in list_runs(store) if run.corpus == corpus]
    if runs and runs[-1].current_state() in ("failed", "interrupted"):
        return f"mend it, then: earmark resume {runs[-1].run}"
    return "mend it, then rebuild"


def _log(corpus: str, error: Exception) -> None:
    get_run_logger().error("%s: %s", corpus, first_line(error), exc_info=not isinstance(error, EarmarkError))
