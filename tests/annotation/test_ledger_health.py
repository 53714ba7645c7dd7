"""A ledger that lost something says so before anything is asked: what was paid is never paid again in silence."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from earmark.tasks.annotation import ledger_sqlite
from earmark.tasks.annotation.errors import LedgerError
from earmark.tasks.annotation.ledger_sqlite import SqliteDriver

ROW = "INSERT INTO texts (sha256, text) VALUES (?, ?)"
FRAME = 24 + 4096


@pytest.fixture(autouse=True)
def _first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every opening looks as a new process does."""
    monkeypatch.setattr(ledger_sqlite, "_CHECKED", set())


def fill(path: Path, rows: int = 400) -> None:
    driver = SqliteDriver(path)
    for number in range(rows):
        driver.begin()
        driver.run(ROW, (f"{number:064}", f"paid answer {number} " * 20))
        driver.commit()
    os._exit(0)  # as a kill: the log stays


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the file of a killed process, and its log of hundreds of transactions."""
    folder = tmp_path_factory.mktemp("left")
    process = multiprocessing.get_context("fork").Process(target=fill, args=(folder / "ledger.sqlite",))
    process.start()
    process.join()
    assert (folder / "ledger.sqlite-wal").stat().st_size > 100 * FRAME
    return folder


@pytest.fixture
def ledger(left: Path, tmp_path: Path) -> Path:
    shutil.copytree(left, tmp_path / "ledger")
    return tmp_path / "ledger" / "ledger.sqlite"


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def rows(path: Path) -> int:
    driver = SqliteDriver(path)
    try:
        return int(driver.rows("SELECT count(*) FROM texts")[0][0])
    finally:
        driver.close()


def test_what_a_kill_left_is_whole(ledger: Path) -> None:
    assert rows(ledger) == 400


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lose_the_file(path: Path) -> None:
    path.unlink()


def stretch(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    size = path.stat().st_size
    overwrite(path, size // 2, b"\xff" * 20_000)


def garbage(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(random.Random(1).randbytes(log.stat().st_size))


def header(path: Path) -> None:
    overwrite(path.with_name(f"{path.name}-wal"), 20, b"\x01\x02")


def middle(path: Path) -> None:
    overwrite(path.with_name(f"{path.name}-wal"), 32 + 40 * FRAME + 2000, b"\xff")


def zeros(path: Path) -> None:
    overwrite(path.with_name(f"{path.name}-wal"), 32 + 40 * FRAME, bytes(5 * FRAME))


@pytest.mark.parametrize("damage", [empty, lose_the_file, stretch, garbage, header, middle, zeros])
def test_damage_is_refused_in_a_line_and_again_the_next_time(damage: Callable[[Path], None], ledger: Path) -> None:
    damage(ledger)
    held = {path.name: path.read_bytes() for path in ledger.parent.iterdir() if not path.name.endswith("-shm")}
    for _ in range(2):
        with pytest.raises(LedgerError, match="put back a copy") as refused:
            SqliteDriver(ledger)
        with pytest.raises(LedgerError, match="put back a copy"):  # a dry run tells what would be paid
            SqliteDriver(ledger, reading=True)
        assert "\n" not in str(refused.value)
        assert str(ledger) in str(refused.value)
    if damage is not stretch:  # whose log was empty
        now = {path.name: path.read_bytes() for path in ledger.parent.iterdir() if not path.name.endswith("-shm")}
        assert now == held


@pytest.mark.parametrize("torn", [1, 10, FRAME - 1, FRAME, FRAME + 30])
def test_an_end_that_a_power_cut_tore_is_no_damage(torn: int, ledger: Path) -> None:
    log = ledger.with_name(f"{ledger.name}-wal")
    os.truncate(log, log.stat().st_size - torn)
    assert 395 <= rows(ledger) <= 400


def test_a_last_transaction_that_came_in_parts_is_no_damage(ledger: Path) -> None:
    log = ledger.with_name(f"{ledger.name}-wal")
    overwrite(log, log.stat().st_size - FRAME, bytes(100))
    assert 395 <= rows(ledger) <= 400


def test_a_new_ledger_is_never_an_empty_file(tmp_path: Path) -> None:
    """Killed at any moment of its making, it is opened by the next process."""
    for number in range(12):
        path = tmp_path / f"{number}.sqlite"
        process = multiprocessing.get_context("fork").Process(target=fill, args=(path, 3))
        process.start()
        time.sleep(number / 200)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert rows(path) <= 3


def test_the_checksum_is_sqlites(ledger: Path) -> None:
    """Every frame that SQLite reads passes ours, and it says how many it reads."""
    shutil.copytree(ledger.parent, ledger.parent.with_name("read"))
    connection = sqlite3.connect(ledger.parent.with_name("read") / ledger.name)
    (_, frames, _) = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    connection.close()
    log = ledger.with_name(f"{ledger.name}-wal")
    content = log.read_bytes()
    sums = ledger_sqlite._checksum(content[:24], "<u4", ledger_sqlite.np.zeros(2, "u4"))
    passed = 0
    for start in range(32, len(content), FRAME):
        frame = content[start : start + FRAME]
        sums = ledger_sqlite._checksum(frame[:8] + frame[24:], "<u4", sums)
        if sums.astype(">u4").tobytes() != frame[16:24]:
            break
        passed += 1
    assert passed == frames > 100
