"""Make questions about two clips with known answers from a build's own rows.

Rows name their clips as `a_sha256`, `a_file`, `a_duration_s` and the same for b; a path may be absolute.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from earmark.schemas.judges import DEGRADED, Control, Qualify
from earmark.schemas.questions import AudioForm
from earmark.tasks.audio.degrade import Samples, degrade
from earmark.tasks.audio.encode import decode, encode
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.store.files import replacing

AMOUNTS = {"noise": 0.0, "clipping": 24.0, "lowpass": 1000.0, "silence": 0.5}
"""Faults that no listener misses: dB of the clip above the noise; dB of gain before full scale cuts; the highest
frequency left, in Hz; the silent share of the clip, from its start."""
AS_IT_IS = AudioForm(sample_rate_hz=None, channels=None, codec="wav")
CLIP = ("sha256", "file", "duration_s")
LEAST_CHANGE = 0.003
"""Least difference between a clip and its degraded copy, as a ratio of amplitudes (−50 dB)."""


class Sides(NamedTuple):
    """A corpus's description of its rows."""

    item: str  # column of the row's id
    prompt: str  # column of the prompt of its clips
    domain: str  # column whose values group the figures
    degraded: tuple[str, ...]  # dimensions in which a degraded clip is worse
    swapped: tuple[str, ...]  # dimensions in which a clip of another prompt is worse
    path: Callable[[str], Path]  # finds a clip by its file in a row


def make_controls(folder: Path, rows: Sequence[Row], qualify: Qualify, sides: Sides, seed: int) -> Iterator[Row]:
    """Yield the controls of `qualify`, made of rows drawn by seeded hash; hash also decides the clip on side a.

    Degraded clips are written to the folder.
    """
    several = len({row[sides.prompt] for row in rows}) > 1
    for control in qualify.controls:
        if control == "prompt" and not several:
            continue
        drawn = sorted(rows, key=lambda row: _hash(seed, control, row[sides.item]), reverse=True)
        by_hash = list({row["a_sha256"]: row for row in drawn}.values())[::-1]  # each clip once, by its first row
        beside = ((row, *_beside(folder, row, by_hash, control, qualify, sides)) for row in by_hash)
        can = ((row, worse, dimensions) for row, worse, dimensions in beside if worse is not None)
        for row, worse, dimensions in islice(can, qualify.each):
            better = tuple(row[f"a_{name}"] for name in CLIP)
            turned = _hash(seed, control, "turned", row[sides.item])[0] % 2 == 1
            two = dict(zip("ab", (worse, better) if turned else (better, worse), strict=True))
            names = [f"{side}_{name}" for side in two for name in CLIP]
            yield {
                **row,
                **dict(zip(names, chain(*two.values()), strict=True)),
                sides.item: f"{control} {row[sides.item]}",
                "control": control,
                "domain": row[sides.domain],
                "truth": dict.fromkeys(dimensions, "b" if turned else "a"),
            }


def _beside(
    folder: Path, row: Row, others: Sequence[Row], control: Control, qualify: Qualify, sides: Sides
) -> tuple[tuple[Any, ...] | None, tuple[str, ...]]:
    """Return the clip to pair with a row's own, and the dimensions in which it is known to be worse."""
    if control == "same":
        return tuple(row[f"a_{name}"] for name in CLIP), ()
    if control in DEGRADED:
        return degraded_clip(folder, row, control, sides.path), sides.degraded
    here = next(place for place, one in enumerate(others) if one is row)
    following = chain(others[here + 1 :], others[:here])
    other = next((one for one in following if one[sides.prompt] != row[sides.prompt]), None)
    return None if other is None else tuple(other[f"a_{name}"] for name in CLIP), sides.swapped


def degraded_clip(
    folder: Path, row: Row, control: Control, path: Callable[[str], Path]
) -> tuple[str, str, float] | None:
    """Write a row's clip a with one fault, as 16-bit WAV at its own rate; equal clips give equal bytes.

    Returns:
        SHA-256, path and seconds; None if the fault changes the clip by at most `LEAST_CHANGE`: a silent clip, a silent
        beginning, no highs.
    """
    sha256 = row["a_sha256"]
    samples, rate = decode(str(path(row["a_file"])), sha256)
    worse = degrade(samples, rate, control, AMOUNTS[control], seed=int(sha256[:8], 16))  # type: ignore[arg-type]
    if _rms(worse - samples) <= LEAST_CHANGE * _rms(samples):
        return None
    content = encode(worse, rate, AS_IT_IS)
    to = folder / f"{sha256[:32]}-{control}-{AMOUNTS[control]:g}.wav"
    with replacing(to) as temporary:
        temporary.write_bytes(content)
    return hashlib.sha256(content).hexdigest(), str(to), len(worse) / rate


def _rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(samples.astype(np.float64) ** 2))) if samples.size else 0.0


def draw_other(
    rows: Sequence[Row], count: int, seed: int, clip: str, words: str, alike: tuple[str, ...]
) -> Iterator[tuple[Row, Row]]:
    """Yield rows of different clips in seeded order, each with the next row with other words and otherwise alike.

    Args:
        count: most rows.
        clip: column of a row's clip.
        words: column of its words.
        alike: columns with equal values in both rows.
    """
    by_hash = sorted({row[clip]: row for row in rows}.values(), key=lambda row: _hash(seed, "prompt", row[clip]))
    for here, row in enumerate(by_hash[:count]):
        for other in chain(by_hash[here + 1 :], by_hash[:here]):
            if other[words] != row[words] and all(other[name] == row[name] for name in alike):
                yield row, other
                break


def _hash(*words: object) -> bytes:
    return hashlib.sha256("\n".join(map(str, words)).encode()).digest()
