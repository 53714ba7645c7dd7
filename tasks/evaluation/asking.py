"""What a model is asked about a sample, and what its answers say. Nothing is sent from here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.evaluations import Answer as AnswerKind
from earmark.schemas.evaluations import Evaluation, Examinee, Mode, names_image
from earmark.schemas.views import names_clip
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.errors import PromptError
from earmark.tasks.annotation.outcome import Outcome, Reject
from earmark.tasks.annotation.prompts import Prompt, load_prompt
from earmark.tasks.annotation.request import Ask, Audio, AudioForm, Choice, Image, Message, Request, YesNo
from earmark.tasks.evaluation.samples import LETTERS, Clip

YES_NO = ("Yes", "No")
SIDES = ("A", "B", "tie")
INCONSISTENT = "inconsistent"


@dataclass(frozen=True)
class Asked:
    """One request about a sample: of one item, in one order; `swapped` where the second side is shown first."""

    item: str
    order: str
    swapped: bool
    request: Request


@dataclass
class Prediction:
    """What a model, or a file of scores, says of a sample.

    Attributes:
        id: the sample.
        score: what it scores; None where a choice is asked for, or there is no answer.
        choice: what it chooses.
        reason: why there is no answer; None where there is one.
        detail: more about that.
        items: the score of each item, where a mode has items.
        requests: keys in the ledger.
    """

    id: str
    score: float | None = None
    choice: str | None = None
    reason: str | None = None
    detail: str | None = None
    items: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def answered(self) -> bool:
        """Whether it says anything."""
        return self.score is not None or self.choice is not None


class NoMedia(StoreError):
    """A sample cannot be asked about: its source withholds a clip, or the version was built without media."""


@cache
def prompt_named(name: str) -> Prompt:
    """A prompt of the repository."""
    return load_prompt(Path(str(resources.files("earmark.prompts"))), name)


class Questioner:
    """Makes the requests of samples and reads their answers.

    Args:
        evaluation: what is measured.
        mode: how it is asked.
        config: who is asked.
        clips: the files of clips.
        folder: where pictures go.
        drawn: whether samples say which side is shown first, in `swapped`.
        both: whether a preference is asked in both orders.

    Raises:
        ConfigError: both orders of what is no preference.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        mode: Mode,
        config: Examinee,
        clips: Mapping[str, Clip],
        folder: Path,
        drawn: bool = False,
        both: bool = False,
    ) -> None:
        self._evaluation, self._mode, self._config = evaluation, mode, config
        self._clips, self._folder, self._drawn = clips, folder, drawn
        self.answer: AnswerKind = mode.answer or evaluation.kind
        if both and self.answer != "preference":
            raise ConfigError(f"mode '{mode.name}' compares no clips: it has no second order to ask in")
        self._orders = {"forward": False, "reverse": True} if both else {"forward": False}
        self._form = AudioForm(**config.hearing.model_dump())
        self.prompts: dict[str, str] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read of a sample."""
        extra = [self._mode.options] if self.answer == "choice" else []
        extra += ["swapped"] if self._drawn and self.answer == "preference" else []
        extra += ["language"] if "{language}" in self._mode.prompt else []
        return tuple(dict.fromkeys(["id", *self._mode.columns, *extra]))

    def requests(self, row: Mapping[str, Any]) -> list[Asked]:
        """The requests about a sample; none for a sample without items.

        Raises:
            NoMedia: the prompt shows a clip or picture that the version does not hold.
        """
        prompt = prompt_named(self._mode.prompt.format(language=row.get("language")))
        self.prompts[prompt.id] = prompt.sha256
        shown = {name: self._part(column, row[column]) for name, column in self._mode.shown.items()}
        members = [("", None)] if self._mode.items is None else _members(row[self._mode.items])
        asked = []
        for name, text in members:
            values = shown if text is None else {**shown, "item": text}
            for order, turned in self._orders.items():
                swapped = turned != bool(row.get("swapped"))
                placed = _swapped(values) if swapped else values
                facts = {k: v for k, v in placed.items() if not isinstance(v, Audio | Image)}
                messages = self._rendered(prompt, row, placed)
                ask = self._ask(prompt, row)
                request = question(self._config, messages, ask, facts={**facts, **self._mode.facts})
                asked.append(Asked(name, order, swapped, request))
        return asked

    def read(self, sample: str, asked: Sequence[Asked], outcomes: Sequence[Outcome]) -> Prediction:
        """What the answers say of a sample; one that lacks an answer to any of its requests has none."""
        found = Prediction(sample, requests=[one.request.key for one in asked])
        if not asked:
            found.reason, found.detail = "no_items", f"the list '{self._mode.items}' of the sample is empty"
            return found
        values = []
        for one, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, Reject):
                found.reason, found.detail = outcome.reason, f"{one.item or one.order}: {outcome.detail}"
                return found
            values.append(self._value(outcome.value))
        if self.answer == "preference":
            chosen = {self._side(value, one.swapped) for one, value in zip(asked, values, strict=True)}
            found.choice = chosen.pop() if len(chosen) == 1 else INCONSISTENT
        elif self.answer == "choice":
            found.choice = values[0]
        else:
            if self._mode.items is not None:
                found.items = [{"item": one.item, "score": v} for one, v in zip(asked, values, strict=True)]
            found.score = sum(values) / len(values)
        return found

    def _rendered(self, prompt: Prompt, row: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Message, ...]:
        try:
            return prompt.render(**values)
        except PromptError as error:
            shown = [name for name in self._mode.shown.values() if names_clip(name) or names_image(name)]
            missing = [name for name in shown if row[name] is None]
            if not missing:
                raise
            raise NoMedia(f"the version does not hold {', '.join(missing)}: {error}") from None

    def _ask(self, prompt: Prompt, row: Mapping[str, Any]) -> Ask:
        if prompt.schema is not None:
            if self._mode.json_field is None:
                raise ConfigError(f"mode '{self._mode.name}': {prompt.id} answers in JSON; name a json_field")
            return prompt.ask
        match self.answer:
            case "yes_no":
                words = self._config.yes_no == "words" or self._config.annotator.startswith("builtin:")
                return Choice(YES_NO) if words else YesNo(*YES_NO)
            case "preference":
                return Choice(SIDES)
            case "choice":
                return Choice(tuple(LETTERS[: len(row[self._mode.options])]))
        raise ConfigError(f"mode '{self._mode.name}': a number is read from JSON; {prompt.id} has no answer schema")

    def _value(self, value: Any) -> Any:
        """An answer as a number, or as a letter."""
        if self._mode.json_field is not None:
            value = value[self._mode.json_field]
        if self.answer == "yes_no":
            return float(value["p_yes"]) if isinstance(value, dict) else float(str(value).casefold() == "yes")
        return float(value) if self.answer == "scalar" else str(value)

    def _side(self, position: str, swapped: bool) -> str:
        """What a judge prefers, in the evaluation's own words: swapped, A of the prompt is the second side."""
        sides = dict(zip("AB", reversed(self._evaluation.sides) if swapped else self._evaluation.sides, strict=True))
        return sides.get(position, position)

    def _part(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        if names_clip(name):
            clip = self._clips[value]
            return Audio(value, str(clip.path), duration_s=clip.duration_s, form=self._form)
        return self._image(value) if names_image(name) else value

    def _image(self, held: Mapping[str, Any]) -> Image:
        sha256 = hashlib.sha256(held["bytes"]).hexdigest()
        suffix = Path(held["path"] or "").suffix.lower() or ".png"
        path = self._folder / f"{sha256}{suffix}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held["bytes"])
        kinds = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"}
        return Image(sha256, str(path), kinds.get(suffix, "image/png"))


def _members(items: Sequence[Any] | None) -> list[tuple[str, str | None]]:
    """Id and text of each item; a plain text is named by its place."""
    return [
        (item["id"], item["text"]) if isinstance(item, Mapping) else (str(place), item)
        for place, item in enumerate(items or [], 1)
    ]


def _swapped(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown as a stands as b, and the other way round."""
    other = {"a": "b", "b": "a"}

    def partner(name: str) -> str:
        side, _, rest = name.partition("_")
        return f"{other[side]}_{rest}" if side in other and rest else other.get(name, name)

    return {name: values.get(partner(name), value) for name, value in values.items()}
