"""Whatever bytes a list holds, reading it raises nothing but `InputError`, and every row is accounted for."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.tasks.importers.cells import BadRow, identifier
from earmark.tasks.importers.lines import read_rows
from tests.importers import layouts
from tests.importers.reading import Reading, read

TABLE: dict[str, Any] = {"format": "table", "columns": {"file": "wav_path", "mos": "score", "system": "system_id"}}
LISTS: list[tuple[str, str, dict[str, Any]]] = [
    ("bvcc/test_mos_list.txt", "", {"format": "bvcc", "root": "bvcc"}),
    ("bvcc/TESTSET", "", {"format": "bvcc", "root": "bvcc"}),
    ("nisqa/A/A_file.csv", layouts.NISQA_HEADER, {"format": "nisqa", "root": "nisqa"}),
    ("singmos/sets/train.txt", "", {"format": "singmos", "root": "singmos"}),
    ("somos/TRAINSET", "systemId,utteranceId,choice,listenerId", {"format": "somos", "root": "somos"}),
    ("tmhint/raw_data.csv", layouts.TMHINT_HEADER, {"format": "tmhint-qi", "root": "tmhint"}),
    ("vmc23/track3_answer.txt", "", {"format": "vmc23", "root": "vmc23"}),
    ("t.csv", "wav_path,score,system_id", {**TABLE, "files": {"train": "t.csv"}}),
    ("t.tsv", "wav_path\tscore\tsystem_id", {**TABLE, "files": {"train": "t.tsv"}}),
    ("t.jsonl", '{"wav_path": "a", "score": 3, "system_id": "x"}', {**TABLE, "files": {"train": "t.jsonl"}}),
]
JSON_TOP = '{"wav_path"'

# Pieces that rows are made of, so that chance writes lists and not only noise.
PIECES = st.sampled_from(
    (
        *(b"sysA-utt1.wav", b"sysA", b"s_001.wav", b"VoiceMOS2023Track3-M_snr-2_w_TMHINT_b2_21_02", b"4", b"4.5"),
        *(b"nan", b"{}_30_judge_F", b"../a", b"'", b'"', b'""', b"\0", b"\xff", b"\xef\xbb\xbf", b"\xe9", b" "),
        *(b"mos", b"wav", b"{", b'{"wav_path": "a", "score": 3, "system_id": "x"}', b"\x85", b"\x0b", b"\xe2\x80\xa8"),
    )
)
MARKS = st.sampled_from([b",", b",", b"\t", b"\n", b"\n", b"\r\n", b"\r", b"\n\n"])
LISTED = st.lists(st.tuples(PIECES, MARKS), max_size=40).map(lambda pairs: b"".join(a + b for a, b in pairs))
BYTES = st.one_of(LISTED, st.binary(max_size=400))


def _read(name: str, content: bytes, source: dict[str, Any]) -> Reading | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        try:
            return read(Path(folder), **source)
        except InputError as error:
            if "\n" in str(error):
                raise
            return None


def _rows(content: bytes) -> int:
    """Rows of a text without quotes: lines that hold more than space."""
    return sum(bool(line.decode(errors="replace").strip()) for line in content.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "header", "source"), LISTS, ids=[row[0] for row in LISTS])
@given(content=BYTES)
@settings(max_examples=60, deadline=None)
def test_arbitrary_bytes_as_a_list(name: str, header: str, source: dict[str, Any], content: bytes) -> None:
    _read(name, content, source)
    top = header.encode() + b"\n" if header else b""
    got = _read(name, top + content, source)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) and not header:
        assert got is None
        return
    assert got is not None
    lines = content if header else content.removeprefix(b"\xef\xbb\xbf")
    headers = sum("is a header" in note for note in got.notes)
    expected = _rows(lines) - headers + header.startswith(JSON_TOP)
    if b'"' in content and not header.startswith(JSON_TOP):
        assert got.rows <= expected  # a quoted field may span lines
    else:
        assert got.rows == expected
    for reject in got.rejects:
        assert reject.reason.isidentifier()
        assert (reject.item + reject.detail).isprintable()
    assert all(isinstance(rating.file, str) and ".." not in rating.file.split("/") for rating in got.ratings)


@given(content=BYTES)
@settings(max_examples=200, deadline=None)
def test_no_line_is_lost_or_read_twice(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "list"
        path.write_bytes(content)
        try:
            lines = [line for line, _ in read_rows(path, "list")]
        except InputError:
            return
    assert lines == sorted(set(lines))
    rows = _rows(content.removeprefix(b"\xef\xbb\xbf"))
    assert len(lines) == rows if b'"' not in content else len(lines) <= rows


@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode)))
@settings(max_examples=60, deadline=None)
def test_arbitrary_bytes_as_parquet_gzip_and_json(content: bytes) -> None:
    for name in ("t.parquet", "t.csv.gz"):
        assert _read(name, content, {**TABLE, "files": {"train": name}}) is None
    _read("singmos/info/score.json", content, {"format": "singmos", "root": "singmos"})


@pytest.mark.parametrize(("word", "said"), [("item", "an item"), ("album", "an album"), ("system", "a system")])
def test_an_empty_cell_is_told_in_plain_english(word: str, said: str) -> None:
    with pytest.raises(BadRow, match=f"^expected {said}, found an empty cell$"):
        identifier(" ", word)
