"""Make the demo inputs of `instruction-rubrics`: caption sets of music, generated music, and sounds, with their clips.

    python data/demo/make_rubrics.py [FOLDER]

Writes below FOLDER, by default `rubrics` beside this script:
    music.csv       captions of played music, English; some rows cannot be used
    generated.csv   what music was asked for and made; some of it did not do what was asked
    sounds.csv      captions of sounds, Chinese
    audio/          the clips

The same bytes each run: everything is drawn from fixed seeds.
"""

import csv
import shutil
import sys
from pathlib import Path

import numpy as np
import sound

RATE_HZ = 16_000
SECONDS = 4.0
TEMPOS = {"slow": 75.0, "fast": 140.0}
TONES = {"warm": 0.15, "bright": 0.93}
PLAYED = (
    ("jazz", "piano", "calm"), ("folk", "guitar", "happy"), ("rock", "guitar", "tense"), ("classical", "violin", "sad"),
    ("ambient", "harp", "dreamy"), ("pop", "piano", "happy"), ("techno", "synthesizer", "tense"),
    ("blues", "guitar", "sad"), ("reggae", "organ", "calm"), ("electronic", "synthesizer", "dark"),
    ("folk", "flute", "dreamy"), ("jazz", "trumpet", "happy"), ("classical", "cello", "calm"),
    ("rock", "organ", "dark"),
)  # fmt: skip
FORMS = (
    "A {tempo} {genre} piece, with a {mood} {instrument} that sounds {tone}",
    "{mood} {genre} music for {instrument}; the tempo is {tempo} and the sound is {tone}",
    "The {instrument} plays a {tempo} {genre} tune in a {mood} mood, with a {tone} tone",
)
EVENTS = (
    ("铃", "雨"), ("雨", "铃"), ("引擎", "铃"), ("铃", "引擎"), ("雨", "引擎"), ("引擎", "雨"),
    ("铃", "风"), ("风", "引擎"),
)  # fmt: skip
PLACES = ("街道", "厨房", "森林", "车站", "海滩")
SOUNDING = {"铃": "铃声", "雨": "雨声", "引擎": "引擎声", "风": "风声"}


def melody(number: int, bpm: float, brightness: float) -> sound.Samples:
    """Return a tune of plucked notes, one a beat."""
    length = round(SECONDS * RATE_HZ)
    tune = np.zeros(length)
    steps = np.random.RandomState(700 + number).choice([0, 2, 4, 7, 9, 12], 32)
    for beat in range(int(SECONDS * bpm / 60)):
        frequency_hz = 220.0 * 2 ** ((steps[beat % 32] + number % 5) / 12)
        struck = sound.note(frequency_hz, 0.6, RATE_HZ, brightness=brightness, decay=7.0)
        sound.place(struck, tune, beat * 60 / bpm, RATE_HZ)
    return sound.at_peak(tune, 0.8)


def event(name: str, number: int) -> sound.Samples:
    """Two seconds of a bell, rain, wind or an engine."""
    length, random = 2 * RATE_HZ, np.random.RandomState(900 + number)
    noise = random.uniform(-1.0, 1.0, length)
    match name:
        case "铃":
            held = np.zeros(length)
            for at in (0.0, 0.7, 1.4):
                struck = sound.note(1300.0 + 40 * number, 0.6, RATE_HZ, brightness=0.5, decay=6.0)
                sound.place(struck, held, at, RATE_HZ)
        case "雨":
            held = noise
        case "风":
            swell = 0.3 + np.abs(np.sin(np.arange(length) / RATE_HZ * np.pi))
            held = sound.low_passed(noise, 500.0, RATE_HZ) * swell
        case _:
            held = sound.note(55.0 + number, 2.0, RATE_HZ, brightness=0.85, decay=0.1)
    return sound.at_peak(held, 0.6)


def write_table(path: Path, rows: list[tuple[str, ...]]) -> None:
    """Write a CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def music(folder: Path, kind: str, count: int, first: int) -> list[tuple[str, ...]]:
    """Clips of music with their captions; of generated ones, each third misses its tempo."""
    rows = []
    for number in range(first, first + count):
        genre, instrument, mood = PLAYED[number % len(PLAYED)]
        tempo, tone = ("slow", "fast")[number % 2], ("warm", "bright")[number // 2 % 2]
        says = FORMS[number % 3].format(tempo=tempo, genre=genre, mood=mood, instrument=instrument, tone=tone)
        missed = kind == "generated" and number % 3 == 0
        played = {"slow": "fast", "fast": "slow"}[tempo] if missed else tempo
        sound.write(folder / "audio" / f"{kind}{number}.flac", melody(number, TEMPOS[played], TONES[tone]), RATE_HZ)
        model = ("aster", "birch")[number % 2] if kind == "generated" else ""
        rows.append((f"{kind}{number}", f"{kind}{number}.flac", f"{says[0].upper()}{says[1:]}.", model))
    return rows


def sounds(folder: Path) -> list[tuple[str, ...]]:
    """Clips of two events each."""
    rows = []
    for number, (first, second) in enumerate(EVENTS):
        clip = np.concatenate([event(first, number), event(second, number + 20)])
        sound.write(folder / "audio" / f"sound{number}.flac", clip, RATE_HZ)
        place = PLACES[number % len(PLACES)]
        rows.append(
            (f"sound{number}", f"sound{number}.flac", f"{place}上先是{SOUNDING[first]}，然后是{SOUNDING[second]}。")
        )
    return rows


def make(folder: Path) -> None:
    """Write all inputs; an older folder is removed first."""
    shutil.rmtree(folder, ignore_errors=True)
    played = music(folder, "played", 28, 0)
    played += [
        ("played0", "played1.flac", "An id that stands in line 2 already.", ""),
        ("nothing", "nothing.flac", "A clip that is not there.", ""),
        ("silent", "silent.flac", "", ""),
        ("outside", "../../secret.flac", "A path that climbs out of its folder.", ""),
        ("again", "played3.flac", played[3][2], ""),
    ]
    write_table(folder / "music.csv", [("id", "audio", "text", "model"), *played])
    write_table(folder / "generated.csv", [("id", "audio", "text", "model"), *music(folder, "generated", 18, 40)])
    write_table(folder / "sounds.csv", [("id", "audio", "text"), *sounds(folder)])


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "rubrics")
