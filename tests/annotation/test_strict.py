"""What goes to OpenAI as a strict schema keeps the rules of its guide; they are written here once more, as a schema."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Message
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.openai_compatible import OpenAICompatible, strict_schema
from earmark.tasks.annotation.prompts import bound, packaged, prompt_names
from tests.servers.openai_server import fitting

NUMBER = {"type": "number"}
COUNT = {"type": "integer", "minimum": 0}
RULES: dict[str, Any] = {
    "$ref": "#/$defs/any",
    "$defs": {
        "any": {
            "type": "object",
            "oneOf": [{"required": ["type"]}, {"required": ["anyOf"]}],
            "properties": {
                "type": {"enum": ["string", "number", "boolean", "integer", "object", "array"]},
                "description": {"type": "string"},
                "title": {"type": "string"},
                "enum": {"type": "array", "minItems": 1},
                "const": True,
                "anyOf": {"type": "array", "items": {"$ref": "#/$defs/any"}},
                "items": {"$ref": "#/$defs/any"},
                "properties": {"type": "object", "additionalProperties": {"$ref": "#/$defs/any"}},
                "required": {"type": "array", "items": {"type": "string"}},
                "additionalProperties": {"const": False},
                "pattern": {"type": "string"},
                "format": {"type": "string"},
                **dict.fromkeys(("minItems", "maxItems"), COUNT),
                **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), NUMBER),
            },
            "additionalProperties": False,
            "if": {"properties": {"type": {"const": "object"}}, "required": ["type"]},
            "then": {"required": ["properties", "required", "additionalProperties"]},
        }
    },
}
SIZES = defaultdict[str, Any](lambda: 4, names=["Option A", "Option B"])  # of what bounds of schemas name
SCHEMAS = {name: bound(packaged(name).schema, SIZES) for name in prompt_names() if packaged(name).schema}
MAYBE_FEWER = "score-question-distractors"  # up to three options
LISTS = {
    f"rubric-judge{paper}-{language}" for paper in ("", "-paper") for language in ("en", "zh")
}  # a list of items, as the paper's judge gives it


def all_required(schema: Any) -> bool:
    """Whether every field of every object is required, which no JSON schema of schemas can say."""
    if isinstance(schema, list):
        return all(map(all_required, schema))
    if not isinstance(schema, dict):
        return True
    fields = schema.get("properties", {})
    return sorted(schema.get("required", fields)) == sorted(fields) and all(map(all_required, schema.values()))


def test_the_prompts_whose_form_strict_mode_cannot_express_are_known() -> None:
    assert not [name for name, schema in SCHEMAS.items() if strict_schema(schema) is None]
    assert strict_schema(packaged(MAYBE_FEWER, 1).schema or {}) is None
    assert {name for name, schema in SCHEMAS.items() if schema.get("type") != "object"} == LISTS


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name not in LISTS])
def test_every_other_prompt_is_asked_strictly(name: str) -> None:
    schema = SCHEMAS[name]
    sent = strict_schema(schema)
    assert sent, f"{name}: strict mode cannot express its schema"
    Draft202012Validator(RULES).validate(sent)
    assert all_required(sent)
    for seed in range(20):  # it refuses no answer that ours takes
        answer = fitting(schema, seed)
        Draft202012Validator(schema).validate(answer)
        Draft202012Validator(sent).validate(answer)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": [], "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
    ],
)
def test_what_strict_mode_cannot_express_is_not_called_strict(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def body_of(name: str, base_url: str | None = None, version: int | None = None) -> dict[str, Any]:
    """What would be sent."""
    config = AnnotatorConfig(annotator="openai:m", base_url=base_url)
    request = question(config, [Message.of("user", "?")], packaged(name, version).ask(**SIZES))
    return OpenAICompatible(config, Media()).body(request)


def test_what_is_no_object_is_asked_for_by_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert "response_format" not in body_of("rubric-judge-en")
    assert "response_format" in body_of("rubric-judge-en", "http://127.0.0.1:8000/v1")
    assert body_of(MAYBE_FEWER, version=1)["response_format"]["json_schema"]["strict"] is False


@pytest.mark.parametrize(
    ("base_url", "strict", "bounded"),
    [
        (None, True, False),
        ("https://lab.openai.azure.com/openai/v1", True, False),
        ("http://127.0.0.1:8000/v1", True, True),
        ("https://notopenai.com/v1", True, True),
    ],
)
def test_servers_of_others_get_the_bounds(
    base_url: str | None, strict: bool, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    form = body_of("music-pair", base_url)["response_format"]["json_schema"]
    assert form["strict"] is strict
    assert ("maxLength" in json.dumps(form["schema"])) is bounded
