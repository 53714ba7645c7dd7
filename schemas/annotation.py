"""Define the config of an annotator: its model, pace, patience and budget."""

import json
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from earmark.schemas.config import declarations
from earmark.schemas.registry import OneOf
from earmark.schemas.toml import Model, Name, checked, moved

BACKENDS = OneOf("earmark.tasks.annotation.backend:BACKENDS", "backend:model")
Seconds = Annotated[float, Field(gt=0)]
Dollars = Annotated[float, Field(ge=0)]
Served = Literal[
    "tensor_parallel_size", "data_parallel_size", "gpu_memory_utilization", "max_model_len", "max_num_seqs"
]
COUNTED = {"best_of", "max_completion_tokens", "max_tokens", "model", "n"} | {
    f"{table}.{name}"
    for table in ("generationConfig", "generation_config")
    for name in ("candidateCount", "candidate_count", "maxOutputTokens", "max_output_tokens")
}
"""Fields of a request's body by which its highest cost is counted."""
AGAIN_TEMPERATURE = 0.7  # temperature of a question that is asked again, in place of 0; request keys omit it


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address is this machine's own."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Prices(Model):
    """Prices of a provider, in US dollars per million tokens."""

    input_per_million: Dollars = Field(description="Text and image tokens in.")
    output_per_million: Dollars = Field(description="Tokens out.")
    audio_input_per_million: Dollars | None = Field(default=None, description="Audio tokens in, where they differ.")


@cache
def known_prices() -> dict[str, Prices]:
    """Read list prices by annotator from `prices.json`: a dated copy of a part of LiteLLM's table (MIT).

    It lacks prices of prompts beyond 200,000 tokens and of cached tokens.
    """
    table = json.loads(Path(__file__).with_name("prices.json").read_text("utf-8"))["usd_per_million_tokens"]
    names = ("input_per_million", "output_per_million", "audio_input_per_million")
    return {name: Prices(**dict(zip(names, prices, strict=False))) for name, prices in table.items()}


class Limits(Model):
    """Limits of a model. Defaults come from the table in `tasks/annotation/budget.py`."""

    clip_s: Seconds | None = Field(default=None, description="Longest clip that is heard, in seconds.")
    audio_s: Seconds | None = Field(default=None, description="Most audio in one request, in seconds.")
    clips: int | None = Field(default=None, ge=0, description="Most audio clips in one request.")
    images: int | None = Field(default=None, ge=0, description="Most images in one request.")
    context_tokens: int | None = Field(default=None, ge=1, description="Most tokens in and out together.")


class SamplingOptions(Model):
    """Draw of answers, part of a request's key."""

    temperature: float | None = Field(
        default=0.0,
        ge=0,
        le=2,
        description="None leaves it to the server. At 0 a model says the same: a question is asked again at 0.7.",
    )
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus of sampling; None leaves it out.")
    seed: int | None = Field(default=None, ge=0, description="Seed of sampling, where the model takes one.")
    max_tokens: int = Field(default=1024, ge=1, description="Most tokens of one answer; enters the worst-case cost.")
    extra_body: dict[str, Any] = Field(
        default={},
        description="Further fields of the request's body, such as vLLM's own; part of the key. With prices not "
        "`max_tokens`, `n` or `model`.",
    )


class AnswerOptions(Model):
    """Form of answers, and checks and repairs of unusable ones."""

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="How the server names the cap; reasoning models of OpenAI want the longer."
    )
    structured: Literal["response_format", "vllm", "none"] = Field(
        default="response_format",
        description="How a schema or a choice reaches an OpenAI-compatible server; answers are checked in any case.",
    )
    yes_no_token_ids: tuple[int, int] | None = Field(
        default=None, description="vLLM: ids of the tokens Yes and No, for exact log-probabilities."
    )
    least_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Least share of the first token that Yes and No (or a scale's digits) must have together; below it "
        "the model was about to say something else, and that is no answer.",
    )
    repairs: int = Field(default=2, ge=0, le=20, description="Times an unusable answer is asked again.")
    on_limit: Literal["refuse", "cut"] = Field(
        default="refuse", description="What happens to audio beyond the model's limits; the answer records a cut."
    )


class PaceOptions(Model):
    """Requests at once and a minute."""

    max_concurrency: int = Field(
        default=32, ge=1, le=4096, description="Most requests in flight, over all roles of the model."
    )
    requests_per_minute: float | None = Field(
        default=None, gt=0, description="Most requests a minute, of all processes that share the ledger together."
    )
    tokens_per_minute: float | None = Field(
        default=None, gt=0, description="Most tokens a minute, in and out, of all these processes together."
    )
    inline_batch: int = Field(default=16, ge=1, description="transformers: requests per model call.")


class PatienceOptions(Model):
    """Waits for a server, and tries of failed exchanges."""

    retries: int = Field(default=6, ge=0, le=100, description="Times a failed exchange is tried again.")
    retry_base_s: Seconds = Field(
        default=1.0, description="First wait; doubles each time, with jitter, up to sixty times itself or a minute."
    )
    patience_s: Seconds = Field(
        default=900.0,
        description="Longest wait, without any answer, for a server that has answered in this run or says that it is "
        "loading: refused connections and the statuses 429, 502 and 503 use up no try meanwhile. "
        "A server that asks for a longer wait, and for more than a minute, ends the run.",
    )
    read_timeout_s: Seconds = Field(default=300.0, description="Longest silence on an open connection.")
    total_timeout_s: Seconds = Field(default=600.0, description="Longest exchange.")


class MoneyOptions(Model):
    """Cost, budget and the provider's batch API."""

    budget_usd: Dollars | None = Field(
        default=None,
        description="What one run may cost, over all roles of the model with this budget; it stops before it would "
        "cost more. Needs prices, unless the server is on this machine; 0 for one of your own.",
    )
    prices: Prices | None = Field(
        default=None,
        description="Needed for a budget and for costs; where none are given, the list prices of `schemas/prices.json` "
        "for models on OpenAI's and Google's own servers.",
    )
    batch: bool = Field(default=False, description="Use the provider's batch API: cheaper, answered within a day.")
    batch_requests: int = Field(default=20_000, ge=1, le=50_000, description="Most requests in one provider batch.")
    batch_poll_s: Seconds = Field(default=30.0, description="Wait between two looks at a provider batch.")
    batch_settle_s: float = Field(
        default=30.0, ge=0, description="How long a submission of unknown fate is looked for before it is sent again."
    )


class ModelService(Model):
    """Model, its server and its limits. Secrets are never here; they come from the environment."""

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
    limits: Limits = Field(default=Limits(), description="What the model takes, where it is not known.")
    serve: dict[Served, int | float | None] = Field(
        default={},
        description="vllm: options of the server that the build starts, by vLLM's own names and for vLLM to check: "
        "`tensor_parallel_size`, `data_parallel_size`, `gpu_memory_utilization`, `max_model_len`, `max_num_seqs`. They "
        "have no effect on an answer, and are not part of any key.",
    )

    @field_validator("serve")
    @classmethod
    def _set_ones(cls, value: dict[Served, int | float | None]) -> dict[Served, int | float | None]:
        return {name: one for name, one in value.items() if one is not None}  # recorded configs hold each, as null

    @field_serializer("serve")
    def _each_recorded(self, value: dict[str, Any], info: SerializationInfo) -> dict[str, Any]:
        return {**dict.fromkeys(get_args(Served)), **value} if (info.context or {}).get("recorded") else value

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname or url.port == 0 or url.fragment:  # or beyond 65535
            raise ValueError("expected http://host/path or https://host/path")
        if url.username or url.password or url.query:
            raise ValueError("expected no user, password or query in the address; keys come from the environment")
        return value.rstrip("/")


class ModelDeclaration(ModelService):
    """Model as a config declares it: `[models.NAME]`."""

    sampling: SamplingOptions = Field(default=SamplingOptions(), description="Draw of answers; a role may differ.")
    answers: AnswerOptions = Field(default=AnswerOptions(), description="Form, checks and repairs of answers.")
    pace: PaceOptions = Field(default=PaceOptions(), description="Requests at once and a minute.")
    patience: PatienceOptions = Field(default=PatienceOptions(), description="Waits, and tries of failed exchanges.")
    money: MoneyOptions = Field(default=MoneyOptions(), description="Prices, and what a run may cost.")

    @model_validator(mode="before")
    @classmethod
    def _in_groups(cls, values: Any) -> Any:
        """Refuse an option outside its group, with its place."""
        places = {key: f"{group}.{key}" for group, part in GROUPS.items() for key in type(part).model_fields}
        for key in values if isinstance(values, dict) else ():
            if key in places and key not in cls.model_fields:
                raise ValueError(f"key '{key}' stands in a group: write {places[key]}")
        return values

    def flat(self) -> dict[str, Any]:
        """Return the declared options without their groups."""
        values = self.model_dump(exclude_unset=True)
        return {key: value for group in GROUPS for key, value in values.pop(group, {}).items()} | values


GROUPS = {
    name: field.default
    for name, field in ModelDeclaration.model_fields.items()
    if name not in ModelService.model_fields
}
"""Groups of a declaration's options."""


class Declarations(Model):
    """Models of a file: a build config, `models.toml` beside it, or the file that `EARMARK_MODELS` names."""

    models: dict[Name, ModelDeclaration] = Field(default={}, description="Models by name.")


class AnnotatorConfig(MoneyOptions, PatienceOptions, PaceOptions, AnswerOptions, SamplingOptions, ModelService):
    """Annotator: a model with all options of its declaration and of the role in one table."""

    annotator: Annotated[str, BACKENDS] = Field(
        description="A declared model's name; or `backend:model`, such as `openai:gpt-4.1-mini` or "
        "`builtin:music-pair-2`, with a model's defaults."
    )
    batch_bytes: ClassVar[int] = 150 << 20  # of a provider batch, below OpenAI's 200 MB
    files_api_bytes: ClassVar[int] = 8 << 20  # Gemini: more media in a request go through the Files API
    most_response_bytes: ClassVar[int] = 8 << 20  # a longer response is cut off and refused
    stalled_after_s: ClassVar[float] = 120.0  # without a completion for so long, progress says what is awaited
    connect_timeout_s: ClassVar[float] = 10.0

    @property
    def retry_longest_s(self) -> float:
        """Longest wait between two tries, in seconds: sixty times the first, a minute at most."""
        return min(60.0, 60 * self.retry_base_s)

    @classmethod
    def spelling(cls) -> dict[str, str]:
        names = {name: key for name, key in super().spelling().items() if name not in OF_MODELS}
        return names | {"annotator": "model"}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe a role as config files write it; deployments of 1.0.0 may also hold `annotator` with any option."""
        described = handler.resolve_ref_schema(handler(schema))
        keys, required = cls.spelling(), [key for key in described.get("required", ()) if key not in OF_MODELS]
        described["properties"] = {key: described["properties"][name] for name, key in keys.items()}
        described["properties"]["model"]["pattern"] += "|^[^:]+$"
        del described["required"], described["additionalProperties"]
        role = {"required": [keys[name] for name in required], "propertyNames": {"enum": [*keys.values()]}}
        return {**described, "if": {"required": ["annotator"]}, "else": role}

    @model_validator(mode="before")
    @classmethod
    def _join_model(cls, values: Any, info: ValidationInfo) -> Any:
        """Put the model that a role names into the role's table; the role's own options come first.

        Values from Python, of a deployment or recorded may be the whole table.
        """
        context = info.context or {}
        whole = "file" not in context or context.get("recorded") or context.get("flat_roles")
        if not isinstance(values, dict) or ("model" not in values and whole):
            return values
        if wrong := next((key for key in values if key in OF_MODELS or key == "annotator"), None):
            place = OF_MODELS.get(wrong, wrong)
            raise moved(f"key '{wrong}' belongs to a model: write {place} in [models.NAME], and here model = \"NAME\"")
        if "model" not in values:
            return values
        own = {key: value for key, value in values.items() if key != "model"}
        name = values["model"]
        if not isinstance(name, str):
            raise ValueError(f"model: expected a text, found {name!r}")  # noqa: TRY004  # pydantic collects it
        return {"annotator": name, **own} if ":" in name else {**declared(name).flat(), **own}

    @property
    def charged(self) -> Prices | None:
        """Return the counted prices: the config's, else a provider's known list prices on its own server."""
        return self.prices or (known_prices().get(self.annotator) if self.base_url is None else None)

    @property
    def priced(self) -> bool:
        """Return whether its cost is known: it has prices, or is embedded and costs nothing."""
        return self.charged is not None or self.annotator.startswith("builtin:")

    @model_validator(mode="after")
    def _money(self, info: ValidationInfo) -> Self:
        provider = BACKENDS.find(self.annotator)
        host = urlsplit(self.base_url or "").hostname or ""
        free = is_loopback(host) or (info.context or {}).get("recorded")
        if self.budget_usd is not None and self.charged is None and provider.hosted and not free:
            raise ValueError(
                "budget_usd needs the model's money.prices: input_per_million and output_per_million, or prices of 0 "
                f"for a server of your own; no price of '{self.annotator}'{host and f' at {host}'} is known"
            )
        if self.batch and not provider.batches:
            raise ValueError(f"batch = true needs an annotator with a batch API, and '{self.annotator}' has none")
        return self

    @model_validator(mode="after")
    def _costs_as_counted(self, info: ValidationInfo) -> Self:
        """Refuse answers in a stream, and a priced model's fields that the budget would not know of."""
        if (info.context or {}).get("recorded"):
            return self
        if self.extra_body.get("stream"):
            raise ValueError("extra_body.stream: an answer is read as one body; leave it out, or set it to false")
        if self.charged is None:
            return self
        tables = {name: part for name, part in self.extra_body.items() if isinstance(part, dict)}
        names = [*self.extra_body, *(f"{name}.{key}" for name, part in tables.items() for key in part)]
        if found := min(COUNTED.intersection(names), default=None):
            raise ValueError(
                f"extra_body.{found}: the cost of a request is counted by its model and one answer of max_tokens; "
                "leave it out, and set annotator and max_tokens"
            )
        return self

    @model_validator(mode="after")
    def _starts_its_server(self) -> Self:
        if not self.annotator.startswith("vllm:"):
            if self.serve:
                raise ValueError(
                    f"serve: options of the server that a vllm: annotator starts; '{self.annotator}' has none"
                )
            return self
        if self.base_url is not None or self.api_key_env is not None:
            name = self.annotator.partition(":")[2]
            raise ValueError(
                f"base_url and api_key_env: a vllm: annotator starts its server itself; write openai:{name} for one "
                "that runs already"
            )
        if self.inline_batch != type(self).model_fields["inline_batch"].default:
            raise ValueError("inline_batch: vllm: batches by itself; set max_concurrency to the most requests at once")
        return self


class Asked(AnnotatorConfig):
    """Annotator for a corpus's build."""

    most_failed: float = Field(
        default=0.02,
        ge=0,
        le=1,
        description="Of a corpus's roles: share of requests that may stay without an answer; with more, the build "
        "stops, to be resumed.",
    )


class Drawn(Asked):
    """Annotator with another draw for each answer failing its checks."""

    seed: int | None = Field(default=17, ge=0, description="Each draw adds its number; None leaves it to the server.")


ROLE = frozenset(
    ("temperature", "top_p", "seed", "max_tokens", "least_share", "repairs", "on_limit",
     "budget_usd", "most_failed")
)  # fmt: skip
"""Options that a role may set beside `model`; all others belong to the model's declaration."""
OF_MODELS = {
    **{key: key for key in ModelService.model_fields if key != "annotator"},
    **{key: f"{group}.{key}" for group, part in GROUPS.items() for key in type(part).model_fields if key not in ROLE},
}
"""Options of a model by their flat names, with their places in its declaration."""


def is_flat(role: Mapping[str, Any]) -> bool:
    """Return whether a role's table holds a model's own options, as in recorded configs and in files of 1.0.0."""
    return "annotator" in role or not OF_MODELS.keys().isdisjoint(role)


def declared(name: str) -> ModelDeclaration:
    """Return a declared model; an ONNX file's path is relative to the file that declares it.

    Raises:
        ConfigError: a declaration is wrong.
        ValueError: the model is not declared.
    """
    names: dict[str, None] = {}
    for where, table in declarations():
        models = checked(Declarations, table, where).models
        if name not in models:
            names |= dict.fromkeys(models)
            continue
        backend, _, model = models[name].annotator.partition(":")
        if backend != "scorer" or not model.endswith(".onnx"):
            return models[name]
        return models[name].model_copy(update={"annotator": f"scorer:{where.parent.absolute() / model}"})
    known = f"declared: {', '.join(sorted(names))}" if names else "none is declared in [models.NAME]"
    raise ValueError(f"model: expected a declared model or backend:model, found '{name}'; {known}")


DECIDES = (
    "annotator", "temperature", "again_temperature", "top_p", "seed", "max_tokens", "extra_body", "structured",
    "repairs", "repair", "on_limit", "limits", "yes_no_token_ids", "least_share",
)  # fmt: skip
"""Fields of an annotator's config with effect on an answer, and so on a build's identity; the rest is about servers,
pace, patience and money."""
