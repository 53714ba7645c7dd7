"""Disks that fill up, files that are locked, damaged or read-only: one line, nothing half made, and on from there."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from earmark.flows.command.cli import let_go
from earmark.flows.command.ending import machine_fault
from earmark.schemas.errors import DiskError, EarmarkError
from earmark.schemas.files import connected
from earmark.tasks.annotation import ledger_sqlite
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import LedgerError
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.request import Report
from earmark.tasks.audio.index import MediaIndex
from earmark.tasks.pipeline import mirror
from tests.annotation.conftest import LocalServer, ask_all, config_for, requests_for, serving
from tests.builds import build_version, contents_of, read_config
from tests.flows.test_cli import CORPUS, DEMO, as_json, earmark
from tests.servers.faults import Faults

Resize = Callable[[str], None]
REQUESTS = 300
ROOM = "No space left on device; make room, or name another place by"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Resize]]:
    """A small disk of its own, and a function that mounts it anew with other options, such as `size=1m`."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], capture_output=True)

    if os.name != "posix" or not Path("/bin/mount").exists() or (tried := mount("size=1m")).returncode:
        said = tried.stderr.decode().strip() if Path("/bin/mount").exists() else "no mount command"
        pytest.skip(f"a small disk cannot be mounted here: {said}")
    yield place, lambda options: mount(f"remount,{options}").check_returncode()
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is told of tasks that were forgotten."""
    caplog.set_level(logging.ERROR, "asyncio")
    yield
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def is_one_line(error: BaseException) -> bool:
    """Whether the command would print it as one line."""
    line = str(error) if isinstance(error, EarmarkError) else machine_fault(error)
    return bool(line) and len(str(line).splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", ["8k", "40k", "100k", "400k"])
def test_a_ledger_on_a_full_disk(size: str, disk: tuple[Path, Resize], quiet: None) -> None:
    place, resize = disk
    resize(f"size={size}")
    with LocalServer(Faults()) as server:
        config = config_for(server)
        with pytest.raises(LedgerError, match=rf"ledger .*l\.sqlite: cannot .*({ROOM} EARMARK_LEDGER|I/O error)$"):
            ask_all(config, requests_for(config, REQUESTS), ledger=place / "l.sqlite")
        gc.collect()
        resize("size=20m")
        report = ask_all(config, requests_for(config, REQUESTS), ledger=place / "l.sqlite")
        assert report.answered == REQUESTS
        counts = server.faults.numbers()
        assert (counts["distinct"], counts["repeats"]) == (REQUESTS, counts["asked"] - REQUESTS)
        assert counts["repeats"] <= config.max_concurrency  # what was in flight, and could not be kept


@pytest.mark.slow
def test_a_ledger_that_becomes_full_read_only_locked_or_damaged(
    tmp_path: Path, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without a disk of its own: SQLite is told how many pages there are, and not to write."""
    path = tmp_path / "l.sqlite"

    async def story() -> None:
        server = await serving()
        config = config_for(server)

        async def ask(pragma: str | None, first: int = 0) -> Report:
            async with open_ledger(path) as ledger, Annotator(config, ledger) as annotator:
                if pragma:
                    ledger.driver.run(f"PRAGMA {pragma}")
                return await annotator.ask(requests_for(config, REQUESTS, first))

        with pytest.raises(LedgerError, match=f"cannot write: {ROOM} EARMARK_LEDGER"):
            await ask("max_page_count = 40")
        with pytest.raises(LedgerError, match="cannot write: attempt to write a readonly database"):
            await ask("query_only = 1")
        assert (await ask(None)).answered == REQUESTS
        assert server.faults.numbers()["repeats"] <= 2 * config.max_concurrency

        monkeypatch.setattr(ledger_sqlite, "BUSY_S", 0.1)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="cannot write: database is locked"):
            await ask(None, REQUESTS)
        other.execute("ROLLBACK")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()

        content = bytearray(path.read_bytes())
        content[4096 * 8 :] = b"\xa5" * (len(content) - 4096 * 8)
        path.write_bytes(content)
        with pytest.raises(LedgerError, match=r"cannot .*: database disk image is malformed"):
            await ask(None)
        path.write_bytes(b"no database" * 1000)
        with pytest.raises(LedgerError, match="cannot be opened: file is not a database"):
            await ask(None)
        await server.stop()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_database_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    def overfill() -> None:
        with connected(tmp_path / "x.sqlite") as one:
            one.execute("PRAGMA max_page_count = 2")
            one.execute("CREATE TABLE t (a)")
            one.execute("INSERT INTO t VALUES (zeroblob(100000))")

    with pytest.raises(DiskError, match=rf"x\.sqlite: {ROOM} EARMARK_MEDIA_INDEX$"):
        overfill()
    (tmp_path / "media.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(DiskError, match=r"media\.sqlite: file is not a database$"):
        MediaIndex(tmp_path / "media.sqlite")


def test_a_database_without_a_place_names_the_variable_for_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, said in ((tmp_path / "file/x.sqlite", r"expected a folder: \S+/file; make it"), (tmp_path, "a folder")):
        with pytest.raises(DiskError, match=f"{place}: .*{said}.*, or name another place by EARMARK_MEDIA_INDEX$"):
            MediaIndex(place)
        with pytest.raises(LedgerError, match=f"ledger {place}: .*{said}.*, or name another place by EARMARK_LEDGER$"):
            open_ledger(place)


@pytest.mark.slow
def test_a_database_on_a_read_only_disk_names_the_variable_for_another(
    disk: tuple[Path, Resize], quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, resize = disk
    monkeypatch.setenv("EARMARK_CACHE", str(place))
    with LocalServer(Faults()) as server:
        config = config_for(server)
        ask_all(config, requests_for(config, 1), ledger=place / "l.sqlite")
        MediaIndex(place / "m.sqlite")
        (place / "inputs").mkdir()
        gc.collect()
        resize("ro")
        only = "the file or its folder is read-only; make both writable, or name another place by"
        for new in ("", "new-"):
            with pytest.raises(LedgerError, match=f"ledger {place}/{new}l.sqlite: cannot .*: {only} EARMARK_LEDGER$"):
                ask_all(config, requests_for(config, 2), ledger=place / f"{new}l.sqlite")
            with pytest.raises(DiskError, match=f"{place}/{new}m.sqlite: {only} EARMARK_MEDIA_INDEX$"):
                MediaIndex(place / f"{new}m.sqlite")
        with pytest.raises(DiskError, match=f"{place}/inputs/objects.sqlite: {only} EARMARK_CACHE$"), mirror._record():
            pass


@pytest.mark.slow
def test_a_store_on_a_full_disk(disk: tuple[Path, Resize], tmp_path: Path, quiet: None) -> None:
    place, resize = disk
    config = read_config(DEMO).model_copy(update={"critiques": None})
    met = set()
    for size in (40, 60, 80, 100, 200):
        shutil.rmtree(place / "store", ignore_errors=True)
        resize(f"size={size}k")
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of several kinds, and each is one line
            build_version(config, place / "store")
        assert is_one_line(caught.value), repr(caught.value)
        met.add(type(caught.value).__name__)
        assert not list(place.glob("store/*/v*"))
        let_go(caught.value)
    assert len(met) >= 2, met
    resize("size=20m")
    built = build_version(config, place / "store")
    assert contents_of(built.folder) == contents_of(build_version(config, tmp_path / "direct").folder)
    assert not list(place.glob("store/**/.*.tmp"))
    gc.collect()
    resize("ro")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        build_version(config.model_copy(update={"limit": 9}), place / "store")
    assert is_one_line(caught.value), repr(caught.value)
    resize("rw")


@pytest.mark.slow
def test_the_command_ends_with_one_line_and_the_run_goes_on(disk: tuple[Path, Resize], tmp_path: Path) -> None:
    place, resize = disk
    store = place / "store"
    expected = {
        "200k": "for Prefect's server",
        "180k": "No space left",
        "500k": rf"ledger .* ({ROOM} EARMARK_LEDGER|I/O error)",
    }
    (tmp_path / "prefect").mkdir()
    for size, reason in expected.items():  # no room for Prefect's own files, for the version, for the ledger
        resize(f"size={size}")
        said = earmark(store, "build", CORPUS, "--config", DEMO, code=1).stderr
        assert "destroyed" not in said
        run = as_json(store, "status")[-1]
        assert re.fullmatch(
            f"error: .*{reason}.*; when that is mended, go on with: earmark resume {run['run']}", said.splitlines()[-1]
        )
        assert run["state"] in ("failed", "interrupted")  # there may be no room for how it ended
        if not (place / "prefect").exists():
            (place / "prefect").symlink_to(tmp_path / "prefect")
    resize("size=100m")
    assert f"{CORPUS} v1 in " in earmark(store, "resume").stdout
    assert as_json(store, "inspect", "verify", CORPUS)["faults"] == []
