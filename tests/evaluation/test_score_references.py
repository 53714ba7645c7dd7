"""Compare a submission's sound with a reference: a version, clips, statistics."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from earmark.schemas.errors import InputError
from earmark.schemas.music_prompts import CORPUS
from earmark.tasks.evaluation.frechet import KernelReference, kad
from earmark.tasks.evaluation.submission import (
    ScoreOptions,
    score,
)
from earmark.tasks.store.versions import Store, Version
from tests.builds import build_version
from tests.builds import config_of as rated_config
from tests.evaluation.test_score import built, generate, prompts_of, remember, sha256, store
from tests.mos_preferences.critiques import make_study, values_of

__all__ = ["built", "store"]  # fixtures


def test_the_reference_may_be_a_version(built: tuple[Version, Path], store: Store, tmp_path: Path) -> None:
    """FAD from a version's clips is that from a folder of the same; a version without clips is refused."""
    version = built[0]
    ours = generate(tmp_path / "ours", version, 1)
    remember(store, tmp_path / "clap", ours, {row["prompt_id"]: row["text"] for row in prompts_of(version)}, 1)
    wish = ScoreOptions(tmp_path / "ours", clap=str(tmp_path / "clap"), reference="music-prompts")
    with pytest.raises(InputError, match="expected two different clips or more, found 0"):
        score(version, CORPUS, store, None, wish, None)
    make_study(tmp_path / "study")
    source = values_of("")["sources"][0]
    build_version(rated_config(tmp_path / "study", source, audio="index"), store.root)
    clips = {path.stem: path for path in (tmp_path / "study/clips").iterdir()}
    remember(store, tmp_path / "clap", clips, {}, 2)
    found = [
        score(version, CORPUS, store, None, replace(wish, reference=name), tmp_path / f"out-{at}")[0]
        for at, name in enumerate(("mos-preferences", str(tmp_path / "study/clips")))
    ]
    assert found[0]["groups"] == found[1]["groups"]
    assert found[0]["measured_by"]["reference"]["sha256"] == found[1]["measured_by"]["reference"]["sha256"]
    assert found[0]["groups"][0]["fad"]["reference"] == len(clips)
    rated = store.find("mos-preferences")
    heard = {name: {*pq.read_table(rated.files("ratings", name)[0])["clip_sha256"].to_pylist()}
             for name in rated.manifest.rows["ratings"]}  # fmt: skip
    split = max(heard, key=lambda name: len(heard[name]))
    part, _ = score(version, CORPUS, store, None, replace(wish, reference=f"{rated.corpus}:{split}"), tmp_path / "part")
    assert part["groups"][0]["fad"]["reference"] == part["measured_by"]["reference"]["clips"] == len(heard[split])
    with pytest.raises(InputError, match="expected two different clips or more, found 0"):
        score(version, CORPUS, store, None, replace(wish, reference="mos-preferences:none"), tmp_path / "none")


def test_the_reference_may_be_a_sample_or_statistics(built: tuple[Version, Path], store: Store, tmp_path: Path) -> None:
    version = built[0]
    ours, beside = generate(tmp_path / "ours", version, 1), generate(tmp_path / "beside", version, 2)
    vectors, _ = remember(
        store, tmp_path / "clap", ours, {row["prompt_id"]: row["text"] for row in prompts_of(version)}, 1
    )
    others, _ = remember(store, tmp_path / "clap", beside, {}, 2)
    by_content = {sha256(path): vector for path, vector in zip(beside.values(), others, strict=True)}
    wish = ScoreOptions(tmp_path / "ours", clap=str(tmp_path / "clap"), reference=str(tmp_path / "beside"))

    def measured(name: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        facts, _ = score(version, CORPUS, store, None, replace(wish, **more), tmp_path / name)
        return facts["groups"][0], facts["measured_by"]["reference"]

    whole, who = measured("whole")
    ordered = np.stack([by_content[name] for name in sorted(by_content)])
    assert whole["kad"] == pytest.approx(kad(KernelReference(ordered), vectors))
    drawn = [measured(f"draw-{seed}", reference_sample=9, seed=seed) for seed in (17, 17, 18)]
    assert drawn[0] == drawn[1]
    assert drawn[0][1]["sha256"] != drawn[2][1]["sha256"] != who["sha256"]
    assert (drawn[0][1]["clips"], drawn[0][1]["sample"], drawn[0][1]["seed"]) == (9, 9, 17)
    assert drawn[0][0]["fad"]["reference"] == 9
    with pytest.raises(InputError, match=r"--reference-sample 99: .* has 16 different clips"):
        measured("many", reference_sample=99)

    np.savez(tmp_path / "known.npz", **{"clap.mu": ordered.mean(axis=0), "clap.cov": np.cov(ordered, rowvar=False)})
    alone, who = measured("alone", reference=str(tmp_path / "known.npz"))
    assert alone["fad"]["value"] == pytest.approx(whole["fad"]["value"], abs=1e-6)
    assert (alone["kad"], alone["fad"]["reference"], who["clips"]) == (None, None, None)
    with pytest.raises(InputError, match="statistics hold no clips"):
        measured("drawn", reference=str(tmp_path / "known.npz"), reference_sample=9)
    np.savez(tmp_path / "other.npz", mu=np.zeros(3), cov=np.eye(3))
    with pytest.raises(InputError, match="expected embeddings of 3 dimensions, found 6; it is of another model"):
        measured("other", reference=str(tmp_path / "other.npz"))
    (tmp_path / "spoilt.npz").write_bytes(b"PK no zip")
    with pytest.raises(InputError, match="expected statistics mu and cov"):
        measured("spoilt", reference=str(tmp_path / "spoilt.npz"))


def test_a_reference_with_a_spoilt_clip_is_refused(built: tuple[Version, Path], store: Store, tmp_path: Path) -> None:
    ours = generate(tmp_path / "ours", built[0], 1)
    (tmp_path / "clap").mkdir()
    shutil.copytree(tmp_path / "ours", tmp_path / "reference")
    (tmp_path / "reference" / "000.wav").write_bytes(b"RIFF")  # the first by name
    remember(store, tmp_path / "clap", ours, {row["prompt_id"]: row["text"] for row in prompts_of(built[0])}, 1)
    wish = ScoreOptions(tmp_path / "ours", clap=str(tmp_path / "clap"), reference=str(tmp_path / "reference"))
    with pytest.raises(InputError, match=r"000\.wav: .*mend it or take it away"):
        score(built[0], CORPUS, store, None, wish, None)
