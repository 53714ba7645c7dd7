"""People's own SQL: which version a name means, what is refused, and that answers are those of Arrow."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from tests.builds import build_version, config_of, contents_of


def rated(folder: Path, rows: int) -> Path:
    (folder / "ratings.csv").write_text("\n".join(["f,m,c", *(f"{n}.wav,{1 + n % 5},c{n // 5}" for n in range(rows))]))
    source = {"name": "one", "format": "table", "columns": {"file": "f", "mos": "m", "content": "c"}}
    build_version(config_of(folder, {**source, "files": {"train": "ratings.csv"}}), folder / "store")
    return folder / "store"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions: of ten clips, then of fifteen."""
    folder = tmp_path_factory.mktemp("selected")
    rated(folder, 10)
    return rated(folder, 15)


def answer(store: Path, statement: str, *options: str, code: int = 0) -> str:
    ended = CliRunner().invoke(app, ["inspect", "sql", statement, "--store", str(store), *options])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return str(ended.exception)
    assert ended.exit_code == code
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["'mos-preferences@v1'", '"mos-preferences@v1"'])
def test_a_versions_table_is_what_arrow_reads(store: Path, name: str) -> None:
    statement = f"SELECT mos, count(*) AS clips FROM {name}.ratings GROUP BY mos ORDER BY mos"
    files = sorted((store / "mos-preferences/v1/ratings").glob("*.parquet"))
    counts = pc.value_counts(pq.read_table(files)["mos"]).to_pylist()
    expected = sorted(({"mos": one["values"], "clips": one["counts"]} for one in counts), key=lambda row: row["mos"])
    assert json.loads(answer(store, statement, "--json")) == expected


@pytest.mark.slow
def test_versions_join_and_a_corpus_alone_is_its_newest(store: Path, tmp_path: Path) -> None:
    later = (
        "FROM 'mos-preferences' . ratings ANTI JOIN 'mos-preferences@v1'.ratings USING (sample_id) ORDER BY sample_id"
    )
    rows = json.loads(answer(store, f"SELECT sample_id {later}", "--json"))
    assert [row["sample_id"] for row in rows] == sorted(f"one/{n}.wav" for n in range(10, 15))
    for name in ("rows.csv", "rows.parquet"):
        answer(store, f"SELECT sample_id {later}", "--out", str(tmp_path / name))
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == rows
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == rows


def test_aliases_and_texts_are_no_versions(store: Path) -> None:
    statement = """SELECT "r".sample_id, 'a-b.c' AS word FROM 'mos-preferences@v1'.ratings AS "r" LIMIT 1"""
    assert json.loads(answer(store, statement, "--json"))[0]["word"] == "a-b.c"


def test_json_is_valid_whatever_the_numbers(store: Path) -> None:
    """Other readers refuse NaN; DuckDB's sums of whole numbers are wider than Arrow's."""
    statement = "SELECT 'nan'::DOUBLE AS nan, [{'x': 'inf'::FLOAT}] AS far, sum(n) AS s, 1.25::DECIMAL(4, 2) AS d"
    said = answer(store, f"{statement} FROM range(5) AS r(n)", "--json")
    rows = json.loads(said, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert rows == [{"nan": None, "far": [{"x": None}], "s": 10, "d": 1.25}]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("FROM 'mos-preferences@v9'.pairs", "has no v9"),
        ("FROM 'nothing'.pairs", "no version of 'nothing'"),
        ("FROM 'mos-preferences'.pears", "pears does not exist"),
        ("SELECT zz FROM 'mos-preferences'.pairs", '"zz" not found'),
        ("SELEC 1", "syntax error"),
        ("SELECT 1; SELECT 2", "expected one SELECT, found 2 statements"),
        ("", "expected one SELECT, found 0 statements"),
        ("COPY (SELECT 1) TO 'x.csv'", "expected one SELECT, found COPY"),
        ("DROP TABLE 'mos-preferences@v1'.pairs", "expected one SELECT, found DROP"),
        ("SELECT sample_id::INT FROM 'mos-preferences'.ratings", "Could not convert"),
    ],
)
@pytest.mark.parametrize("form", ["--json", "--out"])
def test_what_is_refused_is_one_line_and_leaves_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, says: str, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = contents_of(store / "mos-preferences/v1")
    said = answer(store, statement, form, *(["rows.csv"] if form == "--out" else []), code=1)
    assert says in said
    assert "\n" not in said
    assert not list(tmp_path.iterdir())
    assert contents_of(store / "mos-preferences/v1") == before


def test_json_loses_no_column_and_holds_as_many_rows_as_asked_for(store: Path, tmp_path: Path) -> None:
    said = answer(store, "SELECT 1 AS mos, 2 AS other, 3 AS mos", "--json", "--limit", "1", code=1)
    assert said == "sql --json: expected each column's name once, found 'mos' 2 times: name them by AS"
    assert json.loads(answer(store, "SELECT 1 AS mos, 3 AS other", "--json")) == [{"mos": 1, "other": 3}]
    sorted_rows = "SELECT n FROM range(100) AS r(n) ORDER BY n DESC"
    assert [row["n"] for row in json.loads(answer(store, sorted_rows, "--json"))] == [*reversed(range(100))]
    assert json.loads(answer(store, sorted_rows, "--json", "--limit", "2")) == [{"n": 99}, {"n": 98}]
    out = tmp_path / "rows.csv"
    assert json.loads(answer(store, sorted_rows, "--out", str(out), "--json")) == {"file": str(out)}
    assert len(out.read_text().splitlines()) == 101


def test_a_file_of_another_form_is_refused(store: Path, tmp_path: Path) -> None:
    assert "expected a name in .csv or .parquet" in answer(store, "SELECT 1", "--out", str(tmp_path / "x.txt"), code=1)


def test_the_terminal_shows_so_many_rows(store: Path) -> None:
    shown = answer(store, "SELECT sample_id FROM 'mos-preferences@v1'.ratings", "--limit", "4")
    assert "10 rows" in shown
    assert shown.count(".wav") == 4


READS = [
    "SELECT content FROM read_text('{file}')",
    "FROM read_csv('{file}')",
    "FROM '{file}'",
    "SELECT * FROM glob('{folder}/*')",
    "FROM sniff_csv('{file}')",
    "SELECT * FROM read_blob('/proc/self/environ')",
    "FROM 'mos-preferences'.pairs UNION ALL BY NAME FROM read_csv('{file}')",
    "FROM read_parquet('{folder}/../*.parquet')",
    "FROM read_text('http://127.0.0.1:9/x')",
]


@pytest.mark.parametrize("statement", READS)
def test_a_strangers_statement_reads_no_file(store: Path, tmp_path: Path, statement: str) -> None:
    (tmp_path / "secret.csv").write_text("secret\nshown\n")
    said = answer(store, statement.format(file=tmp_path / "secret.csv", folder=tmp_path), "--json", code=1)
    assert "--allow-files lets it read files of this machine" in said
    assert "shown" not in said


def test_files_are_read_where_that_is_asked_for(store: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("sample_id,mine\none/0.wav,7\n")
    statement = f"SELECT mine FROM 'mos-preferences'.ratings JOIN '{tmp_path}/mine.csv' USING (sample_id)"
    assert json.loads(answer(store, statement, "--json", "--allow-files")) == [{"mine": 7}]


def test_a_table_is_no_variable_of_ours(store: Path) -> None:
    for name in ("rows", "versions", "faults", "environment"):
        assert "does not exist" in answer(store, f"FROM {name}", "--json", code=1)


def test_what_a_statement_reads_cannot_steer_the_terminal(store: Path) -> None:
    shown = answer(store, "SELECT 'a' || chr(27) || '[2J' || chr(155) || chr(8238) || 'b' AS \"c\x1b[31m\"")
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)
    assert "[2J" in shown


RUNAWAY = [
    (
        "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t) SELECT count(*) FROM t WHERE a < 10",
        signal.SIGTERM,
    ),
    ("SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", signal.SIGINT),
    ("SELECT levenshtein(repeat('a', 400000), repeat('b', 400000))", signal.SIGTERM),  # looks at no stop
]


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "number"), RUNAWAY, ids=["recursion", "product", "one value"])
def test_a_runaway_statement_ends_when_it_is_told_to(store: Path, statement: str, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "earmark", "inspect", "sql", statement, "--store", str(store)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while psutil.Process(process.pid).cpu_times().user < 2.5:  # it has begun, and has no end
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)  # 3 s, on a busy machine
    assert process.returncode == (130 if number == signal.SIGINT else 143)
    assert said == "interrupted; nothing was changed\n"
