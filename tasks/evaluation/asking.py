"""Make the questions to a model about a sample, and read its answers. Sends nothing."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from earmark.schemas.corpus import names_clip
from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.evaluations import Blind, Evaluation, Examinee, Mode, names_image
from earmark.schemas.questions import (
    Ask,
    Audio,
    AudioForm,
    Image,
    Json,
    Message,
    Text,
)
from earmark.schemas.tables import WholeFile
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.errors import PromptError
from earmark.tasks.annotation.prompts import Prompt, prompt_named
from earmark.tasks.annotation.request import Outcome, Request, Unanswered
from earmark.tasks.evaluation.kinds import Prediction, Unreadable, find_kind
from earmark.tasks.exports.clips import ClipFile

NO_AUDIO = "(no audio is given; answer by the words alone)"
NO_TEXT = "(not given)"


@dataclass(frozen=True)
class SampleRequest:
    """A request about a sample: one item or clip in one order; `swapped` if the second side is shown first.

    `members` names the items of a joint request.
    """

    item: str
    order: str
    swapped: bool
    request: Request
    members: tuple[str, ...] = ()


class NoMedia(StoreError):
    """Sample that cannot be asked about: its source withholds a clip, or the version was built without media."""


class Questioner:
    """Maker of samples' requests and reader of their answers.

    Args:
        drawn: whether samples have `swapped`, the side to show first.
        both: whether to ask preferences in both orders.
        draws: draws per question; numbers are averaged, and the most common choice counts.
        blind: the part of a sample to withhold, as a control.

    Raises:
        ConfigError: both orders without a comparison; several draws at temperature 0; nothing left to ask about.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        mode: Mode,
        config: Examinee,
        clips: Mapping[str, ClipFile],
        folder: Path,
        drawn: bool = False,
        both: bool = False,
        draws: int = 1,
        blind: Blind | None = None,
    ) -> None:
        self._evaluation, self._mode, self._config = evaluation, mode, config
        self._clips, self._folder, self._drawn = clips, folder, drawn
        self._kind, self._answer = find_kind(evaluation.kind), find_kind(mode.answer or evaluation.kind)
        if both and not self._answer.compares:
            raise ConfigError(f"mode '{mode.name}' compares no clips: it has no second order to ask in")
        if draws > 1 and config.temperature == 0:
            raise ConfigError("--draws above 1 needs a temperature above 0 in --settings: at 0 all draws are the same")
        self._draws, self._blind = draws, blind
        self._check_blind()
        self._orders = {"forward": False, "reverse": True} if both else {"forward": False}
        self._form = AudioForm(**config.hearing.model_dump())
        self.prompts: dict[str, str] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns to read of a sample."""
        extra = [name for name in [self._answer.parts(self._mode)] if name]
        extra += ["swapped"] if self._drawn and self._answer.compares else []
        extra += ["language"] if "{language}" in self._mode.prompt else []
        return tuple(dict.fromkeys(["id", *self._mode.columns, *extra]))

    def requests(self, row: Mapping[str, Any]) -> list[SampleRequest]:
        """Return the requests about a sample; none for a sample without items.

        Raises:
            NoMedia: the prompt shows a clip or picture that the version lacks.
        """
        prompt = prompt_named(self._mode.prompt.format(language=row.get("language")))
        self.prompts[prompt.id] = prompt.sha256
        shown = {name: self._part(column, row[column]) for name, column in self._mode.shown.items()}
        questions = []
        for name, more, members in self._questions(row):
            for order, turned in self._orders.items():
                swapped = turned != (self._answer.compares and bool(row.get("swapped")))
                placed = swapped_sides({**shown, **more}) if swapped else {**shown, **more}
                facts = {k: v for k, v in placed.items() if not isinstance(v, Audio | Image)}
                messages = self._rendered(prompt, row, placed)
                ask = self._ask(prompt, row, placed, len(members))
                for draw in range(self._draws):
                    about = {**facts, **self._mode.facts}
                    request = question(self._config, messages, ask, sample=draw, facts=about)
                    questions.append(SampleRequest(name, order, swapped, request, members))
        return questions

    def _questions(self, row: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], tuple[str, ...]]]:
        """Return the item or side of each question about a sample, its values for the prompt, and its joint items."""
        if self._mode.each is not None:
            sides = zip(self._evaluation.sides, ("a_audio", "b_audio"), strict=True)
            return [(side, {self._mode.each: self._part(name, row[name])}, ()) for side, name in sides]
        if self._mode.items is None:
            return [("", {}, ())]
        members = _members(row[self._mode.items])
        if not self._mode.together:
            return [(name, {"item": text}, ()) for name, text in members]
        numbered = [{"id": place, "question": text} for place, (_, text) in enumerate(members, 1)]
        return [("", {"items": numbered}, tuple(name for name, _ in members))] if members else []

    def read(self, sample: str, questions: Sequence[SampleRequest], outcomes: Sequence[Outcome]) -> Prediction:
        """Read the answers about a sample; without a readable draw of every question it has no answer."""
        prediction = Prediction(sample, requests=[one.request.key for one in questions])
        if not questions:
            prediction.reason, prediction.detail = "no_items", f"the list '{self._mode.items}' of the sample is empty"
            return prediction
        values: dict[tuple[str, str], list[Any]] = {}
        faults: dict[tuple[str, str], tuple[str, str]] = {}
        for one, outcome in zip(questions, outcomes, strict=True):
            place = (one.item, one.order)
            readable = values.setdefault(place, [])
            if isinstance(outcome, Unanswered):
                faults[place] = (outcome.reason, outcome.detail)
                continue
            try:
                readable.append(self._value(outcome.value, one))
            except Unreadable as fault:
                faults[place] = ("unreadable", str(fault))
        if lacking := next((place for place, readable in values.items() if not readable), None):
            reason, detail = faults[lacking]
            prediction.reason, prediction.detail = reason, f"{lacking[0] or lacking[1]}: {detail}"
            return prediction
        self._kind.decide(prediction, self._evaluation, self._mode, values, questions[0].members)
        return prediction

    def _check_blind(self) -> None:
        """Refuse a control that would leave nothing to ask about, or withhold nothing."""
        if self._blind is None:
            return
        columns = self._mode.columns
        clips = any(map(names_clip, columns))
        words = any(not (names_clip(name) or names_image(name)) for name in columns)
        where = f"--blind {self._blind}: mode '{self._mode.name}' of '{self._evaluation.name}'"
        if not (clips and words):
            raise ConfigError(f"{where} shows {'no words' if clips else 'no audio'}: nothing would be withheld or left")
        if self._blind == "text" and self._mode.items is not None:
            raise ConfigError(f"{where} asks about its items' words: choose another mode with --mode")
        if self._blind == "audio" and self._config.annotator.startswith("builtin:"):
            raise ConfigError(f"{where} needs a model that reads: '{self._config.annotator}' measures clips")

    def _rendered(self, prompt: Prompt, row: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Message, ...]:
        try:
            messages = prompt.render(**values)
            if self._blind != "audio":
                return messages
            notice = Text(NO_AUDIO)
            return tuple(
                Message(one.role, tuple(notice if isinstance(part, Audio) else part for part in one.parts))
                for one in messages
            )
        except PromptError as error:
            shown = [name for name in self._mode.shown.values() if names_clip(name) or names_image(name)]
            missing = [name for name in shown if row[name] is None]
            if not missing:
                raise
            raise NoMedia(f"the version does not hold {', '.join(missing)}: {error}") from None

    def _ask(self, prompt: Prompt, row: Mapping[str, Any], placed: Mapping[str, Any], members: int) -> Ask:
        if prompt.schema is not None:
            if self._mode.json_field is None and not self._mode.together:
                raise ConfigError(f"mode '{self._mode.name}': {prompt.id} answers in JSON; name a json_field")
            ask = prompt.ask(**placed)
            return _as_long(ask, members) if self._mode.together else ask
        words = self._config.yes_no == "words" or self._config.annotator.startswith("builtin:")
        return self._answer.ask(self._mode, row)[words]

    def _value(self, value: Any, one: SampleRequest) -> Any:
        """Return an answer in the form of its kind, or a number per member."""
        if one.members:
            return _answers(value, len(one.members))
        if self._mode.json_field is not None:
            value = value[self._mode.json_field]
        return self._answer.value(value, self._evaluation, one.swapped)

    def _part(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        if names_clip(name):
            if self._blind == "audio":
                return Audio(value, "")
            clip = self._clips[value]
            return Audio(value, str(clip.path), duration_s=clip.duration_s, form=self._form)
        if names_image(name):
            return self._image(value)
        return NO_TEXT if self._blind == "text" and isinstance(value, str) else value

    def _image(self, held: WholeFile) -> Image:
        sha256 = hashlib.sha256(held["bytes"]).hexdigest()
        suffix = Path(held["path"] or "").suffix.lower() or ".png"
        path = self._folder / f"{sha256}{suffix}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held["bytes"])
        kinds = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"}
        return Image(sha256, str(path), kinds.get(suffix, "image/png"))


class MemberAnswer(TypedDict):
    """Answer about an item, in a JSON array."""

    id: int
    answer: str


def _members(items: Sequence[Any] | None) -> list[tuple[str, str | None]]:
    """Return id and text of each item; a plain text's id is its place."""
    return [
        (item["id"], item["text"]) if isinstance(item, Mapping) else (str(place), item)
        for place, item in enumerate(items or [], 1)
    ]


def _as_long(ask: Json, members: int) -> Json:
    """Extend the ask for an array to this number of answers; keep a long enough ask, and its request keys."""
    schema = json.loads(ask.schema)
    if schema.get("maxItems", members) >= members:
        return ask
    number = schema["items"]["properties"]["id"]
    schema["maxItems"] = number["maximum"] = members
    return Json.of(schema, ask.name, ordered=ask.ordered)


def _answers(rows: Sequence[MemberAnswer], members: int) -> list[float]:
    """Return a JSON array's answers in order, 1 for yes and 0 for no."""
    found = {row["id"]: float(row["answer"] == "yes") for row in rows}
    if len(found) != len(rows) or found.keys() != set(range(1, members + 1)):
        listed = ", ".join(str(row["id"]) for row in rows)
        raise Unreadable(f"expected each of the items 1 to {members} once, found {listed}")
    return [found[number] for number in range(1, members + 1)]


def swapped_sides(values: Mapping[str, Any]) -> dict[str, Any]:
    """Exchange the values of sides a and b, and of first and second."""
    other = {"a": "b", "b": "a", "first": "second", "second": "first"}

    def partner(name: str) -> str:
        side, _, rest = name.partition("_")
        return f"{other[side]}_{rest}" if side in other and rest else other.get(name, name)

    return {name: values.get(partner(name), value) for name, value in values.items()}
