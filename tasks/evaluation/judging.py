"""`earmark judge` with a model: it is asked about a version's samples, in the form that the evaluation's mode has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from earmark.schemas.config import checked, read_toml
from earmark.schemas.corpus import Corpus
from earmark.schemas.evaluations import Examinee, Mode
from earmark.tasks.build.progress import working
from earmark.tasks.build.sessions import open_session
from earmark.tasks.evaluation.asking import Asked, NoMedia, Prediction, Questioner
from earmark.tasks.evaluation.recording import choose_threshold, record
from earmark.tasks.evaluation.samples import Samples, Wish, find_evaluation, find_mode, select_samples
from earmark.tasks.exports.clips import clip_files
from earmark.tasks.store.versions import Store, Version

SAMPLES_AT_ONCE = 500
One = TypeVar("One", bound=Examinee)


def examinee(annotator: str | None, base_url: str | None, settings: Path | None) -> Examinee:
    """Who `earmark judge` asks; as `asked_of`."""
    return asked_of(Examinee, annotator, base_url, settings, "earmark judge")


def asked_of(kind: type[One], annotator: str | None, base_url: str | None, settings: Path | None, command: str) -> One:
    """Who is asked, by the words of the command line and a TOML file; the words go before.

    Raises:
        ConfigError: the file or the words are not those of an annotator.
    """
    values = read_toml(settings) if settings else {}
    values |= {name: value for name, value in (("annotator", annotator), ("base_url", base_url)) if value is not None}
    return checked(kind, values, settings or Path(command))


def judge(
    version: Version, corpus: Corpus, store: Store, config: Examinee, wish: Wish, out: Path | None
) -> tuple[dict[str, Any], Path]:
    """Ask a model about the samples, and write what comes of it; the facts of `evaluation.json`, and the folder.

    A run that was killed is run again: the ledger holds the answers.

    Raises:
        StoreError: no such evaluation or mode, or no samples.
        StopRun: a fault that every request would meet, or the budget's end.
        EarmarkError: no sample was answered.
    """
    evaluation = find_evaluation(corpus, wish.evaluation)
    mode = find_mode(evaluation, wish.mode)
    prompts: dict[str, str] = {}
    with (
        open_session(store, config) as session,
        select_samples(version, corpus, evaluation, wish.part) as samples,
    ):

        def predict(samples: Samples) -> dict[str, Prediction]:
            questioner = _questioner(samples, store, config, mode, wish)
            predictions: dict[str, Prediction] = {}
            with working(f"judge {evaluation.name}", samples.count) as work:
                for by_sample, without in _requests(samples, questioner):
                    outcomes = iter(
                        session.ask([one.request for group in by_sample.values() for one in group]).outcomes
                    )
                    for sample, group in by_sample.items():
                        predictions[sample] = questioner.read(sample, group, [next(outcomes) for _ in group])
                    predictions |= without
                    work.advance(len(by_sample) + len(without))
            prompts.update(questioner.prompts)
            return predictions

        threshold = choose_threshold(samples, wish, predict)
        predictions = predict(samples)
        facts: dict[str, Any] = {"mode": mode.name, "annotator": config.annotator, "scores": None}
        facts |= {"prompts": prompts, "both_orders": wish.both_orders, "draws": wish.draws, "blind": wish.blind}
        facts["spent_usd"] = session.spent_usd
        return record(store, samples, wish, predictions, facts, out, threshold)


def forecast(version: Version, corpus: Corpus, store: Store, config: Examinee, wish: Wish) -> dict[str, Any]:
    """What `judge` would ask; nothing is asked."""
    evaluation = find_evaluation(corpus, wish.evaluation)
    mode = find_mode(evaluation, wish.mode)
    with select_samples(version, corpus, evaluation, wish.part) as samples:
        questioner = _questioner(samples, store, config, mode, wish)
        with open_session(store, config) as session:
            batches = (by_sample for by_sample, _ in _requests(samples, questioner))
            plan = session.forecast(
                one.request for by_sample in batches for group in by_sample.values() for one in group
            )
        about = f"{samples.count:,} samples of {evaluation.name}, mode {mode.name}"
        return {"annotator": config.annotator, "about": about, **asdict(plan)}


def _questioner(samples: Samples, store: Store, config: Examinee, mode: Mode, wish: Wish) -> Questioner:
    shown = () if wish.blind == "audio" else mode.columns
    clips = clip_files(samples.clips(shown), samples.version, store, samples.folder / "clips", wish.roots)
    drawn, images = "swapped" in samples.columns, samples.folder / "images"
    return Questioner(samples.evaluation, mode, config, clips, images, drawn, wish.both_orders, wish.draws, wish.blind)


def _requests(
    samples: Samples, questioner: Questioner
) -> Iterator[tuple[dict[str, list[Asked]], dict[str, Prediction]]]:
    """A batch of samples after the other: the requests about each, and the samples whose clip is not at hand."""
    for rows in samples.batches(SAMPLES_AT_ONCE, questioner.columns):
        by_sample, without = {}, {}
        for row in rows:
            try:
                by_sample[row["id"]] = questioner.requests(row)
            except NoMedia as fault:
                without[row["id"]] = Prediction(row["id"], reason="no_media", detail=str(fault))
        yield by_sample, without
