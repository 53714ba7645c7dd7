"""Implement `earmark eval`: measure models, files of scores and systems on a version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from earmark.flows.command.clips_cli import best_of, rubric
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
    spread,
)
from earmark.flows.command.probe_cli import abc, causes, probe
from earmark.flows.command.reward_cli import reward_server
from earmark.flows.command.score_cli import calibrate, score

if TYPE_CHECKING:
    from earmark.schemas.corpus import Corpus
    from earmark.tasks.evaluation.samples import MeasurementOptions
    from earmark.tasks.store.versions import Store, Version

app = typer.Typer(
    help="Measure models, files of scores and systems on a version.", no_args_is_help=True, rich_markup_mode="markdown"
)

SubjectArgument = Annotated[
    str, typer.Argument(metavar="CORPUS[@vN]", help="The version; with --layout, a benchmark file.")
]


@dataclass(frozen=True)
class SubjectOptions:
    """The samples to measure."""

    evaluation: Annotated[
        str | None,
        option("--evaluation -e NAME", "The evaluation; needed if the corpus has several, except for scores of clips."),
    ] = None
    split: Annotated[str | None, option("NAME", "The split, or `all`. Default: test and ood, if there.")] = None
    language: Annotated[str | None, option("CODE", "Use only samples in this language.")] = None
    limit: PartOption = None
    layout: Annotated[str | None, option("NAME", "Its layout: cmi-rewardbench, anyaudio-judge-bench or wildscore.")] = (
        None
    )
    config: VersionConfigOption = None
    audio_root: AudioRootOption = None
    store: StoreOption = None
    as_json: JsonOption = False

    def wish(self) -> MeasurementOptions:
        """Return the options of a measurement."""
        from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart

        part = SamplePart(self.split, self.language, self.limit)
        return MeasurementOptions(self.evaluation, part=part, roots=tuple(self.audio_root or ()))

    @contextmanager
    def subject(self, spec: str) -> Iterator[tuple[Version, Corpus, Store]]:
        """Yield the version, or the published benchmark file as one, with its corpus and the store."""
        from earmark.flows.command.running import find_version
        from earmark.schemas.errors import ConfigError
        from earmark.tasks.evaluation.released import released
        from earmark.tasks.pipeline.registry import find_corpus

        place = open_store(self.store)
        if self.layout is None:
            version = find_version(place, spec, self.config)
            yield version, find_corpus(version.corpus), place
        elif self.config is not None:
            raise ConfigError("--config names a version, and --layout reads a file: give one of them")
        else:
            with released(Path(spec), self.layout, place, tuple(self.audio_root or ())) as (version, corpus):
                yield version, corpus, place


@dataclass(frozen=True)
class AskingOptions(SubjectOptions):
    """The samples, and how models are asked about them."""

    mode: Annotated[str | None, option("NAME", "The form of the question. Default: the first.")] = None
    both_orders: Annotated[bool, option("--both-orders", "Ask in both orders; an answer that changes is wrong.")] = (
        False
    )
    draws: Annotated[int, option("N", "Ask N times; average ratings, take the commonest choice.", min=1, max=100)] = 1
    blind: Annotated[Literal["audio", "text"] | None, option("", "A control: leave out the audio, or the text.")] = None
    threshold: Annotated[float | None, option("SCORE", "For yes/no: also count yes from this score on.")] = None
    tune_on: Annotated[str | None, option("SPLIT", "Find the best --threshold on this split; do not measure it.")] = (
        None
    )
    base_url: BaseUrlOption = None
    settings: SettingsOption = None
    out: RecordOption = None

    def wish(self) -> MeasurementOptions:
        names = ("mode", "both_orders", "draws", "blind", "threshold", "tune_on")
        return replace(super().wish(), **{name: getattr(self, name) for name in names})


@app.command()
@spread
def run(
    corpus: SubjectArgument,
    given: AskingOptions,
    annotator: AnnotatorOption = None,
    scores: Annotated[Path | None, option("FILE", "Measure a file of scores, by sample (id) or clip.")] = None,
    scorer: Annotated[Path | None, option("FILE", "Measure a scorer of clips, a TOML file.")] = None,
    dry_run: AskNothingOption = False,
) -> None:
    """Measure a model, a scorer of clips or a file of scores on a version. Without any, list the evaluations.

    The ledger keeps answers: after an interruption, run the same command again. It pays for no answer twice.

    **Examples:**

    `earmark eval run mos-preferences`

    `earmark eval run mos-preferences@v1 --annotator openai:gpt-audio --split test --dry-run`

    `earmark eval run pseudo-preferences -e musicality --scores my-reward-model.csv`

    `earmark eval run mos-preferences --scorer dnsmos.toml`

    `earmark eval run all_test.jsonl --layout cmi-rewardbench --audio-root data -a openai:gpt-audio -e pam-musicality`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import stoppable
    from earmark.flows.command.previewing import print_plans, request_lines
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.evaluation import judging, reading
    from earmark.tasks.evaluation.results import evaluation_page
    from earmark.tasks.pipeline.progress import shown

    model = annotator is not None or given.settings is not None
    if scores is not None and (model or dry_run or scorer):
        raise ConfigError("--scores sends no request: give it without --annotator, --scorer, --settings and --dry-run")
    if scorer is not None and model:
        raise ConfigError("--scorer and --annotator: give one of them; a scorer's file holds its settings")
    if (scores or scorer) and (given.mode or given.both_orders or given.draws > 1 or given.blind or given.base_url):
        raise ConfigError(
            "--mode, --both-orders, --draws, --blind and --base-url say how a model is asked: leave them out with "
            f"{'--scores' if scores else '--scorer'}"
        )
    holds = "predictions and tables"
    with given.subject(corpus) as (version, known, place):
        if scorer is not None and dry_run:
            print_plans(reading.scorer_plans(version, known, place, scorer, given.wish()), given.as_json)
        elif measured := scorer or scores:
            with stoppable("answers are kept; run the same command again to continue"), shown():
                tables, without = reading.measure_file(version, known, place, measured, given.wish(), given.out)
            if given.as_json:
                facts = [{**one, "folder": str(folder)} for one, folder in tables]
                print_json(facts if without is not None else facts[0])
                return
            for record in tables:
                print_record(record, evaluation_page, False, holds)
            console.tell(*(f"note: not measured: {why}" for why in without or ()))
        elif model:
            examinee = judging.examinee(annotator, given.base_url, given.settings)
            with stoppable("answers are kept; run the same command again to continue"), shown():
                if dry_run:
                    plan = judging.forecast(version, known, place, examinee, given.wish())
                    print_json(plan) if given.as_json else console.tell(*request_lines(plan))
                    return
                record = judging.judge(version, known, place, examinee, given.wish(), given.out)
            print_record(record, evaluation_page, given.as_json, holds)
        else:
            _list_evaluations(place, version, known, given.as_json)


@app.command()
@spread
def compare(
    corpus: SubjectArgument,
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="backend:model, a file of scores, or an earlier run's folder.")
    ],
    given: AskingOptions,
) -> None:
    """Compare models and files of scores on the same samples, with tests of the differences.

    **Example:** `earmark eval compare human-preferences clips.csv openai:gpt-audio`
    """
    from earmark.flows.command.ending import stoppable
    from earmark.tasks.evaluation.comparing import Measure, compare_models
    from earmark.tasks.evaluation.comparison import comparison_page
    from earmark.tasks.pipeline.progress import shown

    with given.subject(corpus) as (version, known, place):
        measure = Measure(version, known, place, given.wish(), given.base_url, given.settings)
        with stoppable("answers are kept; run the same command again to continue"), shown():
            record = compare_models(measure, models, given.out)
        print_record(record, comparison_page, given.as_json, "tables and plot")


@app.command()
@spread
def tables(
    corpus: SubjectArgument,
    given: SubjectOptions,
    models: Annotated[
        list[str] | None,
        option(
            "--models -m MODEL",
            "[NAME=]MODEL: a file of scores, an earlier run's folder or backend:model. A name "
            "that stands twice has several files.",
        ),
    ] = None,
    table: Annotated[str | None, option("NAME", "The table of a paper, or a layout of yours (.toml).")] = None,
    by: Annotated[list[str] | None, option("COLUMN", "Without --table: columns by group, such as dataset+gap.")] = None,
    metric: Annotated[list[str] | None, option("NAME", "With --by: accuracy, error, lcc, srcc, …")] = None,
    baseline: Annotated[
        list[str] | None, option("NAME", "Test differences to this model; MODEL=NAME for that model only.")
    ] = None,
    rule: Annotated[
        list[str] | None, option("NAME=WAY", "ties=half, unanswered=left-out, true_ties=left-out, arena=sum, …")
    ] = None,
    sampled: Annotated[
        str, option("COLUMN", "What was sampled, such as system or clips+annotator; clips bring their prompts.")
    ] = "clips",
    intervals: Annotated[bool, typer.Option("--intervals/--no-intervals", help="Print the cells' intervals.")] = True,
    base_url: BaseUrlOption = None,
    settings: SettingsOption = None,
    out: RecordOption = None,
) -> None:
    """Print a table of models by groups of samples, as a paper does: terminal, Markdown, CSV and LaTeX.

    Some tables of papers are of a version itself, and take no models.

    **Examples:**

    `earmark eval tables mos-preferences -m UTMOS=utmos.csv -m ours.csv --table mos-rmbench-2 --baseline UTMOS`

    `earmark eval tables human-preferences -m a.csv -m b.csv -e cmi-pref-musicality --by modality+confidence_band`

    `earmark eval tables human-preferences --table cmi-rewardbench-6`
    """
    from earmark.flows.command.ending import stoppable
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.evaluation.comparing import Measure
    from earmark.tasks.evaluation.layouts import choose_layout
    from earmark.tasks.evaluation.tabulating import TableOptions, make_table, named_models, table_page
    from earmark.tasks.evaluation.version_tables import tabulate_version, version_layouts, version_page
    from earmark.tasks.pipeline.progress import shown

    if table in version_layouts():
        of_samples = (given.layout, given.evaluation, given.split, given.language, given.limit)
        if any((models, by, metric, baseline, rule, *of_samples)):
            raise ConfigError(
                f"--table {table} is of a version's own rows: leave --layout and the options of models and samples out"
            )
        with given.subject(corpus) as (version, known, place):
            print_record(tabulate_version(version, known, place, str(table), out), version_page, given.as_json)
        return
    if not models:
        raise ConfigError("name the models of the table: --models [NAME=]MODEL, once for each")
    layout = choose_layout(table, given.evaluation, by or (), metric or (), rule or ())
    entrants = named_models(models)
    split = [one.rpartition("=") for one in baseline or ()]
    bases = {model: base for model, _, base in split}
    with given.subject(corpus) as (version, known, place):
        measure = Measure(version, known, place, given.wish(), base_url, settings)
        with stoppable("answers are kept; run the same command again to continue"), shown():
            record = make_table(measure, entrants, layout, TableOptions(bases, sampled, intervals), out)
        print_record(record, table_page, given.as_json)


@app.command()
@spread
def template(
    corpus: SubjectArgument,
    out: Annotated[Path, option("--out -o FILE", "The file: CSV, JSON lines or Parquet.")],
    given: SubjectOptions,
) -> None:
    """Write a file for your scores: its rows, without scores. Fill it in, then run `earmark eval run --scores`.

    **Example:** `earmark eval template human-preferences --out clips.csv`
    """
    from earmark.flows.command.console import tell
    from earmark.tasks.evaluation.reading import write_template

    with given.subject(corpus) as (version, known, _):
        rows = write_template(version, known, out, given.wish())
    if given.as_json:
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
    award: Annotated[list[str] | None, option("TRACK=N", "Award a track's first N by the listening test.")] = None,
    listen: Annotated[Path | None, option("FILE", "Write a page that plays scored systems side by side.")] = None,
    config: VersionConfigOption = None,
    out: RecordOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank scored systems by their figures; without SYSTEM, rank the systems in a version by its preferences.

    **Examples:** `earmark eval rank pseudo-preferences` · `earmark eval rank music-prompts@v1 all --finalists 5`
    """
    from earmark.flows.command.console import tell
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.evaluation import leaderboard, listening
    from earmark.tasks.evaluation.ranking import rank_systems, ranking_page

    with SubjectOptions(config=config, store=store).subject(corpus) as (version, known, place):
        if not systems:
            if finalists or listen or award:
                raise ConfigError("--finalists, --award and --listen go with scored systems: name them, or say `all`")
            record = rank_systems(version, known, place, out)
            print_record(record, partial(ranking_page, pairs=False), as_json, "boards, and who wins against whom,")
            return
        awards = {}
        for one in award or ():
            track, _, count = one.rpartition("=")
            if not track or not count.isdecimal():
                raise ConfigError(f"--award {one}: expected TRACK=N, such as efficiency=3")
            awards[track] = int(count)
        board, folder = leaderboard.rank_submissions(version, place, systems, finalists, out, awards)
        if listen is not None:
            records = leaderboard.scored(version, place, systems)
            mute = listening.write_page(version, known, place, records, listen)
    print_record((board | ({"listen": str(listen)} if listen else {}), folder), leaderboard.board_page, as_json)
    if listen and not as_json:
        tell(f"page to listen: {listen}" + (f"; clips without a player: {mute:,}" if mute else ""))


app.command("best-of")(best_of)
for command in (score, probe, abc, causes, calibrate, reward_server, rubric):
    app.command()(command)


@app.command()
def qualify(
    corpus: CorpusArgument, config: ConfigOption, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Have the judges of a build answer gold (`[judge.qualify]`), and print how right they are. Builds nothing.

    The answers stay in the ledger: the build does not pay for them again. Ends with 1 where a judge is not good enough.

    **Example:** `earmark eval qualify pseudo-preferences --config my-music.toml`
    """
    from earmark.flows.command.console import print_result
    from earmark.flows.command.ending import stoppable
    from earmark.flows.command.running import story_of
    from earmark.schemas.errors import ConfigError, Faults
    from earmark.schemas.judges import QUALIFICATION, Qualified
    from earmark.tasks.evaluation.qualification import qualification_table, qualify_alone
    from earmark.tasks.pipeline.progress import shown

    known, story, settings = story_of(corpus, config)
    if not isinstance(settings, Qualified) or QUALIFICATION not in known.tables:
        raise ConfigError(
            f"{known.name}: no judge of this corpus answers gold; pseudo-preferences' and instruction-rubrics' do"
        )
    with shown(), stoppable("answers are kept; run the same command again to continue"):
        figures, faults = qualify_alone(known, story, settings, open_store(store))
    if as_json:
        print_json({"figures": figures, "faults": faults})
    for judge in () if as_json else dict.fromkeys(row["judge"] for row in figures):
        print_result(qualification_table([row for row in figures if row["judge"] == judge], judge))
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
    from earmark.flows.command.ending import command, stoppable
    from earmark.flows.command.previewing import request_lines
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
            print_json(plan) if as_json else console.tell(*request_lines(plan))
            return
        facts, folder = drawing.roll(version, known, place, config, wish, out)
    if as_json:
        print_json({**facts, "folder": str(folder)})
        return
    console.tell(f"{version.corpus} {version.name}, {facts['view']}: {facts['draws']} draws of {facts['annotator']}")
    console.print_table("right in", "rows", rows=facts["right_in"].items())
    for reason, count in facts["unanswered"].items():
        console.tell(f"note: {count:,} draws have no completion: {reason}")
    console.tell(f"{facts['kept']:,} of {facts['rows']:,} rows are not right in every draw; see {folder}")
    words = ("export", f"{version.corpus}@{version.name}", "--rollouts", folder)
    console.tell(f"to train on them: {command(place, *words)}")


def _list_evaluations(place: Store, version: Version, corpus: Corpus, as_json: bool) -> None:
    from earmark.flows.command.console import print_table, tell
    from earmark.flows.command.ending import command
    from earmark.tasks.evaluation.kinds import find_kind

    facts = [
        {
            "evaluation": one.name,
            "kind": one.kind,
            "says": one.says,
            "modes": [mode.name for mode in one.modes],
            "groups": list(one.groups),
            "sides": list(one.sides) if find_kind(one.kind).compares else None,
            "order": one.order or None,
        }
        for one in corpus.evaluations
    ]
    if as_json:
        print_json(facts)
        return
    if not facts:
        tell(f"{version.corpus} has no evaluation: it is not made for testing models")
        return
    rows = [
        (
            *(one.name, one.kind.replace("_", "/"), one.says),
            *(", ".join(mode.name for mode in one.modes) or "scores only", ", ".join(one.groups)),
        )
        for one in corpus.evaluations
    ]
    print_table("evaluation", "kind", "what is measured", "modes", "groups", rows=rows)
    words = ("eval", "run", f"{version.corpus}@{version.name}", "--annotator", "SPEC", "--evaluation", "NAME")
    tell(f"evaluate a model: {command(place, *words)}")
