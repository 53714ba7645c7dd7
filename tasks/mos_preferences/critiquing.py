"""Ask a critic about clips and pairs of clips, and check its answers (critiques, MOS-RMBench)."""

from collections.abc import Callable, Mapping
from typing import Literal, TypedDict

import pyarrow as pa

from earmark.schemas.critiques import (
    CRITIQUES,
    PAIRED_CRITIQUES,
    Critiques,
    parts_under,
    read_scores,
    scores_fault,
)
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.questions import Audio
from earmark.schemas.rewards import prefers
from earmark.tasks.pipeline.ask import Ask, Asker, Fault, GivenUp, Row, Values
from earmark.tasks.pipeline.refused import LEAST_WORDS, refusal_fault, says_something
from earmark.tasks.pipeline.walk import walk

PROMPT_OF = {"single": "speech-critique", "paired": "speech-critique-pair"}
WITH_FREE_TEXT = {**PROMPT_OF, "single": "speech-critique-free"}
SIDES = {"single": ("first",), "paired": ("first", "second")}


class CritiqueQuestion(TypedDict):
    """A row of `critique_questions.sql` with its clips' measurements; `second_…` and `better` are null of one clip."""

    kind: Literal["single", "paired"]
    item: str
    dataset: str
    split: str
    first_id: str
    second_id: str | None
    better: Literal["first", "second"] | None
    first_mos: float
    second_mos: float | None
    mos_gap_normalized: float | None
    first_file: str
    first_audio: str | None
    second_file: str | None
    second_audio: str | None
    first_path: str | None  # null of an unreadable clip, as its measurements
    first_sha256: str | None
    first_duration_s: float | None
    second_path: str | None
    second_sha256: str | None
    second_duration_s: float | None
    reason: str | None  # why a clip is unreadable
    detail: str | None


def prompt_of(config: MosPreferences, row: Row) -> str:
    """Return the name of the prompt for single clips or for pairs, as the row's `kind` says."""
    free = config.critiques is not None and config.critiques.free_text
    return (WITH_FREE_TEXT if free else PROMPT_OF)[row["kind"]]


def kinds_asked(critiques: Critiques | None) -> list[str]:
    """List a config's kinds of questions."""
    if critiques is None:
        return []
    return [kind for kind, count in (("single", critiques.clips), ("paired", critiques.pairs)) if count != 0]


def critique_values(config: MosPreferences, row: CritiqueQuestion) -> Values:
    """Show the clip or pair of a row of `critique_questions.sql` with hash and length of its clips.

    Only the clips' audio reaches the model: no id, no file name, no MOS.
    """
    assert config.critiques is not None

    def clip(path: str | None, sha256: str | None, duration_s: float | None) -> Audio:
        assert path is not None  # rows of unreadable clips are given up before
        assert sha256 is not None
        return Audio(sha256, path, duration_s=duration_s)

    first = clip(row["first_path"], row["first_sha256"], row["first_duration_s"])
    values = {"clip": first}
    if row["kind"] == "paired":
        second = clip(row["second_path"], row["second_sha256"], row["second_duration_s"])
        values = {"first": first, "second": second}
    free = {"free_text": True} if config.critiques.free_text and row["kind"] == "single" else None
    return Values(values, free)


def pair_fault(text: str, row: CritiqueQuestion) -> Fault | None:
    """Find the fault of a comparison: no scores, a missing part, or scores contradicting the listeners."""
    scores = read_scores(text)
    if scores is None:
        return Fault("bad_answer", scores_fault(text))
    parts = parts_under(text)
    if missing := [aspect for aspect, part in parts.items() if not says_something(part)]:
        found = f", at least {LEAST_WORDS} words, found {parts[missing[0]][:40]!r}" if parts[missing[0]] else ""
        return Fault("bad_answer", f"expected a part on {missing[0]}{found}; scores {scores[0]} and {scores[1]}")
    if refused := next(filter(None, map(refusal_fault, (text, *parts.values()))), None):
        return refused
    if prefers(scores) != row["better"]:
        return Fault(
            "scores_disagree",
            f"expected a higher score for the {row['better']} clip, found {scores[0]} and {scores[1]} "
            f"(MOS {row['first_mos']:.2f} and {row['second_mos']:.2f})",
        )
    return None


def description_fault(value: Mapping[str, str]) -> Fault | None:
    """Find the fault of a description: a part that says nothing, or that the critic heard nothing."""
    for name, text in value.items():
        if refused := refusal_fault(text):
            return refused
        if not says_something(text):
            return Fault("empty", f"expected at least {LEAST_WORDS} words on {name}, found {text.strip()[:40]!r}")
    return None


def _kinds(kind: str) -> Callable[[MosPreferences], list[Row]]:
    return lambda config: [{"kind": kind}] if kind in kinds_asked(config.critiques) else []


DESCRIBE = Ask(
    CRITIQUES.name,
    "critic",
    prompt=prompt_of,
    kinds=_kinds("single"),
    values=critique_values,
    check=lambda config, row, value: description_fault(value),
    tries=lambda config: 1,  # `tries` are those of pairs: a critic that hears nothing says so again
    about="clips",
)
COMPARE = Ask(
    PAIRED_CRITIQUES.name,
    "critic",
    prompt=prompt_of,
    kinds=_kinds("paired"),
    values=critique_values,
    check=lambda config, row, text: pair_fault(text, row),
    about="pairs",
)
ASK_OF = {"single": DESCRIBE, "paired": COMPARE}


@walk("critique", asks=[DESCRIBE, COMPARE], columns=[("kind", pa.string()), ("item", pa.string())])
async def critique(asker: Asker[MosPreferences], question: CritiqueQuestion) -> None:
    """Describe a clip, or compare a pair until the scores agree with the listeners."""
    ask = ASK_OF[question["kind"]]
    if question["reason"]:
        raise GivenUp(ask.name, question["reason"], str(question["detail"]))
    await asker(ask, question)
