"""A choice is constrained in the form that the server takes; where it takes none, it is asked for in words."""

from __future__ import annotations

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Choice, Message, ScaleRating, YesNo
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.openai_compatible import FIELDS
from earmark.tasks.annotation.request import Report
from tests.annotation.conftest import QUICK, ask_all

SIDES = Choice(("A", "B", "tie"))
ENUM = {"type": "string", "enum": ["A", "B", "tie"]}


class Server:
    """A server of one kind, whose model talks unless something constrains it, or the question wants a word."""

    def __init__(self, owner: str | None = None, version: str = "", takes: str = "", refuses: int = 0) -> None:
        self.owner, self.version, self.takes, self.refuses = owner, version, takes, refuses
        self.bodies: list[dict[str, Any]] = []
        kind = type("Held", (Handler,), {"server_of": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and body of a chat completion."""
        self.bodies.append(body)
        if self.refuses and FIELDS & body.keys():
            return self.refuses, {"error": {"message": "schema must be of type object"}}
        text = "Well, it depends." if "talk" in body["messages"][-1]["content"] else "A"
        if self.takes in body:
            text = json.dumps("B") if self.takes == "response_format" else "B"
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}


class Handler(BaseHTTPRequestHandler):
    """Its handler."""

    server_of: Server

    def do_GET(self) -> None:
        """The list of models, and the version."""
        of = self.server_of
        said = {"/v1/models": {"data": [{"id": "tiny", "owned_by": of.owner}]}, "/version": {"version": of.version}}
        self._say(*((200, said[self.path]) if of.owner else (404, {"error": "no such path"})))

    def do_POST(self) -> None:
        """A chat completion."""
        self._say(*self.server_of.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def _say(self, status: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def asked(url: str, folder: Path, *, words: str = "Which?", count: int = 6, **options: Any) -> Report:
    """Ask a server for choices."""
    folder.mkdir(exist_ok=True)
    config = AnnotatorConfig(annotator="openai:tiny", base_url=url, **{**QUICK, "max_concurrency": 1, **options})
    requests = [question(config, [Message.of("user", f"{words} {n}")], SIDES) for n in range(count)]
    return ask_all(config, requests, ledger=folder / "l.sqlite")


@pytest.mark.parametrize(
    ("owner", "version", "field", "value"),
    [
        ("vllm", "0.32.0", "structured_outputs", {"choice": ["A", "B", "tie"]}),
        ("vllm", "0.10.2", "guided_choice", ["A", "B", "tie"]),
        ("sglang", "", "regex", "(A|B|tie)"),
        ("llamacpp", "", "grammar", 'root ::= "A" | "B" | "tie"'),
        ("library", "", "response_format", ENUM),
        (None, "", "response_format", ENUM),
    ],
)
def test_each_server_is_asked_in_its_own_form(
    tmp_path: Path, owner: str | None, version: str, field: str, value: Any
) -> None:
    with Server(owner, version, takes=field) as server:
        report = asked(server.url, tmp_path, words="talk")
    assert (report.answered, report.exchanges) == (6, 6)
    sent = [{name: body[name] for name in FIELDS & body.keys()} for body in server.bodies]
    found = [one[field]["json_schema"]["schema"] if field == "response_format" else one[field] for one in sent]
    assert found == [value] * 6
    assert all(len(one) == 1 for one in sent)


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_refuses_is_asked_in_words_and_it_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    with Server(refuses=status) as server, caplog.at_level(logging.WARNING, "earmark.annotation"):
        report = asked(server.url, tmp_path)
    assert report.answered == 6
    assert len(server.bodies) == 7
    told = [one.getMessage() for one in caplog.records if "in words alone" in one.getMessage()]
    assert len(told) == 1
    assert "must be of type object" in told[0]


def test_a_server_that_ignores_it_costs_no_request(tmp_path: Path) -> None:
    with Server(takes="never") as server:
        report = asked(server.url, tmp_path)
    assert (report.answered, len(server.bodies)) == (6, 6)
    with Server(takes="never") as talks:
        report = asked(talks.url, tmp_path / "talks", words="talk", repairs=0)
    assert report.reasons() == {"bad_answer": 6}
    assert [bool(FIELDS & body.keys()) for body in talks.bodies] == [True] + [False] * 5


def test_a_config_s_own_constraint_and_none_win(tmp_path: Path) -> None:
    for number, options in enumerate(({"structured": "none"}, {"extra_body": {"grammar": "root ::= [AB]"}})):
        with Server("vllm") as server:
            assert asked(server.url, tmp_path / str(number), **options).answered == 6
        assert all(FIELDS & body.keys() == {*options.get("extra_body", ())} for body in server.bodies)


def test_probabilities_are_read_without_a_constraint_and_keys_hold_none(tmp_path: Path) -> None:
    with Server("vllm") as server:
        config = AnnotatorConfig(annotator="openai:tiny", base_url=server.url, **QUICK)
        requests = [question(config, [Message.of("user", "Which?")], ask) for ask in (YesNo(), ScaleRating(), SIDES)]
        ask_all(config, requests, ledger=tmp_path / "l.sqlite")
    assert requests[2].key == "5e9d72e795dcaa8de61ce8b67952ce6f5284639591e8c3391266504faf7658e9"  # held before
    assert all(bool(FIELDS & body.keys()) != bool(body.get("logprobs")) for body in server.bodies)
