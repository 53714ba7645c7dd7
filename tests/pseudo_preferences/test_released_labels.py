"""Labels go out in CMI-Pref-Pseudo's layout, with clips that are there, and are read as they were."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.toml import parse_config
from earmark.tasks.annotation.request import Outcome, Request
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of, traces
from tests.evaluation.test_score_files import measure, truth
from tests.human_preferences.test_released_votes import exported, votes_in
from tests.pseudo_preferences.music import build_judged, config_of, make_pool, read_config, write_clip, write_rows
from tests.release.test_withdrawal import withdraw
from tests.runner import scripted
from tests.servers.faults import Faults
from tests.servers.openai_server import listening_answer

SCORED = ("confidence_musicality", "confidence_alignment", "quality_a", "quality_b", "following_a", "following_b")


@pytest.mark.slow
def test_labels_in_the_released_layout(tmp_path: Path) -> None:
    make_pool(tmp_path / "pool", 4)
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        version = build_judged(config_of(tmp_path / "pool", server.base_url, clips={"embed": True}), tmp_path / "store")
    out = tmp_path / "out"
    files = exported(version, out, "pseudo-preferences", "labels")
    labels = {row["pair_id"]: row for row in rows_of(version, "labels")}
    clips = {row["generation_id"]: row["clip_sha256"] for row in rows_of(version, "clips")}
    lines = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    voted = [vote for file in files for vote in votes_in(file)]
    assert len(lines) == len(voted) == len(labels) > 0

    def digest(name: str) -> str:
        return hashlib.sha256((out / name).read_bytes()).hexdigest()

    wanted = sorted(
        (clips[row["generation_a"]], clips[row["generation_b"]], row["musicality"], row["alignment"], row["model_a"])
        for row in labels.values()
    )
    assert wanted == sorted(
        (digest(str(vote.audio_a)), digest(str(vote.audio_b)), vote.musicality, vote.alignment, vote.model_a)
        for vote in voted
    )
    assert {"user id", "feedback", "total listening time a"}.isdisjoint(lines[0])


@pytest.mark.slow
def test_scores_and_confidence_are_means_in_the_pairs_letters(tmp_path: Path) -> None:
    make_pool(tmp_path / "pool", 2)
    told: list[dict[str, float]] = []

    def answer(body: dict[str, Any], content: str) -> str:
        said = json.loads(listening_answer(body, content))
        a_better = said["musicality"] == "A"
        quality, following = ((8.0, 3.0), (6.5, 5.0)) if a_better else ((3.0, 8.0), (5.0, 6.5))
        sure = 4.5 if len(told) % 2 else 3.0
        numbers = dict(zip(SCORED, (sure, 2.0, *quality, *following), strict=True))
        told.append(numbers)
        return json.dumps({**said, **numbers})

    with LocalServer(Faults()) as server:
        server.answer = answer
        config = config_of(tmp_path / "pool", server.base_url, judge={"scores": True}, clips={"embed": True})
        version = build_judged(config, tmp_path / "store")
    labels = [row for row in rows_of(version, "labels") if row["musicality"] != "tie"]
    assert labels
    for row in labels:
        high, low = ("a", "b") if row["musicality"] == "a" else ("b", "a")
        assert (row[f"mq_{high}"], row[f"mq_{low}"], row[f"if_{high}"], row[f"if_{low}"]) == (8.0, 3.0, 6.5, 5.0)
        assert row["confidence_alignment"] == 2.0
        passes = [one["confidence"] for one in rows_of(version, "judgments")
                  if (one["pair_id"], one["dimension"]) == (row["pair_id"], "musicality")]  # fmt: skip
        assert len(passes) == 2
        assert abs(row["confidence_musicality"] - sum(passes) / 2) <= 0.25
        assert (2 * row["confidence_musicality"]).is_integer()
    files = exported(version, tmp_path / "out", "pseudo-preferences", "labels")
    voted = [vote for file in files for vote in votes_in(file)]
    wanted = sorted(row["confidence_musicality"] for row in rows_of(version, "labels"))
    assert sorted(vote.confidence_musicality or 0.0 for vote in voted) == wanted
    lines = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    assert {line["mq_a"] for line in lines} <= {8.0, 3.0, 5.5}  # of a tie, the mean of both passes


def released_config(root: Path, *files: str, **values: Any) -> PseudoPreferences:
    """A build config over released labels in a folder."""
    told = {
        "released": {"root": str(root), "files": files},
        "clips": {"shortest_s": 0.1},
        "most_rejected": None,
        **values,
    }
    return parse_config(PseudoPreferences, told, root / "build.toml")


def asked_nothing(request: Request) -> Outcome:
    raise AssertionError(f"asked about {request.key}")


@pytest.mark.slow
def test_what_was_exported_comes_in_as_the_same_rows(tmp_path: Path) -> None:
    make_pool(tmp_path / "pool", 8)
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        config = config_of(tmp_path / "pool", server.base_url, shares={"train": 0.5, "validation": 0.2, "test": 0.3})
        first = build_judged(config, tmp_path / "store")
    files = exported(first, tmp_path / "out", "pseudo-preferences", "labels")
    assert len(files) > 1
    names = [file.name for file in files]
    with scripted(asked_nothing):
        second = build_judged(released_config(tmp_path / "out", *names), tmp_path / "second")
    again = exported(second, tmp_path / "again", "pseudo-preferences", "labels")
    assert [(file.name, sorted(file.read_text().splitlines())) for file in again] == [
        (file.name, sorted(file.read_text().splitlines())) for file in files
    ]
    assert by_clips(second, "labels") == by_clips(first, "labels")
    kept = by_clips(first, "labels").keys()
    pairs = {clips: row for clips, row in by_clips(first, "pairs").items() if clips in kept}
    assert {row["vocals"] for row in pairs.values()} == {"vocal", None}  # a prompt without lyrics says nothing of it
    unsung = {"vocals": "instrumental"}  # in the release it does
    assert by_clips(second, "pairs") == {
        clips: row if row["lyrics"] else {**row, **unsung} for clips, row in pairs.items()
    }
    assert not rows_of(second, "judgments")
    assert not rows_of(second, "bias")
    assert second.manifest.models == ()
    assert "Position bias" not in (second.folder / "README.md").read_text()


def by_clips(version: Version, table: str) -> dict[tuple[str, str], dict[str, Any]]:
    """A table's rows by the hashes of their two clips, without ids that a release does not have."""
    clips = {row["generation_id"]: row["clip_sha256"] for row in rows_of(version, "clips")}
    own = {"pair_id", "generation_a", "generation_b"}
    rows = rows_of(version, table)
    found = {
        (clips[row["generation_a"]], clips[row["generation_b"]]): {k: v for k, v in row.items() if k not in own}
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def test_released_rows_that_cannot_be_labels_are_rejects(tmp_path: Path) -> None:
    for number in range(6):
        write_clip(tmp_path / f"gen/{number}.wav", number)
    (tmp_path / "gen/copy.wav").write_bytes((tmp_path / "gen/0.wav").read_bytes())
    write_clip(tmp_path / "gen/silent.wav", 9, gain=0.0)

    def row(a: object, b: object, **more: object) -> dict[str, object]:
        told = {"prompt": "a tune", "lyrics": "", "prompt id": 7, "ref-audio-path": "", "model_a": "ant"}
        told |= {"audio-path": f"gen/{a}.wav", "audio2": f"gen/{b}.wav", "model_b": "bee", "split": "train"}
        return {**told, "preference-musicality": "model_a", "preference-alignment": "both", **more}

    rows = [
        row(0, 1, mq_a=7.5, mq_b="3.0", source="judge-1", **{"confidence_preference-musicality": "4.5"}),
        row(1, "copy", model_a="bee", model_b="ant"),  # an earlier label speaks of the same clips
        row(0, "copy"),
        row(2, "silent"),
        row(2, "gone"),
        row(2, 3, **{"preference-musicality": "model_c"}),
        row(2, 3, mq_a=10.5),
        row(2, 3, **{"preference-musicality": "", "preference-alignment": ""}),
        row(3, 4, split="test", **{"preference-musicality": ""}),  # its prompt is in the train split of others
        row(
            4, 5, split="test", prompt="other", lyrics="[Verse]\nla", **{"prompt id": 8}
        ),  # a clip that the prompt before has too
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    with scripted(asked_nothing):
        version = build_judged(released_config(tmp_path, "r.jsonl"), tmp_path / "store")
    reasons = Counter(reject["reason"] for reject in rows_of(version, "rejects"))
    assert reasons == {
        **dict.fromkeys(("duplicate_id", "same_clip", "audio_silent", "file_missing"), 1),
        "bad_value": 2,
        "no_preference": 1,
    }
    labels = rows_of(version, "labels")
    first = next(label for label in labels if label["judge"] == "judge-1")
    assert (first["musicality"], first["alignment"]) == ("a", "tie")
    assert (first["mq_a"], first["mq_b"], first["if_a"]) == (7.5, 3.0, None)
    assert (first["confidence_musicality"], first["confidence_alignment"]) == (4.5, None)
    assert {label["split"] for label in labels} == {"test"}, "what shares a prompt or a clip is in one split"
    (moved,) = (note for step in version.manifest.steps for note in step.notes if "moved" in note)
    assert moved.endswith(": 1 from train to test"), "of the four in train, three are rejects"
    assert sorted(label["musicality"] or "" for label in labels) == ["", "a", "a"]
    facts = measure(
        version, truth(version, "musicality"), MeasurementOptions("musicality", part=SamplePart("all")), tmp_path
    )
    groups = {row["value"]: row["metrics"] for row in facts["rows"] if row["group"] == "vocals"}
    assert groups.keys() == {"vocal", "instrumental"}


def test_a_release_without_ids_and_without_words_keeps_its_prompts_apart(tmp_path: Path) -> None:
    """One pair under two prompts is two pairs; prompts of nothing but a reference are not one prompt."""
    for number in range(20):
        write_clip(tmp_path / f"{number}.wav", number)

    def row(a: int, b: int, **more: object) -> dict[str, object]:
        told = {"prompt": "", "lyrics": "", "ref-audio-path": "", "preference-musicality": "model_a"}
        return {**told, "audio-path": f"{a}.wav", "audio2": f"{b}.wav", "preference-alignment": "model_a", **more}

    rows = [row(0, 1, prompt="a tune"), row(0, 1, prompt="a tune", lyrics="la la")]
    rows += [row(2 + 3 * n, 3 + 3 * n, **{"ref-audio-path": f"{4 + 3 * n}.wav"}) for n in range(6)]
    rows[2]["split"] = "test"
    write_rows(tmp_path / "r.jsonl", rows)
    config = released_config(tmp_path, "r.jsonl", shares={"train": 1.0, "validation": 0.0, "test": 0.0})
    with scripted(asked_nothing):
        version = build_judged(config, tmp_path / "store")
    assert not rows_of(version, "rejects")
    pairs = {row["pair_id"]: row for row in rows_of(version, "pairs")}
    assert len(pairs) == 8
    told = {row["generation_id"]: row["prompt_id"] for row in rows_of(version, "clips")}
    assert all(told[row[f"generation_{side}"]] == row["prompt_id"] for row in pairs.values() for side in "ab")
    assert len({row["prompt_id"] for row in pairs.values()}) == 8
    assert Counter(row["split"] for row in rows_of(version, "labels")) == {"train": 7, "test": 1}
    assert not [note for step in version.manifest.steps for note in step.notes if "moved" in note]


def test_a_config_has_released_labels_or_a_judge(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"judge: expected none beside \[released\]"):
        released_config(tmp_path, "r.jsonl", judge={"model": "builtin:music-pair-2"})
    with pytest.raises(ConfigError, match="missing key 'prompts'"):
        parse_config(PseudoPreferences, {"judge": {"model": "builtin:music-pair-2"}}, tmp_path / "build.toml")


def test_a_dry_run_asks_nothing_about_released_labels(tmp_path: Path) -> None:
    write_clip(tmp_path / "0.wav", 0)
    write_clip(tmp_path / "1.wav", 1)
    chosen = {"audio-a": "0.wav", "audio-b": "1.wav", "text": "a tune", "preference-musicality": "model_b"}
    write_rows(tmp_path / "r.jsonl", [chosen])
    terms = '[licences.unknwon]\nredistribute = "none"\n[licences.unknown]\n[licences."openai:x"]\n'
    (tmp_path / "build.toml").write_text(f'[released]\nfiles = ["r.jsonl"]\n[clips]\nshortest_s = 0.1\n{terms}')
    words = ["build", "pseudo-preferences", "--config", str(tmp_path / "build.toml"), "--store", str(tmp_path / "s")]
    dry = CliRunner().invoke(app, [*words, "--dry-run"])
    assert (dry.exit_code, "requests to models: none" in dry.output) == (0, True), dry.output
    version = build_judged(read_config(tmp_path / "build.toml"), tmp_path / "s")
    (row,) = rows_of(version, "labels")
    assert (row["musicality"], row["alignment"], row["model_a"], row["judge"]) == ("b", None, "unknown", "unknown")
    said = [note for note in version.manifest.notes() if "holds nothing back" in note]
    assert [note.split("]")[0] for note in said] == ['[licences."unknwon"', '[licences."openai:x"']
    shown = " ".join(dry.output.split())
    assert all(note in shown for note in said), "the dry run, which stages these tables too, says the same"
    assert "did you mean 'unknown'?" in said[0]


@pytest.mark.slow
def test_a_clip_leaves_a_version_of_released_labels(tmp_path: Path) -> None:
    for number in range(3):
        write_clip(tmp_path / f"{number}.wav", number)
    chosen = {"text": "a tune", "preference-musicality": "model_b"}
    write_rows(tmp_path / "r.jsonl", [{"audio-a": f"{n}.wav", "audio-b": "2.wav", **chosen} for n in range(2)])
    version = build_judged(released_config(tmp_path, "r.jsonl"), tmp_path / "s")
    clip = next(row for row in rows_of(version, "clips") if row["file"] == "0.wav")
    new = withdraw(Store(tmp_path / "s"), "clip", clip["clip_sha256"], "pseudo-preferences")
    assert traces(new, [clip["clip_sha256"], clip["generation_id"]]) == []
    assert new.manifest.rows["labels"] == {"train": 1}
    assert new.manifest.rows["bias"] == {"full": 0}
