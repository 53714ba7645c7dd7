"""A judge of known accuracy, lean to the first clip and ties, and a jury of three: labels are as the closed form says.

With ties at a rate t, else a lean l to what is heard first, else the truth at a rate a, a pass is right, wrong or a tie
at rates that depend on whether the better clip is heard first. The two passes of a pair draw apart from each other, so
a label that both give is right at the product of their rates. Judges of a jury draw apart from each other too. The
figures stand in `tests/benchmarks/RESULTS.md`.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from earmark.schemas.questions import Audio
from earmark.tasks.annotation.request import Answer, Outcome, Request
from earmark.tasks.store.versions import Version
from tests.builds import rows_of
from tests.pseudo_preferences.music import build_judged, config_of, make_pool, write_rows
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

    def votes(self) -> dict[str | None, float]:
        """How often both passes over a pair are right, wrong, or a tie; else they differ."""
        (right_1, wrong_1), (right_2, wrong_2) = self.rates(better_first=True), self.rates(better_first=False)
        both = {"right": right_1 * right_2, "wrong": wrong_1 * wrong_2, "tie": self.ties**2}
        return {**both, None: 1 - sum(both.values())}

    def answer(self, request: Request, name: str = "") -> Outcome:
        """What it says of the last two clips; the better is the one whose hash is the higher."""
        first, second = [part.sha256 for part in request.parts() if isinstance(part, Audio)][-2:]
        better, worse = ("A", "B") if worth(first) > worth(second) else ("B", "A")
        tie, lean, right = (draw(repr(self) + name, what, first, second) for what in ("tie", "lean", "right"))
        said = "A" if lean < self.lean else better if right < self.accuracy else worse
        said = "tie" if tie < self.ties else said
        return Answer(request.key, {"musicality": said, "reason": "drawn"})


JUDGES = [
    Simulated(1.0, 0.0, 0.0),
    Simulated(0.8, 0.0, 0.1),
    Simulated(0.8, 0.2, 0.0),
    Simulated(0.7, 0.4, 0.1),
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


FAIR, MIXED = (
    (Simulated(0.8, 0.0, 0.1),) * 3,
    (Simulated(0.95, 0.1, 0.05), Simulated(0.7, 0.2, 0.1), Simulated(0.6, 0.5, 0.0)),
)
NAMES = ("openai:one", "openai:two", "openai:three")
JURIES = [(FAIR, "majority"), (MIXED, "unanimity"), (MIXED, "majority"), (MIXED, "weighted")]
GOLD = 400


def write_gold(pool: Path) -> None:
    """Pairs of the pool's clips with what is known of them."""
    clips = sorted((pool / "clips").iterdir())
    sha = [hashlib.sha256(path.read_bytes()).hexdigest() for path in clips]
    rows = [
        {
            "text": f"tune {n}",
            "audio_a": f"clips/{clips[n].name}",
            "audio_b": f"clips/{clips[n + 1].name}",
            "musicality": "a" if worth(sha[n]) > worth(sha[n + 1]) else "b",
        }
        for n in range(GOLD)
    ]
    write_rows(pool / "gold.jsonl", rows)


def outcome(votes: tuple[str | None, ...], combine: str, weights: tuple[float, ...]) -> str | None:
    """What votes come to, by the rule in words."""
    if combine == "unanimity":
        return votes[0] if len(set(votes)) == 1 else None
    sums = {vote: 0.0 for vote in votes if vote}
    for vote, weight in zip(votes, weights, strict=True):
        if vote:
            sums[vote] += weight if combine == "weighted" else 1.0
    best = sorted(sums, key=lambda vote: -sums[vote])
    if combine == "majority":
        return next((vote for vote in best if sums[vote] > len(votes) / 2), None)
    lead = sums[best[0]] - (sums[best[1]] if len(best) > 1 else 0.0) if best else 0.0
    return best[0] if lead > 1e-9 else None


def closed_form(judges: tuple[Simulated, ...], combine: str, weights: tuple[float, ...]) -> dict[str, float]:
    """How often a jury's label is right and wrong and kept, over all ways to vote; and alpha of very many pairs."""
    ends: Counter[str | None] = Counter()
    disagreement, cast = 0.0, Counter[str]()
    for votes in itertools.product(("right", "wrong", "tie", None), repeat=len(judges)):
        p = math.prod(judge.votes()[vote] for judge, vote in zip(judges, votes, strict=True))
        ends[outcome(votes, combine, weights)] += p
        counts = Counter(vote for vote in votes if vote)
        if (many := counts.total()) > 1:
            disagreement += p * (many**2 - sum(n * n for n in counts.values())) / (many - 1)
            for vote, n in counts.items():
                cast[vote] += p * n
    shown = [(cast["right"] + cast["wrong"]) / 2] * 2 + [cast["tie"]]  # the better is a as often as b
    chance = (sum(shown) ** 2 - sum(n * n for n in shown)) / sum(shown)
    decided = ends["right"] + ends["wrong"]
    return {"label": ends["right"] / decided, "kept": decided + ends["tie"], "alpha": 1 - disagreement / chance}


@pytest.mark.slow
@pytest.mark.parametrize(("judges", "combine"), JURIES)
def test_a_jury_is_as_right_as_the_closed_form_says(
    pool: Path, judges: tuple[Simulated, ...], combine: str, tmp_path: Path
) -> None:
    write_gold(pool)
    by_name = dict(zip(NAMES, judges, strict=True))
    config = config_of(
        pool,
        "http://127.0.0.1:9/v1",
        judge={
            "dimensions": ["musicality"],
            "require": ["musicality"],
            "qualify": {"gold": "gold.jsonl", "controls": [], "least": 0.0},
        },
        judges=[{"annotator": name} for name in NAMES],
        jury=combine,
    )
    with scripted(lambda request: by_name[request.model].answer(request, request.model)):
        version = build_judged(config, tmp_path / "store")
    facts, bias = measured(version), {(row["value"], row["set"]): row for row in rows_of(version, "bias")}
    gold = {row["judge"]: row for row in rows_of(version, "qualification") if row["domain"] == row["control"] == "all"}
    for name, judge in by_name.items():
        (right_1, _), (right_2, wrong_2) = judge.rates(better_first=True), judge.rates(better_first=False)
        row = gold[name]
        assert (row["questions"], row["known"]) == (GOLD, 2 * GOLD)
        assert close(row["accuracy"] * 2 * GOLD, 2 * GOLD, (right_1 + right_2) / 2)
        assert close(row["tpr"] * GOLD, GOLD, right_1)
        assert close(row["fpr"] * GOLD, GOLD, wrong_2)
        assert close(row["share_tie"] * 2 * GOLD, 2 * GOLD, judge.ties)
        votes = judge.votes()
        odds = votes["right"] / (votes["right"] + votes["wrong"] + votes["tie"])
        assert close(row["agreed_accuracy"] * row["agreed"], row["agreed"], odds)
        assert row["weight"] == pytest.approx(max(0.0, math.log(odds / (1 - odds))), abs=0.7)
        shown = bias[name, "original"]
        assert close(shown["share_first"] * shown["pairs"], shown["pairs"], (right_1 + wrong_2) / 2)
    expected = closed_form(judges, combine, tuple(gold[name]["weight"] for name in NAMES))
    alpha = bias["all", "jury"]["alpha"]
    kept, right = facts["kept"] / facts["pairs"], facts["right"] / facts["decided"]
    print(f"\n| {[tuple(one) for one in judges]} | {combine} | {right:.3f} / {expected['label']:.3f} | "
          f"{kept:.3f} / {expected['kept']:.3f} | {alpha:.3f} / {expected['alpha']:.3f} |")  # fmt: skip
    assert facts["passes"] == 3 * 2 * facts["pairs"]
    assert close(facts["right"], facts["decided"], expected["label"])
    assert close(facts["kept"], facts["pairs"], expected["kept"])
    assert alpha == pytest.approx(expected["alpha"], abs=0.1)
