"""Ask a question again with the fault of its last answer: `repair = "explain"` of an annotator."""

from __future__ import annotations

from dataclasses import replace

from earmark.schemas.questions import ScaleRating, Text, YesNo
from earmark.tasks.annotation.prompts import Rendering
from earmark.tasks.annotation.request import Request

MOST_CHARACTERS = 4_000
"""Length of the last answer as shown: endless answers are a common fault, and would fill the context."""


def explained(request: Request, answer: str, fault: str) -> Request:
    """Return the request with its last answer and its fault below its own text, both fenced: a model wrote them.

    Yes/no and ratings stay unchanged: there the first token's probabilities are the answer.

    Args:
        request: the question.
        answer: the last answer; only the start of a long answer is shown.
        fault: expected and found.
    """
    if isinstance(request.ask, YesNo | ScaleRating):
        return request
    fence = Rendering([answer, fault])
    shown = answer if len(answer) <= MOST_CHARACTERS else f"{answer[:MOST_CHARACTERS]} […]"
    text = (
        "This question was asked before, and the answer could not be used. Answer it anew and in full, without the "
        f"fault. {fence.rule()}\n\n{fence.fence(shown, 'last-answer')}\n\n{fence.fence(fault, 'fault')}"
    )
    *before, last = request.messages
    return replace(request, messages=(*before, replace(last, parts=(*last.parts, Text(text)))))
