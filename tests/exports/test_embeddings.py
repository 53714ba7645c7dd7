"""`earmark export --for embeddings`: each clip of a version with what the store knows of it, ready to load."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import EarmarkError, InputError, MissingExtraError, StoreError
from earmark.tasks.exports.choosing import ExportOptions, offers
from earmark.tasks.exports.export import export
from earmark.tasks.pipeline.media import scratch_store, similarity_of
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests.audio.test_similarity import HAS_TRANSFORMERS
from tests.builds import contents_of, rows_of
from tests.captions.captions import build_captions, read_config
from tests.conftest import ROOT
from tests.pseudo_preferences import music

MUSIC, MOS = "pseudo-preferences", "mos-preferences@v2"


@pytest.fixture
def store(demo_store: Store, tmp_path: Path) -> Store:
    """The demo's store, for a test to write in."""
    return Store(Path(shutil.copytree(demo_store.root, tmp_path / "store")))


def remember(store: Store, model: Path, clips: set[str], dimensions: int = 8) -> dict[str, Any]:
    """Keep an embedding of each clip as an earlier run would have, and give them: no model is needed then."""
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    similarity = similarity_of(store, str(model))
    vectors = {}
    with similarity._open() as connection:
        similarity._mark(connection)
        for clip in sorted(clips):
            drawn = np.random.default_rng(int(clip[:8], 16)).standard_normal(dimensions)
            vectors[clip] = (drawn / np.linalg.norm(drawn)).astype("<f4")
            held = (similarity.digest, clip, vectors[clip].tobytes())
            connection.execute("INSERT INTO embeddings VALUES (?, ?, ?)", held)
        connection.commit()
    return vectors


def test_embeddings_lie_beside_the_media_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_MEDIA_INDEX", str(tmp_path / "disk/media.sqlite"))
    store, model, clip = Store(tmp_path / "store"), tmp_path / "clap", "ab" * 32
    remember(store, model, {clip})
    held = contents_of(tmp_path / "disk")
    assert "similarities.sqlite" in map(str, held)
    assert not list(tmp_path.glob("store/**/*.sqlite*"))
    with scratch_store(store) as dry:
        assert similarity_of(dry, str(model)).embeddings({clip: None}).keys() == {clip}
        remember(dry, model, {"cd" * 32})
    assert contents_of(tmp_path / "disk") == held, "a dry run writes to a copy"


def exported(store: Store, folder: Path, spec: str, clap: Path | str | None, **wish: Any) -> dict[str, Any]:
    """What an export's record says."""
    version = store.find(spec)
    named = None if clap is None else str(clap)
    return export(version, find_corpus(version.corpus), store, folder, ExportOptions("embeddings", clap=named, **wish))


def named_by(version: Version, tables: dict[str, str]) -> dict[str, set[str]]:
    """The clips of tables' columns by split, read without the code that is tested."""
    clips: dict[str, set[str]] = {}
    for table, column in tables.items():
        for row in rows_of(version, table):
            if row[column]:
                clips.setdefault(row["split"], set()).add(row[column])
    return clips


@pytest.mark.parametrize(
    ("spec", "tables"),
    [(MOS, {"ratings": "clip_sha256"}), (MUSIC, {"clips": "clip_sha256", "pairs": "reference_sha256"})],
)
def test_every_clip_of_a_version_has_its_row(store: Store, tmp_path: Path, spec: str, tables: dict[str, str]) -> None:
    version = store.find(spec)
    wanted = named_by(version, tables)
    vectors = remember(store, tmp_path / "clap", set().union(*wanted.values()))
    out = tmp_path / "out"
    record = exported(store, out, spec, tmp_path / "clap")
    assert record["rows"] == {split: len(clips) for split, clips in wanted.items()}
    digest = similarity_of(store, str(tmp_path / "clap")).digest
    assert (record["model"], record["model_sha256"]) == ("clap", digest)
    for split, clips in wanted.items():
        rows = pq.read_table(out / f"{split}.parquet").to_pylist()
        assert [row["clip_sha256"] for row in rows] == sorted(clips)
        assert {(row["model"], row["model_sha256"]) for row in rows} == {("clap", digest)}
        assert all(np.array_equal(np.float32(row["embedding"]), vectors[row["clip_sha256"]]) for row in rows)
    again = tmp_path / "again"
    exported(store, again, spec, tmp_path / "clap")
    assert contents_of(out) == contents_of(again)


def test_it_is_loaded_as_it_is(store: Store, tmp_path: Path) -> None:
    version = store.find(MOS)
    vectors = remember(store, tmp_path / "clap", named_by(version, {"ratings": "clip_sha256"})["train"])
    out = tmp_path / "out"
    record = exported(store, out, MOS, tmp_path / "clap", split="train")
    cache = str(tmp_path / "cache")
    for loaded in (
        load_dataset(str(out), split="train", cache_dir=cache),
        load_dataset("parquet", data_files=str(out / "train.parquet"), split="train", cache_dir=cache),
    ):
        assert len(loaded) == record["rows"]["train"] == len(vectors)
        feature = loaded.features["embedding"]
        assert (feature.length, feature.feature.dtype) == (8, "float32")
        assert np.array_equal(np.float32(loaded[0]["embedding"]), vectors[loaded[0]["clip_sha256"]])
    ratings = [str(path) for path in version.files("ratings")]
    joined = duckdb.execute(
        "SELECT r.sample_id, r.clip_sha256, e.embedding FROM read_parquet($ratings) AS r "
        "JOIN read_parquet($embeddings) AS e USING (clip_sha256)",
        {"ratings": ratings, "embeddings": str(out / "train.parquet")},
    ).fetchall()
    held = {row["sample_id"] for row in rows_of(version, "ratings") if row["split"] == "train"}
    assert {sample for sample, *_ in joined} == held
    assert all(np.array_equal(np.float32(vector), vectors[clip]) for _, clip, vector in joined)
    assert "`embedding` is what clap" in (out / "README.md").read_text()


def test_what_a_table_without_splits_names_is_in_full(store: Store, tmp_path: Path) -> None:
    version, corpus = store.find(MUSIC), find_corpus(MUSIC)
    tables = tuple(replace(one, splits=False) if one.name == "pairs" else one for one in corpus.tables)
    clips = named_by(version, {"clips": "clip_sha256"})
    references = set().union(*named_by(version, {"pairs": "reference_sha256"}).values())
    remember(store, tmp_path / "clap", references.union(*clips.values()))
    wish = ExportOptions("embeddings", clap=str(tmp_path / "clap"))
    record = export(version, replace(corpus, tables=tables), store, tmp_path / "out", wish)
    assert record["rows"] == {name: len(one) for name, one in {**clips, "full": references}.items()}


@pytest.mark.slow
def test_what_a_table_without_splits_names_is_not_in_full_where_a_split_names_it(tmp_path: Path) -> None:
    """`raw` of `captions` has no splits; of the demo, a caption came of each clip that it names."""
    version = build_captions(read_config(ROOT / "data/demo/captions.toml"), tmp_path / "store")
    split = named_by(version, {"captions": "heard_sha256"})
    assert {row["heard_sha256"] for row in rows_of(version, "raw")} == set().union(*split.values())
    remember(Store(tmp_path / "store"), tmp_path / "clap", set().union(*split.values()))
    record = exported(Store(tmp_path / "store"), tmp_path / "out", "captions", tmp_path / "clap")
    assert record["rows"] == {name: len(clips) for name, clips in split.items()}


def test_a_version_without_hashes_says_so(demo_store: Store, tmp_path: Path) -> None:
    version, corpus = demo_store.find("mos-preferences@v1"), find_corpus("mos-preferences")
    lists = replace(corpus, tables=tuple(table for table in corpus.tables if "critiques" not in table.name))
    with pytest.raises(StoreError, match="v1: expected clips that are known by their SHA-256, found none"):
        export(version, lists, demo_store, tmp_path / "out", ExportOptions("embeddings", clap="m"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("spec", "wish", "says"),
    [
        (MOS, {"clap": None}, "--for embeddings needs a model: add --clap MODEL, such as laion/larger_clap_general"),
        (MOS, {"clap": "clap", "view": "preferred-clips"}, "expected no --view, --table, --blind, --rollouts"),
        (MOS, {"clap": "clap", "split": "none"}, "'clips' has no row in split 'none'; splits: train"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_one_line(
    demo_store: Store, tmp_path: Path, spec: str, wish: dict[str, Any], says: str
) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        exported(demo_store, tmp_path / "out", spec, **wish)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_model_belongs_to_embeddings_alone(demo_store: Store, tmp_path: Path) -> None:
    version = demo_store.find(MOS)
    with pytest.raises(StoreError, match="--clap goes with --for embeddings, not with --for jsonl"):
        export(version, find_corpus(version.corpus), demo_store, tmp_path / "out", ExportOptions("jsonl", clap="m"))
    assert "embeddings" not in {offer.format for offer in offers(version, find_corpus(version.corpus))}


@pytest.mark.skipif(HAS_TRANSFORMERS, reason="transformers is installed")
def test_without_the_extra_it_says_what_to_install_before_it_looks_for_clips(store: Store, tmp_path: Path) -> None:
    clips = named_by(store.find(MUSIC), {"clips": "clip_sha256", "pairs": "reference_sha256"})
    remember(store, tmp_path / "clap", clips["test"])
    exported(store, tmp_path / "out", MUSIC, tmp_path / "clap", split="test")  # what is known needs no model
    store.root.joinpath("media.sqlite").unlink()
    with pytest.raises(MissingExtraError, match="a similarity model needs the 'models' extra; install it with: "):
        exported(store, tmp_path / "all", MUSIC, tmp_path / "clap")
    assert not (tmp_path / "all").exists()


def test_the_command(store: Store, tmp_path: Path) -> None:
    clips = named_by(store.find(MOS), {"ratings": "clip_sha256"})
    remember(store, tmp_path / "clap", set().union(*clips.values()))
    words = ["export", MOS, "--for", "embeddings", "--clap", str(tmp_path / "clap"), "--limit", "2"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out"), "--store", str(store.root)])
    assert done.exit_code == 0, done.output
    assert "mos-preferences v2: clips for embeddings in" in " ".join(done.output.split())
    facts = json.loads((tmp_path / "out/export.json").read_text())
    assert set(facts["rows"].values()) == {2}
    assert str(tmp_path) not in (tmp_path / "out/export.json").read_text()


@pytest.mark.models
def test_what_no_one_embedded_goes_through_the_model_from_wherever_it_lies(tmp_path: Path) -> None:
    """From files where they are, else from the version's own tables; and once."""
    from tests.audio.tiny_clap import make_tiny_clap

    folder = make_tiny_clap(tmp_path / "clap")
    config = music.read_config(Path(shutil.copytree(ROOT / "data/demo", tmp_path / "demo")) / f"{MUSIC}.toml")
    version = music.build_judged(config, tmp_path / "store")
    store = Store(tmp_path / "store")
    references = named_by(version, {"pairs": "reference_sha256"})
    files = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in (tmp_path / "demo/music").rglob("*.*")}
    for clip in {row["clip_sha256"] for row in rows_of(version, "clips")}:
        files[clip].unlink()  # of these the version's table `clips` has the bytes
    record = exported(store, tmp_path / "out", MUSIC, folder)
    wanted = named_by(version, {"clips": "clip_sha256", "pairs": "reference_sha256"})
    assert record["rows"] == {split: len(clips) for split, clips in wanted.items()}
    kept = similarity_of(store, str(folder)).embeddings(dict.fromkeys(set().union(*wanted.values())))
    for split in wanted:
        for row in pq.read_table(tmp_path / "out" / f"{split}.parquet").to_pylist():
            vector = np.float32(row["embedding"])
            assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
            assert np.array_equal(vector, kept[row["clip_sha256"]])
    shutil.rmtree(tmp_path / "demo")
    exported(store, tmp_path / "again", MUSIC, folder)
    assert contents_of(tmp_path / "again") == contents_of(tmp_path / "out")
    other = make_tiny_clap(tmp_path / "other")
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    with pytest.raises(InputError, match=f"{len(set().union(*references.values()))} of .* --audio-root") as caught:
        exported(store, tmp_path / "more", MUSIC, other)
    assert isinstance(caught.value, EarmarkError)
