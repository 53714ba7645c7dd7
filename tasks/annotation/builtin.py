"""Answer without a model, by functions of signal measurements and facts: weak, honest and always named as such.

A corpus's functions are registered in its `tasks/<corpus>/builtin.py`. Another package adds a function by an entry
point of the group `earmark.builtins`, `lab-judge-1 = "lab.builtin:judge"`. A name includes its version: other rules get
another name, so that their answers have other keys.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import FunctionType
from typing import TypeAlias

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.questions import Audio
from earmark.schemas.registry import Registry, registered
from earmark.schemas.toml import nearest
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backend import Media, backend
from earmark.tasks.annotation.errors import BadMedia, BadRequest
from earmark.tasks.annotation.request import Request

Span: TypeAlias = tuple[str, float | None, float | None, float | None, float | None]

MOST_MEASURED = 50_000  # number of clips with measurements kept in memory


@cache
def functions() -> Registry[FunctionType]:
    """Return every builtin function by its name with version, for a request's facts and its clips' measurements."""
    return Registry("builtin function", "earmark.builtins", FunctionType, registered("earmark.tasks", "*/builtin.py"))


@backend("builtin", functions="earmark.tasks.annotation.builtin:functions")
class Builtin:
    """Backend of a registered function on a request's facts and the measurements of its clips."""

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        name = config.annotator.partition(":")[2]
        known = functions().entries
        if name not in known:
            raise ConfigError(f"annotator '{config.annotator}': no builtin function '{name}'{nearest(name, known)}")
        self._name = name
        self._function = functions().find(name)
        self._measure = media.measure
        self._by_span: dict[Span, Mapping[str, float]] = {}

    async def open(self) -> None:
        """Open nothing."""

    async def send(self, request: Request) -> str:
        """Measure and decide; return the answer in the form of a chat completion."""
        audios = [part for part in request.parts() if isinstance(part, Audio)]
        measured = await asyncio.to_thread(lambda: [self._measured(audio) for audio in audios])
        try:
            answer = self._function(json.loads(request.facts) or {}, measured)
        except InputError as error:
            raise BadRequest(str(error)) from None
        text = answer if isinstance(answer, str) else json.dumps(answer)
        message = {"role": "assistant", "content": text}
        return json.dumps({"model": self._name, "choices": [{"message": message, "finish_reason": "stop"}]})

    def read(self, request: Request, raw: str) -> Reply:
        """Return the function's answer."""
        from earmark.tasks.annotation.openai_compatible import (
            read_chat_completion,  # here: looking up a name needs no HTTP
        )

        return replace(read_chat_completion(raw), embedded=True)

    async def close(self) -> None:
        """Close nothing."""

    def _measured(self, audio: Audio) -> Mapping[str, float]:
        """Measure each clip once: it appears in several pairs, and in both orders of each."""
        if self._measure is None:
            raise ConfigError(f"annotator 'builtin:{self._name}' needs measurements; pass Media(measure=…)")
        span = (audio.sha256, audio.start_s, audio.end_s, audio.form.longest_s, audio.form.gain_db)
        if span not in self._by_span:
            try:
                measured = self._measure(audio)
            except (InputError, ValueError) as error:
                raise BadMedia(f"clip {audio.sha256[:12]}: {error}") from None
            if len(self._by_span) >= MOST_MEASURED:
                self._by_span.clear()
            self._by_span[span] = measured
        return self._by_span[span]
