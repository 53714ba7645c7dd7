"""Critiques: what a critic hears and in which order, which answers are rows, what becomes of the others."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.flows.command.running import forecast_build
from earmark.flows.mos_preferences import build
from earmark.schemas.critiques import ASPECTS as CRITIQUE_ASPECTS
from earmark.schemas.critiques import CRITIQUE_VIEWS
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.schemas.mos_preferences import CORPUS
from earmark.schemas.rewards import final_scores
from earmark.tasks.annotation import answers, json_answers, run
from earmark.tasks.annotation.prompts import prompt_named
from earmark.tasks.mos_preferences import critiquing
from earmark.tasks.store.explain import explain
from earmark.tasks.store.versions import Store, Version, verify
from tests.annotation.conftest import asked, model_server
from tests.builds import build_version, contents_of, forecast, rows_of
from tests.mos_preferences.critiques import config_of, make_study, write_config
from tests.servers.openai_server import ASPECTS, OpenAIServer, comparison, critic_answer

server = model_server(critic_answer, keep_bodies=True)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A small study with clips."""
    make_study(tmp_path / "study")
    return tmp_path / "study"


def refused(version: Version, table: str) -> dict[str, dict[str, Any]]:
    """Rejects of a table by item."""
    return {row["item"]: row for row in rows_of(version, "rejects") if row["table"] == table}


# -- answers that are kept -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_kept_refusals_of_a_critic_are_rejects_of_a_rebuild_and_not_asked_again(
    study: Path, server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses_some(body: dict[str, Any], content: str) -> str:
        told = critic_answer(body, content)
        return told if asked(server) % 3 else json.dumps(dict.fromkeys(ASPECTS, "I cannot listen to audio files."))

    server.answer = refuses_some
    config = config_of(study, server.base_url, {"pairs": 0})
    with monkeypatch.context() as before:
        before.setattr(critiquing, "description_fault", lambda value: None)
        first = build_version(config, tmp_path / "store")
    paid, kept = asked(server), rows_of(first, "critiques")
    heard = [row["sample_id"] for row in kept if "listen" not in row["noise"]]
    again = build_version(config, tmp_path / "store", force=True)
    assert [row["sample_id"] for row in rows_of(again, "critiques")] == heard
    assert [row["reason"] for row in refused(again, "critiques").values()] == ["refused"] * (len(kept) - len(heard))
    assert 0 < len(heard) < len(kept)
    assert asked(server) == paid


# -- answers of all forms -----------------------------------------------------------------------------------------

MARKED = """**Noise**: clip 2 hums.

### 2. Distortion
none heard

- **Naturalness** – both are human
Continuity: both flow

**Final Scores: [[{}, {}]]**

Clip 1 and clip 2 differ by 5 dB."""


def in_markdown(body: dict[str, Any], content: str) -> str:
    """The critic's answer in Markdown, or JSON with line breaks in its strings."""
    text = critic_answer(body, content)
    if "Final Scores" not in text:
        return text.replace(" as in ", "\n\tas in ").replace("\\n", "\n")
    one, two = re.findall(r"\d+", text.rpartition("\n")[2])
    return MARKED.format(one, two)


@pytest.mark.slow
def test_answers_in_markdown_are_rows_like_others(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    plain = build_version(config_of(study, server.base_url, {"tries": 2}), tmp_path / "plain")
    server.answer = in_markdown
    version = build_version(config_of(study, server.base_url, {"tries": 2}), tmp_path / "store")
    told = ("first_id", "second_id", "first_score", "second_score", "tries")
    assert [[row[name] for name in told] for row in rows_of(version, "paired_critiques")] == [
        [row[name] for name in told] for row in rows_of(plain, "paired_critiques")
    ]
    for row in rows_of(version, "paired_critiques"):
        assert final_scores(row["rationale"]) == (row["first_score"], row["second_score"])
        assert row["rationale"].startswith("**Noise**: clip 2 hums.\n\n### 2. Distortion\nnone heard")
    described = rows_of(version, "critiques")
    assert len(described) == len(rows_of(plain, "critiques"))
    assert all(row["noise"].startswith("noise\n\tas in ") for row in described)


@pytest.mark.slow
def test_kept_answers_that_are_read_now_are_rows_and_not_asked_again(
    study: Path, server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer, options = in_markdown, {"tries": 2, "repairs": 1}
    with monkeypatch.context() as before:  # as release 1.0.0 read them
        before.setattr(critiquing, "read_scores", final_scores)
        before.setattr(json_answers, "as_json", lambda text: text)
        before.setattr(answers, "PARSER", 3)
        before.setattr(run, "PARSER", 3)
        config = config_of(study, server.base_url, options)
        first = build_version(config, tmp_path / "store")
    assert first.manifest.rows.keys() == {"pairs", "ratings", "rejects", "triplets"}
    assert {row["reason"] for row in rows_of(first, "rejects")} == {"bad_answer"}
    paid = asked(server)
    dry = forecast(CORPUS, build.story, config, Store(tmp_path / "store"))  # type: ignore[attr-defined]
    assert dry
    assert (dry["stage"], dry["to_ask"], dry["critiques"]["to_ask"]) == ("paired_critiques", 0, 0)
    again = build_version(config, tmp_path / "store", force=True)
    assert rows_of(again, "paired_critiques")
    assert len(rows_of(again, "critiques")) == len(rows_of(again, "ratings"))
    assert asked(server) == paid


# -- a whole build ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_clip_and_pair_is_a_row_or_a_reject(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    version = build_version(config_of(study, server.base_url, {"tries": 2}), tmp_path / "store")
    assert verify(version) == []
    pairs = {row["pair_id"]: row for row in rows_of(version, "pairs")}
    compared = {row["pair_id"]: row for row in rows_of(version, "paired_critiques")}
    rejected = refused(version, "paired_critiques")
    assert compared.keys() | rejected.keys() == pairs.keys()
    assert not compared.keys() & rejected.keys()
    assert compared
    assert rejected
    for name, row in compared.items():
        pair = pairs[name]
        first = {"first": pair["chosen_id"], "second": pair["rejected_id"]}[row["better"]]
        second = {"first": pair["rejected_id"], "second": pair["chosen_id"]}[row["better"]]
        assert (row["first_id"], row["second_id"]) == (first, second)
        assert final_scores(row["rationale"]) == (row["first_score"], row["second_score"])
        assert (row["first_score"] > row["second_score"]) == (row["better"] == "first")
        assert row["mos_gap_normalized"] == pair["mos_gap_normalized"]
    assert {row["reason"] for row in rejected.values()} == {"scores_disagree"}
    assert all(row["detail"].endswith("asked 2 times") and "found " in row["detail"] for row in rejected.values())
    described = rows_of(version, "critiques")
    assert {row["sample_id"] for row in described} == {row["sample_id"] for row in rows_of(version, "ratings")}
    assert all(row[aspect].startswith(aspect) for row in described for aspect in ASPECTS)
    assert {row["model"] for row in described} == {"openai:tiny"}
    assert {row["prompt"] for row in described} == {"speech-critique@1"}
    # a pair whose scores disagree is asked twice, everything else once
    assert asked(server) == len(described) + len(compared) + 2 * len(rejected)


@pytest.mark.slow
def test_nothing_but_the_audio_reaches_the_critic(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    version = build_version(config_of(study, server.base_url, {"tries": 1}), tmp_path / "store")
    words = set()
    for body in server.bodies:
        texts = [
            part["text"]
            for message in body["messages"]
            for part in ([{"type": "text", "text": message["content"]}] if isinstance(message["content"], str) else
                         message["content"])
            if part["type"] == "text"
        ]  # fmt: skip
        words.add("\n".join(texts))
    assert len(words) == 2  # the same words for every clip, and the same for every pair
    said = "\n".join(words)
    for row in rows_of(version, "ratings"):
        assert row["file"] not in said
        assert f"{row['mos']:.2f}" not in said


@pytest.mark.slow
def test_position_tells_nothing_of_the_label(tmp_path: Path, server: OpenAIServer) -> None:
    make_study(tmp_path / "study", 60)
    critiques = {"clips": 0, "tries": 1}
    config = config_of(tmp_path / "study", server.base_url, critiques, pairs={"draws": 16})
    version = build_version(config, tmp_path / "store")
    pairs = {row["pair_id"]: row for row in rows_of(version, "pairs")}
    step = next(step for step in version.manifest.steps if step.name == "paired_critiques")
    assert step.entered == len(pairs) > 300
    order = _orders(version)
    first = sum(order.values())
    assert abs(first - len(order) / 2) < 4 * (len(order) / 4) ** 0.5  # four standard deviations of a fair coin
    gaps = [[pairs[name]["mos_gap"] for name, one in order.items() if one is side] for side in (True, False)]
    means = [sum(held) / len(held) for held in gaps]
    assert abs(means[0] - means[1]) < 0.5


def _orders(version: Version) -> dict[str, bool]:
    """Whether the chosen clip was heard first, of every pair that was compared, be it a row or a reject."""
    found = {row["pair_id"]: row["better"] == "first" for row in rows_of(version, "paired_critiques")}
    for item, row in refused(version, "paired_critiques").items():
        found[item] = "for the first clip" in row["detail"]
    return found


@pytest.mark.slow
def test_another_seed_orders_clips_otherwise(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    critiques = {"clips": 0, "tries": 1}
    one, other = (
        _orders(build_version(config_of(study, server.base_url, critiques, seed=seed), tmp_path / f"{seed}"))
        for seed in (1, 2)
    )
    both = one.keys() & other.keys()
    assert any(one[name] != other[name] for name in both)


@pytest.mark.slow
def test_more_keeps_what_was_asked(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    few = build_version(config_of(study, server.base_url, {"clips": 3, "pairs": 4, "tries": 1}), tmp_path / "store")
    before = asked(server)
    assert before == 7
    more = build_version(config_of(study, server.base_url, {"clips": 5, "pairs": 9, "tries": 1}), tmp_path / "store")
    assert asked(server) == before + 2 + 5
    for table, key in (("critiques", "sample_id"), ("paired_critiques", "pair_id")):
        held = {row[key]: row for row in rows_of(more, table)}
        assert all(held[row[key]] == row for row in rows_of(few, table))


@pytest.mark.slow
def test_a_pair_is_asked_again_until_the_scores_agree(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    heard: Counter[tuple[str, ...]] = Counter()

    def later(body: dict[str, Any], content: str) -> str:
        parts = body["messages"][-1]["content"]
        clips = tuple(p["input_audio"]["data"] for p in parts if p["type"] == "input_audio")
        heard[clips] += 1
        return comparison(*[(5, 5), (2, 9), (9, 2)][min(heard[clips], 3) - 1])

    server.answer = later
    version = build_version(config_of(study, server.base_url, {"clips": 0, "tries": 3}), tmp_path / "store")
    rows = rows_of(version, "paired_critiques")
    assert {(row["better"], row["tries"]) for row in rows} == {("second", 2), ("first", 3)}
    assert not refused(version, "paired_critiques")
    before = asked(server)
    again = build_version(config_of(study, server.base_url, {"clips": 0, "tries": 3}), tmp_path / "store", force=True)
    assert asked(server) == before
    assert contents_of(again.folder) == contents_of(version.folder)


@pytest.mark.slow
def test_clips_without_audio_are_rejects(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    (study / "clips/c003.wav").unlink()
    (study / "clips/c005.wav").write_bytes(b"no sound")
    version = build_version(config_of(study, server.base_url, {"tries": 1}), tmp_path / "store")
    assert {item: row["reason"] for item, row in refused(version, "critiques").items()} == {
        "study/clips/c003.wav": "file_missing",
        "study/clips/c005.wav": "file_unreadable",
    }
    lost = {row["reason"] for row in refused(version, "paired_critiques").values()}
    assert lost == {"file_missing", "file_unreadable", "scores_disagree"}
    assert len(rows_of(version, "ratings")) == 12


@pytest.mark.slow
def test_without_critiques_nothing_changes(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    plain = config_of(study, server.base_url).model_copy(update={"critiques": None})
    version = build_version(plain, tmp_path / "plain")
    assert "critiques" not in version.manifest.rows
    assert not (version.folder / "critiques").exists()
    assert "paired_critiques/" not in (version.folder / "README.md").read_text("utf-8")
    assert version.manifest.prompts == {}
    with_critic = build_version(config_of(study, server.base_url), tmp_path / "critic")
    for table in ("ratings", "pairs"):
        assert contents_of(with_critic.folder / table) == contents_of(version.folder / table)


@pytest.mark.slow
def test_free_text_beside_the_parts(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    """Only single clips are asked in other words, and a policy is asked for what its teacher wrote."""

    def answer(body: dict[str, Any], content: str) -> str:
        written = critic_answer(body, content)
        wanted = "free_text" in json.dumps(body["messages"])
        return json.dumps(json.loads(written) | {"free_text": " Warm. A door slams. "}) if wanted else written

    server.answer = answer
    plain = build_version(config_of(study, server.base_url, {"tries": 1}), tmp_path / "store")
    before = asked(server)
    free = build_version(config_of(study, server.base_url, {"tries": 1, "free_text": True}), tmp_path / "store")
    described = rows_of(free, "critiques")
    assert asked(server) - before == len(described) == 12  # pairs are not asked again
    assert {(row["free_text"], row["prompt"]) for row in described} == {
        ("Warm. A door slams.", "speech-critique-free@1")
    }
    assert {row["free_text"] for row in rows_of(plain, "critiques")} == {None}
    assert contents_of(free.folder / "paired_critiques") == contents_of(plain.folder / "paired_critiques")
    lines = {}
    for version in (plain, free):
        (path,) = exported(version, tmp_path / version.name).glob("*.jsonl")
        lines[version.name] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for one, other in zip(lines["v1"], lines["v2"], strict=True):
        (asks, more), (says, written) = (
            [json.dumps(row[name]) for row in (one, other)] for name in ("prompt", "completion")
        )
        assert "free text" in more
        assert "free text" not in asks
        assert r"\n\nWarm. A door slams." in written
        assert "Warm" not in says


@pytest.mark.slow
def test_views_for_scores_of_one_clip(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    """A regression gets each rated clip with its MOS; a score after a critique gets both critiques beside a pair."""
    config = config_of(study, server.base_url, {"tries": 1}, audio="index")
    version = build_version(config, tmp_path / "store")
    rated = {row["sample_id"]: row for row in rows_of(version, "ratings")}
    critiques = {row["sample_id"]: row for row in rows_of(version, "critiques")}
    pairs = {row["pair_id"]: row for row in rows_of(version, "pairs")}

    def lines(folder: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]

    clips = lines(exported(version, tmp_path / "clips", "rated-clips", "ms-swift-grpo"))
    assert {row["id"]: row["mos"] for row in clips} == {name: row["mos"] for name, row in rated.items()}
    for row in clips:
        assert row["messages"][0]["content"].endswith("Clip: <audio>")
        assert row["audios"][0].split("/")[-1].startswith(rated[row["id"]]["clip_sha256"])
        assert row["mos_of_scale"] == pytest.approx((row["mos"] - 1) / 4)
    beside = lines(exported(version, tmp_path / "pairs", "critique-preferences", "ms-swift"))
    assert {row["id"] for row in beside} == pairs.keys()
    for row in beside:
        for side, messages, audios in (
            ("chosen", "messages", "audios"),
            ("rejected", "rejected_messages", "rejected_audios"),
        ):
            known = critiques[pairs[row["id"]][f"{side}_id"]]
            user, assistant = row[messages]
            assert user["content"].endswith("\nClip: <audio>")
            assert assistant["content"].startswith(f"Noise: {known['noise']}\nDistortion: {known['distortion']}")
            assert [Path(one).stem for one in row[audios]] == [known["clip_sha256"]]


def exported(version: Version, folder: Path, view: str = "critique-clips", form: str = "jsonl") -> Path:
    """A view, by the documented command."""
    store = str(version.folder.parents[1])
    words = ["export", f"mos-preferences@{version.name}", "--view", view, "--for", form]
    run = CliRunner().invoke(app, [*words, "--out", str(folder), "--store", store, "--audio-root", str(store)])
    assert run.exit_code == 0, run.output + str(run.exception)
    return folder


@pytest.mark.slow
def test_tables_in_which_nothing_is_valid_are_left_out(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = lambda body, content: comparison(5, 5)
    version = build_version(config_of(study, server.base_url, {"clips": 0, "tries": 1}), tmp_path / "store")
    assert "paired_critiques" not in version.manifest.rows
    assert len(refused(version, "paired_critiques")) == len(rows_of(version, "pairs"))


@pytest.mark.slow
def test_a_critic_that_is_down_stops_the_build_and_it_goes_on(
    study: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    config = config_of(study, server.base_url, {"retries": 0, "tries": 1})
    faults = server.faults
    faults.rate, faults.kinds, faults.most = 1.0, ("500",), None
    with pytest.raises(EarmarkError, match="questions all end alike: 500"):
        build_version(config, tmp_path / "store")
    assert not Store(tmp_path / "store").versions("mos-preferences")
    faults.rate = 0.0
    version = build_version(config, tmp_path / "store")
    assert contents_of(version.folder) == contents_of(build_version(config, tmp_path / "calm").folder)


def test_dry_run_says_what_would_be_asked(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    path = write_config(study, server.base_url, {"clips": 4, "pairs": 6, "tries": 3})
    facts = forecast_build("mos-preferences", path, Store(tmp_path / "store"))["asks"]
    clips, pairs = facts["critiques"], facts  # the first question is about a pair
    assert (clips["about"], clips["requests"], clips["to_ask"], clips["tries"]) == ("4 clips", 4, 4, 1)
    assert (pairs["about"], pairs["requests"], pairs["to_ask"], pairs["tries"]) == ("6 pairs", 6, 6, 3)
    assert asked(server) == 0
    assert not (tmp_path / "store/mos-preferences").exists()


@pytest.mark.slow
def test_card_says_how_the_critic_scored(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    version = build_version(config_of(study, server.base_url, {"tries": 2, "seed": 3}), tmp_path / "store")
    rows, pairs = rows_of(version, "paired_critiques"), rows_of(version, "pairs")
    card = (version.folder / "README.md").read_text("utf-8")
    told = card[card.index("How the critic scored") : card.index("## Tables")]
    assert (
        f"Of {len(pairs)} pairs that the critic was to compare, {len(pairs)} could be heard, and {len(rows)} " in told
    )
    first = sum(row["better"] == "first" for row in rows)
    assert f"The better clip scored higher in {first} of " in told
    tries = Counter(row["tries"] for row in rows)
    assert f"(by try: 1 → {tries[1]}, 2 → {tries[2]})." in told
    counted = [int(line.split("|")[2]) for line in told.splitlines() if " to " in line and line.startswith("| ")]
    assert sum(counted) == len(rows)


@pytest.mark.slow
def test_explain_tells_who_wrote_it(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    from earmark.schemas.mos_preferences import CORPUS

    version = build_version(config_of(study, server.base_url, {"tries": 1}), tmp_path / "store")
    row = rows_of(version, "paired_critiques")[0]
    said = [line for account in explain(version, CORPUS.tables, row["pair_id"]) for line in account.says]
    assert any("compared by openai:tiny with speech-critique-pair@1" in line for line in said)


# -- config -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("critiques", "message"),
    [
        ({"datasets": ["stdy"]}, "critiques.datasets: no source is named 'stdy'; did you mean 'study'?"),
        ({"splits": ["trian"]}, "critiques.splits"),
        ({"tries": 0}, "critiques.tries"),
        ({"pairz": 3}, "did you mean 'pairs'?"),
    ],
)
def test_faults_of_the_config(tmp_path: Path, critiques: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as fault:
        config_of(tmp_path, "http://127.0.0.1:1/v1", critiques)
    assert message in str(fault.value)


def test_pace_and_money_are_no_part_of_the_identity(tmp_path: Path) -> None:
    one = config_of(tmp_path, "http://127.0.0.1:1/v1", {"max_concurrency": 3, "splits": ["dev"], "free_text": False})
    other = config_of(tmp_path, "http://127.0.0.2:1/v1", {"budget_usd": 3.0, "splits": ["validation"]})
    assert one.identity() == other.identity()
    assert one.identity() != config_of(tmp_path, "http://127.0.0.1:1/v1", {"tries": 2}).identity()


@pytest.mark.parametrize(
    ("view", "prompt"),
    [
        ("critique-clips", "speech-critique"),
        ("critique-clips", "speech-critique-free"),
        ("critique-grpo", "speech-critique-pair"),
    ],
)
def test_a_policy_is_asked_in_its_teachers_words(view: str, prompt: str) -> None:
    (ask,) = (one.params["ask"] for one in CRITIQUE_VIEWS if one.name == view)
    words = prompt_named(prompt).text
    definitions = re.findall(r"^- (\w+): .+$", ask, re.MULTILINE)
    assert definitions == list(CRITIQUE_ASPECTS)
    assert all(line in words for line in ask.splitlines() if line.startswith("- "))
