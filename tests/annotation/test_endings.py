"""Believe no more than was said: the end of an answer, its thoughts, its probabilities."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Ask, Choice, FreeText, Json, Message, ScaleRating, YesNo, says_yes
from earmark.tasks.annotation.answers import Reply, answer_value, rating, spoken, yes_no
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.errors import (
    AllAlike,
    BadAnswer,
    BrokenOff,
    Empty,
    LowShare,
    Refused,
    ServerSpoke,
    Truncated,
    Unsupported,
)
from earmark.tasks.annotation.gemini import read_generate_content
from earmark.tasks.annotation.openai_compatible import read_chat_completion
from earmark.tasks.annotation.request import Answer, Request, Unanswered
from tests.annotation.conftest import Bench, config_for
from tests.servers.openai_server import OpenAIServer

WHOLE = "A slow piano melody over warm strings. The ending is bright."
HALF = "A slow piano mel"


def completion(content: Any, finish: Any = "stop", **message: Any) -> str:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}})


@pytest.mark.parametrize("finish", ["stop", "eos", "eos_token", "stop_sequence", "end_turn", "STOP"])
def test_a_known_normal_end_is_an_answer(finish: str) -> None:
    assert answer_value(FreeText(), read_chat_completion(completion(WHOLE, finish))) == WHOLE


@pytest.mark.parametrize(
    "finish", ["abort", "error", None, {"type": "abort"}, "OTHER", "tool_calls", "function_call", "weary", 7, [], ""]
)
def test_any_other_end_is_none(finish: Any) -> None:
    for ask in (FreeText(), Choice((HALF, "B")), Json.of({}), YesNo()):
        with pytest.raises(BrokenOff, match="expected an answer with a known end"):
            answer_value(ask, read_chat_completion(completion(HALF, finish)))


@pytest.mark.parametrize("ask", [FreeText(), Choice((HALF, "B"))])
def test_a_fault_beside_a_normal_end_breaks_the_answer_off(ask: Ask) -> None:
    said = json.loads(completion(HALF))
    said["choices"][0]["error"] = {"code": 502, "message": "Provider disconnected"}
    with pytest.raises(BrokenOff, match="Provider disconnected"):
        answer_value(ask, read_chat_completion(json.dumps(said)))


def test_an_answer_that_a_filter_ended_is_refused_in_other_words_too() -> None:
    with pytest.raises(Refused):
        answer_value(FreeText(), read_chat_completion(completion(HALF, "sensitive")))


@pytest.mark.parametrize(
    "text",
    [
        "You have reached your daily limit. Please upgrade your plan to continue.",
        "Error: invalid API key. Please check your API key and try again later.",
        "Your credit balance is too low to access the API.",
        "您的账户余额不足，请充值。",
    ],
)
@pytest.mark.parametrize("ask", [FreeText(), Choice(("A", "B")), Json.of({"type": "object"})])
def test_a_servers_message_in_the_place_of_an_answer_is_asked_again_and_never_kept(ask: Ask, text: str) -> None:
    with pytest.raises(ServerSpoke, match="a server's message in its place"):
        answer_value(ask, read_chat_completion(completion(text)))
    assert answer_value(FreeText(), Reply(text, embedded=True)) == text


@pytest.mark.parametrize(
    "text",
    [
        "A daily walk through strings that are driven to their limit, at 120 beats per minute.",
        "Music for end credits: a piano that was once out of tune, and a choir of synthesizers.",
        "Clip 1 has a rate of noise per second that exceeded my limit; clip 2 has none.",
        "Clip A: there is not enough balance between the vocals and the drums; the bass is muddy.",
        "The mix has insufficient balance, and the snare is too loud.",
        "The theme of a weekly radio show that reached the limit of clipping.",
        "An advertisement: a man says 'your free trial has expired' over a jingle.",
        "人声和鼓的音量上限今日达到上限，额度不足。",
    ],
)
def test_words_of_limits_in_a_caption_are_no_servers_message(text: str) -> None:
    assert answer_value(FreeText(), read_chat_completion(completion(text))) == text


@pytest.mark.parametrize("text", ['```json\n{"why": "%s"}\n```', 'Here it is: {"why": "%s"}'])
def test_json_that_fits_is_no_servers_message(text: str) -> None:
    schema = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]}
    why = "A has insufficient balance"
    assert answer_value(Json.of(schema), read_chat_completion(completion(text % why))) == {"why": why}


def test_a_text_with_damaged_bytes_is_no_answer() -> None:
    with pytest.raises(BadAnswer, match=r"U\+FFFD"):
        answer_value(FreeText(), read_chat_completion(completion("A slow piano m\ufffd\ufffdlody over strings.")))


@pytest.mark.parametrize("finish", ["OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", None, "NEW_WORD"])
def test_gemini_too_ends_an_answer_with_stop(finish: Any) -> None:
    candidate = {"content": {"parts": [{"text": HALF}]}, "finishReason": finish}
    with pytest.raises(BrokenOff):
        answer_value(FreeText(), read_generate_content(json.dumps({"candidates": [candidate]})))


@pytest.mark.parametrize(
    "written",
    [
        f"<think>A harp? Unsure.</think>{WHOLE}",
        f"A harp? Unsure.</think>\n\n{WHOLE}",
        f"◁think▷A harp?◁/think▷{WHOLE}",
        f"[THINK]Not certain, maybe a harp.[/THINK]{WHOLE}",
        f"<thought>\nA harp or a guitar.\n</thought>\n{WHOLE}",
        f"<thinking>maybe</thinking>{WHOLE}",
        f"<seed:think>maybe</seed:think>{WHOLE}",
        f"<|begin_of_thought|>x<|end_of_thought|><|begin_of_solution|>{WHOLE}<|end_of_solution|>",
        f"<|channel|>analysis<|message|>A harp?<|end|><|start|>assistant<|channel|>final<|message|>{WHOLE}",
        f"<|channel|>analysis<|message|>x<|end|><|channel|>final<|message|>{WHOLE}<|return|>",
        f"analysisThe user wants a caption.assistantfinal{WHOLE}",
        f"<reasoning>maybe a harp</reasoning>\n{WHOLE}",
        f"<analysis>a harp?</analysis><reflection>or two</reflection>\n\n{WHOLE}",
        f"<scratchpad>\na harp\n</scratchpad>\n<output>\n{WHOLE}\n</output>",
        f"{WHOLE}\n<reflection>sure.</reflection>",
        f"<reasoning>a harp?</reasoning>{WHOLE}<reflection>sure.</reflection>",
        f"<think>x</think>{WHOLE}<Reasoning>as heard</Reasoning> <analysis>so</analysis>\n",
        f"<think>x</think><answer>{WHOLE}</answer>",
        f"<THINK>x</THINK>\n<RESPONSE>{WHOLE}</RESPONSE><|im_end|>",
        f"<think>x</think><|begin_of_box|>{WHOLE}<|end_of_box|>",
        f"{WHOLE}<|im_end|>",
        f"{WHOLE}<|im_end|>\n<|im_start|>user\nAnother one.",
        f"{WHOLE}<|eot_id|>",
        f"{WHOLE}<end_of_turn>",
        f"{WHOLE}</s>",
        f"{WHOLE}<｜end▁of▁sentence｜>",
        f"<|im_start|>assistant\n{WHOLE}",
        WHOLE,
    ],
)
def test_thoughts_and_marks_of_templates_are_no_part_of_an_answer(written: str) -> None:
    assert spoken(written) == WHOLE
    assert answer_value(FreeText(), Reply(written)) == WHOLE


@pytest.mark.parametrize(
    "text",
    [
        f"{WHOLE} <answer>B</answer>",
        f"<answer>{WHOLE}</answer> I am sure.",
        f"<answer>A</answer> or <answer>{WHOLE}</answer>",
        f"<answer>{WHOLE}</response>",
        f"<b>{WHOLE}</b>",
    ],
)
def test_a_tag_that_is_no_envelope_of_the_whole_answer_stays(text: str) -> None:
    assert spoken(text) == text


@pytest.mark.parametrize("text", [f"So: <|begin_of_box|>{WHOLE}<|end_of_box|>", f"{WHOLE}<|end_of_box|> and more"])
def test_a_box_in_the_middle_is_a_leak(text: str) -> None:
    with pytest.raises(BadAnswer, match="special token"):
        spoken(text)


def test_a_choice_in_an_envelope_is_that_choice() -> None:
    for text in ("<think>x</think><answer>A</answer>", "<think>x</think>\n<|begin_of_box|> A <|end_of_box|>"):
        assert answer_value(Choice(("A", "B")), Reply(text)) == "A"


@pytest.mark.parametrize(
    "opening",
    ["<reasoning>", "<scratchpad>", "<think>", "◁think▷", "[THINK]", "<thought>", "<|channel|>analysis<|message|>"],
)
def test_thoughts_without_an_end_are_no_answer(opening: str) -> None:
    for written in (f"{opening}A harp? Unsure.", f"A piano piece.{opening} or a harp"):
        with pytest.raises(Truncated):
            answer_value(FreeText(), Reply(written))


@given(st.text(max_size=60), st.sampled_from(["<|im_sep|>", "<|fim_middle|>", "<|vision_start|>", "<｜tool▁calls｜>"]))
def test_no_special_token_reaches_a_table(text: str, token: str) -> None:
    with pytest.raises((BadAnswer, Truncated)):
        answer_value(FreeText(), Reply(f"{text}x{token}y"))


@given(st.text(alphabet="abc <>|/[]s.", max_size=60))
def test_what_holds_no_mark_is_left_as_it_is(text: str) -> None:
    assert spoken(f"a {text} b") == f"a {text} b".strip()


def test_content_in_parts_is_read_and_its_thoughts_are_not() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}
    parts = [thinking, {"type": "text", "text": WHOLE[:9]}, {"type": "text", "text": WHOLE[9:]}]
    assert answer_value(FreeText(), read_chat_completion(completion(parts))) == WHOLE
    for wrong in ([{"type": "image_url"}], [7], {"text": WHOLE}, 7):
        with pytest.raises(BadAnswer, match="expected text, found"):
            answer_value(FreeText(), read_chat_completion(completion(wrong)))


def test_reasoning_beside_an_empty_answer_is_none() -> None:
    for content in (None, "", []):
        with pytest.raises(Empty):
            answer_value(FreeText(), read_chat_completion(completion(content, reasoning_content=WHOLE)))
    with pytest.raises(Truncated, match="no text came within 5 tokens"):
        answer_value(FreeText(), read_chat_completion(completion(None, "length", reasoning_content=WHOLE)))


# -- probabilities --------------------------------------------------------------------------------------------


def tokens(**shares: float) -> tuple[tuple[str, float], ...]:
    return tuple((token, math.log(share)) for token, share in shares.items())


def test_a_server_that_lists_the_chosen_token_alone_bounds_the_other_by_what_is_left() -> None:
    no = yes_no(YesNo(), Reply("No", first_token=tokens(No=0.9999)))
    assert no["p_yes"] == pytest.approx(0.0001)
    assert (no["share"], no["bounded"]) == (pytest.approx(0.9999), True)
    assert yes_no(YesNo(), Reply("Yes", first_token=tokens(Yes=0.9999)))["p_yes"] == pytest.approx(0.9999)
    assert yes_no(YesNo(), Reply("No", first_token=(("No", 0.0),)))["p_yes"] == 0.0
    listed = yes_no(YesNo(), Reply("No", first_token=tokens(No=0.6, Not=0.2, Maybe=0.01)))
    assert listed["p_yes"] == pytest.approx(0.01 / 0.61)  # as likely as the least that is listed, at most


def replies(*shares: tuple[str, float], chosen: tuple[str, float]) -> list[Reply]:
    """The first token of both protocols: the chosen one, and the list, in which it stands too."""
    listed = [{"token": token, "logprob": math.log(share)} for token, share in shares]
    alone = {"token": chosen[0], "logprob": math.log(chosen[1])}
    choice = {"message": {"content": chosen[0]}, "finish_reason": "stop"}
    chat = {"choices": [{**choice, "logprobs": {"content": [{**alone, "top_logprobs": listed}]}}]}
    named = [{"token": one["token"], "logProbability": one["logprob"]} for one in [alone, *listed]]
    result = {"chosenCandidates": named[:1], "topCandidates": [{"candidates": named[1:]}]}
    candidate = {"content": {"parts": [{"text": chosen[0]}]}, "finishReason": "STOP", "logprobsResult": result}
    return [read_chat_completion(json.dumps(chat)), read_generate_content(json.dumps({"candidates": [candidate]}))]


@pytest.mark.parametrize(
    ("shares", "chosen", "p_yes"),
    [
        ([("Yes", 0.55), ("No", 0.42), ("No", 0.0004)], ("Yes", 0.55), 0.567),
        ([("Yes", 0.90), ("No", 0.08), ("Yes", 0.002), ("No", 0.0005)], ("Yes", 0.90), 0.918),
        ([("Yes", 0.55), ("No", 0.42)], ("Yes", 0.0001), 0.567),  # a third token, drawn and not listed
        ([("Yes", 0.55), ("No", 0.42)], ("Yes", 1.0), 0.567),  # a server that says what it drew for certain
        ([("No", 0.42), ("Maybe", 0.03)], ("Yes", 0.55), 0.567),  # a server that lists the others alone
    ],
)
def test_tokens_of_one_spelling_count_together_and_the_chosen_one_once(
    shares: list[tuple[str, float]], chosen: tuple[str, float], p_yes: float
) -> None:
    for reply in replies(*shares, chosen=chosen):
        value = yes_no(YesNo(), reply)
        assert value["p_yes"] == pytest.approx(p_yes, abs=5e-4)
        assert not value["bounded"]


def test_probabilities_of_more_than_1_together_are_none() -> None:
    for reply in replies(("Yes", 0.99), ("No", 0.98), chosen=("Yes", 0.99)):
        with pytest.raises(BadAnswer, match=r"at most 1 together, found 1\.97"):
            yes_no(YesNo(), reply)


def test_a_digit_of_two_tokens_does_not_lose_the_likelier_one() -> None:
    for reply in replies(("4", 0.55), ("5", 0.38), ("5", 0.0003), ("3", 0.05), chosen=("4", 0.55)):
        assert rating(ScaleRating(1, 5), reply)["score"] == pytest.approx(4.34, abs=5e-3)


@given(
    st.lists(st.floats(0.001, 1.0), min_size=3, max_size=12),
    st.integers(1, 12),
    st.booleans(),
)
def test_a_bound_is_never_below_what_the_model_truly_gives(weights: list[float], listed: int, yes_last: bool) -> None:
    """A model whose whole vocabulary is known, of which a server lists the likeliest."""
    names = [*(f"t{n}" for n in range(len(weights) - 2)), *(("No", "Yes") if yes_last else ("Yes", "No"))]
    truth = {name: weight / sum(weights) for name, weight in zip(names, weights, strict=True)}
    shown = dict(sorted(truth.items(), key=lambda pair: -pair[1])[:listed])
    if not {"Yes", "No"} & shown.keys():
        return
    said = yes_no(YesNo(), Reply("", first_token=tokens(**shown)))
    exact = truth["Yes"] / (truth["Yes"] + truth["No"])
    if {"Yes", "No"} <= shown.keys():
        assert said["p_yes"] == pytest.approx(exact)
    elif "No" in shown:
        assert said["p_yes"] >= exact - 1e-9
    else:
        assert said["p_yes"] <= exact + 1e-9


def test_one_half_is_never_heard() -> None:
    assert [says_yes(p) for p in (0.0, 0.5, math.nextafter(0.5, 1), 1.0)] == [False, False, True, True]


THINKS = {"<think>": -1e-6, "No": -15.2, "Yes": -16.1}


def first(**logprobs: float) -> dict[str, Any]:
    listed = [{"token": token, "logprob": value} for token, value in logprobs.items()]
    return {**listed[0], "top_logprobs": listed}


def heard(config: Any, count: int) -> list[Request]:
    return [question(config, [Message.of("user", f"clip {n}")], YesNo()) for n in range(count)]


def test_a_model_that_was_about_to_think_gives_no_probability(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await OpenAIServer().start()
        server.first_token = lambda body, content: first(**THINKS)
        config, bench = config_for(server), Bench(tmp_path / "l.sqlite", server)
        report = await bench.ask(config, heard(config, 3))
        one = report.outcomes[0]
        assert isinstance(one, Unanswered)
        assert (one.reason, one.final) == (LowShare.reason, False)
        assert "'<think>' is likelier" in one.detail
        assert report.exchanges == 3  # the same question gets the same probabilities
        with pytest.raises(AllAlike, match="'<think>' is likelier"):
            await bench.ask(config, heard(config, 40))
        lenient = config_for(server, least_share=0.0)  # what came is read again, and nothing is asked
        read = await bench.ask(lenient, heard(lenient, 3))
        assert (read.answered, read.exchanges) == (3, 0)
        strict = (await bench.ask(config, heard(config, 3))).outcomes
        assert all(isinstance(one, Unanswered) and one.reason == "low_share" for one in strict)
        await server.stop()

    run(story)


def test_a_config_or_a_server_says_how_many_alternatives_are_listed(tmp_path: Path, run: Any) -> None:
    class TakesFive(OpenAIServer):
        async def chat(self, request: web.Request) -> web.StreamResponse:
            if (await request.json()).get("top_logprobs", 0) > 5:
                error = {"message": "top_logprobs must be less than or equal to 5", "code": 400}
                return web.json_response({"error": error}, status=400)
            return await super().chat(request)

    async def story() -> None:
        server = await TakesFive().start()
        server.keep_bodies = True
        for place, options in enumerate(({}, {"extra_body": {"top_logprobs": 5}})):
            config = config_for(server, **options)
            report = await Bench(tmp_path / f"{place}.sqlite", server).ask(config, heard(config, 12))
            assert report.answered == 12
        assert {body["top_logprobs"] for body in server.bodies} == {5}
        await server.stop()

    run(story)


def test_a_broken_off_answer_is_asked_again_as_it_was(tmp_path: Path, run: Any) -> None:
    class BreaksOff(OpenAIServer):
        def completion(self, body: dict[str, Any], content: str, kind: str | None = None) -> dict[str, Any]:
            held = super().completion(body, content, kind)
            if self.faults.asked[content] == 1:
                held["choices"][0] |= {"finish_reason": "abort", "message": {"content": HALF}}
            return held

    async def story() -> None:
        server = await BreaksOff().start()
        server.keep_bodies = True
        config = config_for(server, temperature=0)
        requests = [question(config, [Message.of("user", f"say {n}")]) for n in range(4)]
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests)
        assert all(isinstance(one, Answer) and one.value.startswith("answer") for one in report.outcomes)
        assert report.exchanges == 8
        assert {body["temperature"] for body in server.bodies} == {0}
        await server.stop()

    run(story)


class Sends(OpenAIServer):
    """A server whose good answers come in another form."""

    kind, form = "text/event-stream", b"data: %b\n\ndata: [DONE]\n\n"
    chats = 0

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.chats += 1
        good = await super().chat(request)
        assert isinstance(good, web.Response)
        assert isinstance(good.body, bytes)
        return web.Response(body=self.form % good.body, content_type=self.kind)


@pytest.mark.parametrize("ask", [FreeText(), Choice(("A", "B")), YesNo()])
def test_a_stream_is_bought_once(tmp_path: Path, run: Any, ask: Ask) -> None:
    async def story() -> None:
        server = Sends()
        await server.start()
        config, bench = config_for(server, max_concurrency=1), Bench(tmp_path / "l.sqlite", server)
        asked = [question(config, [Message.of("user", f"clip {n}")], ask) for n in range(20)]
        with pytest.raises(Unsupported, match=r"expected one JSON body, found a stream.*stream = false in extra_body"):
            await bench.ask(config, asked)
        assert server.chats == 1
        await server.stop()

    run(story)


def test_a_body_with_a_byte_order_mark_is_an_answer_and_a_page_is_asked_for_thrice(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Sends()
        server.kind, server.form = "application/json", b"\xef\xbb\xbf%b"
        await server.start()
        config, bench = config_for(server, retries=6), Bench(tmp_path / "l.sqlite", server)
        asked = [question(config, [Message.of("user", f"clip {n}")], FreeText()) for n in range(4)]
        assert (await bench.ask(config, asked[:3])).answered == 3
        server.kind, server.form, server.chats = "text/html", b"<html>%b</html>", 0
        assert (await bench.ask(config, asked[3:])).reasons() == {"wrong_content_type": 1}
        assert server.chats == 3
        await server.stop()

    run(story)


def test_a_config_asks_for_no_stream() -> None:
    with pytest.raises(ValidationError, match=r"extra_body\.stream"):
        AnnotatorConfig(annotator="openai:x", base_url="http://127.0.0.1/v1", extra_body={"stream": True})
    assert AnnotatorConfig(annotator="openai:x", extra_body={"stream": False}).extra_body == {"stream": False}
