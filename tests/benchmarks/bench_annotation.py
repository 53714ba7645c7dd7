"""How fast the engine asks, beside the openai client as it comes and a bare aiohttp loop, against one local server.

    python -m tests.benchmarks.bench_annotation

Every figure is from this run: the server is one process of its own, each client another one that starts afresh.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

SYSTEM = "You compare two clips of music and answer with A, B or tie and one sentence of evidence. " * 20
CLIENTS = ("openai", "aiohttp", "engine")
FINISHED = 260_000


def messages(number: int) -> list[dict[str, str]]:
    """The messages of the n-th request."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Pair {number}: which is better?"}]


async def by_openai(base_url: str, count: int, concurrency: int) -> None:
    """The openai client as it comes, under a semaphore."""
    from openai import AsyncOpenAI

    gate = asyncio.Semaphore(concurrency)
    async with AsyncOpenAI(api_key="none", base_url=base_url) as client:

        async def one(number: int) -> None:
            async with gate:
                held: Any = messages(number)
                reply = await client.chat.completions.create(
                    model="tiny", messages=held, temperature=0.0, max_tokens=64
                )
                assert reply.choices[0].message.content

        await asyncio.gather(*[one(number) for number in range(count)])


async def by_aiohttp(base_url: str, count: int, concurrency: int) -> None:
    """The least that a client can do: nothing is retried, kept or checked."""
    import aiohttp

    numbers = iter(range(count))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def work() -> None:
            for number in numbers:
                body = {"model": "tiny", "messages": messages(number), "temperature": 0.0, "max_tokens": 64}
                async with session.post(f"{base_url}/chat/completions", json=body) as response:
                    assert (await response.json())["choices"][0]["message"]["content"]

        await asyncio.gather(*[work() for _ in range(concurrency)])


def engine_requests(config: Any, count: int) -> list[Any]:
    from earmark.schemas.questions import Message
    from earmark.tasks.annotation.backend import question

    system = Message.of("system", SYSTEM)
    return [
        question(config, [system, Message.of("user", f"Pair {number}: which is better?")]) for number in range(count)
    ]


async def by_engine(base_url: str, count: int, concurrency: int) -> None:
    """The engine with its durable ledger."""
    from earmark.schemas.annotation import AnnotatorConfig
    from earmark.tasks.annotation.engine import Annotator
    from earmark.tasks.annotation.ledger import open_ledger

    folder = Path(tempfile.mkdtemp(prefix="bench-ledger-"))
    try:
        config = AnnotatorConfig(annotator="openai:tiny", base_url=base_url, max_concurrency=concurrency, max_tokens=64)
        async with open_ledger(folder / "ledger.sqlite") as ledger, Annotator(config, ledger) as annotator:
            report = await annotator.ask(engine_requests(config, count))
        assert report.answered == count
    finally:
        shutil.rmtree(folder)


def client(name: str, base_url: str, count: int, concurrency: int) -> dict[str, float]:
    """Time one client in this process, after a short warm-up."""
    run: Callable[[str, int, int], Awaitable[None]] = {
        "openai": by_openai,
        "aiohttp": by_aiohttp,
        "engine": by_engine,
    }[name]
    asyncio.run(_awaited(run, base_url, min(count, 64), concurrency))
    started, used = time.perf_counter(), _cpu_s()
    asyncio.run(_awaited(run, base_url, count, concurrency))
    wall = time.perf_counter() - started
    return {"rate": count / wall, "cpu_ms": (_cpu_s() - used) / count * 1000, "peak_mb": _peak_mb()}


async def _awaited(run: Callable[[str, int, int], Awaitable[None]], *options: Any) -> None:
    await run(*options)


def resume(count: int) -> dict[str, float]:
    """Time a run over a ledger in which every request is finished; building the requests is not part of it."""
    from earmark.schemas.annotation import AnnotatorConfig
    from earmark.tasks.annotation.answers import PARSER
    from earmark.tasks.annotation.engine import Annotator
    from earmark.tasks.annotation.ledger import open_ledger
    from earmark.tasks.annotation.ledger_rows import Attempt, Finished, ReadAttempt

    config = AnnotatorConfig(annotator="openai:tiny", base_url="http://127.0.0.1:9/v1")
    folder = Path(tempfile.mkdtemp(prefix="bench-ledger-"))
    answer = json.dumps({"musicality": "A", "alignment": "tie", "reason": "steadier rhythm, cleaner mix"})
    raw = json.dumps({"id": "x", "choices": [{"message": {"content": answer}}], "usage": {}, "pad": "x" * 350})

    async def fill() -> None:
        async with open_ledger(folder / "ledger.sqlite") as ledger:
            requests = engine_requests(config, count)
            for start in range(0, count, 5000):
                some = requests[start : start + 5000]
                texts = some[0].long_texts()
                claims = await ledger.claim([(r.key, r.model, r.canonical) for r in some], texts, PARSER)
                for claimed in claims.values():
                    ledger.record_soon(Attempt(claimed.request_id, 1, "received", time.time(), 0.5, raw), ledger.lease)
                    ledger.judge_soon(ReadAttempt(claimed.request_id, 1, "ok", None, None, 900, 40, 0.001))
                    ledger.settle_soon(claimed.request_id, Finished(answer, None, None, PARSER, "tiny"))
                await ledger.flush()

    async def again() -> float:
        requests = engine_requests(config, count)
        started = time.perf_counter()
        async with open_ledger(folder / "ledger.sqlite") as ledger, Annotator(config, ledger) as annotator:
            report = await annotator.ask(requests)
        assert report.from_ledger == count
        return time.perf_counter() - started

    try:
        if os.fork() == 0:  # filling must not count as memory of resuming
            asyncio.run(fill())
            os._exit(0)
        os.wait()
        size = sum(file.stat().st_size for file in folder.iterdir())
        return {"seconds": asyncio.run(again()), "bytes": size / count, "peak_mb": _peak_mb()}
    finally:
        shutil.rmtree(folder)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _child(*options: str) -> dict[str, float]:
    called = [sys.executable, "-m", "tests.benchmarks.bench_annotation", *options]
    held: dict[str, float] = json.loads(subprocess.run(called, check=True, capture_output=True, text=True).stdout)
    return held


def table(concurrencies: list[int], seconds: float, rounds: int) -> None:
    """Run all clients at all concurrencies and print what they did."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.servers.openai_server", "--latency-ms", "20"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        base_url = f"http://127.0.0.1:{server.stdout.readline().strip().removeprefix('port=')}/v1"
        print("| concurrency | client | requests/s | CPU ms per request | × openai | peak MB |")
        print("|---:|---|---:|---:|---:|---:|")
        for concurrency in concurrencies:
            best: dict[str, dict[str, float]] = {}
            for _ in range(rounds):
                for name in CLIENTS:
                    count = int(seconds * {8: 300, 64: 900}.get(concurrency, 1200))
                    held = _child("--client", name, "--url", base_url, "--count", str(count), "--at", str(concurrency))
                    if name not in best or held["rate"] > best[name]["rate"]:
                        best[name] = held
            for name, held in best.items():
                ratio = held["rate"] / best["openai"]["rate"]
                said = f"{held['rate']:.0f} | {held['cpu_ms']:.2f} | {ratio:.2f} | {held['peak_mb']:.0f} |"
                print(f"| {concurrency} | {name} | {said}", flush=True)
    finally:
        server.kill()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS)
    parser.add_argument("--url")
    parser.add_argument("--count", type=int, default=FINISHED)
    parser.add_argument("--at", type=int, default=64)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--concurrency", type=int, nargs="*", default=[8, 64, 512])
    parser.add_argument("--seconds", type=float, default=5.0, help="roughly, for the slowest client")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    options = parser.parse_args()
    if options.client:
        print(json.dumps(client(options.client, options.url, options.count, options.at)))
        return
    if options.resume:
        print(json.dumps(resume(options.count)))
        return
    table(options.concurrency, options.seconds, options.rounds)
    held = _child("--resume", "--count", str(options.count))
    print(
        f"\nresuming {options.count} finished requests: {held['seconds']:.2f} s, {held['bytes']:.0f} bytes of ledger "
        f"per request, peak {held['peak_mb']:.0f} MB with all requests in memory"
    )


if __name__ == "__main__":
    main()
