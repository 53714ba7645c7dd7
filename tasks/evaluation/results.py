"""Predictions counted: the table that a paper prints, as facts and as Markdown. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from earmark.schemas.evaluations import Evaluation
from earmark.schemas.rubric_rewards import SHARE, YES, decide
from earmark.tasks.evaluation.asking import INCONSISTENT, Prediction
from earmark.tasks.evaluation.statistics import SMALL, accuracy, correlations, discrimination, resample

ALL = "all"
MEAN = "mean of groups"
BASELINE = "baseline"
LABELS = {
    "accuracy": "accuracy", "accuracy_tie_half": "tie counts ½", "accuracy_share": f"share of yes ≥ {SHARE}",
    "accuracy_threshold": "score ≥ threshold", "auroc": "AUROC", "eer": "EER",
    "lcc": "LCC", "srcc": "SRCC", "ktau": "K-Tau",
    "ccs": "CCS", "clap": "CLAP", "fad": "FAD",
}  # fmt: skip
SCORED = {"scalar": correlations, "yes_no": discrimination}  # what scores are worth, by kind
NOT_MEASURED = ("no_media", "no_items", "no_such_option")
"""Reasons for which a sample leaves the evaluation: nobody was asked, or no answer would be right."""


@dataclass(frozen=True)
class Threshold:
    """From which score on a sample is yes, and where that comes from."""

    value: float
    source: str


def credits_of(
    evaluation: Evaluation, target: Any, prediction: Prediction, threshold: Threshold | None
) -> dict[str, float]:
    """How right a prediction is, 0 to 1, by each rule of its kind; without an answer it is wrong.

    The first, `accuracy`, is strict: a tie is right only where a tie is true; a sample with items is yes only if every
    item is. Empty for scalars, which only correlate.
    """
    if evaluation.kind == "scalar":
        return {}
    if evaluation.kind != "yes_no":
        right = float(prediction.choice is not None and prediction.choice == target)
        if evaluation.kind == "choice":
            return {"accuracy": right}
        return {"accuracy": right, "accuracy_tie_half": 0.5 if prediction.choice == "tie" != target else right}
    score = prediction.score
    items = [one["score"] for one in prediction.items] or [score]
    found = {
        "accuracy": score is not None and decide(items) == target,
        "accuracy_share": score is not None and decide(items, SHARE) == target,
    }
    if threshold is not None:
        found["accuracy_threshold"] = score is not None and (score >= threshold.value) == target
    return {name: float(right) for name, right in found.items()}


class Measured:
    """Predictions beside what is true, as columns: what every row of the table is counted from."""

    def __init__(
        self,
        evaluation: Evaluation,
        rows: Sequence[Mapping[str, Any]],
        predictions: Sequence[Prediction],
        threshold: Threshold | None,
    ) -> None:
        self._kind = evaluation.kind
        self.answered = np.array([one.answered for one in predictions], bool)
        credits = [
            credits_of(evaluation, row["target"], one, threshold) for row, one in zip(rows, predictions, strict=True)
        ]
        self.credits = {name: np.array([one[name] for one in credits]) for name in (credits[0] if credits else ())}
        if self._kind == "yes_no" and not any(one.items for one in predictions):
            self.credits.pop("accuracy_share", None)
        if self._kind in SCORED:
            self._scores = np.array([np.nan if one.score is None else one.score for one in predictions])
            self._targets = np.array([row["target"] for row in rows], float)
        self.clusters = None
        if rows and "cluster" in rows[0]:
            self.clusters = pd.factorize(np.array([row["cluster"] for row in rows], object), use_na_sentinel=False)[0]

    def row(self, group: str | None, value: str, places: Any) -> dict[str, Any]:
        """A row of the table: the samples at these places."""
        places = np.asarray(places)
        answered = places[self.answered[places]]
        clusters, of_answered = (None if self.clusters is None else self.clusters[at] for at in (places, answered))
        metrics = {name: accuracy(credit[places], clusters) for name, credit in self.credits.items()}
        if self._kind in SCORED:
            metrics |= SCORED[self._kind](self._scores[answered], self._targets[answered], of_answered)
        facts = {name: {"value": one.value, "low": one.low, "high": one.high} for name, one in metrics.items()}
        small = any(one.small for one in metrics.values())
        counts = {"samples": len(places), "answered": len(answered)}
        return {"group": group, "value": value, **counts, "small": small, "metrics": facts}

    def resampled(self, places: Any) -> dict[str, tuple[float | None, Any]]:
        """What scores are worth at these places, which have an answer, and the same over resamples."""
        x, y = self._scores[places], self._targets[places]
        clusters = None if self.clusters is None else self.clusters[places]
        drawn = resample("correlations" if self._kind == "scalar" else "discrimination", x, y, clusters)
        return {name: (one.value, drawn[name]) for name, one in SCORED[self._kind](x, y, clusters).items()}


def count(
    evaluation: Evaluation,
    rows: Sequence[Mapping[str, Any]],
    predictions: Mapping[str, Prediction],
    threshold: Threshold | None = None,
    baselines: Mapping[str, Mapping[str, Prediction]] | None = None,
) -> dict[str, Any]:
    """The table of results.

    A sample without an answer is wrong; scores correlate, and AUROC is taken, over those that have one.

    Args:
        rows: a row a sample: `id`, `target`, the columns of its groups, and `cluster` where it has one.
        predictions: by id, one for each row; of baselines, by the name of who makes them too.
        threshold: of yes by score, beside the rules about items.

    Returns:
        `rows`: one for all, then one a group, then one a baseline; `left_out`: samples in no row, by reason;
        `unanswered`: samples by reason; `inconsistent`: samples of which both orders say different things, which count
        as wrong; `ties`: predicted ones; `accuracy_answered`: were samples without an answer left out.
    """
    left = Counter(one.reason for one in predictions.values() if one.reason in NOT_MEASURED)
    rows = [row for row in rows if predictions[row["id"]].reason not in NOT_MEASURED]
    found = [predictions[row["id"]] for row in rows]
    measured = Measured(evaluation, rows, found, threshold)
    table = [measured.row(None, ALL, range(len(rows)))]
    for group in evaluation.groups:
        blocks = [measured.row(group, value, places) for value, places in _members(group, rows)]
        table += blocks
        if group == evaluation.groups[0] and len(blocks) > 1:
            table.append(_mean(group, blocks))
    for name, said in (baselines or {}).items():
        control = Measured(evaluation, rows, [said[row["id"]] for row in rows], None)
        table.append(control.row(BASELINE, name, range(len(rows))))
    facts: dict[str, Any] = {
        "samples": len(rows),
        "answered": int(measured.answered.sum()),
        "left_out": dict(sorted(left.items())),
        "unanswered": dict(sorted(Counter(one.reason for one in found if not one.answered).items())),
        "inconsistent": sum(one.choice == INCONSISTENT for one in found),
        "ties": sum(one.choice == "tie" for one in found),
        "threshold": None if threshold is None else {"value": threshold.value, "source": threshold.source},
        "rows": table,
    }
    if evaluation.triplets:
        facts["cycles"] = cycles(evaluation, rows, found)
    if evaluation.kind != "scalar" and facts["answered"]:
        facts["accuracy_answered"] = float(measured.credits["accuracy"][measured.answered].mean())
    return facts


def cycles(
    evaluation: Evaluation, rows: Sequence[Mapping[str, Any]], predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Of the triplets with a preferred clip in each pair, how many in a hundred have another one in each."""
    winners: dict[Any, list[Any]] = {}
    for row, one in zip(rows, predictions, strict=True):
        won = winners.setdefault(row[evaluation.triplets or ""], [])
        if one.choice in evaluation.sides:
            won.append(row[evaluation.clip_columns[evaluation.sides.index(one.choice)]])
    strict = [len(set(won)) == 3 for won in winners.values() if len(won) == 3]
    share = accuracy(strict)
    hundred = [None if value is None else 100 * value for value in (share.value, share.low, share.high)]
    counts = {"triplets": len(winners), "decided": len(strict), "cycles": sum(strict)}
    return counts | dict(zip(("per_100", "low", "high"), hundred, strict=True))


def _members(group: str, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    """The places of each group's rows; rows with a null in a column are in none, those with a list in each."""
    names = group.split("+")
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        for values in product(*(row[name] if isinstance(row[name], list) else [row[name]] for name in names)):
            if None not in values:
                places.setdefault(values, []).append(place)
    ordered = sorted(places, key=lambda values: [(isinstance(v, str), v) for v in values])
    words = {True: "yes", False: "no"}
    named = [[words[v] if isinstance(v, bool) else str(v) for v in values] for values in ordered]
    return [(" / ".join(name), places[values]) for name, values in zip(named, ordered, strict=True)]


def _mean(group: str, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean over groups, each counting the same; None where a group has no value."""
    metrics = {}
    for name in blocks[0]["metrics"]:
        values = [block["metrics"][name]["value"] for block in blocks]
        mean = None if None in values else sum(values) / len(values)
        metrics[name] = {"value": mean, "low": None, "high": None}
    summed = {key: sum(block[key] for block in blocks) for key in ("samples", "answered")}
    return {"group": group, "value": MEAN, **summed, "small": False, "metrics": metrics}


def headings(facts: Mapping[str, Any]) -> list[str]:
    """The table's columns."""
    return ["group", "samples", "answered", *(LABELS[name] for name in facts["rows"][0]["metrics"])]


def cells(facts: Mapping[str, Any]) -> Iterator[list[str]]:
    """The table's rows as text: values with their interval of 95 %; ° marks groups too small for it."""
    names = list(facts["rows"][0]["metrics"])
    for row in facts["rows"]:
        name = row["value"] if row["group"] is None else f"{row['group']}: {row['value']}"
        shown = [cell(row["metrics"][one]) if one in row["metrics"] else "" for one in names]
        yield [name + (" °" if row["small"] else ""), f"{row['samples']:,}", f"{row['answered']:,}", *shown]


def cell(metric: Mapping[str, float | None] | None, form: str = ".3f") -> str:
    """A value as text, with its interval where it has one."""
    if metric is None or metric["value"] is None:
        return "–"
    if metric["low"] is None or metric["high"] is None:
        return f"{metric['value']:{form}}"
    return f"{metric['value']:{form}} [{metric['low']:{form}}, {metric['high']:{form}}]"


def notes(facts: Mapping[str, Any]) -> list[str]:
    """What a reader of the table must know, a sentence each."""
    said = []
    if facts["left_out"]:
        said.append(f"left out, for no answer could be right or none was asked for: {_reasons(facts['left_out'])}")
    if missing := facts["samples"] - facts["answered"]:
        line = f"{missing:,} of {facts['samples']:,} samples have no answer ({_reasons(facts['unanswered'])})"
        of_answered = facts.get("accuracy_answered")
        said.append(line + (" and are in no metric" if of_answered is None else " and count as wrong"))
        said[-1] += f"; accuracy of those answered: {of_answered:.3f}" if of_answered is not None else ""
    if facts["inconsistent"]:
        said.append(f"{facts['inconsistent']:,} samples were answered differently in the two orders: counted as wrong")
    if facts["ties"]:
        said.append(f"{facts['ties']:,} ties were predicted: wrong in the accuracy unless a tie is true, ½ beside it")
    if facts["kind"] == "yes_no":
        said.append(f"accuracy: yes where every item is above {YES}; without items, where the score is")
    if facts["threshold"] is not None:
        said.append(f"threshold of the score: {facts['threshold']['value']:.4g}, from {facts['threshold']['source']}")
    if turns := facts.get("cycles"):
        said.append(
            f"cycles: {turns['cycles']:,} in {turns['decided']:,} of {turns['triplets']:,} triplets, those without ties"
            + (f": {turns['per_100']:.2f} in a hundred" if turns["decided"] else "")
            + (f" [{turns['low']:.2f}, {turns['high']:.2f}]" if turns["low"] is not None else "")
        )
    if facts.get("reachable"):
        most = "at most " if not facts["reachable"]["exact"] else ""
        said.append(
            f"highest accuracy that one score a clip can reach here: {most}{facts['reachable']['accuracy']:.3f}"
        )
    said += facts.get("without", [])
    if any(row["small"] for row in facts["rows"]):
        said.append(f"° fewer than {SMALL} independent samples: the interval tells little")
    return said


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in counts.items())


def source_of(facts: Mapping[str, Any]) -> str:
    """Who or what was measured."""
    if facts["annotator"]:
        how = ", both orders" if facts.get("both_orders") else ""
        how += f", {facts['draws']} draws" if facts.get("draws", 1) > 1 else ""
        how += f", a control without the {facts['blind']}" if facts.get("blind") else ""
        return f"{facts['annotator']}, mode {facts['mode']}{how}"
    return f"scores of {facts['scores']}" + (" a clip" if facts.get("per_clip") else "")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return [lines[0], "|" + "|".join("---" for _ in head) + "|", *lines[1:]]


def as_markdown(facts: Mapping[str, Any]) -> str:
    """The table as a page."""
    title = f"# {facts['corpus']} {facts['version']}: {facts['evaluation']}"
    asked = source_of(facts) + (f" ({facts['order']})" if facts.get("order") else "")
    lines = [title, "", f"{facts['says']} Measured: {asked}.", "", *markdown_table(headings(facts), cells(facts))]
    lines += ["", "In brackets: intervals of 95 % by bootstrap.", *(f"- {note}" for note in notes(facts))]
    return "\n".join(lines) + "\n"
