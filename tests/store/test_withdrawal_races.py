"""A build that is about to commit while something is withdrawn: its version is without it, or is not published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.errors import StoreError
from earmark.tasks.release import withdrawal
from earmark.tasks.release.publishing import gathered
from earmark.tasks.store import commit as committing
from earmark.tasks.store.commit import Draft
from earmark.tasks.store.manifest import Parent
from earmark.tasks.store.versions import Store, Version, open_store, verify
from earmark.tasks.store.withdrawals import names_for, withdrawal_against
from tests.builds import traces
from tests.store.objects import another_machine, bucket, server, uncommitted
from tests.store.test_lineage import CORPORA, ROWS, SHA, build, ids

__all__ = ["bucket", "server"]  # fixtures

E = {"caption_id": "cap-e", "split": "train", "clip_id": "other", "heard_sha256": SHA["e"], "text": "Of e."}


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, Store]:
    """A store with songs and words about them, as two machines (or two processes of one) see it."""
    if request.param == "s3":
        pytest.importorskip("moto", reason="moto is not installed (group 'dev')")
        url = f"s3://{request.getfixturevalue('bucket')}/store"
        here, there = open_store(url), another_machine(url, tmp_path / "there")
    else:
        here = there = Store(tmp_path / "store")
        here.root.mkdir()
    build(here, "songs")
    build(here, "words")
    there.refresh()
    return here, there


def withdraw(store: Store, clip: str) -> None:
    store.refresh()
    found = withdrawal.search(store, CORPORA, "clip", SHA[clip])
    withdrawal.withdraw(store, CORPORA, found, "asked for")


def once(act: Callable[[], None]) -> Callable[[], None]:
    """An act that is done the first time only: it commits, too."""
    calls: list[int] = []

    def first() -> None:
        calls.append(1)
        if len(calls) == 1:
            act()

    return first


def before_the_pages(patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act when a commit has left out what was withdrawn and checked the rest."""
    render, do = committing.render, once(act)

    def hooked(draft: Draft, *rest: Any) -> Any:
        if draft.made.corpus.name == "words":
            do()
        return render(draft, *rest)

    patch.setattr(committing, "render", hooked)


def before_it_counts(patch: pytest.MonkeyPatch, act: Callable[[], None], name: str = "words") -> None:
    """Act when a commit has read the acts for the last time, right before its rename or the put of its manifest."""
    reads: list[str] = []
    do = once(act)

    def hooked(acts: Any, corpus: str) -> Any:
        found = names_for(acts, corpus)
        if corpus == name:
            reads.append(corpus)
            if len(reads) == 2:
                do()
        return found

    patch.setattr(committing, "names_for", hooked)


@pytest.fixture
def e_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, words are built with a caption of clip e, which the version before did not hold."""
    words = {**ROWS["words"], "captions": [*ROWS["words"]["captions"], E]}
    monkeypatch.setitem(ROWS, "words", words)


@pytest.mark.slow
def test_what_is_withdrawn_while_a_version_is_checked_is_left_out(
    machines: tuple[Store, Store],
    e_is_described: None,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    here, there = machines
    with monkeypatch.context() as patch:
        before_the_pages(patch, lambda: withdraw(there, "e"))
        words = build(here, "words", key="other")
    assert there.find("songs").name == "v2"
    assert ids(words, "captions") == ["cap-a", "cap-c", "cap-f"]
    assert traces(words, [SHA["e"], "cap-e", "Of e."]) == []
    assert verify(words) == []
    if here.remote is not None:
        assert here.remote.faults(words.manifest) == []
        assert uncommitted(request.getfixturevalue("server"), here.remote.url) == {}, (
            "expected nothing of the try that held what was withdrawn"
        )
    assert withdrawal_against(here.root, words.manifest) is None
    with gathered(words, CORPORA["words"], here, True) as bundle:
        assert bundle.manifest.applied_withdrawals == ()
    assert [v.name for v in (build(here, "words", key="other"), here.find("words"))] == [words.name] * 2


def not_published(store: Store, version: Version) -> None:
    """Nothing takes the version for free of what was withdrawn."""
    store.refresh()
    assert store.with_key(version.corpus, version.manifest.build_key) != version
    with (
        pytest.raises(StoreError, match=f"{version.corpus} {version.name} was not looked through for what was withdr"),
        gathered(version, CORPORA[version.corpus], store, True),
    ):
        pass


@pytest.mark.slow
def test_what_is_withdrawn_in_the_last_moment_keeps_the_version_unpublished(
    machines: tuple[Store, Store], e_is_described: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = machines
    with monkeypatch.context() as patch:
        before_it_counts(patch, lambda: withdraw(there, "e"))
        late = build(here, "words", key="other")
    assert "cap-e" in ids(late, "captions")
    for store in machines:
        not_published(store, late)
    withdraw(there, "e")  # again
    here.refresh()
    assert ids(here.find("words"), "captions") == ["cap-a", "cap-c", "cap-f"]
    act = withdrawal_against(here.root, late.manifest)
    assert act is not None
    assert act.holds(late.manifest)
    assert withdrawal_against(here.root, here.find("words").manifest) is None


@pytest.mark.slow
def test_a_build_after_that_makes_a_version_that_is_published(
    machines: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = machines
    with monkeypatch.context() as patch:
        before_it_counts(patch, lambda: withdraw(there, "e"))
        late = build(here, "words", key="other")  # does not hold it, but who knows
    not_published(here, late)
    after = build(here, "words", key="other")
    assert after.number == late.number + 1
    assert withdrawal_against(here.root, after.manifest) is None
    assert build(here, "words", key="other") == after


@pytest.mark.slow
def test_what_was_made_from_such_a_version_is_not_published_either(
    machines: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = machines
    heard = [{**row, "heard_sha256": SHA["f"]} for row in ROWS["words"]["captions"]]
    with monkeypatch.context() as patch:
        patch.setitem(ROWS, "words", {**ROWS["words"], "captions": heard})
        build(here, "words", key="of f")
    with monkeypatch.context() as patch:
        before_it_counts(patch, lambda: withdraw(there, "f"), "songs")
        late = build(here, "songs", key="late")
    made = build(here, "words", (Parent(corpus="songs", version=late.name, digest=late.manifest.digest()),), key="made")
    assert made.manifest.applied_withdrawals
    for version in (late, made):
        not_published(here, version)
    withdraw(there, "f")
    here.refresh()
    assert withdrawal_against(here.root, late.manifest) is None
    assert withdrawal_against(here.root, made.manifest) is None
