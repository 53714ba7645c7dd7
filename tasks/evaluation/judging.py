"""`earmark judge`: a model is asked about a version's samples, or a file of scores is read; a folder of results."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from schemas.config import checked, read_toml
from schemas.corpus import Corpus
from schemas.errors import EarmarkError
from schemas.evaluations import Evaluation, Examinee
from tasks.annotation.outcome import Forecast
from tasks.annotation.session import Session
from tasks.build.asking import asking
from tasks.build.progress import working
from tasks.evaluation.asking import Asked, NoMedia, Prediction, Questioner
from tasks.evaluation.results import as_markdown, count, is_right
from tasks.evaluation.samples import Part, Samples, find_clips, find_evaluation, find_mode, select_samples
from tasks.evaluation.scores import order_of, read_scores
from tasks.exports.folder import building
from tasks.store.files import sha256_file
from tasks.store.parquet import write_rows
from tasks.store.versions import Store, Version

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
    """

    evaluation: str | None = None
    mode: str | None = None
    part: Part = field(default_factory=Part)
    both_orders: bool = False
    roots: tuple[Path, ...] = ()


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
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
        spill = Path(temporary)
        with select_samples(version, corpus, evaluation, wish.part, spill) as samples:
            questioner = _questioner(samples, version, store, config, evaluation, wish, spill)
            with asking(store, config) as session, working(f"judge {evaluation.name}", samples.count) as work:
                predictions = {}
                for found in _answers(samples, questioner, session):
                    predictions.update(found)
                    work.advance(len(found))
                spent = session.spent_usd
            mode = find_mode(evaluation, wish.mode).name
            asked: dict[str, Any] = {"mode": mode, "annotator": config.annotator, "scores": None}
            asked |= {"prompts": questioner.prompts, "both_orders": wish.both_orders, "spent_usd": spent}
            return _finish(version, store, samples, evaluation, wish, predictions, asked, out)


def forecast(version: Version, corpus: Corpus, store: Store, config: Examinee, wish: Wish) -> dict[str, Any]:
    """What `judge` would ask; nothing is asked."""
    evaluation = find_evaluation(corpus, wish.evaluation)
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
        spill = Path(temporary)
        with select_samples(version, corpus, evaluation, wish.part, spill) as samples:
            questioner = _questioner(samples, version, store, config, evaluation, wish, spill)
            with asking(store, config) as session:
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
        predictions = read_scores(path, evaluation, samples)
        asked = {"mode": None, "annotator": None, "scores": path.name, "scores_sha256": sha256_file(path)}
        asked |= {"order": order_of(evaluation)} if evaluation.kind == "preference" else {}
        return _finish(version, store, samples, evaluation, wish, predictions, asked, out)


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
) -> tuple[dict[str, Any], Path]:
    """Count, and write the folder."""
    grouped = dict.fromkeys(name for group in evaluation.groups for name in group.split("+"))
    columns = [*dict.fromkeys(["id", "split", "target", *grouped])]
    columns += ["cluster"] if "cluster" in samples.columns and "cluster" not in columns else []
    rows = [row for batch in samples.batches(10_000, columns) for row in batch]
    if not any(one.answered for one in predictions.values()):
        commonest = Counter(one.reason for one in predictions.values()).most_common(1)[0][0]
        detail = next(one.detail for one in predictions.values() if one.reason == commonest)
        raise EarmarkError(f"no sample has an answer; most for '{commonest}', such as: {detail}")
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
        "threshold": evaluation.threshold if evaluation.kind == "yes_no" else None,
        **count(evaluation, rows, predictions),
    }
    folder = (out or store.root / "evaluations" / _name(facts)).absolute()
    with building(folder, force=True, record=RECORD) as place:
        write_rows(place / "predictions.parquet", PREDICTIONS, _written(evaluation, rows, predictions))
        text = json.dumps(facts, indent=1, ensure_ascii=False)
        (place / RECORD).write_text(text + "\n", encoding="utf-8", newline="\n")
        (place / "README.md").write_text(as_markdown(facts), encoding="utf-8", newline="\n")
    return facts, folder


def _written(
    evaluation: Evaluation, rows: list[dict[str, Any]], predictions: dict[str, Prediction]
) -> list[tuple[Any, ...]]:
    written = []
    for row in rows:
        one = predictions[row["id"]]
        right = is_right(evaluation, row["target"], one)
        target = {True: "yes", False: "no"}[row["target"]] if evaluation.kind == "yes_no" else str(row["target"])
        held = (one.score, one.choice, right, one.reason, one.detail, one.items, one.requests)
        written.append((row["id"], row["split"], target, *held))
    return written


def _name(facts: dict[str, Any]) -> str:
    """A folder's name for a model, a mode and a part of the samples."""
    who = facts["annotator"] or Path(facts["scores"]).stem
    parts = [facts["evaluation"], facts["mode"], who, *facts["splits"], facts["language"]]
    parts += [f"first-{facts['limit']}"] if facts["limit"] else []
    parts += ["both-orders"] if facts.get("both_orders") else []
    named = "-".join(re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("-.") for part in parts if part)
    return f"{facts['corpus']}/{facts['version']}/{named}"


def _as_facts(told: Forecast) -> dict[str, Any]:
    return {name: getattr(told, name) for name in Forecast.__dataclass_fields__}
