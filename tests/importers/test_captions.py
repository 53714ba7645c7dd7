"""Caption sets and recalls: what is read, and what is refused with its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Note, Reject
from earmark.schemas.tracks import Tag
from earmark.tasks.importers.caption_sets import ListedCaption, read_captions
from earmark.tasks.importers.tracks import Recall, read_recalls


def test_both_forms_give_captions(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps([{"path": "00/1.mp3", "caption": ' A "quiet" tune. '}]))
    (tmp_path / "c.tsv").write_bytes(b'id\tcaption\r\n1\tA "quiet" tune.\r\n')
    assert list(read_captions(tmp_path / "c.json", "c.json")) == [
        ListedCaption("00/1.mp3", 'A "quiet" tune.', "c.json", 1)
    ]
    assert list(read_captions(tmp_path / "c.tsv", "c.tsv")) == [ListedCaption("1", 'A "quiet" tune.', "c.tsv", 2)]


def test_a_tsv_needs_no_header_and_may_be_packed(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv.gz"
    path.write_bytes(gzip.compress(b"1\tOne.\n2\tTwo."))
    assert [(c.item, c.line) for c in read_captions(path, "c.tsv.gz") if isinstance(c, ListedCaption)] == [
        ("1", 1),
        ("2", 2),
    ]


@pytest.mark.parametrize("header", ["track_id\tcaption", "path\tText", "id\tcaption"])
def test_a_header_of_other_words_is_no_caption(tmp_path: Path, header: str) -> None:
    (tmp_path / "c.tsv").write_text(f"{header}\n1\tOne.\n")
    assert list(read_captions(tmp_path / "c.tsv", "c.tsv")) == [ListedCaption("1", "One.", "c.tsv", 2)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"path": "1.mp3", "caption": "nan"}, "missing_value"),
        ({"path": "1.mp3", "caption": "N/A"}, "missing_value"),
        ({"path": "1.mp3"}, "missing_value"),
        ({"path": "1.mp3", "caption": "  "}, "missing_value"),
        ({"path": "1.mp3", "caption": 3}, "bad_value"),
        ({"path": "1.mp3", "caption": "x" * 30_000}, "bad_value"),
        ({"caption": "A tune."}, "missing_value"),
        ({"path": "0.mp3", "caption": "Again."}, "duplicate_id"),
        ("a tune", "bad_line"),
        (None, "bad_line"),
    ],
)
def test_a_bad_object_is_a_reject_that_names_its_place(tmp_path: Path, row: Any, reason: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps([{"path": "0.mp3", "caption": "A tune."}, row]))
    _, reject = read_captions(path, "sets/c.json")
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.source_file, reject.line) == (reason, "sets/c.json", 2)


def test_a_bad_line_is_a_reject_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_bytes(b"1\tOne.\n2\n3\ta\tb\n\xff\tx\n\n1\tOnce more.\n")
    rejects = [row for row in read_captions(path, "c.tsv") if isinstance(row, Reject)]
    assert [(row.reason, row.line) for row in rejects] == [
        ("bad_line", 2),
        ("bad_line", 3),
        ("bad_encoding", 4),
        ("duplicate_id", 6),
    ]


@pytest.mark.parametrize(
    ("name", "held", "said"),
    [
        ("c.json", b"{", "expected a JSON array of objects, found"),
        ("c.json", b'{"path": 1}', "expected a JSON array of objects"),
        ("c.json", b"\xff", "expected UTF-8 text, found byte 0xff"),
        ("c.csv", b"x", r"ending in \.json or \.tsv"),
        ("c.tsv", None, "file not found"),
        ("c.json", None, "file not found"),
        ("c.json.gz", b"no gzip", "damaged or truncated"),
    ],
)
def test_a_set_that_cannot_be_read_is_one_clear_line(tmp_path: Path, name: str, held: bytes | None, said: str) -> None:
    if held is not None:
        (tmp_path / name).write_bytes(held)
    with pytest.raises(InputError, match=said):
        list(read_captions(tmp_path / name, name))


@pytest.mark.parametrize("held", [b"[]", b""])
def test_an_empty_set_says_so(tmp_path: Path, held: bytes) -> None:
    path = tmp_path / ("c.json" if held else "c.tsv")
    path.write_bytes(held)
    assert list(read_captions(path, path.name)) == [Note(f"{path.name} holds no captions")]


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=20)), max_size=8))
def test_every_object_is_a_caption_or_a_reject(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("sets", numbered=True) / "c.json"
    path.write_text(json.dumps([{"path": item, "caption": text} for item, text in rows]))
    found = [row for row in read_captions(path, "c.json") if not isinstance(row, Note)]
    assert [row.line for row in found] == list(range(1, len(rows) + 1))


def test_recalls_of_a_synonym_and_of_no_tag(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("category,tag,asked,detected\ngenre,Punk,9,8\ngenre,punkrock,7,7\ngenre,polka,5,5\n")
    found = list(read_recalls(path, "r.csv", {"genre": {"punk": "punkrock"}}, {Tag("genre", "punkrock")}))
    assert found[0] == Recall(Tag("genre", "punkrock"), 9, 8, "r.csv")
    rejects = [row for row in found if isinstance(row, Reject)]
    assert [(row.item, row.reason, row.line) for row in rejects] == [
        ("punkrock", "duplicate_id", 3),
        ("polka", "not_known", 4),
    ]


def test_recalls_are_read_and_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    lines = ["category,tag,asked,detected", "genre,rock,100,90", "colour,blue,1,1", "genre,jazz,9,x", "genre,folk,3,4"]
    path.write_text("\n".join([*lines, "genre,rock,1,1", "mood/theme,,1,1", "genre,pop,0,0"]))
    found = list(read_recalls(path, "r.csv"))
    kept = [row for row in found if isinstance(row, Recall)]
    assert kept == [Recall(Tag("genre", "rock"), 100, 90, "r.csv"), Recall(Tag("genre", "pop"), 0, 0, "r.csv")]
    assert [(row.reason, row.line) for row in found if isinstance(row, Reject)] == [
        ("bad_value", 3),
        ("bad_value", 4),
        ("bad_value", 5),
        ("duplicate_id", 6),
        ("missing_value", 7),
    ]
