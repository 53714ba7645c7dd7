"""Lists as they go wrong: each fault gives its reject, with reason and line, or one line of error."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.errors import InputError
from earmark.schemas.mos_preferences import CORPUS
from earmark.schemas.reasons import options_of
from earmark.tasks.importers.guessing import guess_table
from earmark.tasks.importers.lines import LONGEST_LINE, QUOTED_LINES
from tests.importers import layouts
from tests.importers.reading import read

COLUMNS = {"file": "f", "mos": "m", "system": "s"}
GOOD = b"a.wav,3.5,x\n"
Reasons = list[tuple[str, int]]


def table(tmp_path: Path, raw: bytes, name: str = "t.csv", encoding: str = "", **columns: str) -> Any:
    """Read one table with the columns f, m and s."""
    (tmp_path / name).write_bytes(raw)
    named = {**COLUMNS, **columns}
    return read(tmp_path, format="table", name="study", files={"train": name}, columns=named, encoding=encoding)


UNTERMINATED: Reasons = [("bad_line", 2), *(("bad_line", line) for line in range(3, 11))]

# name, rows below the header `f,m,s`, good rows, rejects
ROWS: list[tuple[str, bytes, int, Reasons]] = [
    ("no score", b"a.wav,,x\n", 0, [("score_missing", 2)]),
    ("blank score", b"a.wav,  ,x\n", 0, [("score_missing", 2)]),
    ("text in a score", b"a.wav,good,x\n", 0, [("score_not_a_number", 2)]),
    ("NaN", b"a.wav,nan,x\n", 0, [("score_not_a_number", 2)]),
    ("infinity", b"a.wav,inf,x\nb.wav,-Infinity,x\n", 0, [("score_not_a_number", 2), ("score_not_a_number", 3)]),
    ("decimal comma in quotes", b'a.wav,"4,5",x\n', 1, []),
    ("a comma of thousands", b'a.wav,"4,500,000",x\n', 0, [("score_not_a_number", 2)]),
    (
        "words behind a rating",
        b"a.wav,5 - Excellent,x\nb.wav,5 7,x\nc.wav,5-4,x\n",
        1,
        [("score_not_a_number", 3), ("score_not_a_number", 4)],
    ),
    (
        "days that a spreadsheet made of ratings",
        "".join(
            f"{n}.wav,{cell},x\n"
            for n, cell in enumerate(("04. Mai", "3-Aug", "4-mei", "03.Mär", "1. févr. 2024", "Aug 03", "May-04"))
        ).encode(),
        0,
        [("score_not_a_number", line) for line in range(2, 9)],
    ),
    ("labels like days", b"a.wav,2 - Marginal,x\nb.wav,1 - Average,x\nc.wav,4 - Good,x\nd.wav,3-Fair,x\n", 4, []),
    ("decimal comma without quotes", b"a.wav,4,5,x\n", 0, [("bad_line", 2)]),
    ("underscore in a number", b"a.wav,0_4,x\n", 0, [("score_not_a_number", 2)]),
    ("digits of another script", "a.wav,٤,x\n".encode(), 0, [("score_not_a_number", 2)]),
    ("above the scale", b"a.wav,5.001,x\n", 0, [("score_out_of_scale", 2)]),
    ("below the scale", b"a.wav,-9,x\n", 0, [("score_out_of_scale", 2)]),
    ("a number past floats", b"a.wav,1e999,x\n", 0, [("score_not_a_number", 2)]),
    ("no file", b",3,x\n", 0, [("missing_value", 2)]),
    ("no system", b"a.wav,3,\n", 0, [("missing_value", 2)]),
    ("too few fields", b"a.wav,3\n" + GOOD, 1, [("bad_line", 2)]),
    ("too many fields", GOOD + b"a.wav,3,x,y\n", 1, [("bad_line", 3)]),
    ("only commas", b",,,,\n", 0, [("missing_value", 2)]),
    ("a comma after each row", b"a.wav,3,x,\nb.wav,4,y,,\n", 2, []),
    ("an open quote that a later row closes", b'a,3,"x\nb,4,y\nc,5,z"\nd,3,x\n', 3, [("bad_line", 2)]),
    ("blank lines are no rows", b"\n\n" + GOOD + b"  \n,3,x\n\n", 1, [("missing_value", 6)]),
    ("path that climbs", b"../a.wav,3,x\n", 0, [("path_outside_root", 2)]),
    ("path that climbs midway", b"a/../../b.wav,3,x\n", 0, [("path_outside_root", 2)]),
    ("absolute path", b"/etc/passwd,3,x\n", 0, [("path_outside_root", 2)]),
    ("backslashes", b"clips\\a.wav,3,x\n", 0, [("path_outside_root", 2)]),
    ("drive letter", b"C:/a.wav,3,x\n", 0, [("path_outside_root", 2)]),
    ("dots that do not climb", b"a..b.wav,3,x\n..c.wav,3,x\n", 2, []),
    ("control character in an id", b"a\x07.wav,3,x\n", 0, [("bad_value", 2)]),
    ("escape sequence in a system", b"a.wav,3,\x1b[31mx\n", 0, [("bad_value", 2)]),
    ("id of 1,024 characters", b"a" * 1024 + b",3,x\n", 1, []),
    ("id of 1,025 characters", b"a" * 1025 + b",3,x\n", 0, [("bad_value", 2)]),
    ("NUL byte", b"a\0.wav,3,x\n" + GOOD, 1, [("bad_encoding", 2)]),
    ("Latin-1 in one line", "é.wav,3,x\n".encode("latin-1") + GOOD, 1, [("bad_encoding", 2)]),
    ("encoded surrogate", b"\xed\xa0\x80.wav,3,x\n", 0, [("bad_encoding", 2)]),
    ("a line too long", b"a" * (LONGEST_LINE + 1) + b",3,x\n" + GOOD, 1, [("bad_line", 2)]),
    ("a line too long by far", GOOD + b"a" * (3 * LONGEST_LINE) + b"\r\n" + GOOD, 2, [("bad_line", 3)]),
    ("a last line too long", GOOD + b"a" * (2 * LONGEST_LINE), 1, [("bad_line", 3)]),
    ("CRLF", b"a.wav,3,x\r\nb.wav,,x\r\n", 1, [("score_missing", 3)]),
    ("CR", b"a.wav,3,x\rb.wav,,x\r", 1, [("score_missing", 3)]),
    ("no end of the last line", b"a.wav,3,x\nb.wav,,x", 1, [("score_missing", 3)]),
    ("quoted fields", b'"a,1.wav",3,"x ""y"""\n', 1, []),
    ("a quoted field over lines", b'a.wav,3,"x\ny"\nb.wav,,x\n', 0, [("bad_value", 2), ("score_missing", 4)]),
    ("a quote that does not end", b'"a.wav,3,x\n' + GOOD + GOOD, 2, [("bad_line", 2)]),
    ("an open quote in the last line", GOOD + b'"a.wav,3,x', 1, [("bad_line", 3)]),
    ("a quote that ends too far away", b'"a\n' + GOOD * QUOTED_LINES + b'b",3,x', 33, [("bad_line", 2)]),
    ("a quote before long lines", b'"a\n' + 8 * (b"b" * 20_000 + b"\n"), 0, UNTERMINATED),
    ("text after a quote", b'"a"b.wav,3,x\n' + GOOD, 1, [("bad_line", 2)]),
    ("a quote broken by a bad line", b'"a\n\xff\n' + GOOD, 1, [("bad_line", 2), ("bad_encoding", 3)]),
    ("a field too large for csv", b'"' + b"a" * 200_000 + b'",3,x\n' + GOOD, 1, [("bad_line", 2)]),
    ("the header again", GOOD + b"f,m,s\n" + GOOD, 2, [("score_not_a_number", 3)]),
]


@pytest.mark.parametrize(("rows", "good", "reasons"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_row_of_a_table(tmp_path: Path, rows: bytes, good: int, reasons: Reasons) -> None:
    got = table(tmp_path, b"f,m,s\n" + rows)
    assert (len(got.ratings), got.reasons) == (good, reasons)
    assert all(reject.source_file == "study/t.csv" for reject in got.rejects)
    assert all(len(reject.item) <= 4 * 80 and reject.item.isprintable() for reject in got.rejects)
    assert all(reject.detail.isprintable() and "\n" not in reject.detail for reject in got.rejects)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_marks_and_ends_change_nothing(tmp_path: Path, mark: bytes, end: bytes) -> None:
    got = table(tmp_path, mark + end.join([b"f,m,s", b"a.wav,3,x", b"b.wav,4,y"]))
    assert [(row.file, row.score, row.system_id, row.line) for row in got.ratings] == [
        ("a.wav", 3.0, "x", 2),
        ("b.wav", 4.0, "y", 3),
    ]


def test_line_ends_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("earmark.tasks.importers.lines.BLOCK", 5)
    content = b"f,m,s\r\n" + b"".join(b"%d.wav,3,x\r\n" % number for number in range(30))
    got = table(tmp_path, content)
    assert [(row.file, row.line) for row in got.ratings] == [(f"{n}.wav", n + 2) for n in range(30)]
    assert got.rejects == []


@pytest.mark.parametrize("block", [3, 1 << 20])
@pytest.mark.parametrize(
    ("written", "said"), [("utf-16", ""), ("latin-1", "latin-1"), ("cp1252", "cp1252"), ("utf-16-be", "utf-16-be")]
)
def test_a_list_in_another_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, written: str, said: str
) -> None:
    monkeypatch.setattr("earmark.tasks.importers.lines.BLOCK", block)
    content = "f,m,s\r\n" + "".join(f"Grüße ß{n}.wav,3,ñ\r\n" for n in range(30))
    got = table(tmp_path, content.encode(written), encoding=said)
    assert [(row.file, row.system_id, row.line) for row in got.ratings] == [
        (f"Grüße ß{n}.wav", "ñ", n + 2) for n in range(30)
    ]
    assert got.rejects == []


def test_another_encoding_than_utf_8_is_never_guessed(tmp_path: Path) -> None:
    got = table(tmp_path, b"f,m,s\n" + "é.wav,3,x\n".encode("latin-1") + b"a.wav,4,y\n")
    assert (got.reasons, [row.file for row in got.ratings]) == ([("bad_encoding", 2)], ["a.wav"])
    assert [key for key, _ in options_of("bad_encoding", CORPUS.config)] == ["sources.encoding"]
    for name in ("lattin", "rot13", "zlib"):
        with pytest.raises(ValueError, match="expected an encoding such as latin-1"):
            table(tmp_path, b"f,m,s\n", encoding=name)


# name, whole file, what the one line says
FILES: list[tuple[str, bytes, str]] = [
    ("empty", b"", "expected a table, found an empty file"),
    ("only blank lines", b"\n \r\n", "expected a table, found an empty file"),
    ("only a byte order mark", b"\xef\xbb\xbf", "expected a table, found an empty file"),
    ("UTF-16 cut in a letter", "f,m,s\n".encode("utf-16") + b"a", "expected UTF-16-LE text, found byte 0x61"),
    (
        "a column missing",
        b"f,mean,s\na.wav,3,x\n",
        "expected a column 'm', found none; its columns are 'f', 'mean', 's'",
    ),
    ("a column spelt otherwise", b"f,M,s\n", "expected a column 'm', found none"),
    ("a column twice", b"f,m,s,m\n", "expected one column 'm', found 2"),
    ("no header", b"a.wav,3.5,x\n", "expected a column 'f', found none; its columns are 'a.wav', '3.5', 'x'"),
    ("semicolons", b"f;m;s\na.wav;3;x\n", "its columns are 'f;m;s'"),
    ("a header that is not UTF-8", b"f,m,s,\xff\n", "expected a header, found a line that cannot be read"),
    ("a header with an open quote", b'f,m,"s\n', "expected a header, found a line that cannot be read"),
    ("a picture", b"\x89PNG\r\n\x1a\n\0\0", "expected a header, found a line that cannot be read"),
]


@pytest.mark.parametrize(("content", "message"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_file_that_is_no_table(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        table(tmp_path, content)
    assert str(error.value).startswith("study/t.csv: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'[{"f": "a.wav", "m": 3, "s": "x"},\n {"f": "b.wav", "m": 3, "m": 4, "s": "x"}]', "line 2, object 2"),
        (b'{"clips": [{"f": "a.wav", "m": 3, "s": "x"}, {"f": "b.wav", "m": 3, "s": "x", "m": 4}]}', "line 1"),
        (b'{"f": "a.wav", "m": 3, "s": "x"}\n{"f": "b.wav", "m": 3, "m": 4, "s": "x"}', "line 2"),
    ],
    ids=["array", "nested", "lines"],
)
def test_a_key_that_an_object_has_twice_is_refused_with_its_row(tmp_path: Path, content: bytes, place: str) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(InputError) as error:
        read(tmp_path, format="table", name="study", files={"train": "t.json"}, columns=COLUMNS)
    assert str(error.value) == f"study/t.json: expected JSON, found a fault at {place}: the key 'm' twice"
    (tmp_path / "t.jsonl").write_bytes(content)
    if place == "line 2":  # a line costs only itself
        got = read(tmp_path, format="table", name="study", files={"train": "t.jsonl"}, columns=COLUMNS)
        assert (len(got.ratings), got.reasons) == (1, [("bad_line", 2)])


def test_missing_column_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^study/t.csv: expected a column 'score', found none; the nearest are 'scores'$"
    ):
        table(tmp_path, b"f,scores,s\n", mos="score")


def test_table_without_rows_is_a_note(tmp_path: Path) -> None:
    assert table(tmp_path, b"f,m,s\n").notes == ["study/t.csv holds no rows"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_table_that_is_missing_or_a_folder(tmp_path: Path, ending: str) -> None:
    source = {"format": "table", "name": "study", "files": {"train": f"t.{ending}"}, "columns": COLUMNS}
    with pytest.raises(InputError, match=rf"study/t.{ending}: file not found"):
        read(tmp_path, **source)
    (tmp_path / f"t.{ending}").mkdir()
    with pytest.raises(InputError, match=rf"^study/t.{ending}: "):
        read(tmp_path, **source)


def test_table_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "t.csv").touch()
    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(InputError, match=r"study/t.csv: cannot be read: Permission denied"):
        read(tmp_path, format="table", name="study", files={"train": "t.csv"}, columns=COLUMNS)


def test_table_of_an_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a file ending in .csv, .*found 't.xlsx'"):
        table(tmp_path, b"", "t.xlsx")


def test_gzip_is_read_and_its_damage_told(tmp_path: Path) -> None:
    packed = gzip.compress(b"f,m,s\n" + GOOD)
    assert len(table(tmp_path, packed, "t.csv.gz").ratings) == 1
    for damaged in (packed[:-9], b"f,m,s\n", packed[:12] + b"\xff" * 20):
        with pytest.raises(InputError, match=r"expected gzip data, found a damaged or truncated file"):
            table(tmp_path, damaged, "t.csv.gz")


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("speaker", "", "missing_value"),
        ("content", " ", "missing_value"),
        ("condition", "", "missing_value"),
        ("listener", "", "missing_value"),
        ("subset", "", "missing_value"),
        ("votes", "", "missing_value"),
        ("votes", "0", "bad_value"),
        ("votes", "2.5", "bad_value"),
        ("votes", "many", "bad_value"),
        ("votes", '"1,000"', "bad_value"),
        ("votes", '"8,5"', "bad_value"),
        ("mos_std", "", "missing_value"),
        ("mos_std", "-0.1", "bad_value"),
        ("mos_std", "nan", "bad_value"),
        ("mos_std", '"1,234,5"', "bad_value"),
        ("split", "", "bad_split"),
        ("split", "holdout", "bad_split"),
    ],
)
def test_cell_of_a_mapped_column(tmp_path: Path, column: str, cell: str, reason: str) -> None:
    got = table(tmp_path, f"f,m,s,c\na.wav,3,x,{cell}\n".encode(), **{column: "c"})
    assert got.reasons == [(reason, 2)]
    assert got.rejects[0].item == "a.wav"


def test_a_thousand_and_a_decimal_comma_are_not_told_apart_on_a_scale_of_thousands(tmp_path: Path) -> None:
    content = b'f,m,s\na.wav,950,x\nb.wav,"1,020",x\nc.wav,"1,5",x\n'
    (tmp_path / "t.csv").write_bytes(content)
    source = {"format": "table", "name": "s", "files": {"train": "t.csv"}, "columns": {"file": "f", "mos": "m"}}
    got = read(tmp_path, **source, scale=[0, 2000])
    assert [(row.file, row.score) for row in got.ratings] == [("a.wav", 950), ("c.wav", 1.5)]
    assert got.reasons == [("score_not_a_number", 3)]


def test_counts_and_deviations_have_decimal_commas_too(tmp_path: Path) -> None:
    content = b'f,m,s,n,sd\na.wav,"3,5",x,"12,0","0,71"\nb.wav,3,x, 8,"1,234"\n'
    got = table(tmp_path, content, votes="n", mos_std="sd")
    assert [(row.score, row.votes, row.mos_std) for row in got.ratings] == [(3.5, 12, 0.71), (3, 8, 1.234)]


def test_a_path_that_begins_above_the_list_names_its_mend(tmp_path: Path) -> None:
    says = [table(tmp_path, f"f,m,s\n{f},3,x\n".encode()).rejects[0].detail for f in ("../wavs/a.wav", "a/../../b.wav")]
    assert ["leave out '../' in the list" in one for one in says] == [True, False]
    (tmp_path / "t.csv").write_bytes(b"f,m,s\nwavs/a.wav,3,x\n")  # what it says, with the root at the folder above
    source = {"format": "table", "name": "study", "files": {"train": "t.csv"}, "columns": COLUMNS}
    assert read(tmp_path, **source, audio_root="..").ratings[0].file == "wavs/a.wav"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "bad_line"),
        ("[1, 2]", "bad_line"),
        ("null", "bad_line"),
        ("{} {}", "bad_line"),
        ('{"f": "a", "m": 3, "s": "x", "m": 4}', "bad_line"),
        ("[" * 100_000, "bad_line"),
        ('{"f": "a", "m": ' + "1" * 5000 + ', "s": "x"}', "bad_line"),
        ('{"f": "a", "m": ' + "1" * 400 + ', "s": "x"}', "score_not_a_number"),
        ('{"f": "a", "m": 3}', "missing_value"),
        ('{"f": "a", "m": null, "s": "x"}', "score_missing"),
        ('{"f": "a", "m": NaN, "s": "x"}', "score_not_a_number"),
        ('{"f": "a", "m": true, "s": "x"}', "score_not_a_number"),
        ('{"f": "a", "m": ["good"], "s": "x"}', "score_not_a_number"),
        ('{"f": ["a"], "m": 3, "s": "x"}', "bad_value"),
        ('{"f": "a", "m": 3, "s": {}}', "bad_value"),
        ('{"f": "\\ud800", "m": 3, "s": "x"}', "bad_value"),
        ('{"f": "a\\u0000b", "m": 3, "s": "x"}', "bad_value"),
        ('{"f": "a\\nb", "m": 3, "s": "x"}', "bad_value"),
    ],
)
def test_json_line(tmp_path: Path, line: str, reason: str) -> None:
    good = '{"f": "b", "m": "3.5", "s": 12}'
    got = table(tmp_path, f"{good}\n{line}\n{good}\n".encode(), "t.jsonl")
    assert got.reasons == [(reason, 2)]
    assert [(row.score, row.system_id, row.line) for row in got.ratings] == [(3.5, "12", 1), (3.5, "12", 3)]
    assert all((reject.item + reject.detail).isprintable() for reject in got.rejects)


def test_json_lines_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"study/t.jsonl: expected a table, found an empty file"):
        table(tmp_path, b"", "t.jsonl")
    with pytest.raises(InputError, match=r"study/t.jsonl: expected a column 'm', found none; its columns are 'f', 's'"):
        table(tmp_path, b'{"f": "a", "s": "x"}\n', "t.jsonl")
    late = table(tmp_path, b'{"f": "a", "s": "x"}\n{"f": "a", "s": "x", "m": 3}\n', "t.jsonl")
    assert late.reasons == [("score_missing", 1)]


def test_json_lines_in_a_file_called_json_are_read_as_lines(tmp_path: Path) -> None:
    row = '{"f": "%s", "m": 3, "s": "x"}'
    content = f"{row % 'a'}\n\n{row % 'b'}\n{row % 'c'}\n".encode()
    assert [one.file for one in table(tmp_path, content, "t.json").ratings] == ["a", "b", "c"]
    assert guess_table(tmp_path / "t.json").rows == 3


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"[{}]\n[{}]", 1), (b'[\n{"f": "a"}\n]\n{}', 3), (b'{"f": "a"}\n[]\n', 1), (b'{}\n{}, {"f": 1}', 2), (b"{}]", 1)],
)
def test_a_second_document_behind_the_first_is_refused(content: bytes, line: int, tmp_path: Path) -> None:
    says = rf"t\.json: expected one JSON document.* found another value after line {line}: "
    with pytest.raises(InputError, match=says):
        table(tmp_path, content, "t.json")
    with pytest.raises(InputError, match=says):
        guess_table(tmp_path / "t.json")


def test_parquet_cells(tmp_path: Path) -> None:
    columns = {
        "f": ["a", "b", None, "d", "e", "../f"],
        "m": [3.0, None, 3.0, float("nan"), 9.0, 3.0],
        "s": [1.0, 2.0, 3.0, 4.0, 5.0, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=4)
    got = table(tmp_path, (tmp_path / "t.parquet").read_bytes(), "t.parquet")
    assert [(row.file, row.system_id, row.line) for row in got.ratings] == [("a", "1", 1)]
    assert got.reasons == [
        ("score_missing", 2),
        ("missing_value", 3),
        ("score_not_a_number", 4),
        ("score_out_of_scale", 5),
        ("path_outside_root", 6),
    ]


def test_parquet_of_odd_types(tmp_path: Path) -> None:
    columns = {
        "f": pa.array([b"a", b"\xff", b"c"]),
        "m": pa.array(["3", "4", "x"]),
        "s": pa.array([["l"], ["m"], ["n"]]),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    got = table(tmp_path, (tmp_path / "t.parquet").read_bytes(), "t.parquet")
    assert got.reasons == [("bad_value", 1), ("bad_encoding", 2), ("score_not_a_number", 3)]


def test_parquet_as_a_whole(tmp_path: Path) -> None:
    layouts.table(tmp_path / "good.parquet")
    whole = (tmp_path / "good.parquet").read_bytes()
    for damaged in (b"", b"f,m,s\n", whole[:-20], whole[:40] + whole[60:]):
        with pytest.raises(InputError, match=r"^study/t.parquet: [^\n]*$"):
            table(tmp_path, damaged, "t.parquet", file="wav_path", mos="score", system="system_id")
    with pytest.raises(InputError, match=r"study/t.parquet: expected a column 'm', found none"):
        table(tmp_path, whole, "t.parquet", file="wav_path")
