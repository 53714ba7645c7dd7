"""How the command line runs a build: plan first, record the run, keep Prefect quiet, say how to go on."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.flows.command.ending import how, interrupted, machine_fault, stop_behind
from earmark.schemas.config import BuildConfig, parse_config, read_toml
from earmark.schemas.errors import ConfigError, DiskError
from earmark.schemas.places import require_below_roots
from earmark.schemas.registry import load
from earmark.tasks.build.registry import find_corpus

if TYPE_CHECKING:
    from earmark.schemas.corpus import Corpus
    from earmark.tasks.build.plan import Plan
    from earmark.tasks.store.runs import Run, State
    from earmark.tasks.store.versions import Store, Version

PREFECT_BYTES = 16 << 20
"""What the database of Prefect's server takes at first, and its log."""


@dataclass(frozen=True)
class Built:
    """The outcome of `run_build`."""

    version: Version  # the version that now answers for the config
    new: bool  # whether this build committed it


def read_config(corpus: Corpus, path: Path, limit: int | None = None) -> BuildConfig:
    """Read a corpus's config file: TOML, or what `earmark.build` kept of values that Python gave.

    Raises:
        ConfigError: it is not a config of that corpus, or lies outside `EARMARK_ROOTS`.
    """
    require_below_roots("config", str(path))
    values, path = _kept_values(path) if path.suffix == ".json" else (read_toml(path), path)
    stated = values.setdefault("corpus", corpus.name)
    if stated != corpus.name:
        raise ConfigError(f"{path}: expected corpus = '{corpus.name}', found '{stated}'")
    return parse_config(corpus.config, values if limit is None else {**values, "limit": limit}, path)


def _kept_values(path: Path) -> tuple[dict[str, Any], Path]:
    """Values that Python gave, and a file in the folder that their paths start from, though there is none."""
    try:
        kept = json.loads(path.read_bytes())
        return dict(kept["config"]), Path(kept["base"]) / path.name
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: expected a TOML file, or what earmark.build kept: {error}") from None


def plan_build(
    name: str, path: Path, store: Store, limit: int | None = None, *, allow_rejects: bool = False
) -> tuple[Plan, BuildConfig]:
    """Read the config, look at the first rows of its inputs and fingerprint them, without starting anything.

    Args:
        name, path, store, limit, allow_rejects: as in `run_build`.

    Raises:
        ConfigError: it is not a config of that corpus.
        Faults: what is wrong with the inputs, all of it.
        EarmarkError: an input cannot be read.
    """
    from earmark.tasks.build.plan import plan_build as planned
    from earmark.tasks.build.preflight import check

    corpus = find_corpus(name)
    config = read_config(corpus, path, limit)
    config = config.model_copy(update={"most_rejected": None}) if allow_rejects else config
    check(config, store, load(corpus.peeks)(config) if corpus.peeks else ())
    return planned(corpus, config, store), config


def story_of(name: str, path: Path) -> tuple[Corpus, Any, BuildConfig]:
    """A corpus, the story that its flow tells, and a config of it, read from a file.

    Raises:
        ConfigError: it is not a config of that corpus, or one that asks nobody.
    """
    corpus = find_corpus(name)
    config = read_config(corpus, path)
    if not config.asked():
        raise ConfigError(f"{path}: a build with this config asks no model")
    return corpus, load(corpus.flow).story, config


def forecast_build(
    name: str, path: Path, store: Store, limit: int | None = None, *, allow_rejects: bool = False
) -> dict[str, Any]:
    """What a build would read, commit and ask; nothing is asked, and the store stays as it is."""
    from earmark.tasks.build.forecast import forecast
    from earmark.tasks.build.progress import shown
    from earmark.tasks.store.objects import one_commit_each

    corpus = find_corpus(name)
    with shown(), one_commit_each():
        plan, config = plan_build(name, path, store, limit, allow_rejects=allow_rejects)
        done, latest = plan.up_to_date(tidy=False), store.latest(name)
        asks = None if done or not config.asked() else forecast(corpus, load(corpus.flow).story, config, store)
    return {
        "corpus": name,
        "store": store.address,
        "build_key": plan.build_key,
        "up_to_date": done.name if done else None,
        "would_commit": None if done else f"v{latest.number + 1 if latest else 1}",
        "inputs": plan.made.inputs,
        "targets": config.targets(),
        "asks": asks,
    }


def resume_run(run: Run, store: Store, *, allow_rejects: bool = False) -> Built:
    """Go on with a run that did not end well; its record is settled with it.

    Args:
        run: its record.
        store: where the version goes.
        allow_rejects: as in `run_build`; a run that had it keeps it.

    Raises:
        EarmarkError: the build failed again.
    """
    allow = allow_rejects or run.allow_rejects
    return run_build(
        run.corpus, Path(run.config), store, force=run.force, limit=run.limit, fresh=False, allow_rejects=allow
    )


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
        store: where the version goes.
        force: build even if a version is up to date.
        limit: only the first rows of each source.
        fresh: with `force`, forget the finished steps of an interrupted build.
        allow_rejects: commit whatever was lost of the inputs, an empty main table too.

    Raises:
        EarmarkError: the build failed; the record says why, and `earmark resume` goes on.
    """
    from earmark.tasks.annotation.errors import LedgerError
    from earmark.tasks.build.logs import RUN
    from earmark.tasks.build.progress import say, shown
    from earmark.tasks.store.model_terms import new_terms
    from earmark.tasks.store.objects import one_commit_each
    from earmark.tasks.store.runs import save_run, settle_runs, start_run
    from earmark.tasks.store.versions import Version

    with shown(), one_commit_each():
        if force or store.latest(name) is None:
            _begin_prefect()
        plan, config = plan_build(name, path, store, limit, allow_rejects=allow_rejects)
        if not force and (done := plan.up_to_date()):
            settle_runs(store, name, path, limit, done.name)
            return Built(done, new=False)
        before = store.latest(name)
        if force and fresh:
            plan.forget()
        run = start_run(store, name, path, limit, force=force, allow_rejects=allow_rejects)
        RUN.set(run.run)
        say(f"run {run.run}: building {name} from {path}")
        for line in new_terms(plan.made, before):
            say(line)
        try:
            version = _start_flow(name, config, store, force=force, inputs=plan.made.inputs)
        except BaseException as error:
            if (stop := stop_behind(error)) is not None:
                _end(store, run, "interrupted", how(stop))
                raise interrupted(stop, f"go on with: earmark resume {run.run}") from None
            line = machine_fault(error) or first_line(error)
            _end(store, run, "failed", line)
            if isinstance(error, DiskError | LedgerError) or machine_fault(error):
                raise DiskError(f"{line}; when that is mended, go on with: earmark resume {run.run}") from error
            raise
        save_run(store, run.model_copy(update={"state": "completed", "version": version, "ended": datetime.now(UTC)}))
        settle_runs(store, name, path, limit, version, force=force)
    return Built(Version(name, store.folder(name) / version), new=before is None or before.name != version)


def demo_config(name: str) -> Path:
    """The corpus's demo config, in `data/demo` of a clone of the repository.

    Raises:
        ConfigError: it is not there.
    """
    path = Path(__file__).resolve().parents[2] / "data" / "demo" / f"{name}.toml"
    if not path.is_file():
        raise ConfigError(f"demo of {name}: file not found: {path}; run the demo from a clone of the repository")
    return path


def start_prefect() -> None:
    """Make ready for the first flow of this process; call it before Prefect is imported.

    Raises:
        DiskError: there is no room for Prefect's server, which would be waited for in vain, or it does not start.
    """
    from earmark.flows.command import prefect_server

    for key, value in prefect_server.QUIET.items():
        os.environ.setdefault(key, value)
    for queue in ("APILogWorker", "EventsWorker"):  # at exit they log how much they still send, after our last line
        logging.getLogger(queue).setLevel(logging.ERROR)
    if not os.environ.get("PREFECT_API_URL") and "prefect" not in sys.modules:
        _check_room(prefect_server.home())
        prefect_server.use()


def _begin_prefect() -> None:
    """Have Prefect's server start while the inputs are read, where the build is sure to need one. Where there is no
    room for it, that is said when the run has its record."""
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
    flow = load(find_corpus(name).flow)
    version: str = flow(config=config, store=str(store.root.absolute()), force=force, inputs=dict(inputs))
    return version


def _end(store: Store, run: Run, state: State, error: str) -> None:
    from earmark.tasks.store.runs import save_run

    with suppress(OSError):  # on a full disk: what the error says matters more, and a run that is gone shows as such
        save_run(store, run.model_copy(update={"state": state, "error": error, "ended": datetime.now(UTC)}))


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error) or type(error).__name__).splitlines()[0]
