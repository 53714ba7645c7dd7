"""Ask a model about a version's samples by an evaluation's mode: `earmark eval run`."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from earmark.schemas.config import ChosenPrompts, placed_prompts
from earmark.schemas.corpus import Corpus
from earmark.schemas.evaluations import Evaluation, Examinee, Mode
from earmark.schemas.results import AskedFacts, EvaluationFacts
from earmark.schemas.toml import checked, read_toml
from earmark.tasks.annotation.prompts import overriding, own_words
from earmark.tasks.annotation.request import AskPlan
from earmark.tasks.evaluation.asking import NoMedia, Questioner, SampleRequest
from earmark.tasks.evaluation.kinds import Prediction
from earmark.tasks.evaluation.recording import choose_threshold, record, tuning_part
from earmark.tasks.evaluation.samples import MeasurementOptions, Samples, find_evaluation, find_mode, select_samples
from earmark.tasks.exports.clips import ClipFile
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.rows import words_of
from earmark.tasks.pipeline.sessions import open_session
from earmark.tasks.store.versions import Store, Version

SAMPLES_AT_ONCE = 500
Clip: TypeAlias = tuple[str, Path, float]  # SHA-256, file and length in s
One = TypeVar("One", bound=Examinee)


def examinee(annotator: str | None, base_url: str | None, settings: Path | None) -> Examinee:
    """Return the model for `earmark eval run`; as `asked_of`."""
    return asked_of(Examinee, annotator, base_url, settings, "earmark eval run")


def asked_of(kind: type[One], annotator: str | None, base_url: str | None, settings: Path | None, command: str) -> One:
    """Return the annotator of the command line and a TOML file; the command line takes precedence.

    Raises:
        ConfigError: the file or the command line does not describe an annotator.
    """
    values = read_toml(settings) if settings else {}
    where = settings or Path(command)
    if annotator is not None:
        values |= {"model": annotator}
    config = checked(kind, values, where)
    if base_url is not None:
        values = config.model_dump(exclude_unset=True) | {"base_url": base_url}
        config = checked(kind, values, where, flat_roles=True)
    if settings is None:
        return config
    asks = placed_prompts(config.asks, lambda written: settings.parent / written)
    return config.model_copy(
        update={"asks": {name: str(one) if isinstance(one, Path) else one for name, one in asks.items()}}
    )


def judge(
    version: Version, corpus: Corpus, store: Store, config: Examinee, wish: MeasurementOptions, out: Path | None
) -> tuple[EvaluationFacts, Path]:
    """Ask a model about the samples, and write the results; return the facts of `evaluation.json`, and the folder.

    Run it again after a crash: the ledger holds the answers.

    Raises:
        StoreError: no such evaluation or mode, or no samples.
        StopRun: a fault of every request, or the budget's end.
        EarmarkError: no sample was answered.
    """
    evaluation = find_evaluation(corpus, wish.evaluation)
    mode = find_mode(evaluation, wish.mode)
    prompts: dict[str, str] = {}
    with (
        open_session(store, config) as session,
        select_samples(version, corpus, evaluation, wish.part) as samples,
        own_words(words_of(version, config.own_prompts())),
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
        facts: AskedFacts = {
            "mode": mode.name,
            "annotator": config.annotator,
            "scores": None,
            "prompts": prompts,
            "both_orders": wish.both_orders,
            "draws": wish.draws,
            "blind": wish.blind,
            "spent_usd": session.spent_usd,
        }
        return record(store, samples, wish, predictions, facts, out, threshold)


def ask_rows(
    store: Store,
    evaluation: Evaluation,
    mode: Mode,
    config: Examinee,
    rows: list[dict[str, Any]],
    clips: list[Clip],
    words: ChosenPrompts,
) -> list[tuple[Prediction, Any]]:
    """Ask a model about rows of no version, with their clips; return predictions, and the first answers' values.

    Args:
        words: prompts that the model's own precede.
    """
    files = {sha256: ClipFile(path, duration_s) for sha256, path, duration_s in clips}
    questioner = Questioner(evaluation, mode, config, files, Path())
    with open_session(store, config) as session, own_words(overriding(words, config.own_prompts())):
        groups = [questioner.requests(row) for row in rows]
        outcomes = iter(session.ask([one.request for group in groups for one in group]).outcomes)
    own = [[next(outcomes) for _ in group] for group in groups]
    return [
        (questioner.read(row["id"], group, said), getattr(said[0], "value", None) if said else None)
        for row, group, said in zip(rows, groups, own, strict=True)
    ]


def forecast(version: Version, corpus: Corpus, store: Store, config: Examinee, wish: MeasurementOptions) -> AskPlan:
    """Count the requests of `judge` without asking."""
    evaluation = find_evaluation(corpus, wish.evaluation)
    mode = find_mode(evaluation, wish.mode)
    words = own_words(words_of(version, config.own_prompts()))
    with ExitStack() as stack:
        samples = stack.enter_context(select_samples(version, corpus, evaluation, wish.part))
        stack.enter_context(words)
        about, asked = f"{samples.count:,} samples of {evaluation.name}, mode {mode.name}", [samples]
        if part := tuning_part(samples, wish):
            asked.append(stack.enter_context(select_samples(version, corpus, evaluation, part)))
            about += f", and {asked[1].count:,} of split {part.split} for the threshold"
        session = stack.enter_context(open_session(store, config))
        plan = session.forecast(
            one.request
            for chosen in asked
            for by_sample, _ in _requests(chosen, _questioner(chosen, store, config, mode, wish))
            for group in by_sample.values()
            for one in group
        )
        return {"annotator": config.annotator, "about": about, **plan}


def _questioner(samples: Samples, store: Store, config: Examinee, mode: Mode, wish: MeasurementOptions) -> Questioner:
    shown = () if wish.blind == "audio" else mode.columns
    clips = samples.files(shown, store, wish.roots)
    drawn, images = "swapped" in samples.columns, samples.folder / "images"
    return Questioner(samples.evaluation, mode, config, clips, images, drawn, wish.both_orders, wish.draws, wish.blind)


def _requests(
    samples: Samples, questioner: Questioner
) -> Iterator[tuple[dict[str, list[SampleRequest]], dict[str, Prediction]]]:
    """Yield batches of samples: the requests about each, and the samples with missing clips."""
    for rows in samples.batches(SAMPLES_AT_ONCE, questioner.columns):
        by_sample, without = {}, {}
        for row in rows:
            try:
                by_sample[row["id"]] = questioner.requests(row)
            except NoMedia as fault:
                without[row["id"]] = Prediction(row["id"], reason="no_media", detail=str(fault))
        yield by_sample, without
