"""Write views as tables with their clips and images in the rows, as a published version's further configs."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from earmark.schemas.corpus import Corpus, View, names_clip, names_file
from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.tables import AUDIO, Table
from earmark.tasks.exports.choosing import find_view
from earmark.tasks.exports.clips import ClipFile, clip_files
from earmark.tasks.exports.rows import Selection, count_rows, select_view
from earmark.tasks.pipeline.progress import working
from earmark.tasks.store.licences import licences_of
from earmark.tasks.store.parquet import file_entry, write_shards
from earmark.tasks.store.publication import MakeViews
from earmark.tasks.store.versions import Store, Version
from earmark.tasks.store.view_configs import PREFIX, PublishedView

CLIPS_AT_ONCE = 16  # rows whose clips are read together
ROWS_PER_GROUP = 100  # a viewer reads a row group to play one clip

_KINDS = {"audio": "Audio", "image": "Image"}

Cell = Callable[[Mapping[str, Any]], str | None]
"""Returns a row's reference to a clip or image."""


def view_writer(names: Sequence[str], version: Version, corpus: Corpus, store: Store) -> MakeViews | None:
    """Return a function that writes views beside the publishable part of a version; None without names.

    It makes the rows from the part's tables and takes the version's clips; cells of clips not free to leave are empty.

    Raises:
        StoreError: there is no such view; later, its rows are unfit.
        InputError: later, clips are missing.
    """
    views = [find_view(corpus, name) for name in dict.fromkeys(names)]

    def write(part: Version, free: set[str]) -> tuple[PublishedView, ...]:
        return tuple(_write(view, part, version, corpus, store, free) for view in views)

    return write if views else None


def _write(
    view: View, published: Version, whole: Version, corpus: Corpus, store: Store, free: Collection[str]
) -> PublishedView:
    folder = published.folder
    if published.manifest.rows != whole.manifest.rows and not count_rows(published, corpus, view):
        _refuse_held(view, whole, corpus, store)
    with (
        TemporaryDirectory(dir=folder, prefix=".") as spill,
        select_view(published, corpus, view, Path(spill), None, None) as selection,
    ):
        selection.check(view, clips=True)
        wanted = {reference.partition(".")[0] for reference in selection.clips()}.intersection(free)
        rows = PlayableRows(selection, clip_files(wanted, whole, store, Path(spill), ()), Path(spill))
        table = Table(f"{PREFIX}{view.name}", schema=rows.schema, rows_per_group=ROWS_PER_GROUP)
        files = []
        with working(f"write {table.name}", sum(selection.counts.values())) as work:
            for split in selection.counts:
                batches = work.watching(rows.batches(split))
                paths = write_shards(folder / table.name, table, split, batches)
                files += [file_entry(path, folder, table.name, split) for path in paths]
    return PublishedView(view.says, tuple(files), tuple(rows.cells), rows.counted["clips"], rows.counted["held"])


def _refuse_held(view: View, whole: Version, corpus: Corpus, store: Store) -> None:
    """Raise StoreError if a view has rows in the whole version; licences hold all of them back."""
    if held := count_rows(whole, corpus, view):
        closed = {name: terms for name, terms in licences_of(whole, store).items() if terms.redistribute == "none"}
        stated = ", ".join(f"{name} ({terms.licence or 'not stated'})" for name, terms in sorted(closed.items()))
        raise StoreError(
            f"view '{view.name}': licences hold back all its {held:,} rows, by redistribute = \"none\" of {stated}; "
            "--view names another, or change [licences] if their owners allow it, and build again"
        )


@dataclass
class PlayableRows:
    """A view's rows with the files in place of their references."""

    selection: Selection
    files: Mapping[str, ClipFile]  # by SHA-256
    own: Path  # folder of files from the version itself, which names a converted clip by its original's SHA-256
    counted: Counter[str] = field(default_factory=Counter)  # `clips` written, and `held` back

    def __post_init__(self) -> None:
        """Choose the columns: `audio_chosen` for the view's `chosen_audio`, `audio_1`, `audio_2` for its `audios`."""
        query = "SELECT * EXCLUDE (_place, split) FROM selected LIMIT 0"
        columns = self.selection.connection.sql(query).to_arrow_table().schema
        self.cells: dict[str, Cell] = {}
        fields = []
        for column in columns:
            added = self._cells(column.name)
            if twice := self.cells.keys() & added.keys():
                raise StoreError(f"view '{self.selection.name}': two columns of clips would be named {min(twice)}")
            self.cells |= added
            is_file = names_file(column.name) or column.name in ("audios", "images")
            files = [pa.field(name, AUDIO, metadata={"feature": _KINDS[name.partition("_")[0]]}) for name in added]
            fields += files if is_file else [column]
        self.schema = pa.schema(fields)

    def _cells(self, column: str) -> dict[str, Cell]:
        if names_file(column):
            kind = "audio" if names_clip(column) else "image"
            side = column.removesuffix(kind).removesuffix("_")
            return {f"{kind}_{side}" if side else kind: lambda row: row[column]}
        if column not in ("audios", "images"):
            return {}
        query = f"SELECT coalesce(max(len({column})), 0) FROM selected"
        ((most,),) = self.selection.connection.sql(query).fetchall()
        kind = column[:-1]
        names = [kind] if most == 1 else [f"{kind}_{place}" for place in range(1, most + 1)]
        return {name: _at(column, place) for place, name in enumerate(names)}

    def batches(self, split: str) -> Iterator[pa.Table]:
        """Yield a split's rows, a few at a time if they have clips."""
        for batch in self.selection.rows(split):
            few = CLIPS_AT_ONCE if self.cells else len(batch)
            for start in range(0, len(batch), few):
                part = batch.slice(start, few)
                rows = part.to_pylist() if self.cells else []
                columns = [
                    pa.array([self._file(self.cells[one.name](row)) for row in rows], AUDIO)
                    if one.name in self.cells
                    else part[one.name]
                    for one in self.schema
                ]
                yield pa.Table.from_arrays(columns, schema=self.schema)

    def _file(self, reference: str | None) -> dict[str, Any] | None:
        """Return a clip's cell; None without a clip, or if it is not free to leave."""
        if reference is None:
            return None
        sha256 = reference.partition(".")[0]
        if (file := self.files.get(sha256)) is None:
            self.counted["held"] += 1
            return None
        content = file.path.read_bytes()
        if not file.path.is_relative_to(self.own) and hashlib.sha256(content).hexdigest() != sha256:
            raise InputError(f"{file.path} changed while it was read; publish again")
        self.counted["clips"] += 1
        return {"bytes": content, "path": f"{sha256}{file.path.suffix.lower()}"}


def _at(column: str, place: int) -> Cell:
    def cell(row: Mapping[str, Any]) -> str | None:
        listed = row[column] or []
        return listed[place] if place < len(listed) else None

    return cell
