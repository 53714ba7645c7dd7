"""Captions of tracks whose instrumental is heard, and of tracks that may not be passed on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.captions import CORPUS, Captions
from earmark.schemas.errors import ConfigError, StoreError
from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.store.licences import licences_of
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import model_server
from tests.builds import restate, rows_of
from tests.captions.captions import (
    build_captions,
    caption_answer,
    config_of,
    direct,
    forecast_of,
    write_tracks,
)
from tests.instrumentals.separating import build_separated, make_tracks
from tests.instrumentals.separating import config_of as separating_config
from tests.servers.openai_server import OpenAIServer

server = model_server(caption_answer, keep_bodies=True)


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["embedded", "files"])
def test_instrumentals_are_heard_where_there_are_some(tmp_path: Path, server: OpenAIServer, keep: str) -> None:
    store = tmp_path / "store"
    rows = make_tracks(tmp_path, 3)
    separating = separating_config(tmp_path, output={"keep": keep}).model_copy(update={"limit": 2})
    build_separated(separating, store)
    source = {"name": "own", "format": "table", "tracks": "tracks.jsonl"}
    config = config_of(tmp_path, direct(server.base_url), source=source, instrumentals="instrumentals@v1")
    assert forecast_of(config, store)["to_ask"] == 3
    version = build_captions(config, store)
    (parent,) = version.manifest.parents
    assert (parent.corpus, parent.version) == ("instrumentals", "v1")
    separated = {
        row["track_id"]: row["clip_sha256"] for row in rows_of(Store(store).find("instrumentals@v1"), "tracks")
    }
    heard = {row["clip_id"]: (row["heard"], row["heard_sha256"]) for row in rows_of(version, "captions")}
    assert {held[0] for name, held in heard.items() if name in separated} == {"instrumental"}
    assert all(heard[name][1] == sha256 for name, sha256 in separated.items())
    assert heard[rows[2]["track_id"]][0] == "mix"
    shutil.rmtree(store / "separated")
    export(version, CORPUS, Store(store), tmp_path / "out", ExportOptions("jsonl", view="captions"))
    assert {path.stem for path in (tmp_path / "out").rglob("*.*")} >= set(separated.values())
    plain = build_captions(config_of(tmp_path, direct(server.base_url), source=source), store)
    assert {row["heard"] for row in rows_of(plain, "captions")} == {"mix"}


def test_a_silent_instrumental_is_a_reject(
    tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("earmark.tasks.pipeline.tracks.SILENCE_DBFS", 0.0)  # louder than any clip is
    store = tmp_path / "store"
    make_tracks(tmp_path, 2)
    build_separated(separating_config(tmp_path, output={"keep": "embedded"}), store)
    source = {"name": "own", "format": "table", "tracks": "tracks.jsonl"}
    fit = [0.1, 7200.0]
    config = config_of(tmp_path, direct(server.base_url), source=source, instrumentals="instrumentals@v1", length_s=fit)
    version = build_captions(config, store)
    assert {row["reason"] for row in rows_of(version, "rejects")} == {"audio_silent"}


def separated_with(folder: Path, url: str, keep: str, column: str, value: Any) -> tuple[Captions, Path]:
    """A version of `instrumentals` as a stranger might have made it, and a config that hears it."""
    store = folder / "store"
    make_tracks(folder, 1)
    version = build_separated(separating_config(folder, output={"keep": keep}), store)
    (path,) = version.files("tracks")
    (row,) = pq.read_table(path).to_pylist()
    if column == "audio":
        value = {**row["audio"], **value}
    path.chmod(0o644)
    pq.write_table(pa.Table.from_pylist([{**row, column: value}], pq.read_schema(path)), path)
    restate(version)
    source = {"name": "own", "format": "table", "tracks": "tracks.jsonl"}
    values = {"source": source, "instrumentals": "instrumentals@v1", "length_s": [0.1, 7200.0]}
    return config_of(folder, direct(url), **values), store


@pytest.mark.parametrize("name", ["../x.wav", "/x.wav"])
def test_a_versions_instrumental_outside_its_folder_is_not_sent(tmp_path: Path, name: str) -> None:
    config, store = separated_with(tmp_path, "http://127.0.0.1:9/v1", "files", "instrumental", name)
    with pytest.raises(StoreError, match=f"expected an instrumental in its folder, found '{name}'"):
        build_captions(config, store)


def test_embedded_instrumentals_are_written_by_their_hash_alone(tmp_path: Path, server: OpenAIServer) -> None:
    outside = tmp_path / "outside.wav"
    config, store = separated_with(tmp_path, server.base_url, "embedded", "audio", {"path": str(outside)})
    version = build_captions(config, store)
    assert {row["heard"] for row in rows_of(version, "captions")} == {"instrumental"}
    assert not outside.exists()


def test_an_embedded_instrumental_of_other_bytes_is_refused(tmp_path: Path) -> None:
    config, store = separated_with(tmp_path, "http://127.0.0.1:9/v1", "embedded", "audio", {"bytes": b"other"})
    with pytest.raises(StoreError, match="expected an embedded file of SHA-256"):
        build_captions(config, store)


@pytest.mark.slow
def test_tracks_that_may_not_be_passed_on_keep_their_name(tmp_path: Path, server: OpenAIServer) -> None:
    """A licence holds by name: captions under another one would be published."""
    store = tmp_path / "store"
    make_tracks(tmp_path, 1)
    none = {"redistribute": "none"}
    separated = separating_config(tmp_path, source={"name": "vault"}, licences={"vault": none, "another": none})
    build_separated(separated, store)

    def built(name: str) -> Version:
        source = {"name": name, "format": "table", "tracks": "tracks.jsonl"}
        asked = direct(server.base_url)
        return build_captions(config_of(tmp_path, asked, source=source, instrumentals="instrumentals"), store)

    with pytest.raises(ConfigError, match=r"source.name: expected 'vault', .* found 'own'"):
        built("own")
    version = built("vault")
    assert {row["source"] for row in rows_of(version, "captions")} == {"vault"}
    assert licences_of(version, Store(store))["vault"].redistribute == "none"


def test_instrumentals_of_another_corpus_are_refused(tmp_path: Path) -> None:
    write_tracks(tmp_path, 1)
    with pytest.raises(ConfigError, match="instrumentals"):
        build_captions(config_of(tmp_path, direct("http://x/v1"), instrumentals="captions@v1"), tmp_path / "store")
