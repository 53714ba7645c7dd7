"""The recipes of `flows/command/recipes.md`: real weights where a package has them, else stand-ins of its interface."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile

from earmark.schemas.errors import ConfigError
from earmark.schemas.questions import Audio
from earmark.tasks.annotation.scorer import ScorerInput
from earmark.tasks.evaluation.scorers import clip_scores
from earmark.tasks.pipeline.scoring import read_scorers
from earmark.tasks.store.versions import Store
from tests.conftest import ROOT
from tests.evaluation.test_score import sha256

GUIDE = (ROOT / "flows/command/recipes.md").read_text("utf-8")
(DNSMOS,) = (text for text in re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL) if "speechmos.dnsmos" in text)
QUALITY, CMI_RM, VERSA = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
RATE = 16_000


@pytest.fixture
def clips(tmp_path: Path) -> dict[str, ScorerInput]:
    """Tones in noise of 5, 10 and 12 seconds, with a prompt; the last two also with lyrics and a reference."""
    made = {}
    for seconds in (5, 10, 12):
        path = tmp_path / f"{seconds}.wav"
        time = np.arange(seconds * RATE) / RATE
        noise = np.random.default_rng(seconds).normal(0, 0.02, len(time))
        soundfile.write(path, 0.2 * np.sin(2 * np.pi * 220 * time) * (np.sin(3 * time) > 0) + noise, RATE)
        clip = Audio(sha256(path), str(path))
        more = {"lyrics": "la la", "reference": clip} if seconds > 5 else {}
        made[str(seconds)] = ScorerInput(clip, f"a tune of {seconds} s", **more)
    return made


def scored(clips: dict[str, ScorerInput], folder: Path, text: str) -> dict[str, dict[str, float]]:
    (folder / "scorer.toml").write_text(text)
    scores = clip_scores(clips, read_scorers([folder / "scorer.toml"]), Store(folder / "store"))
    assert [one for held in scores.values() for one in held if one.reason] == []
    return {name: {one.name: float(one.value or 0) for one in held} for name, held in scores.items()}


def samples_of(clip: ScorerInput) -> Any:
    return soundfile.read(clip.clip.path, dtype="float32")[0]


@pytest.mark.models
def test_dnsmos_gives_its_own_numbers(clips: dict[str, ScorerInput], tmp_path: Path) -> None:
    """Its weights by its package; and its ONNX file of fixed length by windows, before the package's polynomials."""
    dnsmos = pytest.importorskip("speechmos.dnsmos", reason="speechmos is not installed")
    expected = {name: dnsmos.run(samples_of(clip), RATE) for name, clip in clips.items()}
    found = scored(clips, tmp_path, DNSMOS)
    for name, numbers in found.items():
        assert numbers == pytest.approx(expected[name], abs=2e-3), name
        assert 1 < numbers["ovrl_mos"] < 5
    file = Path(dnsmos.__file__).with_name("dnsmos_models") / "sig_bak_ovr.onnx"
    text = f'model = "scorer:{file}"\nscores = ["sig", "bak", "ovr"]\n'
    with pytest.raises(ConfigError, match=r"takes 144160 samples: add windows = \{ samples = 144160 \}"):
        scored(clips, tmp_path, text)
    raw = scored(clips, tmp_path, text + "windows = { samples = 144160, hop = 16000 }\n")
    for name in ("5", "10"):  # one window each
        own = dnsmos.dnsmos.get_polyfit_val(raw[name]["sig"], raw[name]["bak"], raw[name]["ovr"], False)
        theirs = [expected[name][kind] for kind in ("sig_mos", "bak_mos", "ovrl_mos")]
        assert own == pytest.approx(theirs, abs=2e-3)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guide's `lab/quality.py`."""
    (tmp_path / "site/lab").mkdir(parents=True)
    (tmp_path / "site/lab/quality.py").write_text(QUALITY)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "lab.quality", raising=False)
    monkeypatch.delitem(sys.modules, "lab", raising=False)
    return tmp_path


def recipe(kind: str) -> str:
    """The config of a class of the guide, with what its comment says."""
    comment = re.search(rf"class {kind}:  # (.*)", QUALITY)
    assert comment is not None
    lines = re.sub(r", (takes|hearing) =", r"\n\1 =", comment[1])
    return f'model = "scorer:lab.quality:{kind}"\nversion = "1"\n{lines}\n'


@pytest.mark.models
def test_distillmos_gives_its_own_numbers(
    clips: dict[str, ScorerInput], package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torchaudio's wheel needs CUDA libraries; only the package's command line uses it
    monkeypatch.setitem(sys.modules, "torchaudio", ModuleType("torchaudio"))
    distillmos = pytest.importorskip("distillmos", reason="distillmos is not installed")
    import torch

    model = distillmos.ConvTransformerSQAModel().eval()
    found = scored(clips, package, recipe("DistillMos"))
    for name, clip in clips.items():
        with torch.inference_mode():
            expected = float(model(torch.from_numpy(samples_of(clip))[None]))
        assert found[name]["mos"] == pytest.approx(expected, abs=2e-3)
        assert 1 <= expected <= 5


@pytest.mark.models
def test_recipes_keep_to_the_interfaces_of_their_packages(
    clips: dict[str, ScorerInput], package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def level(waves: Any, rate: int, wanted: int = RATE) -> Any:
        assert waves.ndim == 2
        assert waves.shape[0] == 1
        assert rate == wanted
        return waves.square().mean().sqrt()

    class Predictor:
        def forward(self, batch: list[dict[str, Any]]) -> list[dict[str, float]]:
            return [
                dict.fromkeys(("CE", "CU", "PC", "PQ"), float(level(one["path"], one["sample_rate"]))) for one in batch
            ]

    class MuLan:
        @classmethod
        def from_pretrained(cls, name: str) -> MuLan:
            assert name == "OpenMuQ/MuQ-MuLan-large"
            return cls()

        def eval(self) -> MuLan:
            return self

        def __call__(self, wavs: Any = None, texts: list[str] | None = None) -> Any:
            return level(wavs, 24_000, 24_000) if texts is None else torch.tensor([float(len(texts[0]))])

        def calc_similarity(self, heard: Any, read: Any) -> Any:
            return (heard * read)[None]

    def nisqa(samples: Any, rate: int) -> Any:
        return level(samples[None], rate) * torch.arange(1, 6)

    modules = {
        "audiobox_aesthetics": {},
        "audiobox_aesthetics.infer": {"initialize_predictor": Predictor},
        "muq": {"MuQMuLan": MuLan},
        "torchmetrics": {},
        "torchmetrics.functional": {},
        "torchmetrics.functional.audio": {"non_intrusive_speech_quality_assessment": nisqa},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.hub, "load", lambda *_, **__: level)
    for kind in ("Utmos", "Aesthetics", "Nisqa", "MuLan"):
        found = scored(clips, package, recipe(kind))
        for name, clip in clips.items():
            loud = float(np.sqrt(np.mean(samples_of(clip) ** 2)))
            first = next(iter(found[name].values()))
            assert first == pytest.approx(loud * (len(clip.text or "") if kind == "MuLan" else 1), rel=2e-2)
        assert kind != "Nisqa" or found["5"]["loudness"] == pytest.approx(5 * found["5"]["mos"])


MODEL = """
class RewardModelInference:
    def __init__(self, checkpoint):
        assert checkpoint.endswith(".safetensors")

    def score(self, audio, text="", lyrics="", ref_audio=None):
        from pathlib import Path
        assert Path(audio).read_bytes()[:4] == b"RIFF"
        heard = 0 if ref_audio is None else len(Path(ref_audio).read_bytes())
        return {"alignment": len(text) + len(lyrics), "quality": heard}
"""
SCORER = """
import json, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert given["--io"] == "soundfile" and open(given["--score_config"]).read() == "- name: pam\\n"
with open(given["--output_file"], "w") as out:
    for line in open(given["--pred"]):
        key, path = line.split()
        print(json.dumps({"key": key, "pam_score": len(open(path, "rb").read())}), file=out)
"""


def test_the_commands_keep_to_the_interfaces_of_their_tools(
    clips: dict[str, ScorerInput], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "cmi_rm.py": CMI_RM, "baselines/inference.py": MODEL, "versa_scores.py": VERSA, "metrics.yaml": "- name: pam\n",
        "versa/__init__.py": "", "versa/bin/__init__.py": "", "versa/bin/scorer.py": SCORER,
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    head = f'version = "1"\ncommand = ["{sys.executable}", '
    rated = scored(
        clips, tmp_path, f'model = "scorer:cmi-rm"\n{head}"cmi_rm.py"]\n'
        'scores = ["musicality", "alignment"]\ntakes = ["text", "lyrics", "reference"]\n',
    )  # fmt: skip
    sizes = {name: 44 + 2 * RATE * int(name) for name in clips}  # of a WAV file of 16 bits
    assert rated == {
        "5": {"musicality": 0, "alignment": len("a tune of 5 s")},
        "10": {"musicality": sizes["10"], "alignment": len("a tune of 10 s" + "la la")},
        "12": {"musicality": sizes["12"], "alignment": len("a tune of 12 s" + "la la")},
    }
    text = f'model = "scorer:versa"\n{head}"versa_scores.py", "metrics.yaml"]\nscores = ["pam_score"]\n'
    assert scored(clips, tmp_path, text) == {name: {"pam_score": size} for name, size in sizes.items()}
