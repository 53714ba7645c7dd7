"""Where a build works before its version exists: one locked folder a build key, resumable step by step."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.errors import StoreError
from earmark.schemas.files import private_folder
from earmark.schemas.reasons import check_reasons
from earmark.schemas.tables import REJECTS, SPLITS, THINGS, Table
from earmark.tasks.store.files import replacing, write_text
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.parquet import write_shards
from earmark.tasks.store.versions import Store

STAGING = ".staging"
LOCK = ".lock"
SPILL = "spill"  # folder below `work` for rows that do not fit in memory
DOOMED = ".swept"


@dataclass(frozen=True)
class Stage:
    """A build under way. Small and picklable: workers in other processes share it through the disk."""

    store: Store  # where the version will be committed
    corpus: str  # the corpus that is built
    build_key: str  # what the version is made from
    folder: Path  # `<store>/<corpus>/.staging/<first digits of the build key>`
    forecast: Any = None  # what counts the requests of a dry run, which asks nothing; None in a build

    @property
    def work(self) -> Path:
        """Intermediate files; they never become part of the version."""
        return self.folder / "work"

    @property
    def version(self) -> Path:
        """The folder that the commit renames to `vN`."""
        return self.folder / "version"

    def record(self, step: Step) -> Step:
        """Note that a step is finished; its files must be complete. A step is recorded last, so a kill repeats it."""
        write_text(self.folder / "steps" / f"{step.name}.json", step.model_dump_json(indent=1) + "\n")
        return step

    def output(self, name: str) -> str | None:
        """What a step returned in an earlier, interrupted run of this build, as JSON; None if it did not end."""
        path = self.folder / "steps" / f"{name}.output"
        return path.read_text("utf-8") if path.is_file() else None

    def keep_output(self, name: str, text: str) -> None:
        """Note what a step returned; written last, so a kill repeats the step."""
        write_text(self.folder / "steps" / f"{name}.output", text)

    def steps(self) -> list[Step]:
        """All recorded steps, in the order of the story."""
        steps = [Step.model_validate_json(path.read_bytes()) for path in (self.folder / "steps").glob("*.json")]
        return sorted(steps, key=lambda step: (step.place, step.name))

    def write(self, table: Table, split: str, batches: Iterable[pa.RecordBatch | pa.Table]) -> int:
        """Write one split of a published table, replacing what an interrupted run left of it.

        Returns:
            The number of rows.
        """
        folder = self.version / table.name
        for stale in [*folder.glob(f"{split}-*"), *folder.glob(f".{split}-*")]:
            stale.unlink()
        count = 0

        def counted() -> Iterator[pa.RecordBatch | pa.Table]:
            nonlocal count
            for batch in batches:
                count += batch.num_rows
                yield batch

        write_shards(folder, table, split, counted())
        return count

    def write_splits(
        self,
        table: Table,
        rows: Callable[[str], Iterable[pa.RecordBatch | pa.Table]],
        splits: Iterable[str] = SPLITS,
    ) -> int:
        """Write a published table, split by split (`rows` gives those of one); splits without rows have no file.

        Returns:
            The number of rows.
        """
        count = sum(self.write(table, split, rows(split)) for split in splits)
        self.drop_empty_splits(table)
        return count

    def drop_empty_splits(self, table: Table) -> None:
        """Remove the files of splits without rows; one stays if none has any, unless the table is optional."""
        import pyarrow.parquet as pq

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
        """Keep a step's rejects for the version's `rejects` table.

        Args:
            rows: its rejects, in the order of `schemas.tables.REJECTS`; the column `made_from` may be missing or hold
                nulls where a reject is about nothing but its source and item, which the commit adds.
            entered: where the step reads or indexes inputs, how many items came in by source, or by file as the
                rejects name it: `most_rejected` holds its faults against them.

        Raises:
            LookupError: a reason is not declared in `schemas/reasons.py`.
        """
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        names = REJECTS.schema.names
        rows = rows.rename_columns(names[: rows.num_columns])
        if "made_from" not in rows.column_names:
            rows = rows.append_column(REJECTS.schema.field("made_from"), pa.nulls(len(rows), THINGS))
        things = pc.coalesce(rows["made_from"].cast(THINGS), pa.scalar([], THINGS))
        rows = rows.set_column(len(names) - 1, "made_from", things)
        check_reasons(rows["reason"].unique().to_pylist())
        if entered is not None:
            write_text(self.work / "entered" / f"{step}.json", json.dumps(entered))
        with replacing(self.work / "rejects" / f"{step}.parquet") as path:
            pq.write_table(rows.cast(REJECTS.schema), path, compression="zstd")

    def entered(self) -> dict[str, dict[str, int]]:
        """What `write_rejects` was told of the items that came in, by step."""
        return {path.stem: json.loads(path.read_bytes()) for path in sorted((self.work / "entered").glob("*.json"))}

    def rejects(self, step: str = "*") -> list[Path]:
        """The files of a step's rejects, or of all steps."""
        return sorted((self.work / "rejects").glob(f"{step}.parquet"))

    def tables(self) -> dict[str, dict[str, list[Path]]]:
        """The written Parquet files by table and split."""
        found: dict[str, dict[str, list[Path]]] = {}
        for path in sorted(self.version.glob("*/*-of-*.parquet")):
            split = path.name.rsplit("-", 3)[0]
            found.setdefault(path.parent.name, {}).setdefault(split, []).append(path)
        return found

    def files(self, table: str) -> list[Path]:
        """The written Parquet files of one table, split by split; none if there is no such table."""
        return [path for paths in self.tables().get(table, {}).values() for path in paths]

    def rows(self, table: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """What was written of one table."""
        import pyarrow.parquet as pq

        return [row for path in self.files(table) for row in pq.ParquetFile(path).read(columns).to_pylist()]


@contextmanager
def staging(
    store: Store, corpus: str, build_key: str, *, wait: bool = True, say: Callable[[str], None]
) -> Iterator[Stage]:
    """Hold a corpus's lock and give its staging folder; sweep away what earlier, killed builds left.

    Args:
        build_key: finished steps of an interrupted build with the same key are found again.
        wait: wait for another build of this corpus to end, or refuse at once.

    Raises:
        StoreError: another build holds the lock and `wait` is false, or the store cannot be written.
    """
    parent = store.folder(corpus)
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"store: {parent} cannot be written: {error.strerror}") from None
    with locked(parent / LOCK, f"build of {corpus}", wait, say):
        folder = parent / STAGING / build_key[:16]
        sweep(store, corpus, keep=folder)
        private_folder(folder.parent)  # texts as they were read, with names that the version hides
        for part in ("work", "steps", "version"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        yield Stage(store, corpus, build_key, folder)
        if folder.is_dir() and not any((folder / "steps").iterdir()):
            sweep(store, corpus, keep=None)  # nothing was done: another build had made the version meanwhile


def sweep(store: Store, corpus: str, keep: Path | None) -> None:
    """Remove staging folders other than `keep`, and in it what a kill left: half-written files, rows that DuckDB spilt.

    The caller holds the corpus's lock.
    """
    staging_folder = store.folder(corpus) / STAGING
    if not staging_folder.is_dir():
        return
    for entry in list(staging_folder.iterdir()):
        if entry != keep:
            discard(entry)
    if keep is not None:
        for leftover in keep.rglob(".*.tmp"):
            leftover.unlink()
        if (spilt := keep / "work" / SPILL).is_dir():  # rows as they were read: names too, where a corpus hides them
            shutil.rmtree(spilt)
    if not any(staging_folder.iterdir()):
        staging_folder.rmdir()


def discard(folder: Path) -> None:
    """Remove a staging folder. It loses its name first, so a kill midway leaves nothing that could be resumed."""
    doomed = folder if folder.suffix == DOOMED else folder.with_suffix(DOOMED)
    if doomed != folder:
        if doomed.exists():
            shutil.rmtree(doomed)
        folder.rename(doomed)
    shutil.rmtree(doomed)


def sweep_if_idle(store: Store, corpus: str) -> None:
    """Remove what a killed build left, unless another build is at work."""
    lock = store.folder(corpus) / LOCK
    if not lock.exists():
        return
    with lock.open("a+") as file:
        if _try_lock(file.fileno()):
            sweep(store, corpus, keep=None)


@contextmanager
def locked(path: Path, work: str, wait: bool, say: Callable[[str], None]) -> Iterator[None]:
    """An exclusive lock that the operating system releases when the process ends, however it ends."""
    with path.open("a+") as file:
        told = False
        while not _try_lock(file.fileno()):
            holder = _holder(path)
            if not wait:
                raise StoreError(f"another {work} is running ({holder}); try again when it has ended")
            if not told:
                say(f"waiting for another {work} ({holder}) to end")
                told = True
            time.sleep(0.2)
        file.seek(0)
        file.truncate()
        json.dump({"pid": os.getpid()}, file)
        file.flush()
        yield


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _holder(path: Path) -> str:
    try:
        return f"process {json.loads(path.read_text())['pid']}"
    except (ValueError, KeyError):
        return "process unknown"  # the holder has the lock but has not yet written its number
