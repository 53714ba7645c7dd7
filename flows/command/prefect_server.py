"""Share a Prefect server among a machine's builds: start it beside a build's reading, end it minutes after the last.

Prefect instead starts a server for each process: 15 to 30 seconds a build, and killed builds leave theirs behind.

Each user holds a shared lock on `earmark-server-VERSION.used`; the kernel releases it however the process ends.
The server holds `….lock` during its life, so there is only one. Once it answers, it writes `….json` for its owner
alone: its address and password.

    python -m earmark.flows.command.prefect_server HOME
"""

from __future__ import annotations

import base64
import fcntl
import gzip
import http.client
import importlib.metadata
import json
import os
import re
import secrets
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from earmark.schemas.errors import ConfigError, DiskError
from earmark.schemas.files import keep_private, read_regular
from earmark.schemas.places import without_user
from earmark.tasks.pipeline.logs import TELEMETRY_OFF
from earmark.tasks.store.files import try_lock

if TYPE_CHECKING:
    import uvicorn
    from pydantic import SecretStr

KEEP_S = 300.0  # seconds a server stays after the last build, unless `EARMARK_KEEP_S` sets another time
START_S = 120.0
OURS = "EARMARK_PREFECT"  # as in tasks/pipeline/shards.py, which imports Prefect
QUIET = {
    **TELEMETRY_OFF,
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",  # its log explains a failed start
}
"""Settings against phoning home, not needed for builds on one machine."""
PASSED = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Environment passed to the server beside Prefect's and Python's own variables: no provider's key outlives a build."""


KEYS = ("PREFECT_API_KEY", "PREFECT_API_AUTH_STRING", "PREFECT_API_URL", "PREFECT_SERVER_API_AUTH_STRING")
DATABASE = "prefect.db"
FILES = f"earmark-server-{importlib.metadata.version('prefect')}"  # two versions cannot share a server


@dataclass(frozen=True)
class Address:
    """The server's address."""

    url: str  # of its API
    password: str  # USER:PASSWORD


def home() -> Path:
    """Return Prefect's home: `PREFECT_HOME`, else Earmark's own, unless `~/.prefect` holds Earmark's data.

    Other programs may leave a database of another Prefect in `~/.prefect`.
    """
    if named := os.environ.get("PREFECT_HOME"):
        return Path(named).expanduser().resolve()
    usual = Path("~/.prefect").expanduser()
    return (usual if holds_ours(usual) else Path("~/.earmark/prefect").expanduser()).resolve()


def holds_ours(folder: Path) -> bool:
    """Return whether Earmark kept a server's files in a home, or its flows run or are deployed there."""
    from earmark.tasks.pipeline.registry import corpora

    if next(folder.glob("earmark-*"), None) is not None:
        return True
    if not (folder / DATABASE).is_file():
        return False
    with suppress(sqlite3.Error), closing(_read(folder / DATABASE)) as database:
        names = {name for (name,) in database.execute("SELECT name FROM flow")}
        return not names.isdisjoint({*corpora(), "rebuild", "publish"})
    return False


def check_database(path: Path) -> None:
    """Check that Prefect can use its SQLite database."""
    if not path.is_file():
        return
    spec = find_spec("prefect")
    versions = Path((spec and spec.origin) or ".").parent / "server/database/_migrations/versions/sqlite"
    other = "set PREFECT_HOME to another folder, or move the file away"
    try:
        with closing(_read(path)) as database:
            made = {name for (name,) in database.execute("SELECT version_num FROM alembic_version")}
    except sqlite3.OperationalError:  # in use, or not yet a database of Prefect's
        return
    except sqlite3.DatabaseError as error:
        raise DiskError(f"{path} is damaged ({error}); {other}") from None
    known = "\n".join(file.read_text("utf-8") for file in versions.glob("*.py"))
    if unknown := {name for name in made if f'"{name}"' not in known}:
        release = importlib.metadata.version("prefect")
        raise DiskError(
            f"{path} was made by another Prefect (migration {min(unknown)}) than {release}, which is installed; {other}"
        )


def _read(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def pass_proxies_by() -> None:
    """Make this process and its children bypass the environment's proxies for this machine's own servers."""
    if not urllib.request.getproxies_environment():
        return
    named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = [host.strip() for host in named.split(",") if host.strip()]
    if "*" not in hosts:
        both = ",".join([*hosts, *(host for host in ("127.0.0.1", "localhost", "::1") if host not in hosts)])
        os.environ.update(NO_PROXY=both, no_proxy=both)


def check_api(url: str) -> None:
    """Check that the server of `PREFECT_API_URL` answers and accepts the environment's password.

    Cases unknown to urllib (a SOCKS proxy, a user in the address, a private certificate) are left to Prefect.
    """
    words, key = os.environ.get("PREFECT_API_AUTH_STRING"), os.environ.get("PREFECT_API_KEY")
    basic = f"Basic {base64.b64encode(words.encode()).decode()}" if words else None
    authorization = basic or (f"Bearer {key}" if key else None)
    headers = {"Authorization": authorization} if authorization else {}
    place = f"{url.rstrip('/')}/{'admin/version' if words else 'health'}"  # a server's health needs no password
    url = without_user("PREFECT_API_URL", url)
    try:
        parts = urlsplit(place)
        proxy = "" if urllib.request.proxy_bypass(parts.netloc) else urllib.request.getproxies().get(parts.scheme, "")
        if proxy.startswith("socks") or "@" in parts.netloc:  # urllib takes neither
            return
        urllib.request.urlopen(urllib.request.Request(place, headers=headers), timeout=10).close()
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            variable = "PREFECT_API_AUTH_STRING or PREFECT_API_KEY"
            raise DiskError(f"PREFECT_API_URL={url}: the server wants another password; set {variable}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            return
        raise DiskError(
            f"PREFECT_API_URL={url}: no Prefect server answers ({reason}); start it, or unset PREFECT_API_URL to build "
            "without one; behind a proxy NO_PROXY names its host"
        ) from None


def begin() -> None:
    """Start the server unless one runs, without waiting for it; a command that is refused before its build uses it too.

    Raises:
        ConfigError: `EARMARK_KEEP_S` is no number of seconds.
    """
    _hold(home())
    if not _runs(home()):
        _spawn(home())


def use() -> None:
    """Wait for the server, and make this process's Prefect report to it; call it before Prefect is imported.

    Raises:
        ConfigError: `EARMARK_KEEP_S` is no number of seconds.
        DiskError: it does not answer in two minutes; its last log line gives the reason.
    """
    folder = home()
    _hold(folder)
    deadline, tries = time.monotonic() + START_S, 0
    while (address := _address(folder)) is None:
        starting = _STARTED and _STARTED[-1].poll() is None
        if not starting and not _runs(folder):
            if (tries := tries + 1) > 2:  # one may end just as this process comes
                break
            _spawn(folder)
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    if address is None:
        line, log = _last_line(folder), folder / f"{FILES}.log"
        where = (
            "" if "PREFECT_HOME" in line else f" ({folder / DATABASE}; PREFECT_HOME names another folder; log: {log})"
        )
        raise DiskError(f"Prefect's server does not start: {line}{where}")
    ours = {"PREFECT_API_URL": address.url, "PREFECT_API_AUTH_STRING": address.password, OURS: address.url}
    os.environ.update(ours, PREFECT_HOME=str(folder))


def _hold(folder: Path) -> None:
    """Hold the server until this process ends, and write how long it stays then."""
    stated = os.environ.get("EARMARK_KEEP_S") or str(KEEP_S)
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]*)?", stated):
        raise ConfigError(f"EARMARK_KEEP_S: expected how many seconds Prefect's server stays, found '{stated}'")
    folder.mkdir(parents=True, exist_ok=True)
    handle = (folder / f"{FILES}.used").open("a+")
    fcntl.flock(handle, fcntl.LOCK_SH)
    _USED.append(handle)
    handle.truncate(0)
    print(stated, file=handle, flush=True)


_USED: list[IO[str]] = []
_STARTED: list[subprocess.Popen[bytes]] = []


def _runs(folder: Path) -> bool:
    """Return whether a server lives, even if it does not answer yet."""
    path = folder / f"{FILES}.lock"
    if not path.exists():
        return False
    with path.open() as handle:
        return not try_lock(handle.fileno(), fcntl.LOCK_SH)


def _spawn(folder: Path) -> None:
    passed = {name: value for name, value in os.environ.items() if name in PASSED or name.startswith(("LC_", "PYTHON"))}
    prefects = {name: value for name, value in os.environ.items() if name.startswith("PREFECT_") and name not in KEYS}
    prefects["PREFECT_HOME"] = str(folder)
    keep_private(folder / f"{FILES}.log")
    with (folder / f"{FILES}.log").open("wb") as log:
        _STARTED.append(
            subprocess.Popen(
                [sys.executable, "-m", "earmark.flows.command.prefect_server", str(folder)],
                env=QUIET | passed | prefects,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # it outlives the command and its terminal
            )
        )


def _address(folder: Path) -> Address | None:
    if not _runs(folder):
        return None  # a killed server's file
    try:
        address = Address(**json.loads(read_regular(folder / f"{FILES}.json")))
    except FileNotFoundError:
        return None
    words = base64.b64encode(address.password.encode()).decode()
    asked = urllib.request.Request(f"{address.url}/health", headers={"Authorization": f"Basic {words}"})
    try:
        with _DIRECT.open(asked, timeout=10):
            return address
    except OSError:
        return None


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _last_line(folder: Path) -> str:
    text = (folder / f"{FILES}.log").read_text("utf-8", "replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return next(reversed([*lines, *errors]), "it says nothing")


def serve(folder: Path) -> None:
    """Serve until the server has been unused for a while; return at once if another one serves this home.

    Raises:
        OSError: the home cannot be written to.
    """
    lock = (folder / f"{FILES}.lock").open("a")
    if not _locks(lock, patience_s=2):  # a process checking for a server holds it for an instant
        return
    (folder / f"{FILES}.json").unlink(missing_ok=True)
    (folder / f"{FILES}.used").touch()
    listening = socket.create_server(("127.0.0.1", 0))
    place = f"http://127.0.0.1:{listening.getsockname()[1]}"
    address = Address(f"{place}/api", f"earmark:{secrets.token_urlsafe(32)}")
    os.environ.update(
        {
            "PREFECT__SERVER_EPHEMERAL": "1",  # no web page
            "PREFECT__SERVER_FINAL": "1",
            "PREFECT_SERVER_API_AUTH_STRING": address.password,
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": place,  # Prefect's default lets every page in a browser read
        }
    )
    import uvicorn
    from prefect.settings import get_current_settings

    try:
        prepare_database(get_current_settings().server.database.connection_url)
    except DiskError as error:
        sys.exit(str(error))  # the log's last line
    app = "prefect.server.api.server:create_app"
    server = uvicorn.Server(uvicorn.Config(app, factory=True, log_level="error", timeout_graceful_shutdown=5))
    threading.Thread(target=_look_after, args=(server, folder, address), daemon=True).start()
    server.run(sockets=[listening])


def prepare_database(url: SecretStr | None) -> None:
    """Create a missing SQLite file as an empty database of Prefect's: running its migrations takes several seconds. A
    newer Prefect migrates further from the file's version.

    Args:
        url: the database's, from Prefect's settings; databases other than SQLite are left to Prefect.
    """
    kind, _, place = (url.get_secret_value() if url else "").partition(":///")
    if not kind.startswith("sqlite") or not place.startswith("/") or "?" in place:
        return
    check_database(Path(place))
    if Path(place).exists():
        return
    packed = resources.files("earmark.flows.command").joinpath("prefect_database.sql.gz").read_bytes()
    with tempfile.TemporaryDirectory(dir=Path(place).parent) as folder:
        made = Path(folder) / "prefect.db"
        with closing(sqlite3.connect(made)) as database:
            database.executescript(gzip.decompress(packed).decode())
        with suppress(FileExistsError):  # another process made it meanwhile
            os.link(made, place)


def _look_after(server: uvicorn.Server, folder: Path, address: Address) -> None:
    """Publish the server's address once it answers; end it after its last user's keep time, or if its home is not
    writable: an unfindable server would keep others from starting."""
    try:
        while not server.started:
            time.sleep(0.05)
        keep_private(folder / f"{FILES}.json", json.dumps(asdict(address)))
        _wait_until_unused(folder)
    finally:
        server.should_exit = True


def _wait_until_unused(folder: Path) -> None:
    used, last = folder / f"{FILES}.used", time.monotonic()
    while used.is_file():
        with used.open("r+") as handle:
            if not _locks(handle, patience_s=0):
                last = time.monotonic()
            elif time.monotonic() - last > float((handle.read().split() or [str(KEEP_S)])[-1]):  # two may write at once
                (folder / f"{FILES}.json").unlink(missing_ok=True)  # while nobody can begin to use it
                return
        time.sleep(0.5)


def _locks(handle: IO[str], patience_s: float) -> bool:
    """Take a lock for this process alone, if others release it in time."""
    until = time.monotonic() + patience_s
    while not try_lock(handle.fileno()):
        if time.monotonic() >= until:
            return False
        time.sleep(0.02)
    return True


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
