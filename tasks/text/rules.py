"""Define rules: shapes of a kind of personal data or secret."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

_WORD = re.compile(r"[^\W\d_]+")
DIGITS = tuple("0123456789")
CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # inside of a character class: scripts without spaces between words
AROUND = 48  # characters before and behind a value, searched for cues: "call", "my name is"


@dataclass(frozen=True)
class Seen:
    """A value found by a pattern, with its surroundings."""

    value: str  # the value, folded
    before: str  # the text before it, at most `AROUND` characters
    behind: str  # the text behind it, likewise


def words_of(text: str) -> frozenset[str]:
    """Return the runs of letters in a text, in lower case."""
    return frozenset(_WORD.findall(text.lower()))


class FoldedText:
    """A folded text with cached facts for quick rejection: most rules do not concern most texts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._matched: dict[str, bool] = {}

    @cached_property
    def lower(self) -> str:
        """Return the text in lower case."""
        return self.text.lower()

    @cached_property
    def words(self) -> frozenset[str]:
        """Return its words."""
        return words_of(self.lower)

    def matches(self, pattern: str) -> bool:
        """Return whether a pattern is found; rules with the same hint share the result."""
        if pattern not in self._matched:
            self._matched[pattern] = re.search(pattern, self.text) is not None
        return self._matched[pattern]


@dataclass(frozen=True)
class Rule:
    """A rule for a kind of value."""

    kind: str  # its name
    pattern: str  # its last participating group, if any, is the value
    hint: str  # for RE2; matches each text matched by `pattern`
    holds: Callable[[Seen], bool] = field(default=lambda seen: True)  # decides about a value found by the pattern
    # whether it is unfit for publication. Links and mentions are fit: cards and captions have them on purpose.
    leaks: bool = True
    # a text must have one of these words, or of `marks`; without both, `hint` must match in Python too
    words: frozenset[str] = frozenset()
    marks: tuple[str, ...] = ()  # likewise, at any place; in lower case

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def may(self, view: FoldedText) -> bool:
        """Return whether it might find something, by a cheap check."""
        if self.words or self.marks:
            return not self.words.isdisjoint(view.words) or any(mark in view.lower for mark in self.marks)
        return view.matches(self.hint)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of its values in a folded text."""
        for match in self.compiled.finditer(text):
            start, end = match.span(match.lastindex or 0)
            if self.holds(Seen(text[start:end], text[max(0, start - AROUND) : start], text[end : end + AROUND])):
                yield start, end
