"""Select the files to publish: a version unchanged, or a smaller copy with a note if licences hold parts back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from earmark.schemas.config import Licence
from earmark.schemas.errors import HubError
from earmark.schemas.tables import Table
from earmark.tasks.store.files import sha256_file, write_text
from earmark.tasks.store.hub_tree import PublishedFile
from earmark.tasks.store.licences import Redaction, TableLoss, Terms, licences_of, model_terms, unheard
from earmark.tasks.store.manifest import CARD, PAGES, REPORT, FileEntry, Manifest
from earmark.tasks.store.parquet import file_entry
from earmark.tasks.store.result_table import ResultTable
from earmark.tasks.store.staging import locked
from earmark.tasks.store.versions import MANIFEST, Store, Version

FOLDER, LOCK = ".publish", ".publish.lock"
EMBEDS = (b"<audio ", b"<img ")  # unambiguous: the report escapes texts of rows


@dataclass(frozen=True)
class Bundle:
    """A version's published part."""

    version: Version  # the version
    manifest: Manifest  # the published manifest
    entries: tuple[PublishedFile, ...]  # the files, including the published manifest
    lost: Mapping[str, TableLoss]  # losses by table
    licences: Mapping[str, Licence]  # the terms by source
    evaluated: bool = False  # whether the card has a section on evaluations, unlike the version's own
    # terms of the models behind it and its parents
    model_terms: Mapping[str, str] = field(default_factory=dict)

    @property
    def held_rows(self) -> dict[str, int]:
        """Return the numbers of rows held back by table."""
        return {name: sum(loss.rows.values()) for name, loss in self.lost.items() if any(loss.rows.values())}

    @property
    def held_audio(self) -> dict[str, int]:
        """Return the numbers of clips held back by table."""
        return {name: sum(loss.audio.values()) for name, loss in self.lost.items() if any(loss.audio.values())}


@contextmanager
def bundled(
    version: Version,
    tables: Sequence[Table],
    store: Store,
    *,
    audio: bool,
    say: Callable[[str], None],
    evaluations: str = "",
) -> Iterator[Bundle]:
    """Yield the files to publish; copy only changed ones, and remove the copies after the block.

    Args:
        say: called once if another publication of the corpus must end first.
        evaluations: a further section of the card, absent from the version's own.

    Raises:
        HubError: nothing is left to publish.
        StoreError: a parent version is missing.
    """
    licences = licences_of(version, store)
    parent = store.folder(version.corpus)
    with locked(parent / LOCK, f"publication of {version.corpus}", say):
        folder = parent / FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        try:
            redaction = Redaction(version, tables, Terms(licences, audio, unheard(version, store)))
            lost = {
                name: loss
                for name, loss in redaction.lost.items()
                if any(redaction.touches(name, split) for split in version.manifest.rows[name])
            }
            closed = [file for file in _loose(version) if file.path not in redaction.files]
            if lost or closed:
                manifest = _copy(version, redaction, lost, folder)
            elif _sounds(version) and not redaction.all_audible:
                files = version.manifest.files  # the report's audio may not leave, though all rows may
                manifest = version.manifest.model_copy(update={"files": tuple(f for f in files if f.path != REPORT)})
            else:
                manifest = version.manifest
            if evaluations:
                manifest = _evaluated(version, manifest, folder, evaluations)
            manifest = manifest.model_copy(update={"applied_withdrawals": ()})  # they stay in the store
            if manifest != version.manifest:
                write_text(folder / MANIFEST, manifest.to_json())
            entries = tuple(_entries(version, manifest, folder))
            yield Bundle(version, manifest, entries, lost, licences, bool(evaluations), model_terms(version, store))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _loose(version: Version) -> list[FileEntry]:
    """Return a version's files other than tables and pages: audio named by rows."""
    return [file for file in version.manifest.files if file.table is None and file.path not in PAGES]


def _sounds(version: Version) -> bool:
    """Return whether the report holds clips or images, possibly more than the tables."""
    path = version.folder / REPORT
    return path.is_file() and any(mark in path.read_bytes() for mark in EMBEDS)


def _evaluated(version: Version, manifest: Manifest, folder: Path, section: str) -> Manifest:
    """Write a card with `section` before its tables; return the manifest with this card."""
    before, mark, after = _place(version, folder, CARD).read_text("utf-8").partition("## Tables\n")
    write_text(folder / CARD, f"{before}{section}\n{mark}{after}")
    card = file_entry(folder / CARD, folder)
    files = tuple(card if file.path == CARD else file for file in manifest.files)
    return manifest.model_copy(update={"files": files})


def _entries(version: Version, manifest: Manifest, folder: Path) -> Iterator[PublishedFile]:
    for path, sha256, size in ((file.path, file.sha256, file.bytes) for file in manifest.files):
        yield PublishedFile(path, _place(version, folder, path), sha256, size)
    source = _place(version, folder, MANIFEST)
    yield PublishedFile(MANIFEST, source, sha256_file(source), source.stat().st_size)


def _place(version: Version, folder: Path, path: str) -> Path:
    """Return the path of a file's copy, or of the version's own file if unchanged."""
    return folder / path if (folder / path).is_file() else version.folder / path


def _copy(version: Version, redaction: Redaction, lost: Mapping[str, TableLoss], folder: Path) -> Manifest:
    """Write changed files, Parquet and card; return their manifest. Pages about the rows of the whole version
    (`report.html`) are not published with a part."""
    files: list[FileEntry] = []
    rows: dict[str, dict[str, int]] = {}
    for name, table in redaction.tables.items():
        for split in version.manifest.rows[name]:
            if redaction.touches(name, split):
                paths = redaction.write(folder, table, split)
                entries = [file_entry(path, folder, name, split) for path in paths]
            else:
                entries = list(version.manifest.entries(name, split))
            files += entries
            if entries:
                rows.setdefault(name, {})[split] = sum(entry.rows or 0 for entry in entries)
    if not rows:
        raise HubError(f"{version.corpus} {version.name}: the licences hold every row back; nothing is left to publish")
    files += [file for file in _loose(version) if file.path in redaction.files]
    card = (version.folder / CARD).read_text("utf-8")
    write_text(folder / CARD, _card_of_part(card, version, lost, rows))
    files.append(file_entry(folder / CARD, folder))
    return version.manifest.model_copy(update={"rows": rows, "files": tuple(files)})


def _card_of_part(
    card: str, version: Version, lost: Mapping[str, TableLoss], rows: Mapping[str, Mapping[str, int]]
) -> str:
    """Return the card of a part: its YAML lists only published files, its first section the losses."""
    _, head, body = card.split("---\n", 2)
    facts: dict[str, Any] = yaml.safe_load(head)
    facts.pop("dataset_info", None)
    facts.pop("size_categories", None)  # it was the whole version's
    facts["configs"] = [
        config | {"data_files": [file for file in config["data_files"] if file["split"] in rows[config["config_name"]]]}
        for config in facts["configs"]
        if config["config_name"] in rows
    ]
    columns = ("table", "split", "rows here", "rows held back", "clips held back")
    losses = tuple(
        (name, split, rows.get(name, {}).get(split, 0), loss.rows.get(split, 0), loss.audio.get(split, 0))
        for name, loss in lost.items()
        for split in version.manifest.rows[name]
        if loss.touches(split)
    )
    says = (
        f"This is a part of {version.corpus} {version.name}: licences, or the choice to publish no audio, keep the "
        "rest back. The figures in the other sections are those of the whole version."
    )
    before, mark, after = body.partition("\n## ")
    held_back = f"## Held back\n\n{ResultTable('Held back', columns, losses, says).markdown()}"
    shown = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    return f"---\n{shown}---\n{before}\n{held_back}\n{mark}{after}"
