"""Make the demo inputs of `instrumentals`: a list of tagged tracks, and their audio: a sung-like lead over a band.

    python data/demo/make_tracks.py [FOLDER]

Writes below FOLDER, by default `tracks` beside this script:
    tracks.tsv      in MTG-Jamendo's layout, tags running on as further columns; some rows cannot be used
    tag_map.json    synonyms of tags
    audio/          the tracks, stereo
    leads/          the lead of each alone, to measure how much of it a separator leaves

The same bytes each run: everything is drawn from fixed seeds.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sound

RATE_HZ = 22_050
SECONDS = 4.0
VOWELS = {"a": (800.0, 1150.0, 2900.0), "e": (400.0, 1700.0, 2600.0), "o": (450.0, 800.0, 2830.0)}  # formants, Hz


class DemoTrack(NamedTuple):
    """A track of the list."""

    number: int
    artist: int
    lowest_hz: float
    bpm: float
    vowels: str
    tags: tuple[str, ...]


TRACKS = (
    DemoTrack(
        1009, 3, 196.0, 92, "aeo", ("genre---pop", "instrument---voice", "instrument---guitar", "mood/theme---calm")
    ),
    DemoTrack(1014, 3, 220.0, 116, "ao", ("genre---punk", "instrument---guitar")),
    DemoTrack(2027, 8, 164.8, 84, "oea", ("genre---folk", "instrument---voice", "mood/theme---sad")),
    DemoTrack(2031, 8, 246.9, 128, "ea", ("genre---pop", "genre---electronic", "mood/theme---happy")),
    DemoTrack(3050, 15, 207.7, 104, "aoe", ("genre---jazz",)),
)
STEPS = (0, 4, 7, 9, 7, 4, 2, 0)  # of the melody, in semitones


def sung(track: DemoTrack, length: int) -> sound.Samples:
    """Return a voice-like line: a buzz with vibrato, shaped by the formants of vowels, a note a beat."""
    time = np.arange(length) / RATE_HZ
    beat = np.floor(time * track.bpm / 60).astype(int)
    pitch = track.lowest_hz * 2 ** (np.array(STEPS)[beat % len(STEPS)] / 12)
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.012 * np.sin(2 * np.pi * 5.5 * time))) / RATE_HZ
    line = np.zeros(length)
    for overtone in range(1, 24):
        shape = np.zeros(length)
        for at, vowel in enumerate(track.vowels):
            here = beat % len(track.vowels) == at
            near = sum(np.exp(-(((overtone * pitch - formant) / 160) ** 2)) for formant in VOWELS[vowel])
            shape[here] = (near + 0.12 / overtone)[here]
        line += np.where(overtone * pitch < 0.45 * RATE_HZ, shape, 0) * np.sin(overtone * phase)
    within = time * track.bpm / 60 % 1
    return sound.at_peak(line * np.minimum(1, within / 0.08) * np.minimum(1, (1 - within) / 0.15), 0.4)


def played(track: DemoTrack, length: int, side: int) -> sound.Samples:
    """Return a band on one side: its own chord notes on each side, so that nothing of it stands in the middle."""
    band = np.zeros(length)
    for beat in range(int(SECONDS * track.bpm / 60)):
        step = (0, 7, 3, 10)[(beat + 2 * side) % 4] + 12 * side
        struck = sound.note(track.lowest_hz / 2 * 2 ** (step / 12), 1.2, RATE_HZ, brightness=0.6, decay=3.0 + 2 * side)
        sound.place(struck, band, (beat + 0.5 * side) * 60 / track.bpm, RATE_HZ)
    return sound.at_peak(band, 0.35)


def mixed(track: DemoTrack) -> tuple[np.ndarray, sound.Samples]:
    """Return the stereo track (frames, 2), and its lead alone (frames,)."""
    length = round(SECONDS * RATE_HZ)
    lead, left, right = sung(track, length), played(track, length, 0), played(track, length, 1)
    return np.stack([lead + 0.9 * left + 0.1 * right, lead + 0.1 * left + 0.9 * right], axis=1), lead


def path_of(number: int) -> str:
    """Return MTG-Jamendo's path of a track: below the last two digits of its number."""
    return f"{number % 100:02d}/{number}.flac"


def row(number: int, artist: int, duration: str, *tags: str) -> str:
    """Return a line of the list."""
    cells = (f"track_{number:07d}", f"artist_{artist:06d}", f"album_{artist:06d}", path_of(number), duration, *tags)
    return "\t".join(cells)


def make(folder: Path) -> None:
    """Write all inputs; an older folder is removed first."""
    shutil.rmtree(folder, ignore_errors=True)
    lines = ["\t".join(("TRACK_ID", "ARTIST_ID", "ALBUM_ID", "PATH", "DURATION", "TAGS"))]
    for track in TRACKS:
        mix, lead = mixed(track)
        sound.write(folder / "audio" / path_of(track.number), mix, RATE_HZ)
        sound.write(folder / "leads" / f"{track.number}.flac", lead, RATE_HZ)
        lines.append(row(track.number, track.artist, f"{SECONDS:g}", *track.tags))
    audio = folder / "audio"
    twin, cut, still, words, mono = (path_of(number) for number in (4060, 4061, 4062, 4063, 4064))
    for name in (twin, cut, still, words, mono):
        (audio / name).parent.mkdir(parents=True, exist_ok=True)
    first = (audio / path_of(TRACKS[0].number)).read_bytes()
    (audio / twin).write_bytes(first)
    (audio / cut).write_bytes(first[: len(first) // 3])
    sound.write(audio / still, np.zeros((RATE_HZ * 3, 2)), RATE_HZ)
    (audio / words).write_text("this is no audio\n")
    sound.write(audio / mono, mixed(TRACKS[1])[0].mean(axis=1), RATE_HZ)
    lines += [
        row(4060, 20, "4", "genre---pop"),  # the bytes of the first track
        row(4061, 20, "4", "genre---pop"),  # ends in the middle
        row(4062, 20, "3", "genre---ambient"),  # silence
        row(4063, 20, "4", "genre---pop"),  # no audio
        row(4064, 20, "4", "genre---rock"),  # mono: a separator that needs two sides cannot take it
        row(4065, 21, "4", "genre---pop"),  # not there
        row(4066, 21, "4", "colour---blue"),  # a tag of no known category
        row(1009, 3, "4", "genre---pop"),  # named before
        "track_0004067\tartist_000021\talbum_000021\t../../secret.flac\t4\tgenre---pop",
    ]
    (folder / "tracks.tsv").write_bytes("\r\n".join([*lines, ""]).encode())
    (folder / "tag_map.json").write_text(json.dumps({"genre": {"punk": "punkrock"}}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "tracks")
