"""Objects behind `s3://` URLs: one client, contents block by block, and every fault of it as one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from earmark.schemas.errors import EarmarkError, InputError, MissingExtraError
from earmark.schemas.places import without_secrets

BLOCK_BYTES = 8 << 20
AT_ONCE = 32  # objects that are looked at or read at the same time
LONGEST_NAME, LONGEST_KEY = 255, 1024  # bytes: of a file's name on a disk, of an object's whole key

Item = TypeVar("Item")
Result = TypeVar("Result")


class Object(NamedTuple):
    """What an object store says of an object."""

    etag: str
    size: int  # bytes


class S3Objects:
    """Inputs behind `s3://` URLs.

    Raises:
        MissingExtraError: the extra `scale` is not installed.
    """

    def __init__(self) -> None:
        self._files = open_objects("an input behind a URL")

    def look(self, urls: Sequence[str], seen: Callable[[], None]) -> list[Object | None]:
        """What the store says of objects; None where there is none. `seen` is called for each."""

        def one(url: str) -> Object | None:
            key = url.split("/", 3)[3].encode() if url.count("/") > 2 else b""
            seen()
            if not 0 < len(key) <= LONGEST_KEY or max(map(len, key.split(b"/"))) > LONGEST_NAME:
                return None
            try:
                with one_line(url, InputError):
                    found = self._files.info(url)
            except FileNotFoundError:
                return None
            return Object(found["ETag"], found["size"]) if found["type"] == "file" else None

        return at_once(one, urls)

    def listed(self, url: str) -> Iterator[tuple[str, Object]]:
        """All objects at or below a URL, by their URLs.

        Raises:
            InputError: an object's name has no place on a disk.
        """
        try:
            with one_line(url, InputError):
                found: Mapping[str, Mapping[str, Any]] = self._files.find(url, detail=True)
        except FileNotFoundError:
            found = {}
        if not found:
            self.require([url])
        for name, facts in found.items():
            if name.endswith("/"):  # a mark that some tools put for a folder
                continue
            if {"", ".", ".."} & set(name.split("/")):
                raise InputError(f"s3://{name}: expected a name without empty parts, '.' and '..'; rename the object")
            yield f"s3://{name}", Object(facts["ETag"], facts["size"])

    def require(self, urls: Iterable[str]) -> None:
        """Refuse buckets that are not there. One that may be read but not listed is there."""
        for bucket in sorted({url.split("/")[2] for url in urls}):
            try:
                with one_line(f"s3://{bucket}", InputError):
                    self._files.call_s3("head_bucket", Bucket=bucket)
            except FileNotFoundError:
                require_bucket(self._files, f"s3://{bucket}", InputError)

    def blocks(self, url: str, start: int, state: Object) -> Iterator[bytes]:
        """An object's bytes from one on, as `blocks`."""
        return blocks(self._files, url, InputError, start, state.etag)


def at_once(
    work: Callable[[Item], Result], items: Sequence[Item], stop: Callable[[], None] = lambda: None
) -> list[Result]:
    """Do something with many items at once; results in order. A fault ends it, and stops what is under way."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        return list(pool.map(work, items))
    except BaseException:
        stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def open_objects(feature: str) -> Any:
    """The file system; its keys and endpoint come from the environment (`AWS_…`), as for every client of S3.

    Args:
        feature: what needs it, for the message.

    Raises:
        MissingExtraError: the extra `scale` is not installed.
    """
    try:
        import s3fs
    except ImportError:
        raise MissingExtraError(feature, "scale") from None
    return s3fs.S3FileSystem(use_listings_cache=False, config_kwargs={"max_pool_connections": AT_ONCE})


@contextmanager
def one_line(where: str, kind: type[EarmarkError]) -> Iterator[None]:
    """Faults of the object store become one line; that something is or is not there passes.

    Args:
        where: the URL that is asked.
        kind: the error to raise.
    """
    from aiohttp import ClientError
    from botocore.exceptions import BotoCoreError, NoCredentialsError

    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except (PermissionError, NoCredentialsError) as error:
        raise kind(
            f"{where}: access denied ({first_words(error)}); check the keys in AWS_… variables and what they allow"
        ) from None
    except (OSError, BotoCoreError, ClientError) as error:
        raise kind(f"{where}: cannot be reached: {first_words(error)}") from None


def require_bucket(files: Any, url: str, kind: type[EarmarkError]) -> None:
    """Refuse a bucket that is not there, or whose names may not be listed.

    Args:
        files: the file system.
        url: `s3://bucket/prefix`.
        kind: the error to raise.
    """
    bucket, _, prefix = url.partition("://")[2].partition("/")
    try:
        with one_line(url, kind):
            files.call_s3("list_objects_v2", Bucket=bucket, Prefix=f"{prefix}/" if prefix else "", MaxKeys=1)
    except FileNotFoundError:
        raise kind(f"{url}: expected a bucket '{bucket}', found none; make it, or correct the name") from None


def blocks(
    files: Any, target: str, kind: type[EarmarkError], start: int = 0, etag: str | None = None
) -> Iterator[bytes]:
    """An object's bytes, all of one state.

    Args:
        files: the file system.
        target: the object's URL.
        kind: the error to raise.
        start: the first byte.
        etag: the state that is wanted; without it, the one that is found.

    Raises:
        FileNotFoundError: there is no such object, or it was replaced.
    """
    from s3fs.utils import FileExpired

    with (
        one_line(target, kind),
        files.open(target, "rb", block_size=BLOCK_BYTES, cache_type="readahead") as file,
    ):
        if etag not in (None, file.details["ETag"]):
            raise FileNotFoundError(target)
        file.seek(start)
        try:
            while block := file.read(BLOCK_BYTES):
                yield block
        except FileExpired:
            raise FileNotFoundError(target) from None


def first_words(error: Exception) -> str:
    """What an error says, on one line and without secrets."""
    return without_secrets(" ".join(str(error).split()))
