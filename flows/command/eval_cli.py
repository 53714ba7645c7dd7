"""Implement `earmark eval`: measure models, files of scores and systems on a version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from earmark.flows.command.options import (
    AnnotatorOption,
    AskNothingOption,
    AudioRootOption,
    BaseUrlOption,
    ConfigOption,
    CorpusArgument,
    EachLimitOption,
    JsonOption,
    PartOption,
    RecordOption,
    SettingsOption,
    StoreOption,
    VersionArgument,
    VersionConfigOption,
    open_store,
    option,
    print_json,
    print_record,
)
from earmark.flows.command.score_cli import score

if TYPE_CHECKING:
    from earmark.schemas.corpus import Corpus
    from earmark.tasks.store.versions import Store, Version

app = typer.Typer(
    help="Measure models, files of scores and systems on a version.", no_args_is_help=True, rich_markup_mode="markdown"
)

SubjectArgument = Annotated[
    str, typer.Argument(metavar="CORPUS[@vN]", help="The version; with --layout, a benchmark file.")
]
EvaluationOption = Annotated[
    str | None, option("--evaluation -e NAME", "The evaluation; needed if the corpus has several.")
]
ModeOption = Annotated[str | None, option("NAME", "The form of the question. Default: the first.")]
SplitOption = Annotated[str | None, option("NAME", "The split, or `all`. Default: test and ood, if there.")]
LanguageOption = Annotated[str | None, option("CODE", "Use only samples in this language.")]
BothOrdersOption = Annotated[bool, option("--both-orders", "Ask in both orders; an answer that changes is wrong.")]
DrawsOption = Annotated[int, option("N", "Ask N times; average ratings, take the commonest choice.", min=1, max=100)]
BlindOption = Annotated[Literal["audio", "text"] | None, option("", "A control: leave out the audio, or the text.")]
ThresholdOption = Annotated[float | None, option("SCORE", "For yes/no: also count yes from this score on.")]
TuneOption = Annotated[str | None, option("SPLIT", "Find the best --threshold on this split; do not measure it.")]
LayoutOption = Annotated[str | None, option("NAME", "Its layout: cmi-rewardbench or anyaudio-judge-bench.")]


@app.command()
def run(
    corpus: SubjectArgument,
    annotator: AnnotatorOption = None,
    scores: Annotated[Path | None, option("FILE", "Measure a file of scores, by sample (id) or clip.")] = None,
    evaluation: EvaluationOption = None,
    mode: ModeOption = None,
    split: SplitOption = None,
    language: LanguageOption = None,
    limit: PartOption = None,
    both_orders: BothOrdersOption = False,
    draws: DrawsOption = 1,
    blind: BlindOption = None,
    threshold: ThresholdOption = None,
    tune_on: TuneOption = None,
    base_url: BaseUrlOption = None,
    layout: LayoutOption = None,
    config: VersionConfigOption = None,
    settings: SettingsOption = None,
    audio_root: AudioRootOption = None,
    out: RecordOption = None,
    dry_run: AskNothingOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a model, or a file of scores, on a version. Without either, list the evaluations.

    The ledger keeps answers: after an interruption, run the same command again. It pays for no answer twice.

    **Examples:**

    `earmark eval run mos-preferences`

    `earmark eval run mos-preferences@v1 --annotator openai:gpt-audio --split test --dry-run`

    `earmark eval run pseudo-preferences -e musicality --scores my-reward-model.csv`

    `earmark eval run all_test.jsonl --layout cmi-rewardbench --audio-root data -a openai:gpt-audio -e pam-musicality`
    """
    from earmark.flows.command import console, evaluation_tables
    from earmark.flows.command.ending import stoppable
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.evaluation import judging, reading
    from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
    from earmark.tasks.pipeline.progress import shown

    model = annotator is not None or settings is not None
    if scores is not None and (model or dry_run):
        raise ConfigError("--scores sends no request: give it without --annotator, --settings and --dry-run")
    part, roots = SamplePart(split, language, limit), tuple(audio_root or ())
    wish = MeasurementOptions(evaluation, mode, part, both_orders, roots, threshold, tune_on, draws, blind)
    with _subject(corpus, store, config, layout, roots) as (version, known, place):
        if scores is not None:
            tables, without = reading.measure_file(version, known, place, scores, wish, out)
            if as_json:
                facts = [{**one, "folder": str(folder)} for one, folder in tables]
                print_json(facts if without is not None else facts[0])
                return
            for one, folder in tables:
                evaluation_tables.show_evaluation(one, folder)
            if without:
                console.tell(f"note: not measured, because the file has none of their clips: {', '.join(without)}")
        elif model:
            examinee = judging.examinee(annotator, base_url, settings)
            with stoppable("answers are kept; run the same command again to continue"), shown():
                if dry_run:
                    plan = judging.forecast(version, known, place, examinee, wish)
                    print_json(plan) if as_json else console.show_questions(plan)
                    return
                record = judging.judge(version, known, place, examinee, wish, out)
            print_record(record, evaluation_tables.show_evaluation, as_json)
        elif as_json:
            print_json(evaluation_tables.evaluation_facts(known))
        else:
            evaluation_tables.show_evaluations(version, known)


@app.command()
def compare(
    corpus: SubjectArgument,
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="backend:model, a file of scores, or an earlier run's folder.")
    ],
    evaluation: EvaluationOption = None,
    mode: ModeOption = None,
    split: SplitOption = None,
    language: LanguageOption = None,
    limit: PartOption = None,
    both_orders: BothOrdersOption = False,
    draws: DrawsOption = 1,
    blind: BlindOption = None,
    threshold: ThresholdOption = None,
    tune_on: TuneOption = None,
    base_url: BaseUrlOption = None,
    layout: LayoutOption = None,
    config: VersionConfigOption = None,
    settings: SettingsOption = None,
    audio_root: AudioRootOption = None,
    out: RecordOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare models and files of scores on the same samples, with tests of the differences.

    **Example:** `earmark eval compare human-preferences clips.csv openai:gpt-audio`
    """
    from earmark.flows.command.ending import stoppable
    from earmark.flows.command.evaluation_tables import show_comparison
    from earmark.tasks.evaluation.comparing import Measure, compare_models
    from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
    from earmark.tasks.pipeline.progress import shown

    part, roots = SamplePart(split, language, limit), tuple(audio_root or ())
    wish = MeasurementOptions(evaluation, mode, part, both_orders, roots, threshold, tune_on, draws, blind)
    with _subject(corpus, store, config, layout, roots) as (version, known, place):
        with stoppable("answers are kept; run the same command again to continue"), shown():
            record = compare_models(Measure(version, known, place, wish, base_url, settings), models, out)
        print_record(record, show_comparison, as_json)


@app.command()
def template(
    corpus: SubjectArgument,
    out: Annotated[Path, option("--out -o FILE", "The file: CSV, JSON lines or Parquet.")],
    evaluation: EvaluationOption = None,
    split: SplitOption = None,
    language: LanguageOption = None,
    limit: PartOption = None,
    layout: LayoutOption = None,
    config: VersionConfigOption = None,
    audio_root: AudioRootOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a file for your scores: its rows, without scores. Fill it in, then run `earmark eval run --scores`.

    **Example:** `earmark eval template human-preferences --out clips.csv`
    """
    from earmark.flows.command.console import tell
    from earmark.tasks.evaluation.reading import write_template
    from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart

    with _subject(corpus, store, config, layout, tuple(audio_root or ())) as (version, known, _):
        rows = write_template(
            version, known, out, MeasurementOptions(evaluation, part=SamplePart(split, language, limit))
        )
    if as_json:
        print_json({"template": str(out), "rows": rows, "option": "--scores"})
    else:
        tell(f"{rows:,} rows to fill in {out}; then, with the same options: earmark eval run {corpus} --scores {out}")


@app.command()
def rank(
    corpus: VersionArgument,
    systems: Annotated[
        list[str] | None, typer.Argument(metavar="SYSTEM", help="Scored systems: two or more, or `all`.")
    ] = None,
    finalists: Annotated[int | None, option("N", "Of scored systems, mark the first N.", min=1)] = None,
    listen: Annotated[Path | None, option("FILE", "Write a page that plays scored systems side by side.")] = None,
    config: VersionConfigOption = None,
    out: RecordOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank scored systems by their figures; without SYSTEM, rank the systems in a version by its preferences.

    **Examples:** `earmark eval rank pseudo-preferences` · `earmark eval rank music-prompts@v1 all --finalists 5`
    """
    from earmark.flows.command.evaluation_tables import show_board, show_ranking
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.evaluation import leaderboard, listening
    from earmark.tasks.evaluation.ranking import rank_systems

    with _subject(corpus, store, config) as (version, known, place):
        if not systems:
            if finalists or listen:
                raise ConfigError("--finalists and --listen go with scored systems: name them, or say `all`")
            print_record(rank_systems(version, known, place, out), show_ranking, as_json)
            return
        board, folder = leaderboard.rank_submissions(version, place, systems, finalists, out)
        page = []
        if listen is not None:
            records = leaderboard.scored(version, place, systems)
            mute = listening.write_page(version, known, place, records, listen)
            page = [f"page to listen: {listen}" + (f"; clips without a player: {mute:,}" if mute else "")]
    if as_json:
        print_json({**board, "folder": str(folder), **({"listen": str(listen)} if listen else {})})
    else:
        show_board(version, board, folder, page)


app.command()(score)


@app.command()
def qualify(
    corpus: CorpusArgument, config: ConfigOption, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Have the judges of a build answer gold (`[judge.qualify]`), and print how right they are. Builds nothing.

    The answers stay in the ledger: the build does not pay for them again. Ends with 1 where a judge is not good enough.

    **Example:** `earmark eval qualify pseudo-preferences --config my-music.toml`
    """
    from earmark.flows.command.ending import stoppable
    from earmark.flows.command.running import story_of
    from earmark.schemas.errors import ConfigError, Faults
    from earmark.schemas.judges import QUALIFICATION, Qualified
    from earmark.tasks.evaluation.qualification import qualify_alone
    from earmark.tasks.pipeline.progress import shown

    known, story, settings = story_of(corpus, config)
    if not isinstance(settings, Qualified) or QUALIFICATION not in known.tables:
        raise ConfigError(
            f"{known.name}: no judge of this corpus answers gold; pseudo-preferences' and instruction-rubrics' do"
        )
    with shown(), stoppable("answers are kept; run the same command again to continue"):
        figures, faults = qualify_alone(known, story, settings, open_store(store))
    print_json({"figures": figures, "faults": faults}) if as_json else _show_qualification(figures)
    if faults:
        raise Faults(tuple(faults))


@app.command()
def rollouts(
    corpus: VersionArgument,
    annotator: Annotated[str | None, option("--annotator -a SPEC", "The policy, such as vllm:PATH.")] = None,
    view: Annotated[str | None, option("NAME", "The view to draw on. Default: the first with a reward.")] = None,
    draws: Annotated[int, option("K", "Draw K completions a row.", min=1, max=100)] = 4,
    split: Annotated[str | None, option("NAME", "Draw on only this split.")] = None,
    limit: EachLimitOption = None,
    base_url: BaseUrlOption = None,
    settings: SettingsOption = None,
    audio_root: AudioRootOption = None,
    out: RecordOption = None,
    dry_run: AskNothingOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw completions of a policy on a GRPO view, with the reward of each: which rows have something to teach.

    `earmark export --rollouts DIR` leaves out the rows that are right in every draw. Answers are kept in the ledger:
    after an interruption the same command continues and pays for no draw twice. The ledger knows a policy by its name:
    serve each checkpoint under one of its own, or it gets the draws of the one before.

    **Example:** `earmark eval rollouts instruction-rubrics@v1 -a vllm:models/policy --split train --draws 4`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import stoppable
    from earmark.schemas.evaluations import Policy
    from earmark.tasks.evaluation import rollouts as drawing
    from earmark.tasks.evaluation.judging import asked_of
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.pipeline.registry import find_corpus

    place = open_store(store)
    version = place.find(corpus)
    known = find_corpus(version.corpus)
    config = asked_of(Policy, annotator, base_url, settings, "earmark eval rollouts")
    wish = drawing.RolloutOptions(view, draws, split, limit, tuple(audio_root or ()))
    with stoppable("answers are kept; run the same command again to continue"), shown():
        if dry_run:
            plan = drawing.forecast(version, known, place, config, wish)
            print_json(plan) if as_json else console.show_questions(plan)
            return
        facts, folder = drawing.roll(version, known, place, config, wish, out)
    if as_json:
        print_json({**facts, "folder": str(folder)})
        return
    console.tell(f"{version.corpus} {version.name}, {facts['view']}: {facts['draws']} draws of {facts['annotator']}")
    rows = [(number, f"{count:,}") for number, count in facts["right_in"].items()]
    console.print_table("right in", "rows", rows=rows, right=1)
    for reason, count in facts["unanswered"].items():
        console.tell(f"note: {count:,} draws have no completion: {reason}")
    console.tell(f"{facts['kept']:,} of {facts['rows']:,} rows are not right in every draw; see {folder}")
    console.tell(f"to train on them: earmark export {version.corpus}@{version.name} --rollouts {folder}")


def _show_qualification(figures: list[Any]) -> None:
    from earmark.flows.command.console import print_table

    shares = {
        **{"right": "accuracy", "agreed right": "agreed_accuracy", "first": "share_first", "second": "share_second"},
        **{"tie": "share_tie", "TPR": "tpr", "FPR": "fpr", "weight": "weight"},
    }
    headings = ("dimension", "domain", "control", "requests", "answers", "known", *shares)
    for judge in dict.fromkeys(row["judge"] for row in figures):
        rows = [
            (*(row[name] for name in headings[:3]), *(f"{row[name]:,}" for name in headings[3:6]),
             *("" if row[name] is None else f"{row[name]:.3f}" for name in shares.values()))
            for row in figures if row["judge"] == judge
        ]  # fmt: skip
        print_table(
            *headings, rows=rows, right=11, drop=("second", "first", "requests", "agreed right", "answers"), title=judge
        )


@contextmanager
def _subject(
    spec: str, store: str | None, config: Path | None, layout: str | None = None, roots: tuple[Path, ...] = ()
) -> Iterator[tuple[Version, Corpus, Store]]:
    """Yield the version, or the published benchmark file as one, with its corpus and the store."""
    from earmark.flows.command.running import find_version
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.evaluation.released import released
    from earmark.tasks.pipeline.registry import find_corpus

    place = open_store(store)
    if layout is None:
        version = find_version(place, spec, config)
        yield version, find_corpus(version.corpus), place
    elif config is not None:
        raise ConfigError("--config names a version, and --layout reads a file: give one of them")
    else:
        with released(Path(spec), layout, place, roots) as (version, corpus):
            yield version, corpus, place
