"""`litellm:` asks other providers through the library, and sends a key to its own host alone."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.schemas.questions import Json, Message
from earmark.tasks.annotation.backend import Media, check_annotator, make_backend, question
from earmark.tasks.annotation.errors import StopRun
from earmark.tasks.annotation.litellm_backend import LiteLLM
from earmark.tasks.annotation.request import Answer
from tests.annotation.conftest import ask_all

HAS_LITELLM = importlib.util.find_spec("litellm") is not None
KEY = "sk-ant-this-is-a-secret-key"
SCHEMA = Json.of({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})


class Messages(BaseHTTPRequestHandler):
    """Anthropic's own form of messages, which is not that of chat completions."""

    asked: list[tuple[dict[str, str], dict[str, Any]]]
    status = 200

    def do_POST(self) -> None:
        """An answer, or a refusal that repeats the key."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((dict(self.headers), body))
        answer: dict[str, Any] = {
            "id": "m", "type": "message", "role": "assistant", "model": body["model"], "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "A slow piano."}], "usage": {"input_tokens": 9, "output_tokens": 4},
        }  # fmt: skip
        if self.status != 200:
            answer = {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
        raw = json.dumps(answer).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Messages.asked, Messages.status = [], 200
    with ThreadingHTTPServer(("127.0.0.1", 0), Messages) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


@pytest.mark.parametrize(
    ("annotator", "values", "says"),
    [
        ("litellm:gpt-5", {}, "expected litellm:PROVIDER/MODEL"),
        ("litellm:huggingface/https://evil.example/x", {}, "expected litellm:PROVIDER/MODEL"),
        ("litellm:groq/x", {"extra_body": {"api_base": "https://evil.example"}}, r"extra_body\.api_base"),
        ("litellm:groq/x", {"api_key_env": "OPENAI_API_KEY"}, "needs base_url with it"),
        ("litellm:bedrock/x", {"base_url": "https://evil.example"}, "'bedrock' has its own address"),
    ],
)
def test_what_could_send_a_key_elsewhere_is_refused(annotator: str, values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_backend(AnnotatorConfig(annotator=annotator, **values), Media())


def test_there_are_no_provider_batches() -> None:
    with pytest.raises(ValueError, match="has none"):
        AnnotatorConfig(annotator="litellm:anthropic/x", batch=True)


@pytest.mark.skipif(HAS_LITELLM, reason="litellm is installed")
def test_without_the_library_its_extra_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"\[litellm\]"):
        check_annotator(AnnotatorConfig(annotator="litellm:anthropic/x"))


@pytest.mark.models
def test_another_provider_s_protocol_is_spoken(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    config = AnnotatorConfig(annotator="litellm:anthropic/claude-x", base_url=server, max_tokens=50)
    turns = [Message.of("system", "You listen."), Message.of("user", "What is it?")]
    report = ask_all(config, [question(config, turns)], ledger=tmp_path / "l.sqlite")
    (answer,) = report.outcomes
    assert isinstance(answer, Answer)
    assert (answer.value, report.input_tokens, report.output_tokens) == ("A slow piano.", 9, 4)
    ((headers, body),) = Messages.asked
    assert (body["max_tokens"], body["messages"][0]["role"]) == (50, "user")
    assert KEY not in str(headers), "the key is bound to its provider's host alone"

    host = server.removeprefix("http://")
    monkeypatch.setenv("EARMARK_KEY_HOSTS", f"ANTHROPIC_API_KEY=http://{host}")
    ask_all(config, [question(config, turns[1:])], ledger=tmp_path / "l.sqlite")
    assert KEY in str(Messages.asked[-1][0])


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "WATSONX_APIKEY", "AZURE_CLIENT_SECRET", "GROQ_API_KEY", "SNOWFLAKE_JWT"]
)
def test_secrets_of_every_provider_are_redacted(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, KEY)
    backend = LiteLLM(AnnotatorConfig(annotator="litellm:groq/tiny"), Media())
    assert backend._redacted(f"refused: {KEY}") == "refused: [redacted]"


@pytest.mark.models
def test_a_refused_key_stops_and_is_not_told(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Messages.status = 401
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    config = AnnotatorConfig(annotator="litellm:anthropic/claude-x", base_url=server)
    with pytest.raises(StopRun) as stopped:
        ask_all(config, [question(config, [Message.of("user", "?")])], ledger=tmp_path / "l.sqlite")
    assert KEY not in str(stopped.value)
    assert len(Messages.asked) == 1
    assert KEY.encode() not in (tmp_path / "l.sqlite").read_bytes()
