"""Choose the key for a server: a key goes only to its own servers, whatever a config names.

A config may come from elsewhere, as the parameters of a deployment. So only the environment binds keys to servers: a
provider's key to the provider's own host, `OPENAI_API_KEY` also to the host of `OPENAI_BASE_URL`, and any key to its
places in `EARMARK_KEY_HOSTS`:

    EARMARK_KEY_HOSTS="MY_KEY=llm.lab.example, OPENAI_API_KEY=http://10.0.0.5:8000"

A place without a scheme is https, on this machine also http: no key travels unencrypted unless the environment says so.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from yarl import URL

from earmark.schemas.annotation import is_loopback
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
    """Server as reached by a connection: lower case, IDNA, always with the port."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == URL(f"{self.scheme}://x").port else f":{self.port}")


@dataclass(frozen=True, slots=True)
class Key:
    """Key and its servers."""

    names: tuple[str, ...]  # variables of the environment, in order of look-up
    name: str = ""  # the key's variable
    value: str = field(default="", repr=False)  # the key; empty for none
    origins: frozenset[Origin] = frozenset()  # the key's servers
    missing: tuple[str, ...] = ()  # empty variables bound to the server

    def fits(self, url: URL) -> bool:
        """Return whether the key may be sent to an address."""
        return bool(self.value) and origin_of(url) in self.origins

    def advice(self, url: URL) -> str:
        """Return advice about a server asking for a key, or for another key."""
        if self.fits(url):
            return f"check the key in {self.name}"
        if not self.names:
            return "no key was sent, since none is named for it"
        name, bind = self.names[0], f"{self.names[0]}={origin_of(url)}"
        return f'no key was sent: {name} is not set or not bound to this host; bind it with {VARIABLE}="{bind}"'


def origin_of(url: URL) -> Origin | None:
    """Return the server of an address; None unless it is http(s) without a user."""
    if url.scheme not in ("http", "https") or not url.raw_host or url.port is None or url.user or url.password:
        return None
    return Origin(url.scheme, url.raw_host.lower(), url.port)


def find_key(
    server: str, named: str | None, usual: tuple[str, ...], *, hosted: bool, environment: Mapping[str, str] = os.environ
) -> Key:
    """Return the key for a server, if the environment binds a key to it.

    Args:
        server: the base address of requests.
        named: the config's variable; it must be bound.
        usual: the backend's usual variables, if the config names none.
        hosted: whether it is the provider's own server, which always needs a key.
        environment: the process's.
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
    """Return each key's servers, by the key's variable.

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


def _origins(place: str) -> frozenset[Origin] | None:
    """Return the servers of a place in the environment; None if it is malformed."""
    found = _PLACE.fullmatch(place)
    try:
        https = origin_of(URL(f"https://{found[2]}")) if found else None
        http = origin_of(URL(f"http://{found[2]}")) if found else None
    except ValueError:  # a port beyond 65535, an impossible host name
        return None
    if found is None or https is None or http is None:
        return None
    if found[1]:
        return frozenset({http if found[1] == "http" else https})
    return frozenset({https, http} if is_loopback(https.host) else {https})
