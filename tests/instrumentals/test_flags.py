"""Flags of separated tracks: each has its measure, and flagged tracks stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.instrumentals import FLAGS
from earmark.tasks.audio.separation.jobs import SeparatedTrack
from earmark.tasks.instrumentals import separated
from earmark.tasks.instrumentals.tracks import flags_of
from tests.builds import rows_of
from tests.instrumentals.separating import RATE_HZ, build_separated, config_of, make_tracks, song, write_rows

PLAIN: dict[str, float] = {
    "clipped_share": 0, "emptied_share": 0, "mix_db": -15, "removed_db": -20, "instrumental_db": -17, "correlation": 0,
    "frames": 16_000, "sample_rate_hz": 16_000, "written_frames": 16_000, "written_rate_hz": 16_000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "change"),
    [
        ("mix_clipped", {"clipped_share": 0.01}),
        ("emptied", {"emptied_share": 0.5}),
        ("nothing_removed", {"removed_db": -90}),
        ("little_left", {"instrumental_db": -60}),
        ("voice_left", {"correlation": 0.6}),
        ("length_mismatch", {"written_frames": 14_000}),
    ],
)
def test_each_flag(flag: str, change: dict[str, float]) -> None:
    assert flags_of(PLAIN) == []
    assert flags_of({**PLAIN, **change}) == [flag]


def test_measures_have_the_engines_names() -> None:
    assert set(separated.MEASURED) <= set(SeparatedTrack.__slots__)
    assert set(PLAIN) <= set(separated.MEASURED)


@given(st.fixed_dictionaries({name: st.floats(-120, 120) for name in PLAIN} | {
    name: st.integers(1, 10**6) for name in ("sample_rate_hz", "written_rate_hz")
}))  # fmt: skip
def test_flags_are_known_and_in_order(heard: dict[str, float]) -> None:
    found = flags_of(heard)
    assert [flag for flag in FLAGS if flag in found] == found


def test_flagged_tracks_stay(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    make_tracks(folder, 1)
    loud, _ = soundfile.read(song(folder / "audio/loud.wav", 4))
    soundfile.write(folder / "audio/loud.wav", np.clip(loud * 9, -1, 1), RATE_HZ)
    write_rows(folder / "tracks.jsonl", [{"track_id": "loud", "audio": "audio/loud.wav"}])
    version = build_separated(config_of(folder), tmp_path / "store")
    (row,) = rows_of(version, "tracks")
    assert "mix_clipped" in row["flags"]
    assert "`mix_clipped` | 1 | 100.0%" in (version.folder / "README.md").read_text("utf-8")
    assert "mix_clipped 1" in version.manifest.steps[-1].notes[0]
