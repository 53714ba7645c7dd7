"""Share the common parts of object stores: facts, concurrency, one-line errors, prompt interruption."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from earmark.schemas.places import without_secrets

BLOCK_BYTES = 8 << 20
AT_ONCE = 32  # objects looked at or read concurrently
MOST_SHOWN = 300  # characters of a library's message shown in an error

Item = TypeVar("Item")
Result = TypeVar("Result")


COMMITS: ContextVar[dict[tuple[str, str], str] | None] = ContextVar("commits of revisions on the Hub", default=None)


@contextmanager
def one_commit_each() -> Iterator[None]:
    """Fix each Hub revision to one commit within the block, even if new commits are pushed."""
    known = COMMITS.get()
    token = COMMITS.set({} if known is None else known)
    try:
        yield
    finally:
        COMMITS.reset(token)


class Object(NamedTuple):
    """An object store's facts about an object."""

    etag: str
    size: int  # bytes


def at_once(
    work: Callable[[Item], Result], items: Sequence[Item], stop: Callable[[], None] = lambda: None
) -> list[Result]:
    """Call `work` for many items at once; return results in order. The first exception cancels the rest by `stop`."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        return list(pool.map(work, items))
    except BaseException:
        stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def waited(work: Callable[[], Result]) -> Result:
    """Call a client in a thread if it holds signals back, so that Ctrl-C and SIGTERM take effect at once."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result()


def first_words(error: Exception) -> str:
    """Return an error's message on one line, shortened and without secrets."""
    said = str(error).partition("\n\nDebug source:")[0]  # obstore appends its data structures
    if answered := re.search(r"non-2xx status code: (\d+ [\w -]*\w)", said):
        details = re.findall(r"<(?:Code|Message)>(.*?)[\n<]", said)
        said = ": ".join((answered[1], *details))
    words = without_secrets(" ".join(re.sub(r"\?\S+", "", said).split()) or type(error).__name__)
    return words if len(words) <= MOST_SHOWN else f"{words[: MOST_SHOWN - 1]}…"
