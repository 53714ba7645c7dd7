"""Instructions taken apart: by domain, in parts, read by a second model, and drawn twice."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.annotation.prompts import own_words, prompt_named
from earmark.tasks.instruction_rubrics.checks import usable_items
from earmark.tasks.instruction_rubrics.decomposing import LEAST_OVERLAP, agreement
from earmark.tasks.pipeline.rows import words_of
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.instruction_rubrics.rubrics import (
    QUICK,
    asked_for,
    build_rubrics,
    caption,
    config_of,
    fences,
    rubric_answer,
    write_captions,
)
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A model that hears, and one that writes; the second reader denies what bears on the bells."""
    with LocalServer(Faults()) as started:
        started.answer = answer
        started.keep_bodies = True
        yield started


def scene(number: int) -> str:
    """A minute of a film: 45 clauses."""
    return ", ".join(f"{caption(number).split()[1]} moment {number} {at} of the scene" for at in range(45))


def answer(body: dict[str, Any], content: str) -> str:
    """As `rubric_answer`, with items for every clause, and a second reader."""
    ask, held = asked_for(body), fences(body)
    if ask == "direction":
        items = [text for name, text in held if name == "item"]
        said = [{"id": n, "answer": "no" if "bells" in text else "yes"} for n, text in enumerate(items, 1)]
        return json.dumps({"items": said})
    if ask.startswith("decompose"):
        parts = [part.strip() for part in held[0][1].split(",")]
        found = [{"dimension": "words", "question": f"Is it so: {part}?", "basis": part} for part in parts]
        return json.dumps({"items": found[:-1] if body.get("temperature") else found})
    return rubric_answer(body, content)


@pytest.mark.slow
def test_a_minute_of_film_has_as_many_items_as_it_has_constraints(tmp_path: Path, server: OpenAIServer) -> None:
    source = write_captions(tmp_path, "films", map(scene, range(4))) | {"domain": "mixed"}
    config = config_of(
        tmp_path, source, base_url=server.base_url, bench_share=0.0,
        negatives=["swap", "judged"],
    )  # fmt: skip
    version = build_rubrics(config, tmp_path / "store")
    samples = [row for row in rows_of(version, "samples") if row["language"] == "en"]
    assert len(samples) == 8
    assert {row["items"] for row in samples} == {45}
    shown = [(asked_for(body), sum(name == "item" for name, _ in fences(body))) for body in server.bodies]
    for ask in ("filter", "labels", "rationales"):
        assert sorted(count for name, count in shown if name == ask) == sorted([20, 20, 5] * 4)
    assert Counter(name for name, _ in shown)["decompose"] == 4
    assert "rubric-decompose-mixed@2" in version.manifest.prompts
    labels, items = rows_of(version, "labels"), rows_of(version, "items")
    assert {row["language"]: 0 for row in items} == {"en": 0, "zh": 0}
    of_one = [row for row in labels if row["sample_id"] == samples[0]["sample_id"] and row["language"] == "en"]
    assert [row["item"] for row in of_one] == list(range(1, 46))
    assert len({row["request_key"] for row in of_one}) == 3, "each label names the request that gave it"
    texts = {row["text"] for row in rows_of(version, "instructions") if row["original"]}
    for row in (row for row in items if row["language"] == "en"):
        assert any(row["basis"] in text for text in texts)


@pytest.mark.slow
def test_items_that_a_second_model_denies_are_flagged_and_two_draws_are_compared(
    tmp_path: Path, server: OpenAIServer
) -> None:
    source = write_captions(tmp_path, "real", map(caption, range(8)))
    config = config_of(
        tmp_path, source, base_url=server.base_url, bench_share=0.0, negatives=["swap", "judged"],
        reader={**QUICK, "annotator": "openai:reads", "base_url": server.base_url},
        decomposition={"stability": 1.0},
    )  # fmt: skip
    version = build_rubrics(config, tmp_path / "store")
    for row in rows_of(version, "items"):
        assert ("direction" in row["flags"]) == ("bells" in row["basis"])
    card = (version.folder / "README.md").read_text("utf-8")
    # Three clauses, of which the second draw has two: 2 · 2 / (3 + 2).
    assert "8 instructions were taken apart twice: 80% of the items of both draws match" in card
    assert sum(asked_for(body) == "decompose" for body in server.bodies) == 16
    assert {one.annotator for one in config.asked().values()} == {"openai:hears", "openai:writes", "openai:reads"}
    assert set(version.manifest.prompts) >= {"rubric-decompose-music@2", "rubric-direction@2"}
    assert "rubric-decompose@2" not in version.manifest.prompts


WORDS = "a b c d e f g h"
ENDS = st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted)
SPANS = ENDS.map(lambda ends: " ".join(WORDS.split()[ends[0] : ends[1] + 1]))
DRAWS = st.lists(SPANS.map(lambda basis: {"basis": basis}), min_size=1, max_size=5)


@given(DRAWS, DRAWS)
def test_agreement_is_the_largest_matching_of_items_on_the_same_words(
    first: list[dict[str, str]], second: list[dict[str, str]]
) -> None:
    """Against all ways to pair the items, and words as sets of places."""

    def near(one: str, other: str) -> bool:
        places = [set(range(WORDS.index(text), WORDS.index(text) + len(text))) for text in (one, other)]
        covered = range(min(map(min, places)), max(map(max, places)) + 1)
        return len(places[0] & places[1]) / len(covered) >= LEAST_OVERLAP

    few, many = sorted((first, second), key=len)
    best = max(
        sum(near(one["basis"], other["basis"]) for one, other in zip(few, order, strict=True))
        for order in itertools.permutations(many, len(few))
    )
    assert agreement(WORDS, first, second) == pytest.approx(2 * best / (len(first) + len(second)))
    assert agreement(WORDS, first, first) == 1


@pytest.mark.parametrize("basis", ["singer’s voice", "SINGER'S  voice", "singer‘s voice"])
def test_draws_match_whatever_apostrophe_a_model_writes(basis: str) -> None:
    first, again = ([{"question": "A voice?", "basis": one}] for one in ("singer's voice", basis))
    for words in ("The singer’s voice, and a bell.", "The singer's voice, and a bell."):
        assert usable_items(words, again)[0] == again
        assert agreement(words, first, again) == 1


def judge(base_url: str, **values: Any) -> dict[str, Any]:
    return {**QUICK, "annotator": "openai:hears", "base_url": base_url, **values}


def test_an_item_that_rests_on_nothing_is_dropped() -> None:
    items = [{"question": "Is it so?", "basis": " "}, {"question": "A bell?", "basis": "a bell"}]
    assert [one["question"] for one in usable_items("A bell rings.", items)[0]] == ["A bell?"]


@pytest.mark.slow
def test_a_second_draw_is_another_one(tmp_path: Path, server: OpenAIServer) -> None:
    source = write_captions(tmp_path, "made", map(caption, range(4))) | {"generated": True}
    config = config_of(tmp_path, source, base_url=server.base_url, bench_share=0.0,
                       judge=judge(server.base_url, temperature=None))  # fmt: skip
    build_rubrics(config, tmp_path / "store")
    verified = [body for body in server.bodies if asked_for(body) == "verify"]
    assert len(verified) == 8
    assert not any("temperature" in body for body in verified), "left to the server, in both passes"


@pytest.mark.slow
def test_a_set_of_prompts_is_asked_by_its_builds_and_their_evaluations(tmp_path: Path) -> None:
    """Its filter removes unsupported items alone; a prompt that `asks` names precedes the set."""
    with LocalServer(Faults()) as server:
        server.keep_bodies = True
        server.answer = lambda body, content: (
            json.dumps(
                {"items": [{"id": 1, "verdict": "unsupported"}, *({"id": n, "verdict": "keep"} for n in (2, 3))]}
            )
            if asked_for(body).startswith("filter")
            else answer(body, content)
        )
        verify = {"positives": "audio", "swaps": "none", "changes": "none"}
        source = write_captions(tmp_path, "real", map(caption, range(2)), verify=verify)
        config = config_of(
            tmp_path, source, base_url=server.base_url, bench_share=0.0, negatives=["perturb", "judged"],
            languages=["en"], asks={"prompts": "paper-structure", "rubric-perturb-music": 3},
        )  # fmt: skip
        version = build_rubrics(config, tmp_path / "store")
        (words,) = {
            tuple(one["properties"]["items"]["items"]["properties"]["verdict"]["enum"])
            for body in server.bodies
            for form in [body["response_format"]["json_schema"]]
            for one in [form["schema"]]
            if "filter" in form["name"]
        }
    assert words == ("keep", "unsupported")
    asked = {name.partition("@")[0] for name in version.manifest.prompts}
    assert {
        "rubric-decompose-music-paper",
        "rubric-filter-paper",
        "rubric-verify-paper",
        "rubric-perturb-music",
    } <= asked
    assert not {"rubric-decompose-music", "rubric-filter", "rubric-verify", "rubric-perturb-music-paper"} & asked
    with own_words(words_of(version)):
        assert prompt_named("rubric-judge-item-en").id == "rubric-judge-item-paper-en@1"
    with own_words(words_of(version, {"rubric-judge-item-en": 1})):
        assert prompt_named("rubric-judge-item-en").id == "rubric-judge-item-en@1"
    assert Counter(row["reason"] for row in rows_of(version, "rejects")) == {"unsupported": 4}
