"""Define backends, and make the backend of a spec."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, InputError, MissingExtraError
from earmark.schemas.files import read_regular
from earmark.schemas.questions import Ask, Audio, FreeText, Image, Message, Part, Text, canonical
from earmark.schemas.registry import Registry, load, registered
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.errors import AskError, BadMedia
from earmark.tasks.annotation.keys import find_key
from earmark.tasks.annotation.request import Request, Sampling

Maker = TypeVar("Maker", bound=Callable[..., object])


@dataclass(frozen=True)
class Provider:
    """Facts about a backend, known before its module is imported."""

    make: str  # `module:name` of a maker of a `tasks.annotation.backend.Backend` from `AnnotatorConfig` and `Media`
    hosted: bool = False  # whether it asks its provider's paid servers, unless the config gives another
    batches: bool = False  # whether it can have a batch API (`earmark.tasks.annotation.backend.Batching`)
    in_process: bool = False  # whether the model runs in the build's own processes, or in a child process
    library: tuple[str, str] | None = None  # its library, and the extra of Earmark with it
    # `module:function` returning the registry of its models, for models that are named functions; the build key covers
    # the module of the config's function
    functions: str | None = None


def backend(name: str, **facts: Any) -> Callable[[Maker], Maker]:
    """Register a backend's maker. Its facts are literal fields of `Provider`: they are read without importing it."""
    return lambda make: make


BACKENDS = Registry(
    "annotation backend",
    "earmark.backends",
    Provider,
    {one.name: Provider(one.reference, **one.facts) for one in registered("earmark.tasks.annotation", mark="backend")},
)


def provider_of(annotator: str) -> Provider:
    """Return the backend of a checked spec.

    Raises:
        ConfigError: its package cannot be imported.
    """
    return BACKENDS.find(annotator.partition(":")[0])


Medium = TypeVar("Medium", Audio, Image)


def read_image(image: Image) -> bytes:
    """Return the bytes of an image."""
    path = Path(image.path)  # messages name the file without its folder: rejects keep them
    try:
        content = read_regular(path)
    except OSError as error:
        raise BadMedia(f"image {path.name}: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != image.sha256:
        raise BadMedia(f"image {path.name}: changed since it was indexed as {image.sha256[:12]}; index it again")
    return content


def _no_audio(audio: Audio) -> bytes:
    raise ConfigError(f"clip {audio.sha256[:12]}: this annotator was made without load_audio; pass Media(load_audio=…)")


@dataclass(frozen=True, slots=True)
class Media:
    """Access to media. The functions run in threads; they raise `InputError` or `BadMedia` to reject a request.

    Attributes:
        load_audio: returns the bytes of a part in its form (span, rate, channels, codec), always equal for equal parts.
        load_image: returns the bytes of an image.
        measure: returns signal measurements of a part by name, for `builtin:` judges.
        redecoded: returns the clips decoded in part by Earmark 1.0.0, by SHA-256; called once, before the first
            request.
    """

    load_audio: Callable[[Audio], bytes] = _no_audio
    load_image: Callable[[Image], bytes] = read_image
    measure: Callable[[Audio], Mapping[str, float]] | None = None
    redecoded: Callable[[], frozenset[str]] = frozenset

    def audio(self, part: Audio) -> bytes:
        """Return the part's bytes.

        Raises:
            BadMedia: it cannot be read.
        """
        return _loaded(self.load_audio, part)

    def image(self, part: Image) -> bytes:
        """Return the image's bytes; raises as `audio`."""
        return _loaded(self.load_image, part)

    def at_hand(self, part: Part) -> bool:
        """Return whether a part's bytes need no slow work."""
        look = getattr(self.load_audio, "at_hand", None)
        return isinstance(part, Text) or (isinstance(part, Audio) and look is not None and look(part) is not None)


def _loaded(load: Callable[[Medium], bytes], part: Medium) -> bytes:
    try:
        return load(part)
    except InputError as error:
        raise BadMedia(str(error)) from None


class Backend(Protocol):
    """Model behind an interface for questions."""

    async def open(self) -> None:
        """Connect or load.

        Raises:
            StopRun: the key is missing from the environment.
            MissingExtraError: a library is missing.
        """

    async def send(self, request: Request) -> str:
        """Ask once and return the raw response, unread.

        Raises:
            AskError: by the fault.
        """

    def read(self, request: Request, raw: str) -> Reply:
        """Read a raw response; pure.

        Raises:
            MalformedResponse: it is of another protocol.
        """

    async def close(self) -> None:
        """Disconnect."""


@runtime_checkable
class Batching(Protocol):
    """Backend with a batch API."""

    def batches(self) -> BatchProvider:
        """Return the batch API."""


class ClaimsEnded(Exception):
    """This process was taken for dead, and its claims have ended."""


Held: TypeAlias = Callable[[], Awaitable[None]]


ResultLine: TypeAlias = tuple[str, str | None, AskError | None]
"""Key, raw response and fault of a line of a batch's results; one of the last two is None.

An unreadable line's key is empty.
"""


class BatchProvider(Protocol):
    """Provider's batch API. Each call is one exchange and raises `AskError` by the fault."""

    def line(self, key: str, request: Request) -> bytes:
        """Return the request as one line of an input file, named by the key; runs in a thread."""

    async def submit(self, intent: str, lines: Sequence[bytes], held: Held) -> str:
        """Upload and start a batch with Earmark's intent; return the provider's id.

        `held` raises `ClaimsEnded` after an upload during which others may have asked the batch's requests.
        """

    async def find(self, intent: str) -> str | None:
        """Return the provider's id of the batch with this intent, or None."""

    async def state(self, provider_id: str) -> BatchState:
        """Return the batch's state."""

    async def results(self, state: BatchState) -> list[ResultLine]:
        """Return each line of the results."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """State of a provider batch."""

    provider_id: str
    ended: bool
    word: str  # the provider's word for it
    outputs: tuple[str, ...] = ()  # addresses of its results
    detail: str = ""  # the provider's message about a failure
    full: bool = False  # refused for the account's full queue
    late: bool = False  # ended without addresses of results yet
    lines: int = 0  # number of lines in its results by the provider's count; 0 without a count


def make_backend(config: AnnotatorConfig, media: Media) -> Backend:
    """Make the backend of `config.annotator`, not opened yet."""
    try:
        make = load(provider_of(config.annotator).make)
    except ImportError as error:
        raise ConfigError(f"annotator '{config.annotator}' cannot be imported: {error}") from error
    backend: Backend = make(config, media)
    return backend


def check_annotator(config: AnnotatorConfig) -> None:
    """Check an annotator without asking or loading it.

    Raises:
        ConfigError: as `make_backend`; a key's name not bound by the environment.
        MissingExtraError: its library is not installed.
    """
    provider = provider_of(config.annotator)
    if provider.library is not None and find_spec(provider.library[0]) is None:
        raise MissingExtraError(f"annotator '{config.annotator}'", provider.library[1])
    if config.api_key_env is not None:
        find_key(config.base_url or "", config.api_key_env, (), hosted=False)
    if not provider.hosted and provider.library is None:
        make_backend(config, Media())


def sampling_of(config: AnnotatorConfig) -> Sampling:
    """Return the sampling parameters of a config."""
    return Sampling(
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
        seed=config.seed,
        extra=canonical(config.extra_body),
        structured=config.structured,
        yes_no_token_ids=config.yes_no_token_ids,
    )


def question(
    config: AnnotatorConfig,
    messages: Iterable[Message],
    ask: Ask | None = None,
    *,
    sample: int = 0,
    facts: Mapping[str, Any] | None = None,
) -> Request:
    """Make a request to the configured model.

    Args:
        config: gives the model and its sampling parameters.
        messages: the conversation.
        ask: form of the answer; default free text.
        sample: number of the draw.
        facts: structured input of a `builtin:` function; hidden from other models.
    """
    return Request(
        model=config.annotator,
        messages=tuple(messages),
        ask=ask or FreeText(),
        sampling=sampling_of(config),
        sample=sample,
        facts=canonical(facts),
    )
