"""Make the demo inputs of `pseudo-preferences`: prompts, and what four made-up models play to them.

    python data/demo/make_music.py [FOLDER]

Writes below FOLDER, by default `music` beside this script:
    prompts.jsonl      twelve prompts, some with lyrics or a reference clip
    generations.jsonl  what each model made of each, and five generations that cannot be used
    known_order.json   the ranks of the models that a good judge finds: their faults are built in
    clips/ references/ the audio

The same bytes each run: everything is drawn from fixed seeds.
"""

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sound

RATE_HZ = 16_000
SECONDS = 2.5
SOUNDING_S = 1.9  # then the tune rings out, and one hears what a model adds by itself


class DemoPrompt(NamedTuple):
    """A prompt in words, and its numbers."""

    text: str
    bpm: float
    lowest_hz: float
    minor: bool
    brightness: float  # of the overtones, see sound.note
    decay: float  # 2 for held notes, 8 for plucked ones
    lyrics: str | None = None
    reference: bool = False


PROMPTS = (
    DemoPrompt("A fast, bright marimba tune in a major key", 150, 523.3, False, 0.85, 8),
    DemoPrompt("Slow, dark organ chords in a minor key", 72, 130.8, True, 0.45, 1),
    DemoPrompt("An upbeat, sparkling music box melody", 140, 587.3, False, 0.85, 7),
    DemoPrompt("A calm and warm flute line, major key", 80, 261.6, False, 0.3, 1.5),
    DemoPrompt("Driving, crisp plucked strings in a minor key", 160, 440.0, True, 0.88, 7),
    DemoPrompt("A mellow ballad for bass guitar, slow, minor key", 66, 110.0, True, 0.5, 3),
    DemoPrompt(
        "An energetic, bright synth song in a major key", 144, 392.0, False, 0.9, 4,
        lyrics="Up the stairs and out the door\nthe street is louder than before",
    ),
    DemoPrompt(
        "A slow, warm lullaby on soft bells", 76, 220.0, False, 0.4, 3,
        lyrics="Boats of paper, lamps of tin\nlet the quiet water in",
    ),
    DemoPrompt(
        "A dark, slow song over deep pads, minor key", 70, 146.8, True, 0.45, 1,
        lyrics="We left the map beneath the snow\nand no one asked us where to go",
    ),
    DemoPrompt("A fast, shimmering harp figure like the reference", 152, 493.9, False, 0.85, 6, reference=True),
    DemoPrompt("A relaxing, mellow guitar piece like the reference", 84, 196.0, False, 0.42, 4, reference=True),
    DemoPrompt(
        "An upbeat, crisp pop song like the reference", 132, 415.3, False, 0.9, 5,
        lyrics="Count the lights along the bay\ncount them till they fade away",
        reference=True,
    ),
)  # fmt: skip

MODELS = ("aster", "birch", "cedar", "dahlia")
KNOWN_ORDER = {
    "about": "Ranks by design, 1 is best; equal ranks mean that no difference was built in.",
    "faults": {
        "aster": "none",
        "birch": "light noise",
        "cedar": "clipping",
        "dahlia": "low-pass at 1.2 kHz, dropouts, and slow where the prompt is fast or fast where it is slow",
    },
    "ranks": {
        "musicality": {"aster": 1, "birch": 2, "cedar": 3, "dahlia": 4},
        "alignment": {"aster": 1, "birch": 1, "cedar": 1, "dahlia": 2},
    },
}


def make_music(folder: Path) -> None:
    """Write the prompts, the generations and the known order."""
    prompts, generations = [], []
    for number, prompt in enumerate(PROMPTS, 1):
        prompt_id = f"p{number:02d}"
        row: dict[str, Any] = {"prompt_id": prompt_id, "text": prompt.text}
        if prompt.lyrics:
            row |= {"lyrics": prompt.lyrics}
        if prompt.reference:
            reference = f"references/{prompt_id}.flac"
            row |= {"reference_audio": reference}
            tune = played(prompt, np.random.RandomState([number, len(MODELS)]))
            sound.write(folder / reference, tune, RATE_HZ)
        prompts.append(row)
        for place, model in enumerate(MODELS):
            samples = generated(prompt, model, np.random.RandomState([number, place]))
            generations.append(_generation(prompt_id, model, seed=1))
            sound.write(folder / generations[-1]["audio"], samples, RATE_HZ)
    generations += make_unusable(folder)
    write_jsonl(folder / "prompts.jsonl", prompts)
    write_jsonl(folder / "generations.jsonl", generations)
    (folder / "known_order.json").write_bytes((json.dumps(KNOWN_ORDER, indent=2) + "\n").encode())


def generated(prompt: DemoPrompt, model: str, random: np.random.RandomState) -> sound.Samples:
    """Return a model's tune for a prompt, with the model's faults."""
    if model == "birch":
        return sound.with_noise(played(prompt, random), 0.02, random)
    if model == "cedar":
        return sound.clipped(played(prompt, random), 3)
    if model == "dahlia":
        strayed = prompt._replace(bpm=76 if prompt.bpm > 100 else 150)
        tune = sound.low_passed(played(strayed, random), 1_200, RATE_HZ)
        return sound.with_dropouts(tune, np.sort(random.uniform(0.1, SOUNDING_S - 0.1, 6)).tolist(), 0.05, RATE_HZ)
    return played(prompt, random)


def played(prompt: DemoPrompt, random: np.random.RandomState) -> sound.Samples:
    """Return a tune with a note on each beat over a held chord, and a tick that marks the beat; it rings out."""
    third = 3 if prompt.minor else 4
    scale = (0, 2, third, 5, 7, 12)
    beat_s = 60 / prompt.bpm
    mix = np.zeros(round(SECONDS * RATE_HZ))
    for semitones in (0, third, 7):
        chord = sound.note(
            _pitch(prompt, semitones) / 2, SECONDS, RATE_HZ, brightness=prompt.brightness * 0.8, decay=0.3
        )
        sound.place(chord, mix, 0.0, RATE_HZ, gain=0.2)
    tick = sound.note(2_000, 0.03, RATE_HZ, brightness=prompt.brightness, decay=120)
    for beat in range(int(SOUNDING_S / beat_s) + 1):
        pitch = _pitch(prompt, scale[random.randint(len(scale))])
        tone = sound.note(pitch, beat_s, RATE_HZ, brightness=prompt.brightness, decay=prompt.decay)
        sound.place(tone, mix, beat * beat_s, RATE_HZ)
        sound.place(tick, mix, beat * beat_s, RATE_HZ, gain=0.3)
    time = np.arange(len(mix)) / RATE_HZ
    return sound.at_peak(mix * np.minimum(np.exp((SOUNDING_S - time) / 0.1), 1.0), 0.7)


def make_unusable(folder: Path) -> list[dict[str, Any]]:
    """Five generations as services return them when something went wrong."""
    failed = _generation("p01", "birch", seed=2, status="failed")
    failed["audio"] = ""
    empty = _generation("p02", "cedar", seed=2, ending="wav")
    sound.write(folder / empty["audio"], np.zeros(0), RATE_HZ)
    silent = _generation("p03", "dahlia", seed=2)
    sound.write(folder / silent["audio"], np.zeros(round(SECONDS * RATE_HZ)), RATE_HZ)
    duplicate = _generation("p04", "aster", seed=2)
    shutil.copyfile(folder / _generation("p04", "aster", seed=1)["audio"], folder / duplicate["audio"])
    short = _generation("p05", "birch", seed=2)
    cut = generated(PROMPTS[4], "birch", np.random.RandomState(5))[: round(0.2 * RATE_HZ)]
    sound.write(folder / short["audio"], cut, RATE_HZ)
    return [failed, empty, silent, duplicate, short]


def _pitch(prompt: DemoPrompt, semitones: int) -> float:
    return prompt.lowest_hz * float(2 ** (semitones / 12))


def _generation(
    prompt_id: str, model: str, *, seed: int, status: str = "succeeded", ending: str = "flac"
) -> dict[str, Any]:
    name = f"{prompt_id}-{model}-{seed}"
    return {
        "generation_id": name,
        "prompt_id": prompt_id,
        "model": model,
        "audio": f"clips/{name}.{ending}",
        "status": status,
        "seed": seed,
    }


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


if __name__ == "__main__":
    make_music(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "music")
