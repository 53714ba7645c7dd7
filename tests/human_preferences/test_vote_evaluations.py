"""What `earmark eval run` asks about the benchmark of `human-preferences`, over a real protocol and of `builtin`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from earmark.schemas.errors import EarmarkError
from earmark.schemas.evaluations import Examinee
from earmark.schemas.human_preferences import CORPUS, HumanPreferences
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.annotation.prompts import load_prompt
from earmark.tasks.evaluation import judging
from earmark.tasks.evaluation.reading import write_template
from earmark.tasks.evaluation.samples import MeasurementOptions, NoSamples
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import model_server
from tests.builds import rows_of
from tests.conftest import ROOT
from tests.human_preferences.votes import SALT, build_votes, cmi, config_of, vote, write_jsonl
from tests.pseudo_preferences.music import write_clip
from tests.servers.openai_server import OpenAIServer, listening_answer

server = model_server()


def asks(server: OpenAIServer) -> list[dict[str, Any]]:
    """Keeps the bodies of requests, and answers them by what is heard."""
    bodies: list[dict[str, Any]] = []

    def answer(body: dict[str, Any], content: str) -> str:
        bodies.append(body)
        return listening_answer(body, content)

    server.answer = answer
    return bodies


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Version, Store]:
    """The demo's version, which embeds its clips."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EARMARK_SALT", SALT)
        root = tmp_path_factory.mktemp("demo")
        path = ROOT / "data/demo/human-preferences.toml"
        return build_votes(parse_config(HumanPreferences, read_toml(path), path), root), Store(root)


@pytest.mark.parametrize("dimension", ["musicality", pytest.param("alignment", marks=pytest.mark.slow)])
def test_a_model_is_asked_about_one_dimension_of_each_pair(
    demo: tuple[Version, Store], server: OpenAIServer, tmp_path: Path, dimension: str
) -> None:
    version, store = demo
    bodies = asks(server)
    config = Examinee(annotator="openai:hears", base_url=server.base_url, retry_base_s=0.01)
    facts, folder = judging.judge(
        version, CORPUS, store, config, MeasurementOptions(f"cmi-pref-{dimension}"), tmp_path / "out"
    )
    assert facts["prompts"].keys() == {f"vote-pair-{dimension}@1"}
    samples = [
        row for row in rows_of(version, "benchmark") if (row["task"], row["dimension"]) == ("cmi-pref", dimension)
    ]
    assert facts["samples"] == len(samples)
    assert len(bodies) == len({row["comparison_id"] for row in samples}) < len(samples)  # of several votes, once
    prompt = load_prompt(ROOT / "prompts", f"vote-pair-{dimension}")
    texts = {row["text"] for row in samples}
    for body in bodies:
        system, user = body["messages"]
        assert (system["role"], user["role"]) == ("system", "user")
        assert body["response_format"]["json_schema"]["schema"]["properties"].keys() == {dimension, "reason"}
        sounds = [part for part in user["content"] if part["type"] == "input_audio"]
        words = "".join(part["text"] for part in user["content"] if part["type"] == "text")
        assert len(sounds) == 2 + ("The reference clip" in words)
        assert all(part["input_audio"]["data"] for part in sounds)
        assert words.rstrip().endswith(f"Which clip is better in {dimension}?")
        assert sum(text in words for text in texts if text) >= 1
        for hidden in ("cmi-pref", "model_a", "birch", "aster"):  # who made a clip, and where it is from
            assert hidden not in words
    assert prompt.id in facts["prompts"]
    rows = pq.read_table(folder / "predictions.parquet").to_pylist()
    assert {row["choice"] for row in rows} <= {"a", "b", "tie"}
    assert facts["rows"][0]["metrics"]["accuracy"]["value"] == sum(row["right"] for row in rows) / len(rows)
    assert {row["group"] for row in facts["rows"]} >= {None, "modality", "confidence_band"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cmi-pref-musicality", "cmi-pref-alignment", "music-arena"])
def test_the_builtin_judge_answers_each_preference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    version, store = small(tmp_path, monkeypatch)
    facts, _ = judging.judge(
        version, CORPUS, store, Examinee(annotator="builtin:music-pair-2"), MeasurementOptions(name), tmp_path / "out"
    )
    assert facts["samples"] == (2 if name == "music-arena" else 3)
    assert facts["left_out"] == ({"no_media": 1} if name == "music-arena" else {})


@pytest.mark.slow
def test_a_battle_without_its_audio_is_counted_and_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: OpenAIServer
) -> None:
    version, store = small(tmp_path, monkeypatch)
    bodies = asks(server)
    config = Examinee(annotator="openai:hears", base_url=server.base_url, retry_base_s=0.01)
    wish = MeasurementOptions("music-arena", both_orders=True)
    assert judging.forecast(version, CORPUS, store, config, wish)["to_ask"] == 4
    _, folder = judging.judge(version, CORPUS, store, config, wish, tmp_path / "out")
    assert len(bodies) == 4  # two battles, both ways
    assert all(
        body["response_format"]["json_schema"]["schema"]["properties"].keys() == {"overall", "reason"}
        for body in bodies
    )
    assert (
        "left out, for no answer could be right or none was asked for: no_media 1" in (folder / "README.md").read_text()
    )
    (only,) = [row for row in pq.read_table(folder / "predictions.parquet").to_pylist() if row["reason"]]
    assert only["detail"].startswith("the version does not hold reference_audio, a_audio, b_audio")


def test_no_audio_at_all_is_one_line(demo: tuple[Version, Store]) -> None:
    version, store = demo  # an arena's releases name no audio
    with pytest.raises(EarmarkError, match="no sample has an answer; most for 'no_media', such as: the version does"):
        judging.judge(
            version,
            CORPUS,
            store,
            Examinee(annotator="builtin:music-pair-2"),
            MeasurementOptions("music-arena"),
            None,
        )


def small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Version, Store]:
    """Three tested comparisons of CMI-Pref, and three battles, one of which without audio."""
    monkeypatch.setenv("EARMARK_SALT", SALT)
    for number in range(6):
        for side in "ab":
            write_clip(folder / f"{number}-{side}.wav", 2 * number + (side == "b"))
    battles = [
        {
            "battle_uuid": f"u{number}", "date": f"2025-0{number - 2}-11", "prompt": f"battle {number}",
            "audio_a": f"{number}-a.wav" if number < 5 else "", "system_a": "ant",
            "audio_b": f"{number}-b.wav" if number < 5 else "", "system_b": "bee",
            "preference": "A", "user_pseudonym": "v1",
        }
        for number in (3, 4, 5)
    ]  # fmt: skip
    write_jsonl(folder / "m.jsonl", battles)
    arena = {"name": "arena", "format": "music-arena", "files": ["m.jsonl"]}
    config = config_of(folder, cmi(folder, [vote(n) for n in range(3)], split="test"), arena, audio="embed")
    return build_votes(config, folder / "store"), Store(folder / "store")


@pytest.mark.slow
def test_a_template_without_samples_says_what_is_measured(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("audio_a,audio_b,overall\na1.wav,a2.wav,b\nb1.wav,b2.wav,a\n")
    version = build_votes(
        config_of(tmp_path, {"name": "ab", "format": "votes", "files": ["v.csv"]}), tmp_path / "store"
    )
    with pytest.raises(NoSamples, match=r"has no sample of any evaluation by clip: pam-musicality \(PAM: .*\); "):
        write_template(version, find_corpus(version.corpus), tmp_path / "clips.csv", MeasurementOptions())
