"""Bodies of requests as JSON. Media are spliced in: a megabyte of base64 is not looked through for what to escape."""

from __future__ import annotations

import json
import secrets
from binascii import b2a_base64
from dataclasses import dataclass
from typing import Any

_MARK = secrets.token_hex(16)  # drawn anew by each process and never sent: no text of a request can hold it


@dataclass(frozen=True, slots=True)
class Base64:
    """Media in a body, in the place of the string of their base64; `head` stands before it."""

    data: bytes
    head: str = ""


def json_bytes(body: Any) -> bytes:
    """A body as JSON, the same bytes as if each `Base64` in it were that string.

    Raises:
        TypeError: it holds what JSON has no form for.
    """
    held: list[bytes] = []

    def marked(value: Any) -> str:
        if not isinstance(value, Base64):
            raise TypeError(f"expected JSON or Base64, found {type(value).__name__}")
        held.append(b2a_base64(value.data, newline=False))
        return value.head + _MARK

    first, *others = json.dumps(body, default=marked).encode().split(_MARK.encode())
    pieces = [first]
    for media, text in zip(held, others, strict=True):
        pieces += (media, text)
    return b"".join(pieces)
