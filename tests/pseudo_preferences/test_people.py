"""A judge against people: simulated judges whose truth is known, and votes on the clips of a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from earmark.schemas.errors import EarmarkError
from earmark.tasks.pseudo_preferences.labels import measure, people_section
from earmark.tasks.store.sql import query
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.human_preferences import votes
from tests.pseudo_preferences.music import build_judged, config_of, make_pool
from tests.servers.faults import Faults
from tests.servers.openai_server import listening_answer

Row = dict[str, Any]


def row(forward: str | None, reverse: str | None, people: str, **values: Any) -> Row:
    """A judged pair that people voted on."""
    agreed = forward if forward == reverse else None
    said = {"forward_choice": forward, "reverse_choice": reverse, "agreed": agreed, "people": people}
    return {"dimension": "musicality", "prompt_id": "p", "band": ">3", "judge": "x", "jury": None, **said, **values}


def shares(rows: list[Row], measured: str) -> dict[str, tuple[int, float]]:
    """Pairs and share by value of one measure."""
    found = measure("musicality", rows)
    return {one["value"]: (one["pairs"], one["share"]) for one in found if one["measure"] == measured}


def test_a_jury_is_held_against_people_once_a_pair() -> None:
    rows = [
        row(choice, choice, people, judge=judge, jury=jury)
        for people, jury, votes in (("a", "a", "aab"), ("b", "a", "aab"), ("a", None, "abt"), ("tie", "b", "bbb"))
        for judge, choice in zip("xyz", votes.replace("t", "b"), strict=True)
    ]
    found = shares(rows, "accuracy")
    assert found["kept by the jury"] == (2, 0.5)
    assert found["forward pass"] == (9, 4 / 9)


@pytest.mark.slow
@pytest.mark.parametrize("right", [0.9, 0.7, 0.5])
def test_a_judge_that_errs_by_chance_gains_what_its_rate_says(right: float) -> None:
    size, source = 40_000, np.random.default_rng(7)
    people = np.where(source.random(size) < 0.5, "a", "b")
    passes = [np.where(source.random(size) < right, people, np.where(people == "a", "b", "a")) for _ in range(2)]
    rows = [row(*map(str, held), prompt_id=str(n)) for n, held in enumerate(zip(*passes, people, strict=True))]
    kept, wrong = right**2 + (1 - right) ** 2, (1 - right) ** 2
    said = shares(rows, "accuracy")
    assert said["forward pass"][1] == pytest.approx(right, abs=0.01)
    assert said["kept by the filter"][0] / size == pytest.approx(kept, abs=0.01)
    assert said["kept by the filter"][1] == pytest.approx(1 - wrong / kept, abs=0.01)
    assert said["left out by the filter"][1] == pytest.approx(0.5, abs=0.03)
    # where the passes cancel out the judge says one half and is; else it says 1 and errs by wrong / kept
    assert shares(rows, "calibration error")["all"][1] == pytest.approx(kept * wrong / kept, abs=0.01)
    assert shares(rows, "calibration")["1.00"][1] == pytest.approx(1 - wrong / kept, abs=0.01)


def test_each_number_is_what_a_hand_counts() -> None:
    rows = [
        row("a", "a", "a"),
        row("a", "a", "b", band="<3"),
        row("b", "b", "b", band="<3"),
        row("a", "b", "a"),
        row("a", "tie", "a", prompt_id="q"),
        row("tie", "tie", "b", prompt_id="q"),
        row("tie", "tie", "tie"),
        row("b", "b", "tie"),
        row("b", None, "a"),
        {**row("b", "b", "a"), "dimension": "alignment"},
    ]
    assert shares(rows, "accuracy") == {
        "forward pass": (7, 4 / 7),
        "reverse pass": (6, 2 / 6),
        "kept by the filter": (4, 2 / 4),
        "left out by the filter": (2, 2 / 2),
    }
    assert shares(rows, "confidence") == {"<3": (2, 0.5), ">3": (2, 0.5)}
    assert shares(rows, "confusion") == {
        "people a, judge a": (1, 1.0),
        "people b, judge a": (1, 1 / 3),
        "people b, judge b": (1, 1 / 3),
        "people b, judge tie": (1, 1 / 3),
        "people tie, judge b": (1, 0.5),
        "people tie, judge tie": (1, 0.5),
    }
    assert shares(rows, "calibration") == {"0.50": (2, 0.5), "0.75": (1, 1.0), "1.00": (3, pytest.approx(2 / 3))}
    assert shares(rows, "calibration error")["all"] == (6, pytest.approx((0.25 * 1 + 3 * (1 / 3)) / 6))


def test_a_pair_under_two_names_in_the_votes_is_heard_once() -> None:
    """The recordings y and z stand under two names each; weights are the clips', whatever side they stand on."""
    connection = duckdb.connect()

    def table(name: str, columns: str, *rows: str) -> None:
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM (VALUES {', '.join(rows)}) AS _({columns})")

    table("people_clips", "clip_id, clip_sha256", "('1', 'y')", "('2', 'z')", "('3', 'z')", "('4', 'y')", "('5', 'x')")
    table(
        "people_comparisons", "comparison_id, clip_a, clip_b", "('k', '1', '2')", "('l', '3', '4')", "('m', '2', '5')"
    )
    table(
        "people_preferences", "comparison_id, dimension, preference, confidence, votes, weight_a, weight_b, weight_tie",
        # of y and z: 4 + 1 for y, 3 for z
        "('k', 'musicality', 'a', 4.0, 1, 4.0, 0.0, 0.0)", "('l', 'musicality', 'a', 2.0, 2, 3.0, 1.0, 0.0)",
        # 2 for y, 5 for z, 5 for a tie
        "('k', 'alignment', 'tie', 3.5, 2, 2.0, 0.0, 5.0)", "('l', 'alignment', 'a', NULL, 1, 5.0, 0.0, 0.0)",
        "('m', 'musicality', 'b', 1.0, 1, 0.0, 1.0, 0.0)",
    )  # fmt: skip
    table("clips", "generation_id, clip_sha256", "('gx', 'x')", "('gy', 'y')", "('gz', 'z')")
    table(
        "pairs", "pair_id, prompt_id, generation_a, generation_b", "('zy', 'p', 'gz', 'gy')", "('zx', 'p', 'gz', 'gx')"
    )
    asked = [f"('{pair}', '{of}', 'j', 'a', 'a', 'a')" for pair in ("zy", "zx") for of in ("musicality", "alignment")]
    table("passes", "pair_id, dimension, judge, forward_choice, reverse_choice, agreed", *asked)
    table("combined", "item, dimension, choice", "('zy', 'musicality', 'a')")
    found = connection.sql(query("pseudo_preferences/heard_by_people")).to_arrow_table().to_pylist()
    assert [(one["pair_id"], one["dimension"], one["people"], one["band"]) for one in found] == [
        ("zy", "alignment", "tie", ">3"), ("zx", "musicality", "b", "<3"), ("zy", "musicality", "b", "<3"),
    ]  # fmt: skip


@pytest.mark.slow
def test_votes_on_the_clips_of_a_build_are_in_its_table_and_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARMARK_SALT", votes.SALT)
    _, made = make_pool(tmp_path / "pool", 8)
    by_prompt: dict[str, list[Row]] = {}
    for one in made:
        by_prompt.setdefault(one["prompt_id"], []).append(one)
    cast = [  # people see the second generation first, and always prefer it in musicality, never in alignment
        votes.vote(number, **{"audio-path": second["audio"], "audio2": first["audio"], "prompt id": name})
        for number, (name, (first, second, _)) in enumerate(by_prompt.items())
    ]
    source = votes.cmi(tmp_path / "pool", cast)
    people = votes.build_votes(votes.config_of(tmp_path / "pool", source, audio="embed"), tmp_path / "store")
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        config = config_of(tmp_path / "pool", server.base_url, validation="human-preferences@v1")
        version = build_judged(config, tmp_path / "store")
        bare = build_judged(config_of(tmp_path / "pool", server.base_url), tmp_path / "bare")
    assert [(one.corpus, one.digest) for one in version.manifest.parents] == [
        ("human-preferences", people.manifest.digest())
    ]
    found = {(one["dimension"], one["value"]): one for one in rows_of(version, "people")}
    pairs = {one["pair_id"]: one for one in rows_of(version, "pairs")}
    voted = {frozenset((first["generation_id"], second["generation_id"])): second["generation_id"]
             for first, second, _ in by_prompt.values()}  # fmt: skip
    for dimension, liked in (("musicality", True), ("alignment", False)):
        right = []
        for one in rows_of(version, "judgments"):
            pair = pairs[one["pair_id"]]
            sides = {"a": pair["generation_a"], "b": pair["generation_b"]}
            wanted = voted.get(frozenset(sides.values()))
            if wanted and (one["dimension"], one["order"]) == (dimension, "forward"):
                right.append(one["choice"] != "tie" and (sides[one["choice"]] == wanted) is liked)
        assert len(right) == 8
        assert (found[dimension, "forward pass"]["pairs"], found[dimension, "forward pass"]["share"]) == (
            8,
            np.mean(right),
        )
    card = (version.folder / "README.md").read_text()
    assert "## The judge against people" in card
    assert "asking in both orders keeps" in card
    assert people_section(rows_of(version, "people")) in card
    assert "people" not in bare.manifest.rows
    assert "against people" not in (bare.folder / "README.md").read_text()
    for table in ("labels", "judgments", "bias"):
        assert rows_of(bare, table) == rows_of(version, table)


def test_votes_that_are_not_there_are_one_line(tmp_path: Path) -> None:
    make_pool(tmp_path / "pool", 2)
    config = config_of(tmp_path / "pool", "http://127.0.0.1:9", validation="human-preferences@v3")
    with pytest.raises(EarmarkError, match="no version of 'human-preferences' in"):
        build_judged(config, tmp_path / "store")
    with pytest.raises(EarmarkError, match="validation: "):
        config_of(tmp_path / "pool", "http://127.0.0.1:9", validation="mos-preferences")
