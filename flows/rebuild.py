"""Rebuild several corpora, each after the corpora it reads, and publish them if configured.

A failed corpus does not stop the others; corpora reading it are skipped. The end reports the next steps.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import allow_failure, flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture
from prefect.states import Cancelled, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from earmark.flows.command.ending import Terminated, command, stop_behind
from earmark.flows.command.rebuild_plan import places_of
from earmark.flows.command.running import first_line, run_build
from earmark.flows.publish import publish
from earmark.schemas.errors import EarmarkError
from earmark.schemas.rebuild import Publication, Rebuild
from earmark.tasks.annotation.session import stop_all
from earmark.tasks.pipeline.flow import run_name
from earmark.tasks.release.rebuilding import CorpusPlace, Ending, RebuildFailed, newer_input, skip_reason
from earmark.tasks.store.runs import list_runs
from earmark.tasks.store.versions import Store, open_store

CORPORA_AT_ONCE = 4


@flow(
    name="rebuild",
    flow_run_name=run_name,
    task_runner=ThreadPoolTaskRunner(max_workers=CORPORA_AT_ONCE),  # type: ignore[arg-type]
)
def rebuild(config: Rebuild, store: str = "data/store") -> list[Ending]:
    """Bring corpora up to date, and publish those with a repository.

    Args:
        config: the corpora, their configs, and their repositories.
        store: the store: a folder, or a URL such as s3://bucket/prefix.

    Returns:
        The ending of each corpus.

    Raises:
        RebuildFailed: some failed, were skipped or not published.
    """
    place = open_store(store)
    ending: dict[str, PrefectFuture[Any]] = {}
    try:
        for one in places_of(config, place):
            name = one.member.corpus
            before = [allow_failure(ending[other]) for other in one.after]
            step = bring_up_to_date.with_options(task_run_name=name)
            ending[name] = step.submit(one, config.base, place, before)  # type: ignore[arg-type]  # become endings
        endings = [_ending(future) for future in ending.values()]
    except BaseException as error:
        if isinstance(stop_behind(error), Terminated):  # raised here alone; Prefect waits for the builds' threads
            stop_all()
        raise
    show_endings(endings)
    if not all(one.good for one in endings):
        raise RebuildFailed(endings)
    return endings


@task
def bring_up_to_date(place: CorpusPlace, base: Path, store: Store, before: Sequence[Ending]) -> Ending | State[Ending]:
    """Build a corpus unless a version is up to date or an input is missing; then publish it if configured.

    The task's state shows the ending on Prefect's page: failed, or cancelled with the name Skipped.
    """
    ending = _bring(place, base, store, before)
    if ending.good:
        return ending
    said = f"{ending.corpus} {ending.state}: {ending.detail}"
    if ending.state == "skipped":
        return Cancelled(name="Skipped", message=said, data=ending)
    return Failed(message=said, data=ending)


def _ending(future: PrefectFuture[Any]) -> Ending:
    """Return a corpus's ending; raise an internal fault recorded in no ending."""
    held: Ending | BaseException = future.result(raise_on_failure=False)
    if isinstance(held, BaseException):
        raise held
    return held


def _bring(place: CorpusPlace, base: Path, store: Store, before: Sequence[Ending]) -> Ending:
    member = place.member
    if reason := skip_reason(before) or newer_input({one.corpus: one.version for one in before}, store):
        return Ending(member.corpus, "skipped", detail=reason, todo="mend that, then rebuild")
    try:
        built = run_build(member.corpus, base / member.config, store)
    except Exception as error:  # noqa: BLE001  (the other corpora go on; this one's fault is reported at the end)
        _log(member.corpus, error)
        return Ending(member.corpus, "failed", detail=first_line(error), todo=_way_on(member.corpus, store))
    version, state = built.version.name, "built" if built.new else "up to date"
    if member.publish is None:
        return Ending(member.corpus, state, version)  # type: ignore[arg-type]
    try:
        where = _publish(f"{member.corpus}@{version}", member.publish, base, store)
    except Exception as error:  # noqa: BLE001
        _log(member.corpus, error)
        todo = command(store, "publish", f"{member.corpus}@{version}", *_options(member.publish, base), "--dry-run")
        return Ending(member.corpus, "not published", version, first_line(error), todo)
    return Ending(member.corpus, state, version, where)  # type: ignore[arg-type]


def show_endings(endings: Sequence[Ending]) -> None:
    """Show the table of a rebuild on Prefect's page."""
    create_table_artifact(
        [{name: str(value or "") for name, value in vars(ending).items()} for ending in endings],
        key="rebuild",
        description="How each corpus ended, and what to do.",
    )


def _publish(spec: str, publication: Publication, base: Path, store: Store) -> str:
    values: dict[str, Any] = publication.model_dump(exclude={"allow_findings", "gate"})
    for name in ("allow_findings", "gate"):
        if (path := getattr(publication, name)) is not None:
            values[name] = str((base / path).absolute())
    return str(publish(spec, store=str(store.root.absolute()), **values)["url"])


def _options(publication: Publication, base: Path) -> list[str]:
    """Return a publication's options as of `earmark publish`: without them a repository would be public, or open."""
    words = ["--repo", publication.repo]
    flags = {"--private": publication.private, "--no-audio": not publication.audio}
    words += [name for name, given in (flags | {"--allow-builtin": publication.allow_builtin}).items() if given]
    for name in publication.views:
        words += ["--view", name]
    for name, path in (("--gate", publication.gate), ("--allow-findings", publication.allow_findings)):
        words += [name, str((base / path).absolute())] if path else []
    return words + (["--collection", publication.collection] if publication.collection else [])


def _way_on(corpus: str, store: Store) -> str:
    runs = [run for run in list_runs(store) if run.corpus == corpus]
    if runs and runs[-1].current_state() in ("failed", "interrupted"):
        return f"mend it, then: {command(store, 'resume', runs[-1].run)}"
    return "mend it, then rebuild"


def _log(corpus: str, error: Exception) -> None:
    get_run_logger().error("%s: %s", corpus, first_line(error), exc_info=not isinstance(error, EarmarkError))
