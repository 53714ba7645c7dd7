"""A whole build of `mos-preferences` without Prefect's engine: the flow's steps, called one after the other.

`python -m tests.builds CONFIG STORE` runs it as a process of its own, to be killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.config import parse_config, read_toml
from schemas.mos_preferences import CORPUS, MosPreferences
from tasks.build.asking import asking
from tasks.build.plan import Plan
from tasks.build.progress import working
from tasks.importers.rows import Rating
from tasks.mos_preferences.critique_report import critique_sections
from tasks.mos_preferences.critiques import count_questions, critique, plan_critiques, write_critiques
from tasks.mos_preferences.pairs import pair_clips
from tasks.mos_preferences.ratings import (
    IMPORTED,
    ROWS_PER_SOURCE,
    import_source,
    in_shards,
    index_clips,
    merge_votes,
    write_ratings,
)
from tasks.mos_preferences.sources import plan_build
from tasks.store.commit import Made
from tasks.store.manifest import Step, digest_of
from tasks.store.versions import Version, open_store
from tests.conftest import ROOT


def build_version(config: MosPreferences, store_root: Path, *, force: bool = False) -> Version:
    """Build a version, or find it up to date, by the same steps in the same order as the flow."""
    plan = plan_build(config, open_store(str(store_root)))
    if (done := plan.up_to_date()) and not force:
        return done
    if force:
        plan.forget()
    with plan.stage() as stage:
        for source in config.sources:
            import_source.fn(stage, config, source)
        merge_votes.fn(stage, config)
        for start in in_shards(stage, config):
            index_clips.fn(stage, config, start)
        write_ratings.fn(stage, config)
        plan.check_inputs(stage)
        pair_clips.fn(stage, config)
        if config.critiques:
            shards = plan_critiques.fn(stage, config)
            with asking(stage.store, config.critiques) as session, working("critique", count_questions(stage)) as work:
                for shard in shards:
                    critique.fn(stage, config, session, shard, work)
            write_critiques.fn(stage, config)
        return plan.commit(stage, sections=critique_sections(stage))


def read_config(path: Path) -> MosPreferences:
    """The build config in a TOML file."""
    return parse_config(MosPreferences, read_toml(path), path)


def config_of(base: Path, *sources: Mapping[str, Any], **values: Any) -> MosPreferences:
    """A build config whose paths start from `base`; values are those of the TOML file. Any loss of inputs will do."""
    return parse_config(
        MosPreferences, {"most_rejected": None, "sources": list(sources), **values}, base / "build.toml"
    )


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs."""
    build_version(read_config(Path(config)), Path(store))


def contents_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its path, for comparing versions byte by byte."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def build_rows(config: MosPreferences, rows: Sequence[Rating], dataset_of: Sequence[str], store_root: Path) -> Version:
    """Build from rows as importers yield them, so that any combination of unknown facts can be tried."""
    inputs = {"rows": digest_of([list(row) for row in rows])}
    made = Made(CORPUS, config.recorded(), inputs, code="", libraries={})
    plan = Plan(open_store(str(store_root)), made, digest_of([config.identity(), inputs]), lambda: inputs, config)
    with plan.stage() as stage:
        for number, source in enumerate(config.sources):
            held = [row for row, name in zip(rows, dataset_of, strict=True) if name == source.name]
            first = number * ROWS_PER_SOURCE
            table = [{**row._asdict(), "dataset": source.name, "row": first + i} for i, row in enumerate(held)]
            path = stage.work / "imported" / f"{number:03d}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(pa.Table.from_pylist(table, IMPORTED), path)
            stage.record(
                Step(
                    name=f"import-{source.name}",
                    place=1,
                    unit="list rows",
                    stage="import",
                    entered=len(held),
                    kept=len(held),
                )
            )
        merge_votes.fn(stage, config)
        write_ratings.fn(stage, config)
        pair_clips.fn(stage, config)
        return plan.commit(stage)


def rows_of(version: Version, table: str) -> list[dict[str, Any]]:
    """A table's rows as plain values, without DuckDB and without the splits' order."""
    return [row for path in version.files(table) for row in pq.read_table(path).to_pylist()]


def traces(version: Version, words: Iterable[str]) -> list[tuple[str, str]]:
    """Every place where one of the words stands: in cells, and in the bytes and names of all files."""
    found = []
    for path in sorted(version.folder.rglob("*")):
        if path.is_file():
            text = path.name + path.read_bytes().decode("utf-8", "replace")
            if path.suffix == ".parquet":
                text += str(pq.ParquetFile(path).read().to_pylist())
            found += [(path.relative_to(version.folder).as_posix(), word) for word in words if word in text]
    return found


NAMED, ORDER = "named.log", "dies_at"  # files beside a config


def watch_names(config: Path) -> None:
    """Note every file that this process gives its name, in `named.log` beside the config if that is there; and die by a
    signal that cannot be caught before or after the one that `dies_at` says, such as `7 before`."""
    log, order = config.with_name(NAMED), config.with_name(ORDER)
    number, _, when = order.read_text().partition(" ") if order.is_file() else ("0", "", "")
    noted = os.open(log, os.O_WRONLY | os.O_APPEND) if log.is_file() else None
    count, last = 0, False

    def watch(event: str, args: tuple[object, ...]) -> None:
        nonlocal count, last
        if last:  # the next thing that is done after it
            last = False  # to kill is an event, too
            os.kill(os.getpid(), signal.SIGKILL)
        if event != "os.rename":
            return
        count += 1
        if noted is not None:
            os.write(noted, f"{time.monotonic()}\t{args[1]}\n".encode())
        if count == int(number):
            last = when == "after"
            if not last:
                os.kill(os.getpid(), signal.SIGKILL)

    if noted is not None or number != "0":
        sys.addaudithook(watch)


def serve_builds(build: Callable[[str, str], None] = build_from_file) -> None:
    """Fork a build for each line `CONFIG<tab>STORE` of standard input; print its process number, then its exit status.

    All is imported once, so that a test can start and kill dozens of builds in a minute.
    """
    for line in sys.stdin:
        config, _, store = line.rstrip("\n").partition("\t")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                watch_names(Path(config))
                build(config, store)
                status = 0
            finally:
                if status:
                    traceback.print_exc()
                    sys.stderr.flush()
                os._exit(status)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


class Builds:
    """Starts builds in processes of their own, one at a time. They fork from one process that has imported all.

    Args:
        module: the module that calls `serve_builds` when it is run with `--serve`.
    """

    def __init__(self, module: str = "tests.builds") -> None:
        self.module = module

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", self.module, "--serve"]
        pipe = subprocess.PIPE
        self.server = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.communicate()

    def start(self, config: Path, store: Path) -> int:
        """Begin a build; its process number."""
        assert self.server.stdin is not None
        self.server.stdin.write(f"{config}\t{store}\n")
        return self.said()

    def said(self) -> int:
        """The exit status of the build that was started; waits for its end."""
        assert self.server.stdout is not None
        return int(self.server.stdout.readline())

    def kill(self, child: int) -> None:
        """Kill the build that was started, unless it has ended. One that ends this moment is gone already."""
        if not self.ended(0):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def ended(self, within_s: float) -> bool:
        """Whether the build that was started ends within a time."""
        return bool(select.select([self.server.stdout], [], [], within_s)[0])


if __name__ == "__main__":
    serve_builds() if sys.argv[1:] == ["--serve"] else build_from_file(*sys.argv[1:])
