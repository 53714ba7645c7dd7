"""Config of an annotator: which model is asked, how fast, with what patience and for how much money."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from earmark.schemas.config import Model
from earmark.schemas.registry import OneOf

BACKENDS = OneOf("earmark.tasks.annotation.backends:BACKENDS", "backend:model")
Seconds = Annotated[float, Field(gt=0)]
Dollars = Annotated[float, Field(ge=0)]
AGAIN_TEMPERATURE = 0.7
"""The default, which request keys do not name: answers from before it was an option keep their keys."""


class Prices(Model):
    """What a provider charges, in US dollars per million tokens."""

    input_per_million: Dollars = Field(description="Text and image tokens in.")
    output_per_million: Dollars = Field(description="Tokens out.")
    audio_input_per_million: Dollars | None = Field(default=None, description="Audio tokens in, where they differ.")
    batch_discount: float = Field(default=0.5, ge=0, le=1, description="Share taken off in the provider's batch API.")


@cache
def known_prices() -> dict[str, Prices]:
    """List prices by annotator, from `prices.json`: a dated copy of a part of LiteLLM's table (MIT).

    Prices of prompts beyond 200,000 tokens and of cached tokens are not in it.
    """
    table = json.loads(Path(__file__).with_name("prices.json").read_text("utf-8"))["usd_per_million_tokens"]
    names = ("input_per_million", "output_per_million", "audio_input_per_million")
    return {name: Prices(**dict(zip(names, prices, strict=False))) for name, prices in table.items()}


class Limits(Model):
    """What a model can hear and hold. What is not given comes from the table in `tasks/annotation/limits.py`."""

    clip_s: Seconds | None = Field(default=None, description="Longest clip that is heard, in seconds.")
    audio_s: Seconds | None = Field(default=None, description="Most audio in one request, in seconds.")
    clips: int | None = Field(default=None, ge=0, description="Most audio clips in one request.")
    images: int | None = Field(default=None, ge=0, description="Most images in one request.")
    context_tokens: int | None = Field(default=None, ge=1, description="Most tokens in and out together.")


class Hearing(Model):
    """The form in which a model gets audio."""

    sample_rate_hz: int = Field(default=16_000, ge=8_000, le=192_000, description="Samples a second.")
    channels: Literal[1, 2] = Field(default=1, description="1 mixes down.")
    codec: Literal["wav", "flac"] = Field(default="wav", description="How clips are sent.")
    longest_s: float | None = Field(default=None, gt=0, description="What lies beyond is cut.")


class AnnotatorConfig(Model):
    """An annotator: one model behind one backend. Secrets are never here; they come from the environment."""

    annotator: Annotated[str, BACKENDS] = Field(
        description="`backend:model`, such as `openai:gpt-4.1-mini` or `builtin:music-pair-2`."
    )
    base_url: str | None = Field(default=None, description="The server, up to and with `/v1`; not part of any key.")
    api_key_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Name of the environment variable that holds the key, if not the backend's usual one; "
        "EARMARK_KEY_HOSTS must bind it to the server's host.",
    )

    temperature: float | None = Field(default=0.0, ge=0, le=2, description="None leaves it to the server.")
    again_temperature: float = Field(
        default=AGAIN_TEMPERATURE,
        ge=0,
        le=2,
        description="Where `temperature` is 0, that of a question asked again: at 0 a model says the same.",
    )
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus of sampling; None leaves it out.")
    seed: int | None = Field(default=None, ge=0, description="Seed of sampling, where the model takes one.")
    max_tokens: int = Field(default=1024, ge=1, description="Most tokens of one answer; enters the worst-case cost.")
    extra_body: dict[str, Any] = Field(
        default={}, description="Further fields of the request's body, such as vLLM's own; part of the key."
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="How the server names the cap; reasoning models of OpenAI want the longer."
    )
    structured: Literal["response_format", "vllm", "none"] = Field(
        default="response_format",
        description="How a schema reaches an OpenAI-compatible server; answers are checked against it in any case.",
    )
    yes_no_token_ids: tuple[int, int] | None = Field(
        default=None, description="vLLM: ids of the tokens Yes and No, for exact log-probabilities."
    )

    max_concurrency: int = Field(default=32, ge=1, le=4096, description="Most requests in flight.")
    requests_per_minute: float | None = Field(
        default=None, gt=0, description="Most requests a minute, of all processes that share the ledger together."
    )
    tokens_per_minute: float | None = Field(
        default=None, gt=0, description="Most tokens a minute, in and out, of all these processes together."
    )
    quota: str | None = Field(
        default=None,
        min_length=1,
        description="Annotators that name the same one share the caps a minute; else those of one model and server.",
    )
    retries: int = Field(default=6, ge=0, le=100, description="Times a failed exchange is tried again.")
    repairs: int = Field(default=2, ge=0, le=20, description="Times an unusable answer is asked again.")
    repair: Literal["draw", "explain"] = Field(
        default="draw",
        description="How a question is asked again: `draw` in the same words; `explain` also shows the last answer, "
        "fenced as data, and what was wrong with it.",
    )
    retry_base_s: Seconds = Field(default=1.0, description="First wait; doubles each time, with jitter.")
    retry_longest_s: Seconds = Field(default=60.0, description="Longest wait between two tries.")
    connect_timeout_s: Seconds = Field(default=10.0, description="Longest wait for a connection.")
    read_timeout_s: Seconds = Field(default=300.0, description="Longest silence on an open connection.")
    total_timeout_s: Seconds = Field(default=600.0, description="Longest exchange.")
    stalled_after_s: Seconds = Field(
        default=120.0, description="Without a completion for so long, say what is awaited."
    )
    most_response_bytes: int = Field(default=8 << 20, ge=1024, description="A longer response is cut off and refused.")

    budget_usd: Dollars | None = Field(
        default=None, description="What one run may cost; it stops before it would cost more. Counts only with prices."
    )
    prices: Prices | None = Field(
        default=None,
        description="Needed for a budget and for costs; where none are given, the list prices of `schemas/prices.json` "
        "for models on OpenAI's and Google's own servers.",
    )
    on_limit: Literal["refuse", "cut"] = Field(
        default="refuse", description="What happens to audio beyond the model's limits; the answer records a cut."
    )
    limits: Limits = Field(default=Limits(), description="What the model takes, where it is not known.")

    batch: bool = Field(default=False, description="Use the provider's batch API: cheaper, answered within a day.")
    batch_requests: int = Field(default=20_000, ge=1, le=50_000, description="Most requests in one provider batch.")
    batch_bytes: int = Field(default=150 << 20, ge=1 << 10, description="Most bytes in one provider batch.")
    batch_poll_s: Seconds = Field(default=30.0, description="Wait between two looks at a provider batch.")
    batch_settle_s: float = Field(
        default=30.0, ge=0, description="How long a submission of unknown fate is looked for before it is sent again."
    )
    files_api_bytes: int = Field(
        default=8 << 20, ge=0, description="Gemini: requests with more media than this go through the Files API."
    )
    inline_batch: int = Field(default=16, ge=1, description="vllm: and transformers: requests per model call.")

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("expected http://host/path or https://host/path")
        if url.username or url.password or url.query:
            raise ValueError("expected no user, password or query in the address; keys come from the environment")
        return value.rstrip("/")

    @property
    def charged(self) -> Prices | None:
        """What is counted: the config's prices, or on a provider's own server its list prices, where they are known."""
        return self.prices or (known_prices().get(self.annotator) if self.base_url is None else None)

    @model_validator(mode="after")
    def _money(self) -> Self:
        provider = BACKENDS.find(self.annotator)
        if self.budget_usd is not None and self.charged is None and provider.hosted and self.base_url is None:
            raise ValueError(
                f"budget_usd needs [prices]: input_per_million and output_per_million; no price of '{self.annotator}' "
                "is known"
            )
        if self.batch and not provider.batches:
            raise ValueError(f"batch = true needs an annotator with a batch API, and '{self.annotator}' has none")
        return self

    @model_validator(mode="after")
    def _asks_differently(self) -> Self:
        again = self.repairs > 0 or getattr(self, "tries", 1) > 1
        same = self.temperature == 0 == self.again_temperature and self.repair == "draw"
        if again and same and not self.annotator.startswith("builtin:"):
            raise ValueError(
                "again_temperature = 0 with temperature = 0 pays for the same answer again: set it above 0, or "
                'repair to "explain", or repairs to 0 and tries, where there are any, to 1'
            )
        return self


class Asked(AnnotatorConfig):
    """Who is asked while a corpus is built."""

    most_failed: float = Field(
        default=0.02,
        ge=0,
        le=1,
        description="Share of requests that may stay without an answer; with more, the build stops, to be resumed.",
    )


class Drawn(Asked):
    """Who is asked for another draw where an answer does not pass its checks."""

    seed: int | None = Field(default=17, ge=0, description="Each draw adds its number; None leaves it to the server.")


DECIDES = (
    "annotator", "temperature", "again_temperature", "top_p", "seed", "max_tokens", "extra_body", "structured",
    "repairs", "repair", "on_limit", "limits", "yes_no_token_ids",
)  # fmt: skip
"""What of an annotator's config can change an answer, and so belongs to a build's identity; the rest is where servers
are, pace, patience and money."""
