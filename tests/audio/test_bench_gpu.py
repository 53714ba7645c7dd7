"""The GPU benchmark: its model is audio-separator's, its modes agree, and its command needs torch and NumPy alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.test_layout import ROOT

pytestmark = pytest.mark.models

BARE = """
import sys, importlib.abc

class Bare(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {"prefect", "pydantic", "soundfile", "soxr", "transformers", "audio_separator"}:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Bare())
"""


def test_the_model_has_the_layers_and_the_output_of_audio_separators() -> None:
    torch = pytest.importorskip("torch")
    roformer = pytest.importorskip("audio_separator.separator.uvr_lib_v5.roformer.mel_band_roformer")
    from earmark.tasks.audio.separation.melband import MelBand
    from tests.audio.tiny_roformer import KIM
    from tests.benchmarks.kim_model import KimRoformer

    theirs = roformer.MelBandRoformer(**{**KIM, "depth": 1, "dim": 32}).eval()
    ours = KimRoformer(depth=1, dim=32)
    assert not any(ours.load_state_dict(theirs.state_dict(), strict=True))
    mix = 0.1 * torch.randn(1, 2, 441 * 100)
    with torch.inference_mode():
        expected = theirs(mix).reshape(1, 2, -1)
    assert torch.allclose(MelBand(ours)(mix), expected, atol=1e-6)
    assert sum(value.numel() for value in KimRoformer().parameters()) == 228_202_852


def test_every_mode_joins_its_windows_to_whole_tracks(tmp_path: Path) -> None:
    """Half of the mix is the voice here, so half of it stays."""
    torch = pytest.importorskip("torch")
    from tests.benchmarks.bench_gpu import Mode, Separation, decode, write_tracks
    from tests.benchmarks.kim_model import KimRoformer

    tracks = [decode(path, False) for path in write_tracks(tmp_path / "tracks", 2, 13.0)]
    weights = KimRoformer(depth=1, dim=16)
    for mode in (Mode("", batch=1, on_device=False), Mode("", batch=1), Mode("", batch=4), Mode("", mono=True)):
        at_work = Separation(mode, torch.device("cpu"), weights)
        at_work.model, at_work.batch = (lambda mix: 0.5 * mix), mode.batch  # over the ends of tracks
        results: list[np.ndarray] = []
        at_work.run(iter(tracks), float("inf"), lambda wait, to=results: to.append(wait()))
        assert len(results) == 2
        for mix, kept in zip(tracks, results, strict=True):
            half = 0.5 * 32767 * (mix.mean(0, keepdim=True) if mode.mono else mix).numpy()
            assert half.shape == kept.shape
            assert np.abs(half - kept).max() <= 1.01


def test_the_command_needs_torch_and_numpy_alone_and_says_why_a_part_did_not_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "gpu.json"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "deploy/import")])}
    (tmp_path / "sitecustomize.py").write_text(BARE)
    command = [
        "-m",
        "tests.benchmarks.bench_gpu",
        "--device",
        "cpu",
        "--seconds",
        "60",
        "--depth",
        "1",
        "--dim",
        "32",
        "--out",
        str(out),
    ]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert {row["part"] for row in rows} == {"separation", "audio-separator", "resampling", "embeddings", "vllm"}
    assert all(row.get("rate", 0) > 0 or row["not_run"] for row in rows)
    assert all(f"| {row['row']} |" in done.stdout for row in rows)
    reasons = {row["part"]: row["not_run"] for row in rows if "not_run" in row}
    assert all("No module named" in reasons[part] for part in ("audio-separator", "embeddings", "vllm"))
    [polyphase] = [row for row in rows if row["part"] == "resampling" and "polyphase" in row["row"]]
    assert polyphase["snr_db"] > 90
    assert any("rate" in row for row in rows if row["part"] == "separation")
