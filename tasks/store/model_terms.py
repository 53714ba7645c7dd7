"""Look up the terms of a version's models: as stated in its config's `[licences]`, else in a dated table.

`schemas/model_terms.json` has terms by model, each with its page and the day of reading. The page may differ today; the
config's terms have precedence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

UNKNOWN = "unknown; say it in [licences]"
_OF_OURS = ("builtin:", "centre-removal")  # these measure the signal, without a model and its terms
_NON_COMMERCIAL = re.compile(r"\bnc\b|non-?commercial|research[- ]only", re.IGNORECASE)


def names_of(model: str) -> tuple[str, str]:
    """Return a model's possible names in `[licences]`: as annotator (`openai:org/model`), and without the backend."""
    return model, model.partition(":")[2] or model


def terms_of(models: Iterable[str], licences: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the terms of models by name; `UNKNOWN` if neither the config nor the table has them."""
    terms = {}
    for model in (model for model in models if not model.startswith(_OF_OURS)):
        stated = (licences.get(name, {}).get("licence") for name in names_of(model))
        known = (_known().get(name, (None,))[0] for name in names_of(model))
        terms[model] = next((str(one) for one in (*stated, *known) if one), UNKNOWN)
    return terms


def new_terms(made: Any, before: Any) -> list[str]:
    """Return a line for each model of a build (`Made`) not yet named by the corpus's newest version."""
    known = before.manifest.models if before else ()
    terms = terms_of(made.models, made.config.get("licences") or {})
    return [
        f"terms of {model}: unknown; write them in the config:\n"
        f"  [licences.{json.dumps(model)}]\n"
        '  licence = "…"  # such as "CC-BY-NC-4.0"'
        if stated == UNKNOWN
        else f"terms of {model}: {stated}"
        for model, stated in terms.items()
        if model not in known
    ]


def warnings_of(terms: Mapping[str, str]) -> list[str]:
    """Return warnings to heed before passing on output of these models."""
    bound = [
        f"terms of {model}: {stated}; its output may be bound by them"
        for model, stated in terms.items()
        if _NON_COMMERCIAL.search(stated)
    ]
    return [*bound, *(f"terms of {model}: {UNKNOWN}" for model, stated in terms.items() if stated == UNKNOWN)]


@cache
def _known() -> dict[str, list[str]]:
    text = resources.files("earmark.schemas").joinpath("model_terms.json").read_text("utf-8")
    models: dict[str, list[str]] = json.loads(text)["models"]
    return models
