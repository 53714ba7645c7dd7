"""Find the units that samples share: clips, prompts, systems, people.

Samples that share a unit depend on each other. The variance of a metric is the sum of the products of influences
(`influence.py`) over all such pairs: the two-way form of the cluster variance (Cameron, Gelbach and Miller 2011, JBES
29), and the dyadic one (Aronow, Samii and Assenova 2015, Political Analysis 23). No resample is drawn.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from earmark.schemas.errors import InputError
from earmark.schemas.evaluations import Evaluation
from earmark.tasks.evaluation.statistics import Floats

CLIPS = "clips"
CLIP_COLUMNS = (("a_audio", "a_clip"), ("b_audio", "b_clip"), ("audio", "clip_audio", "clip"))
MOST_UNITS = 8
"""Units of a sample: their sets are counted, two to this power."""


@dataclass(frozen=True)
class Units:
    """The units that samples share."""

    kinds: tuple[Any, ...]  # for each kind of unit, the sparse matrix of samples by units
    sets: Any  # the sparse matrix of samples by sets of units that they hold
    signs: Floats  # for each set, 1 if its size is odd, else -1

    @classmethod
    def of(cls, kinds: Sequence[Sequence[Iterable[Hashable]]]) -> Units:
        """Return the units of samples, from the labels of each sample for each kind; without a label, its own unit.

        Raises:
            InputError: a sample has more units than pairs of samples can be counted by.
        """
        held = [[[*dict.fromkeys(one)] or [("", place)] for place, one in enumerate(labels)] for labels in kinds]
        whole = [
            sorted({(kind, str(label)) for kind, labels in enumerate(one) for label in labels})
            for one in zip(*held, strict=True)
        ]
        if (most := max(map(len, whole), default=0)) > MOST_UNITS:
            raise InputError(f"expected at most {MOST_UNITS} sampled units for a sample, found one with {most}")
        sets = [[one for size in range(1, len(labels) + 1) for one in combinations(labels, size)] for labels in whole]
        matrix, known = _incidence(sets)
        signs = np.array([1.0 if len(one) % 2 else -1.0 for one in known])
        return cls(tuple(_incidence(one)[0] for one in held), matrix, signs)

    @classmethod
    def apart(cls, count: int) -> Units:
        """Return the units of samples that share none."""
        return cls.of([[()] * count])

    def independent(self, used: npt.NDArray[Any]) -> float:
        """Return the number of independent units behind these samples (a mask, or places): of the rarest kind, or of
        knots that share none.

        Where each sample has k units of a kind, the variance over them is as uncertain as from 1 / k² of them.
        """
        places = np.flatnonzero(used) if used.dtype == bool else used
        if not len(places):
            return 0.0
        held = [matrix[places] for matrix in self.kinds]
        found = [1 + (np.count_nonzero(one.sum(axis=0)) - 1) / (one.sum() / len(places)) ** 2 for one in held]
        both = sparse.hstack(held, format="csr")
        links = sparse.block_array([[None, both], [both.T, None]])
        labels = connected_components(links, directed=False)[1]
        knots = len(np.unique(labels[: len(places)]))
        return float(max(knots, min(found)))

    def variance(self, parts: Floats) -> Floats:
        """Return the variance of metrics from their influences (samples, metrics), at least that of independence.

        Samples that share any unit are counted once, by inclusion and exclusion of the sets of units.
        """
        shared = self.signs @ (self.sets.T @ parts) ** 2
        found: Floats = np.maximum(shared, (parts**2).sum(axis=0))
        return found


def _incidence(labels: Sequence[Sequence[Hashable]]) -> tuple[Any, list[Any]]:
    """Return the sparse matrix of samples by labels, and the labels."""
    numbers: dict[Hashable, int] = {}
    columns = [numbers.setdefault(one, len(numbers)) for held in labels for one in held]
    rows = np.repeat(np.arange(len(labels)), [len(held) for held in labels])
    shape = (len(labels), len(numbers))
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape), [*numbers]


# -- of an evaluation's samples -----------------------------------------------------------------------------------


def unit_columns(evaluation: Evaluation, columns: Iterable[str]) -> list[str]:
    """Return those of the columns that name clips, prompts and triplets."""
    named = [*(name for held in CLIP_COLUMNS for name in held), "cluster", evaluation.triplets or "cluster"]
    return [*dict.fromkeys(name for name in named if name in columns)]


def unit_labels(evaluation: Evaluation, rows: Sequence[Mapping[str, Any]], sampled: str = CLIPS) -> list[list[Any]]:
    """Return the labels of the units behind each sample, for each kind of unit.

    Args:
        rows: with the columns of `unit_columns` and of `sampled`.
        sampled: columns as a+b; `clips` are clips with their prompts.
    """
    kinds = []
    for name in sampled.split("+"):
        if name == CLIPS:
            kinds.append(_clip_labels(evaluation, rows))
        kinds.append([_several(row.get("cluster" if name == CLIPS else name)) for row in rows])
    return kinds


def _clip_labels(evaluation: Evaluation, rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the clips of each sample, by content, else by id; a triplet's pairs stand and fall with all its clips."""
    known = [[next((row[name] for name in held if row.get(name) is not None), None) for held in CLIP_COLUMNS]
             for row in rows]  # fmt: skip
    clips = [[one for one in held if one is not None] for held in known]
    if evaluation.triplets is None:
        return clips
    whole: dict[Any, list[Any]] = {}
    for row, held in zip(rows, clips, strict=True):
        whole.setdefault(row[evaluation.triplets], []).extend(held)
    return [whole[row[evaluation.triplets]] for row in rows]


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def sampled_words(sampled: str = CLIPS) -> str:
    """Say which samples count as dependent."""
    words = {CLIPS: "a clip, a prompt or a triplet"}
    what = " or ".join(words.get(one, f"the same {one}") for one in sampled.split("+"))
    return f"samples that share {what} count as dependent"
