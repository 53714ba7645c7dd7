"""Links that lead out of a source's folder: refused and said, unless the machine's owner lets sources follow them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import InputError
from earmark.schemas.files import Root
from earmark.schemas.music_prompts import MusicPrompts
from earmark.schemas.reasons import AudioFault
from earmark.schemas.score_questions import ScoreQuestions
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.music_prompts.sources import verified_clips
from earmark.tasks.pipeline.plan import plan_build
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.score_questions.forum.images import _from_folder
from earmark.tasks.store.versions import open_store
from tests.builds import build_version, config_of, rows_of
from tests.conftest import ROOT
from tests.importers import layouts
from tests.importers.reading import read

DEMO = ROOT / "data/demo"
SALT = "a salt that only tests use"
# Of every corpus that reads files by what lists or folders name: its demo, and one such file.
NAMED: dict[str, tuple[str, str]] = {
    "mos-preferences": ("mos-preferences-audio", "mos/chimes/clips"),
    "pseudo-preferences": ("pseudo-preferences", "music/clips"),
    "human-preferences": ("human-preferences", "music/clips"),
    "instrumentals": ("instrumentals", "tracks/audio"),
    "captions": ("captions", "tracks/audio"),
    "instruction-rubrics": ("instruction-rubrics", "rubrics/audio"),
    "score-questions": ("score-questions", "forum/images"),
}


def test_what_leads_out_of_a_folder(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "disk/audio", tmp_path / "elsewhere"
    (folder / "deep").mkdir(parents=True)
    elsewhere.mkdir()
    for path in (folder / "a.wav", folder / "deep/b.wav", elsewhere / "c.wav", tmp_path / "disk/audio.wav"):
        path.touch()
    (folder / "out.wav").symlink_to(elsewhere / "c.wav")
    (folder / "out").symlink_to(elsewhere)
    (folder / "beside.wav").symlink_to("../audio.wav")
    (folder / "inside.wav").symlink_to("deep/b.wav")
    (folder / "again").symlink_to("deep")
    (folder / "by way of").symlink_to("out")
    (folder / "broken.wav").symlink_to("nothing.wav")
    (folder / "round").symlink_to("round")
    (tmp_path / "named").symlink_to(folder)
    inside = ["a.wav", "deep/b.wav", "inside.wav", "again/b.wav", "broken.wav", "gone.wav", "gone/x", "n" * 300]
    outside = ["out.wav", "out/c.wav", "out/gone.wav", "beside.wav", "by way of/c.wav"]
    for home in (folder, tmp_path / "named"):  # the config names a link: that is its owner's choice
        root = Root(home)
        assert [name for name in inside if root.leads_out(home / name)] == []
        assert [name for name in outside if not root.leads_out(home / name)] == []
        root.leads_out(home / "round/x")  # leads nowhere, and ends
        assert not any(Root(home, follows=True).leads_out(home / name) for name in (*inside, *outside))
    assert not Root(Path("/")).leads_out(folder / "out.wav")


def key_of(corpus: str, home: Path) -> str:
    """The build key of a demo's config."""
    where = home / f"{NAMED[corpus][0]}.toml"
    config: BuildConfig = parse_config(find_corpus(corpus).config, read_toml(where), where)
    return plan_build(find_corpus(corpus), config, open_store(str(home.parent / "store"))).build_key


FORMS = [(corpus, "file") for corpus in NAMED]  # a folder too where it is not the one that the config names
FORMS += [(corpus, "folder") for corpus, (_, named) in NAMED.items() if named.endswith("clips")]


@pytest.mark.slow
@pytest.mark.parametrize(("corpus", "form"), FORMS)
def test_what_links_decide_is_in_the_build_key(
    corpus: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo, named = NAMED[corpus]
    monkeypatch.setenv("EARMARK_SALT", SALT)
    home = tmp_path / "demo"
    for part in {named.partition("/")[0], *(["votes"] if corpus == "human-preferences" else [])}:
        shutil.copytree(DEMO / part, home / part)
    shutil.copy(DEMO / f"{demo}.toml", home)
    plain = key_of(corpus, home)
    moved = home / named if form == "folder" else sorted(p for p in (home / named).rglob("*.*") if p.is_file())[0]
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")
    assert key_of(corpus, home) != plain
    monkeypatch.setenv("EARMARK_LINKS", "follow")
    assert key_of(corpus, home) == plain


def linked_clips(tmp_path: Path) -> dict[str, Any]:
    """A table of three clips, one of which is a link to another disk; its source."""
    clips = sorted((DEMO / "mos/chimes/clips/hiss-heavy").iterdir())[:3]
    (tmp_path / "audio").mkdir()
    for clip in clips[:2]:
        shutil.copy(clip, tmp_path / "audio")
    shutil.copy(clips[2], tmp_path / "disk.flac")
    (tmp_path / "audio" / clips[2].name).symlink_to(tmp_path / "disk.flac")
    rows = "".join(f"{clip.name},{mos},s{mos}\n" for mos, clip in enumerate(clips, 1))
    (tmp_path / "t.csv").write_text(f"f,m,s\n{rows}")
    columns = {"file": "f", "mos": "m", "system": "s"}
    return {
        "name": "t", "format": "table", "files": {"train": "t.csv"}, "columns": columns, "audio_root": "audio",
    }  # fmt: skip


@pytest.mark.slow
def test_a_linked_clip_is_a_reject_that_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = linked_clips(tmp_path)
    version = build_version(config_of(tmp_path, source, audio="index"), tmp_path / "store")
    assert len(rows_of(version, "ratings")) == 2
    (reject,) = rows_of(version, "rejects")
    assert reject["reason"] == "link_outside_root"
    assert "EARMARK_LINKS=follow" in reject["detail"]
    assert "disk.flac" not in reject["detail"]
    monkeypatch.setenv("EARMARK_LINKS", "follow")
    version = build_version(config_of(tmp_path, source, audio="index"), tmp_path / "store")
    assert version.name == "v2"
    assert len(rows_of(version, "ratings")) == 3


@pytest.mark.parametrize(
    ("format_", "write"),
    [("bvcc", layouts.bvcc), ("nisqa", layouts.nisqa), ("singmos", layouts.singmos), ("vmc23", layouts.vmc23)],
)
def test_a_linked_list_is_one_line(
    tmp_path: Path, format_: str, write: Callable[[Path], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = write(tmp_path / "corpus")
    first = max((p for p in (tmp_path / "corpus").rglob("*") if p.is_file()), key=lambda path: path.stat().st_size)
    first.rename(tmp_path / "elsewhere")
    first.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        InputError, match=f"^{format_}/.*: expected a list below the root, .*EARMARK_LINKS=follow allows it$"
    ):
        read(tmp_path, format=format_, root="corpus")
    monkeypatch.setenv("EARMARK_LINKS", "follow")
    assert len(read(tmp_path, format=format_, root="corpus").ratings) == count


def test_a_linked_image_is_a_reject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "secret.png").touch()
    (tmp_path / "images/s1.png").symlink_to(tmp_path / "secret.png")
    demo = read_toml(DEMO / "score-questions.toml")
    for links, wanted in (("refuse", BadRow), ("follow", Path)):
        monkeypatch.setenv("EARMARK_LINKS", links)
        values = {**demo, "images": "images"}
        (named,) = _from_folder(parse_config(ScoreQuestions, values, tmp_path / "x.toml"), [{"id": "s1"}])
        assert isinstance(named.where, wanted)


def test_a_linked_track_is_not_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio/out.flac").symlink_to(sorted((DEMO / "tracks/audio").rglob("*.flac"))[0])
    for links, wanted in (("refuse", AudioFault), ("follow", Path)):
        monkeypatch.setenv("EARMARK_LINKS", links)
        verification = {"model": "openai:m", "audio": "audio"}
        values = {**read_toml(DEMO / "music-prompts.toml"), "verification": verification}
        config = parse_config(MusicPrompts, values, tmp_path / "x.toml")
        assert [type(found) for found in verified_clips(config, ["out.flac"])] in ([wanted], [type(tmp_path)])
        assert isinstance(verified_clips(config, ["out.flac"])[0], wanted)
