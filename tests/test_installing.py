"""Extras and their names everywhere, pins without an index, workflows, and deployments where there is no clone."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from earmark.flows.command import doctor, serving
from earmark.schemas.errors import NO_RESOLVER, MissingExtraError, how_to_install
from tests.conftest import ROOT
from tests.extras import BEGIN, END, SUMS, Resolved, table

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
OF_OTHERS = {"audio", "cuda", "gs", "az", "view"}  # names that hold no package of their own
GUIDE = (ROOT / "deploy/INSTALL.md").read_text("utf-8")


def test_every_extra_is_known_to_the_guide_and_doctor() -> None:
    install = GUIDE.partition("## Extras\n")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in install.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall("`(.*?)`", row)} == EXTRAS.keys()
    assert doctor.EXTRAS.keys() == EXTRAS.keys() - OF_OTHERS
    for name, packages in doctor.EXTRAS.items():
        asked = {re.split(r"[\[<>=]", one)[0] for one in EXTRAS[name]}
        assert set(packages) - {"ray"} <= asked  # prefect-ray brings it


def test_the_reason_why_pip_cannot_is_one_line_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = str(MissingExtraError("a separator by name", "separation"))
    assert NO_RESOLVER in said
    assert "\n" not in said
    assert NO_RESOLVER in how_to_install("audio")
    assert how_to_install("models") == f"pip install -c constraints.txt -e '.[models]' in {ROOT}"
    assert "pins beartype below 0.19" in " ".join(GUIDE.split())
    monkeypatch.setattr("earmark.schemas.errors.__file__", str(tmp_path / "earmark/schemas/errors.py"))
    assert how_to_install("models") == "pip install 'earmark[models]'"
    assert NO_RESOLVER in how_to_install("separation")


def test_vllm_has_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def found(python: str, script: str = "") -> tuple[str, str]:
        (tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setenv("EARMARK_VLLM", python)
        finding = doctor._vllm()
        return finding.state, finding.detail

    python = str(tmp_path / "python")
    assert found(python, "echo 0.33.0") == ("ok", f"0.33.0, by {python}")
    for wrong, script in ((python, "exit 1"), (f"{tmp_path}/none", ""), (str(tmp_path), "")):
        state, detail = found(wrong, script)
        assert state == "bad"
        assert "earmark doctor --vllm" in detail
    assert found("") == ("off", "EARMARK_VLLM not set; for vllm: annotators; run: earmark doctor --vllm")
    assert len(doctor.VLLM_SETUP) == 2
    assert "earmark doctor --vllm" in " ".join(GUIDE.split())
    assert not any("vllm" in one for names in EXTRAS.values() for one in names)


def test_nothing_that_is_committed_names_an_index_but_the_public_default() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    pins = [
        ROOT / name
        for name in listed.stdout.split("\n")
        if re.fullmatch(r".*(constraints\.txt|uv\.lock|pylock.*)", name)
    ]
    assert ROOT / "constraints.txt" in pins
    for path in pins:
        text = path.read_text("utf-8")
        assert "://" not in text, path
        assert not re.search(r"(?m)^\s*-|registry = ", text), path
    assert not {"index", "sources", "index-url"} & PYPROJECT["tool"]["uv"].keys()


def test_the_table_names_every_extra() -> None:
    held = GUIDE.partition(BEGIN)[2].partition(END)[0]
    for name in EXTRAS:
        assert f"| `{name}` | uv | " in held
    assert NO_RESOLVER in held
    assert "| no: " not in held.replace(f"| no: {NO_RESOLVER} |", "")
    made = table([Resolved(SUMS[0], "uv", 3, 2_000_000, 1.4), Resolved((), "pip", 0, None, 2, "conflict")])
    assert (
        "| `models` + `scale` + `ray` | uv | 3 packages | 2 MB | 1 |\n| (core) | pip | no: conflict |  | 2 |\n" in made
    )


def test_a_tag_runs_targets_that_exist_and_carries_its_notes() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8")))
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
        ran = " ".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
        assert set(re.findall(r"\bmake (?:-s )?([a-z-]+)", ran)) <= targets
        assert {name for job in jobs.values() for name in [job.get("needs")] if name} <= jobs.keys()
        assert not re.search(r"secrets\.|password|https?:", path.read_text("utf-8"))
    if shutil.which("awk") is None:
        pytest.skip("`make notes` needs awk")
    notes = subprocess.run(["make", "-s", "notes"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert notes.strip()
    assert f"## {PROJECT['version']} " in changelog
    assert changelog.partition(f"## {PROJECT['version']} ")[2].partition("\n")[2].startswith(notes.rstrip("\n"))
    assert "\n## " not in notes


def test_runs_read_and_write_below_the_callers_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EARMARK_ROOTS", raising=False)
    assert serving._places(None)["EARMARK_ROOTS"].split(":") == [str(tmp_path), str(ROOT / "data")]
    monkeypatch.setattr(serving, "CLONED", False)
    assert serving._places(None)["EARMARK_ROOTS"].split(":") == [str(tmp_path), str(ROOT / "data/demo")]
