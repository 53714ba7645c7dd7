"""Run a transformers model in this process: Qwen2-Audio and other audio models, or a text-only language model.

Yes/no comes from the logits of the first token, over the full vocabulary. Schemas do not constrain decoding; answers
are checked against them as everywhere.
"""

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
from jinja2 import TemplateError

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, MissingExtraError, model_fault
from earmark.schemas.questions import Audio, Image, Part, ScaleRating, Text, YesNo
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backend import Media, backend
from earmark.tasks.annotation.errors import AskError, BadRequest, Unsupported
from earmark.tasks.annotation.openai_compatible import read_chat_completion
from earmark.tasks.annotation.request import Request

GATHER_S = 0.01  # seconds a first request waits for others to join its group


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
    """Return samples (frames,), full scale ±1, and rate of a clip in its form."""
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


TEMPLATE_OPTIONS = "chat_template_kwargs"
"""Key in `extra_body` of options of the chat template, such as `enable_thinking`; the rest goes to `generate`."""


@backend("transformers", in_process=True, library=("transformers", "models"))
class TransformersLocal(InProcess):
    """`transformers:<name or folder>`; on a GPU if available."""

    def load(self) -> None:
        """Load processor and model.

        Raises:
            MissingExtraError: transformers or torch is missing.
            ConfigError: the model cannot be loaded.
        """
        try:
            import torch
            from transformers import (
                AutoConfig,
                AutoModelForCausalLM,
                AutoModelForMultimodalLM,
                AutoProcessor,
                AutoTokenizer,
            )
            from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING
        except ImportError:
            raise MissingExtraError("a transformers: annotator", "models") from None
        self._torch: Any = torch
        device = "cuda" if torch.cuda.is_available() else "cpu"
        kind = torch.bfloat16 if device == "cuda" else torch.float32
        try:
            safe = {"trust_remote_code": False}
            shape = AutoConfig.from_pretrained(self.model_name, **safe)
            self._text_alone = type(shape) not in MODEL_FOR_MULTIMODAL_LM_MAPPING
            made = AutoModelForCausalLM if self._text_alone else AutoModelForMultimodalLM
            words = AutoTokenizer if self._text_alone else AutoProcessor
            self._processor: Any = words.from_pretrained(self.model_name, **safe)
            model: Any = made.from_pretrained(self.model_name, dtype=kind, **safe)
            self._model = model.to(device).eval()
        except Exception as error:  # noqa: BLE001 - pickle, safetensors and transformers share no base of errors
            raise ConfigError(f"annotator 'transformers:{self.model_name}': {model_fault(error)}") from None
        self._tokenizer: Any = getattr(self._processor, "tokenizer", self._processor)
        if self._text_alone and self._tokenizer.chat_template is None:
            raise ConfigError(
                f"annotator 'transformers:{self.model_name}': has no chat template, so that it cannot be asked; name a "
                "model that is tuned to instructions"
            )
        self._rate: int | None = getattr(getattr(self._processor, "feature_extractor", None), "sampling_rate", None)

    def answer(self, requests: Sequence[Request]) -> list[str | AskError]:
        """Answer one by one: padding changes the numbers of small models, and batches must not matter."""
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> str | AskError:
        try:
            inputs = self._inputs(request)
        except AskError as error:
            return error
        with self._torch.inference_mode():
            if isinstance(request.ask, YesNo | ScaleRating):
                return self._first_token(request.ask, inputs)
            return self._text(request, inputs)

    def _inputs(self, request: Request) -> Any:
        if self._text_alone:
            return self._text_inputs(request)
        if any(isinstance(part, Image) for part in request.parts()):
            raise BadRequest("transformers: annotators take audio and text, found an image")
        clips = []
        for part in request.parts():
            if isinstance(part, Audio):
                samples, rate = waveform(self.media, part)
                if self._rate is not None and rate != self._rate:
                    raise BadRequest(f"the model hears {self._rate} Hz, found a form of {rate} Hz; set the audio form")
                clips.append(samples)
        prompt = self._templated(request, chat(request))
        held = {"audio": clips, "sampling_rate": self._rate} if clips else {}
        return self._processor(text=prompt, return_tensors="pt", **held).to(self._model.device)

    def _text_inputs(self, request: Request) -> Any:
        if not all(isinstance(part, Text) for part in request.parts()):
            raise Unsupported(f"transformers:{self.model_name} reads text alone, found a clip or an image")
        turns = [{"role": one.role, "content": "\n".join(map(_written, one.parts))} for one in request.messages]
        try:
            prompt = self._templated(request, turns)
        except TemplateError:
            if [turn["role"] for turn in turns[:2]] != ["system", "user"]:
                raise
            first = {"role": "user", "content": f"{turns[0]['content']}\n\n{turns[1]['content']}"}
            prompt = self._templated(request, [first, *turns[2:]])  # its template has no system turn, as Gemma's
        return self._tokenizer(prompt, add_special_tokens=False, return_tensors="pt").to(self._model.device)

    def _templated(self, request: Request, turns: list[dict[str, Any]]) -> str:
        options = _extra(request).get(TEMPLATE_OPTIONS, {})
        return str(self._processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **options))

    def _first_token(self, ask: YesNo | ScaleRating, inputs: Any) -> str | AskError:
        logits = self._model(**inputs).logits[0, -1]
        logprobs = self._torch.log_softmax(logits.float(), dim=-1)
        tokenizer = self._tokenizer
        listed: dict[str, float] = {}
        for word in ask.words:
            ids = {
                tokenizer.encode(form, add_special_tokens=False)[0]
                for form in (word, f" {word}")
                if _one(tokenizer, form)
            }
            if not ids:
                return BadRequest(f"expected '{word}' to be one token of this model, found several; choose other words")
            listed[word] = float(self._torch.logsumexp(logprobs[list(ids)], dim=0))
        return completion(
            self.model_name,
            max(listed, key=lambda w: listed[w]),
            tokens_in=inputs["input_ids"].shape[1],
            tokens_out=1,
            first_token=listed,
        )

    def _text(self, request: Request, inputs: Any) -> str:
        sampling = request.sampling
        options: dict[str, Any] = {"max_new_tokens": sampling.max_tokens, "do_sample": bool(request.temperature)}
        if request.temperature:
            options |= {"temperature": request.temperature, "top_p": sampling.top_p or 1.0}
            self._torch.manual_seed((sampling.seed or 0) * 100_003 + request.sample + 1_009 * request.repair)
        further = {name: value for name, value in _extra(request).items() if name != TEMPLATE_OPTIONS}
        made = self._model.generate(**inputs, **options | further)
        tokens_in = inputs["input_ids"].shape[1]
        new = made[0, tokens_in:]
        text = self._tokenizer.decode(new, skip_special_tokens=True)
        for stop in sampling.stop:
            text = text.partition(stop)[0]
        cut = len(new) >= sampling.max_tokens
        return completion(self.model_name, text, tokens_in=tokens_in, tokens_out=len(new), cut=cut)


def _extra(request: Request) -> dict[str, Any]:
    return dict(json.loads(request.sampling.extra))


def _written(part: Part) -> str:
    return part.text if isinstance(part, Text) else ""


def _one(tokenizer: Any, word: str) -> bool:
    return len(tokenizer.encode(word, add_special_tokens=False)) == 1
