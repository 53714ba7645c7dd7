"""Commands of release 1.0 run by their old names for one release: same output, same exit code, one line more."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from earmark.flows.command.cli import app
from earmark.flows.command.old_names import MOVED, new_spelling
from earmark.schemas.errors import ConfigError
from tests.commands import COMMANDS
from tests.evaluation.test_score_files import rated_apart

MOS = "mos-preferences"
CALLS = {  # old → new, each run beside a store that holds mos-preferences v1
    f"judge {MOS}": f"eval run {MOS}",
    f"judge {MOS}@v1 --json": f"eval run {MOS}@v1 --json",
    f"judge {MOS} -e quality --template t.csv --split=all": f"eval template {MOS} -e quality --split=all --out t.csv",
    f"judge {MOS} -e cycles -a builtin:music-pair-2 --dry-run": (
        f"eval run {MOS} -e cycles -a builtin:music-pair-2 --dry-run"
    ),
    f"judge {MOS} --clip-scores=none.csv": f"eval run {MOS} --scores none.csv",
    f"judge {MOS} --split all --compare none.csv --compare a:b": f"eval compare {MOS} --split all none.csv a:b",
    f"judge {MOS} --rank": f"eval rank {MOS}",
    f"judge {MOS} --no-such-option": f"eval run {MOS} --no-such-option",
    "judge nothing": "eval run nothing",
    f"score {MOS} -g nowhere": f"eval score {MOS} -g nowhere",
    f"score {MOS} --compare all --finalists 5": f"eval rank {MOS} --finalists 5 all",
    f"qualify {MOS} -c none.toml": f"eval qualify {MOS} -c none.toml",
    f"rollouts {MOS} -a openai:m --limit 3 --dry-run": f"eval rollouts {MOS} -a openai:m --limit 3 --dry-run",
    "study status nowhere": "people study status nowhere",
    f"audit sample {MOS} --evaluation none --out o": f"people audit sample {MOS} --evaluation none --out o",
    f"audit sample {MOS} --rows=3 --out x --evaluation none": (
        f"people audit sample {MOS} --limit=3 --out x --evaluation none"
    ),
    f"versions {MOS} --json": f"list {MOS} --json",
    "schema captions": "init captions --schema",
    f"diff {MOS} v1 v1 --rows --json": f"inspect diff {MOS}@v1 {MOS}@v1 --rows --json",
    f"diff {MOS} v1": f"inspect diff {MOS} v1",
    f"diff {MOS} 1 v9": f"inspect diff {MOS}@1 {MOS}@v9",
    f"explain {MOS} none": f"inspect explain {MOS} none",
    f"verify {MOS}@v1 --json": f"inspect verify {MOS}@v1 --json",
    f"view {MOS}@v9": f"inspect view {MOS}@v9",
    "sql SELECT(1)": "inspect sql 'SELECT(1)'",
    f"review export {MOS} --out o": f"people review export {MOS} --out o",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rated_apart(tmp_path_factory).folder.parents[1]


def run(line: str, place: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Run a command in a new folder beside the store."""
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("EARMARK_STORE", str(store))
    return CliRunner().invoke(app, shlex.split(line))


@pytest.mark.parametrize("old", CALLS)
def test_an_old_name_gives_the_same_output_and_exit_code_and_names_the_new_spelling(
    old: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = (run(line, tmp_path / word, store, monkeypatch) for word, line in (("a", old), ("b", CALLS[old])))
    assert before.stdout == now.stdout
    assert (before.exit_code, str(before.exception)) == (now.exit_code, str(now.exception))
    line, *others = before.stderr.splitlines()
    assert line == f"note: `earmark {old.split()[0]}` goes with the next release; now: earmark {CALLS[old]}"
    assert others == now.stderr.splitlines()
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()
    }


def test_every_old_name_is_tried_and_none_is_a_command_of_today() -> None:
    assert {call.split()[0] for call in CALLS} == MOVED.keys()
    assert not MOVED.keys() & {command.split()[0] for command in COMMANDS}
    assert not MOVED.keys() & set(re.findall(r"│ ([a-z]+) ", CliRunner().invoke(app, ["--help"]).stdout))
    assert all(" ".join(new) in "\n".join(COMMANDS) for new in MOVED.values())


@pytest.mark.parametrize(
    "mixed", ["judge m --rank --template f", "score m -g d --compare a", "judge m -a x --scores f"]
)
def test_modes_that_exclude_each_other_are_refused_as_before(mixed: str) -> None:
    with pytest.raises(ConfigError, match="one thing at a time"):
        new_spelling(mixed.split())
