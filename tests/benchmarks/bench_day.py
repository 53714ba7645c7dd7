"""What `earmark serve` holds after a day of hourly builds, and on the way: memory, open files, temporary files, runs.

    python -m tests.benchmarks.bench_day
    python -m tests.benchmarks.bench_day --fires 240 --rests 12

Schedules fire every few seconds; each line is a rest, when no run is in flight. The server's database is SQLite, or
what PREFECT_API_DATABASE_CONNECTION_URL names.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tests.flows.day import Day, growth, quick_deployments, served

DATABASE = "PREFECT_API_DATABASE_CONNECTION_URL"
HELD = ("memory_mib", "database", "sockets", "others", "threads")


def measure(day: Day, fires: int, rests: int) -> None:
    """Let the schedules fire and print what is held at each rest, then how much it grows in 24 fires."""
    print(f"| builds | part | {' | '.join(HELD)} | temporary |")
    print(f"|---:|---|{'---:|' * len(HELD)}---:|", flush=True)
    for _ in range(rests):
        rest = day.fire(fires // rests)
        for part, held in rest.parts.items():
            cells = " | ".join(f"{held.get(what, 0):.0f}" for what in HELD)
            print(f"| {rest.fires} | {part} | {cells} | {len(rest.temporary)} |", flush=True)
    print("\n| growth in 24 fires | " + " | ".join(HELD) + " |")
    print(f"|---|{'---:|' * len(HELD)}")
    later = day.rests[len(day.rests) // 3 :]
    for part in later[-1].parts:
        print(f"| {part} | " + " | ".join(f"{growth(later, part, what):+.1f}" for what in HELD) + " |")
    locked = day.log.read_text("utf-8", "replace").count("database is locked")
    print(f"\nruns: {day.states()}; 'database is locked' in the log: {locked}; the first third is warm-up")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fires", type=int, default=48, help="runs in all")
    parser.add_argument("--rests", type=int, default=8, help="how often to look")
    parser.add_argument("--every-s", type=float, default=8.0, help="what stands for an hour")
    options = parser.parse_args()
    more = {DATABASE: os.environ[DATABASE]} if DATABASE in os.environ else {}
    with tempfile.TemporaryDirectory(prefix="bench-day-") as held:
        folder, store = Path(held), Path(held) / "store"
        with served(folder, quick_deployments(folder, store, options.every_s), store, **more) as day:
            measure(day, options.fires, options.rests)


if __name__ == "__main__":
    main()
