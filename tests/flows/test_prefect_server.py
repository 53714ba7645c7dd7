"""One Prefect server serves the builds of a home, asks for its password, and ends by itself."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from earmark.flows.command import prefect_server
from earmark.schemas.errors import ConfigError
from tests.conftest import ROOT
from tests.deploy.test_deploy import waited
from tests.flows.prefect_database import migrated
from tests.flows.test_cli import CORPUS, DEMO, environment, nothing_left, running

__all__ = ["nothing_left"]
SECRET = "sk-of-a-provider"


def build(store: Path, keep_s: float) -> subprocess.CompletedProcess[str]:
    """Build the demo as a process whose Prefect home is that of the test."""
    words = [sys.executable, "-m", "earmark.flows.command.cli", "build", CORPUS, "-c", str(DEMO), "--force"]
    env = environment(store) | {"EARMARK_KEEP_S": str(keep_s), "OPENAI_API_KEY": SECRET}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)


def servers(place: Path) -> list[psutil.Process]:
    """The servers of that home."""
    return [one for one in running(place) if "earmark.flows.command.prefect_server" in one.cmdline()]


@pytest.mark.slow
def test_builds_share_a_server_that_ends_by_itself(tmp_path: Path, nothing_left: None) -> None:
    store = tmp_path / "store"
    first = build(store, 60)
    assert first.returncode == 0, first.stderr
    (server,) = servers(tmp_path)
    assert SECRET not in server.environ().values(), "what a build pays with does not outlive it"
    (file,) = (tmp_path / "prefect").glob("earmark-server-*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    address = json.loads(file.read_text())
    assert address["password"] not in " ".join(server.cmdline())
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{address['url']}/flow_runs/filter", data=b"{}", timeout=10)
    assert refused.value.code == 401

    second = build(store, 0)
    assert second.returncode == 0, second.stderr
    waited("the server to end", lambda: not servers(tmp_path), 30)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, (
        "the second build used the first one's server, and let it end"
    )
    assert not list((tmp_path / "prefect").glob("earmark-server-*.json"))


@pytest.mark.slow
def test_a_killed_server_is_followed_by_another(tmp_path: Path, nothing_left: None) -> None:
    store = tmp_path / "store"
    assert build(store, 60).returncode == 0
    (server,) = servers(tmp_path)
    server.send_signal(signal.SIGKILL)
    server.wait(10)
    again = build(store, 60)
    assert again.returncode == 0, again.stderr
    (other,) = servers(tmp_path)
    assert other.pid != server.pid


@pytest.mark.slow
def test_two_that_come_at_once_share_one(tmp_path: Path, nothing_left: None) -> None:
    use = "import os; from earmark.flows.command.prefect_server import use; use(); print(os.environ['PREFECT_API_URL'])"
    env = environment(tmp_path / "store") | {"EARMARK_KEEP_S": "5"}
    both = [
        subprocess.Popen([sys.executable, "-c", use], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {process.communicate(timeout=120)[0].strip() for process in both}
    assert len(said) == 1
    assert said.pop().startswith("http://127.0.0.1:")


@pytest.mark.slow
def test_a_home_that_cannot_hold_a_database(tmp_path: Path, nothing_left: None) -> None:
    store = tmp_path / "store"
    (tmp_path / "prefect" / "prefect.db").mkdir(parents=True)
    ended = build(store, 0)
    assert ended.returncode == 1
    assert "Prefect's server does not start: " in ended.stderr
    assert "Traceback" not in ended.stderr


def statements(sql: str) -> list[list[str]]:
    """What makes a database; Prefect's migrations list a table's constraints in any order."""
    return sorted(sorted(line.strip(" \t,)") for line in one.splitlines()) for one in sql.split(";\n"))


@pytest.mark.slow
def test_the_prepared_database_is_what_prefect_makes(tmp_path: Path) -> None:
    for name in ("prepared", "fresh"):
        (tmp_path / name).mkdir()
    prefect_server.prepare_database(SecretStr(f"sqlite+aiosqlite:///{tmp_path}/prepared/prefect.db"))
    assert statements(migrated(tmp_path / "prepared")) == statements(migrated(tmp_path / "fresh"))


def test_only_a_sqlite_file_that_is_not_there_is_prepared(tmp_path: Path) -> None:
    mine = tmp_path / "mine.db"
    mine.write_bytes(b"mine")
    for url in (f"sqlite+aiosqlite:///{mine}", "sqlite+aiosqlite:///:memory:", "postgresql+asyncpg://u:p@host/prefect",
                f"sqlite+aiosqlite:///file:{tmp_path}/x.db?mode=memory", ""):  # fmt: skip
        prefect_server.prepare_database(SecretStr(url))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.db"]
    assert mine.read_bytes() == b"mine"
    prefect_server.prepare_database(SecretStr(f"sqlite+aiosqlite:///{tmp_path}/new.db"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.db", "new.db"]


def test_how_long_it_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("EARMARK_KEEP_S", "soon")
    with pytest.raises(ConfigError, match=r"EARMARK_KEEP_S: expected how many seconds .* found 'soon'"):
        prefect_server.use()
    assert not list(tmp_path.iterdir())
