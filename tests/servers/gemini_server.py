"""A local server that speaks Gemini's protocol: generateContent, files, batches. Answers follow from the request.

python -m tests.servers.gemini_server --port 0
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tests.servers.faults import ALL, ANSWERS, Faults, garbled, wrong
from tests.servers.openai_server import fitting


class GeminiServer:
    """The server's state and handlers.

    Args:
        faults: what goes wrong.
        batch_s: how long a batch takes.
        file_life_s: how long an upload lives.
    """

    def __init__(self, faults: Faults | None = None, batch_s: float = 0.2, file_life_s: float = 48 * 3600) -> None:
        self.faults = faults or Faults()
        self.batch_s = batch_s
        self.file_life_s = file_life_s
        self.files: dict[str, dict[str, Any]] = {}
        self.contents: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.bodies: list[dict[str, Any]] = []
        self.uploads = 0
        self.expected_key: str | None = None
        self.headers: set[str] = set()  # values of all headers of all requests
        self.port = 0
        self._runner: web.AppRunner | None = None

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30, middlewares=[self._checked])
        app.router.add_post("/v1beta/models/{model}:generateContent", self.generate)
        app.router.add_post("/v1beta/models/{model}:batchGenerateContent", self.create_batch)
        app.router.add_post("/upload/v1beta/files", self.start_upload)
        app.router.add_post("/uploads/{id}", self.upload)
        app.router.add_get("/v1beta/files/{id}:download", self.download)
        app.router.add_get("/v1beta/files/{id}", self.get_file)
        app.router.add_delete("/v1beta/files/{id}", self.delete_file)
        app.router.add_get("/v1beta/batches", self.list_batches)
        app.router.add_get("/v1beta/batches/{id}", self.get_batch)
        app.router.add_get("/counts", self.counts)
        return app

    async def start(self, port: int = 0) -> GeminiServer:
        self._runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, backlog=2048)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        """What a client is given."""
        return f"http://127.0.0.1:{self.port}/v1beta"

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.headers.update(request.headers.values())
        if self.expected_key and request.headers.get("x-goog-api-key") != self.expected_key:
            return _error(400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT")
        held: web.StreamResponse = await handler(request)
        return held

    async def counts(self, request: web.Request) -> web.Response:
        """What the server was asked."""
        return web.json_response(self.faults.numbers() | {"uploads": self.uploads, "batches": len(self.batches)})

    async def generate(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        content = self.faults.count(raw)
        if self.faults.latency_s:
            await asyncio.sleep(self.faults.latency_s)
        body = json.loads(raw)
        self.bodies.append(body)
        for part in (part for turn in body["contents"] for part in turn["parts"]):
            uri = (part.get("fileData") or {}).get("fileUri")
            if uri is not None and f"files/{uri.rpartition('/')[2]}" not in self.files:
                return _error(403, "You do not have permission to access the File", "PERMISSION_DENIED")
        kind = self.faults.choose(content)
        good = json.dumps(self.response(body, content, request.match_info["model"], kind)).encode()
        if kind is None or kind in ANSWERS:
            return web.Response(body=good, content_type="application/json")
        return await wrong(request, kind, self.faults, good)

    def response(self, body: dict[str, Any], content: str, model: str, kind: str | None = None) -> dict[str, Any]:
        """A generateContent response's JSON."""
        usage = {
            "promptTokenCount": 80,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 5,
            "totalTokenCount": 105,
            "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 64}, {"modality": "TEXT", "tokenCount": 16}],
        }
        if kind == "refusal":
            return {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage}
        schema = body.get("generationConfig", {}).get("responseJsonSchema")
        text = json.dumps(fitting(schema, int(content[:8], 16))) if schema else f"answer {content[:12]}"
        if kind in ANSWERS:
            text = garbled(kind, text, self.faults)
        parts = [{"text": "thinking", "thought": True}, {"text": text}]
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        if body.get("generationConfig", {}).get("responseLogprobs"):
            listed = [{"token": "Yes", "logProbability": -0.2}, {"token": "No", "logProbability": -1.8}]
            candidate["logprobsResult"] = {"topCandidates": [{"candidates": listed}], "chosenCandidates": listed[:1]}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": f"{model}-001"}

    async def start_upload(self, request: web.Request) -> web.Response:
        """First half of a resumable upload."""
        assert request.headers["X-Goog-Upload-Command"] == "start"
        held = (await request.json())["file"]
        name = held.get("name") or f"files/{uuid.uuid4().hex}"
        if name in self.files:
            return _error(409, f"{name} already exists", "ALREADY_EXISTS")
        self.contents[name] = b""
        kind = request.headers["X-Goog-Upload-Header-Content-Type"]
        url = f"http://127.0.0.1:{self.port}/uploads/{name.removeprefix('files/')}?type={kind}"
        return web.Response(headers={"X-Goog-Upload-URL": url, "X-Goog-Upload-Status": "active"})

    async def upload(self, request: web.Request) -> web.Response:
        """Second half."""
        assert request.headers["X-Goog-Upload-Command"] == "upload, finalize"
        name = f"files/{request.match_info['id']}"
        self.uploads += 1
        kept = self._keep(name, await request.read(), request.query["type"])
        return web.json_response({"file": kept}, headers={"X-Goog-Upload-Status": "final"})

    def _keep(self, name: str, content: bytes, media_type: str) -> dict[str, Any]:
        self.contents[name] = content
        self.files[name] = {
            "name": name,
            "uri": f"http://127.0.0.1:{self.port}/v1beta/{name}",
            "mimeType": media_type,
            "sizeBytes": str(len(content)),
            "state": "ACTIVE",
            "expirationTime": datetime.fromtimestamp(time.time() + self.file_life_s, UTC).isoformat(),
        }
        return self.files[name]

    async def get_file(self, request: web.Request) -> web.Response:
        """A file's record; 403 for one that is not there, as Google answers."""
        held = self.files.get(f"files/{request.match_info['id']}")
        return web.json_response(held) if held else _error(403, "no permission, or no such file", "PERMISSION_DENIED")

    async def delete_file(self, request: web.Request) -> web.Response:
        self.files.pop(f"files/{request.match_info['id']}", None)
        return web.json_response({})

    async def download(self, request: web.Request) -> web.Response:
        """A file's content."""
        return web.Response(body=self.contents[f"files/{request.match_info['id']}"])

    async def create_batch(self, request: web.Request) -> web.Response:
        body = (await request.json())["batch"]
        name = f"batches/{uuid.uuid4().hex}"
        lines = self.contents[body["inputConfig"]["fileName"]].splitlines()
        for line in lines:
            self.faults.count(json.dumps(json.loads(line)["request"]).encode())
        made = {"at": time.time(), "lines": lines, "name": body["displayName"], "model": request.match_info["model"]}
        self.batches[name] = made
        return web.json_response(self._shown(name))

    async def list_batches(self, request: web.Request) -> web.Response:
        size, start = int(request.query.get("pageSize", "50")), int(request.query.get("pageToken", "0"))
        names = list(self.batches)[start : start + size]
        more = {"nextPageToken": str(start + size)} if start + size < len(self.batches) else {}
        return web.json_response({"operations": [self._shown(name) for name in names]} | more)

    async def get_batch(self, request: web.Request) -> web.Response:
        return web.json_response(self._shown(f"batches/{request.match_info['id']}"))

    def _shown(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        metadata = {"displayName": batch["name"], "model": f"models/{batch['model']}", "state": "BATCH_STATE_RUNNING"}
        if time.time() - batch["at"] < self.batch_s:
            return {"name": name, "metadata": metadata}
        if "output" not in batch:
            batch["output"] = f"files/{uuid.uuid4().hex}"
            held = b"".join(self._line(json.loads(line), batch["model"]) for line in batch["lines"])
            self._keep(batch["output"], held, "application/jsonl")
        metadata |= {"state": "BATCH_STATE_SUCCEEDED", "output": {"responsesFile": batch["output"]}}
        return {"name": name, "metadata": metadata, "done": True}

    def _line(self, line: dict[str, Any], model: str) -> bytes:
        content = hashlib.sha256(json.dumps(line["request"]).encode()).hexdigest()
        kind = self.faults.choose(content)
        held: dict[str, Any] = {"key": line["key"]}
        if kind is None or kind in ANSWERS:
            held["response"] = self.response(line["request"], content, model, kind)
        else:
            held["error"] = {"code": 13, "message": "internal"}
        return json.dumps(held).encode() + b"\n"


def _error(status: int, message: str, word: str) -> web.Response:
    return web.json_response({"error": {"code": status, "message": message, "status": word}}, status=status)


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--fault-rate", type=float, default=0.0)
    parser.add_argument("--faults", default=",".join(ALL))
    options = parser.parse_args()
    faults = Faults(options.fault_rate, tuple(options.faults.split(",")), latency_s=options.latency_ms / 1000)

    async def serve() -> None:
        server = await GeminiServer(faults).start(options.port)
        print(f"port={server.port}", flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
