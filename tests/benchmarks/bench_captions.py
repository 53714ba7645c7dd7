"""How fast both pipelines caption clips, beside clients that only send what was prepared, against one local server.

    python -m tests.benchmarks.bench_captions [--clips 1000]

`bare` (an aiohttp loop) and `openai` (the openai client as it comes) send two requests with audio and one without for
each clip, all prepared beforehand: no file is read. `plain` is `openai` reading and encoding the audio of each request.
None of them checks or keeps anything. `ours` is a whole build of `captions` from the clips to a committed version,
without Prefect's engine; `again` is the same build once more, with every answer in the ledger: all that is not asking.
The server is one process of its own, each client another one, which is timed after a short warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

RATE_HZ, SECONDS = 22_050, 4.0  # of a clip of the demo
CLIENTS = ("bare", "openai", "plain", "ours")


def make_clips(folder: Path, count: int) -> None:
    """A table of tracks and their clips: notes that differ, each clip of its own."""
    frames = np.arange(round(RATE_HZ * SECONDS))
    rows = ["track_id,audio,artist_id,tags"]
    for number in range(count):
        dice = np.random.default_rng(number)
        notes = np.repeat(dice.integers(40, 80, 8), len(frames) // 8 + 1)[: len(frames)]
        tune = 0.2 * np.sin(2 * np.pi * 440 * 2 ** ((notes - 69) / 12) * frames / RATE_HZ)
        soundfile.write(folder / f"{number}.flac", tune + 0.01 * dice.standard_normal(len(frames)), RATE_HZ)
        rows.append(f"t{number},{number}.flac,a{number % 97},instrument---piano;mood/theme---calm")
    (folder / "tracks.csv").write_text("\n".join(rows) + "\n")


def config_for(folder: Path, base_url: str, concurrency: int, limit: int | None = None) -> Any:
    """Pipeline A, and Pipeline B with both of its stages, at one server."""
    from tests.captions import config_of, direct, refined

    asked = {"max_concurrency": concurrency, "hearing": {"sample_rate_hz": 16_000}}
    two = refined(base_url, **asked)
    two["refine"]["max_concurrency"] = concurrency
    return config_of(folder, direct(base_url, **asked), two, limit=limit)


def bodies(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the server gets from a build: requests with audio, whose data is the file's path, and those that refine."""
    heard, read = [], []
    for path in sorted(folder.glob("*.flac")):
        for ask in ("direct", "describe"):
            part = {"type": "input_audio", "input_audio": {"data": str(path), "format": "wav"}}
            heard.append(
                _body("hears", [part, {"type": "text", "text": f"{ask}: write a caption of this music. " * 10}])
            )
        read.append(_body("reads", f"{path.name} " + "A calm tune for the piano, and then some more of it. " * 20))
    return heard, read


def filled(body: dict[str, Any]) -> dict[str, Any]:
    """The request with its audio in place of the path."""
    from tasks.annotation.request import AudioForm
    from tasks.audio.encode import encode

    content = body["messages"][0]["content"]
    if isinstance(content, str) or not content[0]["input_audio"]["data"].endswith(".flac"):
        return body
    samples, rate = soundfile.read(content[0]["input_audio"]["data"], dtype="float32", always_2d=True)
    sound = base64.b64encode(encode(samples, rate, AudioForm())).decode()
    return _body("hears", [{"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}, content[1]])


def _body(model: str, content: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0.0, "max_tokens": 300}


async def by_bare(base_url: str, prepared: list[dict[str, Any]], concurrency: int) -> None:
    """The least that a client can do."""
    import aiohttp

    waiting = iter(prepared)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def work() -> None:
            for body in waiting:
                async with session.post(f"{base_url}/chat/completions", json=body) as response:
                    assert (await response.json())["choices"][0]["message"]["content"]

        await asyncio.gather(*[work() for _ in range(concurrency)])


async def by_openai(base_url: str, prepared: list[dict[str, Any]], concurrency: int) -> None:
    """The openai client as it comes, under a semaphore; audio that is not prepared is read and encoded in threads."""
    from openai import AsyncOpenAI

    gate = asyncio.Semaphore(concurrency)
    async with AsyncOpenAI(api_key="none", base_url=base_url) as client:

        async def one(body: dict[str, Any]) -> None:
            async with gate:
                reply = await client.chat.completions.create(**await asyncio.to_thread(filled, body))
                assert reply.choices[0].message.content

        await asyncio.gather(*[one(body) for body in prepared])


def ours(folder: Path, base_url: str, concurrency: int, limit: int | None = None) -> dict[str, float]:
    """A whole build without Prefect's engine; how often each clip was decoded is counted on the way."""
    from tasks.captions.steps import SHARDS_AT_ONCE
    from tests.captions import build_captions, counting_readings

    store = Path(tempfile.mkdtemp(prefix="bench-store-"))
    try:
        config, spent = config_for(folder, base_url, concurrency, limit), []
        with counting_readings() as decoded:
            for force in (False, True):
                started, used = time.perf_counter(), _cpu_s()
                version = build_captions(config, store, force=force, at_once=SHARDS_AT_ONCE)
                spent += [time.perf_counter() - started, _cpu_s() - used]
        rows = sum(version.manifest.rows["captions"].values())
    finally:
        shutil.rmtree(store)
    found = {"captions": rows, "decoded": max(decoded.values()), "peak_mb": _peak_mb()}
    return found | dict(zip(("seconds", "cpu_s", "again_s", "again_cpu_s"), spent, strict=True))


def client(name: str, folder: Path, base_url: str, concurrency: int) -> dict[str, float]:
    """Time one client in this process."""
    if name == "ours":
        ours(folder, base_url, concurrency, limit=4)
        return ours(folder, base_url, concurrency)
    ask, prepared = by_bare if name == "bare" else by_openai, bodies(folder)
    if name != "plain":
        prepared = [filled(body) for body in prepared[0]], prepared[1]
    asyncio.run(ask(base_url, prepared[0][:8], concurrency))
    started, used = time.perf_counter(), _cpu_s()
    for stage in prepared:  # the second stage reads what the first one wrote: it cannot start before
        asyncio.run(ask(base_url, stage, concurrency))
    return {"seconds": time.perf_counter() - started, "cpu_s": _cpu_s() - used, "peak_mb": _peak_mb()}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(folder: Path, clips: int, latency_ms: float, concurrencies: list[int]) -> None:
    """Run all clients at all concurrencies and print what they did."""
    served = [sys.executable, "-m", "tests.servers.openai_server", "--captions", "--latency-ms", str(latency_ms)]
    server = subprocess.Popen(served, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        base_url = f"http://127.0.0.1:{server.stdout.readline().strip().removeprefix('port=')}/v1"
        print(f"{clips:,} clips of {SECONDS:g} s, {3 * clips:,} requests, answered after {latency_ms:g} ms\n")
        print("| concurrency | client | seconds | requests/s | CPU ms per request | × openai | × bare | peak MB |")
        print("|---:|---|---:|---:|---:|---:|---:|---:|")
        for concurrency in concurrencies:
            held = {name: _child(name, folder, base_url, concurrency) for name in CLIENTS}
            made = held["ours"]
            held["again"] = {**made, "seconds": made["again_s"], "cpu_s": made["again_cpu_s"]}
            for name, one in held.items():
                rate, cpu = 3 * clips / one["seconds"], one["cpu_s"] / (3 * clips) * 1000
                ratios = [held[rival]["seconds"] / one["seconds"] for rival in ("openai", "bare")]
                said = f"{one['seconds']:.1f} | {rate:.0f} | {cpu:.2f} | {ratios[0]:.2f} | {ratios[1]:.2f}"
                print(f"| {concurrency} | {name} | {said} | {one['peak_mb']:.0f} |", flush=True)
            print(
                f"\n{held['ours']['captions']:,.0f} captions, each clip decoded {held['ours']['decoded']:.0f} times\n"
            )
    finally:
        server.kill()
        server.wait()


def _child(name: str, folder: Path, base_url: str, concurrency: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_captions", "--client", name, "--folder", str(folder)]
    given = ["--url", base_url, "--at", str(concurrency)]
    said = subprocess.run([*command, *given], check=True, stdout=subprocess.PIPE, text=True).stdout
    held: dict[str, float] = json.loads(said.splitlines()[-1])
    return held


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[8, 64])
    parser.add_argument("--client", choices=CLIENTS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--at", type=int, default=64)
    given = parser.parse_args()
    if given.client:
        print(json.dumps(client(given.client, given.folder, given.url, given.at)))
        return
    with tempfile.TemporaryDirectory(prefix="bench-clips-") as folder:
        make_clips(Path(folder), given.clips)
        table(Path(folder), given.clips, given.latency_ms, given.concurrency)


if __name__ == "__main__":
    main()
