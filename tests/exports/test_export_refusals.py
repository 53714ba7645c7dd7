"""Exports that are refused, meet damage or are killed leave a line, and no half of a folder."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError, StoreError
from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store
from tests.builds import contents_of
from tests.conftest import ROOT
from tests.exports.exporting import MUSIC, exported


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "wish", "said"),
    [
        (
            MUSIC,
            ExportOptions("trl-reward"),
            r"musicality-clips, .*between two clips, and RewardTrainer takes .*formats that can",
        ),
        (MUSIC, ExportOptions("trl-dpo", view="musicality-choice"), r"prompts hold clips.*--blind"),
        (
            MUSIC,
            ExportOptions("llama-factory", view="musicality-clips"),
            "clips in prompts only.*formats that can: jsonl, ms-swift",
        ),
        (MUSIC, ExportOptions("parquet"), "unknown format 'parquet'; pseudo-preferences has: trl-reward, "),
        (MUSIC, ExportOptions("jsonl", view="none"), "no view 'none'; views: musicality-clips, "),
        (MUSIC, ExportOptions("jsonl", table="none"), "no table 'none'; tables: clips, "),
        (
            MUSIC,
            ExportOptions("ms-swift", table="pairs"),
            "takes views, not tables; formats for tables: jsonl, webdataset",
        ),
        (MUSIC, ExportOptions("jsonl", table="pairs", view="musicality-clips"), "give --view or --table, not both"),
        (MUSIC, ExportOptions("jsonl", split="ood"), "no row in split 'ood'; splits: train, validation, test"),
        (
            "mos-preferences@v1",
            ExportOptions("ms-swift"),
            "rows name no clip for chosen_audio; build the version with audio",
        ),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_one_line(
    demo_store: Store, tmp_path: Path, spec: str, wish: ExportOptions, said: str
) -> None:
    version = demo_store.find(spec)
    with pytest.raises(StoreError, match=said) as caught:
        export(version, find_corpus(version.corpus), demo_store, tmp_path / "out", wish)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_folder_of_others_is_never_replaced(demo_store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    exported(demo_store, out, MUSIC, "jsonl", limit=1)
    with pytest.raises(StoreError, match="has an export already; replace it with --force"):
        exported(demo_store, out, MUSIC, "jsonl")
    exported(demo_store, out, MUSIC, "trl-dpo", blind=True, force=True)
    assert not (out / "train.jsonl").exists()
    exported(demo_store, out, MUSIC, "jsonl", limit=1, force=True)  # its clips are its own
    (out / "output/checkpoint-10").mkdir(parents=True)
    (out / "output/checkpoint-10/model.safetensors").write_bytes(b"weights")
    with pytest.raises(StoreError, match=r"--force replaces .* holds output/checkpoint-10/model\.safetensors too"):
        exported(demo_store, out, MUSIC, "trl-dpo", blind=True, force=True)
    assert (out / "output/checkpoint-10/model.safetensors").read_bytes() == b"weights"
    shutil.rmtree(out / "output")
    exported(demo_store, out, MUSIC, "trl-dpo", blind=True, force=True)
    (out / "export.json").unlink()
    with pytest.raises(StoreError, match="an empty folder or an earlier export"):
        exported(demo_store, out, MUSIC, "jsonl", force=True)
    assert (out / "train.parquet").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_no_export_is_written_among_the_versions(demo_store: Store, tmp_path: Path) -> None:
    version = demo_store.find(MUSIC)
    for folder in (version.folder / "out", demo_store.folder(MUSIC) / "v9"):
        with pytest.raises(StoreError, match="--out: expected a folder outside the versions in"):
            exported(demo_store, folder, MUSIC, "trl-dpo", blind=True)
        assert not folder.exists()


def test_a_damaged_version_is_one_line(demo_store: Store, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    shutil.copytree(demo_store.folder(MUSIC), store.folder(MUSIC))
    file = store.find(MUSIC).files("labels")[0]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(StoreError, match="see: earmark inspect verify pseudo-preferences@v1"):
        exported(store, tmp_path / "out", MUSIC, "trl-dpo", view="musicality-choice", blind=True)


@pytest.mark.parametrize("harm", ["footer", "name"])
def test_damage_of_the_same_size_that_a_reader_meets_is_one_line(harm: str, demo_store: Store, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    shutil.copytree(demo_store.folder(MUSIC), store.folder(MUSIC))
    file = store.find(MUSIC).files("labels")[0]
    raw = bytearray(file.read_bytes())
    if harm == "footer":
        raw[-40] ^= 0xFF
    else:  # no UTF-8: Python cannot even read the library's message
        raw = raw.replace(b"\x08modality", b"\x08modalit\xe4")
    file.write_bytes(raw)
    for words in (
        ("diff", f"{MUSIC}@v1", MUSIC),
        ("explain", MUSIC, "x"),
        ("sql", f"FROM '{MUSIC}'.labels"),
    ):
        ended = CliRunner().invoke(app, ["inspect", *words, "--store", str(store.root)]).exception
        assert isinstance(ended, StoreError)
        assert re.fullmatch(rf"{MUSIC}@v1: [^\n]+; see: earmark inspect verify {MUSIC}@v1", str(ended))
    with pytest.raises(StoreError, match="see: earmark inspect verify pseudo-preferences@v1"):
        exported(store, tmp_path / "out", MUSIC, "trl-dpo", view="musicality-choice", blind=True)


@pytest.mark.slow
def test_an_export_that_is_killed_leaves_nothing_half_written(demo_store: Store, tmp_path: Path) -> None:
    calm = exported(demo_store, tmp_path / "calm", MUSIC, "ms-swift")
    out = tmp_path / "out"
    place = tmp_path / ".out.export"
    command = [
        sys.executable,
        "-m",
        "earmark",
        "export",
        MUSIC,
        "--for",
        "ms-swift",
        "--out",
        str(out),
    ]
    process = subprocess.Popen([*command, "--store", str(demo_store.root)], cwd=ROOT, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(place.glob("audio/*/*")):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert out.exists() is (process.returncode == 0)
    shutil.rmtree(out, ignore_errors=True)
    exported(demo_store, out, MUSIC, "ms-swift")
    assert contents_of(out) == contents_of(calm)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calm", "out"]


@pytest.mark.parametrize(
    "words", [("--out", "o"), ("--view", "v"), ("--table", "t"), ("--split", "s"), ("--limit", "3"), ("--blind",)]
)
def test_what_only_an_export_takes_is_not_passed_over(words: tuple[str, ...], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", MUSIC, "--store", str(tmp_path), *words])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith(f"{words[0]}: expected with --for FORMAT")
