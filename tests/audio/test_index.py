"""The media index: a second look costs nothing, and a fault that may pass is looked at again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import AudioFault
from earmark.tasks.audio import index as index_module
from earmark.tasks.audio.index import Beginning, MediaIndex
from earmark.tasks.audio.probe import Probe, probe


def tone(path: Path, peak: float = 0.5) -> Path:
    samples = peak * np.sin(np.linspace(0, 800 * np.pi, 8_000))
    soundfile.write(path, samples, 8_000, subtype="PCM_16")
    return path


def test_measures_once_and_again_when_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def watched(path: Path, longest_s: float) -> Probe | AudioFault:
        asked.append(path)
        return probe(path, longest_s)

    monkeypatch.setattr(index_module, "probe", watched)
    clip, index = tone(tmp_path / "a.wav"), MediaIndex(tmp_path / "media.sqlite")
    (first,) = index.look([clip])
    assert isinstance(first, Probe)
    assert (first.duration_s, first.sample_rate_hz, first.channels) == (1.0, 8_000, 1)
    assert first.peak_dbfs == pytest.approx(-6.02, abs=0.01)
    assert MediaIndex(tmp_path / "media.sqlite").look([clip]) == [first]
    assert len(asked) == 1
    tone(clip, peak=0.25)
    (second,) = index.look([clip])
    assert isinstance(second, Probe)
    assert second.clip_sha256 != first.clip_sha256
    assert len(asked) == 2


def test_a_fault_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip, index = tone(tmp_path / "a.wav"), MediaIndex(tmp_path / "media.sqlite")
    with monkeypatch.context() as broken:
        broken.setattr(index_module, "probe", lambda *_: AudioFault("file_unreadable", "too many open files"))
        assert isinstance(index.look([clip])[0], AudioFault)
    assert isinstance(index.look([clip])[0], Probe)


def test_missing_and_silent_and_empty(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "none.wav", np.zeros(0), 8_000)
    soundfile.write(tmp_path / "still.wav", np.zeros(800), 8_000)
    found = MediaIndex(tmp_path / "media.sqlite").look(
        [tmp_path / "gone.wav", tmp_path / "none.wav", tmp_path / "still.wav"]
    )
    assert isinstance(found[0], AudioFault)
    assert isinstance(found[1], AudioFault)
    assert (found[0].reason, found[1].reason) == ("file_missing", "file_empty")
    assert isinstance(found[2], Probe)
    assert found[2].peak_dbfs == -200


def test_loudness_is_measured_once_a_beginning_and_of_the_clip_that_the_hash_names(tmp_path: Path) -> None:
    half = tone(tmp_path / "a.wav")
    samples, rate = soundfile.read(half)
    samples[len(samples) // 2 :] = 0
    soundfile.write(half, samples, rate, subtype="PCM_16")
    index = MediaIndex(tmp_path / "media.sqlite")
    (found,) = index.look([half])
    assert isinstance(found, Probe)
    wanted = [Beginning(found.clip_sha256, half, seconds) for seconds in (1.0, 0.5, 1.0)]
    whole, sounding, again = index.loudness(wanted)
    assert whole == again
    assert sounding == pytest.approx(-9.7, abs=0.7)  # a sine of half of full scale: -9.03 dB, and -0.69 by definition
    assert whole < sounding
    half.unlink()
    assert MediaIndex(tmp_path / "media.sqlite").loudness(wanted) == [whole, sounding, again]
    other = tone(tmp_path / "a.wav", peak=0.1)
    with pytest.raises(InputError, match="expected SHA-256"):
        index.loudness([Beginning(found.clip_sha256, other, 0.25)])
