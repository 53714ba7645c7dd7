"""How fast both pipelines caption clips, beside the server's own speed and other clients, all against one local server.

    python -m tests.benchmarks.bench_captions [--clips 1000]

Each clip makes three requests: two with its audio, and one that refines, after all of those. Two tables: a server that
answers any number of requests after 20 ms, so that what limits is the client; and one as a model's is, which works on
64 requests at once and takes a second for each, so that nothing can be faster than 64 requests a second.

- `server`: ready bodies, sent by a bare aiohttp loop that does nothing else: what the server itself can do.
- `openai`: the openai client as it comes, with audio ready; `own audio`: the same, reading and encoding it.
- `engine`: our engine with its durable ledger, with audio ready: no clip is read, no text checked, no table written.
- `build`: a whole build of `captions` from the clips to a committed version, by its flow; `asking`: the
  part of it from the first request to the last answer; `again`: the same build with every answer in the ledger.

The server is one process of its own, each client another one, which is timed after a short warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import soundfile

from earmark.tasks.store.versions import Store

RATE_HZ, SECONDS = 22_050, 4.0  # of a clip of the demo
CLIENTS = ("server", "openai", "own audio", "engine", "build")


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
    from tests.captions.captions import config_of, direct, refined

    asked = {"max_concurrency": concurrency}
    two = refined(base_url, **asked)
    two["refine"]["max_concurrency"] = concurrency
    return config_of(folder, direct(base_url, **asked), two).model_copy(update={"limit": limit})


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
    from earmark.schemas.questions import AudioForm
    from earmark.tasks.audio.encode import encode

    if body["model"] == "reads" or not _sound(body)["data"].endswith(".flac"):
        return body
    samples, rate = soundfile.read(_sound(body)["data"], dtype="float32", always_2d=True)
    sound = base64.b64encode(encode(samples, rate, AudioForm())).decode()
    content = body["messages"][0]["content"]
    return _body("hears", [{"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}, content[1]])


def _sound(body: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = body["messages"][0]["content"][0]["input_audio"]
    return found


def _body(model: str, content: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0.0, "max_tokens": 300}


async def by_hand(base_url: str, ready: list[bytes], concurrency: int) -> None:
    """The least that a client can do."""
    import aiohttp

    waiting, headers = iter(ready), {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def work() -> None:
            for body in waiting:
                async with session.post(f"{base_url}/chat/completions", data=body, headers=headers) as response:
                    assert json.loads(await response.read())["choices"][0]["message"]["content"]

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


async def by_engine(base_url: str, requests: list[Any], concurrency: int, sounds: dict[str, bytes]) -> None:
    """Our engine with its durable ledger; audio is ready."""
    from earmark.schemas.annotation import AnnotatorConfig
    from earmark.tasks.annotation.backend import Media
    from earmark.tasks.annotation.engine import Annotator
    from earmark.tasks.annotation.ledger import open_ledger

    config = AnnotatorConfig(annotator=requests[0].model, base_url=base_url, max_concurrency=concurrency)
    media = Media(load_audio=lambda part: sounds[part.sha256])
    folder = Path(tempfile.mkdtemp(prefix="bench-ledger-"))
    try:
        async with open_ledger(folder / "ledger.sqlite") as ledger, Annotator(config, ledger, media=media) as annotator:
            assert (await annotator.ask(requests)).answered == len(requests)
    finally:
        shutil.rmtree(folder)


def as_requests(prepared: list[dict[str, Any]], sounds: dict[str, bytes]) -> list[Any]:
    """The same requests as the engine's; the bytes of their audio are added to `sounds`."""
    from earmark.schemas.questions import Audio, Message
    from earmark.tasks.annotation.request import Request, Sampling

    found = []
    for body in prepared:
        parts = [body["messages"][0]["content"]]
        if body["model"] == "hears":
            sound = base64.b64decode(_sound(body)["data"])
            clip = hashlib.sha256(sound).hexdigest()
            sounds[clip] = sound
            parts = [Audio(clip, ""), parts[0][1]["text"]]
        found.append(
            Request(f"openai:{body['model']}", (Message.of("user", *parts),), sampling=Sampling(max_tokens=300))
        )
    return found


def build(folder: Path, base_url: str, concurrency: int, limit: int | None = None) -> dict[str, float]:
    """A whole build by its flow; how often each clip was decoded is counted on the way."""
    from earmark.flows.command.running import start_prefect

    start_prefect()  # before Prefect is imported
    import earmark.flows.captions as story
    from tests.captions.captions import counting_readings

    store, walk, asking = Path(tempfile.mkdtemp(prefix="bench-store-")), story.caption_tracks, []

    def timed(*inputs: Any) -> Any:
        started, used = time.perf_counter(), _cpu_s()
        walked = walk(*inputs)
        asking.extend([time.perf_counter() - started, _cpu_s() - used])
        return walked

    try:
        config, spent = config_for(folder, base_url, concurrency, limit), []
        with counting_readings() as decoded, patch.object(story, "caption_tracks", timed):
            for force in (False, True):
                started, used = time.perf_counter(), _cpu_s()
                story.build(config, str(store), force=force)
                spent += [time.perf_counter() - started, _cpu_s() - used]
        rows = sum(Store(store).find("captions").manifest.rows["captions"].values())
    finally:
        shutil.rmtree(store)
    names = ("asking_s", "asking_cpu_s", "seconds", "cpu_s", "again_s", "again_cpu_s")
    measured = {"captions": rows, "decoded": max(decoded.values()), "peak_mb": _peak_mb()}
    return measured | dict(zip(names, [*asking[:2], *spent], strict=True))


def client(name: str, folder: Path, base_url: str, concurrency: int) -> dict[str, float]:
    """Time one client in this process."""
    if name == "build":
        build(folder, base_url, concurrency, limit=4)
        return build(folder, base_url, concurrency)
    stages: list[Any] = list(bodies(folder))  # the second reads what the first one wrote: it cannot start before
    ask: Any = by_openai
    if name != "own audio":
        stages = [[filled(body) for body in stage] for stage in stages]
    if name == "server":
        ask, stages = by_hand, [[json.dumps(body).encode() for body in stage] for stage in stages]
    if name == "engine":
        sounds: dict[str, bytes] = {}
        ask, stages = partial(by_engine, sounds=sounds), [as_requests(stage, sounds) for stage in stages]
    asyncio.run(ask(base_url, stages[0][:8], concurrency))
    started, used = time.perf_counter(), _cpu_s()
    for stage in stages:
        asyncio.run(ask(base_url, stage, concurrency))
    return {"seconds": time.perf_counter() - started, "cpu_s": _cpu_s() - used, "peak_mb": _peak_mb()}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(folder: Path, clips: int, served: list[str], concurrency: int) -> None:
    """Run all clients against a server and print what they did."""
    command = [sys.executable, "-m", "tests.servers.openai_server", "--captions", *served]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        base_url = f"http://127.0.0.1:{server.stdout.readline().strip().removeprefix('port=')}/v1"
        print(f"{clips:,} clips of {SECONDS:g} s, {3 * clips:,} requests; server with {' '.join(served)}\n")
        print("| in flight | client | seconds | requests/s | CPU ms a request | × server | × openai | peak MB |")
        print("|---:|---|---:|---:|---:|---:|---:|---:|")
        held = {name: _child(name, folder, base_url, concurrency) for name in CLIENTS}
        made = held["build"]
        held["asking"] = {**made, "seconds": made["asking_s"], "cpu_s": made["asking_cpu_s"]}
        held["again"] = {**made, "seconds": made["again_s"], "cpu_s": made["again_cpu_s"]}
        for name, one in held.items():
            rate, cpu = 3 * clips / one["seconds"], one["cpu_s"] / (3 * clips) * 1000
            server_x, openai_x = (held[rival]["seconds"] / one["seconds"] for rival in ("server", "openai"))
            said = f"{one['seconds']:.1f} | {rate:.0f} | {cpu:.2f} | {server_x:.2f} | {openai_x:.2f}"
            print(f"| {concurrency} | {name} | {said} | {one['peak_mb']:.0f} |")
        print(f"\n{made['captions']:,.0f} captions, each clip decoded {made['decoded']:.0f} times\n", flush=True)
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
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[8, 64], help="with the quick server")
    parser.add_argument("--slots", type=int, nargs="*", default=[64], help="of the server that works as a model's does")
    parser.add_argument("--answer-s", type=float, default=1.0, help="how long that one takes for an answer")
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
        for concurrency in given.concurrency:
            table(Path(folder), given.clips, ["--latency-ms", "20"], concurrency)
        for slots in given.slots:
            as_model = ["--latency-ms", str(1000 * given.answer_s), "--slots", str(slots)]
            table(Path(folder), given.clips, as_model, slots)


if __name__ == "__main__":
    main()
