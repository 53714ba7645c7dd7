"""Speed of separation, resampling, embeddings and a served model on one GPU, in one command of nine minutes at most.

    make bench-gpu [ARGS="--device cpu --seconds 60 --out bench-gpu.json"]

Needs torch and NumPy; a part or rival whose packages are absent is a row "not run". Each part runs in a process of its
own for its share of the time, so a fault or a slow part costs its own rows alone. Weights are random: the arithmetic is
the same. Prints a table and writes the rows as JSON.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import logging
import math
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import wave
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from earmark.tasks.audio.separation.jobs import Windows
from earmark.tasks.audio.separation.melband import MelBand
from tests.benchmarks.kim_model import DIM, HOP, RATE_HZ, KimRoformer

LONGEST_S = 540.0
GOAL_X, GOAL_RATIO = 400.0, 5.0  # times real time, and times audio-separator's default, on an H100 or H200
WINDOW = 800 * HOP  # 8 s, as audio-separator cuts for this model
SHARES = {
    "audio-separator": 0.2,
    "resampling": 0.05,
    "embeddings": 0.15,
    "vllm": 0.35,
    "separation": 1.0,
}  # of the time left
Row = dict[str, Any]
Size = dict[str, int]  # depth and dim of the model
Instrumental = Callable[[], np.ndarray]  # waits for the copy; (channels, frames), 16 bits


@dataclass(frozen=True)
class Mode:
    """Way of separating.

    Attributes:
        precision: of the matrix products.
        batch: windows at once, over the ends of tracks; 1 on a CPU.
        ahead: whether tracks are decoded, and copied from pinned memory, while the device works.
        on_device: whether windows are cut and added on the device.
        mono: whether the device mixes the instrumental to one channel.
    """

    name: str
    precision: str = "float32"
    compiled: bool = False
    batch: int = 8
    ahead: bool = True
    on_device: bool = True
    mono: bool = False
    cuda: bool = False


MODES = (
    Mode("float32, a window at a time, sums on the host", batch=1, ahead=False, on_device=False),
    Mode("float32, batches, decode ahead, sums on the host", on_device=False, cuda=True),
    Mode("float32, sums on the device"),
    Mode("bfloat16, sums on the device", "bfloat16", cuda=True),
    Mode("tf32, sums on the device", "tf32", cuda=True),
    Mode("float16, sums on the host", "float16", on_device=False, cuda=True),
    Mode("float16, sums on the device", "float16", cuda=True),
    Mode("float16, compiled, sums on the device", "float16", compiled=True, cuda=True),
    Mode("float16, compiled, batches of 16", "float16", compiled=True, batch=16, cuda=True),
    Mode("float16, compiled, mono on the device", "float16", compiled=True, mono=True, cuda=True),
)


# -- separation ---------------------------------------------------------------------------------------------------


def write_tracks(folder: Path, count: int, seconds: float) -> list[Path]:
    """Write stereo tracks of 16 bits: a voice in the middle, tones and noise at the sides."""
    folder.mkdir()
    paths = []
    for number in range(count):
        noise = np.random.default_rng(number)
        at = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
        voice = sum(np.sin(2 * np.pi * 220 * k * at + 3 * np.sin(10 * np.pi * at)) / k for k in range(1, 6))
        sides = [0.2 * np.sin(2 * np.pi * hz * at) + 0.02 * noise.standard_normal(len(at)) for hz in (331, 554)]
        samples = (32767 * (0.15 * np.asarray(voice) + np.stack(sides))).T.astype("<i2")
        paths.append(folder / f"track-{number}.wav")
        with wave.open(str(paths[-1]), "wb") as file:
            file.setparams((2, 2, RATE_HZ, 0, "NONE", ""))
            file.writeframes(samples.tobytes())
    return paths


def decode(path: Path, pinned: bool) -> torch.Tensor:
    """Return a track's samples, (2, frames), float32."""
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
    mix = torch.from_numpy(np.ascontiguousarray(samples.T)).float() / 32768
    return mix.pin_memory() if pinned else mix


def decoded_ahead(paths: Iterator[Path], pinned: bool, stopped: threading.Event) -> Iterator[torch.Tensor]:
    """Yield tracks that a thread decodes, two ahead."""
    ready: queue.Queue[torch.Tensor] = queue.Queue(2)

    def fill() -> None:
        for path in paths:
            mix = decode(path, pinned)
            while not stopped.is_set():
                with suppress(queue.Full):
                    ready.put(mix, timeout=0.1)
                    break
            if stopped.is_set():
                return

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield ready.get()


class Separation:
    """One mode at work.

    Args:
        mode: the mode.
        device: of the model.
        weights: the model; a copy of it runs.
    """

    def __init__(self, mode: Mode, device: torch.device, weights: KimRoformer) -> None:
        self.mode, self.device, self.on_cuda = mode, device, device.type == "cuda"
        torch.backends.cuda.matmul.allow_tf32 = mode.precision == "tf32"
        dtype = torch.float32 if mode.precision == "tf32" else getattr(torch, mode.precision)
        self.model = MelBand(copy.deepcopy(weights), dtype, mode.compiled)
        self.batch = mode.batch if self.on_cuda else 1
        shape = np.hamming(WINDOW).astype(np.float32)
        self.windows = Windows(WINDOW, WINDOW // 2, shape)
        self.weights = torch.from_numpy(shape).to(device if mode.on_device else "cpu")
        self.spans: list[tuple[Any, Any]] = []  # events around the device's work
        self.done = 0  # frames

    def busy_s(self) -> float:
        """Return the seconds between the first and last kernel of each batch, added up."""
        return sum(start.elapsed_time(end) for start, end in self.spans) / 1000

    def run(self, tracks: Iterator[torch.Tensor], until: float, keep: Callable[[Instrumental], Any]) -> None:
        """Separate tracks until a moment; batches go over the ends of tracks."""
        waiting: list[tuple[Track, int]] = []
        for mix in tracks:
            track = Track(mix, self)
            waiting += [(track, start) for start in self.windows.starts(mix.shape[1])]
            while len(waiting) >= self.batch:
                self._batch(waiting[: self.batch], keep)
                del waiting[: self.batch]
                if time.perf_counter() > until:
                    return
        for at in range(0, len(waiting), self.batch):
            self._batch(waiting[at : at + self.batch], keep)

    def _batch(self, parts: list[tuple[Track, int]], keep: Callable[[Instrumental], Any]) -> None:
        if self.on_cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
        mix = torch.stack([track.mix[:, start : start + WINDOW] for track, start in parts])
        if not self.mode.on_device:
            mix = (mix.pin_memory() if self.on_cuda and self.mode.ahead else mix).to(self.device, non_blocking=True)
        voices = self.model(mix)
        if not self.mode.on_device:
            voices = voices.cpu()
        finished = [track for (track, start), voice in zip(parts, voices, strict=True) if track.add(start, voice)]
        if self.on_cuda:
            end.record()
            self.spans.append((begin, end))
        self.done += len(parts) * (WINDOW // 2)
        for track in finished:
            keep(track.instrumental(self.mode.mono))


class Track:
    """Sums of a track's windows, on the device or on the host."""

    def __init__(self, mix: torch.Tensor, separation: Separation) -> None:
        on_device = separation.mode.on_device
        self.mix = mix.to(separation.device, non_blocking=True) if on_device else mix
        self._weights = separation.weights
        self._sum, self._weight = torch.zeros_like(self.mix), torch.zeros_like(self.mix[0])
        self._open = len(separation.windows.starts(mix.shape[1]))

    def add(self, start: int, voice: torch.Tensor) -> bool:
        """Add a window's voice; return whether it was the last."""
        length = min(voice.shape[1], self.mix.shape[1] - start)
        span = slice(start, start + length)
        self._sum[:, span] += voice[:, :length] * self._weights[:length]
        self._weight[span] += self._weights[:length]
        self._open -= 1
        return not self._open

    def instrumental(self, mono: bool) -> Instrumental:
        """Start the copy of the mix without its voice to the host: 16 bits, (channels, frames)."""
        kept = self.mix - self._sum / self._weight.clamp(min=1e-10)
        kept = kept.mean(0, keepdim=True) if mono else kept
        samples = (kept * 32767).clamp(-32768, 32767).to(torch.int16)
        if not samples.is_cuda:
            return lambda: samples.numpy()
        host, copied = torch.empty(samples.shape, dtype=torch.int16, pin_memory=True), torch.cuda.Event()
        host.copy_(samples, non_blocking=True)
        copied.record()

        def wait() -> np.ndarray:
            copied.synchronize()
            return host.numpy()

        return wait


def separation(device: torch.device, seconds: float, size: Size) -> Iterator[Row]:
    """Yield a row for each mode, with its speed over its share of the time."""
    on_cuda = device.type == "cuda"
    modes = [mode for mode in MODES if on_cuda or not mode.cuda]
    exact: np.ndarray | None = None
    weights = KimRoformer(**size).to(device)
    ends = time.perf_counter() + seconds
    with tempfile.TemporaryDirectory() as made:
        [short] = write_tracks(Path(made, "short"), 1, 24 if on_cuda else 9)
        paths = write_tracks(Path(made, "tracks"), 3, 240 if on_cuda else 20)
        for number, mode in enumerate(modes):
            share = (ends - time.perf_counter()) / (len(modes) - number)
            try:
                row, samples = measured(mode, device, weights, decode(short, False), paths, share)
            except RuntimeError as error:  # no memory, or no kernel for this precision
                yield {"row": mode.name, "not_run": str(error).splitlines()[0][:100]}
                continue
            exact = samples if exact is None else exact
            if samples is not exact:
                row["snr_db"] = snr_db(exact.mean(0, keepdims=True) if mode.mono else exact, samples)
            yield row


def measured(
    mode: Mode, device: torch.device, weights: KimRoformer, probe: torch.Tensor, paths: list[Path], seconds: float
) -> tuple[Row, np.ndarray]:
    """Return a mode's row, and the probe's instrumental."""
    on_cuda, begun, results = device.type == "cuda", time.perf_counter(), list[np.ndarray]()
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    at_work = Separation(mode, device, weights)
    at_work.run(iter([probe]), math.inf, lambda wait: results.append(wait()))
    if on_cuda:  # full batches, which compiled code meets here for the first time
        at_work.run(iter([decode(paths[0], False)]), begun + 1, lambda wait: None)
        torch.cuda.synchronize()
    at_work.spans.clear()
    at_work.done = 0
    stopped, files = threading.Event(), cycle(paths)
    ahead = mode.ahead
    tracks = decoded_ahead(files, on_cuda, stopped) if ahead else (decode(path, False) for path in files)
    start = time.perf_counter()
    until = start + max(seconds - (start - begun), seconds / 4)
    with tempfile.TemporaryFile() as sink, ThreadPoolExecutor(1) as writing:
        at_work.run(tracks, until, lambda wait: writing.submit(lambda: sink.write(wait().tobytes())))
        if on_cuda:
            torch.cuda.synchronize()
    taken = time.perf_counter() - start
    stopped.set()
    row: Row = {"row": mode.name, "rate": at_work.done / RATE_HZ / taken, "unit": "× real time"}
    if on_cuda:
        row |= {"idle": max(0.0, 1 - at_work.busy_s() / taken), "gb": torch.cuda.max_memory_allocated() / 2**30}
    return row, results[0]


def snr_db(wanted: np.ndarray, found: np.ndarray) -> float | None:
    """Return how far the difference lies below the wanted samples, in dB; None if they are equal."""
    wanted, found = wanted.astype(np.float64), found.astype(np.float64)
    error = float(np.square(wanted - found).sum())
    return 10 * math.log10(float(np.square(wanted).sum()) / error) if error else None


# -- rivals and other parts -----------------------------------------------------------------------------------------


def rival(device: torch.device, seconds: float, size: Size) -> Iterator[Row]:
    """Yield rows of audio-separator's own modes, from file to file, each on a track that fits its share of the time."""
    from tests.audio.separating import write_song
    from tests.audio.tiny_roformer import KIM, make_roformer
    from tests.benchmarks.bench_separation import run_mode

    on_cuda = device.type == "cuda"
    modes = {"default": "theirs", "float16, compiled": "theirs-fp16-compile"} if on_cuda else {"default": "theirs"}
    length = 240.0 if on_cuda else 16.0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make_roformer(folder, {**KIM, **size}, dim_t=801)
        write_song(folder / "track-000.wav", length)
        write_song(folder / "warm.wav", 12.5, seed=99)
        for name, mode in modes.items():
            taken = run_mode(mode, folder, device.type, None)
            row = {"row": f"audio-separator, {name}", "rate": length / taken["seconds"], "unit": "× real time"}
            yield row | ({"gb": taken["device_gb"]} if on_cuda else {})


def resampling(device: torch.device, seconds: float, size: Size) -> Iterator[Row]:
    """Yield rows of 48 kHz to 44.1 kHz; the truth is a sum of tones at both rates."""
    tones = (97.0, 1_000.0, 7_013.0, 15_500.0)

    def sound(rate: int, length_s: int) -> torch.Tensor:
        at = torch.arange(rate * length_s, dtype=torch.float64) / rate
        return sum(0.2 * torch.sin(2 * math.pi * hz * at) for hz in tones).float().to(device)  # type: ignore[union-attr]

    length_s = 240 if device.type == "cuda" else 20
    mix, wanted = sound(48_000, length_s), sound(44_100, length_s)
    ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"polyphase convolution": polyphase(device)}
    if importlib.util.find_spec("torchaudio"):
        from torchaudio.functional import resample

        options = {"lowpass_filter_width": 64, "resampling_method": "sinc_interp_kaiser"}
        ways["torchaudio, Kaiser 64"] = lambda mix: resample(mix, 48_000, 44_100, **options)
    else:
        yield {"row": "torchaudio, Kaiser 64", "not_run": "no torchaudio"}
    for name, way in ways.items():
        inner = slice(4_410, -4_410)
        found = way(mix)[: len(wanted)]
        snr = snr_db(wanted[inner].cpu().numpy(), found[inner].cpu().numpy())
        rate = per_second(lambda way=way: way(mix), device, seconds / len(ways)) * length_s  # type: ignore[misc]
        yield {"row": f"48 to 44.1 kHz, {name}", "rate": rate, "unit": "× real time", "snr_db": snr}


def polyphase(device: torch.device, half: int = 64, beta: float = 9.0) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a resampler of (frames,) by 147 / 160: one convolution with a Kaiser-windowed sinc for each phase."""
    up, down = 147, 160
    cutoff = 0.96 * up / down
    taps = torch.arange(-half, half + down, dtype=torch.float64)
    offset = taps[None] - torch.arange(up, dtype=torch.float64)[:, None] * down / up
    shape = torch.special.i0(beta * (1 - (offset / half).clamp(-1, 1) ** 2).sqrt()) / torch.special.i0(
        torch.tensor(beta, dtype=torch.float64)
    )
    kernel = (cutoff * torch.sinc(cutoff * offset) * shape * (offset.abs() < half))[:, None].float().to(device)

    def resample(mix: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(mix[None, None], (half, half + down))
        return torch.nn.functional.conv1d(padded, kernel, stride=down)[0].T.flatten()

    return resample


def embeddings(device: torch.device, seconds: float, size: Size) -> Iterator[Row]:
    """Yield rows of CLAP's audio tower at its default size, on spectrograms of ten seconds that are on the device."""
    from transformers import ClapConfig, ClapModel

    for dtype in (torch.float32, torch.float16) if device.type == "cuda" else (torch.float32,):
        model = ClapModel(ClapConfig()).eval().to(device, dtype)
        batch = 64 if device.type == "cuda" else 2
        clips = torch.randn(batch, 1, 1001, 64, device=device, dtype=dtype)
        longer = torch.zeros(batch, 1, dtype=torch.bool, device=device)

        def run(model: Any = model, clips: Any = clips, longer: Any = longer) -> Any:
            with torch.inference_mode():
                return model.get_audio_features(input_features=clips, is_longer=longer)

        rate = per_second(run, device, seconds / 2) * batch
        yield {"row": f"CLAP, {str(dtype)[6:]}, {batch} clips at once", "rate": rate, "unit": "clips/s"}


def per_second(run: Callable[[], Any], device: torch.device, seconds: float) -> float:
    """Return calls a second, after two calls to warm up, over at most these seconds and at least one call."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(2):
        run()
    wait()
    start, calls = time.perf_counter(), 0
    while not calls or time.perf_counter() - start < seconds / 2:
        run()
        wait()
        calls += 1
    return calls / (time.perf_counter() - start)


def served(device: torch.device, seconds: float, size: Size) -> Iterator[Row]:
    """Yield requests and tokens a second of a tiny Qwen2-Audio behind `vllm serve`: this engine, then vLLM's client."""
    from earmark.schemas.questions import FreeText, Message
    from earmark.tasks.annotation.backend import question
    from earmark.tasks.annotation.session import Session
    from earmark.tasks.annotation.vllm_serve import VARIABLE
    from tests.annotation.conftest import config_for
    from tests.annotation.tiny_model import make_tiny_model

    environment = os.environ.get(VARIABLE)
    if not environment and not importlib.util.find_spec("vllm"):
        yield {"row": "tiny Qwen2-Audio behind vLLM", "not_run": f"no vllm here, and {VARIABLE} names no environment"}
        return
    python = environment or sys.executable
    words, most, count = "one two three four five six seven eight " * 8, 32, 512
    with tempfile.TemporaryDirectory() as made:
        model = make_tiny_model(Path(made, "model"))
        command = [python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--host=127.0.0.1", "--port=18741"]
        with Path(made, "log").open("wb") as log:
            server = subprocess.Popen([*command, "--max-model-len=1024"], stdout=log, stderr=log)
        try:
            _wait_for("http://127.0.0.1:18741/health", server)

            class At:
                base_url = "http://127.0.0.1:18741/v1"

            options = {
                "max_concurrency": 64,
                "temperature": 0.0,
                "max_tokens": most,
                "extra_body": {"ignore_eos": True},
            }
            config = config_for(At, annotator=f"openai:{model}", **options)
            requests = [question(config, [Message.of("user", f"{n} {words}")], FreeText()) for n in range(count)]
            with Session(config, ledger=Path(made, "ledger.sqlite")) as session:
                session.ask(requests[:32])
                start = time.perf_counter()
                report = session.ask(requests[32:])
                taken = time.perf_counter() - start
            name = "tiny Qwen2-Audio behind vLLM, this engine and its ledger"
            yield {"row": name, "rate": report.answered / taken, "unit": "requests/s"}
            yield {"row": name, "rate": report.output_tokens / taken, "unit": "tokens/s"}
            bench = [
                *command[:3], "bench", "serve", "--backend=openai-chat", "--endpoint=/v1/chat/completions",
                "--host=127.0.0.1", "--port=18741", f"--model={model}", "--dataset-name=random",
                "--random-input-len=64", f"--random-output-len={most}", f"--num-prompts={count}",
                "--max-concurrency=64", "--ignore-eos", "--temperature=0", "--save-result",
                f"--result-dir={made}", "--result-filename=rival.json", "--disable-tqdm",
            ]  # fmt: skip
            subprocess.run(bench, check=True, capture_output=True, timeout=seconds)
            found = json.loads(Path(made, "rival.json").read_text())
            name = "tiny Qwen2-Audio behind vLLM, vLLM's own client"
            yield {"row": name, "rate": found["request_throughput"], "unit": "requests/s"}
            yield {"row": name, "rate": found["output_throughput"], "unit": "tokens/s"}
        finally:
            server.kill()
            server.wait()


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers.

    Raises:
        RuntimeError: it ended.
    """
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        with suppress(OSError), opener.open(address, timeout=2):
            return
        if server.poll() is not None:
            raise RuntimeError(f"vllm serve ended with code {server.returncode}")
        time.sleep(0.5)


PARTS: dict[str, Callable[[torch.device, float, Size], Iterator[Row]]] = {
    "separation": separation,
    "audio-separator": rival,
    "resampling": resampling,
    "embeddings": embeddings,
    "vllm": served,
}


# -- the whole --------------------------------------------------------------------------------------------------------


def run_part(name: str, arguments: argparse.Namespace, seconds: float) -> list[Row]:
    """Run a part in a process of its own; return its rows, the last with the reason if it did not end."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_gpu", "--part", name, "--device", arguments.device]
    command += ["--seconds", f"{seconds:.0f}", "--depth", str(arguments.depth), "--dim", str(arguments.dim)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as faults:
        child = subprocess.Popen(command, stdout=out, stderr=faults, start_new_session=True)
        reason = ""
        try:
            if child.wait(timeout=seconds * 1.15 + 10):
                faults.seek(0)
                reason = (faults.read().strip().splitlines() or [f"ended with code {child.returncode}"])[-1][:100]
        except subprocess.TimeoutExpired:
            reason = f"more than its {seconds:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
            child.wait()
        out.seek(0)
        rows = [json.loads(line) for line in out if line.startswith("{")]
    return [*rows, {"row": f"{name}: the rest" if rows else name, "not_run": reason}] if reason else rows


def cells(row: Row, base: float | None) -> list[str]:
    """Return the row's cells."""
    if "not_run" in row:
        return [row["row"], f"not run: {row['not_run']}", "", "", "", ""]
    speed = row["unit"] == "× real time" and base
    snr = row.get("snr_db")
    return [
        row["row"],
        f"{row['rate']:.3g} {row['unit']}",
        f"{row['rate'] / base:.2f}" if speed and base else "",
        f"{row['idle']:.0%}" if "idle" in row else "",
        f"{snr:.1f}" if snr is not None else "",
        f"{row['gb']:.1f}" if "gb" in row else "",
    ]


def main() -> None:
    """Run the parts one after the other, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=LONGEST_S * 0.8, help="time for all parts together")
    parser.add_argument("--depth", type=int, default=6, help="smaller than Kim's 6: for a quick look only")
    parser.add_argument("--dim", type=int, default=DIM, help=f"smaller than Kim's {DIM}: for a quick look only")
    parser.add_argument("--out", type=Path, default=Path("bench-gpu.json"))
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device == "auto":
        arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    size: Size = {"depth": arguments.depth, "dim": arguments.dim}
    if arguments.part:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        for row in PARTS[arguments.part](torch.device(arguments.device), arguments.seconds, size):
            print(json.dumps(row), flush=True)
        return
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else platform.processor() or platform.machine()
    machine = {"device": f"{arguments.device}: {name}", "torch": torch.__version__, "cores": os.cpu_count()}
    print(f"{machine['device']}; torch {machine['torch']}; {machine['cores']} cores; at most {arguments.seconds:.0f} s")
    begun, rows, base = time.monotonic(), list[Row](), None
    print("| row | speed | × audio-separator's default | device idle | SNR dB | device GB |")
    print("|---|---:|---:|---:|---:|---:|")
    for part, share in SHARES.items():
        left = max(1.0, arguments.seconds - (time.monotonic() - begun))
        made = run_part(part, arguments, left * share)
        if part == "audio-separator" and "rate" in made[0]:
            base = made[0]["rate"]
        rows += [{"part": part, **row} for row in made]
        of_separation = base if part in ("audio-separator", "separation") else None
        for row in made:
            print("| " + " | ".join(cells(row, of_separation)) + " |", flush=True)
    best = max((row["rate"] for row in rows if row["part"] == "separation" and "rate" in row), default=0.0)
    print(f"goal on an H100 or H200: {GOAL_X:g} × real time; best here {best:.3g}", end="; ")
    print(
        f"goal {GOAL_RATIO:g} × audio-separator's default; here {best / base:.2f}"
        if base
        else "no rival to compare with"
    )
    arguments.out.write_text(json.dumps({"machine": machine, "size": size, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
