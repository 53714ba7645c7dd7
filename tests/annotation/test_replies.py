"""Whatever JSON a server sends: a reply that every table holds, or a typed fault; and a bill that is no debt."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from earmark.schemas.annotation import AnnotatorConfig, Prices
from earmark.schemas.questions import Ask, Choice, FreeText, Json, Message, YesNo
from earmark.tasks.annotation import batch_openai, google_files, server_faults
from earmark.tasks.annotation.answers import MOST_TOKENS, Reply, answer_value
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.budget import Budget, limits_of
from earmark.tasks.annotation.errors import AskError, one_line
from earmark.tasks.annotation.gemini import read_generate_content
from earmark.tasks.annotation.openai_compatible import read_chat_completion
from tests.annotation.conftest import SCHEMA

NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([10**22, -(10**22), 2**63, True, False, None, "100", 1e400, -1e400, math.nan, 99.5, 100.0, 0, 7]),
    st.floats(),
)
WORDS = """
choices message content logprobs top_logprobs token logprob usage prompt_tokens completion_tokens audio_tokens
prompt_tokens_details finish_reason refusal model candidates parts text usageMetadata promptTokensDetails modality
tokenCount promptFeedback blockReason logprobsResult topCandidates chosenCandidates error id data metadata custom_id
response status_code body key
"""
NAMES = st.sampled_from(WORDS.split())
TEXTS = st.one_of(
    st.text(max_size=20), st.sampled_from(["\ud83d", "\0", "AUDIO", "Yes", "stop", "length", "{}", "[1]"])
)
ANY_JSON = st.recursive(
    st.one_of(NUMBERS, TEXTS), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6)
)
ASKS: tuple[Ask, ...] = (FreeText(), YesNo(), Choice(("A", "B")), Json.of(SCHEMA), Json.of({}))
GOOD: dict[str, Any] = {
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A"}, "logprobs": {
        "content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": [{"token": "No", "logprob": -3}]}]}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"audio_tokens": 4}}, "model": "m",
    "candidates": [{"content": {"parts": [{"text": "A"}]}, "finishReason": "STOP", "logprobsResult": {
        "topCandidates": [{"candidates": [{"token": "Yes", "logProbability": -0.1}]}]}}],
    "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "promptTokensDetails": [
        {"modality": "AUDIO", "tokenCount": 4}]},
}  # fmt: skip
"""An answer in both protocols."""


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a place."""
    if not path:
        return new
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def is_a_line(error: AskError) -> None:
    """What rejects keep of a fault."""
    assert str(error).isprintable()


def is_sound(reply: Reply) -> None:
    """What everyone who gets a reply may count on."""
    counts = (reply.input_tokens, reply.audio_tokens, reply.output_tokens)
    assert all(type(count) is int and 0 <= count <= 3 * MOST_TOKENS for count in counts)
    assert reply.audio_tokens <= reply.input_tokens
    assert reply.odd_usage is None or counts == (0, 0, 0)
    assert reply.model is None or reply.model == one_line(reply.model)
    for ask in ASKS:
        try:
            value = answer_value(ask, reply)
        except AskError as error:
            is_a_line(error)
        else:
            json.dumps(value, allow_nan=False)
            assert "\0" not in str(value)
            str(value).encode()


@pytest.mark.slow
@pytest.mark.parametrize("read", [read_chat_completion, read_generate_content])
@given(place=st.sampled_from(places(GOOD)), new=ANY_JSON, other=st.sampled_from(places(GOOD)), second=ANY_JSON)
def test_any_json_is_a_reply_or_a_typed_fault(
    read: Any, place: tuple[Any, ...], new: Any, other: tuple[Any, ...], second: Any
) -> None:
    said = changed(GOOD, place, new)
    if other in places(said):
        said = changed(said, other, second)
    try:
        reply = read(json.dumps(said))
    except AskError as error:
        is_a_line(error)
    else:
        is_sound(reply)


@pytest.mark.parametrize("read", [read_chat_completion, read_generate_content])
def test_a_good_answer_of_both_protocols_is_read_as_it_is(read: Any) -> None:
    reply = read(json.dumps(GOOD))
    assert (reply.text, reply.input_tokens, reply.audio_tokens, reply.output_tokens, reply.odd_usage) == (
        *("A", 9, 4, 2),
        None,
    )


@pytest.mark.parametrize(
    ("total", "output"),
    [(14428, 4308), (10120 + 1499, 1499), (None, 1499), (0, 1499), ("many", 1499), (10**30, 1499)],
)
def test_thoughts_that_only_the_total_counts_are_paid_for(total: Any, output: int) -> None:
    """The first total is as xAI counts; the second as OpenAI does, whose completion tokens hold the thoughts."""
    details = {"reasoning_tokens": 2809 if output > 1499 else 1000}
    usage = {"prompt_tokens": 10120, "completion_tokens": 1499, "completion_tokens_details": details}
    reply = read_chat_completion(json.dumps({**GOOD, "usage": usage | {"total_tokens": total}}))
    assert (reply.input_tokens, reply.output_tokens, reply.odd_usage) == (10120, output, None)


@pytest.mark.parametrize(
    ("counts", "text", "read", "odd"),
    [
        ({"prompt_tokens": 0}, "A", 0, True),
        ({"completion_tokens": 0}, "A", 0, True),
        ({"completion_tokens": 0}, None, 9, False),  # nothing was said
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 9}}, "A", 9, False),
        ({"prompt_tokens": 0, "prompt_tokens_details": {"cached_tokens": 9}}, "A", 9, False),  # counted apart
        ({"prompt_tokens": 0, "prompt_tokens_details": {"cached_tokens": -9}}, "A", 0, True),
    ],
)
def test_counts_of_0_are_odd_where_there_were_tokens(
    counts: dict[str, Any], text: str | None, read: int, odd: bool
) -> None:
    said = changed(GOOD, ("choices", 0, "message", "content"), text)
    usage = {"prompt_tokens": 9, "completion_tokens": 2, **counts}
    reply = read_chat_completion(json.dumps({**said, "usage": usage}))
    assert (reply.input_tokens, reply.odd_usage is not None) == (read, odd)


@pytest.mark.parametrize(("total", "output"), [(95, 85), (17, 7), (None, 7), (0, 7), ("many", 7)])
def test_tokens_that_only_googles_total_counts_are_paid_for(total: Any, output: int) -> None:
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 2, "thoughtsTokenCount": 5, "totalTokenCount": total}
    reply = read_generate_content(json.dumps({**GOOD, "usageMetadata": counts}))
    assert (reply.input_tokens, reply.output_tokens, reply.odd_usage) == (10, output, None)


@pytest.mark.parametrize("missing", ["promptTokenCount", "candidatesTokenCount"])
def test_counts_that_google_omits_are_odd_beside_a_text(missing: str) -> None:
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 2, missing: 0}
    assert read_generate_content(json.dumps({**GOOD, "usageMetadata": counts})).odd_usage
    thought = {"promptTokenCount": 9, "thoughtsTokenCount": 2}
    assert read_generate_content(json.dumps({**GOOD, "usageMetadata": thought})).odd_usage is None


@pytest.mark.parametrize("part", [batch_openai._result, google_files._result])
@given(line=st.one_of(ANY_JSON.map(json.dumps), st.text(max_size=30), st.just("[" * 5000)))
def test_any_line_of_a_batch_is_read_or_a_typed_fault(part: Any, line: str) -> None:
    try:
        _, raw, error = part(line)
    except AskError:
        return
    assert (raw is None) != (error is None)
    assert error is None or str(error).isprintable()


@given(read=NUMBERS, heard=NUMBERS, said=NUMBERS)
def test_no_usage_lowers_a_budget_or_is_beyond_a_column(read: Any, heard: Any, said: Any) -> None:
    config = AnnotatorConfig(
        annotator="openai:m", base_url="http://127.0.0.1:9/v1", budget_usd=1.0,
        prices=Prices(input_per_million=2.0, output_per_million=8.0, audio_input_per_million=40.0),
    )  # fmt: skip
    budget = Budget(config, limits_of(config))
    request = question(config, [Message.of("user", "which?")])
    usage = {"prompt_tokens": read, "completion_tokens": said, "prompt_tokens_details": {"audio_tokens": heard}}
    bill = budget.bill(request, read_chat_completion(json.dumps({**GOOD, "usage": usage})))
    assert 0 <= bill.cost_usd < math.inf
    assert all(type(count) is int and 0 <= count < 2**31 for count in bill[:2])
    if bill.odd is not None:
        assert bill.cost_usd == budget.worst_usd(request) > 0
    else:
        assert bill.input_tokens == read > 0 < said
        assert bill.cost_usd == pytest.approx(((read - (heard or 0)) * 2 + (heard or 0) * 40 + said * 8) / 1e6)


@given(
    said=st.one_of(st.text(max_size=40), NUMBERS.map(str), st.sampled_from(["9" * 400, "Wed, 21 Oct 2015 07:28 GMT"]))
)
def test_any_retry_after_is_a_wait_of_an_hour_at_most_or_none(said: str) -> None:
    for name in ("retry-after", "retry-after-ms"):
        wait = server_faults.retry_after(CIMultiDict({name: said}))
        assert wait is None or 0 <= wait <= server_faults.LONGEST_WAIT_S


def test_missing_counts_are_odd_only_where_somebody_charges() -> None:
    said = {name: value for name, value in GOOD.items() if name != "usage"}
    reply, config = read_chat_completion(json.dumps(said)), AnnotatorConfig(annotator="builtin:music-pair-2")
    request = question(config, [Message.of("user", "which?")])
    assert Budget(config, limits_of(config)).bill(request, reply) == (0, 0, 0.0, None)
    priced = config.model_copy(update={"prices": Prices(input_per_million=2.0, output_per_million=8.0)})
    bill = Budget(priced, limits_of(priced)).bill(request, reply)
    assert bill.odd
    assert bill.cost_usd > 0
