"""`earmark judge`: a model measured against what a version knows to be true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


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
        typer.Option(
            "--annotator", "-a", metavar="SPEC", help="The model to evaluate, backend:model, such as openai:gpt-audio."
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            "--scores",
            metavar="FILE",
            help="Read scores from this file instead of asking a model: CSV, JSON lines or Parquet.",
        ),
    ] = None,
    clip_scores: Annotated[
        Path | None,
        typer.Option(
            "--clip-scores",
            metavar="FILE",
            help="Read one score per clip (columns clip, score); measures every evaluation that fits.",
        ),
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(
            "--template", metavar="FILE", help="Write a file for your scores to FILE: its rows, without scores."
        ),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            "--compare",
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
        typer.Option(
            "--mode", metavar="NAME", help="How the question is put. Default: the first mode of the evaluation."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            metavar="NAME",
            help="The split to use, or `all`. Default: the test and ood splits that the version has.",
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", metavar="CODE", help="Use only samples in this language.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Use only N samples, chosen by a hash of their ids."),
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
            "--draws",
            metavar="N",
            min=1,
            max=100,
            help="Ask each question N times: ratings are averaged, of choices the commonest counts.",
        ),
    ] = 1,
    blind: Annotated[
        Literal["audio", "text"] | None,
        typer.Option("--blind", help="A control: ask the same model without the audio, or the text."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold", metavar="SCORE", help="For yes/no: also report accuracy with yes from this score on."
        ),
    ] = None,
    tune_on: Annotated[
        str | None,
        typer.Option(
            "--tune-on", metavar="SPLIT", help="As --threshold, with the threshold that is best on this other split."
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="The server's address, including /v1.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="NAME",
            help="CORPUS is a file as its benchmark publishes it: cmi-rewardbench or anyaudio-judge-bench.",
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            metavar="FILE",
            help="A TOML file with the annotator's options, such as budget_usd, prices and hearing.",
        ),
    ] = None,
    audio_root: Annotated[
        list[Path] | None,
        typer.Option("--audio-root", metavar="DIR", help="Also search this folder for clips that were moved."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="The folder for results. Default: a folder in the store's evaluations/."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the requests and their cost; send nothing.")] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="DIR", help="The store of versions. Default: EARMARK_STORE, else data/store."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
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
    from earmark.tasks.store.versions import open_store

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
        _print({**facts, "folder": str(folder)}) if as_json else console.show_ranking(facts, folder)
        return
    if not given:
        _print(console.evaluation_facts(known)) if as_json else console.show_evaluations(version, known)
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
            told, folder = compare_models(Measure(version, known, place, wish, base_url, settings), compare, out)
        _print({**told, "folder": str(folder)}) if as_json else console.show_comparison(told, folder)
        return
    if template is not None:
        rows, option = reading.write_template(version, known, template, wish)
        done = {"template": str(template), "rows": rows, "option": option}
        _print(done) if as_json else console.show_template(done)
        return
    if clip_scores is not None:
        tables, without = reading.read_clips(version, known, place, clip_scores, wish, out)
        if as_json:
            _print([{**facts, "folder": str(folder)} for facts, folder in tables])
            return
        for facts, folder in tables:
            console.show_evaluation(facts, folder)
        console.show_unfed(without)
        return
    if scores is not None:
        facts, folder = reading.read(version, known, place, scores, wish, out)
    else:
        config = judging.examinee(annotator, base_url, settings)
        with stoppable("answers are kept; run the same command again to continue"), shown():
            if dry_run:
                plan = judging.forecast(version, known, place, config, wish)
                _print(plan) if as_json else console.show_questions(plan)
                return
            facts, folder = judging.judge(version, known, place, config, wish, out)
    _print({**facts, "folder": str(folder)}) if as_json else console.show_evaluation(facts, folder)


def _print(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False))
