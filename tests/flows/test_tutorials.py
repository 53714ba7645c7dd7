"""The tutorials, run as a reader runs them: their configs, their commands, what these print, their Python."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TUTORIALS = sorted((ROOT / "flows/tutorials").glob("*.md"))
BARS = str.maketrans(dict.fromkeys("│┃", " "))


def plain(text: str) -> str:
    """A text in single spaces, without the rules of tables."""
    return " ".join(text.translate(BARS).split())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "data/demo", tmp_path / "data/demo")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EARMARK_", "PREFECT_"))}
    environment = {**kept, "EARMARK_KEEP_S": "0", "PREFECT_HOME": str(tmp_path / "prefect"), "COLUMNS": "200"}

    def run(*words: str, code: int = 0) -> str:
        ended = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == code, f"{words}\n{ended.stdout}{ended.stderr}"
        return plain(ended.stdout + ended.stderr)

    inputs = [path for path in tmp_path.rglob("*.*") if path.suffix in (".csv", ".tsv", ".jsonl", ".ndjson")]
    printed = plain("".join(path.read_text("utf-8", "replace") for path in inputs))
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        if language == "toml":
            (tmp_path / text.split()[1]).write_text(text, "utf-8")
        elif language == "python":
            run("-c", text)
        elif language == "":
            lines = re.findall(r"^earmark (.*)", text, re.MULTILINE)
            printed = " ".join(
                run("-m", "earmark", *shlex.split(line, comments=True), code=int(line.endswith("# exit 1")))
                for line in lines
            )
        else:
            assert [line for line in text.splitlines() if plain(line) not in printed] == [], printed
