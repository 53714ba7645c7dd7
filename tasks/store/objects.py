"""Objects behind `s3://` URLs: one client, contents block by block, and every fault of it as one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from earmark.schemas.errors import EarmarkError, MissingExtraError
from earmark.schemas.places import without_secrets

BLOCK_BYTES = 8 << 20
AT_ONCE = 32  # objects that are looked at or read at the same time
MOST_SHOWN = 300  # signs of what a library says that an error shows
LONGEST_NAME, LONGEST_KEY = 255, 1024  # bytes: of a file's name on a disk, of an object's whole key

Item = TypeVar("Item")
Result = TypeVar("Result")


COMMITS: ContextVar[dict[tuple[str, str], str] | None] = ContextVar("commits of revisions on the Hub", default=None)


@contextmanager
def one_commit_each() -> Iterator[None]:
    """Within the block, a revision on the Hub names one commit, whatever is pushed meanwhile."""
    known = COMMITS.get()
    token = COMMITS.set({} if known is None else known)
    try:
        yield
    finally:
        COMMITS.reset(token)


class Object(NamedTuple):
    """What an object store says of an object."""

    etag: str
    size: int  # bytes


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
    """Turn a fault of the object store into one line; FileNotFoundError and FileExistsError pass."""
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
    """Refuse a bucket that is not there, or whose names may not be listed."""
    bucket, _, prefix = url.partition("://")[2].partition("/")
    try:
        with one_line(url, kind):
            files.call_s3("list_objects_v2", Bucket=bucket, Prefix=f"{prefix}/" if prefix else "", MaxKeys=1)
    except FileNotFoundError:
        raise kind(f"{url}: expected a bucket '{bucket}', found none; make it, or correct the name") from None


def blocks(
    files: Any, target: str, kind: type[EarmarkError], start: int = 0, etag: str | None = None
) -> Iterator[bytes]:
    """An object's bytes from `start` on, all of one state: that of the `etag`, or without it the present one.

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
    """What an error says, on one line, without secrets, and not at length."""
    words = without_secrets(" ".join(str(error).split()) or type(error).__name__)
    return words if len(words) <= MOST_SHOWN else f"{words[: MOST_SHOWN - 1]}…"
