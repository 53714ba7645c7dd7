"""Every demo corpus, built by `earmark demo` from end to end, in the hands of readers without our code."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import soundfile
import yaml
from datasets import Audio, Features, Image, load_dataset
from huggingface_hub import DatasetCardData

from earmark.tasks.pipeline.registry import corpora
from earmark.tasks.store.versions import Store, Version, verify
from tests.builds import build_version, config_of, rows_of
from tests.conftest import ROOT
from tests.importers import layouts

HOLD_AUDIO = {"human-preferences", "instruction-rubrics", "instrumentals", "pseudo-preferences"}


def newest(built_demo: Path, corpus: str) -> Version:
    version = Store(built_demo).latest(corpus)
    assert version is not None
    return version


def heard(features: Features, row: dict[str, object]) -> int:
    """How many cells of a row hold audio, each of which is decoded."""
    cells = [row[name] for name, feature in features.items() if isinstance(feature, Audio) and row[name]]
    for cell in cells:
        assert isinstance(cell, dict)
        samples, rate_hz = soundfile.read(io.BytesIO(cell["bytes"]), always_2d=True)
        assert len(samples) > 0
        assert rate_hz > 0
        assert str(cell["path"]).count(".") == 1
    return len(cells)


@pytest.mark.slow
def test_the_demo_says_what_to_do_first_in_forty_lines(built_demo: Path) -> None:
    lines = Path(f"{built_demo}.txt").read_text("utf-8").splitlines()
    assert len(lines) <= 40
    assert {one.corpus for corpus in corpora() if (one := newest(built_demo, corpus))} <= {
        word for line in lines for word in line.split()
    }
    first = next(number for number, line in enumerate(lines) if line.startswith("First, open a report"))
    assert lines[first + 1].strip().endswith("mos-preferences/v1/report.html")
    assert lines[-1] == "  earmark init mos-preferences --from ratings.csv"


@pytest.mark.slow
@pytest.mark.parametrize("corpus", corpora())
def test_the_default_install_reads_what_it_writes(built_demo: Path, corpus: str, tmp_path: Path) -> None:
    version, decoded = newest(built_demo, corpus), 0
    assert verify(version) == []
    for table, rows in version.manifest.rows.items():
        loaded = load_dataset(str(version.folder), table, cache_dir=str(tmp_path))
        streamed = load_dataset(str(version.folder), table, cache_dir=str(tmp_path), streaming=True)
        assert {split: len(held) for split, held in loaded.items()} == rows
        for split, held in loaded.items():
            first = held[0]
            decoded += heard(held.features, first)
            assert heard(held.features, next(iter(streamed[split]))) == heard(held.features, first)
            pictures = [first[name] for name, feature in held.features.items() if isinstance(feature, Image)]
            assert all(picture is None or picture.size > (0, 0) for picture in pictures)
    assert (decoded > 0) == (corpus in HOLD_AUDIO)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", corpora())
def test_the_heads_of_cards_are_read_by_the_hubs_client(built_demo: Path, corpus: str) -> None:
    _, head, _ = (newest(built_demo, corpus).folder / "README.md").read_text("utf-8").split("---\n", 2)
    facts = yaml.safe_load(head)
    assert DatasetCardData(**facts).to_dict() == facts
    known = json.loads((ROOT / "schemas/hub_vocabulary.json").read_text("utf-8"))
    assert facts.get("license", "unknown") in known["licences"]
    assert facts["task_categories"]


@pytest.mark.slow
def test_the_card_says_how_audio_is_decoded(built_demo: Path) -> None:
    for corpus in corpora():
        version = newest(built_demo, corpus)
        card = (version.folder / "README.md").read_text("utf-8")
        blocks = [block.split("```")[0] for block in card.split("```python\n")[1:]]
        code = "\n".join(block for block in blocks if "load_dataset" in block or "soundfile" in block)
        if corpus in HOLD_AUDIO:
            values: dict[str, object] = {}
            exec(code.replace(f"path/to/{version.name}", str(version.folder)), values)
            assert len(values["samples"]) > 0  # type: ignore[arg-type]
        else:
            assert "soundfile" not in code or corpus == "mos-preferences"  # whose tables can hold audio


@pytest.mark.slow
def test_another_stores_version_of_the_same_name_is_not_taken_for_this_one(tmp_path: Path) -> None:
    """`datasets` keeps what it has read; a version with the same name, tables and splits is another one."""
    loaded = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        layouts.table(folder / "t.csv")
        table = {"name": "one", "format": "table", "files": {"train": "t.csv"}, "columns": layouts.TABLE_COLUMNS}
        version = build_version(config_of(folder, table, seed=seed), folder / "store")
        rows = load_dataset(str(version.folder), "pairs", split="train", cache_dir=str(tmp_path / "cache")).to_list()
        assert rows == rows_of(version, "pairs")
        loaded.append(rows)
    assert loaded[0] != loaded[1]
