"""Measure a published benchmark file unchanged: read its rows as the tables of a corpus's evaluations, for one run.

A corpus names the layouts in `layouts`; a layout's function reads the file into rows by table. A row with `file` names
a clip: below `--audio-root`, or beside the benchmark file. Samples with missing clips can only be measured by files of
scores, which need no audio; a model is not asked about them.
"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.files import Root
from earmark.schemas.registry import load
from earmark.schemas.tables import UNSPLIT
from earmark.schemas.toml import nearest
from earmark.tasks.audio.probe import Probe
from earmark.tasks.pipeline.media import media_index
from earmark.tasks.pipeline.registry import all_corpora
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.manifest import MANIFEST, Manifest
from earmark.tasks.store.parquet import file_entry
from earmark.tasks.store.versions import Store, Version


@contextmanager
def released(path: Path, layout: str, store: Store, roots: Sequence[Path]) -> Iterator[tuple[Version, Corpus]]:
    """Yield a benchmark file's contents as a version for the block, and its corpus.

    Args:
        path: the file, or a folder of such files.
        roots: folders with the clips, tried in order, then the file's own.

    Raises:
        ConfigError: no such layout.
        InputError: the file, or a row of it, cannot be read.
    """
    known = {name: corpus for corpus in all_corpora()[0].values() for name in corpus.layouts}
    if layout not in known:
        raise ConfigError(
            f"--layout: no layout '{layout}'{nearest(layout, known)}; layouts: {', '.join(sorted(known))}"
        )
    if not path.exists():
        raise InputError(f"{path}: no such file")
    corpus = replace(known[layout], name=layout)
    order = tuple(replace(one, order="the first and second clip of a line") for one in corpus.evaluations)
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
        embedded = Path(temporary) / "audio"
        embedded.mkdir()
        tables = load(corpus.layouts[layout])(path, embedded)
        home = (path if path.is_dir() else path.parent).absolute()
        _name_clips(tables, store, [*(root.absolute() for root in roots), home, embedded])
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        inputs = {one.name: sha256_file(one) for one in files}
        named = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
        folder = Path(temporary) / f"{named}-{min(inputs.values())[:8]}"
        yield as_version(folder, corpus, tables, inputs), replace(corpus, evaluations=order)


def _name_clips(tables: dict[str, list[dict[str, Any]]], store: Store, roots: Sequence[Path]) -> None:
    """Add the SHA-256 and length of its clip to each row that names a file below a root.

    An external file may only name files below a root: paths and links out of it are ignored.
    """
    rows = [row for held in tables.values() for row in held if row.get("file")]
    held = [Root(root) for root in roots]
    places: dict[str, Path] = {}
    for name in dict.fromkeys(row["file"] for row in rows):
        within = not Path(name).is_absolute() and ".." not in Path(name).parts
        paths = [root.folder / name for root in held if within and not root.leads_out(root.folder / name)]
        if there := [path for path in paths if path.is_file()]:
            places[name] = there[0]
    looked = zip(places, media_index(store).look(list(places.values())), strict=True)
    clips = {name: probe for name, probe in looked if isinstance(probe, Probe)}
    for row in rows:
        if (probe := clips.get(row["file"])) is not None:
            row |= {"clip_sha256": probe.clip_sha256, "duration_s": probe.duration_s}


def as_version(
    folder: Path, corpus: Corpus, tables: dict[str, list[dict[str, Any]]], inputs: dict[str, str]
) -> Version:
    """Write a version of these rows by table, with a digest determined by them."""
    schemas = {table.name: table.schema for table in corpus.tables}
    entries, counts = [], {}
    folder.mkdir()
    for name, rows in tables.items():
        if not rows:
            continue
        schema = pa.schema([pa.field(field.name, field.type) for field in schemas[name]])
        path = folder / f"{name}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
        entries.append(file_entry(path, folder, name, UNSPLIT))
        counts[name] = {UNSPLIT: len(rows)}
    manifest = Manifest(
        corpus=corpus.name, version=folder.name, build_key="", inputs=inputs, config={}, code="", libraries={},
        steps=(), rejects={}, rows=counts, files=tuple(entries),
    )  # fmt: skip
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8", newline="\n")
    return Version(corpus.name, folder)
