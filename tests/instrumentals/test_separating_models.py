"""`instrumentals` with a Mel-Band Roformer: tiny, with random weights, from a checkpoint on the disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from earmark.tasks.instrumentals import separated
from tests.audio.tiny_roformer import CHECKPOINT, make_roformer
from tests.builds import contents_of, rows_of
from tests.instrumentals.separating import build_separated, config_of, make_tracks, song

pytestmark = pytest.mark.models


def test_a_build_with_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("audio_separator")
    folder, store = tmp_path / "t", tmp_path / "store"
    make_tracks(folder, 3, seconds=1.2)
    song(folder / "audio/0002.flac", 2, seconds=1.2, channels=1)  # a model takes mono too
    checkpoint = make_roformer(folder / "models")
    sha256 = hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    model = {"model": f"models/{CHECKPOINT}", "config": "models/tiny.yaml"}
    version = build_separated(config_of(folder, separator=model), store)
    rows = rows_of(version, "tracks")
    assert {(row["separator"], row["checkpoint_sha256"]) for row in rows} == {(CHECKPOINT, sha256)}
    assert len(rows) == 3
    assert version.manifest.models == (CHECKPOINT,)

    taken: list[int] = []
    real = separated.separate
    monkeypatch.setattr(separated, "separate", lambda jobs, *a, **o: (taken.append(len(jobs)), real(jobs, *a, **o))[1])
    again = build_separated(config_of(folder, separator=model), store, force=True)
    assert again.name == "v1"
    assert sum(taken) == 0
    apart = build_separated(config_of(folder, separator=model), tmp_path / "other")
    assert sum(taken) == 3
    assert rows_of(apart, "tracks")[0]["clip_sha256"] == rows[0]["clip_sha256"]

    make_roformer(folder / "models", seed=8)
    other = build_separated(config_of(folder, separator=model), store)
    assert other.name == "v2"
    assert sum(taken) == 6
    assert contents_of(version.folder) != contents_of(other.folder)
