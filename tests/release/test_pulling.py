"""`earmark pull`: a published version comes back as it was, or not at all."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.config import Licence
from earmark.schemas.errors import HubUnreachableError
from earmark.tasks.store.hub import Repo
from earmark.tasks.store.receipts import receipts
from earmark.tasks.store.versions import Store, verify
from tests.builds import build_version, contents_of, read_config
from tests.conftest import ROOT
from tests.release.publications import Publications
from tests.servers.hub import WRITER, HubServer

pytestmark = pytest.mark.slow
CORPUS, REPO = "mos-preferences", "lab/mos"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """A Hub, which every process that the tests start takes for the real one."""
    folder = tmp_path_factory.mktemp("hub")
    with HubServer(folder / "hub") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", server.endpoint)
        patch.setenv("HF_HOME", str(folder / "home"))
        patch.setenv("HF_HUB_DISABLE_XET", "1")
        patch.setenv("HF_TOKEN", WRITER)
        yield server


@pytest.fixture(scope="module")
def store(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The publisher's store: v1 and v2 of a corpus, both published; v3 is published without a source's rows."""
    place = tmp_path_factory.mktemp("publisher") / "store"
    plain = read_config(ROOT / f"data/demo/{CORPUS}.toml").model_copy(update={"critiques": None})
    closed = {**plain.licences, "chimes": Licence(licence="in house", redistribute="none")}
    build_version(plain, place)
    build_version(plain.model_copy(update={"seed": 18}), place)
    build_version(plain.model_copy(update={"licences": closed}), place)
    with Publications(tmp_path_factory.mktemp("press")) as press:
        for version in ("v1", "v2"):
            assert press.run(place, f"{CORPUS}@{version}", REPO)["tag"] == version
        assert press.run(place, f"{CORPUS}@v3", "lab/part")["tag"] == "v3"
    return Store(place)


def pull(store: Path, *words: str, code: int = 0) -> str:
    """What `earmark pull` prints, or the last line of its fault."""
    command = [sys.executable, "-m", "earmark", "pull", *words, "--store", str(store)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr.splitlines()[-1]


def test_a_pulled_version_is_the_published_one(store: Store, tmp_path: Path) -> None:
    there = tmp_path / "a store"
    before = json.loads(pull(there, f"{REPO}@v1", "--dry-run", "--json"))
    assert not there.exists() or Store(there).versions(CORPUS) == []
    assert (before["version"], before["rows"]) == ("v1", store.find(f"{CORPUS}@v1").manifest.rows)
    for words, name in (((f"{REPO}@v1",), "v1"), ((REPO,), "v2")):
        said = pull(there, *words).splitlines()[-1].removeprefix("look at it with: earmark inspect view ")
        verified = CliRunner().invoke(app, ["inspect", "verify", *shlex.split(said), "--json"])
        assert (verified.exit_code, json.loads(verified.stdout)["version"]) == (0, name)
    ours = Store(there)
    assert [one.name for one in ours.versions(CORPUS)] == ["v1", "v2"]
    for version in ours.versions(CORPUS):
        assert verify(version) == []
        assert contents_of(version.folder) == contents_of(store.find(f"{CORPUS}@{version.name}").folder)
    assert [(one.version, one.repo) for one in receipts(ours, CORPUS)] == [("v1", REPO), ("v2", REPO)]
    assert not list((there / CORPUS).glob(".pull/*"))
    assert "already here" in pull(there, f"{REPO}@v1")


def test_a_damaged_version_is_not_already_here(store: Store, tmp_path: Path) -> None:
    pull(tmp_path, f"{REPO}@v1")
    folder = tmp_path / CORPUS / "v1"
    table = next((folder / "pairs").glob("*.parquet"))
    whole = table.read_bytes()
    table.write_bytes(whole[:-1])
    assert f"{table}: expected {len(whole):,} bytes" in pull(tmp_path, f"{REPO}@v1", code=1)
    table.unlink()
    assert f"{table}: expected {len(whole):,} bytes, as the manifest says, found no file" in pull(
        tmp_path, f"{REPO}@v1", code=1
    )
    table.write_bytes(whole)
    assert "already here" in pull(tmp_path, f"{REPO}@v1")
    (folder / "manifest.json").unlink()
    said = pull(tmp_path, f"{REPO}@v1", code=1)
    assert f"{folder}: expected a whole version or no folder, found one without manifest.json; move it away" in said
    assert table.read_bytes() == whole
    folder.rename(tmp_path / "away")
    pull(tmp_path, f"{REPO}@v1")


def test_the_printed_count_is_that_of_the_folder(store: Store, tmp_path: Path) -> None:
    told = json.loads(pull(tmp_path, f"{REPO}@v1", "--json"))
    files = [path for path in (tmp_path / CORPUS / "v1").rglob("*") if path.is_file()]
    assert (told["files"], told["bytes"]) == (len(files), sum(path.stat().st_size for path in files))


def test_a_build_goes_on_from_a_pulled_version(store: Store, tmp_path: Path) -> None:
    pull(tmp_path, REPO)
    same = read_config(ROOT / f"data/demo/{CORPUS}.toml").model_copy(update={"critiques": None, "seed": 18})
    assert build_version(same, tmp_path).name == "v2", "the same inputs and config are up to date"
    assert build_version(same.model_copy(update={"seed": 19}), tmp_path).name == "v3"
    assert pull(tmp_path, f"{REPO}@v1")
    assert [one.name for one in Store(tmp_path).versions(CORPUS)] == ["v1", "v2", "v3"]


def test_versions_of_another_origin_are_not_mixed_or_overwritten(store: Store, tmp_path: Path) -> None:
    own = read_config(ROOT / f"data/demo/{CORPUS}.toml").model_copy(update={"critiques": None, "seed": 99})
    kept = contents_of(build_version(own, tmp_path).folder)
    assert f"holds another {CORPUS} v1; pull into another" in pull(tmp_path, f"{REPO}@v1", code=1)
    assert f"holds {CORPUS} v1, which does not come from {REPO}" in pull(tmp_path, f"{REPO}@v2", code=1)
    assert contents_of(tmp_path / CORPUS / "v1") == kept


def test_the_publisher_needs_no_pull_of_a_part_of_its_own_version(store: Store) -> None:
    kept = contents_of(store.find(f"{CORPUS}@v3").folder)
    assert "already here" in pull(store.root, "lab/part@v3")
    assert contents_of(store.find(f"{CORPUS}@v3").folder) == kept


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("lab/nothing", "lab/nothing: not found on"),
        (f"{REPO}@v9", f"{REPO} has no v9; versions there: v1, v2"),
        (f"{REPO}@main", f"expected ORG/NAME or ORG/NAME@vN, found '{REPO}@main'"),
        ("mos", "expected --repo ORG/NAME, found 'mos'"),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(store: Store, tmp_path: Path, spec: str, line: str) -> None:
    assert line in pull(tmp_path, spec, code=1)


def test_a_file_that_differs_from_the_manifest_is_not_pulled(store: Store, hub: HubServer, tmp_path: Path) -> None:
    """Somebody changes a table on the Hub, with the same size, and moves the tag."""
    with Publications(tmp_path / "press") as press:
        assert press.run(store.root, f"{CORPUS}@v1", "lab/changed")["tag"] == "v1"
    tree = hub.files("lab/changed", "v1")
    path = next(name for name in tree if name.endswith(".parquet"))
    whole = (store.find(f"{CORPUS}@v1").folder / path).read_bytes()
    changed = whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]
    hub.repos["lab/changed"]["tags"]["v1"] = hub.add_commit("lab/changed", {path: changed})
    line = pull(tmp_path / "store", "lab/changed", code=1)
    assert f"{path}: expected SHA-256" in line
    assert "nothing was pulled" in line
    assert Store(tmp_path / "store").versions(CORPUS) == []
    readme = {"README.md": b"short"}
    hub.repos["lab/changed"]["tags"]["v1"] = hub.add_commit("lab/changed", readme)
    assert "README.md: expected" in pull(tmp_path / "store", "lab/changed", code=1)


def test_a_killed_pull_leaves_no_version_and_goes_on(store: Store, hub: HubServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "earmark", "pull", REPO, "--store", str(tmp_path)]
    begun, before = subprocess.Popen(command, stderr=subprocess.DEVNULL), hub.asked["resolve"]

    def harm(kind: str, moment: str, count: int) -> None:
        if (kind, moment, count) == ("resolve", "after", before + 6):
            os.kill(begun.pid, signal.SIGKILL)

    hub.harm = harm
    try:
        assert begun.wait(60) == -signal.SIGKILL
    finally:
        hub.harm = lambda kind, when, n: None
    assert Store(tmp_path).versions(CORPUS) == []
    pull(tmp_path, REPO)
    assert contents_of(tmp_path / CORPUS / "v2") == contents_of(store.find(f"{CORPUS}@v2").folder)


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, OSError), (errno.ECONNRESET, HubUnreachableError)])
def test_a_full_disk_is_no_fault_of_the_hub(
    code: int, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*_: object, **__: object) -> str:
        raise OSError(code, os.strerror(code))

    repo = Repo(REPO)
    monkeypatch.setattr(repo.api, "hf_hub_download", download)
    with pytest.raises(kind, match=os.strerror(code)):
        repo.fetch("README.md", "main", tmp_path)
