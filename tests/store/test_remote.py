"""A store in an object store: a real client against a local S3 server, killed, raced and damaged."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pytest
from typer.testing import CliRunner

pytest.importorskip("moto", reason="moto is not installed (group 'dev')")

from earmark.flows.command.cli import app
from earmark.schemas.errors import StoreError
from earmark.schemas.mos_preferences import TABLES
from earmark.tasks.release.pruning import decide, freed_bytes, prune
from earmark.tasks.store.diff import diff_table
from earmark.tasks.store.manifest import claimant_of
from earmark.tasks.store.receipts import receipts, save_receipt
from earmark.tasks.store.remote import CLAIMS, SWEEPS, Remote
from earmark.tasks.store.versions import Store, open_store, verify
from tests.builds import Builds, build_version, contents_of, read_config, receipt_of
from tests.conftest import ROOT
from tests.servers.s3_server import S3Server
from tests.store.objects import ON_EVERY_CLOUD, another_machine, bucket, kind_of, server, uncommitted
from tests.store.test_kill import CORPUS, configs, unharmed
from tests.store.test_lineage import build

__all__ = ["bucket", "configs", "server", "unharmed"]  # fixtures


@pytest.fixture
def url(server: S3Server, bucket: str) -> str:
    """An empty store's URL."""
    return f"{kind_of(server)}://{bucket}/lab/store"


def assert_whole(url: str, unharmed: Store, folder: Path) -> Store:
    """Another machine finds the same versions as in a store on disk, byte for byte, and nothing else."""
    store = another_machine(url, folder)
    assert store.remote
    for version in store.versions(CORPUS):
        assert store.remote.faults(version.manifest) == []
        found = store.find(f"{CORPUS}@{version.name}")
        assert verify(found) == []
        assert contents_of(found.folder) == contents_of(unharmed.find(f"{CORPUS}@{version.name}").folder)
    return store


@pytest.mark.slow
def test_builds_are_found_by_another_machine_and_read_where_they_lie(
    url: str, server: S3Server, configs: list[Path], unharmed: Store, tmp_path: Path
) -> None:
    here = open_store(url)
    assert here.versions(CORPUS) == []
    for config in configs:
        build_version(read_config(config), here.root)
    assert [version.name for version in open_store(url).versions(CORPUS)] == ["v1", "v2"]
    assert build_version(read_config(configs[1]), open_store(url).root).name == "v2"  # up to date

    there = assert_whole(url, unharmed, tmp_path / "there")
    assert build_version(read_config(configs[0]), there.root).name == "v1"
    old, new = there.find(f"{CORPUS}@v1"), there.find(f"{CORPUS}@v2")
    (pairs,) = [table for table in TABLES if table.name == "pairs"]
    assert any(change.added for change in diff_table(duckdb.connect(), pairs, old, new))

    import pyarrow.dataset as ds

    _, _, name, below = url.split("/", 3)
    for split, rows in there.versions(CORPUS)[0].manifest.rows["pairs"].items():
        paths = [f"{name}/{key}" for key in server.sizes(name, f"{below}/{CORPUS}/v1/pairs/{split}-")]
        assert ds.dataset(paths, filesystem=server.arrow(), format="parquet").count_rows() == rows


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, "manifest"])
def test_a_build_that_is_killed_while_it_uploads_goes_on(
    at: int | str, url: str, server: S3Server, configs: list[Path], unharmed: Store, tmp_path: Path
) -> None:
    store = open_store(url)
    child = 0
    sent: list[str] = []

    def kill(path: str) -> None:
        if "/v1/" not in path:
            return
        sent.append(path)
        if path.endswith("manifest.json") if at == "manifest" else len(sent) == int(at) + 1:
            server.on_put = lambda path: None
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            raise ConnectionAbortedError("the client was killed")

    with Builds() as builds:
        child = builds.start(configs[0], store.root)
        server.on_put = kill
        assert builds.said() == -signal.SIGKILL
        assert open_store(url).versions(CORPUS) == []  # what has no manifest is no version
        before = len(server.put)
        builds.start(configs[0], store.root)
        assert builds.said() == 0
    again = [path for path in server.put[before:] if "/v1/" in path]
    assert not set(again) & set(sent[:-1])  # what had arrived whole is not sent again
    assert [version.name for version in assert_whole(url, unharmed, tmp_path / "there").versions(CORPUS)] == ["v1"]


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False])
def test_two_committers_do_not_clobber(
    same: bool, url: str, configs: list[Path], unharmed: Store, tmp_path: Path
) -> None:
    chosen = [configs[0], configs[0] if same else configs[1]]
    copies = [(another_machine(url, tmp_path / name).root, {**os.environ}) for name in "ab"]
    command = [sys.executable, "-m", "tests.builds"]
    running = [
        subprocess.Popen([*command, str(config), str(copy)], cwd=ROOT, env=env)
        for config, (copy, env) in zip(chosen, copies, strict=True)
    ]
    assert [process.wait(timeout=200) for process in running] == [0, 0]
    store = another_machine(url, tmp_path / "there")
    assert store.remote
    versions = store.versions(CORPUS)
    assert [version.name for version in versions] == (["v1"] if same else ["v1", "v2"])
    assert len({version.manifest.build_key for version in versions}) == len(versions)
    for version in versions:
        assert store.remote.faults(version.manifest) == []


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False])
def test_a_commit_that_is_overtaken_looks_again(
    same: bool, url: str, configs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine commits between the look at the newest version and the claim of a name."""
    claim = Remote.claim
    overtaken: list[str] = []

    def late(self: Remote, corpus: str, claimant: str) -> str:
        if not overtaken:
            overtaken.append("yes")
            other = read_config(configs[0] if same else configs[1])
            overtaken.append(build_version(other, another_machine(url, tmp_path / "a").root).name)
        return claim(self, corpus, claimant)

    monkeypatch.setattr(Remote, "claim", late)
    mine = build_version(read_config(configs[0]), another_machine(url, tmp_path / "b").root)
    assert overtaken == ["yes", "v1"]
    names = [version.name for version in another_machine(url, tmp_path / "c").versions(CORPUS)]
    assert (mine.name, names) == (("v1", ["v1"]) if same else ("v2", ["v1", "v2"]))


@pytest.mark.slow
def test_damage_is_told(url: str, server: S3Server, configs: list[Path], tmp_path: Path) -> None:
    version = build_version(read_config(configs[0]), open_store(url).root)
    remote = Remote(url)
    one, two = [entry.path for entry in version.manifest.files][:2]
    _, _, name, below = url.split("/", 3)
    server.store(name, f"{below}/{CORPUS}/v1/{one}", b"x" * 10)
    server.remove(name, f"{below}/{CORPUS}/v1/{two}")
    server.store(name, f"{below}/{CORPUS}/v1/stray", b"x")
    server.store(name, f"{below}/{CORPUS}/v1/pairs/.DS_Store", b"of a file manager")
    faults = remote.faults(version.manifest)
    assert [fault.split(":")[0] for fault in faults] == [one, two, "stray"]
    with pytest.raises(StoreError, match="not what was committed"):
        another_machine(url, tmp_path / "there").find(CORPUS)
    ended = CliRunner().invoke(app, ["inspect", "verify", CORPUS, "--store", url])
    assert [line.split(":")[0] for line in ended.stdout.splitlines()] == [one, two, "stray"]


@pytest.mark.slow
def test_a_damaged_manifest_closes_its_version_alone_until_it_is_mended(
    url: str, server: S3Server, configs: list[Path], tmp_path: Path
) -> None:
    for config in configs:
        build_version(read_config(config), open_store(url).root)
    _, _, name, below = url.split("/", 3)
    key = f"{below}/{CORPUS}/v2/manifest.json"
    whole = Remote(url).files.read(f"{url}/{CORPUS}/v2/manifest.json")
    server.store(name, key, b"{")
    for folder in ("cache", "there"):  # a machine that knew the sound one, and one that has seen nothing yet
        store = another_machine(url, tmp_path / folder)
        assert verify(store.find(f"{CORPUS}@v1")) == []
        with pytest.raises(StoreError, match=rf"^{url}/{CORPUS}/v2/manifest\.json is not a valid manifest: "):
            store.find(CORPUS)
    server.store(name, key, whole)
    assert verify(open_store(url).find(CORPUS)) == []


@pytest.mark.slow
def test_no_version_of_a_bucket_goes_or_is_up_to_date_beside_a_damaged_one(
    url: str, server: S3Server, configs: list[Path]
) -> None:
    store = open_store(url)
    first, second = [build_version(read_config(config), store.root) for config in configs]
    assert [one.stays for one in decide(store, [CORPUS], 1, False)] == [None, "newest"]
    assert store.with_key(CORPUS, second.manifest.build_key) == second
    entry = next(one for one in second.manifest.files if one.table == "pairs")
    place = f"{url}/{CORPUS}/v2/{entry.path}"
    _, _, name, key = place.split("/", 3)
    for harm, found in ((lambda: server.store(name, key, b"x" * 10), "10"), (lambda: server.remove(name, key), "none")):
        harm()
        said = f"{place}: expected {entry.bytes:,} bytes, as the manifest says, found {found}; see: earmark inspect"
        for look in (
            lambda: decide(store, [CORPUS], 1, False),
            lambda: store.with_key(CORPUS, second.manifest.build_key),
        ):
            with pytest.raises(StoreError, match=re.escape(said)):
                look()
    assert store.with_key(CORPUS, first.manifest.build_key) == first
    assert decide(store, [CORPUS], 2, False), "where nothing goes, nothing is looked at"


@pytest.mark.slow
def test_a_damaged_object_of_the_version_before_is_not_copied_into_the_next(
    url: str, server: S3Server, configs: list[Path], tmp_path: Path
) -> None:
    first = build_version(read_config(configs[0]), open_store(url).root)
    _, _, name, below = url.split("/", 3)
    for entry in first.manifest.files:  # of the same size, which no reader of this machine's copy meets
        server.store(name, f"{below}/{CORPUS}/v1/{entry.path}", b"x" * entry.bytes)
    second = build_version(read_config(configs[1]), open_store(url).root)
    shared = {entry.sha256 for entry in first.manifest.files} & {entry.sha256 for entry in second.manifest.files}
    assert (second.name, bool(shared)) == ("v2", True)
    assert Remote(url).faults(second.manifest) == []


@pytest.mark.slow
def test_what_removing_frees_is_counted_in_the_bucket(url: str, configs: list[Path], tmp_path: Path) -> None:
    version = build_version(read_config(configs[0]), open_store(url).root)
    for folder in ("cache", "there"):  # with the files, and with the manifest alone
        store = another_machine(url, tmp_path / folder)
        freed = freed_bytes(store, store.versions(CORPUS))
        assert freed == sum(entry.bytes for entry in version.manifest.files)


def broken_commit(config: Path, store: Store, server: S3Server, version: str) -> None:
    """A build whose every object was sent but the manifest."""
    place = f"/{store.address.partition('://')[2]}/{CORPUS}/{version}"

    def deny(path: str) -> None:
        if path == f"{place}/report.html":  # the last but one
            server.denied = (f"{place}/manifest.json",)

    server.on_put = deny
    try:
        with pytest.raises(StoreError, match="access denied"):
            build_version(read_config(config), store.root)
    finally:
        server.on_put = lambda path: None
        server.denied = ()


@pytest.mark.slow
@pytest.mark.parametrize("at", ["README.md", "manifest.json"])
def test_a_commit_that_is_discarded_while_it_goes_on_ends_with_an_error(
    at: str, url: str, server: S3Server, configs: list[Path]
) -> None:
    store = open_store(url)
    assert store.remote
    remote = store.remote
    done: list[bool] = []

    def discarded(path: str) -> None:
        if path.endswith(f"/v1/{at}"):
            server.on_put = lambda path: None
            done.append(remote.discard(CORPUS, "v1"))

    server.on_put = discarded
    with pytest.raises(StoreError, match="discarded meanwhile; build again"):
        build_version(read_config(configs[0]), store.root)
    assert done == [True]
    assert open_store(url).versions(CORPUS) == []
    assert not remote.committed()
    assert build_version(read_config(configs[0]), store.root).name == "v2"
    assert remote.faults(open_store(url).versions(CORPUS)[0].manifest) == []
    assert set(uncommitted(server, url)) == ({f"{CORPUS}/v1"} if at == "README.md" else set())  # sent too late


@pytest.mark.slow
def test_a_commit_that_ends_before_it_is_discarded_keeps_its_files(
    url: str, server: S3Server, configs: list[Path], unharmed: Store, tmp_path: Path
) -> None:
    store = open_store(url)
    assert store.remote
    broken_commit(configs[0], store, server, "v1")
    assert set(uncommitted(server, url)) == {f"{CORPUS}/v1"}
    before = len(server.put)
    assert build_version(read_config(configs[0]), store.root).name == "v1"  # goes on, and writes only its manifest
    assert [path.rpartition("/")[2] for path in server.put[before:] if "/v1/" in path] == ["manifest.json"]
    assert not store.remote.discard(CORPUS, "v1")
    assert_whole(url, unharmed, tmp_path / "there")


@ON_EVERY_CLOUD
def test_builds_of_one_key_share_no_name_if_one_leaves_something_out(url: str) -> None:
    here, there = open_store(url).remote, open_store(url).remote
    assert here
    assert there
    assert here.claim(CORPUS, claimant_of("key", ())) == there.claim(CORPUS, claimant_of("key", ())) == "v1"
    assert there.claim(CORPUS, claimant_of("key", ("what was withdrawn",))) == "v2"


@pytest.mark.slow
def test_a_discarding_that_is_killed_is_ended_by_the_next(
    url: str, server: S3Server, configs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url)
    assert store.remote
    broken_commit(configs[0], store, server, "v1")
    before = uncommitted(server, url)
    with monkeypatch.context() as patch:
        patch.setattr(store.remote.files, "remove", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.remote.discard(CORPUS, "v1")
    assert uncommitted(server, url) == before
    assert build_version(read_config(configs[0]), store.root).name == "v2"
    assert store.remote.discard(CORPUS, "v1")
    assert uncommitted(server, url) == {}
    assert store.remote.faults(open_store(url).versions(CORPUS)[0].manifest) == []


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2])
def test_a_removal_that_is_killed_is_ended_by_the_next(
    at: int, url: str, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the files go, and before the manifest goes: no reader takes the rest for a version."""
    store = open_store(url)
    assert store.remote
    for number in range(2):
        build(store, "songs", key=f"key{number}")
    remove, calls = store.remote.files.remove, Mock()

    def killed(urls: list[str]) -> None:
        calls()
        if calls.call_count == at:
            raise KeyboardInterrupt
        remove(urls)

    with monkeypatch.context() as patch:
        patch.setattr(store.remote.files, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            prune(store, decide(store, ["songs"], 1, False))
    left = uncommitted(server, url)
    assert set(left) == ({"songs/v1"} if at == 1 else set())
    again = open_store(url)
    assert again.remote
    assert [one.name for one in again.versions("songs")] == ["v2"]
    assert again.remote.manifest_text("songs", "v1") == b""
    assert any((store.folder("songs") / "v1").iterdir()), "nothing left to remove here"
    prune(again, decide(again, ["songs"], 1, False))
    assert uncommitted(server, url) == {}
    assert not (store.folder("songs") / "v1").exists()
    assert [one.name for one in another_machine(url, tmp_path / "there").versions("songs")] == ["v2"]
    assert build(store, "songs", key="key2").name == "v3"
    prune(store, decide(store, ["songs"], 1, False))
    _, _, name, below = url.split("/", 3)
    there = [key.removeprefix(f"{below}/songs/") for key in server.sizes(name, f"{below}/songs/v")]
    assert {key.partition("/")[0] for key in there if key != "v1/manifest.json"} == {"v3"}, "a removal leaves nothing"


@pytest.mark.slow
def test_a_discarding_of_files_that_stay_ends_with_an_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = open_store(url).remote
    assert remote
    place = f"{url}/{CORPUS}/v1/data/a.parquet"
    remote.files.create(place, b"sent")
    monkeypatch.setattr(remote.files, "remove", Mock())
    with pytest.raises(StoreError, match=r"a\.parquet: is there again"):
        remote.discard(CORPUS, "v1")
    assert remote.files.remove.call_count == SWEEPS  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_commit_whose_claim_somebody_removes_ends_with_an_error(
    url: str, server: S3Server, configs: list[Path]
) -> None:
    store = open_store(url)
    assert store.remote
    remote = store.remote

    def tidied(path: str) -> None:
        if path.endswith("/v1/README.md"):
            server.on_put = lambda path: None
            remote.files.remove([one for one, _ in remote.files.listed(f"{url}/{CORPUS}/{CLAIMS}")])

    server.on_put = tidied
    with pytest.raises(StoreError, match=r"the claim to this name was removed meanwhile from \.claims/; build again"):
        build_version(read_config(configs[0]), store.root)
    assert open_store(url).versions(CORPUS) == []
    assert build_version(read_config(configs[0]), store.root).name == "v1"
    assert remote.faults(open_store(url).versions(CORPUS)[0].manifest) == []


@pytest.mark.slow
def test_what_is_deleted_there_is_no_version_here(url: str, configs: list[Path]) -> None:
    store = open_store(url)
    build_version(read_config(configs[0]), store.root)
    assert store.remote
    store.remote.files.remove([one for one, _ in store.remote.files.listed(f"{url}/{CORPUS}/v1")])
    assert open_store(url).versions(CORPUS) == []


@pytest.mark.slow
def test_what_one_machine_has_published_no_other_removes(url: str, tmp_path: Path) -> None:
    here = open_store(url)
    for number in range(4):
        build(here, "songs", key=f"key{number}")
    save_receipt(Store(here.root), receipt_of("songs", "v1"))  # as an earlier release: on this machine alone
    save_receipt(here, receipt_of("songs", "v2"))
    first = receipts(here, "songs")
    there = another_machine(url, tmp_path / "there")
    stay = {one.version.name: one.stays for one in decide(there, ["songs"], 1, True)}
    assert stay == {"v1": "published to lab/c", "v2": "published to lab/c", "v3": None, "v4": "newest"}
    save_receipt(there, receipt_of("songs", "v2"))
    assert receipts(here, "songs") == first, "expected the first of equal publications"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("ftp://bucket/store", "expected a folder, file:// or s3://bucket/prefix, gs://bucket/prefix, az://cont"),
        ("s3://key:secret@bucket/store", "without user, password"),
        ("s3://", "s3://bucket/prefix"),
        ("s3://[x", "s3://bucket/prefix"),
        ("s3://bucket/st*re", "without wildcard characters"),
    ],
)
def test_addresses_that_cannot_be(written: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as told:
        open_store(written)
    assert "secret" not in str(told.value)


@ON_EVERY_CLOUD
def test_a_store_that_cannot_be_reached_is_told_in_a_line(
    url: str, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in server.environment:
        value = os.environ[name].replace(server.url, "http://127.0.0.1:9")
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=r"cannot be reached: .*; check") as told:
        open_store(url)
    assert "\n" not in str(told.value)


@ON_EVERY_CLOUD
def test_a_bucket_that_is_not_there_or_closed_is_told_at_once(url: str, server: S3Server) -> None:
    with pytest.raises(StoreError, match=r"expected a (bucket|container) 'not-there', found none"):
        open_store(f"{kind_of(server)}://not-there/store")
    server.denied = (f"/{url.split('/')[2]}",)
    try:
        with pytest.raises(StoreError, match=r"access denied \(403 Forbidden.*\); check") as told:
            open_store(url)
        assert "\n" not in str(told.value)
    finally:
        server.denied = ()
