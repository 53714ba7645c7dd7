"""Gaps of every scale against one scale, tenths of equal size, and splits that keep systems or speakers apart."""

from __future__ import annotations

import random
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.mos_preferences import CORPUS
from earmark.tasks.evaluation.samples import SamplePart, select_samples
from earmark.tasks.pipeline.plan import check_splits
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Version, open_store
from tests.builds import build_version, config_of, rows_of
from tests.mos_preferences.pair_rules import check_gap_scale

TESTS = {"five": (1, 5), "hundred": (0, 100)}


def write_list(folder: Path, systems: int = 6, contents: int = 10) -> None:
    """Write `t.csv`: two listening tests on two scales, in splits that a column names."""
    rng = random.Random(5)
    rows = [
        {
            "wav": f"{test}/s{system}_u{content}.wav",
            "score": round(low + (high - low) * rng.random(), 1),
            "system": f"{test} s{system}",
            "speaker": f"v{system}",
            "text": f"u{content}",
            "test": test,
            "part": "train" if content < 7 else "test",
        }
        for test, (low, high) in TESTS.items()
        for system in range(systems)
        for content in range(contents)
    ]
    pd.DataFrame(rows).to_csv(folder / "t.csv", index=False)


def built(folder: Path, pairs: dict[str, Any] | None = None, **values: Any) -> Version:
    """A version of `t.csv`."""
    columns = {"file": "wav", "mos": "score", "system": "system", "speaker": "speaker", "content": "text"}
    columns |= {"subset": "test", "split": "part"}
    scale = {test: list(ends) for test, ends in TESTS.items()}
    source = {"name": "two", "format": "table", "files": {"train": "t.csv"}, "columns": columns, "scale": scale}
    return build_version(config_of(folder, {**source, **values}, pairs=pairs or {}), folder / "store")


@pytest.mark.slow
def test_gaps_of_two_scales_are_compared_on_one(tmp_path: Path) -> None:
    write_list(tmp_path)
    version = built(tmp_path, {"min_gap": 0.25, "per_clip": None, "draws": 8})
    clips = {row["sample_id"]: row for row in rows_of(version, "ratings")}
    pairs = rows_of(version, "pairs")
    frame = pd.DataFrame(pairs)
    test = frame["chosen_id"].map(lambda name: clips[name]["subset"])
    least = frame.groupby(test)["mos_gap"].min()
    assert 0.25 - 1e-9 <= least["five"] < 0.5
    assert 6.25 - 1e-9 <= least["hundred"] < 12.5
    check_gap_scale(clips, pairs)
    high = frame[frame["gap_decile"] == 10]
    assert {*high["chosen_id"].map(lambda name: clips[name]["subset"])} == {*TESTS}, "one test's gaps are not all large"
    (step,) = (one for one in version.manifest.steps if one.name == "pairs")
    assert "two hundred: pairs.min_gap 0.25 of a 1-to-5 scale are 6.25 of its points" in step.notes


@pytest.mark.slow
def test_an_edge_compares_rounded_gaps_of_a_five_point_scale(tmp_path: Path) -> None:
    values = [*(round(1 + step / 5, 1) for step in range(21)), 3.3]
    rows = [("five", value) for value in values] + [("hundred", round((value - 1) * 25, 1)) for value in values]
    lines = [f"{test}/{number}.wav,{score},{test}\n" for number, (test, score) in enumerate(rows)]
    (tmp_path / "t.csv").write_text("wav,score,test\n" + "".join(lines))
    columns = {"file": "wav", "mos": "score", "subset": "test"}
    version = built(tmp_path, {"per_clip": None, "draws": 64}, columns=columns)
    with select_samples(version, CORPUS, CORPUS.evaluations[0], SamplePart("all")) as samples:
        found = dict(samples.connection.execute("SELECT id, gap FROM judged.asked").fetchall())
    clips = {row["sample_id"]: row for row in rows_of(version, "ratings")}
    for pair in rows_of(version, "pairs"):
        width = clips[pair["chosen_id"]]["scale_max"] - clips[pair["chosen_id"]]["scale_min"]
        tenths = round(pair["mos_gap"] * 40 / width)  # every gap is a whole number of tenths
        assert found[pair["pair_id"]] == ("< 0.2" if tenths < 2 else "0.2 to 0.5" if tenths <= 5 else "> 0.5")
    naive = sum(pair["mos_gap"] < 0.2 <= round(pair["mos_gap"], 6) for pair in rows_of(version, "pairs"))
    assert naive > 0, "an exact comparison puts some pairs below the edge that they stand on"


def test_every_rating_counts_with_all(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("wav,score,who\na,5,x\na,5,x\na,2,y\nb,1,x\nb,2,y\n")
    columns = {"file": "wav", "mos": "score", "listener": "who"}
    frame = pd.read_csv(tmp_path / "t.csv")
    expected = frame.groupby("wav")["score"].agg(["mean", "count", "std"])
    version = built(tmp_path, columns=columns, scale=[1, 5], repeat_votes="all")
    for row in rows_of(version, "ratings"):
        np.testing.assert_allclose((row["mos"], row["votes"], row["mos_std"]), expected.loc[row["file"]])


@pytest.mark.slow
@pytest.mark.parametrize("word", ["system", "speaker"])
def test_a_split_by_system_or_speaker_keeps_them_apart(word: str, tmp_path: Path) -> None:
    write_list(tmp_path, systems=12)
    shares = {"train": 0.5, "test": 0.5}
    version = built(tmp_path, split=f"by-{word}", shares=shares)
    frame = pd.DataFrame(rows_of(version, "ratings"))
    assert (frame.groupby(f"{word}_id")["split"].nunique() == 1).all()
    assert {*frame["split"]} == {*shares}
    assert frame.groupby("content_id")["split"].nunique().max() == 2, "contents may cross"


@pytest.mark.slow
def test_a_commit_refuses_a_system_in_two_splits(tmp_path: Path) -> None:
    write_list(tmp_path)
    version = built(tmp_path)  # split by the list's own column: systems cross
    stage = Stage(open_store(str(tmp_path / "store")), CORPUS.name, "", tmp_path / "stage")
    stage.folder.mkdir()
    (stage.folder / "version").symlink_to(version.folder.absolute())
    columns = {"file": "wav", "mos": "score", "system": "system"}
    source = {"name": "two", "format": "table", "files": {"train": "t.csv"}, "columns": columns, "split": "by-system"}
    with pytest.raises(
        StoreError, match=r"ratings.system_id: expected each in one split of two, found 'five s0' in two"
    ):
        check_splits(stage, config_of(tmp_path, source))


def test_systems_that_nothing_names_cannot_be_kept_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"split = 'by-system' needs columns.system, or a system in file_name"):
        built(tmp_path, split="by-system", columns={"file": "wav", "mos": "score"})


def test_an_absolute_list_below_the_root_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("wav,score\n/a/1.wav,5\n/a/2.wav,3\n")
    version = built(tmp_path, columns={"file": "wav", "mos": "score"}, audio_root="/", scale=[1, 5])
    assert [row["file"] for row in rows_of(version, "ratings")] == ["a/1.wav", "a/2.wav"]


def test_a_file_name_may_begin_with_a_space(tmp_path: Path) -> None:
    """Rows name it with the space; a list whose cells have spaces around other names finds these, too."""
    for number, name in enumerate((" first.wav", "second.wav")):
        with wave.open(str(tmp_path / name), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes((np.arange(800) * (number + 7) % 1000).astype("<i2").tobytes())
    (tmp_path / "t.csv").write_text("wav,score\r\n first.wav,4\n second.wav,2\r\n")
    source = {"name": "two", "format": "table", "files": {"train": "t.csv"}, "columns": {"file": "wav", "mos": "score"}}
    version = build_version(config_of(tmp_path, source, audio="index"), tmp_path / "store")
    found = {row["file"]: (row["mos"], row["duration_s"]) for row in rows_of(version, "ratings")}
    assert found == {"first.wav": (4.0, 0.1), "second.wav": (2.0, 0.1)}
