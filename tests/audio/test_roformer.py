"""Our Mel-Band Roformer against audio-separator's own, on weights that the tests make."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earmark.schemas.errors import ConfigError
from earmark.tasks.audio.separation.choice import make_separator
from earmark.tasks.audio.separation.jobs import Output, Samples, SeparatedTrack, SeparationJob
from earmark.tasks.audio.separation.pipeline import separate
from tests.audio.separating import snr_db, write_song
from tests.audio.tiny_roformer import CHECKPOINT, make_roformer

pytestmark = pytest.mark.models
pytest.importorskip("torch", reason="the separation extra is not installed")
pytest.importorskip("audio_separator", reason="the separation extra is not installed")

LSB16 = 1 / 32767


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_roformer(folder)
    return folder


def theirs(models: Path, source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Samples, int]:
    """What audio-separator writes for the instrumental, and before its 16 bits: the samples it hands to its writer."""
    if shutil.which("ffmpeg") is None:
        pytest.skip("audio-separator needs the ffmpeg command")
    from audio_separator.separator import Separator

    held: dict[str, Samples] = {}
    separator = Separator(
        log_level=logging.ERROR, model_file_dir=str(models), output_dir=str(folder), output_format="FLAC"
    )
    separator.load_model(CHECKPOINT)
    keep = separator.model_instance.write_audio

    def watched(path: str, samples: Samples) -> None:
        held[path] = np.array(samples)
        keep(path, samples)

    monkeypatch.setattr(separator.model_instance, "write_audio", watched)
    written = separator.separate(str(source))
    (name,) = (name for name in written if "other" in name)
    found, rate = soundfile.read(folder / Path(name).name, dtype="float32")
    assert np.abs(found - held[name]).max() < 2.1 * LSB16
    return held[name], rate


def ours(models: Path, *sources: Path, **options: object) -> list[Samples]:
    """What our pipeline writes for each source."""
    separator = make_separator(str(models / CHECKPOINT), settings=models / "tiny.yaml", **options)  # type: ignore[arg-type]
    jobs = [SeparationJob(str(n), source, source.with_suffix(".flac")) for n, source in enumerate(sources)]
    results = list(separate(jobs, separator, Output(codec="flac")))
    assert all(isinstance(result, SeparatedTrack) for result in results), results
    return [soundfile.read(job.target, dtype="float32")[0] for job in jobs]


@pytest.mark.parametrize(
    ("seconds", "gain"),
    [(13.3, 1.0), (10.1, 4.0), (8.0, 1.0), (2.0, 1.0), (0.5, 1.0)],
    ids=["long", "loud", "below 10 s", "below a window", "half a second"],
)
def test_agrees_with_audio_separator(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, gain: float
) -> None:
    source = write_song(tmp_path / "mix.wav", seconds, gain=gain)
    wanted, rate = theirs(models, source, tmp_path / "theirs", monkeypatch)
    (found,) = ours(models, source)
    mix, _ = soundfile.read(source, dtype="float32")
    scaled = mix * min(1.0, 0.9 / np.abs(mix).max())
    assert rate == 44_100
    assert found.shape == wanted.shape
    assert snr_db(wanted, found) > 100
    assert snr_db(scaled - wanted, scaled - found) > 80, "the voice, too, not the mix alone"
    assert snr_db(wanted, scaled) < 40, "something was taken out"


def test_mono_is_doubled_as_audio_separator_does(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stereo, _ = soundfile.read(write_song(tmp_path / "stereo.wav", 3.0), dtype="float32")
    soundfile.write(tmp_path / "mono.wav", stereo[:, 0], 44_100, subtype="FLOAT")
    wanted, _ = theirs(models, tmp_path / "mono.wav", tmp_path / "theirs", monkeypatch)
    (found,) = ours(models, tmp_path / "mono.wav")
    assert snr_db(wanted, found) > 100


def test_another_rate_agrees_too(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import soxr

    source = write_song(tmp_path / "mix.wav", 10.5, rate=48_000)
    wanted, rate = theirs(models, source, tmp_path / "theirs", monkeypatch)
    (found,) = ours(models, source)
    assert rate == 44_100
    back = soxr.resample(wanted, 44_100, 48_000, quality="HQ")[: len(found)]
    assert snr_db(back, found[: len(back)]) > 60


def test_windows_of_several_tracks_go_together_and_agree(models: Path, tmp_path: Path) -> None:
    sources = [write_song(tmp_path / f"{n}.wav", seconds, seed=n) for n, seconds in enumerate((10.5, 11.0, 3.0, 12.5))]
    alone = [ours(models, source, batch_size=1)[0] for source in sources]
    together = ours(models, *sources, batch_size=3)
    for one, other in zip(alone, together, strict=True):
        assert snr_db(one, other) > 110


def test_half_precision_beyond_its_bound_is_refused(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from earmark.tasks.audio.separation import choice

    monkeypatch.setattr(choice, "LEAST_SNR_DB", 70.0)
    with pytest.raises(ConfigError, match=r"within 70 dB of single precision, found [3-6]\d\.\d dB; use float32"):
        make_separator(str(models / CHECKPOINT), settings=models / "tiny.yaml", precision="bfloat16")


def test_half_precision_states_its_figure(models: Path, tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    source = write_song(tmp_path / "mix.wav", 10.5)
    (single,) = ours(models, source)
    (half,) = ours(models, source, precision="bfloat16")
    found = snr_db(single, half)
    record_property("bfloat16_snr_db", found)
    assert 30 < found < 60, f"bfloat16 on a CPU: {found:.1f} dB"


def test_compiled_blocks_agree(models: Path, tmp_path: Path) -> None:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch.compile needs a C++ compiler on a CPU")
    source = write_song(tmp_path / "mix.wav", 3.0)
    (plain,) = ours(models, source)
    (compiled,) = ours(models, source, compiled=True)
    assert snr_db(plain, compiled) > 110


def test_the_same_twice_and_named_by_what_decides(models: Path, tmp_path: Path) -> None:
    source = write_song(tmp_path / "mix.wav", 3.0)
    ours(models, source)
    first = source.with_suffix(".flac").read_bytes()
    ours(models, source)
    assert source.with_suffix(".flac").read_bytes() == first
    named = {"settings": models / "tiny.yaml"}
    one = make_separator(str(models / CHECKPOINT), **named)  # type: ignore[arg-type]
    other = make_separator(str(models / CHECKPOINT), batch_size=4, **named)  # type: ignore[arg-type]
    coarse = make_separator(str(models / CHECKPOINT), precision="bfloat16", **named)  # type: ignore[arg-type]
    assert one.digest == other.digest != coarse.digest
    assert one.name == CHECKPOINT


def test_a_track_shorter_than_the_spectrum_needs_is_a_failure(models: Path, tmp_path: Path) -> None:
    source = write_song(tmp_path / "mix.wav", 0.02)
    separator = make_separator(str(models / CHECKPOINT), settings=models / "tiny.yaml")
    (result,) = separate([SeparationJob("t", source, tmp_path / "t.flac")], separator)
    assert not isinstance(result, SeparatedTrack)
    assert result.reason == "separation_too_short"
