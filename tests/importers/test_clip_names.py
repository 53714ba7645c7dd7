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
from earmark.tasks.importers.cells import BadRow, clip
from earmark.tasks.importers.votes import Vote
from earmark.tasks.mos_preferences.clips import find_audio
from earmark.tasks.pipeline.media import clip_below
from tests.importers.test_tables import table

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
