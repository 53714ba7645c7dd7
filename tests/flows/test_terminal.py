"""What a person sees on a terminal of 80 columns."""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from earmark.flows.command import console
from earmark.flows.command.ending import short_traceback
from earmark.flows.command.previewing import request_lines
from earmark.flows.command.tables import TextTable
from earmark.schemas.errors import InputError
from earmark.schemas.judges import QualificationRow
from earmark.tasks.annotation.progress import Progress
from earmark.tasks.evaluation.qualification import qualification_table
from earmark.tasks.importers.lines import read_lines
from earmark.tasks.pipeline import progress
from earmark.tasks.pipeline.progress import FootOfScreen, folded
from earmark.tasks.store.licences import new_terms
from earmark.tasks.store.result_table import ResultColumn, ResultTable
from earmark.tasks.store.runs import Run
from earmark.tasks.store.versions import Store
from tests import builds
from tests.conftest import ROOT

LONG = "openai:a-laboratory/a-judge-with-a-very-long-name-that-nobody-would-type-twice-2027-01-preview"


def screen(width: int = 80) -> Console:
    """A terminal that keeps what is printed."""
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)


def lines_of(display: FootOfScreen) -> list[str]:
    """What the foot of the screen holds now."""
    with display.console.capture() as capture:
        display.console.print(display)
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def look(done: int, total: int, spent_usd: float | None = None, call: int = 1, waiting: str | None = None) -> Progress:
    return Progress(total, done, 0, 8, 0, 1.0, 900.0, spent_usd, 260.0, waiting, call)


def shown(columns: TextTable, width: int = 80) -> list[str]:
    with (terminal := screen(width)).capture() as capture:
        terminal.print(columns, crop=False)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_progress_is_two_lines_within_the_width_with_counts_cost_and_time_left() -> None:
    display = FootOfScreen(screen())
    bar = display.start(f"ask {LONG}", None)
    for words in (None, "nothing completed for 61 s: 8 requests wait for " + LONG):
        display.describe(bar, look(25, 72, 1234.5, waiting=words))
        above, below = lines_of(display)
        assert max(len(above), len(below)) < 80
        assert above.startswith("ask openai:a-laboratory/a-judge")
        assert above.endswith(" 25/72")
        assert below.startswith("$1,234.5000 spent, 4 min left, ")


def test_a_price_that_nobody_gave_is_not_a_price_of_nothing() -> None:
    assert look(1, 2).state().startswith("no prices given, ")
    assert look(1, 2, 0.0).state().startswith("$0.0000 spent, ")
    assert "$" not in look(1, 2).line()


def test_work_that_ended_leaves_the_screen() -> None:
    display = FootOfScreen(screen())
    asks = display.start("ask openai:tiny", None)
    display.describe(asks, look(72, 72, 0.1))
    outer = display.start("import one", None)
    inner = display.start("measure clips", 40)
    display.advance(inner, 30)
    assert lines_of(display)[0].startswith("measure clips")
    assert lines_of(display)[0].endswith("30/40")
    display.end(inner)
    assert lines_of(display)[0].startswith("import one"), "the session is open, and asks nothing"
    display.end(outer)
    assert not any(name in " ".join(lines_of(display)) for name in ("measure", "import", "ask"))


def test_calls_and_sessions_that_go_on_together_are_one_bar() -> None:
    display = FootOfScreen(screen())
    for model, spent_usd in (("openai:a", 0.5), ("openai:b", 0.25)):
        bar = display.start(f"ask {model}", None)
        display.describe(bar, look(10, 10, spent_usd / 2, call=1))  # an earlier shard, whose cost the session counts
        display.describe(bar, look(5, 20, spent_usd, call=2))
    above, below = lines_of(display)
    assert above.startswith("ask 2 models")
    assert above.endswith(" 30/60")
    assert below.startswith("$0.7500 spent")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_cells_without_spaces_and_numbers_are_never_broken(width: int) -> None:
    rows = [(f"corpus-of-a-lab-{n}", "x" * n + "/clips/a.wav", "a sentence of many words " * 3, 10**n, 0.5)
            for n in range(1, 9)]  # fmt: skip
    lines = shown(
        TextTable(ResultTable("", ("corpus", "file", "holds", "rows", ResultColumn("share", decimals=3)), tuple(rows))),
        width,
    )
    assert max(map(len, lines)) <= width
    words = {word.rstrip(",") for line in lines for word in line.split()}
    for row in rows:
        assert {row[0], row[1], f"{row[3]:,}", "0.500"} <= words


def test_columns_that_may_go_are_left_out_by_name() -> None:
    table = ResultTable("", ("name", "less", "more"), (("a-name-of-twenty-chars", "1" * 30, "2" * 30),), drop=("less",))
    lines = shown(TextTable(table))
    assert lines == [
        "name" + " " * 18 + "  " + "more", "a-name-of-twenty-chars  " + "2" * 30,
        "not shown at 80 columns: less",
    ]  # fmt: skip


def test_figures_of_judges_fit_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = screen()
    monkeypatch.setattr(console, "console", terminal)
    numbers = dict.fromkeys(("accuracy", "agreed_accuracy", "share_first", "share_second", "share_tie"), 0.123)
    numbers |= {"low": 0.1, "high": 0.15, "agreed": 600}
    figures = [
        {"judge": LONG, "dimension": "musicality", "domain": "all", "control": control, "requests": 1200,
         "answers": 1200, "known": 1200, **numbers, "tpr": None, "fpr": 0.5, "weight": 1.25}
        for control in ("all", "degraded", "same")
    ]  # fmt: skip
    with terminal.capture() as capture:
        console.print_result(qualification_table(cast(list[QualificationRow], figures), LONG))
    lines = capture.get().splitlines()
    lines = [line for line in lines if line.strip()]
    assert LONG in lines[0]
    assert all(len(line.rstrip()) <= 80 for line in lines[1:])
    assert sum("0.123" in line for line in lines) == len(figures)


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("word " * 20, [("word " * 16)[:79], "word word word word"]),
        ("interrupted " * 5 + "; go on with: earmark resume 20261125-012408-0f78",
         [("interrupted " * 5 + "; go on with:"), "earmark resume 20261125-012408-0f78"]),
        ("  " + "x" * 90, ["  " + "x" * 90]),
    ],
)  # fmt: skip
def test_lines_are_broken_at_spaces_and_commands_stay_whole(line: str, lines: Sequence[str]) -> None:
    assert [one for one in folded(line, 80) if one.strip()] == [one for one in lines if one.strip()]


PLUG_IN = "def read(rows):\n    return [row['take'] for row in rows]\n"


def test_a_plug_ins_fault_shows_its_own_frames_first_in_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "labs_takes.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    points = EntryPoints([EntryPoint("takes", "labs_takes:CORPUS", "earmark.corpora")])
    monkeypatch.setattr("earmark.flows.command.ending.entry_points", lambda: points)
    steps = importlib.import_module("labs_takes")
    with pytest.raises(KeyError) as caught:
        list(map(steps.read, [[{}]]))
    lines = short_traceback(caught.value)
    assert len(lines) <= 10
    assert lines[0] == "error: KeyError: 'take'"
    assert lines[1].endswith("labs_takes.py:2 in <listcomp>: return [row['take'] for row in rows]")
    assert "in read:" in lines[2]
    whole = Path(lines[-1].removeprefix("the whole traceback: "))
    assert whole.parent == tmp_path
    assert "Traceback (most recent call last)" in whole.read_text("utf-8")


@pytest.mark.slow
def test_prefects_telemetry_is_off_before_prefect_is_imported() -> None:
    """As a lab's dry run does: the command is set up, then a flow is imported and telemetry asked for."""
    script = (
        "from earmark.tasks.pipeline.logs import set_up; set_up(); import prefect.main, sys; "
        "from prefect._internal.analytics import initialize_analytics; initialize_analytics(); "
        "from prefect._internal.analytics.enabled import is_telemetry_enabled; print(is_telemetry_enabled())"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "DO_NOT", "CI"))}
    ended = subprocess.run([sys.executable, "-c", script], env=kept, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
    assert "anonymous usage" not in ended.stderr


def test_runs_that_would_end_the_same_are_not_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(console, "console", terminal := screen())
    begun = {
        "corpus": "captions",
        "host": "h",
        "pid": 1,
        "process_started": 0.0,
        "started": datetime(2026, 1, 2, tzinfo=UTC),
    }
    empty = "captions: the main table 'captions' would be empty; nothing was committed"
    runs = [Run(run=f"2026010{n}-030405-ab12", config=str(tmp_path / f"{n}.toml"), state="failed", error=error, **begun)
            for n, error in enumerate((empty, "the budget of 1 USD is spent"))]  # fmt: skip
    with terminal.capture() as capture:
        console.show_runs(Store(Path("data/store")), runs)
    told = " ".join(capture.get().split())
    assert f"mend its config, then: earmark build captions --config {tmp_path / '0.toml'}" in told
    assert "earmark resume 20260101-030405-ab12" in told
    assert "earmark resume 20260100" not in told


def test_terms_that_nobody_knows_come_with_the_lines_to_write() -> None:
    made = SimpleNamespace(models=["openai:tiny"], config={})
    (line,) = new_terms(made, None)
    assert tomllib.loads("\n".join(line.splitlines()[1:])) == {"licences": {"openai:tiny": {"licence": "…"}}}


@pytest.mark.parametrize(
    ("priced", "cost"), [(True, "cost: at most $0.00"), (False, f"cost: no prices given for {LONG}")]
)
def test_a_dry_run_names_models_without_prices(priced: bool, cost: str) -> None:
    asks = {"annotator": LONG, "about": "9 clips", "requests": 9, "from_ledger": 0, "in_batches": 0, "over_limit": 0,
            "refused": 0, "to_ask": 9, "input_tokens": 90, "most_output_tokens": 90, "most_usd": 0.0,
            "priced": priced}  # fmt: skip
    assert [line.strip() for line in request_lines(asks) if "cost" in line] == [cost]


def test_a_list_that_is_not_there_is_named_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        list(read_lines(tmp_path / "ratingsfull.csv", "ratings-full/ratingsfull.csv"))
    assert str(caught.value) == f"ratings-full/ratingsfull.csv: file not found: {tmp_path / 'ratingsfull.csv'}"


def test_a_list_in_the_folder_of_the_config_is_named_by_its_path_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^prompts.jsonl: file not found: {tmp_path}/prompts.jsonl$"):
        list(read_lines(tmp_path / "prompts.jsonl", "prompts.jsonl"))


@pytest.mark.slow
def test_inputs_looked_at_again_before_the_commit_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.shown():
        builds.build_version(builds.read_config(ROOT / "data/demo/mos-preferences-audio.toml"), tmp_path / "store")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hash audio of ")]
    assert "hash audio of chimes (24)" in lines
    assert [line for line in lines if "again" in line] == lines[-1:] == ["hash audio of chimes again (24)"]


def test_a_line_of_code_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "console", terminal := screen())
    line = console._load_line("mos-preferences", Path("/a-lab") / ("x" * 60) / "mos-preferences/v1")
    with terminal.capture() as capture:
        console.tell(line)
    assert capture.get().splitlines() == [line]
