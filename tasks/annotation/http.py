"""HTTP with a type for everything that can go wrong. aiohttp bare: most of a client library's cost is its objects."""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import re
import time
import urllib.request
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.errors import (
    AskError,
    AuthFailed,
    BadRequest,
    ConnectionFailed,
    MalformedResponse,
    ModelMissing,
    QuotaExhausted,
    RateLimited,
    Redirected,
    ServerError,
    TimedOut,
    TooLarge,
    WrongContentType,
    one_line,
)
from earmark.tasks.annotation.google_login import GoogleLogin, logs_in
from earmark.tasks.annotation.keys import Key, find_key, is_loopback

CHUNK = 1 << 16
ERROR_BYTES = 1 << 16
"""Longest body of an error that is read: what is longer is a web page."""
PLAIN, PACKED = ("", "identity"), ("gzip", "x-gzip", "deflate")
LONGEST_WAIT_S = 3600.0
JSON = {"Content-Type": "application/json"}
SHORTEST_SECRET = 12  # what is shorter is no key but a placeholder such as EMPTY, and may be a word of an answer


class _Connector(aiohttp.TCPConnector):
    """Connections that are used again only if nobody has written to them meanwhile: a second response to an earlier
    request, late, would be taken for the answer to the next one."""

    async def _get(self, *wanted: Any) -> Any:
        while (connection := await super()._get(*wanted)) and (last := connection.protocol) and last.should_close:
            connection.close()
        return connection


class Http:
    """A pool of connections to one server.

    Args:
        config: timeouts and sizes.
        key: sent to the servers that it belongs to, and blotted out of everything that comes back.
        key_header: the header that carries it.
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
        self._session: aiohttp.ClientSession | None = None

    async def open(self, base_url: str) -> None:
        """Make the pool; proxies of the environment are used except towards this machine.

        Raises:
            AuthFailed: the environment lacks the server's key.
        """
        config = self._config
        if missing := self._key.missing:
            raise AuthFailed(f"expected a key in the environment variable {' or '.join(missing)}, found none")
        self._session = aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "earmark", "Accept-Encoding": "gzip, deflate"},
            auto_decompress=False,  # `_body` does it, within a limit
            timeout=aiohttp.ClientTimeout(
                total=config.total_timeout_s, sock_connect=config.connect_timeout_s, sock_read=config.read_timeout_s
            ),
            proxy=_proxy(URL(base_url)),  # with aiohttp's trust_env, passwords of ~/.netrc would be sent too
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def post_json(self, url: URL, body: bytes) -> str:
        """Post JSON and return the body of a successful JSON response.

        Raises:
            AskError: by status, transport or content type.
        """
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
        """One exchange: response headers and text of a success.

        Args:
            method: HTTP method.
            url: absolute address.
            body: bytes or an aiohttp form.
            headers: beside the key's and those of all requests.
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
                if not any_type and not response.content_type.endswith("json"):
                    kind = self.redacted(response.content_type)
                    raise WrongContentType(f"expected JSON, found {one_line(kind)}: {one_line(text)}")
                return response.headers, text
        except aiohttp.ConnectionTimeoutError:
            raise TimedOut("connect", self._config.connect_timeout_s) from None
        except aiohttp.SocketTimeoutError:
            raise TimedOut("read", self._config.read_timeout_s) from None
        except TimeoutError:
            raise TimedOut("total", self._config.total_timeout_s) from None
        except (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError) as error:
            raise ConnectionFailed(f"{type(error).__name__}: {one_line(self.redacted(str(error)))}") from None

    def redacted(self, text: str) -> str:
        """The text without the key."""
        for secret in (self._key.value, self._token):
            text = text.replace(secret, "[redacted]") if len(secret) >= SHORTEST_SECRET else text
        return text

    def _text(self, body: bytes) -> str:
        return self.redacted(body.decode("utf-8", "replace").replace("\0", "\ufffd"))

    async def _error_text(self, response: aiohttp.ClientResponse) -> str:
        try:
            return self._text(await _body(response, ERROR_BYTES))
        except AskError:  # a page, or a packed body that cannot be read: the status says enough
            return ""

    def _fault(self, response: aiohttp.ClientResponse, text: str) -> AskError:
        status = response.status
        code, message = _error_in(text)
        said = self.redacted(f"{status} {response.reason or ''}".strip() + (f": {message}" if message else ""))
        if status == 429 and code in ("insufficient_quota", "billing_hard_limit_reached"):
            return QuotaExhausted(f"{said}; add quota or change the account, then run again")
        if status in (408, 409, 425, 429):
            return RateLimited(said, retry_after_s=retry_after(response.headers) or _retry_delay(text), raw=text)
        if status < 400:
            return Redirected(self._whither(response, said))
        if status >= 500:
            return ServerError(said, retry_after_s=retry_after(response.headers), raw=text)
        if status in (401, 403) or (status == 400 and "API key not valid" in message):
            return AuthFailed(f"{response.url.origin()} answers {said}; {self._key.advice(response.url)}")
        if status == 402:
            return QuotaExhausted(f"{said}; add money to the account, then run again")
        if status == 404:
            return ModelMissing(f"{response.url} answers {said}; check annotator and base_url")
        return BadRequest(said)

    def _whither(self, response: aiohttp.ClientResponse, said: str) -> str:
        """What a redirect comes to; of where it leads, only the host: the rest may hold what was sent."""
        with suppress(ValueError):
            host = urlsplit(self.redacted(response.headers.get("Location", ""))).hostname
            said += f", to {one_line(host)}" if host else ""
        return f"{said}: redirects are not followed, as the key belongs to {response.url.host}; check base_url"


class HttpBackend:
    """What backends behind HTTP share.

    Args:
        config: names the server, unless it is the provider's own.
        media: how to get at audio and images.
        url: the provider's own server.
        keys: the variables that a key is in, where the config names none.
        key_header, key_words: as `Http`.
        google: whether servers that take Google's application-default credentials get them.
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

    async def open(self) -> None:
        """Make the connection pool; a server of one's own needs no key.

        Raises:
            AuthFailed: the environment holds no key.
        """
        await self.http.open(self.base_url)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()


def parsed_reply(raw: str) -> Any:
    """A raw response as JSON.

    Raises:
        MalformedResponse: it is none.
    """
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise MalformedResponse(f"expected JSON, found {len(raw)} characters that are not") from None


async def _body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body, unpacked as it comes: neither what arrives nor what it becomes is held beyond `most` bytes.

    Raises:
        TooLarge: it is longer.
        WrongContentType: it is packed in a way that was not asked for.
        MalformedResponse: it cannot be unpacked, or ends before it should.
    """
    announced = response.content_length
    if announced is not None and announced > most:
        raise TooLarge(f"expected at most {most} bytes, the response announces {announced}")
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    if coding not in PLAIN + PACKED:
        raise WrongContentType(f"expected a body as it is, in gzip or deflate, found {one_line(coding)}")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if coding in PACKED else None  # tells gzip and zlib by themselves
    body, arrived = bytearray(), 0
    async for part in response.content.iter_chunked(CHUNK):
        arrived += len(part)
        try:
            if unpack is None:
                body += part
            elif not unpack.eof:  # what follows its end is let go
                body += unpack.decompress(part, most + 1 - len(body))
        except zlib.error:
            raise MalformedResponse(f"expected a body in {coding}, found one that is damaged") from None
        if max(arrived, len(body)) > most:
            raise TooLarge(f"expected at most {most} bytes, the response is longer")
    if unpack and not unpack.eof:
        raise MalformedResponse(f"expected a body in {coding}, found one that is cut short")
    return bytes(body)


def _proxy(url: URL) -> str | None:
    """The environment's proxy for a server; None for this machine and what `NO_PROXY` names."""
    host = url.host or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(url.scheme)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date."""
    milliseconds = headers.get("retry-after-ms")
    if milliseconds:
        with suppress(ValueError):
            return _believable(float(milliseconds) / 1000)
    said = headers.get("retry-after")
    if not said:
        return None
    with suppress(ValueError):
        return _believable(float(said))
    with suppress(ValueError, OverflowError):
        return _believable(email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    return None


def _believable(seconds: float) -> float | None:
    """A wait between nothing and an hour; a server that asks for longer is asked again after that."""
    return min(max(0.0, seconds), LONGEST_WAIT_S) if math.isfinite(seconds) else None


def _retry_delay(text: str) -> float | None:
    """Seconds that Google's error details ask to wait (`"retryDelay": "12s"`)."""
    found = re.search(r'"retryDelay":\s*"([0-9.]+)s"', text)
    if found is None:
        return None
    with suppress(ValueError):
        return _believable(float(found.group(1)))
    return None


def _error_in(text: str) -> tuple[str, str]:
    """Code and message of an error body, as OpenAI, vLLM and Google write it."""
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return "", one_line(text)
    if isinstance(held, list) and held:
        held = held[0]
    error = held.get("error", held) if isinstance(held, dict) else held
    if not isinstance(error, dict):
        return "", one_line(str(error))
    return str(error.get("code") or error.get("type") or ""), one_line(str(error.get("message") or ""))
