"""Faulty answers whose HTTP is sound: bodies that are no JSON, no chat completion, no answer, or say what cannot be."""

from __future__ import annotations

import json

from tests.servers.faulty.kinds import CAP, Json, http, says, sends, whole


def text(good: Json, text: object) -> None:
    good["choices"][0]["message"]["content"] = text


def reason(good: Json, value: str) -> None:
    """An answer that fits, with this JSON text in the place of its reason."""
    text(good, f'{{"musicality": "A", "alignment": "B", "reason": {value}}}')


def usage(good: Json, **figures: object) -> bytes:
    good["usage"] |= figures
    return json.dumps(good).encode()


def logprob(good: Json, value: object) -> None:
    first = good["choices"][0]["logprobs"]["content"][0]
    first["logprob"] = first["top_logprobs"][0]["logprob"] = value


# Bodies of another kind, and JSON that goes by another name.
sends("html_page", "wrong_content_type", lambda m: http("200 OK", b"<html>502 Bad gateway</html>", kind="text/html"))
sends("json_as_text", "answered", lambda m: http("200 OK", whole(m), kind="text/plain"))
sends("no_content_type", "answered", lambda m: http("200 OK", whole(m), kind=None))
sends("html_as_json", "malformed_response", lambda m: http("200 OK", b"<html>502 Bad gateway</html>"))
sends("utf_16", "malformed_response", lambda m: http("200 OK", json.dumps(m.good).encode("utf-16"), kind="text/json"))
sends("invalid_utf_8", "malformed_response", lambda m: http("200 OK", b"\xff\xfe\xc3{" + whole(m)))
says("byte_order_mark", "answered", lambda good: b"\xef\xbb\xbf" + json.dumps(good).encode())
says("no_body", "malformed_response", lambda good: b"")
says("cut_json", "malformed_response", lambda good: json.dumps(good).encode()[:-9])
says("two_jsons", "malformed_response", lambda good: json.dumps(good).encode() * 2)
says("nul_bytes", "malformed_response", lambda good: b"\0" * 500)
says("deep_nesting", "malformed_response", lambda good: b"[" * 200_000)
says("deep_nesting_closed", "malformed_response", lambda good: b'{"choices":' + b"[" * 900 + b"]" * 900 + b"}")
for _body in ("null", "[]", "7", '"text"', "{}", "true", "NaN"):
    says(f"json_{_body}", "malformed_response", lambda good, b=_body: b.encode())

# JSON that is no chat completion.
says("error_with_status_200", "server_error", lambda good: {"error": {"message": "overloaded"}})
says("no_choices", "malformed_response", lambda good: {"id": "1"})
says("empty_choices", "malformed_response", lambda good: good.update(choices=[]))
says("choices_as_an_object", "malformed_response", lambda good: good.update(choices={"0": good["choices"][0]}))
says("choices_as_text", "malformed_response", lambda good: good.update(choices="none"))
says("a_choice_that_is_null", "malformed_response", lambda good: good.update(choices=[None]))
says("message_null", "malformed_response", lambda good: good["choices"][0].update(message=None))
says("message_a_list", "malformed_response", lambda good: good["choices"][0].update(message=[1]))
says("content_a_number", "bad_answer", lambda good: text(good, 7))
says("content_a_list", "schema_mismatch", lambda good: text(good, [{"type": "text", "text": "{}"}]))
says("choices_twice", "malformed_response", lambda good: json.dumps(good)[:-1].encode() + b', "choices": []}')

# Chat completions that are no answer.
says("content_null", "empty", lambda good: text(good, None))
says("content_blank", "empty", lambda good: text(good, " \n\t"))
says(
    "content_cut",
    "truncated",
    lambda good: (text(good, '{"musicality'), good["choices"][0].update(finish_reason="length"))[0],
)
says("refused", "refused", lambda good: good["choices"][0]["message"].update(refusal="I cannot.\x00\ud800\x1b[0m"))
says("refused_by_an_object", "refused", lambda good: good["choices"][0]["message"].update(refusal={"why": ["no"]}))
says("filtered", "refused", lambda good: good["choices"][0].update(finish_reason="content_filter"))
says("prose", "schema_mismatch", lambda good: text(good, "I like the first clip better."))
says(
    "two_answers",
    "schema_mismatch",
    lambda good: text(
        good, "".join(f'{{"musicality": "{one}", "alignment": "tie", "reason": "r"}} or ' for one in "AB")
    ),
)
says(
    "a_key_twice",
    "schema_mismatch",
    lambda good: text(good, '{"musicality": "A", "musicality": "B", "alignment": "A", "reason": "r"}'),
)
says(
    "a_key_too_many",
    "schema_mismatch",
    lambda good: text(good, '{"musicality": "A", "alignment": "B", "reason": "r", "x": 1}'),
)
says("a_reason_of_numbers", "schema_mismatch", lambda good: reason(good, f"[{'7,' * 300}7]"))
says("a_reason_that_is_nan", "schema_mismatch", lambda good: reason(good, "NaN"))
says("half_a_surrogate_pair", "schema_mismatch", lambda good: reason(good, r'"\ud83d"'))
says("half_a_pair_as_a_key", "schema_mismatch", lambda good: text(good, r'{"\udc00": 1}'))
says("nul_in_the_answer", "schema_mismatch", lambda good: reason(good, r'"a\u0000b"'))
says("deep_answer", "schema_mismatch", lambda good: text(good, '{"a":' * 100_000))
says("deep_answer_closed", "schema_mismatch", lambda good: text(good, '{"a":' * 900 + "1" + "}" * 900))
says("a_hundred_thousand_braces", "schema_mismatch", lambda good: text(good, "{ [" * 100_000))
says("a_million_wrong_items", "schema_mismatch", lambda good: text(good, f"[{'1,' * 400_000}1]"))

# A name that is none.
says("another_model", "answered", lambda good: good.update(model="gpt-2"))
says("model_null", "answered", lambda good: good.update(model=None))
says("model_an_object", "answered", lambda good: good.update(model={"name": ["tiny"]}))
says("model_of_surrogates", "answered", lambda good: good.update(model="\ud800\x00\x1b[31mtiny"))
says("model_of_a_megabyte", "answered", lambda good: good.update(model="m" * (CAP - 5_000)))

# Token counts that are none.
says("usage_of_23_digits", "answered", lambda good: usage(good, prompt_tokens=10**22))
says("usage_of_5000_digits", "malformed_response", lambda good: json.dumps(good).replace("100", "1" * 5000).encode())
says("usage_negative", "answered", lambda good: usage(good, prompt_tokens=-10_000_000))
says("usage_out_negative", "answered", lambda good: usage(good, completion_tokens=-10_000_000))
says("usage_nan", "answered", lambda good: usage(good, prompt_tokens=float("nan")))
says("usage_infinite", "answered", lambda good: usage(good, completion_tokens=float("inf")))
says("usage_of_1e400", "answered", lambda good: json.dumps(good).replace("100", "1e400").encode())
says("usage_a_fraction", "answered", lambda good: usage(good, prompt_tokens=99.5))
says("usage_a_text", "answered", lambda good: usage(good, prompt_tokens="100"))
says("usage_a_boolean", "answered", lambda good: usage(good, prompt_tokens=True))
says("usage_of_no_tokens_in", "answered", lambda good: usage(good, prompt_tokens=0))
says("usage_of_no_tokens_out", "answered", lambda good: usage(good, completion_tokens=0, total_tokens=0))
says("usage_null", "answered", lambda good: usage(good, prompt_tokens=None))
says("usage_missing", "answered", lambda good: good.pop("usage") and None)
says("usage_a_list", "answered", lambda good: good.update(usage=[100, 20]))
says(
    "usage_of_more_audio_than_all", "answered", lambda good: usage(good, prompt_tokens_details={"audio_tokens": 10**7})
)
says(
    "usage_of_less_audio_than_none",
    "answered",
    lambda good: usage(good, prompt_tokens_details={"audio_tokens": -(10**7)}),
)
says("details_of_usage_a_list", "answered", lambda good: usage(good, prompt_tokens_details=[1]))

# Probabilities that are none.
says("logprobs_missing", "bad_answer", lambda good: good["choices"][0].update(logprobs=None), yes_no=True)
says("logprobs_empty", "bad_answer", lambda good: good["choices"][0].update(logprobs={"content": []}), yes_no=True)
says("logprobs_a_list", "malformed_response", lambda good: good["choices"][0].update(logprobs=[1]), yes_no=True)
says("logprob_missing", "malformed_response", lambda good: logprob(good, None), yes_no=True)
says("logprob_in_words", "malformed_response", lambda good: logprob(good, "likely"), yes_no=True)
says("logprob_nan", "bad_answer", lambda good: logprob(good, float("nan")), yes_no=True)
says("logprob_positive", "bad_answer", lambda good: logprob(good, 0.7), yes_no=True)
says("logprob_of_1e300", "bad_answer", lambda good: logprob(good, 1e300), yes_no=True)
says("logprob_infinite", "bad_answer", lambda good: logprob(good, float("inf")), yes_no=True)
says(
    "logprobs_all_minus_infinite",
    "bad_answer",
    lambda good: good["choices"][0].update(logprobs={"content": [{"token": "Yes", "logprob": float("-inf")}]}),
    yes_no=True,
)
