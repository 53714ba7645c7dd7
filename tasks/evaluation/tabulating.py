"""Tabulate models by groups of samples, with intervals and paired tests: `earmark eval tables`."""

import hashlib
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from earmark.schemas.errors import ConfigError, InputError, StoreError
from earmark.schemas.evaluations import Evaluation
from earmark.schemas.results import CellFacts, ColumnFacts, TableFacts
from earmark.tasks.evaluation.comparing import Measure, name_of, predictions_of
from earmark.tasks.evaluation.influence import SCALES, bounds, gap, mean, measure, scale_of
from earmark.tasks.evaluation.kinds import MeasuredSample, Prediction, clip_columns, find_kind, values_of
from earmark.tasks.evaluation.layouts import LayoutColumn, TableLayout, TableRules
from earmark.tasks.evaluation.results import LABELS, LOWER, NOT_MEASURED, members
from earmark.tasks.evaluation.samples import NoSamples, Samples, find_evaluation, select_samples
from earmark.tasks.evaluation.scores import NotCovered
from earmark.tasks.evaluation.statistics import Floats, Places, holm
from earmark.tasks.evaluation.units import CLIPS, Units, sampled_words, unit_columns, unit_labels
from earmark.tasks.store.folder import file_word, records_of, version_facts, write_record
from earmark.tasks.store.result_table import SURE, Interval, ResultColumn, ResultPage, ResultTable, Value

RECORD = "table.json"

BOUND = re.compile(r"(<=|>=|<|>)\s*(-?[\d.]+)\s*")


@dataclass(frozen=True)
class TableOptions:
    """Options of a table beside its layout."""

    baselines: Mapping[str, str] = field(default_factory=dict)  # by model; "" for all others
    sampled: str = CLIPS  # what was sampled: columns as a+b; `clips` with their prompts or triplets
    intervals: bool = True


@dataclass(frozen=True)
class MeasuredPool:
    """Samples of an evaluation with each model's predictions; None where it has none."""

    evaluation: Evaluation
    rules: TableRules
    rows: list[MeasuredSample]
    predictions: dict[str, list[Prediction] | None]
    start: int  # the place of its first sample among those of all evaluations

    @cached_property
    def credits(self) -> dict[str, Floats]:
        """Return each model's correctness by sample; NaN for a sample to leave out."""
        name = "accuracy_tie_half" if self.rules.ties == "half" else "accuracy"
        found, kind = {}, find_kind(self.evaluation.kind)
        for model, predictions in self.predictions.items():
            values = np.full(len(self.rows), np.nan)
            for place, (row, one) in enumerate(zip(self.rows, predictions or (), strict=False)):
                if one.answered or self.rules.unanswered == "wrong":
                    credit = kind.credits(row["target"], one, None)
                    values[place] = credit.get(name, credit["accuracy"])
            found[model] = values
        return found

    @cached_property
    def targets(self) -> Floats:
        """Return the truths as numbers."""
        return np.array([row["target"] for row in self.rows], float)

    @cached_property
    def scores(self) -> dict[str, Floats]:
        """Return each model's scores; NaN where it has none."""
        found = {model: np.full(len(self.rows), np.nan) for model in self.predictions}
        for model, predictions in self.predictions.items():
            for place, one in enumerate(predictions or ()):
                if one.score is not None:
                    found[model][place] = one.score
        return found

    def measured(self, model: str, places: Places, metric: str) -> Places:
        """Return those of these places that a model's metric is measured on."""
        if self.predictions[model] is None:
            return places[:0]
        if metric in ("samples", "cycles"):
            return places
        values = self.credits if metric in ("accuracy", "error") else self.scores
        return places[~np.isnan(values[model][places])]

    def measure(
        self, model: str, places: Places, metric: str, level: str | None
    ) -> tuple[float, Floats, Places] | None:
        """Return a metric over the samples at these places, the influences, and the places of these."""
        predictions, places = self.predictions[model], self.measured(model, places, metric)
        if predictions is None or not len(places):
            return None
        if metric == "samples":
            return float(len(places)), np.zeros(len(places)), places
        if metric == "cycles":
            places, values = self._cycles(predictions, places)
            found = mean(values)
        elif metric in ("accuracy", "error"):
            right = self.credits[model][places]
            found = mean(right if metric == "accuracy" else 1 - right)
        else:
            x, y = self.scores[model][places], self.targets[places]
            if level is not None:
                named = pd.DataFrame({"x": x, "y": y, "at": places, "by": [self.rows[at][level] for at in places]})
                means = named.groupby("by").agg({"x": "mean", "y": "mean", "at": "first"})
                x, y, places = (means[name].to_numpy() for name in ("x", "y", "at"))
            found = measure(metric, x, y)
        return None if found.value is None else (found.value, found.parts, places)

    def _cycles(self, predictions: Sequence[Prediction], places: Places) -> tuple[Places, Floats]:
        """Return the first place of each triplet, and 1 if each of its clips wins once, else 0."""
        evaluation, won = self.evaluation, dict[Any, list[Any]]()
        first: dict[Any, int] = {}
        for place in places.tolist():
            row, choice = self.rows[place], predictions[place].choice
            triplet = row[evaluation.triplets or ""]
            first.setdefault(triplet, place)
            if choice in evaluation.sides:
                won.setdefault(triplet, []).append(row[clip_columns(evaluation)[evaluation.sides.index(choice)]])
        turns = [float(len(won.get(one, ())) == 3 == len({*won[one]})) for one in first]
        return np.array([*first.values()]), np.array(turns)


@dataclass(frozen=True)
class TableColumn:
    """A column of the table: its samples in each of its evaluations."""

    form: LayoutColumn
    heading: str
    over: str
    metric: str
    parts: tuple[tuple[MeasuredPool, Places], ...]


def named_models(entrants: Sequence[str]) -> dict[str, list[str]]:
    """Return files, folders and models by the name of their row: `NAME=ENTRANT`, or the entrant's own name."""
    found: dict[str, list[str]] = {}
    for entrant in entrants:
        name, sign, rest = entrant.partition("=")
        if not sign or Path(entrant).exists():
            name, rest = name_of(entrant), entrant
        found.setdefault(name, []).append(rest)
    return found


# -- samples and predictions --------------------------------------------------------------------------------------


def make_table(
    measure: Measure, models: Mapping[str, Sequence[str]], layout: TableLayout, options: TableOptions, out: Path | None
) -> tuple[TableFacts, Path]:
    """Measure models on the evaluations of a layout, and write the table.

    Return the facts of `table.json`, and the folder.

    Args:
        models: by the name of a row: files of scores, folders of earlier runs, or `backend:model`.

    Raises:
        ConfigError: a baseline is unknown, or a table of differences has none.
        InputError: a model has no predictions for any evaluation, or as `predictions_of`.
        StoreError: the corpus lacks an evaluation, or the evaluation a column.
    """
    if layout.baselines == "hidden" and not options.baselines:
        raise ConfigError(
            f"'{layout.title}' has differences: name the model that others are compared with (--baseline)"
        )
    for model, base in options.baselines.items():
        if odd := {model, base} - {*models, ""}:
            raise ConfigError(f"--baseline: no model '{min(odd)}'; models: {', '.join(models)}")
    wanted = _evaluations(measure, layout)
    with ExitStack() as stack:
        opened = dict[str, Samples]()
        for name, evaluation in wanted.items():
            with suppress(NoSamples):
                chosen = select_samples(measure.version, measure.corpus, evaluation, measure.wish.part)
                opened[name] = stack.enter_context(chosen)
        if not opened:
            raise NoSamples(f"{measure.version.corpus}@{measure.version.name} has no sample of {', '.join(wanted)}")
        pools, notes = _pools(measure, models, layout, options, opened)
    columns = [made for form in layout.columns for made in _columns(form, layout, wanted, pools)]
    cells = _cells(columns, [*models], pools, options)
    facts: TableFacts = {
        **version_facts(measure.version),
        "title": layout.title,
        "first": layout.first,
        "models": {name: [*entrants] for name, entrants in models.items()},
        "baselines": dict(options.baselines),
        "intervals": options.intervals,
        "best": layout.best,
        "columns": [_column_facts(column, layout) for column in columns],
        "rows": [
            {"model": name, "cells": cells[name]}
            for name in models
            if layout.baselines == "shown" or name not in options.baselines.values()
        ],
        "notes": [*_method(columns, options), *_rules(layout.rules, pools), *layout.notes, *notes],
    }
    folder = out or records_of(measure.store, measure.version) / _folder(facts)
    return facts, write_record(folder, RECORD, facts, table_page(facts).files())


def _evaluations(measure: Measure, layout: TableLayout) -> dict[str, Evaluation]:
    if layout.corpus and not {one.name for one in measure.corpus.evaluations} >= {*_names(layout)}:
        raise StoreError(f"'{layout.title}' is a table of {layout.corpus}; {measure.corpus.name} has other evaluations")
    found = [find_evaluation(measure.corpus, name) for name in _names(layout)]
    return {one.name: one for one in found or [find_evaluation(measure.corpus, measure.wish.evaluation)]}


def _names(layout: TableLayout) -> list[str]:
    listed = [name for column in layout.columns for name in _listed(column.evaluation or layout.evaluation)]
    return [*dict.fromkeys(listed)]


def _listed(names: str | list[str] | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else names


def _pools(
    measure: Measure,
    models: Mapping[str, Sequence[str]],
    layout: TableLayout,
    options: TableOptions,
    opened: Mapping[str, Samples],
) -> tuple[dict[str, MeasuredPool], list[str]]:
    """Read samples and predictions; return them by evaluation, and notes."""
    pools, notes, start = dict[str, MeasuredPool](), [], 0
    for name, samples in opened.items():
        rows = _rows(layout, options, samples)
        given: dict[str, dict[str, Prediction] | None] = {}
        for model, entrants in models.items():
            found, lacking = [], []
            for entrant in entrants:
                try:
                    found.append(predictions_of(measure, entrant, samples, layout.rules.overall))
                except NotCovered as none:
                    lacking.append(f"no figure of {model} on {none}")
            if len(found) > 1:
                raise InputError(f"'{model}' has predictions of '{name}' from several of {', '.join(entrants)}")
            given[model] = found[0] if found else None
            notes += lacking if not found else []
        known = [one for one in given.values() if one is not None]
        kept = [row for row in rows if all(one[row["id"]].reason not in NOT_MEASURED for one in known)]
        if lost := len(rows) - len(kept):
            notes.append(f"{name}: samples that left the evaluation of a model, and so of all: {lost:,}")
        if layout.rules.true_ties == "left-out":  # only preferences have ties
            kept = [row for row in kept if row["target"] != "tie"]
        aligned = {model: None if held is None else [held[row["id"]] for row in kept] for model, held in given.items()}
        for model, predictions in aligned.items():
            empty = sum(not one.answered for one in predictions or ())
            notes += [f"{name}: {model} has no answer to {empty:,} of {len(kept):,} samples"] if empty else []
        pools[name] = MeasuredPool(samples.evaluation, layout.rules, kept, aligned, start)
        start += len(kept)
    if empty_handed := [model for model in models if all(pool.predictions[model] is None for pool in pools.values())]:
        raise InputError(f"'{empty_handed[0]}' has no prediction of {', '.join(pools)}: {'; '.join(notes)}")
    return pools, notes


def _rows(layout: TableLayout, options: TableOptions, samples: Samples) -> list[MeasuredSample]:
    """Return the samples with the columns that the table needs."""
    evaluation, wanted = samples.evaluation, [one for one in options.sampled.split("+") if one != CLIPS]
    for column in layout.columns:
        names = _listed(column.evaluation or layout.evaluation)
        if names and evaluation.name not in names:
            continue
        wanted += [*layout.where, *column.where, *(column.by.split("+") if column.by else ())]
        wanted += [one for one in (column.level, column.mean) if one]
    if odd := [name for name in wanted if name not in samples.columns]:
        known = [name for name in samples.columns if name not in ("id", "target", "text", "lyrics")]
        raise StoreError(f"evaluation '{evaluation.name}' has no column '{odd[0]}' here; columns: {', '.join(known)}")
    columns = dict.fromkeys(["id", "target", *wanted, *unit_columns(evaluation, samples.columns)])
    return [row for batch in samples.batches(10_000, [*columns]) for row in batch]


# -- columns ------------------------------------------------------------------------------------------------------


def _columns(
    form: LayoutColumn, layout: TableLayout, wanted: Mapping[str, Evaluation], pools: Mapping[str, MeasuredPool]
) -> Iterable[TableColumn]:
    names = _listed(form.evaluation or layout.evaluation) or [*wanted]
    chosen = [pools[name] for name in names if name in pools]
    metric = form.metric or layout.metric or find_kind(wanted[names[0]].kind).headline
    for name in names:
        _require(metric, wanted[name])
    where = {**layout.where, **form.where}
    places = [
        (pool, [at for at, row in enumerate(pool.rows) if all(map(_meets, values_of(row, where), where.values()))])
        for pool in chosen
    ]
    if (by := form.by or form.mean) is None:
        yield TableColumn(
            form, form.heading, form.over, metric, tuple((pool, np.array(at, int)) for pool, at in places)
        )
        return
    groups: dict[str, list[tuple[MeasuredPool, Places]]] = {}
    for pool, at in places:
        for value, held in members(by, [pool.rows[one] for one in at]):
            groups.setdefault(value, []).append((pool, np.array(at, int)[held]))
    if form.by is None:
        yield TableColumn(
            form, form.heading, form.over, metric, tuple(part for held in groups.values() for part in held)
        )
        return
    for value, parts in groups.items():
        yield TableColumn(form, value, form.over or form.by, metric, tuple(parts))


def _require(metric: str, evaluation: Evaluation) -> None:
    kind = find_kind(evaluation.kind)
    known = ["samples", *kind.scored, *(("accuracy", "error") if kind.credited else ())]
    if metric not in known + (["cycles"] if evaluation.triplets else []):
        raise StoreError(f"evaluation '{evaluation.name}' ({kind.name}) has no metric '{metric}'")


def _meets(value: Any, want: Any) -> bool:
    """Return whether a sample's value is the wanted one, one of several, or within bounds."""
    if isinstance(want, list):
        return any(_meets(value, one) for one in want)
    if isinstance(value, list):
        return any(_meets(one, want) for one in value)
    if isinstance(value, float | int) and isinstance(want, str) and re.fullmatch(f"(?:{BOUND.pattern})+", want):
        within = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
        return all(within[sign](value, float(edge)) for sign, edge in BOUND.findall(want))
    if isinstance(value, str) and isinstance(want, str):
        return value.casefold() == want.casefold()
    return value is not None and bool(value == want)


def _column_facts(column: TableColumn, layout: TableLayout) -> ColumnFacts:
    form, samples = column.form, sum(len(at) for _, at in column.parts)
    percent = layout.percent if form.percent is None else form.percent
    decimals = layout.decimals if form.decimals is None else form.decimals
    return {
        "heading": column.heading + (f" ({samples:,})" if layout.counts else ""),
        "over": column.over,
        "metric": column.metric,
        "evaluations": [pool.evaluation.name for pool, _ in column.parts],
        "samples": samples,
        "scale": 100 if percent and column.metric not in (*SCALES, "samples") else 1,
        "decimals": 0 if column.metric == "samples" else decimals,
    }


# -- cells --------------------------------------------------------------------------------------------------------


def _cells(
    columns: Sequence[TableColumn], models: Sequence[str], pools: Mapping[str, MeasuredPool], options: TableOptions
) -> dict[str, list[CellFacts | None]]:
    total = sum(len(pool.rows) for pool in pools.values())
    units: dict[str, Units] = {}
    found: dict[str, list[CellFacts | None]] = {name: [] for name in models}
    for column in columns:
        key = column.form.level or options.sampled
        if key not in units:
            units[key] = _units(pools.values(), key)
        for name, cell in zip(models, _column_cells(column, models, units[key], total, options), strict=True):
            found[name].append(cell)
    return found


class MeasuredColumn(NamedTuple):
    """A column's metric of one model."""

    value: float | None  # None if a part of the column gives none
    parts: Floats  # influence of each of all samples
    places: Places  # those that were measured; of a system or triplet the first


def _measured(column: TableColumn, model: str, places: Iterable[Places], total: int) -> MeasuredColumn:
    """Measure a model on these places of a column's parts."""
    found, parts = [], np.zeros(total)
    for (pool, _), at in zip(column.parts, places, strict=True):
        if one := pool.measure(model, at, column.metric, column.form.level):
            found.append((one[0], one[1], pool.start + one[2]))
    value = sum(one for one, *_ in found) / len(found) if found and len(found) == len(column.parts) else None
    for _, influences, at in found if value is not None else ():
        parts[at] += influences / len(found)
    return MeasuredColumn(value, parts, np.concatenate([np.zeros(0, int), *(at for *_, at in found)]))


def _column_cells(
    column: TableColumn, models: Sequence[str], units: Units, total: int, options: TableOptions
) -> list[CellFacts | None]:
    held = {model: [pool.measured(model, at, column.metric) for pool, at in column.parts] for model in models}
    found = {model: _measured(column, model, held[model], total) for model in models}
    independent = cache(lambda places: units.independent(np.frombuffer(places, np.int64)))
    leads: dict[str, tuple[str, float, Floats, float]] = {}
    for model in models:
        if (base := _baseline(options, model)) is not None:
            both = [np.intersect1d(*each) for each in zip(held[model], held[base], strict=True)]
            sizes = [*map(len, both)]
            own, other = (
                found[name] if sizes == [*map(len, held[name])] else _measured(column, name, both, total)
                for name in (model, base)
            )
            if own.value is not None and other.value is not None:
                units_of_both = independent(np.unique(own.places).tobytes())
                leads[model] = (base, own.value - other.value, own.parts - other.parts, units_of_both)
    parts = [*(one.parts for one in found.values()), *(parts for _, _, parts, _ in leads.values())]
    variances = units.variance(np.stack(parts, axis=1)).tolist()
    spreads = dict(zip(leads, variances[len(found) :], strict=True))
    cells: list[CellFacts | None] = []
    for (model, one), variance in zip(found.items(), variances[: len(found)], strict=True):
        if one.value is None:
            cells.append(None)
            continue
        units_of_own = independent(np.unique(one.places).tobytes())
        low, high = bounds(one.value, variance, units_of_own, scale_of(column.metric))
        cell: CellFacts = {"value": one.value, "low": low, "high": high, "samples": len(one.places)}
        if model in leads:
            base, lead, _, units_of_both = leads[model]
            cell["difference"] = {"to": base, **gap(lead, spreads[model], units_of_both).facts()}
        cells.append(cell)
    compared = [cell["difference"] for cell in cells if cell and "difference" in cell]
    for each, adjusted in zip(compared, holm([each["p"] for each in compared]), strict=True):
        each["p_holm"] = adjusted
    return cells


def _baseline(options: TableOptions, model: str) -> str | None:
    base = options.baselines.get(model, options.baselines.get(""))
    return None if base == model else base


def _units(pools: Iterable[MeasuredPool], sampled: str) -> Units:
    kinds = zip(*(unit_labels(pool.evaluation, pool.rows, sampled) for pool in pools), strict=True)
    return Units.of([[label for labels in kind for label in labels] for kind in kinds])


# -- for a reader -------------------------------------------------------------------------------------------------


def _method(columns: Sequence[TableColumn], options: TableOptions) -> list[str]:
    """Say what intervals and tests take as sampled."""
    said = [f"in brackets: intervals of 95 %; {sampled_words(options.sampled)}"] if options.intervals else []
    levels = sorted({column.form.level for column in columns if column.form.level})
    said += [f"means by {level} are correlated; there the {level} is what was sampled" for level in levels]
    if options.baselines:
        to = ", ".join(f"{base}" + (f" for {model}" if model else "") for model, base in options.baselines.items())
        said.append(
            f"in parentheses: difference to {to} on the samples that both models have; * p < {SURE} by Student's test, "
            "paired, over what was sampled, by Holm over the models of a column"
        )
    return said


def _rules(rules: TableRules, pools: Mapping[str, MeasuredPool]) -> list[str]:
    compares = any(find_kind(pool.evaluation.kind).compares for pool in pools.values())
    overall = any(pool.evaluation.dimension == "overall" for pool in pools.values())
    wanted = {"ties": compares, "true_ties": compares, "arena": overall}
    return [line for name, line in rules.said().items() if wanted.get(name, True)]


def table_page(facts: TableFacts) -> ResultPage:
    """Return the page of a table."""
    columns: list[ResultColumn | str] = [*facts["first"]]
    for one in facts["columns"]:
        best: Literal["highest", "lowest"] = "lowest" if one["metric"] in LOWER else "highest"
        marks = best if facts["best"] and one["metric"] != "samples" else None
        columns.append(ResultColumn(one["heading"], decimals=one["decimals"], best=marks, over=one["over"]))
    rows = [
        (
            *_named(row["model"], len(facts["first"])),
            *(_cell(cell, of, facts["intervals"]) for cell, of in zip(row["cells"], facts["columns"], strict=True)),
        )
        for row in facts["rows"]
    ]
    metrics = dict.fromkeys(_metric_words(one) for one in facts["columns"])
    title = f"{facts['corpus']} {facts['version']}: {len(facts['rows'])} models by groups"
    table = ResultTable(facts["title"], tuple(columns), tuple(rows))
    return ResultPage(title, (table,), tuple(facts["notes"]), f"Figures: {', '.join(metrics)}.")


def _named(model: str, parts: int) -> list[str]:
    """Return the parts of a row's name; the last holds what is left."""
    found = [part.strip() for part in model.split("|", parts - 1)]
    return found + [""] * (parts - len(found))


def _metric_words(column: ColumnFacts) -> str:
    words = {"error": "error rate", "cycles": "cycles of all triplets", "mse": "mean squared error"}
    words |= {"samples": "number of samples"}
    name = words.get(column["metric"], LABELS.get(column["metric"], column["metric"]))
    return name + (" in %" if column["scale"] == 100 else "")


def _cell(cell: CellFacts | None, column: ColumnFacts, intervals: bool) -> Value:
    if cell is None or cell["value"] is None:
        return None
    if column["metric"] == "samples":
        return int(cell["value"])
    scale, gained = column["scale"], cell.get("difference")
    ends = (cell["low"], cell["high"]) if intervals else (None, None)
    low, high, gain = (one and scale * one for one in (*ends, gained and gained["value"]))
    return Interval(scale * cell["value"], low, high, gain, gained and gained["p_holm"])


def _folder(facts: TableFacts) -> str:
    key = json.dumps([facts["models"], facts["baselines"], facts["columns"], facts["notes"]], sort_keys=True)
    return f"table-{file_word(facts['title'])[:60].strip('-.')}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
