"""Separation: ours beside audio-separator's own, on the same files, with the full-size Kim configuration, in one run.

    .venv-models/bin/python -m tests.benchmarks.bench_separation [--seconds 16] [--tracks 1] [--modes ours,theirs]
        [--device auto] [--batch 8] [--depth 6]

Needs the extra `separation`, and `ffmpeg` for audio-separator. Weights are random: the arithmetic is the same. A mode
runs in a process of its own, from file to file, after its model was loaded and, for compiled modes and on CUDA, after a
warm-up track. Prints times real time, peak memory, the share of the measured matrix rate, and the signal-to-noise ratio
of each mode's instrumental against the first mode's. The FLOP count of a window is torch's, and by hand.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

MODES: dict[str, dict[str, Any]] = {
    # name: whose, options; those with `cuda` are for CUDA only
    "theirs": {},
    "theirs-compile": {"use_torch_compile": True},
    "theirs-fp16": {"use_native_fp16": True, "cuda": True},
    "theirs-fp16-compile": {"use_native_fp16": True, "use_torch_compile": True, "cuda": True},
    "ours": {},
    "ours-compile": {"compiled": True},
    "ours-bf16": {"precision": "bfloat16"},
    "ours-tf32": {"precision": "tf32", "cuda": True},
    "ours-fp16": {"precision": "float16", "cuda": True},
    "ours-fp16-compile": {"precision": "float16", "compiled": True, "cuda": True},
}
WARM_UP_S = 12.5


def kim_tflop() -> float:
    """TFLOP of one 8 s window, by hand: products of matrices only, two operations a multiplication and addition."""
    times, bands, dim, inner, wide, depth = 801, 60, 384, 512, 1536, 6
    tokens, masked = times * bands, 2 * 2 * 3920  # values that the masks of all bands have, before their gates
    block = 2 * tokens * (dim * 3 * inner + inner * dim + 2 * dim * wide + dim * 8)
    attention = 4 * inner * (bands * times**2 + times * bands**2)
    masks = 2 * times * (bands * (dim * wide + wide**2) + wide * masked)
    return (depth * (2 * block + attention) + masks) / 1e12


def matrix_rate(device: str, dtype: str, tf32: bool) -> float:
    """Measured TFLOP/s of products like the model's (CPU) or of large ones (CUDA)."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = tf32
    rows, inner, columns = (8192, 8192, 8192) if device == "cuda" else (3204, 384, 1536)
    kind = getattr(torch, dtype)
    left = torch.randn(rows, inner, device=device, dtype=kind)
    right = torch.randn(inner, columns, device=device, dtype=kind)
    best = float("inf")
    for _ in range(5):
        _wait(device)
        start = time.perf_counter()
        for _ in range(20):
            left @ right
        _wait(device)
        best = min(best, (time.perf_counter() - start) / 20)
    return 2 * rows * inner * columns / best / 1e12


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def counted_tflop(folder: Path) -> float:
    """TFLOP of one window as torch's counter sees audio-separator's own model, plus attention where it is blind."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from earmark.tasks.audio.separation.checkpoints import find_checkpoint, load_model
    from tests.audio.tiny_roformer import CHECKPOINT

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(find_checkpoint(str(folder / CHECKPOINT), folder / "tiny.yaml"), device)
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        model(torch.randn(1, 2, 441 * 800, device=device))
    counts = counter.get_flop_counts()["Global"]
    seen = sum(counts.values())
    if not any("scaled_dot_product" in str(kind) for kind in counts):  # the counter does not know the CPU's kernel
        seen += len(model.layers) * 4 * 512 * (60 * 801**2 + 801 * 60**2)
    return seen / 1e12


def run_mode(mode: str, folder: Path, device: str, batch: int | None) -> dict[str, Any]:
    """Separate every track of the folder in this process; seconds, peaks, and where the instrumentals lie."""
    options = {key: value for key, value in MODES[mode].items() if key != "cuda"}
    out = folder / mode
    run = _theirs if mode.startswith("theirs") else _ours
    seconds, files = run(folder, out, device, batch, options)
    import torch

    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    device_gb = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    dtype = {"float16": "float16", "bfloat16": "bfloat16"}.get(options.get("precision", ""), "float32")
    if options.get("use_native_fp16"):
        dtype = "float16"
    rate = matrix_rate(device, dtype, options.get("precision") == "tf32")
    return {"seconds": seconds, "peak_gb": peak_gb, "device_gb": device_gb, "matrix_tflops": rate, "files": files}


def _ours(folder: Path, out: Path, device: str, batch: int | None, options: dict[str, Any]) -> tuple[float, list[str]]:
    from earmark.tasks.audio.separation.choice import make_separator
    from earmark.tasks.audio.separation.jobs import Output, SeparatedTrack, SeparationJob
    from earmark.tasks.audio.separation.pipeline import separate
    from tests.audio.tiny_roformer import CHECKPOINT

    named = {"settings": folder / "tiny.yaml", "device": device, "batch_size": batch}
    separator = make_separator(str(folder / CHECKPOINT), **named, **options)
    if options.get("compiled") or device == "cuda":
        list(separate([SeparationJob("warm", folder / "warm.wav", out / "warm.flac")], separator))
    jobs = [SeparationJob(path.stem, path, out / f"{path.stem}.flac") for path in sorted(folder.glob("track-*.wav"))]
    start = time.perf_counter()
    results = list(separate(jobs, separator, Output(bits=16)))
    seconds = time.perf_counter() - start
    assert all(isinstance(result, SeparatedTrack) for result in results), results
    return seconds, [str(job.target) for job in jobs]


def _theirs(
    folder: Path, out: Path, device: str, batch: int | None, options: dict[str, Any]
) -> tuple[float, list[str]]:
    from audio_separator.separator import Separator

    from tests.audio.tiny_roformer import CHECKPOINT

    separator = Separator(
        log_level=logging.ERROR, model_file_dir=str(folder), output_dir=str(out), output_format="FLAC",
        output_single_stem="other", **options,
    )  # fmt: skip
    separator.load_model(CHECKPOINT)
    if options.get("use_torch_compile") or device == "cuda":
        separator.separate(str(folder / "warm.wav"))
    tracks = sorted(folder.glob("track-*.wav"))
    start = time.perf_counter()
    written = [separator.separate(str(path))[0] for path in tracks]
    return time.perf_counter() - start, [str(out / Path(name).name) for name in written]


def snr_db(wanted: list[str], found: list[str]) -> float:
    """Over all tracks, of the instrumentals as they were written."""
    import numpy as np
    import soundfile

    signal = error = 0.0
    for one, other in zip(wanted, found, strict=True):
        left, right = (soundfile.read(path, dtype="float64")[0] for path in (one, other))
        signal, error = signal + float(np.sum(left**2)), error + float(np.sum((left - right) ** 2))
    return 10 * float(np.log10(signal / max(error, 1e-30)))


def main() -> None:
    """Make weights and tracks, run each mode in a process, print the table."""
    parser = argparse.ArgumentParser(description="separation: ours beside audio-separator's own")
    parser.add_argument("--seconds", type=float, default=16.0, help="length of a track")
    parser.add_argument("--tracks", type=int, default=1)
    parser.add_argument("--modes", default="", help=f"some of {', '.join(MODES)}; default: all that fit the device")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--batch", type=int, default=None, help="windows at once, ours only")
    parser.add_argument("--depth", type=int, default=6, help="smaller than the model's 6: for a quick look only")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch

    device = ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    if args.child == "count":
        print(json.dumps(counted_tflop(args.folder)))
    elif args.child:
        print(json.dumps(run_mode(args.child, args.folder, device, args.batch)))
    else:
        modes = (
            args.modes.split(",")
            if args.modes
            else [m for m, o in MODES.items() if device == "cuda" or not o.get("cuda")]
        )
        with tempfile.TemporaryDirectory() as made:
            report(Path(made), modes, device, args)


def report(folder: Path, modes: list[str], device: str, args: argparse.Namespace) -> None:
    """Run the modes one after the other and print a line each."""
    from tests.audio.separating import write_song
    from tests.audio.tiny_roformer import KIM, make_roformer

    make_roformer(folder, {**KIM, "depth": args.depth}, dim_t=801)
    for n in range(args.tracks):
        write_song(folder / f"track-{n:03}.wav", args.seconds, seed=n)
    write_song(folder / "warm.wav", WARM_UP_S, seed=99)
    audio_s = args.seconds * args.tracks
    tflop = child(folder, "count", device, args)
    step_s, window_s = 4.0, 8.0
    windows = args.tracks * max(1, -(-int(1000 * max(0.0, args.seconds - window_s)) // int(1000 * step_s)) + 1)
    print(
        f"{device}; {audio_s:g} s of audio in {args.tracks} tracks; {windows} windows of {tflop:.2f} TFLOP as counted",
        end="",
    )
    print(f", {kim_tflop():.2f} by hand" if args.depth == KIM["depth"] else f"; depth {args.depth}, not the model's")
    print("| mode | seconds | × real time | × first | TFLOP/s | of matrix rate | peak GB | device GB | SNR dB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    base: dict[str, Any] | None = None
    for mode in modes:
        found = child(folder, mode, device, args)
        base = base or found
        rate = windows * tflop / found["seconds"]
        snr = "–" if found is base else f"{snr_db(base['files'], found['files']):.1f}"
        seconds = found["seconds"]
        cells = [mode, f"{seconds:.1f}", f"{audio_s / seconds:.2f}", f"{base['seconds'] / seconds:.2f}", f"{rate:.2f}"]
        cells += [f"{rate / found['matrix_tflops']:.0%}", f"{found['peak_gb']:.1f}", f"{found['device_gb']:.1f}", snr]
        print("| " + " | ".join(cells) + " |", flush=True)


def child(folder: Path, mode: str, device: str, args: argparse.Namespace) -> Any:
    """One mode in a process of its own; what it printed last."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_separation", "--child", mode, "--folder", str(folder)]
    command += ["--device", device, *(["--batch", str(args.batch)] if args.batch else [])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{mode} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
