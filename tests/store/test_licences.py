"""What licences keep back: by source, through links, of audio; and what a publication would change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.config import Licence
from earmark.schemas.errors import HubError, StoreError
from earmark.schemas.tables import AUDIO, REJECTS, Table, column
from earmark.tasks.store.hub import HubFile, PublishedFile, compare, git_sha1
from earmark.tasks.store.licences import licences_of
from earmark.tasks.store.manifest import FileEntry, Manifest, Parent
from earmark.tasks.store.parquet import write_shards
from earmark.tasks.store.publication import bundled
from earmark.tasks.store.versions import Store, Version

CLIPS = Table(
    name="clips",
    description="Clips.",
    schema=pa.schema(
        [
            column("clip", pa.string(), "Its name.", names="sound", role="is"),
            column("origin", pa.string(), "Its source.", optional=True, names="source"),
            column("file", pa.string(), "Its file in this version.", optional=True),
            column("audio", AUDIO, "Its bytes.", optional=True),
        ]
    ),
    key=("clip",),
    files=("file",),
)
PAIRS = Table(
    name="pairs",
    description="Pairs.",
    schema=pa.schema(
        [
            column("pair", pa.string(), "A name.", names="pair", role="is"),
            *(column(name, pa.string(), "A name.", names="sound") for name in ("a", "b")),
        ]
    ),
    key=("pair",),
)
LABELS = Table(
    name="labels",
    description="Labels.",
    schema=pa.schema(
        [column("pair", pa.string(), "The pair.", names="pair"), column("choice", pa.string(), "a or b.")]
    ),
    key=("pair", "choice"),
)
TABLES = (LABELS, PAIRS, CLIPS, REJECTS)


def card_of(tables: Sequence[Table]) -> str:
    return "---\npretty_name: X\nconfigs:\n" + "".join(
        f"- config_name: {table.name}\n  data_files:\n  - split: train\n    path: {table.name}/train-*.parquet\n"
        for table in tables
    )


def clip(name: str, origin: str | None) -> dict[str, Any]:
    held = {"bytes": name.encode(), "path": f"{name}.wav"}
    return {"clip": name, "origin": origin, "file": f"audio/{name}.wav", "audio": held}


def reject(file: str | None) -> dict[str, Any]:
    text = dict.fromkeys(("table", "item", "stage", "reason", "detail"), "x")
    of = [] if file is None else [{"kind": "source", "id": file.partition("/")[0]}]
    return {**text, "file": file, "line": 1, "made_from": of}


def make_version(
    store: Store,
    rows: dict[str, list[dict[str, Any]]],
    licences: dict[str, str],
    corpus: str = "toy",
    tables: Sequence[Table] = TABLES,
    **values: Any,
) -> Version:
    folder = store.folder(corpus) / "v1"
    files = []
    for table in tables:
        held = pa.Table.from_pylist(rows.get(table.name, []), table.schema)
        for path in write_shards(folder / table.name, table, "train", [held]):
            files.append(entry(folder, path, table.name, len(held)))
    for row in [row for row in rows.get("clips", []) if row["file"]]:
        path = folder / row["file"]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(row["clip"].encode())
        files.append(entry(folder, path))
    for name, text in (
        ("README.md", card_of(tables) + "---\n\n# X\n\nWords.\n\n## How\n\nSo.\n"),
        ("report.html", "<p>"),
    ):
        (folder / name).write_text(text)
        files.append(entry(folder, folder / name))
    manifest = Manifest(
        corpus=corpus,
        version="v1",
        build_key="k",
        inputs={},
        config={"licences": {name: {"licence": None, "redistribute": may} for name, may in licences.items()}},
        code="c",
        libraries={},
        steps=(),
        rejects={},
        rows={table.name: {"train": len(rows.get(table.name, []))} for table in tables},
        files=tuple(files),
        **values,
    )
    (folder / "manifest.json").write_text(manifest.to_json())
    return Version(corpus, folder)


def entry(folder: Path, path: Path, table: str | None = None, rows: int | None = None) -> FileEntry:
    size, split = path.stat().st_size, "train" if table else None
    return FileEntry(
        path=path.relative_to(folder).as_posix(), sha256=path.name, bytes=size, rows=rows, table=table, split=split
    )


ROWS = {
    "clips": [clip("c1", "free"), clip("c2", "rows"), clip("c3", "shut"), clip("c4", None), clip("c5", "unnamed")],
    "pairs": [
        {"pair": "p12", "a": "c1", "b": "c2"},
        {"pair": "p13", "a": "c1", "b": "c3"},
        {"pair": "p31", "a": "c3", "b": "c4"},
        {"pair": "p45", "a": "c4", "b": "c5"},
    ],
    "labels": [{"pair": pair, "choice": "a"} for pair in ("p12", "p13", "p31", "p45")],
    "rejects": [
        reject("free/list.csv"),
        reject("shut/list.csv"),
        reject(None),
        reject("list.csv"),
        reject("unnamed/x"),
    ],
}
LICENCES = {"free": "all", "rows": "rows", "shut": "none"}


def published(version: Version, store: Store, audio: bool = True, tables: Sequence[Table] = TABLES) -> dict[str, Any]:
    """The rows and files of a bundle, and what it holds back."""
    with bundled(version, tables, store, audio=audio, say=print) as bundle:
        found: dict[str, Any] = {table.name: [] for table in tables}
        for file in bundle.entries:
            if file.path.endswith(".parquet"):
                found[file.path.partition("/")[0]] += pq.ParquetFile(file.source).read().to_pylist()
        texts = {e.path: e.source.read_text() for e in bundle.entries if "/" not in e.path}
        audio_files = sorted(e.path for e in bundle.entries if e.path.startswith("audio/"))
        return {**found, "texts": texts, "files": audio_files, "held": (bundle.held_rows, bundle.held_audio)}


@pytest.mark.parametrize(("may", "refused"), [("none", True), ("rows", False), ("all", False)])
def test_a_closed_source_that_no_row_has_is_not_published(tmp_path: Path, may: str, refused: bool) -> None:
    """Nothing of it would be held back: the name is misspelt."""
    store = Store(tmp_path)
    version = make_version(store, ROWS, {**LICENCES, "shutt": may})
    if refused:
        with pytest.raises(HubError, match=r'^toy v1: \[licences."shutt"\] holds .*; did you mean \'shut\'\?;[^\n]*$'):
            published(version, store)
    else:
        assert published(version, store)["files"] == ["audio/c1.wav"]


@pytest.mark.parametrize("where", ["rejects", "config", "models", "parent"])
def test_a_closed_source_may_have_no_row_where_something_else_names_it(tmp_path: Path, where: str) -> None:
    store, rows = Store(tmp_path), dict(ROWS)
    rows["clips"] = [row for row in ROWS["clips"] if row["origin"] != "shut"]
    rows["rejects"] = ROWS["rejects"] if where == "rejects" else []
    parent = make_version(store, {}, {}, corpus="above", tables=TABLES)
    named = parent.manifest.model_copy(update={"config": {"sources": [{"name": "shut"}]}})
    (parent.folder / "manifest.json").write_text(named.to_json())
    above = Version("above", parent.folder)
    values: dict[str, Any] = {"models": ("openai:shut",)} if where == "models" else {}
    values |= {"parents": (above.as_parent(),)} if where == "parent" else {}
    version = make_version(store, rows, LICENCES, **values)
    if where == "config":
        told = version.manifest.model_copy(update={"config": {**version.manifest.config, "takes": [{"name": "shut"}]}})
        (version.folder / "manifest.json").write_text(told.to_json())
        version = Version("toy", version.folder)
    published(version, store)


def test_held_back_by_source_and_through_links(tmp_path: Path) -> None:
    store = Store(tmp_path)
    found = published(make_version(store, ROWS, LICENCES), store)
    assert [row["clip"] for row in found["clips"]] == ["c1", "c2", "c4", "c5"]
    assert [row["pair"] for row in found["pairs"]] == ["p12", "p45"]
    assert [row["pair"] for row in found["labels"]] == ["p12", "p45"]
    assert [row["file"] for row in found["rejects"]] == ["free/list.csv", "unnamed/x"]
    assert [row["clip"] for row in found["clips"] if row["audio"]] == ["c1"]
    assert [row["file"] for row in found["clips"]] == ["audio/c1.wav", None, None, None]
    assert found["files"] == ["audio/c1.wav"]
    assert found["held"] == ({"clips": 1, "pairs": 2, "labels": 2, "rejects": 3}, {"clips": 6})
    assert set(found["texts"]) == {"README.md", "manifest.json"}, "the report would show what is held back"
    card = found["texts"]["README.md"]
    assert "\nWords.\n\n## Held back\n" in card
    assert "| pairs | train | 2 | 2 | 0 |" in card
    assert card.endswith("## How\n\nSo.\n")
    assert not (tmp_path / "toy/.publish").exists()


TEXT = pa.string()
QUOTES = Table(
    name="quotes",
    description="What a story was written after.",
    schema=pa.schema(
        [
            column("story", TEXT, "What was written after it.", names="story", role="part"),
            column("place", TEXT, "A name."),
            *(column(name, TEXT, "A name.", names="source") for name in ("origin", "shelf")),
        ]
    ),
    key=("story", "place"),
)
PLOTS = Table("plots", "Plots.", pa.schema([column("story", TEXT, "A name.", names="story", role="is")]), ("story",))
STORIES = Table("stories", "Stories.", pa.schema([column("story", TEXT, "A name.", names="story")]), ("story",))
WRITTEN = (STORIES, QUOTES, PLOTS, REJECTS)


def written(*quotes: tuple[str, str, str]) -> dict[str, list[dict[str, Any]]]:
    """Stories with what they were written after: (story, origin, shelf)."""
    stories = [{"story": name} for name in ("s1", "s2", "s3", "s4")]
    rows = [{"story": s, "place": str(at), "origin": o, "shelf": h} for at, (s, o, h) in enumerate(quotes)]
    return {"stories": stories, "plots": stories, "quotes": rows, "rejects": [reject("free/x")]}


def test_what_was_made_of_a_held_back_row_is_held_back(tmp_path: Path) -> None:
    rows = written(("s1", "free", "free"), ("s2", "free", "free"), ("s2", "shut", "free"), ("s3", "free", "shut"))
    version = make_version(Store(tmp_path), rows, LICENCES, tables=WRITTEN)
    found = published(version, Store(tmp_path), tables=WRITTEN)
    assert [row["story"] for row in found["stories"]] == ["s1", "s4"]
    assert [row["story"] for row in found["plots"]] == ["s1", "s4"]
    assert [(row["story"], row["origin"]) for row in found["quotes"]] == [("s1", "free")]
    assert found["held"][0] == {"stories": 2, "plots": 2, "quotes": 3}


def test_a_table_of_an_earlier_release_that_names_no_source_is_one_line(tmp_path: Path) -> None:
    fields = [field for field in QUOTES.schema if field.name != "origin"]
    old = Table("quotes", "Before.", pa.schema(fields), QUOTES.key)
    rows = written(("s1", "shut", "free"))
    rows["quotes"] = [{k: v for k, v in row.items() if k != "origin"} for row in rows["quotes"]]
    tables = (STORIES, old, PLOTS, REJECTS)
    version = make_version(Store(tmp_path / "a"), rows, LICENCES, tables=tables)
    with pytest.raises(StoreError, match=r"wrote the table quotes without origin, .* build it again"):
        published(version, Store(tmp_path / "a"), tables=WRITTEN)
    free = make_version(Store(tmp_path / "b"), rows, {"free": "all"}, tables=tables)
    assert published(free, Store(tmp_path / "b"), tables=WRITTEN)["held"] == ({}, {})


def test_nothing_held_back_is_the_version_itself(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = {"clips": [clip("c1", "free")], "rejects": [reject("free/list.csv"), reject(None)]}
    version = make_version(store, rows, {"free": "all"})
    with bundled(version, TABLES, store, audio=True, say=print) as bundle:
        assert {file.source for file in bundle.entries} == {p for p in version.folder.rglob("*") if p.is_file()}
        assert bundle.manifest == version.manifest
    silent = published(version, store, audio=False)
    assert (silent["held"], silent["files"]) == (({}, {"clips": 2}), [])
    assert [(row["clip"], row["file"], row["audio"]) for row in silent["clips"]] == [("c1", None, None)]


def test_split_without_rows_is_left_out_of_the_card(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = {"clips": [clip("c3", "shut")], "rejects": [reject("free/x")]}
    found = published(make_version(store, rows, LICENCES), store)
    assert "config_name: clips" not in found["texts"]["README.md"]
    assert "config_name: rejects" in found["texts"]["README.md"]


def test_stricter_licence_of_a_parent_holds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    parent = make_version(store, ROWS, LICENCES, corpus="origin")
    lineage = Parent(corpus="origin", version="v1", digest=parent.manifest.digest())
    child = make_version(store, ROWS, {"shut": "all", "unnamed": "none"}, parents=(lineage,))
    assert {name: terms.redistribute for name, terms in licences_of(child, store).items()} == {
        "free": "all",
        "rows": "rows",
        "shut": "none",
        "unnamed": "none",
    }
    (parent.folder / "manifest.json").unlink()
    with pytest.raises(StoreError, match=r"made from origin v1, which is not in .*licences are not known"):
        licences_of(child, store)


def stating(version: Version, sources: Sequence[str], **licences: str) -> Version:
    """The version with another config: these sources and stated licences."""
    stated = {name: {"licence": licence, "redistribute": "all"} for name, licence in licences.items()}
    config = {"sources": [{"name": name} for name in sources], "licences": stated}
    (version.folder / "manifest.json").write_text(version.manifest.model_copy(update={"config": config}).to_json())
    return Version(version.corpus, version.folder)


@pytest.mark.parametrize(
    ("origin", "own", "expected"),
    [
        ({"free": "CC-BY-NC-4.0"}, {"mine": "CC0-1.0"}, {"license": ["cc-by-nc-4.0", "cc0-1.0"]}),
        ({"free": "CC-BY-NC-4.0"}, {}, {"license": "cc-by-nc-4.0"}),
        (
            {"mine": "CC-BY-NC-4.0"},
            {"mine": "CC0-1.0"},
            {"license": "other", "license_name": "cc0-1.0-and-cc-by-nc-4.0"},
        ),
        ({"free": "CC0-1.0"}, {"mine": "CC0-1.0"}, {"license": "cc0-1.0"}),
        ({}, {"mine": "CC0-1.0"}, {"license": "other", "license_name": "cc0-1.0-not-stated"}),
    ],
)
def test_a_published_card_states_the_licences_of_parents(
    tmp_path: Path, origin: dict[str, str], own: dict[str, str], expected: dict[str, Any]
) -> None:
    store = Store(tmp_path)
    parent = stating(make_version(store, ROWS, {}, corpus="origin"), list(origin) or ["free"], **origin)
    lineage = Parent(corpus="origin", version="v1", digest=parent.manifest.digest())
    child = stating(make_version(store, ROWS, {}, parents=(lineage,)), list(own), **own)
    card = card_of(TABLES) + "license: cc0-1.0\n---\n\n# X\n\n## Licences\n\nTheirs.\n\n## Personal data\n\nNone.\n"
    (child.folder / "README.md").write_text(card)
    _, head, body = published(child, store)["texts"]["README.md"].split("---\n", 2)
    facts = yaml.safe_load(head)
    assert {name: value for name, value in facts.items() if name.startswith("license")} == expected
    assert facts["configs"][0]["config_name"] == "labels"
    table = body.partition("\n## Licences\n\n")[2].partition("\n\n## Personal data\n\nNone.\n")[0]
    said = {tuple(line.strip("| ").split(" | ")) for line in table.splitlines() if line.startswith("| ")}
    named = {name: " and ".join(one[name] for one in (own, origin) if name in one) for name in own | origin}
    assert said == {("source", "licence", "what may be passed on")} | {
        (name, licence, "rows and audio") for name, licence in named.items()
    }
    assert "Theirs." not in body


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["free", "rows", "shut", "unnamed"]), min_size=1, max_size=12), st.booleans())
def test_what_leaves_has_a_source_that_may(
    tmp_path_factory: pytest.TempPathFactory, origins: list[str], audio: bool
) -> None:
    store = Store(tmp_path_factory.mktemp("redaction"))
    clips = [clip(f"c{i}", origin) for i, origin in enumerate(origins)]
    pairs = [{"pair": f"p{i}", "a": f"c{i}", "b": f"c{(i * 5 + 1) % len(clips)}"} for i in range(len(clips))]
    tables = {"clips": clips, "pairs": pairs, "rejects": [reject("free/x")]}
    licences = {name: terms for name, terms in LICENCES.items() if name in ("free", *origins)}  # unmet ones are refused
    found = published(make_version(store, tables, licences), store, audio)
    held_rows, held_audio = found["held"]
    origin_of = dict(zip((row["clip"] for row in clips), origins, strict=True))
    assert [row["clip"] for row in found["clips"]] == [name for name, origin in origin_of.items() if origin != "shut"]
    assert len(found["clips"]) + held_rows.get("clips", 0) == len(clips)
    for row in found["pairs"]:
        assert "shut" not in (origin_of[row["a"]], origin_of[row["b"]])
    assert len(found["pairs"]) + held_rows.get("pairs", 0) == len(pairs)
    loud = [row["clip"] for row in found["clips"] if row["audio"]]
    assert loud == [name for name, origin in origin_of.items() if audio and origin == "free"]
    assert 2 * (len(found["clips"]) - len(loud)) == held_audio.get("clips", 0)


def test_compare(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("same.md", "other.md", "new.md", "big")}
    for path in paths.values():
        path.write_text(path.name)
    entries = [PublishedFile(name, path, f"sha of {name}", path.stat().st_size) for name, path in paths.items()]
    entries.append(PublishedFile("pairs/new.parquet", paths["big"], "sha of it", 3))
    remote = [
        HubFile(".gitattributes", 1, "x"),
        HubFile("same.md", 7, git_sha1(paths["same.md"])),
        HubFile("other.md", 8, "0" * 40),
        HubFile("big", 3, "pointer", "sha of big"),
        HubFile("pairs/old.parquet", 3, "pointer", "sha of old"),
        HubFile("gone/x.parquet", 3, "pointer", "sha of x"),
        HubFile("LICENSE", 3, "x"),
        HubFile("docs/x", 3, "x"),
    ]
    found = compare(entries, remote, ["gone/x.parquet", "other.md"])
    assert [e.path for e in found.upload] == ["other.md", "new.md", "pairs/new.parquet"]
    assert [e.path for e in found.same] == ["same.md", "big"]
    assert found.delete == ("gone/x.parquet", "pairs/old.parquet")
    assert found.foreign == ("LICENSE", "docs/x")
    assert Licence().redistribute == "rows"


@pytest.mark.parametrize(
    ("licences", "audio", "leaves"), [({"free": "all"}, True, True), ({}, True, False), ({"free": "all"}, False, False)]
)
def test_a_report_with_sound_leaves_only_if_all_audio_may(
    tmp_path: Path, licences: dict[str, str], audio: bool, leaves: bool
) -> None:
    """The tables may name clips without holding them, where the report lets hear them."""
    store = Store(tmp_path)
    silent = {**clip("c1", "free"), "file": None, "audio": None}
    version = make_version(store, {"clips": [silent]}, licences)
    (version.folder / "report.html").write_text("<p>")
    assert "report.html" in published(version, store, audio)["texts"]
    (version.folder / "report.html").write_text('<audio controls data-sound="ab"></audio>')
    found = published(version, store, audio)
    assert ("report.html" in found["texts"]) is leaves
    assert ("report.html" in found["texts"]["manifest.json"]) is leaves
    assert [row["clip"] for row in found["clips"]] == ["c1"]
