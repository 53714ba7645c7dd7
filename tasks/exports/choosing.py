"""Choose format and view of an export, or refuse with the reason and alternatives."""

from dataclasses import dataclass
from pathlib import Path

from earmark.schemas.corpus import Corpus, View, Writer
from earmark.schemas.errors import StoreError
from earmark.schemas.registry import load
from earmark.tasks.exports.formats import EMBEDDINGS, FORMATS, LOAD, TABLE, Format
from earmark.tasks.exports.rows import view_columns
from earmark.tasks.exports.shapes import Shape, plain
from earmark.tasks.store.versions import Version


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    format: str  # as in `--for`
    view: str | None = None  # the view; without view and table, the first view fit for the format
    table: str | None = None
    split: str | None = None
    limit: int | None = None  # only the first rows of each split
    blind: bool = False  # leave clips out of prompts; for text-only trainers alone
    roots: tuple[Path, ...] = ()
    force: bool = False  # replace an earlier export
    # a record of `earmark eval rollouts`; rows right in all its draws are left out
    rollouts: Path | None = None
    clap: str | None = None  # the model of `--for embeddings`


@dataclass(frozen=True)
class Target:
    """The chosen way to write an export."""

    format: Format  # the format; for a corpus's own format, made of its `Writer`
    shape: Shape  # turns a row into the trainer's row
    clips: bool  # whether the clips become files
    view: View | None = None  # the view; None for a table
    command: str = ""  # how to train or load, with `{train}`, `{split}` and `{name}` to fill in
    whole: str = ""  # the file of all splits; without it, a file for each split
    configs: tuple[str, ...] = ()  # folders of files by split, if there are several


@dataclass(frozen=True)
class Offer:
    """A format for exporting a view; `refusal` is the reason if it does not fit."""

    view: View
    format: str
    says: str
    refusal: str | None


def offers(version: Version, corpus: Corpus) -> list[Offer]:
    """Return all formats for every view of a version, possible or not."""
    listed = []
    formats, faults = FORMATS.all()
    formats = {name: format_ for name, format_ in formats.items() if format_.shapes}
    for view in corpus.views:
        columns = view_columns(version, corpus, view)
        listed += [Offer(view, f.name, f.says, f.why_not(view, columns, blind=False)) for f in formats.values()]
        listed += [Offer(view, name, "", fault) for name, fault in faults.items()]
        listed += [Offer(view, writer.format, writer.says, None) for writer in view.writers]
    return listed


def choose(version: Version, corpus: Corpus, wish: ExportOptions) -> Target:
    """Return the target of the wanted format, with its view or table.

    Raises:
        StoreError: format, view or table are unknown, or do not go together.
    """
    added = [(writer, view) for view in corpus.views for writer in view.writers if writer.format == wish.format]
    if wish.format not in FORMATS.entries and not added:
        known = [*FORMATS.entries, *sorted({writer.format for view in corpus.views for writer in view.writers})]
        raise StoreError(f"unknown format '{wish.format}'; {corpus.name} has: {', '.join(known)}")
    if wish.format == EMBEDDINGS:
        return _for_clips(wish)
    if wish.clap is not None:
        raise StoreError(f"--clap goes with --for {EMBEDDINGS}, not with --for {wish.format}")
    if wish.blind and (added or FORMATS.find(wish.format).hears):
        deaf = ", ".join(f.name for f in FORMATS.all()[0].values() if f.shapes and not f.hears)
        raise StoreError(f"--blind goes with trainers of text alone ({deaf}): --for {wish.format} leaves no clip out")
    if wish.table is not None:
        return _for_table(FORMATS.find(wish.format) if wish.format in FORMATS.entries else None, wish)
    views = corpus.views if wish.view is None else (find_view(corpus, wish.view),)
    if added:
        return _for_own(added, wish)
    format_ = FORMATS.find(wish.format)
    refusals: dict[str, list[str]] = {}
    fitting = []
    for view in views:
        columns = view_columns(version, corpus, view)
        reason = format_.why_not(view, columns, wish.blind)
        if reason is None:
            row = format_.row(view.kind, columns)
            assert row is not None
            fitting.append(Target(format_, format_.shapes[row], format_.hears, view, format_.command.get(row, "")))
        else:
            refusals.setdefault(reason, []).append(view.name)
    if fitting:  # prefer rows made for this trainer
        return next((t for t in fitting if t.view and t.view.kind in format_.shapes), fitting[0])
    reasons = (
        "; ".join(f"{', '.join(names)}: {reason}" for reason, names in refusals.items())
        or "it has no views; export a table with --table"
    )
    works = {o.format for o in offers(version, corpus) if o.view in views and o.refusal is None}
    instead = f"; formats that can: {', '.join(sorted(works))}" if works else ""
    raise StoreError(f"{corpus.name} cannot be exported for {wish.format}: {reasons}{instead}")


def find_view(corpus: Corpus, name: str) -> View:
    """Return a view of a corpus.

    Raises:
        StoreError: it has none of that name.
    """
    views = {view.name: view for view in corpus.views}
    if name not in views:
        known = ", ".join(views) or "none; export a table with --table"
        raise StoreError(f"{corpus.name} has no view '{name}'; views: {known}")
    return views[name]


def _for_table(format_: Format | None, wish: ExportOptions) -> Target:
    if format_ is None or TABLE not in format_.shapes:
        can = ", ".join(f.name for f in FORMATS.all()[0].values() if TABLE in f.shapes)
        raise StoreError(f"{wish.format} takes views, not tables; formats for tables: {can}")
    if wish.view is not None:
        raise StoreError("give --view or --table, not both")
    return Target(format_, plain, clips=True, command=format_.command.get(TABLE, ""))


def _for_clips(wish: ExportOptions) -> Target:
    if wish.clap is None:
        raise StoreError(f"--for {EMBEDDINGS} needs a model: add --clap MODEL, such as laion/larger_clap_general")
    if wish.view or wish.table or wish.blind or wish.rollouts:
        raise StoreError(
            f"--for {EMBEDDINGS} takes a version's clips: expected no --view, --table, --blind, --rollouts"
        )
    return Target(FORMATS.find(EMBEDDINGS), plain, clips=False, command=LOAD)


def _for_own(added: list[tuple[Writer, View]], wish: ExportOptions) -> Target:
    fitting = [(writer, view) for writer, view in added if wish.view in (None, view.name)]
    if not fitting:
        raise StoreError(f"{wish.format} is written from the view '{added[0][1].name}', not from '{wish.view}'")
    writer, view = fitting[0]
    own = Format(writer.format, writer.says, {}, "own", True, {}, write=load(writer.function), suffix=writer.suffix)
    return Target(own, plain, writer.audio, view, whole=writer.whole, configs=writer.configs)
