"""Download images from a few allowed hosts: over https, never from a private address, slowly, and each once.

A dump is text from strangers: an address in it must not make this machine send requests to its own network. So hosts
are on a list, every name is resolved here and only public addresses are connected to (the connection goes to exactly
the checked address, so changing DNS answers gain nothing), and each redirect passes the same checks.
"""

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

from earmark.tasks.importers.cells import BadRow
from earmark.tasks.score_questions.forum.pictures import LARGEST_BYTES
from earmark.tasks.store.files import replacing, write_text

HOSTS = ("i.redd.it", "preview.redd.it", "external-preview.redd.it", "i.imgur.com")
AT_ONCE = 4
TRIES = 4
MOST_REDIRECTS = 3
LONGEST_WAIT_S = 60.0
AGENT = "earmark (dataset builder; asks slowly)"
GONE = (404, 410, 451)
LASTING = ("image_gone", "file_unreadable")  # unchanged by another config or another day
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet, in any wrapping."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is not None:
            return is_public(inner)
        if any(address in ipaddress.ip_network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")):
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address.is_global and not address.is_multicast


@dataclass(frozen=True)
class Gate:
    """Rules for allowed requests."""

    hosts: tuple[str, ...] = HOSTS  # allowed names, without subdomains
    schemes: tuple[str, ...] = ("https",)  # https; tests speak to a local server without certificates
    allows: Callable[[Address], bool] = is_public  # whether an address may be connected to
    resolver: AbstractResolver | None = None  # turns names into addresses; None for the system's
    port: int | None = None  # the hosts' port; None for the scheme's own port
    per_second: float = 2.0  # requests to a host
    timeout_s: float = 30.0  # longest download
    largest_bytes: int = LARGEST_BYTES

    def check(self, link: str) -> str:
        """Return the link if allowed.

        Raises:
            BadRow: refused, with the reason `link_refused`.
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
    """Resolve names to allowed addresses; aiohttp connects to nothing else."""

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
    """Limit requests per second to each host."""

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
    """Downloads by link, in a folder that outlives builds, so that nothing is requested twice."""

    folder: Path

    def lookup(self, link: str) -> Path | BadRow | None:
        """Return the file of a link, its recorded fault, or None if never requested."""
        path = self._path(link)
        if path.is_file():
            return path
        gone = path.with_suffix(".gone")
        return BadRow(*json.loads(gone.read_text("utf-8"))) if gone.is_file() else None

    def keep(self, link: str, content: bytes) -> Path:
        """Keep the content of a link."""
        with replacing(self._path(link)) as temporary:
            temporary.write_bytes(content)
        return self._path(link)

    def note_gone(self, link: str, why: BadRow) -> None:
        """Record a permanently dead link."""
        write_text(self._path(link).with_suffix(".gone"), json.dumps([why.reason, why.detail]))

    def tidy(self) -> None:
        """Remove a killed run's partial files. A corpus's lock excludes other downloads."""
        for leftover in self.folder.glob("??/.*.tmp"):
            leftover.unlink()

    def _path(self, link: str) -> Path:
        name = hashlib.sha256(link.encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / name[:2] / name


def download(
    links: Sequence[str], cache: Cache, gate: Gate, seen: Callable[[int], None] = lambda count: None
) -> dict[str, Path | BadRow]:
    """Return the file of every link, or its fault; request nothing found in the cache.

    Args:
        cache: holds the files. Temporary failures are not kept: another build tries again.
        gate: rules for allowed requests.
        seen: called with the number of further finished links.
    """
    files = {link: file for link in dict.fromkeys(links) if (file := cache.lookup(link))}
    seen(len(files))
    if missing := [link for link in dict.fromkeys(links) if link not in files]:
        files |= asyncio.run(_download_all(missing, cache, gate, seen))
    return files


async def _download_all(
    links: Sequence[str], cache: Cache, gate: Gate, seen: Callable[[int], None]
) -> dict[str, Path | BadRow]:
    pace, slots = _Pace(gate.per_second), asyncio.Semaphore(AT_ONCE)
    files: dict[str, Path | BadRow] = {}

    async def one(link: str) -> None:
        async with slots:
            try:
                files[link] = cache.keep(link, await _fetch(session, link, gate, pace))
            except BadRow as why:
                files[link] = why
                if why.reason in LASTING:
                    cache.note_gone(link, why)
            seen(1)

    connector = aiohttp.TCPConnector(resolver=_CheckedResolver(gate), use_dns_cache=False, limit_per_host=2)
    timeout = aiohttp.ClientTimeout(total=gate.timeout_s)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers={"User-Agent": AGENT}, cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False, auto_decompress=False,
    ) as session:  # fmt: skip
        await asyncio.gather(*(one(link) for link in links))
    return files


async def _fetch(session: aiohttp.ClientSession, link: str, gate: Gate, pace: _Pace) -> bytes:
    """Fetch the bytes of a link, through a few redirects and tries."""
    failure = "no answer"
    for trial in range(TRIES):
        try:
            return await _follow(session, link, gate, pace)
        except _Later as later:
            failure = str(later)
            pace.rest(later.host, later.wait_s if later.wait_s is not None else 2.0**trial)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error.__cause__, BadRow):
                raise error.__cause__ from None
            failure = type(error).__name__
            pace.rest(urlsplit(link).hostname or "", 2.0**trial / gate.per_second)
    raise BadRow("download_failed", f"expected an image in {TRIES} tries, found: {failure}; another build asks again")


class _Later(Exception):
    """A host's request to try later."""

    def __init__(self, host: str, status: int, wait_s: float | None) -> None:
        super().__init__(f"status {status}")
        self.host = host
        self.wait_s = wait_s


async def _follow(session: aiohttp.ClientSession, link: str, gate: Gate, pace: _Pace) -> bytes:
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
            return await _body(response, host, gate)
    raise BadRow("link_refused", f"expected at most {MOST_REDIRECTS} redirects, found more")


async def _body(response: aiohttp.ClientResponse, host: str, gate: Gate) -> bytes:
    if response.status in GONE:
        raise BadRow("image_gone", f"expected an image, found status {response.status}")
    if response.status != 200:
        raise _Later(host, response.status, _wait(response.headers.get("Retry-After")))
    kind = response.content_type
    if not kind.startswith("image/"):
        raise BadRow("file_unreadable", "expected an image, found another type of content")
    too_large = BadRow("image_too_large", f"expected at most {gate.largest_bytes:,} bytes, found more")
    if (response.content_length or 0) > gate.largest_bytes:
        raise too_large
    content = bytearray()
    async for part in response.content.iter_chunked(1 << 16):
        content += part
        if len(content) > gate.largest_bytes:
            raise too_large
    return bytes(content)


def _wait(header: str | None) -> float | None:
    """Return the seconds of a Retry-After up to a limit; ignore dates."""
    return min(float(header), LONGEST_WAIT_S) if header and header.isdecimal() else None
