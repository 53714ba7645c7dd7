"""A caption with a detail changed: which is drawn, what may follow it, and what becomes of a sound that is left out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.instruction_rubrics.attributes import ADDED, BY_DOMAIN, DROPPED, offered
from earmark.tasks.instruction_rubrics.checks import perturbation_fault
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.instruction_rubrics.rubrics import (
    asked_for,
    build_rubrics,
    config_of,
    fences,
    rubric_answer,
    said_to,
    write_captions,
)
from tests.servers.faults import Faults

NAMES = ("gender", "source", "order", DROPPED, "tempo")


def change(attribute: str, before: str, after: str, caption: str, *also: tuple[str, str]) -> dict[str, Any]:
    """A writer's answer."""
    followed = [{"before": one, "after": two} for one, two in also]
    return {"attribute": attribute, "before": before, "after": after, "also": followed, "caption": caption}


@pytest.mark.parametrize(
    ("caption", "answer"),
    [
        ("A man speaks. He sighs, then he coughs.",
         change("gender", "man", "woman", "A woman speaks. She sighs, then she coughs.", ("he", "she"))),
        ("A dog barks in its yard.",
         change("source", "A dog barks", "Two dogs bark", "Two dogs bark in their yard.", ("its", "their"))),
        ("A dog barks. A car passes.", change(DROPPED, "A car passes.", "", "A dog barks.")),
        ("A dog barks. A car passes. It rains.", change(DROPPED, "A car passes.", "", "A dog barks. It rains.")),
        ("A dog barks and a car passes.", change(DROPPED, "and a car passes", "", "A dog barks.")),
        ("A dog barks, then a car passes.",
         change("order", "A dog barks, then a car passes", "A car passes, then a dog barks",
                "A car passes, then a dog barks.")),
        ("A dog barks, then a car passes.",
         change("source", "dog", "cat", "A cat mews, then a car passes.", ("barks", "mews"))),
        ("A man speaks loudly. The man laughs, and his male voice breaks.",
         change("gender", "A man", "A woman", "A woman speaks loudly. The woman laughs, and her female voice breaks.",
                ("The man", "The woman"), ("his male", "her female"))),
        ("A bell rings twice while people talk.",
         change("source", "A bell rings", "Two bells ring", "Two bells ring twice while people talked.",
                ("talk", "talked"))),
        ("一位男子说话，他咳嗽。", change("gender", "男子", "女子", "一位女子说话，她咳嗽。", ("他", "她"))),
    ],
)  # fmt: skip
def test_a_change_takes_along_what_follows_it(caption: str, answer: dict[str, Any]) -> None:
    assert perturbation_fault(caption, answer, NAMES) is None


@pytest.mark.parametrize(
    ("caption", "answer", "reason"),
    [
        ("A man speaks. He sighs.", change("gender", "man", "woman", "A woman speaks. She sighs."), "wrong_change"),
        ("A man speaks. He sighs.", change("gender", "man", "woman", "A man speaks. She sighs.", ("He", "She")),
         "wrong_change"),  # only what follows was changed
        ("A dog barks. A car passes.", change(DROPPED, "A car passes.", "", "A dog barks. It rains."), "wrong_change"),
        ("A dog barks. A car passes.", change(DROPPED, "A car passes.", "A cat mews.", "A dog barks. A cat mews."),
         "wrong_change"),
        ("A dog barks, then a car drives by on gravel.",  # three sounds are others, and the row names one
         change("source", "dog", "cat", "A cat barks, then a train drives by on rails.", ("car", "train"),
                ("gravel", "rails")), "wrong_change"),
        ("A dog barks while a man talks.",
         change("source", "dog", "cat", "A cat barks while a woman talks.", ("a man", "a woman")), "wrong_change"),
        ("狗叫了几声，然后远处有汽车驶过。",
         change("source", "狗", "猫", "猫叫了几声，然后远处有火车驶过。", ("汽车", "火车")), "wrong_change"),
        ("A slow song.", change("mood", "slow", "sad", "A sad song."), "wrong_change"),
        ("A slow song.", change("tempo", "fast", "slow", "A fast song."), "wrong_change"),
        ("A slow song.", change("tempo", "slow", "SLOW", "A slow song."), "wrong_change"),
    ],
)  # fmt: skip
def test_whatever_else_is_changed_is_refused(caption: str, answer: dict[str, Any], reason: str) -> None:
    fault = perturbation_fault(caption, answer, NAMES)
    assert fault is not None
    assert fault.reason == reason


@given(
    st.lists(st.sampled_from(["a", "dog", "barks", "he", "the", "slow"]), min_size=1, max_size=12),
    st.lists(st.sampled_from(["a", "dog", "barks", "he", "she", "slow"]), min_size=1, max_size=12),
)
def test_no_other_words_pass_than_those_that_are_named(old: list[str], new: list[str]) -> None:
    """Of words alone, the proof agrees with a count: only `dog` and `he` may be others, and each in its place."""
    answer = change("source", "dog", "cat", " ".join(new).replace("dog", "cat"), ("he", "she"))
    fine = len(old) == len(new) and all(
        one == two or (one, two) == ("he", "she") for one, two in zip(old, new, strict=True)
    )
    if "dog" in old and "the" not in old:  # he stands in the too
        passed = perturbation_fault(" ".join(old), answer, NAMES) is None
        assert passed == (fine and "dog" in new)


def test_each_attribute_of_a_domain_is_as_likely_and_a_caption_keeps_its_own() -> None:
    for domain, names in BY_DOMAIN.items():
        orders = [[one.name for one in offered(7, f"clip {at}", domain, "en", full=True)] for at in range(2_000)]
        first = Counter(order[0] for order in orders)
        assert all(sorted(order) == sorted((*names, ADDED)) and order[-1] == ADDED for order in orders)
        expected = 2_000 / len(names)
        assert all(abs(first[name] - expected) < 5 * expected**0.5 for name in names), first
        # of two attributes that a caption has, each is drawn in half of the cases, whatever else there is
        one, two = names[:2]
        assert abs(sum(order.index(one) < order.index(two) for order in orders) - 1_000) < 5 * 500**0.5
        assert offered(7, "clip 3", domain, "zh", full=True)[0].name == orders[3][0]
    assert DROPPED not in [one.name for one in offered(7, "x", "sound", "en", full=False)]


SOUNDS = [f"{animal} calls {n + 3} times, then {thing} rings in room {n * 9}" for n, (animal, thing) in
          enumerate(zip(("A dog", "One owl", "Some cow", "That goat"), ("a bell", "one gong", "its horn", "the phone"),
                        strict=True))]  # fmt: skip


def test_a_sound_that_is_left_out_makes_a_negative_that_no_item_gives_away(tmp_path: Path) -> None:
    def answer(body: dict[str, Any], content: str) -> str:
        ask = asked_for(body)
        if ask.startswith("perturb"):
            text = fences(body)[0][1]
            assert f"- {DROPPED}: " in said_to(body)
            dropped = text[text.index(", then") :]
            return json.dumps(change(DROPPED, dropped, "", text.removesuffix(dropped)))
        if ask == "labels":  # by what is true: the short text is no full account of it
            truth, questions = fences(body)[0][1], [text for name, text in fences(body) if name == "item"]
            said = ["yes" if text.partition(": ")[2].strip('?"') in (truth, *truth.split(", ")) else "no"
                    for text in questions]  # fmt: skip
            whole = ["yes" if f'"{truth}"' in text else "no" if "beyond" in text else one
                     for text, one in zip(questions, said, strict=True)]  # fmt: skip
            return json.dumps({"items": [{"id": n, "answer": one, "rationale": "Compared."}
                                         for n, one in enumerate(whole, 1)]})  # fmt: skip
        return rubric_answer(body, content)

    with LocalServer(Faults()) as server:
        server.answer, server.keep_bodies = answer, True
        source = write_captions(tmp_path, "sounds", SOUNDS, verify={"positives": "none", "changes": "audio"})
        config = config_of(tmp_path, {**source, "domain": "sound"}, base_url=server.base_url, bench_share=0.0,
                           languages=["en"], negatives=["perturb", "judged"])  # fmt: skip
        version = build_rubrics(config, tmp_path / "store")
        asked = Counter(asked_for(body) for body in server.bodies)
    samples, labels, items = (rows_of(version, name) for name in ("samples", "labels", "items"))
    assert Counter((row["kind"], row["attribute"]) for row in samples) == {("pos", None): 4, ("perturb", DROPPED): 4}
    assert (asked["read"], asked["mismatch"]) == (
        4,
        0,
    )  # each word of the shorter text is true: a listener would say so
    assert {tuple(row["verified"]) for row in samples if row["kind"] == "perturb"} == {("text",)}
    completeness = {(row["instruction_id"], row["item"]) for row in items if row["dimension"] == "completeness"}
    asked_of = {row["sample_id"]: (row["instruction_id"], row["follows"]) for row in samples}
    answers = {
        (asked_of[row["sample_id"]][1], row["answer"])
        for row in labels
        if (asked_of[row["sample_id"]][0], row["item"]) in completeness
    }
    assert answers == {(True, True), (False, False)}, "asked of both, and decided by the clip"
    assert all(row["items_yes"] == row["items"] - (not row["follows"]) for row in samples)
