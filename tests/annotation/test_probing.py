"""Tiny requests show what a server takes: reached, served, constrained, probabilities, thoughts, media, context."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Ask, Audio, Choice, FreeText, Image, Json, Message, Part, ScaleRating, YesNo
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.probing import ModelFact, probe

CLIP = Audio("0" * 64, "clip.wav", duration_s=30.0)
PICTURE = Image("1" * 64, "score.png")
SCHEMA = Json.of({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})


def said(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Answer with the fault that the model's name asks for."""
    model = body["model"]
    content = body["messages"][-1]["content"]
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    text = parts[-1]["text"]
    if model == "deaf" and any(part["type"] == "input_audio" for part in parts):
        return 500, {"error": {"code": 500, "message": "audio input is not supported", "type": "server_error"}}
    if model == "vague" and any(part["type"] == "input_audio" for part in parts):
        return 500, {"error": {"message": "Internal Server Error"}}
    if model == "blind" and any(part["type"] == "image_url" for part in parts):
        return 400, {"error": {"message": "this model does not support image input", "type": "invalid_request_error"}}
    if model == "old" and "response_format" in body:
        return 400, {"error": {"message": "Unsupported parameter: response_format", "type": "invalid_request_error"}}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant"}}
    if body.get("logprobs"):
        listed = {"Yes": -0.01, "No": -5.0, "4": -0.1} if model != "thinker" else {"<think>": -0.001, "Yes": -9.0}
        tokens = [{"token": token, "logprob": value} for token, value in listed.items()]
        choice["message"]["content"] = tokens[0]["token"]
        choice["logprobs"] = {"content": [{**tokens[0], "top_logprobs": tokens}]} if model != "mute" else None
    elif keys := list(body.get("response_format", {}).get("json_schema", {}).get("schema", {}).get("properties", {})):
        kept = reversed(keys) if model == "free" else keys
        choice["message"]["content"] = json.dumps(dict.fromkeys(kept, "Largo")) if model != "prose" else "A harp, slow."
    elif model == "enum" and "response_format" in body:
        choice["message"]["content"] = json.dumps(body["response_format"]["json_schema"]["schema"]["enum"][0])
    elif "days in a week" in text:
        choice["message"]["content"] = body.get("structured_outputs", {"choice": ["seven"]})["choice"][0]
    elif "these words and nothing else" in text:
        choice["message"]["content"] = text.rpartition(", ")[2]
    else:
        choice["message"]["content"] = "ready"
    if model == "thinker":
        choice["message"]["reasoning_content"] = "The user wants a word."
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return 200, {"model": model, "choices": [choice], "usage": usage}


class Served(BaseHTTPRequestHandler):
    """A server as llama.cpp's, with properties; counts what it is asked."""

    asked: list[dict[str, Any]]

    def do_GET(self) -> None:
        """The list of models, and the properties."""
        listed = [{"id": "good", "max_model_len": 8192}, {"id": "deaf"}, {"id": "small", "max_model_len": 512}]
        props = {"default_generation_settings": {}, "total_slots": 2}
        self._say(200, {"data": listed} if self.path == "/v1/models" else props)

    def do_POST(self) -> None:
        """A chat completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        self._say(*said(body))

    def _say(self, status: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Its base_url."""
    Served.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Served) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}/v1"
        listening.shutdown()


def probed(server: str, model: str, form: Ask, *parts: Part, **values: Any) -> dict[str, ModelFact]:
    """Return the findings on a model for one kind of question, by subject."""
    config = AnnotatorConfig(annotator=f"openai:{model}", base_url=server, **values)
    examples = [question(config, [Message.of("user", *parts, f"A long question, {n}?")], form) for n in range(3)]
    return {one.about: one for one in probe(config, examples)}


@pytest.mark.parametrize(
    ("model", "form", "parts", "about", "state", "says"),
    [
        ("good", FreeText(), (), "text", "ok", "'ready'"),
        ("good", FreeText(), (CLIP,), "text about audio", "ok", "'ready'"),
        ("good", SCHEMA, (PICTURE,), "JSON about image", "ok", "keys in its order"),
        ("good", YesNo(), (CLIP,), "yes or no about audio", "ok", "share 1.00"),
        ("good", ScaleRating(), (), "rating", "ok", "log-probabilities of 3 tokens"),
        ("good", Choice(("oboe", "harp")), (), "choice", "ok", "does not constrain it"),
        ("deaf", FreeText(), (CLIP,), "text about audio", "bad", "audio input is not supported"),
        ("vague", FreeText(), (CLIP,), "text about audio", "bad", "takes no audio cannot be asked"),
        ("deaf", FreeText(), (), "text", "ok", "ready"),
        ("blind", SCHEMA, (PICTURE,), "JSON about image", "bad", "does not support image input"),
        ("old", SCHEMA, (), "JSON", "bad", "Unsupported parameter: response_format"),
        ("free", SCHEMA, (), "JSON", "ok", "in another order"),
        ("prose", SCHEMA, (), "JSON", "bad", "does not hold it to a schema"),
        ("mute", YesNo(), (), "yes or no", "bad", "expected log-probabilities"),
        ("thinker", YesNo(), (), "yes or no", "bad", "enable_thinking"),
        ("thinker", FreeText(), (), "text", "ok", "it thinks first"),
    ],
)
def test_a_tiny_request_shows_what_a_model_takes(
    server: str, model: str, form: Ask, parts: tuple[Part, ...], about: str, state: str, says: str
) -> None:
    before = len(Served.asked)
    one = probed(server, model, form, *parts)[about]
    assert (one.state, says in one.detail) == (state, True), one.detail
    assert one.requests == len(Served.asked) - before <= 2
    assert all(len(json.dumps(body)) < 60_000 and body["max_tokens"] <= 256 for body in Served.asked[before:])


@pytest.mark.parametrize(("model", "structured"), [("good", "vllm"), ("enum", "response_format")])
def test_a_constrained_choice_is_seen_by_one_that_cannot_answer_otherwise(
    server: str, model: str, structured: str
) -> None:
    one = probed(server, model, Choice(("oboe", "harp")), structured=structured)["choice"]
    assert (one.state, one.requests) == ("ok", 1)
    assert "as the server constrains it" in one.detail


def test_the_server_s_list_and_slots(server: str) -> None:
    good = probed(server, "good", FreeText())["server"]
    assert (good.state, good.requests) == ("ok", 0)
    assert good.detail == "3 models listed; context 8,192 tokens; 2 slots (max_concurrency = 32: the rest waits)"
    small = probed(server, "small", FreeText(), max_tokens=512)["server"]
    assert small.state == "bad"
    assert "max_tokens = 512 is more than it holds" in small.detail
    other = probed(server, "other", FreeText())["server"]
    assert other.state == "off"
    assert "'other' is not in its list (good, deaf, small)" in other.detail


def test_a_server_that_is_not_there_is_one_line() -> None:
    found = probed("http://127.0.0.1:9/v1", "good", FreeText())
    assert found["text"].state == "bad"
    assert "ConnectionError" in found["text"].detail or "Connect" in found["text"].detail


def test_embedded_functions_are_not_asked() -> None:
    config = AnnotatorConfig(annotator="builtin:music-pair-2")
    assert probe(config, [question(config, [Message.of("user", "?")])]) == []
