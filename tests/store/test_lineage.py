"""What was withdrawn leaves the tables with all that follows from it, and nothing else does."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import StoreError
from earmark.schemas.tables import REJECTS, Table, column
from earmark.tasks.release import withdrawal
from earmark.tasks.release.publishing import gathered
from earmark.tasks.store.commit import commit
from earmark.tasks.store.lineage import withdrawn_from
from earmark.tasks.store.manifest import Parent
from earmark.tasks.store.versions import Store, Version, verify
from earmark.tasks.store.withdrawals import Mark, digest_of_value, save_withdrawal, withdrawal_against, withdrawals
from tests.builds import rows_of, traces
from tests.store.songs import CORPORA, REFUSED, ROWS, SHA, SONGS, WORDS_OF, build, corpus, ids, table, withdraw


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with songs, and words that were written about them."""
    held = Store(tmp_path / "store")
    held.root.mkdir()
    songs = build(held, "songs")
    build(held, "words", (Parent(corpus="songs", version="v1", digest=songs.manifest.digest()),))
    return held


@pytest.mark.slow
def test_a_clip_leaves_with_all_that_was_made_from_it(store: Store) -> None:
    old = store.find("songs")
    withdraw(store, "clip", SHA["c"])
    songs, words = store.find("songs"), store.find("words")
    assert (songs.name, words.name) == ("v2", "v2")
    assert ids(songs, "clips") == ["clip-a", "clip-b", "clip-d", "clip-e"]
    assert ids(songs, "pairs") == ["pair-ab", "pair-de"]
    assert ids(songs, "votes") == ["vote-1", "vote-4"]
    assert ids(words, "captions") == ["cap-a", "cap-f"]
    assert ids(words, "raw") == ["cap-a", "cap-f"]
    assert traces(songs, [SHA["c"], "clip-c", "sound of c", "pair-cd", "clip-y"]) == []
    assert traces(words, [SHA["c"], "clip-c", "cap-c", "Of c", "Raw of c."]) == []
    assert traces(old, [SHA["c"], "sound of c"]) != []
    assert not (songs.folder / "audio/c.wav").exists()
    assert verify(songs) == verify(words) == []
    assert songs.manifest.rejects == {"audio_too_short": 1}
    accounts = {step.name: step for step in songs.manifest.steps}
    assert accounts["withdrawn-clips"].dropped == {"withdrawn": 1}
    assert accounts["read"].dropped == {"withdrawn": 1}
    heir = next(parent for parent in words.manifest.parents if parent.corpus == "songs")
    assert heir.digest == songs.manifest.digest()


@pytest.mark.slow
def test_what_other_corpora_made_of_a_clip_s_row_leaves_too(store: Store) -> None:
    withdraw(store, "clip", SHA["d"])  # one caption heard the file under another clip's name
    assert ids(store.find("words"), "captions") == ["cap-a", "cap-c"]


@pytest.mark.slow
def test_a_prompt_leaves_with_its_clips(store: Store) -> None:
    withdraw(store, "prompt", "p-one")
    songs = store.find("songs")
    assert ids(songs, "clips") == ["clip-c", "clip-d", "clip-e"]
    assert ids(songs, "pairs") == ["pair-cd", "pair-de"]
    assert traces(songs, ["p-one", "clip-a", "clip-b", SHA["a"]]) == []
    assert ids(store.find("words"), "captions") == ["cap-c", "cap-f"]
    assert rows_of(store.find("words"), "rejects") == []


def test_it_leaves_all_versions_of_two_corpora_that_read_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROWS, "captions", ROWS["words"])
    monkeypatch.setitem(REFUSED, "captions", REFUSED["words"])
    monkeypatch.setitem(CORPORA, "captions", corpus("captions", WORDS_OF))  # in the alphabet before what it reads
    store = Store(tmp_path)
    build(store, "songs")
    captions = build(store, "captions", (store.find("songs").as_parent(),))
    build(store, "songs", (captions.as_parent(),), key="other")
    found = withdrawal.search(store, CORPORA, "prompt", "p-one")
    versions = {(one.version.corpus, one.version.name) for one in found.holdings}
    assert versions == {("captions", "v1"), ("songs", "v1"), ("songs", "v2")}
    made = withdrawal.withdraw(store, CORPORA, found, "asked for").made
    assert {(one.corpus, one.version) for one in made} == {("captions", "v2"), ("songs", "v3")}
    assert ids(store.find("songs"), "clips") == ["clip-c", "clip-d", "clip-e"]
    assert ids(store.find("captions"), "captions") == ["cap-c", "cap-f"]
    later = build(store, "captions", (store.find("songs").as_parent(),), key="another")
    assert ids(later, "captions") == ["cap-c", "cap-f"], "a later build leaves them out, too"


def test_an_annotator_leaves_and_others_votes_stay(store: Store) -> None:
    withdraw(store, "annotator", "ann")
    songs = store.find("songs")
    assert ids(songs, "votes") == ["vote-3", "vote-4"]
    assert ids(songs, "pairs") == ["pair-cd", "pair-de"]  # nobody else has voted on pair-ab
    assert ids(songs, "clips") == ["clip-a", "clip-b", "clip-c", "clip-d", "clip-e"]  # they are there for themselves
    assert [row["value"] for row in rows_of(songs, "agreement")] == ["all"]
    assert traces(songs, ['"ann"', "'ann'", "vote-2"]) == []
    assert store.find("words").name == "v1"


@pytest.mark.slow
def test_it_stays_out_and_is_not_published(store: Store) -> None:
    withdraw(store, "clip", SHA["a"])
    (act,) = withdrawals(store.root)
    assert SHA["a"] not in act.model_dump_json()
    assert "clip-a" not in act.model_dump_json()
    again = build(store, "songs", key="other")  # from the same inputs
    assert ids(again, "clips") == ["clip-b", "clip-c", "clip-d", "clip-e"]
    assert traces(again, [SHA["a"], "clip-a", "pair-ab"]) == []
    late = build(store, "words", key="other")  # which names no parent
    assert ids(late, "captions") == ["cap-c", "cap-f"]
    with (
        pytest.raises(StoreError, match=r"songs v1 holds what was withdrawn on .* \(asked for\)"),
        gathered(store.find("songs@v1"), CORPORA["songs"], store, True),
    ):
        pass
    assert store.with_key("songs", f"{'key':0<16}") == store.find("songs@v2")  # up to date, and never v1


def stop_after_one_commit(patch: pytest.MonkeyPatch) -> None:
    """Have a withdrawal end when it would commit its second version."""
    commits = []

    def stopped(*args: Any) -> Version:
        if commits:
            raise KeyboardInterrupt
        commits.append(args)
        return commit(*args)

    patch.setattr(withdrawal, "commit", stopped)


@pytest.mark.slow
def test_killed_between_record_and_versions_it_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    found = withdrawal.search(store, CORPORA, "clip", SHA["a"])
    stop_after_one_commit(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        withdrawal.withdraw(store, CORPORA, found, "asked for")
    assert [store.find(name).name for name in ("songs", "words")] == ["v2", "v1"]
    assert len(withdrawals(store.root)[0].versions) == 2
    monkeypatch.undo()
    withdraw(store, "clip", SHA["a"])
    assert [store.find(name).name for name in ("songs", "words")] == ["v2", "v2"]
    (act,) = withdrawals(store.root)
    assert {(one.corpus, one.version) for one in act.made} == {("songs", "v2"), ("words", "v2")}


@pytest.mark.slow
def test_killed_between_a_version_and_its_note_it_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        saves: list[Any] = []

        def stopped(*args: Any) -> None:
            saves.append(args)
            if len(saves) == 2:
                raise KeyboardInterrupt
            save_withdrawal(*args)

        patch.setattr(withdrawal, "save_withdrawal", stopped)
        with pytest.raises(KeyboardInterrupt):
            withdraw(store, "clip", SHA["a"])
    assert [store.find(name).name for name in ("songs", "words")] == ["v2", "v1"]
    withdraw(store, "clip", SHA["a"])
    (act,) = withdrawals(store.root)
    assert {(one.corpus, one.version) for one in act.made} == {("songs", "v2"), ("words", "v2")}
    assert act.rows["songs"]["clips"] == 1
    heir = next(parent for parent in store.find("words").manifest.parents if parent.corpus == "songs")
    assert heir.digest == store.find("songs").manifest.digest()


@pytest.mark.slow
def test_only_in_one_corpus_and_what_was_made_from_it(store: Store) -> None:
    other = {"alone": corpus("alone", CORPORA["songs"].tables)}
    with pytest.MonkeyPatch.context() as patch:
        for held in (ROWS, REFUSED):
            patch.setitem(held, "alone", held["songs"])  # type: ignore[index]
        patch.setitem(CORPORA, "alone", other["alone"])
        build(store, "alone")
    known = {**CORPORA, **other}
    found = withdrawal.search(store, known, "clip", SHA["c"], "songs")
    withdrawal.withdraw(store, known, found, "asked for")
    assert [store.find(name).name for name in ("songs", "words", "alone")] == ["v2", "v2", "v1"]
    assert withdrawal_against(store.root, store.find("alone").manifest) is None


@pytest.mark.slow
def test_what_a_killed_withdrawal_left_of_another_version_goes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> Version:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(withdrawal, "commit", stopped)
        with pytest.raises(KeyboardInterrupt):
            withdraw(store, "clip", SHA["c"])
    staged = store.folder("songs") / ".staging"
    assert any(staged.rglob("c.wav"))
    kept = store.root / "kept"
    shutil.copytree(staged, kept)
    withdraw(store, "clip", SHA["c"])
    assert not staged.exists()
    shutil.copytree(kept, staged)  # as on a machine where another one's withdrawal has ended meanwhile
    shutil.rmtree(kept)
    withdraw(store, "clip", SHA["c"])
    assert store.find("songs").name == "v2"
    assert not staged.exists()


@pytest.mark.slow
def test_two_withdrawals_follow_each_other(store: Store) -> None:
    withdraw(store, "clip", SHA["a"])
    withdraw(store, "annotator", "bob")
    songs = store.find("songs")
    assert songs.name == "v3"
    assert ids(songs, "clips") == ["clip-b", "clip-c", "clip-d", "clip-e"]
    assert ids(songs, "votes") == ["vote-2"]
    assert verify(songs) == []


def test_what_nobody_holds_is_one_line(store: Store) -> None:
    with pytest.raises(StoreError, match=r"no version in .* contains this prompt"):
        withdrawal.search(store, CORPORA, "prompt", "p-three")
    assert store.find("songs").name == "v1"
    assert not (store.root / "withdrawals").exists()


@pytest.mark.slow
def test_a_version_that_a_build_commits_meanwhile_is_looked_through(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build had read what was withdrawn before the act was recorded, and holds the lock until it has committed."""
    found = withdrawal.search(store, CORPORA, "clip", SHA["a"])
    with monkeypatch.context() as patch:
        patch.setattr("earmark.tasks.store.commit.marks_for", lambda *_: ())
        late = build(store, "songs", key="late")
    assert "clip-a" in ids(late, "clips")
    act = withdrawal.withdraw(store, CORPORA, found, "asked for")
    assert [version.name for version in store.versions("songs")] == ["v1", "v2", "v3"]
    assert ids(store.find("songs"), "clips") == ["clip-b", "clip-c", "clip-d", "clip-e"]
    assert withdrawal_against(store.root, late.manifest) == act
    assert ids(store.find("words"), "captions") == ["cap-c", "cap-f"]


def with_mood(optional: bool = True) -> Mapping[str, Corpus]:
    """The corpora, where captions have another column, and one less, than before."""
    fields = [field for field in WORDS_OF[0].schema if field.name != "text"]
    fields.append(column("mood", pa.string(), "Told anew.", optional=optional))
    captions = Table(name="captions", description="Of songs.", schema=pa.schema(fields), key=("caption_id",))
    return {**CORPORA, "words": corpus("words", (captions, *WORDS_OF[1:]))}


@pytest.mark.slow
def test_a_version_of_an_earlier_release_gets_the_schema_of_this_one(store: Store) -> None:
    now = with_mood()
    withdrawal.withdraw(store, now, withdrawal.search(store, now, "clip", SHA["c"]), "asked for")
    words = store.find("words")
    assert verify(words) == []
    assert [(row["caption_id"], row["mood"], "text" in row) for row in rows_of(words, "captions")] == [
        ("cap-a", None, False), ("cap-f", None, False),
    ]  # fmt: skip
    assert words.manifest.schemas != store.find("words@v1").manifest.schemas


def test_what_an_earlier_release_did_not_hold_is_one_line(store: Store) -> None:
    now = with_mood(optional=False)
    with pytest.raises(StoreError, match="table captions: an earlier release wrote it without mood; build the corpus"):
        withdrawal.withdraw(store, now, withdrawal.search(store, now, "clip", SHA["c"]), "asked for")
    assert store.find("words").name == "v1"
    assert withdrawal_against(store.root, store.find("words").manifest)


@pytest.mark.parametrize(
    ("item", "detail", "made_from", "leaves"),
    [
        ("2", "empty", [("prompt", "2")], True),
        ("2", "empty", [("track", "2")], False),
        ("clip-x", "of prompt 2", [], False),
    ],
)
def test_a_reject_leaves_with_what_it_is_made_from(
    tmp_path: Path, item: str, detail: str, made_from: list[tuple[str, str]], leaves: bool
) -> None:
    things = [{"kind": kind, "id": id_} for kind, id_ in made_from]
    assert leaving_rejects(tmp_path, {"item": item, "detail": detail, "made_from": things}, REJECTS.schema) is leaves


@pytest.mark.parametrize(
    ("item", "detail", "leaves"),
    [
        ("2", "empty", True),
        ("2/direct/0", "empty", True),
        ("clip-x", "expected 2 clips, found 1", True),
        ("clip-22", "expected 3 cells, found 12", False),
    ],
)
def test_every_word_of_an_earlier_release_s_reject_may_be_an_id(
    tmp_path: Path, item: str, detail: str, leaves: bool
) -> None:
    row = {"item": item, "detail": detail}
    before = pa.schema([field for field in REJECTS.schema if field.name != "made_from"])
    for schema in (before, REJECTS.schema):  # as it was written, and as a withdrawal wrote it anew
        assert leaving_rejects(tmp_path, row, schema) is leaves


def leaving_rejects(folder: Path, row: dict[str, Any], schema: pa.Schema) -> bool:
    """Whether a reject leaves with the prompt 2."""
    whole = {"table": "clips", "stage": "read", "reason": "bad", "file": None, "line": 1, **row}
    pq.write_table(pa.Table.from_pylist([whole], schema), folder / "rejects.parquet")
    files = {"clips": {}, "rejects": {"full": [folder / "rejects.parquet"]}}
    return bool(withdrawn_from((SONGS[0], REJECTS), files, [Mark.of("prompt", "2")]).counts)


def test_a_record_of_an_earlier_release_names_a_column(tmp_path: Path) -> None:
    path = tmp_path / "captions.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS["words"]["captions"], WORDS_OF[0].schema), path)
    mark = Mark(kind="key", digest=digest_of_value("key", "clip-c"), column="clip_id")
    gone = withdrawn_from(WORDS_OF[:1], {"captions": {"train": [path]}}, [mark])
    assert gone.rows["captions"].tolist() == [False, True, False]
    assert gone.things == {("caption", "cap-c")}


KINDS, IDS = st.sampled_from(["k", "l"]), st.sampled_from(["1", "2", "3"])
ROLES = st.sampled_from(["from", "is", "keeps", "part"])
COLUMNS = st.lists(st.tuples(KINDS, ROLES), min_size=1, max_size=3)
TABLES_OF = st.lists(COLUMNS, min_size=1, max_size=3)


def brute_force(
    columns: Mapping[str, list[tuple[str, str]]], rows: Mapping[str, list[list[str | None]]], gone: set[tuple[str, str]]
) -> set[tuple[str, int]]:
    """The rows that leave, by the definitions of the roles, one row and one thing at a time."""
    names = [
        (name, at, kind, id_, role)
        for name, held in rows.items()
        for at, row in enumerate(held)
        for (kind, role), id_ in zip(columns[name], row, strict=True)
        if id_ is not None
    ]
    gone, left = set(gone), set[tuple[str, int]]()
    while True:
        before = len(gone), len(left)
        left |= {(name, at) for name, at, kind, id_, _ in names if (kind, id_) in gone}
        for thing in {(kind, id_) for *_, kind, id_, _ in names}:
            of_it = [(name, at, role) for name, at, kind, id_, role in names if (kind, id_) == thing]
            parts = any((name, at) in left for name, at, role in of_it if role == "part")
            keepers = [(name, at) in left for name, at, role in of_it if role == "keeps"]
            bodies = [
                [(name, at) in left for name, at, role in of_it if role == "is" and name == table] for table in rows
            ]
            if parts or (keepers and all(keepers)) or any(body and all(body) for body in bodies):
                gone.add(thing)
        if (len(gone), len(left)) == before:
            return left


@pytest.mark.slow
@given(tables=TABLES_OF, seeds=st.sets(st.tuples(KINDS, IDS), max_size=2), data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_rows_leave_as_a_second_implementation_says(
    tmp_path_factory: pytest.TempPathFactory,
    tables: list[list[tuple[str, str]]],
    seeds: set[tuple[str, str]],
    data: Any,
) -> None:
    """Columns have names that tell nothing, and two of them may hold the same ids of other kinds."""
    folder = tmp_path_factory.mktemp("lineage")
    columns = {f"t{number}": declared for number, declared in enumerate(tables)}
    rows = {name: data.draw(st.lists(st.lists(st.none() | IDS, min_size=len(c), max_size=len(c)), max_size=5))
            for name, c in columns.items()}  # fmt: skip
    made, files = [], {}
    for name, declared in columns.items():
        made.append(table(name, (), [f"x{at}={kind}:{role}" for at, (kind, role) in enumerate(declared)]))
        paths = [folder / f"{name}-{part}.parquet" for part in (0, 1)]
        for path, part in zip(paths, (rows[name][:2], rows[name][2:]), strict=True):
            cells = [dict(zip(made[-1].schema.names, row, strict=True)) for row in part]
            pq.write_table(pa.Table.from_pylist(cells, made[-1].schema), path)
        files[name] = {"train": paths[:1], "test": paths[1:]}
    gone = withdrawn_from(made, files, [Mark.of(kind, id_) for kind, id_ in seeds])
    left = {(name, at) for name, mask in gone.rows.items() for at in mask.nonzero()[0].tolist()}
    assert left == brute_force(columns, rows, seeds)


@pytest.mark.slow
def test_records_and_manifests_keep_the_keys_of_earlier_releases(store: Store) -> None:
    """A manifest's digest covers its keys; and machines of another release read the records of this one."""
    withdraw(store, "clip", SHA["a"])
    (path,) = (store.root / "withdrawals").glob("*.json")
    assert json.loads(path.read_bytes())["act"] == withdrawals(store.root)[0].name == path.stem
    text = (store.find("songs").folder / "manifest.json").read_text()
    assert json.loads(text)["obeyed"] == list(store.find("songs").manifest.applied_withdrawals) != []
    assert hashlib.sha256(text.encode()).hexdigest() == store.find("songs").manifest.digest()
