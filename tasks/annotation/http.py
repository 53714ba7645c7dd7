"""Exchange HTTP requests with a type for every fault. Plain aiohttp: a client library costs mostly its objects."""

import asyncio
import json
import math
import secrets
import threading
import urllib.request
import zlib
from binascii import b2a_base64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig, is_loopback
from earmark.schemas.errors import ConfigError
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.errors import (
    AskError,
    AuthFailed,
    ConnectionFailed,
    MalformedResponse,
    Redirected,
    Streamed,
    TimedOut,
    TooLarge,
    WrongContentType,
    one_line,
)
from earmark.tasks.annotation.keys import Key, Origin, find_key, key_hosts, origin_of
from earmark.tasks.annotation.server_faults import fault_of, status_within

_MARK = secrets.token_hex(16)  # drawn by each process and never sent: no text of a request can hold it


@dataclass(frozen=True, slots=True)
class Base64:
    """Media in a body, in the place of their base64 string; `head` precedes it."""

    data: bytes
    head: str = ""


def json_bytes(body: Any) -> bytes:
    """Encode a body as JSON, with the base64 string for each `Base64` in it."""
    held: list[bytes] = []

    def marked(value: Any) -> str:
        if not isinstance(value, Base64):
            raise TypeError(f"expected JSON or Base64, found {type(value).__name__}")
        held.append(b2a_base64(value.data, newline=False))
        return value.head + _MARK

    first, *others = json.dumps(body, default=marked).encode().split(_MARK.encode())
    pieces = [first]
    for media, text in zip(held, others, strict=True):
        pieces += (media, text)
    return b"".join(pieces)


VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
VERTEX = "aiplatform.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


def logs_in(url: str) -> bool:
    """Return whether a server takes these credentials: Vertex AI's own, or bound to them by the environment."""
    origin = origin_of(URL(url))
    if origin is None or origin in key_hosts().get(VARIABLE, ()):
        return origin is not None
    vertex = origin.host == VERTEX or origin.host.endswith(f"-{VERTEX}")
    return vertex and (origin.scheme, origin.port) == ("https", 443)


class GoogleLogin:
    """Tokens for one server, renewed as they expire.

    Args:
        url: an address of the server; no other gets a token.
    """

    def __init__(self, url: str) -> None:
        self._origin: Origin | None = origin_of(URL(url))
        self._credentials: Any = None
        self._lock = threading.Lock()

    async def token(self, url: URL) -> str:
        """Return a valid token, or an empty string for another server.

        Raises:
            AuthFailed: this machine has no such credentials, or they are refused.
            ConnectionFailed: the network fails while a token is renewed.
        """
        if origin_of(url) != self._origin:
            return ""
        if self._credentials is None or not self._credentials.valid:
            await asyncio.to_thread(self._renew)
        return str(self._credentials.token)

    def _renew(self) -> None:
        import google.auth
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request

        with self._lock:
            try:
                if self._credentials is None:
                    self._credentials, _ = google.auth.default(scopes=SCOPES)
                if not self._credentials.valid:
                    self._credentials.refresh(Request())
            except TransportError as error:
                said = f"no token for {self._origin}: {one_line(str(error), 200)}"
                raise ConnectionFailed(said, refused=True) from None  # nothing was asked
            except GoogleAuthError as error:
                raise AuthFailed(
                    f"{self._origin} wants application-default credentials: {type(error).__name__}: "
                    f"{one_line(str(error), 200)}; run `gcloud auth application-default login` or set {VARIABLE}"
                ) from None


CHUNK = 1 << 16
ERROR_BYTES = 1 << 16  # longest body of an error to read: longer bodies are web pages
PLAIN, PACKED = ("", "identity"), ("gzip", "x-gzip", "deflate")
COST = "x-litellm-response-cost"
JSON = {"Content-Type": "application/json"}
PROXY_LOGIN = 407
OF_PROXY = (
    "the proxy answers 407; give its user and password: HTTP_PROXY or HTTPS_PROXY = http://USER:PASSWORD@HOST:PORT"
)
SHORTEST_SECRET = 12  # shorter values are placeholders such as EMPTY, and may be a word of an answer


class _Connector(aiohttp.TCPConnector):
    """Connections reused only without unread data: a late second response would pass for the next answer."""

    async def _get(self, *wanted: Any) -> Any:
        while (connection := await super()._get(*wanted)) and (last := connection.protocol) and last.should_close:
            connection.close()
        return connection


class Http:
    """Pool of connections to one server.

    Args:
        config: timeouts and sizes.
        key: sent only to its own servers, and redacted from all responses.
        key_header: the key's header.
        key_words: the header's value, with `{}` for the key.
        login: gives tokens in place of a key.
    """

    def __init__(
        self,
        config: AnnotatorConfig,
        key: Key,
        key_header: str,
        key_words: str = "{}",
        login: GoogleLogin | None = None,
    ) -> None:
        self._config = config
        self._key = key
        self._key_header = {key_header: key_words.format(key.value)}
        self._login, self._token = login, ""
        self._proxy_login = ""  # user and password, as in errors about the proxy
        self._session: aiohttp.ClientSession | None = None
        self.reported_usd = 0.0  # cost of the answers as reported by a gateway

    async def open(self, base_url: str) -> None:
        """Open the pool; proxies of the environment are used except towards this machine.

        Raises:
            AuthFailed: the environment lacks the server's key.
            ConfigError: the environment's proxy is no HTTP proxy.
        """
        config = self._config
        if missing := self._key.missing:
            raise AuthFailed(f"expected a key in the environment variable {' or '.join(missing)}, found none")
        proxy = _proxy(URL(base_url))
        self._proxy_login = f"{login}@" if proxy and (login := proxy.raw_authority.rpartition("@")[0]) else ""
        self._session = aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "earmark", "Accept-Encoding": "gzip, deflate"},
            auto_decompress=False,  # `_body` does it, within a limit
            timeout=aiohttp.ClientTimeout(
                total=config.total_timeout_s, sock_connect=config.connect_timeout_s, sock_read=config.read_timeout_s
            ),
            proxy=proxy,  # aiohttp's trust_env would also send passwords of ~/.netrc
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def post_json(self, url: URL, body: bytes) -> str:
        """Post JSON and return the body of a successful JSON response."""
        _, text = await self.exchange("POST", url, body, JSON)
        return text

    async def exchange(
        self,
        method: str,
        url: URL,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        any_type: bool = False,
        most_bytes: int | None = None,
    ) -> tuple[CIMultiDictProxy[str], str]:
        """Make an exchange; return response headers and text of a success.

        Args:
            method: HTTP method.
            url: absolute address.
            body: bytes or an aiohttp form.
            headers: added to the key's header and the common headers.
            any_type: accept other content types than JSON.
            most_bytes: longest response; the config's limit if None.

        Raises:
            AskError: by status, transport or content type.
        """
        if self._session is None:
            raise RuntimeError("the backend is not open")
        sent = {**(headers or {}), **(self._key_header if self._key.fits(url) else {})}
        if self._login and (token := await self._login.token(url)):
            self._token, sent["Authorization"] = token, f"Bearer {token}"
        try:
            async with self._session.request(method, url, data=body, headers=sent, allow_redirects=False) as response:
                if response.status >= 300:
                    raise self._fault(response, await self._error_text(response))
                text = self._text(await _body(response, most_bytes or self._config.most_response_bytes))
                if not any_type and not response.content_type.endswith("json") and not _is_json(text):
                    if response.content_type == "text/event-stream":
                        raise Streamed(
                            "expected one JSON body, found a stream (text/event-stream); set stream = false in "
                            "extra_body, or name a server that answers without streaming"
                        )
                    kind = self.redacted(response.content_type)
                    raise WrongContentType(f"expected JSON, found {one_line(kind)}: {one_line(text)}")
                if not any_type and (status := status_within(text)):
                    raise self._fault(response, text, status)
                self._count_cost(response.headers)
                return response.headers, text
        except aiohttp.ConnectionTimeoutError:
            raise TimedOut("connect", self._config.connect_timeout_s) from None
        except aiohttp.SocketTimeoutError:
            raise TimedOut("read", self._config.read_timeout_s) from None
        except TimeoutError:
            raise TimedOut("total", self._config.total_timeout_s) from None
        except (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError) as error:
            if isinstance(error, aiohttp.ClientHttpProxyError) and error.status == PROXY_LOGIN:
                raise AuthFailed(OF_PROXY) from None
            refused = isinstance(error, aiohttp.ClientConnectorError)
            words = str(error).replace(self._proxy_login, "")  # of any length: they hold the proxy's address
            said = f"{type(error).__name__}: {one_line(self.redacted(words))}"
            raise ConnectionFailed(said, refused=refused) from None

    def redacted(self, text: str) -> str:
        """Return the text without the key and the proxy's login."""
        for secret in (self._key.value, self._token, self._proxy_login):
            text = text.replace(secret, "[redacted]") if len(secret) >= SHORTEST_SECRET else text
        return text

    def _text(self, body: bytes) -> str:
        return self.redacted(body.decode("utf-8-sig", "replace").replace("\0", "\ufffd"))

    def _count_cost(self, headers: Mapping[str, str]) -> None:
        with suppress(ValueError):
            cost = float(headers.get(COST, "0"))
            self.reported_usd += cost if 0 <= cost < math.inf else 0.0

    async def _error_text(self, response: aiohttp.ClientResponse) -> str:
        try:
            return self._text(await _body(response, ERROR_BYTES))
        except AskError:  # a page, or a damaged packed body: the status is enough
            return ""

    def _fault(self, response: aiohttp.ClientResponse, text: str, status: int | None = None) -> AskError:
        status = status or response.status
        if response.status == PROXY_LOGIN:
            return AuthFailed(OF_PROXY)
        if status < 400:
            return Redirected(self._whither(response, f"{status} {self.redacted(response.reason or '')}".strip()))
        if not text and response.reason:
            text = json.dumps({"error": self.redacted(response.reason)})
        headers = CIMultiDict((name, self.redacted(value)) for name, value in response.headers.items())
        where = str(response.url if status == 404 else response.url.origin())
        return fault_of(status, text, headers, where=where, advice=self._key.advice(response.url))

    def _whither(self, response: aiohttp.ClientResponse, said: str) -> str:
        """Return a message about a redirect; it names only the target's host: the rest may hold sent data."""
        with suppress(ValueError):
            host = urlsplit(self.redacted(response.headers.get("Location", ""))).hostname
            said += f", to {one_line(host)}" if host else ""
        return f"{said}: redirects are not followed, as the key belongs to {response.url.host}; check base_url"


class HttpBackend:
    """Base of HTTP backends.

    Args:
        config: gives the server, unless it is the provider's own.
        media: access to audio and images.
        url: the provider's own server.
        keys: variables of the key, if the config names none.
        key_header, key_words: as `Http`.
        google: whether to log in to Google's servers by application-default credentials.
    """

    def __init__(
        self,
        config: AnnotatorConfig,
        media: Media,
        url: str,
        keys: tuple[str, ...],
        key_header: str,
        key_words: str,
        *,
        google: bool = False,
    ) -> None:
        self._config = config
        self._media = media
        self.base_url = config.base_url or url
        self.login = GoogleLogin(self.base_url) if google and logs_in(self.base_url) else None
        key = find_key(self.base_url, config.api_key_env, keys, hosted=config.base_url is None)
        self.http = Http(config, key, key_header, key_words, self.login)

    @property
    def reported_usd(self) -> float:
        """Return the cost of the answers so far as reported by a gateway, in US dollars."""
        return self.http.reported_usd

    async def open(self) -> None:
        """Open the connection pool; a private server needs no key.

        Raises:
            AuthFailed: the environment holds no key.
        """
        await self.http.open(self.base_url)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()


def _is_json(text: str) -> bool:
    """Return whether a body is a JSON object, whatever its content type: some servers send none."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def parsed_reply(raw: str) -> Any:
    """Parse a raw response as JSON."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise MalformedResponse(f"expected JSON, found {len(raw)} characters that are not") from None


async def _body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Read the body, unpacked in steps: neither packed nor unpacked data exceeds `most` bytes in memory."""
    announced = response.content_length
    if announced is not None and announced > most:
        raise TooLarge(f"expected at most {most} bytes, the response announces {announced}")
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    if coding not in PLAIN + PACKED:
        raise WrongContentType(f"expected a body as it is, in gzip or deflate, found {one_line(coding)}")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if coding in PACKED else None  # detects gzip and zlib
    body, arrived = bytearray(), 0
    async for part in response.content.iter_chunked(CHUNK):
        arrived += len(part)
        try:
            if unpack is None:
                body += part
            elif not unpack.eof:  # ignore data after its end
                body += unpack.decompress(part, most + 1 - len(body))
        except zlib.error:
            raise MalformedResponse(f"expected a body in {coding}, found one that is damaged") from None
        if max(arrived, len(body)) > most:
            raise TooLarge(f"expected at most {most} bytes, the response is longer")
    if unpack and not unpack.eof:
        raise MalformedResponse(f"expected a body in {coding}, found one that is cut short")
    return bytes(body)


def _proxy(url: URL) -> URL | None:
    """Return the environment's proxy for a server; None for this machine and hosts in `NO_PROXY`.

    Raises:
        ConfigError: it is no address of an HTTP proxy.
    """
    host = url.host or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    if not (said := urllib.request.getproxies().get(url.scheme, "").strip()):
        return None
    found = "an address that cannot be read"
    with suppress(ValueError):
        proxy = URL(said if "://" in said else f"http://{said}")
        if proxy.scheme in ("http", "https") and proxy.host:
            return proxy
        found = f"'{one_line(proxy.scheme)}://' before '{one_line(proxy.host or '')}'"
    name = f"{url.scheme.upper()}_PROXY"
    raise ConfigError(f"{name}: expected http://HOST:PORT, found {found}; or name {host} in NO_PROXY")
