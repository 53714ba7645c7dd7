"""Keys, answers, limits and pace: the pure parts."""

from __future__ import annotations

import json
import math
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from earmark.schemas.annotation import AnnotatorConfig, Limits, Prices, known_prices
from earmark.schemas.questions import Audio, AudioForm, Choice, FreeText, Image, Json, Message, YesNo
from earmark.tasks.annotation.answers import Reply, answer_value
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.budget import Budget, limits_of, within
from earmark.tasks.annotation.errors import (
    AskError,
    BadAnswer,
    Empty,
    MalformedResponse,
    OverLimit,
    RateLimited,
    Refused,
    SchemaMismatch,
    Truncated,
)
from earmark.tasks.annotation.openai_compatible import read_chat_completion
from earmark.tasks.annotation.pace import Pace, backoff
from earmark.tasks.annotation.request import Request, Sampling
from earmark.tasks.annotation.server_faults import retry_after, wait_s
from tests.annotation.conftest import SCHEMA

A, B = Audio("a" * 64, "a.wav", duration_s=20), Audio("b" * 64, "b.wav", duration_s=40)
BASE = Request(
    "openai:m", (Message.of("system", "judge " * 40), Message.of("user", "A:", A, "B:", B)), Json.of(SCHEMA), Sampling()
)


def with_audio(audio: Audio) -> Request:
    return replace(BASE, messages=(BASE.messages[0], Message.of("user", "A:", audio, "B:", B)))


CHANGES = {
    "model": replace(BASE, model="openai:n"),
    "backend": replace(BASE, model="vllm:m"),
    "system prompt": replace(BASE, messages=(Message.of("system", "judge " * 40 + "!"), BASE.messages[1])),
    "one word": replace(BASE, messages=(BASE.messages[0], Message.of("user", "a:", A, "B:", B))),
    "order": replace(BASE, messages=(BASE.messages[0], Message.of("user", "A:", B, "B:", A))),
    "role": replace(BASE, messages=(Message.of("user", "judge " * 40), BASE.messages[1])),
    "parts": replace(BASE, messages=(BASE.messages[0], Message.of("user", "A:", A), Message.of("user", "B:", B))),
    "audio byte": with_audio(replace(A, sha256="a" * 63 + "b")),
    "span": with_audio(replace(A, start_s=1.0)),
    "span end": with_audio(replace(A, end_s=1.0)),
    "rate": with_audio(replace(A, form=AudioForm(sample_rate_hz=24_000))),
    "channels": with_audio(replace(A, form=AudioForm(channels=2))),
    "codec": with_audio(replace(A, form=AudioForm(codec="flac"))),
    "longest": with_audio(replace(A, form=AudioForm(longest_s=30))),
    "level": with_audio(replace(A, form=AudioForm(gain_db=-3.0))),
    "image": replace(BASE, messages=(*BASE.messages, Message.of("user", Image("c" * 64, "c.png")))),
    "temperature": replace(BASE, sampling=Sampling(temperature=0.1)),
    "top_p": replace(BASE, sampling=Sampling(top_p=0.9)),
    "max_tokens": replace(BASE, sampling=Sampling(max_tokens=7)),
    "seed": replace(BASE, sampling=Sampling(seed=1)),
    "stop": replace(BASE, sampling=Sampling(stop=("x",))),
    "extra": replace(BASE, sampling=Sampling(extra='{"top_k":1}')),
    "structured": replace(BASE, sampling=Sampling(structured="vllm")),
    "schema": replace(BASE, ask=Json.of(SCHEMA | {"title": "t"})),
    "choices": replace(BASE, ask=Choice(("A", "B"))),
    "yes/no": replace(BASE, ask=YesNo()),
    "sample": replace(BASE, sample=1),
}


def test_each_thing_that_can_change_an_answer_changes_the_key() -> None:
    keys = {name: request.key for name, request in CHANGES.items()} | {"base": BASE.key}
    assert len(set(keys.values())) == len(CHANGES) + 1


def test_what_cannot_change_an_answer_does_not() -> None:
    same = [
        with_audio(replace(A, path="/elsewhere/a.wav")),
        with_audio(replace(A, start_s=0.0)),
        with_audio(replace(A, duration_s=None)),
        replace(BASE, facts='{"text":"seen by builtin judges only"}'),
        replace(BASE, ask=Json.of(dict(reversed(SCHEMA.items())))),
    ]
    assert {request.key for request in same} == {BASE.key}
    config = AnnotatorConfig(annotator="openai:m")
    other = AnnotatorConfig(
        annotator="openai:m", base_url="http://10.0.0.1/v1", max_concurrency=3, retries=1, budget_usd=None, batch=True
    )
    assert question(config, BASE.messages).key == question(other, BASE.messages).key


def test_keys_stay_what_they_are() -> None:
    """A changed key asks everything anew: raise KEY_VERSION if that is meant."""
    assert json.loads(BASE.canonical)["v"] == 1
    assert BASE.key == "8a35aef8d730d734e7b695674a1900d94de29443e2ceda7710828474f41e01a0"
    assert replace(BASE, sample=1).key == "9e3d57a0eebf5bddfea5a7cfe697a9948c7f71714f3ecc83442888bd51d461b5"


@given(st.lists(st.text(), min_size=1, max_size=4), st.lists(st.text(), min_size=1, max_size=4))
def test_different_texts_have_different_keys(one: list[str], two: list[str]) -> None:
    first, second = (Request("openai:m", tuple(Message.of("user", t) for t in texts)) for texts in (one, two))
    assert (first.key == second.key) == (one == two)
    json.loads(first.canonical)


@pytest.mark.parametrize(
    ("ask", "reply", "wanted"),
    [
        (FreeText(), Reply(" said "), "said"),
        (FreeText(), Reply("<think>A? no</think> B"), "B"),
        (FreeText(), Reply(" \n"), Empty),
        (FreeText(), Reply("cut", cut=True), Truncated),
        (FreeText(), Reply("", refusal="no"), Refused),
        (Choice(("A", "B", "tie")), Reply('"Tie".'), "tie"),
        (Choice(("A", "B", "tie")), Reply("A or B"), BadAnswer),
        (Json.of({"type": "object"}), Reply('{"a": 1}'), {"a": 1}),
        (Json.of({"type": "object"}), Reply('Well: {"a": 1} {"a": 1}'), {"a": 1}),
        (Json.of({"type": "object"}), Reply('{"a": 1} or {"a": 2}'), SchemaMismatch),
        (Json.of({"type": "object"}), Reply('{"a": 1, "a": 2}'), SchemaMismatch),
        (Json.of({"type": "object"}), Reply('{"a": NaN}'), SchemaMismatch),
        (Json.of({"type": "object"}), Reply('{"a": 1', cut=True), Truncated),
        (Json.of({"type": "object"}), Reply('First {"a": 1}. But no: {"a": 2, "b', cut=True), Truncated),
        (Json.of({"type": "object"}), Reply('{"first": {"a": 1}, "then": "no, ', cut=True), Truncated),
        (Json.of({"type": "object"}), Reply("{'a': 1}, but no: {'a': 'x", cut=True), Truncated),
        (Json.of({"type": "object"}), Reply('[sic] {"a": "{["}, as [I] sa', cut=True), {"a": "{["}),
        (Json.of({"type": "object"}), Reply("{'a': '{'} as I sa", cut=True), {"a": "{"}),
        (Json.of({"type": "object"}), Reply('Scores lie in [0, 1). {"a": 1}\nI chose this', cut=True), {"a": 1}),
        (Json.of({"type": "object"}), Reply('{"a": 1}\nThe tempo lies in [90, 100) and', cut=True), {"a": 1}),
        (Json.of({"type": "object"}), Reply('{"a": 1}\n{"a": 1}\n{"a', cut=True), {"a": 1}),
        (Json.of({"type": "object"}), Reply('{"a": 1}\nNo: {"a', cut=True), Truncated),
        (Json.of({"type": "object"}), Reply('{"a": 1}\n{"a": 1}\n{"a": 2, "', cut=True), Truncated),
        (Json.of({"type": "object"}), Reply("[1]"), SchemaMismatch),
        (Json.of({"type": "object"}), Reply("none of it"), SchemaMismatch),
        (Json.of({"type": "array"}), Reply("[" * 100_000), SchemaMismatch),
        (YesNo(), Reply("Yes"), BadAnswer),
        (YesNo(), Reply("", first_token=(("The", -0.1),)), BadAnswer),
    ],
)
def test_answers_are_read_or_typed_and_never_guessed(ask: Any, reply: Reply, wanted: Any) -> None:
    if isinstance(wanted, type) and issubclass(wanted, AskError):
        with pytest.raises(wanted) as caught:
            answer_value(ask, reply)
        assert type(caught.value) is wanted
        assert "\n" not in str(caught.value)
    else:
        assert answer_value(ask, reply) == wanted


def test_yes_no_is_a_two_way_softmax_with_spellings_together_and_bounds_marked() -> None:
    tokens = (("Yes", math.log(0.3)), (" yes", math.log(0.1)), ("No", math.log(0.1)), ("Maybe", math.log(0.5)))
    held = answer_value(YesNo(), Reply("", first_token=tokens))
    assert held == {"p_yes": pytest.approx(0.8), "share": pytest.approx(0.5), "bounded": False}
    alone = answer_value(YesNo(), Reply("", first_token=(("Yes", math.log(0.9)), ("The", math.log(0.01)))))
    assert alone["bounded"]
    assert alone["p_yes"] == pytest.approx(0.9 / 0.91)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_is_a_reply_or_a_typed_fault(value: Any) -> None:
    for raw in (json.dumps(value), json.dumps({"choices": value}), json.dumps({"choices": [{"message": value}]})):
        with suppress(MalformedResponse):
            read_chat_completion(raw)


def test_over_long_audio_is_refused_or_cut_and_said() -> None:
    config = AnnotatorConfig(annotator="vllm:Qwen/Qwen2-Audio-7B-Instruct")
    limits = limits_of(config)
    with pytest.raises(OverLimit, match="hears 30 s of 40 s"):
        within(BASE, limits, cut=False)
    fitted, notes = within(BASE, limits, cut=True)
    assert notes == (f"clip {'b' * 12}: the model hears 30 s of 40 s",)
    assert fitted.key != BASE.key
    lengths = [part.length_s for part in fitted.parts() if isinstance(part, Audio)]
    assert lengths == [20, 30]
    assert within(fitted, limits, cut=False) == (fitted, ())
    deaf = limits_of(AnnotatorConfig(annotator="openai:gpt-4.1-mini"))
    with pytest.raises(OverLimit, match="at most 0 audio clips"):
        within(BASE, deaf, cut=True)
    small = limits_of(AnnotatorConfig(annotator="openai:m", limits=Limits(context_tokens=1500)))
    with pytest.raises(OverLimit, match="context"):
        within(BASE, small, cut=True)
    total = limits_of(AnnotatorConfig(annotator="openai:m", limits=Limits(audio_s=50)))
    fitted, notes = within(BASE, total, cut=True)
    assert sum(part.length_s or 0 for part in fitted.parts() if isinstance(part, Audio)) <= 50


def test_pace_yields_to_the_server_and_comes_back() -> None:
    pace = Pace(64)
    started = time.monotonic()
    for _ in range(20):
        pace.failed(RateLimited("slow down"), started + 0.0)
    assert pace.limit == pytest.approx(64 * 0.7)  # one overload, one cut
    for _ in range(5):
        pace.failed(RateLimited("slow down"), time.monotonic())
    assert pace.limit < 16
    for _ in range(3000):
        pace.succeeded()
    assert pace.limit == 64
    assert 0.5 <= backoff(3, 0.1, 0.2, least_s=0.5) <= 0.7


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after({"retry-after-ms": "1500"}) == 1.5
    assert retry_after({"retry-after": "2"}) == 2
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


@pytest.mark.parametrize(
    "options",
    [
        {"annotator": "gpt-4"},
        {"annotator": "nobody:gpt-4"},
        {"annotator": "openai:m", "base_url": "http://me:secret@host/v1"},
        {"annotator": "openai:m", "base_url": "file:///etc/passwd"},
        {"annotator": "openai:m", "budget_usd": 1.0},
        {"annotator": "openai:m", "budget_usd": 1.0, "base_url": "https://gateway.example/v1"},
        {"annotator": "gemini:gemini-2.5-flash", "budget_usd": 1.0, "base_url": "http://10.0.0.1/v1"},
        {"annotator": "builtin:music-pair-2", "batch": True},
        {"annotator": "openai:m", "unknown": 1},
    ],
)
def test_configs_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AnnotatorConfig(**options)


def test_a_budget_needs_prices_but_on_this_machine() -> None:
    there = {"annotator": "openai:m", "budget_usd": 1.0, "base_url": "https://gateway.example/v1"}
    with pytest.raises(ValidationError, match=r"prices of 0 for a server of your own; .* at gateway.example is"):
        AnnotatorConfig(**there)
    AnnotatorConfig(**there, prices=Prices(input_per_million=0, output_per_million=0))
    AnnotatorConfig.model_validate(there, context={"recorded": True})
    for host in ("127.0.0.1:8000", "127.0.0.2", "[::1]:8000", "localhost", "LOCALHOST:1"):
        AnnotatorConfig(**there | {"base_url": f"http://{host}/v1"})


def test_a_provider_charges_its_list_prices_unless_a_config_says_otherwise() -> None:
    """A minute of audio, 600 tokens at 32 dollars a million, and at most 1,000 tokens out at 10: by hand."""
    clip = Audio("b" * 64, "b.wav", duration_s=60.0)
    usage = {"input_tokens": 700, "audio_tokens": 600, "output_tokens": 50}
    for options, dollars in (
        ({}, (100 * 2.5 + 600 * 32 + 50 * 10) / 1e6),
        ({"batch": True}, (100 * 2.5 + 600 * 32 + 50 * 10) / 2e6),
        ({"prices": {"input_per_million": 1, "output_per_million": 2}}, (700 + 100) / 1e6),
        ({"base_url": "http://127.0.0.1:9/v1"}, 0.0),
    ):
        config = AnnotatorConfig(annotator="openai:gpt-audio", budget_usd=1.0, **options)
        request = question(config, [Message.of("user", clip, "x")])
        budget = Budget(config, limits_of(config))
        assert budget.bill(request, Reply("A", **usage)).cost_usd == pytest.approx(dollars)
        assert bool(dollars) == (budget.worst_usd(request) >= dollars > 0)
    assert all(price.output_per_million >= price.input_per_million > 0 for price in known_prices().values())
    with pytest.raises(ValidationError, match="no price of 'openai:new'"):
        AnnotatorConfig(annotator="openai:new", budget_usd=1.0)


@pytest.mark.parametrize(("read", "dollars"), [(700, 98 * 2.5 + 602 * 32 + 50 * 10), (300, 300 * 32 + 50 * 10)])
def test_audio_that_a_server_counts_with_the_text_is_charged_as_audio(read: int, dollars: float) -> None:
    """A minute is 602 tokens by estimate; a gateway that tells no audio apart let a budget pay 12 times as much."""
    config = AnnotatorConfig(annotator="openai:gpt-audio", budget_usd=1.0)
    request = question(config, [Message.of("user", Audio("b" * 64, "b.wav", duration_s=60.0), "x")])
    budget = Budget(config, limits_of(config))
    bill = budget.bill(request, Reply("A", input_tokens=read, output_tokens=50))
    assert (bill.input_tokens, bill.cost_usd) == (read, pytest.approx(dollars / 1e6))
    text = question(config, [Message.of("user", "x")])
    assert budget.bill(text, Reply("A", input_tokens=read, output_tokens=50)).cost_usd == pytest.approx(
        (read * 2.5 + 500) / 1e6
    )


@pytest.mark.parametrize(
    ("model", "extra", "option"),
    [
        ("openai:gpt-4.1-mini", {"max_tokens": 16_000, "seed": 1}, "max_tokens"),
        ("openai:gpt-4.1-mini", {"max_completion_tokens": 16_000}, "max_completion_tokens"),
        ("openai:gpt-4.1-mini", {"n": 8}, "n"),
        ("openai:gpt-4.1-mini", {"model": "gpt-5-pro"}, "model"),
        ("gemini:gemini-2.5-flash", {"generationConfig": {"maxOutputTokens": 60_000}}, r"generationConfig\.max"),
        ("gemini:gemini-2.5-flash", {"generation_config": {"candidate_count": 8}}, r"generation_config\.candidate_c"),
    ],
)
def test_a_priced_answer_costs_no_more_than_is_reserved(model: str, extra: dict[str, Any], option: str) -> None:
    with pytest.raises(ValidationError, match=rf"extra_body\.{option}.*max_tokens"):
        AnnotatorConfig(annotator=model, extra_body=extra)
    own = {"annotator": "openai:tiny", "base_url": "http://127.0.0.1/v1", "extra_body": extra}
    assert AnnotatorConfig(**own).extra_body == extra  # without prices nothing is counted
    with pytest.raises(ValidationError, match=rf"extra_body\.{option}"):
        AnnotatorConfig(**own, prices=Prices(input_per_million=1.0, output_per_million=1.0))
    recorded = {"annotator": model, "extra_body": extra}
    assert AnnotatorConfig.model_validate(recorded, context={"recorded": True}).extra_body == extra


def test_other_fields_of_the_body_go_with_a_priced_question() -> None:
    extra = {"generationConfig": {"topK": 5}, "top_logprobs": 5, "chat_template_kwargs": {"n": 1}}
    assert AnnotatorConfig(annotator="gemini:gemini-2.5-flash", extra_body=extra).extra_body == extra


@pytest.mark.parametrize(
    ("model", "longest_s"),
    [
        ("openai:Qwen/Qwen2.5-Omni-7B", 300), ("openai:nvidia/music-flamingo-hf", 1_200),
        ("vllm:nvidia/audio-flamingo-3-hf", 600), ("openai:Qwen/Qwen2-Audio-7B-Instruct", 30),
    ],
)  # fmt: skip
def test_what_a_model_would_cut_silently_is_refused(model: str, longest_s: float) -> None:
    config = AnnotatorConfig(annotator=model)
    for length, fits in ((longest_s, True), (longest_s + 1, False)):
        request = question(config, [Message.of("user", Audio("b" * 64, "b.wav", duration_s=length), "x")])
        with nullcontext() if fits else pytest.raises(OverLimit, match="the model hears"):
            within(request, limits_of(config), cut=False)


def test_a_wait_until_a_date_is_measured_by_the_servers_own_clock() -> None:
    date = {"date": "Wed, 21 Oct 2015 07:28:00 GMT"}
    assert retry_after({**date, "retry-after": "Wed, 21 Oct 2015 07:28:12 GMT"}) == 12
    assert retry_after({"date": "today", "retry-after": "Wed, 21 Oct 2015 07:28:12 GMT"}) == 0
    for reset in ("2015-10-21T07:28:12Z", "1445412492", "1445412492000"):
        assert wait_s(429, {**date, "X-RateLimit-Reset-Requests": reset}, "") == 12


@pytest.mark.parametrize(("said", "waits"), [("inf", None), ("nan", None), ("1e12", 3600.0), ("-3", 0.0)])
def test_an_absurd_retry_after_parks_nothing_for_good(said: str, waits: float | None) -> None:
    assert retry_after({"retry-after": said}) == waits
