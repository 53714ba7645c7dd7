"""Compare models on the same samples: one table, paired tests of differences, ranks, a plot. Pure functions."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from earmark.schemas.errors import InputError
from earmark.schemas.evaluations import Evaluation
from earmark.schemas.results import ComparedEvaluation, ComparisonFacts, MetricFacts, ModelRank, PairGap
from earmark.tasks.evaluation.influence import mean, pair_differences
from earmark.tasks.evaluation.kinds import MeasuredSample, Prediction, find_kind
from earmark.tasks.evaluation.results import (
    INTERVALS,
    LABELS,
    LEVEL,
    MEANS_BY,
    NOT_MEASURED,
    Measured,
    Threshold,
    result_table,
)
from earmark.tasks.evaluation.statistics import Places, middle_ranks
from earmark.tasks.evaluation.units import Units, unit_labels
from earmark.tasks.store.result_table import ResultColumn, ResultPage, ResultTable, interval

TEST = "Student's test of what was sampled, paired on the same samples; p (Holm) is adjusted over the pairs"
PLOT = "intervals.svg"


def compare(
    evaluation: Evaluation,
    samples: Mapping[str, MeasuredSample],
    runs: Mapping[str, Mapping[str, Prediction]],
    thresholds: Mapping[str, Threshold | None],
) -> list[ComparedEvaluation]:
    """Compare models on an evaluation's samples, and on the means by system where scalars name systems.

    A sample left out for one model is left out for all. Correlations and AUROC use the samples answered by every model.

    Args:
        samples: by id, with `target` and the columns of their units (`unit_columns`).
        runs, thresholds: by model, with predictions of the same samples by id.

    Returns:
        For each: `rows`: one per model; `differences`: of each pair and metric, first minus second; `left_out` and
        `unanswered`: numbers of samples.

    Raises:
        InputError: models were measured on other samples than the first, or no sample is left for all of them.
    """
    (first_name, first), *others = runs.items()
    for name, rows in others:
        if odd := sorted(first.keys() ^ rows.keys()):
            raise InputError(
                f"'{name}' was measured on {len(rows):,} samples of '{evaluation.name}', '{first_name}' on "
                f"{len(first):,}; the first that only one of them has is '{odd[0]}': measure both with the same "
                "--split, --language and --limit"
            )
    ids = [one for one in first if all(by_id[one].reason not in NOT_MEASURED for by_id in runs.values())]
    answered = [one for one in ids if all(by_id[one].answered for by_id in runs.values())]
    kind = find_kind(evaluation.kind)
    used = ids if kind.credited else answered
    if not used:
        raise InputError(f"expected samples of '{evaluation.name}' that every model answered, found none")
    truth = [samples[one] for one in used]
    units = Units.of(unit_labels(evaluation, truth))
    measured = {
        name: Measured.of(evaluation, truth, [by_id[one] for one in used], thresholds[name], units)
        for name, by_id in runs.items()
    }
    tables: list[ComparedEvaluation] = [_side_by_side(evaluation, measured, np.flatnonzero(np.isin(used, answered)))]
    tables[0]["left_out"], tables[0]["unanswered"] = len(first) - len(ids), len(ids) - len(answered)
    if not kind.credited and any(row.get(LEVEL) for row in truth):
        means = {name: one.means_by([row[LEVEL] for row in truth]) for name, one in measured.items()}
        tables.append(_side_by_side(evaluation, means))
        tables[1]["evaluation"] += f", {MEANS_BY} {LEVEL}"
        tables[1]["level"] = LEVEL
    return tables


def _side_by_side(
    evaluation: Evaluation, measured: Mapping[str, Measured], everyone: Places | None = None
) -> ComparedEvaluation:
    """Return a row for each model, and the differences of their metrics; `everyone` are places that all answered."""
    first = next(iter(measured.values()))
    places = np.arange(len(first.answered)) if everyone is None else everyone
    differences: list[PairGap] = []
    if first.credits:
        right = {name: mean(one.credits["accuracy"]) for name, one in measured.items()}
        differences += pair_differences("accuracy", right, first.units)
    found = {name: one.influences(places) for name, one in measured.items()} if len(places) else {}
    for metric in next(iter(found.values()), {}):
        of_metric = {name: held[metric] for name, held in found.items()}
        differences += pair_differences(metric, of_metric, first.units, places)
    rows = [one.row(None, name, scored=places) for name, one in measured.items()]
    return {
        "evaluation": evaluation.name,
        "kind": evaluation.kind,
        "headline": find_kind(evaluation.kind).headline,
        "left_out": 0,
        "unanswered": 0,
        "samples": len(first.answered),
        "rows": rows,
        "differences": differences,
    }


def ranking(names: Sequence[str], tables: Sequence[ComparedEvaluation]) -> list[ModelRank]:
    """Rank models by the mean of their ranks over the evaluations, 1 being best; equal values share their mean rank.

    Borda's count adds up, over the evaluations, the number of worse models, equal models counting one half. An
    undefined metric ranks last.
    """
    ranks = []
    for table in tables:
        values = [row["metrics"][table["headline"]]["value"] for row in table["rows"]]
        ranks.append(middle_ranks([np.inf if value is None else -value for value in values]))
    rows: list[ModelRank] = [
        {
            "model": name,
            "mean_rank": float(np.mean([one[place] for one in ranks])),
            "borda": float(sum(len(names) - one[place] for one in ranks)),
            "ranks": {table["evaluation"]: float(one[place]) for table, one in zip(tables, ranks, strict=True)},
        }
        for place, name in enumerate(names)
    ]
    return sorted(rows, key=lambda row: (row["mean_rank"], row["model"]))


# -- for a reader -------------------------------------------------------------------------------------------------


def difference_table(title: str, differences: Sequence[PairGap]) -> ResultTable:
    """Tabulate differences of pairs."""
    return ResultTable(
        f"{title}: differences",
        (
            *("first − second", "metric", ResultColumn("difference", decimals=3, signed=True)),
            *(ResultColumn("p", decimals=3), ResultColumn("p (Holm)", decimals=3)),
        ),
        tuple(
            (
                *(f"{one['first']} − {one['second']}", LABELS.get(one["metric"], one["metric"])),
                *(interval(one), one["p"], one["p_holm"]),
            )
            for one in differences
        ),
        f"By {TEST}.",
    )


def notes(facts: ComparisonFacts) -> list[str]:
    """Return notes for readers of the tables, a sentence each."""
    lines = []
    for table in facts["evaluations"]:
        if table["left_out"]:
            lines.append(
                f"{table['evaluation']}: samples that left the evaluation of a model, and so of all: "
                f"{table['left_out']:,}"
            )
        if table["unanswered"]:
            kind = find_kind(table["kind"])
            what = "count as wrong for that model" if kind.credited else "are in no metric"
            if kind.credited and kind.scored:
                what += f"; {' and '.join(LABELS[one] for one in kind.scored)} leave them out for every model"
            number = f"samples without an answer of a model: {table['unanswered']:,}"
            lines.append(f"{table['evaluation']}: {number}; they {what}")
    if facts["without"]:
        lines.append(f"not compared, because not every model was measured on it: {', '.join(facts['without'])}")
    return lines


def comparison_page(facts: ComparisonFacts) -> ResultPage:
    """Return the page of a comparison: the models and their differences by evaluation, then the ranks."""
    names = [table["evaluation"] for table in facts["evaluations"] if "level" not in table]
    ranks = ResultTable(
        "Ranks",
        ("model", ResultColumn("mean rank", decimals=2), "Borda", *names),
        tuple(
            (one["model"], one["mean_rank"], one["borda"], *(one["ranks"][name] for name in names))
            for one in facts["ranking"]
        ),
    )
    tables = [
        made
        for table in facts["evaluations"]
        for made in (
            result_table(table["rows"], table["evaluation"], "model"),
            difference_table(table["evaluation"], table["differences"]),
        )
    ]
    return ResultPage(
        f"{facts['corpus']} {facts['version']}: {len(facts['models'])} models side by side",
        (*tables, ranks),
        (INTERVALS, *notes(facts)),
        plots=(PLOT,),
    )


WIDTH, NAMES, STEP = 760, 260, 22


class PlotBlock(NamedTuple):
    """Values of models in a metric, below a heading."""

    heading: str
    metric: str
    chance: float | None
    rows: list[tuple[str, int, MetricFacts]]  # name, number of samples, value


def plot_block(table: ComparedEvaluation) -> PlotBlock:
    """Return the headline values of an evaluation."""
    metric = table["headline"]
    rows = [(row["value"], row["samples"], row["metrics"][metric]) for row in table["rows"]]
    return PlotBlock(table["evaluation"], metric, find_kind(table["kind"]).chance, rows)


def as_svg(version: str, blocks: Sequence[PlotBlock]) -> str:
    """Draw each model's value and interval, a block after the other, on one axis: 0 to 1, or wider if needed.

    A dashed line below each block's name and sample count marks the chance level.
    """
    drawn = [metric for block in blocks for *_, metric in block.rows]
    ends = [end for one in drawn for end in (one["value"], one["low"], one["high"]) if end is not None]
    low = -1.0 if any(block.metric == "srcc" for block in blocks) else min([0.0, *ends])
    high = max([1.0, *ends])

    def across(value: float) -> float:
        return NAMES + (WIDTH - NAMES - 20) * (value - low) / (high - low)

    title = escape(f"{version}: values with intervals of 95 %")
    shapes, y = [f'<text x="8" y="20" class="h">{title}</text>'], 24
    for block in blocks:
        y += STEP
        counts = {samples for _, samples, _ in block.rows}
        of = f", n = {counts.copy().pop():,}" if len(counts) == 1 else ""
        name = escape(f"{block.heading}, {LABELS.get(block.metric, block.metric)}{of}")
        shapes.append(f'<text x="8" y="{y}" class="b">{name}</text>')
        if block.chance is not None and low <= block.chance <= high:
            at, foot = across(block.chance), y + STEP * len(block.rows) + 4
            shapes.append(f'<text x="{at:.1f}" y="{y}" text-anchor="middle" class="c">chance</text>')
            shapes.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y + 4}" y2="{foot}" class="g"/>')
        for model, samples, metric in block.rows:
            y += STEP
            of = "" if len(counts) == 1 else f", n = {samples:,}"
            shapes.append(f'<text x="20" y="{y}">{escape(model + of)}</text>')
            if metric["low"] is not None and metric["high"] is not None:
                span = f'x1="{across(metric["low"]):.1f}" x2="{across(metric["high"]):.1f}"'
                shapes.append(f'<line {span} y1="{y - 4}" y2="{y - 4}" class="i"/>')
            if metric["value"] is not None:
                shapes.append(
                    f'<circle cx="{across(metric["value"]):.1f}" cy="{y - 4}" r="4">'
                    f"<title>{escape(model)}: {metric['value']:.3f}</title></circle>"
                )
    for tick in np.linspace(low, high, 5):
        shapes.append(f'<line x1="{across(tick):.1f}" x2="{across(tick):.1f}" y1="32" y2="{y + 10}" class="t"/>')
        shapes.append(f'<text x="{across(tick):.1f}" y="{y + 26}" text-anchor="middle">{tick:.3g}</text>')
    style = (
        "text{font:13px sans-serif}.b{font-weight:bold}.h{font-size:15px;font-weight:bold}.c{fill:#a33;font-size:11px}"
        ".i{stroke:#246;stroke-width:2}circle{fill:#246}.t{stroke:#ccc}.g{stroke:#a33;stroke-dasharray:4 3}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 36}" width="{WIDTH}" role="img">'
    head += f"<title>{title}</title>"
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, f"<style>{style}</style>", ground, *reversed(shapes), "</svg>"]) + "\n"
