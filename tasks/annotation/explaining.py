"""A question asked once more with what was wrong with its last answer: `repair = "explain"` of an annotator."""

from __future__ import annotations

from dataclasses import replace

from earmark.tasks.annotation.prompts import Rendering
from earmark.tasks.annotation.request import Rating, Request, Text, YesNo

MOST_CHARACTERS = 4_000
"""Of the last answer that is shown: an answer without an end is a common fault, and would fill the context."""


def explained(request: Request, answer: str, fault: str) -> Request:
    """The request with its last answer and that answer's fault below its own words, both fenced: a model wrote them.

    Yes/no and ratings stay as they are: there the first token's probabilities are the answer.

    Args:
        request: the question.
        answer: the last answer; of a long one, its beginning is shown.
        fault: what was expected and what was found.
    """
    if isinstance(request.ask, YesNo | Rating):
        return request
    fence = Rendering([answer, fault])
    shown = answer if len(answer) <= MOST_CHARACTERS else f"{answer[:MOST_CHARACTERS]} […]"
    text = (
        "This question was asked before, and the answer could not be used. Answer it anew and in full, without the "
        f"fault. {fence.rule()}\n\n{fence.fence(shown, 'last-answer')}\n\n{fence.fence(fault, 'fault')}"
    )
    *before, last = request.messages
    return replace(request, messages=(*before, replace(last, parts=(*last.parts, Text(text)))))
