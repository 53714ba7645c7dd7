"""One Prefect server serves the builds of a home, asks for its password, and ends by itself."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socketserver
import sqlite3
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from earmark.flows.command import prefect_server
from earmark.flows.command.doctor import examine
from earmark.schemas.errors import ConfigError, DiskError
from earmark.tasks.store.versions import Store
from tests.before.fixture import release
from tests.conftest import ROOT
from tests.deploy.test_deploy import waited
from tests.flows.prefect_database import migrated
from tests.flows.test_cli import CORPUS, DEMO, environment, nothing_left, running

__all__ = ["nothing_left"]
SECRET = "sk-of-a-provider"


def build(store: Path, keep_s: float) -> subprocess.CompletedProcess[str]:
    """Build the demo as a process whose Prefect home is that of the test."""
    words = [sys.executable, "-m", "earmark", "build", CORPUS, "-c", str(DEMO), "--force"]
    env = environment(store) | {"EARMARK_KEEP_S": str(keep_s), "OPENAI_API_KEY": SECRET}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)


def servers(place: Path) -> list[psutil.Process]:
    return [one for one in running(place) if "earmark.flows.command.prefect_server" in one.cmdline()]


@pytest.mark.slow
def test_builds_share_a_server_that_is_replaced_if_killed_and_ends_by_itself(
    tmp_path: Path, nothing_left: None
) -> None:
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

    server.send_signal(signal.SIGKILL)
    server.wait(10)
    again = build(store, 60)
    assert again.returncode == 0, again.stderr
    (other,) = servers(tmp_path)
    assert other.pid != server.pid

    last = build(store, 0)
    assert last.returncode == 0, last.stderr
    waited("the server to end", lambda: not servers(tmp_path), 30)
    assert not other.is_running() or other.status() == psutil.STATUS_ZOMBIE, (
        "the last build used the server that was there, and let it end"
    )
    assert not list((tmp_path / "prefect").glob("earmark-server-*.json"))


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
def test_a_server_for_a_refused_build_ends_as_told(tmp_path: Path, nothing_left: None) -> None:
    begin = "from earmark.flows.command import prefect_server; prefect_server.begin()"
    env = environment(tmp_path / "store") | {"EARMARK_KEEP_S": "0"}
    subprocess.run([sys.executable, "-c", begin], cwd=ROOT, env=env, check=True)
    assert servers(tmp_path)
    waited("the server to end", lambda: not servers(tmp_path), 60)


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
    with pytest.raises(DiskError, match="is damaged"):
        prefect_server.prepare_database(SecretStr(f"sqlite+aiosqlite:///{mine}"))
    for url in ("sqlite+aiosqlite:///:memory:", "postgresql+asyncpg://u:p@host/prefect",
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


def test_earmark_has_a_home_of_its_own_unless_it_was_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PREFECT_HOME", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    ours, usual = tmp_path / ".earmark/prefect", tmp_path / ".prefect"
    assert prefect_server.home() == ours
    usual.mkdir()
    with closing(sqlite3.connect(usual / "prefect.db")) as database, database:
        database.execute("CREATE TABLE flow (name TEXT)")
        database.execute("INSERT INTO flow VALUES ('someone-elses')")
    assert prefect_server.home() == ours
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "named"))
    assert prefect_server.home() == tmp_path / "named"
    monkeypatch.delenv("PREFECT_HOME")
    (usual / "earmark-serve.auth").touch()
    assert prefect_server.home() == usual
    (usual / "earmark-serve.auth").unlink()
    (usual / "prefect.db").write_bytes(b"damaged" * 1000)
    assert prefect_server.home() == ours


def test_a_home_that_the_release_used_goes_on_being_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = release(tmp_path, "killed")
    monkeypatch.delenv("PREFECT_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    made.prefect.rename(tmp_path / ".prefect")
    assert prefect_server.home() == tmp_path / ".prefect"
    prefect_server.check_database(tmp_path / ".prefect/prefect.db")  # which this Prefect brings up to date


def test_a_database_that_prefect_cannot_use_is_one_line(tmp_path: Path) -> None:
    path = release(tmp_path, "killed").prefect / "prefect.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffd3b41a23'")
    made_by_another = rf"^{path} was made by another Prefect \(migration ffffd3b41a23\).*set PREFECT_HOME to another"
    with pytest.raises(DiskError, match=made_by_another):
        prefect_server.check_database(path)
    for content in (b"no database" * 400, path.read_bytes()[:4000]):
        path.write_bytes(content)
        with pytest.raises(DiskError, match=rf"^{path} is damaged \(.*set PREFECT_HOME to another"):
            prefect_server.check_database(path)


def test_a_server_that_is_not_there_or_wants_a_password_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_AUTH_STRING", "PREFECT_API_KEY", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)

    class Guarded(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            right = self.headers["Authorization"] == "Basic " + base64.b64encode(b"u:secret").decode()
            self.send_response(200 if right or self.path == "/api/health" else 401)  # as Prefect's server
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/api"
        prefect_server.check_api(url)  # a profile of Prefect's may have a password
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", "u:other")
        with pytest.raises(DiskError, match=rf"^PREFECT_API_URL={url}: .*set PREFECT_API_AUTH_STRING"):
            prefect_server.check_api(url)
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", "u:secret")
        prefect_server.check_api(url)
        server.shutdown()
    with pytest.raises(DiskError, match=rf"^PREFECT_API_URL={url}: no Prefect server answers .*unset PREFECT_API_URL"):
        prefect_server.check_api(url)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:9")
    prefect_server.check_api("https://prefect.example/api")  # it is Prefect that takes such a proxy


@pytest.mark.parametrize("words", ["s3cr3t", "s3/cr3t", "s3@cr3t", "s3?cr3t"])
@pytest.mark.parametrize("port", ["", ":9"])
def test_a_password_in_the_servers_address_is_not_shown(
    words: str, port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://earmark:{words}@127.0.0.1{port}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    (found,) = [one for one in examine(Store(tmp_path)) if one.what == "Prefect"]
    assert (found.state, re.search("s3|cr3t", found.detail)) == ("bad", None)
    if {*"/@?"} & set(words):
        with pytest.raises(ConfigError, match=r"^PREFECT_API_URL: .* of a password as %2F") as refused:
            prefect_server.check_api(url)
        assert not re.search("s3|cr3t", str(refused.value))


def test_what_is_no_web_server_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mail(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"220 mail.example\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/api"
        monkeypatch.setenv("PREFECT_API_URL", url)
        (found,) = [one for one in examine(Store(tmp_path)) if one.what == "Prefect"]
        with pytest.raises(DiskError, match="no Prefect server answers"):
            prefect_server.check_api(url)
        server.shutdown()
    assert (found.state, found.detail.startswith(f"no answer from {url}")) == ("bad", True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://proxy:1"}, "127.0.0.1,localhost,::1"),
        (
            {"all_proxy": "socks5://proxy:1", "NO_PROXY": "lab.example, localhost"},
            "lab.example,localhost,127.0.0.1,::1",
        ),
        ({"HTTPS_PROXY": "http://proxy:1", "no_proxy": "*"}, "*"),
    ],
)
def test_loopback_is_reached_past_proxies(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, str], after: str | None
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "")  # so that it is as before afterwards
    monkeypatch.setenv("no_proxy", "")
    for name in ("NO_PROXY", "no_proxy"):
        os.environ.pop(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    prefect_server.pass_proxies_by()
    assert os.environ.get("no_proxy") == after


@pytest.mark.slow
def test_a_build_behind_proxies_reaches_its_server(tmp_path: Path, nothing_left: None) -> None:
    """HTTP and SOCKS proxies that are not there: whoever asked them would fail."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    words = [sys.executable, "-m", "earmark", "build", CORPUS, "-c", str(DEMO)]
    env = environment(tmp_path / "store") | proxies | {"ALL_PROXY": "socks5://127.0.0.1:9"}
    ended = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_a_home_of_release_1_0_is_brought_up_to_date_and_keeps_its_runs(tmp_path: Path) -> None:
    home = release(tmp_path / "release", "killed").prefect
    (tmp_path / "fresh").mkdir()

    def runs() -> list[tuple[str, str]]:
        with closing(sqlite3.connect(home / "prefect.db")) as database:
            return database.execute("SELECT id, state_type FROM flow_run ORDER BY id").fetchall()

    before = runs()
    assert {state for _, state in before} >= {"COMPLETED", "RUNNING"}

    def made(sql: str) -> list[list[str]]:
        return [one for one in statements(sql) if any(line.startswith("CREATE ") for line in one)]

    assert made(migrated(home)) == made(migrated(tmp_path / "fresh"))
    assert runs() == before
