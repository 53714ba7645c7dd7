"""From films on disk to rubrics of mixed audio: cut into segments, captioned by `mix`, taken in as a source."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import earmark.flows.captions as captions_flow
from earmark.schemas.captions import CORPUS
from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import ConfigError, StoreError
from earmark.tasks.store.versions import Store, Version, verify
from tests.annotation.conftest import model_server
from tests.builds import forecast, rows_of, write_toml
from tests.captions.captions import QUICK, build_captions, write_tracks
from tests.conftest import ROOT
from tests.flows.test_cli import as_json, earmark
from tests.instruction_rubrics.films import FILMS, answer, films_config, write_films
from tests.instruction_rubrics.rubrics import build_rubrics
from tests.instruction_rubrics.rubrics import config_of as rubrics_config
from tests.servers.openai_server import OpenAIServer

server = model_server(answer)


def seconds(version: Version) -> dict[str, list[tuple[float, float]]]:
    """Where each film's segments and rejects lie."""
    spans = defaultdict(list)
    for row in rows_of(version, "segments"):
        spans[row["recording"]].append((row["start_s"], row["end_s"]))
    for row in rows_of(version, "rejects"):
        if row["reason"].startswith("segment_"):
            start, _, rest = row["detail"].partition(" s to ")
            spans[row["item"]].append((float(start), float(rest.partition(" s:")[0])))
    return spans


@pytest.mark.slow
def test_every_second_of_a_film_is_in_a_segment_or_a_reject(server: OpenAIServer, tmp_path: Path) -> None:
    write_films(tmp_path)
    config = films_config(tmp_path, server.base_url)
    facts = forecast(CORPUS, captions_flow.build.story, config, Store(tmp_path / "dry"))  # type: ignore[attr-defined]
    assert facts is not None
    assert facts["requests"] == FILMS * 6, "twenty seconds are planned as six segments; nothing is cut for that"
    assert not (tmp_path / "dry/segments").exists()
    version = build_captions(config, tmp_path / "store")
    verify(version)
    for film, spans in seconds(version).items():
        ends = sorted(spans)
        assert [end for _, end in ends[:-1]] == [start for start, _ in ends[1:]], film
        assert (ends[0][0], ends[-1][1]) == (0, 20)
    reasons = Counter(row["reason"] for row in rows_of(version, "rejects"))
    assert reasons == {"segment_silent": 2 * FILMS, "segment_too_short": FILMS, "audio_silent": 1}
    films = {row["recording"]: row["recording_sha256"] for row in rows_of(version, "segments")}
    for row in rows_of(version, "rejects"):
        if row["item"] in films:
            assert {"kind": "clip", "id": films[row["item"]]} in row["made_from"], "leaves with its film"
    rows = rows_of(version, "segments")
    assert all(2 <= row["duration_s"] <= 4 for row in rows)
    assert {round(row["end_s"], 1) for row in rows} >= {9.1}, "cut in the middle of the pause"
    for row in rows:
        samples, rate = soundfile.read(version.folder / row["file"])
        whole, _ = soundfile.read(tmp_path / f"{row['recording']}.wav")
        start = round(row["start_s"] * rate)
        assert np.array_equal(samples, whole[start : start + len(samples)])
    captions = {row["clip_id"]: row for row in rows_of(version, "captions")}
    assert captions.keys() == {row["clip_id"] for row in rows}
    assert all(row["start_s"] == [0] and row["end_s"] == [pytest.approx(row["end_s"][0])] for row in captions.values())


def as_toml(folder: Path, name: str, config: BuildConfig) -> None:
    """Write a config where a rebuild finds it."""
    values = config.model_dump(mode="json", exclude={"base"}, exclude_none=True, exclude_unset=True)
    write_toml(type(config), values, folder / name)


@pytest.mark.slow
def test_one_rebuild_makes_rubrics_of_mixed_audio_from_films(server: OpenAIServer, tmp_path: Path) -> None:
    write_films(tmp_path)
    models: dict[str, Any] = {
        name: {**QUICK, "annotator": "openai:m", "base_url": server.base_url, "most_failed": 1.0}
        for name in ("judge", "writer")
    }
    source = {"name": "films", "subset": "mix", "domain": "mixed", "version": "captions", "set": "test"}
    rubrics = rubrics_config(tmp_path, source, corpus="instruction-rubrics", languages=["en"], **models)
    closed = {"films": {"licence": "proprietary", "redistribute": "none"}}
    as_toml(tmp_path, "captions-films.toml", films_config(tmp_path, server.base_url, licences=closed))
    as_toml(tmp_path, "instruction-rubrics-bench.toml", rubrics)
    config = tmp_path / "mixed.toml"
    config.write_text((ROOT / "deploy/mixed-audio.toml").read_text("utf-8").replace('"configs/', '"'), "utf-8")
    store = Store(tmp_path / "store")
    with pytest.raises(StoreError, match="no version of 'captions'"):
        build_rubrics(rubrics, store.root)
    before = {row["corpus"]: row["would"] for row in as_json(store.root, "rebuild", "-c", config, "--dry-run")}
    assert before == {"captions": "build", "instruction-rubrics": "wait"}
    earmark(store.root, "rebuild", "-c", config)
    version, built = store.find("captions"), store.find("instruction-rubrics")
    verify(built)
    segments = {row["clip_sha256"]: row for row in rows_of(version, "segments")}
    clips = {row["clip_sha256"]: row for row in rows_of(built, "clips")}
    assert clips.keys() <= segments.keys()
    assert len(clips) >= FILMS
    groups = defaultdict(set)
    for sha256, row in clips.items():
        groups[segments[sha256]["recording"]].add(row["group_id"])
    assert {len(one) for one in groups.values()} == {1}, "a film's clips are one group"
    assert [(parent.corpus, parent.version) for parent in built.manifest.parents] == [("captions", version.name)]
    texts = {row["text"] for row in rows_of(version, "captions")}
    assert {row["instruction"] for row in rows_of(built, "samples") if row["kind"] == "pos"} <= texts
    assert {row["domain"] for row in rows_of(built, "samples")} == {"mixed"}
    assert {row["source_file"] for row in rows_of(built, "samples")} == {"captions@v1"}
    with pytest.raises(ConfigError, match="expected 'films', by which captions v1 forbids to pass its clips on"):
        build_rubrics(rubrics_config(tmp_path, {**source, "name": "others"}), store.root)


def test_a_source_is_a_list_or_a_version_of_segments(server: OpenAIServer, tmp_path: Path) -> None:
    def source(**values: Any) -> Any:
        return rubrics_config(tmp_path, {"name": "films", "subset": "mix", "domain": "mixed", **values})

    for values, message in (
        ({}, "either 'captions' or 'version'"),
        ({"captions": "a.csv", "split": "test"}, "'split' picks from a 'version'"),
        ({"version": "captions", "audio_root": "x"}, "expected no 'audio_root'"),
        ({"version": "instrumentals"}, "expected 'captions' or 'captions@vN'"),
    ):
        with pytest.raises(ConfigError, match=message):
            source(**values)
    with pytest.raises(ConfigError, match=r"at least the longest of segments"):
        films_config(tmp_path, "http://x/v1", segments=[45, 90])
    write_tracks(tmp_path, 2)
    plain = {"source": {"name": "t", "format": "table", "tracks": "tracks.csv"}, "length_s": [0.1, 7200.0]}
    build_captions(films_config(tmp_path, server.base_url, segments=None, **plain), tmp_path / "store")
    with pytest.raises(StoreError, match=r"expected segments, found none; build captions with segments"):
        build_rubrics(source(version="captions"), tmp_path / "store")
