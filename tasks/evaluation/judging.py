"""`earmark judge`: a model is asked about a version's samples, or a file of scores is read; a folder of results."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.config import checked, read_toml
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import ConfigError, EarmarkError, InputError, StoreError
from earmark.schemas.evaluations import Evaluation, Examinee
from earmark.schemas.views import names_clip
from earmark.tasks.annotation.outcome import Forecast
from earmark.tasks.annotation.session import Session
from earmark.tasks.build.media import media_index
from earmark.tasks.build.progress import working
from earmark.tasks.build.sessions import open_session
from earmark.tasks.evaluation.asking import Asked, NoMedia, Prediction, Questioner
from earmark.tasks.evaluation.baselines import baselines
from earmark.tasks.evaluation.clip_scores import clip_predictions, read_clip_scores
from earmark.tasks.evaluation.results import NOT_MEASURED, Threshold, as_markdown, count, credits_of
from earmark.tasks.evaluation.samples import (
    EVERY,
    HELD_OUT,
    LETTERS,
    NoSamples,
    Part,
    Samples,
    find_clips,
    find_evaluation,
    find_mode,
    select_samples,
)
from earmark.tasks.evaluation.scores import order_of, read_scores, require_form
from earmark.tasks.evaluation.statistics import best_threshold
from earmark.tasks.evaluation.templates import clips_of, write_clips_template, write_samples_template
from earmark.tasks.exports.folder import building
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.versions import Store, Version

RECORD = "evaluation.json"
SAMPLES_AT_ONCE = 500
PREDICTIONS = pa.schema(
    [
        ("id", pa.string()),
        ("split", pa.string()),
        ("target", pa.string()),
        ("score", pa.float64()),
        ("choice", pa.string()),
        ("right", pa.bool_()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("items", pa.list_(pa.struct([("item", pa.string()), ("score", pa.float64())]))),
        ("request_keys", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Wish:
    """What is to be measured.

    Attributes:
        evaluation: its name; None for a corpus's only one.
        mode: its mode; None for the first.
        part: which samples.
        both_orders: whether a preference is asked in both orders.
        roots: folders to look through for clips that moved.
        threshold: a score from which on a sample is yes, counted beside the rules about items.
        tune_on: the split on which the best threshold is looked for instead; it is not measured.
    """

    evaluation: str | None = None
    mode: str | None = None
    part: Part = field(default_factory=Part)
    both_orders: bool = False
    roots: tuple[Path, ...] = ()
    threshold: float | None = None
    tune_on: str | None = None


def examinee(annotator: str | None, base_url: str | None, settings: Path | None) -> Examinee:
    """Who is asked, by the words of the command line and a TOML file; the words go before.

    Raises:
        ConfigError: the file or the words are not those of an annotator.
    """
    values = read_toml(settings) if settings else {}
    values |= {name: value for name, value in (("annotator", annotator), ("base_url", base_url)) if value is not None}
    return checked(Examinee, values, settings or Path("earmark judge"))


def judge(
    version: Version, corpus: Corpus, store: Store, config: Examinee, wish: Wish, out: Path | None
) -> tuple[dict[str, Any], Path]:
    """Ask a model about the samples, and write what comes of it.

    A run that was killed is run again: the ledger holds the answers.

    Args:
        version: a committed version.
        corpus: its corpus.
        store: its store, whose ledger keeps the answers.
        config: who is asked.
        wish: what is measured.
        out: where results go; a folder of the store by default.

    Returns:
        The facts of `evaluation.json`, and the folder.

    Raises:
        StoreError: no such evaluation or mode, or no samples.
        StopRun: a fault that every request would meet, or the budget's end.
        EarmarkError: no sample was answered.
    """
    evaluation = find_evaluation(corpus, wish.evaluation)
    mode = find_mode(evaluation, wish.mode).name
    prompts: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary, open_session(store, config) as session:
        spill = Path(temporary)

        def predict(samples: Samples) -> dict[str, Prediction]:
            questioner = _questioner(samples, version, store, config, evaluation, wish, spill)
            predictions: dict[str, Prediction] = {}
            with working(f"judge {evaluation.name}", samples.count) as work:
                for found in _answers(samples, questioner, session):
                    predictions.update(found)
                    work.advance(len(found))
            prompts.update(questioner.prompts)
            return predictions

        with select_samples(version, corpus, evaluation, wish.part, spill) as samples:
            threshold = _threshold(version, corpus, evaluation, wish, samples, predict)
            predictions = predict(samples)
            asked: dict[str, Any] = {"mode": mode, "annotator": config.annotator, "scores": None}
            asked |= {"prompts": prompts, "both_orders": wish.both_orders, "spent_usd": session.spent_usd}
            return _finish(version, store, samples, evaluation, wish, predictions, asked, out, threshold)


def forecast(version: Version, corpus: Corpus, store: Store, config: Examinee, wish: Wish) -> dict[str, Any]:
    """What `judge` would ask; nothing is asked."""
    evaluation = find_evaluation(corpus, wish.evaluation)
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
        spill = Path(temporary)
        with select_samples(version, corpus, evaluation, wish.part, spill) as samples:
            questioner = _questioner(samples, version, store, config, evaluation, wish, spill)
            with open_session(store, config) as session:
                told: Forecast = session.forecast(
                    one.request for _, asked in _questions(samples, questioner) for one in asked
                )
            mode = find_mode(evaluation, wish.mode).name
            about = f"{samples.count:,} samples of {evaluation.name}, mode {mode}"
            return {"annotator": config.annotator, "about": about, **_as_facts(told)}


def read(
    version: Version, corpus: Corpus, store: Store, path: Path, wish: Wish, out: Path | None
) -> tuple[dict[str, Any], Path]:
    """The same table from a file of scores.

    Raises:
        InputError: as `read_scores`.
    """
    evaluation = find_evaluation(corpus, wish.evaluation)
    with (
        tempfile.TemporaryDirectory(prefix="earmark-") as temporary,
        select_samples(version, corpus, evaluation, wish.part, Path(temporary)) as samples,
    ):
        threshold = _threshold(
            version, corpus, evaluation, wish, samples, lambda others: read_scores(path, evaluation, others)
        )
        predictions = read_scores(path, evaluation, samples)
        return _finish(version, store, samples, evaluation, wish, predictions, _file(path, evaluation), out, threshold)


def read_clips(
    version: Version, corpus: Corpus, store: Store, path: Path, wish: Wish, out: Path | None
) -> tuple[list[tuple[dict[str, Any], Path]], list[str]]:
    """The tables of every scalar and preference evaluation that a file of clips' scores feeds.

    Returns:
        Facts and folder of each; and the evaluations that the file says nothing of.

    Raises:
        StoreError: the evaluation, or every one of the corpus, asks for more than a number a clip.
        InputError: as `read_clip_scores` and `clip_predictions`.
    """
    evaluations = _of_clips(corpus, wish)
    scores = read_clip_scores(path, {one.dimension for one in evaluations})
    tables, without = [], []
    for evaluation in evaluations:
        with _selected(version, corpus, evaluation, wish) as samples:
            found = clip_predictions(scores, samples, evaluation) if samples else None
            if samples is None or found is None:
                without.append(evaluation.name)
                continue
            predictions, most = found
            asked = {**_file(path, evaluation), "per_clip": True}
            if most is not None:
                asked["reachable"] = {"accuracy": most.met / samples.count, "exact": most.exact}
            place = out / evaluation.name if out and len(evaluations) > 1 else out
            tables.append(_finish(version, store, samples, evaluation, wish, predictions, asked, place))
    if not tables:
        raise InputError(f"{path}: no clip of {', '.join(without)} is in it")
    return tables, without


def write_template(version: Version, corpus: Corpus, path: Path, wish: Wish) -> tuple[int, str]:
    """Write the rows of a file of scores: of clips, or of samples where an evaluation is named or none is of clips.

    Returns:
        How many rows, and the option that reads the file.

    Raises:
        InputError: the file exists, or has an ending that is none of a table.
        StoreError: no such evaluation, or no samples.
    """
    if wish.evaluation is None and any(one.clips for one in corpus.evaluations):
        held = []
        for evaluation in _of_clips(corpus, wish):
            with _selected(version, corpus, evaluation, wish) as samples:
                if samples:
                    held.append((evaluation, clips_of(samples, evaluation)))
        if not held:
            raise NoSamples(f"{version.corpus}@{version.name} has no sample of any evaluation")
        return write_clips_template(path, held), "--clip-scores"
    evaluation = find_evaluation(corpus, wish.evaluation)
    with _selected(version, corpus, evaluation, replace(wish, evaluation=evaluation.name)) as samples:
        assert samples is not None
        return write_samples_template(path, evaluation, samples), "--scores"


def _of_clips(corpus: Corpus, wish: Wish) -> list[Evaluation]:
    """The evaluation that is named, or all that scores of clips can feed."""
    if wish.evaluation is not None or not any(one.clips for one in corpus.evaluations):
        only = find_evaluation(corpus, wish.evaluation)
        require_form(only)
        return [only]
    return [one for one in corpus.evaluations if one.clips]


@contextmanager
def _selected(version: Version, corpus: Corpus, evaluation: Evaluation, wish: Wish) -> Iterator[Samples | None]:
    """The samples of an evaluation; None where the version has none and the evaluation was not named."""
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary, ExitStack() as stack:
        try:
            samples = stack.enter_context(select_samples(version, corpus, evaluation, wish.part, Path(temporary)))
        except NoSamples:
            if wish.evaluation is not None:
                raise
            yield None
            return
        yield samples


def _file(path: Path, evaluation: Evaluation) -> dict[str, Any]:
    """The facts of a file of scores."""
    facts = {"mode": None, "annotator": None, "scores": path.name, "scores_sha256": sha256_file(path)}
    return facts | ({"order": order_of(evaluation)} if evaluation.kind == "preference" else {})


def _threshold(
    version: Version,
    corpus: Corpus,
    evaluation: Evaluation,
    wish: Wish,
    samples: Samples,
    predict: Callable[[Samples], dict[str, Prediction]],
) -> Threshold | None:
    """The threshold that is named, or the best of a split that is not measured; None without either wish.

    Raises:
        ConfigError: the evaluation has no yes and no.
        StoreError: the split is held out or measured, is not there, or has no answers of both kinds.
    """
    split = wish.tune_on
    if wish.threshold is None and split is None:
        return None
    if evaluation.kind != "yes_no":
        raise ConfigError(f"evaluation '{evaluation.name}' asks for no yes or no: leave --threshold and --tune-on out")
    if split is None:
        assert wish.threshold is not None
        return Threshold(wish.threshold, "--threshold")
    if split in (*HELD_OUT, EVERY) or split in samples.splits():
        raise StoreError(f"--tune-on {split}: a threshold is chosen on a split that is not measured; name another")
    part = replace(wish.part, split=split, limit=None)
    with (
        tempfile.TemporaryDirectory(prefix="earmark-") as temporary,
        select_samples(version, corpus, evaluation, part, Path(temporary)) as others,
    ):
        found = predict(others)
        truth = {row["id"]: row["target"] for rows in others.batches(10_000, ["id", "target"]) for row in rows}
    scored = [(one.score, truth[one.id]) for one in found.values() if one.score is not None]
    if len({target for _, target in scored}) < 2:
        raise StoreError(f"--tune-on {split}: expected answers to samples of both kinds, yes and no, in that split")
    return Threshold(best_threshold(*zip(*scored, strict=True)), f"split {split}, {len(scored):,} samples")


def _questioner(
    samples: Samples,
    version: Version,
    store: Store,
    config: Examinee,
    evaluation: Evaluation,
    wish: Wish,
    folder: Path,
) -> Questioner:
    mode = find_mode(evaluation, wish.mode)
    clips = find_clips(samples, mode.columns, version, store, folder / "clips", wish.roots)
    drawn = "swapped" in samples.columns
    return Questioner(evaluation, mode, config, clips, folder / "images", drawn, wish.both_orders)


def _questions(samples: Samples, questioner: Questioner) -> Iterator[tuple[str, list[Asked]]]:
    for rows in samples.batches(SAMPLES_AT_ONCE, questioner.columns):
        asked, _ = _asked(rows, questioner)
        yield from asked.items()


def _answers(samples: Samples, questioner: Questioner, session: Session) -> Iterator[dict[str, Prediction]]:
    """Predictions, a batch of samples after the other."""
    for rows in samples.batches(SAMPLES_AT_ONCE, questioner.columns):
        asked, without = _asked(rows, questioner)
        outcomes = iter(session.ask([one.request for held in asked.values() for one in held]).outcomes)
        said = {sample: questioner.read(sample, held, [next(outcomes) for _ in held]) for sample, held in asked.items()}
        yield {**said, **without}


def _asked(rows: list[dict[str, Any]], questioner: Questioner) -> tuple[dict[str, list[Asked]], dict[str, Prediction]]:
    """The requests about each sample, and those samples that cannot be asked about because a clip is not at hand."""
    asked, without = {}, {}
    for row in rows:
        try:
            asked[row["id"]] = questioner.requests(row)
        except NoMedia as fault:
            without[row["id"]] = Prediction(row["id"], reason="no_media", detail=str(fault))
    return asked, without


def _finish(
    version: Version,
    store: Store,
    samples: Samples,
    evaluation: Evaluation,
    wish: Wish,
    predictions: dict[str, Prediction],
    asked: dict[str, Any],
    out: Path | None,
    threshold: Threshold | None = None,
) -> tuple[dict[str, Any], Path]:
    """Count, and write the folder."""
    grouped = dict.fromkeys(name for group in evaluation.groups for name in group.split("+"))
    columns = [*dict.fromkeys(["id", "split", "target", *grouped])]
    extra = ("cluster", "swapped", "audio", "a_audio", "b_audio")
    columns += [name for name in extra if name in samples.columns and name not in columns]
    rows = [row for batch in samples.batches(10_000, columns) for row in batch]
    if evaluation.kind == "choice":
        rows = _with_options(rows, samples.sizes(evaluation), predictions)
    if not any(one.answered for one in predictions.values()):
        commonest = Counter(one.reason for one in predictions.values()).most_common(1)[0][0]
        detail = next(one.detail for one in predictions.values() if one.reason == commonest)
        raise EarmarkError(f"no sample has an answer; most for '{commonest}', such as: {detail}")
    clips = samples.clips([name for name in extra if name in samples.columns and names_clip(name)])
    measured = [row for row in rows if predictions[row["id"]].reason not in NOT_MEASURED]
    controls, without = baselines(evaluation, measured, media_index(store).measured(clips) if clips else {})
    facts = {
        "corpus": version.corpus,
        "version": version.name,
        "manifest_sha256": version.manifest.digest(),
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
    folder = (out or store.root / "evaluations" / _name(facts)).absolute()
    with building(folder, force=True, record=RECORD) as place:
        write_rows(place / "predictions.parquet", PREDICTIONS, _written(evaluation, rows, predictions))
        text = json.dumps(facts, indent=1, ensure_ascii=False)
        (place / RECORD).write_text(text + "\n", encoding="utf-8", newline="\n")
        (place / "README.md").write_text(as_markdown(facts), encoding="utf-8", newline="\n")
    return facts, folder


def _with_options(
    rows: list[dict[str, Any]], sizes: dict[str, int], predictions: dict[str, Prediction]
) -> list[dict[str, Any]]:
    """Rows with the number of their options; a sample whose right letter names none is answered by nothing."""
    for row in rows:
        row["options"] = sizes.get(row["id"])
        if row["options"] is not None and LETTERS.index(row["target"]) >= row["options"]:
            detail = f"the right letter is {row['target']} of {row['options']} options"
            predictions[row["id"]] = Prediction(row["id"], reason="no_such_option", detail=detail)
    return rows


def _written(
    evaluation: Evaluation, rows: list[dict[str, Any]], predictions: dict[str, Prediction]
) -> list[tuple[Any, ...]]:
    written = []
    for row in rows:
        one = predictions[row["id"]]
        right = bool(credits_of(evaluation, row["target"], one, None).get("accuracy")) if one.answered else None
        right = None if evaluation.kind == "scalar" else right
        target = {True: "yes", False: "no"}[row["target"]] if evaluation.kind == "yes_no" else str(row["target"])
        held = (one.score, one.choice, right, one.reason, one.detail, one.items, one.requests)
        written.append((row["id"], row["split"], target, *held))
    return written


def _name(facts: dict[str, Any]) -> str:
    """A folder's name for a model, a mode and a part of the samples."""
    who = facts["annotator"] or Path(facts["scores"]).stem + ("-clips" if facts.get("per_clip") else "")
    parts = [facts["evaluation"], facts["mode"], who, *facts["splits"], facts["language"]]
    parts += [f"first-{facts['limit']}"] if facts["limit"] else []
    parts += ["both-orders"] if facts.get("both_orders") else []
    named = "-".join(re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("-.") for part in parts if part)
    return f"{facts['corpus']}/{facts['version']}/{named}"


def _as_facts(told: Forecast) -> dict[str, Any]:
    return {name: getattr(told, name) for name in Forecast.__dataclass_fields__}
