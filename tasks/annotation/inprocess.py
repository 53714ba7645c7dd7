"""Run a model in this process: gather requests, answer them in groups in a thread, and return chat completions."""

from __future__ import annotations

import asyncio
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Audio, Image, Part, Text
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.errors import AskError
from earmark.tasks.annotation.openai_compatible import read_chat_completion
from earmark.tasks.annotation.request import Request

GATHER_S = 0.01
"""Seconds a first request waits for others to join its group."""


class InProcess(ABC):
    """Model in this process. Subclasses load it and answer groups of requests; both run in one thread."""

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        self.config = config
        self.media = media
        self.model_name = config.annotator.partition(":")[2]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._waiting: list[tuple[Request, asyncio.Future[str]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()

    @abstractmethod
    def load(self) -> None:
        """Load the model.

        Raises:
            MissingExtraError: a library is missing.
        """

    @abstractmethod
    def answer(self, requests: Sequence[Request]) -> list[str | AskError]:
        """Return the raw answers of a group, in order; a request without an answer gets its fault."""

    async def open(self) -> None:
        """Load the model in its thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self.load)
        self._worker = asyncio.create_task(self._work())

    async def send(self, request: Request) -> str:
        """Ask once, together with other waiting requests."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._arrived.set()
        return await future

    def read(self, request: Request, raw: str) -> Reply:
        """Read an answer."""
        return read_chat_completion(raw)

    async def close(self) -> None:
        """End the thread; memory is freed with the object."""
        if self._worker:
            self._worker.cancel()
        self._thread.shutdown(wait=True)

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await asyncio.sleep(GATHER_S)
            while self._waiting:
                group = self._waiting[: self.config.inline_batch]
                del self._waiting[: len(group)]
                await self._answer_group(group)

    async def _answer_group(self, group: list[tuple[Request, asyncio.Future[str]]]) -> None:
        requests = [request for request, _ in group]
        held: list[str | AskError]
        try:
            held = await asyncio.get_running_loop().run_in_executor(self._thread, self.answer, requests)
        except Exception as error:  # noqa: BLE001 - any fault must reach the waiting callers
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(group, held, strict=True):
            if future.done():
                continue
            if isinstance(answer, AskError):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def completion(
    model: str,
    text: str,
    *,
    tokens_in: int,
    tokens_out: int,
    cut: bool = False,
    first_token: dict[str, float] | None = None,
) -> str:
    """Return a chat completion as JSON.

    Args:
        first_token: alternatives of the first token with natural log-probabilities; infinite values are dropped.
    """
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "length" if cut else "stop",
    }
    if first_token is not None:
        listed = [{"token": token, "logprob": value} for token, value in first_token.items() if math.isfinite(value)]
        if listed:
            best = max(listed, key=lambda item: float(str(item["logprob"])))
            choice["logprobs"] = {"content": [{**best, "top_logprobs": listed}]}
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
    return json.dumps({"model": model, "choices": [choice], "usage": usage})


def chat(request: Request) -> list[dict[str, Any]]:
    """Return the messages for chat templates, with a bare mark for each clip and image."""
    return [{"role": m.role, "content": [_content(part) for part in m.parts]} for m in request.messages]


def waveform(media: Media, part: Audio) -> tuple[npt.NDArray[np.float32], int]:
    """Return samples (frames,), full scale ±1, and rate of a clip in its form.

    Raises:
        BadMedia: it cannot be read.
    """
    samples, rate = soundfile.read(io.BytesIO(media.audio(part)), dtype="float32", always_2d=True)
    return samples.mean(axis=1), int(rate)


def _content(part: Part) -> dict[str, str]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Audio():
            return {"type": "audio"}
        case Image():
            return {"type": "image"}
