"""A sample is a vote: the split drawn of votes of the paper's shape and of the published ones, counted in raw lines."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from earmark.tasks.store.versions import Version
from tests.builds import rows_of
from tests.conftest import real_path
from tests.human_preferences.votes import SALT, Row, build_votes, cmi, config_of, vote

SHAPE = {(False, False): 1_999, (False, True): 895, (True, False): 539, (True, True): 594}
"""Votes of CMI-Pref, train and test together, by whether there are lyrics and reference audio."""
BANDS = {2.0: 0.132, 3.0: 0.256, 4.5: 0.612}
"""Share of confidences below, at and above 3: 66, 128 and 306 of the published 500, for musicality."""


@pytest.fixture(autouse=True)
def _salted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)


def simulated() -> list[Row]:
    """4,027 votes on 3,463 pairs, 492 of which have two votes or more (1,056 in all); some prompts have two pairs."""
    rng = random.Random(22)
    kinds = [kind for kind, count in SHAPE.items() for _ in range(count)]
    rng.shuffle(kinds)
    several = [2] * 420 + [3] * 72
    rows: list[Row] = []
    pair = 0
    while kinds:
        votes = several.pop() if several else 1
        lyrics, reference = kind = kinds[-1]
        votes = min(votes, kinds.count(kind))
        for _ in range(votes):
            kinds.remove(kind)
        words = {"lyrics": f"la {pair}" if lyrics else "", "ref-audio-path": f"ref/{pair}.mp3" if reference else ""}
        for turn in range(votes):
            sure = rng.choices(list(BANDS), list(BANDS.values()))[0]
            who = f"w{(pair + turn) % 31}"
            both = {f"confidence_preference-{name}": str(sure) for name in ("musicality", "alignment")}
            prompt = pair // 2 if kind == (False, False) else pair
            rows.append(vote(pair, who, **both, **words, **{"prompt id": prompt}))
        pair += 1
    return rows


def cells(rows: list[Row]) -> Counter[tuple[bool, bool]]:
    return Counter((bool(row["lyrics"]), bool(row["ref-audio-path"])) for row in rows)


def votes_of_test(version: Version, raw: list[Row]) -> list[Row]:
    return [raw[row["source_line"] - 1] for row in rows_of(version, "votes") if row["split"] == "test"]


@pytest.mark.slow
def test_votes_of_the_papers_shape(tmp_path: Path) -> None:
    raw = simulated()
    assert (len(raw), cells(raw)) == (4_027, SHAPE)
    version = build_votes(config_of(tmp_path, cmi(tmp_path, raw)), tmp_path / "store")
    test = votes_of_test(version, raw)
    assert cells(test) == dict.fromkeys(SHAPE, 125)
    assert [sum(bool(row[name]) for row in test) for name in ("lyrics", "ref-audio-path")] == [250, 250]
    bands = Counter(float(row["confidence_preference-musicality"]) for row in test)
    for sure, share in BANDS.items():  # 500 of 4,027: four standard deviations
        assert abs(bands[sure] - 500 * share) < 4 * (500 * share * (1 - share)) ** 0.5
    where: dict[object, set[bool]] = {}
    chosen = {id(row) for row in test}
    for row in raw:
        for name in (row["audio-path"], row["audio2"], f"prompt {row['prompt id']}", row["lyrics"] or id(row)):
            where.setdefault(name, set()).add(id(row) in chosen)
    assert all(len(splits) == 1 for splits in where.values())
    benchmark = [row for row in rows_of(version, "benchmark") if row["dimension"] == "musicality"]
    assert len(benchmark) == 500
    assert Counter(row["vocals"] for row in benchmark) == {"vocal": 250, "instrumental": 250}
    split = {row["comparison_id"]: row["split"] for row in rows_of(version, "comparisons")}
    training = rows_of(version, "training")
    assert len(training) == 2 * 4_027
    assert all(split[row["comparison_id"]] == row["split"] for row in training)
    sizes = Counter(Counter(row["audio-path"] for row in test).values())
    assert sizes[1] > sizes[2] > 0  # pairs with several votes are there in their share: 492 of 3,463, drawn at random
    assert 0.08 < (sizes[2] + sizes[3]) / sizes.total() < 0.22


@pytest.mark.slow
def test_a_comparison_can_be_the_sample(tmp_path: Path) -> None:
    rows = [vote(0, "ann"), vote(0, "bob"), vote(0, "cy", **{"preference-musicality": "model_b"}), vote(1, "ann")]
    by_vote = build_votes(config_of(tmp_path, cmi(tmp_path, rows, split="test")), tmp_path / "store")
    config = config_of(tmp_path, cmi(tmp_path, rows, split="test"), unit="comparison")
    merged = build_votes(config, tmp_path / "store")
    for table in ("training", "benchmark"):
        assert Counter(row["dimension"] for row in rows_of(by_vote, table)) == {"musicality": 4, "alignment": 4}
        assert Counter(row["dimension"] for row in rows_of(merged, table)) == {"musicality": 2, "alignment": 2}
        assert {row["vote_id"] for row in rows_of(merged, table)} == {None}
        assert len({row["vote_id"] for row in rows_of(by_vote, table)}) == 4
        assert len({row["comparison_id"] for row in rows_of(by_vote, table)}) == 2


@pytest.mark.slow
def test_the_published_votes(tmp_path: Path) -> None:
    path = real_path("cmi-pref/test_500_votes_with_model_scores.jsonl")
    raw = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for row in raw:
        del row["split"]
    version = build_votes(config_of(tmp_path, cmi(tmp_path, raw), split={"test": 200}), tmp_path / "store")
    assert len(rows_of(version, "votes")) == 500
    test = votes_of_test(version, raw)
    assert cells(test) == dict.fromkeys(SHAPE, 50)
    kinds = Counter(row["modality"] for row in rows_of(version, "comparisons"))
    assert kinds == dict.fromkeys(("text", "text+lyrics", "text+audio", "text+lyrics+audio"), 125)
    assert Counter(row["vocals"] for row in rows_of(version, "comparisons")) == {"vocal": 250, "instrumental": 250}
    others = [row for row in raw if row not in test]
    for names in (("prompt", "lyrics"), ("ref-audio-path",), ("audio-path",), ("audio2",)):
        inside, outside = ({tuple(row[name].casefold() for name in names) for row in rows} for rows in (test, others))
        assert not (inside & outside) - {("",)}


@pytest.mark.slow
def test_the_card_counts_as_the_papers_tables(tmp_path: Path) -> None:
    path = real_path("cmi-pref/test_500_votes_with_model_scores.jsonl")
    raw = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    source = {"name": "cmi", "format": "cmi-pref", "files": [str(path)], "split": "native"}
    version = build_votes(config_of(tmp_path, source), tmp_path / "store")
    card = (version.folder / "README.md").read_text("utf-8")
    clips = {row[name] for row in raw for name in ("audio-path", "audio2")}
    models = {row[name] for row in raw for name in ("model_a", "model_b")}
    people = {row["user id"] for row in raw}
    prompts = {(row["prompt"].casefold(), row["lyrics"].casefold(), row["ref-audio-path"]) for row in raw}
    facts = next(line for line in card.split("## Votes\n")[1].splitlines() if line.startswith("| all |"))
    assert facts.split(" | ")[1:9] == [
        *("500", "500", "0", "0"), str(len(prompts)), str(len(clips)), str(len(models)), str(len(people))
    ]  # fmt: skip
    same = sum(row["preference-musicality"] == row["preference-alignment"] for row in raw)
    both = next(line for line in card.split("## Musicality and alignment\n")[1].splitlines() if "| same |" in line)
    assert both.split(" | ")[2:4] == [str(same), f"{100 * same / 500:.1f} %"]
    wins: dict[str, list[bool]] = {}
    for row in raw:
        for side, other in (("model_a", "model_b"), ("model_b", "model_a")):
            if row[side] != row[other]:
                wins.setdefault(row[side], []).append(row["preference-musicality"] == side)
    matrix = card.split("## Which model is preferred: cmi, musicality\n")[1].split("\n## ")[0]
    for name, won in wins.items():
        assert f"| {name} | {len(won)} | {100 * sum(won) / len(won):.1f} % |" in matrix
    wrote = sum(bool(row["feedback"].strip()) for row in raw)
    system = card.split("## Feedback by writing system\n")[1].split("\n## ")[0]
    assert sum(int(line.split(" | ")[1]) for line in system.splitlines() if line.endswith("% |")) == wrote


@pytest.mark.slow
def test_a_dimension_of_a_source_stays_out_of_the_training_table_alone(tmp_path: Path) -> None:
    other = cmi(tmp_path, [vote(number) for number in range(20, 30)], name="other")
    first = cmi(tmp_path, [vote(number) for number in range(20)], untrained=["alignment"])
    version = build_votes(config_of(tmp_path, first, other, split={"test": 12}), tmp_path / "store")
    trained = Counter((row["source"], row["dimension"]) for row in rows_of(version, "training"))
    tested = Counter((row["source"], row["dimension"]) for row in rows_of(version, "benchmark"))
    assert {source for source, _ in tested} == {first["name"], "other"}
    for source in (first["name"], "other"):
        assert tested[source, "musicality"] == tested[source, "alignment"] > 0
    assert trained[first["name"], "alignment"] == 0
    assert trained[first["name"], "musicality"] == 20  # of every split
    assert trained["other", "alignment"] == trained["other", "musicality"] == 10
