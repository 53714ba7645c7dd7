"""Separate tracks in processes of their own, one a core, where threads of one process would wait for its interpreter.

    with SeparatingProcesses(2) as processes:
        for result in processes.separate(jobs, CentreRemoval(), Output(), longest_s): ...

A process takes jobs at its standard input and ends when that closes: in order, or with its parent, however that ended.
"""

import os
import pickle
import queue
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import IO, Self

from earmark.schemas.errors import EarmarkError
from earmark.tasks.audio.separation import pipeline
from earmark.tasks.audio.separation.jobs import FailedTrack, Output, SeparatedTrack, SeparationJob, Separator

Results = list[SeparatedTrack | FailedTrack]
# of the C library: arrays of windows stay with a process instead of being given back, and cleared, for each track
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(128 << 20)}


class SeparatingProcesses:
    """Processes that separate. To start one costs about a third of a second of one core.

    Args:
        count: of them.
    """

    def __init__(self, count: int) -> None:
        self._all = [
            subprocess.Popen(  # its interrupts and its end are the parent's to decide: a session of its own
                [sys.executable, "-P", "-m", __name__, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, **KEPT_MEMORY}, start_new_session=True,
            )
            for _ in range(count)
        ]  # fmt: skip
        self._free: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        for process in self._all:
            self._free.put(process)
        self._asking = ThreadPoolExecutor(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let jobs at work end, drop the others, and wait for the processes' end."""
        self._asking.shutdown(cancel_futures=True)
        for process in self._all:
            with suppress(BrokenPipeError), process:  # closes its input, which breaks if it was killed
                pass

    def separate(
        self, chunks: Sequence[Sequence[SeparationJob]], separator: Separator, output: Output, longest_s: float
    ) -> Iterator[SeparatedTrack | FailedTrack]:
        """Separate as `pipeline.separate`, chunk by chunk, in order of completion. Any number of threads may call.

        Raises:
            CancelledError: the block ended meanwhile.
            EarmarkError: a process died, or as `pipeline.separate`.
        """
        asked = [self._asking.submit(self._ask, chunk, separator, output, longest_s) for chunk in chunks]
        try:
            for one in as_completed(asked):
                yield from one.result()
        finally:
            for one in asked:
                one.cancel()

    def _ask(self, *order: object) -> Results:
        process = self._free.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(order, process.stdin)
            process.stdin.flush()
            results, error = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            process.kill()  # unless it is dead, as usual
            raise EarmarkError(
                f"a process that separates tracks ended with {process.wait()} (below 0: a signal's number; 9 may be a "
                "lack of memory); what is finished is kept, go on with: earmark resume"
            ) from None
        finally:
            self._free.put(process)
        if error is not None:
            raise error
        return list(results)


def serve() -> None:
    """Separate what comes at standard input, until it closes."""
    pipeline.builder_pid = int(sys.argv[1])
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no reply
    orders: queue.SimpleQueue[tuple[list[SeparationJob], Separator, Output, float]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, orders), daemon=True).start()
    while True:
        jobs, separator, output, longest_s = orders.get()
        results: Results = []
        error: Exception | None = None
        try:
            results += pipeline.separate(jobs, separator, output, longest_s=longest_s, threads=1)
        except EarmarkError as fault:
            error = fault
        except Exception:  # noqa: BLE001 - the parent raises it
            error = RuntimeError(traceback.format_exc())  # not every exception can be sent
        pickle.dump((results, error), replies)
        replies.flush()


def _listen(source: IO[bytes], orders: "queue.SimpleQueue[object]") -> None:
    try:
        while True:
            orders.put(pickle.load(source))
    finally:
        os._exit(0)  # at once, in the middle of a track too: nobody waits for it


if __name__ == "__main__":
    serve()
