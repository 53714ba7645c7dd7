"""Proxies of the environment: what they are sent, and that no message or ledger holds their password."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError
from earmark.schemas.questions import FreeText, Message
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import StopRun
from earmark.tasks.annotation.ledger import connect, open_ledger
from earmark.tasks.annotation.request import Answer, Report
from tests.annotation.conftest import QUICK
from tests.servers.openai_server import OpenAIServer

PASSWORD = "pa:ss word-of-lab"


async def ask_through(proxy: str, ledger: Path, base_url: str, patch: pytest.MonkeyPatch) -> Report:
    """Ask a server that only a proxy reaches."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        patch.setenv(name, proxy)
    for name in ("http_proxy", "https_proxy", "NO_PROXY", "no_proxy", "REQUEST_METHOD"):
        patch.delenv(name, raising=False)
    config = AnnotatorConfig(annotator="openai:tiny", base_url=base_url, **QUICK)
    requests = [question(config, [Message.of("user", f"say {n}")], FreeText()) for n in range(5)]
    async with open_ledger(ledger) as opened, Annotator(config, opened) as annotator:
        return await annotator.ask(requests)


class LoggedProxy:
    """A proxy that notes heads of requests, and answers those with the right login itself."""

    def __init__(self, login: str, refused: str = "407 Login", answer: str = "yes") -> None:
        self.heads: list[str] = []
        self._refused, self._says = refused, answer
        self._login = base64.b64encode(login.encode()).decode()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.place = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        completion = OpenAIServer().completion({"model": "tiny"}, "0" * 64)
        completion["choices"][0]["message"]["content"] = self._says
        body = json.dumps(completion)
        status = "200 OK" if f"Proxy-Authorization: Basic {self._login}" in head else self._refused
        length = f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
        writer.write(f"HTTP/1.1 {status}\r\n{length}{body}".encode())
        await writer.drain()
        writer.close()


def test_a_proxy_gets_its_login(tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with LoggedProxy(f"lab:{PASSWORD}") as proxy:
            address = f"http://lab:pa%3Ass%20word-of-lab@{proxy.place}"
            report = await ask_through(address, tmp_path / "l.sqlite", "http://model.invalid/v1", monkeypatch)
        assert report.answered == 5
        assert all("http://model.invalid/v1" in head for head in proxy.heads)

    run(story)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("refused", ["407 Login", "502 Bad Gateway"])
@pytest.mark.parametrize("login", ["lab:pa%3Ass%20word-of-lab", ":pa%3Ass%20word-of-lab"])
def test_the_login_of_a_proxy_that_refuses_stands_nowhere(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, scheme: str, refused: str, login: str
) -> None:
    async def story() -> None:
        async with LoggedProxy("other:one", refused) as proxy:
            address = f"http://{login}@{proxy.place}"
            with pytest.raises(StopRun) as stop:
                await ask_through(address, tmp_path / "l.sqlite", f"{scheme}://model.invalid/v1", monkeypatch)
        said = "the proxy answers 407; give its user and password: HTTP_PROXY" if "407" in refused else "502"
        assert said in str(stop.value)
        driver = connect(tmp_path / "l.sqlite")
        kept = str(driver.rows("SELECT * FROM attempts"))
        driver.close()
        assert kept != "[]"
        for secret in (PASSWORD, "pa%3Ass", "word-of-lab"):
            assert secret not in kept + str(stop.value)

    run(story)


def test_answers_keep_words_that_end_as_a_short_login(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken out as a login, `u@` made `you@lab.org` to `yolab.org`."""

    async def story() -> None:
        async with LoggedProxy("u:", answer="written to you@lab.org") as proxy:
            report = await ask_through(
                f"u@{proxy.place}", tmp_path / "l.sqlite", "http://model.invalid/v1", monkeypatch
            )
        assert [one.value for one in report.outcomes if isinstance(one, Answer)] == ["written to you@lab.org"] * 5

    run(story)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (
            "socks5://lab:word-of-lab@proxy:1080",
            "HTTP_PROXY: expected http://HOST:PORT, found 'socks5://' before 'proxy'",
        ),
        ("http://lab:word-of-lab@proxy:port", "HTTP_PROXY: expected http://HOST:PORT, found an address that cannot be"),
    ],
)
def test_what_is_no_http_proxy_stops_the_run(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, address: str, says: str
) -> None:
    async def story() -> None:
        with pytest.raises(ConfigError, match=f"{says}.* or name model.invalid in NO_PROXY") as stop:
            await ask_through(address, tmp_path / "l.sqlite", "http://model.invalid/v1", monkeypatch)
        assert "word-of-lab" not in str(stop.value)

    run(story)


def test_a_proxy_without_a_scheme_is_one_of_http(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with LoggedProxy("a:b") as proxy:
            address, server = f"a:b@{proxy.place}", "http://model.invalid/v1"
            assert (await ask_through(address, tmp_path / "l.sqlite", server, monkeypatch)).answered == 5

    run(story)
