"""What a backend is, and how the one that a spec names is made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, InputError, MissingExtraError
from earmark.schemas.files import read_regular
from earmark.schemas.registry import load
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backends import provider_of
from earmark.tasks.annotation.errors import BadMedia
from earmark.tasks.annotation.keys import find_key
from earmark.tasks.annotation.request import (
    Ask,
    Audio,
    FreeText,
    Image,
    Message,
    Part,
    Request,
    Sampling,
    Text,
    canonical,
)

Medium = TypeVar("Medium", Audio, Image)


def read_image(image: Image) -> bytes:
    """The bytes of a picture.

    Raises:
        BadMedia: it cannot be read, or is not the one that the key names.
    """
    path = Path(image.path)  # messages name the file, and not where it lies: rejects keep them
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
    """How backends get at media. The functions are called in threads; for what cannot be read they raise `InputError`
    or `BadMedia`, and the request is rejected.

    Attributes:
        load_audio: the bytes of a part in its form (span, rate, channels, codec), always the same for the same part.
        load_image: the bytes of a picture.
        measure: signal measurements of a part by name, for `builtin:` judges.
    """

    load_audio: Callable[[Audio], bytes] = _no_audio
    load_image: Callable[[Image], bytes] = read_image
    measure: Callable[[Audio], Mapping[str, float]] | None = None

    def audio(self, part: Audio) -> bytes:
        """The part's bytes.

        Raises:
            BadMedia: it cannot be read.
        """
        return _loaded(self.load_audio, part)

    def image(self, part: Image) -> bytes:
        """The picture's bytes; raises as `audio`."""
        return _loaded(self.load_image, part)

    def at_hand(self, part: Part) -> bool:
        """Whether a part's bytes need no work that others should not wait for."""
        look = getattr(self.load_audio, "at_hand", None)
        return isinstance(part, Text) or (isinstance(part, Audio) and look is not None and look(part) is not None)


def _loaded(load: Callable[[Medium], bytes], part: Medium) -> bytes:
    try:
        return load(part)
    except InputError as error:
        raise BadMedia(str(error)) from None


class Backend(Protocol):
    """One model that can be asked."""

    async def open(self) -> None:
        """Connect or load.

        Raises:
            StopRun: the key is missing from the environment.
            MissingExtraError: a library is missing.
        """

    async def send(self, request: Request) -> str:
        """Ask once and return the raw response, unread.

        Raises:
            AskError: by what went wrong.
        """

    def read(self, request: Request, raw: str) -> Reply:
        """What a raw response says; pure.

        Raises:
            MalformedResponse: it is not of this protocol.
        """

    async def close(self) -> None:
        """Disconnect."""


@runtime_checkable
class Batching(Protocol):
    """A backend whose provider has a batch API."""

    def batches(self) -> BatchProvider:
        """That API."""


class BatchProvider(Protocol):
    """A provider's batch API. Each call is one exchange and raises `AskError` by what went wrong."""

    def line(self, key: str, request: Request) -> bytes:
        """The request as one line of an input file, named by the key; runs in a thread."""

    async def submit(self, intent: str, lines: Sequence[bytes]) -> str:
        """Upload and start a batch that carries our intent; returns the provider's id."""

    async def find(self, intent: str) -> str | None:
        """The provider's id of the batch that carries this intent, or None where the provider knows of none."""

    async def state(self, provider_id: str) -> BatchState:
        """How far it is."""

    async def results(self, state: BatchState) -> list[tuple[str, str | None, str | None]]:
        """Key, raw response and error of each answered line; one of the last two is None."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """State of a provider batch: whether it has ended, the provider's word for it, and where its results lie."""

    provider_id: str
    ended: bool
    word: str
    outputs: tuple[str, ...] = ()


def make_backend(config: AnnotatorConfig, media: Media) -> Backend:
    """The backend that `config.annotator` names, not opened yet.

    Raises:
        ConfigError: no such builtin function, or the backend's module cannot be imported.
    """
    try:
        make = load(provider_of(config.annotator).make)
    except ImportError as error:
        raise ConfigError(f"annotator '{config.annotator}' cannot be imported: {error}") from error
    backend: Backend = make(config, media)
    return backend


def check_annotator(config: AnnotatorConfig) -> None:
    """Say what of an annotator can be said without asking or loading it.

    Raises:
        ConfigError: as `make_backend`; a key's name that the environment does not bind.
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
    """The sampling parameters that a config sets."""
    return Sampling(
        temperature=config.temperature,
        again_temperature=config.again_temperature,
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
    """A request to the configured model.

    Args:
        config: names the model and its sampling parameters.
        messages: what it is told.
        ask: form of the answer; free text without one.
        sample: number of the draw.
        facts: structured input of a `builtin:` function; other models never see it.
    """
    return Request(
        model=config.annotator,
        messages=tuple(messages),
        ask=ask or FreeText(),
        sampling=sampling_of(config),
        sample=sample,
        facts=canonical(facts),
    )
