"""The Prefect server of builds on one machine: it starts beside a build's own reading, serves all builds of its home,
and ends by itself some minutes after the last one.

Prefect starts a server for each process instead: 15 to 30 seconds a build, and one that a killed build leaves behind.

Whoever uses it holds a shared lock on `earmark-server-VERSION.used`; the kernel lets go of that however a process ends.
The server holds `….lock` for as long as it lives, so there is one. When it answers, it writes `….json` for its owner
alone: where it listens, and the password that it asks for.

    python -m earmark.flows.command.prefect_server HOME
"""

from __future__ import annotations

import base64
import fcntl
import gzip
import importlib.metadata
import json
import os
import re
import secrets
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from earmark.schemas.errors import ConfigError, DiskError
from earmark.schemas.files import keep_private, read_regular

if TYPE_CHECKING:
    import uvicorn

KEEP_S = 300.0
"""How long a server stays after the last build that used it, where `EARMARK_KEEP_S` says nothing else."""
START_S = 120.0
OURS = "EARMARK_PREFECT"  # as in tasks/build/shards.py, which imports Prefect
QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
}
"""A build on one machine needs nothing that phones home."""
PASSED = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""What the server gets of the environment beside Prefect's and Python's own: no provider's key outlives a build."""


KEYS = ("PREFECT_API_KEY", "PREFECT_API_AUTH_STRING", "PREFECT_API_URL", "PREFECT_SERVER_API_AUTH_STRING")
FILES = f"earmark-server-{importlib.metadata.version('prefect')}"  # two versions cannot share one


@dataclass(frozen=True)
class Address:
    """Where the server answers."""

    url: str  # of its API
    password: str  # USER:PASSWORD


def home() -> Path:
    """Prefect's home, where its database lies too."""
    return Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser().resolve()


def begin() -> None:
    """Start the server unless one runs, and do not wait for it."""
    if not _runs(home()):
        _spawn(home())


def use() -> None:
    """Wait for the server, and have the Prefect of this process report to it; call it before Prefect is imported.

    Raises:
        ConfigError: `EARMARK_KEEP_S` is no number of seconds.
        DiskError: it does not answer in two minutes; its last line says why.
    """
    folder, keep_s = home(), _keep_s()
    folder.mkdir(parents=True, exist_ok=True)
    handle = (folder / f"{FILES}.used").open("a+")
    fcntl.flock(handle, fcntl.LOCK_SH)
    _USED.append(handle)  # held until this process ends
    handle.truncate(0)
    print(keep_s, file=handle, flush=True)
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
        raise DiskError(f"Prefect's server does not start: {_last_line(folder)}")
    ours = {"PREFECT_API_URL": address.url, "PREFECT_API_AUTH_STRING": address.password, OURS: address.url}
    os.environ.update(ours)


def _keep_s() -> float:
    stated = os.environ.get("EARMARK_KEEP_S") or str(KEEP_S)
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]*)?", stated):
        raise ConfigError(f"EARMARK_KEEP_S: expected how many seconds Prefect's server stays, found '{stated}'")
    return float(stated)


_USED: list[IO[str]] = []
_STARTED: list[subprocess.Popen[bytes]] = []


def _runs(folder: Path) -> bool:
    """Whether a server lives, which may not answer yet."""
    path = folder / f"{FILES}.lock"
    if not path.exists():
        return False
    with path.open() as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _spawn(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    passed = {name: value for name, value in os.environ.items() if name in PASSED or name.startswith(("LC_", "PYTHON"))}
    prefects = {name: value for name, value in os.environ.items() if name.startswith("PREFECT_") and name not in KEYS}
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
    """Where a server answers that lives; None as long as there is none."""
    if not _runs(folder):
        return None  # what a killed one wrote
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
    lines = (folder / f"{FILES}.log").read_text("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")


def serve(folder: Path) -> None:
    """Serve until nobody has used the server for a while; return at once where another one serves this home.

    Raises:
        OSError: the home cannot be written to.
    """
    lock = (folder / f"{FILES}.lock").open("a")
    if not _locks(lock, patience_s=2):  # whoever asks whether a server runs holds it for an instant
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

    prepare_database(get_current_settings().server.database.connection_url)
    app = "prefect.server.api.server:create_app"
    server = uvicorn.Server(uvicorn.Config(app, factory=True, log_level="error", timeout_graceful_shutdown=5))
    threading.Thread(target=_look_after, args=(server, folder, address), daemon=True).start()
    server.run(sockets=[listening])


def prepare_database(url: Any) -> None:
    """Leave an empty database of Prefect's in the place of a SQLite file that is not there: its migrations, one after
    the other, take several seconds. A newer Prefect goes on from the one that the file was made at.

    Args:
        url: the database's, as Prefect's settings have it; what is no SQLite file is left to Prefect.
    """
    kind, _, place = (url.get_secret_value() if url else "").partition(":///")
    if not kind.startswith("sqlite") or not place.startswith("/") or "?" in place or Path(place).exists():
        return
    packed = resources.files("earmark.flows.command").joinpath("prefect_database.sql.gz").read_bytes()
    with tempfile.TemporaryDirectory(dir=Path(place).parent) as folder:
        made = Path(folder) / "prefect.db"
        with closing(sqlite3.connect(made)) as database:
            database.executescript(gzip.decompress(packed).decode())
        with suppress(FileExistsError):  # another one's, made meanwhile
            os.link(made, place)


def _look_after(server: uvicorn.Server, folder: Path, address: Address) -> None:
    """Say where the server is when it answers; end it when it was not used for as long as its last user said, or when
    its home cannot be written to: a server that nobody finds would keep others from starting."""
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
            elif time.monotonic() - last > _last_said(handle):
                (folder / f"{FILES}.json").unlink(missing_ok=True)  # while nobody can begin to use it
                return
        time.sleep(0.5)


def _last_said(handle: IO[str]) -> float:
    """How long the last one wants it kept; two that come at once may both have written a line."""
    lines = handle.read().split()
    return float(lines[-1]) if lines else KEEP_S


def _locks(handle: IO[str], patience_s: float) -> bool:
    """Take a lock for this process alone, if others let go of it soon enough."""
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        else:
            return True


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
