"""A command that is told to end ends, whatever its main thread is at."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from earmark.flows.command.ending import SAME_S, command
from earmark.tasks.store.versions import Store
from tests.annotation.test_kills import Server, received, slow_server

server = slow_server("--latency-ms", "1500")
DEAF = """
import sys, time
from earmark.flows.command.ending import end_in_order, stoppable, take
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
end_in_order()
take(float(sys.argv[1]))
with stoppable("all is kept; run it again"):
    while True:
        try:
            print("up", flush=True)
            time.sleep(600)
        except KeyboardInterrupt:
            pass
"""
DROPPED = """
import hashlib, signal, time
from earmark.flows.command.ending import end_in_order, stoppable, take
from earmark.schemas.errors import Interrupted
signal.signal(signal.SIGINT, signal.default_int_handler)
end_in_order()
take(60.0)

class Slow:
    def __del__(self):
        print("up", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)  # longer than SAME_S; hears a signal only after its end
        time.sleep(600)

try:
    with stoppable("all is kept; run it again"):
        Slow()
        time.sleep(600)
except Interrupted as stop:
    print(stop, flush=True)
    raise SystemExit(stop.code)
"""
ASKS = """
import signal, sys
from pathlib import Path
from earmark.flows.command import ending
from earmark.tasks.annotation.session import Session
from tests.annotation.conftest import config_for, requests_for

class Server:
    base_url = sys.argv[1]

signal.signal(signal.SIGINT, signal.default_int_handler)
ending.SAME_S = 60.0  # however late a busy machine sends the second
if sys.argv[3] == "command":
    ending.end_in_order()
    ending.take(60.0)
config = config_for(Server, max_concurrency=4, read_timeout_s=60.0, total_timeout_s=60.0)
try:
    with Session(config, ledger=Path(sys.argv[2])) as session:
        session.ask(requests_for(config, 20))
except KeyboardInterrupt:
    print("stopped", flush=True)
"""
STOPPED = """
from earmark.flows.command import cli

def stopped():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return "", 130

cli._run = stopped
cli.main()
"""
FIRST = """
import sys, time
from earmark.flows.command import start
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "earmark.flows.command.cli":
            print("up", flush=True)
        time.sleep(0.02 * name.startswith("earmark."))
sys.meta_path.insert(0, Slow())
sys.argv = ["earmark", "--version"]
start.main()
"""
SLACK_S = 15.0


def deaf(seconds: float) -> subprocess.Popen[str]:
    """A command whose main thread does not end."""
    command = subprocess.Popen(
        [sys.executable, "-c", DEAF, str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    assert command.stdout.readline() == "up\n"
    return command


@pytest.mark.parametrize("wait_s", [0.0, 0.1, 0.25])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_modules_are_imported_ends_without_a_traceback(
    sent: signal.Signals, code: int, wait_s: float
) -> None:
    command = subprocess.Popen([sys.executable, "-c", FIRST], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert command.stdout is not None
    assert command.stdout.readline() == "up\n"
    time.sleep(wait_s)
    command.send_signal(sent)
    out, said = command.communicate(timeout=SLACK_S)
    assert (command.returncode, said.count("\n") <= 1, "Traceback" in said) == (code, True, False), said + out


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_does_not_hear_is_ended_in_time(sent: signal.Signals, code: int) -> None:
    command = deaf(1.0)
    command.send_signal(sent)
    begun = time.monotonic()
    _, said = command.communicate(timeout=1 + SLACK_S)
    assert time.monotonic() - begun > 0.9, "it had no time to end in order"
    assert (command.returncode, said) == (code, "interrupted; all is kept; run it again\n")


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_within_a_destructor_is_not_lost(sent: signal.Signals, code: int) -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", DROPPED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    assert command.stdout.readline() == "up\n"
    command.send_signal(sent)
    out, said = command.communicate(timeout=60)
    assert (command.returncode, out, said) == (code, "interrupted; all is kept; run it again\n", "")


@pytest.mark.slow
def test_a_second_signal_ends_at_once_unless_it_is_the_first_one_passed_on() -> None:
    command = deaf(60.0)
    command.send_signal(signal.SIGINT)
    command.send_signal(signal.SIGINT)
    time.sleep(SAME_S + 0.5)
    assert command.poll() is None
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=SLACK_S)
    assert (command.returncode, said) == (130, "interrupted; all is kept; run it again\n")


@pytest.mark.slow
@pytest.mark.parametrize(("caller", "kept"), [("command", 4), ("library", 0)])
def test_a_second_ctrl_c_while_answers_are_awaited_prints_nothing(
    caller: str, kept: int, tmp_path: Path, server: Server
) -> None:
    """In a command it is the first one passed on, and the paid answers are awaited; in a notebook nothing is."""
    ledger = tmp_path / "ledger.sqlite"
    asks = subprocess.Popen(
        [sys.executable, "-c", ASKS, server.base_url, str(ledger), caller],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while server.counts()["asked"] < 4:
        assert asks.poll() is None
        time.sleep(0.02)
    asks.send_signal(signal.SIGINT)
    time.sleep(0.2)
    asks.send_signal(signal.SIGINT)
    said, _ = asks.communicate(timeout=SLACK_S)
    assert (asks.returncode, said) == (0, "stopped\n")
    assert received(ledger) == kept


@pytest.mark.slow
def test_a_sigterm_that_prefect_sends_to_itself_again_cuts_nothing_short() -> None:
    command = deaf(3.0)
    command.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    time.sleep(SAME_S + 0.3)
    command.send_signal(signal.SIGTERM)
    _, said = command.communicate(timeout=SLACK_S)
    assert time.monotonic() - begun > 2.9
    assert (command.returncode, said) == (143, "interrupted; all is kept; run it again\n")


def test_a_ctrl_c_within_an_exec_changes_no_exit_code(tmp_path: Path) -> None:
    """Python remembers it, as of a dataclass that was just being made, and would end `python -m` by SIGINT."""
    (tmp_path / "stopped.py").write_text(STOPPED)
    ended = subprocess.run([sys.executable, "-m", "stopped"], cwd=tmp_path, timeout=60)
    assert ended.returncode == 130


def test_a_printed_command_names_its_store_and_quotes_what_a_shell_would_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EARMARK_STORE", raising=False)
    assert command(Store(Path("data/store")), "resume", "x") == "earmark resume x"
    assert command(Store(tmp_path / "data/store"), "resume", "x") == "earmark resume x"
    line = command(Store(Path("my store")), "build", "captions", "-c", "it's $HOME.toml")
    said = subprocess.run(["sh", "-c", f'printf "%s\\n" {line}'], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        "earmark", "build", "captions", "-c", "it's $HOME.toml", "--store", "my store"
    ]  # fmt: skip
    monkeypatch.setenv("EARMARK_STORE", "my store")
    assert "--store" not in command(Store(Path("my store")), "list")
    assert shlex.split(command(Store(Path("data/store")), "list")) == ["earmark", "list", "--store", "data/store"]
