"""`earmark judge`: a model measured against what a version knows to be true."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from earmark.flows.command.options import (
    AskNothingOption,
    AudioRootOption,
    BaseUrlOption,
    JsonOption,
    RecordOption,
    SettingsOption,
    StoreOption,
    open_store,
    print_json,
)


def judge(
    context: typer.Context,
    corpus: Annotated[
        str,
        typer.Argument(
            metavar="CORPUS[@vN]",
            help="The corpus; its newest version, or version N with @vN. With --layout, a published benchmark file.",
        ),
    ],
    annotator: Annotated[
        str | None,
        typer.Option("--annotator", "-a", metavar="SPEC", help="The model, backend:model, such as openai:gpt-audio."),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read scores instead of asking a model: CSV, JSON lines or Parquet."),
    ] = None,
    clip_scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Read one score per clip (columns clip, score); measures every evaluation that fits."
        ),
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a file for your scores to FILE: its rows, without scores."),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="Compare with the other --compare: a backend:model, a file of scores, or an earlier run's folder.",
        ),
    ] = None,
    rank: Annotated[
        bool, typer.Option("--rank", help="Rank the systems that made the clips, by the version's own preferences.")
    ] = False,
    evaluation: Annotated[
        str | None,
        typer.Option("--evaluation", "-e", metavar="NAME", help="The evaluation; needed if the corpus has several."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How the question is put. Default: the first mode of the evaluation."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The split to use, or `all`. Default: the test and ood splits that the version has."
        ),
    ] = None,
    language: Annotated[str | None, typer.Option(metavar="CODE", help="Use only samples in this language.")] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Use only N samples, chosen by a hash of their ids.")
    ] = None,
    both_orders: Annotated[
        bool,
        typer.Option(
            "--both-orders",
            help="Ask each preference in both orders; an answer that depends on the order counts as wrong.",
        ),
    ] = False,
    draws: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=100,
            help="Ask each question N times: ratings are averaged, of choices the commonest counts.",
        ),
    ] = 1,
    blind: Annotated[
        Literal["audio", "text"] | None,
        typer.Option(help="A control: ask the same model without the audio, or the text."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="For yes/no: also report accuracy with yes from this score on."),
    ] = None,
    tune_on: Annotated[
        str | None,
        typer.Option(metavar="SPLIT", help="As --threshold, with the threshold that is best on this other split."),
    ] = None,
    base_url: BaseUrlOption = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="CORPUS is a file as its benchmark publishes it: cmi-rewardbench or anyaudio-judge-bench.",
        ),
    ] = None,
    settings: SettingsOption = None,
    audio_root: AudioRootOption = None,
    out: RecordOption = None,
    dry_run: AskNothingOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a model, or a file of scores, on a version. Without either, list the evaluations.

    Answers are kept in the ledger: after an interruption the same command continues and pays for no answer twice.

    **Examples:**

    `earmark judge mos-preferences`

    `earmark judge mos-preferences@v1 --annotator openai:gpt-audio --split test --dry-run`

    `earmark judge pseudo-preferences -e musicality --scores my-reward-model.csv`

    `earmark judge human-preferences --template clips.csv`, then `--clip-scores clips.csv`

    `earmark judge pseudo-preferences --rank`

    `earmark judge human-preferences --compare clips.csv --compare openai:gpt-audio`

    `earmark judge all_test.jsonl --layout cmi-rewardbench --audio-root data -a openai:gpt-audio -e pam-musicality`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import stoppable
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.build.progress import shown
    from earmark.tasks.build.registry import find_corpus
    from earmark.tasks.evaluation import judging, reading
    from earmark.tasks.evaluation.comparing import Measure, compare_models
    from earmark.tasks.evaluation.ranking import rank_systems
    from earmark.tasks.evaluation.released import released
    from earmark.tasks.evaluation.samples import Part, Wish

    place = open_store(store)
    if layout is None:
        version = place.find(corpus)
        known = find_corpus(version.corpus)
    else:
        held = released(Path(corpus), layout, place, audio_root or ())
        version, known = context.with_resource(held)
    given = [one for one in (scores, clip_scores, template, compare or annotator or settings) if one is not None]
    if rank:
        if given or dry_run or evaluation or split or language or limit or layout:
            raise ConfigError("--rank measures no model: give it with --out, --store and --json alone")
        facts, folder = rank_systems(version, known, place, out)
        print_json({**facts, "folder": str(folder)}) if as_json else console.show_ranking(facts, folder)
        return
    if not given:
        print_json(console.evaluation_facts(known)) if as_json else console.show_evaluations(version, known)
        return
    if len(given) > 1 or (dry_run and annotator is None and settings is None):
        raise ConfigError(
            "--scores, --clip-scores and --template send no request: give one of them alone, without --annotator, "
            "--compare, --settings and --dry-run"
        )
    if compare and (annotator is not None or dry_run):
        raise ConfigError("--compare names its models itself: leave --annotator and --dry-run out")
    if threshold is not None and tune_on is not None:
        raise ConfigError("--threshold sets a threshold and --tune-on searches one: give only one of them")
    part = Part(split, language, limit)
    wish = Wish(evaluation, mode, part, both_orders, tuple(audio_root or ()), threshold, tune_on, draws, blind)
    if compare:
        with stoppable("answers are kept; run the same command again to continue"), shown():
            facts, folder = compare_models(Measure(version, known, place, wish, base_url, settings), compare, out)
        print_json({**facts, "folder": str(folder)}) if as_json else console.show_comparison(facts, folder)
        return
    if template is not None:
        rows, option = reading.write_template(version, known, template, wish)
        if as_json:
            print_json({"template": str(template), "rows": rows, "option": option})
        else:
            print(f"{rows:,} rows to fill in {template}; then: earmark judge … {option} {template}")
        return
    if clip_scores is not None:
        tables, without = reading.read_clips(version, known, place, clip_scores, wish, out)
        if as_json:
            print_json([{**facts, "folder": str(folder)} for facts, folder in tables])
            return
        for facts, folder in tables:
            console.show_evaluation(facts, folder)
        if without:
            print(f"note: not measured, because the file has none of their clips: {', '.join(without)}")
        return
    if scores is not None:
        facts, folder = reading.read(version, known, place, scores, wish, out)
    else:
        config = judging.examinee(annotator, base_url, settings)
        with stoppable("answers are kept; run the same command again to continue"), shown():
            if dry_run:
                plan = judging.forecast(version, known, place, config, wish)
                print_json(plan) if as_json else console.show_questions(plan)
                return
            facts, folder = judging.judge(version, known, place, config, wish, out)
    print_json({**facts, "folder": str(folder)}) if as_json else console.show_evaluation(facts, folder)
