"""Score clips by a callable of a package, an ONNX file, or a server.

Scorers are asked through the ledger like annotators. `tasks/evaluation/scorers.py` makes the requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.schemas.evaluations import Scorer
from earmark.schemas.files import read_regular
from earmark.schemas.questions import Audio
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backend import Backend, Media
from earmark.tasks.annotation.backends import backend
from earmark.tasks.annotation.bodies import Base64, json_bytes
from earmark.tasks.annotation.errors import AskError, BadAnswer, BadRequest, one_line
from earmark.tasks.annotation.http import HttpBackend
from earmark.tasks.annotation.inprocess import InProcess, waveform
from earmark.tasks.annotation.request import Request

Waveform: TypeAlias = npt.NDArray[np.float32]
Function: TypeAlias = Callable[[Waveform, int], object]
"""Function from samples (frames,), full scale ±1, and their rate in Hz, to numbers by name."""


@backend("scorer", in_process=True)
def make_scorer(config: AnnotatorConfig, media: Media) -> Backend:
    """Make the backend of a scorer.

    Raises:
        ConfigError: the config asks for answers, not for scores.
    """
    if not isinstance(config, Scorer):
        raise ConfigError(
            f"annotator '{config.annotator}': a scorer gives clips numbers and answers no questions; name its file "
            "with `earmark eval score --scorer`"
        )
    return ServedScorer(config, media) if config.form == "server" else LocalScorer(config, media)


def identity(config: Scorer) -> str:
    """Return a scorer's name in requests: the digest of a file, else the name with the version.

    Raises:
        ConfigError: the file cannot be read.
    """
    if config.form == "onnx":
        return f"scorer:onnx@{hashlib.sha256(_file(config)).hexdigest()}"
    return f"{config.annotator}@{config.version}"


def check_scorer(config: Scorer) -> None:
    """Refuse an unusable scorer before any measurement; raises as `function_of`."""
    if config.form == "onnx":
        onnx_function(config)
    elif config.form == "callable":
        _imported(config)


def function_of(config: Scorer) -> Function:
    """Return the function of a scorer in this process; a class is first called without arguments.

    Raises:
        ConfigError: the module cannot be imported, has no such callable, or the file is no model of waveforms.
        MissingExtraError: onnxruntime is missing.
    """
    if config.form == "onnx":
        return onnx_function(config)
    named = _imported(config)
    if not isinstance(named, type):
        return named
    try:
        made: Function = named()
    except Exception as error:  # noqa: BLE001 - a third-party package may raise anything
        raise ConfigError(f"annotator '{config.annotator}': {one_line(f'{type(error).__name__}: {error}')}") from None
    return made


def _imported(config: Scorer) -> Function:
    module, _, name = config.model.partition(":")
    try:
        named: Any = import_module(module)
        for part in name.split("."):
            named = getattr(named, part)
    except Exception as error:  # noqa: BLE001 - a third-party package may raise anything
        what = one_line(f"{type(error).__name__}: {error}")
        raise ConfigError(f"annotator '{config.annotator}': {what}; is the package installed here?") from None
    if not callable(named):
        raise ConfigError(f"annotator '{config.annotator}': expected a callable, found {type(named).__name__}")
    return named  # type: ignore[no-any-return]


def onnx_function(config: Scorer) -> Function:
    """Load a model in onnxruntime: one input of samples, (frames,) or (1, frames); each score an output of its name, or
    a single output with all scores in the config's order.

    Raises:
        ConfigError: the file is no model, or has another input.
        MissingExtraError: onnxruntime is missing.
    """
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError(f"annotator '{config.annotator}'", "models") from None
    content = _file(config)
    try:
        session = onnxruntime.InferenceSession(content, providers=onnxruntime.get_available_providers())
    except Exception as error:  # noqa: BLE001 - onnxruntime's errors share no base
        raise ConfigError(f"{config.model}: not a model of onnxruntime: {one_line(str(error))}") from None
    takes = session.get_inputs()
    if len(takes) != 1 or takes[0].type != "tensor(float)" or len(takes[0].shape) not in (1, 2):
        listed = ", ".join(f"{one.name}: {one.type} {one.shape}" for one in takes)
        raise ConfigError(f"{config.model}: expected one input of floats, (frames) or (1, frames), found {listed}")
    names = [one.name for one in session.get_outputs()]

    def score(samples: Waveform, rate: int) -> dict[str, Any]:
        shaped = samples if len(takes[0].shape) == 1 else samples[np.newaxis]
        given = dict(zip(names, session.run(None, {takes[0].name: shaped}), strict=True))
        if len(given) == 1 and not {*config.scores} & given.keys():
            (values,) = map(np.ravel, given.values())
            if len(values) != len(config.scores):
                raise BadAnswer(f"expected {len(config.scores)} numbers in '{names[0]}', found {len(values)}")
            return dict(zip(config.scores, values, strict=True))
        return given

    return score


class LocalScorer(InProcess):
    """Callable or ONNX file, in this process."""

    config: Scorer

    def load(self) -> None:
        """Import the callable or load the file; raises as `function_of`."""
        self._score = function_of(self.config)

    def answer(self, requests: Sequence[Request]) -> list[str | AskError]:
        """Score the clips one by one."""
        return [self._one(request) for request in requests]

    def read(self, request: Request, raw: str) -> Reply:
        """Return the scores as JSON."""
        return Reply(raw)

    def _one(self, request: Request) -> str | AskError:
        try:
            samples, rate = waveform(self.media, _clip(request))
            return as_json(self._score(samples, rate), self.config.scores)
        except AskError as fault:
            return fault
        except Exception as error:  # noqa: BLE001 - a fault of third-party code belongs to its clip
            return BadRequest(f"{self.config.annotator} raised {type(error).__name__}: {one_line(str(error))}")


class ServedScorer(HttpBackend):
    """Scoring server: POST `<base_url>/score` of `model`, `scores` and `audio` (`data` in base64, `format`); the answer
    is an object of numbers by name. A key goes to the servers bound to `api_key_env` in the environment."""

    def __init__(self, config: Scorer, media: Media) -> None:
        super().__init__(config, media, "", (), "Authorization", "Bearer {}")
        self._scores, self._model = config.scores, config.model

    async def send(self, request: Request) -> str:
        """Ask once and return the response's body."""
        return await self.http.post_json(URL(f"{self.base_url}/score"), await asyncio.to_thread(self._body, request))

    def read(self, request: Request, raw: str) -> Reply:
        """Return the scores as JSON."""
        return Reply(raw)

    def _body(self, request: Request) -> bytes:
        clip = _clip(request)
        audio = {"data": Base64(self._media.audio(clip)), "format": clip.form.codec}
        return json_bytes({**self._config.extra_body, "model": self._model, "scores": self._scores, "audio": audio})


def as_json(given: object, names: Sequence[str]) -> str:
    """Return the scores of these names, finite numbers, as JSON; drop other values.

    Raises:
        BadAnswer: no mapping, a name is missing, or its value is no finite number.
    """
    if not isinstance(given, Mapping):
        raise BadAnswer(f"expected numbers by name, found {type(given).__name__}")
    return json.dumps({name: _number(given, name) for name in names})


def _number(given: Mapping[Any, Any], name: str) -> float:
    if name not in given:
        raise BadAnswer(f"expected the score '{name}', found {one_line(', '.join(map(str, given))) or 'none'}")
    value = given[name]
    try:
        number = float(value.item() if hasattr(value, "item") else value)  # also arrays of one number
    except (TypeError, ValueError, RuntimeError):
        number = None
    if number is None or isinstance(value, str):
        raise BadAnswer(f"score '{name}': expected one number, found {one_line(repr(value), 60)}")
    if not math.isfinite(number):
        raise BadAnswer(f"score '{name}': expected a finite number, found {number}")
    return number


def _clip(request: Request) -> Audio:
    (clip,) = (part for part in request.parts() if isinstance(part, Audio))
    return clip


def _file(config: Scorer) -> bytes:
    try:
        return read_regular(Path(config.model))
    except OSError as error:
        raise ConfigError(f"annotator '{config.annotator}': {config.model}: {error.strerror}") from None
