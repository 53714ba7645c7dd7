"""Inputs behind URLs: every corpus reads them as it reads files, and only what it needs, once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto", reason="moto is not installed (group 'dev')")

from earmark.flows.command.running import forecast_build
from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.places import place_of, url_of
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.mos_preferences import sources
from earmark.tasks.pipeline import media, preflight
from earmark.tasks.pipeline.inputs import digest_inputs
from earmark.tasks.pipeline.mirror import bring, bring_first, bring_folder, present
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store import bucket_objects
from earmark.tasks.store.objects import BLOCK_BYTES
from earmark.tasks.store.versions import Store, open_store
from tests.builds import Builds, build_version, config_of, contents_of, rows_of
from tests.conftest import ROOT
from tests.human_preferences.votes import build_votes
from tests.pseudo_preferences.music import write_clip
from tests.servers.s3_server import S3Server
from tests.store.objects import bucket, put, server

__all__ = ["bucket", "server"]  # fixtures

DEMO = ROOT / "data" / "demo"
COLUMNS = {"file": "f", "mos": "m", "system": "s"}


def demo_config(name: str, base: str | None) -> Any:
    """A config of the demo; with a base, its inputs lie behind that URL."""
    path = DEMO / f"{name}.toml"
    values = read_toml(path)
    config = parse_config(find_corpus(values["corpus"]).config, values, path)
    return config if base is None else config.model_copy(update={"base": Path(base)})


def digests(config: Any, store: Path) -> dict[str, str]:
    """What a corpus's build finds of its inputs."""
    return digest_inputs(find_corpus(config.corpus), config, open_store(str(store)))


@pytest.fixture(scope="module")
def demo(server: S3Server) -> str:
    """The URL of a copy of the demo's inputs."""
    server.make("demo")
    return put(server, "demo", DEMO, "inputs")


def table_of(url: str, **source: Any) -> MosPreferences:
    """A config whose one source is a table behind a URL."""
    given = {"name": "lab", "format": "table", "root": url, "files": {"train": "rows.csv"}, "columns": COLUMNS}
    return config_of(Path("/"), {**given, **source}, audio="index")


def make_clips(folder: Path, count: int) -> list[str]:
    """Clips `audio/c0.wav`, …, and a table `rows.csv` that names the first three."""
    names = [f"audio/c{number}.wav" for number in range(count)]
    for number, name in enumerate(names):
        write_clip(folder / name, number)
    (folder / "rows.csv").write_text("f,m,s\n" + "".join(f"{n},{2 + i},s{i}\n" for i, n in enumerate(names[:3])))
    return names


QUICK = ("instrumentals", "captions", "music-prompts")


@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (*corpora(), "mos-preferences-audio")
            if name not in QUICK
        ),
    ],
)
def test_inputs_behind_urls_are_those_of_the_disk(name: str, demo: str, bucket: str, tmp_path: Path) -> None:
    there, here = demo_config(name, demo), demo_config(name, None)
    assert digests(there, tmp_path / "store") == digests(here, tmp_path / "store")


def test_a_folder_of_transcripts_behind_a_url_is_brought(bucket: str, server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "omr").mkdir()
    (tmp_path / "omr" / f"{'a' * 64}.abc").write_text("X:1")
    places = str(tmp_path / "omr"), put(server, bucket, tmp_path / "omr", "omr")
    here, there = (demo_config("score-questions", None).model_copy(update={"transcripts": one}) for one in places)
    assert digests(there, tmp_path / "store") == digests(here, tmp_path / "store")


@pytest.mark.slow
def test_a_version_is_the_same_from_urls_and_from_files(
    demo: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARMARK_SALT", "s" * 64)
    built = [
        build_version(demo_config("mos-preferences-audio", base), tmp_path / str(number))
        for number, base in enumerate((None, demo))
    ]
    votes = [
        build_votes(demo_config("human-preferences", base), tmp_path / str(number))
        for number, base in enumerate((None, demo))
    ]
    for here, there in (built, votes):
        assert there.manifest.rows
        assert contents_of(there.folder) == contents_of(here.folder)


@pytest.mark.slow
def test_only_what_is_named_is_fetched_and_once(bucket: str, server: S3Server, tmp_path: Path) -> None:
    names = make_clips(tmp_path / "lab", 20)
    url = put(server, bucket, tmp_path / "lab", "a/lab")
    config, store = table_of(url), tmp_path / "store"
    before = len(server.read)
    version = build_version(config, store)
    wanted = {f"/{bucket}/a/lab/{name}" for name in ("rows.csv", *names[:3])}
    assert sorted(server.read[before:]) == sorted(wanted)
    assert [row["source_file"] for row in rows_of(version, "ratings")] == ["lab/rows.csv"] * 3

    before = len(server.read)
    assert build_version(config, store).name == "v1"
    assert server.read[before:] == []

    write_clip(tmp_path / "lab" / names[1], 99)
    (tmp_path / "lab" / names[2]).unlink()
    server.store(bucket, f"a/lab/{names[1]}", (tmp_path / "lab" / names[1]).read_bytes())
    server.remove(bucket, f"a/lab/{names[2]}")
    before = len(server.read)
    second = build_version(config, store)
    assert server.read[before:] == [f"/{bucket}/a/lab/{names[1]}"]
    assert second.name == "v2"
    assert [(row["item"], row["reason"]) for row in rows_of(second, "rejects")] == [(names[2], "file_missing")]


def test_a_dry_run_fetches_a_sample_of_the_clips(
    bucket: str, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room, name, count in ((media, "SAMPLE", 4), (sources, "SAMPLE", 4), (preflight, "CLIPS", 2)):
        monkeypatch.setattr(room, name, count)
    names = make_clips(tmp_path / "lab", 12)
    (tmp_path / "lab/rows.csv").write_text(
        "f,m,s\n" + "".join(f"{name},{1 + n % 5},s\n" for n, name in enumerate(names))
    )
    url = put(server, bucket, tmp_path / "lab", "dry")
    path = tmp_path / "my.toml"
    path.write_text(
        f'audio = "index"\n[[sources]]\nname = "lab"\nformat = "table"\nroot = "{url}"\nscale = [1, 5]\n'
        'files = { train = "rows.csv" }\ncolumns = { file = "f", mos = "m", system = "s" }\n'
    )
    before = len(server.read)
    facts = forecast_build("mos-preferences", path, Store(tmp_path / "store"))
    fetched = sum(name.endswith(".wav") for name in server.read[before:])
    assert 4 <= fetched <= 4 + 2
    assert facts["clips"]["measured"] == 4
    assert facts["clips"]["unfetched"] == 12 - fetched
    assert sum(facts["tables"]["ratings"]["rows"].values()) == 12


def test_tables_may_name_clips_by_their_urls(bucket: str, server: S3Server, tmp_path: Path) -> None:
    names = make_clips(tmp_path / "lab", 2)
    url = f"s3://{bucket}/lab"
    rows = [f"{url}/{names[0]}", names[1], "s3://elsewhere/x.wav", f"{url}/../x.wav"]
    (tmp_path / "lab" / "rows.csv").write_text("f,m,s\n" + "".join(f"{n},{i + 1},s\n" for i, n in enumerate(rows)))
    put(server, bucket, tmp_path / "lab", "lab")
    files = {"train": f"{url}/rows.csv"}
    version = build_version(table_of(url, root=None, audio_root=url, files=files), tmp_path / "store")
    assert {row["file"] for row in rows_of(version, "ratings")} == set(names[:2])
    refused = rows_of(version, "rejects")
    assert [(row["line"], row["reason"]) for row in refused] == [(4, "path_outside_root"), (5, "path_outside_root")]
    assert {row["file"] for row in refused} == {f"lab/{url}/rows.csv"}
    assert [row["detail"].partition("found ")[2] for row in refused] == [f"'{name}'" for name in rows[2:]]


def test_the_first_that_is_there(bucket: str, server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    for name in ("a.wav", "c"):
        (tmp_path / "some" / name).write_bytes(name.encode())
    folder = place_of(put(server, bucket, tmp_path / "some"))
    choices = [[folder / stem, folder / f"{stem}.wav"] for stem in "abc"]
    bring_first(choices)
    assert [path.name for path in sorted(folder.iterdir())] == ["a.wav", "c"]
    assert present(folder, ["a.wav", "b.wav", "c", "n" * 2000]) == {"a.wav", "c"}
    bring([folder / ("n" * 300), folder / ("n" * 2000)])  # what no disk can hold is not there


@pytest.mark.slow
def test_a_folder_follows_its_objects(bucket: str, server: S3Server, tmp_path: Path) -> None:
    for name in ("x/one.json", "x/y/two.json", "x/sound.wav", "xx/other.json"):
        (tmp_path / "some" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "some" / name).write_bytes(b"{}")
    url = put(server, bucket, tmp_path / "some")
    folder = place_of(f"{url}/x")
    bring_folder(folder, lambda name: name.endswith(".json"))
    assert sorted(contents_of(folder)) == ["one.json", "y/two.json"]
    server.remove(bucket, "x/y/two.json")
    bring_folder(folder, lambda name: name.endswith(".json"))
    assert [path.name for path in folder.iterdir()] == ["one.json"]
    bring_folder(folder / "one.json")  # a file's own path
    assert [path.name for path in folder.iterdir()] == ["one.json"]
    server.remove(bucket, "x/one.json")
    server.remove(bucket, "x/sound.wav")
    bring_folder(folder)
    assert not folder.exists()


@pytest.mark.slow
def test_two_builds_may_bring_one_folder(
    bucket: str, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some" / "x").mkdir(parents=True)
    for name in ("x/one", "x/two"):
        (tmp_path / "some" / name).write_text(name)
    url = put(server, bucket, tmp_path / "some")
    one, two = place_of(f"{url}/x/one"), place_of(f"{url}/x/two")
    bring([one])
    server.remove(bucket, "x/one")

    remove = Path.rmdir

    def late(folder: Path) -> None:
        if folder == one.parent:
            bring([two])  # another build, between the look and the removal
        remove(folder)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Path, "rmdir", late)
        bring([one])
    assert [path.name for path in one.parent.iterdir()] == ["two"]

    def gone(path: str) -> None:
        two.parent.rmdir()  # another build, while the object comes

    two.unlink()
    server.on_read = gone
    try:
        bring([two])
    finally:
        server.on_read = lambda path: None
    assert two.read_text() == "x/two"


def test_the_record_can_lie_on_a_disk_that_machines_share(bucket: str, server: S3Server, tmp_path: Path) -> None:
    make_clips(tmp_path / "lab", 3)
    folder = place_of(put(server, bucket, tmp_path / "lab", "lab"))
    kept = tmp_path / "cache" / "inputs" / "objects.sqlite"
    bring_folder(folder, lambda name: name == "rows.csv")
    with closing(sqlite3.connect(kept)) as reader:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("delete",)  # a log of writes ahead is one machine's
        reader.execute("PRAGMA journal_mode = WAL")  # as it was once
    bring_folder(folder)
    with closing(sqlite3.connect(kept)) as reader:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert reader.execute("SELECT count(*) FROM objects").fetchone() == (4,)


@pytest.mark.slow
def test_a_large_object_goes_on_where_it_was_killed(bucket: str, server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    text = "f,m,s\n" + "".join(f"c{i:07}.wav,{1 + i % 5},s{i % 9}\n" for i in range(1_200_000))
    (tmp_path / "lab" / "rows.csv").write_text(text)
    url = put(server, bucket, tmp_path / "lab")
    source = {"name": "lab", "format": "table", "root": url, "files": {"train": "rows.csv"}}
    source |= {"columns": {"file": "f", "mos": "m", "system": "s"}}
    config = tmp_path / "build.json"  # as `earmark.build` keeps values with a limit
    config.write_text(json.dumps({"base": str(tmp_path), "config": {"limit": 100, "sources": [source]}}))
    child = 0

    def kill(path: str) -> None:
        if len(server.read) - before == 2:
            server.on_read = lambda path: None
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            raise ConnectionAbortedError("the client was killed")

    with Builds() as builds:
        before = len(server.read)
        server.on_read = kill
        child = builds.start(config, tmp_path / "store")
        assert builds.said() == -signal.SIGKILL
        (part,) = (tmp_path / "cache" / "inputs" / ".parts").iterdir()
        assert BLOCK_BYTES <= part.stat().st_size < len(text)
        assert not place_of(f"{url}/rows.csv").exists()
        before, held = len(server.read), part.stat().st_size
        builds.start(config, tmp_path / "store")
        assert builds.said() == 0
    assert server.ranges[before:][0].startswith(f"bytes={(held - 1) // BLOCK_BYTES * BLOCK_BYTES}-")
    assert place_of(f"{url}/rows.csv").read_text() == text
    assert list((tmp_path / "cache" / "inputs" / ".parts").iterdir()) == []


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("s3://key:geheim@bucket/lab", "without user and password"),
        ("https://key:geheim@host/lab", "without user and password"),
        ("s3://bucket/lab?versionId=geheim", "without user, password or query"),
        ("ftp://bucket/lab", "expected a path, s3://bucket/key, gs://bucket/key, az://.* found a ftp:// URL"),
        ("s3://", "expected s3://bucket/key"),
        ("s3://bucket/../lab", "without empty parts"),
    ],
)
def test_urls_that_cannot_be(written: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as told:
        build_version(table_of(written), tmp_path / "store")
    assert "geheim" not in str(told.value)


def test_what_cannot_be_had_is_one_line(bucket: str, server: S3Server, tmp_path: Path) -> None:
    for url, said in (
        (f"s3://{bucket}/lab", rf"lab/rows.csv \(s3://{bucket}/lab/rows.csv\): file not found"),
        ("s3://not-there/lab", "s3://not-there: expected a bucket 'not-there', found none"),
    ):
        with pytest.raises(InputError, match=said):
            build_version(table_of(url), tmp_path / "store")
    make_clips(tmp_path / "lab", 3)
    put(server, bucket, tmp_path / "lab", "lab")
    server.denied = (f"/{bucket}/lab/audio/c1",)
    try:
        with pytest.raises(InputError, match=r"s3://.*c1.wav: access denied \(403 Forbidden\); check the keys") as told:
            build_version(table_of(f"s3://{bucket}/lab"), tmp_path / "store")
        assert "\n" not in str(told.value)
    finally:
        server.denied = ()
    assert not (tmp_path / "store" / "mos-preferences").exists()


@pytest.mark.slow
def test_a_connection_that_breaks_is_one_line_and_what_came_is_kept(
    bucket: str, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bucket_objects.RETRIES, "max_retries", 1)
    content = bytes(3 * BLOCK_BYTES)
    server.store(bucket, "dump.zst", content)
    path = place_of(f"s3://{bucket}/dump.zst")

    def cut(_: str) -> None:
        server.cut = (f"/{bucket}/dump.zst",) if server.read.count(f"/{bucket}/dump.zst") > 2 else ()

    server.on_read = cut
    with pytest.raises(InputError, match=r"dump.zst: cannot be reached: ") as told:
        bring([path])
    assert "\n" not in str(told.value)
    assert not path.exists()
    server.on_read, server.cut = (lambda path: None), ()
    before = len(server.ranges)
    bring([path])
    assert path.read_bytes() == content
    assert not any(asked.startswith("bytes=0-") for asked in server.ranges[before:])


def test_files_of_this_machine_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    assert url_of(tmp_path / "one") is None
    bring([tmp_path / "one", tmp_path / "two"])
    bring_folder(tmp_path)
    assert (tmp_path / "one").read_text() == "1"
