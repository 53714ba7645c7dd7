"""`earmark rollouts`: draws of a policy on the rows that would train it."""

from __future__ import annotations

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


def rollouts(
    corpus: VersionArgument,
    annotator: Annotated[
        str | None,
        typer.Option("--annotator", "-a", metavar="SPEC", help="The policy, backend:model, such as vllm:PATH."),
    ] = None,
    view: Annotated[
        str | None, typer.Option(metavar="NAME", help="The view to draw on. Default: the first with a reward.")
    ] = None,
    draws: Annotated[int, typer.Option(metavar="K", min=1, max=100, help="Completions a row.")] = 4,
    split: Annotated[str | None, typer.Option(metavar="NAME", help="Draw on only this split.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Draw on only N rows of each split.")] = None,
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

    **Example:** `earmark rollouts instruction-rubrics@v1 -a vllm:models/policy --split train --draws 4`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import stoppable
    from earmark.schemas.evaluations import Policy
    from earmark.tasks.build.progress import shown
    from earmark.tasks.build.registry import find_corpus
    from earmark.tasks.evaluation import rollouts as drawing
    from earmark.tasks.evaluation.judging import asked_of

    place = open_store(store)
    version = place.find(corpus)
    known = find_corpus(version.corpus)
    config = asked_of(Policy, annotator, base_url, settings, "earmark rollouts")
    wish = drawing.Wish(view, draws, split, limit, tuple(audio_root or ()))
    with stoppable("answers are kept; run the same command again to continue"), shown():
        if dry_run:
            plan = drawing.forecast(version, known, place, config, wish)
            print_json(plan) if as_json else console.show_questions(plan)
            return
        facts, folder = drawing.roll(version, known, place, config, wish, out)
    if as_json:
        print_json({**facts, "folder": str(folder)})
        return
    print(f"{version.corpus} {version.name}, {facts['view']}: {facts['draws']} draws of {facts['annotator']}")
    rows = [(number, f"{count:,}") for number, count in facts["right_in"].items()]
    console.console.print(console.grid_of("right in", "rows", rows=rows, right=1))
    for reason, count in facts["unanswered"].items():
        print(f"note: {count:,} draws have no completion: {reason}")
    print(f"{facts['kept']:,} of {facts['rows']:,} rows are not right in every draw; see {folder}")
    print(f"to train on them: earmark export {version.corpus}@{version.name} --rollouts {folder}")
