"""A model of transformers in this process: Qwen2-Audio and others that take audio and text.

Yes/no comes from the logits of the first token, over the full vocabulary. Schemas are not enforced while decoding;
answers are checked against them as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.tasks.annotation.errors import AskError, BadRequest
from earmark.tasks.annotation.inprocess import InProcess, chat, completion, waveform
from earmark.tasks.annotation.request import Audio, Image, Rating, Request, YesNo


class TransformersLocal(InProcess):
    """`transformers:<name or folder>`; on a GPU if there is one."""

    def load(self) -> None:
        """Load processor and model.

        Raises:
            MissingExtraError: transformers or torch is missing.
            ConfigError: the model cannot be loaded.
        """
        try:
            import torch
            from transformers import AutoModelForMultimodalLM, AutoProcessor
        except ImportError:
            raise MissingExtraError("a transformers: annotator", "audio") from None
        self._torch: Any = torch
        device = "cuda" if torch.cuda.is_available() else "cpu"
        kind = torch.bfloat16 if device == "cuda" else torch.float32
        try:
            self._processor: Any = AutoProcessor.from_pretrained(self.model_name)
            self._model: Any = AutoModelForMultimodalLM.from_pretrained(self.model_name, dtype=kind).to(device).eval()
        except (OSError, ValueError) as error:
            raise ConfigError(f"annotator 'transformers:{self.model_name}': {' '.join(str(error).split())}") from None
        self._rate: int | None = getattr(getattr(self._processor, "feature_extractor", None), "sampling_rate", None)

    def answer(self, requests: Sequence[Request]) -> list[str | AskError]:
        """One by one: padding changes the numbers of small models, and answers must not depend on their company."""
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> str | AskError:
        try:
            inputs = self._inputs(request)
        except AskError as error:
            return error
        with self._torch.inference_mode():
            if isinstance(request.ask, YesNo | Rating):
                return self._first_token(request.ask, inputs)
            return self._text(request, inputs)

    def _inputs(self, request: Request) -> Any:
        if any(isinstance(part, Image) for part in request.parts()):
            raise BadRequest("transformers: annotators take audio and text, found an image")
        clips = []
        for part in request.parts():
            if isinstance(part, Audio):
                samples, rate = waveform(self.media, part)
                if self._rate is not None and rate != self._rate:
                    raise BadRequest(f"the model hears {self._rate} Hz, found a form of {rate} Hz; set the audio form")
                clips.append(samples)
        prompt = self._processor.apply_chat_template(chat(request), add_generation_prompt=True, tokenize=False)
        held = {"audio": clips, "sampling_rate": self._rate} if clips else {}
        return self._processor(text=prompt, return_tensors="pt", **held).to(self._model.device)

    def _first_token(self, ask: YesNo | Rating, inputs: Any) -> str | AskError:
        logits = self._model(**inputs).logits[0, -1]
        logprobs = self._torch.log_softmax(logits.float(), dim=-1)
        tokenizer = self._processor.tokenizer
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
        made = self._model.generate(**inputs, **options | json.loads(sampling.extra))
        tokens_in = inputs["input_ids"].shape[1]
        new = made[0, tokens_in:]
        text = self._processor.tokenizer.decode(new, skip_special_tokens=True)
        for stop in sampling.stop:
            text = text.partition(stop)[0]
        cut = len(new) >= sampling.max_tokens
        return completion(self.model_name, text, tokens_in=tokens_in, tokens_out=len(new), cut=cut)


def _one(tokenizer: Any, word: str) -> bool:
    return len(tokenizer.encode(word, add_special_tokens=False)) == 1
