"""Restrict access to the server of `earmark serve` to holders of its password and pages of its own origin.

Without a password, any page in a browser on this machine could start runs: Prefect's API ignores Host and Origin.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from earmark.flows.command.prefect_server import home
from earmark.schemas.errors import ConfigError
from earmark.schemas.files import keep_private, read_regular

FILE = "earmark-serve.auth"


@dataclass(frozen=True)
class Access:
    """The server's access settings, and the place of its password."""

    server: dict[str, str]  # environment variables of the server alone
    client: dict[str, str]  # environment variables of the server's users: this process, the worker, its runs
    where: str  # the place of the password


def own_access(host: str, port: int) -> Access:
    """Return the password in `PREFECT_SERVER_API_AUTH_STRING`, else in a file of Prefect's home created once for its
    owner alone; and the origins of the server's own page.

    Raises:
        ConfigError: the file cannot be made or read, or holds no password.
    """
    password, where = os.environ.get("PREFECT_SERVER_API_AUTH_STRING"), "PREFECT_SERVER_API_AUTH_STRING"
    if not password:
        file = home() / FILE
        password, where = _kept(file), str(file)
    origins = {f"http://{name}:{port}" for name in (host, "127.0.0.1", "localhost")}
    cors = {"PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(sorted(origins))}
    return Access({"PREFECT_SERVER_API_AUTH_STRING": password, **cors}, {"PREFECT_API_AUTH_STRING": password}, where)


def _kept(file: Path) -> str:
    try:
        keep_private(file, f"earmark:{secrets.token_urlsafe(32)}\n")
        password = read_regular(file).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigError(f"{file}: cannot keep the server's password: {error.strerror}") from None
    if not re.fullmatch(r"[!-9;-~]+:[!-~]{12,}", password):
        raise ConfigError(
            f"{file}: expected USER:PASSWORD of 12 characters or more in one line; delete it for a new one"
        )
    return password
