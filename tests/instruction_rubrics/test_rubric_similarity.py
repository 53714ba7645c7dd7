"""Audio-text similarity in `instruction-rubrics`: kept in the rows, and thresholds that decide."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import Any

import pytest

from earmark.flows.instruction_rubrics import build
from earmark.schemas.errors import MissingExtraError
from earmark.schemas.instruction_rubrics import CORPUS, InstructionRubrics
from earmark.schemas.toml import parse_config
from earmark.tasks.audio.similarity import ClipText, Similarity
from earmark.tasks.instruction_rubrics.choosing import choose_captions
from earmark.tasks.instruction_rubrics.negatives import choose_candidates, keep_negatives, try_candidates
from earmark.tasks.instruction_rubrics.similarity import similarities
from earmark.tasks.instruction_rubrics.sources import import_captions, index_clips, plan_build
from earmark.tasks.instruction_rubrics.verification import keep_verified, verify_caption
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.inputs import digest_inputs
from earmark.tasks.pipeline.media import embeddings_of, similarity_of
from earmark.tasks.pipeline.rows import read_rows
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import open_store
from tests.audio.test_similarity import HAS_TRANSFORMERS
from tests.builds import forecast
from tests.pseudo_preferences.music import write_clip

TEXTS = [
    "A jazz piece with piano.",
    "A folk piece with a flute.",
    "A rock piece with guitar.",
    "A blues piece with organ.",
]


def config_in(folder: Path, **similarity: Any) -> InstructionRubrics:
    """Four clips, each with a caption; negatives by swapping alone; a model whose scores are known before."""
    for number in range(len(TEXTS)):
        write_clip(folder / f"{number}.wav", number, seconds=0.6)
    with (folder / "list.csv").open("w", encoding="utf-8", newline="") as file:
        rows = [(f"c{number}", f"{number}.wav", text) for number, text in enumerate(TEXTS)]
        csv.writer(file).writerows([("id", "audio", "text"), *rows])
    (folder / "clap").mkdir()
    (folder / "clap/config.json").write_text("{}")
    values = {
        "sources": [{"name": "list", "subset": "music", "domain": "music", "captions": "list.csv", "set": "train"}],
        "judge": {"model": "builtin:rubric-judge-1"},
        "writer": {"model": "builtin:rubric-writer-1"},
        "negatives": ["swap"],
        "fingerprint": 0,
        "similarity": {"model": "clap", **similarity},
    }
    return parse_config(InstructionRubrics, values, folder / "build.toml")


def remember(config: InstructionRubrics, folder: Path, cosines: dict[tuple[int, int], float]) -> None:
    """Scores of clips and texts by their numbers, as an earlier run has kept them."""
    store = open_store(str(folder / "store"))
    similarity = similarity_of(store, str(folder / "clap"))
    with similarity._open() as connection:
        similarity._mark(connection)
        for (clip, text), cosine in cosines.items():
            sha256 = hashlib.sha256((folder / f"{clip}.wav").read_bytes()).hexdigest()
            said = hashlib.sha256(TEXTS[text].encode()).hexdigest()
            connection.execute(
                "INSERT INTO similarities VALUES (?, ?, ?, ?)", (similarity.digest, sha256, said, cosine)
            )
        connection.commit()


def verified_and_negatives(config: InstructionRubrics, folder: Path) -> tuple[Stage, list[Row], list[Row]]:
    """A build up to its negatives; verified captions and negatives."""
    with plan_build(config, open_store(str(folder / "store"))).stage() as stage:
        usable = index_clips(stage, config, import_captions(stage, config))
        passes = verify_caption(stage, config, choose_captions(stage, config, usable).captions)
        verified = keep_verified(stage, config, passes)
        tried = try_candidates(stage, config, choose_candidates(stage, config, verified))
        negatives = keep_negatives(stage, config, verified, tried).negatives
        return stage, read_rows(verified), read_rows(negatives)


def reasons(stage: Stage, step: str) -> dict[str, int]:
    return next(one.rejected for one in stage.steps() if one.name == step)


def test_scores_are_kept_and_thresholds_decide(tmp_path: Path) -> None:
    config = config_in(tmp_path, least=0.3, most=0.2)
    own = {(at, at): 0.5 for at in range(4)} | {(3, 3): 0.29}
    remember(config, tmp_path, own | {(a, b): 0.1 + 0.2 * (a == 0) for a in range(4) for b in range(4) if a != b})
    stage, verified, negatives = verified_and_negatives(config, tmp_path)
    positives = [row for row in verified if row["positive"]]
    assert sorted((row["item"], row["similarity"]) for row in positives) == [("c0", 0.5), ("c1", 0.5), ("c2", 0.5)]
    assert reasons(stage, "verify") == {"low_similarity": 1}
    assert reasons(stage, "alter") == {"partners_too_similar": 1}  # whatever is swapped in, clip 0 is like it
    assert sorted((row["item"], row["similarity"]) for row in negatives) == [("c1", 0.1), ("c2", 0.1)]


def test_without_thresholds_scores_are_kept_alone(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    remember(config, tmp_path, {(a, b): round(-0.9 + 0.1 * a + 0.01 * b, 4) for a in range(4) for b in range(4)})
    stage, verified, _ = verified_and_negatives(config, tmp_path)
    assert reasons(stage, "verify") == reasons(stage, "alter") == {}
    assert [row["similarity"] for row in verified] == [-0.9, -0.79, -0.68, -0.57]


def test_another_model_in_the_folder_is_another_build_and_a_dry_run_loads_none(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    store = open_store(str(tmp_path / "store"))
    before = digest_inputs(CORPUS, config, store)
    facts = forecast(CORPUS, build.story, config, store)
    assert facts is not None
    assert facts["stage"] == "verify"
    (tmp_path / "clap/config.json").write_text('{"another": 1}')
    assert digest_inputs(CORPUS, config, store)["similarity"] != before["similarity"]


@pytest.mark.skipif(HAS_TRANSFORMERS, reason="transformers is installed")
def test_without_transformers_the_missing_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"\[models\]"):
        verified_and_negatives(config_in(tmp_path), tmp_path)


@pytest.mark.models
def test_a_clip_that_anyone_embedded_goes_through_the_model_no_more(tmp_path: Path) -> None:
    """Embedded as `earmark eval score` and `decontaminate` do, its file is not needed again for any text."""
    from tests.audio.tiny_clap import make_tiny_clap

    config = config_in(tmp_path)
    make_tiny_clap(tmp_path / "clap")
    store = open_store(str(tmp_path / "store"))
    paths = [tmp_path / f"{number}.wav" for number in range(len(TEXTS))]
    clips = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in paths}
    kept = embeddings_of(store, str(tmp_path / "clap"), dict(clips))
    alone = Similarity(str(tmp_path / "clap"), tmp_path / "alone.sqlite")
    said = [ClipText(clip, path, text) for (clip, path), text in zip(clips.items(), TEXTS, strict=True)]
    expected = alone.cosines(said)
    for path in paths:
        path.unlink()
    with plan_build(config, store).stage() as stage:
        rows = [({"clip_sha256": one.clip_sha256, "path": str(one.path)}, one.text) for one in said]
        assert [*similarities(stage, config, rows, unknown=0.0)] == pytest.approx(expected, abs=2e-4)
    assert {*kept} == {*clips}
