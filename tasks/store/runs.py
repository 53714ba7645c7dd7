"""Record runs: build, time, config, progress and reason of failure. Records are beside the versions (`<store>/runs/`),
never inside, so that time and host do not enter a version's bytes."""

import os
import secrets
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, ConfigDict

from earmark.schemas.errors import StoreError
from earmark.schemas.files import private_folder
from earmark.schemas.places import CorpusName, FileName
from earmark.tasks.store.files import read_record, write_text
from earmark.tasks.store.staging import LOCK, is_idle
from earmark.tasks.store.versions import Store

State = Literal["running", "completed", "failed", "interrupted"]


class Run(BaseModel):
    """An attempt to build a version."""

    model_config = ConfigDict(extra="forbid")

    run: FileName  # its name, `20260102-030405-ab12`; sorts by time
    corpus: CorpusName
    config: str  # the config file, absolute
    limit: int | None = None
    force: bool = False  # build even if a version is up to date
    allow_rejects: bool = False  # commit even if too many inputs were lost
    host: str
    pid: int
    # start time of the process in seconds since 1970; a later process may have the same number
    process_started: float
    started: datetime
    ended: datetime | None = None
    state: State = "running"
    version: str | None = None  # version committed or found up to date
    error: str | None = None  # one line, if it failed

    def current_state(self) -> State:
        """Return the present state: a running record without its process means interrupted."""
        if self.state == "running" and self.host == socket.gethostname() and not _alive(self.pid, self.process_started):
            return "interrupted"
        return self.state


def start_run(
    store: Store,
    corpus: str,
    config: Path,
    limit: int | None = None,
    *,
    force: bool = False,
    allow_rejects: bool = False,
) -> Run:
    """Write the record of a starting run."""
    now = datetime.now(UTC)
    run = Run(
        run=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        corpus=corpus,
        config=str(config.absolute()),
        limit=limit,
        force=force,
        allow_rejects=allow_rejects,
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        started=now,
    )
    save_run(store, run)
    return run


def save_run(store: Store, run: Run) -> None:
    """Replace the run's record."""
    write_text(private_folder(_folder(store)) / f"{run.run}.json", run.model_dump_json(indent=1) + "\n")


def settle_runs(
    store: Store, corpus: str, config: Path, limit: int | None, version: str, *, force: bool = False
) -> None:
    """Mark a config's earlier failed or interrupted runs as completed by this version. Runs with `--force` are marked
    only if this version was built with it too (`force`)."""
    for run in list_runs(store):
        same = (run.corpus, run.config, run.limit) == (corpus, str(config.absolute()), limit)
        if same and run.current_state() in ("failed", "interrupted") and (force or not run.force):
            save_run(store, run.model_copy(update={"state": "completed", "version": version, "error": None}))


def list_runs(store: Store) -> list[Run]:
    """Return all runs, oldest first. One of another host or container is interrupted if nobody has its corpus's lock.

    Raises:
        StoreError: a record cannot be read.
    """
    runs = [read_record(Run, path, "a run record") for path in sorted(_folder(store).glob("*.json"))]
    for run in runs:
        if run.state == "running" and run.host != socket.gethostname() and is_idle(store, run.corpus):
            run.state = "interrupted"
    return runs


def made_by(store: Store, corpus: str) -> dict[str, Run]:
    """Return the latest run of each version of a corpus, omitting versions without a record here.

    Raises:
        StoreError: a record cannot be read.
    """
    return {run.version: run for run in list_runs(store) if run.corpus == corpus and run.version is not None}


def unsettled(runs: Sequence[Run]) -> list[Run]:
    """Return the runs under way and those that failed or were interrupted, oldest first. A later run of the same config
    and limit settles earlier ones, and a completed one without a limit all earlier ones of its config.

    Args:
        runs: of `list_runs`.
    """
    newest = {(run.corpus, run.config, run.limit): run for run in runs}
    whole = {(run.corpus, run.config): run.run for run in runs if run.limit is None and run.state == "completed"}
    left = (run for run in newest.values() if run.state != "completed")
    return sorted((run for run in left if whole.get((run.corpus, run.config), "") < run.run), key=lambda run: run.run)


def open_runs(store: Store) -> list[Run]:
    """Return the runs of a store as `unsettled`."""
    return unsettled(list_runs(store))


def under_way(store: Store) -> str | None:
    """Return the work in a store that may need its versions and answers, or None. A build holds its corpus's lock with
    and without a record; a record may be there before its build has the lock.

    Raises:
        StoreError: a record cannot be read.
    """
    runs = [f"run {run.run} of {run.corpus}" for run in list_runs(store) if run.current_state() == "running"]
    corpora = sorted(path.parent.name for path in store.root.glob(f"*/{LOCK}"))
    return next(iter(runs), None) or next((f"a build of {name}" for name in corpora if not is_idle(store, name)), None)


def find_run(store: Store, name: str | None) -> Run:
    """Return the named run, or the newest without completion.

    Raises:
        StoreError: the run does not exist.
    """
    if name is None:
        resumable = [run for run in open_runs(store) if run.current_state() != "running"]
        if not resumable:
            raise StoreError(f"nothing to resume in {store.address}: no run has failed or was interrupted")
        return resumable[-1]
    runs = list_runs(store)
    named = [run for run in runs if run.run == name]
    if not named:
        raise StoreError(f"no run '{name}' in {store.address}; `earmark status` lists the runs")
    return named[0]


def _folder(store: Store) -> Path:
    return store.root / "runs"


def _alive(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return bool(abs(process.create_time() - started) < 1 and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
