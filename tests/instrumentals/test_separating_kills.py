"""Builds of `instrumentals`, killed at random moments: no finished track is separated again, and the version is that of
a calm build."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from earmark.tasks.instrumentals.separated import FOLDER
from earmark.tasks.store.staging import STAGING
from earmark.tasks.store.versions import Store, verify
from tests.builds import Builds, contents_of
from tests.instrumentals.separating import make_tracks

CORPUS = "instrumentals"
TRACKS = 24


@pytest.fixture
def builds() -> Iterator[Builds]:
    with Builds("tests.instrumentals.separating") as started:
        yield started


def write_config(folder: Path, keep: str) -> Path:
    """A config over the folder's tracks."""
    path = folder / "build.toml"
    path.write_text(
        'corpus = "instrumentals"\nlength_s = [0.2, 7200.0]\n'
        '[source]\nname = "own"\nformat = "table"\ntracks = "tracks.jsonl"\n'
        f"[output]\nkeep = {json.dumps(keep)}\n"
    )
    return path


def finished(store: Path) -> dict[str, tuple[int, int]]:
    """Tracks whose separation is done, with what would differ if it were done again."""
    found = {}
    for note in store.glob(f"{FOLDER}/*/*/*.json"):
        audio = note.with_suffix(".flac").stat()
        found[note.stem] = (audio.st_ino, audio.st_mtime_ns)
    return found


def command_of(process: psutil.Process) -> str:
    """The words that started a process; none where it has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def leftovers(store: Path) -> list[Path]:
    """Half-written files, of which a finished build leaves none."""
    return [path for path in store.rglob(".*") if path.is_file() and path.suffix in (".tmp", ".part")]


def harass(kills: int, builds: Builds, folder: Path, keep: str) -> None:
    """Kill builds, store after store, each until its version is there; then compare with a build left alone."""
    make_tracks(folder / "t", TRACKS, seconds=5.0)  # enough for processes of their own
    config = write_config(folder / "t", keep)
    started = time.monotonic()
    builds.start(config, folder / "calm")
    assert builds.said() == 0
    build_s = time.monotonic() - started
    expected = contents_of(folder / "calm" / CORPUS / "v1")
    draw, done, stores, midway = random.Random(kills), 0, 0, 0
    few = kills // 4  # kills in mid-separation that there must be; how many the others make depends on the machine
    while done < kills or midway < few:
        stores += 1
        store = folder / f"{stores}"
        kept: dict[str, Any] = {}
        while not (store / CORPUS / "v1/manifest.json").is_file() and (done < kills or midway < few):
            child = builds.start(config, store)
            some, wait_s = draw.randint(1, TRACKS), draw.uniform(0, 0.02 * build_s)
            if draw.random() < 0.6:  # in the middle of the separation, after so many tracks
                while not builds.ended(0.001) and len(finished(store)) < min(some, TRACKS - 1):
                    pass
            else:
                wait_s = draw.uniform(0, build_s)
            builds.ended(wait_s)
            builds.kill(child)
            done += builds.said() == -signal.SIGKILL
            now = finished(store)
            assert {name: now[name] for name in kept} == kept, "a finished track was separated again"
            midway += 0 < len(now) < TRACKS
            kept = now
        builds.start(config, store)
        assert builds.said() == 0
        assert finished(store).items() >= kept.items()
        assert contents_of(store / CORPUS / "v1") == expected
        assert verify(Store(store).versions(CORPUS)[0]) == []
        assert [version.name for version in Store(store).versions(CORPUS)] == ["v1"]
        assert not list((store / CORPUS).glob(f"{STAGING}*"))
        assert not leftovers(store)


@pytest.mark.slow
def test_four_kills(builds: Builds, tmp_path: Path) -> None:
    harass(4, builds, tmp_path, "files")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kills", "keep"), [(40, "files"), (15, "embedded")])
def test_many_kills(builds: Builds, tmp_path: Path, kills: int, keep: str) -> None:
    harass(kills, builds, tmp_path, keep)


@pytest.mark.slow
def test_ctrl_c_ends_the_processes_too_and_keeps_what_is_finished(builds: Builds, tmp_path: Path) -> None:
    make_tracks(tmp_path / "t", 60, seconds=5.0)
    config, store = write_config(tmp_path / "t", "files"), tmp_path / "store"
    command = [sys.executable, "-m", "earmark", "build", CORPUS, "-c", str(config), "--store", str(store), "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as build:
        while not finished(store):
            assert build.poll() is None
            time.sleep(0.01)
        separating = [one for one in psutil.Process(build.pid).children() if "side_by_side" in command_of(one)]
        os.kill(build.pid, signal.SIGINT)
        _, said = build.communicate(timeout=120)
    assert build.returncode == 130, said
    kept = finished(store)
    assert 0 < len(kept) < 60
    assert separating
    assert not psutil.wait_procs(separating, timeout=30)[1]
    assert not list((store / FOLDER).rglob("*.part"))
    for place in (store, tmp_path / "calm"):
        builds.start(config, place)
        assert builds.said() == 0
    assert finished(store).items() >= kept.items()
    assert contents_of(store / CORPUS / "v1") == contents_of(tmp_path / "calm" / CORPUS / "v1")


@pytest.mark.slow
def test_a_second_config_uses_what_the_first_separated(builds: Builds, tmp_path: Path) -> None:
    make_tracks(tmp_path / "t", 4)
    for keep in ("embedded", "files"):
        builds.start(write_config(tmp_path / "t", keep), tmp_path / "store")
        assert builds.said() == 0
        if keep == "embedded":
            kept = finished(tmp_path / "store")
    assert finished(tmp_path / "store") == kept
    assert [version.name for version in Store(tmp_path / "store").versions(CORPUS)] == ["v1", "v2"]
