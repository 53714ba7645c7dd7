"""Own prompts go the whole way: the critic, the exported rows, the policy's draws and the judge read the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.errors import StoreError
from earmark.schemas.evaluations import Policy
from earmark.schemas.mos_preferences import CORPUS
from earmark.tasks.annotation.prompts import packaged
from earmark.tasks.evaluation import judging, rollouts
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.exports import choosing
from earmark.tasks.exports.export import export
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import model_server
from tests.builds import build_version
from tests.mos_preferences.critiques import config_of, make_study
from tests.servers.openai_server import OpenAIServer, critic_answer

ROLES = ("system", "user")
OURS = "You compare two voices for our own laboratory."


server = model_server(critic_answer, keep_bodies=True)


@pytest.fixture
def built(tmp_path: Path, server: OpenAIServer) -> Version:
    """A version whose pairs were compared in own words."""
    study = tmp_path / "study"
    make_study(study)
    system, user = packaged("speech-critique-pair").text.split("# system\n")[0], "# user\n"
    body = packaged("speech-critique-pair").text.split("# user\n")[1]
    (study / "mine.md").write_text(f"{system}# system\n{OURS}\n{user}{body}")
    (study / "judge.md").write_text(
        packaged("judge-speech-pair").text.replace("You are a professional", OURS + " You are a")
    )
    asks = {"speech-critique-pair": "mine.md", "judge-speech-pair": "judge.md"}
    return build_version(config_of(study, server.base_url, audio="index", asks=asks), tmp_path / "store")


def sent(server: OpenAIServer) -> list[list[tuple[str, str]]]:
    """The turns of each request as role and words; `<audio>` where a clip stands."""
    return [[(turn["role"], _words(turn["content"])) for turn in body["messages"]] for body in server.bodies]


def _words(content: Any) -> str:
    parts = [content] if isinstance(content, str) else [part.get("text", "<audio>") for part in content]
    return "".join(parts)


@pytest.mark.slow
def test_critic_export_policy_and_judge_read_the_same_words(
    tmp_path: Path, built: Version, server: OpenAIServer
) -> None:
    store = Store(tmp_path / "store")
    asked = {json.dumps(turns) for turns in sent(server) if OURS in turns[0][1]}
    assert len(asked) == 1  # the question is the same for all pairs, but for their clips
    for view in ("critique-pairs", "critique-grpo"):
        form = "ms-swift-grpo" if view == "critique-grpo" else "ms-swift"
        export(built, CORPUS, store, tmp_path / view, choosing.ExportOptions(form, view=view))
        rows = [
            json.loads(line) for path in (tmp_path / view).glob("*.jsonl") for line in path.read_text().splitlines()
        ]
        assert rows
        for row in rows:
            turns = [(turn["role"], turn["content"]) for turn in row["messages"] if turn["role"] != "assistant"]
            assert json.dumps(turns) in asked
            assert len(row["audios"]) == 2
    server.bodies.clear()
    policy = Policy(annotator="openai:policy", base_url=server.base_url)
    rollouts.roll(built, CORPUS, store, policy, rollouts.RolloutOptions(draws=1, limit=2), tmp_path / "drawn")
    assert {json.dumps(turns) for turns in sent(server)} == asked
    server.bodies.clear()
    examinee = judging.examinee("openai:judge", server.base_url, None)
    wish = MeasurementOptions("quality", "scores", SamplePart(split="all", limit=3))
    facts, folder = judging.judge(built, CORPUS, store, examinee, wish, None)
    assert {json.dumps(turns) for turns in sent(server)} == asked
    (prompt,) = facts["prompts"]
    assert prompt in built.manifest.prompts
    assert prompt.partition("@")[2] in folder.name


@pytest.mark.slow
def test_settings_bring_a_judges_own_words_before_the_versions(
    tmp_path: Path, built: Version, server: OpenAIServer
) -> None:
    store, wish = Store(tmp_path / "store"), MeasurementOptions("quality", "pair", SamplePart(split="all", limit=2))
    server.answer = lambda body, content: "A"
    server.bodies.clear()
    judging.judge(built, CORPUS, store, judging.examinee("openai:judge", server.base_url, None), wish, None)
    assert all(OURS in turns[0][1] for turns in sent(server))  # a prompt that only judges ask stands in the version
    settings = tmp_path / "settings" / "judge.toml"
    settings.parent.mkdir()
    mine = packaged("judge-speech-pair").text.replace("You are a professional", "You are our second")
    (settings.parent / "second.md").write_text(mine)
    settings.write_text('[asks]\njudge-speech-pair = "second.md"\n')
    server.bodies.clear()
    judging.judge(built, CORPUS, store, judging.examinee("openai:judge", server.base_url, settings), wish, None)
    assert all("You are our second" in turns[0][1] for turns in sent(server))


@pytest.mark.slow
def test_a_prompt_of_a_version_that_was_changed_is_refused(tmp_path: Path, built: Version) -> None:
    for path in (built.folder / "prompts").iterdir():
        path.chmod(0o644)
        path.write_text(path.read_text() + "Prefer A.\n")
    with pytest.raises(StoreError, match="is not the file of the manifest"):
        export(
            built,
            CORPUS,
            Store(tmp_path / "store"),
            tmp_path / "out",
            choosing.ExportOptions("jsonl", view="critique-grpo"),
        )
