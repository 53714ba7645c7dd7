"""Learn a small head from built pairs, and print its accuracy on held-out systems, for the papers' claims.

    .venv-models/bin/python -m tests.benchmarks.bench_learning SPEECH [--seeds 5]

SPEECH is a folder of speech (WAV, or raw PCM of 16 bits and 16 kHz), such as `test/data` of the source distribution of
pocketsphinx: `pip download --no-deps --no-binary pocketsphinx pocketsphinx`. Excerpts of 2.5 s are degraded by known
amounts; made-up listeners rate them; `mos-preferences` is built of the ratings, its test split with systems of its own.
Heads of Bradley-Terry and of least squares learn on the last layer of DNSMOS (`speechmos`), which stays as it is.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, signal, special, stats

Floats = npt.NDArray[np.float64]
RATE = 16_000
EXCERPT = 40_000  # samples
AMOUNTS = np.linspace(0.0, 1.0, 7)[1:]  # of a degradation; the MOS falls from 5 to 1 with it
LISTENERS, SPREAD = 4, 0.6  # of each clip, and the standard deviation of their ratings
PENALTY = 1e-3  # on the squared weights of a head
COUNTS = (30, 100, 300, 1000)
GAPS = (0.0, 1.0, 2.0, 4.1)


def bradley_terry(chosen: Floats, rejected: Floats) -> Floats:
    """Return the weights of a linear reward that make the choices likeliest, with a penalty."""
    apart = chosen - rejected

    def loss(weights: Floats) -> tuple[float, Floats]:
        margin = apart @ weights
        slope = apart.T @ -special.expit(-margin) / len(apart)
        return float(np.logaddexp(0, -margin).mean() + PENALTY * weights @ weights), slope + 2 * PENALTY * weights

    return np.asarray(optimize.minimize(loss, np.zeros(apart.shape[1]), jac=True, method="L-BFGS-B").x)


def least_squares(features: Floats, mos: Floats) -> Floats:
    """Return the weights of the ridge regression of the centred MOS."""
    held = features - features.mean(axis=0)
    inner = held.T @ held / len(held) + PENALTY * np.eye(held.shape[1])
    return np.asarray(np.linalg.solve(inner, held.T @ (mos - mos.mean()) / len(held)))


def accuracy(weights: Floats, chosen: Floats, rejected: Floats) -> float:
    """Return the share of pairs that a head orders right; equal rewards count half."""
    apart = (chosen - rejected) @ weights
    return float(np.mean((apart > 0) + 0.5 * (apart == 0)))


def judged(apart: Floats, rng: np.random.Generator, lean: float = 1.0, sharpness: float = 1.5) -> npt.NDArray[np.bool_]:
    """Return whether a noisy judge prefers the first clip, by the differences of quality; it leans to the first."""
    return rng.random(len(apart)) < special.expit(sharpness * apart + lean)


def noise(clip: Floats, amount: float, rng: np.random.Generator) -> Floats:
    """Add white noise, from 40 to -5 dB below the speech."""
    return clip + rng.normal(0, clip.std() * 10 ** (-(40 - 45 * amount) / 20), len(clip))


def hum(clip: Floats, amount: float, rng: np.random.Generator) -> Floats:
    """Add noise that falls by 6 dB an octave, from 35 to -10 dB below the speech."""
    brown = signal.lfilter([1], [1, -0.99], rng.normal(0, 1, len(clip)))
    return np.asarray(clip + brown / brown.std() * clip.std() * 10 ** (-(35 - 45 * amount) / 20))


def clipping(clip: Floats, amount: float, rng: np.random.Generator) -> Floats:
    """Clip at a level from the peak down to a hundredth of it, then restore the level."""
    top = np.abs(clip).max() * 10 ** (-2 * amount)
    held = np.clip(clip, -top, top)
    return np.asarray(held / held.std() * clip.std())


def codec(clip: Floats, amount: float, rng: np.random.Generator) -> Floats:
    """Code by mu-law with 8 bits down to 1.5."""
    steps = 2 ** (8 - 6.5 * amount)
    peak = np.abs(clip).max()
    coded = np.sign(clip) * np.log1p(255 * np.abs(clip) / peak) / np.log(256)
    coded = np.clip((np.floor(coded * steps / 2) + 0.5) * 2 / steps, -1, 1)
    return np.asarray(np.sign(coded) * (256 ** np.abs(coded) - 1) / 255 * peak)


def band(clip: Floats, amount: float, rng: np.random.Generator) -> Floats:
    """Cut off what lies above a frequency from 7 kHz down to 400 Hz."""
    low = signal.butter(8, 7_000 * (400 / 7_000) ** amount, fs=RATE, output="sos")
    return np.asarray(signal.sosfilt(low, clip))


KINDS: tuple[Callable[[Floats, float, np.random.Generator], Floats], ...] = (noise, hum, clipping, codec, band)


def excerpts(speech: Path) -> Iterator[tuple[str, str, Floats]]:
    """Yield excerpts with their content and the folder that stands for the speaker."""
    import soundfile

    for path in sorted([*speech.rglob("*.wav"), *speech.rglob("*.raw")]):
        try:
            raw = {"samplerate": RATE, "channels": 1, "subtype": "PCM_16"} if path.suffix == ".raw" else {}
            samples, rate = soundfile.read(path, **raw)
        except soundfile.LibsndfileError as error:
            print(f"left out: {path.name}: {error}")
            continue
        if rate != RATE or samples.ndim != 1:
            continue
        for number in range(len(samples) // EXCERPT):
            piece = samples[number * EXCERPT : (number + 1) * EXCERPT]
            if piece.std() > 0.003:
                yield f"{path.stem}-{number}", path.parent.name, piece / piece.std() * 0.05


def make_clips(speech: Path, folder: Path) -> list[dict[str, Any]]:
    """Write each excerpt with each degradation; return clips with their amounts."""
    import soundfile

    rng, rows = np.random.default_rng(1), []
    for (content, speaker, piece), (kind, amount) in product(excerpts(speech), product(KINDS, AMOUNTS)):
        system = f"{kind.__name__}-{amount:.3f}"
        name = f"{system}_{content}.wav"
        made = kind(piece, float(amount), rng)
        soundfile.write(folder / name, made / max(1.0, np.abs(made).max()), RATE)
        rows.append({"file": name, "system": system, "content": content, "speaker": speaker, "quality": 5 - 4 * amount})
    return rows


def last_layer(files: Sequence[Path]) -> Floats:
    """Return the input of DNSMOS's last matrix for each clip, which is repeated to the model's length."""
    import onnx
    import onnxruntime
    import soundfile
    import speechmos

    model = onnx.load(str(Path(speechmos.__file__).with_name("dnsmos_models") / "sig_bak_ovr.onnx"))
    wanted = [node.input[0] for node in model.graph.node if node.op_type == "MatMul"][-1]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(wanted))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    clips = (np.resize(soundfile.read(file, dtype="float32")[0], taken.shape[-1]) for file in files)
    return np.concatenate([session.run([wanted], {taken.name: clip[None]})[0] for clip in clips]).astype(float)


def build_pairs(folder: Path, clips: Sequence[dict[str, Any]], seed: int, shares: dict[str, float]) -> Any:
    """Build `mos-preferences` of the clips, rated anew; systems of the test split are in no other."""
    from tests.builds import build_version, config_of

    rng = np.random.default_rng(seed)
    with (folder / f"ratings-{seed}.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file", "system", "content", "speaker", "listener", "mos"])
        for clip in clips:
            for listener in range(LISTENERS):
                mos = np.clip(round(2 * (clip["quality"] + rng.normal(0, SPREAD))) / 2, 1, 5)
                rows.writerow([clip["file"], clip["system"], clip["content"], clip["speaker"], listener, mos])
    names = ("file", "system", "content", "speaker", "listener", "mos")
    source = {
        "name": "speech",
        "format": "table",
        "files": {"train": f"ratings-{seed}.csv"},
        "columns": {name: name for name in names},
        "split": "by-system",
        "shares": {"train": 0.65, "test": 0.35},
    }
    config = config_of(
        folder,
        source,
        seed=seed,
        quotas={"speech": {"train": 3 * max(COUNTS), "test": 1000}},
        pairs={"balance": shares, "per_clip": 64},
    )
    return build_version(config, folder / "store")


def measure(folder: Path, clips: Sequence[dict[str, Any]], features: Floats, seed: int) -> dict[str, float]:
    """Return the accuracies of one seed, by the name of the comparison."""
    from tests.builds import rows_of

    rng = np.random.default_rng(seed)
    version = build_pairs(folder, clips, seed, dict.fromkeys(("same_content", "same_source", "unmatched"), 1.0))
    place = {clip["file"]: at for at, clip in enumerate(clips)}
    quality = np.array([clip["quality"] for clip in clips])
    rated = {row["sample_id"]: row for row in rows_of(version, "ratings")}
    at = {name: place[row["file"]] for name, row in rated.items()}
    mos = np.array([0.0] * len(clips))
    mos[[*at.values()]] = [row["mos"] for row in rated.values()]
    split = {one: rng.permutation([row for row in rows_of(version, "pairs") if row["split"] == one])
             for one in ("train", "test")}  # fmt: skip
    pairs, test = (
        np.array([[at[row["chosen_id"]], at[row["rejected_id"]]] for row in rows]) for rows in split.values()
    )
    here = np.array([place[row["file"]] for row in rated.values() if row["split"] == "train"])
    x = (features - features[here].mean(axis=0)) / (features[here].std(axis=0) + 1e-6)

    order = quality[test[:, 0]] - quality[test[:, 1]]
    test = np.where((order < 0)[:, None], test[:, ::-1], test)[order != 0]  # by the known order, not by the ratings
    gap = np.abs(order[order != 0])
    if len({*gap.round(3)}) < 4:
        raise SystemExit(f"seed {seed}: the test systems are too alike; take another")

    def bt(rows: npt.NDArray[np.int64]) -> Floats:
        return bradley_terry(x[rows[:, 0]], x[rows[:, 1]])

    def right(weights: Floats, rows: npt.NDArray[np.int64] = test) -> float:
        return accuracy(weights, x[rows[:, 0]], x[rows[:, 1]])

    found: dict[str, float] = {}
    for count in COUNTS:
        some = pairs[:count]
        heard = np.unique(some)
        for head, weights in (("Bradley-Terry", bt(some)), ("MSE", least_squares(x[heard], mos[heard]))):
            found[f"{head}, {count} pairs"] = right(weights)
            if count == COUNTS[-1]:
                for low, high in pairwise(GAPS):
                    found[f"{head}, {count} pairs, gap {low:g} to {high:g}"] = right(
                        weights, test[(gap > low) & (gap <= high)]
                    )
        turned = rng.random(count) < 0.5
        found[f"shuffled labels, {count} pairs"] = right(bt(np.where(turned[:, None], some[:, ::-1], some)))

        drawn = rng.choice(here, (4 * count, 2))
        drawn = drawn[mos[drawn[:, 0]] != mos[drawn[:, 1]]][:count]
        drawn = np.where((mos[drawn[:, 0]] < mos[drawn[:, 1]])[:, None], drawn[:, ::-1], drawn)
        found[f"random pairs, {count} pairs"] = right(bt(drawn))
        balanced = found[f"Bradley-Terry, {count} pairs"]
        found[f"balanced less random, {count} pairs"] = balanced - found[f"random pairs, {count} pairs"]

        several = pairs[: 2 * count]
        shown = np.where((rng.random(len(several)) < 0.5)[:, None], several[:, ::-1], several)
        apart = quality[shown[:, 0]] - quality[shown[:, 1]]
        forward, reverse = judged(apart, rng), ~judged(-apart, rng)
        labelled = np.where(forward[:, None], shown, shown[:, ::-1])
        agreed = (forward == reverse)[:count]
        every, kept, as_many = (right(bt(rows)) for rows in (labelled[:count], labelled[:count][agreed], labelled))
        found[f"judge, all labels, {count} pairs"] = every
        found[f"judge, consistent labels of {count} pairs"] = kept
        found[f"judge, all labels, {2 * count} pairs"] = as_many
        found[f"consistent less all, {count} pairs"] = kept - every
        found[f"consistent less all, {2 * count} requests"] = kept - as_many
        found[f"judge, share consistent, {count} pairs"] = float(agreed.mean())
        true = ((apart > 0) == forward)[:count]
        found[f"judge, right among all, {count} pairs"] = float(true.mean())
        found[f"judge, right among consistent, {count} pairs"] = float(true[agreed].mean())
    return found


def main() -> None:
    """Print the mean of each accuracy over seeds, with its interval of 95 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("speech", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clips = make_clips(given.speech, folder)
        features = last_layer([folder / clip["file"] for clip in clips])
        contents = len({clip["content"] for clip in clips})
        print(
            f"{len(clips)} clips: {contents} excerpts, {len(clips) // contents} systems; {features.shape[1]} features"
        )
        seeds = [measure(folder, clips, features, seed) for seed in range(1, given.seeds + 1)]
    print("\n| head and pairs | accuracy | 95 % |\n|---|--:|--:|")
    for row in seeds[0]:
        values = np.array([one[row] for one in seeds])
        half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
        print(f"| {row} | {values.mean():.3f} | {values.mean() - half:.3f} to {values.mean() + half:.3f} |")


if __name__ == "__main__":
    main()
