"""MTG-Jamendo's lists: ragged rows, synonyms, and what cannot be read; made-up ones and the real one."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Note, Reject
from earmark.schemas.tracks import Tag, Track
from earmark.tasks.importers.tracks import CATEGORIES, parse_tag, read_licences, read_tag_map, read_tracks

HEADER = "TRACK_ID\tARTIST_ID\tALBUM_ID\tPATH\tDURATION\tTAGS"
FIRST = "track_0000214\tartist_000014\talbum_000031\t14/214.mp3\t124.6\tgenre---punkrock"
Rows = list[Track | Reject | Note]


def read(folder: Path, *lines: str, header: str = HEADER, end: str = "\r\n", **options: object) -> Rows:
    """What a list of these lines gives."""
    path = folder / "tags.tsv"
    path.write_bytes(end.join([header, *lines, ""]).encode())
    return list(read_tracks(path, "tags.tsv", **options))  # type: ignore[arg-type]


def only_reject(rows: Rows) -> Reject:
    (reject,) = (row for row in rows if isinstance(row, Reject))
    return reject


def test_a_row_is_a_track_with_all_its_tags(tmp_path: Path) -> None:
    row = f"{FIRST}\tinstrument---guitar\tmood/theme---calm\tgenre---punkrock"
    (track,) = read(tmp_path, row)
    tags = (Tag("genre", "punkrock"), Tag("instrument", "guitar"), Tag("mood/theme", "calm"))
    numbers = ("track_0000214", "artist_000014", "album_000031")
    assert track == Track(*numbers, "14/214.mp3", 124.6, tags, "tags.tsv", 2)


def test_synonyms_become_one_tag(tmp_path: Path) -> None:
    path = tmp_path / "tag_map.json"
    path.write_text(json.dumps({"genre": {"punk": "punkrock"}, "mood/theme": {"punk": "wild"}}))
    row = FIRST.replace("punkrock", "Punk") + "\tgenre---punkrock\tmood/theme---punk"
    (track,) = read(tmp_path, row, synonyms=read_tag_map(path, "tag_map.json"))
    assert isinstance(track, Track)
    assert track.tags == (Tag("genre", "punkrock"), Tag("mood/theme", "wild"))


def test_packed_lists_are_read(tmp_path: Path) -> None:
    path = tmp_path / "tags.tsv.gz"
    path.write_bytes(gzip.compress(f"\ufeff{HEADER}\n{FIRST}\n".encode()))
    assert [row.line for row in read_tracks(path, "lists/tags.tsv.gz") if isinstance(row, Track)] == [2]


@pytest.mark.parametrize("tail", ["", "\t", "\t\t\t "])
def test_a_track_may_have_no_tags(tmp_path: Path, tail: str) -> None:
    (track,) = read(tmp_path, FIRST.rpartition("\t")[0] + tail)
    assert isinstance(track, Track)
    assert track.tags == ()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("track_1\tartist_1\talbum_1", "bad_line"),
        (FIRST.replace("124.6", "long"), "bad_value"),
        (FIRST.replace("124.6", "0"), "bad_value"),
        (FIRST.replace("124.6", "inf"), "bad_value"),
        (FIRST.replace("124.6", " "), "missing_value"),
        (FIRST.replace("track_0000214", ""), "missing_value"),
        (FIRST.replace("14/214.mp3", "../214.mp3"), "path_outside_root"),
        (FIRST.replace("14/214.mp3", "/etc/passwd"), "path_outside_root"),
        (FIRST.replace("genre---", "colour---"), "bad_value"),
        (FIRST.replace("genre---", ""), "bad_value"),
        (FIRST.replace("genre---punkrock", "genre---"), "missing_value"),
    ],
)
def test_a_bad_row_is_a_reject_that_names_its_line(tmp_path: Path, row: str, reason: str) -> None:
    good = FIRST.replace("0000214", "0000007")
    rows = read(tmp_path, good, "", row)
    reject = only_reject(rows)
    assert (reject.reason, reject.source_file, reject.line) == (reason, "tags.tsv", 4)
    assert len(rows) == 2


def test_a_track_twice_is_a_reject_that_names_the_first(tmp_path: Path) -> None:
    reject = only_reject(read(tmp_path, FIRST, FIRST.replace("124.6", "3.0")))
    assert (reject.reason, reject.line) == ("duplicate_id", 3)
    assert "line 2" in reject.detail


def test_paths_below_the_audio_folder_are_made_relative(tmp_path: Path) -> None:
    (track,) = read(tmp_path, FIRST.replace("14/214", f"{tmp_path}/14/214"), audio=tmp_path)
    assert isinstance(track, Track)
    assert track.path == "14/214.mp3"


def test_a_list_without_tracks_says_so(tmp_path: Path) -> None:
    assert read(tmp_path) == [Note("tags.tsv holds no tracks")]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (HEADER.replace("\tTAGS", ""), "expected a column 'TAGS'"),
        (HEADER.replace("TRACK_ID", "TRACK"), "the nearest are 'TRACK'"),
        (f"{HEADER}\tEXTRA", "expected TAGS as the last column, found 'EXTRA'"),
    ],
)
def test_another_header_is_one_clear_line(tmp_path: Path, header: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, FIRST, header=header)


def test_synonyms_are_tags_and_lead_to_the_last_one(tmp_path: Path) -> None:
    """Compose `é` of two characters in the map, of one in the list."""
    path = tmp_path / "tag_map.json"
    held = {" Punk ": "punkRock", "punkrock": "rock", "cafe\u0301": "Lounge ", "rock": "Rock"}
    path.write_text(json.dumps({"genre": held}))
    (track,) = read(tmp_path, f"{FIRST}\tgenre---PUNK\tgenre---caf\u00e9", synonyms=read_tag_map(path, "m.json"))
    assert isinstance(track, Track)
    assert track.tags == (Tag("genre", "rock"), Tag("genre", "lounge"))


@settings(max_examples=60, deadline=None)
@given(pairs=st.dictionaries(st.sampled_from("abcdefg"), st.sampled_from("abcdefg"), max_size=7))
def test_chains_end_in_a_tag_that_is_no_synonym_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, pairs: dict[str, str]
) -> None:
    """Follow each word for as many steps as there are words: a circle alone never comes to rest."""

    def after(word: str) -> str:
        for _ in range(len(pairs) + 1):
            word = pairs.get(word, word)
        return word

    path = tmp_path_factory.mktemp("maps", numbered=True) / "m.json"
    path.write_text(json.dumps({"genre": pairs}))
    if all(pairs.get(after(word), after(word)) == after(word) for word in pairs):
        assert read_tag_map(path, "m.json") == {"genre": {word: after(word) for word in pairs}}
    else:
        with pytest.raises(InputError, match="circle"):
            read_tag_map(path, "m.json")


@pytest.mark.parametrize(
    "held",
    [
        "[]",
        "{",
        '{"colour": {}}',
        '{"genre": {"punk": 3}}',
        '{"genre": {"punk": ["a"]}}',
        '{"genre": []}',
        '{"genre": {"punk": "a", "punk": "b"}}',
        '{"genre": {"punk": "a"}, "genre": {"pop": "b"}}',
        '{"genre": {"punk": "a", "PUNK ": "b"}}',
        '{"genre": {"punk": "a\\u0007b"}}',
        '{"genre": {"": "a"}}',
        '{"genre": {"punk": " "}}',
        '{"genre": {"a": "b", "b": "a"}}',
        '{"genre": {"genre---punk": "punkrock"}}',
    ],
)
def test_a_bad_tag_map_is_one_clear_line(tmp_path: Path, held: str) -> None:
    path = tmp_path / "tag_map.json"
    path.write_text(held)
    with pytest.raises(InputError, match=r"^tag_map\.json(, genre)?: expected.*found[^\n]*$"):
        read_tag_map(path, "tag_map.json")


def test_missing_files_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="file not found"):
        list(read_tracks(tmp_path / "none.tsv", "none.tsv"))
    with pytest.raises(InputError, match="file not found"):
        read_tag_map(tmp_path / "none.json", "none.json")


CELL = st.text(st.characters(blacklist_characters='\t\r\n\0"', blacklist_categories=("Cs",)), max_size=12)
TAG = st.builds("{}---{}".format, st.sampled_from(CATEGORIES), st.text("abcz90", min_size=1, max_size=5))
GOOD = st.lists(TAG, max_size=6).map(lambda tags: ["artist_1", "album_1", "1/1.mp3", "3.5", *tags])


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(GOOD | st.lists(CELL, min_size=1, max_size=9), max_size=12), end=st.sampled_from(["\n", "\r\n"]))
def test_every_line_is_a_track_or_a_reject(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], end: str
) -> None:
    folder = tmp_path_factory.mktemp("lists", numbered=True)
    lines = ["\t".join([f"track_{number}", *row]) for number, row in enumerate(rows)]
    held = [row for row in read(folder, *lines, end=end) if not isinstance(row, Note)]
    assert len(held) == len(lines)
    assert [row.line for row in held] == list(range(2, 2 + len(held)))
    for row in held:
        if isinstance(row, Track):
            assert len(set(row.tags)) == len(row.tags)
            assert {tag.category for tag in row.tags} <= set(CATEGORIES)


@pytest.mark.slow
def test_real_list_is_read_to_the_last_tag(real: Path) -> None:
    path = real / "mtg-jamendo/autotagging.tsv"
    rows = list(read_tracks(path, "autotagging.tsv"))
    counted: Counter[str] = Counter()
    with path.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.reader(stream, delimiter="\t"))[1:]
    for line in lines:
        counted.update(set(line[5:]))
    tracks = [row for row in rows if isinstance(row, Track)]
    assert len(rows) == len(lines) == len(tracks) == 55_525
    assert Counter(f"{tag.category}---{tag.name}" for track in tracks for tag in track.tags) == counted
    assert round(sum(track.duration_s for track in tracks) / 3600) == 3764


def test_real_synonyms_leave_no_tag_that_they_replace(real: Path) -> None:
    synonyms = read_tag_map(real / "mtg-jamendo/tag_map.json", "tag_map.json")
    assert parse_tag("genre---punk", synonyms) == Tag("genre", "punkrock")
    tracks = read_tracks(real / "mtg-jamendo/autotagging.tsv", "autotagging.tsv", synonyms)
    found = {tag for row in tracks if isinstance(row, Track) for tag in row.tags}
    replaced = {Tag(category, word) for category, words in synonyms.items() for word in words}
    assert len(found) == 87 + 40 + 56
    assert not found & replaced


def licences(folder: Path, text: str) -> dict[str, str]:
    """What a list of licences of this text gives."""
    (folder / "audio_licenses.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    return read_licences(folder / "audio_licenses.txt", "audio_licenses.txt")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_licences_as_published(tmp_path: Path, end: str) -> None:
    by = "http://creativecommons.org/licenses"
    blocks = [
        ("14/214.mp3", f"Attribution-NonCommercial-ShareAlike license: {by}/by-nc-sa/2.0/fr/", "CC-BY-NC-SA-2.0-FR"),
        ("15/1200015.mp3", f"Attribution license: {by}/by/3.0/", "CC-BY-3.0"),
        ("16/16.mp3", f"Attribution-NonCommercial-NoDerivatives license: {by}/by-nc-nd/3.0/", "CC-BY-NC-ND-3.0"),
    ]
    text = "".join(
        f"{path}{end}Ti\udce9tle by Someone from Jamendo: http://www.jamendo.com/track/{int(path[3:-4])}{end}"
        f"Available under a Creative Commons {terms}{end}{end}"
        for path, terms, _ in blocks
    )
    text += f"17/17.mp3{end}Available under a b license: http://a by X from Jamendo: http://j/track/17{end}{end}"
    text += f"18/18.mp3{end}T by A from Jamendo: http://j{end}Available under a Free Art license: http://artlibre.org/"
    expected = {path: licence for path, _, licence in blocks}
    assert licences(tmp_path, text) == {
        **expected,
        "17/17.mp3": "not stated",
        "18/18.mp3": "Free Art",
    }
    cc0 = "1/1.mp3\nAvailable under a CC0 license: https://creativecommons.org/publicdomain/zero/1.0/\n"
    assert licences(tmp_path, cc0) == {"1/1.mp3": "CC0-1.0"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("TRACK_ID\tARTIST_ID\n", r"expected audio_licenses.txt, a track's path on a line"),
        ("Available under a X license: http://x/\n", "line 1: expected a track's path before its licence"),
        (
            "1/1.mp3\nAvailable under a X license: http://x/\n1/1.mp3\nAvailable under a Y license: http://y/\n",
            "line 4: expected one licence of 1/1.mp3, found X and Y",
        ),
    ],
)
def test_what_is_no_list_of_licences(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        licences(tmp_path, text)
