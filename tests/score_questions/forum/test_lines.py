"""Files of a dump that the fast reader refuses, misreads or cannot read to their end, and what is said of each."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.tasks.pipeline import progress
from earmark.tasks.score_questions.forum import lines
from earmark.tasks.score_questions.forum.lines import is_whole
from earmark.tasks.store import sql
from tests.score_questions.forum.test_threads import LONG, answers, read, wide
from tests.score_questions.forum.threads_of import SALT, submission, write_dump

PACKED = {"submissions": ["RS.ndjson.zst"], "comments": ["RC.ndjson"]}
SKIPPED = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"


@pytest.fixture(autouse=True)
def _salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)


def texts(count: int) -> list[Any]:
    """Submissions whose texts do not pack well."""
    rng = random.Random(7)
    return [submission(number, selftext=rng.randbytes(200).hex()) for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("pack", [zstandard.compress, wide], ids=["narrow", "wide"])
def test_a_file_that_was_cut_says_so(tmp_path: Path, pack: Any) -> None:
    packed = pack(b"".join(json.dumps(row).encode() + b"\n" for row in texts(3000)))
    (tmp_path / "RS.ndjson.zst").write_bytes(packed[: len(packed) // 2])
    write_dump(tmp_path / "RC.ndjson", answers(1, 2))
    step = read(tmp_path, source=PACKED)[0]["submissions"]
    assert 0 < step.kept < 2000
    assert step.notes == (
        f"reddit/RS.ndjson.zst: its compression ends in the middle, after line {step.entered:,}: what followed is lost",
    )


def test_what_was_not_asked_for_is_not_lost(tmp_path: Path) -> None:
    packed = zstandard.compress(b"".join(json.dumps(row).encode() + b"\n" for row in texts(3000)))
    (tmp_path / "RS.ndjson.zst").write_bytes(packed[: len(packed) // 2])
    write_dump(tmp_path / "RC.ndjson", answers(1, 2))
    step = read(tmp_path, source=PACKED, limit=100)[0]["submissions"]
    assert (step.entered, step.notes) == (100, ())


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.binary(max_size=3000), st.booleans(), st.booleans(), st.booleans()), max_size=4),
    st.integers(0, 200_000),
    st.data(),
)
def test_a_file_is_whole_where_a_frame_ends(
    tmp_path_factory: pytest.TempPathFactory,
    frames: list[tuple[bytes, bool, bool, bool]],
    zeros: int,
    data: st.DataObject,
) -> None:
    content, ends = b"", {0}
    for text, checksum, sized, skipped in frames:
        packer = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=sized)
        content += SKIPPED * skipped
        ends.add(len(content))
        content += packer.compress(text + bytes(zeros))  # blocks that are raw, packed, and one byte repeated
        ends.add(len(content))
    path = tmp_path_factory.mktemp("cut") / "x.zst"
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    assert is_whole(path) == (cut in ends)
    path.write_bytes(content)
    assert is_whole(path)


def test_no_more_threads_than_memory_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "MOST_THREADS", 1)
    with sql.connect(tmp_path) as connection:
        assert connection.execute("SELECT current_setting('threads')").fetchall() == [(1,)]


def test_a_mark_alone_on_its_line_shifts_nothing(tmp_path: Path) -> None:
    write_dump(tmp_path / "RS.ndjson", [b"\xef\xbb\xbf", submission(1), b'{"cut', submission(2, over_18=True)])
    write_dump(tmp_path / "RC.ndjson", answers(1))
    found = [(row["reason"], row["line"]) for row in read(tmp_path)[3]]
    assert sorted(found) == [("adult", 3), ("bad_line", 2)]


def test_a_disk_that_fails_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else half a dump became a version."""
    write_dump(tmp_path / "RS.ndjson", [submission(1), LONG])  # which the fast reader refuses
    write_dump(tmp_path / "RC.ndjson", answers(1))
    blocks = lines.blocks

    def failing(*given: Any) -> Iterator[bytes]:
        yield next(blocks(*given))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(lines, "blocks", failing)
    with pytest.raises(InputError, match=r"RS\.ndjson: cannot be read: Input/output error"):
        read(tmp_path)


class Bars(progress.PlainLines):
    """Lines that are kept."""

    def say(self, line: str) -> None:
        """Not shown."""

    def done(self) -> dict[str, tuple[int, int | None]]:
        """What each piece of work did, and of how much."""
        return {line.label: (line.done, line.total) for line in self._lines}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "wide", "long line", "faulty"])
def test_a_bar_ends_where_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    bars = Bars()
    monkeypatch.setattr(progress, "_display", bars)
    rng = random.Random(7)
    rows = [submission(number, selftext=rng.randbytes(1 << 19).hex()) for number in range(8)]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    content += {"long line": LONG, "faulty": b"{"}.get(kind, b"")
    (tmp_path / "RS.ndjson.zst").write_bytes(wide(content) if kind == "wide" else zstandard.compress(content))
    write_dump(tmp_path / "RC.ndjson", answers(1))
    read(tmp_path, source=PACKED)
    done = bars.done()
    assert done["read submissions (MB)"][0] == done["read submissions (MB)"][1]
    assert (done["read submissions (MB)"][1] or 0) >= 4
    assert ("look at lines without an object (MB)" in done) == (kind in ("long line", "faulty"))
