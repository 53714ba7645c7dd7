"""The cases of `personal_cases.jsonl`: made-up texts, with what is personal in them between ⟦ and ⟧, or none of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from earmark.tasks.text.anonymity import scrub
from earmark.tasks.text.personal import LEAKS, find

FILE = Path(__file__).with_name("personal_cases.jsonl")
NAMES = ("Leaf_Fold",)  # who wrote in the thread of the cases of kind `known`
_LETTERS = "q7Rf2Kx9Lm4Tz8Wb3Hn6Vc1Jd5Pg0Ys" * 4  # stands for what only a key has, so that no scanner takes it for one
_HEX = "4f7a1c9e2b8d3f60" * 4
_KEY = re.compile(r"\{(h?)(\d+)\}")


@dataclass(frozen=True)
class Case:
    """A text to look through.

    Attributes:
        id: its kind and a number.
        kind: what is personal in it; `music` where nothing is.
        text: the text.
        spans: where it is personal.
    """

    id: str
    kind: str
    text: str
    spans: tuple[tuple[int, int], ...]

    @property
    def tuned(self) -> bool:
        """Whether rules were written with this case in sight: those with an odd number. The others were held out."""
        return int(self.id.rpartition("-")[2]) % 2 == 1

    @property
    def leaks(self) -> bool:
        """Whether it is of a kind that the search before publishing looks for: not links, and not known names."""
        return self.kind not in ("music", "host", "known")


def _case(id: str, kind: str, text: str) -> Case:
    marked = text
    marked = (
        _KEY.sub(lambda match: (_HEX if match[1] else _LETTERS)[: int(match[2])], marked) if kind == "key" else marked
    )
    parts = re.split("([⟦⟧])", marked)
    text, spans, start = "", [], 0
    for part in parts:
        if part == "⟦":
            start = len(text)
        elif part == "⟧":
            spans.append((start, len(text)))
        else:
            text += part
    return Case(id, kind, text, tuple(spans))


def words(text: str) -> set[str]:
    """Words and numbers of a text, however they are written."""
    return {word for word in re.findall(r"[^\W_]{2,}", text.casefold()) if len(word) > 2 or word.isdigit()}


def scrub_leaves(case: Case) -> bool:
    """Whether scrubbing leaves a word of what is personal."""
    names = NAMES if case.kind == "known" else ()
    left = re.sub(r"\[[a-z -]+\]", " ", scrub(case.text, names).casefold())  # without what stands for it
    personal = " ".join(case.text[start:end] for start, end in case.spans)
    outside, at = "", 0
    for start, end in case.spans:
        outside, at = outside + case.text[at:start] + " ", end
    own = words(personal) - words(outside + case.text[at:])
    return bool(own & words(left)) or any(case.text[a:b].casefold() in left for a, b in case.spans)


def scan_misses(case: Case) -> bool:
    """Whether the search before publishing passes over something personal."""
    places = find(case.text, LEAKS)
    return any(not any(place.start < end and start < place.end for place in places) for start, end in case.spans)


def scrub_alters(case: Case) -> bool:
    """Whether scrubbing alters a text about music."""
    return scrub(case.text) != case.text.strip()


def scan_alarms(case: Case) -> bool:
    """Whether the search before publishing finds something in a text about music."""
    return bool(find(case.text, LEAKS))


@dataclass(frozen=True)
class Measure:
    """How often something goes wrong.

    Attributes:
        name: what goes wrong.
        rows: the cases in which it may.
        is_wrong: whether it does in one.
    """

    name: str
    rows: Sequence[Case]
    is_wrong: Callable[[Case], bool]

    def __str__(self) -> str:
        return self.name

    def half(self, tuned: bool) -> list[Case]:
        return [case for case in self.rows if case.tuned is tuned]

    def wrong(self, tuned: bool) -> list[str]:
        """The ids of those of a half in which it goes wrong."""
        return [case.id for case in self.half(tuned) if self.is_wrong(case)]


def table(measures: Iterable[Measure]) -> str:
    """The rates of both halves in Markdown, with the kinds of what is wrong."""
    lines = ["| | tuned on | held out | by kind, both halves |", "|---|---:|---:|---|"]
    for measure in measures:
        cells = []
        for tuned in (True, False):
            bad, total = len(measure.wrong(tuned)), len(measure.half(tuned))
            cells.append(f"{bad} of {total} ({bad / total:.1%})")
        kinds = Counter(id_.rpartition("-")[0] for tuned in (True, False) for id_ in measure.wrong(tuned))
        told = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())) or "–"
        lines.append(f"| {measure.name} | {' | '.join(cells)} | {told} |")
    return "\n".join(lines)


_ROWS = [_case(**json.loads(line)) for line in FILE.read_text("utf-8").splitlines()]
CASES = [case for case in _ROWS if case.kind != "music"]
MUSIC = [case for case in _ROWS if case.kind == "music"]
MEASURES = (
    Measure("scrubbing leaves", CASES, scrub_leaves),
    Measure("the search misses", [case for case in CASES if case.leaks], scan_misses),
    Measure("scrubbing alters music", MUSIC, scrub_alters),
    Measure("the search stops music", MUSIC, scan_alarms),
)
