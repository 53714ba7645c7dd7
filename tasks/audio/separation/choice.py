"""Make separators by name: the removal of the stereo centre, and Mel-Band Roformers on a CPU or a CUDA device."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.tasks.audio.separation.checkpoints import Checkpoint, find_checkpoint, load_model
from earmark.tasks.audio.separation.jobs import Samples, Separator, Windows

Precision = Literal["float32", "tf32", "float16", "bfloat16"]
SHORT_S = 10.0  # audio-separator's bound, and its windows below it
SHORT_DIM_T = 256
HALF: tuple[Precision, ...] = ("float16", "bfloat16")
LEAST_SNR_DB = 30.0  # of an instrumental in half precision against single precision
CUDA_BATCH = 8  # windows; about 1.5 GB each in single precision


class Roformer:
    """A Mel-Band Roformer on a device.

    Windows are cut and added as in audio-separator 0.47: 8 s at `inference.num_overlap` to a window's length for the
    published models, 2.55 s for tracks below 10 s, Hamming-weighted. In single precision instrumentals agree with its
    own to 100 dB and more, voices alone to 80 dB (`tests/audio/test_roformer.py`). Half precision differs more,
    depending on the weights: a model is refused if its instrumental of a test window is not within `LEAST_SNR_DB` of
    single precision.

    Args:
        device: `cpu`, `cuda`, `cuda:1`, …, or `auto`: a CUDA device if there is one.
        precision: of matrix products. `tf32` and `float16` are for CUDA; `bfloat16` is coarse.
        compiled: whether transformer blocks are compiled first: a minute or two once, then faster.
        batch_size: windows at once; default: 1 on a CPU, 8 on CUDA.

    Raises:
        ConfigError: checkpoint and YAML do not fit, the device is missing, or it lacks this precision.
        MissingExtraError: the `separation` extra is not installed.
    """

    needs_stereo = False

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "auto",
        precision: Precision = "float32",
        compiled: bool = False,
        batch_size: int | None = None,
    ) -> None:
        try:
            import torch

            from earmark.tasks.audio.separation.melband import MelBand
        except ImportError:
            raise MissingExtraError(f"separator '{checkpoint.name}'", "separation") from None
        self._torch: Any = torch
        self.device = _device(torch, device, precision)
        on_cuda = self.device.type == "cuda"
        self.name = checkpoint.name
        self.batch_size, self.in_flight = batch_size or (CUDA_BATCH if on_cuda else 1), 2 if on_cuda else 1
        self.digest = digest(checkpoint, precision)
        self._read(checkpoint.settings)
        model = load_model(checkpoint, str(self.device))
        if not getattr(model, "stereo", False):
            raise ConfigError(f"separator '{self.name}': expected a stereo model (model.stereo: true)")
        self._tf32 = precision == "tf32"
        exact = _instrumental(model, self._probe()) if precision in HALF else None
        self._model = MelBand(model, getattr(torch, "float32" if self._tf32 else precision), compiled)
        if exact is not None and (snr_db := _snr_db(exact, _instrumental(self._model, self._probe()))) < LEAST_SNR_DB:
            raise ConfigError(
                f"precision: expected {precision} to keep '{self.name}' within {LEAST_SNR_DB:g} dB of single "
                f"precision, found {snr_db:.1f} dB; use float32 or tf32"
            )

    def _read(self, settings: dict[str, Any]) -> None:
        model, inference, audio = settings["model"], settings["inference"], settings.get("audio") or {}
        self.sample_rate_hz: int | None = audio.get("sample_rate", 44_100)
        hop = model.get("stft_hop_length") or audio.get("hop_length") or 512
        self._overlap = inference.get("num_overlap") or 8
        self._lengths = int(hop) * (inference["dim_t"] - 1), int(hop) * (SHORT_DIM_T - 1)
        self.least_frames: int = model.get("stft_n_fft", 2048) // 2 + 1  # padding of its spectrum at the ends
        self._weights = {length: np.hamming(length).astype(np.float32) for length in self._lengths}

    def _probe(self) -> Any:
        """Return a short window of noise, the same each time."""
        noise = np.random.default_rng(0).standard_normal((1, 2, self._lengths[True]), dtype=np.float32)
        return self._torch.from_numpy(0.1 * noise).to(self.device)

    def windows(self, frames: int, sample_rate_hz: int) -> Windows:
        """Return the windows that audio-separator cuts for a track of this length."""
        length = self._lengths[frames / sample_rate_hz < SHORT_S]
        return Windows(length, length // self._overlap, self._weights[length])

    def start(self, batch: Samples, sample_rate_hz: int) -> Callable[[], Samples]:
        """Start a batch; on CUDA the returned function waits for the device, on a CPU the work is already done."""
        torch = self._torch
        mix = torch.from_numpy(batch)
        if self.device.type != "cuda":
            voice = self._model(mix).numpy()
            return lambda: voice
        with torch.cuda.device(self.device), _tf32(torch, self._tf32):
            voice = self._model(mix.pin_memory().to(self.device, non_blocking=True))
            copied = torch.empty(voice.shape, dtype=torch.float32, pin_memory=True)
            copied.copy_(voice, non_blocking=True)
            done = torch.cuda.Event()
            done.record()

        def wait() -> Samples:
            done.synchronize()
            result: Samples = copied.numpy()
            return result

        return wait


@contextmanager
def _tf32(torch: Any, wanted: bool) -> Iterator[None]:
    """Enable or disable TF32 matrix products in the block, and restore the process's setting."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, wanted
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _instrumental(model: Any, mix: Any) -> Samples:
    """Return a window without its voice, up to a hop shorter."""
    import torch

    with torch.inference_mode():
        voice = model(mix).reshape(1, 2, -1).float()
        left: Samples = (mix[..., : voice.shape[-1]] - voice).cpu().numpy()
    return left


def _snr_db(wanted: Samples, actual: Samples) -> float:
    wanted = wanted[..., : actual.shape[-1]]
    error = float(np.square(wanted - actual).sum(dtype=np.float64))
    signal = float(np.square(wanted).sum(dtype=np.float64))
    return math.inf if error == 0 else 10 * math.log10(signal / error) if signal and np.isfinite(error) else -math.inf


def _device(torch: Any, device: str, precision: Precision) -> Any:
    available = torch.cuda.is_available()
    if device == "auto":
        device = "cuda" if available else "cpu"
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise ConfigError(f"device: expected auto, cpu, cuda or cuda:N, found '{device}'")
    if kind == "cuda" and (not available or int(number or 0) >= torch.cuda.device_count()):
        raise ConfigError(
            f"device: '{device}' is not there; found {torch.cuda.device_count() if available else 0} CUDA devices"
        )
    if kind == "cpu" and precision in ("tf32", "float16"):
        raise ConfigError(f"precision: '{precision}' is for CUDA devices; on a CPU expected float32 or bfloat16")
    return torch.device(device)


def cuda_devices() -> tuple[str, ...]:
    """Return this machine's CUDA devices, such as `cuda:0`; none without torch."""
    try:
        import torch
    except ImportError:
        return ()
    return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))


def digest(checkpoint: Checkpoint, precision: Precision) -> str:
    """Return the hash of everything behind a Roformer's output: checkpoint, settings and precision. Needs no torch."""
    settings = {key: checkpoint.settings.get(key) for key in ("model", "audio", "inference")}
    parts = ["mel-band-roformer", 1, checkpoint.sha256, settings, precision]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


WINDOW_S = 3.0  # of sound in a window
FRAME = 4096
HOP = FRAME // 4
KEPT_BELOW_HZ, REMOVED_ABOVE_HZ = 90.0, 150.0
SHAPE = np.hanning(FRAME + 1)[:FRAME].astype(np.float32)
FRAMES_AT_ONCE = 4  # their spectra stay in the processor's cache, and their memory is not given back in between
HALVED, TINY = np.float32(0.5), np.finfo(np.float32).tiny


class CentreRemoval:
    """The separator `centre-removal`: needs only NumPy and stereo, works at any rate.

    A voice is mixed to the middle nearly always, the accompaniment to the sides. Let M and S be mid and side, (L ± R) /
    2, in a cell of the short-time spectrum. Sound off the middle adds equal power to both (for sources panned hard, and
    on average for several that spread evenly), so the middle's own power is |M|² − |S|², and the gain that estimates it
    best in the least-squares sense is Wiener's, g = max(0, 1 − |S|² / |M|²). The voice is g·M in both channels; each
    channel keeps the rest, so the result stays stereo. Below 90 Hz nothing is removed: bass and bass drum are in the
    middle too.

    No model: everything else in the middle (snare, bass above 150 Hz, solos) goes with the voice, and the voice's
    reverberation stays.
    """

    name = "centre-removal"
    sample_rate_hz: int | None = None
    batch_size = 1
    in_flight = 1
    needs_stereo = True
    least_frames = 1

    def __init__(self) -> None:
        settings = ["centre-removal", 1, WINDOW_S, FRAME, HOP, KEPT_BELOW_HZ, REMOVED_ABOVE_HZ]
        self.digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()

    def windows(self, frames: int, sample_rate_hz: int) -> Windows:
        """Return windows of about three seconds, half overlapping, Hamming-weighted."""
        length = max(1, round(WINDOW_S * sample_rate_hz / HOP)) * HOP
        return Windows(length, length // 2 // HOP * HOP or length, _hamming(length))

    def start(self, batch: Samples, sample_rate_hz: int) -> Callable[[], Samples]:
        """Remove the centre at once; return a function returning the result."""
        voices = np.stack([centre(window, band(sample_rate_hz)) for window in batch])
        return lambda: voices


@lru_cache(8)
def _hamming(length: int) -> Samples:
    return np.hamming(length).astype(np.float32)


@lru_cache(8)
def band(sample_rate_hz: int) -> Samples:
    """Return the removed share of the centre at each frequency of the spectrum, (FRAME / 2 + 1,), 0 to 1."""
    frequencies = np.fft.rfftfreq(FRAME, 1 / sample_rate_hz)
    share = np.clip((frequencies - KEPT_BELOW_HZ) / (REMOVED_ABOVE_HZ - KEPT_BELOW_HZ), 0.0, 1.0)
    kept: Samples = (0.5 - 0.5 * np.cos(np.pi * share)).astype(np.float32)
    return kept


def centre(window: Samples, removed: Samples) -> Samples:
    """Return the centre of a window.

    Args:
        window: (2, frames), full scale ±1.
        removed: the result of `band` for its rate.

    Returns:
        (2, frames): the same in both channels.
    """
    import scipy.fft  # here, as plans of other corpora read this module and have no use for it

    frames = window.shape[1]
    whole = -(-frames // HOP) * HOP
    padded = np.zeros((2, whole + 2 * (FRAME - HOP)), np.float32)
    padded[:, FRAME - HOP : FRAME - HOP + frames] = window
    cuts = np.lib.stride_tricks.sliding_window_view(padded, FRAME, axis=1)[:, ::HOP]
    turns = np.zeros((FRAME // HOP, padded.shape[1]), np.float32)  # frames without overlap lie end to end
    for start in range(0, cuts.shape[1], FRAMES_AT_ONCE):
        cut = cuts[:, start : start + FRAMES_AT_ONCE] * SHAPE
        left, right = scipy.fft.rfft(cut.astype(np.float64), axis=2).astype(np.complex64)
        side = (left - right) * HALVED
        left += right
        left *= HALVED  # the middle
        gain, power = _power(side), _power(left)
        gain /= np.maximum(power, TINY, out=power)
        np.subtract(1, gain, out=gain)
        np.maximum(gain, 0, out=gain)
        gain *= removed
        left *= gain
        voice = scipy.fft.irfft(left, FRAME, axis=1, overwrite_x=True)
        voice *= SHAPE
        for number, part in enumerate(voice, start):
            turns[number % len(turns), number * HOP : number * HOP + FRAME] = part
    summed = turns[0]
    for turn in turns[1:]:
        summed += turn
    voice_sum = summed[FRAME - HOP : FRAME - HOP + frames] / np.float32(1.5)  # the squared windows' sum at this hop
    return np.broadcast_to(voice_sum, (2, frames))


def _power(spectrum: npt.NDArray[np.complex64]) -> Samples:
    parts = np.square(spectrum.view(np.float32))
    return parts[..., 0::2] + parts[..., 1::2]


CENTRE_REMOVAL = CentreRemoval.name


class Described(NamedTuple):
    """Name of a separator and hashes that decide its output; see `Separator`."""

    name: str
    digest: str
    checkpoint_sha256: str | None


def describe_separator(
    name: str = CENTRE_REMOVAL,
    *,
    settings: Path | None = None,
    models: Path | None = None,
    precision: Precision = "float32",
) -> Described:
    """Return the description of `make_separator`'s result, without torch and without loading weights.

    A checkpoint of the registry is downloaded if missing: its hash is part of the result.
    """
    if name == CENTRE_REMOVAL:
        made = CentreRemoval()
        return Described(made.name, made.digest, None)
    checkpoint = find_checkpoint(name, settings, models)
    return Described(checkpoint.name, digest(checkpoint, precision), checkpoint.sha256)


def make_separator(
    name: str = CENTRE_REMOVAL,
    *,
    settings: Path | None = None,
    models: Path | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    compiled: bool = False,
    batch_size: int | None = None,
) -> Separator:
    """Return a separator by name.

    Args:
        name: `centre-removal`; a file name of audio-separator's registry, such as `vocals_mel_band_roformer.ckpt`,
            downloaded on first use; or a checkpoint's path, with `settings`.
        models: the folder of downloaded checkpoints; default: `EARMARK_CHECKPOINTS` or `~/.cache`.
        device, precision, compiled, batch_size: see `Roformer`; centre removal ignores them.

    Raises:
        ConfigError: the name is unknown, or the separator cannot be used with these options.
        MissingExtraError: a model is named and the `separation` extra is not installed.
    """
    if name == CENTRE_REMOVAL:
        return CentreRemoval()
    checkpoint = find_checkpoint(name, settings, models)
    return Roformer(checkpoint, device=device, precision=precision, compiled=compiled, batch_size=batch_size)
