"""A store in Amazon's, Google's and Azure's buckets: whoever is killed or meets another, each name has one version."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="moto is not installed (group 'dev')")

import pyarrow.dataset as ds

from earmark.schemas.errors import StoreError
from earmark.tasks.store.bucket_objects import BucketObjects
from earmark.tasks.store.objects import BLOCK_BYTES, at_once
from earmark.tasks.store.versions import open_store, verify
from tests.servers.s3_server import S3Server
from tests.store.objects import ON_EVERY_CLOUD, another_machine, bucket, kind_of, server, uncommitted
from tests.store.test_lineage import build

__all__ = ["bucket", "server"]  # fixtures

pytestmark = ON_EVERY_CLOUD
PROCESSES = multiprocessing.get_context("forkserver")  # without the threads of this process's clients


@pytest.fixture
def url(server: S3Server, bucket: str) -> str:
    """An empty store's URL."""
    return f"{kind_of(server)}://{bucket}/lab/store"


def build_songs(url: str, environment: dict[str, str], key: str) -> None:
    """Build a version, as a process of its own."""
    os.environ.update(environment)
    build(open_store(url), "songs", key=key)


def started(url: str, cache: Path, key: str = "key") -> multiprocessing.process.BaseProcess:
    """A process, on a machine of its own, that builds a version."""
    PROCESSES.set_forkserver_preload([build_songs.__module__])
    process = PROCESSES.Process(target=build_songs, args=(url, {**os.environ, "EARMARK_CACHE": str(cache)}, key))
    process.start()
    return process


def ended(process: multiprocessing.process.BaseProcess) -> int | None:
    """The exit status of a process, once it has one."""
    process.join(120)
    return process.exitcode


def test_of_several_who_create_an_object_one_does(url: str) -> None:
    writers = [BucketObjects(url.partition(":")[0], StoreError) for _ in range(8)]
    tries = [(number, writer) for number in range(10) for writer in range(8)]
    made = at_once(lambda one: writers[one[1]].create(f"{url}/{one[0]}", b"%d" % one[1]), tries)
    winners = [one for one, was in zip(tries, made, strict=True) if was]
    assert Counter(number for number, _ in winners) == dict.fromkeys(range(10), 1)
    assert [writers[0].read(f"{url}/{number}") for number, _ in winners] == [b"%d" % writer for _, writer in winners]
    assert not writers[0].create(f"{url}/0", b"")


def test_bytes_of_one_state_come_whole_and_a_replaced_object_is_told(
    url: str, server: S3Server, bucket: str, tmp_path: Path
) -> None:
    objects, content = BucketObjects(url.partition(":")[0]), bytes(range(256)) * (BLOCK_BYTES // 256) + b"end"
    (tmp_path / "sent").write_bytes(content)
    place = f"{url}/a/ä +%20.bin"
    objects.send(tmp_path / "sent", place, "hash")
    objects.copy(place, f"{url}/a/copy")
    assert objects.sha256(f"{url}/a/copy") == (len(content), "hash")
    assert server.sizes(bucket, "lab/store/a/") == {f"lab/store/a/{n}": len(content) for n in ("ä +%20.bin", "copy")}
    (state,), listed = objects.look([place]), dict(objects.listed(f"{url}/a"))
    assert listed[place] == state
    assert b"".join(objects.blocks(place, 0, state)) == content
    assert b"".join(objects.blocks(place, BLOCK_BYTES, state)) == b"end"
    server.store(bucket, "lab/store/a/ä +%20.bin", content[::-1])
    with pytest.raises(FileNotFoundError):
        next(objects.blocks(place, BLOCK_BYTES, state))
    assert objects.look([f"{url}/a/none", f"{url}/a/\t"]) == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, "manifest"])
def test_a_build_that_is_killed_while_it_puts_goes_on(
    at: int | str, url: str, server: S3Server, bucket: str, tmp_path: Path
) -> None:
    child: list[int] = []
    sent: list[str] = []

    def kill(path: str) -> None:
        if "/v1/" not in path:
            return
        sent.append(path)
        if path.endswith("manifest.json") if at == "manifest" else len(sent) == int(at) + 1:
            server.on_put = lambda path: None
            os.kill(child[0], signal.SIGKILL)
            raise ConnectionAbortedError("the client was killed")

    server.on_put = kill
    process = started(url, tmp_path / "a")
    child.append(process.pid or 0)
    assert ended(process) == -signal.SIGKILL
    assert open_store(url).versions("songs") == []
    before = len(server.put)
    assert ended(started(url, tmp_path / "a")) == 0
    again = [path for path in server.put[before:] if "/v1/" in path]
    assert not set(again) & set(sent[:-1])  # what had arrived whole is not sent again
    store = another_machine(url, tmp_path / "there")
    assert store.remote
    version = store.find("songs")
    assert (version.name, verify(version), store.remote.faults(version.manifest)) == ("v1", [], [])
    clips = [f"{bucket}/{key}" for key in server.sizes(bucket, "lab/store/songs/v1/clips/")]
    rows = sum(version.manifest.rows["clips"].values())
    assert ds.dataset(clips, filesystem=server.arrow(), format="parquet").count_rows() == rows


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False])
def test_two_writers_do_not_clobber(same: bool, url: str, tmp_path: Path) -> None:
    running = [started(url, tmp_path / name, "key" if same else name) for name in "ab"]
    assert [ended(process) for process in running] == [0, 0]
    store = another_machine(url, tmp_path / "there")
    assert store.remote
    versions = store.versions("songs")
    assert [version.name for version in versions] == (["v1"] if same else ["v1", "v2"])
    assert len({version.manifest.build_key for version in versions}) == len(versions)
    for version in versions:
        assert store.remote.faults(version.manifest) == []


@pytest.mark.slow
def test_what_is_discarded_while_it_is_sent_is_no_version(url: str, server: S3Server) -> None:
    store = open_store(url)
    assert store.remote
    remote, done = store.remote, list[bool]()

    def discarded(path: str) -> None:
        if path.endswith("/v1/manifest.json"):
            server.on_put = lambda path: None
            done.append(remote.discard("songs", "v1"))

    server.on_put = discarded
    with pytest.raises(StoreError, match="discarded meanwhile; build again"):
        build(store, "songs")
    assert done == [True]
    assert not remote.committed()
    assert uncommitted(server, url) == {}
    store.refresh()
    assert build(store, "songs").name == "v2"
    assert remote.faults(store.find("songs").manifest) == []
