"""How much faster many workers are: processes that share one ledger ask a model of 500 ms, beside the simulation.

    python -m tests.benchmarks.bench_workers
    python -m tests.benchmarks.bench_workers --requests 2000

All workers get the same list; the ledger sees to it that each request is asked once. The server is a process of its
own. Few requests make the end weigh more, when a worker waits for what another one holds.
What the simulation is told is measured first, on another model without latency: the time of a worker itself, its
processor's, for a request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from deploy.simulation import Setting, simulate

PROBE = 2_000
"""Requests by which a worker's own time is measured."""


def work(base_url: str, ledger: str, count: int, concurrency: int, per_minute: float) -> None:
    """One worker: says when it is ready, waits for a line, asks, and prints its processor's seconds."""
    from earmark.schemas.annotation import AnnotatorConfig
    from earmark.tasks.annotation.engine import Annotator
    from earmark.tasks.annotation.ledger import open_ledger
    from tests.benchmarks.bench_annotation import engine_requests

    config = AnnotatorConfig(
        annotator="openai:tiny",
        base_url=base_url,
        max_concurrency=concurrency,
        max_tokens=64,
        requests_per_minute=per_minute or None,
    )
    requests = engine_requests(config, count)

    async def ask() -> None:
        async with open_ledger(ledger) as opened, Annotator(config, opened) as annotator:
            report = await annotator.ask(requests)
        assert report.answered == count

    print("ready", flush=True)
    sys.stdin.readline()
    before = _cpu_s()
    asyncio.run(ask())
    print(_cpu_s() - before, flush=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(workers: int, count: int, latency_ms: float, concurrency: int, per_minute: float) -> tuple[float, float]:
    """Seconds until all workers are done, and processor seconds of all workers for each request."""
    called = [sys.executable, "-m", "tests.servers.openai_server", "--latency-ms", str(latency_ms)]
    server = subprocess.Popen(called, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip().removeprefix("port=")
        with tempfile.TemporaryDirectory(prefix="bench-workers-") as folder:
            options = [f"http://127.0.0.1:{port}/v1", str(Path(folder) / "ledger.sqlite"), str(count)]
            wall, cpu_s = _race(workers, [*options, str(concurrency), str(per_minute)])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/counts") as response:
            counts = json.load(response)
        assert (counts["distinct"], counts["repeats"]) == (count, 0), counts
        return wall, cpu_s / count
    finally:
        server.kill()
        server.communicate()


def _race(workers: int, options: list[str]) -> tuple[float, float]:
    called = [sys.executable, "-m", "tests.benchmarks.bench_workers", "--work", *options]
    running = [
        subprocess.Popen(called, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(workers)
    ]
    for worker in running:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    started = time.perf_counter()
    for worker in running:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    said = [worker.communicate()[0] for worker in running]
    wall = time.perf_counter() - started
    assert all(worker.returncode == 0 for worker in running)
    return wall, sum(float(line) for line in said)


def table(counts: list[int], requests: int, latency_ms: float, concurrency: int) -> None:
    """Measure and simulate each number of workers, and the most of them below a cap a minute."""
    _, worker_s = measure(1, min(PROBE, requests), 0.0, concurrency, 0.0)
    own = f"{worker_s * 1000:.2f} ms of its processor for a request"
    print(f"{requests:,} requests, {latency_ms:g} ms; a worker has {concurrency} in flight and needs {own}\n")
    print("| workers | cap a minute | measured, s | × one worker | simulated, s | measured / simulated |")
    print("|---:|---:|---:|---:|---:|---:|")
    cap = round(max(counts) * concurrency / (latency_ms / 1000) * 60 / 4)  # a quarter of what they would ask
    alone = 0.0
    for workers, per_minute in [*((workers, 0) for workers in counts), (max(counts), cap)]:
        count = requests // 4 if per_minute else requests
        wall, _ = measure(workers, count, latency_ms, concurrency, per_minute)
        alone = alone or wall * workers
        expected = simulate(
            Setting(
                count,
                latency_ms / 1000,
                workers=workers,
                concurrency=concurrency,
                per_minute=per_minute,
                worker_s=worker_s,
            )
        ).wall_s
        times = "" if per_minute else f"{alone / wall:.2f}"
        capped = f"{per_minute:,} ({count:,} requests)" if per_minute else "none"
        said = f"{wall:.1f} | {times} | {expected:.1f} | {wall / expected:.2f} |"
        print(f"| {workers} | {capped} | {said}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--latency-ms", type=float, default=500.0)
    parser.add_argument("--concurrency", type=int, default=64, help="requests in flight of each worker")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        base_url, ledger, count, concurrency, per_minute = options.work
        work(base_url, ledger, int(count), int(concurrency), float(per_minute))
        return
    table(options.workers, options.requests, options.latency_ms, options.concurrency)


if __name__ == "__main__":
    main()
