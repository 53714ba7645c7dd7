"""A process in a container counts with the container's memory and processors, not with the machine's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from earmark.schemas.machine import memory_bytes, processors

TOTAL = psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "1073741824\n"}, 1 << 30),
        ("0::/\n", {"memory.max": "max\n"}, TOTAL),
        ("0::/a/b\n", {"a/memory.max": "1073741824\n", "a/b/memory.max": "max\n"}, 1 << 30),
        ("0::/a/b\n", {"a/memory.max": "1073741824\n", "a/b/memory.max": "536870912\n"}, 1 << 29),
        ("5:cpu:/x\n4:memory:/x\n0::/\n", {"memory/x/memory.limit_in_bytes": "1073741824\n"}, 1 << 30),
        ("4:memory:/hidden\n", {"memory/memory.limit_in_bytes": "1073741824\n"}, 1 << 30),
        ("4:memory:/x\n", {"memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, TOTAL),
        ("", {}, TOTAL),
    ],
)
def test_the_least_limit_of_the_groups_above_holds(
    tmp_path: Path, groups: str, files: dict[str, str], expected: int
) -> None:
    (tmp_path / "self").write_text(groups)
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text)
    assert memory_bytes(tmp_path / "self", tmp_path / "fs") == expected


def test_without_control_groups_it_is_the_machine(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path / "none", tmp_path) == TOTAL


QUOTA, PERIOD = "cpu/x/cpu.cfs_quota_us", "cpu/x/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "200001 100000\n"}, 3),
        ("0::/\n", {"cpu.max": "1000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "1600000 100000\n"}, 8),
        ("0::/a/b\n", {"a/cpu.max": "150000 50000\n", "a/b/cpu.max": "max 100000\n"}, 3),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "200000 100000\n"}, 2),
        ("0::/a\n", {"cpu.max": "500000 100000\n"}, 5),
        ("5:cpuacct,cpu:/x\n4:memory:/x\n0::/\n", {QUOTA: "250000\n", PERIOD: "100000\n"}, 3),
        ("5:cpu:/x\n", {QUOTA: "-1\n", PERIOD: "100000\n"}, 8),
        ("5:cpu:/x/y\n", {QUOTA: "400000\n", PERIOD: "200000\n"}, 2),
        ("5:cpuset:/x\n", {QUOTA: "100000\n", PERIOD: "100000\n"}, 8),
        ("0::/\n", {"cpu.max": ""}, 8),
        ("0::/\n", {"cpu.max": "many 0\n"}, 8),
        ("", {}, 8),
    ],
)
def test_the_least_quota_of_processors_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    (tmp_path / "self").write_text(groups)
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text)
    assert processors(tmp_path / "self", tmp_path / "fs") == expected


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no process to a processor")
def test_a_process_pinned_to_a_processor_works_and_queries_on_it_alone() -> None:
    look = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from pathlib import Path; "
        "from earmark.schemas.machine import processors; from earmark.tasks.store.sql import connect; "
        "print(processors(), connect(Path()).execute(\"SELECT current_setting('threads')\").fetchall()[0][0])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]


@pytest.mark.slow
def test_a_real_group_bounds_caches_and_duckdb() -> None:
    """Limit a group of Linux to 1 GiB and look from inside."""
    first, file = Path("/sys/fs/cgroup/memory/earmark-test"), "memory.limit_in_bytes"
    if not first.parent.is_dir():
        first, file = Path("/sys/fs/cgroup/earmark-test"), "memory.max"
    try:
        first.mkdir()
        (first / file).write_text(str(1 << 30))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    look = (
        "from earmark.tasks.audio.encode import KEPT_BYTES; from earmark.tasks.store.sql import MEMORY_LIMIT; "
        "print(KEPT_BYTES, MEMORY_LIMIT)"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", look], capture_output=True, text=True, check=True,
            preexec_fn=lambda: (first / "cgroup.procs").write_text(str(os.getpid())),
        )  # fmt: skip
    finally:
        first.rmdir()
    assert done.stdout.split() == [str(1 << 26), "671MB"]
