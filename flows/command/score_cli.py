"""Implement `earmark eval score` and `earmark eval calibrate`: clips of systems, and thresholds of CLAP."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import (
    AskNothingOption,
    AudioRootOption,
    BaseUrlOption,
    JsonOption,
    RecordOption,
    SettingsOption,
    StoreOption,
    VersionArgument,
    open_store,
    option,
    print_json,
    print_record,
)


def score(
    corpus: VersionArgument,
    generations: Annotated[Path, option("--generations -g DIR", "Clips, each named by its prompt's id.")],
    system: Annotated[str | None, option("NAME", "The system's name. Default: the folder's.")] = None,
    annotator: Annotated[str | None, option("--annotator -a SPEC", "The judge of concepts, for CCS.")] = None,
    clap: Annotated[
        str | None, option("MODEL", "A CLAP model: a folder, a .pt file or laion/larger_clap_general.")
    ] = None,
    reference: Annotated[
        str | None, option("DIR|CORPUS[@vN][:SPLIT]|FILE", "The reference of FAD, or its statistics (.npz).")
    ] = None,
    reference_sample: Annotated[int | None, option("N", "Draw N clips of the reference.", min=2)] = None,
    seed: Annotated[int, option("N", "Seed of this draw.")] = 17,
    scorer: Annotated[list[Path] | None, option("FILE", "A scorer, a TOML file: callable, ONNX or server.")] = None,
    length_s: Annotated[float | None, option("S", "The clips' wanted length; 5 % are free.", min=0.1)] = None,
    team: Annotated[str | None, option("NAME", "The team in a challenge; a baseline has none.")] = None,
    track: Annotated[str | None, option("NAME", "The track that the team entered.")] = None,
    topline: Annotated[bool, option("--topline", "Show it beside the ranks, unranked.")] = False,
    partial: Annotated[bool, option("--partial", "Leave out prompts without a usable clip.")] = False,
    base_url: BaseUrlOption = None,
    settings: SettingsOption = None,
    audio_root: AudioRootOption = None,
    out: RecordOption = None,
    dry_run: AskNothingOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score what a system generated from a version's prompts: sound checks, CLAP score, FAD, concept coverage (CCS) and
    scores of your own scorers.

    Embeddings and answers are kept: after an interruption the same command continues, and a further system costs its
    own clips alone.

    **Examples:**

    `earmark eval score music-prompts@v1 -g clips/ours --clap laion/larger_clap_general --reference instrumentals@v1`

    `earmark eval score music-prompts@v1 -g clips/ours -a openai:Qwen/Qwen3-Omni-30B-A3B-Instruct --dry-run`

    Then rank the systems: `earmark eval rank music-prompts@v1 all --finalists 5`
    """
    from earmark.flows.command.ending import stoppable
    from earmark.flows.command.previewing import print_plans
    from earmark.schemas.errors import ConfigError
    from earmark.schemas.evaluations import Examinee
    from earmark.tasks.evaluation import leaderboard, submission
    from earmark.tasks.evaluation.judging import asked_of
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.pipeline.registry import find_corpus
    from earmark.tasks.pipeline.scoring import read_scorers

    place = open_store(store)
    version = place.find(corpus)
    known = find_corpus(version.corpus)
    roots = tuple(audio_root or ())
    wish = submission.ScoreOptions(generations, system, team, track, topline, clap, reference, reference_sample, seed,
                                   length_s, partial, roots, tuple(read_scorers(scorer or [])))  # fmt: skip
    judge = asked_of(Examinee, annotator, base_url, settings, "earmark eval score") if annotator or settings else None
    with stoppable("embeddings and answers are kept; run the same command again to continue"), shown():
        if dry_run:
            if judge is None and not wish.scorers:
                raise ConfigError("--dry-run shows what is asked: name a judge with --annotator or a --scorer")
            print_plans(submission.forecast(version, known, place, judge, wish), as_json)
            return
        record = submission.score(version, known, place, judge, wish, out)
    print_record(record, leaderboard.score_page, as_json, "figures of each clip")


def calibrate(
    pairs: Annotated[
        Path, typer.Argument(metavar="TABLE|DIR", help="A table: clip, text, label (yes or no). Or an audit's record.")
    ],
    model: Annotated[str | None, option("MODEL", "The CLAP model: a folder, a .pt file or a name on the Hub.")] = None,
    error: Annotated[
        float, option("RATE", "Most wrong texts taken as fitting, and the reverse.", min=0.001, max=0.5)
    ] = 0.05,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose CLAP's thresholds `least` and `most` for instruction-rubrics, from a hundred labelled pairs or more.

    Half of the pairs should fit, and half not, as swapped texts do not. A fresh pair goes wrong at the error rate at
    most. Scores are kept: another rate measures nothing anew.

    **Examples:**

    `earmark eval calibrate pairs.csv --model laion/clap-htsat-unfused --error 0.05`

    `earmark eval calibrate data/store/audits/instruction-rubrics/v1/alignment-1f0c2b9a`
    """
    from earmark.flows.command.console import print_result, tell
    from earmark.tasks.instruction_rubrics.calibrating import calibrate as choose
    from earmark.tasks.instruction_rubrics.calibrating import calibration_table, config_lines, scored_pairs
    from earmark.tasks.pipeline.progress import shown

    with shown():
        found = choose(scored_pairs(pairs, model, open_store(store)), error)
    if as_json:
        thresholds = {one.name: one._asdict() for one in (found.least, found.most)}
        print_json({**found._asdict(), **thresholds, "lines": config_lines(found)})
        return
    print_result(calibration_table(found))
    tell(f"{found.between:,} of {found.pairs:,} pairs score in between: neither captions nor swaps", "")
    print(config_lines(found))
