"""Answers as models give them, and what each must yield: form is forgiven, content is not."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.questions import Choice, Json
from earmark.tasks.annotation.answers import Reply, answer_value
from earmark.tasks.annotation.errors import BadAnswer, SchemaMismatch, Truncated
from earmark.tasks.annotation.json_answers import as_json
from earmark.tasks.annotation.prompts import packaged

SCHEMA = {
    "type": "object",
    "properties": {
        "choice": {"type": "string", "enum": ["A", "B", "tie"]},
        "score": {"type": "integer"},
        "reason": {"type": "string"},
        "pair": {"type": "array", "items": {"type": "number"}},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"item": {"type": "integer"}, "answer": {"type": "string", "enum": ["yes", "no"]}},
                "required": ["item", "answer"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["choice"],
    "additionalProperties": False,
}
PLAIN = {"choice": "A", "reason": 'A\'s drums, and "B" has none; see {1}, [2],] and **bold** `x` or “so”'}
FORMS: dict[str, str] = {  # of an answer {"choice": X}
    "json": '{"choice": "X"}',
    "spaces": '\n  { "choice" :\n"X" }\n',
    "comma": '{"choice": "X",}',
    "comma and line": '{"choice": "X",\n}',
    "python": "{'choice': 'X'}",
    "typographic": "{“choice”: “X”}",
    "german": "{„choice“: „X“}",
    "guillemets": "{«choice»: «X»}",
    "mixed quotes": "{'choice': “X”}",
    "bold key": '{**"choice"**: "X"}',
    "bold in key": '{"**choice**": "X"}',
    "bold word": '{"choice": "**X**"}',
    "code word": '{"choice": "`X`"}',
    "upper key": '{"CHOICE": "X"}',
    "title key": '{"Choice": "X"}',
    "stop": '{"choice": "X."}',
    "quoted word": '{"choice": "\'X\'"}',
    "numbered key": '{"1. **Choice**": "X"}',
    "heading as key": '{"### Choice": "X"}',
    "null beside": '{"choice": "X"} ',
}
PLACES: dict[str, str] = {
    "alone": "@",
    "fence": "```json\n@\n```",
    "bare fence": "```\n@\n```",
    "prose before": "Clip A's drums aren't tight. So: @",
    "prose after": "@\n\nI hope that this helps!",
    "thinking": '<think>{"choice": "tie"} or {"choice": "B"}?</think>\n@',
    "reference": "As said in [1] and (2), @",
    "bold": "**Answer:** @",
    "twice": "@\n\nOnce more:\n@",
}
CASES = [(form, place) for form in FORMS for place in PLACES]
FAULTS: dict[str, tuple[str, type[Exception]]] = {
    "two numbers behind another blank": ('{"choice": "A", "score": 7\u00a05}', SchemaMismatch),
    "two answers": ('{"choice": "A"} {"choice": "B"}', SchemaMismatch),
    "two answers, almost JSON": ("{'choice': 'A'} {'choice': 'B'}", SchemaMismatch),
    "two spellings": ('{"choice": "A", "Choice": "B"}', SchemaMismatch),
    "one key twice": ('{"choice": "A", "choice": "B"}', SchemaMismatch),
    "one key twice, almost JSON": ("{'choice': 'A', 'choice': 'B'}", SchemaMismatch),
    "either": ('{"choice": "A or B"}', SchemaMismatch),
    "another word": ('{"choice": "clip A"}', SchemaMismatch),
    "a list": ('{"choice": ["A"]}', SchemaMismatch),
    "in a list": ('[{"choice": "A"}]', SchemaMismatch),
    "no quotes": ("{choice: A}", SchemaMismatch),
    "null": ('{"choice": null}', SchemaMismatch),
    "None": ("{'choice': None}", SchemaMismatch),
    "unknown key": ('{"choice": "A", "extra": 1}', SchemaMismatch),
    "missing key": ('{"reason": "A"}', SchemaMismatch),
    "another key": ('{"choices": "A"}', SchemaMismatch),
    "prose": ("Clip A is better.", SchemaMismatch),
    "cut": ('{"choice": "A", "reason": "the dru', SchemaMismatch),
    "cut, almost JSON": ("{'choice': 'A', 'reason': 'the dru", SchemaMismatch),
    "no closing brace": ('{"choice": "A"', SchemaMismatch),
    "only thinking": ('<think>{"choice": "A"}', Truncated),
    "score in words": ('{"choice": "A", "score": "seven"}', SchemaMismatch),
    "score with unit": ('{"choice": "A", "score": "7/10"}', SchemaMismatch),
    "broken score": ('{"choice": "A", "score": "7.5"}', SchemaMismatch),
    "endless number": ('{"choice": "A", "score": "99999999999999999999999"}', SchemaMismatch),
    "maybe": ('{"choice": "A", "items": [{"item": 1, "answer": "maybe"}]}', SchemaMismatch),
    "three deep": ('{"choice": "A", "pair": [[[7, 5]]]}', SchemaMismatch),
    "two pairs": ('{"choice": "A", "pair": [[7, 5], [5, 7]]}', SchemaMismatch),
}
MORE: dict[str, tuple[str, Any]] = {
    "number in quotes": ('{"choice": "A", "score": "7"}', {"choice": "A", "score": 7}),
    "number in quotes, with zeros": ('{"choice": "A", "score": " 07 "}', {"choice": "A", "score": 7}),
    "full width": ('{"choice": "Ａ", "score": 7}', {"choice": "A", "score": 7}),
    "below zero": ('{"choice": "A", "score": "-3"}', {"choice": "A", "score": -3}),
    "double brackets": ('{"choice": "A", "pair": [[7, 5]]}', {"choice": "A", "pair": [7, 5]}),
    "double brackets and space": ('{"choice": "A", "pair": [[7,5] ]}', {"choice": "A", "pair": [7, 5]}),
    "numbers in quotes": ('{"choice": "A", "pair": ["7.5", "5"]}', {"choice": "A", "pair": [7.5, 5]}),
    "items": (
        "{'Choice': 'tie', 'Items': [{'Item': '1', 'Answer': 'YES'}, {'item': 2, 'answer': 'No.'},]}",
        {"choice": "tie", "items": [{"item": 1, "answer": "yes"}, {"item": 2, "answer": "no"}]},
    ),
    "one item": (
        '{"choice": "A", "items": [{"item": 1, "answer": "yes"}]}',
        {"choice": "A", "items": [{"item": 1, "answer": "yes"}]},
    ),
    "no items": ('{"choice": "A", "items": []}', {"choice": "A", "items": []}),
    "hard text": (json.dumps(PLAIN), PLAIN),
    "hard text, comma": (json.dumps(PLAIN)[:-1] + ",}", PLAIN),
    "hard text, letters": (json.dumps(PLAIN, ensure_ascii=False)[:-1] + ",}", PLAIN),
    "apostrophe": ('{"choice": \'A\', "reason": "it\'s A"}', {"choice": "A", "reason": "it's A"}),
    "line break in a text": ('{"choice": "A", "reason": "one\n\ntwo"}', {"choice": "A", "reason": "one\n\ntwo"}),
    "line break, no space": ('{"choice":"A","reason":"one\r\ntwo"}', {"choice": "A", "reason": "one\r\ntwo"}),
    "tab in a text": ('{"choice": "A", "reason": "one\ttwo"}', {"choice": "A", "reason": "one\ttwo"}),
    "escapes beside a line break": (
        '{"choice": "A", "reason": "a \\"b\\" \\u00e9\n c:\\\\d, {x}"}',
        {"choice": "A", "reason": 'a "b" é\n c:\\d, {x}'},
    ),
    "line break, typographic": ("{“choice”: “A”, “reason”: “one\ntwo”}", {"choice": "A", "reason": "one\ntwo"}),
    "line break, single": ("{'choice': 'A', 'reason': 'one\ntwo'}", {"choice": "A", "reason": "one\ntwo"}),
    "full-width": ("｛“choice”：“A”，“score”：7，｝", {"choice": "A", "score": 7}),
    "full-width in a text": ('{"choice": "A", "reason": "［1］，x：y",}', {"choice": "A", "reason": "［1］，x：y"}),
    "double brackets, decimals": ('{"choice": "A", "pair": [[7.0, 5.0]]}', {"choice": "A", "pair": [7, 5]}),
    "comments": (
        '{"choice": "A", // clearer\n "score": 7, /* of 10 */ # so\n "reason": "http://a.b/c // d", // end\n}',
        {"choice": "A", "score": 7, "reason": "http://a.b/c // d"},
    ),
    "comments around single quotes": (
        "{ // the choice\n 'choice': 'A', # clearer\n /* of 10 */ 'score': 7, 'reason': 'a # b' // end\n}",
        {"choice": "A", "score": 7, "reason": "a # b"},
    ),
    "comment behind lines": ('{"choice": "A", "reason": /* why */ "x\ny" // so\n}', {"choice": "A", "reason": "x\ny"}),
    "other blanks": (
        '{\u3000"choice":\u00a0"A",\u200b\u00a0"score":\u00a07, "reason": "a\u00a0b"}',
        {"choice": "A", "score": 7, "reason": "a\u00a0b"},
    ),
    "comments at the end": ('{"choice": "A", "score": 7, # clearer\n /* so */ // end\n}', {"choice": "A", "score": 7}),
    "escaped apostrophe": (r"""{'choice': 'A', 'reason': 'it\'s \"A\"'}""", {"choice": "A", "reason": 'it\'s "A"'}),
    "True in a text": ('{"choice": "A", "reason": "True, None",}', {"choice": "A", "reason": "True, None"}),
}
CHOSEN: dict[str, str | type[Exception]] = {
    "A": "A", "a": "A", "[[A]]": "A", "**A**": "A", "(B)": "B", "`B`": "B", '"tie"': "tie", "TIE.": "tie", "[B].": "B",
    "<think>B</think>A": "A", "<think>B": Truncated, "A.": "A", "'A'": "A", "【A】": "A",
    "（B）。": "B", "［［A］］": "A", "A!": "A", "A or B": BadAnswer, "AB": BadAnswer,
    "Answer: A": "A", "The final answer is: **B**.": "B", "**Answer:** tie": "tie", "答案是B": "B", "最终答案：Ａ": "A",
    "\\boxed{A}": "A", "$\\boxed{\\text{B}}$": "B", "The answer is \\boxed{tie}.": "tie", "#### B": "B", "_A_": "A",
    "Ⓑ": "B", "-A": BadAnswer, "Answer: -A": BadAnswer, "The answer is not A": BadAnswer, "Answer: A or B": BadAnswer,
    "Answer": BadAnswer,
    "A. No wait, B.": BadAnswer, "\\boxed{A} or \\boxed{B}": BadAnswer, "Answer: A\nAnswer: B": BadAnswer,
    "clip A": BadAnswer, "neither": BadAnswer, "[[C]]": BadAnswer,
}  # fmt: skip


def test_there_are_two_hundred() -> None:
    assert len(CASES) + len(FAULTS) + len(MORE) + len(CHOSEN) >= 200


@pytest.mark.parametrize(("form", "place"), CASES)
@pytest.mark.parametrize("word", ["A", "tie"])
def test_an_answer_in_any_form_and_place_is_read(word: str, form: str, place: str) -> None:
    text = PLACES[place].replace("@", FORMS[form].replace("X", word))
    assert answer_value(Json.of(SCHEMA), Reply(text)) == {"choice": word}


@pytest.mark.parametrize("name", FAULTS)
def test_content_is_not_guessed(name: str) -> None:
    text, fault = FAULTS[name]
    with pytest.raises(fault):
        answer_value(Json.of(SCHEMA), Reply(text))


@pytest.mark.parametrize("name", MORE)
def test_values_are_as_the_schema_has_them(name: str) -> None:
    text, wanted = MORE[name]
    assert answer_value(Json.of(SCHEMA), Reply(text)) == wanted


@pytest.mark.parametrize("text", CHOSEN)
def test_choices(text: str) -> None:
    wanted = CHOSEN[text]
    if isinstance(wanted, str):
        assert answer_value(Choice(("A", "B", "tie")), Reply(text)) == wanted
    else:
        with pytest.raises(wanted):
            answer_value(Choice(("A", "B", "tie")), Reply(text))


LABELS = {
    "type": "object",
    "properties": {
        "choice": {"type": "string", "enum": ["A", "B", "tie"]},
        "reason": {"type": "string", "maxLength": 12},
        "caption": {"type": "string", "maxLength": 12},
        "labels": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"rationale": {"type": "string", "minLength": 1, "maxLength": 12}},
                "required": ["rationale"],
            },
        },
    },
    "required": ["choice"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("given_fields", "read"),
    [
        ({"reason": "twelve signs"}, {"reason": "twelve signs"}),
        ({"reason": "thirteen sign"}, {"reason": "thirteen si…"}),
        ({"reason": "the drums of A are steadier"}, {"reason": "the drums o…"}),
        ({"reason": "the drums  of A"}, {"reason": "the drums…"}),
        (
            {"labels": [{"rationale": "听起来像一支交响乐队在演奏"}]},
            {"labels": [{"rationale": "听起来像一支交响乐队在…"}]},
        ),
        ({"caption": "thirteen sign"}, None),  # a text of the data is not cut
        ({"reason": ["the drums of A are steadier"]}, None),
    ],
)
def test_a_too_long_explanation_is_cut_to_the_schema_and_the_decision_stays(
    given_fields: dict[str, Any], read: dict[str, Any] | None
) -> None:
    text = json.dumps({"choice": "B", **given_fields})
    if read is None:
        with pytest.raises(SchemaMismatch):
            answer_value(Json.of(LABELS), Reply(text))
        return
    assert answer_value(Json.of(LABELS), Reply(text)) == {"choice": "B", **read}


def test_a_music_pair_keeps_its_choices_beside_a_reason_of_1700_signs() -> None:
    said = {"musicality": "A", "alignment": "tie", "reason": "x" * 1700}
    read = answer_value(packaged("music-pair").ask(), Reply(json.dumps(said)))
    assert read == said | {"reason": "x" * 599 + "…"}


def test_two_decisions_with_long_reasons_stay_two() -> None:
    text = " or ".join(json.dumps({"choice": word, "reason": "x" * 40}) for word in "AB")
    with pytest.raises(SchemaMismatch, match="different ones"):
        answer_value(Json.of(LABELS), Reply(text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


NUMBERED = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 1, "maximum": 3}, "answer": {"enum": ["yes", "no"]}},
        "required": ["id", "answer"],
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize(
    ("ids", "more", "fits"),
    [
        ((1, 2, 3), {}, True),
        ((0, 1, 2), {}, True),
        ((2, 0, 1), {"dimension": "sex"}, True),
        (("0", "1", "2"), {}, True),
        ((0, 1, 3), {}, False),  # numbered neither way
        ((False, 1, 2), {}, False),
        ((0.0, 1, 2), {}, False),
    ],
)
def test_records_numbered_from_0_are_numbered_from_1(ids: tuple[Any, ...], more: dict[str, str], fits: bool) -> None:
    text = json.dumps([{"id": one, "answer": "yes" if at else "no", **more} for at, one in enumerate(ids)])
    if not fits:
        with pytest.raises(SchemaMismatch):
            answer_value(Json.of(NUMBERED), Reply(text))
        return
    read = answer_value(Json.of(NUMBERED), Reply(text))
    first = int(0 in [int(one) for one in ids])
    expected = [(int(one) + first, "yes" if at else "no") for at, one in enumerate(ids)]
    assert [(row["id"], row["answer"]) for row in read] == expected
    assert all(row.keys() == {"id", "answer"} for row in read)


@pytest.mark.parametrize("loop", ["{ /* x ", "{/*", "{ /* x \n", "# ", "//", "say: // "])
def test_a_loop_of_comments_without_an_end_takes_no_second(loop: str) -> None:
    """Each of them looked for its end through all of the text: 60,000 characters took up to 14 s."""
    text, start = loop * (60_000 // len(loop)), time.process_time()
    with pytest.raises(SchemaMismatch):
        answer_value(Json.of(SCHEMA), Reply(text))
    assert time.process_time() - start < 1.0


def test_many_comments_that_end_are_forgiven() -> None:
    items = "".join(f"{{'item': {n}, /* heard # {n} */ 'answer': 'yes'}}, // so\n" for n in range(100))
    read = answer_value(Json.of(SCHEMA), Reply(f"{{'choice': 'A', 'items': [\n{items}]}}"))
    assert len(read["items"]) == 100


@pytest.mark.slow
@given(JSON)
def test_json_means_the_same_after_it_was_forgiven(value: Any) -> None:
    for ascii_only in (True, False):
        assert json.loads(as_json(json.dumps(value, ensure_ascii=ascii_only))) == value


@pytest.mark.slow
@given(JSON)
def test_what_python_prints_means_the_same_or_nothing(value: Any) -> None:
    try:
        meant = json.loads(as_json(repr(value)))
    except ValueError:
        return
    assert meant == value
