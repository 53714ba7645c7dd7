"""A simulated judge behind a server, through the whole of `pseudo-preferences`, held against what it should come to.

The truth is in the sound: the louder of two clips is better as music, the longer one follows its prompt better, and
clips of one level or length are a true tie. The judge hears that from the audio that it is sent. On each pass and
dimension it says tie at a rate, else the first clip at a rate (its lean), else the truth at a rate (its accuracy), else
another answer; at a rate (its halo) it says of alignment what it said of musicality. Its two passes draw apart.

What is expected follows from the truth of each published pair by counting out all answers of both passes; nothing of
the package has a part in it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import soundfile

from earmark.tasks.store.versions import Version
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.pseudo_preferences.music import RATE_HZ, build_judged, config_of, write_clip, write_rows
from tests.servers.faults import Faults

GAINS = (0.1, 0.2, 0.4, 0.8)
FRAMES = (4800, 4960, 5120, 5280)
MODELS = ("ant", "bee", "cat")
CHOICES = ("a", "b", "tie")
DIMENSIONS = ("musicality", "alignment")
Truth = tuple[str, str]
"""What is so on musicality and on alignment, in the pair's letters."""


class Judge(NamedTuple):
    """Rates of what it does, each from 0 to 1."""

    accuracy: float
    lean: float = 0.0
    ties: float = 0.0
    halo: float = 0.0


class Figure(NamedTuple):
    """A share of counted cases, and what it should be.

    Attributes:
        name: what it says.
        of: how many cases there were.
        share: as the flow's own output has it.
        expected: by the closed form.
        error: its standard error.
    """

    name: str
    of: int
    share: float
    expected: float
    error: float

    @property
    def sigmas(self) -> float:
        """How many standard errors lie between both."""
        return abs(self.share - self.expected) / self.error if self.error else 0.0


def make_music(folder: Path, prompts: int) -> dict[str, tuple[int, int]]:
    """Write a pool of three clips a prompt; the level and length of each generation, as places in the tuples above."""
    asked = [{"prompt_id": f"p{n}", "text": f"A tune in {n} beats"} for n in range(prompts)]
    made, known = [], {}
    for number, (prompt, model) in enumerate(itertools.product(asked, MODELS)):
        name = f"{prompt['prompt_id']}-{model}"
        known[name] = int(draw(name, "level") * len(GAINS)), int(draw(name, "length") * len(FRAMES))
        level, length = known[name]
        write_clip(folder / f"{name}.wav", number, FRAMES[length] / RATE_HZ, GAINS[level])
        made.append({"generation_id": name, "prompt_id": prompt["prompt_id"], "model": model, "audio": f"{name}.wav"})
    write_rows(folder / "prompts.jsonl", asked)
    write_rows(folder / "generations.jsonl", made)
    return known


def draw(*words: str) -> float:
    """A number from 0 to 1 of these words' own."""
    return int.from_bytes(hashlib.sha256("\n".join(words).encode()).digest()[:8], "big") / 2**64


def better(one: float, other: float) -> str:
    """The letter of the greater, or tie."""
    return "tie" if one == other else "a" if one > other else "b"


def heard(data: str) -> tuple[int, int]:
    """Level and length of a clip as a server gets it."""
    samples, _ = soundfile.read(io.BytesIO(base64.b64decode(data)))
    peak = float(abs(samples).max())
    return min(range(len(GAINS)), key=lambda n: abs(GAINS[n] - peak)), FRAMES.index(len(samples))


def answer(judge: Judge, body: Mapping[str, Any], content: str) -> str:
    """What the judge says of the last two clips of a request."""
    sounds = [part["input_audio"]["data"] for part in body["messages"][-1]["content"] if part["type"] == "input_audio"]
    first, second = (heard(sound) for sound in sounds[-2:])
    said: dict[str, str] = {}
    for place, name in enumerate(DIMENSIONS):
        truth = better(first[place], second[place])
        others = [one for one in CHOICES if one != truth and (truth == "tie" or one != "tie")]
        rolls = {what: draw(repr(judge), content, name, what) for what in ("tie", "lean", "right", "other", "halo")}
        chosen = truth if rolls["right"] < judge.accuracy else others[int(rolls["other"] * len(others))]
        chosen = "a" if rolls["lean"] < judge.lean else chosen
        said[name] = "tie" if rolls["tie"] < judge.ties else chosen
        if place and rolls["halo"] < judge.halo:
            said[name] = said["musicality"]
    letters = {"a": "A", "b": "B", "tie": "tie"}
    return json.dumps({**{name: letters[one] for name, one in said.items()}, "reason": "drawn"})


def build(judge: Judge, pool: Path, store: Path) -> Version:
    """A version that the judge labelled behind a server, every request by the engine and its ledger."""
    with LocalServer(Faults()) as server:
        server.answer = lambda body, content: answer(judge, body, content)
        return build_judged(config_of(pool, server.base_url, judge={"max_concurrency": 32}), store)


def one_pass(judge: Judge, truth: str, first: str) -> dict[str, float]:
    """How often a pass that hears `first` first gives each answer on a dimension, before the halo."""
    others = [one for one in CHOICES if one != truth and (truth == "tie" or one != "tie")]
    says = {one: (1 - judge.accuracy) / len(others) if one in others else 0.0 for one in CHOICES}
    says[truth] = judge.accuracy
    says = {one: (1 - judge.lean) * share + judge.lean * (one == first) for one, share in says.items()}
    return {one: (1 - judge.ties) * share + judge.ties * (one == "tie") for one, share in says.items()}


def both_dimensions(judge: Judge, truth: Truth, first: str) -> dict[Truth, float]:
    """How often a pass gives each pair of answers."""
    one, two = (one_pass(judge, so, first) for so in truth)
    return {
        (m, al): one[m] * ((1 - judge.halo) * two[al] + judge.halo * (m == al))
        for m, al in itertools.product(CHOICES, repeat=2)
    }


def figures(judge: Judge, version: Version, known: Mapping[str, tuple[int, int]]) -> list[Figure]:
    """What the published tables say, each share beside what it should be."""
    truths: dict[str, Truth] = {}
    for row in rows_of(version, "pairs"):
        a, b = known[row["generation_a"]], known[row["generation_b"]]
        truths[row["pair_id"]] = (better(a[0], b[0]), better(a[1], b[1]))
    forms = {
        truth: (both_dimensions(judge, truth, "a"), both_dimensions(judge, truth, "b")) for truth in {*truths.values()}
    }
    labels = {row["pair_id"]: tuple(row[name] for name in DIMENSIONS) for row in rows_of(version, "labels")}
    bias = {row["dimension"]: row for row in rows_of(version, "bias")
            if (row["scope"], row["set"]) == ("all", "original")}  # fmt: skip

    def kept(truth: Truth, said: Truth) -> float:
        forward, reverse = forms[truth]
        return forward[said] * reverse[said]

    agreed = {truth: sum(kept(truth, said) for said in forms[truth][0]) for truth in forms}
    found = [figure("pairs kept", len(labels), [agreed[truth] for truth in truths.values()])]
    for place, name in enumerate(DIMENSIONS):
        for what, cases in (("winner", ("a", "b")), ("tie", ("tie",))):
            mine = [pair for pair in labels if truths[pair][place] in cases]
            hits = sum(labels[pair][place] == truths[pair][place] for pair in mine)
            right = {
                truth: sum(kept(truth, said) for said in forms[truth][0] if said[place] == truth[place]) / agreed[truth]
                for truth in {truths[pair] for pair in mine}
            }
            found.append(figure(f"{name}: right {what} of kept", hits, [right[truths[pair]] for pair in mine]))
        first = [sum(p for said, p in forms[truth][0].items() if said[place] == "a") for truth in truths.values()]
        shown = bias[name]
        found.append(figure(f"{name}: says the first", round(shown["share_first"] * shown["pairs"]), first))
        same = [
            sum(sum(p for said, p in forms[truth][0].items() if said[place] == one)
                * sum(p for said, p in forms[truth][1].items() if said[place] == one) for one in CHOICES)
            for truth in truths.values()
        ]  # fmt: skip
        found.append(figure(f"{name}: both orders agree", round(shown["consistency"] * shown["pairs"]), same))
    return found


def figure(name: str, count: int, chances: list[float]) -> Figure:
    """A count of cases that each had a chance, beside the sum of these."""
    of = len(chances)
    error = math.sqrt(sum(p * (1 - p) for p in chances)) / of
    return Figure(name, of, count / of, sum(chances) / of, error)
