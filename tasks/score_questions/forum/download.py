"""Images from the few hosts that are allowed: over https, never from a private address, slowly, and each once.

A dump is text from strangers: an address in it must not make this machine ask its own network for anything. So hosts
are on a list, every name is resolved here and only public addresses are connected to (the connection goes to the very
address that was checked, so a name that changes its mind gains nothing), and each redirect passes the same gate.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from earmark.schemas.score_questions import Images
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.store.files import replacing, write_text

AT_ONCE = 4
TRIES = 4
MOST_REDIRECTS = 3
LONGEST_WAIT_S = 60.0
AGENT = "earmark (dataset builder; asks slowly)"
GONE = (404, 410, 451)
LASTING = ("image_gone", "not_an_image")  # what another config, or another day, does not change
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: Address) -> bool:
    """Whether an address is one of the open internet, whatever it is wrapped in."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is not None:
            return is_public(inner)
        if address in ipaddress.ip_network("64:ff9b::/96"):
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address.is_global and not address.is_multicast


@dataclass(frozen=True)
class Gate:
    """What may be asked for."""

    hosts: tuple[str, ...]  # names that are allowed, nothing below them
    schemes: tuple[str, ...] = ("https",)  # https; tests speak to a local server without certificates
    allows: Callable[[Address], bool] = is_public  # whether an address may be connected to
    resolver: AbstractResolver | None = None  # turns names into addresses; None for the system's
    port: int | None = None  # where a host listens; None for the scheme's own port

    def check(self, link: str) -> str:
        """The link, if it may be asked for.

        Raises:
            BadRow: it may not; the reason is `link_refused`.
        """
        try:
            parts = urlsplit(link)
            host, port = (parts.hostname or "").rstrip("."), parts.port
        except ValueError:
            raise BadRow("link_refused", "expected a link, found text that is none") from None
        if parts.scheme not in self.schemes:
            raise BadRow("link_refused", f"expected a link by {' or '.join(self.schemes)}, found another scheme")
        if host not in self.hosts or parts.username is not None or parts.password is not None:
            raise BadRow("link_refused", f"expected one of {', '.join(self.hosts)}, found another host")
        if port != self.port:
            raise BadRow("link_refused", "expected the usual port, found another")
        return link


class _CheckedResolver(AbstractResolver):
    """Names as addresses that may be connected to; aiohttp connects to nothing else."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.inner = gate.resolver or aiohttp.ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        addresses = await self.inner.resolve(host, port, family)
        allowed = [one for one in addresses if self.gate.allows(ipaddress.ip_address(one["host"].partition("%")[0]))]
        if not allowed:
            raise BadRow("link_refused", "expected a public address behind the host's name, found none")
        return allowed

    async def close(self) -> None:
        await self.inner.close()


@dataclass
class _Pace:
    """At most so many requests a second to one host."""

    per_second: float
    next_at: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    async def turn(self, host: str) -> None:
        now = time.monotonic()
        at = max(now, self.next_at[host])
        self.next_at[host] = at + 1 / self.per_second
        await asyncio.sleep(at - now)

    def rest(self, host: str, seconds: float) -> None:
        self.next_at[host] = max(self.next_at[host], time.monotonic() + seconds)


@dataclass(frozen=True)
class Cache:
    """What was downloaded, by link: a folder that outlives builds, so that nothing is asked for twice."""

    folder: Path

    def lookup(self, link: str) -> Path | BadRow | None:
        """The file of a link, why there is none, or None if it was never asked for."""
        path = self._path(link)
        if path.is_file():
            return path
        gone = path.with_suffix(".gone")
        return BadRow(*json.loads(gone.read_text("utf-8"))) if gone.is_file() else None

    def keep(self, link: str, content: bytes) -> Path:
        """Keep what a link gave."""
        with replacing(self._path(link)) as temporary:
            temporary.write_bytes(content)
        return self._path(link)

    def note_gone(self, link: str, why: BadRow) -> None:
        """Keep that a link gives nothing, for good."""
        write_text(self._path(link).with_suffix(".gone"), json.dumps([why.reason, why.detail]))

    def tidy(self) -> None:
        """Remove what a kill left half written. Nobody else may be downloading: a corpus's lock sees to that."""
        for leftover in self.folder.glob("??/.*.tmp"):
            leftover.unlink()

    def _path(self, link: str) -> Path:
        name = hashlib.sha256(link.encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / name[:2] / name


def download(
    links: Sequence[str],
    cache: Cache,
    limits: Images,
    gate: Gate | None = None,
    seen: Callable[[int], None] = lambda count: None,
) -> dict[str, Path | BadRow]:
    """The file of every link, or why there is none; what the cache holds is not asked for.

    Args:
        cache: where files are kept. Failures that may pass are not kept: another build asks again.
        limits: hosts, bytes, pace and patience.
        gate: what may be asked for; by default the hosts of `limits`, by https, at public addresses.
        seen: told how many more links are done.
    """
    files = {link: file for link in dict.fromkeys(links) if (file := cache.lookup(link))}
    seen(len(files))
    if missing := [link for link in dict.fromkeys(links) if link not in files]:
        files |= asyncio.run(_download_all(missing, cache, limits, gate or Gate(limits.hosts), seen))
    return files


async def _download_all(
    links: Sequence[str], cache: Cache, limits: Images, gate: Gate, seen: Callable[[int], None]
) -> dict[str, Path | BadRow]:
    pace, slots = _Pace(limits.per_second), asyncio.Semaphore(AT_ONCE)
    files: dict[str, Path | BadRow] = {}

    async def one(link: str) -> None:
        async with slots:
            try:
                files[link] = cache.keep(link, await _fetch(session, link, limits, gate, pace))
            except BadRow as why:
                files[link] = why
                if why.reason in LASTING:
                    cache.note_gone(link, why)
            seen(1)

    connector = aiohttp.TCPConnector(resolver=_CheckedResolver(gate), use_dns_cache=False, limit_per_host=2)
    timeout = aiohttp.ClientTimeout(total=limits.timeout_s)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers={"User-Agent": AGENT}, cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False, auto_decompress=False,
    ) as session:  # fmt: skip
        await asyncio.gather(*(one(link) for link in links))
    return files


async def _fetch(session: aiohttp.ClientSession, link: str, limits: Images, gate: Gate, pace: _Pace) -> bytes:
    """The bytes that a link leads to, through a few redirects and tries."""
    failure = "no answer"
    for trial in range(TRIES):
        try:
            return await _follow(session, link, limits, gate, pace)
        except _Later as later:
            failure = str(later)
            pace.rest(later.host, later.wait_s if later.wait_s is not None else 2.0**trial)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error.__cause__, BadRow):
                raise error.__cause__ from None
            failure = type(error).__name__
            pace.rest(urlsplit(link).hostname or "", 2.0**trial / limits.per_second)
    raise BadRow("download_failed", f"expected an image in {TRIES} tries, found: {failure}; another build asks again")


class _Later(Exception):
    """A host asks for patience."""

    def __init__(self, host: str, status: int, wait_s: float | None) -> None:
        super().__init__(f"status {status}")
        self.host = host
        self.wait_s = wait_s


async def _follow(session: aiohttp.ClientSession, link: str, limits: Images, gate: Gate, pace: _Pace) -> bytes:
    for _ in range(MOST_REDIRECTS + 1):
        host = urlsplit(gate.check(link)).hostname or ""
        await pace.turn(host)
        async with session.get(link, allow_redirects=False) as response:
            if response.status in (301, 302, 303, 307, 308):
                try:
                    link = urljoin(link, response.headers.get("Location", ""))
                except ValueError:
                    raise BadRow("link_refused", "expected a redirect to a link, found text that is none") from None
                continue
            return await _body(response, host, limits)
    raise BadRow("link_refused", f"expected at most {MOST_REDIRECTS} redirects, found more")


async def _body(response: aiohttp.ClientResponse, host: str, limits: Images) -> bytes:
    if response.status in GONE:
        raise BadRow("image_gone", f"expected an image, found status {response.status}")
    if response.status != 200:
        raise _Later(host, response.status, _wait(response.headers.get("Retry-After")))
    kind = response.content_type
    if not kind.startswith("image/"):
        raise BadRow("not_an_image", "expected an image, found another type of content")
    too_large = BadRow("image_too_large", f"expected at most {limits.largest_bytes:,} bytes, found more")
    if (response.content_length or 0) > limits.largest_bytes:
        raise too_large
    content = bytearray()
    async for part in response.content.iter_chunked(1 << 16):
        content += part
        if len(content) > limits.largest_bytes:
            raise too_large
    return bytes(content)


def _wait(header: str | None) -> float | None:
    """Seconds of a Retry-After, within reason; dates are not read."""
    return min(float(header), LONGEST_WAIT_S) if header and header.isdecimal() else None
