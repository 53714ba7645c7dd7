"""Compare models, files of scores and earlier runs on a version: `earmark eval compare`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.evaluations import Evaluation
from earmark.schemas.results import ComparedEvaluation, ComparisonFacts, EvaluationFacts
from earmark.tasks.evaluation.clip_scores import clip_reader
from earmark.tasks.evaluation.comparison import (
    PLOT,
    TEST,
    as_svg,
    compare,
    comparison_page,
    plot_block,
    ranking,
)
from earmark.tasks.evaluation.judging import examinee, judge
from earmark.tasks.evaluation.kinds import Prediction
from earmark.tasks.evaluation.reading import SCORER, measure_file
from earmark.tasks.evaluation.recording import RECORD as EVALUATION
from earmark.tasks.evaluation.results import LEVEL, Threshold, source_of
from earmark.tasks.evaluation.samples import (
    EVERY,
    MeasurementOptions,
    NoSamples,
    SamplePart,
    Samples,
    find_evaluation,
    select_samples,
)
from earmark.tasks.evaluation.scorers import scorer_predictions
from earmark.tasks.evaluation.scores import NotCovered, read_scores
from earmark.tasks.evaluation.units import unit_columns
from earmark.tasks.pipeline.scoring import read_scorers
from earmark.tasks.store.folder import file_word, records_of, version_facts, write_record
from earmark.tasks.store.parquet import tuples_of
from earmark.tasks.store.versions import Store, Version

RECORD = "comparison.json"


@dataclass(frozen=True)
class Measure:
    """Target of measurement, and access to the models."""

    version: Version
    corpus: Corpus
    store: Store
    wish: MeasurementOptions
    base_url: str | None = None
    settings: Path | None = None


def compare_models(measure: Measure, entrants: Sequence[str], out: Path | None) -> tuple[ComparisonFacts, Path]:
    """Measure all entrants without an earlier run, and write the comparison: tables, tests, ranks and a plot.

    Return the facts of `comparison.json`, and the folder.

    Args:
        entrants: two or more: a model (`backend:model`), a file with a score per sample or clip, or the folder of an
            earlier run, or of several.
        out: the comparison's folder, by default in the store. New runs go to the store.

    Raises:
        InputError: fewer than two entrants, a repeated or unknown one, a run of another version, no shared evaluation,
            or other samples.
        EarmarkError: as `judge` and `measure_file`.
    """
    named = {one: name_of(one) for one in entrants}
    if len(entrants) < 2:
        raise InputError(f"expected two models or more to compare, found {len(entrants)}")
    listed = [named[one] for one in entrants]
    if twice := next((one for one in listed if listed.count(one) > 1), None):
        raise InputError(f"'{twice}' stands there twice: a comparison needs a name for each; rename a file")
    runs = {named[one]: _runs(measure, one) for one in entrants}
    known = [one for one in measure.corpus.evaluations if any(one.name in folders for folders in runs.values())]
    shared = [one for one in known if all(one.name in folders for folders in runs.values())]
    if not shared:
        each = "; ".join(f"{name}: {', '.join(folders) or 'none'}" for name, folders in runs.items())
        raise InputError(f"no evaluation that every model was measured on ({each})")
    tables = [
        table
        for one in shared
        for table in _compared(measure, one, {name: folders[one.name] for name, folders in runs.items()})
    ]
    facts: ComparisonFacts = {
        **version_facts(measure.version),
        "models": listed,
        "runs": {name: {one.name: str(folders[one.name]) for one in shared} for name, folders in runs.items()},
        "test": TEST,
        "evaluations": tables,
        "ranking": ranking(listed, [one for one in tables if "level" not in one]),
        "without": [one.name for one in known if one not in shared],
    }
    folder = out or records_of(measure.store, measure.version) / _folder(facts)
    plot = as_svg(f"{facts['corpus']} {facts['version']}", [*map(plot_block, tables)])
    return facts, write_record(folder, RECORD, facts, {**comparison_page(facts).files(), PLOT: plot})


def predictions_of(measure: Measure, entrant: str, samples: Samples, overall: Sequence[str]) -> dict[str, Prediction]:
    """Return an entrant's predictions of an evaluation's samples, by id; a file is read, a model without an earlier run
    is asked.

    Args:
        overall: as `clip_predictions` takes it.
    """
    path, evaluation = Path(entrant), samples.evaluation
    if path.is_file():
        if path.suffix == SCORER:
            (scorer,) = read_scorers([path])
            return scorer_predictions(samples, scorer, measure.store, measure.wish.roots, overall)
        dimensions = {one.dimension for one in measure.corpus.evaluations if one.clips} | {*overall}
        if (predict := clip_reader(path, dimensions)) is not None:
            if evaluation.clips is None:
                raise NotCovered(f"{evaluation.name}, which takes no scores of clips as in {path}")
            return predict(samples, overall)
        return read_scores(path, samples, shared=True)
    wish = replace(measure.wish, evaluation=evaluation.name)
    folder = _runs(replace(measure, wish=wish), entrant).get(evaluation.name)
    if folder is None:
        raise NotCovered(f"{evaluation.name}, which {entrant} was not measured on")
    found = _predictions(folder)
    wanted = {row["id"] for batch in samples.batches(10_000, ["id"]) for row in batch}
    if odd := sorted(wanted - found.keys()):
        raise InputError(
            f"{entrant}: was measured on {len(found):,} samples of '{evaluation.name}', without '{odd[0]}': measure it "
            "with the same --split, --language and --limit"
        )
    return found


def _predictions(folder: Path) -> dict[str, Prediction]:
    table = pq.read_table(folder / "predictions.parquet")
    rows = tuples_of(table, "id", "score", "choice", "reason", "detail", "items")
    return {
        name: Prediction(name, score, choice, reason, detail, items or [])
        for name, score, choice, reason, detail, items in rows
    }


def name_of(entrant: str) -> str:
    """Return a model's name in the tables."""
    path = Path(entrant)
    if not path.is_dir():
        return path.stem if path.is_file() else entrant
    records = _records(path)
    facts: EvaluationFacts = json.loads(records[0].read_bytes())
    return Path(facts["scores"] or "").stem if facts["annotator"] is None else source_of(facts)


def _records(folder: Path) -> list[Path]:
    found = [folder / EVALUATION] if (folder / EVALUATION).is_file() else sorted(folder.glob(f"*/{EVALUATION}"))
    if not found:
        raise InputError(f"{folder}: expected the folder of an earlier run, with {EVALUATION}; found none")
    return found


def _runs(measure: Measure, entrant: str) -> dict[str, Path]:
    """Return the folders of an entrant's evaluations by name; measure missing ones."""
    path, wish = Path(entrant), measure.wish
    place = (measure.version, measure.corpus, measure.store)
    if path.is_dir():
        folders = {}
        for record in _records(path):
            facts: EvaluationFacts = json.loads(record.read_bytes())
            if facts["manifest_sha256"] != measure.version.manifest.digest():
                raise InputError(
                    f"{path}: measured on {facts['corpus']}@{facts['version']} with other content than "
                    f"{measure.version.corpus}@{measure.version.name} has here: measure it again"
                )
            if wish.evaluation in (None, facts["evaluation"]):
                _require_threshold(path, facts, wish)
                folders[facts["evaluation"]] = record.parent
        return folders
    if path.is_file():
        return {one["evaluation"]: folder for one, folder in measure_file(*place, path, wish, None)[0]}
    if ":" not in entrant:
        raise InputError(
            f"{entrant}: expected backend:model, a file of scores or the folder of an earlier run; no such "
            "file or folder"
        )
    config = examinee(entrant, measure.base_url, measure.settings)
    folders = {}
    every = [one for one in measure.corpus.evaluations if one.modes]
    wanted = [one.name for one in every if wish.evaluation == one.name or (wish.evaluation is None and not one.beside)]
    for name in wanted or [find_evaluation(measure.corpus, wish.evaluation).name]:
        with suppress(NoSamples):
            _, folders[name] = judge(*place, config, replace(wish, evaluation=name), None)
    return folders


def _require_threshold(path: Path, facts: EvaluationFacts, wish: MeasurementOptions) -> None:
    """Refuse another threshold than that of an earlier run, which would say nothing there."""
    held = facts.get("threshold") or {"value": None, "source": ""}
    split = f"split {wish.tune_on}," if wish.tune_on else ""
    if wish.threshold not in (None, held["value"]) or not held["source"].startswith(split):
        option = "--tune-on" if split else "--threshold"
        found = "no threshold" if held["value"] is None else f"threshold {held['value']:g}"
        raise ConfigError(
            f"{option}: {path} was measured with {found}, and is not measured again: leave "
            f"{option} out, or name what it measured in place of the folder"
        )


def _compared(measure: Measure, evaluation: Evaluation, folders: dict[str, Path]) -> list[ComparedEvaluation]:
    runs, thresholds = {}, {}
    for name, folder in folders.items():
        runs[name] = _predictions(folder)
        threshold = json.loads((folder / EVALUATION).read_bytes()).get("threshold")
        thresholds[name] = threshold and Threshold(**threshold)
    with select_samples(measure.version, measure.corpus, evaluation, SamplePart(EVERY)) as samples:
        held = [*unit_columns(evaluation, samples.columns), *({LEVEL} & {*samples.columns})]
        rows = {row["id"]: row for batch in samples.batches(10_000, ["id", "target", *held]) for row in batch}
    return compare(evaluation, rows, runs, thresholds)


def _folder(facts: ComparisonFacts) -> str:
    key = json.dumps([facts["models"], facts["runs"]], sort_keys=True)
    words = file_word("-vs-".join(facts["models"]))[:80].strip("-.")
    return f"compare-{words}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
