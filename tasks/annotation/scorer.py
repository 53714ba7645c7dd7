"""Score clips by a callable of a package, an ONNX file, a server or a command.

Scorers are asked through the ledger like annotators. `tasks/pipeline/scoring.py` makes the requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.schemas.evaluations import ClipWindows, Scorer
from earmark.schemas.files import read_regular
from earmark.schemas.questions import Audio, Message, Text, canonical
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backend import Backend, Media, backend
from earmark.tasks.annotation.children import Child
from earmark.tasks.annotation.errors import AskError, BadAnswer, BadRequest, one_line
from earmark.tasks.annotation.http import Base64, HttpBackend, json_bytes
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.transformers_local import InProcess, waveform

Waveform: TypeAlias = npt.NDArray[np.float32]
Function: TypeAlias = Callable[..., object]
"""Function from samples (frames,), full scale ±1, their rate in Hz, and what it `takes`, to numbers by name."""
CLIPS_OF_COMMAND = 256  # in one call of a command, unless its pace says otherwise


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


@backend("scorer", in_process=True)
def make_scorer(config: AnnotatorConfig, media: Media) -> Backend:
    """Make the backend of a scorer.

    Raises:
        ConfigError: the config asks for answers, not for scores.
    """
    if not isinstance(config, Scorer):
        raise ConfigError(
            f"annotator '{config.annotator}': a scorer gives clips numbers and answers no questions; name its file "
            "with `--scorer` of `earmark eval run` or `earmark eval score`"
        )
    if config.form == "server":
        return ServedScorer(config, media)
    if config.form == "command":
        together = config.inline_batch if "inline_batch" in config.model_fields_set else CLIPS_OF_COMMAND
        return CommandScorer(config.model_copy(update={"inline_batch": together}), media)
    return LocalScorer(config, media)


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
            return json.dumps(self._scores(ScorerInput.of(request)))
        except AskError as fault:
            return fault
        except Exception as error:  # noqa: BLE001 - a fault of third-party code belongs to its clip
            return BadRequest(f"{self.config.annotator} raised {type(error).__name__}: {one_line(str(error))}")

    def _scores(self, given: ScorerInput) -> dict[str, float]:
        samples, rate = waveform(self.media, given.clip)
        more: dict[str, Any] = {name: getattr(given, name) for name in self.config.takes}
        if given.reference is not None:
            more["reference"] = waveform(self.media, given.reference)
        names, cut = self.config.scores, self.config.windows
        pieces = [samples] if cut is None else windows_of(samples, cut)
        scores = [numbers_of(self._score(piece, rate, **more), names) for piece in pieces]
        return {name: math.fsum(one[name] for one in scores) / len(scores) for name in names}


class CommandScorer(LocalScorer):
    """Command: `COMMAND… CLIPS SCORES`, two files of JSON lines. Each clip has `id`, `audio` (a WAV file) and what the
    scorer takes; each line of scores has the `id` and numbers by name."""

    def load(self) -> None:
        """Do nothing: each group of clips starts the command."""

    def answer(self, requests: Sequence[Request]) -> list[str | AskError]:
        """Score a group of clips by one call."""
        with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
            faults: dict[int, AskError] = {}
            folder, lines = Path(temporary), []
            for place, request in enumerate(requests):
                try:
                    lines.append(canonical({"id": str(place), **self._line(ScorerInput.of(request), folder, place)}))
                except AskError as fault:
                    faults[place] = fault
            (folder / "clips.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
            why, rows = self._called(folder) if lines else ("", {})
        return [faults.get(place) or self._row(rows.get(str(place)), why) for place in range(len(requests))]

    def _line(self, given: ScorerInput, folder: Path, place: int) -> dict[str, Any]:
        line: dict[str, Any] = {name: getattr(given, name) for name in self.config.takes}
        for name, part in (("audio", given.clip), ("reference", given.reference)):
            if part is not None:
                path = folder / f"{place}-{name}.{part.form.codec}"
                path.write_bytes(self.media.audio(part))
                line[name] = str(path)
        return line

    def _called(self, folder: Path) -> tuple[str, dict[str, Any]]:
        """Run the command; return what it said last if it failed, and its lines by id."""
        files = [folder / "clips.jsonl", folder / "scores.jsonl"]
        with tempfile.TemporaryFile() as said:
            with Child([*self.config.command, *map(str, files)], stdout=said, stderr=said) as child:
                try:
                    code: int | str = child.wait(self.config.total_timeout_s * len(list(folder.glob("*-audio.*"))))
                except subprocess.TimeoutExpired:
                    code = "total_timeout_s"
            said.seek(0)
            last = one_line(said.read().decode("utf-8", "replace").strip().rpartition("\n")[2])
        why = f"{self.config.command[0]} ended with {code}: {last}" if code else ""
        rows = {}
        for line in files[1].read_text("utf-8").splitlines() if files[1].is_file() else ():
            try:
                row = json.loads(line)
                rows[str(row.pop("id"))] = row
            except (ValueError, TypeError, KeyError, AttributeError):
                why = why or f"{self.config.command[0]}: expected an object with an id, found {one_line(line, 80)}"
        return why, rows

    def _row(self, row: Any, why: str) -> str | AskError:
        if row is None:
            return BadRequest(why or f"{self.config.command[0]} gave the clip no line of scores")
        try:
            return as_json(row, self.config.scores)
        except BadAnswer as fault:
            return fault


class ServedScorer(HttpBackend):
    """Scoring server: POST `<base_url>/score` of `model`, `scores`, `audio` (`data` in base64, `format`) and what the
    scorer takes; the answer is an object of numbers by name. A key goes to the servers bound to `api_key_env` in the
    environment."""

    def __init__(self, config: Scorer, media: Media) -> None:
        super().__init__(config, media, "", (), "Authorization", "Bearer {}")
        self._scorer = config

    async def send(self, request: Request) -> str:
        """Ask once and return the response's body."""
        return await self.http.post_json(URL(f"{self.base_url}/score"), await asyncio.to_thread(self._body, request))

    def read(self, request: Request, raw: str) -> Reply:
        """Return the scores as JSON."""
        return Reply(raw)

    def _body(self, request: Request) -> bytes:
        given = ScorerInput.of(request)
        taken: dict[str, Any] = {name: getattr(given, name) for name in self._scorer.takes}
        for name, part in (("audio", given.clip), ("reference", given.reference)):
            if part is not None:
                taken[name] = {"data": Base64(self._media.audio(part)), "format": part.form.codec}
        head = {"model": self._scorer.model, "scores": self._scorer.scores}
        return json_bytes({**self._config.extra_body, **head, **taken})


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
        number = float(value.item() if hasattr(value, "item") else value)  # also arrays of one number
    except (TypeError, ValueError, RuntimeError):
        number = None
    if number is None or isinstance(value, str):
        raise BadAnswer(f"score '{name}': expected one number, found {one_line(repr(value), 60)}")
    if not math.isfinite(number):
        raise BadAnswer(f"score '{name}': expected a finite number, found {number}")
    return number


def _file(config: Scorer) -> bytes:
    try:
        return read_regular(Path(config.model))
    except OSError as error:
        raise ConfigError(f"annotator '{config.annotator}': {config.model}: {error.strerror}") from None
