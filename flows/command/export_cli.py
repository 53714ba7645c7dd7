"""Implement `earmark export`: write a version in a trainer's format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from earmark.flows.command.options import (
    AudioRootOption,
    EachLimitOption,
    ForceOption,
    JsonOption,
    OutFolderOption,
    StoreOption,
    VersionArgument,
    VersionConfigOption,
    open_store,
    option,
    print_json,
)


def export(
    corpus: VersionArgument,
    config: VersionConfigOption = None,
    format_: Annotated[str | None, option("--for FORMAT", "The trainer's format. Default: list all.")] = None,
    out: OutFolderOption = None,
    view: Annotated[str | None, option("NAME", "The view to export. Default: the first one that fits.")] = None,
    table: Annotated[str | None, option("NAME", "Export a table unchanged, for jsonl or webdataset.")] = None,
    split: Annotated[str | None, option("NAME", "Export only this split.")] = None,
    limit: EachLimitOption = None,
    blind: Annotated[bool, option("--blind", "Leave clips out of prompts: a control without audio.")] = False,
    audio_root: AudioRootOption = None,
    rollouts: Annotated[Path | None, option("DIR", "Leave out rows right in every draw of `eval rollouts`.")] = None,
    clap: Annotated[str | None, option("MODEL", "The CLAP model of embeddings: a folder or name.")] = None,
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
    from earmark.flows.command.running import find_version
    from earmark.schemas.errors import StoreError
    from earmark.tasks.exports.choosing import ExportOptions, choose, offers
    from earmark.tasks.exports.export import export as write
    from earmark.tasks.exports.readme import command_of
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.pipeline.registry import find_corpus

    place = open_store(store)
    version = find_version(place, corpus, config)
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
    wish = ExportOptions(format_, view, table, split, limit, blind, tuple(audio_root or ()), force, rollouts, clap)
    with shown():
        record = write(version, known, place, out, wish)
    if as_json:
        print_json({**record, "folder": str(out)})
    else:
        console.show_export(record, out, command_of(choose(version, known, wish), record))
