"""What all tests share."""

from __future__ import annotations

import gc
import hashlib
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing
from hypothesis import Phase, settings

if TYPE_CHECKING:
    from earmark.tasks.store.versions import Store

ROOT = Path(__file__).resolve().parents[1]

# A busy machine takes longer than Prefect's 20 seconds to start a server; read when Prefect is imported.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

# A shell's background job ignores Ctrl-C, and so would every command that a test stops by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# `earmark` does not change while tests run: reading the signatures of all its commands anew is most of a short call.
typer.testing._get_command = cache(typer.testing._get_command)

# A change is judged by the same examples each time, so that a failure speaks of that change. New ones are drawn by
# `pytest --hypothesis-profile explore`. How long an example takes depends on what else the machine does.
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.register_profile("earmark", deadline=None, derandomize=True)
settings.load_profile("earmark")


SLOW_UNTIL = float(os.environ.get("SLOW_TESTS_UNTIL", "inf"))
"""Seconds since 1970 after which no slow test begins: a check has less time than all of them take."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose tests say that they take long: one of them at the end would keep a worker alone.

    The others turn from day to day if time is limited, so that none is always left out.
    """
    seconds: Counter[Path] = Counter()
    for item in items:
        if marker := item.get_closest_marker("timeout"):
            seconds[item.path] += marker.args[0]
    day = "" if math.isinf(SLOW_UNTIL) else str(SLOW_UNTIL // 86_400)
    paths = {item.path for item in items} if day else ()
    turn = {path: hashlib.sha256(f"{path.name} {day}".encode()).digest() for path in paths}
    items.sort(key=lambda item: (-seconds[item.path], turn.get(item.path, b"")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile: nearly all that tests import stays, and looking is a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()  # nor look through it again during tests
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > SLOW_UNTIL and {"slow", "thorough"} & {one.name for one in item.iter_markers()}:
        pytest.skip("the time for slow tests is over (SLOW_TESTS_UNTIL)")


def examples(count: int, *, phases: Sequence[Phase] = tuple(Phase)) -> Callable[[Callable[..., None]], Any]:
    """How many examples, each a whole build, a rule is held to: all by `make test-slow`, else a fifth."""
    chosen = count if "EARMARK_THOROUGH" in os.environ else -(-count // 5)
    return lambda test: pytest.mark.thorough(settings(max_examples=chosen, phases=phases)(test))


def kill_count(count: int) -> int:
    """Return the kills of a test: all if EARMARK_EVERY_KILL is set, else a quarter."""
    return count if "EARMARK_EVERY_KILL" in os.environ else -(-count // 4)


def real_path(name: str) -> Path:
    """A file or folder of the real data in `EARMARK_REAL`, else in `shared/real` beside the repository. They are no
    part of it: without them a test that needs them is skipped."""
    path = Path(os.environ.get("EARMARK_REAL") or ROOT.parent / "shared" / "real") / name
    if not path.exists():
        pytest.skip(f"no real data at {path}; set EARMARK_REAL to a folder that holds them")
    return path


@pytest.fixture
def real() -> Path:
    return real_path("mos").parent


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the processes of a test run share: the first that needs it makes it. No test may change it."""
    from filelock import FileLock

    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            part = Path(f"{shared}.part")
            shutil.rmtree(part, ignore_errors=True)  # of a maker that failed
            make(part)
            part.rename(shared)
    return shared


@pytest.fixture(scope="session")
def built_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every demo corpus, as `earmark demo` builds it.

    It starts with the ledger of the release before, so that the same build shows that no model is asked again.
    """
    from tests.before.fixture import seed

    def make(part: Path) -> None:
        seed(part)
        shared = part.with_suffix("")
        command = [Path(sys.executable).with_name("earmark"), "demo", "--store", part]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
        home = {"PREFECT_HOME": f"{shared}.prefect", "EARMARK_KEEP_S": "0"}
        with Path(f"{shared}.txt").open("wb") as told:  # what `earmark demo` prints
            subprocess.run(
                command, check=True, cwd=ROOT, stdin=subprocess.DEVNULL, env=kept | home, stdout=told, stderr=told
            )

    return made_once(tmp_path_factory, "demo-store", make)


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The demo's `mos-preferences` v1 (lists alone) and v2 (with audio), and `pseudo-preferences` v1."""
    from earmark.tasks.store.versions import Store
    from tests import builds
    from tests.pseudo_preferences import music

    demo = ROOT / "data/demo"

    def make(part: Path) -> None:
        for config in ("mos-preferences.toml", "mos-preferences-audio.toml"):
            builds.build_version(builds.read_config(demo / config), part)
        music.build_judged(music.read_config(demo / "pseudo-preferences.toml"), part)

    return Store(made_once(tmp_path_factory, "judged-store", make))
