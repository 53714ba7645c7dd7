"""How much personal data scrubbing leaves and the search before publishing misses, how much music they take for it, and
how many texts a second are read.

Run: python -m tests.benchmarks.bench_personal; with Presidio beside it where `presidio-analyzer` is installed.
"""

from __future__ import annotations

import time

from earmark.tasks.text.anonymity import scrub
from tests.text.cases import CASES, MEASURES, MUSIC, table
from tests.text.presidio import presidio_measures

ROUNDS = 3


def texts_a_second() -> float:
    """Cases that scrubbing reads a second on one core; the best of some rounds."""
    texts = [case.text for case in (*CASES, *MUSIC)]
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for text in texts:
            scrub(text)
        times.append(time.perf_counter() - start)
    return len(texts) / min(times)


def main() -> None:
    """Print the table and the rate."""
    try:
        beside = presidio_measures()
    except ImportError as error:
        beside = []
        print(f"without Presidio: {error}")
    print(table([*MEASURES, *beside]))
    print(f"\n{texts_a_second():,.0f} texts a second")


if __name__ == "__main__":
    main()
