"""Run a build from the command line: plan first, record the run, keep Prefect quiet, report how to continue."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.flows.command.ending import command, how, machine_fault, stop_behind, stoppable
from earmark.flows.command.respelling import left_out, new_values
from earmark.schemas.annotation import Declarations
from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import ConfigError, DiskError, StoreError
from earmark.schemas.machine import uncollected
from earmark.schemas.places import require_below_roots
from earmark.schemas.registry import folder_of, load
from earmark.schemas.toml import checked, parse_config, read_toml
from earmark.tasks.pipeline.registry import all_corpora, corpora, find_corpus

if TYPE_CHECKING:
    from earmark.schemas.corpus import Corpus
    from earmark.tasks.pipeline.plan import Plan
    from earmark.tasks.pipeline.preflight import BuildForecast, Preview
    from earmark.tasks.store.runs import Run, State
    from earmark.tasks.store.versions import Store, Version

PREFECT_BYTES = 16 << 20  # initial size of the Prefect server's database and log
SEARCH_AFTER = 20_000, 20  # new objects, and young searches, until Python searches for cycles: a build makes few


@dataclass(frozen=True)
class Built:
    """The outcome of `run_build`."""

    version: Version  # the config's present version
    new: bool  # whether this build committed it
    newest: str | None = None  # the corpus's newest version, if this one existed already


def read_config(corpus: Corpus, path: Path, limit: int | None = None, *, resumed: bool = False) -> BuildConfig:
    """Read a corpus's config file: TOML, or values from Python kept by `earmark.build`.

    A resumed run's may be of 1.0.0.
    """
    require_below_roots("config", str(path))
    kept = path.suffix == ".json"
    values, path = _kept_values(path) if kept else (read_toml(path), path)
    own = values.pop("limit", None) if kept or resumed else None
    limit = own if limit is None else limit
    stated = values.setdefault("corpus", corpus.name)
    if stated != corpus.name:
        raise ConfigError(f"{path}: expected corpus = '{corpus.name}', found '{stated}'")
    if resumed or kept:
        if lost := left_out(corpus.config, values):
            raise ConfigError(f"{path}: {lost[0]}")
        values = new_values(corpus.config, values)
    checked(Declarations, {"models": values.get("models", {})}, path)  # the unused ones too
    return parse_config(corpus.config, values, path, limit)


def _kept_values(path: Path) -> tuple[dict[str, Any], Path]:
    """Return values from Python, and a nominal file in the base folder of their paths."""
    try:
        kept = json.loads(path.read_bytes())
        return dict(kept["config"]), Path(kept["base"]) / path.name
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: expected a TOML file, or what earmark.build kept: {error}") from None


def plan_build(
    name: str, path: Path, store: Store, limit: int | None = None, *, allow_rejects: bool = False, resumed: bool = False
) -> tuple[Plan, BuildConfig]:
    """Read the config, check the first rows of its inputs and fingerprint them, without starting anything.

    Args:
        name, path, store, limit, allow_rejects: as in `run_build`.
        resumed: its run may be one of 1.0.0.

    Raises:
        ConfigError: the file is not a config of that corpus.
        Faults: all faults of the inputs.
        EarmarkError: an input cannot be read.
    """
    from earmark.tasks.pipeline.plan import plan_build as planned
    from earmark.tasks.pipeline.preflight import check

    corpus = find_corpus(name)
    config = read_config(corpus, path, limit, resumed=resumed)
    config = config.model_copy(update={"most_rejected": None}) if allow_rejects else config
    check(corpus, config, store)
    plan = planned(corpus, config, store)
    return plan, plan.config


def find_version(store: Store, spec: str, path: Path | None = None) -> Version:
    """Return the version named by `CORPUS[@vN]`, or a corpus's version of a config.

    The config's version is its up-to-date one, else the newest made from the file before it, its inputs
    or Earmark changed; the latter is reported.
    """
    from earmark.tasks.pipeline.plan import plan_build as planned
    from earmark.tasks.pipeline.progress import say, shown
    from earmark.tasks.store.runs import made_by

    if path is None:
        return store.find(spec)
    if "@" in spec:
        raise StoreError(f"expected a version or --config, found both: {spec} and {path}")
    corpus = find_corpus(spec)
    with shown():
        done = planned(corpus, read_config(corpus, path), store).up_to_date(tidy=False)
    if done is not None:
        return store.find(f"{spec}@{done.name}")
    made = made_by(store, spec)
    of_config = [v.name for v in store.versions(spec) if v.name in made and made[v.name].config == str(path.absolute())]
    if not of_config:
        raise StoreError(
            f"no version of {spec} in {store.address} was made from {path}; build it: "
            + command(store, "build", spec, "-c", path)
        )
    with shown():
        say(f"{spec} {of_config[-1]} was made from {path} before it, its inputs or Earmark changed")
    return store.find(f"{spec}@{of_config[-1]}")


def story_of(name: str, path: Path) -> tuple[Corpus, Any, BuildConfig]:
    """Return a corpus, the story of its flow, and a config of it, read from a file."""
    corpus = find_corpus(name)
    config = read_config(corpus, path)
    if not config.asked():
        raise ConfigError(f"{path}: a build with this config asks no model")
    return corpus, load(corpus.flow).story, config


def forecast_build(
    name: str,
    path: Path,
    store: Store,
    limit: int | None = None,
    *,
    allow_rejects: bool = False,
    force: bool = False,
) -> BuildForecast:
    """Forecast a build's inputs, commits and requests; ask nothing, and change neither the store nor the ledger."""
    from earmark.tasks.pipeline.media import scratch_store
    from earmark.tasks.pipeline.preflight import preview
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.store.objects import one_commit_each
    from earmark.tasks.store.versions import ledger_address

    corpus = find_corpus(name)
    with shown(), one_commit_each(), scratch_store(store) as scratch:
        plan, config = plan_build(name, path, scratch, limit, allow_rejects=allow_rejects)
        done, latest = None if force else plan.up_to_date(tidy=False), store.latest(name)
        story = load(corpus.flow).story
        shows: Preview = {"asks": None, "would_stop": None}
        if not done:
            shows |= preview(plan.made, story, config, scratch, ledger_address(store))
    return {
        "corpus": name,
        "store": store.address,
        "build_key": plan.build_key if all(plan.made.inputs.values()) else None,
        "up_to_date": done.name if done else None,
        "newest": latest.name if latest else None,
        "would_commit": None if done or shows["would_stop"] else f"v{latest.number + 1 if latest else 1}",
        "latest": latest.name if latest else None,
        "inputs": plan.made.inputs,
        "targets": config.targets(),
        **shows,
    }


def resume_run(run: Run, store: Store, *, allow_rejects: bool = False) -> Built:
    """Resume a failed or interrupted run; settle its record with it.

    Args:
        run: its record.
        store: the version's store.
        allow_rejects: as in `run_build`; a run started with it keeps it.

    Raises:
        ConfigError: its config is gone.
    """
    path, allow = Path(run.config), allow_rejects or run.allow_rejects
    if not path.exists():
        raise ConfigError(
            f"run {run.run}: expected its config {path}, found none; put it back, or write it anew (the answers are "
            f"kept): {command(store, 'build', run.corpus, '--config', 'FILE')}"
        )
    force = run.force and run.state != "completed"  # what it was to replace, it has replaced
    return run_build(run.corpus, path, store, force=force, limit=run.limit, fresh=False, allow_rejects=allow)


def run_build(
    name: str,
    path: Path,
    store: Store,
    *,
    force: bool = False,
    limit: int | None = None,
    fresh: bool = True,
    allow_rejects: bool = False,
) -> Built:
    """Build a version unless one is up to date, and keep a record of the run.

    Args:
        name: the corpus.
        path: its config.
        store: the version's store.
        force: build even if a version is up to date.
        limit: only the first rows of each source.
        fresh: with `force`, forget the finished steps of an interrupted build.
        allow_rejects: commit despite lost inputs, even with an empty main table.
    """
    from earmark.tasks.annotation.errors import LedgerError
    from earmark.tasks.pipeline.logs import RUN
    from earmark.tasks.pipeline.progress import say, shown
    from earmark.tasks.store.licences import new_terms
    from earmark.tasks.store.objects import one_commit_each
    from earmark.tasks.store.runs import save_run, settle_runs, start_run
    from earmark.tasks.store.versions import Version

    with shown(), one_commit_each():
        if force or store.latest(name) is None:
            _begin_prefect()
        plan, config = plan_build(name, path, store, limit, allow_rejects=allow_rejects, resumed=not fresh)
        if not force and (done := plan.up_to_date()):
            settle_runs(store, name, path, limit, done.name)
            return Built(done, new=False, newest=store.versions(name)[-1].name)
        before = store.latest(name)
        if force and fresh:
            plan.forget()
        run = start_run(store, name, path, limit, force=force, allow_rejects=allow_rejects)
        RUN.set(run.run)
        here = path.absolute()
        near = here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else path
        say(f"run {run.run}: building {name} from {near}")
        for line in new_terms(plan.made, before):
            say(line)
        go_on = f"go on with: {command(store, 'resume', run.run)}"
        with stoppable(f"finished steps and answers are kept; {go_on}"):
            try:
                version = _start_flow(name, config, store, force=force, inputs=plan.made.inputs)
            except BaseException as error:
                if (stop := stop_behind(error)) is not None:
                    _end(store, run, "interrupted", how(stop))
                    raise
                line = machine_fault(error) or first_line(error)
                _end(store, run, "failed", line)
                if isinstance(error, DiskError | LedgerError) or machine_fault(error):
                    raise DiskError(f"{line}; when that is mended, {go_on}") from error
                raise
        save_run(store, run.model_copy(update={"state": "completed", "version": version, "ended": datetime.now(UTC)}))
        settle_runs(store, name, path, limit, version, force=force)
    return Built(Version(name, store.folder(name) / version), new=before is None or before.name != version)


def demo_config(name: str) -> Path:
    """Return a corpus's demo config, `demo/NAME.toml` in the folder of its package, ours in `data/demo`."""
    path = _demo_path(name)
    if not path.is_file():
        raise ConfigError(f"demo of {name}: file not found: {path}")
    return path


def demo_configs() -> dict[str, Path]:
    """Return the demo config of each corpus of ours, and of those of packages with one."""
    paths = {name: _demo_path(name) for name in all_corpora()[0]}
    return {name: path for name, path in paths.items() if path.is_file() or corpora()[name].package is None}


def _demo_path(name: str) -> Path:
    folder = Path(__file__).resolve().parents[2] / "data"
    if corpora()[name].package is not None:
        folder = folder_of(re.split(r"[.:]", find_corpus(name).flow)[0])
    return folder / "demo" / f"{name}.toml"


def start_prefect() -> None:
    """Prepare for the first flow of this process; call it before Prefect is imported."""
    from earmark.flows.command import prefect_server

    for key, value in prefect_server.QUIET.items():
        os.environ.setdefault(key, value)
    for queue in ("APILogWorker", "EventsWorker"):  # at exit they log unsent counts, after Earmark's last line
        logging.getLogger(queue).setLevel(logging.ERROR)
    if "prefect" in sys.modules:
        return
    prefect_server.pass_proxies_by()
    if url := os.environ.get("PREFECT_API_URL"):
        prefect_server.check_api(url)
    else:
        _check_room(prefect_server.home())
        prefect_server.use()


def _begin_prefect() -> None:
    """Start Prefect's server while the inputs are read, if the build surely needs one. A lack of room is reported once
    the run has its record."""
    from earmark.flows.command import prefect_server

    if not os.environ.get("PREFECT_API_URL") and "prefect" not in sys.modules:
        with suppress(DiskError, OSError):
            _check_room(prefect_server.home())
            prefect_server.begin()


def _check_room(home: Path) -> None:
    there = next(folder for folder in (home, *home.resolve().parents) if folder.is_dir())
    if (free := shutil.disk_usage(there).free) < PREFECT_BYTES:
        raise DiskError(
            f"{home}: expected {PREFECT_BYTES >> 20} MB for Prefect's server, found {free / 2**20:.1f} MB "
            "free; make room, or set PREFECT_HOME to another folder"
        )


def _start_flow(name: str, config: BuildConfig, store: Store, *, force: bool, inputs: Mapping[str, str]) -> str:
    start_prefect()
    first = gc.isenabled() and "prefect.flows" not in sys.modules
    with uncollected():  # the search takes a tenth of importing Prefect
        flow = load(find_corpus(name).flow)
        if first:
            gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(*SEARCH_AFTER)
    try:
        version: str = flow(config=config, store=str(store.root.absolute()), force=force, inputs=dict(inputs))
    finally:
        gc.set_threshold(*before)
    return version


def _end(store: Store, run: Run, state: State, error: str) -> None:
    from earmark.tasks.store.runs import save_run

    with suppress(OSError):  # on a full disk the error matters more, and an unrecorded end still shows as interrupted
        save_run(store, run.model_copy(update={"state": state, "error": error, "ended": datetime.now(UTC)}))


def first_line(error: BaseException) -> str:
    """Return an error's message in one line."""
    return (str(error) or type(error).__name__).splitlines()[0]
