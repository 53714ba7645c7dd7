"""Inputs as they go wrong, through a whole build: a version with rejects, or one line of error; nothing else."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from earmark.schemas.errors import EarmarkError
from earmark.schemas.mos_preferences import MosPreferences
from earmark.tasks.mos_preferences import ratings
from earmark.tasks.mos_preferences.sources import plan_build
from earmark.tasks.pipeline.media import fault_row
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Version, open_store, verify
from tests.builds import build_version, config_of, rows_of

COLUMNS = {"file": "f", "mos": "m", "system": "s"}
HEAD = b"f,m,s\n"
GOOD = b"a.wav,3.5,x\nb.wav,2,y\nc.wav,5,x\n"
REAL_SIZE = 16_000  # samples of a made-up clip


def table(**values: Any) -> dict[str, Any]:
    """A source of the generic format over `t.csv`."""
    return {"name": "one", "format": "table", "files": {"test": "t.csv"}, "columns": COLUMNS, **values}


def outcome(folder: Path, *sources: dict[str, Any], **values: Any) -> Version | str:
    """The version, or the one line of the error. Whatever else is raised fails the test."""
    try:
        version = build_version(config_of(folder, *sources, **values), folder / "store")
    except EarmarkError as error:
        line = str(error)
    else:
        assert verify(version) == []
        return version
    assert len(line.splitlines()) == 1
    assert not list((folder / "store").glob("*/v*"))
    return line


# content of a list, reasons of its rejects
ROWS: dict[str, tuple[bytes, list[str]]] = {
    "sound": (HEAD + GOOD, []),
    "byte order mark and CRLF": (b"\xef\xbb\xbf" + (HEAD + GOOD).replace(b"\n", b"\r\n"), []),
    "no end of the last line": ((HEAD + GOOD)[:-1], []),
    "only a header": (HEAD, []),
    "every row faulty": (HEAD + b"a.wav,,x\nb.wav,9,x\n", ["score_missing", "score_out_of_scale"]),
    "one good row": (HEAD + b"a.wav,3,x\n", []),
    "equal means": (HEAD + b"a.wav,3,x\nb.wav,3,y\nc.wav,3,z\n", []),
    "text in a score": (HEAD + GOOD + b"d.wav,good,x\n", ["score_not_a_number"]),
    "NaN": (HEAD + GOOD + b"d.wav,nan,x\n", ["score_not_a_number"]),
    "infinity": (HEAD + GOOD + b"d.wav,inf,x\n", ["score_not_a_number"]),
    "out of its scale": (HEAD + GOOD + b"d.wav,55,x\n", ["score_out_of_scale"]),
    "ragged": (HEAD + GOOD + b"d.wav,3\ne.wav,3,x,y\n", ["bad_line", "bad_line"]),
    "no system": (HEAD + GOOD + b"d.wav,3,\n", ["missing_value"]),
    "twice with another system": (HEAD + GOOD + b"a.wav,4,z\n", ["conflicting_facts", "conflicting_facts"]),
    "a path that climbs": (HEAD + GOOD + b"../../etc/passwd,3,x\n", ["path_outside_root"]),
    "an absolute path": (HEAD + GOOD + b"/etc/passwd,3,x\n", ["path_outside_root"]),
    "Latin-1 in a row": (HEAD + GOOD + "é.wav,3,x\n".encode("latin-1"), ["bad_encoding"]),
    "NUL in a row": (HEAD + GOOD + b"\0.wav,3,x\n", ["bad_encoding"]),
    "an open quote": (HEAD + GOOD + b'"d.wav,3,x\n', ["bad_line"]),
    "a name of 1,000 letters": (HEAD + GOOD + b"d" * 1000 + b",3,x\n", []),
    "names of other scripts": (HEAD + "音声/é🎵.wav,3,ü|x\n<b>.wav,4,`y`\n".encode(), []),
    "quotes of SQL": (HEAD + b"a';DROP TABLE clips;--.wav,3,x'\nb{}.wav,4,$seed\n", []),
}


def check_rows(folder: Path, names: list[str]) -> None:
    """Build from the lists of those names, a source each, and hold each source's rows and rejects against the table."""
    sources = {}
    for number, name in enumerate(names):
        source = f"source{number}"
        (folder / f"{source}.csv").write_bytes(ROWS[name][0])
        sources[source] = table(name=source, files={"test": f"{source}.csv"})
    version = outcome(folder, *sources.values())
    assert isinstance(version, Version)
    rejects, ratings = rows_of(version, "rejects"), rows_of(version, "ratings")
    assert all(row["line"] > 1 for row in rejects)
    for source, name in zip(sources, names, strict=True):
        content, reasons = ROWS[name]
        file = f"{source}/{source}.csv"
        assert sorted(row["reason"] for row in rejects if row["file"] == file) == reasons, name
        lines = sum(bool(line.strip()) for line in content.splitlines()) - 1
        assert sum(row["dataset"] == source for row in ratings) == lines - len(reasons), name


@pytest.mark.slow
def test_rows_of_all_kinds_beside_each_other(tmp_path: Path) -> None:
    check_rows(tmp_path, list(ROWS))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["only a header", "every row faulty", "one good row", "equal means", "quotes of SQL"])
def test_rows_of_one_kind_alone(tmp_path: Path, name: str) -> None:
    check_rows(tmp_path, [name])


def nothing(path: Path) -> None:
    """No file at all."""


# name, how t.csv comes to be, the source's other values, what the line says
FILES: list[tuple[str, Callable[[Path], Any], dict[str, Any], str]] = [
    ("missing", nothing, {}, "one/t.csv: file not found"),
    ("a folder", Path.mkdir, {}, "one/t.csv: expected a list, found a folder"),
    ("empty", Path.touch, {}, "expected a table, found an empty file"),
    ("UTF-16", lambda path: path.write_bytes("f,m,x\n".encode("utf-16")), {}, "expected a column 's'"),
    ("a picture", lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0"), {}, "expected a header"),
    ("another header", lambda path: path.write_bytes(b"file,mos,sys\na,3,x\n"), {}, "expected a column 'f'"),
    ("a column twice", lambda path: path.write_bytes(b"f,m,s,m\n"), {}, "expected one column 'm', found 2"),
    ("a name no file can have", nothing, {"files": {"test": "a\0.csv"}}, "cannot be read"),
    ("a name too long", nothing, {"files": {"test": "a" * 300 + ".csv"}}, "cannot be read"),
    ("an unknown ending", nothing, {"files": {"test": "t.xlsx"}}, "expected a file ending in"),
    ("no gzip", lambda path: path.with_name("t.csv.gz").write_bytes(HEAD), {"files": {"test": "t.csv.gz"}}, "gzip"),
    (
        "no Parquet",
        lambda path: path.with_name("t.parquet").write_bytes(HEAD),
        {"files": {"test": "t.parquet"}},
        "Parq",
    ),
    ("a layout that is not there", nothing, {"format": "bvcc", "root": "none"}, "expected a folder at root = 'none'"),
    ("a layout in a file", Path.touch, {"format": "nisqa", "root": "t.csv"}, "found a file"),
    ("a root no folder can have", nothing, {"format": "somos", "root": "a\0b"}, "expected a folder at root"),
    ("an empty folder", Path.mkdir, {"format": "vmc23", "root": "t.csv"}, "found none"),
]


@pytest.mark.parametrize(("make", "values", "message"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_files(tmp_path: Path, make: Callable[[Path], Any], values: dict[str, Any], message: str) -> None:
    make(tmp_path / "t.csv")
    source = table(**values)
    if source["format"] != "table":
        source = {name: held for name, held in source.items() if name not in ("files", "columns")}
    line = outcome(tmp_path, source)
    assert isinstance(line, str)
    assert message in line


def test_one_list_of_a_layout_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "vmc23/track1_answer.txt").mkdir(parents=True)
    line = outcome(tmp_path, {"name": "one", "format": "vmc23", "root": "vmc23"})
    assert line == "one/track1_answer.txt: expected a list, found a folder"


@pytest.mark.parametrize("where", ["split=train/store", "it's/store", "ü b/store"])
def test_odd_places_of_a_store(tmp_path: Path, where: str) -> None:
    (tmp_path / "t.csv").write_bytes(HEAD + GOOD)
    config = config_of(tmp_path, table())
    version = build_version(config, tmp_path / where)
    assert version.manifest.rows["pairs"] == {"test": 3}
    assert {row["split"] for row in rows_of(version, "ratings")} == {"test"}


def test_store_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(HEAD + GOOD)
    (tmp_path / "file").touch()
    for where in ("file", "file/below", "a*b"):
        with pytest.raises(EarmarkError, match=r"^store: [^\n]*$"):
            build_version(config_of(tmp_path, table()), tmp_path / where)
    with pytest.raises(EarmarkError, match=r"^store: expected a folder[^\n]*$"):
        open_store("ftp://bucket/store")


def sound(path: Path, *, rate: int = 16_000, channels: int = 1, seed: int = 0, samples: int = REAL_SIZE) -> None:
    """A made-up clip."""
    noise = np.random.default_rng(seed).uniform(-0.5, 0.5, (samples, channels))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, noise, rate)


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    """A list over sound clips and clips with every fault."""
    audio = tmp_path / "audio"
    sound(audio / "mono.wav", seed=1)
    sound(audio / "stereo.wav", channels=2, seed=2)
    sound(audio / "high.wav", rate=44_100, seed=3)
    sound(audio / "cut.wav", seed=4)
    (audio / "cut.wav").write_bytes((audio / "cut.wav").read_bytes()[:9_044])
    (audio / "twin.wav").write_bytes((audio / "mono.wav").read_bytes())
    sound(audio / "packed.flac", seed=5)
    (audio / "torn.flac").write_bytes((audio / "packed.flac").read_bytes()[:6_000])
    sound(audio / "silent.wav", samples=0)
    (audio / "void.wav").touch()
    (audio / "text.wav").write_text("this is no audio")
    (audio / "folder.wav").mkdir()
    os.mkfifo(audio / "pipe.wav")
    (audio / "endless.wav").symlink_to("/dev/zero")
    names = ["mono", "stereo", "high", "cut", "twin", "silent", "void", "text", "folder", "pipe", "endless"]
    names += ["gone", "n" * 300]
    files = [f"{name}.wav" for name in names] + ["packed.flac", "torn.flac"]
    rows = [f"{file},{1 + at / 4},s{at % 3}" for at, file in enumerate(files)]
    (tmp_path / "t.csv").write_text("\n".join(["f,m,s", *rows]) + "\n")
    return tmp_path


FAULTS = {
    "twin.wav": "duplicate_audio",
    "silent.wav": "file_empty",
    "void.wav": "file_empty",
    "cut.wav": "file_truncated",
    "text.wav": "file_unreadable",
    "folder.wav": "file_unreadable",
    "pipe.wav": "file_unreadable",
    "endless.wav": "link_outside_root",
    "torn.flac": "file_corrupt",
    "gone.wav": "file_missing",
    "n" * 300 + ".wav": "file_unreadable",
}


def test_indexed_audio(clips: Path) -> None:
    version = outcome(clips, table(audio_root="audio"), audio="index")
    assert isinstance(version, Version)
    found = {row["file"]: row for row in rows_of(version, "ratings")}
    rejects = {row["item"]: row["reason"] for row in rows_of(version, "rejects")}
    assert rejects == FAULTS
    assert {name: (row["sample_rate_hz"], row["channels"]) for name, row in found.items()} == {
        "mono.wav": (16_000, 1),
        "stereo.wav": (16_000, 2),
        "high.wav": (44_100, 1),
        "packed.flac": (16_000, 1),
    }
    assert found["mono.wav"]["duration_s"] == 1.0
    assert all(len(row["clip_sha256"]) == 64 and row["audio"] is None for row in found.values())


def test_converted_audio(clips: Path) -> None:
    version = outcome(clips, table(audio_root="audio"), audio="convert")
    assert isinstance(version, Version)
    found = {row["file"]: row for row in rows_of(version, "ratings")}
    rejects = {row["item"]: row["reason"] for row in rows_of(version, "rejects")}
    assert rejects == FAULTS
    assert set(found) == {"mono.wav", "stereo.wav", "high.wav", "packed.flac"}
    for row in found.values():
        assert row["audio"]["path"] == f"{row['clip_sha256']}.wav"
        info = soundfile.info(io.BytesIO(row["audio"]["bytes"]))
        assert (info.samplerate, info.channels, info.format, info.subtype) == (16_000, 1, "WAV", "PCM_16")
        assert abs(info.duration - row["duration_s"]) < 0.001


@pytest.mark.slow
def test_audio_that_changes_is_another_build(clips: Path) -> None:
    config = config_of(clips, table(audio_root="audio"), audio="index")
    first = build_version(config, clips / "store")
    assert build_version(config, clips / "store") == first
    sound(clips / "audio/gone.wav", seed=9)
    second = build_version(config, clips / "store")
    assert second.name == "v2"
    assert "file_missing" not in second.manifest.rejects
    assert "gone.wav" in {row["file"] for row in rows_of(second, "ratings")}


@pytest.mark.slow
def test_audio_that_only_some_machines_see_ends_the_build(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(stage: Stage, config: MosPreferences, file: Path, probe: Any) -> Any:
        blind = file.name == "mono.wav"  # as on a machine of a cluster that lacks a disk
        return real(stage, config, file, fault_row("file_missing", "found nothing") if blind else probe)

    real = ratings._converted
    monkeypatch.setattr(ratings, "_converted", measured)
    said = outcome(clips, table(audio_root="audio"), audio="index")
    assert isinstance(said, str)
    assert "audio/mono.wav is here, and who indexed the clips found nothing there" in said
    monkeypatch.setattr(ratings, "_converted", real)
    version = outcome(clips, table(audio_root="audio"), audio="index")
    assert isinstance(version, Version)
    assert {row["item"]: row["reason"] for row in rows_of(version, "rejects")} == FAULTS


def test_audio_folder_that_is_missing(clips: Path) -> None:
    version = outcome(clips, table(audio_root="nowhere"), audio="index")
    assert isinstance(version, Version)
    assert {row["reason"] for row in rows_of(version, "rejects")} == {"file_missing"}
    assert sum(version.manifest.rows["pairs"].values()) == 0


def test_a_versions_own_audio_is_no_input(tmp_path: Path) -> None:
    """The store may lie below the folder that lists name audio from; what a build converts must not ask for another."""
    (tmp_path / "t.csv").write_text("f,m\na.wav,2\nb.wav,4\n", encoding="utf-8")
    for name, pitch in (("a", 200), ("b", 300)):
        tone = 0.5 * np.sin(2 * np.pi * pitch * np.arange(4_000) / 8_000)
        soundfile.write(tmp_path / f"{name}.wav", tone, 8_000)
    values = {"name": "one", "format": "table", "files": {"test": "t.csv"}, "columns": {"file": "f", "mos": "m"}}
    config = config_of(tmp_path, values, audio="convert")
    assert build_version(config, tmp_path / "store").name == "v1"
    assert plan_build(config, open_store(str(tmp_path / "store"))).up_to_date() is not None
    soundfile.write(tmp_path / "unnamed.wav", np.zeros(800), 8_000)
    assert plan_build(config, open_store(str(tmp_path / "store"))).up_to_date() is not None
    soundfile.write(tmp_path / "b.wav", np.zeros(800) + 0.25, 8_000)
    assert plan_build(config, open_store(str(tmp_path / "store"))).up_to_date() is None
