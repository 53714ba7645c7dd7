"""Who verifies what in `instruction-rubrics`, and what becomes of items that nobody can tell."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.errors import ConfigError
from earmark.tasks.instruction_rubrics.attributes import DROPPED, ORDER, offered
from earmark.tasks.store.versions import Version
from tests.annotation.conftest import model_server
from tests.builds import rows_of
from tests.conftest import ROOT
from tests.instruction_rubrics.rubrics import (
    asked_for,
    build_rubrics,
    caption,
    config_of,
    fences,
    rubric_answer,
    write_captions,
)
from tests.servers.openai_server import OpenAIServer

NUMBER = 6


server = model_server(rubric_answer, keep_bodies=True)


def built(folder: Path, server: OpenAIServer, source: dict[str, Any], **values: Any) -> Version:
    listed = write_captions(folder, "real", map(caption, range(NUMBER)), **source)
    config = config_of(folder, listed, base_url=server.base_url, bench_share=0.0, languages=["en"], **values)
    return build_rubrics(config, folder / "store")


def asks(server: OpenAIServer) -> Counter[str]:
    """How often each thing was asked."""
    return Counter(asked_for(body) for body in server.bodies)


def guided() -> Iterator[tuple[str, bool, list[str]]]:
    """Domain, origin and the three policies of each subset, as the guide's table has them."""
    lines = (ROOT / "flows/topics/instruction_rubrics/verification.md").read_text("utf-8").splitlines()
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `verify`: "))
    for first, *policies in rows:
        subset = first.removeprefix("`verify`: ")
        domain, _, origin = subset.partition("-")
        yield {"mix": "mixed"}.get(domain, domain), origin == "gen", policies


def test_by_default_each_subset_is_verified_as_the_guide_reads_the_paper(tmp_path: Path) -> None:
    """AnyAudio-Judge, section 3: the thresholds of sound are its own, and no other domain's."""
    rows = list(guided())
    assert [(domain, generated) for domain, generated, _ in rows] == [
        ("speech", False), ("speech", True), ("sound", False), ("sound", True), ("music", False), ("music", True),
        ("mixed", False),
    ]  # fmt: skip
    sources: list[dict[str, Any]] = [
        {"name": f"s{at}", "subset": f"s{at}", "domain": domain, "captions": "x.csv", "generated": generated}
        for at, (domain, generated, _) in enumerate(rows)
    ]
    by_clap = [one | {"verify": {"least": 0.3, "most": 0.2}} if one["domain"] == "sound" else one for one in sources]
    config = config_of(tmp_path, *by_clap, similarity={"model": "clap"})
    subjects = ("positives", "swaps", "changes")
    words = {"judge": ("audio",), "CLAP": ("similarity",), "nobody": ()}
    policies = [[config.verifiers(f"s{at}", subject) for subject in subjects] for at in range(len(rows))]
    assert policies == [[words[re.split("[: ]", cell)[0]] for cell in cells] for *_, cells in rows]
    assert [config.judged(f"s{at}") for at in range(len(rows))] == [False, True, False, False, False, True, False]
    assert config.bound("s2", "most") == 0.2
    plain = config_of(tmp_path, *sources)
    assert plain.verifiers("s2", "swaps") == ("audio",)  # without a model, a listener
    assert plain.judged("s3")
    shared = config_of(tmp_path, *by_clap, similarity={"model": "clap", "least": 0.1})
    assert shared.verifiers("s4", "positives") == ("audio", "similarity")  # a threshold for all is one


@pytest.mark.parametrize("format", ["clotho", "audiocaps"])
def test_sounds_of_every_list_may_be_dropped_or_reordered(tmp_path: Path, format: str) -> None:
    """Section 3 names both as the failures to imitate, for Clotho."""
    source = {"name": "x", "subset": "x", "domain": "sound", "captions": "x.csv", "format": format}
    full = config_of(tmp_path, source).source("x").full
    assert {DROPPED, ORDER} <= {one.name for one in offered(17, "a clip", "sound", "en", full=full)}
    partly = config_of(tmp_path, {**source, "describes": "partly"}).source("x").full
    assert DROPPED not in {one.name for one in offered(17, "a clip", "sound", "en", full=partly)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verify", "expected"),
    [
        (
            {"positives": "none", "swaps": "none", "changes": "none"},
            {"verify": 0, "mismatch": 0, "read": 0, "hear": 0},
        ),
        ({"positives": "none", "swaps": "text", "changes": "text"}, {"verify": 0, "mismatch": 0, "read": 6}),
        ({"swaps": ["text", "audio"]}, {"verify": 6, "mismatch": 6}),  # swapped and changed alike
    ],
)  # fmt: skip
def test_those_are_asked_whom_the_policy_names(
    tmp_path: Path, server: OpenAIServer, verify: dict[str, Any], expected: dict[str, int]
) -> None:
    version = built(tmp_path, server, {"verify": verify})
    counted = asks(server)
    assert {name: counted[name] for name in expected} == expected
    samples = rows_of(version, "samples")
    assert len(samples) == 2 * NUMBER
    heard = {"positives": verify.get("positives", "audio"), "swap": verify.get("swaps", "audio"),
             "perturb": verify.get("changes", "audio")}  # fmt: skip
    for row in samples:
        policy = heard["positives" if row["follows"] else row["kind"]]
        named = [] if policy == "none" else [policy] if isinstance(policy, str) else policy
        assert row["verified"] == named
        assert (row["verified_by"] is None) == (named == [])


@pytest.mark.slow
def test_what_a_kind_lost_is_said(tmp_path: Path, server: OpenAIServer) -> None:
    def answer(body: dict[str, Any], content: str) -> str:
        if asked_for(body) == "verify" and "number 2 " in fences(body)[0][1]:
            return json.dumps({"answer": "no", "evidence": "A drum instead."})
        return rubric_answer(body, content)

    server.answer = answer
    version = built(tmp_path, server, {}, negatives=["swap", "judged"], trains="lab/other")
    card = (version.folder / "README.md").read_text("utf-8")
    assert "real pos_gemini: 1 of 6 lost to verification (17%)" in card
    assert "real neg_swap: 0 of 5 lost to verification (0%)" in card
    assert "the judge: it would learn from itself" not in card  # another provider's name for it is not the model's
    (tmp_path / "own").mkdir()
    trained = built(tmp_path / "own", server, {}, negatives=["swap", "judged"], trains="lab/Hears")
    assert "**It was also the judge: it would learn from itself.**" in (trained.folder / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_an_item_that_nobody_can_tell_is_not_taught(tmp_path: Path, server: OpenAIServer) -> None:
    """The reader knows of the first item alone; the judge hears the second, and cannot tell the third."""

    def answer(body: dict[str, Any], content: str) -> str:
        ask = asked_for(body)
        count = sum(name == "item" for name, _ in fences(body))
        by_ask = {"labels-partly": ["no", *["unknown"] * 8], "hear": ["yes", *["unknown"] * 8]}
        if ask not in by_ask:
            return rubric_answer(body, content)
        said = zip(range(1, count + 1), by_ask[ask], strict=False)
        return json.dumps({"items": [{"id": n, "answer": one, "rationale": f"By {ask}."} for n, one in said]})

    server.answer = answer
    version = built(tmp_path, server, {"describes": "partly"}, negatives=["swap", "judged"])
    labels, samples = rows_of(version, "labels"), {row["sample_id"]: row for row in rows_of(version, "samples")}
    negative = [row for row in labels if not samples[row["sample_id"]]["follows"]]
    told = Counter((row["item"], row["answer"], row["labelled_by"]) for row in negative)
    assert told == {(1, False, "openai:writes"): NUMBER, (2, True, "openai:hears"): NUMBER}
    assert asks(server)["labels"] == 0
    rejects = Counter(row["reason"] for row in rows_of(version, "rejects"))
    listed = Counter(row["instruction_id"] for row in rows_of(version, "items"))
    items = sum(listed[row["instruction_id"]] for row in samples.values() if not row["follows"])
    assert rejects == {"not_known": items - len(negative)}


def test_what_a_judge_says_of_a_failed_clip_is_no_full_description(tmp_path: Path, server: OpenAIServer) -> None:
    def answer(body: dict[str, Any], content: str) -> str:
        failed = asked_for(body) == "verify" and "number 1 " in fences(body)[0][1]
        return json.dumps({"answer": "no", "evidence": "No bells."}) if failed else rubric_answer(body, content)

    server.answer = answer
    built(tmp_path, server, {"generated": True}, negatives=["perturb", "judged"])
    (body,) = [body for body in server.bodies if asked_for(body) == "labels-partly"]
    assert fences(body)[0] == ("truth", "No bells.")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"generated": True, "verify": {"positives": "none"}}, "expected a verifier in 'verify.positives' of 'real'"),
        ({"verify": {"swaps": "similarity"}}, "expected \\[similarity\\] with a model, and its 'most'"),
        ({"verify": {"positives": "text"}}, "audio"),
    ],
)
def test_a_policy_that_cannot_be_is_one_line(tmp_path: Path, source: dict[str, Any], expected: str) -> None:
    listed = {"name": "real", "subset": "real", "domain": "music", "captions": "real.csv", **source}
    with pytest.raises(ConfigError, match=expected):
        config_of(tmp_path, listed)
