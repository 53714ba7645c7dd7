"""From dumps to threads: what is kept, what each dropped line is called, and that none gets lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.schemas.forum import COMMENTS, THREADS
from earmark.tasks.score_questions.forum.threads import RAW, hash_bits, read_submissions
from earmark.tasks.store.manifest import Step
from earmark.tasks.text.anonymity import key_of
from tests.conftest import examples
from tests.score_questions.forum.threads_of import (
    SALT,
    comment,
    forum_config,
    forum_stage,
    read_threads,
    submission,
    write_dump,
)

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)


def answers(*threads: int, count: int = 3) -> list[Row | bytes]:
    return [comment(thread * 100 + number, thread) for thread in threads for number in range(count)]


def read(folder: Path, **changes: Any) -> tuple[dict[str, Step], list[Row], list[Row], list[Row]]:
    """Steps by name, threads, comments and rejects of the dump in a folder."""
    with forum_stage(folder) as stage:
        _, texts = read_threads(stage, forum_config(folder, **changes))
        threads, comments = (pq.read_table(path) for path in texts)
        assert threads.schema.equals(THREADS)
        assert comments.schema.equals(COMMENTS)
        rejects = [
            row for path in sorted((stage.work / "rejects").iterdir()) for row in pq.read_table(path).to_pylist()
        ]
        steps = {step.name: step for step in stage.steps()}
        for step in steps.values():
            assert step.entered == step.kept + sum(step.rejected.values()) + sum(step.dropped.values()), step
            assert all(count >= 0 for count in step.dropped.values()), step  # one of them is what the others leave
        assert len(rejects) == sum(sum(step.rejected.values()) for step in steps.values())
        return steps, threads.to_pylist(), comments.to_pylist(), rejects


def test_keeps_threads_with_enough_comments(tmp_path: Path) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1), submission(2), submission(3)])
    write_dump(tmp_path / "RC.ndjson", [*answers(1, 2), comment(1, 3)])
    _, threads, comments, rejects = read(tmp_path)
    assert {row["thread_key"] for row in threads} == {key_of(SALT, "thread", f"s000{n}") for n in (1, 2)}
    assert [row["comments"] for row in threads] == [3, 3]
    assert len(comments) == 6
    assert [(row["reason"], row["line"]) for row in rejects] == [("too_few_comments", 3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("adult", {"over_18": True}),
        ("removed", {"removed_by_category": "moderator"}),
        ("removed", {"selftext": "[deleted]"}),
        ("too_many_words", {"selftext": "chord " * 200}),
        ("no_image", {"url": "https://example.org/page"}),
        ("missing_value", {"title": " "}),
        ("bad_value", {"created_utc": "yesterday"}),
        ("bad_value", {"id": {"nested": [1]}}),
        ("missing_value", {"id": None}),
    ],
)
def test_names_why_a_submission_is_dropped(tmp_path: Path, reason: str, changes: Row) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1), submission(2, **changes)])
    write_dump(tmp_path / "RC.ndjson", answers(1, 2))
    steps, threads, _, rejects = read(tmp_path)
    assert len(threads) == 1
    assert steps["submissions"].rejected == {reason: 1}
    assert [(row["reason"], row["file"], row["line"]) for row in rejects] == [(reason, "reddit/RS.ndjson", 2)]


def test_a_text_of_few_but_endless_words_is_told_its_limit(tmp_path: Path) -> None:
    texts = ["x" * 19_990, "x" * 20_001]
    write_dump(tmp_path / "RS.ndjson", [submission(n, title="See", selftext=text) for n, text in enumerate(texts)])
    write_dump(tmp_path / "RC.ndjson", answers(0, 1))
    _, threads, _, rejects = read(tmp_path)
    assert [row["words"] for row in threads] == [2]
    told = "expected at most 200 words or 20,000 letters in all, found more"
    assert [(row["reason"], row["detail"], row["line"]) for row in rejects] == [("too_many_words", told, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("removed", {"body": "[deleted]"}),
        ("removed", {"body": "[removed]"}),
        ("missing_value", {"body": None}),
        ("bad_value", {"score": "many"}),
        ("missing_value", {"link_id": None}),
        ("automatic", {"author": "AutoModerator"}),
        ("duplicate", {"id": "c00100"}),
    ],
)
def test_names_why_a_comment_is_dropped(tmp_path: Path, reason: str, changes: Row) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1)])
    write_dump(tmp_path / "RC.ndjson", [*answers(1), comment(9, 1, **changes)])
    steps, _, comments, rejects = read(tmp_path)
    assert len(comments) == 3
    assert steps["comments"].rejected == {reason: 1}
    assert [(row["reason"], row["line"]) for row in rejects] == [(reason, 4)]


@pytest.mark.parametrize(
    ("image_from", "changes"),
    [
        ("direct", {"url": "https://i.imgur.com/a.JPEG?1"}),
        (
            "gallery",
            {"url": "https://reddit.com/gallery/x", "is_gallery": True, "media_metadata": {"q": {"e": "Image"}}},
        ),
        ("preview", {"url": "https://x.org", "preview": {"images": [{"source": {"url": "https://p.it/x"}}]}}),
    ],
)
def test_finds_where_images_are(tmp_path: Path, image_from: str, changes: Row) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1, **changes)])
    write_dump(tmp_path / "RC.ndjson", answers(1))
    assert [row["image_from"] for row in read(tmp_path)[1]] == [image_from]


def test_selection_is_counted_and_not_listed(tmp_path: Path) -> None:
    others = [submission(2, subreddit="piano"), submission(3, created_utc="1262304000"), submission(4, subreddit=None)]
    write_dump(tmp_path / "RS.ndjson", [submission(1), *others])
    write_dump(tmp_path / "RC.ndjson", [*answers(1), comment(1, 2), comment(2, 1, parent_id="t1_c00100")])
    steps, _, _, rejects = read(tmp_path)
    assert steps["submissions"].dropped == {"other_subreddit": 2, "other_year": 1}
    assert steps["comments"].dropped == {"other_thread": 1, "not_first_level": 1}
    assert rejects == []


def test_a_like_hash_makes_no_reject(tmp_path: Path) -> None:
    """The scan knows threads by a hash of some bits; the judge knows them by name."""
    place = f"hash(link) % {hash_bits(1)}"
    same = f"SELECT link FROM (SELECT 't3_x' || range AS link FROM range(4_000_000)) WHERE {place} = "
    with duckdb.connect() as connection:
        found = connection.sql(f"{same} (SELECT {place} FROM (SELECT 't3_s0001' AS link)) LIMIT 1").fetchall()
    write_dump(tmp_path / "RS.ndjson", [submission(1)])
    write_dump(tmp_path / "RC.ndjson", [*answers(1), comment(9, 9, link_id=found[0][0], parent_id=None)])
    steps, _, _, rejects = read(tmp_path)
    assert rejects == []
    assert steps["comments"].dropped["other_thread"] == 1


def test_there_are_bits_for_any_number_of_candidates() -> None:
    with duckdb.connect() as connection:
        highest = hash_bits(10**9) - 1
        assert connection.sql(f"SELECT bit_count(bitstring_agg({highest}, 0, {highest}))").fetchall() == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["d[1].ndjson", "d*.ndjson", "d?.ndjson", "d[1]/*.ndjson.zst"])
def test_a_name_of_a_file_is_no_pattern(tmp_path: Path, name: str) -> None:
    (tmp_path / "d[1]").mkdir()
    for other in ("d1.ndjson", "dx.ndjson", "d[1]/x.ndjson.zst"):
        write_dump(tmp_path / other, [submission(2), submission(3)])
    write_dump(tmp_path / name, [submission(1)])
    write_dump(tmp_path / "RC.ndjson", answers(1, 2, 3))
    steps, threads, _, _ = read(tmp_path, source={"submissions": [name], "comments": ["RC.ndjson"]})
    assert [row["title"] for row in threads] == ["What chord is in bar 1?"]
    assert steps["submissions"].entered == 1


def test_reads_old_and_new_layouts_alike(tmp_path: Path) -> None:
    old = {"created_utc": "1500000001", "edited": 1500000900.0, "ups": 9, "downs": 2, "score": 100}
    write_dump(tmp_path / "RS.ndjson", [submission(1, **old)])
    rows = [comment(1, 1, **old), comment(2, 1, score=8), comment(3, 1, score="6", ups=None), comment(4, 1, ups=5)]
    write_dump(tmp_path / "RC.ndjson", rows)
    comments = read(tmp_path)[2]
    assert [(row["place"], row["score"]) for row in comments] == [(1, 8), (2, 7), (3, 6), (4, 4)]


UPLOADED = {"status": "valid", "e": "Image", "m": "image/png", "s": {"u": "https://i.redd.it/ab1.png"}}
GALLERY = {"media_metadata": {"ab1": UPLOADED}}
PREVIEW = {"preview": {"images": [{"source": {"url": "https://i.redditmedia.com/x.png"}}]}}
MEDIA_PAGE = "https://www.reddit.com/media?url=https%3A%2F%2Fi.redd.it%2Fx1.png"
LACKED = ("over_18", "removed_by_category", "media_metadata")
BY_YEAR: dict[int, tuple[str, Row, Row]] = {  # where the image is, and fields of a submission and its comments then
    2012: (
        "page",
        {"url": "http://imgur.com/aB3dE", "ups": 4, "downs": 1, "over_18": False},
        {"ups": 9, "downs": 4, "score": 6, "edited": "1351000000.0"},
    ),
    2013: ("direct", {"url": "http://i.imgur.com/aB3dE.png"}, {"ups": 5, "score_hidden": False}),
    2014: (
        "text",
        {"url": "", "selftext": "See http://imgur.com/aB3dE"},
        {"ups": 5, "downs": 0, "retrieved_on": 1_431_000_000},
    ),
    2015: ("page", {"url": MEDIA_PAGE}, {"archived": False}),
    2016: ("preview", {"url": "https://flic.kr/p/abc", **PREVIEW}, {}),
    2017: ("direct", {}, {"is_submitter": False}),
    2018: ("direct", {"author_fullname": "t2_abc"}, {"author_fullname": "t2_def", "is_submitter": False}),
    2019: ("gallery", {"url": "https://www.reddit.com/r/x/", **GALLERY}, {"score": "5"}),
    2020: (
        "gallery",
        {"url": "https://www.reddit.com/gallery/x", **GALLERY, "gallery_data": {"items": [{"media_id": "ab1"}]}},
        {"all_awardings": []},
    ),
    2021: (
        "gallery",
        {"url": "/r/other/comments/x/", "media_metadata": None, "crosspost_parent_list": [{"id": "x", **GALLERY}]},
        {"retrieved_utc": 1_650_000_000},
    ),
    2022: ("direct", {"removed_by_category": None}, {"parent_id": None, "retrieved_utc": 1_672_000_000}),
}


def test_reads_the_fields_of_every_year(tmp_path: Path) -> None:
    posts, said, gone = [], [], {"author": "[deleted]"}
    for year, (_, post, answer) in BY_YEAR.items():
        at = (year - 1970) * 31_557_600 + 3_000_000
        time: Any = str(at) if year < 2017 else at
        row = {**submission(year, created_utc=time, **gone), **post}
        posts.append({name: value for name, value in row.items() if name in post or name not in LACKED})
        for number in range(3):
            fields = {"score": 5, "created_utc": time, **answer, **(gone if number == 0 else {})}
            said.append(comment(year * 10 + number, year, **fields))
        said.append(comment(year * 10 + 3, year, body="[deleted]", created_utc=time, **gone))
    write_dump(tmp_path / "RS.ndjson", posts)
    write_dump(tmp_path / "RC.ndjson", said)
    steps, threads, comments, _ = read(tmp_path)
    assert {row["year"]: row["image_from"] for row in threads} == {year: where for year, (where, *_) in BY_YEAR.items()}
    assert [row["score"] for row in comments] == [5] * 33
    assert steps["comments"].rejected == {"removed": 11}, "not the words of accounts that are gone"


def test_later_files_repeat_nothing(tmp_path: Path) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1)])
    write_dump(tmp_path / "RS2.ndjson.zst", [submission(1, title="Again"), submission(2)])
    write_dump(tmp_path / "RC.ndjson", answers(1, 2))
    source = {"submissions": ["RS.ndjson", "RS2.ndjson.zst"], "comments": ["RC.ndjson"]}
    _, threads, _, rejects = read(tmp_path, source=source)
    assert sorted(row["title"] for row in threads) == ["What chord is in bar 1?", "What chord is in bar 2?"]
    assert [(row["reason"], row["file"], row["line"]) for row in rejects] == [("duplicate", "reddit/RS2.ndjson.zst", 1)]


def wide(content: bytes) -> bytes:
    """Packed as the forum's archives are, with a window of 2 GiB; such a frame does not tell its size."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=31, write_content_size=0)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(content) + packer.flush()


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil",
    [
        lambda good: b"\xef\xbb\xbf" + good,
        lambda good: good.replace(b"\n", b"\r\n"),
        lambda good: b"\n \n" + good.replace(b"\n", b"\n\n"),
        lambda good: good[:-1],
    ],
    ids=["mark", "crlf", "blank lines", "no last end"],
)
def test_line_ends_and_marks_cost_nothing(tmp_path: Path, spoil: Any) -> None:
    for name, rows in (("RS", [submission(1), submission(2)]), ("RC", answers(1, 2))):
        path = write_dump(tmp_path / f"{name}.ndjson", rows)  # type: ignore[arg-type]
        path.write_bytes(spoil(path.read_bytes()))
    steps, threads, _, rejects = read(tmp_path)
    assert len(threads) == 2
    assert rejects == []
    assert steps["submissions"].entered == 2


def test_reads_the_wide_windows_of_real_archives(tmp_path: Path) -> None:
    content = b"".join(json.dumps(submission(number)).encode() + b"\n" for number in range(3))
    (tmp_path / "RS.ndjson.zst").write_bytes(wide(content))
    write_dump(tmp_path / "RC.ndjson", answers(0, 1, 2))
    assert len(read(tmp_path, source={"submissions": ["RS.ndjson.zst"], "comments": ["RC.ndjson"]})[1]) == 3


def test_lines_are_counted_without_blank_ones(tmp_path: Path) -> None:
    rows = [b"", submission(1), b" ", submission(2, over_18=True), b'{"cut', b"\r", submission(3, over_18=True)]
    write_dump(tmp_path / "RS.ndjson", rows)
    write_dump(tmp_path / "RC.ndjson", answers(1))
    found = [(row["reason"], row["line"]) for row in read(tmp_path)[3]]
    assert sorted(found) == [("adult", 2), ("adult", 4), ("bad_line", 3)]


def test_damage_costs_what_lies_behind_it(tmp_path: Path) -> None:
    whole = write_dump(tmp_path / "all.zst", [submission(number, selftext="x" * number) for number in range(400)])
    more = zstandard.compress(b"not reached")
    (tmp_path / "RS.ndjson.zst").write_bytes(whole.read_bytes() + b"\x28\xb5\x2f\xfd\xff\xff" + more)
    write_dump(tmp_path / "RC.ndjson", answers(1, 2))
    steps, threads, _, _ = read(tmp_path, source={"submissions": ["RS.ndjson.zst"], "comments": ["RC.ndjson"]})
    assert len(threads) == 2
    assert "damaged after line 400" in steps["submissions"].notes[0]


@pytest.mark.parametrize("name", ["absent.ndjson", "plain.zst", "folder"])
def test_a_file_that_is_no_dump_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain.zst").write_text("{}\n")
    (tmp_path / "folder").mkdir()
    write_dump(tmp_path / "RC.ndjson", [])
    with pytest.raises(InputError, match=name):
        read(tmp_path, source={"submissions": [name], "comments": ["RC.ndjson"]})


def test_nothing_with_names_stays_beside_the_candidates(tmp_path: Path) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1)])
    write_dump(tmp_path / "RC.ndjson", answers(1))
    with forum_stage(tmp_path) as stage:
        read_threads(stage, forum_config(tmp_path))
        assert [path.name for path in (stage.work / RAW).iterdir()] == ["candidates.parquet"]


def test_what_a_killed_build_had_spilt_goes(tmp_path: Path) -> None:
    """DuckDB removes its files when it ends; a killed one does not, and they hold texts as the dump has them."""
    write_dump(tmp_path / "RS.ndjson", [submission(1)])
    with forum_stage(tmp_path) as stage:
        read_submissions(stage, forum_config(tmp_path))
        (stage.work / "spill").mkdir(exist_ok=True)
        left = stage.work / "spill" / "duckdb_temp_storage_DEFAULT-0.tmp"
        left.write_text("asker_1")
    with forum_stage(tmp_path) as stage:
        assert "submissions" in [step.name for step in stage.steps()]
        assert not left.exists()


LONG = b'{"id": "long", "body": "' + b"y" * (40 << 20) + b'"}'
BOMB = b'{"id": "bomb", "preview": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
KEYS = (
    "id",
    "title",
    "selftext",
    "created_utc",
    "over_18",
    "url",
    "media_metadata",
    "preview",
    "score",
    "body",
    "link_id",
)


@st.composite
def spoilt_lines(draw: st.DrawFn) -> bytes:
    """A line as disks really hold them: cut off, of wrong types, with bytes that are no text, nested past reading."""
    row = {**submission(draw(st.integers(0, 5))), **comment(draw(st.integers(0, 99)), draw(st.integers(0, 5)))}
    changed = draw(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
    line = json.dumps({**row, **changed}, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 6)):
        case 0:
            return line[: draw(st.integers(0, len(line)))]
        case 1:
            at = draw(st.integers(0, len(line)))
            return line[:at] + draw(st.binary(max_size=8)) + line[at:]
        case 2:
            return draw(st.binary(max_size=60))
        case 3:
            return BOMB
        case _:
            return line


@pytest.mark.slow
@examples(15)
@given(st.lists(spoilt_lines(), max_size=12), st.lists(spoilt_lines(), max_size=12), st.booleans())
def test_no_line_stops_a_build_or_gets_lost(
    tmp_path_factory: pytest.TempPathFactory, submissions: list[bytes], comments: list[bytes], packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    end = ".zst" if packed else ""
    for name, lines in (("RS", [submission(1), *submissions]), ("RC", [*answers(1), *comments])):
        write_dump(folder / f"{name}.ndjson{end}", lines)  # type: ignore[arg-type]
    source = {"submissions": [f"RS.ndjson{end}"], "comments": [f"RC.ndjson{end}"]}
    steps = read(folder, source=source)[0]
    for name in ("RS", "RC"):
        content = (folder / f"{name}.ndjson{end}").read_bytes()
        text = zstandard.decompress(content) if packed else content
        lines = [line for line in text.split(b"\n") if line and not line.isspace()]
        assert steps["submissions" if name == "RS" else "comments"].entered == len(lines)


def test_a_line_beyond_reading_is_a_reject(tmp_path: Path) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1), LONG, submission(2)])
    write_dump(tmp_path / "RC.ndjson", answers(1, 2))
    _, threads, _, rejects = read(tmp_path)
    assert len(threads) == 2
    assert [(row["reason"], row["line"]) for row in rejects] == [("bad_line", 2)]


@pytest.mark.slow
def test_lines_keep_their_numbers_where_many_threads_read(tmp_path: Path) -> None:
    rows = [comment(number, 9) for number in range(300_000)]
    faulty = [7, 122_881, 200_000, 299_999]
    for line in faulty:
        rows[line - 1] = comment(line, 1, body="[removed]")
    write_dump(tmp_path / "RS.ndjson", [submission(1)])
    write_dump(tmp_path / "RC.ndjson", [*rows, *answers(1)])
    steps, threads, _, rejects = read(tmp_path)
    assert len(threads) == 1
    assert steps["comments"].dropped["other_thread"] == 300_000 - len(faulty)
    assert [row["line"] for row in rejects if row["reason"] == "removed"] == faulty
