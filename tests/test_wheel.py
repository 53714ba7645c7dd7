"""The wheel of this clone, installed by plain pip where nothing else is, beside a project's own modules."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

USES = """
import tasks, schemas.rows
assert (tasks.OURS, schemas.rows.OURS) == ("the lab's", "the lab's")
import earmark
from earmark.tasks.store.versions import Version
version = earmark.build("mos-preferences", "study.toml")
print(len(version.pandas("pairs")), Version.__module__, tasks.__file__)
"""


def run(folder: Path, *command: str) -> str:
    """Run a command to its good end in a folder, without this clone on its path; what it printed."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PREFECT_", "EARMARK_"))
    }
    place = {"PREFECT_HOME": str(folder / "prefect"), "EARMARK_STORE": str(folder / "store"), "EARMARK_KEEP_S": "0"}
    ended = subprocess.run(command, cwd=folder, env={**variables, **place}, capture_output=True, text=True)
    assert ended.returncode == 0, f"{command}: {ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    return ended.stdout


@pytest.mark.slow
def test_a_wheel_works_beside_a_projects_own_tasks_and_schemas(tmp_path: Path) -> None:
    python = str(tmp_path / "venv/bin/python")
    run(tmp_path, sys.executable, "-m", "venv", "venv")
    run(tmp_path, python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", str(ROOT))
    (wheel,) = (tmp_path / "dist").glob("earmark-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {"earmark", f"{wheel.name.split('-py3')[0]}.dist-info"}
    command = ["git", "ls-files", "flows", "tasks", "schemas", "prompts"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.splitlines()
    assert {f"earmark/{path}" for path in listed} <= set(names)  # with all data
    run(tmp_path, python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(wheel))

    lab = tmp_path / "lab"
    (lab / "schemas").mkdir(parents=True)
    (lab / "tasks.py").write_text('OURS = "the lab\'s"\n')
    (lab / "schemas/__init__.py").touch()
    (lab / "schemas/rows.py").write_text('OURS = "the lab\'s"\n')
    (lab / "uses.py").write_text(USES)
    demo = ROOT / "data/demo"
    (lab / "study.toml").write_text((demo / "mos-preferences.toml").read_text().replace('"mos/', f'"{demo}/mos/'))
    pairs, module, ours = run(lab, python, "uses.py").split()
    assert int(pairs) > 100
    assert module == "earmark.tasks.store.versions"
    assert ours == str(lab / "tasks.py")
    assert run(lab, str(tmp_path / "venv/bin/earmark"), "list").count("mos-preferences") >= 1
