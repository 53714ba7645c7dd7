"""The guide's `Dataset` over `human-preferences`, and a two-tower toy that learns from pairs and ratings at once.

Nothing but the Parquet files reaches the model. What a prompt does not have is an embedding that is learnt.
"""

from __future__ import annotations

import math
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.toml import parse_config, read_toml
from tests.conftest import ROOT
from tests.human_preferences.votes import build_votes, cmi, config_of, vote

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.trainers
WIDTH = 16


@pytest.fixture(scope="module")
def preferences() -> type:
    """The class that the guide shows."""
    text = (ROOT / "flows/human_preferences.md").read_text("utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "class Preferences" in block)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["Preferences"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = ROOT / "data/demo/human-preferences.toml"
    config = parse_config(HumanPreferences, read_toml(path), path)
    return build_votes(config, tmp_path_factory.mktemp("towers")).folder


class Towers(torch.nn.Module):  # type: ignore[misc, name-defined]
    """One tower for the prompt, one for the clip; their product and the clip's own merit are the score."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.EmbeddingBag(512, WIDTH)
        self.clip = torch.nn.Linear(WIDTH, WIDTH)
        self.merit = torch.nn.Linear(WIDTH, 1)
        self.absent = torch.nn.ParameterDict({n: torch.zeros(WIDTH) for n in ("text", "lyrics", "reference")})
        self.a = torch.nn.Parameter(torch.ones(()))
        self.b = torch.nn.Parameter(torch.zeros(()))

    def hear(self, wave: Any) -> Any:
        spectrum = torch.fft.rfft(wave[:8192]).abs()[1:]
        bands = torch.log1p(torch.stack([band.mean() for band in spectrum.chunk(WIDTH)]))
        return torch.tanh(self.clip(bands))

    def read(self, text: str) -> Any:
        return self.words(torch.tensor([[zlib.crc32(word.encode()) % 512 for word in text.split()]]))[0]

    def prompt(self, row: dict[str, Any]) -> Any:
        parts = [self.absent[name] if row[name] is None else self.read(row[name]) for name in ("text", "lyrics")]
        parts.append(self.absent["reference"] if row["reference"] is None else self.hear(row["reference"]))
        return sum(parts)

    def score(self, row: dict[str, Any], which: str) -> Any:
        heard = self.hear(row[which])
        return (self.prompt(row) * heard).sum() + self.merit(heard)[0]

    def loss(self, row: dict[str, Any]) -> Any:
        if row["other"] is not None:
            return -torch.nn.functional.logsigmoid(self.score(row, "clip") - self.score(row, "other"))
        return (2 * torch.tanh(self.a * self.score(row, "clip") + self.b) + 3 - row["rating"]) ** 2


def test_readmes_dataset_gives_pairs_with_their_clips(preferences: type, version: Path) -> None:
    rows = preferences(str(version))
    assert len(rows) > 50
    first = rows[0]
    assert first["clip"].ndim == 1
    assert len(first["clip"]) > 1000
    assert math.isnan(first["rating"])
    kept = {
        name: {row[name] is None for row in (rows[n] for n in range(len(rows)))} for name in ("lyrics", "reference")
    }
    assert kept == {"lyrics": {True, False}, "reference": {True, False}}


def test_two_towers_learn_from_the_files_alone(preferences: type, version: Path) -> None:
    torch.manual_seed(3)
    dataset = preferences(str(version))
    rows = [dataset[place] for place in range(0, len(dataset), 2)][:40]
    model = Towers()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(25):
        loss = torch.stack([model.loss(row) for row in rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    moved = {name for name, absent in model.absent.items() if absent.abs().sum().item() > 0}
    assert moved == {"lyrics", "reference"}  # every prompt of the demo has a text


def test_ratings_and_pairs_are_learnt_together(preferences: type, tmp_path: Path) -> None:
    from tests.pseudo_preferences.music import write_clip

    for name, seed in (("0-a.wav", 1), ("0-b.wav", 2), ("music/ant/1.wav", 3)):
        write_clip(tmp_path / name, seed, seconds=1.2)
    (tmp_path / "pam.csv").write_text("file,OVL,REL,text\nmusic/ant/1.wav,4.5,2,A tune\n")
    rated = {"name": "pam", "format": "pam", "files": ["pam.csv"], "split": "train"}
    config = config_of(tmp_path, cmi(tmp_path, [vote()], split="train"), rated, audio="embed")
    dataset = preferences(str(build_votes(config, tmp_path / "store").folder))
    rows = [dataset[place] for place in range(len(dataset))]
    assert sorted(row["rating"] for row in rows if row["other"] is None) == [2.0, 4.5]
    assert sum(row["other"] is not None for row in rows) == 2
    torch.manual_seed(3)
    model = Towers()
    torch.stack([model.loss(row) for row in rows]).sum().backward()
    assert all(parameter.grad is not None for parameter in (model.a, model.merit.weight, model.absent["lyrics"]))
