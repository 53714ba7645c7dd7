"""An annotator for callers without an event loop, such as steps of a flow: threads share its pace and budget.

with Session(config, ledger="ledger.sqlite", media=Media(load_audio=Encoder())) as session:
    report = session.ask(requests)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.backends import provider_of
from earmark.tasks.annotation.engine import Annotator, OnProgress
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.outcome import Forecast, Outcome, Report
from earmark.tasks.annotation.request import Request

Got = TypeVar("Got")


class Session:
    """An annotator in an event loop of its own. Safe for threads.

    Args:
        config: which model, how fast, for how much; the budget is that of the whole session.
        ledger: path of a SQLite file or a `postgresql://` URL.
        media: how to get at audio and images.
        on_progress: called in the session's thread, about once a second for each running call.
        shared_budget: as `Annotator` has it.
    """

    def __init__(
        self,
        config: AnnotatorConfig,
        *,
        ledger: str | Path,
        media: Media | None = None,
        on_progress: OnProgress | None = None,
        shared_budget: str | None = None,
    ) -> None:
        self._config = config
        self._address = ledger
        self._options: dict[str, Any] = {"media": media, "on_progress": on_progress, "shared_budget": shared_budget}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="annotation", daemon=True)
        self._stack = AsyncExitStack()
        self._running: set[asyncio.Task[Any] | None] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._annotator = self._call(self._open)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call(self._close)
        finally:
            self._end()

    def ask(self, requests: Iterable[Request]) -> Report:
        """As `Annotator.ask`.

        Raises:
            StopRun, LedgerError: as `Annotator.ask`.
        """
        return self._call(lambda: self._annotator.ask(requests))

    @contextmanager
    def streaming(
        self, hand_on: Callable[[str, Outcome], None], failed: Callable[[BaseException], None]
    ) -> Iterator[Callable[[list[Request]], None]]:
        """Gives a function that takes requests; outcomes come one by one, and all of them before the block ends.

        Args:
            hand_on: gets a request's key and its outcome, in the session's thread.
            failed: gets what ends the asking before its time, in the session's thread; the block's end raises it too.
        """
        arriving: asyncio.Queue[list[Request] | None] = asyncio.Queue()
        running = asyncio.run_coroutine_threadsafe(
            self._tracked(lambda: self._annotator.stream(arriving, hand_on)), self._loop
        )

        def ended(future: Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                failed(error)

        running.add_done_callback(ended)
        try:
            yield lambda requests: self._put(arriving, requests)
        except BaseException:
            running.cancel()
            raise
        self._put(arriving, None)
        running.result()

    def _put(self, arriving: asyncio.Queue[list[Request] | None], requests: list[Request] | None) -> None:
        self._loop.call_soon_threadsafe(arriving.put_nowait, requests)

    def forecast(self, requests: Iterable[Request]) -> Forecast:
        """As `Annotator.forecast`: a dry run."""
        return self._call(lambda: self._annotator.forecast(requests))

    def allow(self, max_concurrency: int) -> None:
        """As `Annotator.allow`."""
        self._loop.call_soon_threadsafe(self._annotator.allow, max_concurrency)

    @property
    def in_batches(self) -> bool:
        """Whether requests go to the provider's batch API, so that many should come at once."""
        return self._config.batch

    @property
    def in_process(self) -> bool:
        """Whether the model runs where the session is, rather than behind a server."""
        return provider_of(self._config.annotator).in_process

    @property
    def spent_usd(self) -> float:
        """What the session cost so far, in US dollars."""
        return self._annotator.budget.spent_usd

    @property
    def odd_usage(self) -> int:
        """How many answers so far came with token counts that cannot be."""
        return self._annotator.budget.odd_answers

    async def _open(self) -> Annotator:
        ledger = await self._stack.enter_async_context(open_ledger(self._address))
        return await self._stack.enter_async_context(Annotator(self._config, ledger, **self._options))

    async def _close(self) -> None:
        """End what runs, as where a person stops a build: a loop that stopped first would leave it pending."""
        calls = [call for call in self._running if call and call is not asyncio.current_task()]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._stack.aclose()

    def _call(self, story: Callable[[], Coroutine[Any, Any, Got]]) -> Got:
        return asyncio.run_coroutine_threadsafe(self._tracked(story), self._loop).result()

    async def _tracked(self, story: Callable[[], Coroutine[Any, Any, Got]]) -> Got:
        self._running.add(asyncio.current_task())
        try:
            return await story()
        finally:
            self._running.discard(asyncio.current_task())

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
