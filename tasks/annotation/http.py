"""HTTP with a type for everything that can go wrong. aiohttp bare: most of a client library's cost is its objects."""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import re
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from schemas.annotation import AnnotatorConfig
from tasks.annotation.errors import (
    AskError,
    AuthFailed,
    BadRequest,
    ConnectionFailed,
    ModelMissing,
    QuotaExhausted,
    RateLimited,
    ServerError,
    TimedOut,
    TooLarge,
    WrongContentType,
)
from tasks.annotation.keys import Key, is_loopback

CHUNK = 1 << 16
LONGEST_WAIT_S = 3600.0
SHORTEST_SECRET = 12  # what is shorter is no key but a placeholder such as EMPTY, and may be a word of an answer


class Http:
    """A pool of connections to one server.

    Args:
        config: timeouts and sizes.
        key: sent to the servers that it belongs to, and blotted out of everything that comes back.
        key_header: the header that carries it.
        key_words: the header's value, with `{}` for the key.
    """

    def __init__(self, config: AnnotatorConfig, key: Key, key_header: str, key_words: str = "{}") -> None:
        self._config = config
        self._headers = CIMultiDict({"User-Agent": "earmark"})
        self._key = key
        self._key_header = {key_header: key_words.format(key.value)}
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
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
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
        headers = self._headers.copy()
        headers["Content-Type"] = "application/json"
        _, text = await self.exchange("POST", url, body, headers)
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
            headers: all headers but the key's; those of the pool if None.
            any_type: accept other content types than JSON.
            most_bytes: longest response; the config's limit if None.

        Raises:
            AskError: by status, transport or content type.
        """
        if self._session is None:
            raise RuntimeError("the backend is not open")
        sent = self._headers if headers is None else headers
        if self._key.fits(url):
            sent = {**sent, **self._key_header}
        try:
            async with self._session.request(method, url, data=body, headers=sent, allow_redirects=False) as response:
                text = await self._text(response, most_bytes or self._config.most_response_bytes)
                if response.status >= 300:
                    raise self._fault(response, text)
                if not any_type and not response.content_type.endswith("json"):
                    raise WrongContentType(f"expected JSON, found {response.content_type}: {_line(text)}")
                return response.headers, text
        except aiohttp.ConnectionTimeoutError:
            raise TimedOut("connect", self._config.connect_timeout_s) from None
        except aiohttp.SocketTimeoutError:
            raise TimedOut("read", self._config.read_timeout_s) from None
        except TimeoutError:
            raise TimedOut("total", self._config.total_timeout_s) from None
        except (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError) as error:
            raise ConnectionFailed(self.redacted(f"{type(error).__name__}: {_line(str(error))}")) from None

    def headers(self, more: Mapping[str, str]) -> CIMultiDict[str]:
        """The pool's headers and more."""
        headers = self._headers.copy()
        headers.update(more)
        return headers

    def redacted(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self._key.value, "[redacted]") if len(self._key.value) >= SHORTEST_SECRET else text

    async def _text(self, response: aiohttp.ClientResponse, most: int) -> str:
        announced = response.content_length
        if announced is not None and announced > most:
            response.close()
            raise TooLarge(f"expected at most {most} bytes, the response announces {announced}")
        if announced is not None:
            held = await response.read()
        else:
            parts, size = [], 0
            async for part in response.content.iter_chunked(CHUNK):
                parts.append(part)
                size += len(part)
                if size > most:
                    response.close()
                    raise TooLarge(f"expected at most {most} bytes, the response is longer")
            held = b"".join(parts)
        return self.redacted(held.decode("utf-8", "replace").replace("\0", "\ufffd"))

    def _fault(self, response: aiohttp.ClientResponse, text: str) -> AskError:
        status = response.status
        code, message = _error_in(text)
        said = f"{status} {response.reason or ''}".strip() + (f": {message}" if message else "")
        if status == 429 and code in ("insufficient_quota", "billing_hard_limit_reached"):
            return QuotaExhausted(f"{said}; add quota or change the account, then run again")
        if status in (408, 409, 425, 429):
            return RateLimited(said, retry_after_s=retry_after(response.headers) or _retry_delay(text), raw=text)
        if status >= 500:
            return ServerError(said, retry_after_s=retry_after(response.headers), raw=text)
        if status in (401, 403) or (status == 400 and "API key not valid" in message):
            return AuthFailed(f"{response.url.origin()} answers {said}; {self._key.advice(response.url)}")
        if status == 402:
            return QuotaExhausted(f"{said}; add money to the account, then run again")
        if status == 404 or status < 400:
            return ModelMissing(f"{response.url} answers {said}; check annotator and base_url")
        return BadRequest(said)


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
        return "", _line(text)
    if isinstance(held, list) and held:
        held = held[0]
    error = held.get("error", held) if isinstance(held, dict) else held
    if not isinstance(error, dict):
        return "", _line(str(error))
    return str(error.get("code") or error.get("type") or ""), _line(str(error.get("message") or ""))


def _line(text: str) -> str:
    line = " ".join(text[:2000].split())
    return line if len(line) <= 200 else line[:197] + "..."
