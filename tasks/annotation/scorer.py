"""Name scorers, and make the functions of those in this process: a callable of a package, or an ONNX file.

`tasks/pipeline/scoring.py` makes the requests, and `scorer_backends.py` answers them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.schemas.evaluations import ClipWindows, Scorer
from earmark.schemas.files import read_regular
from earmark.schemas.questions import Audio, Message, Text, canonical
from earmark.tasks.annotation.errors import BadAnswer, one_line
from earmark.tasks.annotation.request import Request

Waveform: TypeAlias = npt.NDArray[np.float32]
Function: TypeAlias = Callable[..., object]
"""Function from samples (frames,), full scale ±1, their rate in Hz, and what it `takes`, to numbers by name."""


class ScorerInput(NamedTuple):
    """Clip to score, with what was asked of it."""

    clip: Audio
    text: str | None = None
    lyrics: str | None = None
    reference: Audio | None = None

    def message(self, takes: Sequence[str]) -> Message:
        """Return the message with the clip and the taken parts: words as JSON, then the reference."""
        words = {name: getattr(self, name) for name in ("text", "lyrics") if name in takes}
        more = [Text(canonical(words))] if words else []
        heard = [self.reference] if "reference" in takes and self.reference is not None else []
        return Message("user", (self.clip, *more, *heard))

    @classmethod
    def of(cls, request: Request) -> ScorerInput:
        """Read the message of a request."""
        clip, *heard = (part for part in request.parts() if isinstance(part, Audio))
        words = [json.loads(part.text) for part in request.parts() if isinstance(part, Text)]
        return cls(clip, reference=heard[0] if heard else None, **(words[0] if words else {}))


def identity(config: Scorer) -> str:
    """Return a scorer's name in requests: the digest of a file, else the name with the version; then its windows.

    Raises:
        ConfigError: the file cannot be read.
    """
    name = f"{config.annotator}@{config.version}"
    if config.form == "onnx":
        name = f"scorer:onnx@{hashlib.sha256(_file(config)).hexdigest()}"
    cut = config.windows
    return name if cut is None else f"{name}+{cut.samples}/{cut.hop or cut.samples}/{cut.short}"


def check_scorer(config: Scorer) -> None:
    """Refuse an unusable scorer before any measurement; raises as `function_of`."""
    if config.form == "onnx":
        onnx_function(config)
    elif config.form == "callable":
        _imported(config)


def function_of(config: Scorer) -> Function:
    """Return the function of a scorer in this process; a class is first called without arguments."""
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
    length, cut = takes[0].shape[-1], config.windows
    if isinstance(length, int) and (cut is None or cut.samples != length):
        raise ConfigError(f"{config.model}: takes {length} samples: add windows = {{ samples = {length} }}")
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


def windows_of(samples: Waveform, cut: ClipWindows) -> Iterator[Waveform]:
    """Yield a clip's windows; the rest behind the last whole one is left out, and a short clip is filled up."""
    if len(samples) < cut.samples:
        silence = np.zeros(cut.samples - len(samples), np.float32)
        samples = np.resize(samples, cut.samples) if cut.short == "repeat" else np.concatenate([samples, silence])
    for start in range(0, len(samples) - cut.samples + 1, cut.hop or cut.samples):
        yield samples[start : start + cut.samples]


def as_json(given: object, names: Sequence[str]) -> str:
    """Return `numbers_of` as JSON."""
    return json.dumps(numbers_of(given, names))


def numbers_of(given: object, names: Sequence[str]) -> dict[str, float]:
    """Return the scores of these names, finite numbers; drop other values.

    Raises:
        BadAnswer: no mapping, a name is missing, or its value is no finite number.
    """
    if not isinstance(given, Mapping):
        raise BadAnswer(f"expected numbers by name, found {type(given).__name__}")
    return {name: _number(given, name) for name in names}


def _number(given: Mapping[Any, Any], name: str) -> float:
    if name not in given:
        raise BadAnswer(f"expected the score '{name}', found {one_line(', '.join(map(str, given))) or 'none'}")
    value = given[name]
    try:
        plain = value.item() if hasattr(value, "item") else value  # also arrays of one number
        number = None if isinstance(plain, bool | str) else float(plain)
    except (TypeError, ValueError, RuntimeError):
        number = None
    if number is None:
        raise BadAnswer(f"score '{name}': expected one number, found {one_line(repr(value), 60)}")
    if not math.isfinite(number):
        raise BadAnswer(f"score '{name}': expected a finite number, found {number}")
    return number


def _file(config: Scorer) -> bytes:
    try:
        return read_regular(Path(config.model))
    except OSError as error:
        raise ConfigError(f"annotator '{config.annotator}': {config.model}: {error.strerror}") from None
