"""Measure scorers, and files of scores per sample or clip, like a model's answers; write templates of such files."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.evaluations import Evaluation
from earmark.schemas.results import AskedFacts, EvaluationFacts
from earmark.tasks.annotation.request import AskPlan
from earmark.tasks.annotation.scorer import identity
from earmark.tasks.evaluation.clip_scores import ANY, clip_predictions, clip_reader, most_met, read_clip_scores
from earmark.tasks.evaluation.kinds import Prediction, clip_columns, find_kind, order_of
from earmark.tasks.evaluation.recording import choose_threshold, record, tuning_part
from earmark.tasks.evaluation.samples import (
    MeasurementOptions,
    NoSamples,
    SamplePart,
    Samples,
    find_evaluation,
    select_samples,
)
from earmark.tasks.evaluation.scorers import (
    described,
    scorer_forecasts,
    scorer_inputs,
    scorer_predictions,
    scores_for,
)
from earmark.tasks.evaluation.scores import NotCovered, format_of, read_scores, require_form
from earmark.tasks.pipeline.scoring import read_scorers
from earmark.tasks.store.files import replacing, sha256_file
from earmark.tasks.store.sql import literal
from earmark.tasks.store.versions import Store, Version

SCORER = ".toml"  # the ending of a scorer's file


def read(
    version: Version, corpus: Corpus, store: Store, path: Path, wish: MeasurementOptions, out: Path | None
) -> tuple[EvaluationFacts, Path]:
    """Measure a file of scores, with the table and record of `judge`.

    Raises:
        InputError: as `read_scores`.
    """
    evaluation = find_evaluation(corpus, wish.evaluation)
    with select_samples(version, corpus, evaluation, wish.part) as samples:
        threshold = choose_threshold(samples, wish, partial(read_scores, path))
        return record(store, samples, wish, read_scores(path, samples), _file(path, evaluation), out, threshold)


Records = tuple[list[tuple[EvaluationFacts, Path]], list[str]]
"""Facts and folder of each evaluation, and a sentence on each evaluation that is not covered."""


def measure_file(
    version: Version, corpus: Corpus, store: Store, path: Path, wish: MeasurementOptions, out: Path | None
) -> tuple[list[tuple[EvaluationFacts, Path]], list[str] | None]:
    """Measure a scorer (TOML) as `run_scorer`, scores per clip or `results.jsonl` as `read_clips`, any other as `read`.

    Returns:
        Facts and folder of each evaluation; and why it does not cover the others, None for a file of samples.
    """
    if path.suffix == SCORER:
        return run_scorer(version, corpus, store, path, wish, out)
    if clip_reader(path, _dimensions(corpus)) is not None:
        return read_clips(version, corpus, store, path, wish, out)
    return [read(version, corpus, store, path, wish, out)], None


def _dimensions(corpus: Corpus) -> set[str]:
    return {one.dimension for one in corpus.evaluations if one.clips}


def read_clips(
    version: Version, corpus: Corpus, store: Store, path: Path, wish: MeasurementOptions, out: Path | None
) -> Records:
    """Measure every scalar and preference evaluation that a file of clip scores covers."""
    dimensions = _dimensions(corpus)
    predictions_of = clip_reader(path, dimensions) or partial(clip_predictions, read_clip_scores(path, dimensions))

    def predict(samples: Samples) -> tuple[dict[str, Prediction], AskedFacts]:
        predictions = predictions_of(samples, ())
        facts: AskedFacts = {**_file(path, samples.evaluation), "per_clip": True}
        if find_kind(samples.evaluation.kind).compares:
            most = most_met(samples)
            facts["reachable"] = {"accuracy": most.met / samples.count, "exact": most.exact}
        return predictions, facts

    return _measured(version, corpus, store, wish, out, predict)


def run_scorer(
    version: Version, corpus: Corpus, store: Store, path: Path, wish: MeasurementOptions, out: Path | None
) -> Records:
    """Measure every scalar and preference evaluation that a scorer gives a score for."""
    (scorer,) = read_scorers([path])

    def predict(samples: Samples) -> tuple[dict[str, Prediction], AskedFacts]:
        names = scores_for(scorer, samples)
        facts: AskedFacts = {"mode": "+".join(names), "annotator": identity(scorer), "scores": None}
        facts["measured_by"] = {name: one for name, one in described([scorer]).items() if name in names}
        return scorer_predictions(samples, scorer, store, wish.roots), facts

    return _measured(version, corpus, store, wish, out, predict)


def scorer_plans(version: Version, corpus: Corpus, store: Store, path: Path, wish: MeasurementOptions) -> list[AskPlan]:
    """Count the requests of `run_scorer` without asking."""
    (scorer,) = read_scorers([path])
    plans: list[AskPlan] = []
    for evaluation in _of_clips(corpus, wish):
        with suppress(NoSamples, NotCovered), select_samples(version, corpus, evaluation, wish.part) as samples:
            scores_for(scorer, samples)
            inputs = scorer_inputs(samples, store, wish.roots)
            plans += scorer_forecasts({key: one for key, one in inputs.items() if one is not None}, [scorer], store)
    return plans


def _measured(
    version: Version,
    corpus: Corpus,
    store: Store,
    wish: MeasurementOptions,
    out: Path | None,
    predict: Callable[[Samples], tuple[dict[str, Prediction], AskedFacts]],
) -> Records:
    """Record the predictions of each evaluation by clip scores."""
    evaluations = _of_clips(corpus, wish)
    tables, without = [], []
    for evaluation in evaluations:
        try:
            with select_samples(version, corpus, evaluation, wish.part) as samples:
                tuning_part(samples, wish)
                predictions, facts = predict(samples)
                place = out / evaluation.name if out and len(evaluations) > 1 else out
                tables.append(record(store, samples, wish, predictions, facts, place))
        except NotCovered as lacking:
            without.append(str(lacking))
        except NoSamples as none:
            if wish.evaluation is not None:
                raise
            without.append(str(none))
    if not tables:
        raise InputError("; ".join(without))
    return tables, without + _beside(version, corpus, wish)


def write_template(version: Version, corpus: Corpus, path: Path, wish: MeasurementOptions) -> int:
    """Write the rows of a file of scores: of clips, or of samples if an evaluation is named or none is of clips.

    Return their number.

    Raises:
        InputError: the file exists, or its ending is not a table's.
        StoreError: no such evaluation, or no samples.
    """
    if wish.evaluation is None and any(one.clips for one in corpus.evaluations):
        clips = []
        for evaluation in _of_clips(corpus, wish):
            with suppress(NoSamples), select_samples(version, corpus, evaluation, wish.part) as samples:
                clips.append((evaluation, clips_of(samples)))
        if not clips:
            known = "; ".join(f"{one.name} ({one.says})" for one in _of_clips(corpus, wish))
            raise NoSamples(f"{version.corpus}@{version.name} has no sample of any evaluation by clip: {known}")
        return write_clips_template(path, clips)
    evaluation = find_evaluation(corpus, wish.evaluation)
    with select_samples(version, corpus, evaluation, wish.part) as samples:
        return write_samples_template(path, samples)


def _of_clips(corpus: Corpus, wish: MeasurementOptions) -> list[Evaluation]:
    if wish.evaluation is not None or not any(one.clips for one in corpus.evaluations):
        only = find_evaluation(corpus, wish.evaluation)
        require_form(only)
        return [only]
    return [one for one in corpus.evaluations if one.clips and not one.beside]


def _beside(version: Version, corpus: Corpus, wish: MeasurementOptions) -> list[str]:
    """Return a sentence for each evaluation by clip that is left out unless it is named."""
    said = []
    for one in corpus.evaluations if wish.evaluation is None else ():
        if one.clips and one.beside:
            try:
                with select_samples(version, corpus, one, SamplePart()):
                    said.append(f"{one.name}, which is measured only where it is named: -e {one.name}")
            except StoreError as none:
                said.append(str(none))
    return said


def _file(path: Path, evaluation: Evaluation) -> AskedFacts:
    facts: AskedFacts = {
        "mode": None, "annotator": None, "scores": path.name, "scores_sha256": sha256_file(path)
    }  # fmt: skip
    if find_kind(evaluation.kind).compares:
        facts["order"] = order_of(evaluation)
    return facts


def clips_of(samples: Samples) -> pa.Table:
    """Return the clips of an evaluation's samples: `clip`, `file`, `clip_sha256`."""
    assert samples.evaluation.clips is not None
    table, key = samples.evaluation.clips
    columns = clip_columns(samples.evaluation)
    wanted = " UNION ".join(f'SELECT "{name}" AS clip FROM judged.samples' for name in columns)
    return (
        samples.connection.cursor()
        .sql(f'SELECT clip, file, clip_sha256 FROM ({wanted}) JOIN "{table}" ON "{key}" = clip ORDER BY clip')
        .to_arrow_table()
    )


def write_clips_template(path: Path, clips: Sequence[tuple[Evaluation, pa.Table]]) -> int:
    """Write a row per clip, with an empty column per dimension; `score` for a single dimension."""
    dimensions = list(dict.fromkeys(evaluation.dimension for evaluation, _ in clips))
    empty = ", ".join(f'NULL::DOUBLE AS "{name}"' for name in (dimensions if len(dimensions) > 1 else [ANY]))
    with duckdb.connect() as connection:
        connection.register("named_clips", pa.concat_tables(table for _, table in clips))
        return _write(path, connection, f"SELECT *, {empty} FROM (SELECT DISTINCT * FROM named_clips) ORDER BY clip")


def write_samples_template(path: Path, samples: Samples) -> int:
    """Write a row per sample, with the empty columns, and the clips of preferences."""
    evaluation = samples.evaluation
    clips = "".join(f', "{name}"' for name in clip_columns(evaluation))
    empty = find_kind(evaluation.kind).empty_columns(evaluation, path.suffix.lower() in (".csv", ".tsv"))
    query = f"SELECT id{clips}, {empty} FROM judged.samples ORDER BY id"
    return _write(path, samples.connection.cursor(), query)


def _write(path: Path, connection: duckdb.DuckDBPyConnection, query: str) -> int:
    _, form = format_of(path)
    if path.exists():
        raise InputError(f"{path}: the file exists, and its scores with it; name another")
    if not path.parent.is_dir():
        raise InputError(f"{path}: no such folder")
    with replacing(path) as part:
        rows = connection.execute(f"COPY ({query}) TO {literal(part)} ({form})").fetchall()
    return int(rows[0][0])
