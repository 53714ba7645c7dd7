"""Get Google's application-default credentials, for Gemini on Vertex AI: a token instead of a key."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from yarl import URL

from earmark.tasks.annotation.errors import AuthFailed, one_line
from earmark.tasks.annotation.keys import Origin, key_hosts, origin_of

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
        """
        if origin_of(url) != self._origin:
            return ""
        if self._credentials is None or not self._credentials.valid:
            await asyncio.to_thread(self._renew)
        return str(self._credentials.token)

    def _renew(self) -> None:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        with self._lock:
            try:
                if self._credentials is None:
                    self._credentials, _ = google.auth.default(scopes=SCOPES)
                if not self._credentials.valid:
                    self._credentials.refresh(Request())
            except GoogleAuthError as error:
                raise AuthFailed(
                    f"{self._origin} wants application-default credentials: {type(error).__name__}: "
                    f"{one_line(str(error), 200)}; run `gcloud auth application-default login` or set {VARIABLE}"
                ) from None
