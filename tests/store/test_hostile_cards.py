"""Names from outside in a card's own sections: no image, link, tag or heading of theirs is in the published page."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

from earmark.tasks.pipeline.preferences import preference_matrix
from earmark.tasks.pseudo_preferences.confounds import confounds_section
from earmark.tasks.pseudo_preferences.labels import _bias_section, people_section
from earmark.tasks.release.evaluated import audit_section

NAMES = [
    "m1|![t](http://127.0.0.1:9/t.png)",
    "m2<img src=x onerror=alert(1)>",
    "m3`<script>alert(1)</script>`",
    "[m4](javascript:alert(1))",
    "m5\n\n## Licence: CC0\n\n<b>x</b>",
    "<http://127.0.0.1/m6>",
    "m7\\|<i>x</i>",
]


def row(name: str) -> dict[str, Any]:
    """A row with that name in every text that is not our own word, and a half in every number."""
    ours = {"scope": "all", "matched": None, "dimension": "musicality", "set": "answers", "feature": "louder"}
    return defaultdict(lambda: 0.5, {**ours, "judge": name, "value": name, "measure": "accuracy"})


def audit(name: str) -> str:
    share = {"precision": 0.5, "low": 0.1, "high": 0.9}
    cell = {"label": name, "stratum": name, "confirmed": 1, "refuted": 1, "disputed": 0, "unsure": 0, **share}
    facts = {"evaluation": name, "covered": 1, "audited": 2, "reviewers": 2, "stratify": name, "cells": [cell]}
    return audit_section({**facts, "overall": share, "alone": [{"stratum": name, **share}]})


SECTIONS = {
    "matrix": lambda name: preference_matrix("board", [name, "b"], np.array([[0.0, 1.0], [2.0, 0.0]])).markdown(),
    "confounds": lambda name: confounds_section([row(name)]),
    "bias": lambda name: _bias_section([row(name)]),
    "people": lambda name: people_section([row(name)]),
    "audit": audit,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("section", SECTIONS)
def test_a_name_is_text_in_a_card(section: str, name: str) -> None:
    reader = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table")

    def kinds(text: str) -> list[str]:
        tokens = reader.parse(text)
        inner = [child for token in tokens for child in token.children or ()]
        return [token.type for token in (*tokens, *inner) if token.type not in ("text", "text_special", "softbreak")]

    found = kinds(SECTIONS[section](name))
    assert not {"image", "html_inline", "html_block", "link_open"} & set(found)
    assert found == kinds(SECTIONS[section]("name"))
