"""Ask, check, ask again: against a local server that counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.outcome import Answer
from earmark.tasks.annotation.request import Message, Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.build.asking import Checked, Fault, ask_checked
from tests.annotation.conftest import LocalServer, config_for
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A server whose nth answer to a question is `n`; it keeps what it was sent."""
    with LocalServer(Faults()) as started:
        said: dict[str, int] = {}

        def count(body: dict[str, Any], content: str) -> str:
            words = str(body["messages"][-1]["content"])
            said[words] = said.get(words, 0) + 1
            return str(said[words])

        started.answer = count
        started.keep_bodies = True
        yield started


def questions(server: OpenAIServer, count: int, **options: Any) -> list[Request]:
    """Different questions."""
    return [question(config_for(server, **options), [Message.of("user", f"question {n}")]) for n in range(count)]


def wants(least: list[int]) -> Any:
    """A check that accepts an answer from a number on, for each question its own."""
    return lambda place, value: None if int(value) >= least[place] else Fault("too_small", f"found {value}")


def ask(server: OpenAIServer, ledger: Path, least: list[int], tries: int, **options: Any) -> list[Checked]:
    """One session that asks as many questions as there are bounds."""
    with Session(config_for(server, **options), ledger=ledger) as session:
        return ask_checked(session, questions(server, len(least), **options), wants(least), tries)


def test_what_fails_is_asked_again_up_to_the_limit(server: OpenAIServer, tmp_path: Path) -> None:
    found = ask(server, tmp_path / "l.sqlite", [1, 2, 3, 9], 3)
    assert [one.tries for one in found] == [1, 2, 3, 3]
    assert [one.fault for one in found] == [None, None, None, Fault("too_small", "found 3")]
    assert [one.failure for one in found[2:]] == [None, ("too_small", "found 3")]
    assert [one.outcome.value for one in found if isinstance(one.outcome, Answer)] == ["1", "2", "3", "3"]
    assert len({one.outcome.key for one in found}) == 4
    assert sum(server.faults.asked.values()) == 1 + 2 + 3 + 3


def test_what_the_ledger_holds_is_not_asked_again(server: OpenAIServer, tmp_path: Path) -> None:
    first = ask(server, tmp_path / "l.sqlite", [1, 3, 9], 2)
    asked = sum(server.faults.asked.values())
    assert ask(server, tmp_path / "l.sqlite", [1, 3, 9], 2) == first
    assert sum(server.faults.asked.values()) == asked
    more = ask(server, tmp_path / "l.sqlite", [1, 3, 9], 3)  # more patience costs what was not tried
    assert [one.tries for one in more] == [1, 3, 3]
    assert sum(server.faults.asked.values()) == asked + 2


def test_a_request_without_an_answer_is_the_engines_reject(server: OpenAIServer, tmp_path: Path) -> None:
    server.faults.rate, server.faults.kinds, server.faults.most = 1.0, ("refusal",), None
    (found,) = ask(server, tmp_path / "l.sqlite", [1], 3, repairs=0)
    assert (found.tries, found.fault) == (1, None)
    assert found.failure is not None
    assert found.failure[0] == "refused"


def test_each_draw_has_a_seed_of_its_own(server: OpenAIServer, tmp_path: Path) -> None:
    ask(server, tmp_path / "l.sqlite", [3], 3, seed=40, temperature=0.7)
    assert [body["seed"] for body in server.bodies] == [40, 41, 42]


def test_nothing_to_ask(server: OpenAIServer, tmp_path: Path) -> None:
    assert ask(server, tmp_path / "l.sqlite", [], 3) == []
