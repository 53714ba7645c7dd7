"""The rules of pairs and triplets once more, in plain Python, to hold the published tables against.

Written from the words of the method, not from the queries: every pair of clips is looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

Row = Mapping[str, Any]
SAME_MEAN = 1e-9


def shared(x: Row, y: Row, fact: str) -> bool:
    """Both are known, and equal."""
    return x[fact] is not None and x[fact] == y[fact]


def differs(x: Row, y: Row, fact: str) -> bool:
    """Both are known, and not equal."""
    return x[fact] is not None and y[fact] is not None and x[fact] != y[fact]


def group_of(x: Row, y: Row) -> tuple[str, str] | None:
    """Category and name of the group in which two clips may be paired, MOS aside."""
    if any(x[fact] != y[fact] for fact in ("dataset", "split", "subset")):
        return None
    place = "/".join(part for part in (x["dataset"], x["split"], x["subset"]) if part is not None)
    if shared(x, y, "content_id"):
        if any(differs(x, y, fact) for fact in ("system_id", "speaker_id", "condition_id")):
            return "same_content", f"{place}/content:{x['content_id']}"
        return None
    for fact, word in (("system_id", "system"), ("speaker_id", "speaker")):
        if shared(x, y, fact):
            nameless = word == "system" and x["content_id"] is None and y["content_id"] is None
            other = differs(x, y, "content_id") or nameless  # a test plays no stimulus under two names
            return ("same_source", f"{place}/{word}:{x[fact]}") if other else None
    return "unmatched", f"{place}/all"


def far_enough(x: Row, y: Row, min_gap: float) -> bool:
    """The two means differ, and by no less than the config asks."""
    return abs(x["mos"] - y["mos"]) >= max(min_gap - SAME_MEAN, SAME_MEAN)


def possible_pairs(ratings: Sequence[Row], min_gap: float) -> dict[frozenset[str], tuple[Row, str]]:
    """Every pair that may be drawn, with one of its clips (for dataset and split) and its category."""
    found = {}
    for x, y in combinations(ratings, 2):
        group = group_of(x, y)
        if group is not None and far_enough(x, y, min_gap):
            found[frozenset((x["sample_id"], y["sample_id"]))] = (x, group[0])
    return found


def check_pairs(ratings: Sequence[Row], pairs: Sequence[Row], min_gap: float, per_clip: int | None) -> None:
    """Hold every pair against the rules that do not depend on how many are drawn."""
    clips = {row["sample_id"]: row for row in ratings}
    unordered = [frozenset((pair["chosen_id"], pair["rejected_id"])) for pair in pairs]
    assert all(len(pair) == 2 for pair in unordered), "a clip is paired with itself"
    assert len(set(unordered)) == len(pairs), "a pair stands twice"
    assert len({pair["pair_id"] for pair in pairs}) == len(pairs)
    for pair in pairs:
        chosen, rejected = clips[pair["chosen_id"]], clips[pair["rejected_id"]]
        assert (pair["category"], pair["group_id"]) == group_of(chosen, rejected)
        assert (pair["dataset"], pair["split"]) == (chosen["dataset"], chosen["split"])
        assert far_enough(chosen, rejected, min_gap)
        assert (pair["chosen_mos"], pair["rejected_mos"]) == (chosen["mos"], rejected["mos"])
        assert pair["mos_gap"] == chosen["mos"] - rejected["mos"] > 0
    uses = Counter(clip for pair in unordered for clip in pair)
    if per_clip is not None:
        assert all(count <= per_clip for count in uses.values())
    check_gap_scale(clips, pairs)
    check_probabilities(clips, pairs)


def check_gap_scale(clips: Mapping[str, Row], pairs: Sequence[Row]) -> None:
    """Normalised gaps dataset by dataset over all splits, tenths within each dataset and split, by pandas."""
    if not pairs:
        return
    frame = pd.DataFrame(pairs)
    widths = pd.Series({name: clip["scale_max"] - clip["scale_min"] for name, clip in clips.items()})
    width = frame["chosen_id"].map(widths)
    frame["wide"] = frame["mos_gap"] * width.groupby(frame["dataset"]).transform("max") / width
    most = frame.groupby("dataset")["wide"].transform(lambda gaps: gaps.quantile(0.9))
    np.testing.assert_allclose(frame["mos_gap_normalized"], (frame["wide"] / most).clip(upper=1), rtol=1e-12)
    for _, part in frame.groupby(["dataset", "split"]):
        sizes = part["gap_decile"].value_counts()
        assert sorted(sizes.index) == list(range(1, min(len(part), 10) + 1))
        assert sizes.max() - sizes.min() <= 1
        assert (
            part.assign(wide=part["wide"].round(9))
            .sort_values("wide", kind="stable")
            .groupby("gap_decile")["wide"]
            .agg(["min", "max"])
            .stack()
            .is_monotonic_increasing
        )


def check_probabilities(clips: Mapping[str, Row], pairs: Iterable[Row]) -> None:
    """Standard errors and the probability that the chosen clip is truly better."""
    for pair in pairs:
        errors = []
        for side in ("chosen", "rejected"):
            clip = clips[pair[f"{side}_id"]]
            known = clip["mos_std"] is not None and clip["votes"] is not None
            error = clip["mos_std"] / math.sqrt(clip["votes"]) if known else None
            assert (pair[f"{side}_mos_se"] is None) == (error is None)
            assert error is None or math.isclose(pair[f"{side}_mos_se"], error, rel_tol=1e-12, abs_tol=1e-300)
            errors.append(error)
        found = pair["chosen_better_probability"]
        if None in errors or not any(errors):
            assert found is None
        else:
            z = pair["mos_gap"] / math.hypot(*errors)
            assert math.isclose(found, 0.5 * math.erfc(-z / math.sqrt(2)), abs_tol=1e-13)


def check_triplets(ratings: Sequence[Row], triplets: Sequence[Row], min_gap: float) -> None:
    """A > B > C in one group, of which every two could be a pair of that group; none twice."""
    clips = {row["sample_id"]: row for row in ratings}
    members = [frozenset(row[f"{place}_id"] for place in "abc") for row in triplets]
    assert len(set(members)) == len(triplets) == len({row["triplet_id"] for row in triplets})
    for row in triplets:
        a, b, c = (clips[row[f"{place}_id"]] for place in "abc")
        assert a["mos"] > b["mos"] > c["mos"]
        assert (row["a_mos"], row["b_mos"], row["c_mos"]) == (a["mos"], b["mos"], c["mos"])
        for x, y in ((a, b), (b, c), (a, c)):
            assert group_of(x, y) == (row["category"], row["group_id"])
            assert far_enough(x, y, min_gap)
        assert (row["dataset"], row["split"]) == (a["dataset"], a["split"])
