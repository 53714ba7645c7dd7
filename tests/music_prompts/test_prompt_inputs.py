"""Inputs of `music-prompts`: a missing one is one line, and what decides the prompts stands in the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from earmark.schemas.captions import CORPUS as CAPTIONS
from earmark.schemas.config import Licence
from earmark.schemas.errors import ConfigError, EarmarkError, InputError, StoreError
from earmark.schemas.music_prompts import CORPUS, MusicPrompts
from earmark.tasks.music_prompts.sources import plan_build
from earmark.tasks.release import withdrawal
from earmark.tasks.release.publishing import gathered
from earmark.tasks.store.publication import bundled
from earmark.tasks.store.versions import Store, open_store
from tests.builds import config_from, restate, rows_of
from tests.captions.captions import build_captions
from tests.captions.captions import read_config as read_captions_config
from tests.conftest import ROOT
from tests.music_prompts.prompt_builds import (
    QUICK,
    build_prompts,
    config_of,
    read_config,
    write_captions,
)
from tests.music_prompts.test_music_prompts import SMALL, lists, server

__all__ = ["lists", "server"]  # fixtures


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"keep": "mos-preferences@v1"}, "keep: expected a version of music-prompts"),
        ({"captions": [{"name": "a", "version": "captions"}]}, "no version of 'captions'"),
        ({"tracks": "none.tsv"}, "none.tsv: file not found"),
        ({"captions": [{"name": "a", "file": "tracks.tsv.zip"}]}, "file not found"),
    ],
)
def test_what_is_missing_is_one_clear_line(lists: Path, tmp_path: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(EarmarkError, match=said):
        plan_build(config_of(lists, **values), open_store(str(tmp_path / "store")))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"captions": [{"name": "a"}]}, "expected either 'file' or 'version'"),
        ({"captions": [{"name": "a", "file": "x"}, {"name": "a", "file": "y"}]}, "different names"),
        ({"captions": [{"name": "a", "file": "x", "pipeline": "p"}]}, "a file is one pipeline's"),
        ({"recalls": "r.csv", "verification": {"annotator": "builtin:x", "audio": "a"}}, "found both"),
        ({"verification": {"annotator": "builtin:x", "audio": "a/{name}"}}, "expected {path} or {stem}"),
        ({"pool": {"popularity": 0}}, "pool.popularity"),
    ],
)
def test_a_config_that_cannot_be_is_one_clear_line(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of(tmp_path, **values)


def test_a_caption_set_of_another_kind_is_one_clear_line(lists: Path, tmp_path: Path) -> None:
    (lists / "captions.txt").write_text("x")
    with pytest.raises(InputError, match=r"expected captions in a file ending in \.json or \.tsv"):
        build_prompts(config_of(lists, captions=[{"name": "a", "file": "captions.txt"}]), tmp_path / "store")


@pytest.mark.parametrize("path", ["data/demo/music-prompts.toml", "deploy/configs/music-prompts.toml"])
def test_shipped_configs_parse(path: str) -> None:
    assert read_config(ROOT / path).corpus == "music-prompts"


def test_files_of_one_name_are_both_inputs(lists: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (lists / name).mkdir()
        write_captions(lists / name / "c.json", {"1.mp3": f"A tune, {name}."})
    sets = [{"name": name, "file": str(lists / name / "c.json")} for name in ("one", "two")]
    before = plan_build(config_of(lists, captions=sets), open_store(str(tmp_path / "store"))).build_key
    write_captions(lists / "one/c.json", {"1.mp3": "Another tune."})
    assert plan_build(config_of(lists, captions=sets), open_store(str(tmp_path / "store"))).build_key != before


@pytest.mark.slow
def test_captions_of_a_version_are_examples_each(lists: Path, tmp_path: Path) -> None:
    """Both pipelines' captions of one track are captions of their own; the version becomes a parent."""
    store = tmp_path / "store"
    written = build_captions(read_captions_config(ROOT / "data/demo/captions.toml"), store)
    config = config_of(lists, captions=[{"name": "all", "version": "captions"}], prompts=SMALL)
    version = build_prompts(config, store)
    assert [(parent.corpus, parent.version) for parent in version.manifest.parents] == [("captions", "v1")]
    texts = {row["text"] for row in rows_of(written, "captions")}
    shots = rows_of(version, "shots")
    assert shots
    assert {row["text"] for row in shots} <= texts


@pytest.mark.slow
def test_which_version_each_caption_set_reads_stands_in_the_key(lists: Path, tmp_path: Path) -> None:
    store, captions = tmp_path / "store", read_captions_config(ROOT / "data/demo/captions.toml")
    for seed in (1, 2):
        build_captions(captions.model_copy(update={"seed": seed, "limit": 1}), store)

    def key_of(*numbers: int) -> str:
        sets = [{"name": name, "version": f"captions@v{n}"} for name, n in zip("abc", numbers, strict=True)]
        return plan_build(config_of(lists, captions=sets), open_store(str(store))).build_key

    assert len({key_of(1, 1, 2), key_of(1, 2, 2), key_of(2, 1, 1)}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True])
def test_prompts_after_captions_that_may_not_be_passed_on_are_held_back(
    lists: Path, tmp_path: Path, closed: bool
) -> None:
    """The licence stands with the captions, whose list has another name than the caption set here."""
    store = Store(tmp_path / "store")
    terms = {"demo-tracks": Licence(redistribute="none" if closed else "rows")}
    captions = read_captions_config(ROOT / "data/demo/captions.toml")
    build_captions(captions.model_copy(update={"licences": terms}), store.root)
    sets = [{"name": "ours", "version": "captions"}, {"name": "direct", "file": "direct.json"}]
    version = build_prompts(config_of(lists, captions=sets, prompts=SMALL), store.root)
    shown = {(row["pipeline"], row["source"]) for row in rows_of(version, "shots")}
    assert shown == {("ours", "demo-tracks"), ("direct", "direct")}
    with bundled(version, CORPUS.tables, store, audio=True, say=print) as bundle:
        held = bundle.held_rows
        tables = {table for entry in bundle.entries if (table := entry.path.partition("/")[0]) in version.manifest.rows}
    if not closed:
        assert (held, tables) == ({}, set(version.manifest.rows))
        return
    made = {name: len(rows_of(version, name)) for name in ("prompts", "triplets", "shots")}
    assert made["prompts"] == sum(SMALL.values())
    assert {name: held[name] for name in made} == made
    assert tables - {"rejects"} == {"tags", "cooccurrence"}


@pytest.mark.slow
def test_a_version_in_which_a_withdrawal_cannot_look_is_not_published(
    lists: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier release did not say of which clip a caption is."""
    store, known = Store(tmp_path / "store"), {"captions": CAPTIONS, CORPUS.name: CORPUS}
    written = build_captions(read_captions_config(ROOT / "data/demo/captions.toml"), store.root)
    config = config_of(lists, captions=[{"name": "all", "version": "captions"}], prompts=SMALL)
    version = build_prompts(config, store.root)
    shots = version.files("shots")[0]
    seen = rows_of(version, "shots")[0]
    pq.write_table(pq.read_table(shots).drop_columns(["clip_id"]), shots)
    restate(version)
    with gathered(version, CORPUS, store, True) as bundle:
        assert bundle.manifest.rows == version.manifest.rows  # its card says the licences of the captions, too
    clip = next(row["heard_sha256"] for row in rows_of(written, "captions") if row["text"] == seen["text"])
    said: list[str] = []
    monkeypatch.setattr(withdrawal, "say", said.append)
    withdrawal.withdraw(store, known, withdrawal.search(store, known, "clip", clip), "asked for")
    assert any("music-prompts v1: an earlier release wrote the table shots without clip_id" in line for line in said)
    assert (store.find("captions").name, store.find(CORPUS.name)) == ("v2", version)
    with (
        pytest.raises(StoreError, match=r"wrote the table shots without clip_id, .*; build the corpus again"),
        gathered(version, CORPUS, store, True),
    ):
        pass
    again = build_prompts(config, store.root)
    assert seen["text"] not in {row["text"] for row in rows_of(again, "shots")}
    with gathered(again, CORPUS, store, True) as bundle:
        assert bundle.held_rows == {}


def test_the_identity_holds_what_decides(tmp_path: Path) -> None:
    here = config_of(tmp_path, synthesis={**QUICK, "base_url": "http://a/v1"}).identity()
    there = config_of(tmp_path, synthesis={**QUICK, "base_url": "http://b/v1", "max_concurrency": 1}).identity()
    assert here == there
    assert config_of(tmp_path, synthesis={**QUICK, "max_tokens": 99}).identity() != here
    assert config_from(MusicPrompts, {"tracks": "x", "synthesis": QUICK}, tmp_path / "b.toml").identity() != here
