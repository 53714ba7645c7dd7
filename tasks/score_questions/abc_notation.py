"""Read ABC notation strictly into bars of sounding notes, and compare it with known music, bar by bar.

Parsers of ABC forgive most: music21 takes an unknown key for C major and drops bars without a barline. A test of what a
model writes needs the opposite, so any sign outside the standard's tune body is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from fractions import Fraction
from itertools import pairwise

Event = tuple[tuple[int, ...], Fraction]  # MIDI pitches, none for a rest; length in whole notes
Bars = tuple[tuple[Event, ...], ...]

MODES = {"": 0, "maj": 0, "ion": 0, "mix": -1, "dor": -2, "m": -3, "min": -3, "aeo": -3, "phr": -4, "loc": -5, "lyd": 1}
SHARPS = "FCGDAEB"
SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
ACCIDENTALS = {"^^": 2, "^": 1, "=": 0, "_": -1, "__": -2}
TUPLETS = {2: 3, 3: 2, 4: 3, 5: 2, 6: 2, 7: 2, 8: 3, 9: 2}  # notes: in the time of
LOOP = re.compile(r"(.{1,80}?)\1{7,}")  # a unit eight times in a row
MOST_BARS = 10_000  # with rests of many bars; comparing millions takes minutes
LOOP_SHARE = 0.5  # of the text, from which it is a loop
_FIELD = re.compile(r"\[?([A-Za-z]):\s*([^\]\n]*)\]?")
_PITCH = r"(?:\^\^?|__?|=)?[A-Ga-g][,']*"
_LENGTH = r"(\d*(?:/+\d*)?)"
_TOKEN = re.compile(
    rf"(?P<field>\[[A-Za-z]:[^\]\n]*\])|(?P<bar>\|?:+\|?|\|[\]|]?|\[\|)(?P<ending>\s*\[?[12](?=[\s\w(]))?"
    rf"|(?P<chord>\[(?:{_PITCH}[\d/]*\s*)+\]|{_PITCH}|[zxZ])(?P<length>\d*(?:/+\d*)?)(?P<broken>[<>]{{0,3}})"
    r"|\((?P<tuplet>[2-9])(?::\d?:?\d?)?|(?P<skip>[\s\\().~HLMOPSTuvy`-]|![^!\n]*!|\+[^+\n]*\+|\"[^\"\n]*\"|\{[^}\n]*\})"
)


class BadAbc(ValueError):
    """Text that is no ABC."""


@dataclass
class Tune:
    """A tune read from ABC."""

    key: str = ""
    meter: str = ""
    voices: dict[str, Bars] = field(default_factory=dict)

    @property
    def misfits(self) -> int:
        """Return the number of bars longer than the metre, or shorter within the tune."""
        whole = Fraction(self.meter or "4/4")
        lengths = [[sum((event[1] for event in bar), Fraction()) for bar in bars] for bars in self.voices.values()]
        return sum(
            length > whole or (length < whole and 0 < at < len(own) - 1)
            for own in lengths
            for at, length in enumerate(own)
        )


@dataclass
class _Voice:
    bars: list[tuple[Event, ...]] = field(default_factory=list)
    bar: list[Event] = field(default_factory=list)
    accidentals: dict[str, int] = field(default_factory=dict)
    tuplet: tuple[int, Fraction] = (0, Fraction(1))
    broken: Fraction = Fraction(1)

    def end_bar(self) -> None:
        if self.bar:
            self.bars.append(tuple(self.bar))
        self.bar, self.accidentals = [], {}


def read_abc(text: str) -> Tune:
    """Read a tune."""
    reader = _Reader()
    for number, line in enumerate(text.strip().splitlines(), 1):
        try:
            reader.read(line.partition("%")[0].strip())
        except BadAbc as bad:
            raise BadAbc(f"line {number}: {bad}") from None
    for name, voice in reader.voices.items():
        voice.end_bar()
        reader.tune.voices[name] = tuple(voice.bars)
    if not any(reader.tune.voices.values()):
        raise BadAbc("expected notes, found none")
    return reader.tune


class _Reader:
    """Reader of a tune's lines."""

    def __init__(self) -> None:
        self.tune, self.voices = Tune(), dict[str, _Voice]()
        self._now, self._length = "1", ""  # the voice, and the field `L:`
        self._signature: dict[str, int] | None = None

    def read(self, line: str) -> None:
        if found := _FIELD.fullmatch(line):
            self._set(found[1], found[2].strip())
            return
        at = 0
        while at < len(line):
            found = _TOKEN.match(line, at)
            if found is None:
                raise BadAbc(f"expected ABC, found '{line[at : at + 20]}'")
            if self._signature is None:
                raise BadAbc(f"expected a key (K:) before the music, found '{line[:40]}'")
            at = found.end()
            self._take(found)

    def _set(self, letter: str, value: str) -> None:
        if letter == "V" and self._signature is not None and value:  # in the head it only describes a voice
            self._now = value.split()[0]
        elif letter == "M":
            meter = {"C": "4/4", "C|": "2/2"}.get(value, value)
            if not re.fullmatch(r"[1-9]\d{0,2}/[1-9]\d{0,2}", meter):
                raise BadAbc(f"expected a metre such as 3/4, found '{value[:40]}'")
            self.tune.meter = self.tune.meter or meter
        elif letter == "L":
            if not re.fullmatch(r"1(/[1-9]\d{0,3})?", value):
                raise BadAbc(f"expected a length such as 1/8, found '{value[:40]}'")
            self._length = value
        elif letter == "K":
            key, *more = value.split() or [""]
            if more and more[0].isalpha() and more[0].lower()[:3] in MODES:  # the standard allows `K:A minor`
                key += more[0]
            self._signature = signature_of(key)
            self.tune.key = self.tune.key or key

    def _take(self, found: re.Match[str]) -> None:
        if named := found["field"]:
            self._set(named[1], named[3:-1].strip())
            return
        voice = self.voices.setdefault(self._now, _Voice())
        if found["bar"]:
            voice.end_bar()
        elif found["tuplet"]:
            notes = int(found["tuplet"])
            voice.tuplet = (notes, Fraction(TUPLETS[notes], notes))
        elif found["chord"] == "Z":  # bars of rest
            voice.bars += [(((), Fraction(self.tune.meter or "4/4")),)] * int(_times(found["length"]))
            if len(voice.bars) > MOST_BARS:
                raise BadAbc(f"expected at most {MOST_BARS} bars of a voice, found more")
        elif found["chord"]:
            self._add(voice, found["chord"], found["length"], found["broken"])

    def _add(self, voice: _Voice, written: str, length: str, broken: str) -> None:
        chord = written.startswith("[")
        notes = re.findall(rf"({_PITCH}){_LENGTH}", written[1:-1] if chord else written)
        pitches = tuple(sorted(self._midi(voice, pitch) for pitch, _ in notes))
        left, factor = voice.tuplet
        whole = self._unit * _times(length) * (factor if left else 1) * voice.broken
        whole *= _times(notes[0][1]) if chord else 1
        voice.tuplet, voice.broken = (max(0, left - 1), factor), Fraction(1)
        if broken:
            short = Fraction(1, 2 ** len(broken))
            here, voice.broken = (2 - short, short) if broken[0] == ">" else (short, 2 - short)
            whole *= here
        voice.bar.append((pitches, whole))

    @property
    def _unit(self) -> Fraction:
        """Return the unit of lengths; by the standard an eighth, in metres below 3/4 a sixteenth."""
        short = self.tune.meter and Fraction(self.tune.meter) < Fraction(3, 4)
        return Fraction(self._length or ("1/16" if short else "1/8"))

    def _midi(self, voice: _Voice, written: str) -> int:
        letter = written.strip("^_=,'")
        sign, marks = written.split(letter)
        octave = 5 + letter.islower() + marks.count("'") - marks.count(",")
        name = f"{letter.upper()}{octave}"
        if sign:
            voice.accidentals[name] = ACCIDENTALS[sign]
        signed = (self._signature or {}).get(letter.upper(), 0)
        return 12 * octave + SEMITONES[letter.upper()] + voice.accidentals.get(name, signed)


def signature_of(key: str) -> dict[str, int]:
    """Return the sharps (1) and flats (-1) of a key by letter."""
    found = re.fullmatch(r"([A-G])([#b]?)([A-Za-z]*)", key)
    mode = found[3].lower()[:3] if found else ""
    if found is None or mode not in MODES:
        raise BadAbc(f"expected a key such as G or Dm, found '{key[:40]}'")
    fifths = SHARPS.index(found[1]) - 1 + {"#": 7, "b": -7, "": 0}[found[2]] + MODES[mode]
    letters = SHARPS[:fifths] if fifths >= 0 else SHARPS[::-1][:-fifths]
    return dict.fromkeys(letters, 1 if fifths > 0 else -1)


def _times(length: str) -> Fraction:
    above, strokes, below = re.findall(r"(\d*)(/*)(\d*)", length)[0]
    plausible = len(above) <= 3 and len(strokes) <= 8 and len(below) <= 4  # a model in a loop writes thousands
    divisor = int(below or 2 ** len(strokes)) if plausible else 0
    if not divisor:
        raise BadAbc(f"expected a length, found '{length[:20]}'")
    return Fraction(int(above or 1), divisor)


@dataclass(frozen=True)
class Faithfulness:
    """Known bars by their fate in a model's ABC."""

    known: int = 0
    same: int = 0
    altered: int = 0
    omitted: int = 0
    added: int = 0
    repeated: int = 0  # of the added, those that repeat a bar beside them

    def __add__(self, other: Faithfulness) -> Faithfulness:
        return Faithfulness(*(one + two for one, two in zip(vars(self).values(), vars(other).values(), strict=True)))


def compare_bars(known: Tune, found: Tune) -> Faithfulness:
    """Align the bars of each voice, in the order of the voices; a missing voice is omitted whole."""
    theirs = [*found.voices.values()]
    total = Faithfulness()
    for at, bars in enumerate(known.voices.values()):
        total += _aligned(bars, theirs[at] if at < len(theirs) else ())
    return total + Faithfulness(added=sum(map(len, theirs[len(known.voices) :])))


def _aligned(known: Bars, found: Bars) -> Faithfulness:
    total = Faithfulness(known=len(known))
    for kind, start, end, first, last in SequenceMatcher(None, known, found, autojunk=False).get_opcodes():
        ours, theirs = end - start, last - first
        if kind == "equal":
            total += Faithfulness(same=ours)
            continue
        repeated = sum(one == two for one, two in pairwise(found[max(0, first - 1) : last + 1]))
        both, added = min(ours, theirs), max(0, theirs - ours)
        total += Faithfulness(altered=both, omitted=ours - both, added=added, repeated=min(added, repeated))
    return total


def loops(text: str) -> bool:
    """Return whether most of a text is a short unit over and over."""
    packed = "".join(text.split())
    return any(len(found[0]) >= LOOP_SHARE * len(packed) for found in LOOP.finditer(packed))


def tune_in(answer: str) -> str:
    """Return the ABC in a model's answer: what its first fence holds, else all of it."""
    fenced: Sequence[str] = re.findall(r"```[a-zA-Z]*\n(.*?)(?:```|\Z)", answer, re.DOTALL)
    return (fenced[0] if fenced else answer).strip()
