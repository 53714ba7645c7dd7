"""A withdrawal from a store in an object store holds for every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("moto", reason="moto is not installed (group 'dev')")

from earmark.tasks.release import withdrawal
from earmark.tasks.store.manifest import Parent
from earmark.tasks.store.versions import open_store, verify
from earmark.tasks.store.withdrawals import FOLDER, withdrawal_against
from tests.builds import traces
from tests.store.objects import another_machine, bucket, server
from tests.store.test_lineage import CORPORA, SHA, build, ids, stop_after_one_commit, withdraw

__all__ = ["bucket", "server"]  # fixtures

pytestmark = pytest.mark.slow


@pytest.fixture
def url(bucket: str) -> str:
    """The URL of a store with songs, and words that were written about them."""
    url = f"s3://{bucket}/store"
    here = open_store(url)
    songs = build(here, "songs")
    build(here, "words", (Parent(corpus="songs", version="v1", digest=songs.manifest.digest()),))
    return url


def test_another_machine_finds_what_is_left_and_obeys(url: str, tmp_path: Path) -> None:
    there = another_machine(url, tmp_path / "there")
    withdraw(open_store(url), "clip", SHA["c"])
    late = build(there, "songs", key="other")  # its store was opened before
    assert late.name == "v3"
    assert traces(late, [SHA["c"], "clip-c", "pair-cd"]) == []
    third = another_machine(url, tmp_path / "third")
    songs, words = third.find("songs@v2"), third.find("words")
    assert ids(songs, "clips") == ["clip-a", "clip-b", "clip-d", "clip-e"]
    assert ids(words, "captions") == ["cap-a", "cap-f"]
    assert verify(songs) == verify(words) == []
    assert third.remote is not None
    assert third.remote.faults(songs.manifest) == []
    assert withdrawal_against(third.root, third.find("songs@v1").manifest) is not None
    records = [*third.remote.files.listed(f"{url}/{FOLDER}")]
    assert len(records) == 1


def test_a_search_brings_no_more_than_tables(url: str, tmp_path: Path) -> None:
    build(open_store(url), "songs", key="again")
    there = another_machine(url, tmp_path / "there")
    withdrawal.search(there, CORPORA, "clip", SHA["c"])
    assert [path.suffix for path in there.root.rglob("*-of-*")]
    assert not list(there.root.rglob("audio/*"))
    withdraw(there, "clip", SHA["c"])
    assert verify(there.find("songs")) == []
    assert sorted(path.name for path in there.find("songs").folder.glob("audio/*")) == [f"{n}.wav" for n in "abde"]


def test_another_machine_goes_on_with_a_killed_one(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = open_store(url)
    with monkeypatch.context() as patch:
        stop_after_one_commit(patch)
        with pytest.raises(KeyboardInterrupt):
            withdraw(here, "clip", SHA["a"])
    there = another_machine(url, tmp_path / "there")
    assert [there.find(name).name for name in ("songs", "words")] == ["v2", "v1"]
    assert withdrawal_against(there.root, there.find("words@v1").manifest) is not None
    found = withdrawal.search(there, CORPORA, "clip", SHA["a"])
    act = withdrawal.withdraw(there, CORPORA, found, "asked for")
    assert {(one.corpus, one.version) for one in act.made} == {("songs", "v2"), ("words", "v2")}
    assert ids(there.find("words"), "captions") == ["cap-c", "cap-f"]
