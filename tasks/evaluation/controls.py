"""Questions about two clips whose answer is known: of a table of gold, or made of a build's own rows.

Rows name their clips as `a_sha256`, `a_file`, `a_duration_s` and the same for b; a path may be absolute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from earmark.schemas.judges import DEGRADED, Control, Qualify
from earmark.tasks.annotation.request import AudioForm
from earmark.tasks.audio.degrade import Samples, degrade
from earmark.tasks.audio.encode import decode, encode
from earmark.tasks.build.ask import Row
from earmark.tasks.store.files import replacing

AS_IT_IS = AudioForm(sample_rate_hz=None, channels=None, codec="wav")
CLIP = ("sha256", "file", "duration_s")
LEAST_CHANGE = 0.003
"""How much of a clip's level its degraded copy differs by at least, as a ratio of amplitudes (−50 dB)."""


class Sides(NamedTuple):
    """What a corpus says of its rows."""

    item: str  # the column that names a row
    prompt: str  # the column that names what its clips were made from
    domain: str  # the column by whose values figures are told apart
    degraded: tuple[str, ...]  # dimensions in which a degraded clip is the worse
    swapped: tuple[str, ...]  # dimensions in which a clip of another prompt is the worse
    path: Callable[[str], Path]  # where a clip lies, by its file in a row


def make_controls(folder: Path, rows: Sequence[Row], qualify: Qualify, sides: Sides, seed: int) -> Iterator[Row]:
    """The controls of `qualify`, made of rows that seeded hash draws; which of two clips is a goes by hash too.

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
    """The clip that is put beside a row's own, and the dimensions in which it is known to be the worse."""
    if control == "same":
        return tuple(row[f"a_{name}"] for name in CLIP), ()
    if control in DEGRADED:
        return degraded_clip(folder, row, control, qualify, sides.path), sides.degraded
    here = next(place for place, one in enumerate(others) if one is row)
    following = chain(others[here + 1 :], others[:here])
    other = next((one for one in following if one[sides.prompt] != row[sides.prompt]), None)
    return None if other is None else tuple(other[f"a_{name}"] for name in CLIP), sides.swapped


def degraded_clip(
    folder: Path, row: Row, control: Control, qualify: Qualify, path: Callable[[str], Path]
) -> tuple[str, str, float] | None:
    """Write a row's clip a with one fault, 16-bit WAV in its own rate; always the same bytes for the same clip.

    Returns:
        SHA-256, path and seconds; None of a clip that the fault does not change by `LEAST_CHANGE`: a silent one, one
        that begins with silence, one without highs.
    """
    amounts = {
        "noise": qualify.snr_db,
        "clipping": qualify.overdrive_db,
        "lowpass": qualify.lowpass_hz,
        "silence": qualify.silent_share,
    }
    sha256 = row["a_sha256"]
    samples, rate = decode(str(path(row["a_file"])), sha256)
    worse = degrade(samples, rate, control, amounts[control], seed=int(sha256[:8], 16))  # type: ignore[arg-type]
    if _rms(worse - samples) <= LEAST_CHANGE * _rms(samples):
        return None
    content = encode(worse, rate, AS_IT_IS)
    to = folder / f"{sha256[:32]}-{control}-{amounts[control]:g}.wav"
    with replacing(to) as temporary:
        temporary.write_bytes(content)
    return hashlib.sha256(content).hexdigest(), str(to), len(worse) / rate


def _rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(samples.astype(np.float64) ** 2))) if samples.size else 0.0


def draw_other(
    rows: Sequence[Row], count: int, seed: int, clip: str, words: str, alike: tuple[str, ...]
) -> Iterator[tuple[Row, Row]]:
    """Rows of different clips in seeded order, each with the next of them that has other words and is alike otherwise.

    Args:
        count: most rows.
        clip: the column that names a row's clip.
        words: the column that names its words.
        alike: columns in which both are equal.
    """
    by_hash = sorted({row[clip]: row for row in rows}.values(), key=lambda row: _hash(seed, "prompt", row[clip]))
    for here, row in enumerate(by_hash[:count]):
        for other in chain(by_hash[here + 1 :], by_hash[:here]):
            if other[words] != row[words] and all(other[name] == row[name] for name in alike):
                yield row, other
                break


def _hash(*words: object) -> bytes:
    return hashlib.sha256("\n".join(map(str, words)).encode()).digest()
