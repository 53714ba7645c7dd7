"""Regular expressions that a config brings, searched in a time that grows with the text and not with its powers.

Python's own engine may take years for `(a+)+$`. RE2, which Arrow has, takes each character once a state. A pattern is
written as Python reads it, and put into RE2's words here; what RE2 cannot do (look-around, references back) or reads in
another way is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache

_DIGIT, _WORD, _SPACE = r"\p{Nd}", r"\p{L}\p{N}_", r"\s\x0b\x1c-\x1f\x{85}\p{Z}"  # as Python's \d, \w and \s
_ESCAPES = {
    "d": _DIGIT, "D": r"\P{Nd}", "w": f"[{_WORD}]", "W": f"[^{_WORD}]", "s": f"[{_SPACE}]", "S": f"[^{_SPACE}]",
    "Z": r"\z",
}  # fmt: skip
_IN_CLASS = {"d": _DIGIT, "D": r"\P{Nd}", "w": _WORD, "s": _SPACE}
_UP_TO = re.compile(r"\{,(\d*)\}")


@lru_cache(16)
def for_re2(pattern: str) -> str:
    """Return a pattern of Python's as RE2 reads it.

    Raises:
        ValueError: it is none, or RE2 cannot search it as Python would.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        re.compile(pattern)
        translated = _translated(pattern)
        pc.extract_regex(pa.array([""]), translated)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    except pa.ArrowInvalid as error:
        said = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(
            f"expected a pattern that RE2 can search, without look-around and references: {said}"
        ) from None
    return translated


@lru_cache(100_000)
def groups_in(pattern: str, text: str) -> dict[str, str] | None:
    """Return the named groups of a pattern's first match in a text, empty where they took no part; None without one.

    Raises:
        ValueError: as by `for_re2`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[str, str] | None = pc.extract_regex(pa.array([text], pa.string()), for_re2(pattern))[0].as_py()
    return found


def _translated(pattern: str) -> str:
    parts: list[str] = []
    at, opened = 0, -1  # where the class that is being read began to hold characters
    while at < len(pattern):
        sign, after = pattern[at], pattern[at + 1 : at + 2]
        if sign == "\\":
            table = _ESCAPES if opened < 0 else _IN_CLASS
            if after not in table and after in ("b", "B", "W", "S"):
                where = " in [ ]" if opened >= 0 else ""
                raise ValueError(f"expected a pattern without \\{after}{where}, which RE2 reads in another way")
            parts.append(table.get(after, sign + after))
            at += 2
            continue
        if opened >= 0:
            if sign == "]" and at > opened:
                opened = -1
            parts.append("\\[" if sign == "[" else sign)
        elif sign == "[":
            opened = at + 2 if after == "^" else at + 1
            parts.append(pattern[at:opened])
            at = opened
            continue
        elif up_to := _UP_TO.match(pattern, at):
            parts.append(f"{{0,{up_to[1]}}}")
            at = up_to.end()
            continue
        else:
            parts.append("(?:" if sign == "(" and after != "?" else sign)
        at += 1
    return "".join(parts)
