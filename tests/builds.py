"""Builds in processes of their own, to be killed; what versions hold; and configs of `mos-preferences`, the smallest.

`python -m tests.builds CONFIG STORE` builds `mos-preferences`.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq

from earmark.flows.command import running
from earmark.flows.command.respelling import document, left_out, new_values
from earmark.flows.mos_preferences import build
from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.mos_preferences import CORPUS, MosPreferences
from earmark.schemas.toml import parse_config
from earmark.tasks.pipeline.forecast import ImaginedSessions, Story, run_dry
from earmark.tasks.pipeline.media import scratch_store
from earmark.tasks.pipeline.plan import staying
from earmark.tasks.pipeline.sessions import clip_media
from earmark.tasks.store.files import write_text
from earmark.tasks.store.receipts import Receipt
from earmark.tasks.store.versions import MANIFEST, Store, Version, ledger_address
from tests.conftest import ROOT
from tests.runner import Held, read_as, run_flow

build_version = partial(run_flow, build)
read_config = partial(read_as, MosPreferences)


def config_from(model: type[Held], values: dict[str, Any], path: Path) -> Held:
    """Read a config whose roles hold all options of their models."""
    assert not left_out(model, values)
    return parse_config(model, new_values(model, values), path)


def write_toml(model: type[BuildConfig], values: dict[str, Any], path: Path) -> Path:
    """Write the same as a file."""
    path.write_text("\n".join(document(new_values(model, values))) + "\n", "utf-8")
    return path


def config_of(base: Path, *sources: Mapping[str, Any], **values: Any) -> MosPreferences:
    """A build config whose paths start from `base`; values are those of the TOML file. Any loss of inputs will do."""
    return parse_config(
        MosPreferences, {"most_rejected": None, "sources": list(sources), **values}, base / "build.toml"
    )


def forecast(corpus: Corpus, story: Story, config: BuildConfig, store: Store) -> dict[str, Any] | None:
    """What a dry run would ask; None if nothing."""
    with scratch_store(store) as scratch, tempfile.TemporaryDirectory() as folder:
        config = staying(config, store, corpus.name)
        counting = ImaginedSessions(config.for_forecast(), ledger_address(store), clip_media(store))
        run_dry(corpus, story, scratch, Path(folder), counting)
        return counting.facts() or None


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs."""
    path = Path(config)
    kept = path.suffix == ".json"  # values from Python
    build_version(running.read_config(CORPUS, path) if kept else read_config(path), Path(store))


def contents_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its path, for comparing versions byte by byte."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def receipt_of(corpus: str, version: str) -> Receipt:
    """A receipt of the publication of a version to `lab/c`."""
    return Receipt(
        corpus=corpus, version=version, endpoint="e", repo="lab/c", private=False, commit="c", tag=version,
        manifest="m", published_manifest="m", files=1, bytes=1, published=datetime.now(UTC),
    )  # fmt: skip


def rows_of(version: Version, table: str) -> list[dict[str, Any]]:
    """A table's rows as plain values, without DuckDB and without the splits' order."""
    return [row for path in version.files(table) for row in pq.read_table(path).to_pylist()]


def restate(version: Version) -> None:
    """Let the manifest say the sizes of files that a test wrote anew, as one of a stranger's version would."""
    sizes = {path: len(content) for path, content in contents_of(version.folder).items()}
    files = tuple(one.model_copy(update={"bytes": sizes.get(one.path, one.bytes)}) for one in version.manifest.files)
    manifest = version.manifest.model_copy(update={"files": files})
    write_text(version.folder / MANIFEST, manifest.to_json())
    version.__dict__["manifest"] = manifest


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


def serve_builds(run: Callable[[str, str], None] = build_from_file) -> None:
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
                run(config, store)
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
