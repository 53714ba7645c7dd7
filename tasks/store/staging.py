"""Stage a build before its version exists: a locked folder for each build key, resumable step by step."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.errors import StoreError
from earmark.schemas.files import private_folder
from earmark.schemas.reasons import check_reasons
from earmark.schemas.tables import REJECTS, SPLITS, THINGS, R, Table
from earmark.tasks.store.files import replacing, try_lock, write_text
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.parquet import write_shards
from earmark.tasks.store.versions import Store

STAGING = ".staging"
LOCK = ".lock"
SPILL = "spill"  # folder below `work` for rows exceeding the memory
DOOMED = ".swept"
SplitFiles: TypeAlias = dict[str, list[Path]]  # Parquet files of a table, by split


@dataclass(frozen=True)
class Stage:
    """A build in progress. Small and picklable: workers in other processes share it through the disk."""

    store: Store  # the store to commit to
    corpus: str  # the built corpus
    build_key: str  # digest of everything the version is made from
    folder: Path  # `<store>/<corpus>/.staging/<first digits of the build key>`
    forecast: Any = None  # counter of a dry run's requests, none of them sent; None in a build
    part: str = "version"  # folder below `folder` with the future version; a redaction has its own

    @property
    def work(self) -> Path:
        """Return the folder of intermediate files; they never become part of the version."""
        return self.folder / "work"

    @property
    def version(self) -> Path:
        """Return the folder renamed to `vN` by the commit."""
        return self.folder / self.part

    def record(self, step: Step) -> Step:
        """Record a finished step, after its files are complete; a step killed before is repeated."""
        write_text(self.folder / "steps" / f"{step.name}.json", step.model_dump_json(indent=1) + "\n")
        return step

    def output(self, name: str) -> str | None:
        """Return a step's result from an interrupted run of this build, as JSON; None if it did not end."""
        path = self.folder / "steps" / f"{name}.output"
        return path.read_text("utf-8") if path.is_file() else None

    def keep_output(self, name: str, text: str) -> None:
        """Save a step's result, as its last act; a step killed before is repeated."""
        write_text(self.folder / "steps" / f"{name}.output", text)

    def steps(self) -> list[Step]:
        """Return all recorded steps, in order of place and name."""
        steps = [Step.model_validate_json(path.read_bytes()) for path in (self.folder / "steps").glob("*.json")]
        return sorted(steps, key=lambda step: (step.place, step.name))

    def write(self, table: Table, split: str, batches: Iterable[pa.RecordBatch | pa.Table]) -> int:
        """Write one split of a published table, replacing remains of an interrupted run.

        Returns:
            The number of rows.
        """
        folder = self.version / table.name
        for stale in [*folder.glob(f"{split}-*"), *folder.glob(f".{split}-*")]:
            stale.unlink()
        return sum(pq.read_metadata(path).num_rows for path in write_shards(folder, table, split, batches))

    def write_splits(
        self, table: Table, rows: Callable[[str], Iterable[pa.RecordBatch | pa.Table]], splits: Iterable[str] = SPLITS
    ) -> int:
        """Write a published table split by split with the rows of `rows(split)`; remove files of empty splits.

        Returns:
            The number of rows.
        """
        count = sum(self.write(table, split, rows(split)) for split in splits)
        self.drop_empty_splits(table)
        return count

    def drop_empty_splits(self, table: Table) -> None:
        """Remove the files of splits without rows; if all are empty, keep a file unless the table is optional."""
        paths = sorted(
            (self.version / table.name).glob("*.parquet"), key=lambda path: not path.name.startswith("train-")
        )
        empty = [path for path in paths if pq.read_metadata(path).num_rows == 0]
        for path in empty[1:] if len(empty) == len(paths) and not table.optional else empty:
            path.unlink()
        folder = self.version / table.name
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def write_rejects(self, step: str, rows: pa.Table, entered: Mapping[str, int] | None = None) -> None:
        """Save a step's rejects for the version's `rejects` table.

        Args:
            rows: its rejects, in the order of `schemas.tables.REJECTS`; the column `made_from` may be missing or hold
                nulls for rejects about nothing but their source and item, added by the commit.
            entered: for steps reading or indexing inputs, numbers of entered items by source, or by file as named in
                the rejects: `most_rejected` is a share of them.

        Raises:
            LookupError: a reason is not declared in `schemas/reasons.toml`.
        """
        names = REJECTS.schema.names
        rows = rows.rename_columns(names[: rows.num_columns])
        if "made_from" not in rows.column_names:
            rows = rows.append_column(REJECTS.schema.field("made_from"), pa.nulls(len(rows), THINGS))
        things = rows["made_from"].cast(THINGS)  # `coalesce` takes a hundred times as long
        things = pc.if_else(things.is_null(), pa.scalar([], THINGS), things)
        rows = rows.set_column(len(names) - 1, "made_from", things)
        check_reasons(rows["reason"].unique().to_pylist())
        if entered is not None:
            write_text(self.work / "entered" / f"{step}.json", json.dumps(entered))
        with replacing(self.work / "rejects" / f"{step}.parquet") as path:
            pq.write_table(rows.cast(REJECTS.schema), path, compression="zstd")

    def entered(self) -> dict[str, dict[str, int]]:
        """Return the numbers of entered items saved by `write_rejects`, by step."""
        return {path.stem: json.loads(path.read_bytes()) for path in sorted((self.work / "entered").glob("*.json"))}

    def rejects(self, step: str = "*") -> list[Path]:
        """Return the files of a step's rejects, or of all steps."""
        return sorted((self.work / "rejects").glob(f"{step}.parquet"))

    def tables(self) -> dict[str, SplitFiles]:
        """Return the written Parquet files by table and split."""
        found: dict[str, SplitFiles] = {}
        for path in sorted(self.version.glob("*/*-of-*.parquet")):
            split = path.name.rsplit("-", 3)[0]
            found.setdefault(path.parent.name, {}).setdefault(split, []).append(path)
        return found

    def split_files(self, table: Table) -> SplitFiles:
        """Return the written Parquet files of one table by split; none for a missing table."""
        return self.tables().get(table.name, {})

    def files(self, table: str) -> list[Path]:
        """Return the written Parquet files of one table, split by split; none for a missing table."""
        return [path for paths in self.tables().get(table, {}).values() for path in paths]

    def rows(self, table: Table[R] | str, columns: list[str] | None = None) -> list[R]:
        """Return the written rows of one table; plug-ins may give its name."""
        name = table if isinstance(table, str) else table.name
        return [row for path in self.files(name) for row in pq.ParquetFile(path).read(columns).to_pylist()]


@contextmanager
def staging(store: Store, corpus: str, build_key: str, *, say: Callable[[str], None]) -> Iterator[Stage]:
    """Lock a corpus and yield its staging folder, after removing remains of killed builds.

    Wait for another build of this corpus to end. A build with the same key resumes after its finished steps.

    Raises:
        StoreError: the store cannot be written.
    """
    parent = store.folder(corpus)
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"store: {parent} cannot be written: {error.strerror}") from None
    with locked(parent / LOCK, f"build of {corpus}", say):
        folder = parent / STAGING / build_key[:16]
        sweep(store, corpus, keep=folder)
        private_folder(folder.parent)  # original texts, with names hidden in the version
        for part in ("work", "steps", "version"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        yield Stage(store, corpus, build_key, folder)
        if folder.is_dir() and not any((folder / "steps").iterdir()):
            sweep(store, corpus, keep=None)  # nothing was done: another build made the version first


def sweep(store: Store, corpus: str, keep: Path | None) -> None:
    """Remove staging folders other than `keep`, and remains of a kill in it: half-written files, spilled rows. The
    caller holds the corpus's lock."""
    staging_folder = store.folder(corpus) / STAGING
    if not staging_folder.is_dir():
        return
    for entry in list(staging_folder.iterdir()):
        if entry != keep:
            discard(entry)
    if keep is not None:
        for leftover in keep.rglob(".*.tmp"):
            leftover.unlink()
        if (spilt := keep / "work" / SPILL).is_dir():  # original rows, with names even in corpora hiding them
            shutil.rmtree(spilt)
    if not any(staging_folder.iterdir()):
        staging_folder.rmdir()


def discard(folder: Path) -> None:
    """Rename a staging folder, then remove it, so that a kill midway leaves nothing resumable."""
    doomed = folder if folder.suffix == DOOMED else folder.with_suffix(DOOMED)
    if doomed != folder:
        if doomed.exists():
            shutil.rmtree(doomed)
        folder.rename(doomed)
    shutil.rmtree(doomed)


def sweep_if_idle(store: Store, corpus: str) -> None:
    """Remove the remains of a killed build, unless another build is running."""
    lock = store.folder(corpus) / LOCK
    if not lock.exists():
        return
    with lock.open("a+") as file:
        if try_lock(file.fileno()):
            sweep(store, corpus, keep=None)


def is_idle(store: Store, corpus: str) -> bool:
    """Return whether surely no build of a corpus is at work, on this machine or another: nobody has its lock."""
    try:
        with (store.folder(corpus) / LOCK).open("rb") as file:
            return try_lock(file.fileno(), fcntl.LOCK_SH)  # so two that look do not take each other for a build
    except FileNotFoundError:
        return True
    except OSError:  # no right to read, or a disk without locks: it cannot be known
        return False


@contextmanager
def locked(path: Path, work: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold an exclusive lock; the operating system releases it however the process ends."""
    with path.open("a+") as file:
        if not try_lock(file.fileno()):
            say(f"waiting for another {work} ({_holder(path)}) to end")
            while not try_lock(file.fileno()):
                time.sleep(0.2)
        file.seek(0)
        file.truncate()
        json.dump({"pid": os.getpid()}, file)
        file.flush()
        yield


def _holder(path: Path) -> str:
    try:
        return f"process {json.loads(path.read_text())['pid']}"
    except (ValueError, KeyError):
        return "process unknown"  # the holder has locked the file, but not yet written its number
