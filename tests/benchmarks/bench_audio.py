"""Audio in: indexing many short files, and decoding + resampling to 16 kHz mono beside ffmpeg's command and librosa.

    .venv/bin/python -m tests.benchmarks.bench_audio [--files 10000] [--clips 24] [--seconds 30] [--rounds 3]

Prints times real time on one thread and on two, and ratios to the rivals of the same run. Every case runs in a process
of its own; the best of the rounds counts. librosa is no dependency: where it, or ffmpeg, is missing, its row says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

RATE_HZ = 16_000
FORMS = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "mp3": ("MP3", "MPEG_LAYER_III")}
WAYS = ("ours", "ffmpeg", "librosa")
THREADS = (1, 2)


def make_clips(folder: Path, count: int, seconds: float, rate: int, form: str) -> None:
    """Write made-up music, each clip another: a chord with noise that comes and goes, stereo."""
    import numpy as np
    import soundfile

    container, subtype = FORMS[form]
    time_s = np.arange(round(seconds * rate)) / rate
    random = np.random.RandomState(1)
    noise = random.uniform(-0.1, 0.1, (len(time_s) + count * 7, 2))
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        base = 110 * 2 ** (number % 24 / 12)
        chord = sum(np.sin(2 * np.pi * base * step * time_s) / step for step in (1, 1.5, 2, 3, 5))
        swell = 0.5 + 0.5 * np.sin(2 * np.pi * (0.5 + number % 5 / 10) * time_s)
        stereo = 0.15 * chord[:, None] + swell[:, None] * noise[number * 7 : number * 7 + len(time_s)]
        soundfile.write(folder / f"{number:05d}.{form}", stereo, rate, format=container, subtype=subtype)


def by_ours(path: Path) -> int:
    from earmark.tasks.audio.decode import decode_mono

    return len(decode_mono(path, RATE_HZ))


def by_ffmpeg(path: Path) -> int:
    """ffmpeg's command, one thread, floats to a pipe."""
    command = ["ffmpeg", "-v", "error", "-nostdin", "-threads", "1", "-i", str(path)]
    command += ["-ac", "1", "-ar", str(RATE_HZ), "-f", "f32le", "-"]
    return len(subprocess.run(command, check=True, capture_output=True).stdout) // 4


def by_librosa(path: Path) -> int:
    import librosa

    return len(librosa.load(path, sr=RATE_HZ, mono=True)[0])


def decode(way: str, folder: Path, threads: int, seconds: float) -> dict[str, float]:
    """Decode a folder of clips after a warm-up; seconds of sound a second."""
    run = {"ours": by_ours, "ffmpeg": by_ffmpeg, "librosa": by_librosa}[way]
    paths = sorted(folder.iterdir())
    run(paths[0])
    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        frames = list(pool.map(run, paths))
    wall = time.perf_counter() - started
    assert all(abs(count / RATE_HZ - seconds) < 0.2 for count in frames), "the rivals decode the same sound"
    return {"times": sum(frames) / RATE_HZ / wall}


def index(folder: Path, index_file: Path) -> dict[str, float]:
    """Look at a folder twice."""
    from earmark.tasks.audio.index import MediaIndex

    paths = sorted(folder.iterdir())
    looked = []
    for _ in range(2):
        started = time.perf_counter()
        found = MediaIndex(index_file).look(paths)
        looked.append(time.perf_counter() - started)
        assert len(found) == len(paths)
    return {"first_s": looked[0], "second_s": looked[1]}


def _child(*options: str) -> dict[str, float]:
    called = [sys.executable, "-m", "tests.benchmarks.bench_audio", *options]
    held: dict[str, float] = json.loads(subprocess.run(called, check=True, capture_output=True, text=True).stdout)
    return held


def _missing(way: str) -> bool:
    return (way == "ffmpeg" and not shutil.which("ffmpeg")) or (way == "librosa" and not find_spec("librosa"))


def decoding_table(folder: Path, clips: int, seconds: float, rounds: int) -> None:
    """Decode each format in each way, on one thread and on two."""
    print(f"\nDecoding to {RATE_HZ} Hz mono: {clips} clips of {seconds:g} s, stereo, 44.1 kHz; times real time.\n")
    print("| format | way | one thread | × ffmpeg | two threads | × ffmpeg |")
    print("|---|---|---:|---:|---:|---:|")
    for form in FORMS:
        make_clips(folder / form, clips, seconds, 44_100, form)
        best: dict[tuple[str, int], dict[str, float]] = {}
        for _ in range(rounds):  # by turns, so that a busy moment meets all
            for way in (way for way in WAYS if not _missing(way)):
                for threads in THREADS:
                    found = _child("--decode", way, "--folder", str(folder / form), "--threads", str(threads),
                                   "--seconds", str(seconds))  # fmt: skip
                    before = best.get((way, threads), found)
                    best[way, threads] = max(found, before, key=lambda held: held["times"])
        for way in WAYS:
            if _missing(way):
                print(f"| {form} | {way} | not installed | – | – | – |")
                continue
            cells = []
            for threads in THREADS:
                times, rival = best[way, threads]["times"], best.get(("ffmpeg", threads))
                cells += [f"{times:,.0f}", f"{times / rival['times']:.2f}" if rival else "–"]
            print(f"| {form} | {way} | {' | '.join(cells)} |")
        shutil.rmtree(folder / form)


def indexing_table(folder: Path, files: int) -> None:
    """Index many short files, then look again."""
    make_clips(folder / "short", files, 0.5, RATE_HZ, "flac")
    found = _child("--index", str(folder / "media.sqlite"), "--folder", str(folder / "short"))
    print(f"\nIndexing {files:,} FLAC files of half a second: hash, duration, levels, silence.\n")
    print("| look | seconds | files/s |")
    print("|---|---:|---:|")
    for name, seconds in (("first", found["first_s"]), ("second", found["second_s"])):
        print(f"| {name} | {seconds:.2f} | {files / seconds:,.0f} |")


def main() -> None:
    """Run the cases and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="short files to index")
    parser.add_argument("--clips", type=int, default=24, help="clips to decode, of each format")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of these clips")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    for name in ("--decode", "--index", "--folder"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.decode:
        print(json.dumps(decode(given.decode, Path(given.folder), given.threads, given.seconds)))
        return
    if given.index:
        print(json.dumps(index(Path(given.folder), Path(given.index))))
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(prefix="bench-audio-") as folder:
        decoding_table(Path(folder), given.clips, given.seconds, given.rounds)
        indexing_table(Path(folder), given.files)


if __name__ == "__main__":
    main()
