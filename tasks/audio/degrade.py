"""Degrade a clip by a known amount, to know the better of two clips."""

from typing import Literal

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]
Fault = Literal["noise", "clipping", "lowpass", "silence"]


def degrade(samples: Samples, rate: int, fault: Fault, amount: float, *, seed: int = 0) -> Samples:
    """Return the clip with a fault; its peak stays within full scale.

    Args:
        samples: (frames, channels), full scale ±1.
        rate: in Hz.
        fault: `noise` adds white noise, `clipping` overdrives, `lowpass` takes the highs (a Butterworth filter of order
            eight, run both ways), `silence` empties the beginning.
        amount: of noise, the clip's level above it in dB; of clipping, the gain in dB of a clip at full scale; of a
            low-pass, its edge in Hz, at most 0.45 of the rate; of silence, the share of the clip, 0 to 1.
    """
    sound = samples.astype(np.float64)
    match fault:
        case "noise":
            level = float(np.sqrt(np.mean(sound**2))) * 10 ** (-amount / 20)
            sound = sound + np.random.default_rng(seed).normal(0.0, level, sound.shape)
        case "clipping":
            peak = float(np.abs(sound).max()) or 1.0
            sound = np.clip(sound / peak * 10 ** (amount / 20), -1.0, 1.0) * peak
        case "lowpass":
            from scipy.signal import butter, sosfiltfilt  # takes a second; only controls of a judge are degraded

            low = butter(8, min(amount, 0.45 * rate), fs=rate, output="sos")
            sound = sosfiltfilt(low, sound, axis=0, padlen=min(len(sound) - 1, 3 * 17))
        case "silence":
            sound[: round(amount * len(sound))] = 0.0
    highest = float(np.abs(sound).max())
    return (sound / highest if highest > 1 else sound).astype(np.float32)
