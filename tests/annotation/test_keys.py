"""A key goes to the host that it belongs to and nowhere else, by the rule and by what real servers are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from earmark.flows.command.doctor import examine
from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError
from earmark.tasks.annotation.backend import Media, make_backend
from earmark.tasks.annotation.errors import AskError, AuthFailed
from earmark.tasks.annotation.http import logs_in
from earmark.tasks.annotation.keys import Origin, find_key, key_hosts
from earmark.tasks.annotation.request import Unanswered
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import Bench, config_for, requests_for, serving
from tests.annotation.test_gemini import GEMINI, MEDIA, pair
from tests.servers.gemini_server import GeminiServer
from tests.servers.openai_server import OpenAIServer

CANARY = "sk-canary-5f1d0c9be27a4483"
ENVIRONMENT = {"OPENAI_API_KEY": CANARY, "GEMINI_API_KEY": CANARY, "MY_KEY": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY}
OPENAI = ("OPENAI_API_KEY",)
PIECES = st.sampled_from(
    [
        "api.openai.com",
        "API.OpenAI.com",
        "evil.example",
        ".evil.example",
        "аpi.openai.com",
        "ａpi.openai.com",
        "127.0.0.1",
        "[::1]",
        "user",
        "@",
        ".",
        ":",
        ":443",
        ":80",
        ":8443",
        "/",
        "//",
        "\\",
        "#",
        "?",
        "%2e",
        "%40",
        "v1",
        "https://",
        "http://",
        "HTTPS://",
        "ftp://",
        "\t",
        " ",
    ]
)
STARTS = st.sampled_from(["", "https://", "https://api.openai.com", "HTTPS://API.OPENAI.COM:443", "https://user@"])
ADDRESSES = st.builds("{}{}".format, STARTS, st.lists(PIECES, max_size=6).map("".join))


def sent_to(url: str, named: str | None = None, **environment: str) -> bool:
    """Whether a key would go with a request to an address."""
    return find_key(url, named, OPENAI, hosted=False, environment=ENVIRONMENT | environment).fits(URL(url))


def parsed(url: str) -> tuple[str, str | None, int | None, bool]:
    """Scheme, host, port and whether there is a user, by the standard library's parser."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme), "@" in parts.netloc


@given(ADDRESSES)
def test_whatever_an_address_looks_like_the_key_goes_to_the_provider_alone(text: str) -> None:
    try:
        url = URL(text)
        key = find_key(text, None, OPENAI, hosted=False, environment=ENVIRONMENT)
    except ValueError:
        return
    if key.fits(url):
        assert parsed(str(url)) == ("https", "api.openai.com", 443, False)
    if key.fits(URL(f"{text}/chat/completions")):  # what a backend makes of it
        assert parsed(str(URL(f"{text}/chat/completions"))) == ("https", "api.openai.com", 443, False)


HOSTS = st.from_regex(r"[a-z][a-z0-9]{0,5}(\.[a-z]{2,5}){0,2}", fullmatch=True)
PORTS = st.integers(1, 65535)
SCHEMES = st.sampled_from(["http", "https"])


@given(
    st.sampled_from(["", "http://", "https://"]),
    HOSTS,
    st.none() | PORTS,
    SCHEMES,
    HOSTS,
    st.none() | PORTS,
    st.booleans(),
)
def test_a_bound_key_goes_to_exactly_its_place(
    written: str, host: str, port: int | None, scheme: str, other: str, other_port: int | None, same: bool
) -> None:
    bound = f"{written}{host}" + (f":{port}" if port else "")
    asked = (scheme, host if same else other, (port if same else other_port) or {"https": 443, "http": 80}[scheme])
    url = f"{asked[0]}://{asked[1].upper()}:{asked[2]}/v1"
    wanted_scheme = written.removesuffix("://") or ("https" if host != "localhost" else scheme)
    wanted = (wanted_scheme, host, port or {"https": 443, "http": 80}[wanted_scheme])
    assert sent_to(url, "MY_KEY", EARMARK_KEY_HOSTS=f"MY_KEY={bound}") == (asked == wanted)


@pytest.mark.parametrize(
    ("url", "named", "environment", "sent"),
    [
        ("https://api.openai.com/v1", None, {}, True),
        ("http://api.openai.com/v1", None, {}, False),
        ("https://api.openai.com./v1", None, {}, False),
        ("https://api.openai.com:8443/v1", None, {}, False),
        ("http://127.0.0.1:8000/v1", None, {}, False),
        ("http://gpu.lab.example:8000/v1", None, {"OPENAI_BASE_URL": "http://gpu.lab.example:8000/v1/"}, True),
        ("http://gpu.lab.example:8001/v1", None, {"OPENAI_BASE_URL": "http://gpu.lab.example:8000/v1"}, False),
        ("https://api.openai.com/v1", None, {"OPENAI_BASE_URL": "http://gpu.lab.example:8000/v1"}, True),
        ("https://llm.lab.example/v1", "MY_KEY", {"EARMARK_KEY_HOSTS": "MY_KEY=llm.lab.example"}, True),
        ("http://llm.lab.example/v1", "MY_KEY", {"EARMARK_KEY_HOSTS": "MY_KEY=llm.lab.example"}, False),
        ("https://x.llm.lab.example/v1", "MY_KEY", {"EARMARK_KEY_HOSTS": "MY_KEY=llm.lab.example"}, False),
        ("https://llm.lab.example/v1", None, {"EARMARK_KEY_HOSTS": "MY_KEY=llm.lab.example"}, False),
        ("https://api.openai.com/v1", "MY_KEY", {"EARMARK_KEY_HOSTS": "MY_KEY=llm.lab.example"}, False),
        ("http://127.0.0.1:8000/v1", "MY_KEY", {"EARMARK_KEY_HOSTS": "A=b.c\n MY_KEY=127.0.0.1:8000,"}, True),
        ("http://[::1]:8000/v1", "MY_KEY", {"EARMARK_KEY_HOSTS": "MY_KEY=[0:0:0:0:0:0:0:1]:8000"}, True),
        ("https://llm.läb.example/v1", "MY_KEY", {"EARMARK_KEY_HOSTS": "MY_KEY=llm.xn--lb-via.example"}, True),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", {}, True),
        ("https://api.openai.com/v1", "GEMINI_API_KEY", {}, False),
    ],
)
def test_places(url: str, named: str | None, environment: dict[str, str], sent: bool) -> None:
    assert sent_to(url, named, **environment) == sent


@pytest.mark.parametrize(
    "written",
    [
        "MY_KEY",
        "MY_KEY=",
        "=h.example",
        "1KEY=h.example",
        "MY_KEY=h.example/v1",
        "MY_KEY=u:p@h.example",
        "MY_KEY=h:99999",
        "MY_KEY=h.example:",
        "MY_KEY=ftp://h.example",
        "MY_KEY=*.example",
        "A=b.c;MY_KEY=h.example",
        "MY_KEY=::1",
        "MY_KEY=a=b",
    ],
)
def test_malformed_bindings_are_one_line_that_repeats_nothing(written: str) -> None:
    with pytest.raises(ConfigError, match=r"EARMARK_KEY_HOSTS: expected .*; entry 2 is none of these") as caught:
        key_hosts({"EARMARK_KEY_HOSTS": f"A=ok.example, {written}"})
    assert "u:p" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_malformed_base_url_is_one_line() -> None:
    for written in ("llm.lab.example", "http://user:geheim@llm/v1", "ftp://llm/v1", "http:///v1"):
        with pytest.raises(ConfigError, match="OPENAI_BASE_URL: expected") as caught:
            key_hosts({"OPENAI_BASE_URL": written})
        assert "geheim" not in str(caught.value)


def test_a_config_names_bound_variables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    for annotator in ("openai:tiny", "gemini:tiny"):
        config = AnnotatorConfig(
            annotator=annotator, base_url="https://evil.example/v1", api_key_env="AWS_SECRET_ACCESS_KEY"
        )
        with pytest.raises(ConfigError, match="api_key_env = 'AWS_SECRET_ACCESS_KEY': no host is bound"):
            make_backend(config, Media())


def test_a_key_shows_itself_nowhere() -> None:
    key = find_key("https://api.openai.com", None, OPENAI, hosted=True, environment=ENVIRONMENT)
    assert (key.value, str(Origin("http", "::1", 80))) == (CANARY, "http://[::1]")
    assert CANARY not in repr(key)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key is the canary; what the machine binds is left out."""
    for name in ("OPENAI_BASE_URL", "EARMARK_KEY_HOSTS", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def carried(server: Any) -> bool:
    """Whether a server was sent the canary in any header."""
    assert server.headers, "the server was asked nothing"
    return any(CANARY in value for value in server.headers)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("batch", [False, True])
def test_no_key_reaches_a_server_that_a_config_names(tmp_path: Path, run: Any, batch: bool) -> None:
    async def story() -> None:
        options: dict[str, Any] = {"batch": batch, "batch_poll_s": 0.05}
        for start, more in ((serving, {}), (GeminiServer().start, GEMINI)):
            server = await start()
            config = config_for(server, **options, **more)
            report = await Bench(tmp_path / f"{config.annotator[:6]}.sqlite", server).ask(
                config, requests_for(config, 4)
            )
            assert report.answered == 4
            assert not carried(server)
            await server.stop()

    run(story)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("batch", [False, True])
def test_the_key_reaches_the_server_that_it_is_bound_to(
    tmp_path: Path, run: Callable[[Callable[[], Awaitable[Any]]], Any], monkeypatch: pytest.MonkeyPatch, batch: bool
) -> None:
    async def story() -> None:
        for start, more, name in (
            (serving, {}, "OPENAI_API_KEY"), (serving, {"api_key_env": "MY_KEY"}, "MY_KEY"),
            (GeminiServer().start, GEMINI, "GEMINI_API_KEY"),
        ):  # fmt: skip
            server = await start()
            server.expected_key = CANARY
            monkeypatch.setenv("EARMARK_KEY_HOSTS", f"{name}=127.0.0.1:{server.port}")
            config = config_for(server, batch=batch, batch_poll_s=0.05, **more)
            bench = Bench(tmp_path / f"{name}.sqlite", server)
            assert (await bench.ask(config, requests_for(config, 4))).answered == 4
            assert carried(server)
            await server.stop()

    run(story)


@pytest.mark.usefixtures("keys")
def test_a_server_that_wants_a_key_says_what_to_bind(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        for server, more, name in (
            (await OpenAIServer().start(), {}, "OPENAI_API_KEY"),
            (await GeminiServer().start(), GEMINI, "GOOGLE_API_KEY"),
        ):
            server.expected_key = "another"
            config = config_for(server, **more)
            with pytest.raises(AuthFailed) as caught:
                await Bench(tmp_path / f"{name}.sqlite", server).ask(config, requests_for(config, 4))
            bind = f'EARMARK_KEY_HOSTS="{name}=http://127.0.0.1:{server.port}"'
            assert str(caught.value).endswith(
                f"no key was sent: {name} is not set or not bound to this host; bind it with {bind}"
            )
            assert not carried(server)
            await server.stop()

    run(story)


@pytest.mark.usefixtures("keys")
def test_an_upload_that_a_server_sends_elsewhere_takes_no_key_along(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        server, thief = await GeminiServer().start(), await GeminiServer().start()
        monkeypatch.setenv("EARMARK_KEY_HOSTS", f"GEMINI_API_KEY=127.0.0.1:{server.port}")
        start = server.start_upload

        async def elsewhere(request: Any) -> Any:
            answer = await start(request)
            answer.headers["X-Goog-Upload-URL"] = answer.headers["X-Goog-Upload-URL"].replace(
                str(server.port), str(thief.port)
            )
            return answer

        monkeypatch.setattr(server, "start_upload", elsewhere)
        await server.stop()
        port = server.port
        await server.start(port)  # with the handler that was put in
        monkeypatch.setattr(AnnotatorConfig, "files_api_bytes", 0)
        config = config_for(server, **GEMINI, retries=0)
        with pytest.raises(AuthFailed, match="permission"):  # it never got the file
            await Bench(tmp_path / "l.sqlite", server).ask(config, [pair(config, 1)], MEDIA)
        assert thief.uploads > 0
        assert carried(server)
        assert not carried(thief)
        await asyncio.gather(server.stop(), thief.stop())

    run(story)


@pytest.mark.usefixtures("keys")
def test_an_answer_to_a_batch_obeys_the_rules_of_all_answers(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The providers' own clients follow redirects and read without end, unless kept from it."""

    async def story() -> None:
        thief = await serving()

        async def redirect(request: Any) -> web.Response:
            raise web.HTTPTemporaryRedirect(f"{thief.base_url}/files")

        monkeypatch.setattr(AnnotatorConfig, "most_response_bytes", 2048)

        async def endless(request: Any) -> web.Response:
            return web.json_response({"id": "f" * 5000})

        for handler, fault in ((redirect, "redirects are not followed"), (endless, "expected at most 2048 bytes")):
            server = OpenAIServer()
            server.upload = handler  # type: ignore[method-assign]
            await server.start()
            config = config_for(server, batch=True, batch_settle_s=0.0, retries=0, repairs=0)
            try:
                outcome = (await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 1))).outcomes[0]
                detail = outcome.detail if isinstance(outcome, Unanswered) else ""
            except AskError as error:
                detail = str(error)
            assert fault in detail
            await server.stop()
        assert not thief.headers
        await thief.stop()

    run(story)


def test_vertex_gets_a_token_of_the_machines_credentials_and_no_other_server_does(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    async def story() -> None:
        granted: list[str] = []
        broken: list[Any] = []

        async def token(request: web.Request) -> web.Response:
            assertion = (await request.post())["assertion"]
            if not broken:  # as a network does
                broken.append(request.transport)
                broken[0].abort()
            else:
                granted.append(assertion)  # type: ignore[arg-type]
            return web.json_response({"access_token": CANARY, "expires_in": 3600, "token_type": "Bearer"})

        app = web.Application()
        app.router.add_post("/token", token)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        account = {"type": "service_account", "client_email": "a@b.example", "private_key": pem, "private_key_id": "1"}
        account["token_uri"] = f"http://127.0.0.1:{runner.addresses[0][1]}/token"
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        vertex, other = await GeminiServer().start(), await GeminiServer().start()
        monkeypatch.setenv("EARMARK_KEY_HOSTS", f"GOOGLE_APPLICATION_CREDENTIALS=127.0.0.1:{vertex.port}")
        for server in (vertex, other):
            monkeypatch.setattr(AnnotatorConfig, "files_api_bytes", 0 if server is vertex else 1 << 20)
            config = config_for(server, **GEMINI)
            report = await Bench(tmp_path / f"{server.port}.sqlite", server).ask(config, [pair(config, 1)], MEDIA)
            assert report.answered == 1
            assert carried(server) == (server is vertex)
        assert (len(granted), vertex.uploads) == (1, 0)
        config = config_for(vertex, **GEMINI, batch=True)
        with pytest.raises(ConfigError, match="Cloud Storage"):
            await Bench(tmp_path / "b.sqlite", vertex).ask(config, requests_for(config, 1))
        await asyncio.gather(vertex.stop(), other.stop(), runner.cleanup())

    run(story)


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google", True),
        ("https://aiplatform.googleapis.com/v1", True),
        ("http://aiplatform.googleapis.com/v1", False),
        ("https://aiplatform.googleapis.com.evil.example/v1", False),
        ("https://evilaiplatform.googleapis.com/v1", False),
        ("https://aiplatform.googleapis.com:8443/v1", False),
        ("https://generativelanguage.googleapis.com/v1beta", False),
    ],
)
def test_only_vertex_itself_takes_credentials_unbound(url: str, own: bool) -> None:
    assert logs_in(url) == own


def test_doctor_shows_where_keys_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for written, state, said in (
        ("MY_KEY=llm.lab.example", "ok", "MY_KEY to https://llm.lab.example (not set)"),
        ("MY_KEY", "bad", "expected NAME=host"),
        ("", "off", "https://api.openai.com"),
    ):
        monkeypatch.setenv("EARMARK_KEY_HOSTS", written)
        (found,) = [one for one in examine(Store(tmp_path)) if one.what == "EARMARK_KEY_HOSTS"]
        assert found.state == state
        assert said in found.detail
