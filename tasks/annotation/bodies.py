"""Encode request bodies as JSON. Media are spliced in: a megabyte of base64 is not searched for escapes."""

from __future__ import annotations

import json
import secrets
from binascii import b2a_base64
from dataclasses import dataclass
from typing import Any

_MARK = secrets.token_hex(16)  # drawn by each process and never sent: no text of a request can hold it


@dataclass(frozen=True, slots=True)
class Base64:
    """Media in a body, in the place of their base64 string; `head` precedes it."""

    data: bytes
    head: str = ""


def json_bytes(body: Any) -> bytes:
    """Encode a body as JSON, with the base64 string for each `Base64` in it.

    Raises:
        TypeError: a value has no form in JSON.
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
