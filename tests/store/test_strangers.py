"""A store that a stranger made: its manifests, records and addresses cannot write, read or send where they like."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from earmark.schemas.errors import StoreError
from earmark.schemas.places import BelowPath
from earmark.tasks.store.manifest import MANIFEST
from earmark.tasks.store.receipts import receipts
from earmark.tasks.store.remote import ADDRESS, Remote
from earmark.tasks.store.runs import list_runs
from earmark.tasks.store.versions import Store, Version, open_store, verify
from earmark.tasks.store.withdrawals import bring_withdrawals, withdrawals
from tests.builds import contents_of
from tests.store.objects import another_machine, bucket, put, server
from tests.store.test_lineage import build

__all__ = ["bucket", "server"]  # fixtures

PIECES = st.sampled_from(["..", ".", "", "a", "pairs", "/", "\\", "\x00", "\n", "~", "C:", "é", "a" * 300, "\ud800"])
WRITTEN = st.one_of(st.lists(PIECES, max_size=6).map("/".join), st.text(max_size=20))
OUTSIDE = [
    "../../../secret.txt",
    "/etc/passwd",
    "pairs/../../x",
    "./x",
    "pairs//x",
    "",
    "pairs/\x00",
    "..\\..\\x",
    "..",
]


@given(WRITTEN)
def test_a_path_that_is_taken_stays_below_any_folder(written: str) -> None:
    try:
        path = TypeAdapter(BelowPath).validate_python(written)
    except ValidationError:
        return
    joined = Path("/a/b/c") / path
    assert joined.parts[: len(("/", "a", "b", "c"))] == ("/", "a", "b", "c")
    assert ".." not in joined.parts
    assert str(joined) == f"/a/b/c/{path}"
    assert PurePosixPath(path).as_posix() == path


@pytest.fixture
def songs(tmp_path: Path) -> Version:
    return build(Store(tmp_path / "lab" / "store"), "songs")


def rewrite(manifest: Path, **values: Any) -> None:
    """Change a manifest, and of its first file the path, if that is given."""
    held = json.loads(manifest.read_text("utf-8"))
    if "path" in values:
        held["files"][0]["path"] = values.pop("path")
    manifest.write_text(json.dumps(held | values), "utf-8")


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_manifest_that_names_files_outside_its_version_is_refused(path: str, songs: Version) -> None:
    rewrite(songs.folder / MANIFEST, path=path)
    with pytest.raises(StoreError, match="not a valid manifest") as refused:
        verify(Version("songs", songs.folder))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("values", [{"corpus": "../songs"}, {"version": "v1/../../.."}, {"version": "v1\n"}])
def test_a_manifest_that_names_another_place_is_refused(values: dict[str, str], songs: Version) -> None:
    rewrite(songs.folder / MANIFEST, **values)
    with pytest.raises(StoreError, match="not a valid manifest"):
        verify(Version("songs", songs.folder))


@pytest.mark.parametrize("part", ["file", "folder"])
def test_a_link_in_a_version_is_neither_read_nor_called_as_committed(part: str, songs: Version, tmp_path: Path) -> None:
    (file, *_) = songs.files("clips")
    moved = file if part == "file" else file.parent
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")
    assert any("found a link" in fault for fault in verify(songs))
    with pytest.raises(StoreError, match="found a link"):
        songs.files("clips")


def test_records_that_name_other_files_are_refused(songs: Version) -> None:
    root = songs.folder.parents[1]
    store = Store(root)
    for folder, content, read in (
        (root / "runs", {"run": "../../x"}, lambda: list_runs(store)),
        (root / "withdrawals", {"act": "../../x"}, lambda: withdrawals(root)),
        (root / "songs" / "published", {"version": "v1/../.."}, lambda: receipts(store, "songs")),
    ):
        folder.mkdir(exist_ok=True)
        (folder / "a.json").write_text(json.dumps(content), "utf-8")
        with pytest.raises(StoreError, match="is not a"):
            read()


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.slow
def test_an_object_store_writes_nothing_outside_its_copy(
    bucket: str, server: Any, songs: Version, tmp_path: Path
) -> None:
    """Its keys may be anything: a corpus that is `..`, a version that is none, a manifest that names other places."""
    store = songs.folder.parents[1]
    url = put(server, bucket, store, "store")
    text = (songs.folder / MANIFEST).read_bytes()
    server.store(bucket, "store/../v1/manifest.json", text)
    with pytest.raises(StoreError, match=r"expected names without empty parts, '\.', '\.\.' and") as refused:
        open_store(url)
    assert "\n" not in str(refused.value)
    server.remove(bucket, "store/../v1/manifest.json")
    for key in ("songs/v1x/manifest.json", "-/v2/manifest.json"):
        server.store(bucket, f"store/{key}", text)
    before = everything(tmp_path)
    seen = another_machine(url, tmp_path / "there")
    assert [(one.corpus, one.name) for one in seen.versions("songs")] == [("songs", "v1")]
    assert verify(seen.find("songs")) == []
    rewrite(songs.folder / MANIFEST, path="../../../../.bashrc")
    server.store(bucket, f"store/songs/v2/{MANIFEST}", (songs.folder / MANIFEST).read_bytes())
    again = another_machine(url, tmp_path / "there")
    with pytest.raises(StoreError, match=r"not a valid manifest: files\.0\.path"):
        verify(again.find("songs@v2"))
    assert verify(again.find("songs@v1")) == []
    assert {path for path in everything(tmp_path) - before if not path.startswith("there")} == set()
    server.store(bucket, "store/withdrawals/...json", b"{}")
    bring_withdrawals(seen.root, Remote(url))
    assert (seen.root / "withdrawals" / "...json").is_file()


def test_an_address_in_a_copied_folder_sends_and_deletes_nothing(
    bucket: str, songs: Version, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = songs.folder.parents[1]
    before, sent = contents_of(store), len(server.put)
    (store / ADDRESS).write_text(f"s3://{bucket}/theirs\n", "utf-8")
    with pytest.raises(StoreError, match=r"\.remote sends what is built here to 's3://.*remove the file"):
        open_store(str(store))
    (store / ADDRESS).unlink()
    assert contents_of(store) == before
    assert len(server.put) == sent
    assert [one.name for one in open_store(str(store)).versions("songs")] == ["v1"]


def test_the_copy_that_this_machine_made_still_names_its_store(bucket: str, server: Any, songs: Version) -> None:
    url = put(server, bucket, songs.folder.parents[1], "store")
    copy = open_store(url)
    assert open_store(str(copy.root)).address == url


@pytest.mark.slow
def test_what_is_gone_in_the_object_store_is_kept_here(bucket: str, server: Any, songs: Version) -> None:
    url = put(server, bucket, songs.folder.parents[1], "store")
    copy = open_store(url)
    version = copy.find("songs")
    text = (version.folder / MANIFEST).read_bytes()
    assert copy.remote
    server.remove(bucket, f"store/songs/v1/{MANIFEST}")
    assert open_store(url).versions("songs") == []
    assert (copy.root / "songs" / "v1.gone").read_bytes() == text
    assert version.path(version.manifest.files[0]).is_file()
    put(server, bucket, songs.folder.parents[1], "store")
    assert verify(open_store(url).find("songs")) == []
