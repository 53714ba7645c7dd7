"""Who may use the server that `earmark serve` starts: whoever has its password, and pages of its own origin.

Without one, every page in a browser on this machine could start runs: Prefect's API looks at neither Host nor Origin.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from earmark.schemas.errors import ConfigError
from earmark.schemas.files import keep_private, read_regular

FILE = "earmark-serve.auth"


@dataclass(frozen=True)
class Access:
    """What the server asks for, and where a person reads it."""

    server: dict[str, str]  # variables of the server's environment alone
    client: dict[str, str]  # variables of whoever uses the server: this process, the worker, its runs
    where: str  # names the place of the password


def own_access(host: str, port: int) -> Access:
    """The password in `PREFECT_SERVER_API_AUTH_STRING`, else in a file of Prefect's home that is made once, for its
    owner alone; and the origins of the server's own page.

    Raises:
        ConfigError: the file cannot be made or read, or holds no password.
    """
    password, where = os.environ.get("PREFECT_SERVER_API_AUTH_STRING"), "PREFECT_SERVER_API_AUTH_STRING"
    if not password:
        file = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser() / FILE
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
