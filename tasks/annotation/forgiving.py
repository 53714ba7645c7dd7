"""What a model meant where its answer is almost JSON, or almost of the schema: form is forgiven, content never is.

Nothing is completed, guessed or left out: quotes, commas and marks of Markdown are made JSON's, names and words of the
schema are recognised whatever their case, and a number in quotes is a number. What still does not fit is a fault.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MARKS = " \t\r\n*_`\"'“”‘’.:"
_ALMOST = re.compile(
    r"""
      (?P<string> "(?:[^"\\\n]|\\.)*" )                                       # JSON already: nothing in it is touched
    | [“„«] (?P<typographic> [^“”„«»"\\\n]* ) [”“»]
    | (?<=[{\[,:]) (?P<space>\s*) '(?P<single> [^'"\\\n]* )' (?=\s*[,:}\]])
    | (?P<mark> \*\*|` )                                                      # around a key, or a fence
    | (?P<comma> ,(?=\s*[}\]]) )
    | \b(?P<word> True|False|None )\b                                         # as Python writes them
    """,
    re.VERBOSE,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")


def as_json(text: str) -> str:
    """Text whose almost-JSON is JSON: typographic and single quotes, commas before a closing bracket, Markdown marks
    and Python's words outside strings."""
    return _ALMOST.sub(_plain, text)


def _plain(part: re.Match[str]) -> str:
    match part.lastgroup:
        case "string":
            return part.group()
        case "typographic" | "single":
            return (part["space"] or "") + json.dumps(part[part.lastgroup], ensure_ascii=False)
        case "word":
            return _WORDS[part.group()]
    return ""


def fitted(value: Any, schema: Any) -> Any:
    """A value whose names and words are spelled as the schema has them; what is unknown to it stays as it is.

    Args:
        value: JSON.
        schema: JSON schema; `properties`, `items`, `enum` and `type` are looked at.
    """
    if not isinstance(schema, dict):
        return value
    match value:
        case dict():
            return _fitted_object(value, schema.get("properties", {}))
        case [[*inner]] if _item_type(schema) not in ("array", None):  # [[7, 5]] for [7, 5]
            return [fitted(one, schema["items"]) for one in inner]
        case list():
            return [fitted(one, schema.get("items")) for one in value]
        case str() if "enum" in schema:
            return _spelled(value, schema["enum"])
        case str() if schema.get("type") in ("number", "integer") and _NUMBER.fullmatch(value.strip()):
            return float(value) if "." in value else int(value)
    return value


def _fitted_object(value: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    names = [_spelled(name, [*properties]) for name in value]
    if len({*names}) < len(names):  # two spellings of one name have two answers
        return value
    return {name: fitted(one, properties.get(name)) for name, one in zip(names, value.values(), strict=True)}


def _spelled(word: str, known: list[Any]) -> str:
    """The word that is known and meant, if there is just one."""
    if word in known:
        return word
    meant = [one for one in known if isinstance(one, str) and one.casefold() == word.strip(_MARKS).casefold()]
    return meant[0] if len(meant) == 1 else word


def _item_type(schema: dict[str, Any]) -> str | None:
    items = schema.get("items")
    return items.get("type") if isinstance(items, dict) else None
