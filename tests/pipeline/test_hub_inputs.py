"""Inputs on the Hub: read over HTTP from a server that speaks its protocol, at the commit that a revision names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from earmark.flows.mos_preferences import build
from earmark.schemas.errors import ConfigError, InputError, StoreError
from earmark.schemas.mos_preferences import CORPUS, MosPreferences
from earmark.schemas.places import hub_parts, place_of, url_fault, url_of
from earmark.tasks.pipeline.flow import build_version as whole_build
from earmark.tasks.pipeline.mirror import bring, bring_first, bring_folder, hub_commits, present
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.release.withdrawal import search, withdraw
from earmark.tasks.store.objects import BLOCK_BYTES
from earmark.tasks.store.versions import Version, open_store
from tests.builds import build_version, config_of, rows_of
from tests.pseudo_preferences.music import write_clip
from tests.servers.hub import READER, WRITER, HubServer

REPO = "lab/study"
HERE = f"hf://datasets/{REPO}"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub with one data set, and a cache of its own."""
    with HubServer(tmp_path / "hub") as server:
        for name, value in {
            "HF_ENDPOINT": server.endpoint,
            "HF_TOKEN": WRITER,
            "EARMARK_CACHE": str(tmp_path / "cache"),
        }.items():
            monkeypatch.setenv(name, value)
        HfApi(endpoint=server.endpoint).create_repo(REPO, repo_type="dataset")
        yield server


def bytes_at(url: str) -> bytes | None:
    """What the place of a URL holds once it was brought."""
    path = place_of(url)
    bring([path])
    return path.read_bytes() if path.is_file() else None


def study(folder: Path) -> dict[str, bytes | None]:
    """A table and its clips, by their paths; they lie in the folder too."""
    names = [f"audio/c{number}.wav" for number in range(4)]
    for number, name in enumerate(names):
        write_clip(folder / name, number)
    rows = "f,m,s\n" + "".join(f"{name},{2 + i % 3},s{i % 2}\n" for i, name in enumerate(names))
    (folder / "rows.csv").write_text(rows)
    return {name: (folder / name).read_bytes() for name in ("rows.csv", *names)}


def tables_of(version: Version) -> dict[str, str]:
    """The SHA-256 of a version's files of tables, by their paths."""
    return {file.path: file.sha256 for file in version.manifest.files if file.table}


def rated(root: str) -> MosPreferences:
    """A config whose one source is the study at a root."""
    columns = {"file": "f", "mos": "m", "system": "s"}
    source = {"name": "lab", "format": "table", "root": root, "files": {"train": "rows.csv"}, "columns": columns}
    return config_of(Path("/"), source, audio="index")


@pytest.mark.slow
def test_a_version_from_the_hub_is_that_of_the_disk_and_names_its_commit(hub: HubServer, tmp_path: Path) -> None:
    commit = hub.add_commit(REPO, study(tmp_path / "here"))
    there = build_version(rated(f"{HERE}@main"), tmp_path / "store")
    here = build_version(rated(str(tmp_path / "here")), tmp_path / "other")
    assert tables_of(there) == tables_of(here)
    assert there.manifest.build_key == here.manifest.build_key
    assert there.manifest.commits == {f"{HERE}@main": commit}
    assert '"commits"' not in here.manifest.to_json(), "manifests without such inputs stay as they were"
    store, every = open_store(str(tmp_path / "store")), {name: find_corpus(name) for name in corpora()}
    sha256 = rows_of(there, "ratings")[0]["clip_sha256"]
    withdraw(store, every, search(store, every, "clip", sha256), "asked for")
    assert store.find("mos-preferences").name == "v2"
    assert store.find("mos-preferences").manifest.commits == there.manifest.commits


@pytest.mark.slow
def test_a_revision_stays_what_it_was_and_a_branch_moves(hub: HubServer, tmp_path: Path) -> None:
    def build(revision: str) -> Version:
        return build_version(rated(f"{HERE}{revision}"), tmp_path / "store")

    first = hub.add_commit(REPO, study(tmp_path))
    assert build("").name == "v1"
    hub.add_commit(REPO, {"README.md": b"Words."})
    assert build("@main").name == "v1", "no input differs"
    later = hub.add_commit(REPO, {"rows.csv": (tmp_path / "rows.csv").read_bytes().replace(b",2,", b",5,")})
    moved = build("@main")
    assert (moved.name, moved.manifest.commits) == ("v2", {f"{HERE}@main": later})
    assert build(f"@{first}").name == "v1"
    hub.repos[REPO]["branches"]["refs/pr/1"] = first
    assert build("@refs%2Fpr%2F1").name == "v1"


def test_files_come_once_whole_and_go(hub: HubServer) -> None:
    long = bytes(range(256)) * (BLOCK_BYTES // 256) + b"end"
    hub.add_commit(REPO, {"a/long.bin": long, "a/b/ä +%.txt": b"x", "a/empty": b""})
    urls = [f"{HERE}/a/long.bin", f"{HERE}@main/a/b/ä +%.txt", f"{HERE}/a/empty", f"{HERE}/a/none", f"{HERE}/a"]
    assert [bytes_at(url) for url in urls] == [long, b"x", b"", None, None]
    asked = hub.asked["resolve"]
    assert bytes_at(urls[0]) == long
    assert hub.asked["resolve"] == asked, "its hash is the same: no byte is fetched"
    hub.add_commit(REPO, {"a/long.bin": b"short"})
    assert bytes_at(urls[0]) == b"short"
    hub.add_commit(REPO, {"a/long.bin": None})
    assert bytes_at(urls[0]) is None


def test_a_build_reads_one_commit_and_names_it(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = hub.add_commit(REPO, study(tmp_path / "here"))

    def pushed_after_the_lists_were_read(*_: object) -> dict[str, str]:
        hub.add_commit(REPO, {"rows.csv": b"f,m,s\naudio/c0.wav,9,s0\n"})
        return {}

    monkeypatch.setattr("earmark.tasks.pipeline.plan.release_digests", pushed_after_the_lists_were_read)
    version, _ = whole_build(CORPUS, build.story, rated(f"{HERE}@main"), tmp_path / "store")  # type: ignore[attr-defined]
    assert version.manifest.commits == {f"{HERE}@main": first}
    assert len(rows_of(version, "ratings")) == 4


@pytest.mark.slow
def test_folders_and_choices(hub: HubServer) -> None:
    hub.add_commit(REPO, {f"sets/{n:03d}.csv": b"%d" % n for n in range(100)} | {"sets/deep/x.flac": b"f", "y": b""})
    folder = place_of(f"{HERE}@main/sets")
    bring_folder(folder, lambda name: name.endswith(".csv"))
    assert sorted(path.name for path in folder.rglob("*")) == [f"{n:03d}.csv" for n in range(100)]
    assert present(folder, ["007.csv", "x.flac", "deep/x.flac", "y"]) == {"007.csv", "deep/x.flac"}
    bring_first([[folder / "none.csv", folder / "deep/x.flac"]])
    assert (folder / "deep/x.flac").read_bytes() == b"f"
    bring_folder(place_of(f"{HERE}@main/nowhere"))
    bring_folder(place_of(HERE))
    assert (place_of(HERE) / "sets/099.csv").read_bytes() == b"99"


def test_what_may_not_be_read_ends_in_one_line(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_commit(REPO, {"x": b"1"})
    for url in ("hf://datasets/lab/none@main/x", f"{HERE}@v9/x"):
        with pytest.raises(InputError, match=r"@\w+: expected a data set and a revision that the token may read"):
            bytes_at(url)
    hub.repos[REPO]["private"] = True
    monkeypatch.setenv("HF_TOKEN", READER)
    assert bytes_at(f"{HERE}/x") == b"1"
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(InputError, match=r"hf://datasets/lab/study.*HF_TOKEN") as caught:
        bytes_at(f"{HERE}/x")
    assert "\n" not in str(caught.value)
    assert "hf_wrong" not in str(caught.value)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"http://127.0.0.1:9 cannot be reached"):
        bytes_at(f"{HERE}/x")


@pytest.mark.parametrize(
    "url",
    ["hf://lab/study/x", "hf://models/a/b/c", "hf://datasets/lab", "hf://datasets/lab/study@/x", f"{HERE}/../x",
     "hf://datasets/../study/x", f"{HERE}//x", "hf://user:pw@datasets/lab/study"],
)  # fmt: skip
def test_what_is_no_url_of_a_data_set(url: str) -> None:
    with pytest.raises((ConfigError, ValueError), match="expected"):
        rated(url).path(url)


def test_what_is_wrong_shows_the_url_and_no_secret_of_it() -> None:
    fault = url_fault("hf://user:hf_secret@models/owner/name?token=hf_secret#hf_secret")
    assert fault is not None
    assert fault.endswith("found hf://…@models/owner/name")
    assert "hf_secret" not in fault


def test_a_store_cannot_lie_there() -> None:
    with pytest.raises(StoreError, match=r"expected a folder, file:// .*, found a hf:// URL"):
        open_store(f"{HERE}@main/store")


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        (HERE, (REPO, "main", "")),
        (f"{HERE}@v1", (REPO, "v1", "")),
        (f"{HERE}@refs%2Fpr%2F1/a/b.csv", (REPO, "refs%2Fpr%2F1", "a/b.csv")),
        (f"{HERE}/a@b", (REPO, "main", "a@b")),
    ],
)
def test_a_place_leads_back_to_its_url(url: str, parts: tuple[str, str, str]) -> None:
    assert hub_parts(url) == parts
    assert url_of(place_of(url)) == url
    assert hub_commits([]) == {}


@pytest.mark.slow
def test_a_list_names_clips_by_their_urls(hub: HubServer, tmp_path: Path) -> None:
    files: dict[str, Any] = study(tmp_path / "here")
    rows = files["rows.csv"].decode().replace("audio/", f"{HERE}@main/audio/")
    hub.add_commit(REPO, files | {"rows.csv": rows.encode()})
    there = build_version(rated(f"{HERE}@main"), tmp_path / "store")
    here = build_version(rated(str(tmp_path / "here")), tmp_path / "other")
    assert rows_of(there, "pairs") == rows_of(here, "pairs") != []
    assert rows_of(there, "rejects") == []
