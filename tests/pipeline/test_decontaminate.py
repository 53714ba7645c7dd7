"""What `decontaminate` keeps out: of a version, of a released benchmark, in every corpus."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from earmark.flows.command.running import demo_config, run_build
from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import EarmarkError, InputError, StoreError
from earmark.schemas.instruction_rubrics import InstructionRubrics, has_chromaprint
from earmark.schemas.registry import load
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.pipeline.flow import build_version
from earmark.tasks.pipeline.media import similarity_of
from earmark.tasks.pipeline.references import references_of, tells_apart
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import LocalServer, model_server
from tests.audio.test_recordings import RATE, melody
from tests.builds import rows_of
from tests.captions.captions import build_captions, direct, refined, write_tracks
from tests.captions.captions import config_of as caption_config
from tests.instruction_rubrics.rubrics import (
    asked_for,
    build_rubrics,
    caption,
    config_of,
    rubric_answer,
    with_figures,
    write_captions,
)
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer, caption_answer

server = model_server(rubric_answer)


def two_sets(folder: Path, base_url: str, against: str) -> tuple[InstructionRubrics, InstructionRubrics]:
    """A bench of eight clips, and a corpus of eight others to which two of the bench's clips were copied, with other
    words, and two of its captions, all but one word, of other clips."""
    for name in ("bench", "corpus"):
        (folder / name).mkdir()
    bench = write_captions(folder / "bench", "bench", map(caption, range(8)), set="test")
    texts = [*map(caption, range(20, 28)), *map(caption, (40, 41)), *(f"{caption(n)} tonight" for n in (4, 5))]
    corpus = write_captions(folder / "corpus", "corpus", texts, first=20, set="train")
    for copy, original in ((28, 0), (29, 1)):
        (folder / "corpus" / f"{copy}.wav").write_bytes((folder / "bench" / f"{original}.wav").read_bytes())
    keep_out = {"against": [against]}
    return (
        config_of(folder / "bench", bench, base_url=base_url),
        config_of(folder / "corpus", corpus, base_url=base_url, decontaminate=keep_out),
    )


def rejected(version: Version, reason: str) -> list[str]:
    return sorted(row["item"] for row in rows_of(version, "rejects") if row["reason"] == reason)


@pytest.mark.slow
def test_clips_and_texts_of_a_version_are_kept_out(tmp_path: Path, server: OpenAIServer) -> None:
    bench, corpus = two_sets(tmp_path, server.base_url, "instruction-rubrics@v1")
    store = tmp_path / "store"
    first = build_rubrics(bench, store)
    made = build_rubrics(corpus, store)
    assert rejected(made, "decontaminated") == ["c28", "c29", "c30", "c31"]
    ours, theirs = (rows_of(version, "samples") for version in (made, first))
    assert len(ours) == len(theirs) == 8 * 2 * 2
    for column in ("clip_sha256", "instruction"):
        assert not {row[column] for row in ours} & {row[column] for row in theirs}
    assert build_rubrics(corpus, store).name == made.name, "up to date"


@pytest.mark.slow
def test_a_released_bench_is_kept_out_as_the_version_it_was_made_from(tmp_path: Path, server: OpenAIServer) -> None:
    """Written by hand in the released layout: clips beside the file, one embedded in no table."""
    release = tmp_path / "released"
    _, corpus = two_sets(tmp_path, server.base_url, "anyaudio-judge-bench:../released")
    release.mkdir()
    rows = [
        {"uuid": f"u{n}", "audio": f"{n}.wav", "caption": caption(n), "label": "yes", "type": "pos", "subset": "music",
         "rubric": []}
        for n in range(8)
    ]  # fmt: skip
    for n in range(8):
        (release / f"{n}.wav").write_bytes((tmp_path / "bench" / f"{n}.wav").read_bytes())
    (release / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    made = build_rubrics(corpus, tmp_path / "store")
    assert rejected(made, "decontaminated") == ["c28", "c29", "c30", "c31"]
    assert made.manifest.inputs["decontaminate"]
    again = build_rubrics(corpus, tmp_path / "store")
    assert again.name == made.name, "up to date"
    (release / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[1:]), "utf-8")
    assert rejected(build_rubrics(corpus, tmp_path / "store"), "decontaminated") == ["c29", "c30", "c31"]


def released_row(caption: str, audio: str | None) -> str:
    """A line in the released bench's layout."""
    row = {"uuid": caption[:60], "audio": audio, "caption": caption, "label": "yes", "type": "pos", "subset": "music"}
    return f"{json.dumps({**row, 'rubric': []})}\n"


def test_a_released_clip_that_is_not_found_is_refused(tmp_path: Path) -> None:
    """The folder of one language of an export: paths of its clips start at the export, one level above."""
    source = write_captions(tmp_path, "real", map(caption, range(3)))
    folder = tmp_path / "export" / "en"
    (folder.parent / "clips").mkdir(parents=True)
    folder.mkdir()
    for n in range(2):
        (folder.parent / "clips" / f"{n}.wav").write_bytes((tmp_path / f"{n}.wav").read_bytes())
    lines = [released_row(f"Words of its own {n}.", f"clips/{n}.wav") for n in range(2)]
    (folder / "test.jsonl").write_text("".join(lines))

    def clips(**values: Any) -> set[str]:
        keep_out = {"against": ["anyaudio-judge-bench:export/en"], **values}
        references = references_of(config_of(tmp_path, source, decontaminate=keep_out), Store(tmp_path / "store"))
        assert references is not None
        assert len(references.side.texts) == 2
        return set(references.side.clips)

    says = r"anyaudio-judge-bench:.*export/en: 2 of 2 clips cannot be read, first 'clips/0\.wav' \(file_missing: .*"
    with pytest.raises(InputError, match=says + r"set decontaminate\.audio_roots"):
        clips()
    expected = {hashlib.sha256((tmp_path / f"{n}.wav").read_bytes()).hexdigest() for n in range(2)}
    assert clips(audio_roots=["nowhere", "export"]) == expected
    assert clips(audio_roots=False) == set()
    (folder.parent / "clips" / "1.wav").unlink()
    with pytest.raises(InputError, match=r"1 of 2 clips cannot be read, first 'clips/1\.wav'"):
        clips(audio_roots=["export"])


def chinese(text: str) -> str:
    """Words of no other text, in Chinese signs."""
    return with_figures("".join(chr(0x4E00 + byte) for byte in hashlib.sha256(text.encode()).digest()), text)


@pytest.mark.slow
def test_a_translation_that_repeats_a_released_caption_is_a_reject(tmp_path: Path, server: OpenAIServer) -> None:
    def answer(body: dict[str, Any], content: str) -> str:
        said = json.loads(rubric_answer(body, content))
        if asked_for(body) == "translate":
            said["texts"] = [chinese(text) for text in said["texts"]]
        return json.dumps(said)

    server.answer = answer
    source = write_captions(tmp_path, "real", map(caption, range(8)))
    keep_out = {"against": ["anyaudio-judge-bench:test.jsonl"]}
    config = config_of(tmp_path, source, base_url=server.base_url)
    first = rows_of(build_rubrics(config, tmp_path / "store"), "instructions")
    theirs = next(row for row in first if row["language"] == "zh")
    (tmp_path / "test.jsonl").write_text(released_row(theirs["text"], None))
    config = config_of(tmp_path, source, base_url=server.base_url, decontaminate=keep_out)
    made = build_rubrics(config, tmp_path / "store")
    (reject,) = [row for row in rows_of(made, "rejects") if row["reason"] == "decontaminated"]
    assert reject["stage"] == "translate"
    texts = {row["text"] for row in rows_of(made, "instructions")}
    assert theirs["text"] not in texts
    assert {row["text"] for row in first} - texts
    assert len(texts) > 8


@pytest.mark.slow
def test_a_caption_that_repeats_a_released_one_is_a_reject(tmp_path: Path) -> None:
    """Neither the table of captions nor that of raw answers has it, nor what was made of it."""
    with LocalServer(Faults()) as server:
        server.answer = caption_answer
        write_tracks(tmp_path, 6)
        store, pipelines = tmp_path / "store", (direct(server.base_url), refined(server.base_url))
        first = build_captions(caption_config(tmp_path, *pipelines), store)
        captions = rows_of(first, "captions")
        whole = next(row for row in captions if row["pipeline"] == "direct")
        heard = next(row for row in rows_of(first, "raw") if row["pipeline"] == "refined" and row["stage"] == "listen")
        theirs = {whole["text"], heard["text"]}
        (tmp_path / "test.jsonl").write_text("".join(released_row(f"{text[:-1]}.", None) for text in sorted(theirs)))
        keep_out = {"against": ["anyaudio-judge-bench:test.jsonl"]}
        made = build_captions(caption_config(tmp_path, *pipelines, decontaminate=keep_out), store)
    rejects = [row for row in rows_of(made, "rejects") if row["reason"] == "decontaminated"]
    gone = {(row["clip_id"], row["pipeline"]) for row in (whole, heard)}
    assert {(row["item"], row["detail"].partition(",")[0]) for row in rejects} == gone
    kept = rows_of(made, "captions")
    assert {(row["clip_id"], row["pipeline"]) for row in kept} == {
        (row["clip_id"], row["pipeline"]) for row in captions
    } - gone
    assert not theirs & {row["text"] for row in (*kept, *rows_of(made, "raw"))}
    assert len(rows_of(made, "raw")) == len(rows_of(first, "raw"))


@pytest.mark.slow
@pytest.mark.skipif(not has_chromaprint(), reason="Chromaprint is not installed")
def test_another_encoding_is_kept_out_by_its_sound(tmp_path: Path, server: OpenAIServer) -> None:
    release = tmp_path / "released"
    release.mkdir()
    soundfile.write(release / "a.flac", melody(1), RATE)
    line = {"uuid": "u", "audio": "a.flac", "caption": "A tune.", "label": "yes", "type": "pos", "subset": "music"}
    (release / "test.jsonl").write_text(json.dumps({**line, "rubric": []}) + "\n")
    source = write_captions(tmp_path, "real", map(caption, range(8)))
    soundfile.write(tmp_path / "3.wav", melody(1)[5 * RATE :] * 0.5, RATE)
    keep_out = {"against": ["anyaudio-judge-bench:released"], "near": ["fingerprint >= 0.85"]}
    config = config_of(tmp_path, source, base_url=server.base_url, decontaminate=keep_out)
    assert rejected(build_rubrics(config, tmp_path / "store"), "decontaminated") == ["c3"]


def remember(store: Path, model: Path, vectors: dict[Path, Any]) -> None:
    """Keep embeddings as an earlier run would have: no model is needed then, whose weights are not there."""
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    similarity = similarity_of(Store(store), str(model))
    with similarity._open() as connection:
        similarity._mark(connection)
        for path, vector in vectors.items():
            clip = hashlib.sha256(path.read_bytes()).hexdigest()
            held = (similarity.digest, clip, np.asarray(vector, "<f4").tobytes())
            connection.execute("INSERT INTO embeddings VALUES (?, ?, ?)", held)
        connection.commit()


def at_angle(cosine: float, place: int) -> list[float]:
    """A vector of length 1 at an angle to the first axis, and at right angles to others of that kind but for it."""
    return [cosine, *(math.sqrt(1 - cosine**2) if at == place else 0.0 for at in range(8))]


@pytest.mark.slow
def test_a_near_duplicate_by_embedding_is_kept_out(tmp_path: Path, server: OpenAIServer) -> None:
    """From the threshold on; another model, or another threshold, is another build, and without either all stay."""
    release = tmp_path / "released"
    release.mkdir()
    soundfile.write(release / "a.flac", melody(1), RATE)
    (release / "test.jsonl").write_text(released_row("A tune.", "a.flac"))
    source = write_captions(tmp_path, "real", map(caption, range(8)))
    cosines = {3: 0.985, 5: 0.97}
    clips = {tmp_path / f"{n}.wav": at_angle(cosines.get(n, 0.2), n) for n in range(8)}
    remember(tmp_path / "store", tmp_path / "clap", {**clips, release / "a.flac": at_angle(1.0, 0)})
    rejects, versions = {}, set()
    for least in (None, 0.98, 0.96):
        near = [f"clap >= {least}"] if least else []
        keep_out = {"against": ["anyaudio-judge-bench:released"], "near": near}
        config = config_of(tmp_path, source, base_url=server.base_url, decontaminate=keep_out)
        made = build_rubrics(config, tmp_path / "store")
        versions.add(made.name)
        rejects[least] = rejected(made, "decontaminated")
        assert ("decontaminate.embedding" in made.manifest.inputs) is (least is not None)
    assert rejects == {None: [], 0.98: ["c3"], 0.96: ["c3", "c5"]}
    assert len(versions) == 3
    (detail,) = [row["detail"] for row in rows_of(made, "rejects") if row["item"] == "c5"]
    assert "cosine 0.97 with one" in detail


def test_a_clip_whose_file_is_gone_is_compared_by_what_is_kept_of_it(tmp_path: Path) -> None:
    folder, clips = tmp_path / "clap", {tmp_path / name: [1.0, 0.0] for name in ("kept.wav", "other.wav")}
    for number, path in enumerate(clips):
        soundfile.write(path, melody(number), RATE)
    remember(tmp_path / "store", folder, {tmp_path / "kept.wav": [0.0, 1.0]})
    kept, other = (hashlib.sha256(path.read_bytes()).hexdigest() for path in clips)
    found = similarity_of(Store(tmp_path / "store"), str(folder)).embeddings({kept: None, other: None})
    assert {clip: vector.tolist() for clip, vector in found.items()} == {kept: [0.0, 1.0]}


DEMOS = {
    "captions": "captions.toml",
    "human-preferences": "human-preferences.toml",
    "instruction-rubrics": "instruction-rubrics.toml",
    "instrumentals": "instrumentals.toml",
    "mos-preferences": "mos-preferences-audio.toml",
    "music-prompts": "music-prompts.toml",
    "pseudo-preferences": "pseudo-preferences.toml",
}


@pytest.mark.slow
@pytest.mark.parametrize("corpus", DEMOS)
def test_no_corpus_lets_its_own_first_version_in_again(corpus: str, tmp_path: Path) -> None:
    """A demo that keeps out its first version has nothing left of its test split, or of all where there is none."""
    store = Store(tmp_path / "store")
    demo = demo_config(corpus).with_name(DEMOS[corpus])
    first = run_build(corpus, demo, store).version
    values = read_toml(demo) | {
        "decontaminate": {
            "against": [f"{corpus}@{first.name}"],
        },
        "most_rejected": None,
    }
    config: BuildConfig = parse_config(find_corpus(corpus).config, values, demo)

    second, _ = build_version(find_corpus(corpus), load(find_corpus(corpus).flow).story, config, str(store.root))
    assert rejected(second, "decontaminated")
    has_test = any("test" in counts for counts in first.manifest.rows.values())
    tables = [table for table in find_corpus(corpus).tables if table.name in first.manifest.rows]
    for table in tables:
        for column in [one.name for one in table.schema if (one.metadata or {}).get(b"names") == b"clip"]:
            splits = [split for split in first.manifest.rows[table.name] if split == "test" or not has_test]
            files = [one.path for split in splits for one in first.manifest.entries(table.name, split)]
            held = [value for file in files for value in pq.read_table(first.folder / file)[column].to_pylist()]
            shared = {*held} - {None}
            assert not shared & {row[column] for row in rows_of(second, table.name)}, f"{table.name}.{column}"


@pytest.mark.slow
def test_what_is_staged_is_compared_before_the_commit(
    tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that let a clip through would be caught."""
    bench, corpus = two_sets(tmp_path, server.base_url, "instruction-rubrics@v1")
    build_rubrics(bench, tmp_path / "store")
    monkeypatch.setattr("earmark.tasks.instruction_rubrics.sources.measure_apart", _careless)
    with pytest.raises(StoreError, match=r"expected nothing of instruction-rubrics@v1 \(decontaminate.against\)"):
        build_rubrics(corpus, tmp_path / "store")
    assert Store(tmp_path / "store").latest("instruction-rubrics").name == "v1"  # type: ignore[union-attr]


def _careless(stage: Any, config: Any, label: str, files: Any, longest_s: float) -> Any:
    from earmark.tasks.pipeline.media import measure

    return measure(stage.store, label, files, longest_s)


@pytest.mark.parametrize(
    ("against", "says"),
    [
        ("instruction-rubrics@v9", "no version of 'instruction-rubrics'"),
        ("no-such-layout:released", "no layout 'no-such-layout'"),
        ("anyaudio-judge-bench:nowhere", "nowhere"),
    ],
)
def test_what_is_not_there_is_one_clear_line(tmp_path: Path, against: str, says: str) -> None:
    source = write_captions(tmp_path, "real", map(caption, range(2)))
    config = config_of(tmp_path, source, decontaminate={"against": [against]})
    with pytest.raises(EarmarkError, match=says) as caught:
        references_of(config, Store(tmp_path / "store"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lyrics", "tells"),
    [
        ("[Instrumental]", False),
        ("(no vocals)", False),
        ("[Intro]\n\n[Verse 1]\nInstrumental", False),
        ("none", False),
        ("[Verse]\nla la la", True),
        ("[主歌]\n月亮代表我的心", True),
    ],
)
def test_lyrics_in_which_nothing_is_sung_keep_nothing_out(lyrics: str, tells: bool) -> None:
    """Or one instrumental of a test set would have kept every instrumental out of a train set."""
    assert tells_apart("lyrics", lyrics) is tells
    assert tells_apart("text", lyrics)
