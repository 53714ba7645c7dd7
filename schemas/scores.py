"""Read the scores of two clips in a model's text: the common reader of builds and `earmark eval run`.

Tolerant of form: case, Markdown, line breaks, full-width signs, `.0`, `/10`, one pair of brackets for two, a singular
label, the clips' names before the numbers, sentences after them. Strict about content: two integers from 1 to 10, clip
1 first; a half point, a third number or two different pairs are no scores.

Strict of form as well: the training rewards of a policy (`final_scores` of `earmark/schemas/rewards.py`). They read the
last line alone, which must be exactly `Final Scores: [[x, y]]`, so training teaches this form; a critique kept by a
build ends in it too (`with_final_line`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from earmark.schemas.rewards import final_scores

FORM = "'Final Scores: [[x, y]]'"
# full-width signs, as Chinese models write them, and Markdown marks as blanks: one character each, so places stay
_PLAIN = (
    {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    | dict(zip(map(ord, "【】〔〕［］、\u3000\u00a0"), "[][][],  ", strict=True))
    | dict.fromkeys(map(ord, '*_`\\"$'), " ")
)
_LABEL = re.compile(r"\bfinal\s+scores?\b\s*(?:\([^()\n]{0,60}\)\s*)?(?:is|are)?\s*[:=]?\s*", re.IGNORECASE | re.ASCII)
_NUMBER = r"(10|[1-9])(?:\.0{1,3})?(?:\s*/\s*10)?(?!\.?\d)"
_NAMED = r"(?:(?:audio|clip|sample)\s*{}(?:\s*score)?\s*[:=]\s*)"
_FIRST, _SECOND = rf"{_NAMED.format(1)}?{_NUMBER}", rf"{_NAMED.format(2)}?{_NUMBER}"
_BETWEEN = r"\s*(?:[,;|]|\band\b|\]\s*,?\s*\[)\s*"
_PAIR = rf"{_FIRST}{_BETWEEN}{_SECOND}"
_DOUBLE = re.compile(rf"\[\s*\[\s*{_PAIR}\s*\]\s*\]", re.IGNORECASE | re.ASCII)
_LABELLED = re.compile(
    rf"(?:\[\s*){{1,2}}{_PAIR}(?:\s*\]){{1,2}}(?!\s*,?\s*\[)|\(\s*{_PAIR}\s*\)"
    rf"|{_NAMED.format(1)}{_NUMBER}(?:{_BETWEEN}|\s*\n\s*){_NAMED.format(2)}{_NUMBER}"
    rf"|{_FIRST}\s*,\s+{_SECOND}(?!\s*[,;|/])",
    re.IGNORECASE | re.ASCII,
)
_ATTEMPT = re.compile(r"[\[(\s]*[-+]?[\d.]", re.ASCII)
_MARKS = " \t\r\n*_`"
_LINE_MARKS = f'{_MARKS}#>"-'


class Scores(NamedTuple):
    """Scores of two clips, 1 to 10."""

    first: int
    second: int


def read_scores(text: str) -> Scores | None:
    """Read the scores; None if they are missing or ambiguous."""
    found = _find(text)
    return found and found[0]


def with_final_line(text: str) -> str:
    """Return a model's text with its scores as the last line in the exact form, and nothing after it.

    A text with such an ending stays unchanged, without surrounding blanks.

    Raises:
        ValueError: it has no scores.
    """
    found = _find(text)
    if found is None:
        raise ValueError("expected scores, found none")
    (first, second), start = found
    if start is None:
        return text.strip()
    lines = text[:start].strip().split("\n")
    while lines and not lines[-1].strip(_LINE_MARKS):
        lines.pop()
    last = [line.rstrip(_MARKS) for line in lines[-1:]]
    return "\n".join([*lines[:-1], *last, f"Final Scores: [[{first}, {second}]]"])


def has_heading(text: str, word: str) -> bool:
    """Return whether a word heads a part of the text: before a colon, or alone on its line, in any Markdown."""
    return _heading(word).search(text.casefold()) is not None


@cache
def _heading(word: str) -> re.Pattern[str]:
    before = r"^[^a-z\n]*"
    return re.compile(
        rf"{word}[\s*_`\"']*[:：]|{before}{word}\b[^\n:：]{{0,40}}[:：]|{before}{word}[^a-z\n]*$|^[ \t]*#+.*\b{word}\b"
        rf"|{before}{word}[*_)\s]*[-–—|]",
        re.MULTILINE,
    )


def _find(text: str) -> tuple[Scores, int | None] | None:
    """Find the scores and their place, which is None for a last line in the exact form."""
    if exact := final_scores(text):
        return Scores(*exact), None
    plain = text.translate(_PLAIN)
    labelled: list[tuple[int, re.Match[str]]] = []
    for label in _LABEL.finditer(plain):
        if pair := _LABELLED.match(plain, label.end()):
            labelled.append((label.start(), pair))
        elif _ATTEMPT.match(plain, label.end()):  # invalid numbers: others do not replace them
            return None
    begin = labelled[0][0] if labelled else 0  # text before a label is a thought; a difference after it is a doubt
    pairs = [*labelled, *((pair.start(), pair) for pair in _DOUBLE.finditer(plain, begin))]
    read = {Scores(*(int(number) for number in pair.groups() if number)) for _, pair in pairs}
    return (read.pop(), pairs[0][0]) if len(read) == 1 else None
