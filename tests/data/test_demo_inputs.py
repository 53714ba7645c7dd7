"""The demo inputs are what their scripts make, and the configs that are shipped read them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
import zstandard
from PIL import Image

from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.reasons import Reject
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.importers.lists import Rating, read_source
from tests.conftest import ROOT

DEMO = ROOT / "data" / "demo"
BUDGET_BYTES = {
    "mos": 1_000_000,
    "music": 1_500_000,
    "tracks": 1_000_000,
    "tags": 200_000,
    "rubrics": 2_100_000,
    "forum": 1_000_000,
    "votes": 300_000,
}


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def config_at(path: Path) -> MosPreferences:
    """A config that the repository ships."""
    return parse_config(MosPreferences, read_toml(path), path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*BUDGET_BYTES])
def test_scripts_make_the_committed_files(name: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(DEMO / f"make_{name}.py"), str(tmp_path)], check=True)
    committed = DEMO / name
    assert files_below(tmp_path) == files_below(committed)
    for file in files_below(committed):
        made, kept = (tmp_path / file).read_bytes(), (committed / file).read_bytes()
        if made != kept:  # another release of a library packs the same samples, pixels or lines differently
            assert file.endswith(tuple(SAME)), f"{file} differs"
            SAME[Path(file).suffix](tmp_path / file, committed / file)


def assert_same_samples(one: Path, other: Path) -> None:
    """Two audio files hold the same sound, but for a last bit that another processor's sine may round differently."""
    (samples, rate_hz), (others, other_rate_hz) = (soundfile.read(path, dtype="int16") for path in (one, other))
    assert rate_hz == other_rate_hz
    assert samples.shape == others.shape
    differing = samples != others
    assert np.mean(differing) < 1e-4, f"{one.name} differs"
    assert np.abs(samples.astype(int) - others).max() <= 32, f"{one.name} differs by more than a step of sound.STEPS"


def assert_same_pixels(one: Path, other: Path) -> None:
    """Two images look alike: another release of Pillow may draw an edge or a letter a little differently."""
    pixels, others = (np.asarray(Image.open(path).convert("L"), np.float64) for path in (one, other))
    assert pixels.shape == others.shape
    assert np.abs(pixels - others).mean() < 2, f"{one.name} differs"


def assert_same_lines(one: Path, other: Path) -> None:
    """Two zstd files hold the same bytes."""
    assert zstandard.decompress(one.read_bytes()) == zstandard.decompress(other.read_bytes()), f"{one.name} differs"


SAME = {".flac": assert_same_samples, ".png": assert_same_pixels, ".zst": assert_same_lines}


@pytest.mark.parametrize("name", [*BUDGET_BYTES])
def test_the_demo_stays_small(name: str) -> None:
    assert sum(path.stat().st_size for path in (DEMO / name).rglob("*") if path.is_file()) < BUDGET_BYTES[name]


def test_demo_config_reads_its_sources() -> None:
    config = config_at(DEMO / "mos-preferences.toml")
    held = {source.name: list(read_source(source, config.path)) for source in config.sources}
    ratings = {name: sum(isinstance(row, Rating) for row in rows) for name, rows in held.items()}
    rejects = {name: Counter(row.reason for row in rows if isinstance(row, Reject)) for name, rows in held.items()}
    assert ratings == {"bvcc": 784, "vmc23": 144, "chimes": 25}
    assert rejects["bvcc"] == {}
    assert rejects["vmc23"] == {"clean_reference": 3}
    assert rejects["chimes"] == dict.fromkeys(
        ("score_not_a_number", "score_out_of_scale", "missing_value", "path_outside_root", "bad_line"), 1
    )


def test_demo_configs_agree_on_the_table() -> None:
    (audio,) = config_at(DEMO / "mos-preferences-audio.toml").sources
    assert audio in config_at(DEMO / "mos-preferences.toml").sources


def test_music_names_its_files_and_its_faults() -> None:
    prompts, generations = (
        [json.loads(line) for line in (DEMO / "music" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("prompts", "generations")
    )
    modalities = Counter(("lyrics" in prompt, "reference_audio" in prompt) for prompt in prompts)
    assert modalities == {(False, False): 6, (True, False): 3, (False, True): 2, (True, True): 1}
    assert all((DEMO / "music" / p["reference_audio"]).is_file() for p in prompts if "reference_audio" in p)
    assert {row["prompt_id"] for row in generations} == {prompt["prompt_id"] for prompt in prompts}
    assert len(generations) == len({row["generation_id"] for row in generations}) == 12 * 4 + 5
    assert [row["generation_id"] for row in generations if row["status"] != "succeeded"] == ["p01-birch-2"]
    assert all((DEMO / "music" / row["audio"]).is_file() for row in generations if row["status"] == "succeeded")
    order = json.loads((DEMO / "music" / "known_order.json").read_text(encoding="utf-8"))
    models = {row["model"] for row in generations}
    assert all(set(ranks) == models for ranks in order["ranks"].values())
