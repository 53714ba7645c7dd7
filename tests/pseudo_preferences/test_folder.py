"""A folder of systems and a table of prompts become pseudo-preferences by `earmark init` alone."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.flows.pseudo_preferences import build
from earmark.schemas.errors import InputError
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.reasons import Reject
from earmark.schemas.toml import parse_config
from earmark.tasks.importers.music import ListedGeneration, read_generations
from tests.runner import run_flow

SYSTEMS = ("sysA", "sysB", "sysC")
PROMPTS = 12


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*words])
    assert result.exit_code == code, (result.output, result.exception)
    return str(result.exception) if code else result.stdout


@pytest.fixture
def systems(tmp_path: Path) -> Path:
    """Three systems, a clip of each for every prompt but one; prompts under other names than ours."""
    dice = np.random.default_rng(3)
    for system in SYSTEMS:
        (tmp_path / "music" / system).mkdir(parents=True)
        for n in range(PROMPTS - (system == "sysC")):
            soundfile.write(tmp_path / "music" / system / f"{n:04}.wav", 0.2 * dice.standard_normal(40_000), 16_000)
    rows = [{"key": f"{n:04}", "description": f"tune {n}"} for n in range(PROMPTS)]
    (tmp_path / "music/prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "music/other.csv").write_text("a,b\n1,2\n3,4\n")
    return tmp_path / "music"


@pytest.mark.slow
def test_a_folder_of_systems_builds(systems: Path, tmp_path: Path) -> None:
    said = run("init", "pseudo-preferences", "--from", str(systems), "--out", str(tmp_path / "my.toml"))
    assert "35 clips of 3 systems: sysA (12), sysB (12), sysC (11)" in said
    values = tomllib.loads((tmp_path / "my.toml").read_text())
    assert values["generations"] == "music/{model}/{prompt_id}.wav"
    assert values["shares"] == {"train": 0.7, "test": 0.3}
    assert values["prompt_columns"] == {"prompt_id": "key", "text": "description"}
    config = parse_config(PseudoPreferences, values, tmp_path / "my.toml")
    version = run_flow(build, config, tmp_path / "store")
    pairs = pq.read_table([*version.files("pairs")]).to_pylist()
    assert len(pairs) == 11 * 3 + 1  # every two systems of a prompt
    assert {pair["split"] for pair in pairs} == {"train", "test"}
    soundfile.write(systems / "sysC/0011.wav", 0.2 * np.random.default_rng(4).standard_normal(40_000), 16_000)
    again = run_flow(build, config, tmp_path / "store")  # the folder is an input
    assert len(pq.read_table([*again.files("pairs")])) == 12 * 3


def test_a_table_may_call_its_columns_otherwise(systems: Path, tmp_path: Path) -> None:
    (systems / "made.csv").write_text("id,system,key,clip\ng1,sysA,0001,sysA/0001.wav\n")
    columns = {"generation_id": "id", "model": "system", "prompt_id": "key", "audio": "clip"}
    (row,) = read_generations(systems / "made.csv", "made.csv", columns)
    assert (row.generation_id, row.model, row.prompt_id, row.audio) == ("g1", "sysA", "0001", "sysA/0001.wav")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "prompts.jsonl").unlink(), "expected a table of prompts whose ids name the clips"),
        (lambda folder: [path.unlink() for path in folder.glob("sys[BC]/*")], "expected two folders or more"),
    ],
)
def test_a_folder_that_is_no_such_input_is_one_line(change: object, says: str, systems: Path, tmp_path: Path) -> None:
    change(systems)  # type: ignore[operator]
    line = run("init", "pseudo-preferences", "--from", str(systems), "--out", str(tmp_path / "my.toml"), code=1)
    assert says in line
    assert "\n" not in line


def test_names_that_no_table_could_hold_are_rejects(tmp_path: Path) -> None:
    """A name in Latin-1, which is no Unicode, and a folder whose name colours a terminal."""
    for name in (b"m1/p1.wav", b"m1/caf\xe9.wav", b"m\x1b[31m/p1.wav"):
        place = tmp_path / os.fsdecode(name)
        place.parent.mkdir(exist_ok=True)
        place.touch()
    found = list(read_generations(tmp_path / "{model}/{prompt_id}.wav", "{model}/{prompt_id}.wav"))
    assert [(one.generation_id, one.audio) for one in found if isinstance(one, ListedGeneration)] == [
        ("m1/p1.wav",) * 2
    ]
    rejects = [one for one in found if isinstance(one, Reject)]
    assert [one.reason for one in rejects] == ["bad_value", "bad_value"]
    assert all(text.isprintable() and text.encode() for one in rejects for text in (one.item, one.detail))


@pytest.mark.parametrize(
    ("pattern", "says"), [("{model}/x.wav", "once in a pattern"), ("{model}/{prompt_id}.ogg", "no file fits")]
)
def test_a_pattern_that_fits_nothing_is_one_line(pattern: str, says: str, systems: Path) -> None:
    with pytest.raises(InputError, match=says):
        list(read_generations(systems / pattern, pattern))
