"""What others on the machine may read: versions by the umask; ledger, salt, staging and runs never, at no moment."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from earmark.schemas.files import keep_private
from earmark.tasks.annotation.ledger import connect
from earmark.tasks.store.runs import list_runs, start_run
from earmark.tasks.store.staging import STAGING, staging
from earmark.tasks.store.versions import Store, open_store
from earmark.tasks.text.anonymity import SALT_FILE, salt_of
from tests.builds import build_version, config_of

COLUMNS = {"file": "f", "mos": "m", "system": "s"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o002, 0o022], ids="{:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def no_mending(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mode that comes after its file comes a moment too late: nothing may change one here."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a mode was mended after its file was there")

    for name in ("chmod", "fchmod"):
        monkeypatch.setattr(os, name, refuse)


@pytest.mark.usefixtures("no_mending")
def test_a_ledger_is_closed_from_its_first_moment(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "store/ledger.sqlite"
    ledger = connect(path)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["ledger.sqlite", "ledger.sqlite-shm", "ledger.sqlite-wal"]
    assert {mode(file) for file in files} == {0o600}
    ledger.close()
    assert mode(path.parent) == 0o777 & ~umask


def test_a_ledger_of_an_older_earmark_is_closed_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    older = connect(path)
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    newer = connect(path)
    assert {mode(file) for file in tmp_path.iterdir()} == {0o600}
    newer.close()
    older.close()


@pytest.mark.usefixtures("umask", "no_mending")
def test_a_salt_is_closed_from_its_first_moment(tmp_path: Path) -> None:
    salt_of("EARMARK_SALT", tmp_path, {})
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {SALT_FILE: 0o600}


def test_a_salt_of_an_older_earmark_is_closed_and_stays(tmp_path: Path) -> None:
    (tmp_path / SALT_FILE).write_text("5a" * 32 + "\n")
    (tmp_path / SALT_FILE).chmod(0o644)
    assert salt_of("EARMARK_SALT", tmp_path, {}) == "5a" * 32
    assert mode(tmp_path / SALT_FILE) == 0o600


def test_who_comes_second_takes_the_first_ones_salt(tmp_path: Path) -> None:
    seen: list[str] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        seen.append(salt_of("EARMARK_SALT", tmp_path, {}))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert len(set(seen)) == 1


def test_a_disk_without_links_keeps_secrets_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    keep_private(tmp_path / "kept", "one")
    keep_private(tmp_path / "kept", "two")
    assert (tmp_path / "kept").read_text("utf-8") == "one"
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {"kept": 0o600}


@pytest.mark.slow
@pytest.mark.usefixtures("no_mending")
def test_staging_and_runs_are_closed_and_versions_are_not(tmp_path: Path, umask: int) -> None:
    (tmp_path / "t.csv").write_text("f,m,s\n" + "".join(f"{n}.wav,{1 + n % 5},s{n % 7}\n" for n in range(60)))
    store = open_store(str(tmp_path / "store"))
    with staging(store, "mos-preferences", "1" * 64, say=print) as stage:
        assert mode(stage.folder.parent) == 0o700
        (stage.folder / "steps/x").touch()
    source = {"name": "t", "format": "table", "files": {"train": "t.csv"}, "columns": COLUMNS}
    version = build_version(config_of(tmp_path, source), tmp_path / "store")
    start_run(store, "mos-preferences", tmp_path / "build.toml")
    assert mode(store.root / "runs") == 0o700
    for path in (store.root, version.folder.parent, version.folder, *version.folder.rglob("*")):
        assert mode(path) == (0o777 if path.is_dir() else 0o666) & ~umask, path


def test_what_an_older_earmark_left_open_is_closed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "runs").mkdir(mode=0o755)
    (tmp_path / "mos-preferences" / STAGING / ("1" * 16)).mkdir(parents=True)
    start_run(store, "mos-preferences", tmp_path / "build.toml")
    with staging(store, "mos-preferences", "1" * 64, say=print) as stage:
        assert (mode(tmp_path / "runs"), mode(stage.folder.parent)) == (0o700, 0o700)
    assert len(list_runs(store)) == 1
