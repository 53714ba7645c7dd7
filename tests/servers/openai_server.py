"""A local server that speaks OpenAI's protocol: chat completions, files, batches. Its answers follow from the request.

    python -m tests.servers.openai_server --port 0 --latency-ms 20

prints `port=N` once it listens. `GET /counts` tells what it was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from aiohttp import web

from tests.servers.faults import ALL, ANSWERS, Faults, garbled, wrong

AnswerText = Callable[[dict[str, Any], str], str]


def default_answer(body: dict[str, Any], content: str) -> str:
    """An answer of the asked form that is a function of the request's content."""
    schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
    if schema is None:
        return f"answer {content[:12]}"
    return json.dumps(fitting(schema, int(content[:8], 16)))


def listening_answer(body: dict[str, Any], content: str) -> str:
    """An answer by what the last two clips sound like, as a judge gives it that leans to the first clip at times.

    It is a function of the clips, their order and the words of the last turn: each question that the schema asks has
    its own, and about a quarter of the pairs get another answer the other way round.
    """
    schema = body["response_format"]["json_schema"]["schema"]
    parts = body["messages"][-1]["content"]
    words = "".join(part["text"] for part in parts if part["type"] == "text")
    *_, first, second = (part["input_audio"]["data"] for part in parts if part["type"] == "input_audio")
    said = {}
    for name, part in schema["properties"].items():
        if "enum" not in part:
            said[name] = f"Heard {hashlib.sha256((words + first + second).encode()).hexdigest()[:12]}."
            continue
        draws = [_draw(name, clip) for clip in (first, second)]
        told = _draw(name, words, *sorted((first, second)))
        if told % 8 < 2:  # leans
            said[name] = "A" if told % 8 else ("A", "B", "tie")[_draw(name, first, second) % 3]
        elif told % 8 == 2:
            said[name] = "tie"
        else:
            said[name] = "A" if draws[0] > draws[1] else "B"
    return json.dumps(said)


ASPECTS = ("noise", "distortion", "naturalness", "continuity")


def critic_answer(body: dict[str, Any], content: str) -> str:
    """Descriptions of a single clip; scores of two that follow from the clips and the draw's seed, so that some pairs
    agree with the listeners at once, some later, some never."""
    parts = body["messages"][-1]["content"]
    clips = [part["input_audio"]["data"] for part in parts if part["type"] == "input_audio"]
    if len(clips) == 1:
        return json.dumps({aspect: f"{aspect} as in {_draw(clips[0]) % 1000}" for aspect in ASPECTS})
    one, two = (1 + _draw(clip, str(body.get("seed"))) % 10 for clip in clips)
    return comparison(one, two)


MOODS = ("calm", "dark", "happy", "epic", "slow", "warm", "cold")
PLAYED = ("piano", "violin", "drums", "flute", "guitar", "organ", "harp")


def caption_answer(body: dict[str, Any], content: str) -> str:
    """A fine caption that follows from the request's content."""
    words = hashlib.sha256(content.encode()).digest()
    first, second = MOODS[words[0] % 7], PLAYED[words[1] % 7]
    told = " ".join(f"{MOODS[a % 7]} {PLAYED[a // 7 % 7]}" for a in words[2:9])
    return f"This is a {first} piece for the {second}, and then it moves from {told}."


def comparison(first: int, second: int) -> str:
    """What a critic writes of two clips."""
    parts = [f"{aspect.capitalize()}: clip 1 and clip 2 differ." for aspect in ASPECTS]
    return "\n".join([*parts, f"Final Scores: [[{first}, {second}]]"])


def _draw(*texts: str) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(texts).encode()).digest()[:4], "big")


class OpenAIServer:
    """The server's state and handlers.

    Args:
        faults: what goes wrong.
        answer: text of an answer from body and content hash.
        batch_s: how long a batch takes.
        slots: how many requests of a model are worked on at once, as its server has it; others wait in line.
    """

    def __init__(
        self,
        faults: Faults | None = None,
        answer: AnswerText = default_answer,
        batch_s: float = 0.2,
        slots: int | None = None,
    ) -> None:
        self.faults = faults or Faults()
        self.answer = answer
        self.first_token: Callable[[dict[str, Any], str], dict[str, Any]] = lambda body, content: _yes_no(content)
        self.batch_s = batch_s
        self._slots: defaultdict[str, asyncio.Semaphore | nullcontext[None]] = defaultdict(
            lambda: asyncio.Semaphore(slots) if slots else nullcontext()
        )
        self.files: dict[str, bytes] = {}
        self.file_names: dict[str, str] = {}  # of uploads
        self.batches: dict[str, dict[str, Any]] = {}
        self.expected_key: str | None = None
        self.headers: set[str] = set()  # values of all headers of all requests
        self.bodies: list[dict[str, Any]] = []
        self.keep_bodies = False
        self.lose_batch_replies = 0
        self.port = 0
        self._runner: web.AppRunner | None = None

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30, middlewares=[self._noted])
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/files", self.upload)
        app.router.add_get("/v1/files", self.list_files)
        app.router.add_get("/v1/files/{id}/content", self.download)
        app.router.add_post("/v1/batches", self.create_batch)
        app.router.add_get("/v1/batches", self.list_batches)
        app.router.add_get("/v1/batches/{id}", self.get_batch)
        app.router.add_get("/counts", self.counts)
        app.router.add_get("/work", self.work)
        return app

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> OpenAIServer:
        self._runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=2048)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        """What a client is given."""
        return f"http://127.0.0.1:{self.port}/v1"

    @web.middleware
    async def _noted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.headers.update(request.headers.values())
        held: web.StreamResponse = await handler(request)
        return held

    async def counts(self, request: web.Request) -> web.Response:
        """What the server was asked."""
        sizes = {"batches": len(self.batches), "batch_lines": sum(b["lines"] for b in self.batches.values())}
        now = {"open": self.faults.open_now, "models": len(self.faults.work)}
        return web.json_response(self.faults.numbers() | sizes | now)

    async def work(self, request: web.Request) -> web.Response:
        """When each request of each model had a slot."""
        return web.json_response(self.faults.work)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """A chat completion, or a fault."""
        faults = self.faults
        raw = await request.read()
        if self.expected_key and request.headers.get("Authorization") != f"Bearer {self.expected_key}":
            said = {"error": {"message": f"Incorrect API key: {request.headers.get('Authorization')}"}}
            return web.json_response(said, status=401)
        content = faults.count(raw)
        faults.open_now += 1
        faults.most_open = max(faults.most_open, faults.open_now)
        try:
            body = json.loads(raw)
            if faults.latency_s:
                async with self._slots[body["model"]]:
                    start = time.monotonic()
                    await asyncio.sleep(faults.wait_s(content))
                    faults.work[body["model"]].append((start, time.monotonic()))
            if self.keep_bodies:
                self.bodies.append(body)
            kind = faults.choose(content)
            good = json.dumps(self.completion(body, content, kind)).encode()
            if kind is None or kind in ANSWERS:
                return web.Response(body=good, content_type="application/json")
            return await wrong(request, kind, faults, good)
        finally:
            faults.open_now -= 1

    def completion(self, body: dict[str, Any], content: str, kind: str | None = None) -> dict[str, Any]:
        """A chat completion's JSON."""
        message: dict[str, Any] = {"role": "assistant", "content": self.answer(body, content), "refusal": None}
        if kind == "refusal":
            message = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
        elif kind in ANSWERS:
            message["content"] = garbled(kind, message["content"], self.faults)
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [self.first_token(body, content)]}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        return {
            "id": f"chatcmpl-{content[:12]}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }

    async def upload(self, request: web.Request) -> web.Response:
        """Keep a file."""
        form = await request.post()
        field = form["file"]
        assert isinstance(field, web.FileField)
        name = f"file-{uuid.uuid4().hex}"
        self.files[name] = field.file.read()
        self.file_names[name] = field.filename
        return web.json_response(self._file(name))

    def _file(self, name: str) -> dict[str, Any]:
        held = {"id": name, "object": "file", "bytes": len(self.files[name]), "purpose": "batch"}
        return held | {"created_at": int(time.time()), "filename": self.file_names[name]}

    async def list_files(self, request: web.Request) -> web.Response:
        """The uploads."""
        return web.json_response({"object": "list", "data": [*map(self._file, self.file_names)], "has_more": False})

    async def download(self, request: web.Request) -> web.Response:
        """A file's content."""
        held = self.files.get(request.match_info["id"])
        if held is None:
            return web.json_response({"error": {"message": "no such file"}}, status=404)
        return web.Response(body=held, content_type="application/octet-stream")

    async def create_batch(self, request: web.Request) -> web.StreamResponse:
        """Start a batch; `lose_batch_replies` cuts the connection after doing so."""
        body = await request.json()
        batch_id = f"batch_{uuid.uuid4().hex}"
        lines = self.files[body["input_file_id"]].splitlines()
        self.batches[batch_id] = {
            "id": batch_id,
            "object": "batch",
            "endpoint": body["endpoint"],
            "input_file_id": body["input_file_id"],
            "completion_window": body["completion_window"],
            "metadata": body.get("metadata") or {},
            "created_at": time.time(),
            "lines": len(lines),
        }
        for line in lines:
            self.faults.count(json.dumps(json.loads(line)["body"]).encode())
        if self.lose_batch_replies:
            self.lose_batch_replies -= 1
            if request.transport:
                request.transport.abort()
        return web.json_response(self._shown(self.batches[batch_id]))

    async def list_batches(self, request: web.Request) -> web.Response:
        """Batches, newest first, in pages."""
        held = sorted(self.batches.values(), key=lambda batch: -batch["created_at"])
        after, limit = request.query.get("after"), int(request.query.get("limit", "20"))
        if after:
            ids = [batch["id"] for batch in held]
            held = held[ids.index(after) + 1 :]
        page = [self._shown(batch) for batch in held[:limit]]
        last = page[-1]["id"] if page else None
        return web.json_response({"object": "list", "data": page, "has_more": len(held) > limit, "last_id": last})

    async def get_batch(self, request: web.Request) -> web.Response:
        batch = self.batches.get(request.match_info["id"])
        if batch is None:
            return web.json_response({"error": {"message": "no such batch"}}, status=404)
        return web.json_response(self._shown(batch))

    def _shown(self, batch: dict[str, Any]) -> dict[str, Any]:
        if time.time() - batch["created_at"] < self.batch_s:
            return batch | {"status": "in_progress", "output_file_id": None, "error_file_id": None}
        if "output_file_id" not in batch:
            self._work_off(batch)
        return batch | {"status": "completed"}

    def _work_off(self, batch: dict[str, Any]) -> None:
        good, bad = [], []
        for raw in self.files[batch["input_file_id"]].splitlines():
            line = json.loads(raw)
            content = hashlib.sha256(json.dumps(line["body"]).encode()).hexdigest()
            kind = self.faults.choose(content)
            held: dict[str, Any] = {"id": f"r_{content[:8]}", "custom_id": line["custom_id"], "error": None}
            if kind is None or kind in ANSWERS:
                response = {"status_code": 200, "body": self.completion(line["body"], content, kind)}
                good.append(held | {"response": response})
            else:
                response = {"status_code": 500, "body": {"error": {"message": "server error"}}}
                bad.append(held | {"response": response})
        batch["output_file_id"] = self._keep(good)
        batch["error_file_id"] = self._keep(bad) if bad else None

    def _keep(self, lines: list[dict[str, Any]]) -> str:
        name = f"file-{uuid.uuid4().hex}"
        self.files[name] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        return name


def fitting(schema: dict[str, Any], seed: int) -> Any:
    """A value that fits a small schema."""
    if "enum" in schema:
        return schema["enum"][seed % len(schema["enum"])]
    match schema.get("type"):
        case "object":
            return {
                name: fitting(part, seed // 7 + place)
                for place, (name, part) in enumerate(schema["properties"].items())
            }
        case "array":
            return [fitting(schema["items"], seed + place) for place in range(max(1, schema.get("minItems", 1)))]
        case "integer":
            least = int(schema.get("minimum", 0))
            return least + seed % min(3, int(schema.get("maximum", least + 2)) - least + 1)
        case "number":
            return float(schema.get("minimum", 0)) + seed % 3
        case "boolean":
            return bool(seed % 2)
    return f"because {seed % 1000}"


def _yes_no(content: str) -> dict[str, Any]:
    share = 0.05 + 0.9 * int(content[:8], 16) / 2**32
    yes, no, other = math.log(share * 0.98), math.log((1 - share) * 0.98), math.log(0.02)
    listed = [{"token": token, "logprob": value} for token, value in (("Yes", yes), (" no", no), ("The", other))]
    return {**max(listed, key=lambda item: float(str(item["logprob"]))), "top_logprobs": listed}


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--fault-rate", type=float, default=0.0)
    parser.add_argument("--faults", default=",".join(ALL))
    parser.add_argument("--slots", type=int, help="requests worked on at once; all of them without it")
    parser.add_argument("--batch-s", type=float, default=0.2)
    parser.add_argument("--listen", action="store_true", help="answer by the clips, as a judge of pairs")
    parser.add_argument("--captions", action="store_true", help="answer with captions")
    options = parser.parse_args()
    faults = Faults(
        rate=options.fault_rate, kinds=tuple(options.faults.split(",")), latency_s=options.latency_ms / 1000
    )

    async def serve() -> None:
        asked = (
            (options.listen, listening_answer),
            (options.captions, caption_answer),
        )
        answer = next((answer for wanted, answer in asked if wanted), default_answer)
        server = await OpenAIServer(faults, answer, options.batch_s, options.slots).start(options.port)
        print(f"port={server.port}", flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
