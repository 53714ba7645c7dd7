"""The terms of the models that made a version: as its config's `[licences]` state them, else by a dated table.

`schemas/model_terms.json` has terms by model, each with the page that states them, read on the day that it names. A
page may say something else today; what a config states goes before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

UNKNOWN = "unknown; say it in [licences]"
_OF_OURS = ("builtin:", "centre-removal")  # measure the signal: no model whose owner could ask for anything
_NON_COMMERCIAL = re.compile(r"\bnc\b|non-?commercial|research[- ]only", re.IGNORECASE)


def names_of(model: str) -> tuple[str, str]:
    """What `[licences]` may call a model: as annotator (`openai:org/model`), and without the backend."""
    return model, model.partition(":")[2] or model


def terms_of(models: Iterable[str], licences: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The terms of models by name; `UNKNOWN` where neither the config nor the table says them."""
    terms = {}
    for model in (model for model in models if not model.startswith(_OF_OURS)):
        stated = (licences.get(name, {}).get("licence") for name in names_of(model))
        known = (_known().get(name, (None,))[0] for name in names_of(model))
        terms[model] = next((str(one) for one in (*stated, *known) if one), UNKNOWN)
    return terms


def new_terms(made: Any, before: Any) -> list[str]:
    """A line for each model of what is to be made (`Made`) that the corpus's newest version does not name."""
    known = before.manifest.models if before else ()
    terms = terms_of(made.models, made.config.get("licences") or {})
    return [f"terms of {model}: {stated}" for model, stated in terms.items() if model not in known]


def warnings_of(terms: Mapping[str, str]) -> list[str]:
    """What to look at before output of these models is passed on."""
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
