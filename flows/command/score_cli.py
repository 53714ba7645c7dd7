"""`earmark score`: what systems made of a version's prompts, measured and ranked."""

from __future__ import annotations

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
    print_json,
)


def score(
    corpus: VersionArgument,
    generations: Annotated[
        Path | None,
        typer.Option("--generations", "-g", metavar="DIR", help="A system's clips, each named by its prompt's id."),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="NAME", help="The system's name. Default: the folder's.")
    ] = None,
    annotator: Annotated[
        str | None,
        typer.Option("--annotator", "-a", metavar="SPEC", help="The judge of concepts, backend:model; gives CCS."),
    ] = None,
    clap: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A CLAP model, a folder or laion/larger_clap_music."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="DIR|CORPUS[@vN]", help="What FAD is measured from; needs --clap."),
    ] = None,
    scorer: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A TOML file of what scores clips: callable, ONNX or server."),
    ] = None,
    length_s: Annotated[
        float | None, typer.Option(metavar="S", min=0.1, help="How long clips should be; 5 % are free.")
    ] = None,
    team: Annotated[str | None, typer.Option(metavar="NAME", help="Of a challenge; the baseline has none.")] = None,
    track: Annotated[str | None, typer.Option(metavar="NAME", help="The track that the team entered.")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Leave out prompts without a usable clip; refused otherwise.")
    ] = False,
    compare: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Rank scored systems: two names or more, or `all`."),
    ] = None,
    finalists: Annotated[int | None, typer.Option(metavar="N", min=1, help="With --compare: mark the first N.")] = None,
    listen: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --compare: write a page that plays systems side by side."),
    ] = None,
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

    `earmark score music-prompts@v1 -g clips/ours --clap laion/larger_clap_music --reference instrumentals@v1`

    `earmark score music-prompts@v1 -g clips/ours -a openai:Qwen/Qwen3-Omni-30B-A3B-Instruct --dry-run`

    `earmark score music-prompts@v1 --compare all --finalists 5`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import stoppable
    from earmark.schemas.errors import ConfigError
    from earmark.schemas.evaluations import Examinee
    from earmark.tasks.build.progress import shown
    from earmark.tasks.build.registry import find_corpus
    from earmark.tasks.evaluation import leaderboard, listening, submission
    from earmark.tasks.evaluation.judging import asked_of
    from earmark.tasks.evaluation.scorers import read_scorers

    if (generations is None) == (compare is None) or (compare is None and (finalists or listen) is not None):
        raise ConfigError(
            "give --generations to score a system, or --compare (with --finalists, --listen) to rank scored ones"
        )
    place = open_store(store)
    version = place.find(corpus)
    if compare is not None:
        board, folder = leaderboard.rank_submissions(version, place, compare, finalists, out)
        page = []
        if listen is not None:
            records = leaderboard.scored(version, place, compare)
            mute = listening.write_page(version, find_corpus(version.corpus), place, records, listen)
            page = [f"page to listen: {listen}" + (f"; clips without a player: {mute:,}" if mute else "")]
        if as_json:
            print_json({**board, "folder": str(folder), **({"listen": str(listen)} if listen else {})})
            return
        for title, head, rows in leaderboard.grids(board):
            console.console.print(f"[bold]{version.corpus} {version.name}[/bold], {title}", soft_wrap=True)
            console.console.print(console.grid_of(*head, rows=rows, right=0))
        print(*leaderboard.notes(board), f"tables and plot in {folder}", *page, sep="\n")
        return
    assert generations is not None
    known = find_corpus(version.corpus)
    roots = tuple(audio_root or ())
    wish = submission.Wish(generations, system, team, track, clap, reference, length_s, partial, roots,
                           tuple(read_scorers(scorer or [])))  # fmt: skip
    judge = asked_of(Examinee, annotator, base_url, settings, "earmark score") if annotator or settings else None
    with stoppable("embeddings and answers are kept; run the same command again to continue"), shown():
        if dry_run:
            if judge is None and not wish.scorers:
                raise ConfigError("--dry-run shows what is asked: name a judge with --annotator or a --scorer")
            plans = submission.forecast(version, known, place, judge, wish)
            if as_json:
                print_json({"asks": plans})
            for plan in () if as_json else plans:
                console.show_questions(plan)
            return
        facts, folder = submission.score(version, known, place, judge, wish, out)
    if as_json:
        print_json({**facts, "folder": str(folder)})
        return
    rows = [[one["group"], f"{one['clips']:,}", *leaderboard.figures(one)] for one in facts["groups"]]
    console.console.print(f"[bold]{version.corpus} {version.name}[/bold], {facts['system']}", soft_wrap=True)
    heads = leaderboard.headings(facts["groups"][0])
    console.console.print(console.grid_of("group", "clips", *heads, rows=rows, right=1 + len(heads)))
    left_out = [f"{len(facts['lacking']):,} prompts have no usable clip and are left out"] if facts["lacking"] else []
    print(*left_out, *leaderboard.notes(facts), f"figures of each clip in {folder}", sep="\n")
