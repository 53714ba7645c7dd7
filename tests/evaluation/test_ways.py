"""The ways in which a model is asked: ratings, single clips, forced choices, scores, arrays; draws; controls."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Examinee
from earmark.schemas.questions import Message, ScaleRating
from earmark.tasks.annotation.answers import Reply, rating
from earmark.tasks.annotation.errors import BadAnswer
from earmark.tasks.annotation.request import Request
from earmark.tasks.evaluation import judging
from earmark.tasks.evaluation.released import released
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import model_server
from tests.builds import rows_of
from tests.evaluation.test_score_files import human, rated_apart, rubric
from tests.human_preferences.votes import build_votes, config_of
from tests.pseudo_preferences.music import write_clip
from tests.servers.openai_server import OpenAIServer, comparison

Body = dict[str, Any]


server = model_server(keep_bodies=True)


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The demo's votes and ratings, for tests that only read them."""
    return human(tmp_path_factory.mktemp("votes") / "store")


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Six rated clips of PAM and of MusicEval, with their audio."""
    root = tmp_path_factory.mktemp("heard")
    scores = ["file,OVL,REL,text"]
    for number in range(6):
        name = f"human_eval/music/sys{number % 2}/{number}.wav"
        write_clip(root / "pam" / name, number)
        write_clip(root / f"musiceval/audiomos2025-track1-S00{2 + number % 2}_P00{number}.wav", 10 + number)
        scores.append(f"{name},{1.5 + number / 2},{4.5 - number / 2},a tune with {number} drums")
    (root / "pam/scores.csv").write_text("\n".join(scores))
    (root / "musiceval/sets").mkdir()
    lines = [f"audiomos2025-track1-S00{2 + n % 2}_P00{n}.wav,{1 + n / 2},{5 - n / 2}" for n in range(6)]
    (root / "musiceval/sets/test_mos_list.txt").write_text("\n".join(lines))
    (root / "musiceval/prompt_info.txt").write_text("\n".join(f"P00{n}\ta piece for {n} flutes" for n in range(6)))
    pam = {"name": "pam", "format": "pam", "root": str(root / "pam"), "files": ["scores.csv"]}
    musiceval = {"name": "musiceval", "format": "musiceval", "root": str(root / "musiceval")}
    return build_votes(config_of(root, pam, musiceval, audio="embed"), root / "store")


@pytest.fixture(scope="module")
def rubrics(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Instructions and their items, for tests that only read them."""
    return rubric(tmp_path_factory.mktemp("rubrics") / "store")


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Pairs of rated voices of the demo, with their audio."""
    return rated_apart(tmp_path_factory)


def run(
    version: Version, server: OpenAIServer | str, out: Path, wish: MeasurementOptions, model: str = "m", **values: Any
) -> tuple[Any, list[Body]]:
    """Facts and predictions of a model, asked over a server or built in."""
    spec = (
        {"annotator": server}
        if isinstance(server, str)
        else {"annotator": f"openai:{model}", "base_url": server.base_url}
    )
    store = Store(version.folder.parent.parent)
    config = Examinee(**spec, retry_base_s=0.01, **values)
    facts, folder = judging.judge(version, find_corpus(version.corpus), store, config, wish, out)
    return {**facts, "folder": folder}, pq.read_table(folder / "predictions.parquet").to_pylist()


def words(body: Body) -> str:
    """The text of a question's last turn."""
    return "".join(part["text"] for part in body["messages"][-1]["content"] if part["type"] == "text")


def clips(body: Body) -> list[str]:
    """The clips that a question lets hear."""
    content = body["messages"][-1]["content"]
    return [part["input_audio"]["data"] for part in content if part["type"] == "input_audio"]


def digit_of(clip: str) -> int:
    """What the tests' model thinks of a clip, 1 to 5."""
    return 1 + hashlib.sha256(clip.encode()).digest()[0] % 5


def digits(body: Body, _: str) -> Body:
    """Log-probabilities of a model that gives a clip's digit 0.7, and 0.1 to 1, to 5 and to a word each."""
    shares = dict.fromkeys("15", 0.1) | {"The": 0.1}
    digit = str(digit_of(clips(body)[-1]))
    shares[digit] = shares.get(digit, 0) + 0.7
    listed = [{"token": token, "logprob": math.log(share)} for token, share in shares.items()]
    return {**listed[-1], "top_logprobs": listed}


def expected(clip: str) -> float:
    """The mean of those digits."""
    return (0.7 * digit_of(clip) + 0.1 * 1 + 0.1 * 5) / 0.9


# -- ratings ------------------------------------------------------------------------------------------------------


def test_a_rating_is_the_mean_of_its_digits() -> None:
    logits = np.random.default_rng(0).normal(size=6)
    logprobs = logits - np.log(np.exp(logits).sum())
    tokens = tuple(zip(("1", " 2", "3", "4", "5", "Hm"), map(float, logprobs), strict=True))
    said = rating(ScaleRating(), Reply("3", first_token=tokens))
    shares = np.exp(logprobs[:5])
    assert said["score"] == pytest.approx(np.average([1, 2, 3, 4, 5], weights=shares), abs=1e-12)
    assert said["share"] == pytest.approx(shares.sum(), abs=1e-12)
    with pytest.raises(BadAnswer, match="expected a digit from 1 to 5 as the first token, found 'Hm' likelier"):
        rating(ScaleRating(), Reply("Hm", first_token=(("Hm", -0.1), ("6", -3.0))))
    with pytest.raises(BadAnswer, match="found none; does the server offer them"):
        rating(ScaleRating(), Reply("3"))
    keys = {Request("openai:m", (Message.of("user", "?"),), ScaleRating(*scale)).key for scale in ((1, 5), (0, 9))}
    assert len(keys) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pam-musicality", "pam-alignment", "musiceval-musicality"])
def test_ratings_are_asked_by_the_probabilities_of_digits(
    heard: Version, server: OpenAIServer, tmp_path: Path, name: str
) -> None:
    server.first_token = digits
    facts, rows = run(heard, server, tmp_path / "out", MeasurementOptions(name))
    assert facts["mode"] == "score"
    assert all((body["max_tokens"], body["logprobs"]) == (1, True) for body in server.bodies)
    assert sorted(row["score"] for row in rows) == pytest.approx(sorted(expected(clips(b)[0]) for b in server.bodies))
    targets, scores = [float(row["target"]) for row in rows], [row["score"] for row in rows]
    assert facts["rows"][0]["metrics"]["lcc"]["value"] == pytest.approx(np.corrcoef(targets, scores)[0, 1])
    texts = {row["text"] for row in rows_of(heard, "benchmark") if row["text"]}
    assert all(any(text in words(body) for text in texts) for body in server.bodies)


@pytest.mark.slow
def test_a_backend_without_probabilities_rates_in_a_word(heard: Version, server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = lambda body, content: f"{digit_of(clips(body)[0])}."
    _, rows = run(heard, server, tmp_path / "out", MeasurementOptions("pam-musicality"), yes_no="words")
    assert not any("logprobs" in body for body in server.bodies)
    assert sorted(row["score"] for row in rows) == sorted(digit_of(clips(body)[0]) for body in server.bodies)


@pytest.mark.slow
def test_clips_that_are_rated_alone_are_preferred_by_their_rating(
    votes: Version, server: OpenAIServer, tmp_path: Path
) -> None:
    server.first_token = digits
    facts, rows = run(votes, server, tmp_path / "out", MeasurementOptions("cmi-pref-musicality", "single"))
    assert facts["prompts"].keys() == {"clip-rating-musicality@1"}
    by_key = {hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest() for body in server.bodies}
    assert len(by_key) == len(server.bodies) <= 2 * len(rows)  # a clip of two pairs is rated once
    for row in rows:
        assert row["choice"] == ("a" if row["score"] > 0 else "b" if row["score"] < 0 else "tie")
    leads = {round(abs(row["score"]), 9) for row in rows}
    rates = [expected(clips(body)[-1]) for body in server.bodies]
    assert leads <= {round(abs(one - other), 9) for one in rates for other in rates}
    with pytest.raises(ConfigError, match="mode 'single' compares no clips"):
        run(votes, server, tmp_path / "both", MeasurementOptions("cmi-pref-musicality", "single", both_orders=True))


@pytest.mark.slow
def test_the_side_that_a_single_rating_prefers_is_the_published_one(
    speech: Version, server: OpenAIServer, tmp_path: Path
) -> None:
    pairs = {row["pair_id"]: row for row in rows_of(speech, "pairs")}
    better = {row["chosen_id"] for row in pairs.values()}
    mos = {row["sample_id"]: row["mos"] for row in rows_of(speech, "ratings")}
    assert better <= mos.keys()
    facts, rows = run(speech, "builtin:speech-critique-1", tmp_path / "scores", MeasurementOptions("quality", "scores"))
    both, _ = run(
        speech,
        "builtin:speech-critique-1",
        tmp_path / "both",
        MeasurementOptions("quality", "scores", both_orders=True),
    )
    assert both["inconsistent"] == 0  # it scores each clip by itself, so that order tells it nothing
    assert both["rows"][0]["metrics"] == facts["rows"][0]["metrics"]
    pair, _ = run(speech, "builtin:speech-pair-1", tmp_path / "pair", MeasurementOptions("quality"))
    accuracy = pair["rows"][0]["metrics"]["accuracy"]["value"]
    assert abs(facts["rows"][0]["metrics"]["accuracy_tie_half"]["value"] - accuracy) < 0.1  # the same measurements
    assert all((row["score"] > 0) == (row["choice"] == "chosen") for row in rows)


@pytest.mark.slow
def test_a_forced_choice_knows_no_tie(votes: Version, server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = lambda body, content: "tie" if digit_of(clips(body)[-1]) == 3 else "B"
    facts, rows = run(votes, server, tmp_path / "out", MeasurementOptions("cmi-pref-alignment", "forced"), repairs=0)
    unread = [row for row in rows if row["reason"]]
    assert {row["reason"] for row in unread} <= {"bad_answer"}
    assert facts["samples"] == len(rows)  # what is not readable stays, and counts as wrong
    right = sum(bool(row["right"]) for row in rows) / len(rows)
    assert facts["rows"][0]["metrics"]["accuracy"]["value"] == right
    assert {row["choice"] for row in rows if not row["reason"]} <= {"a", "b"}


@pytest.mark.slow
def test_pairs_of_voices_have_a_form_without_a_tie(speech: Version, server: OpenAIServer, tmp_path: Path) -> None:
    """MOS-RMBench, Figure 9: the judge gives the identifier of the better clip alone."""
    server.answer = lambda body, content: "tie" if digit_of(clips(body)[0]) == 3 else "**B**."
    _, rows = run(speech, server, tmp_path / "out", MeasurementOptions("quality", "forced"), repairs=0)
    assert {row["reason"] for row in rows} == {None, "bad_answer"}
    assert {row["choice"] for row in rows} <= {"chosen", "rejected", None}
    assert all("identifier alone" in words(body) and "tie" not in words(body) for body in server.bodies)
    facts, _ = run(speech, server, tmp_path / "cycles", MeasurementOptions("cycles", "forced"), repairs=0)
    assert facts["mode"] == "forced"


# -- several draws ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_scores_of_several_draws_are_averaged(speech: Version, server: OpenAIServer, tmp_path: Path) -> None:
    given = {7: (9, 3), 8: (2, 4), 9: (2, 4)}  # most draws say the second, their mean the first

    def answer(body: Body, content: str) -> str:
        return comparison(*given[body["seed"]])

    server.answer = answer
    wish = MeasurementOptions("quality", "scores", SamplePart(limit=6), draws=3)
    _facts, rows = run(speech, server, tmp_path / "out", wish, seed=7, temperature=0.7)
    assert len(server.bodies) == 3 * len(rows)
    assert all(abs(row["score"]) == pytest.approx(2 / 3) and len(row["request_keys"]) == 3 for row in rows)
    one, alone = run(speech, server, tmp_path / "one", replace(wish, draws=1), seed=7, temperature=0.7)
    assert len(server.bodies) == 3 * len(rows)  # the first draw is the answer that is there already
    assert {row["id"]: row["choice"] for row in rows} == {row["id"]: row["choice"] for row in alone}
    assert "3-draws" not in one["folder"].name
    assert (tmp_path / "out/README.md").read_text().count("3 draws") == 1
    given[8] = (0, 0)  # no scores from 1 to 10: such a draw is left out
    other = replace(wish, part=SamplePart(limit=12))
    _, more = run(speech, server, tmp_path / "more", other, seed=7, temperature=0.7)
    new = [abs(row["score"]) for row in more if row["id"] not in {row["id"] for row in rows}]
    assert new
    assert new == pytest.approx([2.0] * len(new))
    with pytest.raises(ConfigError, match="--draws above 1 needs a temperature above 0"):
        run(speech, server, tmp_path / "cold", wish, seed=7)


def test_scores_that_cannot_be_read_are_wrong(speech: Version, server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = lambda body, content: "Both are fine." if digit_of(clips(body)[0]) < 3 else comparison(8, 2)
    facts, rows = run(speech, server, tmp_path / "out", MeasurementOptions("quality", "scores"))
    unread = [row for row in rows if row["reason"] == "unreadable"]
    assert 0 < len(unread) < len(rows)
    assert facts["unanswered"] == {"unreadable": len(unread)}
    right = sum(bool(row["right"]) for row in rows) / len(rows)
    assert facts["rows"][0]["metrics"]["accuracy"]["value"] == pytest.approx(right)


def test_scores_are_read_as_builds_read_them(speech: Version, server: OpenAIServer, tmp_path: Path) -> None:
    forms = [
        "**Final Scores: [[8, 2]]**",
        "Final Score: [[8.0,2.0]].",
        "### Final Scores\n［［8，2］］\nClip 1 is better.",
    ]
    server.answer = lambda body, content: f"**Noise**: none\n{forms[digit_of(clips(body)[0]) % 3]}"
    facts, rows = run(speech, server, tmp_path / "out", MeasurementOptions("quality", "scores"), model="marked")
    assert facts["answered"] == len(rows)
    assert {abs(row["score"]) for row in rows} == {6.0}


# -- arrays -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_items_in_one_array_say_what_they_say_one_by_one(rubrics: Version, tmp_path: Path) -> None:
    wish = MeasurementOptions("alignment", "array", SamplePart("all"))
    facts, rows = run(rubrics, "builtin:rubric-judge-1", tmp_path / "array", wish)
    alone, single = run(rubrics, "builtin:rubric-judge-1", tmp_path / "items", replace(wish, mode="rubric"))
    assert [(row["id"], row["score"], row["right"]) for row in rows] == [
        (row["id"], row["score"], row["right"]) for row in single
    ]
    assert [[item["score"] for item in row["items"]] for row in rows] == [
        [item["score"] for item in row["items"]] for row in single
    ]
    assert facts["rows"][0]["metrics"] == alone["rows"][0]["metrics"]
    assert all(len(row["request_keys"]) == 1 for row in rows)
    assert {"accuracy", "accuracy_share", "auroc"} <= facts["rows"][0]["metrics"].keys()


@pytest.mark.slow
def test_an_array_that_leaves_an_item_out_is_wrong(rubrics: Version, server: OpenAIServer, tmp_path: Path) -> None:
    def answer(body: Body, content: str) -> str:
        numbers = [int(number) for number in re.findall(r"^(\d+):$", words(body), re.MULTILINE)]
        kept = numbers[:-1] if len(numbers) > 1 and int(content[:2], 16) % 2 else numbers
        return json.dumps([{"id": number, "answer": "yes", "evidence": "Heard."} for number in kept])

    server.answer = answer
    facts, rows = run(rubrics, server, tmp_path / "out", MeasurementOptions("alignment", "array", SamplePart("all")))
    unread = [row for row in rows if row["reason"]]
    assert 0 < len(unread) < len(rows)
    assert all(re.search(r"each of the items 1 to \d+ once, found", row["detail"]) for row in unread)
    right = sum(row["target"] == "yes" and not row["reason"] for row in rows)
    assert facts["rows"][0]["metrics"]["accuracy"]["value"] == pytest.approx(right / len(rows))


def test_an_array_has_as_many_items_as_its_instruction(server: OpenAIServer, tmp_path: Path) -> None:
    write_clip(tmp_path / "clip.wav", 1)
    sound = {"bytes": (tmp_path / "clip.wav").read_bytes(), "path": "clip.wav"}
    counts = {5: 20, 20: 20, 21: 21, 200: 200}  # items, and the longest array that the server may write
    pq.write_table(
        pa.Table.from_pylist(
            [
                {"uuid": f"u{count}", "audio": sound, "caption": f"A film of {count}.", "label": "yes", "type": "pos",
                 "subset": "mix", "rubric": [{"dimension": "d", "question": f"Is sound {n} heard?", "basis": "b"}
                                             for n in range(count)]}
                for count in counts
            ]
        ),
        tmp_path / "test.parquet",
    )  # fmt: skip
    longest = {}

    def answer(body: Body, content: str) -> str:
        numbers = [int(number) for number in re.findall(r"^(\d+):$", words(body), re.MULTILINE)]
        schema = body["response_format"]["json_schema"]["schema"]
        assert schema["items"]["properties"]["id"]["maximum"] == schema["maxItems"]
        longest[len(numbers)] = schema["maxItems"]
        first = int(len(numbers) > 20)  # long lists are numbered from 0, as the authors' judge does
        said: dict[str, Any] = {"answer": "yes", "evidence": "Heard."} | ({"dimension": "d"} if first else {})
        return json.dumps([{"id": number - first, **said} for number in numbers])

    server.answer = answer
    held = released(tmp_path / "test.parquet", "anyaudio-judge-bench", Store(tmp_path / "store"), ())
    with held as (version, corpus):
        config = Examinee(annotator="openai:m", base_url=server.base_url)
        wish = MeasurementOptions("alignment", "array")
        facts, _ = judging.judge(version, corpus, Store(tmp_path / "store"), config, wish, tmp_path / "out")
    assert (facts["answered"], facts["samples"]) == (4, 4)
    assert longest == counts
    assert facts["rows"][0]["metrics"]["accuracy"]["value"] == 1.0


# -- controls -----------------------------------------------------------------------------------------------------


def test_a_model_without_the_audio_reads_the_same_words(heard: Version, server: OpenAIServer, tmp_path: Path) -> None:
    server.first_token = digits
    wish = MeasurementOptions("pam-alignment")
    run(heard, server, tmp_path / "whole", wish, model="deaf")
    whole = list(server.bodies)
    server.bodies.clear()
    server.first_token = lambda body, content: {"token": "4", "logprob": -0.1, "top_logprobs": []}
    facts, rows = run(heard, server, tmp_path / "deaf", replace(wish, blind="audio"), model="deaf")
    assert not any(map(clips, server.bodies))
    told = "(no audio is given; answer by the words alone)"
    assert {words(body).replace(told, "") for body in server.bodies} == {words(body) for body in whole}
    assert {row["score"] for row in rows} == {4.0}
    assert facts["blind"] == "audio"
    assert "a control without the audio" in (tmp_path / "deaf/README.md").read_text()


def test_a_model_without_the_words_hears_the_same_clips(heard: Version, server: OpenAIServer, tmp_path: Path) -> None:
    server.first_token = digits
    texts = {row["text"] for row in rows_of(heard, "benchmark") if row["text"]}
    facts, _ = run(heard, server, tmp_path / "blind", MeasurementOptions("pam-alignment", blind="text"))
    assert facts["answered"] == facts["samples"]
    assert all(clips(body) and not any(text in words(body) for text in texts) for body in server.bodies)
    assert all("(not given)" in words(body) for body in server.bodies)


@pytest.mark.slow
def test_what_would_be_no_control_is_refused(speech: Version, rubrics: Version, votes: Version, tmp_path: Path) -> None:
    refused = [
        (speech, MeasurementOptions("quality", blind="audio"), "shows no words: nothing would be withheld or left"),
        (
            rubrics,
            MeasurementOptions("alignment", "rubric", SamplePart("all"), blind="text"),
            "asks about its items' words",
        ),
        (votes, MeasurementOptions("cmi-pref-musicality", blind="audio"), "'builtin:music-pair-2' measures clips"),
    ]
    for version, wish, says in refused:
        with pytest.raises(ConfigError, match=says):
            run(version, "builtin:music-pair-2", tmp_path / "out", wish)
