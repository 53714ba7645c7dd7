"""Tell the votes and ratings of models from those of people, by the columns that say who gave them."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from earmark.schemas.reasons import shown
from earmark.tasks.importers.cells import BadRow

_NAME = re.compile(  # of a judge; people may be called Claude and Nova, observers O1
    r"(?:[\w.-]+[/:])*(?:(?:(?:chat)?gpt|[ml]*llm|vlm|lalm|gemini|deepseek|mi[sx]tral|qwen|audio-?flamingo|utmos|"
    r"dnsmos)(?![a-z])|(?:claude|gemma|llama|phi|grok|nova|kimi|glm)[-_ ]?"
    r"(?:v?\d(?!\d)|(?:sonnet|opus|haiku|audio|instruct|pro|lite)(?![a-z]))|"
    r"o[134]-(?:mini|pro|preview)|models?$|machine$).*",
    re.IGNORECASE,
)
_MACHINE = re.compile("m?llms?|ai|models?|machine|automat(?:ic|ed)|auto|bot|algorithm|synthetic|program")
_PERSON = re.compile("humans?|person|people|crowd|experts?|students?|researchers?|engineers?|developers?")
KINDS = (  # columns that a build reads unasked: each tells the kind of a row's annotator
    *("annotator_type", "annotator_kind", "rater_type", "listener_type", "judge_type", "voter_type", "labeler_type"),
    *("evaluator_type", "annotation_source", "label_source", "vote_source", "rating_source"),
)
ORIGINS = frozenset(("source", "origin"))  # columns that may tell how a clip was made, but a language model makes none
_JUDGE = re.compile(r"m?llms?(?:[-_ ](?:judge|rater|annotator|as[-_ ]a[-_ ]judge))?", re.IGNORECASE)


def names_model(cell: Any) -> bool:
    """Return whether a cell that names an annotator names a model, such as `gpt-4o`."""
    return isinstance(cell, str) and _is_name(cell)


@lru_cache(4096)
def _is_name(cell: str) -> bool:
    return _NAME.fullmatch(cell.strip()) is not None


def is_model(cell: Any) -> bool:
    """Return whether a cell that tells the kind of an annotator tells a model."""
    words = {*re.split(r"[\W_\d]+", cell.lower())} if isinstance(cell, str) else set()
    return names_model(cell) or (any(map(_MACHINE.fullmatch, words)) and not any(map(_PERSON.fullmatch, words)))


def is_judge(cell: Any) -> bool:
    """Return whether a cell of a row's source tells a language model, which makes no clips."""
    return isinstance(cell, str) and _JUDGE.fullmatch(cell.strip()) is not None


def require_person(annotator: Any, kinds: Mapping[str, Any], way: str) -> None:
    """Refuse a row of a model by the annotator's name or kind.

    Args:
        kinds: cells by columns.
        way: how a config keeps such rows, for the message.
    """
    for column, cell in (*kinds.items(), ("the annotator", annotator)):
        tells = is_judge if column in ORIGINS else is_model if column in kinds else names_model
        if tells(cell):
            # a person so called would stand in the table of rejects by name
            found = f"{column} = '{shown(cell)}'" if column in kinds else "an annotator with the name of a model"
            raise BadRow("automatic", f"expected a person's answer, found {found}{way}")
