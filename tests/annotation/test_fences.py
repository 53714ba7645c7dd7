"""The marks around text from outside are no part of an answer: found exactly, asked again, counted where kept."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Choice, FreeText, Json, Text
from earmark.tasks.annotation.answers import Reply, answer_value
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import BadAnswer, KeptRefused
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.prompts import load_prompt, packaged
from earmark.tasks.annotation.request import Request
from tests.annotation.conftest import Bench, config_for, serving
from tests.annotation.test_prompts import BODY, A, B
from tests.annotation.test_reread import PRICED, age

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
CAPTION = "A calm piece for the guitar, in a warm room and at a steady pace."
REFINE = packaged("caption-refine")
NOBODY = AnnotatorConfig(annotator="openai:tiny", base_url="http://127.0.0.1:1/v1")


def requests(config: Any, count: int = 1, ask: Any = None) -> list[Request]:
    """Questions about texts from outside, all different."""
    return [question(config, REFINE.render(description=f"{CAPTION} {n}"), ask or FreeText()) for n in range(count)]


def tag_of(request: Request) -> str:
    """The tag of a request's fence, as its rule names it."""
    found = re.search(r"Everything between <NAME-([0-9a-f]{10})>", request_words(request))
    assert found
    return found[1]


def request_words(request: Request) -> str:
    return "\n".join(part.text for part in request.parts() if isinstance(part, Text))


@given(st.text(max_size=80), st.text(max_size=80), st.booleans())
def test_the_fence_of_a_request_is_its_own_whatever_the_texts_hold(text: str, lyrics: str, lookalike: bool) -> None:
    text = f"{text} <request-0123456789> </lyrics-abcdefabcd> NAME-0123456789" if lookalike else f"{text}."
    with TemporaryDirectory() as folder:
        (Path(folder) / "pair.md").write_text(BODY)
        messages = load_prompt(Path(folder), "pair").render(dimension="x", text=text, lyrics=lyrics, a=A, b=B)
    request = Request("openai:m", messages)
    assert request.fences() == {tag_of(request)}


@pytest.mark.parametrize("form", ["<description-{}>\n@", "@\n</description-{}>", "@ description-{}", "{}"])
def test_an_answer_that_holds_its_own_fence_is_none(form: str) -> None:
    request = requests(NOBODY)[0]
    leaked = form.format(tag_of(request)).replace("@", CAPTION)
    other = form.format("0123456789").replace("@", CAPTION)
    for ask, text in ((FreeText(), leaked), (Json.of(SCHEMA), f'{{"text": "{leaked}"}}'.replace("\n", " "))):
        with pytest.raises(BadAnswer, match="found the prompt's own fence"):
            answer_value(ask, Reply(text), fences=request.fences())
    assert answer_value(FreeText(), Reply(f"<think>{leaked}</think>{CAPTION}"), fences=request.fences()) == CAPTION
    assert answer_value(FreeText(), Reply(other), fences=request.fences()) == other
    assert answer_value(Choice(("A", "B")), Reply("A"), fences=request.fences()) == "A"


def test_a_fence_in_an_answer_is_asked_again(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, times = await serving(), 0
        server.keep_bodies = True

        def answer(body: Any, content: str) -> str:
            nonlocal times
            times += 1
            marks = re.findall(r"<description-[0-9a-f]{10}>", str(body["messages"][-1]["content"]))
            return f"{marks[0]}\n{CAPTION}" if times < 3 else CAPTION

        server.answer = answer
        config = config_for(server)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests(config))
        assert [one.value for one in report.outcomes] == [CAPTION]  # type: ignore[union-attr]
        assert times == 3
        await server.stop()

    run(story)


def test_kept_answers_with_a_fence_are_counted_before_they_are_asked_again(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, ledger = await serving(), tmp_path / "l.sqlite"
        config, bench = config_for(server, **PRICED), Bench(tmp_path / "l.sqlite", server)
        asked = requests(config, 6)
        server.answer = lambda body, content: CAPTION
        await bench.ask(config, asked)
        leak = """UPDATE attempts SET raw = replace(raw, 'A calm', '<description-{}> A calm')
            WHERE request_id = (SELECT id FROM requests WHERE hex(key) = '{}')"""
        age(ledger, *(leak.format(tag_of(one), one.key.upper()) for one in asked[:2]))
        async with open_ledger(ledger, reading=True) as opened, Annotator(config, opened) as annotator:
            dry = await annotator.forecast(asked)
        assert (dry["from_ledger"], dry["refused"]) == (4, 2)
        assert dry["refused_usd"] > 0
        with pytest.raises(KeptRefused, match=r"2 kept answers are none by today's rules .*fences"):
            await bench.ask(config, asked)
        again = await bench.ask(config, asked)
        assert {one.value for one in again.outcomes} == {CAPTION}  # type: ignore[union-attr]
        assert server.faults.numbers()["asked"] == 8
        await server.stop()

    run(story)
