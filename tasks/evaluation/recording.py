"""Count predictions, and write them to a folder with `evaluation.json`, `predictions.parquet` and tables."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.errors import ConfigError, EarmarkError, StoreError
from earmark.schemas.evaluations import Evaluation
from earmark.schemas.results import AskedFacts, EvaluationFacts
from earmark.tasks.audio.probe import Probe
from earmark.tasks.evaluation.kinds import MeasuredSample, Prediction, SampleKind, find_kind, leader
from earmark.tasks.evaluation.results import LEVEL, NOT_MEASURED, Threshold, count, evaluation_page
from earmark.tasks.evaluation.samples import (
    EVERY,
    HELD_OUT,
    MeasurementOptions,
    SamplePart,
    Samples,
    select_samples,
)
from earmark.tasks.evaluation.statistics import best_threshold
from earmark.tasks.evaluation.units import unit_columns
from earmark.tasks.pipeline.media import media_index
from earmark.tasks.pipeline.progress import say
from earmark.tasks.store.folder import file_word, named_word, records_of, version_facts, write_record
from earmark.tasks.store.parquet import row_schema
from earmark.tasks.store.versions import Store

RECORD = "evaluation.json"
ITEMS = pa.list_(pa.struct([("item", pa.string()), ("score", pa.float64())]))
PREDICTIONS = pa.schema(
    [
        *row_schema(
            "id string, split string, target string, cluster string, score float64, choice string, right bool, "
            "reason string, detail string"
        ),
        pa.field("items", ITEMS),
        pa.field("request_keys", pa.list_(pa.string())),
    ]
)


def tuning_part(samples: Samples, wish: MeasurementOptions) -> SamplePart | None:
    """Return the part of the samples to choose a threshold on, within the limit; None without `--tune-on`."""
    split = wish.tune_on
    if wish.threshold is None and split is None:
        return None
    evaluation = samples.evaluation
    if not find_kind(evaluation.kind).thresholds:
        raise ConfigError(f"evaluation '{evaluation.name}' asks for no yes or no: leave --threshold and --tune-on out")
    if split is None:
        return None
    measured = samples.connection.execute("SELECT DISTINCT split FROM judged.samples").fetchall()
    if split in (*HELD_OUT, EVERY) or (split,) in measured:
        raise StoreError(f"--tune-on {split}: a threshold is chosen on a split that is not measured; name another")
    return replace(wish.part, split=split)


def choose_threshold(
    samples: Samples, wish: MeasurementOptions, predict: Callable[[Samples], dict[str, Prediction]]
) -> Threshold | None:
    """Return the named threshold, or the best on a split that is not measured; None without either option."""
    part = tuning_part(samples, wish)
    if part is None:
        return None if wish.threshold is None else Threshold(wish.threshold, "--threshold")
    with select_samples(samples.version, samples.corpus, samples.evaluation, part) as others:
        found = predict(others)
        truth = {row["id"]: row["target"] for rows in others.batches(10_000, ["id", "target"]) for row in rows}
    scored = [(one.score, truth[one.id]) for one in found.values() if one.score is not None]
    if len({target for _, target in scored}) < 2:
        raise StoreError(
            f"--tune-on {part.split}: expected answers to samples of both kinds, yes and no, in that split"
            + (f", found one kind among {len(scored):,} answers within --limit {part.limit}" if part.limit else "")
        )
    return Threshold(best_threshold(*zip(*scored, strict=True)), f"split {part.split}, {len(scored):,} samples")


def record(
    store: Store,
    samples: Samples,
    wish: MeasurementOptions,
    predictions: dict[str, Prediction],
    asked: AskedFacts,
    out: Path | None,
    threshold: Threshold | None = None,
) -> tuple[EvaluationFacts, Path]:
    """Count the predictions, and write the folder."""
    version, evaluation = samples.version, samples.evaluation
    grouped = [name for group in evaluation.groups for name in group.split("+")]
    extra = ("swapped", "audio", "a_audio", "b_audio", LEVEL)
    held = [*unit_columns(evaluation, samples.columns), *(name for name in extra if name in samples.columns)]
    columns = ["id", "split", "target", *grouped, *held]
    rows = [row for batch in samples.batches(10_000, [*dict.fromkeys(columns)]) for row in batch]
    kind = find_kind(evaluation.kind)
    add_sizes(kind, rows, samples.sizes(), predictions)
    if not any(one.answered for one in predictions.values()):
        commonest = Counter(one.reason for one in predictions.values()).most_common(1)[0][0]
        detail = next(one.detail for one in predictions.values() if one.reason == commonest)
        modes = [mode.name for mode in evaluation.modes]
        if asked.get("annotator") and "is not of type 'object'" in str(detail) and "single" in modes:
            raise EarmarkError(f"{asked['annotator']} rates one clip: add --mode single")
        raise EarmarkError(f"no sample has an answer; most for '{commonest}', such as: {detail}")
    clips = samples.clips(extra)
    measured = [row for row in rows if predictions[row["id"]].reason not in NOT_MEASURED]
    controls, without = baselines(evaluation, measured, media_index(store).measured(clips) if clips else {})
    facts: EvaluationFacts = {
        **version_facts(version),
        "evaluation": evaluation.name,
        "kind": evaluation.kind,
        "says": evaluation.says,
        **asked,
        "splits": list(dict.fromkeys(sorted(row["split"] for row in rows))),
        "language": wish.part.language,
        "limit": wish.part.limit,
        **count(evaluation, rows, predictions, threshold, controls),
        "without": without,
    }
    folder, pages = out or records_of(store, version) / _name(facts), evaluation_page(facts).files()
    if out is None:
        _say_if_replaced(folder, facts)
    kept = (PREDICTIONS, _written(kind, rows, predictions))
    return facts, write_record(folder, RECORD, facts, pages, predictions=kept)


def add_sizes(
    kind: SampleKind, rows: Sequence[MeasuredSample], sizes: dict[str, int], predictions: dict[str, Prediction]
) -> None:
    """Add the number of options to rows; drop the answer of a sample whose right letter names no option."""
    for row in rows:
        row["options"] = sizes.get(row["id"])
        if fault := kind.impossible(row["target"], row["options"]):
            predictions[row["id"]] = Prediction(row["id"], reason="no_such_option", detail=fault)


def _written(kind: SampleKind, rows: list[MeasuredSample], predictions: dict[str, Prediction]) -> list[tuple[Any, ...]]:
    written = []
    for row in rows:
        one = predictions[row["id"]]
        right = bool(kind.credits(row["target"], one, None)["accuracy"]) if one.answered and kind.credited else None
        target = {"True": "yes", "False": "no"}.get(str(row["target"]), str(row["target"]))
        held = (one.score, one.choice, right, one.reason, one.detail, one.items, one.requests)
        cluster = None if row.get("cluster") is None else str(row["cluster"])
        written.append((row["id"], row["split"], target, cluster, *held))
    return written


def _say_if_replaced(folder: Path, facts: EvaluationFacts) -> None:
    """Say that the result of another file of scores, of the same name, is replaced."""
    if facts["scores"] is None or not (folder / RECORD).is_file():
        return
    if json.loads((folder / RECORD).read_text("utf-8")).get("scores_sha256") != facts["scores_sha256"]:
        say(f"{folder}: replaces the result of another file of this name; --out DIR keeps both")


def _name(facts: EvaluationFacts) -> str:
    """Return the folder's name for a model, a mode and a part of the samples."""
    scores = named_word(Path(facts["scores"] or "").stem) + ("-clips" if facts.get("per_clip") else "")
    who = facts["annotator"] or scores
    parts = [facts["evaluation"], facts["mode"] or "", who, *facts["splits"], facts["language"] or ""]
    parts += [f"first-{facts['limit']}"] if facts["limit"] else []
    parts += ["both-orders"] if facts.get("both_orders") else []
    parts += [f"{facts['draws']}-draws"] if facts.get("draws", 1) > 1 else []
    parts += [f"blind-{facts['blind']}"] if facts.get("blind") else []
    parts += [which for _, _, which in (one.partition("@") for one in facts.get("prompts") or ()) if "own-" in which]
    return file_word(*parts)


MEASURES = {"longest": "duration_s", "loudest": "level_dbfs"}


def baselines(
    evaluation: Evaluation, rows: Sequence[MeasuredSample], clips: Mapping[str, Probe]
) -> tuple[dict[str, dict[str, Prediction]], list[str]]:
    """Predict each sample by each baseline, by id.

    Args:
        rows: one row per sample: `id`, `target`, and if present `swapped`, `audio` or `a_audio` and `b_audio`, and
            `options`, their number.
        clips: measures of clips, by SHA-256.

    Returns:
        Predictions by baseline; and a sentence for each missing baseline.
    """
    kind = find_kind(evaluation.kind)
    said: dict[str, list[Any]] = {"oracle": [row["target"] for row in rows]}
    if rows and kind.first(evaluation, rows[0]) is not None:
        said |= {"always first": [kind.first(evaluation, row) for row in rows]}
    measured, without = _measured(evaluation, rows, clips)
    said |= measured
    counts = Counter(row["target"] for row in rows)
    if kind.credited and len(counts) > 1:  # else it is the truth again
        common = sorted(counts.items(), key=lambda one: (-one[1], str(one[0])))[0][0]
        said |= {"majority": [common] * len(rows)}
    said |= {"coin": [kind.coin(evaluation, row, _drawn(row["id"])) for row in rows]}
    made = {
        name: {row["id"]: kind.predict(row["id"], one) for row, one in zip(rows, answers, strict=True)}
        for name, answers in said.items()
    }
    return made, without


def _measured(
    evaluation: Evaluation, rows: Sequence[Mapping[str, Any]], clips: Mapping[str, Probe]
) -> tuple[dict[str, list[Any]], list[str]]:
    columns = [f"{side}audio" for side in find_kind(evaluation.kind).clips]
    if not columns or not set(columns) <= rows[0].keys():
        return {}, []
    lacking = sum(any(row[name] not in clips for name in columns) for row in rows)
    if lacking:
        line = f"no baselines longest and loudest: clips of {lacking:,} samples are not in the store's media index"
        return {}, [line]

    def answer(row: Mapping[str, Any], measure: str) -> Any:
        values = [getattr(clips[row[name]], measure) for name in columns]
        return values[0] if len(values) == 1 else leader(evaluation, values[0] - values[1])

    return {name: [answer(row, measure) for row in rows] for name, measure in MEASURES.items()}, []


def _drawn(sample: str) -> float:
    """Draw a number from 0 to 1 by hash of the id, so that tables are reproducible."""
    return int.from_bytes(hashlib.sha256(f"coin {sample}".encode()).digest()[:6], "big") / 2**48
