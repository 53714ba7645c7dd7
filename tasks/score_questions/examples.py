"""Read a user's labelled questions, given to the labeller in place of the prompts' own examples."""

import json
from functools import cache
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.score_questions import CATEGORIES, DIFFICULTIES, LABELLED, ScoreQuestions
from earmark.tasks.importers.json_arrays import read_text

MOST = 50  # examples of a label: each stands in every request about it


def examples_of(config: ScoreQuestions, label: str) -> tuple[dict[str, str], ...]:
    """Return the examples of `taxonomy` or `difficulty`, in the file's order; none without a file in the config.

    Returns:
        `question` and `label`: the difficulty, or category and subcategory.
    """
    written = config.examples()[label]
    if written is None:
        return ()
    name = f"{written} (key `{label}.examples`)"
    return _examples(read_text(config.path(written), name), label, name)


@cache
def _examples(text: str, label: str, name: str) -> tuple[dict[str, str], ...]:
    lines = text.split("\n")  # no other break: JSON may hold U+2028
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not 1 <= len(numbered) <= MOST:
        raise InputError(f"{name}: expected 1 to {MOST} examples, a JSON object a line, found {len(numbered)}")
    return tuple(_example(line, label, f"{name}, line {number}") for number, line in numbered)


def _example(line: str, label: str, where: str) -> dict[str, str]:
    fields = ("question", *LABELLED[label])
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or set(value) != set(fields):
        raise InputError(f"{where}: expected a JSON object with {', '.join(fields)}, found {line[:80]!r}")
    if stray := [name for name in fields if not isinstance(value[name], str) or not value[name].strip()]:
        raise InputError(f"{where}: expected text in {stray[0]}, found {str(value[stray[0]])[:80]!r}")
    question, *labels = map(value.__getitem__, fields)
    if label == "difficulty":
        _known(value, "difficulty", DIFFICULTIES, where)
        return {"question": question, "label": labels[0]}
    category, subcategory = labels
    _known(value, "category", tuple(CATEGORIES), where)
    _known(value, "subcategory", CATEGORIES[category], where)
    return {"question": question, "label": f"{category}: {subcategory}"}


def _known(value: dict[str, str], name: str, known: tuple[str, ...], where: str) -> None:
    if value[name] not in known:
        raise InputError(f"{where}: expected one of {', '.join(known)} in {name}, found {value[name][:80]!r}")
