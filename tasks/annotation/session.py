"""Ask from callers without an event loop, such as steps of a flow: threads share a pace and budget.

with Session(config, ledger="ledger.sqlite", media=Media(load_audio=Encoder())) as session:
    report = session.ask(requests)
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.backend import Media, provider_of
from earmark.tasks.annotation.engine import Annotator, OnProgress
from earmark.tasks.annotation.errors import Stopped
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.request import Forecast, Outcome, Report, Request

Got = TypeVar("Got")
IN_FLIGHT_S = 2.5  # seconds a closing session waits for the answers in flight: they may be paid for


class Session:
    """Annotator in a private event loop. Thread-safe.

    Args:
        config: model, pace and budget; the budget is for the whole session.
        ledger: path of a SQLite file or a `postgresql://` URL.
        media: access to audio and images.
        on_progress: called in the session's thread, about once a second for each running call.
        shared_budget: as `Annotator` has it.
        reading: leave the ledger unchanged: for `forecast` and `known` alone.
    """

    def __init__(
        self,
        config: AnnotatorConfig,
        *,
        ledger: str | Path,
        media: Media | None = None,
        on_progress: OnProgress | None = None,
        shared_budget: str | None = None,
        reading: bool = False,
    ) -> None:
        self._config = config
        self._address = ledger
        self._reading = reading
        self._options: dict[str, Any] = {"media": media, "on_progress": on_progress, "shared_budget": shared_budget}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="annotation", daemon=True)
        self._stack = AsyncExitStack()
        self._running: set[asyncio.Task[Any] | None] = set()
        self._lock = threading.Lock()
        self._closing = self._closed = False

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._annotator = self._call(self._open)
            _OPEN.add(self)
            if _STOPPED.is_set():
                raise Stopped
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closing = self._start(self._close, last=True)
        try:
            closing.result()
        except KeyboardInterrupt:  # a second one: wait for no answer
            self._soon(self._cancel)
            closing.result()
            raise
        finally:
            self._end()

    def ask(self, requests: Iterable[Request]) -> Report:
        """Ask as `Annotator.ask`.

        Raises:
            StopRun, LedgerError: as `Annotator.ask`; `Stopped` if the session is closed meanwhile.
        """
        return self._call(lambda: self._annotator.ask(requests))

    @contextmanager
    def streaming(
        self, hand_on: Callable[[str, Outcome], None], failed: Callable[[BaseException], None]
    ) -> Iterator[Callable[[list[Request]], None]]:
        """Yield a function for requests; outcomes come one by one, all before the block ends. After an error in the
        block, nothing more is sent, and the session keeps the answers.

        Args:
            hand_on: gets a request's key and its outcome, in the session's thread.
            failed: gets an early fault, in the session's thread; the block's end raises it too.

        Raises:
            Stopped: the session is closed.
        """
        arriving: asyncio.Queue[list[Request] | Stopped | None] = asyncio.Queue()
        running = self._start(lambda: self._annotator.stream(arriving, hand_on))

        def ended(future: Future[None]) -> None:
            if (error := future.exception()) is not None:
                failed(error)

        running.add_done_callback(ended)
        try:
            yield lambda requests: self._soon(arriving.put_nowait, requests)
        except BaseException:
            with suppress(Stopped):
                self._soon(arriving.put_nowait, Stopped())
            raise
        self._soon(arriving.put_nowait, None)
        running.result()

    def forecast(self, requests: Iterable[Request]) -> Forecast:
        """Forecast as `Annotator.forecast`: a dry run."""
        return self._call(lambda: self._annotator.forecast(requests))

    def known(self, requests: Iterable[Request]) -> list[Outcome | None]:
        """Look up as `Annotator.known`."""
        return self._call(lambda: self._annotator.known(requests))

    def allow(self, max_concurrency: int) -> None:
        """Set as `Annotator.allow`."""
        self._soon(self._annotator.allow, max_concurrency)

    @property
    def in_batches(self) -> bool:
        """Return whether requests go to the provider's batch API, and so should come many at once."""
        return self._config.batch

    @property
    def in_process(self) -> bool:
        """Return whether the model runs in the session's process, not behind a server."""
        return provider_of(self._config.annotator).in_process

    @property
    def spent_usd(self) -> float:
        """Return the session's cost so far, in US dollars."""
        return self._annotator.budget.spent_usd

    @property
    def refused_usd(self) -> float:
        """Return the highest cost of asking again for kept answers invalid by today's rules, in US dollars."""
        return sum(self._annotator.refused)

    @property
    def reported_usd(self) -> float:
        """Return the session's cost so far as reported by a gateway, in US dollars; 0 without a report."""
        return float(getattr(self._annotator.backend, "reported_usd", 0.0))

    @property
    def odd_usage(self) -> int:
        """Return the number of answers so far with implausible token counts."""
        return self._annotator.budget.odd_answers

    async def _open(self) -> Annotator:
        ledger = await self._stack.enter_async_context(open_ledger(self._address, reading=self._reading))
        return await self._stack.enter_async_context(Annotator(self._config, ledger, **self._options))

    async def _close(self) -> None:
        """End the running calls, as at a stopped build: wait for requests in flight, send no others."""
        self._closing = True
        calls = [call for call in self._running if call]
        if calls and not self._config.batch:  # a provider's batch continues by itself
            self._annotator.stop()
            await asyncio.wait(calls, timeout=IN_FLIGHT_S)
        self._cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._stack.aclose()

    def _call(self, story: Callable[[], Coroutine[Any, Any, Got]]) -> Got:
        return self._start(story).result()

    def stop(self) -> None:
        """Send nothing more; end the calls after the requests in flight, or after `IN_FLIGHT_S`."""
        with suppress(Stopped):
            self._soon(self._stop)

    def _stop(self) -> None:
        self._closing = True
        self._annotator.stop()
        self._loop.call_later(0.0 if self._config.batch else IN_FLIGHT_S, self._cancel)

    def _cancel(self) -> None:
        for call in self._running:
            if call:
                call.cancel()

    def _start(self, story: Callable[[], Coroutine[Any, Any, Got]], *, last: bool = False) -> Future[Got]:
        with self._lock:
            if self._closed:
                raise Stopped
            return asyncio.run_coroutine_threadsafe(story() if last else self._tracked(story), self._loop)

    def _soon(self, function: Callable[..., object], *values: object) -> None:
        """Have the session's loop call a function."""
        with self._lock:
            if self._closed:
                raise Stopped
            self._loop.call_soon_threadsafe(function, *values)

    async def _tracked(self, story: Callable[[], Coroutine[Any, Any, Got]]) -> Got:
        if self._closing:
            raise Stopped
        self._running.add(asyncio.current_task())
        try:
            return await story()
        except asyncio.CancelledError:  # waiting threads must get a fault
            raise Stopped from None
        finally:
            self._running.discard(asyncio.current_task())

    def _end(self) -> None:
        with self._lock:
            self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_OPEN: weakref.WeakSet[Session] = weakref.WeakSet()
_STOPPED = threading.Event()


def stop_all() -> None:
    """Stop every session of this ending process, and let none open any more."""
    _STOPPED.set()
    for session in list(_OPEN):
        session.stop()
