"""Which key goes to which server: only to the one that it belongs to, whatever a config names.

A config may come from elsewhere, as the parameters of a deployment. So the environment alone says where a key belongs:
a provider's key to the provider's own host, `OPENAI_API_KEY` to the host of `OPENAI_BASE_URL` too, and any key to what
`EARMARK_KEY_HOSTS` binds it to:

    EARMARK_KEY_HOSTS="MY_KEY=llm.lab.example, OPENAI_API_KEY=http://10.0.0.5:8000"

A place without a scheme is https, on this machine http too: no key travels unencrypted unless the environment says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import NamedTuple

from yarl import URL

from earmark.schemas.errors import ConfigError

VARIABLE = "EARMARK_KEY_HOSTS"
PROVIDERS = {
    "OPENAI_API_KEY": "https://api.openai.com",
    "GEMINI_API_KEY": "https://generativelanguage.googleapis.com",
    "GOOGLE_API_KEY": "https://generativelanguage.googleapis.com",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"(?:(https?)://)?((?:\[[0-9A-Fa-f:.]+\]|[^\s/@:\[\]?#\\%*=]+)(?::[0-9]{1,5})?)")


class Origin(NamedTuple):
    """A server as a connection reaches it: lower case, IDNA, the port always there."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == URL(f"{self.scheme}://x").port else f":{self.port}")


@dataclass(frozen=True, slots=True)
class Key:
    """A key and where it may go."""

    names: tuple[str, ...]  # the variables of the environment that are looked at, in this order
    name: str = ""  # the one that holds it
    value: str = field(default="", repr=False)  # the key; empty for none
    origins: frozenset[Origin] = frozenset()  # the servers that it belongs to
    missing: tuple[str, ...] = ()  # the variables that should hold a key for the server and do not

    def fits(self, url: URL) -> bool:
        """Whether it may be sent to an address."""
        return bool(self.value) and origin_of(url) in self.origins

    def advice(self, url: URL) -> str:
        """What to do about a server that wants a key, or another one."""
        if self.fits(url):
            return f"check the key in {self.name}"
        name, bind = self.names[0], f"{self.names[0]}={origin_of(url)}"
        return f'no key was sent: {name} is not set or not bound to this host; bind it with {VARIABLE}="{bind}"'


def origin_of(url: URL) -> Origin | None:
    """Where a request to an address would go; None where that is not http(s), or the address holds a user."""
    if url.scheme not in ("http", "https") or not url.raw_host or url.port is None or url.user or url.password:
        return None
    return Origin(url.scheme, url.raw_host.lower(), url.port)


def find_key(
    server: str,
    named: str | None,
    usual: tuple[str, ...],
    *,
    hosted: bool,
    environment: Mapping[str, str] = os.environ,
) -> Key:
    """The key for a server, if the environment binds one to it.

    Args:
        server: the address that requests start from.
        named: the variable that a config names; it must be a bound one.
        usual: the variables that the backend's key is in, where a config names none.
        hosted: whether it is the provider's own server, which answers nobody without a key.
        environment: the process's.

    Raises:
        ConfigError: the config names a variable that is bound to no host, or the environment's bindings are malformed.
    """
    bound = key_hosts(environment)
    if named is not None and named not in bound:
        raise ConfigError(
            f"api_key_env = '{named}': no host is bound to this variable; set {VARIABLE}=\"{named}=HOST\" in the "
            "environment, or leave api_key_env out"
        )
    names, where = (named,) if named else usual, origin_of(URL(server))
    here = [name for name in names if where in bound.get(name, ())]
    for name in here:
        if value := environment.get(name):
            return Key(names, name, value, bound[name])
    return Key(names, missing=tuple(here) if named or hosted else ())


def key_hosts(environment: Mapping[str, str] = os.environ) -> dict[str, frozenset[Origin]]:
    """The servers that each key belongs to, by the variable that holds the key.

    Raises:
        ConfigError: `EARMARK_KEY_HOSTS` or `OPENAI_BASE_URL` is malformed; the value is not repeated.
    """
    bound = {name: _origins(place) or frozenset() for name, place in PROVIDERS.items()}
    if base := environment.get("OPENAI_BASE_URL", "").strip():
        found = _origins("/".join(base.split("/")[:3]))
        if found is None or "://" not in base:
            raise ConfigError("OPENAI_BASE_URL: expected http://host/path or https://host/path without user")
        bound["OPENAI_API_KEY"] |= found
    for number, entry in enumerate(filter(None, re.split(r"[\s,]+", environment.get(VARIABLE, ""))), start=1):
        name, equals, place = entry.partition("=")
        found = _origins(place) if equals and _NAME.fullmatch(name) else None
        if found is None:
            raise ConfigError(
                f"{VARIABLE}: expected NAME=host, NAME=host:port or NAME=http://host:port, separated by commas; "
                f"entry {number} is none of these"
            )
        bound[name] = bound.get(name, frozenset()) | found
    return bound


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _origins(place: str) -> frozenset[Origin] | None:
    """What a place of the environment names; None if it is malformed."""
    found = _PLACE.fullmatch(place)
    try:
        https = origin_of(URL(f"https://{found[2]}")) if found else None
        http = origin_of(URL(f"http://{found[2]}")) if found else None
    except ValueError:  # a port beyond 65535, a host that no name can be
        return None
    if found is None or https is None or http is None:
        return None
    if found[1]:
        return frozenset({http if found[1] == "http" else https})
    return frozenset({https, http} if is_loopback(https.host) else {https})
