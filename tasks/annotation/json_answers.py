"""Read JSON from a model's text: whole, almost JSON, or among prose. Pure functions.

Raise `answers.PARSER` with every change of their results.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from earmark.schemas.questions import Json
from earmark.tasks.annotation.errors import SchemaMismatch, Truncated, one_line

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_MARKS = " \t\r\n*_`\"'“”‘’.:"
_GAP = r"(?:\s|(?://|\#)[^\n]*\n|/\*(?:[^*]|\*(?!/))*+\*/)*+"  # blanks and comments
_ALMOST = re.compile(
    rf"""
      (?P<string> "(?:[^"\\\n]|\\.)*" )                                       # JSON already, but for raw tabs
    | (?<=[{{\[,:｛［，：]) {_GAP} (?P<lines> "(?:[^"\\]|\\.)*" ) (?={_GAP}[,:}}\]｝］，：])  # over several lines
    | [“„«] (?P<typographic> [^“”„«»"\\]* ) [”“»]
    | (?<=[{{\[,:｛［，：]) {_GAP} '(?P<single> (?:[^'"\\]|\\['"])* )' (?={_GAP}[,:}}\]｝］，：])
    | (?P<comment> (?<![:\w])(?://|\#)[^\n]*(?=\n) | /\*.*?\*/ )
    | (?P<mark> \*\*|` )                                                      # around a key, or a fence
    | (?P<blank> [\u200b\ufeff]|[^\S\ \t\n\r] )                              # other blanks than JSON's
    | (?P<comma> [,，](?={_GAP}[}}\]｝］]) )
    | (?P<wide> [｛｝［］：，] )                                                # full-width signs
    | \b(?P<word> True|False|None )\b                                         # as Python writes them
    """,
    re.VERBOSE,
)
_OPENS = re.compile(r"/\*|//|\#")
# The end of each comment may be looked for through all of the text: a loop of "# # #" is not worth more steps.
MOST_COMMENTED = 20_000_000
_ESCAPED = {ord("\n"): r"\n", ord("\r"): r"\r", ord("\t"): r"\t"}
_HEADING = re.compile(r"[\s#*_]*(?:\d{1,2}[.)]\s*)?")
_WORDS = {"True": "true", "False": "false", "None": "null"}
_EXPLAINS = frozenset(("reason", "rationale", "explanation", "why"))  # fields that decide nothing
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")


def as_json(text: str) -> str:
    """Turn almost-JSON into JSON: typographic and single quotes, comments, commas before a closing bracket, Markdown
    marks, full-width signs, other blanks and Python's words outside strings, line breaks and tabs in strings.

    Nothing is completed or guessed. Names and words of the schema match in any case, a number in quotes is a number,
    and a too long explanation is cut (`fitted`). Records numbered from 0 are numbered from 1 where the schema is, and
    lose fields of their own. Any remaining misfit is a fault.
    """
    return text if len(_OPENS.findall(text)) * len(text) > MOST_COMMENTED else _ALMOST.sub(_plain, text)


def _plain(part: re.Match[str]) -> str:
    match part.lastgroup:
        case "string" | "lines":
            return part[part.lastgroup].translate(_ESCAPED)
        case "typographic" | "single":
            said = part[part.lastgroup].replace("\\'", "'").replace('\\"', '"')
            return json.dumps(said, ensure_ascii=False)
        case "word":
            return _WORDS[part.group()]
        case "wide":
            return chr(ord(part.group()) - 0xFEE0)
        case "blank":
            return " "
    return ""


def fitted(value: Any, schema: Any) -> Any:
    """Return a value with names and words spelled as in the schema; unknown names and words stay unchanged.

    Args:
        value: JSON.
        schema: JSON schema, of which `properties`, `items`, `enum`, `type` and `maxLength` are used.
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
    return {
        name: _fitted_field(name, one, properties.get(name)) for name, one in zip(names, value.values(), strict=True)
    }


def _fitted_field(name: str, value: Any, schema: Any) -> Any:
    """Return a field as `fitted`; cut an explanation to the schema's length, as the decision beside it is sound."""
    most = schema.get("maxLength") if isinstance(schema, dict) else None
    if name not in _EXPLAINS or most is None or not isinstance(value, str) or len(value) <= most:
        return fitted(value, schema)
    return f"{value[: int(most) - 1].rstrip()}…"


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
    plain = unicodedata.normalize("NFKC", bare or word).strip(_MARKS).casefold()
    meant = [one for one in known if isinstance(one, str) and one.casefold() == plain]
    return meant[0] if len(meant) == 1 else word


def _item_type(schema: dict[str, Any]) -> str | None:
    items = schema.get("items")
    return items.get("type") if isinstance(items, dict) else None


MOST_DEPTH = 64  # greatest nesting of lists and objects in an answer


def json_value(ask: Json, text: str, *, cut: bool) -> Any:
    """Return the one JSON value in a text that fits the schema.

    Raises:
        SchemaMismatch: none fits, or several do.
        Truncated: it ran into the token cap.
    """
    validator = _validator(ask.schema)
    values = _checked_json(text)
    fitting = [value for value in values if validator.is_valid(value)]
    if not fitting:
        text = as_json(text)
        values = [*values, *_checked_json(text)]
        meant = [fitted(value, validator.schema) for value in values]
        fitting = [value for value in meant if validator.is_valid(value)]
    if fitting and all(value == fitting[0] for value in fitting) and not (cut and _unfinished(text, len(fitting))):
        return fitting[0]
    if cut:
        raise Truncated("the JSON ran into the token cap (max_tokens)")
    if not values:
        raise SchemaMismatch(f"expected JSON, found {one_line(text)!r}")
    if fitting:
        raise SchemaMismatch(f"expected one JSON value, found {len(fitting)} different ones")
    from jsonschema.exceptions import best_match

    misfit = best_match(islice(validator.iter_errors(values[0]), 50))  # a list of a million faults is not worth more
    where = one_line(misfit.json_path) if misfit else "$"
    raise SchemaMismatch(f"{where}: {one_line(misfit.message) if misfit else 'does not fit'}")


def _checked_json(text: str) -> list[Any]:
    """Return the JSON values in a text."""
    values = list(_json_in(text))
    if fault := next(filter(None, map(unfit, values)), None):
        raise SchemaMismatch(f"expected JSON, found {fault} in it")
    return values


def unfit(value: Any, depth: int = 0) -> str | None:
    """Return the reason no table can hold a value, or None."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "half a surrogate pair"
        return "a NUL character" if "\0" in value else None
    if not isinstance(value, list | dict):
        return None
    if depth == MOST_DEPTH:
        return f"more than {MOST_DEPTH} lists and objects inside each other"
    inner = value if isinstance(value, list) else [*value, *value.values()]
    return next(filter(None, (unfit(one, depth + 1) for one in inner)), None)


def _json_in(text: str) -> Iterator[Any]:
    """Yield the whole text as JSON, or else each outermost object or array in it."""
    decoder = _decoder()
    try:
        yield decoder.decode(text)
    except (ValueError, RecursionError):
        yield from _embedded(decoder, text)


def _embedded(decoder: json.JSONDecoder, text: str) -> Iterator[Any]:
    at, tries = 0, 0
    while (start := _opening(text, at)) >= 0 and tries < 50:  # a long text of braces is not worth more
        tries += 1
        try:
            value, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
        else:
            yield value


_NESTING = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]]', re.DOTALL)  # a string, up to the end if it has none
_BETWEEN = re.compile(r"""(?:[\s,:\d.+-]|[eE]|true|false|null|'(?:[^'\\]|\\.)*+'?+)*+""")  # beside strings and brackets
_LAST = re.compile(_BETWEEN.pattern + r"[a-z]{0,4}")


def _unfinished(text: str, whole: int) -> bool:
    """Return whether an object or array runs into the end of a text: whole ones before or in it may be drafts.

    Behind two or more whole ones, a beginning of the same is the loop of a small model, no second thought.
    """
    at = 0
    while (at := _opening(text, at)) >= 0:
        start, end, depth = at, at, 0
        for part in _NESTING.finditer(text, at):
            if not _BETWEEN.fullmatch(text, end, part.start()):  # prose, such as [0, 1)
                break
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(part[0], 0)
            end = part.end()
            if depth == 0:
                break
        if depth and _LAST.fullmatch(text, end):
            return whole < 2 or text[start:] not in text[:start]
        at = start + 1 if depth else end
    return False


def _opening(text: str, at: int) -> int:
    found = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
    return min(found, default=-1)


@lru_cache(maxsize=1)
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_constant=_no_constant, parse_float=_finite, parse_int=_whole, object_pairs_hook=_no_doubles
    )


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is beyond every number")
    return value


def _whole(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= (value := int(text)) < 2**63:
        raise ValueError(f"{text[:20]} has more than 64 bits")
    return value


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject an object with a duplicate key: neither value is the model's choice."""
    held = dict(pairs)
    if len(held) != len(pairs):
        raise ValueError("a key stands twice")
    return held


@lru_cache(maxsize=256)
def _validator(schema: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # imported here, as it takes 60 ms and an up-to-date build reads none

    return Draft202012Validator(json.loads(schema))
