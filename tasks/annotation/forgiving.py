"""Repair answers close to JSON or to the schema: form is forgiven, content never is.

Nothing is completed or guessed: quotes, commas, line breaks in strings and Markdown marks become JSON's, names and
words of the schema match in any case, and a number in quotes is a number. Records numbered from 0 are numbered from 1
where the schema is, and lose fields of their own. Any remaining misfit is a fault.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MARKS = " \t\r\n*_`\"'“”‘’.:"
_ALMOST = re.compile(
    r"""
      (?P<string> "(?:[^"\\\n]|\\.)*" )                                       # JSON already, but for raw tabs
    | (?<=[{\[,:｛［，：]) (?P<gap>\s*) (?P<lines> "(?:[^"\\]|\\.)*" ) (?=\s*[,:}\]｝］，：])  # over several lines
    | [“„«] (?P<typographic> [^“”„«»"\\]* ) [”“»]
    | (?<=[{\[,:｛［，：]) (?P<space>\s*) '(?P<single> [^'"\\]* )' (?=\s*[,:}\]｝］，：])
    | (?P<mark> \*\*|` )                                                      # around a key, or a fence
    | (?P<comma> [,，](?=\s*[}\]｝］]) )
    | (?P<wide> [｛｝［］：，] )                                                # full-width signs
    | \b(?P<word> True|False|None )\b                                         # as Python writes them
    """,
    re.VERBOSE,
)
_ESCAPED = {ord("\n"): r"\n", ord("\r"): r"\r", ord("\t"): r"\t"}
_HEADING = re.compile(r"[\s#*_]*(?:\d{1,2}[.)]\s*)?")
_WORDS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")


def as_json(text: str) -> str:
    """Turn almost-JSON into JSON: typographic and single quotes, commas before a closing bracket, Markdown marks,
    full-width signs and Python's words outside strings, line breaks and tabs in strings."""
    return _ALMOST.sub(_plain, text)


def _plain(part: re.Match[str]) -> str:
    match part.lastgroup:
        case "string" | "lines":
            return (part["gap"] or "") + part[part.lastgroup].translate(_ESCAPED)
        case "typographic" | "single":
            return (part["space"] or "") + json.dumps(part[part.lastgroup], ensure_ascii=False)
        case "word":
            return _WORDS[part.group()]
        case "wide":
            return chr(ord(part.group()) - 0xFEE0)
    return ""


def fitted(value: Any, schema: Any) -> Any:
    """Return a value with names and words spelled as in the schema; unknown names and words stay unchanged.

    Args:
        value: JSON.
        schema: JSON schema, of which `properties`, `items`, `enum` and `type` are used.
    """
    if not isinstance(schema, dict):
        return value
    match value:
        case dict():
            return _fitted_object(value, schema.get("properties", {}))
        case [[*inner]] if _item_type(schema) not in ("array", None):  # [[7, 5]] for [7, 5]
            return [fitted(one, schema["items"]) for one in inner]
        case list():
            return _numbered([fitted(one, schema.get("items")) for one in value], schema)
        case str() if "enum" in schema:
            return _spelled(value, schema["enum"])
        case str() if schema.get("type") in ("number", "integer") and _NUMBER.fullmatch(value.strip()):
            return float(value) if "." in value else int(value)
    return value


def _fitted_object(value: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    names = [_spelled(name, [*properties], _HEADING.sub("", name, count=1)) for name in value]
    if len({*names}) < len(names):  # two spellings of a name have two answers
        return value
    return {name: fitted(one, properties.get(name)) for name, one in zip(names, value.values(), strict=True)}


def _numbered(rows: list[Any], schema: dict[str, Any]) -> list[Any]:
    """Return records without fields beyond the schema's, and with ids from 1 in place of ids from 0."""
    known = schema["items"].get("properties", {}) if isinstance(schema.get("items"), dict) else {}
    if known.get("id", {}).get("minimum") != 1 or not all(isinstance(row, dict) for row in rows):
        return rows
    first = int(any(row.get("id") == 0 and type(row["id"]) is int for row in rows))
    kept = [{name: value for name, value in row.items() if name in known} for row in rows]
    return [{**row, "id": row["id"] + first} if type(row.get("id")) is int else row for row in kept]


def _spelled(word: str, known: list[Any], bare: str = "") -> str:
    """Return the known word meant, if there is just one; `bare` is the word without the marks of a heading."""
    if word in known:
        return word
    plain = (bare or word).strip(_MARKS).casefold()
    meant = [one for one in known if isinstance(one, str) and one.casefold() == plain]
    return meant[0] if len(meant) == 1 else word


def _item_type(schema: dict[str, Any]) -> str | None:
    items = schema.get("items")
    return items.get("type") if isinstance(items, dict) else None
