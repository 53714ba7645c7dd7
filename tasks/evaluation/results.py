"""Count predictions: make the table of a paper. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from earmark.schemas.evaluations import Evaluation
from earmark.schemas.results import AskedFacts, CountedFacts, CycleFacts, EvaluationFacts, MetricFacts, ResultRow
from earmark.schemas.rubric_rewards import SHARE
from earmark.tasks.evaluation.influence import SMALL, Influence, estimates, mean, measure
from earmark.tasks.evaluation.kinds import INCONSISTENT, MeasuredSample, Prediction, clip_columns, find_kind
from earmark.tasks.evaluation.statistics import Floats, Places
from earmark.tasks.evaluation.units import Units, sampled_words, unit_labels
from earmark.tasks.store.result_table import ResultColumn, ResultPage, ResultTable, Value, interval

ALL = "all"
MEAN = "mean of groups"
BASELINE = "baseline"
LABELS = {
    "accuracy": "accuracy", "accuracy_tie_half": "tie counts ½", "accuracy_share": f"share of yes ≥ {SHARE}",
    "accuracy_threshold": "score ≥ threshold", "auroc": "AUROC", "eer": "EER",
    "lcc": "LCC", "srcc": "SRCC", "ktau": "K-Tau", "mse": "MSE",
    "ccs": "CCS", "clap": "CLAP", "fad": "FAD",
}  # fmt: skip
LOWER = ("eer", "fad", "mse", "error", "cycles")  # metrics of which less is better
LEVEL: Final = "system"  # the column whose means scalars are measured on too
MEANS_BY = "means by"
INTERVALS = f"in brackets: intervals of 95 %; {sampled_words()}"
NOT_MEASURED = ("no_media", "no_items", "no_such_option")
"""Reasons to leave a sample out of the evaluation: nobody was asked, or no answer would be right."""


@dataclass(frozen=True)
class Threshold:
    """Least score of a yes, and its source."""

    value: float
    source: str


@dataclass(frozen=True)
class Measured:
    """Predictions and truths as columns, the basis of every row of the table."""

    kind: str
    units: Units
    answered: npt.NDArray[np.bool_]
    credits: dict[str, Floats] = field(default_factory=dict)  # correctness by rule
    scores: Floats = field(default_factory=lambda: np.zeros(0))  # of a kind whose scores are measured; else empty
    targets: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(
        cls,
        evaluation: Evaluation,
        rows: Sequence[MeasuredSample],
        predictions: Sequence[Prediction],
        threshold: Threshold | None,
        units: Units,
    ) -> Measured:
        """Return the columns of these rows."""
        kind, least = find_kind(evaluation.kind), threshold.value if threshold else None
        answered = np.array([one.answered for one in predictions], bool)
        by_row = [kind.credits(row["target"], one, least) for row, one in zip(rows, predictions, strict=True)]
        credits = {name: np.array([one[name] for one in by_row]) for name in (by_row[0] if by_row else ())}
        if not kind.scored:
            return cls(evaluation.kind, units, answered, credits)
        if not any(one.items for one in predictions):
            credits.pop("accuracy_share", None)
        scores = np.array([np.nan if one.score is None else one.score for one in predictions], float)
        targets = np.array([row["target"] for row in rows], float)
        return cls(evaluation.kind, units, answered, credits, scores, targets)

    def means_by(self, labels: Sequence[Any]) -> Measured:
        """Return the mean scores and truths of the answered samples by label, each label a sample of its own."""
        named = pd.DataFrame({"by": labels, "score": self.scores, "target": self.targets})[self.answered]
        means = named.groupby("by").mean()
        scores, targets = (means[name].to_numpy() for name in ("score", "target"))
        return Measured(self.kind, Units.apart(len(means)), np.ones(len(means), bool), {}, scores, targets)

    def influences(self, answered: Places) -> dict[str, Influence]:
        """Return the metrics of scores at these answered places."""
        x, y = (values[answered] if len(values) else values for values in (self.scores, self.targets))
        return {name: measure(name, x, y) for name in find_kind(self.kind).scored}

    def row(self, group: str | None, value: str, places: Any = None, scored: Places | None = None) -> ResultRow:
        """Return a row of the table, for the samples at these places, by default all.

        Args:
            scored: places whose scores are measured, by default all answered ones.
        """
        places = np.arange(len(self.answered)) if places is None else np.asarray(places)
        answered = places[self.answered[places]]
        right = {name: mean(credit[places]) for name, credit in self.credits.items()}
        metrics = estimates(right, self.units, places) if right else {}
        of_scores = answered if scored is None else scored
        if found := self.influences(of_scores):
            metrics |= estimates(found, self.units, of_scores)
        small = any(one.small for one in metrics.values())
        facts = {name: one.facts() for name, one in metrics.items()}
        return ResultRow(
            group=group, value=value, samples=len(places), answered=len(answered), small=small, metrics=facts
        )


def count(
    evaluation: Evaluation,
    rows: Sequence[MeasuredSample],
    predictions: Mapping[str, Prediction],
    threshold: Threshold | None = None,
    baselines: Mapping[str, Mapping[str, Prediction]] | None = None,
) -> CountedFacts:
    """Make the table of results.

    A sample without an answer is wrong; correlations and AUROC are over the samples with a score.

    Args:
        rows: one row per sample: `id`, `target`, the columns of its groups, and those of its units (`unit_columns`).
        predictions: by id, one for each row.
        threshold: least score of a yes, beside the rules about items.
        baselines: predictions by id, by the baseline's name.
    """
    left = Counter(str(one.reason) for one in predictions.values() if one.reason in NOT_MEASURED)
    rows = [row for row in rows if predictions[row["id"]].reason not in NOT_MEASURED]
    found = [predictions[row["id"]] for row in rows]
    units = Units.of(unit_labels(evaluation, rows))
    measured = Measured.of(evaluation, rows, found, threshold, units)
    table = [measured.row(None, ALL)]
    for group in evaluation.groups:
        blocks = [measured.row(group, value, places) for value, places in members(group, rows)]
        table += blocks
        if group == evaluation.groups[0] and len(blocks) > 1:
            table.append(_mean(group, blocks))
    credited = find_kind(evaluation.kind).credited
    if not credited and any(row.get(LEVEL) for row in rows):
        table.append(measured.means_by([row[LEVEL] for row in rows]).row(MEANS_BY, LEVEL))
    for name, said in (baselines or {}).items():
        control = Measured.of(evaluation, rows, [said[row["id"]] for row in rows], None, units)
        table.append(control.row(BASELINE, name))
    facts: CountedFacts = {
        "samples": len(rows),
        "answered": int(measured.answered.sum()),
        "left_out": dict(sorted(left.items())),
        "unanswered": dict(sorted(Counter(str(one.reason) for one in found if not one.answered).items())),
        "inconsistent": sum(one.choice == INCONSISTENT for one in found),
        "ties": sum(one.choice == "tie" for one in found),
        "threshold": asdict(threshold) if threshold else None,
        "rows": table,
    }
    if evaluation.triplets:
        facts["cycles"] = cycles(evaluation, rows, found)
    if credited and facts["answered"]:
        facts["accuracy_answered"] = float(measured.credits["accuracy"][measured.answered].mean())
    return facts


def cycles(evaluation: Evaluation, rows: Sequence[Mapping[str, Any]], predictions: Sequence[Prediction]) -> CycleFacts:
    """Count cycles: triplets with another preferred clip in each pair, per hundred triplets with one in each pair."""
    winners: dict[Any, list[Any]] = {}
    clips: dict[Any, list[Any]] = {}
    for row, one, held in zip(rows, predictions, unit_labels(evaluation, rows)[0], strict=True):
        triplet = row[evaluation.triplets or ""]
        clips[triplet], won = held, winners.setdefault(triplet, [])
        if one.choice in evaluation.sides:
            won.append(row[clip_columns(evaluation)[evaluation.sides.index(one.choice)]])
    strict = {triplet: len(set(won)) == 3 for triplet, won in winners.items() if len(won) == 3}
    units = Units.of([[clips[triplet] for triplet in strict]])
    share = estimates({"cycles": mean(np.array([*strict.values()], float))}, units)["cycles"]
    per_100, low, high = (None if value is None else 100 * value for value in share[:3])
    decided, turned = len(strict), sum(strict.values())
    return CycleFacts(triplets=len(winners), decided=decided, cycles=turned, per_100=per_100, low=low, high=high)


def members(group: str, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    """Return the places of each group's rows; a null in a column means no group, a list several groups."""
    names = group.split("+")
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        held = product(*(row[name] if isinstance(row[name], list) else [row[name]] for name in names))
        for values in dict.fromkeys(held):
            if None not in values:
                places.setdefault(values, []).append(place)
    ordered = sorted(places, key=lambda values: [(isinstance(v, str), v) for v in values])
    words = {True: "yes", False: "no"}
    named = [[words[v] if isinstance(v, bool) else str(v) for v in values] for values in ordered]
    return [(" / ".join(name), places[values]) for name, values in zip(named, ordered, strict=True)]


def _mean(group: str, blocks: Sequence[ResultRow]) -> ResultRow:
    """Return the unweighted mean over groups; None if a group has no value."""
    metrics: dict[str, MetricFacts] = {}
    for name in blocks[0]["metrics"]:
        values = [block["metrics"][name]["value"] for block in blocks]
        known = [value for value in values if value is not None]
        mean = sum(known) / len(known) if len(known) == len(values) else None
        metrics[name] = {"value": mean, "low": None, "high": None}
    samples, answered = sum(block["samples"] for block in blocks), sum(block["answered"] for block in blocks)
    return ResultRow(group=group, value=MEAN, samples=samples, answered=answered, small=False, metrics=metrics)


def metric_column(name: str, *, ranked: bool = False) -> ResultColumn:
    """Return the column of a metric; `ranked` marks its best values."""
    best: Literal["highest", "lowest"] | None = None
    if ranked:
        best = "lowest" if name in LOWER else "highest"
    return ResultColumn(LABELS.get(name, name), decimals=3, best=best)


def result_table(results: Sequence[ResultRow], title: str = "", first: str = "group") -> ResultTable:
    """Tabulate rows of results: groups of samples with baselines below, or models; ° marks groups too small for their
    interval."""
    names = list(results[0]["metrics"])
    rows, footings = list[tuple[Value, ...]](), list[tuple[Value, ...]]()
    for row in results:
        name = row["value"] if row["group"] is None else f"{row['group']}: {row['value']}"
        found = (interval(row["metrics"][one]) if one in row["metrics"] else "" for one in names)
        cells = (name + (" °" if row["small"] else ""), row["samples"], row["answered"], *found)
        (footings if row["group"] == BASELINE else rows).append(cells)
    metrics = [metric_column(name, ranked=first == "model") for name in names]
    columns: tuple[str | ResultColumn, ...] = (first, "samples", "answered", *metrics)
    return ResultTable(title, columns, tuple(rows), footings=tuple(footings), drop=("answered",))


def notes(facts: EvaluationFacts) -> list[str]:
    """Return notes for readers of the table, a sentence each."""
    said = []
    if facts["left_out"]:
        said.append(f"left out, for no answer could be right or none was asked for: {_reasons(facts['left_out'])}")
    if missing := facts["samples"] - facts["answered"]:
        line = f"{missing:,} of {facts['samples']:,} samples have no answer ({_reasons(facts['unanswered'])})"
        of_answered = facts.get("accuracy_answered")
        said.append(line + (" and are in no metric" if of_answered is None else " and count as wrong"))
        said[-1] += f"; accuracy of those answered: {of_answered:.3f}" if of_answered is not None else ""
    if facts["inconsistent"]:
        said.append(f"samples answered differently in the two orders, counted as wrong: {facts['inconsistent']:,}")
    if facts["ties"]:
        said.append(f"predicted ties, wrong in the accuracy unless a tie is true, ½ beside it: {facts['ties']:,}")
    said += filter(None, [find_kind(facts["kind"]).note])
    if least := facts["threshold"]:
        said.append(f"threshold of the score: {least['value']:.4g}, from {least['source']}")
    if turns := facts.get("cycles"):
        said.append(
            f"cycles: {turns['cycles']:,} in {turns['decided']:,} of {turns['triplets']:,} triplets, those without ties"
            + (f": {turns['per_100']:.2f} in a hundred" if turns["decided"] else "")
            + (f" [{turns['low']:.2f}, {turns['high']:.2f}]" if turns["low"] is not None else "")
        )
    if most := facts.get("reachable"):
        bound = "" if most["exact"] else "at most "
        said.append(f"highest accuracy that one score a clip can reach here: {bound}{most['accuracy']:.3f}")
    said += facts.get("without", [])
    if any(row["small"] for row in facts["rows"]):
        said.append(f"° fewer than {SMALL} independent samples: the interval tells little")
    return said


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in counts.items())


def source_of(facts: AskedFacts) -> str:
    """Return the name of the measured model or file."""
    if facts["annotator"]:
        how = ", both orders" if facts.get("both_orders") else ""
        how += f", {facts['draws']} draws" if facts.get("draws", 1) > 1 else ""
        how += f", a control without the {facts['blind']}" if facts.get("blind") else ""
        return f"{facts['annotator']}, mode {facts['mode']}{how}"
    return f"scores of {facts['scores']}" + (" a clip" if facts.get("per_clip") else "")


def evaluation_page(facts: EvaluationFacts) -> ResultPage:
    """Return the page of an evaluation."""
    asked = source_of(facts) + (f" ({facts['order']})" if facts.get("order") else "")
    return ResultPage(
        f"{facts['corpus']} {facts['version']}: {facts['evaluation']}",
        (result_table(facts["rows"]),),
        (INTERVALS, *notes(facts)),
        f"{facts['says']} Measured: {asked}.",
    )
