"""Images from the web: only from allowed hosts at public addresses, within limits, and each once."""

from __future__ import annotations

import gzip
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from earmark.tasks.importers.cells import BadRow
from earmark.tasks.score_questions.forum.download import Address, Cache, Gate, download, is_public
from tests.servers.image_server import ImageServer, serving

IMAGE = b"\x89PNG as far as a server knows"
LARGEST = 1_000_000


class Names(AbstractResolver):
    """Names of a test; each has addresses that it gives in turn, the last one for good."""

    def __init__(self, **addresses: list[str]) -> None:
        self.addresses = {name.replace("_", "."): list(given) for name, given in addresses.items()}

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        given = self.addresses[host]
        address = given.pop(0) if len(given) > 1 else given[0]
        return [ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        return


@pytest.fixture
def server() -> Iterator[ImageServer]:
    with serving(IMAGE) as state:
        yield state


def loopback(address: Address) -> bool:
    """What a test's gate lets through in place of the open internet."""
    return address == ipaddress.ip_address("127.0.0.1")


def gate(server: ImageServer, **changes: Any) -> Gate:
    """A gate to a test's server, by the name that it has in the dump."""
    names = Names(i_example=["127.0.0.1"], other_example=["127.0.0.1"])
    given = {"schemes": ("http",), "allows": loopback, "resolver": names, "port": server.port}
    given |= {"per_second": 100, "largest_bytes": LARGEST, "timeout_s": 20}
    return Gate(("i.example",), **{**given, **changes})


def fetch(server: ImageServer, cache: Path, *names: str, **changes: Any) -> list[bytes | str]:
    """What each path gives: bytes, or the reason why there are none."""
    links = [f"http://i.example:{server.port}/{name}" for name in names]
    found = download(links, Cache(cache), gate(server, **changes))
    return [held.read_bytes() if isinstance(held := found[link], Path) else held.reason for link in links]


def test_downloads_once_and_for_all_builds(server: ImageServer, tmp_path: Path) -> None:
    assert fetch(server, tmp_path, "good.png", "good2.png", "good.png") == [IMAGE] * 3
    assert fetch(server, tmp_path, "good.png", "good2.png") == [IMAGE] * 2
    assert server.asked == {"/good.png": 1, "/good2.png": 1}
    assert all("earmark" in agent for agent in server.agents)


def test_a_packed_image_stays_packed(server: ImageServer, tmp_path: Path) -> None:
    """Eight megabytes in eight kilobytes: the limit counts what arrives, and nothing is unpacked."""
    (found,) = fetch(server, tmp_path, "packed.png")
    assert isinstance(found, bytes)
    assert len(found) < LARGEST < len(gzip.decompress(found))


@pytest.mark.parametrize(
    ("name", "reason", "again"),
    [
        ("lost.png", "image_gone", 0),
        ("page.png", "file_unreadable", 0),
        ("large.png", "image_too_large", 1),
        ("endless.png", "image_too_large", 1),
        ("round.png", "link_refused", 4),
        ("nowhere.png", "link_refused", 1),
        ("broken.png", "download_failed", 4),
    ],
)
def test_says_why_there_is_no_image(server: ImageServer, tmp_path: Path, name: str, reason: str, again: int) -> None:
    assert fetch(server, tmp_path, name) == [reason]
    before = server.asked[f"/{name}"]
    assert fetch(server, tmp_path, name) == [reason]
    assert server.asked[f"/{name}"] - before == again


def test_asks_a_busy_host_again(server: ImageServer, tmp_path: Path) -> None:
    assert fetch(server, tmp_path, "busy.png") == [IMAGE]
    assert server.asked["/busy.png"] == 3


@pytest.mark.parametrize(
    "to",
    [
        "/good.png",
        "http://other.example:{port}/good.png",
        "http://127.0.0.1:{port}/good.png",
        "http://i.example:{port}@other.example/good.png",
        "file:///etc/hostname",
        "http://i.example:1/good.png",
        "//other.example:{port}/good.png",
    ],
)
def test_redirects_pass_the_same_gate(server: ImageServer, tmp_path: Path, to: str) -> None:
    server.moved_to = to.format(port=server.port)
    assert fetch(server, tmp_path, "moved.png") == [IMAGE if to == "/good.png" else "link_refused"]
    assert server.asked["/good.png"] == (to == "/good.png")


def test_private_addresses_are_not_connected_to(server: ImageServer, tmp_path: Path) -> None:
    assert fetch(server, tmp_path, "good.png", allows=is_public) == ["link_refused"]
    assert not server.asked


def test_a_name_that_changes_its_mind_gains_nothing(server: ImageServer, tmp_path: Path) -> None:
    """Checked as public, then resolved again as loopback: there is no second time."""
    rebinding = Names(i_example=["203.0.113.9", "127.0.0.1"])
    connected = []

    def allows(address: Address) -> bool:
        connected.append(str(address))
        return address == ipaddress.ip_address("203.0.113.9")

    link = f"http://i.example:{server.port}/good.png"
    narrow = gate(server, allows=allows, resolver=rebinding, timeout_s=0.5)
    found = download([link], Cache(tmp_path), narrow)[link]
    assert isinstance(found, BadRow)
    assert not server.asked
    assert connected[:2] == ["203.0.113.9", "127.0.0.1"]  # the second look was refused too


@pytest.mark.parametrize(
    "link",
    ["http://i.redd.it/a.png", "https://i.redd.it.example.org/a.png", "https://i.redd.it:8443/a.png",
     "ftp://i.redd.it/a", "https://me:secret@i.redd.it/a.png", "https://169.254.169.254/latest", "https://[::1]/a.png",
     "https://[", "", "x"],
)  # fmt: skip
def test_by_default_only_https_to_the_named_hosts(link: str) -> None:
    with pytest.raises(BadRow) as caught:
        Gate().check(link)
    assert caught.value.reason == "link_refused"
    assert "secret" not in caught.value.detail


def test_by_default_the_forums_own_hosts_pass() -> None:
    link = "https://preview.redd.it/abc.png?width=420&s=ab12"
    assert Gate().check(link) == link


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True), ("2606:4700::1111", True), ("127.0.0.1", False), ("10.1.2.3", False), ("192.168.0.1", False),
        ("172.16.0.1", False), ("169.254.169.254", False), ("100.64.0.1", False), ("0.0.0.0", False), ("::1", False),
        ("224.0.0.1", False), ("fe80::1", False), ("fd00::1", False), ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False), ("64:ff9b:1::7f00:1", False), ("::7f00:1", False),
        ("2002:7f00:1::", False), ("::ffff:8.8.8.8", True),
    ],
)  # fmt: skip
def test_tells_public_addresses(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) == public
