"""Pick the best of N generations by a reward model's scores, nested: `earmark eval best-of`.

CMI-RewardBench, section 3.3.3, with its Table 5. A prompt's generations stand in the order of a hash; the pick of N is
the best of the first N, so the candidates of a smaller N are among those of a larger one, and N = 1 knows no score.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from earmark.schemas.errors import InputError
from earmark.schemas.places import clips_folder
from earmark.schemas.reasons import Reject, shown
from earmark.schemas.results import ClipMean
from earmark.tasks.evaluation.influence import gap, mean, mean_of
from earmark.tasks.evaluation.kinds import number
from earmark.tasks.evaluation.scores import read_table
from earmark.tasks.evaluation.statistics import holm
from earmark.tasks.importers.music import ListedGeneration, read_generations
from earmark.tasks.store.files import write_text
from earmark.tasks.store.folder import write_record
from earmark.tasks.store.parquet import tuples_of
from earmark.tasks.store.result_table import SURE, Interval, ResultColumn, ResultPage, ResultTable, Value

RECORD = "best-of-n.json"
PICKED = ("generation_id", "prompt_id", "model", "audio", "conditioned_on")
Scores = Mapping[str, Mapping[str, float | None]]


class PickRow(TypedDict):
    """Mean measures of a model's picks, and their gains over its smallest N."""

    label: str
    prompts: int
    cells: dict[str, ClipMean | None]


class SamePick(TypedDict):
    """Number of prompts with one pick of two N."""

    model: str
    n: list[int]
    same: int
    prompts: int


class PickFacts(TypedDict):
    """`best-of-n.json`."""

    generations: str
    scores: str
    by: list[str]
    sizes: list[int]
    columns: list[str]
    rows: list[PickRow]
    same_pick: list[SamePick]
    notes: list[str]


class Candidates(NamedTuple):
    """The generations of a model for a prompt, in the order of a hash, with their criterion."""

    model: str
    prompt_id: str
    made: list[ListedGeneration]
    values: list[float | None]

    def pick(self, count: int) -> ListedGeneration:
        """Return the best of the first N, the earlier of equal ones; one without a score only if none has one."""
        known = [-np.inf if value is None else value for value in self.values[:count]]
        return self.made[int(np.argmax(known))]

    def ranked(self) -> list[int]:
        """Return the places from the best on, those without a score last."""
        return sorted(range(len(self.made)), key=lambda at: (self.values[at] is None, -(self.values[at] or 0.0), at))


def best_of_n(
    generations: Path, scores: Path, sizes: Sequence[int], by: Sequence[str], picks: Path | None, out: Path
) -> tuple[PickFacts, Path]:
    """Pick generations, and write the record: the table of measures, and a ranked list a prompt (`listwise.jsonl`).

    Return the facts of `best-of-n.json`, and the folder.

    Args:
        generations: the table or pattern of files, as a study reads it. A model with one generation for each prompt,
            such as the ground truth, stands beside the picks.
        scores: a row a generation: `clip` (its id, or its audio as the table names it), and columns of numbers.
        sizes: the numbers N.
        by: the columns whose mean decides.
        picks: the table of picks, which a study reads as its generations: beside the clips.

    Raises:
        InputError: a file cannot be read, a score is missing, a model has fewer generations than N, or the picks would
            not lie beside the clips.
    """
    if picks is not None and picks.absolute().parent != clips_folder(generations.absolute()):
        raise InputError(
            f"--picks {picks}: expected a file in {clips_folder(generations)}, as it names clips from there"
        )
    listed, notes = list[ListedGeneration](), list[str]()
    for one in read_generations(generations, str(generations)):
        if isinstance(one, ListedGeneration):
            listed.append(one)
        elif isinstance(one, Reject):
            notes.append(f"left out: line {one.line}: {one.detail}")
    measured, columns, strange = _measures(scores, listed)
    if strange:
        notes.append(f"passed over: {len(strange):,} rows of {scores.name} name no generation, first '{strange[0]}'")
    if odd := [name for name in by if name not in columns]:
        raise InputError(f"--by: {scores} has no column '{odd[0]}'; columns: {', '.join(columns)}")
    for name in columns:
        if lacking := sum(values[name] is None for values in measured.values()):
            of = f"{name}: {lacking:,} of {len(measured):,} generations have no score and are in no mean of it"
            notes.append(of + ("; they are picked only where no other can be" if name in by else ""))
    groups = _candidates(listed, measured, by)
    sizes = sorted({*sizes})
    labelled = _picked(groups, sizes)
    facts: PickFacts = {
        "generations": generations.name,
        "scores": scores.name,
        "by": [*by],
        "sizes": sizes,
        "columns": columns,
        "rows": _rows(labelled, measured, columns),
        "same_pick": _same(groups, sizes),
        "notes": notes,
    }
    lists = "".join(json.dumps(_ranked(one, sizes), ensure_ascii=False) + "\n" for one in groups)
    if picks is not None:
        write_text(picks, _table(labelled))
    return facts, write_record(out, RECORD, facts, {**best_of_page(facts).files(), "listwise.jsonl": lists})


def _measures(path: Path, listed: Sequence[ListedGeneration]) -> tuple[Scores, list[str], list[str]]:
    """Return the measures of each generation, their names, and the clips that are no generation."""
    table = read_table(path)
    columns = [name for name in table.column_names if name != "clip"]
    if "clip" not in table.column_names or not columns:
        raise InputError(
            f"{path}: expected the column clip and columns of numbers; found {', '.join(table.column_names)}"
        )
    ids, by_audio = {one.generation_id for one in listed}, dict[str, list[str]]()
    for one in listed:
        by_audio.setdefault(one.audio, []).append(one.generation_id)
    known: dict[str, dict[str, float | None]] = {}
    strange: list[str] = []
    for at, (clip, *cells) in enumerate(tuples_of(table, "clip", *columns), 1):
        name = str(clip)  # an id may be the audio of another generation: it means its own
        measures = {
            column: None if cell in (None, "") else number(f"{path}, row {at}", column, cell)
            for column, cell in zip(columns, cells, strict=True)
        }
        named = [name] if name in ids else by_audio.get(name, [])
        strange += [] if named else [shown(name)]
        for one_id in named:
            if one_id in known:
                raise InputError(f"{path}, row {at}: clip '{name}' stands there twice, as generation '{one_id}'")
            known[one_id] = measures
    found = {one.generation_id: known.get(one.generation_id) for one in listed}
    if lacking := [name for name, values in found.items() if values is None]:
        raise InputError(
            f"{path}: {len(lacking):,} of {len(found):,} generations are missing, the first is '{lacking[0]}'; give a "
            "clip without a score a row with an empty cell"
        )
    return {name: values for name, values in found.items() if values is not None}, columns, strange


def _candidates(listed: Sequence[ListedGeneration], measured: Scores, by: Sequence[str]) -> list[Candidates]:
    grouped: dict[tuple[str, str], list[ListedGeneration]] = defaultdict(list)
    for one in listed:
        grouped[one.model, one.prompt_id].append(one)
    groups = []
    for (model, prompt), made in sorted(grouped.items()):
        made.sort(key=lambda one: hashlib.sha256(one.generation_id.encode()).digest())
        cells = [[measured[one.generation_id][name] for name in by] for one in made]
        values = [
            None if None in held else float(np.mean([cell for cell in held if cell is not None])) for held in cells
        ]
        groups.append(Candidates(model, prompt, made, values))
    return groups


def _picked(groups: Sequence[Candidates], sizes: Sequence[int]) -> dict[str, list[ListedGeneration]]:
    """Return the picks by label: model and N, or the model alone if it has one generation for each prompt."""
    most: dict[str, int] = {}
    for one in groups:
        most[one.model] = max(most.get(one.model, 0), len(one.made))
    found: dict[str, list[ListedGeneration]] = {}
    for model, count in most.items():
        for size in sizes if count > 1 else (1,):
            label = f"{model} N={size}" if count > 1 else model
            for one in (one for one in groups if one.model == model):
                if len(one.made) < size:
                    raise InputError(
                        f"'{model}' has {len(one.made)} generations of prompt '{one.prompt_id}', fewer than N = {size}"
                    )
                found.setdefault(label, []).append(one.pick(size))
    return found


def _rows(
    labelled: Mapping[str, Sequence[ListedGeneration]], measured: Scores, columns: Sequence[str]
) -> list[PickRow]:
    """Return the means of each label, and their differences to the model's smallest N on the same prompts."""
    rows: list[PickRow] = []
    first: dict[str, Sequence[ListedGeneration]] = {}
    for label, made in labelled.items():
        base = first.setdefault(made[0].model, made)
        cells: dict[str, ClipMean | None] = {}
        for name in columns:
            cells[name] = mean_of([measured[one.generation_id][name] for one in made])
            both = [(measured[a.generation_id][name], measured[b.generation_id][name])
                    for a, b in zip(made, base, strict=True)]  # fmt: skip
            lead = np.array([a - b for a, b in both if a is not None and b is not None])
            if base is not made and len(lead) and (cell := cells[name]):
                value, parts = mean(lead)
                cell["difference"] = gap(value, float((parts**2).sum()), len(lead)).facts()
        rows.append({"label": label, "prompts": len(made), "cells": cells})
    gained = [cell["difference"] for row in rows for cell in row["cells"].values() if cell and "difference" in cell]
    for one, adjusted in zip(gained, holm([one["p"] for one in gained]), strict=True):
        one["p_holm"] = adjusted
    return rows


def _same(groups: Sequence[Candidates], sizes: Sequence[int]) -> list[SamePick]:
    """Count the prompts of which two N have one pick: nobody can prefer either."""
    found: list[SamePick] = []
    for model in dict.fromkeys(one.model for one in groups):
        held = [one for one in groups if one.model == model and len(one.made) > 1]
        for few, many in combinations(sizes, 2) if held else ():
            same = sum(one.pick(few) == one.pick(many) for one in held)
            found.append({"model": model, "n": [few, many], "same": same, "prompts": len(held)})
    return found


def _ranked(one: Candidates, sizes: Sequence[int]) -> dict[str, Any]:
    order = one.ranked()
    return {
        "prompt_id": one.prompt_id,
        "model": one.model,
        "generations": [one.made[at].generation_id for at in order],
        "audio": [one.made[at].audio for at in order],
        "scores": [one.values[at] for at in order],
        "picks": {str(size): one.pick(size).generation_id for size in sizes if size <= len(order)},
    }


def _table(labelled: Mapping[str, Sequence[ListedGeneration]]) -> str:
    """Return the table of picks: a clip has a row, with an id of its own, for each label."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(PICKED)
    for label, made in labelled.items():
        size = label.removeprefix(made[0].model).strip()
        for one in made:
            name = f"{one.generation_id} {size}".strip()
            writer.writerow([name, one.prompt_id, label, one.audio, one.conditioned_on or ""])
    return text.getvalue()


def best_of_page(facts: PickFacts) -> ResultPage:
    """Return the page of the picks: Table 5's form."""
    columns: tuple[str | ResultColumn, ...] = (
        "model",
        "prompts",
        *(ResultColumn(name, decimals=3) for name in facts["columns"]),
    )
    rows = tuple((row["label"], row["prompts"], *map(_cell, row["cells"].values())) for row in facts["rows"])
    same = [
        f"{one['model']}: N={one['n'][0]} and N={one['n'][1]} pick the same clip for {one['same']:,} of "
        f"{one['prompts']:,} prompts"
        for one in facts["same_pick"]
    ]
    says = f"Nested picks by {' + '.join(facts['by'])} of {facts['scores']}."
    method = (
        "in brackets: intervals of 95 % over prompts; in parentheses: difference to the model's smallest N on the same "
        f"prompts, * p < {SURE} by Student's test and Holm over the table"
    )
    return ResultPage("Best of N", (ResultTable("", columns, rows),), (method, *same, *facts["notes"]), says)


def _cell(cell: ClipMean | None) -> Value:
    if cell is None or cell["value"] is None:
        return None
    gained = cell.get("difference")
    gain = (gained["value"], gained["p_holm"]) if gained else ()
    return Interval(cell["value"], cell["low"], cell["high"], *gain)
