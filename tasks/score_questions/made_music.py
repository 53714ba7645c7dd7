"""Make music with known facts: pieces by seed, as ABC, as an engraved picture, and as questions about them.

Verovio engraves: it is a wheel where abcm2ps and LilyPond are a system's programs, and its SVG has a class for each
sign, by which the tests count what was drawn.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree import ElementTree

from earmark.schemas.errors import MissingExtraError

CLEFS = {"treble": ("G", 2, 34), "bass": ("F", 4, 22), "alto": ("C", 3, 28), "tenor": ("C", 4, 26)}
"""Shape, line, and the middle line's step (7 an octave, C4 is 28)."""
STAVES = (("treble",), ("bass",), ("alto",), ("tenor",), ("treble", "bass"), ("treble", "alto", "bass"))
METERS = ((2, 4), (3, 4), (4, 4), (5, 4), (3, 8), (6, 8), (9, 8), (2, 2))
KEYS = ("Db", "Ab", "Eb", "Bb", "F", "C", "G", "D", "A", "E", "B")  # from five flats to five sharps
LENGTHS = {1: ("8", 0), 2: ("4", 0), 3: ("4", 1), 4: ("2", 0), 6: ("2", 1), 8: ("1", 0)}  # eighths: value and dots
INTERVALS = ("unison", "second", "third", "fourth")  # no voice leaps further
BARS = (3, 12)  # the fewest and the most
PIXELS = 1200  # width of a picture


class MadeNote(NamedTuple):
    """A note or rest."""

    step: int | None  # its step, as in `CLEFS`; None for a rest
    length: int  # eighths
    staccato: bool = False
    slur: str = ""  # `(` begins a slur, `)` ends it


Bar = tuple[MadeNote, ...]


@dataclass(frozen=True)
class MadePiece:
    """A piece without accidentals beside its key signature."""

    clefs: tuple[str, ...]
    key: str  # major
    meter: tuple[int, int]
    staves: tuple[tuple[Bar, ...], ...]  # the bars of each staff

    @property
    def notes(self) -> list[MadeNote]:
        """Return the notes and rests of all staves."""
        return [note for bars in self.staves for bar in bars for note in bar]


class Fact(NamedTuple):
    """A question about a piece, with the right answer and three wrong ones."""

    name: str
    question: str
    truth: str
    others: tuple[str, ...]


def compose(seed: int, number: int) -> MadePiece:
    """Make a piece; its first staff begins with two notes."""
    draw = random.Random(f"{seed} {number}")
    clefs, meter, bars = draw.choice(STAVES), draw.choice(METERS), draw.randint(*BARS)
    staves = []
    for clef in clefs:
        middle = CLEFS[clef][2]
        step, own = middle + draw.randint(-3, 3), list[Bar]()
        for place in range(bars):
            bar, left = list[MadeNote](), meter[0] * 8 // meter[1]
            while left:
                length = draw.choice([one for one in LENGTHS if one <= left and (one < left or bar)])
                step = min(max(step + draw.randint(-3, 3), middle - 5), middle + 5)
                rest = draw.random() < 0.15 and (place or len(bar) > 1)
                bar.append(MadeNote(None, length) if rest else MadeNote(step, length, draw.random() < 0.15))
                left -= length
            own.append(_slurred(bar, draw))
        staves.append(tuple(own))
    return MadePiece(clefs, draw.choice(KEYS), meter, tuple(staves))


def _slurred(bar: list[MadeNote], draw: random.Random) -> Bar:
    """Put a slur over two notes of a bar, now and then; over the same note twice it would be a tie."""
    steps = [note.step for note in bar]
    pairs = [at for at in range(len(bar) - 1) if None not in steps[at : at + 2] and steps[at] != steps[at + 1]]
    if pairs and draw.random() < 0.3:
        at = draw.choice(pairs)
        bar[at : at + 2] = bar[at]._replace(slur="("), bar[at + 1]._replace(slur=")")
    return tuple(bar)


def as_abc(piece: MadePiece) -> str:
    """Write a piece in ABC notation."""
    head = ["X:1", "M:{}/{}".format(*piece.meter), "L:1/8"]
    head += [f"V:{number} clef={clef}" for number, clef in enumerate(piece.clefs, 1)]
    voices = [
        f"V:{number}\n{' | '.join(' '.join(map(_abc_note, bar)) for bar in bars)} |]"
        for number, bars in enumerate(piece.staves, 1)
    ]
    return "\n".join([*head, f"K:{piece.key}", *voices, ""])


def _abc_note(note: MadeNote) -> str:
    if note.step is None:
        name = "z"
    else:
        octave, step = divmod(note.step, 7)
        name = "CDEFGAB"[step] + "," * (4 - octave) if octave < 5 else "cdefgab"[step] + "'" * (octave - 5)
    opens, closes = note.slur == "(", note.slur == ")"
    return f"{'(' * opens}{'.' * note.staccato}{name}{note.length if note.length > 1 else ''}{')' * closes}"


def as_mei(piece: MadePiece) -> str:
    """Write a piece in MEI, for an engraver."""
    root = ElementTree.Element("mei", xmlns="http://www.music-encoding.org/ns/mei")
    score = _below(root, "music", "body", "mdiv", "score")
    fifths = KEYS.index(piece.key) - KEYS.index("C")
    signature = f"{abs(fifths)}{'f' if fifths < 0 else 's'}" if fifths else "0"
    count, unit = map(str, piece.meter)
    head = {"keysig": signature, "meter.count": count, "meter.unit": unit, "mnum.visible": "false"}
    group = ElementTree.SubElement(
        ElementTree.SubElement(score, "scoreDef", head), "staffGrp", {"bar.thru": "true", "symbol": "bracket"}
    )
    for number, clef in enumerate(piece.clefs, 1):
        shape, line, _ = CLEFS[clef]
        about = {"n": str(number), "lines": "5", "clef.shape": shape, "clef.line": str(line)}
        ElementTree.SubElement(group, "staffDef", about)
    section, last = ElementTree.SubElement(score, "section"), len(piece.staves[0])
    for place in range(last):
        right = {"right": "end"} if place + 1 == last else {}
        measure = ElementTree.SubElement(section, "measure", {"n": str(place + 1), **right})
        for number, bars in enumerate(piece.staves, 1):
            layer = ElementTree.SubElement(ElementTree.SubElement(measure, "staff", n=str(number)), "layer", n="1")
            for at, note in enumerate(bars[place]):
                name = f"n{number}-{place}-{at}"
                _mei_note(layer, note, name)
                if note.slur == "(":
                    ends = {"startid": f"#{name}", "endid": f"#n{number}-{place}-{at + 1}"}
                    ElementTree.SubElement(measure, "slur", ends)
    return ElementTree.tostring(root, encoding="unicode")


def _below(element: ElementTree.Element, *names: str) -> ElementTree.Element:
    for name in names:
        element = ElementTree.SubElement(element, name)
    return element


def _mei_note(layer: ElementTree.Element, note: MadeNote, name: str) -> None:
    value, dots = LENGTHS[note.length]
    about = {"xml:id": name, "dur": value, **({"dots": str(dots)} if dots else {})}
    if note.step is None:
        ElementTree.SubElement(layer, "rest", about)
        return
    about |= {"pname": "cdefgab"[note.step % 7], "oct": str(note.step // 7)}
    ElementTree.SubElement(layer, "note", {**about, **({"artic": "stacc"} if note.staccato else {})})


def engrave(piece: MadePiece) -> tuple[str, bytes]:
    """Engrave a piece by Verovio: SVG, and a PNG of it."""
    try:
        import resvg_py
        import verovio
    except ImportError:
        raise MissingExtraError("a picture of made music", "scores") from None
    verovio.enableLog(verovio.LOG_ERROR)
    toolkit = verovio.toolkit()
    page = {"adjustPageHeight": True, "pageHeight": 60_000, "pageWidth": 1800, "header": "none", "footer": "none"}
    toolkit.setOptions({**page, "breaks": "auto", "xmlIdSeed": 1, "inputFrom": "mei"})
    toolkit.loadData(as_mei(piece))
    svg: str = toolkit.renderToSVG(1)
    return svg, bytes(resvg_py.svg_to_bytes(svg_string=svg, background="white", width=PIXELS))


def perceived(piece: MadePiece, draw: random.Random) -> list[Fact]:
    """Ask about what is written: no rule of music is needed."""
    notes = piece.notes
    values = {
        "clef": piece.clefs[0],
        "key signature": _signature(KEYS.index(piece.key) - KEYS.index("C")),
        "time signature": _meter(piece.meter),
        "staves": len(piece.clefs),
        "bars": len(piece.staves[0]),
        "staccato dots": sum(note.staccato for note in notes),
        "slurs": sum(note.slur == "(" for note in notes),
        "rests": sum(note.step is None for note in notes),
    }
    return facts_of({name: str(value) for name, value in values.items()}, draw)


def facts_of(values: Mapping[str, str], draw: random.Random) -> list[Fact]:
    """Ask for facts about a picture, given by name."""
    top = "" if values.get("staves") == "1" else " of the top staff"
    asked: dict[str, tuple[str, Iterable[str]]] = {
        "clef": (f"Which clef stands at the beginning{top}?", CLEFS),
        "key signature": ("What does the key signature show?", map(_signature, range(-5, 6))),
        "time signature": ("Which time signature is written?", map(_meter, METERS)),
        "staves": ("How many staves does a system have?", "1234"),
    }
    return [
        _fact(name, *asked[name], value, draw)
        if name in asked
        else _fact(name, f"How many {name} are there in all?", map(str, _near(int(value), draw)), value, draw)
        for name, value in values.items()
    ]


def reasoned(piece: MadePiece, draw: random.Random) -> list[Fact]:
    """Ask about what follows by a rule of music from what is written."""
    first, second = (note.step or 0 for note in piece.staves[0][0][:2])
    top = " of the top staff" if len(piece.clefs) > 1 else ""
    eighths = piece.meter[0] * 8 // piece.meter[1]
    return [
        _fact(
            "key",
            "In which major key is it, by its key signature?",
            (f"{key} major" for key in KEYS),
            f"{piece.key} major",
            draw,
        ),
        _fact(
            "interval",
            f"Which interval do the first two notes{top} form?",
            INTERVALS,
            INTERVALS[abs(first - second)],
            draw,
        ),
        _fact(
            "beats",
            "How many eighth notes fill a bar of this time signature?",
            map(str, _near(eighths, draw)),
            str(eighths),
            draw,
        ),
    ]


def _fact(name: str, question: str, answers: Iterable[str], truth: str, draw: random.Random) -> Fact:
    """Draw three wrong answers."""
    return Fact(name, question, truth, tuple(draw.sample([one for one in answers if one != truth], 3)))


def _near(count: int, draw: random.Random) -> Sequence[int]:
    """Return four numbers in a row; from 3 on, a count's place among them tells nothing."""
    low = max(0, count - draw.randint(0, 3))
    return range(low, low + 4)


def _signature(fifths: int) -> str:
    kind = "flat" if fifths < 0 else "sharp"
    return f"{abs(fifths)} {kind}{'s' if abs(fifths) > 1 else ''}" if fifths else "no sharps or flats"


def _meter(meter: tuple[int, int]) -> str:
    return f"{meter[0]}/{meter[1]}"
