"""Fold texts to their appearance: disguised letters become plain, hidden ones vanish, positions map to the original."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby

HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
)
_TAGS = "\U000e0000-\U000e007f"  # letters without a glyph in any font
_MARKS = "\u0300-\u036f"  # accents and strokes on the preceding letter
# Letters of other scripts similar to Latin ones; the same position in both strings.
_LOOK_ALIKES = str.maketrans(
    "абвгеіїјкмноөрсѕтухԁһԛԝѵӏАВЕЅІЈКМНОРСТУХԌԜҮ" + "αβγεικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + "İıɑɡɩᴀᴄᴇᴏᴜ\u1680\u2028\u2029\x85",
    "a6breiijkmhoopcstyxdhqwvlABESIJKMHOPCTYXGWY" + "aByeikvoptuxwABEZHIKMNOPTYX" + "Iiaglaceou    ",
)
# Compatible with ASCII, and common in honest text: an ellipsis, and the punctuation of Chinese.
_KEPT = frozenset("…‥，：；（）！？～")
_PLANES = ((0x80, 0xD800), (0xE000, 0x10000), (0x1D400, 0x1D800), (0x1F100, 0x1F200), (0x1FBF0, 0x1FBFA))


@dataclass(frozen=True, slots=True)
class Folded:
    """A text in its folded form.

    Attributes:
        starts: for each of its characters, and for its end, the position in the original; None if both are equal.
    """

    text: str
    starts: tuple[int, ...] | None

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the original's span of a non-empty span of the folded text."""
        if self.starts is None:
            return start, end
        return self.starts[start], max(self.starts[end], self.starts[end - 1] + 1)


def fold(text: str) -> Folded:
    """Return a text with compatible and look-alike characters as ASCII (NFKC, then a map), without hidden ones and
    loose accents. Characters without an ASCII form stay, so that words of other scripts keep their positions."""
    if text.isascii():
        return Folded(text, None)
    parts: list[str] = []
    starts: list[int] = []
    at = 0
    for match in _altered().finditer(text):
        plain = _plain(match[0])
        parts += (text[at : match.start()], plain)
        starts += (*range(at, match.start()), *[match.start()] * len(plain))
        at = match.end()
    if not parts:
        return Folded(text, None)
    parts.append(text[at:])
    starts += range(at, len(text) + 1)
    return Folded("".join(parts), tuple(starts))


@cache
def disguises() -> str:
    """Return the inside of a character class, for `re` and RE2, with all characters changed by `fold`."""
    return HIDDEN + _TAGS + _MARKS + "".join(_ranges(_disguised()))


@cache
def _altered() -> re.Pattern[str]:
    return re.compile(rf"[^{_MARKS}][{_MARKS}]+|[{disguises()}]", re.DOTALL)


def _plain(char: str) -> str:
    """Return a character, or a letter with its accents, as ASCII; itself without such a form."""
    whole = unicodedata.normalize("NFKC", char)
    if len(whole) > 1:
        whole = re.sub(f"[{_MARKS}]", "", whole)
    return re.sub(f"[{HIDDEN}{_TAGS}{_MARKS}]", "", whole.translate(_LOOK_ALIKES))


def _disguised() -> Iterator[int]:
    for low, high in _PLANES:
        for code in range(low, high):
            char = chr(code)
            if ord("\u0300") <= code <= ord("\u036f") or char in _KEPT:
                continue
            whole = unicodedata.normalize("NFKC", char)
            if (whole != char and whole.isascii()) or code in _LOOK_ALIKES:
                yield code


def _ranges(codes: Iterable[int]) -> Iterator[str]:
    """Yield runs of codes as `a-z`."""
    for _, numbered in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        run = [chr(code) for _, code in numbered]
        yield run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}"
