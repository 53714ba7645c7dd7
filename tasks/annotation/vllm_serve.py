"""Run `vllm:MODEL`: a vLLM server started by the build at its first request, and ended by it.

vLLM and Prefect need conflicting releases of FastAPI, so vLLM has a separate environment, with its Python in
`EARMARK_VLLM`. The server listens on this machine alone, requires a random key, and is asked like an `openai:` server.
Requests mean the same as to vLLM's in-process engine: `generation_config.json` gives no sampling parameters, and P(yes)
is from the two words' tokens alone over the full vocabulary (`logprob_token_ids`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError
from earmark.schemas.questions import ScaleRating, YesNo, canonical
from earmark.tasks.annotation import errors
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backend import Media, backend
from earmark.tasks.annotation.children import Child, end_orphans, orphan_mark
from earmark.tasks.annotation.errors import (
    AskError,
    BadRequest,
    ServerGone,
    StopRun,
    Unsupported,
    one_line,
    shaped,
)
from earmark.tasks.annotation.http import JSON, Http
from earmark.tasks.annotation.keys import Key, key_hosts, origin_of
from earmark.tasks.annotation.openai_compatible import Choices, OpenAICompatible, read_chat_completion
from earmark.tasks.annotation.progress import span
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.server_faults import TABLE, pattern_of

STAGES = tuple(
    (re.compile(pattern, re.IGNORECASE), stage)
    for pattern, stage in (
        (r"Dynamo bytecode|Compiling a graph|torch\.compile took|Capturing CUDA|Graph captur", "compiling"),
        (r"Starting to load model|Loading (safetensors|pt|weights)|checkpoint shards|Initializing a V1", "loading"),
        (r"Fetching \d+ files|Download|\.(safetensors|bin|json|gguf)[^:\s]*: +\d+%", "downloading"),
    )
)
"""The first match decides."""
PERCENT = re.compile(r"\b(\d{1,3})%")
HANGS = re.compile(r"No available shared memory broadcast block|Waiting for \d+ (local|core)")
"""Lines repeated by a hanging server."""
HEAD = re.compile(r"^(\(\w+( pid=\d+)?\) *)?((INFO|WARNING|ERROR|CRITICAL) [\d: -]+(\[[^\]]*\] *)?)?")
HARMLESS = re.compile(r"^(\(\w+( pid=\d+)?\) *)?(INFO|WARNING)\b")
ERROR = re.compile(r"^[\w.]*(Error|Exception|Interrupt)\b.*|^.*\berror: .*")
WRAPPED = re.compile(r"Engine core initialization failed|EngineDeadError|Failed core proc|^subprocess\.")
"""Errors that only report another error further up."""

FAULTS: tuple[tuple[re.Pattern[str], type[StopRun], str], ...] = tuple(
    (pattern_of(one), getattr(errors, one["fault"]), one["says"]) for one in TABLE["ends"]
)
"""Causes of a server's end, with advice; the first match decides."""


def stage_of(line: str) -> str | None:
    """Return the server's stage in a line, with its percentage; None without a stage."""
    stage = next((word for pattern, word in STAGES if pattern.search(line)), None)
    done = PERCENT.search(line)
    return f"{stage} {done[1]} %" if stage and done else stage


def fault_in(log: str, code: int) -> tuple[type[StopRun], str]:
    """Return the kind of fault at a server's end, and one line: a known cause with advice, and the log's own words."""
    lines = [HEAD.sub("", line).strip() for line in log.splitlines() if not HARMLESS.match(line)]
    lines = [line for line in lines if line]
    for pattern, kind, words in FAULTS:
        if found := next((line for line in lines if pattern.search(line)), None):
            return kind, f"{words} ({found[:200]})"
    if code == 137:  # SIGKILL
        return FAULTS[0][1], f"killed, most often by the kernel: {FAULTS[0][2]}"
    errors = [line for line in lines if ERROR.match(line) and not WRAPPED.search(line)]
    return ServerGone, (errors or lines or ["it wrote nothing"])[-1]


LOG = logging.getLogger("earmark.annotation")
VARIABLE = "EARMARK_VLLM"
ENGINE_FIELD = "engine"
"""Field of `extra_body` with options of `vllm serve` that can change an answer; all others go with each request."""
RESERVED = frozenset(
    {"model", "model_tag", "host", "port", "uds", "api_key", "served_model_name", "config", "middleware", "root_path"}
)
NEUTRAL = {
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
    "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip
"""Defaults of the sampling parameters, in place of the model's `generation_config.json`."""
GRACE_S = 2.0
LOOK_S = 0.25
RESTARTS = 3  # number of restarts of a server in a build: each needs an answer since the last start
TAIL_BYTES = 1 << 18


def python_of_vllm() -> Path:
    """Return the Python of vLLM's environment.

    Raises:
        ConfigError: `EARMARK_VLLM` is not set, or names no program.
    """
    named = os.environ.get(VARIABLE, "")
    advice = "run 'earmark doctor --vllm' for the commands that make its environment"
    if not named:
        raise ConfigError(f"a vllm: annotator needs vLLM's own Python in {VARIABLE}, which is not set; {advice}")
    path = Path(named).expanduser()
    if path.is_dir() or not os.access(path, os.X_OK):
        raise ConfigError(
            f"{VARIABLE}: expected the Python of vLLM's environment, found no program at {path}; {advice}"
        )
    return path


def serve_options(config: AnnotatorConfig) -> dict[str, Any]:
    """Return the options of `vllm serve` by name, without places and keys."""
    engine = {name.replace("-", "_"): value for name, value in config.extra_body.get(ENGINE_FIELD, {}).items()}
    if taken := sorted(RESERVED & engine.keys()):
        raise ConfigError(
            f"extra_body.{ENGINE_FIELD}.{taken[0]}: the server of a vllm: annotator is started without it"
        )
    if twice := sorted(config.serve.keys() & engine.keys()):
        raise ConfigError(f"{twice[0]}: expected in serve or in extra_body.{ENGINE_FIELD}, found in both")
    usual = {"limit_mm_per_prompt": {"audio": 8, "image": 8}, "seed": config.seed or 0}
    # as in 1.0.0: requests alone decide the sampling, whatever stands in the engine's own defaults
    neutral = {"override_generation_config": {**engine.pop("override_generation_config", {}), **NEUTRAL}}
    return usual | engine | config.serve | neutral


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of a command line; tables become JSON, and None drops an option."""
    words = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list):
            words += [f"--{flag}", *map(str, value)]
        elif value is not None:
            words.append(f"--{flag}={json.dumps(value) if isinstance(value, dict) else value}")
    return words


@backend("vllm", in_process=True)
class VllmServe:
    """Model behind a private `vllm serve`. The server starts with the first request."""

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        self._config, self._media = config, media
        self._model = config.annotator.partition(":")[2]
        if self._model.startswith("-"):
            raise ConfigError(f"annotator: expected vllm: and a model's name or folder, found '{config.annotator}'")
        self._options = serve_options(config)
        engine = config.extra_body.get(ENGINE_FIELD, {})
        if idle := sorted(engine.get("override_generation_config", {}).keys() & NEUTRAL):
            LOG.warning(
                "extra_body.%s.override_generation_config.%s has no effect: set it in the annotator, or in extra_body",
                ENGINE_FIELD, idle[0],
            )  # fmt: skip
        self._lock = asyncio.Lock()
        self._folder: Path | None = None  # log and sockets of the running server
        self._child: Child | None = None
        self._chat: _Chat | None = None
        self._ready = self._answered = False  # since its start
        self._starts = 0
        self.waiting: str | None = None  # the server's activity before it answers

    async def open(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            ConfigError: `EARMARK_VLLM` names no Python.
            StopRun: the server ended, or said nothing for `patience_s`.
        """
        async with self._lock:
            await self._start()

    async def send(self, request: Request) -> str:
        """Ask once; restart a server that ended after an answer."""
        async with self._lock:
            chat = await self._running()
        raw = await chat.send(request)
        self._answered = True
        return raw

    def read(self, request: Request, raw: str) -> Reply:
        """Return the reply of a chat completion."""
        return read_chat_completion(raw)

    async def close(self) -> None:
        """End the server."""
        await self._end()

    async def _running(self) -> _Chat:
        if self._chat is not None and self._child is not None and self._child.poll() is None:
            return self._chat
        fault = self._fault()
        if not self._answered or self._starts > RESTARTS:
            raise fault
        LOG.warning("%s; it is started again", fault)
        await self._start()
        assert self._chat is not None
        return self._chat

    async def _start(self) -> None:
        python = python_of_vllm()
        await asyncio.to_thread(end_orphans)
        self._starts, self._ready, self._answered = self._starts + 1, False, False
        try:
            for _ in range(3):  # another program may take the port before the server does
                await self._end()
                if await self._try(python):
                    return
            raise ServerGone(f"vllm serve {self._model}: each port that was free was taken before it listened")
        except BaseException:
            await self._end()
            raise
        finally:
            self.waiting = None

    async def _try(self, python: Path) -> bool:
        """Start the server on a free port and wait for it; return whether it got the port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        key, url = secrets.token_urlsafe(32), f"http://127.0.0.1:{port}/v1"
        self._folder = Path(tempfile.mkdtemp(prefix="earmark-vllm-"))
        where = ["--host=127.0.0.1", f"--port={port}", f"--served-model-name={self._model}"]
        command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", self._model, *where]
        command += ["--disable-uvicorn-access-log", *flags(self._options)]
        with self._log.open("wb") as log:
            self._child = Child(command, env=self._environment(key), stdout=log, stderr=log, grace_s=GRACE_S)
        self._chat = _Chat(self._config.model_copy(update={"base_url": url}), self._media, key)
        await self._chat.open()
        await self._wait(self._child, self._chat)
        if self._child.poll() is None:
            self._ready = True
            await self._chat.check_fields(set(self._config.extra_body) - {ENGINE_FIELD})
            return True
        if "address already in use" in self._tail().lower():
            return False
        raise self._fault()

    def _environment(self, key: str) -> dict[str, str]:
        """Return the server's environment: without other servers' keys, and without this Python's paths."""
        keys = (name for name in os.environ if name.endswith("_API_KEY"))  # LiteLLM's providers
        held = {"PYTHONPATH", "PYTHONHOME", *key_hosts(), *keys}
        own = {"VLLM_API_KEY": key, "VLLM_RPC_BASE_PATH": str(self._folder), "PYTHONUNBUFFERED": "1"}
        kept = {name: value for name, value in os.environ.items() if name not in held}
        return {"VLLM_NO_USAGE_STATS": "1"} | kept | own | orphan_mark()

    async def _wait(self, child: Child, chat: _Chat) -> None:
        """Wait until the server answers or ends."""
        began = moved = time.monotonic()
        stage = "starting"
        with self._log.open(encoding="utf-8", errors="replace") as log:
            while child.poll() is None and not await chat.answers():
                for line in re.split(r"[\r\n]+", log.read()):
                    if line.strip() and not HANGS.search(line):
                        moved, stage = time.monotonic(), stage_of(line) or stage
                now = time.monotonic()
                if now - moved > self._config.patience_s:
                    raise ServerGone(
                        f"vllm serve {self._model}: {stage}, and no word for {self._config.patience_s:g} s "
                        f"(patience_s); its log: {self._log}"
                    )
                still = f", silent for {span(now - moved)}" if now - moved > self._config.stalled_after_s else ""
                self.waiting = f"vllm serve: {stage} ({span(now - began)}{still})"
                await asyncio.sleep(LOOK_S)

    @property
    def _log(self) -> Path:
        assert self._folder is not None
        return self._folder / "log"

    def _tail(self) -> str:
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - TAIL_BYTES))
            return log.read().decode("utf-8", "replace")

    def _fault(self) -> AskError:
        code = self._child.poll() if self._child else None
        if code is None:
            return ServerGone(f"vllm serve {self._model}: it was not started, or is ended")
        kind, line = fault_in(self._tail(), code)
        return kind(f"vllm serve {self._model} ended with code {code}: {one_line(line, 400)}; its log: {self._log}")

    async def _end(self) -> None:
        """End the server and all its children; keep its log after a failure or an end by itself."""
        child, chat, folder = self._child, self._chat, self._folder
        self._child = self._chat = self._folder = None
        if chat is not None:
            await chat.close()
        if child is not None:
            running = child.poll() is None
            await asyncio.shield(asyncio.to_thread(child.end))
            if folder is not None and running and self._ready:
                shutil.rmtree(folder, ignore_errors=True)


class _Chat(OpenAICompatible):
    def __init__(self, config: AnnotatorConfig, media: Media, key: str) -> None:
        super().__init__(config, media)
        origin = origin_of(URL(self.base_url))
        assert origin is not None
        self.http = Http(config, Key((), "VLLM_API_KEY", key, frozenset({origin})), "Authorization", "Bearer {}")
        self._root = URL(self.base_url).with_path("/")
        self._choices = Choices(self.http, self.base_url, held=False)  # `body` constrains them
        self._ids: dict[str, int] = {}

    async def answers(self) -> bool:
        """Return whether the server answers, and not another program at its port."""
        try:
            async with asyncio.timeout(5.0):
                await self.http.exchange("GET", URL(f"{self.base_url}/models"))
        except (AskError, TimeoutError):
            return False
        return True

    async def check_fields(self, names: set[str]) -> None:
        """Check further fields of a request against the server's fields: it silently ignores unknown fields."""
        if not names:
            return
        _, text = await self.http.exchange("GET", self._root / "openapi.json")
        with shaped("a description of chat completions"):
            known = json.loads(text)["components"]["schemas"]["ChatCompletionRequest"]["properties"]
        if unknown := sorted(names - set(known)):
            raise Unsupported(f"extra_body.{unknown[0]}: this vLLM knows no such field of a chat completion")

    async def send(self, request: Request) -> str:
        """Ask once, after looking up the token ids of the answer words."""
        if isinstance(request.ask, YesNo | ScaleRating):
            for word in request.ask.words:
                if word not in self._ids and not _named(request):
                    self._ids[word] = await self._token(word)
        return await super().send(request)

    def body(self, request: Request) -> dict[str, Any]:
        """Return the request's body; `structured` other than "none" means vLLM's own structured outputs."""
        sampling = request.sampling
        extra = {name: value for name, value in json.loads(sampling.extra).items() if name != ENGINE_FIELD}
        form = "none" if sampling.structured == "none" else "vllm"
        body = super().body(replace(request, sampling=replace(sampling, extra=canonical(extra), structured=form)))
        if isinstance(request.ask, YesNo | ScaleRating) and not _named(request):
            body["logprob_token_ids"] = [self._ids[word] for word in request.ask.words]
        return body

    async def _token(self, word: str) -> int:
        """Return the id of a word."""
        body = json.dumps({"prompt": word, "add_special_tokens": False}).encode()
        _, text = await self.http.exchange("POST", self._root / "tokenize", body, JSON)
        with shaped("the ids of a word's tokens"):
            ids = [int(number) for number in json.loads(text)["tokens"]]
        if len(ids) != 1:
            raise BadRequest(f"expected '{word}' to be one token of this model, found {len(ids)}; choose other words")
        return ids[0]


def _named(request: Request) -> bool:
    return isinstance(request.ask, YesNo) and request.sampling.yes_no_token_ids is not None
