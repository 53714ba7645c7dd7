"""Exports of `captions`, read back by the readers that they are for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import soundfile

from earmark.schemas.captions import CORPUS
from earmark.schemas.errors import StoreError
from earmark.tasks.captions.exports import write_json, write_tsv
from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.exports.rows import BATCH
from earmark.tasks.importers.caption_sets import ListedCaption, read_captions
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import model_server
from tests.builds import rows_of
from tests.captions.captions import (
    build_captions,
    caption_answer,
    config_of,
    direct,
    refined,
    write_tracks,
)
from tests.pseudo_preferences.music import write_clip
from tests.servers.openai_server import OpenAIServer

server = model_server(caption_answer, keep_bodies=True)


def test_exports_read_back_as_the_baseline_reads_them(tmp_path: Path, server: OpenAIServer) -> None:
    write_tracks(tmp_path, 5)
    config = config_of(tmp_path, direct(server.base_url), refined(server.base_url))
    version = build_captions(config, tmp_path / "store")
    with connect(tmp_path / "spill") as connection:
        view_parquet(connection, "captions", version.files("captions"))
        for stage, write, name, item in (
            ("listen", write_json, "a.json", "0.wav"),
            ("refine", write_tsv, "b.tsv", "0"),
        ):
            params = {"stage": stage, "most_flags": 99}
            reader = connection.sql(query("captions/exported"), params=params).to_arrow_reader(BATCH)
            write(reader, tmp_path / name)
            found = list(read_captions(tmp_path / name, name))
            assert len(found) == 5
            texts = {row["clip_id"]: row["text"] for row in rows_of(version, "captions") if row["stage"] == stage}
            first = found[0]
            assert isinstance(first, ListedCaption)
            assert (first.item, first.text) == (item, texts["t0"])
    assert json.loads((tmp_path / "a.json").read_text())[0].keys() == {"path", "caption"}


def test_files_of_one_name_are_no_ids(tmp_path: Path) -> None:
    rows = [{"clip_id": f"t{n}", "path": f"{n}/tune.mp3", "caption": "A tune."} for n in range(2)]
    with pytest.raises(StoreError, match=r"found 0/tune.mp3 and 1/tune.mp3"):
        write_tsv(iter(pa.Table.from_pylist(rows).to_batches()), tmp_path / "captions.tsv")


@pytest.mark.parametrize("write", [write_json, write_tsv])
def test_segments_of_one_film_are_several_captions_of_its_file(tmp_path: Path, write: Any) -> None:
    rows = [{"clip_id": f"film@{n}.0", "path": "film.flac", "caption": "A tune."} for n in range(2)]
    with pytest.raises(StoreError, match=r"^film.flac: expected one caption a track, found several"):
        write(iter(pa.Table.from_pylist(rows).to_batches()), tmp_path / "captions")


def baseline_clips(folder: Path) -> dict[str, tuple[str, list[float]]]:
    """Caption and begins of the clips of a split by the rules of the baseline's preparation and loader."""
    frame = pd.read_csv(folder / f"jamendo_{folder.name}.tsv", sep="\t", dtype={"id": str})
    captions = dict(zip(frame["id"], frame["caption"], strict=True))
    clips = {}
    for file in sorted((folder / "audios").iterdir()):
        found = next(path for end in (".flac", ".wav", ".mp3") if (path := file.with_suffix(end)).exists())
        info = soundfile.info(found)
        length = 10 * info.samplerate
        assert info.frames >= length / 2
        count = min(10, max(info.frames // length, 1))
        between = (info.frames - length) // (count - 1) if count > 1 else 0
        clips[file.stem] = captions.pop(file.stem), [at * between / info.samplerate for at in range(count)]
    assert captions == {}
    return clips


@pytest.mark.slow
def test_the_baseline_reads_its_training_set(tmp_path: Path, server: OpenAIServer) -> None:
    header = "TRACK_ID,ARTIST_ID,ALBUM_ID,PATH,DURATION,TAGS"
    tags = '"genre---rock\tinstrument---piano"', "genre---rock,mood/theme---calm", ""
    lengths = 6, 25, 5
    lines = [f"track_{n},artist_{n},album_{n},0{n}/10{n}.mp3,{lengths[n]},{tags[n]}" for n in range(3)]
    (tmp_path / "raw_30s.csv").write_text("\r\n".join([header, *lines]))
    for at, seconds in enumerate(lengths):
        write_clip(tmp_path / f"low/0{at}/10{at}.low.wav", at, seconds=seconds)
    server.answer = lambda body, content: f'"{caption_answer(body, content)}" is what I would call it.'
    source = {"name": "made", "tracks": "raw_30s.csv", "audio_root": "low/{stem}.low.wav"}
    shares = {"train": 0.4, "validation": 0.3, "test": 0.3}
    config = config_of(tmp_path, direct(server.base_url), source=source, shares=shares, seed=3)
    version = build_captions(config, tmp_path / "store")
    export(version, CORPUS, Store(tmp_path / "store"), tmp_path / "out", ExportOptions("attm-baseline"))
    rows = rows_of(version, "captions")
    assert {row["split"] for row in rows} == {*shares}
    tagged = {row["clip_id"]: row["tags"] for row in rows}
    assert tagged["track_0"] == ["genre---rock", "instrument---piano"]
    assert (tagged["track_1"], tagged["track_2"]) == (["genre---rock", "mood/theme---calm"], [])
    wanted: dict[str, dict[str, Any]] = {"train": {}, "val": {}, "test": {}}
    for row in rows:
        begins = [0.0, 15.0] if row["file"] == "01/101.mp3" else [0.0]
        split = "val" if row["split"] == "validation" else row["split"]
        wanted[split][row["file"][3:6]] = row["text"], begins
    assert {split: baseline_clips(tmp_path / "out" / split) for split in wanted} == wanted
    files = json.loads((tmp_path / "out/export.json").read_text())["files"]
    assert {*files} == {f"{split}/jamendo_{split}.tsv" for split in wanted}
    short = config_of(tmp_path, direct(server.base_url), source=source).model_copy(update={"limit": 1})
    write_clip(tmp_path / "low/00/100.low.wav", 9, seconds=4.5)
    version = build_captions(short, tmp_path / "store")
    with pytest.raises(StoreError, match=r"00/100.mp3: expected at least 5 s, .* length_s = \[5, "):
        export(version, CORPUS, Store(tmp_path / "store"), tmp_path / "no", ExportOptions("attm-baseline"))
