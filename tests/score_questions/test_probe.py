"""Made music: known facts against what the engraver drew, ABC there and back, ten kinds of damage, causes of errors."""

from __future__ import annotations

import base64
import csv
import json
import random
import re
import shutil
import subprocess
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.evaluations import Examinee
from earmark.schemas.score_questions import CATEGORIES
from earmark.tasks.evaluation.reading import read as read_scores
from earmark.tasks.evaluation.released import released
from earmark.tasks.evaluation.samples import MeasurementOptions
from earmark.tasks.score_questions.abc_notation import read_abc, signature_of
from earmark.tasks.score_questions.made_music import CLEFS, KEYS, MadePiece, as_abc, compose, perceived, reasoned
from earmark.tasks.score_questions.probe import judged, reconstruct, split_errors, summary, write_probe
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import model_server
from tests.conftest import ROOT
from tests.servers.openai_server import OpenAIServer

TUNE = """X:1
M:3/4
L:1/8
V:1 clef=treble
V:2 clef=bass
K:G
V:1
G2 A2 B2 | (c>B) A2 F2 | [GB]4 z2 | (3abc d2 e2 | G6 |]
V:2
G,2 D,2 B,2 | A,4 D,2 | G,6 | D,2 C,2 B,,2 | G,,6 |]
"""


def sounding(piece: MadePiece) -> list[tuple[tuple[tuple[tuple[int, ...], Fraction], ...], ...]]:
    """The bars of each staff as MIDI pitches, by an own rule: a chain of fifths gives each letter's place."""
    fifths = KEYS.index(piece.key) - KEYS.index("C")
    letters = (
        {"FCGDAEB"[at % 7]: 1 for at in range(fifths)} if fifths > 0 else {"BEADGCF"[at]: -1 for at in range(-fifths)}
    )
    semitones = dict(zip("CDEFGAB", (0, 2, 4, 5, 7, 9, 11), strict=True))
    staves = []
    for bars in piece.staves:
        own = []
        for bar in bars:
            notes: list[tuple[tuple[int, ...], Fraction]] = []
            for note in bar:
                letter = "CDEFGAB"[(note.step or 0) % 7]
                pitch = 12 * ((note.step or 0) // 7 + 1) + semitones[letter] + letters.get(letter, 0)
                notes.append(((pitch,) if note.step is not None else (), Fraction(note.length, 8)))
            own.append(tuple(notes))
        staves.append(tuple(own))
    return staves


def test_a_hundred_pieces_come_back_from_abc() -> None:
    for number in range(100):
        piece = compose(5, number)
        tune = read_abc(as_abc(piece))
        assert [*tune.voices.values()] == sounding(piece)
        assert tune.misfits == 0
        assert (tune.key, tune.meter) == (piece.key, "{}/{}".format(*piece.meter))
        assert judged(as_abc(piece), as_abc(piece))["same"] == sum(map(len, piece.staves))


def test_abc_is_read_by_the_standard() -> None:
    voices = read_abc(TUNE).voices
    half, quarter, eighth = Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)
    assert voices["1"][1] == (((72,), eighth * 3 / 2), ((71,), eighth / 2), ((69,), quarter), ((66,), quarter))
    assert voices["1"][2] == (((67, 71), half), ((), quarter))
    assert voices["1"][3][:3] == tuple(((pitch,), Fraction(1, 12)) for pitch in (81, 83, 72))
    held = read_abc("L:1/4\nM:4/4\nK:Dm\n^F F =B B | F/ _E3/ z2 |1 [K:A]c4 :|2 Z2 |]").voices["1"]
    assert [pitch for bar in held for pitches, _ in bar for pitch in pitches] == [66, 66, 71, 71, 65, 63, 73]
    assert [len(bar) for bar in held] == [4, 3, 1, 1, 1]
    for key, count in {"C": 0, "F#m": 3, "Bbmaj": -2, "Ddor": 0, "Cb": -7, "Emix": 3}.items():
        assert sum(signature_of(key).values()) == count


@pytest.mark.parametrize(
    ("key", "sharps"),
    [("A minor", 0), ("A Minor clef=bass", 0), ("F# mixolydian", 5), ("Bb dor", -4), ("E m", 1), ("C maj", 0),
     ("A clef=bass", 3), ("A bass", 3), ("A alto", 3), ("D treble", 2), ("Dm treble", -1)],
)  # fmt: skip
def test_a_mode_may_stand_after_a_space(key: str, sharps: int) -> None:
    letters = "FCGDAEB"
    played = [pitches[0] % 12 for pitches, _ in read_abc(f"K:{key}\nFCGDAEB|").voices["1"][0]]
    plain = [5, 0, 7, 2, 9, 4, 11]
    altered = {letters[at]: 1 for at in range(sharps)} if sharps > 0 else {letters[at]: -1 for at in range(sharps, 0)}
    assert played == [(pitch + altered.get(letter, 0)) % 12 for letter, pitch in zip(letters, plain, strict=True)]


def without(text: str, *parts: str) -> str:
    for part in parts:
        assert part in text, part
        text = text.replace(part, "", 1)
    return text


DAMAGE: dict[str, tuple[str, dict[str, Any]]] = {
    "no key": (without(TUNE, "K:G\n"), {"end": "invalid"}),
    "prose": ("The score shows a lively dance in G major.", {"end": "invalid"}),
    "an open chord": (TUNE.replace("[GB]4", "[GB4"), {"end": "invalid"}),
    "an unknown key": (TUNE.replace("K:G", "K:H"), {"end": "invalid"}),
    "a bar left out": (without(TUNE, "[GB]4 z2 | "), {"same": 9, "omitted": 1, "added": 0, "altered": 0}),
    "a bar twice": (TUNE.replace("A,4 D,2 |", "A,4 D,2 | A,4 D,2 |"), {"same": 10, "added": 1, "repeated": 1}),
    "a wrong pitch": (TUNE.replace("G,,6", "A,,6"), {"same": 9, "altered": 1, "omitted": 0}),
    "a wrong length": (TUNE.replace("[GB]4", "[GB]3"), {"same": 9, "altered": 1, "misfits": 1}),
    "a wrong signature": (TUNE.replace("K:G", "K:C"), {"same": 9, "altered": 1, "key_right": False}),
    "a wrong metre": (TUNE.replace("M:3/4", "M:2/4"), {"same": 10, "meter_right": False, "misfits": 10}),
    "a staff left out": (TUNE[: TUNE.rindex("V:2")], {"same": 5, "omitted": 5, "altered": 0}),
    "a loop": ("M:4/4\nL:1/4\nK:G\n" + "[GBd] [GBd] | " * 40, {"end": "loop"}),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_known_damage_is_found(kind: str) -> None:
    text, found = DAMAGE[kind]
    about = judged(TUNE, f"Here it is:\n```abc\n{text}\n```\n")
    assert {name: about.get(name) for name in found} == found
    whole = judged(TUNE, TUNE)
    assert (whole["end"], whole["same"], whole["misfits"]) == ("valid", 10, 0)
    assert {name: whole.get(name) for name in found} != found


@pytest.mark.parametrize(
    "line",
    [f"C{'8' * 5000}|", f"C/{'8' * 5000}|", f"[C{'8' * 5000}E]|", f"Z{'9' * 30}|", "Z999|" * 4000,
     f"M:{'9' * 5000}/4", f"L:1/{'9' * 5000}"],
)  # fmt: skip
def test_numbers_of_a_model_in_a_loop_are_no_abc(line: str) -> None:
    assert judged(TUNE, f"M:4/4\nK:C\n{line}\nC4 D4|")["end"] in ("invalid", "loop")
    assert "detail" in judged(TUNE, f"M:4/4\nK:C\n{line}\nC4 D4|")


@pytest.mark.skipif(shutil.which("abc2midi") is None, reason="needs abc2midi (Debian: abcmidi)")
def test_abc2midi_plays_the_same_notes(tmp_path: Path) -> None:
    """A second reader of ABC: the pitches and onsets that it plays, in eighths."""
    for number in range(20):
        piece, at = compose(6, number), Fraction(1, 8)
        (tmp_path / "tune.abc").write_text(as_abc(piece))
        ran = ["abc2midi", str(tmp_path / "tune.abc"), "-o", str(tmp_path / "tune.mid")]
        said = subprocess.run(ran, capture_output=True, text=True, check=True).stdout
        assert not re.search("Error|Warning", said), said
        ran = ["mftext", str(tmp_path / "tune.mid")]
        played = subprocess.run(ran, capture_output=True, text=True, check=True).stdout
        notes = re.findall(r"Time=(\d+)\s+Note on, chan=\d+ pitch=(\d+)", played)
        ours = []
        for bars in read_abc(as_abc(piece)).voices.values():
            onset = Fraction(0)
            for pitches, length in (event for bar in bars for event in bar):
                ours += [(onset / at, pitch) for pitch in pitches]
                onset += length
        assert sorted((Fraction(round(int(time) / 240)), int(pitch)) for time, pitch in notes) == sorted(ours)


def drawn(svg: str) -> dict[str, str]:
    """The facts of a picture, counted in what the engraver drew and not in the music."""
    count = Counter(re.findall(r'class="([a-zA-Z]+)', svg))
    systems = count["system"]
    glyphs = [found[1] for found in re.finditer(r'class="clef"[^>]*>\s*<use [^>]*href="#(E0\w\w)', svg)]
    first = re.search(r'class="clef"[^>]*>\s*<use [^>]*href="#(E0\w\w)[^>]*?translate\((\d+), (\d+)\)', svg)
    assert first
    assert glyphs
    digits = re.findall(r"#E08(\d)", svg[svg.index('class="meterSig') :])
    flats = "#E260" in svg
    accidentals = count["keyAccid"] // (count["staff"] // count["measure"]) // systems
    return {
        "clef": first[1],
        "key signature": f"{accidentals} {'flat' if flats else 'sharp'}{'s' * (accidentals > 1)}"
        if accidentals
        else "no sharps or flats",
        "time signature": f"{digits[0]}/{digits[1]}",
        "staves": str(count["staff"] // count["measure"]),
        "bars": str(count["measure"]),
        "staccato dots": str(count["artic"]),
        "slurs": str(count["slur"]),
        "rests": str(count["rest"]),
    }


def test_what_is_asked_is_what_is_drawn() -> None:
    """An oracle that reads the engraved picture is always right."""
    made_music = pytest.importorskip("earmark.tasks.score_questions.made_music")
    pytest.importorskip("verovio", reason="needs earmark[scores]")
    glyphs = {"G": "E050", "F": "E062", "C": "E05C"}
    for number in range(12):
        piece, draw = compose(7, number), random.Random(number)
        seen = drawn(made_music.engrave(piece)[0])
        for fact in perceived(piece, draw):
            truth = glyphs[CLEFS[fact.truth][0]] if fact.name == "clef" else fact.truth
            assert seen[fact.name] == truth, (number, fact)
            assert len({fact.truth, *fact.others}) == 4


def test_reasoning_follows_by_rule() -> None:
    piece = MadePiece(("treble",), "Eb", (6, 8), compose(0, 0).staves)
    facts = {fact.name: fact for fact in reasoned(piece, random.Random(0))}
    assert facts["key"].truth == "Eb major"
    assert facts["beats"].truth == "6"


def test_no_place_in_order_is_more_often_right() -> None:
    """Options by size, or intervals by width: a model that sees nothing gains nothing by choosing one of the middle."""
    words = ["unison", "second", "third", "fourth", "fifth", "sixth", "seventh", "octave"]
    places: dict[str, Counter[int]] = {}
    for number in range(400):
        draw = random.Random(number)
        for fact in (*perceived(compose(8, number), draw), *reasoned(compose(8, number), draw)):
            if fact.name == "interval" or (fact.truth.isdecimal() and fact.name != "staves" and int(fact.truth) >= 3):
                order = words.index if fact.name == "interval" else int
                place = sorted((fact.truth, *fact.others), key=order).index(fact.truth)
                places.setdefault(fact.name, Counter())[place] += 1
    assert places.keys() == {"bars", "staccato dots", "slurs", "rests", "beats", "interval"}
    shares = {name: [own[place] / own.total() for place in range(4)] for name, own in places.items()}
    assert max(shares.pop("interval")) < 0.35
    assert all(0.15 < share < 0.35 for own in shares.values() for share in own), shares


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A probe of twelve pictures."""
    pytest.importorskip("verovio", reason="needs earmark[scores]")
    folder = tmp_path_factory.mktemp("probe") / "out"
    assert write_probe(folder, 12, 3) == {"images": 12, "perception": 96, "reasoning": 36}
    return folder


def measured(table: Path, folder: Path, choices: dict[str, str]) -> tuple[dict[str, Any], Path]:
    """A file of choices, measured as a model's answers."""
    folder.mkdir()
    lines = ["id,choice", *(f"{name},{choice}" for name, choice in choices.items())]
    (folder / "choices.csv").write_text("\n".join(lines))
    store = Store(folder / "store")
    with released(table, "wildscore", store, ()) as (version, corpus):
        return read_scores(
            version, corpus, store, folder / "choices.csv", MeasurementOptions("questions"), folder / "run"
        )


def truths(table: Path) -> dict[str, str]:
    """The right letters by id: the picture's name, and from its second question on a number."""
    seen, found = Counter[str](), {}
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            name = Path(row["image"]).stem
            seen[name] += 1
            found[name if seen[name] == 1 else f"{name}-{seen[name]}"] = row["truth_letter"]
    return found


def test_an_oracle_is_right_and_a_coin_as_often_as_its_interval(probe: Path, tmp_path: Path) -> None:
    right = truths(probe / "data.csv")
    assert Counter(right.values()) == dict.fromkeys("ABCD", 24)
    facts, _ = measured(probe, tmp_path / "oracle", right)
    assert facts["rows"][0]["metrics"]["accuracy"]["value"] == 1.0
    assert {row["value"] for row in facts["rows"] if row["group"] == "subcategory"} > {"clef", "bars", "slurs"}
    draw = random.Random(1)
    facts, _ = measured(probe, tmp_path / "coin", {name: draw.choice("ABCD") for name in right})
    hits = round(facts["rows"][0]["metrics"]["accuracy"]["value"] * len(right))
    ends = binomtest(hits, len(right)).proportion_ci()
    assert ends.low < 0.25 < ends.high


def test_errors_are_split_by_what_was_perceived(probe: Path, tmp_path: Path) -> None:
    """In closed form: every picture's first question is wrong; of its eight facts one is misread in three pictures, and
    two in another."""
    facts, asked = truths(probe / "data.csv"), truths(probe / "reasoning.csv")
    turned = dict(zip("ABCD", "BCDA", strict=True))
    misread = {name: turned[facts[name]] for name in ("0000", "0003-2", "0007-8", "0011", "0011-4")}
    wrong = {name: turned[letter] for name, letter in asked.items() if "-" not in name}
    _, probed = measured(probe, tmp_path / "facts", {**facts, **misread})
    _, run = measured(probe / "reasoning.csv", tmp_path / "asked", {**asked, **wrong})
    split, folder = split_errors([("ours", run, probed)], tmp_path / "causes")
    counts = {
        "questions": 36,
        "wrong": 12,
        "perception": 5 / 8,
        "reasoning": 12 - 5 / 8,
        "unknown": 0,
        "facts": 96,
        "facts_right": 91,
    }
    assert split["models"] == [{"model": "ours", **counts}]
    assert "5.2 %" in (folder / "README.md").read_text("utf-8")


server = model_server(lambda body, content: TUNE, keep_bodies=True)


def test_a_model_is_asked_for_abc(probe: Path, tmp_path: Path, server: OpenAIServer) -> None:
    """Half of the pictures get their own music, the others a tune of another piece, prose or a loop."""
    known = {path.stem: path.read_text() for path in sorted((probe / "abc").glob("*.abc"))}
    answers = [*known.values()][:6] + ["I cannot read it."] * 3 + ["K:C\n" + "C E G | " * 60] * 3
    sent = {base64.b64encode((probe / f"images/{name}.png").read_bytes()).decode(): name for name in known}
    by_name = dict(zip(known, answers, strict=True))

    def answer(body: Any, content: str) -> str:
        return next(by_name[name] for picture, name in sent.items() if picture in json.dumps(body))

    server.answer = answer
    asked = Examinee(annotator="openai:tiny", base_url=server.base_url)
    facts, folder = reconstruct(probe, Store(tmp_path / "store"), asked, tmp_path / "out")
    assert facts["ends"] == {"valid": 6, "invalid": 3, "loop": 3}
    assert all("image_url" in json.dumps(body) for body in server.bodies)
    whole = facts["groups"][0]
    bars = [sum(map(len, read_abc(abc).voices.values())) for abc in known.values()]
    assert whole["known"] == sum(bars)
    assert whole["same"] == sum(bars[:6])
    assert "of 12 pictures 6 valid, 3 invalid, 3 loop" in summary(facts)
    rows = pq.read_table(folder / "answers.parquet").to_pylist()
    assert [row["end"] for row in rows] == ["valid"] * 6 + ["invalid"] * 3 + ["loop"] * 3
    again, _ = reconstruct(probe, Store(tmp_path / "store"), asked, tmp_path / "out")
    assert (again["ends"], len(server.bodies)) == (facts["ends"], 12)


@pytest.mark.slow
def test_the_guides_commands_run(tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verovio", reason="needs earmark[scores]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EARMARK_STORE", str(tmp_path / "store"))
    server.answer = lambda body, content: "B" if "its letter alone" in json.dumps(body) else TUNE
    guide = (ROOT / "flows/topics/score_questions/evaluation.md").read_text("utf-8")
    of_tables, of_probe = (
        guide.partition(part)[2].split("```")[1].strip().splitlines()
        for part in ("The paper's tables, on the released set", "## What a model reads in scores")
    )
    assert [len(of_probe), len(of_tables)] == [5, 4]
    write_probe(Path("WildScore"), 5, 1)
    rows = Path("WildScore/data.csv").read_text("utf-8").splitlines(keepends=True)
    named = [row.replace("Perception", [*CATEGORIES][at % 5]) for at, row in enumerate(rows)]
    Path("WildScore/data.csv").write_text("".join(named), "utf-8")
    for line in (*of_probe, *of_tables):
        words = line.replace("--images 50", "--images 4").replace("openai:gpt-4.1", "openai:tiny").split()
        own = ["--base-url", server.base_url] if "openai:tiny" in line.replace("gpt-4.1", "tiny") else []
        said = CliRunner().invoke(app, [*words[1:], *own])
        assert said.exit_code == 0, (line, said.output)
    assert Path("runs/causes/README.md").is_file()
