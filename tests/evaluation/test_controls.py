"""Controls say which clip is the worse only where the other one sounds different."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import soundfile

from earmark.schemas.judges import Qualify
from earmark.tasks.evaluation.controls import Sides, make_controls

RATE = 8_000
SIDES = Sides("pair_id", "prompt_id", "modality", ("musicality",), ("alignment",), Path)


def test_clips_that_a_fault_does_not_change_are_no_controls(tmp_path: Path) -> None:
    """Of a tone, a silent clip, one whose first half is silent, and white noise: each fault takes those it can."""
    random = np.random.default_rng(3)
    tone = 0.3 * np.sin(np.arange(RATE) * 2 * np.pi * 200 / RATE)
    late = np.concatenate([np.zeros(RATE // 2), 0.3 * random.standard_normal(RATE // 2).clip(-3, 3) / 3])
    clips = {"tone": tone, "silent": np.zeros(RATE), "late": late, "noise": 0.2 * random.uniform(-1, 1, RATE)}
    rows = []
    for name, samples in clips.items():
        soundfile.write(tmp_path / f"{name}.wav", samples, RATE, subtype="PCM_16")
        digest = hashlib.sha256((tmp_path / f"{name}.wav").read_bytes()).hexdigest()
        own = {"sha256": digest, "file": str(tmp_path / f"{name}.wav"), "duration_s": 1.0}
        other = {"sha256": digest[::-1], "file": "", "duration_s": 1.0}
        row = {"pair_id": name, "prompt_id": name, "modality": "text"}
        rows.append(row | {f"a_{key}": value for key, value in own.items()} | {f"b_{k}": v for k, v in other.items()})
    controls = ("noise", "clipping", "lowpass", "silence")
    qualify = Qualify(controls=controls, each=3, least=0.5)

    made = list(make_controls(tmp_path / "made", rows, qualify, SIDES, seed=1))
    of = {control: {one["pair_id"].split()[1] for one in made if one["control"] == control} for control in controls}
    assert of["noise"] == of["clipping"] == {"tone", "late", "noise"}
    assert of["silence"] == {"tone", "noise"}, "the first half of `late` is silent already"
    assert of["lowpass"] == {"late", "noise"}, "a tone of 200 Hz has no highs"
    for one in made:
        worse = one["a_file"] if one["truth"]["musicality"] == "b" else one["b_file"]
        assert Path(worse).parent == tmp_path / "made"
