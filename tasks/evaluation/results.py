"""Predictions counted: the table that a paper prints, as facts and as Markdown. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.evaluations import METRICS as OF_KIND
from schemas.evaluations import Evaluation
from tasks.evaluation.asking import INCONSISTENT, Prediction
from tasks.evaluation.statistics import LABELS, METRICS, SMALL, Estimate

ALL = "all"
MEAN = "mean of groups"


def is_right(evaluation: Evaluation, target: Any, prediction: Prediction) -> bool | None:
    """Whether a prediction is what is true; None without an answer, or where scores only correlate."""
    if evaluation.kind == "scalar" or not prediction.answered:
        return None
    if evaluation.kind == "yes_no":
        assert prediction.score is not None
        return bool((prediction.score >= evaluation.threshold) == target)
    return bool(prediction.choice == target)


def count(
    evaluation: Evaluation, rows: Sequence[Mapping[str, Any]], predictions: Mapping[str, Prediction]
) -> dict[str, Any]:
    """The table of results.

    A sample without an answer is in no metric; `samples` and `answered` tell how many there are.

    Args:
        evaluation: what is measured.
        rows: a row a sample: `id`, `target`, the columns of its groups, and `cluster` where it has one.
        predictions: by id, one for each row.

    Returns:
        `rows`: one for all, then one a group with its metrics; `unanswered`: samples by reason; `inconsistent`: samples
        of which both orders say different things, which count as wrong; `all_wrong`: the accuracy, were every sample
        without an answer wrong.
    """
    found = [predictions[row["id"]] for row in rows]
    answered = [place for place, one in enumerate(found) if one.answered]
    table = [_row(evaluation, None, ALL, range(len(rows)), rows, found)]
    for group in evaluation.groups:
        members = _members(group, rows)
        blocks = [_row(evaluation, group, value, places, rows, found) for value, places in members]
        table += blocks
        if group == evaluation.groups[0] and len(blocks) > 1:
            table.append(_mean(evaluation, group, blocks))
    facts: dict[str, Any] = {
        "samples": len(rows),
        "answered": len(answered),
        "unanswered": dict(sorted(Counter(one.reason for one in found if not one.answered).items())),
        "inconsistent": sum(one.choice == INCONSISTENT for one in found),
        "rows": table,
    }
    if evaluation.kind != "scalar":
        rights = [is_right(evaluation, rows[place]["target"], found[place]) for place in answered]
        facts["all_wrong"] = sum(map(bool, rights)) / len(rows)
    return facts


def _members(group: str, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    """The places of each group's rows; rows with a null in a column are in none."""
    names = group.split("+")
    found: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        values = tuple(row[name] for name in names)
        if None not in values:
            found.setdefault(values, []).append(place)
    ordered = sorted(found, key=lambda values: [(isinstance(v, str), v) for v in values])
    return [(" / ".join(map(_said, values)), found[values]) for values in ordered]


def _said(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _row(
    evaluation: Evaluation,
    group: str | None,
    value: str,
    places: Sequence[int],
    rows: Sequence[Mapping[str, Any]],
    found: Sequence[Prediction],
) -> dict[str, Any]:
    answered = [place for place in places if found[place].answered]
    clusters = [rows[place]["cluster"] for place in answered] if "cluster" in rows[places[0]] else None
    metrics = {}
    for name in OF_KIND[evaluation.kind]:
        if name == "accuracy":
            rights = [bool(is_right(evaluation, rows[place]["target"], found[place])) for place in answered]
            estimate = METRICS[name](rights, clusters)
        else:
            scores = [found[place].score for place in answered]
            estimate = METRICS[name](scores, [rows[place]["target"] for place in answered], clusters)
        metrics[name] = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {
        "group": group,
        "value": value,
        "samples": len(places),
        "answered": len(answered),
        "small": _small(estimate),
        "metrics": metrics,
    }


def _small(estimate: Estimate) -> bool:
    return estimate.small


def _mean(evaluation: Evaluation, group: str, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean over groups, each counting the same; None where a group has no value."""
    metrics = {}
    for name in OF_KIND[evaluation.kind]:
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
    for row in facts["rows"]:
        name = row["value"] if row["group"] is None else f"{row['group']}: {row['value']}"
        shown = [_cell(metric) for metric in row["metrics"].values()]
        yield [name + (" °" if row["small"] else ""), f"{row['samples']:,}", f"{row['answered']:,}", *shown]


def _cell(metric: Mapping[str, float | None]) -> str:
    if metric["value"] is None:
        return "–"
    if metric["low"] is None or metric["high"] is None:
        return f"{metric['value']:.3f}"
    return f"{metric['value']:.3f} [{metric['low']:.3f}, {metric['high']:.3f}]"


def notes(facts: Mapping[str, Any]) -> list[str]:
    """What a reader of the table must know, a sentence each."""
    said = []
    if missing := facts["samples"] - facts["answered"]:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in facts["unanswered"].items())
        line = f"{missing:,} of {facts['samples']:,} samples have no answer ({reasons}) and are in no metric"
        said.append(line + (f"; were all of them wrong: {facts['all_wrong']:.3f}" if "all_wrong" in facts else ""))
    if facts["inconsistent"]:
        said.append(f"{facts['inconsistent']:,} samples were answered differently in the two orders: counted as wrong")
    if any(row["small"] for row in facts["rows"]):
        said.append(f"° fewer than {SMALL} independent samples: the interval tells little")
    return said


def as_markdown(facts: Mapping[str, Any]) -> str:
    """The table as a page."""
    title = f"# {facts['corpus']} {facts['version']}: {facts['evaluation']}"
    asked = f"{facts['annotator']}, mode {facts['mode']}" if facts["annotator"] else f"scores of {facts['scores']}"
    asked += f" ({facts['order']})" if facts.get("order") else ""
    head = headings(facts)
    lines = [title, "", f"{facts['says']} Measured: {asked}.", ""]
    lines += ["| " + " | ".join(head) + " |", "|" + "|".join("---" for _ in head) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells(facts)]
    lines += ["", "In brackets: intervals of 95 % by bootstrap.", *(f"- {note}" for note in notes(facts))]
    return "\n".join(lines) + "\n"
