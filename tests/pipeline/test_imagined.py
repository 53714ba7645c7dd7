"""The answers of a dry run: each has the form that its request asks for, and passes the check where a form can."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.questions import Ask as Form
from earmark.schemas.questions import Choice, Json, Message, ScaleRating, YesNo
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.prompts import bound, packaged, prompt_names, versions_of
from earmark.tasks.pipeline.ask import Ask, Fault, Posed, Values, prompt_digests
from earmark.tasks.pipeline.imagined import STAND_IN, imagined_answers

BOUNDS = {"items": [1, 2, 3], "comments": 5, "most": 3, "names": ["Option A", "Option B"]}


class Trial(BuildConfig):
    """A build that asks one writer, if any."""

    corpus: str = "trial"
    writer: AnnotatorConfig | None = AnnotatorConfig(annotator="openai:tiny")

    def asked(self) -> dict[str, AnnotatorConfig]:
        return {"writer": self.writer} if self.writer else {}


@pytest.mark.parametrize("name", prompt_names())
def test_an_imagined_answer_fits_the_schema_of_every_prompt(name: str) -> None:
    for version in versions_of(name):
        schema = packaged(name, version).schema
        if schema is None:
            continue
        form = packaged(name, version).ask(**BOUNDS)
        (answer,) = imagined_answers(form)
        assert list(Draft202012Validator(bound(schema, BOUNDS)).iter_errors(answer)) == []
        texts = [text for text in _texts(answer) if STAND_IN in text]
        assert len(set(texts)) == len(texts)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for one in inner for text in _texts(one)]


def test_given_fields_stand_and_the_others_derive_at_any_depth() -> None:
    item = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "answer": {"enum": ["yes", "no"]}, "why": {"type": "string"}},
        "required": ["id", "answer"],
    }
    form = Json.of({"type": "object", "properties": {"items": {"type": "array", "items": item}}, "required": ["items"]})
    given = {"items": [{"id": 7, "answer": "no"}, {"id": 9, "why": ...}]}
    (answer,) = imagined_answers(form, given)
    assert answer["items"][0] == {"id": 7, "answer": "no"}
    assert answer["items"][1]["answer"] == "yes"
    assert STAND_IN in answer["items"][1]["why"]
    (whole,) = imagined_answers(form)
    assert [one["id"] for one in whole["items"]] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        (Choice(("A", "B", "tie")), "B"),
        (YesNo(), {"p_yes": 0.0, "share": 1.0, "bounded": False}),
        (ScaleRating(1, 3), {"score": 2.0, "share": 1.0}),
    ],
)
def test_the_first_answer_that_passes_the_check_is_taken(form: Form, wanted: Any) -> None:
    def check(config: Trial, row: dict[str, Any], value: Any) -> Fault | None:
        return None if value == wanted else Fault("other", "expected the wanted one")

    def request(config: Trial, row: dict[str, Any]) -> Posed:
        assert config.writer is not None
        words = [Message.of("user", "Which?")]
        return Posed(packaged("caption-direct"), question(config.writer, words, form))

    ask = Ask("choose", "writer", request, check=check)
    assert ask.answer(Trial(), {}, ask.pose(Trial(), {}).request) == wanted


def test_a_build_depends_on_the_prompts_of_the_roles_that_it_asks() -> None:
    ask: Ask[Trial] = Ask(
        "write",
        "writer",
        prompt=lambda config, row: f"caption-{row['style']}",
        kinds=lambda config: [{"style": "direct"}, {"style": "mix"}],
        values=lambda config, row: Values({}),
    )
    used = {one.id: one.sha256 for one in (packaged("caption-direct"), packaged("caption-mix"))}
    assert prompt_digests(Trial(), [ask]) == used
    assert prompt_digests(Trial(writer=None), [ask]) == {}
