"""vLLM's offline engine in this process: batched, with structured outputs and log-probabilities.

For P(yes) exactly the two words' tokens are asked for (`logprob_token_ids`): full-vocabulary log-probabilities, where
those under a structured choice would be masked and split over prefixes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from earmark.schemas.errors import MissingExtraError
from earmark.tasks.annotation.bodies import json_bytes
from earmark.tasks.annotation.errors import AskError, BadRequest
from earmark.tasks.annotation.inprocess import InProcess, completion
from earmark.tasks.annotation.openai_compatible import message_body, sampled
from earmark.tasks.annotation.request import Choice, Json, Rating, Request, Sampling, YesNo

ENGINE_FIELD = "engine"
"""Field of `extra_body` whose fields go to `vllm.LLM`; all others go to `SamplingParams`."""


class VllmOffline(InProcess):
    """`vllm:<name or folder>`; arguments of the engine stand under `extra_body.engine`."""

    def load(self) -> None:
        """Load the engine.

        Raises:
            MissingExtraError: vllm is missing.
        """
        try:
            from vllm import LLM
        except ImportError:
            raise MissingExtraError("a vllm: annotator", "cuda") from None
        options = {"limit_mm_per_prompt": {"audio": 8, "image": 8}, "seed": self.config.seed or 0}
        self._llm: Any = LLM(model=self.model_name, **options | dict(self.config.extra_body.get(ENGINE_FIELD, {})))

    def answer(self, requests: Sequence[Request]) -> list[str | AskError]:
        """A group in one call of the engine; what cannot be prepared does not hold up the rest."""
        held: list[str | AskError | None] = []
        chats: list[Any] = []
        for request in requests:
            try:
                chats.append((self._messages(request), self._params(request)))
                held.append(None)
            except AskError as error:
                held.append(error)
        outputs = iter(self._chat(chats))
        asked = [request for request, fault in zip(requests, held, strict=True) if fault is None]
        answers = iter([self._answer(request, output) for request, output in zip(asked, outputs, strict=True)])
        return [next(answers) if fault is None else fault for fault in held]

    def _chat(self, chats: list[Any]) -> list[Any]:
        if not chats:
            return []
        messages, params = [chat for chat, _ in chats], [param for _, param in chats]
        return list(self._llm.chat(messages, params, use_tqdm=False))

    def _messages(self, request: Request) -> list[dict[str, Any]]:
        bodies = [message_body(message, self.media) for message in request.messages]
        messages: list[dict[str, Any]] = json.loads(json_bytes(bodies))
        return messages

    def _params(self, request: Request) -> Any:
        from vllm import SamplingParams

        sampling = request.sampling
        options: dict[str, Any] = {"max_tokens": sampling.max_tokens, **sampled(request)}
        options |= {name: value for name, value in json.loads(sampling.extra).items() if name != ENGINE_FIELD}
        return SamplingParams(**options | self._constraint(request, sampling))

    def _constraint(self, request: Request, sampling: Sampling) -> dict[str, Any]:
        match request.ask:
            case YesNo() | Rating() as ask:
                named = sampling.yes_no_token_ids if isinstance(ask, YesNo) else None
                ids = list(named or map(self._token, ask.words))
                return {"max_tokens": 1, "logprob_token_ids": ids}
            case Json(schema, _) if sampling.structured != "none":
                return {"structured_outputs": _structured(json=json.loads(schema))}
            case Choice(choices) if sampling.structured != "none":
                return {"structured_outputs": _structured(choice=list(choices))}
        return {}

    def _token(self, word: str) -> int:
        ids = self._llm.get_tokenizer().encode(word, add_special_tokens=False)
        if len(ids) != 1:
            raise BadRequest(f"expected '{word}' to be one token of this model, found {len(ids)}; choose other words")
        return int(ids[0])

    def _answer(self, request: Request, output: Any) -> str:
        said = output.outputs[0]
        first = None
        if isinstance(request.ask, YesNo | Rating) and said.logprobs:
            tokenizer = self._llm.get_tokenizer()
            first = {tokenizer.decode([token]): float(held.logprob) for token, held in said.logprobs[0].items()}
        return completion(
            self.model_name,
            said.text,
            tokens_in=len(output.prompt_token_ids or ()),
            tokens_out=len(said.token_ids),
            cut=said.finish_reason == "length" and not isinstance(request.ask, YesNo | Rating),
            first_token=first,
        )


def _structured(**options: Any) -> Any:
    from vllm.sampling_params import StructuredOutputsParams

    return StructuredOutputsParams(**options)
