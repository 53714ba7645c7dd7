"""`instrumentals`: rows in, rows and rejects out; what is separated once is kept; flags; layouts; the real list."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import soundfile

import earmark.flows.instrumentals
from earmark.flows.command.running import read_config
from earmark.schemas.errors import ConfigError, EarmarkError, InputError, Interrupted, StoreError
from earmark.schemas.tracks import Track
from earmark.tasks.audio.probe import Probe, probe
from earmark.tasks.audio.separation.jobs import SeparatedTrack, SeparationJob
from earmark.tasks.audio.separation.side_by_side import SeparatingProcesses
from earmark.tasks.instrumentals import separated, sources
from earmark.tasks.instrumentals.separated import SeparatedFiles, Separators
from earmark.tasks.instrumentals.sources import listed
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.explain import explain
from earmark.tasks.store.versions import Version, verify
from tests.builds import contents_of, rows_of
from tests.conftest import ROOT
from tests.instrumentals.separating import RATE_HZ, build_separated, config_of, make_tracks, song, write_rows

DEMO = ROOT / "data/demo/instrumentals.toml"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Version:
    config = read_config(find_corpus("instrumentals"), DEMO)
    return build_separated(config, tmp_path_factory.mktemp("demo"))  # type: ignore[arg-type]


# -- the demo -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_demos_rows_and_rejects(demo: Version) -> None:
    assert verify(demo) == []
    assert demo.manifest.rows["tracks"] == {"train": 2, "validation": 3}
    assert demo.manifest.rejects == {
        "bad_value": 1, "duplicate_id": 1, "path_outside_root": 1, "duplicate_audio": 1, "file_corrupt": 1,
        "audio_silent": 1, "file_unreadable": 1, "file_missing": 1, "separation_needs_stereo": 1,
    }  # fmt: skip
    tracks = rows_of(demo, "tracks")
    assert {row["separator"] for row in tracks} == {"centre-removal"}
    assert all(row["checkpoint_sha256"] is None and row["flags"] == [] for row in tracks)
    assert next(row for row in tracks if row["track_id"] == "track_0001014")["tags"][0] == "genre---punkrock"
    assert all(row["line"] and row["file"] == "tracks/tracks.tsv" for row in rows_of(demo, "rejects"))


@pytest.mark.slow
def test_the_demos_lead_is_gone_and_the_band_stays(demo: Version, tmp_path: Path) -> None:
    """Measured against the known lead, sample by sample and by another way than the card's projection."""
    for row in rows_of(demo, "tracks"):
        (tmp_path / "i.flac").write_bytes(row["audio"]["bytes"])
        left, rate = soundfile.read(tmp_path / "i.flac")
        name = Path(row["file"]).stem
        mix, _ = soundfile.read(DEMO.parent / "tracks/audio" / row["file"])
        lead, _ = soundfile.read(DEMO.parent / "tracks/leads" / f"{name}.flac")
        assert rate == row["sample_rate_hz"] == 22_050
        assert left.shape == mix.shape
        band = mix - lead[:, None]
        in_band = [np.dot(left[:, c], band[:, c]) / np.dot(band[:, c], band[:, c]) for c in (0, 1)]
        of_lead = [np.dot(left[:, c], lead) / np.dot(lead, lead) for c in (0, 1)]
        assert max(map(abs, of_lead)) < 0.1, "the lead is 20 dB down"
        assert min(in_band) > 0.5, "the band is not 6 dB down"
        assert row["removed_db"] == pytest.approx(row["removed_dbfs"] - row["mix_dbfs"])
        assert row["mix_dbfs"] == pytest.approx(10 * np.log10(np.mean(mix**2)), abs=0.1)
    card = (demo.folder / "README.md").read_text("utf-8")
    told = card.split("## How much of the known lead is gone")[1].split("##")[0]
    figures = [line.split("|")[2:4] for line in told.splitlines() if line.startswith("| `track_")]
    assert len(figures) == 5
    assert all(float(lead_db) < -20 and float(band_db) > -6 for lead_db, band_db in figures)


def test_the_demo_loads_as_datasets_load_it(demo: Version) -> None:
    from datasets import Audio, load_dataset

    rows = load_dataset(str(demo.folder), "tracks", split="train")
    assert isinstance(rows.features["audio"], Audio)
    held = rows.cast_column("audio", Audio(decode=False))[0]
    assert held["audio"]["path"] == f"{held['clip_sha256']}.flac"


def test_a_track_and_a_reject_are_explained(demo: Version) -> None:
    corpus = find_corpus("instrumentals")
    for wanted in ("track_0002027", "27/2027.flac"):
        (account,) = explain(demo, corpus.tables, wanted)
        assert account.table == "tracks"
        assert account.says[0] == "read from tracks/tracks.tsv, line 4: 27/2027.flac, 4 s of flac"
        assert account.says[2] == "flags: none"
        assert [step.name for step in account.through] == ["import", "index", "tracks"]
    (account,) = explain(demo, corpus.tables, "track_0004062")
    assert account.table == "rejects"
    assert "audio_silent" in account.says[0]


# -- what is kept, and what is done again ---------------------------------------------------------------------------


class Counted:
    """Counts the tracks that go to the separation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tracks: list[str] = []
        real = separated.separate

        def counting(jobs: list[SeparationJob], *args: Any, **options: Any) -> Any:
            self.tracks += [job.track for job in jobs]
            return real(jobs, *args, **options)

        monkeypatch.setattr(separated, "separate", counting)

    def taken(self) -> int:
        """How many since the last look."""
        count = len(self.tracks)
        self.tracks.clear()
        return count


@pytest.mark.slow
def test_no_track_is_separated_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store, counted = tmp_path / "t", tmp_path / "store", Counted(monkeypatch)
    rows = make_tracks(folder, 7)
    first = build_separated(config_of(folder), store)
    assert counted.taken() == 7
    assert build_separated(config_of(folder), store, force=True).name == "v1", "the same bytes are the same version"
    assert counted.taken() == 0
    build_separated(config_of(folder, shares={"train": 0.5, "test": 0.5}), store)
    assert counted.taken() == 0, "splits do not change what is separated"
    song(folder / "audio/new.flac", 99)
    write_rows(folder / "tracks.jsonl", [{"track_id": "new", "audio": "audio/new.flac"}, *rows])
    grown = build_separated(config_of(folder), store)
    assert counted.taken() == 1
    kept = {row["track_id"]: row["clip_sha256"] for row in rows_of(first, "tracks")}
    assert {row["track_id"]: row["clip_sha256"] for row in rows_of(grown, "tracks")}.items() > kept.items()
    build_separated(config_of(folder, output={"codec": "wav"}), store)
    assert counted.taken() == 8, "other settings are other files"
    folder.rename(tmp_path / "moved")
    assert build_separated(config_of(tmp_path / "moved"), store).name == grown.name
    assert counted.taken() == 0


@pytest.mark.slow
def test_a_damaged_or_lost_kept_file_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store, counted = tmp_path / "t", tmp_path / "store", Counted(monkeypatch)
    make_tracks(folder, 5)
    first = contents_of(build_separated(config_of(folder), store).folder)
    files = sorted((store / separated.FOLDER).glob("*/*/*.flac"))
    measures = [path.with_suffix(".json") for path in files]
    files[0].write_bytes(files[0].read_bytes()[:-1])
    files[1].unlink()
    measures[2].write_text("{")
    measures[3].unlink()
    counted.taken()
    again = build_separated(config_of(folder), store, force=True)
    assert counted.taken() == 4
    assert (again.name, contents_of(again.folder)) == ("v1", first)


def test_a_kept_file_that_is_lost_before_the_table_is_written_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tracks(tmp_path / "t", 3)
    config, store, write = config_of(tmp_path / "t"), tmp_path / "store", earmark.flows.instrumentals.write_tracks

    def after_a_loss(*given: Any) -> None:
        next((store / separated.FOLDER).glob("*/*/*.flac")).unlink()
        write(*given)

    monkeypatch.setattr(earmark.flows.instrumentals, "write_tracks", after_a_loss)
    with pytest.raises(StoreError, match="expected what this build separated, found none; build again"):
        build_separated(config, store)
    monkeypatch.undo()
    counted = Counted(monkeypatch)
    assert len(rows_of(build_separated(config, store), "tracks")) == 3
    assert counted.taken() == 1


def test_a_build_that_is_stopped_ends_with_the_track_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tracks(tmp_path / "t", 8)
    config, store = config_of(tmp_path / "t"), tmp_path / "store"
    real, seen = SeparatedFiles.keep, []

    def stop_after_three(kept: SeparatedFiles, clip_sha256: str, done: SeparatedTrack) -> dict[str, Any]:
        seen.append(clip_sha256)
        if len(seen) == 3:
            made[0].__exit__()
        return real(kept, clip_sha256, done)

    made: list[Separators] = []
    make = separated.Separators
    monkeypatch.setattr(SeparatedFiles, "keep", stop_after_three)
    monkeypatch.setattr(separated, "Separators", lambda *given: made.append(make(*given)) or made[0])
    with pytest.raises(Interrupted):
        build_separated(config, store)
    monkeypatch.undo()
    assert len(list((store / separated.FOLDER).glob("*/*/*.json"))) == 3
    counted = Counted(monkeypatch)
    build_separated(config, store)
    assert counted.taken() == 5


@pytest.mark.slow
def test_the_size_of_shards_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tracks(tmp_path / "t", 7)
    one = build_separated(config_of(tmp_path / "t"), tmp_path / "one")
    monkeypatch.setattr(sources, "TRACKS_A_SHARD", 2)
    many = build_separated(config_of(tmp_path / "t"), tmp_path / "many")
    assert contents_of(one.folder) == contents_of(many.folder)


def test_audio_that_changes_during_the_build_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store = tmp_path / "t", tmp_path / "store"
    make_tracks(folder, 3)
    real = separated.separate

    def late(jobs: list[SeparationJob], *args: Any, **options: Any) -> Any:
        song(folder / "audio/0001.flac", 77)
        return real(jobs, *args, **options)

    monkeypatch.setattr(separated, "separate", late)
    with pytest.raises(InputError, match=r"^audio/0001.flac changed during the build"):
        build_separated(config_of(folder), store)
    assert not list(store.glob("instrumentals/v*"))
    monkeypatch.undo()
    version = build_separated(config_of(folder), store)
    assert {row["mix_sha256"] for row in rows_of(version, "tracks")} == {
        probed.clip_sha256 for path in folder.glob("audio/*") if isinstance(probed := probe(path), Probe)
    }


# -- output -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["flac", "wav", "mp3"])
def test_files_lie_as_the_baseline_reads_them(tmp_path: Path, codec: str) -> None:
    make_tracks(tmp_path / "t", 3)
    config = config_of(tmp_path / "t", output={"codec": codec, "keep": "files"})
    version = build_separated(config, tmp_path / "store")
    assert verify(version) == []
    rows = rows_of(version, "tracks")
    assert {row["instrumental"] for row in rows} == {f"audio/{n:02d}/t{n:04d}_instrumental.{codec}" for n in range(3)}
    for row in rows:
        file = version.folder / row["instrumental"]
        found = probe(file)
        assert isinstance(found, Probe)
        assert (found.clip_sha256, found.channels, found.sample_rate_hz) == (row["clip_sha256"], 2, RATE_HZ)
        assert found.duration_s == pytest.approx(1.0, abs=0.1 if codec == "mp3" else 0)
        assert row["audio"] is None
        assert file.stat().st_nlink > 1, "a link to what is kept, not a copy"
    named = {entry.path for entry in version.manifest.files}
    assert named >= {row["instrumental"] for row in rows}
    second = build_separated(
        config_of(tmp_path / "t", output={"codec": codec, "keep": "files"}, seed=3), tmp_path / "store"
    )
    for row in rows:
        assert (second.folder / row["instrumental"]).samefile(version.folder / row["instrumental"])


def test_only_the_first_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    make_tracks(folder, 2, seconds=1.5)
    version = build_separated(config_of(folder, output={"crop_s": 0.5}), tmp_path / "store")
    for row in rows_of(version, "tracks"):
        assert (row["mix_duration_s"], row["duration_s"], row["length_error_s"]) == (1.5, 0.5, 0.0)


@pytest.mark.slow
def test_ids_that_would_steer_a_path_are_rejects_where_files_are_named_by_them(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    rows = make_tracks(folder, 3)
    for row, name in zip(rows, ("../../up", "a..", "fine"), strict=True):
        row["track_id"] = name
    write_rows(folder / "tracks.jsonl", rows)
    version = build_separated(config_of(folder, output={"keep": "files"}), tmp_path / "store")
    assert {row["item"]: row["reason"] for row in rows_of(version, "rejects")} == {
        "../../up": "bad_value", "a..": "bad_value"
    }  # fmt: skip
    assert [row["instrumental"] for row in rows_of(version, "tracks")] == ["audio/ne/fine_instrumental.flac"]
    embedded = build_separated(config_of(folder), tmp_path / "store")
    assert {row["track_id"] for row in rows_of(embedded, "tracks")} == {"../../up", "a..", "fine"}


def test_jamendos_files_are_named_by_their_number(tmp_path: Path) -> None:
    header = "TRACK_ID\tARTIST_ID\tALBUM_ID\tPATH\tDURATION\tTAGS"
    song(tmp_path / "low/14/214.low.mp3", 1, format="MP3")
    song(tmp_path / "low/85/214.low.mp3", 2, format="MP3")
    lines = [header, *(f"track_{n}\tartist_1\talbum_1\t{path}\t1\tgenre---rock" for n, path in
                       (("0000214", "14/214.mp3"), ("0000285", "85/214.mp3")))]  # fmt: skip
    (tmp_path / "list.tsv").write_text("\r\n".join(lines))
    source = {"format": "mtg-jamendo", "tracks": "list.tsv", "audio_root": "low/{stem}.low.mp3"}
    version = build_separated(
        config_of(tmp_path, source=source, output={"keep": "files", "codec": "mp3"}), tmp_path / "s"
    )
    assert [row["instrumental"] for row in rows_of(version, "tracks")] == ["audio/14/214_instrumental.mp3"]
    assert [row["reason"] for row in rows_of(version, "rejects")] == ["duplicate_id"]


# -- inputs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "csv.gz"])
def test_tables_of_tracks(tmp_path: Path, ending: str) -> None:
    song(tmp_path / "a b.wav", 1)
    song(tmp_path / "c.ogg", 2)
    rows = [
        {"track_id": "1", "audio": "a b.wav", "artist_id": "x", "album_id": "", "tags": "Rock; genre---punk;Rock"},
        {"track_id": "2", "audio": "c.ogg", "artist_id": "", "album_id": "al", "tags": ""},
        {"track_id": "2", "audio": "c.ogg", "artist_id": "", "album_id": "", "tags": ""},
        {"track_id": "3", "audio": "../d.wav", "artist_id": "", "album_id": "", "tags": ""},
        {"track_id": "4", "audio": "gone.wav", "artist_id": "", "album_id": "", "tags": "genre---"},
        {"track_id": "5", "audio": "gone.wav", "artist_id": "", "album_id": "", "tags": ""},
    ]
    path, frame = tmp_path / f"tracks.{ending}", pd.DataFrame(rows)
    match ending:
        case "jsonl":
            rows[0]["tags"] = ["Rock", "genre---punk"]  # type: ignore[assignment]
            write_rows(path, rows)
        case "parquet":
            frame.to_parquet(path)
        case "csv.gz":
            path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
        case _:
            frame.to_csv(path, index=False, sep="," if ending == "csv" else "\t")
    (tmp_path / "map.json").write_text(json.dumps({"genre": {"punk": "punkrock"}}))
    config = config_of(tmp_path, source={"tracks": path.name, "tag_map": "map.json"})
    version = build_separated(config, tmp_path / "store")
    found = {row["track_id"]: row for row in rows_of(version, "tracks")}
    assert set(found) == {"1", "2"}
    assert found["1"]["tags"] == ["tag---rock", "genre---punkrock"]
    assert (found["1"]["artist_id"], found["2"]["artist_id"], found["2"]["album_id"]) == ("x", None, "al")
    assert [(row["item"], row["reason"]) for row in rows_of(version, "rejects")] == [
        ("2", "duplicate_id"), ("3", "path_outside_root"), ("4", "bad_value"), ("5", "file_missing")
    ]  # fmt: skip


@pytest.mark.slow
def test_artists_keep_to_one_split(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    rows = make_tracks(folder, 12, seconds=0.3)
    shares = {"train": 0.4, "validation": 0.2, "test": 0.2, "ood": 0.2}
    version = build_separated(config_of(folder, shares=shares), tmp_path / "store")
    split = {row["track_id"]: row["split"] for row in rows_of(version, "tracks")}
    artists = {
        row["artist_id"]: {split[r["track_id"]] for r in rows if r["artist_id"] == row["artist_id"]} for row in rows
    }
    assert all(len(places) == 1 for places in artists.values())
    assert len(set(split.values())) > 1
    write_rows(folder / "tracks.jsonl", rows[::-1][:9])
    fewer = build_separated(config_of(folder, shares=shares), tmp_path / "store")
    assert all(split[row["track_id"]] == row["split"] for row in rows_of(fewer, "tracks"))


def test_bad_audio_of_every_kind_stops_nothing(tmp_path: Path) -> None:
    rows = make_tracks(tmp_path, 2)
    audio = tmp_path / "audio"
    (audio / "void.mp3").touch()
    (audio / "words.flac").write_text("words")
    (audio / "cut.wav").write_bytes(song(audio / "whole.wav", 8).read_bytes()[:20_000])
    (audio / "twin.flac").write_bytes((audio / "0000.flac").read_bytes())
    soundfile.write(audio / "nan.wav", np.full((RATE_HZ, 2), np.nan), RATE_HZ, subtype="FLOAT")
    soundfile.write(audio / "still.wav", np.zeros((RATE_HZ, 2)), RATE_HZ)
    song(audio / "blink.wav", 9, seconds=0.1)
    song(audio / "long.wav", 10, seconds=6)
    song(audio / "mono.wav", 11, channels=1)
    song(audio / "six.wav", 12, channels=6)
    (audio / "mislabelled.wav").write_bytes(song(audio / "z.mp3", 13, format="MP3").read_bytes())
    names = ["void.mp3", "words.flac", "cut.wav", "twin.flac", "nan.wav", "still.wav", "blink.wav", "long.wav",
             "mono.wav", "six.wav", "mislabelled.wav", "gone.wav"]  # fmt: skip
    write_rows(tmp_path / "tracks.jsonl", [*rows, *({"track_id": name, "audio": f"audio/{name}"} for name in names)])
    version = build_separated(config_of(tmp_path, length_s=[0.2, 5.0]), tmp_path / "store")
    assert {row["track_id"] for row in rows_of(version, "tracks")} == {"t0000", "t0001", "six.wav", "mislabelled.wav"}
    assert {row["item"]: row["reason"] for row in rows_of(version, "rejects")} == {
        "void.mp3": "file_empty", "words.flac": "file_unreadable", "cut.wav": "file_truncated",
        "twin.flac": "duplicate_audio", "nan.wav": "file_corrupt", "still.wav": "audio_silent",
        "blink.wav": "audio_too_short", "long.wav": "audio_too_long", "gone.wav": "file_missing",
        "mono.wav": "separation_needs_stereo",
    }  # fmt: skip
    assert all(str(tmp_path) not in row["detail"] for row in rows_of(version, "rejects"))


@pytest.mark.slow
def test_processes_of_their_own_make_the_version_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_tracks(tmp_path, 9)
    song(tmp_path / "audio/mono.wav", 11, channels=1)
    write_rows(tmp_path / "tracks.jsonl", [*rows, {"track_id": "mono", "audio": "audio/mono.wav"}])
    alone = build_separated(config_of(tmp_path), tmp_path / "alone")
    monkeypatch.setattr(separated, "CHUNK_S", 2.0)
    monkeypatch.setattr(separated, "cores_at_once", lambda: 3)
    seen: list[int] = []

    class Watched(SeparatingProcesses):
        def __init__(self, count: int) -> None:
            super().__init__(count)
            seen.append(count)

    monkeypatch.setattr(separated, "SeparatingProcesses", Watched)
    spread = build_separated(config_of(tmp_path), tmp_path / "spread")
    assert seen == [3]
    assert {row["item"]: row["reason"] for row in rows_of(spread, "rejects")} == {"mono": "separation_needs_stereo"}
    assert contents_of(spread.folder) == contents_of(alone.folder)


def test_names_of_kept_files_are_on_the_disk_before_their_step_counts_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tracks(tmp_path, 12)
    synced: dict[str, int] = {}  # folders, with the files in them at their last sync before the step's end
    fsync = os.fsync

    def watched(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.parent.name == "audio" and not list((tmp_path / "store").rglob("steps/tracks.output")):
            synced[path.name] = len(list(path.iterdir()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    version = build_separated(config_of(tmp_path, output={"keep": "files"}), tmp_path / "store")
    folders = {folder.name: len(list(folder.iterdir())) for folder in (version.folder / "audio").iterdir()}
    assert len(folders) > 1
    assert synced == folders


def test_a_list_without_usable_tracks_is_an_empty_version(tmp_path: Path) -> None:
    write_rows(tmp_path / "tracks.jsonl", [{"track_id": "1", "audio": "gone.wav"}])
    version = build_separated(config_of(tmp_path), tmp_path / "store")
    assert version.manifest.rows["tracks"] == {"train": 0}
    assert verify(version) == []


def test_a_trial_takes_the_first_tracks(tmp_path: Path) -> None:
    make_tracks(tmp_path, 5)
    version = build_separated(config_of(tmp_path).model_copy(update={"limit": 2}), tmp_path / "store")
    assert {row["track_id"] for row in rows_of(version, "tracks")} == {"t0000", "t0001"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"output": {"codec": "aac"}}, "output.codec"),
        ({"output": {"crop_s": 0}}, "output.crop_s"),
        ({"source": {"format": "spotify"}}, "source.format"),
        ({"shares": {"train": 0.5}}, "shares that add up to 1"),
        ({"length_s": [9, 3]}, "length_s: expected the shortest length before"),
        ({"seperator": {}}, "did you mean 'separator'"),
    ],
)
def test_bad_configs_are_one_line(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, **values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tracks.jsonl: file not found"):
        build_separated(config_of(tmp_path), tmp_path / "store")
    make_tracks(tmp_path, 1)
    for wrong in (
        {"separator": {"model": "no-such-model"}},
        {"separator": {"model": "gone.ckpt", "config": "gone.yaml"}},
    ):
        with pytest.raises(EarmarkError) as caught:
            build_separated(config_of(tmp_path, **wrong), tmp_path / "store")
        assert len(str(caught.value).splitlines()) == 1
    (tmp_path / "leads").mkdir()
    with pytest.raises(StoreError, match="known_leads"):
        build_separated(config_of(tmp_path, known_leads="leads"), tmp_path / "store")


@pytest.mark.slow
def test_the_real_list(real: Path, tmp_path: Path) -> None:
    """All of MTG-Jamendo's rows are tracks or rejects; without audio on disk, all tracks are rejects too."""
    source = {"format": "mtg-jamendo", "tracks": str(real / "mtg-jamendo/autotagging.tsv"), "audio_root": "audio",
              "tag_map": str(real / "mtg-jamendo/tag_map.json")}  # fmt: skip
    config = config_of(tmp_path, source=source)
    lines = len((real / "mtg-jamendo/autotagging.tsv").read_bytes().splitlines()) - 1
    found = Counter(type(row) for row in listed(config))
    assert sum(found.values()) == lines
    assert found[Track] > 55_000
    song(tmp_path / "audio/14/214.mp3", 1, format="MP3")
    version = build_separated(config, tmp_path / "store")
    rows, rejects = rows_of(version, "tracks"), pq.read_table(version.files("rejects")[0])["reason"].to_pylist()
    assert [row["track_id"] for row in rows] == ["track_0000214"]
    assert len(rows) + len(rejects) == lines
    assert Counter(rejects)["file_missing"] == found[Track] - 1


def test_the_shipped_config_parses() -> None:
    path = ROOT / "deploy/configs/instrumentals.toml"
    config: Any = read_config(find_corpus("instrumentals"), path)
    assert (config.output.keep, config.source.format) == ("files", "mtg-jamendo")
