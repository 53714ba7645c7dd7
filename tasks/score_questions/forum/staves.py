"""Detect scores in images: five equal lines with notes on them, found by projections and run lengths.

A classical method without a model: staff space from run lengths (Cardoso and Rebelo 2010, "Robust staffline thickness
and distance estimation"), lines from projections of narrow strips, so that skew, bends and uneven light do little
harm. The same pixels give the same answer.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

LONGEST_SIDE = 1400  # pixels; larger images are reduced to this size
STEEPEST = 0.14  # largest slope of a skewed page: about 8 degrees
STRIPS = 32
LEAST_SPACE, MOST_SPACE = 3.5, 40.0  # pixels between two staff lines, in the reduced size
STRIP_SURE = 0.30  # prominence of five lines in a strip
LEAST_WIDTH = 10.0  # of a staff, in staff spaces
SURE = (0.30, 0.60)  # mean prominence of five lines: confidence rises from 0 to 1 between these
NOTES = (0.004, 0.020)  # share of a staff's columns with ink crossing some of its lines but not all, likewise

Bits = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Staff:
    """A staff of five lines."""

    left: int  # left, top, width, height: the box around them, in pixels
    top: int
    width: int
    height: int
    confidence: float  # from 0 to 1: prominence of the lines and amount of ink on them


def find_staves(image: Image.Image) -> list[Staff]:
    """Find the staves of an image of any mode and size, from top to bottom."""
    scale = min(1.0, LONGEST_SIDE / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    gray = image.convert("L")
    pixels = np.asarray(gray if scale == 1 else gray.resize(size, Image.Resampling.LANCZOS), np.float64)
    if min(pixels.shape) < 5 * LEAST_SPACE:
        return []
    ink = _ink(pixels)
    slope = _slope(ink)
    level = _sheared(ink, slope)
    found = [staff for space in _spaces(level) for staff in _staves(level, space)]
    return _boxes(found, slope, scale, image.size)


def confidence(staves: list[Staff]) -> float:
    """Return the confidence that an image with these staves is a score: 0 to 1."""
    return max((staff.confidence for staff in staves), default=0.0)


def _ink(pixels: Reals) -> Bits:
    """Return the pixels darker than their surroundings; on a dark page, the lighter ones."""
    if np.median(pixels) < 100:
        pixels = 255 - pixels
    window = max(15, min(61, min(pixels.shape) // 8))
    around = ndimage.uniform_filter(pixels, window)
    spread = np.sqrt(np.maximum(ndimage.uniform_filter(pixels**2, window) - around**2, 0))
    return np.asarray(pixels < around - np.maximum(10, 0.5 * spread))


def _slope(ink: Bits) -> float:
    """Return the slope of the sharpest horizontal projections, in pixels down per pixel to the right."""
    rows, columns = (at.astype(np.float64) for at in np.nonzero(ink & ~np.roll(ink, 3, axis=0)))
    width = ink.shape[1]
    columns -= width / 2
    best, sharpest = 0.0, -1.0
    for step in (0.01, 0.002):
        for slope in (
            np.arange(-STEEPEST, STEEPEST + 1e-9, step) if step == 0.01 else best + np.arange(-0.01, 0.011, step)
        ):
            counts = np.bincount(np.rint(rows - slope * columns).astype(np.int64) + width)  # none lies above 0
            if (sharpness := float(counts @ counts)) > sharpest * (1 + 1e-9):
                best, sharpest = float(slope), sharpness
    return best


def _sheared(ink: Bits, slope: float) -> Bits:
    """Shift the page's columns up or down to level its lines. Ink moved off the page is lost."""
    if not slope:
        return ink
    height, width = ink.shape
    shift = np.rint(slope * (np.arange(width) - width / 2)).astype(np.int64)
    rows = np.arange(height)[:, None] + shift[None, :]
    inside = (rows >= 0) & (rows < height)
    return np.asarray(ink[np.clip(rows, 0, height - 1), np.arange(width)[None, :]] & inside)


def _runs(ink: Bits) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return vertical runs of ink, column after column: start (column times a stride plus row), length, column."""
    stride = ink.shape[0] + 1
    flat = np.zeros((ink.shape[1], stride), np.int8)
    flat[:, :-1] = ink.T
    edges = np.diff(np.concatenate([[0], flat.ravel()]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return starts, ends - starts, starts // stride


def _spaces(ink: Bits) -> list[float]:
    """Return the most frequent distances between equal lines, in pixels: thin runs of ink following each other."""
    starts, lengths, columns = _runs(ink)
    if len(starts) < 2:
        return []
    steps = np.diff(starts)
    thin = (lengths[:-1] <= 0.4 * steps) & (lengths[1:] <= 0.4 * steps) & (columns[:-1] == columns[1:])
    steps = steps[thin & (steps <= MOST_SPACE + 2)]
    counts = ndimage.gaussian_filter1d(np.bincount(steps, minlength=int(MOST_SPACE) + 3).astype(np.float64), 0.7)
    counts[: int(LEAST_SPACE)] = 0
    peaks = [at for at in np.argsort(-counts)[:8] if counts[at] == counts[max(0, at - 1) : at + 2].max() and counts[at]]
    centred = []
    for at in peaks[:3]:
        near = np.arange(max(0, at - 1), min(len(counts), at + 2))
        centred.append(float((near * counts[near]).sum() / counts[near].sum()))
    return centred


@dataclass(frozen=True)
class _Chain:
    """A staff in the sheared page: its highest line's row in each of its strips."""

    strips: tuple[int, ...]
    rows: tuple[int, ...]
    sure: float
    notes: float
    space: float
    edges: npt.NDArray[np.int64]


def _staves(ink: Bits, space: float) -> list[_Chain]:
    """Find chains of five equidistant lines across the strips of a page."""
    height, width = ink.shape
    if height < 5 * space or width < LEAST_WIDTH * space:
        return []
    strips = int(min(STRIPS, width // max(8, 1.5 * space)))
    edges = np.linspace(0, width, strips + 1).astype(np.int64)
    stands_out = _standing_out(_thin(ink, space), edges, space)
    chains: list[list[tuple[int, int, float]]] = []
    for strip in range(strips):
        for row, sure in _peaks(stands_out[strip], space):
            _link(chains, strip, row, sure, space)
    found = []
    for chain in chains:
        span = float(edges[chain[-1][0] + 1] - edges[chain[0][0]])
        if len(chain) >= 4 and span >= max(LEAST_WIDTH * space, 0.15 * width):
            rows = tuple(row for _, row, _ in chain)
            share = len(chain) / (chain[-1][0] - chain[0][0] + 1)
            sure = float(np.mean([sure for _, _, sure in chain])) * share
            notes = _notes(ink, edges, chain, space)
            found.append(_Chain(tuple(strip for strip, _, _ in chain), rows, sure, notes, space, edges))
    return found


def _thin(ink: Bits, space: float) -> Bits:
    """Keep ink in vertical runs no longer than a staff line's thickness."""
    starts, lengths, _ = _runs(ink)
    keep = lengths <= max(2.0, 0.35 * space)
    stride = ink.shape[0] + 1
    marks = np.zeros(ink.shape[1] * stride + 1, np.int8)
    marks[starts[keep]] += 1
    marks[(starts + lengths)[keep]] -= 1
    return np.asarray(np.cumsum(marks[:-1]).reshape(ink.shape[1], stride)[:, :-1].T > 0)


def _standing_out(thin: Bits, edges: npt.NDArray[np.int64], space: float) -> Reals:
    """Rate for each strip and row the prominence of five lines beginning there, without a sixth above or below."""
    sums = np.concatenate([np.zeros((thin.shape[0], 1)), np.cumsum(thin, axis=1)], axis=1)
    profiles = ((sums[:, edges[1:]] - sums[:, edges[:-1]]) / np.diff(edges)).T
    reach = max(1, round(0.12 * space))
    near = ndimage.maximum_filter1d(profiles, 2 * reach + 1, axis=1)
    pad = int(np.ceil(6 * space))
    padded = np.pad(near, ((0, 0), (pad, pad)))
    rows = np.arange(thin.shape[0]) + pad
    at = [padded[:, rows + round(line * space)] for line in range(-1, 6)]
    five = np.sort(np.stack(at[1:6]), axis=0)
    weakest = 0.7 * five[0] + 0.3 * five[1]  # a note or beam may hide a line in a strip
    between = np.pad(profiles, ((0, 0), (pad, pad)))
    gaps = np.mean([between[:, rows + round((line + 0.5) * space)] for line in range(4)], axis=0)
    return np.asarray(weakest - np.maximum(at[0], at[6]) - gaps)


def _peaks(values: Reals, space: float) -> list[tuple[int, float]]:
    """Return rows of locally most prominent five lines, no two within three staff spaces."""
    peaks: list[tuple[int, float]] = []
    for row in np.argsort(-values, kind="stable"):
        if values[row] < STRIP_SURE:
            break
        if all(abs(int(row) - other) > 3 * space for other, _ in peaks):
            peaks.append((int(row), float(values[row])))
    return peaks


def _link(chains: list[list[tuple[int, int, float]]], strip: int, row: int, sure: float, space: float) -> None:
    """Add a strip's finding to the chain ending nearest to it, or start a new chain."""
    near = [
        (abs(chain[-1][1] - row), chain)
        for chain in chains
        if strip - 4 <= chain[-1][0] < strip and abs(chain[-1][1] - row) <= max(2.0, 0.4 * space)
    ]
    if near:
        min(near, key=lambda item: item[0])[1].append((strip, row, sure))
    else:
        chains.append([(strip, row, sure)])


def _notes(ink: Bits, edges: npt.NDArray[np.int64], chain: list[tuple[int, int, float]], space: float) -> float:
    """Return the share of a staff's columns with ink crossing some lines but not the three in the middle at once.

    Heads, stems and accidentals do; text in a table's cells crosses none, its rules and bar lines cross all.
    """
    height = ink.shape[0]
    reach = max(2, round(0.3 * space))
    partial = columns = 0
    for strip, row, _ in chain:
        part = ink[:, edges[strip] : edges[strip + 1]]
        none = np.zeros(part.shape[1], np.bool_)
        lines = [round(row + line * space) for line in range(5)]
        crossed = [
            part[line - reach] & part[line + reach] & part[line] if reach <= line < height - reach else none
            for line in lines
        ]
        through = crossed[1] & crossed[2] & crossed[3]
        partial += int((np.any(crossed, axis=0) & ~through).sum())
        columns += part.shape[1]
    return partial / max(1, columns)


def _boxes(chains: list[_Chain], slope: float, scale: float, size: tuple[int, int]) -> list[Staff]:
    """Return boxes in the image's own pixels; of overlapping staves keep the surer one."""
    kept: list[Staff] = []
    for chain in sorted(chains, key=lambda chain: -chain.sure * len(chain.strips)):
        left, right = int(chain.edges[chain.strips[0]]), int(chain.edges[chain.strips[-1] + 1])
        centre = chain.edges[-1] / 2
        rows = [
            row + slope * (chain.edges[strip] - centre) for strip, row in zip(chain.strips, chain.rows, strict=True)
        ]
        top, bottom = max(0.0, min(rows)), max(rows) + 4 * chain.space
        box = [round(value / scale) for value in (left, top, right, bottom)]
        box = [min(max(0, value), limit) for value, limit in zip(box, size * 2, strict=True)]
        sure = _ramp(chain.sure, *SURE) * _ramp(chain.notes, *NOTES)
        staff = Staff(box[0], box[1], box[2] - box[0], box[3] - box[1], round(sure, 4))
        if not any(_overlap(staff, other) for other in kept):
            kept.append(staff)
    return sorted(kept, key=lambda staff: (staff.top, staff.left))


def _ramp(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _overlap(one: Staff, other: Staff) -> bool:
    down = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
    across = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
    return down > 0.3 * min(one.height, other.height) and across > 0.3 * min(one.width, other.width)
