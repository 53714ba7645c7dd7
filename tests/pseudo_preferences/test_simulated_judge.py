"""A judge whose accuracy, lean to the first clip and ties are known: labels and bias are what the closed form says.

With ties at a rate t, else a lean l to what is heard first, else the truth at a rate a, a pass is right, wrong or a tie
at rates that depend on whether the better clip is heard first. The two passes of a pair draw apart from each other, so
a label that both give is right at the product of their rates. The figures stand in `tests/benchmarks/RESULTS.md`.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import pytest

from earmark.tasks.annotation.outcome import Answer, Outcome
from earmark.tasks.annotation.request import Audio, Request
from earmark.tasks.store.versions import Version
from tests.builds import rows_of
from tests.pseudo_preferences.music import build_judged, config_of, make_pool
from tests.runner import scripted

PROMPTS = 250
SIGMAS = 4.0
"""A right figure lies further from its expectation about once in 15,000."""


class Simulated(NamedTuple):
    """A judge.

    Attributes:
        accuracy: how often it says the truth where it neither ties nor leans.
        lean: how often it says the first clip whatever it heard, where it does not tie.
        ties: how often it says that it hears no difference.
    """

    accuracy: float
    lean: float
    ties: float

    def rates(self, *, better_first: bool) -> tuple[float, float]:
        """How often a pass is right, and wrong."""
        says = (1 - self.lean) * self.accuracy
        right = says + self.lean if better_first else says
        return (1 - self.ties) * right, (1 - self.ties) * (1 - right)

    def answer(self, request: Request) -> Outcome:
        """What it says of the last two clips; the better is the one whose hash is the higher."""
        first, second = [part.sha256 for part in request.parts() if isinstance(part, Audio)][-2:]
        better, worse = ("A", "B") if worth(first) > worth(second) else ("B", "A")
        tie, lean, right = (draw(repr(self), name, first, second) for name in ("tie", "lean", "right"))
        said = "A" if lean < self.lean else better if right < self.accuracy else worse
        said = "tie" if tie < self.ties else said
        return Answer(request.key, {"musicality": said, "reason": "drawn"})


JUDGES = [
    Simulated(1.0, 0.0, 0.0),
    Simulated(0.9, 0.0, 0.0),
    Simulated(0.8, 0.0, 0.1),
    Simulated(0.8, 0.2, 0.0),
    Simulated(0.7, 0.1, 0.05),
    Simulated(0.7, 0.4, 0.1),
    Simulated(0.5, 0.0, 0.0),
    Simulated(0.5, 0.6, 0.0),
]


def draw(*words: str) -> float:
    """A number from 0 to 1 of these words' own."""
    return int.from_bytes(hashlib.sha256("\n".join(words).encode()).digest()[:8], "big") / 2**64


def worth(sha256: str) -> str:
    """What is known of a clip: of two, the better has the higher."""
    return hashlib.sha256(sha256.encode()).hexdigest()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So many pairs that shares of a tenth are told apart."""
    folder = tmp_path_factory.mktemp("pool")
    make_pool(folder, PROMPTS)
    return folder


def close(count: float, of: float, expected: float) -> bool:
    """Whether a share lies within its sampling error of what is expected."""
    return abs(count / of - expected) <= SIGMAS * math.sqrt(expected * (1 - expected) / of) + 1e-12


def measured(version: Version) -> dict[str, float]:
    """Counts of labels and of both passes, from the published tables alone."""
    sha = {row["generation_id"]: row["clip_sha256"] for row in rows_of(version, "clips")}
    pairs = {row["pair_id"]: row for row in rows_of(version, "pairs")}

    def better(pair_id: str) -> str:
        row = pairs[pair_id]
        return "a" if worth(sha[row["generation_a"]]) > worth(sha[row["generation_b"]]) else "b"

    labels, judgments = rows_of(version, "labels"), rows_of(version, "judgments")
    decided = [row for row in labels if row["musicality"] != "tie"]
    (bias,) = [row for row in rows_of(version, "bias") if (row["scope"], row["set"]) == ("all", "original")]
    return {
        "pairs": len(pairs),
        "kept": len(labels),
        "decided": len(decided),
        "right": sum(row["musicality"] == better(row["pair_id"]) for row in decided),
        "passes": len(judgments),
        "right passes": sum(row["choice"] == better(row["pair_id"]) for row in judgments),
        "consistency": bias["consistency"],
        "share_first": bias["share_first"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("judge", JUDGES)
def test_labels_are_as_right_as_the_closed_form_says(pool: Path, judge: Simulated, tmp_path: Path) -> None:
    config = config_of(pool, "http://127.0.0.1:9/v1", judge={"dimensions": ["musicality"], "require": ["musicality"]})
    with scripted(judge.answer):
        facts = measured(build_judged(config, tmp_path / "store"))
    (right_1, wrong_1), (right_2, wrong_2) = judge.rates(better_first=True), judge.rates(better_first=False)
    both_right, both_wrong, both_tie = right_1 * right_2, wrong_1 * wrong_2, judge.ties**2
    kept, decided = both_right + both_wrong + both_tie, both_right + both_wrong
    expected = {
        "one pass": (right_1 + right_2) / 2,
        "label": both_right / decided,
        "kept": kept,
        "first": (right_1 + wrong_2) / 2,
    }
    print(f"\n{judge}: {facts}; expected {expected}")
    assert facts["pairs"] > 2.5 * PROMPTS
    assert facts["passes"] == 2 * facts["pairs"]
    assert close(facts["right passes"], facts["passes"], expected["one pass"])
    assert close(facts["right"], facts["decided"], expected["label"])
    assert close(facts["kept"], facts["pairs"], kept)
    assert facts["consistency"] == pytest.approx(facts["kept"] / facts["pairs"])
    assert close(facts["share_first"] * facts["pairs"], facts["pairs"], expected["first"])
