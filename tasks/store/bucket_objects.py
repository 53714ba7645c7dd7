"""Inputs in buckets: `s3://` (Amazon and what speaks its protocol), `gs://` (Google), `az://` (Azure's containers)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from earmark.schemas.errors import InputError, MissingExtraError
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


class _Cloud(NamedTuple):
    """What differs between Google's and Azure's buckets."""

    extra: str  # of this package, which brings the client
    etag: str  # the key of an object's facts that holds its ETag
    keys: str  # where a user's keys are, for messages


_CLOUDS = {
    "gs": _Cloud("gs", "etag", "GOOGLE_APPLICATION_CREDENTIALS or `gcloud auth application-default login`"),
    "az": _Cloud("az", "etag", "the AZURE_STORAGE_… variables or `az login`"),
    "s3": _Cloud("scale", "ETag", "the keys in AWS_… variables"),
}


class BucketObjects:
    """Inputs behind the URLs of one kind; keys come from the environment, as for every client of its cloud.

    Raises:
        InputError: the environment does not say which account is meant (Azure).
        MissingExtraError: the client is not installed (the extra `scale`, `gs` or `az`).
    """

    def __init__(self, kind: str) -> None:
        self._kind, self._cloud = kind, _CLOUDS[kind]
        self._files = open_objects(_FEATURE) if kind == "s3" else _open(kind)

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
            InputError: an object's name has no place on a disk.
        """
        try:
            with self._one_line(url):
                found: Mapping[str, Mapping[str, Any]] = self._files.find(url, detail=True)
        except FileNotFoundError:
            found = {}
        if not found:
            self.require([url])
        for name, facts in found.items():
            if name.endswith("/"):  # a mark that some tools put for a folder
                continue
            if {"", ".", ".."} & set(name.split("/")):
                raise InputError(
                    f"{self._kind}://{name}: expected a name without empty parts, '.' and '..'; rename the object"
                )
            yield f"{self._kind}://{name}", self._object(facts)

    def require(self, urls: Iterable[str]) -> None:
        """Refuse buckets that are not there. One that may be read but not listed is there."""
        for url in sorted({f"{self._kind}://{url.split('/')[2]}" for url in urls}):
            bucket = url.partition("://")[2]
            try:
                with self._one_line(url):
                    if self._kind == "s3":
                        self._files.call_s3("head_bucket", Bucket=bucket)
                    else:
                        self._files.info(bucket)
            except FileNotFoundError:
                if self._kind == "s3":
                    require_bucket(self._files, url, InputError)
                    continue
                raise InputError(f"{url}: expected a bucket '{bucket}', found none; correct the name") from None

    def blocks(self, url: str, start: int, state: Object) -> Iterator[bytes]:
        """An object's bytes from one on, all of one state.

        Raises:
            FileNotFoundError: there is no such object, or it was replaced.
        """
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
        if self._now(url) != state:  # these clients cannot ask for the bytes of one state
            raise FileNotFoundError(url)

    def _now(self, url: str) -> Object | None:
        with self._one_line(url):
            facts = self._files.info(url)
        return self._object(facts) if facts["type"] == "file" else None

    def _object(self, facts: Mapping[str, Any]) -> Object:
        return Object(facts[self._cloud.etag], facts["size"])

    @contextmanager
    def _one_line(self, where: str) -> Iterator[None]:
        """Faults of the store become one line; that something is not there passes."""
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
            if isinstance(error, PermissionError) or str(status) in ("401", "403"):
                raise InputError(
                    f"{where}: access denied ({first_words(error)}); check {self._cloud.keys} and what they allow"
                ) from None
            raise InputError(f"{where}: cannot be read: {first_words(error)}; check {self._cloud.keys}") from None


def _open(kind: str) -> Any:
    cloud = _CLOUDS[kind]
    try:
        if kind == "gs":
            from gcsfs.core import (
                GCSFileSystem,
            )  # not the one that asks for each bucket's kind by a protocol of its own

            return GCSFileSystem(use_listings_cache=False)
        import adlfs
    except ImportError:
        raise MissingExtraError(_FEATURE, cloud.extra) from None
    try:
        return adlfs.AzureBlobFileSystem(use_listings_cache=False)
    except ValueError as error:
        raise InputError(f"az://: expected an account in {cloud.keys}: {first_words(error)}") from None


def _errors(kind: str) -> tuple[type[Exception], ...]:
    """What a cloud's client raises."""
    from aiohttp import ClientError

    if kind == "gs":
        from gcsfs.retry import HttpError
        from google.auth.exceptions import GoogleAuthError

        return OSError, ValueError, ClientError, HttpError, GoogleAuthError
    from azure.core.exceptions import AzureError

    return OSError, ValueError, ClientError, AzureError
