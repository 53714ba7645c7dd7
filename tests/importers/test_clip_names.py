"""One clip under several spellings of its name: one file, one clip, one split."""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path

import pytest
import soundfile

from earmark.schemas.files import source_root
from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.toml import parse_config
from earmark.tasks.human_preferences.sources import read_source
from earmark.tasks.importers.cells import BadRow, clip, identifier
from earmark.tasks.importers.votes import Vote
from earmark.tasks.mos_preferences.clips import find_audio
from earmark.tasks.pipeline.media import clip_below
from tests.importers.test_guessing import init
from tests.importers.test_tables import table
from tests.importers.test_vote_guessing import init as init_votes

NFC, NFD = (unicodedata.normalize(form, "gr\u00fc\u00dfe/\u1ea5.wav") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("written", ["x/a.wav", "./x/a.wav", "x//a.wav", "x/./a.wav", "././x///a.wav", "\u200bx/a.wav"])
def test_spellings_of_one_path_are_one_name(written: str) -> None:
    name = clip(written, "/clips")
    assert name == "x/a.wav"
    assert Path("/clips", name) == Path("/clips", written.strip("\u200b"))


@pytest.mark.parametrize(
    "written",
    ["a.wav", "x/.a.wav", "x./a.wav", "...wav", "x/a..b.wav", "take:1.wav", "https://h.org//a.wav", "x/", ".a/b"],
)
def test_other_names_stay_as_they_are_written(written: str) -> None:
    assert clip(written, "/clips") == written


def test_a_path_out_of_the_root_is_no_name_however_it_begins() -> None:
    for written in (".//../a.wav", "x/./../../a.wav"):
        with pytest.raises(BadRow, match="below the root"):
            clip(written, "/clips")


@pytest.mark.parametrize("others", [(NFD, NFC), ("./" + NFC, NFD), (NFC, "gr\u00fc\u00dfe//\u1ea5.wav")])
def test_ratings_of_a_clip_in_two_spellings_are_of_one_clip(others: tuple[str, str], tmp_path: Path) -> None:
    names = [NFC, *others, "b.wav"]
    text = "file,listener,mos\n" + "".join(f"{name},l{n},{n + 1}\n" for n, name in enumerate(names))
    got = table(tmp_path, text, columns={"file": "file", "mos": "mos", "listener": "listener"}, scale=[1, 5])
    assert Counter(row.file for row in got.ratings) == {NFC: 3, "b.wav": 1}


def test_votes_on_a_clip_in_two_spellings_are_on_one_clip(tmp_path: Path) -> None:
    pairs = [(NFD, "b.wav"), ("b.wav", NFC), ("./b.wav", NFD)]
    text = "audio_a,audio_b,overall\n" + "".join(f"{one},{other},a\n" for one, other in pairs)
    (tmp_path / "v.csv").write_text(text, "utf-8")
    source = {"name": "s", "format": "votes", "root": ".", "files": ["v.csv"]}
    config = parse_config(HumanPreferences, {"corpus": "human-preferences", "sources": [source]}, tmp_path / "c.toml")
    votes = [row for row in read_source(config, config.sources[0]) if isinstance(row, Vote)]
    assert [(vote.audio_a, vote.audio_b) for vote in votes] == [(NFD, "b.wav"), ("b.wav", NFD), ("b.wav", NFD)]


@pytest.mark.parametrize(("listed", "lies"), [(NFC, NFD), (NFD, NFC), (NFC, NFC), (NFD, NFD)])
def test_audio_is_found_whatever_the_form_of_its_files_name(listed: str, lies: str, tmp_path: Path) -> None:
    (tmp_path / lies).parent.mkdir()
    soundfile.write(tmp_path / lies, [0.0] * 100, 16_000)
    for found in (clip_below(source_root(tmp_path), listed), find_audio(tmp_path, listed, None)):
        assert isinstance(found, Path)
        assert found.samefile(tmp_path / lies)


def test_a_clip_that_lies_nowhere_is_missed_under_the_name_of_its_list(tmp_path: Path) -> None:
    assert clip_below(source_root(tmp_path), NFD) == tmp_path / NFD == find_audio(tmp_path, NFD, None)


ALIKE = {
    "capitals": (("x/C{n}.WAV", "x/c{n}.wav"), "in capitals alone, such as 'x/C0.WAV' and 'x/c0.wav'"),
    "tokens": (
        ("https://h.org/c{n}.wav?t={row}", "https://h.org/c{n}.wav?t={row}"),
        "behind '?' alone, such as 'https://h.org/c0.wav?t=0' and 'https://h.org/c0.wav?t=1'",
    ),
    "endings": (("c{n}", "c{n}.wav"), "in an ending alone, such as 'c0' and 'c0.wav'"),
    "folders": (("c{n}.wav", "wavs/c{n}.wav"), "in a leading folder alone, such as 'c0.wav' and 'wavs/c0.wav'"),
    "deeper": (("x/c{n}.wav", "/d/x/c{n}.wav"), "in a leading folder alone, such as '/d/x/c0.wav' and 'x/c0.wav'"),
    "zeros": (("{n}", "00{n}"), "in leading zeros alone, such as '0' and '000'"),
}
APART = {
    "containers": ("c{n}.wav", "c{n}.mp3"),
    "versions": ("https://h.org/c{n}.wav?v=1", "https://h.org/c{n}.wav?v=1"),
    "queries": ("https://h.org/play?id=c{n}", "https://h.org/play?id=d{n}"),
    "folders": ("a/c{n}.wav", "b/c{n}.wav"),
    "endings-of-names": ("c{n}.wav", "x/abc{n}.wav"),
    "numbered": ("c{n}.wav", "c0{n}.wav"),
}


def named(forms: tuple[str, str], *, votes: bool) -> str:
    """A list whose two listeners name a clip in one form each; or comparisons with another clip."""
    names = [forms[row % 2].format(n=row // 2, row=row) for row in range(24)]
    if votes:
        return "audio_a,audio_b,winner\n" + "".join(f"{name},z.wav,{'ab'[row % 2]}\n" for row, name in enumerate(names))
    return "file,listener,score\n" + "".join(f"{name},l{row % 2},{1 + row % 5}\n" for row, name in enumerate(names))


@pytest.mark.parametrize("votes", [False, True])
@pytest.mark.parametrize("name", ALIKE)
def test_names_that_may_be_of_one_clip_are_asked_about(name: str, votes: bool, tmp_path: Path) -> None:
    forms, says = ALIKE[name]
    (tmp_path / "t.csv").write_text(named(forms, votes=votes))
    said = (init_votes if votes else init)(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert f"12 names of clips differ {says}: each counts as a clip of its own" in said


@pytest.mark.parametrize("votes", [False, True])
@pytest.mark.parametrize("name", APART)
def test_names_of_different_clips_are_not_asked_about(name: str, votes: bool, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(named(APART[name], votes=votes))
    (init_votes if votes else init)(tmp_path / "t.csv", tmp_path / "my.toml")


def test_a_clip_of_several_systems_beside_the_natural_one_is_not_asked_about(tmp_path: Path) -> None:
    names = [f"{folder}c{n}.wav" for n in range(8) for folder in ("", "s1/", "s2/")]
    (tmp_path / "t.csv").write_text("file,score\n" + "".join(f"{name},{1 + len(name) % 5}\n" for name in names))
    init(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize("votes", [False, True])
def test_names_in_a_folder_and_out_of_it_that_one_listener_hears_are_of_two_clips(votes: bool, tmp_path: Path) -> None:
    """As of natural speech beside that of one system, or of references beside generations."""
    rows = [f"c{n}.wav,gen/c{n}.wav,a" if votes else f"c{n}.wav,l{n % 2},4\ngen/c{n}.wav,l{n % 2},3" for n in range(8)]
    header = "audio_a,audio_b,winner" if votes else "file,listener,score"
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]) + "\n")
    (init_votes if votes else init)(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize("days", [("1-Mar", "2-Mar"), ("01. Mrz", "c{n}")])
def test_clips_whose_ids_a_spreadsheet_made_days_are_asked_about(days: tuple[str, str], tmp_path: Path) -> None:
    for votes, ask in ((False, init), (True, init_votes)):
        (tmp_path / "t.csv").write_text(named(days, votes=votes))
        said = ask(tmp_path / "t.csv", tmp_path / f"{votes}.toml", code=1)
        assert f"names of clips are days, such as '{days[0]}', as a spreadsheet makes of 3-1" in said


ROUNDED = ["1.23E+11", "1,23456E+17", "5E+23", "1.2345678901234568e+18", 1.2345678901234568e18]


@pytest.mark.parametrize("cell", ROUNDED)
def test_an_id_that_lost_digits_names_nothing(cell: object) -> None:
    with pytest.raises(BadRow, match=r"expected a listener in full, found '.*', rounded as by a spreadsheet"):
        identifier(cell, "listener")


@pytest.mark.parametrize("text", ["1.5e+01", "12E03", "a1.23E+11", "1.23E+11.wav", "C+11", "1E+99999", "+49"])
def test_an_id_that_holds_all_its_digits_stays(text: str) -> None:
    assert identifier(text, "listener") == text


@pytest.mark.parametrize("column", ["file", "listener", "system"])
def test_a_column_of_ids_that_a_spreadsheet_rounded_is_asked_about(column: str, tmp_path: Path) -> None:
    other = {"file": "c{n}.wav", "listener": "l{n}", "system": "s{n}"}
    cells = [
        [f"1.2{row % 3}E+11" if key == column else one.format(n=row) for key, one in other.items()] for row in range(24)
    ]
    rows = [",".join([*cell, str(1 + row % 5)]) for row, cell in enumerate(cells)]
    (tmp_path / "t.csv").write_text("\n".join(["file,listener,system,score", *rows]) + "\n")
    said = init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert f"{column} holds rounded ids ('1.20E+11', …: 24 of 24 rows), as of a spreadsheet or a float" in said


def test_people_whom_a_spreadsheet_rounded_are_asked_about_in_votes(tmp_path: Path) -> None:
    rows = "".join(f"a{row}.wav,b{row}.wav,a,5.6E+23\n" for row in range(9))
    (tmp_path / "t.csv").write_text("audio_a,audio_b,winner,worker\n" + rows)
    assert "worker holds rounded ids ('5.6E+23', …: 9 of 9 rows)" in init_votes(
        tmp_path / "t.csv", tmp_path / "my.toml", code=1
    )
