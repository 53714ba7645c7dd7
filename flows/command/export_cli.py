"""`earmark export`: a version in the form that a trainer reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import (
    AudioRootOption,
    ForceOption,
    JsonOption,
    OutFolderOption,
    StoreOption,
    VersionArgument,
    open_store,
    print_json,
)


def export(
    corpus: VersionArgument,
    format_: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="FORMAT", help="The trainer's format. Without it, the command lists formats and views."
        ),
    ] = None,
    out: OutFolderOption = None,
    view: Annotated[
        str | None, typer.Option(metavar="NAME", help="The view to export. Default: the first one that fits.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Export this table unchanged; only for jsonl and webdataset.")
    ] = None,
    split: Annotated[str | None, typer.Option(metavar="NAME", help="Export only this split.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Export only N rows of each split.")] = None,
    blind: Annotated[
        bool, typer.Option("--blind", help="Leave clips out of prompts: a control without audio, for text trainers.")
    ] = False,
    audio_root: AudioRootOption = None,
    rollouts: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A record of `earmark rollouts`: leave out rows right in every draw."),
    ] = None,
    clap: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="For embeddings: a folder or laion/larger_clap_music."),
    ] = None,
    force: ForceOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a version in the form that a trainer reads; without --for, list formats and views.

    **Examples:**

    `earmark export pseudo-preferences`

    `earmark export pseudo-preferences@v1 --for ms-swift --view musicality-clips --out exports/music`

    `earmark export mos-preferences --for jsonl --table pairs --split train --limit 1000 --out exports/pairs`

    `earmark export mos-preferences --for embeddings --clap laion/larger_clap_music --out exports/vectors`
    """
    from earmark.flows.command import console
    from earmark.schemas.errors import StoreError
    from earmark.tasks.build.progress import shown
    from earmark.tasks.build.registry import find_corpus
    from earmark.tasks.exports.choosing import Wish, choose, offers
    from earmark.tasks.exports.export import export as write
    from earmark.tasks.exports.readme import command_of

    place = open_store(store)
    version = place.find(corpus)
    known = find_corpus(version.corpus)
    if format_ is None:
        listed = offers(version, known)
        if as_json:
            print_json([{"view": o.view.name, "format": o.format, "refusal": o.refusal} for o in listed])
        else:
            console.show_offers(version, listed)
        return
    if rollouts is not None and table is not None:
        raise StoreError("--rollouts goes with a view, not with --table")
    if out is None:
        raise StoreError(f"the export for {format_} needs a folder: add --out DIR")
    wish = Wish(format_, view, table, split, limit, blind, tuple(audio_root or ()), force, rollouts, clap)
    with shown():
        record = write(version, known, place, out, wish)
    if as_json:
        print_json({**record, "folder": str(out)})
    else:
        console.show_export(record, out, command_of(choose(version, known, wish), record))
