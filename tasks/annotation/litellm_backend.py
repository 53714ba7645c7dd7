"""Ask `litellm:PROVIDER/MODEL` through LiteLLM's library: providers without OpenAI's chat completions.

A provider's key goes to the provider's own host, as LiteLLM reads it from the environment. A `base_url` gets a key
bound to its host in the environment (`tasks/annotation/keys.py`), or none. There are no provider batches.
"""

import asyncio
import json
import os
import re
from contextlib import suppress
from typing import Any

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backend import Media, backend
from earmark.tasks.annotation.errors import ConnectionFailed, ServerError, TimedOut
from earmark.tasks.annotation.http import SHORTEST_SECRET, json_bytes
from earmark.tasks.annotation.keys import find_key
from earmark.tasks.annotation.openai_compatible import (
    TOP_LOGPROBS,
    constrain,
    message_body,
    read_chat_completion,
    sampled,
)
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.server_faults import fault_of

KNOWN_FIELDS = frozenset(
    {"frequency_penalty", "min_p", "presence_penalty", "reasoning_effort", "service_tier", "thinking", "top_k"}
)
"""Names allowed in `extra_body`: others are LiteLLM's own options, which could send a key elsewhere."""
SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|JWT|CREDENTIALS?)$", re.IGNORECASE)
"""Names of variables with a secret, as LiteLLM's providers have them (`AWS_SECRET_ACCESS_KEY`, `WATSONX_APIKEY`)."""
ELSEWHERE = frozenset(
    {
        *(
            "anthropic",
            "cerebras",
            "cohere",
            "deepseek",
            "fireworks_ai",
            "gemini",
            "groq",
            "hosted_vllm",
            "litellm_proxy",
        ),
        *("lm_studio", "mistral", "ollama", "ollama_chat", "openai", "openrouter", "perplexity", "together_ai", "xai"),
    }
)
"""Providers that `base_url` may move to another host: they know only a key, and no token of the machine's."""


@backend("litellm", hosted=True, library=("litellm", "litellm"))
class LiteLLM:
    """Client of `litellm.acompletion`, with answers in the form of chat completions.

    Raises:
        ConfigError: the model, `extra_body`, `api_key_env` or `base_url` is invalid.
    """

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        self._config, self._media = config, media
        self._name = config.annotator.partition(":")[2]
        provider, slash, _ = self._name.partition("/")
        if not slash or not re.fullmatch(r"[a-z][a-z0-9_]*", provider) or "://" in self._name:
            raise ConfigError(f"annotator '{config.annotator}': expected litellm:PROVIDER/MODEL, as litellm:groq/NAME")
        if unknown := sorted(config.extra_body.keys() - KNOWN_FIELDS):
            raise ConfigError(
                f"extra_body.{unknown[0]}: a litellm: annotator takes {', '.join(sorted(KNOWN_FIELDS))} alone; other "
                "fields go to an OpenAI-compatible address (openai: with base_url)"
            )
        if config.base_url is None and config.api_key_env is not None:
            raise ConfigError("api_key_env: a litellm: annotator needs base_url with it; else LiteLLM reads its own")
        if config.base_url is not None and provider not in ELSEWHERE:
            raise ConfigError(f"base_url: '{provider}' has its own address in LiteLLM; known for base_url: "
                              f"{', '.join(sorted(ELSEWHERE))}")  # fmt: skip
        usual = (f"{provider.upper()}_API_KEY",)
        self._key = find_key(config.base_url or "https://x", config.api_key_env, usual, hosted=False).value
        self._where = config.base_url or provider
        self._litellm: Any = None

    async def open(self) -> None:
        """Load the library, without any requests.

        Raises:
            MissingExtraError: it is not installed.
        """
        self._litellm = await asyncio.to_thread(_library)  # the import takes seconds

    async def close(self) -> None:
        """Close the library's connections."""
        with suppress(AttributeError):
            await self._litellm.close_litellm_async_clients()

    async def send(self, request: Request) -> str:
        """Ask once and return the answer as a chat completion."""
        try:
            answer = await self._litellm.acompletion(**self._options(request))
        except self._litellm.exceptions.Timeout:
            raise TimedOut("total", self._config.total_timeout_s) from None
        except self._litellm.exceptions.APIConnectionError as error:
            raise ConnectionFailed(self._redacted(str(error))) from None
        except Exception as error:  # noqa: BLE001 - the library's faults share no base; some have a status
            if not isinstance(status := getattr(error, "status_code", None), int) or status < 400:
                raise ServerError(self._redacted(f"{type(error).__name__}: {error}")) from None
            said = json.dumps({"error": {"message": self._redacted(str(getattr(error, "message", error)))}})
            headers = getattr(getattr(error, "response", None), "headers", None) or {}
            raise fault_of(status, said, headers, where=self._where, advice="check the provider's key") from None
        return self._redacted(str(answer.model_dump_json()))

    def read(self, request: Request, raw: str) -> Reply:
        """Read the chat completion."""
        return read_chat_completion(raw)

    def _options(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._name,
            "messages": [message_body(message, self._media) for message in request.messages],
            "max_tokens": request.sampling.max_tokens,
            **sampled(request),
            **json.loads(request.sampling.extra),
        }
        constrain(body, request.ask, request.sampling, "max_tokens", TOP_LOGPROBS, narrow=False)
        config = self._config
        plain: dict[str, Any] = json.loads(json_bytes(body))
        server = {"api_base": config.base_url, "api_key": self._key or "none"} if config.base_url else {}
        return plain | server | {"timeout": config.total_timeout_s, "num_retries": 0, "max_retries": 0}

    def _redacted(self, text: str) -> str:
        """Redact keys: the config's, and the library's in the environment."""
        held = {value for name, value in os.environ.items() if SECRET.search(name)}
        for secret in {self._key, *held}:
            text = text.replace(secret, "[redacted]") if len(secret) >= SHORTEST_SECRET else text
        return text


def _library() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches a table of prices
    try:
        import litellm
    except ImportError:
        raise MissingExtraError("a litellm: annotator", "litellm") from None
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    return litellm
