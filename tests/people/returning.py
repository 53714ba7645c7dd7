"""Files as annotators send them back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

from earmark.schemas.study import AnnotatorPage, StudyPlan


def choices(plan: StudyPlan, page: AnnotatorPage, pick: Callable[[str], str]) -> dict[str, Any]:
    """Answers by trial as a page writes them; `pick` gets a question."""
    return {
        trial.id: {
            "response": {
                **{question: pick(question) for question in plan.questions},
                **{f"confidence_{question}": "3" for question in plan.questions},
                "feedback": "",
            },
            "heard_s": {"a": 2.0, "b": 2.0},
            "seconds": 9.5,
            "at": "2026-03-01T10:00:00.000Z",
        }
        for trial in page.trials
    }


def returned(plan: StudyPlan, page: AnnotatorPage, answers: dict[str, Any], **changed: str) -> bytes:
    body = json.dumps(answers, ensure_ascii=False)
    file = {"format": "earmark-study/1", "study": plan.study, "page": page.name, "key": page.key, "body": body}
    return json.dumps({**file, "crc32": f"{zlib.crc32(body.encode()):08x}", **changed}).encode()


def as_shown(plan: StudyPlan, page: AnnotatorPage) -> dict[str, Any]:
    """Answers that know the demo: the lesser model name is better, and never fail a check."""
    answers = choices(plan, page, lambda _: "a")
    for trial in page.trials:
        best = min("ab", key=lambda letter: plan.generations[trial.clips[letter]].model)
        answers[trial.id]["response"] |= dict.fromkeys(plan.questions, best)
    return answers
