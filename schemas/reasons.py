"""Declare rejects, with the reasons of `reasons.toml`. No other can be written, but those that packages add."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel


@dataclass(frozen=True)
class Reason:
    """A reason's kind and options."""

    kind: Literal["fault", "rule"]  # `fault` or `rule`
    # the ends of the config keys that can mend it (`clips.shortest_s`); none where only the input can
    options: tuple[str, ...]


_TABLE: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
FAULTS, RULES = _TABLE["faults"], _TABLE["rules"]
"""Words of faults and of rules, by the options that can mend or set them."""
MERGED = _TABLE["merged"]
"""Words of 1.0.0 by the reason that took their place."""
REASONS: dict[str, Reason] = {
    word: Reason("fault" if declared is FAULTS else "rule", tuple(options.split()))
    for declared in (FAULTS, RULES)
    for options, words in declared.items()
    for word in words.split()
}
CURRENT = {old: new for new, words in MERGED.items() for old in words.split()}
"""The reason in place of each word of 1.0.0."""


def current_word(word: str) -> str:
    """Return the reason that took the place of a word of 1.0.0; other words unchanged."""
    return CURRENT.get(word, word)


def count_reasons(counts: Mapping[str, int]) -> Counter[str]:
    """Add the counts of words of 1.0.0 to those of the reasons in their place."""
    current = Counter[str]()
    for word, count in counts.items():
        current[current_word(word)] += count
    return current


def add_reasons(reasons: Mapping[str, Reason]) -> None:
    """Declare reasons of a package, where it declares its corpus or layout.

    Raises:
        LookupError: a word has another meaning already.
    """
    for word, reason in reasons.items():
        if word in CURRENT or REASONS.setdefault(word, reason) != reason:
            raise LookupError(f"reject reason '{word}' is declared already, with another meaning; choose another word")


def find_reason(word: str) -> Reason:
    """Return the reason of a word, also of 1.0.0; of a package that is not loaded, a fault without options."""
    return REASONS.get(current_word(word), Reason("fault", ()))


def check_reasons(reasons: Iterable[str]) -> None:
    """Refuse reasons that are not declared here.

    Raises:
        LookupError: the first of them; the code that gives it must be mended.
    """
    for reason in reasons:
        if reason not in REASONS:
            raise LookupError(f"reject reason '{reason}' is not declared; a package declares its own by add_reasons")


def options_of(reason: str, config: type[BaseModel]) -> list[tuple[str, str]]:
    """Return the options of a corpus's config that can mend a reason: each one's dotted key and description."""
    keys = dict(_keys(config))
    ends = find_reason(reason).options
    return [(key, keys[key]) for end in ends for key in keys if f".{key}".endswith(f".{end}")]


def _keys(model: Any, before: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(model, type) and issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            yield before + name, field.description or ""
            yield from _keys(field.annotation, f"{before}{name}.")
    else:
        for inner in getattr(model, "__args__", ()):
            yield from _keys(inner, before)


SHOWN = 80  # characters of a value repeated in messages


class Reject(NamedTuple):
    """A line without a valid rating."""

    item: str  # the id if readable, else the first 80 characters of the line
    reason: str  # a fixed word, snake_case
    detail: str  # the expected and the found value
    source_file: str  # "" if no file names it
    line: int | None
    author: str | None = None  # the line's author, as the export names the person: it never leaves the build
    made_from: tuple[tuple[str, str], ...] = ()  # kinds and ids (`earmark.schemas.tables.Ref`) beside source and item


class Note(NamedTuple):
    """A remark about no single row, such as a missing part of the layout."""

    text: str


class AudioFault(NamedTuple):
    """A fault of an audio file: a fixed word, and the detail."""

    reason: str
    detail: str


def shown(value: object) -> str:
    """Return the beginning of a value on a single line, free of control characters and lone surrogates."""
    text = value if isinstance(value, str) else str(value)
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text[:SHOWN])
