"""Servers with provider batches in trouble."""

from __future__ import annotations

import json
import time
from typing import Any

from aiohttp import web

from tests.servers.openai_server import OpenAIServer


class Provider(OpenAIServer):
    """A batch API with one trouble at a time."""

    trouble = ""
    looks = pages = 0
    list_fault, list_faulty_s = 0, 0.0  # status of the list of batches, for so long after it is first asked for
    listed_at = 0.0
    inside = False  # whether that fault is sent as a success
    shows_counts = False  # whether a batch shows the number of its lines
    unlisted = 0  # number of these in no file, as failed

    def _work_off(self, batch: dict[str, Any]) -> None:
        super()._work_off(batch)
        lines = [json.loads(line) for line in self.files[batch["output_file_id"]].split(b"\n") if line]
        if self.trouble == "bad line" and batch is next(iter(self.batches.values())):
            texts = [json.dumps(line) for line in lines]
            texts[3] = texts[3][:40]
        elif self.trouble == "quota":
            said = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
            for line in lines[len(lines) // 2 :]:
                line["response"] = {"status_code": 429, "body": said}
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "cancelled":
            texts = [json.dumps(line) for line in lines[: len(lines) // 2]]
            unasked = {"response": None, "error": {"code": "batch_cancelled", "message": "This batch was cancelled."}}
            batch["error_file_id"] = self._keep([lines[-1] | unasked])
        elif self.trouble == "words":
            for line in lines:
                answer = line["response"]
                line |= {"response": {"status_code": "200", "body": json.dumps(answer["body"])}, "error": {}}
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "other protocol":
            for line in lines:
                line["response"]["body"] = {"output": line["response"]["body"]}
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "hard rows":  # the same rows at every attempt
            asked = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
            said = {one["custom_id"]: json.dumps(one["body"]) for one in asked}
            for line in lines:
                if any(f'pair {row}"' in said[line["custom_id"]] for row in range(6)):
                    line["response"]["body"]["choices"][0]["finish_reason"] = "other"
            texts = [json.dumps(line) for line in lines]
        elif self.trouble in ("other ids", "loading"):
            for line in lines:
                if self.trouble == "loading":
                    line["response"] = {"status_code": 503, "body": {"error": {"message": "The model is loading"}}}
                else:
                    line["custom_id"] = line["custom_id"].upper()
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "empty errors":
            for line in lines:
                line |= {"response": {"body": line["response"]["body"]}, "error": {"code": None, "message": None}}
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "key":
            for line in lines[len(lines) // 2 :]:
                line["response"]["body"] = {"error": {"message": "API key expired", "code": "invalid_api_key"}}
            texts = [json.dumps(line) for line in lines]
        else:
            texts = [json.dumps(line, ensure_ascii=False) for line in lines]  # separators stand as they are
        self.files[batch["output_file_id"]] = ("\n".join(texts) + "\n").encode()

    def _shown(self, batch: dict[str, Any]) -> dict[str, Any]:
        shown = super()._shown(batch)
        self.looks += 1
        if self.shows_counts and shown["status"] == "completed":
            counts = {"total": batch["lines"], "completed": batch["lines"] - self.unlisted, "failed": self.unlisted}
            shown["request_counts"] = counts
        if self.trouble == "own state":
            return shown | {"status": {"completed": "DONE", "in_progress": "IN_QUEUE"}[shown["status"]]}
        if self.trouble == "late" and shown["status"] == "completed" and self.looks < 12:
            return shown | {"output_file_id": None, "error_file_id": None}
        if self.trouble == "cancelled" and shown["status"] == "completed":
            return shown | {"status": "cancelled"}
        if self.trouble == "failed":
            errors = {"data": [{"code": "invalid", "message": "The file holds a line that is no request."}]}
            return shown | {"status": "failed", "errors": errors, "output_file_id": None, "error_file_id": None}
        if self.trouble == "never room":
            errors = {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached."}]}
            return shown | {"status": "failed", "errors": errors, "output_file_id": None, "error_file_id": None}
        if self.trouble == "full":
            mine, held = batch["created_at"], self.batches.values()
            if batch.get("full") or (
                "met" not in batch and any(one["created_at"] < mine and one.get("open", True) for one in held)
            ):
                batch["full"], batch["open"] = True, False
                errors = {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached."}]}
                return shown | {"status": "failed", "errors": errors, "output_file_id": None, "error_file_id": None}
            batch["met"], batch["open"] = True, shown["status"] != "completed"
        return shown

    async def get_batch(self, request: web.Request) -> web.Response:
        """One batch; of the first, nobody knows anything if that is the trouble."""
        if self.trouble == "gone" and request.match_info["id"] == next(iter(self.batches)):
            return web.json_response({"error": {"message": "No batch found with id"}}, status=404)
        if self.trouble == "page for a state" and self.pages < 2:
            self.pages += 1
            return web.Response(text="<html><title>Bad gateway</title></html>", content_type="text/html")
        return await super().get_batch(request)

    async def download(self, request: web.Request) -> web.Response:
        """A file; twice a gateway's page in its place, or never more than nothing, if that is the trouble."""
        if self.trouble == "empty" or (self.trouble == "empty at first" and self.pages < 2):
            self.pages += 1
            return web.Response(body=b"\n", content_type="application/octet-stream")
        if self.trouble.startswith("half") and self.pages < (2 if self.trouble == "half at first" else 1_000):
            self.pages += 1
            content = self.files[request.match_info["id"]]
            lines = content.splitlines(keepends=True)
            half = b"".join(lines[: len(lines) // 2]) if self.trouble == "half" else content[: len(content) // 2]
            return web.Response(body=half, content_type="application/octet-stream")
        if self.trouble == "page for results" and self.pages < 2:
            self.pages += 1
            return web.Response(text="<html>\n<title>Sign in</title>\n</html>", content_type="text/html")
        return await super().download(request)

    async def list_batches(self, request: web.Request) -> web.Response:
        self.listed_at = self.listed_at or time.monotonic()
        if time.monotonic() - self.listed_at < self.list_faulty_s:
            said = {"error": {"message": "not now", "code": 401 if self.list_fault == 401 else None}}
            return web.json_response(said, status=200 if self.inside else self.list_fault)
        return await super().list_batches(request)


class Forgetful(Provider):
    """A batch API that keeps no metadata."""

    lists_files = True

    async def create_batch(self, request: web.Request) -> web.StreamResponse:
        try:
            return await super().create_batch(request)
        finally:
            for batch in self.batches.values():
                batch["metadata"] = None

    async def list_files(self, request: web.Request) -> web.Response:
        listed = await super().list_files(request)
        return listed if self.lists_files else web.json_response({"detail": "Method Not Allowed"}, status=405)


class Busy(Forgetful):
    """An account with a batch of somebody else, on a server that is busy at first and never lists files."""

    busy = 1

    async def create_batch(self, request: web.Request) -> web.StreamResponse:
        if self.busy:
            self.busy -= 1
            return web.json_response({"error": {"message": "busy"}}, status=503)
        return await super().create_batch(request)

    async def list_files(self, request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "not implemented"}}, status=501)
