"""Ctrl-C and SIGTERM at random moments of every phase: the end comes in time, and the next run goes on from it.

One store is stopped again and again, each time in a later phase, until a last run ends well: so what is kept is what
the next run needs. The server itself counts what it was asked.
"""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import signal
import sqlite3
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from earmark.tasks.store.versions import Store, verify
from tests.annotation.test_kills import Server, received, slow_server
from tests.builds import build_version, config_of
from tests.conftest import ROOT
from tests.deploy.test_schedules import deployments
from tests.evaluation.test_score import generate
from tests.flows.day import free_port
from tests.mos_preferences.critiques import make_study, values_of
from tests.music_prompts.prompt_builds import build_prompts, made_tracks, write_tracks
from tests.music_prompts.prompt_builds import config_of as prompts_config
from tests.pseudo_preferences.music import make_pool, write_config
from tests.servers.hub import HubServer

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of a terminal: colours, moves of the cursor
START_S = 240.0  # until a moment comes, on a busy machine


@dataclass(frozen=True)
class End:
    """How a command ended.

    Attributes:
        what: signal and place, for messages.
        code: its exit code.
        expected: the exit code of a command that was stopped.
        took_s: from the signal to the end.
        said: all that it wrote.
    """

    what: str
    code: int
    expected: int
    took_s: float
    said: str

    @property
    def last(self) -> str:
        """The last line that it wrote; on a terminal it may go over several."""
        _, stopped, rest = self.said.rpartition("interrupted; ")
        lines = (stopped + rest if stopped else self.said).split("\n")
        return " ".join(" ".join(lines).split()) if stopped else next(filter(str.strip, reversed(lines)), "").strip()


class Running:
    """A command under way; `terminal` says whether it has one, as of a person's shell."""

    def __init__(self, words: Sequence[object], environment: Mapping[str, str], terminal: bool) -> None:
        self.terminal, self._written = terminal, bytearray()
        self._ours, theirs = pty.openpty() if terminal else os.pipe()

        def prepare() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests that run in the background ignore it
            if terminal:
                fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "earmark", *map(str, words)],
            cwd=ROOT,
            env=environment,
            stdin=theirs if terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=prepare,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # of a terminal that nobody holds any more
            while part := os.read(self._ours, 1 << 16):
                self._written += part

    def said(self) -> str:
        """What it has written so far."""
        return ESCAPES.sub("", self._written.decode("utf-8", "replace")).replace("\r", "\n")

    def until(self, come: Callable[[str], bool]) -> None:
        """Wait until something is so, or the command has ended; `come` gets what it has written."""
        deadline = time.monotonic() + START_S
        while not come(self.said()) and self.process.poll() is None:
            assert time.monotonic() < deadline, self.said()[-2000:]
            time.sleep(0.01)

    def end(self, number: signal.Signals) -> End:
        """Send a signal, Ctrl-C from the keyboard where there is a terminal, and wait for the end."""
        begun = time.monotonic()
        if self.terminal and number == signal.SIGINT:
            os.write(self._ours, b"\x03")
        else:
            self.process.send_signal(number)
        code = self.process.wait(120)
        took = time.monotonic() - begun
        self._reader.join(5)
        os.close(self._ours)
        where = "a terminal" if self.terminal else "a pipe"
        return End(f"{number.name} in {where}", code, CODES[number], took, self.said())


def ways(rng: random.Random, count: int) -> list[tuple[signal.Signals, bool]]:
    """So many pairs of a signal and whether there is a terminal; four have each of the four."""
    pairs = [(number, terminal) for number in CODES for terminal in (True, False)]
    rng.shuffle(pairs)
    return [pairs[number % len(pairs)] for number in range(count)]


CORPUS, PROMPTS = "pseudo-preferences", 60
REQUESTS = PROMPTS * 3 * 2
END_S, SLACK_S = 5.0, 10.0  # a machine of two cores that others use too
SEED = int(os.environ.get("EARMARK_SEED") or random.SystemRandom().randrange(1 << 32))
DONE = re.compile(rf"{CORPUS}[^\n]* v1\b|revision=\"v1\"|to train on them: |figures of each clip in ")
"""What is said when all is done: a signal while Python itself ends finds no handler any more."""
PATIENT = {"read_timeout_s": 60.0, "total_timeout_s": 300.0}


@pytest.fixture
def rng() -> random.Random:
    print(f"EARMARK_SEED={SEED} draws the same moments")
    return random.Random(SEED)


judge = slow_server("--listen", "--latency-ms", "150")
model = slow_server("--latency-ms", "150")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prefect's home, whose server the commands of this file share."""
    return tmp_path_factory.mktemp("prefect")


def environment(store: Path, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
    return {**kept, "EARMARK_STORE": str(store), "PREFECT_HOME": str(home), "EARMARK_KEEP_S": "20", "COLUMNS": "80"}


def check(end: End, kept: str) -> None:
    """Hold an end against the rule."""
    told = f"{end.what}, seed {SEED}: exit {end.code} after {end.took_s:.1f} s\n{end.said[-1500:]}"
    print(f"{end.what}: {end.code} after {end.took_s:.1f} s: {end.last}")
    assert end.code == end.expected, told
    assert end.last.startswith("interrupted; "), told
    assert kept in end.last, told
    assert end.said.count("interrupted; ") == 1, told
    assert "Traceback" not in end.said, told
    assert end.took_s < END_S + SLACK_S, told


class Chain:
    """A command that is stopped again and again: what was asked, and what of it is lost."""

    def __init__(self, words: Sequence[object], store: Path, home: Path, judge: Server, rng: random.Random) -> None:
        self.words, self.store, self.judge, self.rng = words, store, judge, rng
        self.environment = environment(store, home)
        self.known, self.lost = judge.counts()["asked"] - self._kept(), 0
        self.hits = 0

    def _kept(self) -> int:
        ledger = self.store / "ledger.sqlite"
        try:
            return received(ledger) if ledger.is_file() else 0
        except sqlite3.OperationalError:  # made, and empty
            return 0

    def asks(self, most: int) -> Callable[[str], bool]:
        """Whether the next run has sent so many requests, a number that is drawn."""
        upto = self.judge.counts()["asked"] + self.rng.randint(1, most)
        return lambda said: self.judge.counts()["asked"] >= upto

    def stop(self, way: tuple[signal.Signals, bool], come: Callable[[str], bool], within_s: float, kept: str) -> None:
        """Stop it at a moment that is drawn within a time after something came."""
        number, terminal = way
        running = Running(self.words, self.environment, terminal)
        running.until(come)
        time.sleep(self.rng.uniform(0, within_s))
        end = running.end(number)
        if end.code == 0 or (end.code == -number and DONE.search(end.said)):  # it was done, and Python was ending
            return
        self.hits += 1
        check(end, kept)
        asked = self.judge.settled()["asked"]
        lost = asked - self._kept() - self.known
        assert lost >= 0
        self.lost = lost

    def finish(self) -> None:
        """Let it end; no more is asked again than was lost."""
        running = Running(self.words, self.environment, terminal=False)
        running.until(lambda said: False)
        assert running.process.wait(1) == 0, running.said()[-2000:]
        repeats = self.judge.settled()["repeats"]
        assert repeats <= self.lost, f"seed {SEED}: {repeats} requests repeated, {self.lost} answers were in flight"


RESUME = "go on with: earmark resume"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("at_once", [2, 128])
def test_a_build_that_is_stopped_at_any_moment_goes_on(
    at_once: int, tmp_path: Path, home: Path, judge: Server, rng: random.Random
) -> None:
    make_pool(tmp_path / "pool", PROMPTS)
    config = write_config(tmp_path / "pool", judge.base_url, judge={"max_concurrency": at_once, **PATIENT})
    chain = Chain(["build", CORPUS, "-c", config], tmp_path / "store", home, judge, rng)
    draw = ways(rng, 12)
    if at_once == 2:  # until the first request it makes no difference
        chain.stop(draw[0], lambda said: bool(said.strip()), 0.3, "")  # inputs are hashed, or the run has begun
        for way in draw[1:3]:  # Prefect starts, and the first steps run
            chain.stop(way, lambda said: "building" in said, 3.0, RESUME)
        chain.stop(draw[3], lambda said: "measure" in said, 0.5, RESUME)
        assert chain.hits >= 2, f"seed {SEED}: expected the start and the first steps to be hit"
    for way in draw[4:7]:
        chain.stop(way, chain.asks(REQUESTS // 5), 0.3 if at_once == 2 else 0.03, RESUME)
        assert chain.lost <= 3 * at_once, f"seed {SEED}: more than what was in flight is lost"
    for way in draw[7:9]:  # the last answers, writing, commit; or again the start
        chain.stop(way, lambda said: bool(said.strip()) and judge.counts()["asked"] >= REQUESTS - at_once, 2.0, "")
    chain.finish()
    (version,) = Store(tmp_path / "store").versions(CORPUS)
    assert verify(version) == []
    assert judge.counts()["distinct"] == REQUESTS


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_follows_a_build_is_stopped_at_any_moment_and_goes_on(
    tmp_path: Path, home: Path, judge: Server, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pool(tmp_path / "pool", PROMPTS)
    write_config(tmp_path / "pool", judge.base_url, judge={"max_concurrency": 8, **PATIENT})
    config = tmp_path / "rebuild.toml"
    config.write_text(f'[[builds]]\ncorpus = "{CORPUS}"\nconfig = "pool/build.toml"\n')
    store, draw = tmp_path / "store", ways(rng, 12)
    chain = Chain(["rebuild", "-c", config], store, home, judge, rng)
    chain.stop(draw[0], lambda said: "building" in said, 3.0, "finished steps and answers are kept")
    for way in draw[1:3]:
        chain.stop(way, chain.asks(REQUESTS // 4), 0.3, "answers are kept")
    assert chain.hits >= 1, f"seed {SEED}: it was done too soon"
    chain.finish()
    asked = ["judge", CORPUS, "-e", "musicality", "-a", "openai:other", "--base-url", judge.base_url, "--split", "all"]
    chain = Chain(asked, store, home, judge, rng)
    for way in draw[3:6]:
        chain.stop(way, chain.asks(20), 0.2, "answers are kept")
    assert chain.hits >= 1, f"seed {SEED}: it was done too soon"
    chain.finish()
    with HubServer(tmp_path / "hub") as hub:
        for name, value in (
            ("HF_ENDPOINT", hub.endpoint),
            ("HF_HOME", str(tmp_path / "hf")),
            ("HF_TOKEN", "hf_writer"),
        ):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        hub.harm = lambda kind, when, n: time.sleep(0.1)  # a Hub that is some way off
        chain = Chain(["publish", CORPUS, "--repo", f"lab/{CORPUS}"], store, home, judge, rng)
        for number, way in enumerate(draw[6:9]):
            most = hub.asked.total() + 1 + 2 * number
            chain.stop(way, lambda _, most=most: hub.asked.total() >= most, 0.2, "what was uploaded is kept")  # type: ignore[misc]
        assert chain.hits >= 1, f"seed {SEED}: it was done too soon"
        chain.finish()
        assert "v1" in hub.repos[f"lab/{CORPUS}"]["tags"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_draws_of_a_policy_are_stopped_at_any_moment_and_go_on(
    tmp_path: Path, home: Path, model: Server, rng: random.Random
) -> None:
    make_study(tmp_path / "study")
    source = values_of("")["sources"][0]
    build_version(config_of(tmp_path / "study", source, audio="index"), tmp_path / "store")
    (tmp_path / "policy.toml").write_text("seed = 5")  # draws of a row differ by it, and can be told from repeats
    words: list[object] = [
        "rollouts",
        "mos-preferences",
        "-a",
        "openai:policy",
        "--base-url",
        model.base_url,
        "--limit",
        15,
    ]
    words += ["--settings", tmp_path / "policy.toml"]
    chain = Chain(words, tmp_path / "store", home, model, rng)
    for way in ways(rng, 4)[:3]:
        chain.stop(way, chain.asks(12), 0.2, "answers are kept")
    assert chain.hits >= 1, f"seed {SEED}: it was done too soon"
    chain.finish()
    assert [*(tmp_path / "store/rollouts").rglob("rollouts.parquet")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_scoring_is_stopped_at_any_moment_and_goes_on(
    tmp_path: Path, home: Path, model: Server, rng: random.Random
) -> None:
    write_tracks(tmp_path / "tracks.tsv", made_tracks(300))
    counts = {"strict_id": 20, "strict_ood": 2}
    version = build_prompts(prompts_config(tmp_path, prompts=counts), tmp_path / "store")
    generate(tmp_path / "ours", version, 1)
    words = ["score", "music-prompts", "-g", tmp_path / "ours", "-a", "openai:judge", "--base-url", model.base_url]
    chain = Chain(words, tmp_path / "store", home, model, rng)
    for way in ways(rng, 4)[:3]:
        chain.stop(way, chain.asks(12), 0.2, "answers are kept")
    assert chain.hits >= 1, f"seed {SEED}: it was done too soon"
    chain.finish()
    assert [*(tmp_path / "store/evaluations").rglob("score.json")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_serve_asks_nothing_in_a_terminal_and_ends_soon_when_nothing_runs(tmp_path: Path, judge: Server) -> None:
    make_pool(tmp_path / "pool", 2)
    file = deployments(tmp_path / "pool", judge.base_url, tmp_path / "store", every_s=None)
    ours = {**environment(tmp_path / "store", tmp_path / "prefect"), "EARMARK_ROOTS": str(tmp_path)}
    words = ["serve", "--file", file, "--port", free_port(), "--metrics-port", 0]
    for number, terminal in ((signal.SIGINT, True), (signal.SIGTERM, False)):
        running = Running(words, ours, terminal)
        running.until(lambda said: "schedules are running" in said)
        time.sleep(3)  # the worker is up
        end = running.end(number)
        print(f"{end.what}: {end.code} after {end.took_s:.1f} s")
        assert "proceed?" not in end.said
        assert end.code == 0, "systemd and Kubernetes take another status for a failure"
        assert "stopping; interrupted runs continue when earmark serve is started again" in end.said
        assert end.took_s < END_S + SLACK_S, end.said
