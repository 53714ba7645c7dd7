"""Reduce a JSON schema to OpenAI's strict structured outputs (its guide on them, "supported schemas")."""

from __future__ import annotations

from typing import Any

KEYWORDS = {
    *("type", "enum", "const", "anyOf", "properties", "required", "additionalProperties", "items", "pattern", "format"),
    *("minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("description", "title"),
}
HOSTS = ("openai.com", "openai.azure.com")


def strict_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema without refused keywords, such as `maxLength`; answers are checked against the whole schema.

    Returns:
        A schema at least as permissive; None if strict mode cannot express it: an object with optional fields, or with
        fields of any name, or a reference.
    """
    if "$ref" in schema or "$defs" in schema:
        return None
    kept = {key: value for key, value in schema.items() if key in KEYWORDS}
    if "enum" in kept and "type" not in kept and all(isinstance(word, str) for word in kept["enum"]):
        kept["type"] = "string"
    fields = kept.get("properties", {})
    if kept.get("type") == "object" or fields:
        if kept.get("additionalProperties") is not False or {*kept.get("required", ())} != {*fields}:
            return None
        kept["properties"] = {name: strict_schema(one) for name, one in fields.items()}
    if "items" in kept:
        kept["items"] = strict_schema(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [strict_schema(one) for one in kept["anyOf"]]
    parts = [*kept.get("properties", {}).values(), kept.get("items", {}), *kept.get("anyOf", ())]
    return None if None in parts else kept
