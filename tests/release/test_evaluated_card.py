"""The published card shows what was measured on a version; the version itself stays as it was committed."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.config import Licence
from earmark.tasks.evaluation import reading
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.release.evaluated import evaluations_of, section
from earmark.tasks.release.publishing import gathered
from earmark.tasks.store.manifest import Manifest
from earmark.tasks.store.versions import Store, Version, verify
from tests.builds import build_version, read_config, rows_of
from tests.conftest import ROOT
from tests.release.publications import Publications
from tests.servers.hub import HubServer

CORPUS = "mos-preferences"


@pytest.fixture
def version(tmp_path: Path) -> Version:
    """Pairs of rated clips, of which one source is held back."""
    config = read_config(ROOT / f"data/demo/{CORPUS}.toml").model_copy(update={"critiques": None})
    return build_version(config, tmp_path / "store")


def measure(version: Version, name: str, right: int, **part: Any) -> Path:
    """Measure a file whose choice is right for so many of ten pairs; the folder of the record."""
    folder = version.folder.parents[2] / "files"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    ids = sorted(row["pair_id"] for row in rows_of(version, "pairs"))
    rows = [{"id": one, "choice": "chosen" if n % 10 < right else "rejected"} for n, one in enumerate(ids)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    store = Store(version.folder.parents[1])
    return reading.read(
        version, find_corpus(CORPUS), store, path, MeasurementOptions(part=SamplePart("all", **part)), None
    )[1]


def bytes_of(version: Version) -> dict[str, str]:
    """The digest of each file of a version."""
    files = [path for path in version.folder.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def published(version: Version) -> tuple[str, Manifest]:
    """The card and the manifest that would leave."""
    store = Store(version.folder.parents[1])
    with gathered(version, find_corpus(CORPUS), store, True) as bundle:
        entries = {entry.path: entry for entry in bundle.entries}
        card = entries["README.md"].source.read_bytes()
        assert hashlib.sha256(card).hexdigest() == entries["README.md"].sha256
        named = {file.path: file.sha256 for file in bundle.manifest.files}
        assert named["README.md"] == entries["README.md"].sha256
        return card.decode(), bundle.manifest


@pytest.mark.slow
def test_the_card_shows_the_newest_evaluations_and_the_version_stays(version: Version) -> None:
    before = bytes_of(version)
    plain, manifest = published(version)
    assert "## Evaluations" not in plain
    assert manifest == version.manifest
    measure(version, "good | best", 9)
    measure(version, "poor", 3)
    measure(version, "poor", 5)  # again: the newest counts
    measure(version, "trial", 8, limit=10)
    other = measure(version, "elsewhere", 7)
    record = json.loads((other / "evaluation.json").read_bytes())
    (other / "evaluation.json").write_text(json.dumps({**record, "manifest_sha256": "0" * 64}), encoding="utf-8")
    (other / "torn").mkdir()
    (other / "torn/evaluation.json").write_text('{"manifest', encoding="utf-8")
    card, manifest = published(version)
    rows = [line for line in card.splitlines() if line.startswith("| quality |")]
    total = len(rows_of(version, "pairs"))
    assert [row.split(" | ")[1] for row in rows] == ["scores of good \\| best.jsonl", "scores of poor.jsonl"]
    assert all(f"| {total:,} |" in row for row in rows)
    assert "| accuracy | 0.50" in rows[1]
    assert "| accuracy | 0.9" in rows[0]
    assert card.replace(section(evaluations_of(Store(version.folder.parents[1]), version)) + "\n", "") == plain
    assert card.index("## Evaluations") < card.index("## Tables")
    assert [file for file in manifest.files if file.path != "README.md"] == [
        file for file in version.manifest.files if file.path != "README.md"
    ]
    assert bytes_of(version) == before
    assert verify(version) == []


def test_a_figure_of_a_kind_of_a_package_has_its_own_name() -> None:
    metric = {"value": 0.5, "low": 0.4, "high": 0.6}
    facts: Any = {"evaluation": "tempo", "annotator": None, "scores": "a.csv", "splits": ["test"], "samples": 3}
    facts |= {"rows": [{"metrics": {"error": metric, "within": metric}}]}
    assert "| error | 0.500" in section([facts])


@pytest.mark.slow
def test_a_part_is_loaded_as_it_is_where_the_whole_was_loaded_before(version: Version, tmp_path: Path) -> None:
    """`datasets` knows a local folder by its name and card: the whole v1 and a pulled part are both v1."""
    from datasets import load_dataset

    store = Store(version.folder.parents[1])
    held = json.loads(version.manifest.to_json())
    held["config"]["licences"]["chimes"]["redistribute"] = "none"
    (version.folder / "manifest.json").write_text(Manifest.model_validate(held).to_json(), encoding="utf-8")
    version = Version(CORPUS, version.folder)
    with gathered(version, find_corpus(CORPUS), store, True) as bundle:
        for entry in bundle.entries:
            (path := tmp_path / "pulled/v1" / entry.path).parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(entry.source.read_bytes())
        rows = bundle.manifest.rows
    assert sum(rows["pairs"].values()) < len(rows_of(version, "pairs"))
    for folder, counts in ((version.folder, version.manifest.rows), (tmp_path / "pulled/v1", rows)):
        for table, splits in counts.items():
            loaded = load_dataset(str(folder), table, cache_dir=str(tmp_path / "cache"))
            assert {split: len(loaded[split]) for split in loaded} == splits, table


@pytest.mark.slow
def test_a_part_shows_them_too(version: Version, tmp_path: Path) -> None:
    closed = {**read_config(ROOT / f"data/demo/{CORPUS}.toml").licences}
    closed["chimes"] = Licence(licence="in house", redistribute="none")
    config = read_config(ROOT / f"data/demo/{CORPUS}.toml").model_copy(update={"critiques": None, "licences": closed})
    part = build_version(config, tmp_path / "store")
    measure(part, "good", 9)
    card, _ = published(part)
    assert card.index("## Held back") < card.index("## Evaluations") < card.index("## Tables")
    assert "scores of good.jsonl" in card


@pytest.mark.slow
def test_an_evaluation_after_publishing_is_no_other_version(
    version: Version, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = version.folder.parents[1]
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    with ExitStack() as stack:
        hub = stack.enter_context(HubServer(tmp_path / "hub"))
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)  # before the process that publishes starts
        press = stack.enter_context(Publications(tmp_path / "press"))
        first = press.run(store, f"{CORPUS}@v1", "lab/card")
        assert first.get("uploaded", 0) > 10, first
        measure(version, "late", 9)
        again = press.run(store, f"{CORPUS}@v1", "lab/card")
        assert again.get("uploaded") == 0, again
        press.run(store, f"{CORPUS}@v1", "lab/other")
        oid = hub.files("lab/other", "v1")["README.md"]["oid"]
        assert "late.jsonl" in (hub.folder / "objects" / oid).read_text("utf-8")
