"""`earmark prune`: old versions go, and none that another needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import InputError, StoreError
from earmark.tasks.release.pruning import PRUNED, decide, freed_bytes, prune
from earmark.tasks.store.files import link_over
from earmark.tasks.store.manifest import FileEntry, Manifest
from earmark.tasks.store.receipts import save_receipt
from earmark.tasks.store.runs import save_run, start_run
from earmark.tasks.store.staging import LOCK, staging
from earmark.tasks.store.versions import Store, Version
from tests.builds import receipt_of

Spec = tuple[str, int]


def make(
    store: Store, spec: Spec, parents: tuple[Spec, ...] = (), content: bytes = b"rows", file: str = "README.md"
) -> Version:
    """A version with one file; its digest is nobody's concern here."""
    corpus, number = spec
    folder = store.folder(corpus) / f"v{number}"
    folder.mkdir(parents=True)
    (store.folder(corpus) / LOCK).touch()
    (folder / file).write_bytes(content)
    manifest = Manifest(
        corpus=corpus, version=f"v{number}", build_key="k", inputs={}, config={}, code="c", libraries={}, steps=(),
        parents=tuple({"corpus": name, "version": f"v{of}", "digest": "d"} for name, of in parents),
        rejects={}, rows={}, files=(FileEntry(path=file, sha256="s", bytes=len(content)),),
    )  # fmt: skip
    (folder / "manifest.json").write_text(manifest.to_json())
    return Version(corpus, folder)


def going(store: Store, corpora: list[str], keep: int, keep_published: bool = False) -> set[Spec]:
    decisions = decide(store, corpora, keep, keep_published)
    return {(one.version.corpus, one.version.number) for one in decisions if one.stays is None}


def test_parents_of_what_stays_stay_over_two_corpora(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in (1, 2, 3):
        make(store, ("instrumentals", number), (("instrumentals", number - 1),) if number > 1 else ())
    make(store, ("captions", 1), (("instrumentals", 1),))
    make(store, ("captions", 2), (("instrumentals", 2), ("captions", 1)))
    make(store, ("music-prompts", 1), (("captions", 1),))
    every = ["instrumentals", "captions", "music-prompts"]
    assert going(store, every, 1) == set(), "prompts hold captions v1, which holds instrumentals v1"
    assert going(store, ["instrumentals"], 1) == set(), "captions are not asked for, so both of its versions stay"
    make(store, ("music-prompts", 2), (("captions", 2),))
    assert going(store, every, 1) == {("music-prompts", 1), ("captions", 1), ("instrumentals", 1)}
    assert going(store, every, 2) == set(), "captions v1 is one of two, and holds instrumentals v1"


@pytest.mark.slow
@given(st.data())
def test_no_version_that_stays_lacks_a_parent(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    specs = [(corpus, number) for corpus in ("captions", "instrumentals", "music-prompts") for number in (1, 2, 3)]
    parents: dict[Spec, tuple[Spec, ...]] = {}
    for index, spec in enumerate(specs):
        earlier = [one for one in specs[:index] if one[0] != spec[0]]
        parents[spec] = tuple(data.draw(st.lists(st.sampled_from(earlier), max_size=2))) if earlier else ()
        make(store, spec, parents[spec])
    corpora = data.draw(st.lists(st.sampled_from(["captions", "instrumentals", "music-prompts"]), unique=True))
    gone = going(store, corpora, data.draw(st.integers(1, 3)))
    assert all(corpus in corpora and number < 3 for corpus, number in gone)
    needed = {parent for spec in set(specs) - gone for parent in parents[spec]}
    assert gone.isdisjoint(needed)


def test_published_versions_stay_if_so_wished(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in (1, 2, 3):
        make(store, ("captions", number))
    save_receipt(store, receipt_of("captions", "v1"))
    assert going(store, ["captions"], 1) == {("captions", 1), ("captions", 2)}
    assert going(store, ["captions"], 1, keep_published=True) == {("captions", 2)}


def test_a_file_that_a_remaining_version_shares_frees_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = make(store, ("captions", 1), content=b"x" * 100), make(store, ("captions", 2), content=b"x" * 100)
    manifest = (first.folder / "manifest.json").stat().st_size
    assert freed_bytes(store, [first]) == 100 + manifest
    link_over(second.folder / "README.md", first.folder / "README.md")
    assert freed_bytes(store, [first]) == manifest
    assert freed_bytes(store, [first, second]) == 100 + 2 * manifest


def test_what_a_killed_removal_left_goes_with_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in (1, 2):
        make(store, ("captions", number))
    left = make(store, ("captions", 9)).folder
    left.rename(left.with_name(f"{PRUNED}v9"))
    (store.folder("captions") / "v1.keys").write_text("key\n")
    prune(store, decide(store, ["captions"], 1, False))
    assert sorted(path.name for path in store.folder("captions").iterdir()) == [LOCK, "v2"]


def test_a_removal_ends_beside_what_an_earlier_one_left_and_of_a_link(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in (1, 2, 3):
        make(store, ("captions", number))
    home = store.folder("captions")
    shutil.copytree(home / "v1", home / f"{PRUNED}v1")  # killed, then v1 came back from a backup
    (home / "v2").rename(tmp_path / "other-disk")
    (home / "v2").symlink_to(tmp_path / "other-disk")
    prune(store, decide(store, ["captions"], 1, False))
    assert sorted(path.name for path in home.iterdir()) == [LOCK, "v3"]


def test_no_version_goes_in_favour_of_a_damaged_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in (1, 2):
        make(store, ("captions", number), file="rows.bin")
    assert going(store, ["captions"], 1) == {("captions", 1)}
    (store.folder("captions") / "v2" / "rows.bin").write_bytes(b"ro")
    with pytest.raises(StoreError, match=r"v2/rows\.bin: expected 4 bytes, .* found 2; see: earmark inspect verify"):
        decide(store, ["captions"], 1, False)
    assert going(store, ["captions"], 2) == set()


def test_a_version_in_place_of_a_corpus_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in (1, 2):
        make(store, ("captions", number))
    words = ["prune", "captions@v2", "--keep", "1", "--store", str(tmp_path)]
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, InputError)
    assert "expected a corpus, found the version 'captions@v2'" in str(refused)
    assert len(store.versions("captions")) == 2


def assert_refused(store: Store) -> None:
    """Neither versions nor answers go."""
    with pytest.raises(StoreError, match="is under way"):
        prune(store, decide(store, ["captions"], 1, False))
    assert len(store.versions("captions")) == 2
    words = ["ledger", "prune", "--before", "2026-01-01", "--out", "old.jsonl", "--dry-run", "--store", str(store.root)]
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, StoreError)
    assert "is under way" in str(refused)


def test_nothing_goes_while_a_run_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EARMARK_LEDGER", raising=False)
    store = Store(tmp_path)
    for number in (1, 2):
        make(store, ("captions", number))
    run = start_run(store, "music-prompts", tmp_path / "c.toml")
    assert_refused(store)
    later = run.model_copy(update={"run": "29990101-000000-ab12", "state": "interrupted"})
    save_run(store, later)  # of the same config, by a person who saw it wait for the first
    assert_refused(store)
    save_run(store, run.model_copy(update={"state": "completed"}))
    prune(store, decide(store, ["captions"], 1, False))
    assert len(store.versions("captions")) == 1


def test_nothing_goes_while_a_build_without_a_record_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EARMARK_LEDGER", raising=False)
    store = Store(tmp_path)
    for number in (1, 2):
        make(store, ("captions", number))
    with staging(store, "music-prompts", "1" * 64, say=print):  # a corpus without a version yet
        assert_refused(store)
    prune(store, decide(store, ["captions"], 1, False))
    assert len(store.versions("captions")) == 1


@pytest.mark.slow
def test_the_command_shows_what_would_go_and_then_removes_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in (1, 2, 3):
        make(store, ("captions", number))

    def earmark(*words: str) -> str:
        command = [sys.executable, "-m", "earmark", "prune", *words, "--store", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout

    shown = earmark("--keep", "2", "--dry-run")
    assert "would go" in shown
    assert len(store.versions("captions")) == 3
    facts = json.loads(earmark("captions", "--keep", "2", "--json"))
    assert [one["version"] for one in facts["versions"] if one["removed"]] == ["v1"]
    assert [one.name for one in store.versions("captions")] == ["v2", "v3"]
