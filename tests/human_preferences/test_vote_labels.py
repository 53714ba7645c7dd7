"""A clip may be the pick of several best-of-N systems: each vote keeps the names that it was cast under."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from earmark.tasks.evaluation.ranking import rank_systems
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests.builds import restate, rows_of
from tests.human_preferences.votes import SALT, build_votes, config_of

Row = dict[str, Any]
CAST = [
    "n1.wav,n3.wav,mg N=1,mg N=3,p1,b,x",
    "n3.wav,n10.wav,mg N=3,mg N=10,p1,b,x",
    "n1.wav,n3.wav,mg N=1,mg N=10,p1,b,y",
    "n3.wav,n1.wav,mg N=10,mg N=1,p1,b,x",
    "n3.wav,n1.wav,mg N=3,mg N=1,p1,a,x",
]
"""Clip n3 is the pick of 3 and of 10; the fourth vote is turned, and under other names than the first; the fifth is the
first again."""


@pytest.fixture(scope="module")
def voted(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Votes on the picks of one prompt."""
    folder = tmp_path_factory.mktemp("bon")
    (folder / "bon.csv").write_text("\n".join(["audio_a,audio_b,model_a,model_b,text,overall,annotator", *CAST]) + "\n")
    source = {"name": "bon", "format": "votes", "root": ".", "files": ["bon.csv"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EARMARK_SALT", SALT)
        return build_votes(config_of(folder, source, audio="none", split={"test": 0}), folder / "store")


def wins(version: Version, out: Path) -> dict[tuple[str, str], float]:
    """How often a system of the overall board won over another."""
    corpus = find_corpus(version.corpus)
    (board,) = rank_systems(version, corpus, Store(version.folder.parents[1]), out)[0]["boards"]
    names = [one["system"] for one in board["systems"]]
    return {(a, b): won for a, row in zip(names, board["wins"], strict=True)
            for b, won in zip(names, row, strict=True) if won}  # fmt: skip


@pytest.mark.slow
def test_each_vote_has_its_own_names_and_the_matrix_counts_them(voted: Version, tmp_path: Path) -> None:
    votes = {row["source_line"]: row for row in rows_of(voted, "votes")}
    assert {line: (row["model_a"], row["model_b"], row["overall"]) for line, row in votes.items()} == {
        2: ("mg N=1", "mg N=3", "b"),
        3: ("mg N=3", "mg N=10", "b"),
        4: ("mg N=1", "mg N=10", "b"),
        5: ("mg N=1", "mg N=10", "a"),  # in the letters of the comparison
    }
    assert [(row["reason"], row["line"]) for row in rows_of(voted, "rejects")] == [("repeated_vote", 6)]
    assert len(rows_of(voted, "comparisons")) == 2
    assert wins(voted, tmp_path / "out") == {
        ("mg N=3", "mg N=1"): 1, ("mg N=10", "mg N=3"): 1, ("mg N=10", "mg N=1"): 1, ("mg N=1", "mg N=10"): 1
    }  # fmt: skip


@pytest.mark.slow
def test_a_version_without_names_of_votes_goes_by_its_comparisons(voted: Version, tmp_path: Path) -> None:
    """As 1.0.0 wrote it."""
    before = wins(voted, tmp_path / "out")
    for file in (voted.folder / "votes").glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["model_a", "model_b"]), file)
    restate(voted)
    after = wins(voted, tmp_path / "again")
    assert after == {("mg N=3", "mg N=1"): 2, ("mg N=10", "mg N=3"): 1, ("mg N=1", "mg N=3"): 1}
    assert after != before
