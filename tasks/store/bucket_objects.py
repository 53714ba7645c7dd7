"""Inputs in buckets: `s3://` (Amazon and what speaks its protocol), `gs://` (Google), `az://` (Azure's containers)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from earmark.schemas.errors import InputError, MissingExtraError
from earmark.schemas.places import BUCKETS
from earmark.tasks.store.objects import (
    BLOCK_BYTES,
    LONGEST_KEY,
    LONGEST_NAME,
    Object,
    at_once,
    blocks,
    first_words,
    one_line,
    open_objects,
    require_bucket,
)

_FEATURE = "an input behind a URL"


class _DeniedError(InputError):
    """The keys do not allow the request."""


_KEYS = {
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or `gcloud auth application-default login`",
    "az": "the AZURE_STORAGE_… variables or `az login`",
}
"""Where a user's keys are, for messages."""


class BucketObjects:
    """Inputs behind the URLs of one kind; keys come from the environment, as for every client of its cloud.

    Raises:
        InputError: the environment does not say which account is meant (Azure).
        MissingExtraError: the client is not installed (the extra `scale`, `gs` or `az`).
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._files = open_objects(_FEATURE) if kind == "s3" else _open(kind)
        self._encoded: dict[str, str] = {}  # by URL, the encoding of an object that clients would decode

    def look(self, urls: Sequence[str], seen: Callable[[], None]) -> list[Object | None]:
        """What the store says of objects; None where there is none. `seen` is called for each."""

        def one(url: str) -> Object | None:
            key = url.split("/", 3)[3].encode() if url.count("/") > 2 else b""
            seen()
            if not 0 < len(key) <= LONGEST_KEY or max(map(len, key.split(b"/"))) > LONGEST_NAME:
                return None
            try:
                return self._now(url)
            except FileNotFoundError:
                return None

        return at_once(one, urls)

    def listed(self, url: str) -> Iterator[tuple[str, Object]]:
        """All objects at or below a URL, by their URLs.

        Raises:
            InputError: an object's name cannot be a path on a disk.
        """
        try:
            with self._one_line(url):
                objects: Mapping[str, Mapping[str, Any]] = self._files.find(url, detail=True)
                if not isinstance(objects, Mapping):  # at the URL of one file, adlfs gives its name alone
                    objects = {name: self._files.info(name) for name in objects}
        except FileNotFoundError:
            objects = {}
        if not objects:
            self.require([url])
        folders: set[str] = set()
        for name in objects:
            while (name := name.rpartition("/")[0]) and name not in folders:
                folders.add(name)
        for name, facts in objects.items():
            # a mark that some tools put for a folder; adlfs names it without the "/"
            if name.endswith("/") or (name in folders and not facts["size"]):
                continue
            if {"", ".", ".."} & set(name.split("/")):
                raise InputError(
                    f"{self._kind}://{name}: expected a name without empty parts, '.' and '..'; rename the object"
                )
            yield f"{self._kind}://{name}", self._object(f"{self._kind}://{name}", facts)

    def require(self, urls: Iterable[str]) -> None:
        """Refuse buckets that are not there. One that the keys allow neither to list nor to look at passes."""
        for url in sorted({f"{self._kind}://{url.split('/')[2]}" for url in urls}):
            bucket = url.partition("://")[2]
            try:
                with self._one_line(url):
                    if self._kind == "s3":
                        self._files.call_s3("head_bucket", Bucket=bucket)
                    else:
                        self._files.info(bucket)
            except _DeniedError:
                continue  # its objects were requested before this
            except FileNotFoundError:
                if self._kind == "s3":
                    require_bucket(self._files, url, InputError)
                    continue
                holder = BUCKETS[self._kind]
                raise InputError(f"{url}: expected a {holder} '{bucket}', found none; correct the name") from None

    def blocks(self, url: str, start: int, state: Object) -> Iterator[bytes]:
        """An object's bytes from `start` on, all of the state `state`.

        Raises:
            FileNotFoundError: there is no such object, or it was replaced.
            InputError: it is stored in an encoding that the client would decode.
        """
        if url in self._encoded:
            raise InputError(f"{url}: stored with Content-Encoding: {self._encoded[url]}; store it without")
        if self._kind == "s3":
            yield from blocks(self._files, url, InputError, start, state.etag)
            return
        while start < state.size:
            with self._one_line(url):
                block = self._files.cat_file(url, start=start, end=min(start + BLOCK_BYTES, state.size))
            start += len(block)
            if not block:
                break
            yield block
        if start != state.size or self._now(url) != state:  # these clients cannot ask for the bytes of one state
            raise FileNotFoundError(url)

    def _now(self, url: str) -> Object | None:
        with self._one_line(url):
            facts = self._files.info(url)
        return self._object(url, facts) if facts["type"] == "file" else None

    def _object(self, url: str, facts: Mapping[str, Any]) -> Object:
        settings = facts.get("content_settings") or {}  # Azure's; Google's are the facts themselves
        if encoding := facts.get("contentEncoding") or settings.get("content_encoding"):
            self._encoded[url] = encoding
        return Object(facts["ETag" if self._kind == "s3" else "etag"], facts["size"])

    @contextmanager
    def _one_line(self, where: str) -> Iterator[None]:
        """Turn a fault of the store into one line; FileNotFoundError passes."""
        if self._kind == "s3":
            with one_line(where, InputError):
                yield
            return
        faults = _errors(self._kind)
        try:
            yield
        except FileNotFoundError:
            raise
        except faults as error:
            status = getattr(error, "status_code", None) or getattr(error, "code", None)
            forbidden = isinstance(error, PermissionError) or str(error).startswith("Forbidden")  # gcsfs: an OSError
            if forbidden or str(status) in ("401", "403"):
                raise _DeniedError(
                    f"{where}: access denied ({first_words(error)}); check {_KEYS[self._kind]} and what they allow"
                ) from None
            raise InputError(f"{where}: cannot be read: {first_words(error)}; check {_KEYS[self._kind]}") from None


def _open(kind: str) -> Any:
    for name in ("azure", "gcsfs"):  # our messages repeat what they raise
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        if kind == "gs":
            # `gcsfs.GCSFileSystem` is another class, which asks for each bucket's kind by a protocol of its own
            from gcsfs.core import GCSFileSystem

            return GCSFileSystem(use_listings_cache=False)
        import adlfs
    except ImportError:
        raise MissingExtraError(_FEATURE, kind) from None
    try:
        return adlfs.AzureBlobFileSystem(use_listings_cache=False)
    except ValueError as error:
        names = "AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_CONNECTION_STRING"
        raise InputError(f"az://: set {names}; the client says: {first_words(error)}") from None


def _errors(kind: str) -> tuple[type[Exception], ...]:
    """What a cloud's client raises."""
    from aiohttp import ClientError

    if kind == "gs":
        from gcsfs.retry import ChecksumError, HttpError, NonRetryableError
        from google.auth.exceptions import GoogleAuthError

        return OSError, ValueError, ClientError, HttpError, NonRetryableError, ChecksumError, GoogleAuthError
    from azure.core.exceptions import AzureError

    return OSError, ValueError, ClientError, AzureError
