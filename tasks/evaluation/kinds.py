"""Register the kinds of evaluations: their truths, files of scores, questions, metrics, baselines and audits.

A kind is a `SampleKind`. A package adds one by an entry point of the group
`earmark.evaluations`, such as `"count" = "lab.counts:COUNT"`.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NotRequired, TypedDict

from earmark.schemas.critiques import read_scores, scores_fault
from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.questions import Ask, Choice, FreeText, ScaleRating, YesNo
from earmark.schemas.registry import Registry, register, registered
from earmark.schemas.rubric_rewards import SHARE, YES, decide
from earmark.tasks.annotation.errors import one_line

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
YES_NO = ("Yes", "No")
SIDES = ("A", "B", "tie")
INCONSISTENT = "inconsistent"

Cells = Sequence[Any]  # of a row in a file of scores
Draws = Mapping[tuple[str, str], Sequence[Any]]  # values of readable answers by item or side, and order
Sample = Mapping[str, Any]


class MeasuredSample(TypedDict):
    """Columns of a sample that every evaluation can have; its query adds others, read by name."""

    id: str
    target: Any  # a number, a yes or no, a side or a letter, by kind
    split: NotRequired[str]
    cluster: NotRequired[object]
    options: NotRequired[int | None]
    system: NotRequired[str | None]
    text: NotRequired[str]
    lyrics: NotRequired[str | None]
    reference_audio: NotRequired[str | None]
    stratum: NotRequired[str]  # of an audit


class ItemScore(TypedDict):
    """Score of an item of a sample."""

    item: str
    score: float


@dataclass
class Prediction:
    """Prediction for a sample, by a model or a file of scores."""

    id: str
    score: float | None = None  # the score; None for choices and without an answer
    choice: str | None = None  # the choice
    reason: str | None = None  # reason for a missing answer; else None
    detail: str | None = None  # details of the reason
    items: list[ItemScore] = field(default_factory=list)  # the score of each item, if the mode has items
    requests: list[str] = field(default_factory=list)

    @property
    def answered(self) -> bool:
        """Return whether the prediction has a score or choice."""
        return self.score is not None or self.choice is not None


class Unreadable(ValueError):
    """Answer of the right form without the requested content."""


@dataclass(frozen=True)
class Parsing:
    """Row of a file of scores: its place, for messages, its id, the columns of its form, and its sample."""

    where: str
    id: str
    form: tuple[str, ...]
    evaluation: Evaluation
    size: int | None  # number of the sample's options or items, where it is known


def _mean_answer(found: Prediction, evaluation: Evaluation, mode: Mode, values: Draws, members: Sequence[str]) -> None:
    parts = list(zip(*next(iter(values.values())), strict=True)) if members else list(values.values())
    scores, names = [_mean(draws) for draws in parts], members or [item for item, _ in values]
    if mode.items is not None:
        found.items = [{"item": name, "score": score} for name, score in zip(names, scores, strict=True)]
    found.score = _mean(scores)


@dataclass(frozen=True)
class SampleKind:
    """Kind of evaluation; its defaults are those of `scalar`."""

    name: str
    # DuckDB's types of `target`, the first for messages, and SQL of a valid one; `$sides` stands for the sides and tie
    targets: tuple[str, ...] = ("DOUBLE", "FLOAT")
    truth: str = "isfinite(target)"
    clips: tuple[str, ...] = ("",)  # what the names of a sample's rated clips begin with, before `clip` and `audio`
    compares: bool = False  # whether a sample compares its two clips, which can be shown in both orders
    exam: bool = False  # whether people's answers are an exam, in place of a check of claims
    # the column of options or items, whose number bounds answers; and why no answer can be right, or nothing
    parts: Callable[[Mode], str | None] = lambda mode: None
    impossible: Callable[[Any, int | None], str | None] = lambda target, size: None

    # metrics of scores; the metric that ranks models, and its value by chance, None where it differs by sample
    scored: tuple[str, ...] = ("lcc", "srcc", "ktau", "mse")
    headline: str = "srcc"
    chance: float | None = 0.0
    # correctness of a prediction, 0 to 1, by each rule; first `accuracy`, in which a missing answer is wrong, and a tie
    # right only if a tie is true. The last argument is the least score of a yes.
    credits: Callable[[Any, Prediction, float | None], dict[str, float]] = lambda target, prediction, threshold: {}
    thresholds: bool = False  # whether a least score of a yes can be chosen
    note: str = ""  # for readers of the table

    # files of scores: the content of a row; columns in words, and by name (the first complete set is read); the
    # prediction of a row that is not empty; and SQL of the columns to fill in, as text in formats without lists
    cell: str = "a number a sample"
    forms: Callable[[Evaluation], tuple[str, list[tuple[str, ...]]]] = lambda _: ("score (a number)", [("score",)])
    parse: Callable[[Parsing, Cells], Prediction] = lambda row, cells: Prediction(
        row.id, score=number(row.where, "score", cells[0])
    )
    empty_columns: Callable[[Evaluation, bool], str] = lambda evaluation, text: "NULL::DOUBLE AS score"

    # models: the form of an answer, with and without log-probabilities; its value as a number, a side or a letter,
    # where `Unreadable` is raised if it has none; and the prediction from all draws of all items or sides
    ask: Callable[[Mode, Sample], tuple[Ask, Ask]] = lambda mode, _: (
        (digits := ScaleRating(*mode.scale)),
        Choice(digits.words),
    )
    value: Callable[[Any, Evaluation, bool], Any] = lambda answer, evaluation, swapped: float(
        answer["score"] if isinstance(answer, dict) else answer
    )
    decide: Callable[[Prediction, Evaluation, Mode, Draws, Sequence[str]], None] = _mean_answer

    # baselines: the answer that is shown first, if any, and one by a number drawn from 0 to 1
    first: Callable[[Evaluation, Sample], Any] = lambda evaluation, row: None
    coin: Callable[[Evaluation, Sample, float], Any] = lambda evaluation, row, drawn: drawn
    chosen: bool = False  # whether answers are words, in place of numbers

    # people: the question about a whole sample, empty where they are asked none, and the answers with their words
    question: str = ""
    answers: Callable[[Sequence[str]], list[tuple[str, str]]] = lambda options: [("yes", "Yes"), ("no", "No")]

    @property
    def credited(self) -> bool:
        """Return whether predictions are right or wrong."""
        return self.headline == "accuracy"

    def predict(self, sample: str, value: Any) -> Prediction:
        """Return the prediction of an answer."""
        return Prediction(sample, choice=str(value)) if self.chosen else Prediction(sample, score=float(value))


def _parse_yes_no(row: Parsing, cells: Cells) -> Prediction:
    if row.form == ("items",):
        return _of_items(row, cells[0])
    if row.form == ("score",):
        return Prediction(row.id, score=_share(row.where, number(row.where, "score", cells[0])))
    if (choice := str(cells[0]).strip()).casefold() not in ("yes", "no"):
        raise InputError(f"{row.where}: expected yes or no, found {choice[:80]!r}")
    return Prediction(row.id, score=float(choice.casefold() == "yes"))


def _of_items(row: Parsing, cell: Any) -> Prediction:
    """Read a list of probabilities, in CSV as JSON; a list without numbers is no answer."""
    try:
        values = json.loads(cell) if isinstance(cell, str) else cell
    except ValueError:
        values = None
    if not isinstance(values, list):
        raise InputError(f"{row.where}: expected items as a list such as [0.9, 0.2], found {str(cell)[:80]!r}")
    if all(value is None for value in values):
        return empty(row.id)
    numbers = [_share(row.where, number(row.where, "items", value)) for value in values]
    if row.size is not None and len(numbers) != row.size:
        raise InputError(f"{row.where}: expected {row.size} items, found {len(numbers)}")
    items: list[ItemScore] = [{"item": str(place), "score": value} for place, value in enumerate(numbers, 1)]
    return Prediction(row.id, score=_mean(numbers), items=items)


def _share(where: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"{where}: expected a score from 0 to 1, found {value}")
    return value


def _empty_items(evaluation: Evaluation, text: bool) -> str:
    items = next((mode.items for mode in evaluation.modes if mode.items), None)
    if items is None:
        return "NULL::DOUBLE AS score"
    cells = f'list_transform("{items}", lambda one: NULL::DOUBLE)'
    return (f"to_json({cells})::VARCHAR" if text else cells) + " AS items"


def _yes_credits(target: Any, prediction: Prediction, threshold: float | None) -> dict[str, float]:
    """Credit a yes; a sample with items is one only if every item is."""
    score = prediction.score
    items = [one["score"] for one in prediction.items] or ([] if score is None else [score])
    found = {
        "accuracy": score is not None and decide(items) == target,
        "accuracy_share": score is not None and decide(items, SHARE) == target,
    }
    if threshold is not None:
        found["accuracy_threshold"] = score is not None and (score >= threshold) == target
    return {name: float(right) for name, right in found.items()}


def _preference_forms(evaluation: Evaluation) -> tuple[str, list[tuple[str, ...]]]:
    first, second = evaluation.sides
    says = (
        f"choice ({first}, {second}, tie), or score_{first} and score_{second}, or score (above 0 where "
        f"{first} is better), where {order_of(evaluation)}"
    )
    return says, [("choice",), (f"score_{first}", f"score_{second}"), ("score",)]


def _parse_preference(row: Parsing, cells: Cells) -> Prediction:
    if row.form != ("choice",):
        first, *second = [number(row.where, column, cell) for column, cell in zip(row.form, cells, strict=True)]
        return preferred(row.id, first - sum(second), row.evaluation)
    choice = str(cells[0]).strip()
    if choice.casefold() not in (*row.evaluation.sides, "tie", INCONSISTENT):
        raise InputError(f"{row.where}: expected {', '.join(row.evaluation.sides)} or tie, found {choice[:80]!r}")
    return Prediction(row.id, choice=choice.casefold())


def _side(answer: Any, evaluation: Evaluation, swapped: bool) -> str:
    """Return the side in the evaluation's own words: if swapped, A of the prompt is the second side."""
    sides = reversed(evaluation.sides) if swapped else evaluation.sides
    return dict(zip("AB", sides, strict=True)).get(str(answer), str(answer))


def _lead(answer: Any, evaluation: Evaluation, swapped: bool) -> float:
    if (scores := read_scores(answer)) is None:
        raise Unreadable(one_line(scores_fault(answer), 200))
    return float(scores[1] - scores[0] if swapped else scores[0] - scores[1])


def _agreed_choice(
    found: Prediction, evaluation: Evaluation, mode: Mode, values: Draws, members: Sequence[str]
) -> None:
    held = [*values.values()]
    if isinstance(held[0][0], str):
        chosen = {_commonest(draws) for draws in held}
    else:
        means = [_mean(draws) for draws in held]
        leads = [means[0] - means[1]] if mode.each is not None else means
        found.score, chosen = _mean(leads), {leader(evaluation, lead) for lead in leads}
    found.choice = chosen.pop() if len(chosen) == 1 else INCONSISTENT


def _choice_credits(target: Any, prediction: Prediction, threshold: float | None) -> dict[str, float]:
    return {"accuracy": float(prediction.choice is not None and prediction.choice == target)}


def _preference_credits(target: Any, prediction: Prediction, threshold: float | None) -> dict[str, float]:
    strict = _choice_credits(target, prediction, threshold)
    return strict | {"accuracy_tie_half": 0.5 if prediction.choice == "tie" != target else strict["accuracy"]}


def _parse_letter(row: Parsing, cells: Cells) -> Prediction:
    choice = str(cells[0]).strip()
    if len(choice) != 1 or not choice.isascii() or not choice.isalpha():
        raise InputError(f"{row.where}: expected a letter, found {choice[:80]!r}")
    if row.size is not None and LETTERS.index(choice.upper()) >= row.size:
        raise InputError(f"{row.where}: expected a letter from A to {LETTERS[row.size - 1]}, found '{choice.upper()}'")
    return Prediction(row.id, choice=choice.upper())


SCALAR = register("scalar")(SampleKind("scalar"))
YES_OR_NO = register("yes_no")(
    SampleKind(
        "yes_no",
        targets=("BOOLEAN",),
        truth="true",
        clips=(),
        parts=lambda mode: mode.items,
        scored=("auroc", "eer"),
        headline="accuracy",
        chance=0.5,
        credits=_yes_credits,
        thresholds=True,
        note=f"accuracy: yes where every item is above {YES}; without items, where the score is",
        cell="a yes or no about each item",
        forms=lambda _: (
            "items (a list: of each, the probability of yes), score (probability of yes, 0 to 1) or choice (yes, no)",
            [("items",), ("score",), ("choice",)],
        ),
        parse=_parse_yes_no,
        empty_columns=_empty_items,
        ask=lambda mode, row: (YesNo(*YES_NO), Choice(YES_NO)),
        value=lambda answer, evaluation, swapped: float(
            answer["p_yes"] if isinstance(answer, dict) else str(answer).casefold() == "yes"
        ),
        question="Does the clip follow the text?",
    )
)
PREFERENCE = register("preference")(
    SampleKind(
        "preference",
        targets=("VARCHAR",),
        truth="target IN ($sides)",
        clips=("a_", "b_"),
        compares=True,
        scored=(),
        headline="accuracy",
        chance=0.5,
        credits=_preference_credits,
        forms=_preference_forms,
        parse=_parse_preference,
        empty_columns=lambda evaluation, text: ", ".join(f"NULL::DOUBLE AS score_{one}" for one in evaluation.sides),
        ask=lambda mode, row: (Choice(SIDES if mode.ties else SIDES[:2]),) * 2,
        value=_side,
        decide=_agreed_choice,
        first=lambda evaluation, row: evaluation.sides[bool(row.get("swapped"))],
        coin=lambda evaluation, row, drawn: evaluation.sides[drawn < 0.5],
        chosen=True,
        question="Which clip is better on {dimension}?",
        answers=lambda options: [("a", "Clip A"), ("b", "Clip B"), ("tie", "Equal")],
    )
)
# a preference that a model answers by text with a score of each clip
SCORES = register("scores")(replace(PREFERENCE, name="scores", ask=lambda mode, row: (FreeText(),) * 2, value=_lead))
CHOICE = register("choice")(
    SampleKind(
        "choice",
        targets=("VARCHAR",),
        truth="target ~ '[A-Z]'",
        clips=(),
        exam=True,
        parts=lambda mode: mode.options,
        impossible=lambda target, size: (
            f"the right letter is {target} of {size} options"
            if size is not None and LETTERS.index(target) >= size
            else None
        ),
        scored=(),
        headline="accuracy",
        chance=None,
        credits=_choice_credits,
        cell="a letter",
        forms=lambda _: ("choice (a letter)", [("choice",)]),
        parse=_parse_letter,
        empty_columns=lambda evaluation, text: "NULL::VARCHAR AS choice",
        ask=lambda mode, row: (Choice(tuple(LETTERS[: len(row[mode.options])])),) * 2,
        value=lambda answer, evaluation, swapped: str(answer),
        decide=_agreed_choice,
        first=lambda evaluation, row: LETTERS[0],
        coin=lambda evaluation, row, drawn: LETTERS[int(drawn * (row.get("options") or 4))],
        chosen=True,
        question="Which option is right?",
        answers=lambda options: [(one, f"{one}. {text}") for one, text in zip(LETTERS, options, strict=False)],
    )
)

KINDS = Registry("kind of evaluation", "earmark.evaluations", SampleKind, registered("earmark.tasks.evaluation"))


def find_kind(name: str) -> SampleKind:
    """Return the kind of that name.

    Raises:
        ConfigError: there is none, or its package cannot be imported.
    """
    if name not in KINDS.entries:
        raise ConfigError(f"expected a kind of evaluation of {', '.join(KINDS.entries)}, found '{name}'")
    return KINDS.find(name)


def clip_columns(evaluation: Evaluation) -> tuple[str, ...]:
    """Return the query's columns with the clips' ids; none where scores of clips say nothing."""
    return tuple(f"{side}clip" for side in find_kind(evaluation.kind).clips) if evaluation.clips else ()


def values_of(row: Sample, names: Iterable[str]) -> list[Any]:
    """Return the values of columns that an evaluation names."""
    return [row[name] for name in names]


def order_of(evaluation: Evaluation) -> str:
    """Describe the clips behind the sides of a preference in a file of scores."""
    return f"{' and '.join(evaluation.sides)} are {evaluation.order}"


def preferred(name: str, lead: float, evaluation: Evaluation) -> Prediction:
    """Return the prediction of the side with the higher score, by the first side's lead."""
    return Prediction(name, score=lead, choice=leader(evaluation, lead))


def empty(name: str) -> Prediction:
    """Return the prediction of a sample with empty cells."""
    return Prediction(name, reason="no_score", detail="the file's cells are empty")


def leader(evaluation: Evaluation, lead: float) -> str:
    """Return the side with the higher score, by the first side's lead."""
    first, second = evaluation.sides
    return first if lead > 0 else second if lead < 0 else "tie"


def number(where: str, column: str, value: Any) -> float:
    """Parse a cell as a finite number.

    Raises:
        InputError: it is not one.
    """
    try:  # float() takes True as 1, 4_5 as 45, and ٣ as 3
        odd = isinstance(value, bool) or "_" in str(value) or not str(value).isascii()
        read = math.nan if odd else float(value)
    except (TypeError, ValueError):
        read = math.nan
    if not math.isfinite(read):
        comma = str(value).count(",") == 1 and str(value).replace(",", "").strip().lstrip("-+").isdecimal()
        instead = "write numbers with a point" if comma else "leave the cell empty for no answer"
        raise InputError(f"{where}: expected a number as {column}, found {str(value)[:80]!r}; {instead}")
    return read


def _commonest(chosen: Sequence[str]) -> str:
    """Return the most common choice; a tie without a single most common choice."""
    (first, count), *others = Counter(chosen).most_common(2)
    return "tie" if others and others[0][1] == count else first


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
