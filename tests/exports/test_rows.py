"""Views and tables as rows: what `schemas/corpus.py` promises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.corpus import REQUIRED, View
from earmark.schemas.errors import StoreError
from earmark.tasks.exports import rows
from earmark.tasks.exports.rows import select_table, select_view
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.versions import Store
from tests.builds import rows_of
from tests.conftest import ROOT

VIEWS = [(name, view) for name in corpora() for view in find_corpus(name).views]


def read(store: Store, spec: str, view: str, tmp: Path, split: str | None = None, limit: int | None = None) -> Any:
    """A view's rows by split."""
    version = store.find(spec)
    corpus = find_corpus(version.corpus)
    found = next(v for v in corpus.views if v.name == view)
    with select_view(version, corpus, found, tmp, split, limit) as selection:
        return {name: [row for b in selection.rows(name) for row in b.to_pylist()] for name in selection.counts}


@pytest.mark.parametrize(("corpus", "view"), VIEWS, ids=lambda value: getattr(value, "name", value))
def test_declared_views_name_a_query_and_say_what_they_are(corpus: str, view: View) -> None:
    assert (ROOT / f"tasks/{view.sql}.sql").is_file()
    assert re.fullmatch(r"[a-z0-9-]+", view.name)
    assert view.says.endswith(".")
    assert view.kind in REQUIRED
    names = [other.name for other in find_corpus(corpus).views]
    assert names.count(view.name) == 1


@pytest.mark.slow
@pytest.mark.parametrize("dimension", ["musicality", "alignment"])
def test_preferred_clips_are_the_labels(demo_store: Store, tmp_path: Path, dimension: str) -> None:
    found = read(demo_store, "pseudo-preferences", f"{dimension}-clips", tmp_path)
    version = demo_store.find("pseudo-preferences")
    sha = {clip["generation_id"]: clip["clip_sha256"] for clip in rows_of(version, "clips")}
    expected = {}
    for label in rows_of(version, "labels"):
        if label[dimension] in ("a", "b"):
            both = [sha[label["generation_a"]], sha[label["generation_b"]]]
            expected[label["pair_id"]] = both if label[dimension] == "a" else both[::-1]
    assert expected
    assert {r["id"]: [r["chosen_audio"], r["rejected_audio"]] for split in found.values() for r in split} == expected


@pytest.mark.slow
def test_the_letter_that_was_chosen_names_the_preferred_clip(demo_store: Store, tmp_path: Path) -> None:
    clips = read(demo_store, "pseudo-preferences", "musicality-clips", tmp_path)
    chosen = {row["id"]: row["chosen_audio"] for split in clips.values() for row in split}
    letters = set()
    for split in read(demo_store, "pseudo-preferences", "musicality-choice", tmp_path).values():
        for row in split:
            assert len(row["prompt"]) == len(row["audios"]) + 1
            by_letter = dict(zip("AB", row["audios"][-2:], strict=True))
            assert by_letter[row["chosen"]] == chosen[row["id"]]
            assert {row["chosen"], row["rejected"]} == {"A", "B"}
            letters.add(row["chosen"])
    assert letters == {"A", "B"}


def test_the_clip_of_higher_mos_is_chosen(demo_store: Store, tmp_path: Path) -> None:
    found = read(demo_store, "mos-preferences@v2", "preferred-clips", tmp_path)
    mos = {row["clip_sha256"]: row["mos"] for row in rows_of(demo_store.find("mos-preferences@v2"), "ratings")}
    for row in (row for split in found.values() for row in split):
        assert mos[row["chosen_audio"]] > mos[row["rejected_audio"]]


def test_split_and_limit_keep_the_first_rows(demo_store: Store, tmp_path: Path) -> None:
    everything = read(demo_store, "mos-preferences@v1", "preferred-clips", tmp_path)
    few = read(demo_store, "mos-preferences@v1", "preferred-clips", tmp_path, split="test", limit=3)
    assert few == {"test": everything["test"][:3]}
    assert list(everything) == ["train", "validation", "test", "ood"]


def test_a_split_without_rows_says_which_there_are(demo_store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no row in split 'full'; splits: train, validation, test"):
        read(demo_store, "pseudo-preferences", "musicality-clips", tmp_path, split="full")


def test_a_table_is_exported_as_it_is(demo_store: Store, tmp_path: Path) -> None:
    version = demo_store.find("pseudo-preferences")
    with select_table(version, find_corpus(version.corpus), "clips", tmp_path, None, None) as selection:
        found = [row for split in selection.counts for b in selection.rows(split) for row in b.to_pylist()]
        clips = list(selection.clips())
    held = rows_of(version, "clips")
    assert len(found) == len(held)
    assert {row["generation_id"]: row["audio"] for row in found} == {
        r["generation_id"]: r["audio"]["path"] for r in held
    }
    assert clips == sorted({row["audio"]["path"] for row in held})


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT 'a' AS id, 'train' AS split", "expected a column 'prompt', found id, split"),
        ("SELECT 'a' AS id, 'train' AS split, 'p' AS prompt, 'c' AS chosen", "expected chosen and rejected, or"),
        (
            "SELECT unnest(['a', 'a']) AS id, 'train' AS split, 'p' AS prompt, 'c' AS chosen, 'r' AS rejected",
            "expected one row per id, found 'a' twice",
        ),
        (
            "SELECT 'a' AS id, 'train' AS split, 'p' AS prompt, 'c' AS chosen, 'r' AS rejected, 1.0 AS margin",
            "trainers add a column named 'margin' to their loss",
        ),
        (
            "SELECT 'a' AS id, 'train' AS split, 1 AS prompt, 'c' AS chosen, 'r' AS rejected",
            "expected prompt as VARCHAR",
        ),
        (
            "SELECT 'a' AS id, 'train' AS split, ['p'] AS prompt, ['x'] AS audios, 'c' AS chosen, 'r' AS rejected",
            "1 prompts do not have one text piece more than clips",
        ),
        (
            "SELECT 'a' AS id, 'train' AS split, 'p' AS prompt, [NULL] AS audios, 'c' AS chosen, 'r' AS rejected",
            "1 prompts name no clip; build the version with audio",
        ),
        (
            "SELECT 'a' AS id, 'train' AS split, 'p' AS prompt, 'c' AS chosen, 'c' AS rejected",
            "1 rows have the same answer as chosen and rejected",
        ),
        (
            "SELECT 'a' AS id, 'train' AS split, 'p' AS prompt, 'c' AS chosen, NULL::VARCHAR AS rejected",
            "1 rows have no rejected",
        ),
        (
            "SELECT 'a' AS id, '../train' AS split, 'p' AS prompt, 'c' AS chosen, 'r' AS rejected",
            "expected splits named by letters, found '../train'",
        ),
    ],
)
def test_a_view_that_breaks_the_contract_is_refused(
    demo_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, said: str
) -> None:
    version = demo_store.find("mos-preferences")
    monkeypatch.setattr(rows, "query", lambda name: sql)
    view = View("odd", "preference", "odd", "Odd.")
    with (
        pytest.raises(StoreError, match=said),
        select_view(version, find_corpus(version.corpus), view, tmp_path, None, None) as selection,
    ):
        selection.check(view, clips=True)
