"""Constrain an answer to its choices, in the form that a server takes.

A constraint is a matter of transport: no key holds it, and an answer that is a choice by itself stays the same. Yes/no
questions and ratings have none: it would change the probabilities that are read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from yarl import URL

from earmark.schemas.questions import Choice
from earmark.tasks.annotation.answers import Reply, answer_value
from earmark.tasks.annotation.errors import AskError, BadAnswer, ConnectionFailed, Empty, Truncated, one_line
from earmark.tasks.annotation.http import Http
from earmark.tasks.annotation.request import Request

LOG = logging.getLogger("earmark.annotation")
LOOK_S = 10.0
FIELDS = frozenset({"structured_outputs", "guided_choice", "grammar", "regex", "response_format", "tools"})
"""Fields with a constraint: a config's own one, in `extra_body`, wins."""
Form: TypeAlias = Callable[[Sequence[str]], dict[str, Any]]


def _none(_: Sequence[str]) -> dict[str, Any]:
    return {}


def _enum(words: Sequence[str]) -> dict[str, Any]:
    """Return the form for unknown servers; the answer is then a JSON string, and is read as one."""
    schema = {"name": "choice", "schema": {"type": "string", "enum": [*words]}, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


FORMS: dict[str, Form] = {
    "vllm": lambda words: {"structured_outputs": {"choice": [*words]}},
    "vllm before 0.11": lambda words: {"guided_choice": [*words]},
    "sglang": lambda words: {"regex": f"({'|'.join(map(re.escape, words))})"},
    "llamacpp": lambda words: {"grammar": "root ::= " + " | ".join(map(json.dumps, words))},
}
"""Forms by `owned_by` in the server's list of models."""


class Choices:
    """Constraint of choices at one server, found at the first choice and dropped where the server does not hold it.

    Args:
        http: connections to the server.
        base_url: its address, with `/v1`.
        held: whether to constrain at all; OpenAI's own server takes no schema of a single word.
    """

    def __init__(self, http: Http, base_url: str, *, held: bool) -> None:
        self._http, self._base_url = http, base_url
        self._form: Form | None = None if held else _none
        self._lock = asyncio.Lock()
        self.proved = False  # whether a constrained answer was one of its choices

    async def fields(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request's body that constrain its answer; none for other forms of answer.

        Raises:
            ConnectionFailed: the server cannot be reached.
        """
        sampling = request.sampling
        if not isinstance(request.ask, Choice) or sampling.structured != "response_format":
            return {}
        if FIELDS & json.loads(sampling.extra).keys():
            return {}
        async with self._lock:
            self._form = self._form or await self._found()
        return self._form(request.ask.choices)

    async def _found(self) -> Form:
        owner = ""
        with suppress(LookupError, TypeError, AttributeError):
            owners = {one["owned_by"] for one in (await self._get(f"{self._base_url}/models"))["data"]}
            owner = str(owners.pop()) if len(owners) == 1 else ""
            if owner == "vllm":
                version = (await self._get(f"{self._base_url.removesuffix('/v1')}/version"))["version"]
                owner += " before 0.11" if re.match(r"0\.(\d|10)\.", version) else ""
        return FORMS.get(owner, _enum)

    async def _get(self, url: str) -> Any:
        try:
            async with asyncio.timeout(LOOK_S):
                return json.loads((await self._http.exchange("GET", URL(url)))[1])
        except ConnectionFailed:
            raise
        except (AskError, ValueError, RecursionError, TimeoutError):
            return None

    def heard(self, request: Request, reply: Reply) -> None:
        """Note the answer to a constrained request: another text than a choice shows that nothing constrains it."""
        try:
            answer_value(request.ask, reply)
            self.proved = True
        except (Empty, Truncated):
            return
        except BadAnswer as error:
            self.drop(f"does not hold answers to them ({error})")
        except AskError:
            return

    def drop(self, said: str) -> None:
        """Constrain no more; tell it once."""
        if self._form is not _none:
            LOG.warning("choices are asked for in words alone: %s %s", self._base_url, one_line(said))
        self._form = _none
