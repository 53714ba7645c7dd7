"""`earmark export`: each format's files, refusals in one line, folders whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

from earmark.schemas.corpus import View, Writer
from earmark.schemas.errors import InputError, StoreError
from earmark.tasks.exports import rows, shapes
from earmark.tasks.exports.choosing import ExportOptions, Target, choose, offers
from earmark.tasks.exports.export import export
from earmark.tasks.exports.formats import FORMATS, Format
from earmark.tasks.exports.readme import render_readme
from earmark.tasks.exports.rows import select_table
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.versions import Store
from tests.builds import contents_of, restate, rows_of
from tests.conftest import ROOT
from tests.exports.exporting import MUSIC, exported
from tests.human_preferences.votes import SALT, build_votes, cmi, config_of, vote
from tests.pseudo_preferences.music import write_clip


def lines(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in (folder / f"{split}.jsonl").read_text("utf-8").splitlines()]


def possible() -> list[tuple[str, str, str]]:
    """Version, view and format of what should work on the demo; text-only trainers get no clips."""
    texts = ["trl-reward", "trl-dpo", "trl-sft", "trl-grpo", "ms-swift-grpo", "verl", "llama-factory"]
    clips = ["ms-swift", "jsonl", "webdataset"]
    held = {
        ("mos-preferences@v2", "preferred-clips"): clips,
        ("mos-preferences@v2", "scored-clips"): ["ms-swift"],
        (MUSIC, "musicality-clips"): clips,
        (MUSIC, "musicality-choice"): texts + clips,
    }
    return [(*named, format_) for named, formats in held.items() for format_ in formats]


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "view", "format_"), possible())
def test_every_view_goes_out_in_every_format_that_can_hold_it(
    demo_store: Store, tmp_path: Path, spec: str, view: str, format_: str
) -> None:
    blind = format_.startswith("trl")
    folder = exported(demo_store, tmp_path / "out", spec, format_, view=view, blind=blind, limit=4)
    record = json.loads((folder / "export.json").read_text())
    assert record["manifest_sha256"] == demo_store.find(spec).manifest.digest()
    assert sum(record["rows"].values()) >= 4
    for name, held in record["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == held["sha256"]
    for clip in (folder / "audio").rglob("*.*"):
        assert clip.parent.name == clip.name[:2]
    assert len(list((folder / "audio").rglob("*.*"))) in (0, record["clips"])
    if format_ != "webdataset":
        loaded = load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
        assert {split: len(rows) for split, rows in loaded.items()} == record["rows"]


@pytest.mark.slow
def test_ms_swift_compares_two_clips(demo_store: Store, tmp_path: Path) -> None:
    folder = exported(demo_store, tmp_path / "out", MUSIC, "ms-swift", view="musicality-clips")
    version = demo_store.find(MUSIC)
    audio = {row["audio"]["path"]: row["audio"]["bytes"] for row in rows_of(version, "clips")}
    labels = {row["pair_id"]: row for row in rows_of(version, "labels")}
    sha = {row["generation_id"]: row["clip_sha256"] for row in rows_of(version, "clips")}
    for row in lines(folder):
        label = labels[row["id"]]
        better, worse = ("a", "b") if label["musicality"] == "a" else ("b", "a")
        assert [message["role"] for message in row["messages"]] == ["user", "assistant"]
        for messages, clips, side in (("messages", "audios", better), ("rejected_messages", "rejected_audios", worse)):
            marks = sum(message["content"].count("<audio>") for message in row[messages])
            assert marks == len(row[clips])
            last = Path(row[clips][-1])
            assert last.stem == sha[label[f"generation_{side}"]]
            assert (folder / last).read_bytes() == audio[last.name]


@pytest.mark.slow
def test_a_scalar_reward_hears_each_clip_in_the_users_turn(demo_store: Store, tmp_path: Path) -> None:
    folder = exported(demo_store, tmp_path / "out", "mos-preferences@v2", "ms-swift", view="scored-clips")
    version = demo_store.find("mos-preferences@v2")
    sha = {row["sample_id"]: row["clip_sha256"] for row in rows_of(version, "ratings")}
    pairs = {row["pair_id"]: row for row in rows_of(version, "pairs")}
    for row in lines(folder):
        assert row["messages"] == row["rejected_messages"]
        (turn,) = row["messages"]
        assert (turn["role"], turn["content"].count("<audio>")) == ("user", 1)
        assert turn["content"].endswith("\nClip: <audio>")
        for clips, side in (("audios", "chosen"), ("rejected_audios", "rejected")):
            assert [Path(clip).stem for clip in row[clips]] == [sha[pairs[row["id"]][f"{side}_id"]]]


def test_clips_of_a_prompt_that_no_table_holds_come_from_their_files(demo_store: Store, tmp_path: Path) -> None:
    folder = exported(demo_store, tmp_path / "out", MUSIC, "jsonl", view="musicality-clips")
    references = {
        clip for split in ("train", "validation", "test") for r in lines(folder, split) for clip in r["audios"]
    }
    assert references
    for reference in references:
        assert hashlib.sha256((folder / reference).read_bytes()).hexdigest() == Path(reference).stem


def test_trl_columns(demo_store: Store, tmp_path: Path) -> None:
    folder = exported(demo_store, tmp_path / "out", MUSIC, "trl-dpo", view="alignment-choice", blind=True)
    rows = pq.read_table(folder / "train.parquet").to_pylist()
    for row in rows:
        assert row["prompt"][0]["role"] == "user"
        assert row["prompt"][0]["content"].count(shapes.LEFT_OUT) >= 2
        assert {row["chosen"][0]["content"], row["rejected"][0]["content"]} == {"A", "B"}
    assert not {"margin", "audios"} & set(rows[0])


def test_verl_gets_prompts_with_clips_and_what_the_reward_needs(demo_store: Store, tmp_path: Path) -> None:
    folder = exported(demo_store, tmp_path / "out", MUSIC, "verl", view="musicality-choice")
    plain = exported(demo_store, tmp_path / "plain", MUSIC, "jsonl", view="musicality-choice")
    split = next(iter(json.loads((folder / "export.json").read_text())["rows"]))
    loaded = load_dataset("parquet", data_files=str(folder / f"{split}.parquet"), cache_dir=str(tmp_path / "cache"))
    for row, known in zip(loaded["train"], lines(plain, split), strict=True):
        text = "".join(message["content"] for message in row["prompt"])
        assert text.count("<audio>") == len(row["audios"]) >= 2
        assert all((folder / clip).is_file() for clip in row["audios"])
        truth = json.loads(row["reward_model"]["ground_truth"])
        assert {"chosen", "rejected"} <= truth.keys()
        assert truth == {name: known[name] for name in truth}
        assert row["extra_info"] == {**truth, "id": known["id"], "audios": row["audios"], "split": split}
    readme = (folder / "README.md").read_text()
    assert f"data.train_files={split}.parquet" in readme


def test_llama_factory_knows_its_files(demo_store: Store, tmp_path: Path) -> None:
    folder = exported(demo_store, tmp_path / "out", MUSIC, "llama-factory", view="musicality-choice")
    info = json.loads((folder / "dataset_info.json").read_text())
    assert set(info) == {"musicality-choice_train", "musicality-choice_validation", "musicality-choice_test"}
    for described in info.values():
        assert described["ranking"] is True
        for line in (folder / described["file_name"]).read_text("utf-8").splitlines():
            row = json.loads(line)
            assert set(described["columns"].values()) <= set(row)
            assert row["messages"][0]["content"].count("<audio>") == len(row["audios"])
            assert all((folder / clip).is_file() for clip in row["audios"])


def test_webdataset_samples_hold_their_clips(demo_store: Store, tmp_path: Path) -> None:
    folder = exported(demo_store, tmp_path / "out", "mos-preferences@v2", "webdataset", split="train", limit=5)
    with tarfile.open(folder / "train-000000.tar") as archive:
        members = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert len(members) == 15
    for number in range(5):
        row = json.loads(members[f"{number:09d}.json"])
        assert Path(row["chosen_audio"]).suffix == ".wav"
        assert members[f"{number:09d}.chosen.wav"] != members[f"{number:09d}.rejected.wav"]
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "export.json", "train-000000.tar"]


@pytest.mark.parametrize("corpus", corpora())
def test_the_readme_of_an_export_says_in_one_sentence_what_reads_it(corpus: str) -> None:
    targets = [
        Target(Format(writer.format, writer.says, {}, "own", True, {}), shapes.plain, clips=True, view=view)
        for view in find_corpus(corpus).views
        for writer in view.writers
    ]
    for target in [*targets, *(Target(format_, shapes.plain, clips=True) for format_ in FORMATS.all()[0].values())]:
        record: Any = {"corpus": corpus, "version": "v1", "manifest_sha256": "0", "table": "t", "rows": {"train": 1},
                       "clips": 0, "files": {}}  # fmt: skip
        (line,) = re.findall(r"^Read by .*$", render_readme(record, target), re.MULTILINE)
        assert re.fullmatch(r"Read by [^.](.*[^.])?\.", line)
        assert line.split()[2] not in ("The", "What", "Whatever", "A", "An", "It"), line


@pytest.mark.slow
def test_a_table_without_embedded_clips_goes_out_with_the_measured_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sample has the bytes of the file that its row names; without the files the export is refused."""
    monkeypatch.setenv("EARMARK_SALT", SALT)
    heard = tmp_path / "heard"
    for number in range(3):
        for side in "ab":
            write_clip(heard / f"{number}-{side}.wav", 2 * number + (side == "b"))
    source = cmi(tmp_path, [vote(number) for number in range(3)], audio_root="heard")
    version = build_votes(config_of(tmp_path, source, audio="index"), tmp_path / "store")
    store = Store(tmp_path / "store")
    folder = exported(store, tmp_path / "out", version.corpus, "webdataset", table="clips")
    found = {}
    for shard in folder.glob("*.tar"):
        with tarfile.open(shard) as archive:
            members = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
        for name in members.keys() & {f"{name.partition('.')[0]}.json" for name in members}:
            row = json.loads(members[name])
            found[Path(row["file"]).name] = members[name.replace(".json", ".audio.wav")]
    assert found == {path.name: path.read_bytes() for path in heard.iterdir()}
    for path in heard.iterdir():
        path.unlink()
    with pytest.raises(InputError, match="name their folder with --audio-root"):
        exported(store, tmp_path / "other", version.corpus, "webdataset", table="clips")


@pytest.mark.slow
def test_a_column_of_clips_that_stays_empty_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clip and its instrumental stand in one row: which of the two is to be heard is not known."""
    monkeypatch.setenv("EARMARK_SALT", SALT)
    version = build_votes(config_of(tmp_path, cmi(tmp_path, [vote()])), tmp_path / "store")
    clips = next(table for table in find_corpus(version.corpus).tables if table.name == "clips")
    names = pa.field(
        "file", pa.string(), metadata={**clips.schema.field("file").metadata, b"names": b"clip", b"role": b"is"}
    )
    two = replace(clips, schema=clips.schema.set(clips.schema.get_field_index("file"), names))
    told: list[str] = []
    monkeypatch.setattr(rows, "say", told.append)
    corpus = replace(find_corpus(version.corpus), tables=(two,))
    with select_table(version, corpus, "clips", tmp_path, None, None) as selection:
        assert list(selection.clips()) == []
    assert told == ["table clips: the version holds no clips in audio; export a view, or build it with audio"]


def test_a_table_goes_out_as_it_is(demo_store: Store, tmp_path: Path) -> None:
    version = demo_store.find("mos-preferences@v1")
    folder = exported(demo_store, tmp_path / "out", "mos-preferences@v1", "jsonl", table="pairs")
    found = [row for split in ("train", "validation", "test", "ood") for row in lines(folder, split)]
    file_of = {row["sample_id"]: row["file"] for row in rows_of(version, "ratings")}
    held = [
        {name: value for name, value in row.items() if name != "split"}
        | {f"{side}_file": file_of[row[f"{side}_id"]] for side in ("chosen", "rejected")}
        for row in rows_of(version, "pairs")
    ]
    assert sorted(found, key=lambda row: row["pair_id"]) == sorted(held, key=lambda row: row["pair_id"])
    assert not (folder / "audio").exists()


def test_rows_made_for_a_trainer_come_before_rows_that_serve(demo_store: Store) -> None:
    version = demo_store.find("mos-preferences")
    chosen = choose(version, find_corpus(version.corpus), ExportOptions("ms-swift-grpo"))
    assert chosen.view is not None
    assert chosen.view.kind == "grpo"


@pytest.mark.parametrize("format_", ["ms-swift", "trl-reward", "webdataset", "jsonl"])
def test_the_same_version_gives_the_same_bytes(demo_store: Store, tmp_path: Path, format_: str) -> None:
    view, blind = "musicality-choice", format_.startswith("trl")
    first = exported(demo_store, tmp_path / "a", MUSIC, format_, view=view, blind=blind)
    second = exported(demo_store, tmp_path / "b", MUSIC, format_, view=view, blind=blind)
    assert contents_of(first) == contents_of(second)


@pytest.mark.parametrize(
    "wish",
    [
        *(ExportOptions(one, "musicality-choice") for one in ("ms-swift", "ms-swift-grpo", "verl", "llama-factory")),
        ExportOptions("jsonl", "musicality-choice"),
        ExportOptions("webdataset", table="pairs"),
        ExportOptions("list"),
    ],
    ids=lambda wish: f"{wish.format}-{wish.table or wish.view}",
)
def test_no_export_is_called_blind_that_holds_clips(demo_store: Store, tmp_path: Path, wish: ExportOptions) -> None:
    writer = Writer("list", f"{__name__}:write_list", ".json", "a list.")
    corpus = find_corpus(MUSIC)
    corpus = replace(corpus, views=(*corpus.views, View("own", "rows", "made-up", "Models.", writers=(writer,))))
    said = r"text alone \(trl-reward, trl-dpo, trl-sft, trl-grpo\): --for " + wish.format + " leaves no clip out"
    with pytest.raises(StoreError, match=said):
        export(demo_store.find(MUSIC), corpus, demo_store, tmp_path / "out", replace(wish, blind=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_offers_agree_with_what_is_chosen(demo_store: Store) -> None:
    version = demo_store.find(MUSIC)
    corpus = find_corpus(MUSIC)
    found = offers(version, corpus)
    own = sum(len(view.writers) for view in corpus.views)
    for_rows = len(FORMATS.entries) - 1  # embeddings are of clips
    assert len(found) == len(corpus.views) * for_rows + own > own
    for offer in found:
        wish = ExportOptions(offer.format, view=offer.view.name)
        if offer.refusal is None:
            assert choose(version, corpus, wish).view == offer.view
        else:
            with pytest.raises(StoreError):
                choose(version, corpus, wish)


@pytest.mark.slow
def test_clips_that_moved_are_found_below_a_root(demo_store: Store, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    shutil.copytree(demo_store.folder(MUSIC), store.folder(MUSIC))  # a version that came without its media index
    with pytest.raises(InputError, match=r"3 of 51 clips were not found .*--audio-root"):
        exported(store, tmp_path / "out", MUSIC, "ms-swift")
    assert not (tmp_path / "out").exists()
    exported(store, tmp_path / "out", MUSIC, "ms-swift", roots=(ROOT / "data/demo/music",))
    again = exported(demo_store, tmp_path / "again", MUSIC, "ms-swift")
    assert contents_of(tmp_path / "out") == contents_of(again)


def test_a_clip_that_changed_is_missing(demo_store: Store, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    shutil.copytree(demo_store.folder(MUSIC), store.folder(MUSIC))
    music = tmp_path / "music"
    shutil.copytree(ROOT / "data/demo/music", music)
    exported(store, tmp_path / "out", MUSIC, "ms-swift", roots=(music,))
    reference = next(r for r in rows_of(store.find(MUSIC), "pairs") if r["reference_sha256"])["reference_sha256"]
    changed = next(p for p in music.rglob("*.*") if hashlib.sha256(p.read_bytes()).hexdigest() == reference)
    stamp = changed.stat()
    changed.write_bytes(changed.read_bytes()[:-1] + b"\0")
    os.utime(changed, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(InputError, match=rf"1 of 51 clips .*{reference[:16]}… \(was .*{changed.name}\)"):
        exported(store, tmp_path / "other", MUSIC, "ms-swift")


def test_load_dataset_reads_a_column_that_is_empty_in_one_split(demo_store: Store, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    shutil.copytree(demo_store.folder(MUSIC), store.folder(MUSIC))
    kept = {"lyrics": "la la", "vocals": "vocal"}
    for split in ("train", "test"):
        file = next(path for path in store.find(MUSIC).files("pairs") if path.name.startswith(split))
        rows = pq.read_table(file)
        for name, value in kept.items():
            filled = pa.array([None if split == "train" else value] * rows.num_rows, pa.string())
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), filled)
        pq.write_table(rows, file)
        restate(store.find(MUSIC))
    out = tmp_path / "out"
    export(store.find(MUSIC), find_corpus(MUSIC), store, out, ExportOptions("jsonl", table="pairs"))
    loaded = load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert set(loaded["train"]["lyrics"]) == {None}
    assert set(loaded["test"]["lyrics"]) == {"la la"}


@pytest.mark.slow
def test_the_command_lists_and_exports(demo_store: Store, tmp_path: Path) -> None:
    def earmark(*words: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "earmark",
            "export",
            MUSIC,
            "--store",
            str(demo_store.root),
            *words,
        ]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    listed = earmark()
    assert listed.returncode == 0
    assert "musicality-clips" in listed.stdout
    assert "not for trl-reward, trl-dpo, trl-sft, trl-grpo" in listed.stdout
    out = str(tmp_path / "out")
    done = earmark("--for", "jsonl", "--limit", "2", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "rows: train 2, validation 2, test 2" in done.stdout
    again = earmark("--for", "jsonl", "--out", out)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert earmark("--for", "jsonl").stderr == "error: the export for jsonl needs a folder: add --out DIR\n"


def write_list(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """A format that a corpus adds: one JSON list of clips and labels."""
    rows = [[row["audio"], row["label"]] for batch in batches for row in batch.to_pylist()]
    path.write_text(json.dumps(rows))


@pytest.mark.parametrize("audio", [True, False])
def test_a_corpus_adds_a_format_of_its_own(
    demo_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audio: bool
) -> None:
    sql = "SELECT generation_id AS id, split, clip_sha256 AS audio, model AS label FROM clips"
    monkeypatch.setattr("earmark.tasks.exports.rows.query", lambda name: sql)
    writer = Writer("list", f"{__name__}:write_list", ".json", "a list.", audio=audio)
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or SimpleNamespace(write_list=write_list))
    version = demo_store.find(MUSIC)
    corpus = replace(find_corpus(MUSIC), views=(View("models", "rows", "made-up", "Models.", writers=(writer,)),))
    export(version, corpus, demo_store, tmp_path / "out", ExportOptions("list"))
    rows = json.loads((tmp_path / "out/train.json").read_text())
    assert len(rows) == 24
    for clip, model in rows:
        assert model in ("aster", "birch", "cedar", "dahlia")
        assert (tmp_path / "out" / clip).is_file() is audio
    with pytest.raises(
        StoreError,
        match=r"cannot be exported for ms-swift: models: its rows are not a trainer's, .*: jsonl, list, webdataset",
    ):
        choose(version, corpus, ExportOptions("ms-swift"))
