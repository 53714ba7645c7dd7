"""Make the demo inputs of `mos-preferences`: three small rated corpora, every name, rating and sound of them made up.

    python data/demo/make_mos.py [FOLDER]

Writes below FOLDER, by default `mos` beside this script:
    bvcc/    BVCC's published layout, with the ratings of each listener
    vmc23/   VoiceMOS 2023's published layout, tracks 1 and 3
    chimes/  a table as a lab may keep it, with the clips: a byte order mark, CRLF, bad rows, bad files

The same bytes each run: everything is drawn from fixed seeds.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import sound

# Corpora in published layouts -------------------------------------------------------------------------------------

SYSTEMS, LISTENERS, RATINGS = 10, 24, 4
RATING_SETS = {"train": "TRAINSET", "val": "DEVSET", "test": "TESTSET"}
CONTENTS = {"train": range(12), "val": range(12, 17), "test": range(17, 22)}
LOOSE = (11, 16, 21)  # contents that belong to no cluster: each clip says something of its own


def make_bvcc(root: Path) -> None:
    """Ratings by listener, the means over them, and what each clip says."""
    random = np.random.RandomState(1)
    names = [f"sys{random.randint(16**5):05x}" for _ in range(SYSTEMS)]
    worth = np.linspace(1.6, 4.6, SYSTEMS)
    texts = ["wav_name,transcription,track,cluster,reference"]
    for split, rating_set in RATING_SETS.items():
        ratings, means = [], []
        for system, content in ((s, c) for s in range(SYSTEMS) for c in CONTENTS[split]):
            if random.randint(8) == 0:  # not every system says everything
                continue
            wav = f"{names[system]}-utt{random.randint(16**7):07x}.wav"
            given = [_rating(worth[system], random) for _ in range(RATINGS)]
            for listener, rating in zip(random.permutation(LISTENERS), given, strict=False):
                ratings.append(f"{names[system]},{wav},{rating},x0_1,{{}}_30-39_judge{listener:02d}_Female_Valid_1_No")
            means.append(f"{wav},{sum(given) / RATINGS}")
            cluster = -1 if content in LOOSE else content
            texts.append(f"{wav.removesuffix('.wav')},sentence {content},main,{cluster},sentence {content}")
        write_lines(root / "main/DATA/sets" / rating_set, ratings)
        write_lines(root / "main/DATA/sets" / f"{split}_mos_list.txt", means)
    write_lines(root / "transcriptions_clustered.csv", texts)


def make_vmc23(root: Path) -> None:
    """Two tracks: synthetic speech of two voices, and noisy speech; track 2 is left out, as a lab may lack it."""
    random = np.random.RandomState(2)
    first = [
        f"VoiceMOS2023Track1-{system}-{voice}_test_{content:04d},{_mean(1.8 + 0.5 * place, random)}"
        for place, system in enumerate("FDBEAC")
        for voice in ("AD", "NEB")
        for content in range(1, 7)
    ]
    noises = [("snr-2", "babble", -0.6), ("snr1", "white", -0.2), ("snr4", "street", 0.2)]
    third = [
        f"VoiceMOS2023Track3-{method}_{snr}_{noise}_TMHINT_{speaker}_21_{content:02d},"
        f"{_mean(2.0 + 0.7 * place + shift, random)}"
        for place, method in enumerate(("noisy", "Wiener", "Mask", "Waveform"))
        for snr, noise, shift in noises
        for speaker in ("b2", "g1")
        for content in (1, 2, 3)
    ]
    clean = [f"VoiceMOS2023Track3-TMHINT_{speaker}_21_01,{_mean(4.8, random)}" for speaker in ("b2", "b3", "g1")]
    write_lines(root / "track1_answer.txt", first)
    write_lines(root / "track3_answer.txt", third + clean)


def _rating(worth: float, random: np.random.RandomState) -> int:
    return int(np.clip(np.round(worth + random.uniform(-1.2, 1.2)), 1, 5))


def _mean(worth: float, random: np.random.RandomState) -> float:
    return sum(_rating(worth, random) for _ in range(8)) / 8


# A table with audio ----------------------------------------------------------------------------------------------

PHRASES = {"rise": (0, 4, 7, 12), "fall": (12, 9, 5, 4)}  # semitones above the voice's lowest note
VOICES = {"alto": (220.0, 0.45, 3.0), "bells": (440.0, 0.6, 7.0)}  # lowest note in Hz, brightness, decay
MOS = {"studio": 4.6, "hiss-light": 3.9, "phone": 3.2, "patchy": 2.6, "hiss-heavy": 2.0, "overdrive": 1.4}
VOTES = 9
MISSING = "clips/patchy/alto-fall.flac"  # in the table, not on disk
BROKEN = "clips/hiss-heavy/bells-rise.flac"  # on disk, but no audio

HEADER = ("wav_path", "score", "score_std", "votes", "system_id", "speaker_id", "phrase")
BAD_ROWS = (
    ("clips/studio/alto-third.flac", "good", "0.5", VOTES, "studio", "alto", "third"),
    ("clips/studio/bells-third.flac", "46", "0.5", VOTES, "studio", "bells", "third"),
    ("clips/phone/alto-third.wav", "3.1", "0.6", VOTES, "phone", "", "third"),
    ("clips/studio/alto-rise.flac", "1.5", "0.5", VOTES, "studio", "alto", "rise"),
    ("../../elsewhere/alto-third.flac", "3.0", "0.5", VOTES, "studio", "alto", "third"),
    ("clips/phone/bells-third.wav", "3", "1", "0.6", VOTES, "phone", "bells", "third"),  # a decimal comma: 3,1
)


def make_chimes(root: Path) -> None:
    """Write a table of rated clips as spreadsheets save it, and the clips: the worse the fault, the lower the score."""
    random = np.random.RandomState(3)
    rows: list[Sequence[object]] = []
    for system, mos in MOS.items():
        for voice in VOICES:
            for phrase in PHRASES:
                rate_hz, channels, ending = _format(system, voice)
                name = f"clips/{system}/{voice}-{phrase}.{ending}"
                samples = _faulty(_phrase(voice, phrase, rate_hz), system, rate_hz, random)
                if name == BROKEN:
                    write_lines(root / name, ["This file was damaged on purpose: it holds no audio."])
                elif name != MISSING:
                    # The second channel comes three samples late, so that the two are not the same.
                    sides = [np.roll(samples, 3 * side) for side in range(channels)]
                    sound.write(root / name, np.stack(sides, axis=1), rate_hz)
                score = mos + random.randint(-20, 21) / 100
                rows.append((name, f"{score:.2f}", f"{random.randint(40, 90) / 100}", VOTES, system, voice, phrase))
    rows[8:8] = BAD_ROWS
    lines = [",".join(str(cell) for cell in row) for row in (HEADER, *rows)]
    write_lines(root / "ratings.csv", ["\ufeff" + lines[0], *lines[1:]], end="\r\n")


def _format(system: str, voice: str) -> tuple[int, int, str]:
    """Rate in Hz, channels and ending: a telephone gives mono WAV at 16 kHz, the bells were recorded in stereo."""
    if system == "phone":
        return 16_000, 1, "wav"
    return (24_000, 2, "flac") if voice == "bells" else (16_000, 1, "flac")


def _phrase(voice: str, phrase: str, rate_hz: int) -> sound.Samples:
    lowest_hz, brightness, decay = VOICES[voice]
    mix = np.zeros(rate_hz)
    for place, semitones in enumerate(PHRASES[phrase]):
        frequency_hz = lowest_hz * 2 ** (semitones / 12)
        tone = sound.note(frequency_hz, 0.5, rate_hz, brightness=brightness, decay=decay)
        sound.place(tone, mix, 0.22 * place, rate_hz)
    return sound.at_peak(mix, 0.7)


def _faulty(clean: sound.Samples, system: str, rate_hz: int, random: np.random.RandomState) -> sound.Samples:
    match system:
        case "hiss-light":
            return sound.with_noise(clean, 0.015, random)
        case "hiss-heavy":
            return sound.with_noise(clean, 0.12, random)
        case "phone":
            return sound.low_passed(clean, 1_500, rate_hz)
        case "patchy":
            return sound.with_dropouts(clean, (0.15, 0.35, 0.5, 0.7), 0.06, rate_hz)
        case "overdrive":
            return sound.clipped(clean, 12)
        case _:
            return clean


def write_lines(path: Path, lines: Iterable[str], end: str = "\n") -> None:
    """Write lines as UTF-8, making the folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode())


def main(folder: Path) -> None:
    """Make all three."""
    make_bvcc(folder / "bvcc")
    make_vmc23(folder / "vmc23")
    make_chimes(folder / "chimes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "mos")
