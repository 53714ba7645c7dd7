"""The two commands on a bare machine: what CI hides from them is hidden, and they come before anything is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SEEN = """
import ctypes, ctypes.util, shutil
from earmark.schemas.instruction_rubrics import has_chromaprint
seen = [name for name in ("chromaprint", "numa") if ctypes.util.find_library(name)]
for name in ("libchromaprint.so.1", "libnuma.so.1"):
    try:
        ctypes.CDLL(name)
        seen.append(name)
    except OSError:
        pass
seen += [name for name in ("ffmpeg", "chromium", "pg_ctl", "fpcalc") if shutil.which(name)]
print([*seen, *(["chromaprint's binding"] if has_chromaprint() else [])], shutil.which("make") is not None)
"""


def unshared(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the optional tools hidden."""
    return subprocess.run(
        ["unshare", "-m", ".ci/bare", "hide", *command], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.mark.slow
def test_what_ci_hides_is_found_by_no_program() -> None:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("unshare needs root, or is not permitted here")
    before = subprocess.run([".ci/bare", "list"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert unshared(sys.executable, "-c", SEEN).stdout == "[] True\n"
    assert unshared(".ci/bare", "list").stdout == "no optional tool\n"
    assert unshared("bash", "-c", "exit 3").returncode == 3
    after = subprocess.run([".ci/bare", "list"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert after == before


def test_demo_and_tests_come_before_anything_optional_is_installed() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    last = max(script.rindex("make demo"), script.rindex("make test\n"))
    assert last < script.index("postgresql")
    assert last < script.index("make lint") < script.index("make test-slow")


@pytest.mark.slow
def test_without_the_real_data_its_tests_are_skipped(tmp_path: Path) -> None:
    needs = [
        str(path)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "real_path" in path.read_text("utf-8") and path.name != Path(__file__).name
    ]
    environment = {**os.environ, "EARMARK_REAL": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "real or released or every_real_tag"]
    ended = subprocess.run([*command, *needs], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert "skipped" in ended.stdout
