"""Compare models on the same samples: one table, paired tests of differences, ranks, a plot. Pure functions."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from scipy.stats import rankdata

from earmark.schemas.errors import InputError
from earmark.schemas.evaluations import Evaluation
from earmark.tasks.evaluation.influence import mean, pair_differences
from earmark.tasks.evaluation.kinds import Prediction, find_kind
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
from earmark.tasks.evaluation.statistics import Places
from earmark.tasks.evaluation.units import Units, unit_labels
from earmark.tasks.store.result_table import ResultColumn, ResultPage, ResultTable, interval

TEST = "Student's test of what was sampled, paired on the same samples; p (Holm) is adjusted over the pairs"
PLOT = "intervals.svg"

Rows = Mapping[str, Mapping[str, Any]]  # rows of an evaluation's `predictions.parquet`, by id


def compare(
    evaluation: Evaluation,
    samples: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, Rows],
    thresholds: Mapping[str, Threshold | None],
) -> list[dict[str, Any]]:
    """Compare models on an evaluation's samples, and on the means by system where scalars name systems.

    A sample left out for one model is left out for all. Correlations and AUROC use the samples answered by every model.

    Args:
        samples: by id, with `target` and the columns of their units (`unit_columns`).
        runs, thresholds: by model, with runs of the same samples.

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
    predictions = {name: {one: as_prediction(row) for one, row in rows.items()} for name, rows in runs.items()}
    ids = [one for one in first if all(rows[one]["reason"] not in NOT_MEASURED for rows in runs.values())]
    answered = [one for one in ids if all(by_id[one].answered for by_id in predictions.values())]
    kind = find_kind(evaluation.kind)
    used = ids if kind.credited else answered
    if not used:
        raise InputError(f"expected samples of '{evaluation.name}' that every model answered, found none")
    truth = [samples[one] for one in used]
    units = Units.of(unit_labels(evaluation, truth))
    measured = {
        name: Measured.of(evaluation, truth, [by_id[one] for one in used], thresholds[name], units)
        for name, by_id in predictions.items()
    }
    facts: dict[str, Any] = {
        "evaluation": evaluation.name,
        "kind": evaluation.kind,
        "headline": kind.headline,
        "left_out": len(first) - len(ids),
        "unanswered": len(ids) - len(answered),
    }
    tables = [{**facts, **_side_by_side(measured, np.flatnonzero(np.isin(used, answered)))}]
    if not kind.credited and any(row.get(LEVEL) for row in truth):
        means = {name: one.means_by([row[LEVEL] for row in truth]) for name, one in measured.items()}
        facts |= {"evaluation": f"{evaluation.name}, {MEANS_BY} {LEVEL}", "level": LEVEL}
        tables.append({**facts, "left_out": 0, "unanswered": 0, **_side_by_side(means)})
    return tables


def _side_by_side(measured: Mapping[str, Measured], everyone: Places | None = None) -> dict[str, Any]:
    """Return a row for each model, and the differences of their metrics; `everyone` are places that all answered."""
    first = next(iter(measured.values()))
    places = np.arange(len(first.answered)) if everyone is None else everyone
    differences = []
    if first.credits:
        right = {name: mean(one.credits["accuracy"]) for name, one in measured.items()}
        differences += pair_differences("accuracy", right, first.units)
    found = {name: one.influences(places) for name, one in measured.items()} if len(places) else {}
    for metric in next(iter(found.values()), {}):
        of_metric = {name: held[metric] for name, held in found.items()}
        differences += pair_differences(metric, of_metric, first.units, places)
    rows = [one.row(None, name) for name, one in measured.items()]
    return {"samples": len(first.answered), "rows": rows, "differences": differences}


def as_prediction(row: Mapping[str, Any]) -> Prediction:
    """Return the prediction of a row of `predictions.parquet`."""
    return Prediction(row["id"], row["score"], row["choice"], row["reason"], row["detail"], row["items"] or [])


def ranking(names: Sequence[str], tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rank models by the mean of their ranks over the evaluations, 1 being best; equal values share their mean rank.

    Borda's count adds up, over the evaluations, the number of worse models, equal models counting one half. An
    undefined metric ranks last.
    """
    ranks = []
    for table in tables:
        values = [row["metrics"][table["headline"]]["value"] for row in table["rows"]]
        ranks.append(rankdata([np.inf if value is None else -value for value in values]))
    rows = [
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


def difference_table(title: str, differences: Sequence[Mapping[str, Any]]) -> ResultTable:
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


def notes(facts: Mapping[str, Any]) -> list[str]:
    """Return notes for readers of the tables, a sentence each."""
    lines = []
    for table in facts["evaluations"]:
        if table["left_out"]:
            lines.append(
                f"{table['evaluation']}: {table['left_out']:,} samples left the evaluation of a model, and so of all"
            )
        if table["unanswered"]:
            what = "count as wrong for that model" if find_kind(table["kind"]).credited else "are in no metric"
            lines.append(f"{table['evaluation']}: {table['unanswered']:,} samples lack an answer of a model and {what}")
    if facts["without"]:
        lines.append(f"not compared, because not every model was measured on it: {', '.join(facts['without'])}")
    return lines


def comparison_page(facts: Mapping[str, Any]) -> ResultPage:
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
            result_table(table, table["evaluation"], "model"),
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


def as_svg(facts: Mapping[str, Any]) -> str:
    """Draw each model's headline value and interval, a block per evaluation, on one axis: 0 to 1, or wider if needed.

    A dashed line below each evaluation's name and sample count marks the chance level.
    """
    metrics = [row["metrics"][table["headline"]] for table in facts["evaluations"] for row in table["rows"]]
    ends: list[float] = [one[name] for one in metrics for name in ("value", "low", "high") if one[name] is not None]
    low = -1.0 if any(table["headline"] == "srcc" for table in facts["evaluations"]) else min([0.0, *ends])
    high = max([1.0, *ends])

    def across(value: float) -> float:
        return NAMES + (WIDTH - NAMES - 20) * (value - low) / (high - low)

    title = escape(f"{facts['corpus']} {facts['version']}: values with intervals of 95 %")
    shapes, y = [f'<text x="8" y="20" class="h">{title}</text>'], 24
    for table in facts["evaluations"]:
        y += STEP
        headline, counts = table["headline"], {row["samples"] for row in table["rows"]}
        of = f", n = {counts.copy().pop():,}" if len(counts) == 1 else ""
        name = escape(f"{table['evaluation']}, {LABELS.get(headline, headline)}{of}")
        shapes.append(f'<text x="8" y="{y}" class="b">{name}</text>')
        chance = find_kind(table["kind"]).chance if "kind" in table else None
        if chance is not None and low <= chance <= high:
            at, foot = across(chance), y + STEP * len(table["rows"]) + 4
            shapes.append(f'<text x="{at:.1f}" y="{y}" text-anchor="middle" class="c">chance</text>')
            shapes.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y + 4}" y2="{foot}" class="g"/>')
        for row in table["rows"]:
            y += STEP
            metric = row["metrics"][headline]
            of = "" if len(counts) == 1 else f", n = {row['samples']:,}"
            shapes.append(f'<text x="20" y="{y}">{escape(row["value"] + of)}</text>')
            if metric["low"] is not None:
                span = f'x1="{across(metric["low"]):.1f}" x2="{across(metric["high"]):.1f}"'
                shapes.append(f'<line {span} y1="{y - 4}" y2="{y - 4}" class="i"/>')
            if metric["value"] is not None:
                shapes.append(
                    f'<circle cx="{across(metric["value"]):.1f}" cy="{y - 4}" r="4">'
                    f"<title>{escape(row['value'])}: {metric['value']:.3f}</title></circle>"
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
