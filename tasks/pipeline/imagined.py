"""Imagine the answers of a dry run, from the form that a request asks for."""

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from earmark.schemas.questions import Ask, Choice, FreeText, Json, ScaleRating, YesNo

WORD = "word"
STAND_IN = f"{WORD} {WORD} {WORD}"
TEXT_WORDS = 60  # of a free text
LETTERS_A_WORD = 25  # of a field's bound: an imagined text fills about a fifth of it
ITEMS = 4  # of a list, within its bounds; AnyAudio-Judge has about as many rubric items


def imagined(words: int) -> str:
    """Return an imagined text of this number of words, 3 or more."""
    return " ".join([WORD] * words)


def imagined_answers(form: Ask, given: Any = None) -> Iterator[Any]:
    """Yield possible answers in a form, the likeliest first.

    Args:
        form: of the answer.
        given: fields of a JSON answer at any depth, of which `...` derives one; else the whole answer.
    """
    match form:
        case Json():
            ends = (f" {number} {form.name}" for number in count(1))  # texts differ from those of other asks, too
            yield _filled(json.loads(form.schema), ... if given is None else given, ends)
        case _ if given is not None:
            yield given
        case FreeText():
            yield imagined(TEXT_WORDS)
        case Choice():
            yield from form.choices
        case YesNo():
            yield from ({"p_yes": p_yes, "share": 1.0, "bounded": False} for p_yes in (1.0, 0.0))
        case ScaleRating():
            yield from ({"score": float(word), "share": 1.0} for word in reversed(form.words))


def _filled(schema: Mapping[str, Any], given: Any, ends: Iterator[str], place: int = 0) -> Any:
    """Return a value of a JSON schema with the given fields; texts differ, and integers count through a list."""
    if isinstance(given, Mapping) and "properties" in schema:
        fields, needed = schema["properties"], schema.get("required", ())
        return {
            name: _filled(fields[name], given.get(name, ...), ends, place)
            for name in fields
            if name in needed or name in given
        }
    if isinstance(given, list) and isinstance(schema.get("items"), Mapping):
        return [_filled(schema["items"], one, ends, number) for number, one in enumerate(given)]
    if given is not ...:
        return given
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return choices[0]
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return _filled(several[0], ..., ends, place)
    least = schema.get("minimum", 0)
    match schema.get("type"):
        case "object":
            return _filled({"properties": {}, **schema}, {}, ends, place)
        case "array":
            items = min(max(ITEMS, schema.get("minItems", 0)), schema.get("maxItems", ITEMS))
            return [_filled(schema.get("items", {}), ..., ends, number) for number in range(items)]
        case "integer":
            return min(least + place, schema.get("maximum", least + place))
        case "number":
            return (least + schema.get("maximum", least)) / 2
        case "boolean":
            return True
        case "null":
            return None
        case _:
            most = schema.get("maxLength", TEXT_WORDS * LETTERS_A_WORD)
            words = max(3, most // LETTERS_A_WORD, schema.get("minLength", 0) // len(WORD))
            return (imagined(words) + next(ends))[:most]
