"""A build over lists as their owners published them; its pairs are recomputed straight from the lists."""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.store.versions import Version, verify
from tests.builds import build_version, config_of, rows_of
from tests.conftest import real_path
from tests.mos_preferences.pair_rules import check_pairs, check_triplets

TCD_COLUMNS = {"file": "Filename", "mos": "MOS", "condition": "ConditionID"}
VMC = "mos/vmc23"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Version]:
    """The folder of lists, and a version over all of them."""
    folder = real_path("mos").parent
    sources: list[dict[str, Any]] = [
        {"name": "bvcc", "format": "bvcc", "root": "mos/bvcc"},
        {"name": "vmc23", "format": "vmc23", "root": VMC, "split": "ood"},
        {
            "name": "tcd-voip",
            "format": "table",
            "root": "mos/tcd-voip",
            "files": {"test": "tcd-voip_answer.csv"},
            "columns": TCD_COLUMNS,
        },
    ]
    quotas = {"bvcc": {"test": 1000}, "vmc23": {"ood": 3000}}
    return folder, build_version(config_of(folder, *sources, quotas=quotas), tmp_path_factory.mktemp("store"))


def published(folder: Path) -> dict[str, float]:
    """The mean of each clip, read with nothing of ours."""
    means = {}
    for dataset, below in (
        ("bvcc", "bvcc/test_mos_list.txt"),
        ("vmc23", "vmc23/track1_answer.txt"),
        ("vmc23", "vmc23/track3_answer.txt"),
    ):
        for line in (folder / "mos" / below).read_text().split():
            name, mean = line.rsplit(",", 1)
            means[f"{dataset}/{name}"] = float(mean)
    with (folder / "mos/tcd-voip/tcd-voip_answer.csv").open(encoding="utf-8-sig") as file:
        means.update((f"tcd-voip/{row['Filename']}", float(row["MOS"])) for row in csv.DictReader(file))
    return means


@pytest.mark.slow
def test_every_row_is_accounted_for(built: tuple[Path, Version]) -> None:
    version = built[1]
    assert verify(version) == []
    counts = Counter((row["dataset"], (row["subset"] or "").partition("-")[0]) for row in rows_of(version, "ratings"))
    assert counts == {("bvcc", ""): 1066, ("vmc23", "track1"): 1460, ("vmc23", "track3"): 1960, ("tcd-voip", ""): 384}
    rejects = rows_of(version, "rejects")
    assert Counter((row["file"], row["reason"]) for row in rejects) == {
        ("vmc23/track3_answer.txt", "clean_reference"): 255
    }
    lines = (built[0] / VMC / "track3_answer.txt").read_text().splitlines()
    assert all(row["item"] in lines[row["line"] - 1] for row in rejects)


@pytest.mark.slow
def test_every_gap_agrees_with_the_lists(built: tuple[Path, Version]) -> None:
    means = published(built[0])
    pairs = rows_of(built[1], "pairs")
    assert len(pairs) > 4000
    for pair in pairs:
        gap = means[pair["chosen_id"]] - means[pair["rejected_id"]]
        assert math.isclose(pair["mos_gap"], gap, abs_tol=1e-12)
        assert gap > 0
    tests = {row["sample_id"]: row["subset"] for row in rows_of(built[1], "ratings")}
    assert all(tests[pair["chosen_id"]] == tests[pair["rejected_id"]] for pair in pairs)


def test_quotas_are_met_in_balance(built: tuple[Path, Version]) -> None:
    pairs = rows_of(built[1], "pairs")
    counts = Counter((pair["dataset"], pair["split"]) for pair in pairs)
    assert counts["bvcc", "test"] == 1000
    assert counts["vmc23", "ood"] == 3000
    shares = Counter(pair["category"] for pair in pairs if pair["dataset"] == "vmc23")
    assert shares == {"same_content": 1000, "same_source": 1000, "unmatched": 1000}


def test_rules_hold_on_real_lists(built: tuple[Path, Version]) -> None:
    ratings = rows_of(built[1], "ratings")
    check_pairs(ratings, rows_of(built[1], "pairs"), 0.0, 16)
    triplets = rows_of(built[1], "triplets")
    check_triplets(ratings, triplets, 0.0)
    assert Counter(row["dataset"] for row in triplets) == {"bvcc": 100, "vmc23": 100, "tcd-voip": 100}


def test_a_list_without_contents_keeps_the_category_that_it_can_have(tmp_path: Path) -> None:
    """BVCC as its authors publish it: systems, and nothing about what the clips say."""
    published = real_path("mos/bvcc/test_mos_list.txt")
    (tmp_path / "bvcc").mkdir()
    (tmp_path / "bvcc/test_mos_list.txt").write_bytes(published.read_bytes())
    source = {"name": "bvcc", "format": "bvcc", "root": "bvcc"}
    version = build_version(config_of(tmp_path, source, quotas={"bvcc": {"test": 1000}}), tmp_path / "store")
    pairs = rows_of(version, "pairs")
    assert Counter(pair["category"] for pair in pairs) == {"same_source": 500, "unmatched": 500}
    for pair in pairs:
        one, other = (pair[side].removeprefix("bvcc/").partition("-")[0] for side in ("chosen_id", "rejected_id"))
        assert (one == other) == (pair["category"] == "same_source")
