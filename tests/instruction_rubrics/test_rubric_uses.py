"""A version of `instruction-rubrics` in use: judged by models and written for trainers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.evaluations import Examinee
from earmark.schemas.instruction_rubrics import CORPUS
from earmark.schemas.rubric_rewards import rubric_reward
from earmark.tasks.evaluation import judging
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import LocalServer, model_server
from tests.builds import rows_of
from tests.instruction_rubrics.rubrics import build_rubrics, caption, config_of, rubric_answer, write_captions
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer

ALL = SamplePart("all")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Version, Store]:
    """A version of a few pairs, and its store."""
    base = tmp_path_factory.mktemp("rubrics")
    with LocalServer(Faults()) as server:
        server.answer = rubric_answer
        source = write_captions(base, "real", map(caption, range(8)))
        version = build_rubrics(config_of(base, source, base_url=server.base_url, bench_share=0.0), base / "store")
    return version, Store(base / "store")


server = model_server()


def questions(version: Version, mode: str) -> set[tuple[str, str]]:
    """What a judge is asked of which clip; two samples of a clip may ask the same."""
    samples = rows_of(version, "samples")
    if mode == "holistic":
        return {(row["clip_sha256"], row["instruction"]) for row in samples}
    clips = [(row["clip_sha256"], row["instruction_id"], row["language"]) for row in samples]
    items = [(row["question"], row["instruction_id"], row["language"]) for row in rows_of(version, "items")]
    return {(clip, question) for clip, *of in clips for question, *about in items if of == about}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["rubric", "holistic"])
def test_a_judge_is_measured_by_item_and_as_a_whole(
    built: tuple[Version, Store], server: OpenAIServer, tmp_path: Path, mode: str
) -> None:
    version, store = built
    who = Examinee(annotator="openai:judge", base_url=server.base_url, retry_base_s=0.01)
    wish = MeasurementOptions("alignment", mode=mode, part=ALL)
    facts, folder = judging.judge(version, CORPUS, store, who, wish, tmp_path / "out")
    samples = rows_of(version, "samples")
    assert facts["samples"] == facts["rows"][0]["answered"] == len(samples)
    groups = {None, "subset", "language", "subset+language", "kind", "domain", "length", "baseline"}
    assert {row["group"] for row in facts["rows"]} == groups
    assert sum(server.faults.asked.values()) == len(questions(version, mode))
    assert (folder / "README.md").is_file()
    again, _ = judging.judge(version, CORPUS, store, who, wish, tmp_path / "again")
    assert again["rows"] == facts["rows"]


@pytest.mark.slow
def test_builtin_judges_answer_in_words(built: tuple[Version, Store], tmp_path: Path) -> None:
    version, store = built
    wish = MeasurementOptions("alignment", mode="holistic", part=SamplePart("all", language="zh"))
    who = Examinee(annotator="builtin:rubric-judge-1")
    facts, _ = judging.judge(version, CORPUS, store, who, wish, tmp_path / "out")
    assert facts["rows"][0]["answered"] == len(rows_of(version, "samples")) / 2
    assert math.isfinite(facts["rows"][0]["metrics"]["accuracy"]["value"])


@pytest.mark.parametrize("format_", ["ms-swift", "llama-factory", "webdataset"])
def test_sft_rows_go_out_with_their_clips(built: tuple[Version, Store], tmp_path: Path, format_: str) -> None:
    version, store = built
    record = export(version, CORPUS, store, tmp_path / "out", ExportOptions(format_, view="judge-sft"))
    samples = rows_of(version, "samples")
    assert sum(record["rows"].values()) == len(samples) > 0
    assert record["clips"] == len({row["clip_sha256"] for row in samples})


def test_a_completion_of_the_sft_view_earns_all_of_the_grpo_views_reward(
    built: tuple[Version, Store], tmp_path: Path
) -> None:
    version, store = built

    def rows(format_: str, view: str) -> dict[str, dict[str, Any]]:
        folder = tmp_path / view
        export(version, CORPUS, store, folder, ExportOptions(format_, view=view))
        lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
        return {row["id"]: row for row in map(json.loads, lines)}

    taught, asked = rows("ms-swift", "judge-sft"), rows("ms-swift-grpo", "judge-grpo")
    assert taught.keys() == asked.keys()
    for name, row in asked.items():
        question, answer = taught[name]["messages"]
        assert [question] == row["messages"]
        assert rubric_reward(answer["content"], row["answers"], row["follows"]) == pytest.approx(1)
        assert question["content"].count("<audio>") == len(row["audios"]) == 1
