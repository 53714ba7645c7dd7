"""The password of `earmark serve` and the folders that its runs may use, without a server."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.flows.command.running import read_config
from earmark.flows.command.serving import PASSWORD_FILE, own_access
from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import ConfigError
from earmark.schemas.places import require_below_roots
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.release.publishing import read_reviewed
from earmark.tasks.store.versions import open_store

RUN = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(autouse=True)
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a run of a deployment, with one root."""
    (tmp_path / "lab").mkdir()
    for name in ("PREFECT_SERVER_API_AUTH_STRING", "EARMARK_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", RUN)
    monkeypatch.setenv("EARMARK_ROOTS", f"{tmp_path}/lab:s3://corpora/ours")
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_the_password_is_made_once_for_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    before = os.umask(umask)
    monkeypatch.setattr(os, "chmod", lambda *_: pytest.fail("a mode was mended after its file was there"))
    try:
        first, again = own_access("127.0.0.1", 4200), own_access("127.0.0.1", 4201)
    finally:
        os.umask(before)
    file = tmp_path / "home" / PASSWORD_FILE
    password = first.client["PREFECT_API_AUTH_STRING"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (file.read_text().strip(), first.where) == (password, str(file))
    assert len(password.partition(":")[2]) >= 32
    assert again.client == first.client
    assert first.server["PREFECT_SERVER_API_AUTH_STRING"] == password
    origins = first.server["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"]
    assert origins == "http://127.0.0.1:4200,http://localhost:4200"


def test_a_password_of_the_environment_goes_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "ours:geheim")
    access = own_access("127.0.0.1", 4200)
    assert access.client == {"PREFECT_API_AUTH_STRING": "ours:geheim"}
    assert access.where == "PREFECT_SERVER_API_AUTH_STRING"
    assert not (tmp_path / "home").exists()


def test_a_file_without_a_password_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "home" / PASSWORD_FILE
    file.parent.mkdir()
    for held in ("", "geheim", "earmark:", "earmark:short", "a:b\nearmark:0123456789abcdef"):
        file.write_text(held)
        with pytest.raises(ConfigError, match="expected USER:PASSWORD") as caught:
            own_access("127.0.0.1", 4200)
        assert "geheim" not in str(caught.value)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match="cannot keep the server's password"):
        own_access("127.0.0.1", 4200)


def test_roots_hold_for_everything_that_a_run_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = BuildConfig(corpus="x", base=tmp_path / "lab")
    (tmp_path / "lab/out").symlink_to(tmp_path)
    assert config.path("clips/../list.csv") == tmp_path / "lab/clips/../list.csv"
    assert config.path("s3://corpora/ours/list.csv") == tmp_path / "cache/inputs/s3/corpora/ours/list.csv"
    for written in (
        "../list.csv",
        "/etc/passwd",
        "out/x",
        "s3://corpora/theirs",
        "s3://corpora/ours2/x",
        "s3://corpora",
    ):
        with pytest.raises(ConfigError, match="lies outside EARMARK_ROOTS"):
            config.path(written)
    for what in (
        lambda: open_store(str(tmp_path / "store")),
        lambda: open_store("s3://theirs/store"),
        lambda: read_config(find_corpus("captions"), tmp_path / "captions.toml"),
        lambda: read_reviewed(str(tmp_path / "reviewed.txt")),
    ):
        with pytest.raises(ConfigError, match="lies outside EARMARK_ROOTS"):
            what()
    assert open_store(str(tmp_path / "lab/store")).root == tmp_path / "lab/store"
    monkeypatch.setenv("EARMARK_STORE", str(tmp_path / "elsewhere"))
    for written in (None, str(tmp_path / "elsewhere"), f"{tmp_path}/lab/../elsewhere/"):
        assert open_store(written).root.resolve() == tmp_path / "elsewhere"
    with pytest.raises(ConfigError, match=r"store: .* lies outside"):
        open_store(str(tmp_path / "elsewhere/inner"))


def test_a_run_without_roots_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EARMARK_ROOTS")
    monkeypatch.chdir(tmp_path / "lab")
    require_below_roots("input", "list.csv")
    with pytest.raises(ConfigError):
        require_below_roots("input", str(tmp_path))
    monkeypatch.delenv("PREFECT__FLOW_RUN_ID")  # a person's command
    require_below_roots("input", str(tmp_path))


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders a, b and c, each with files and with links to the others, to itself, to a file and to nothing."""
    base = tmp_path_factory.mktemp("maze")
    for one in "abc":
        (base / one / "d").mkdir(parents=True)
        (base / one / "f").write_text(one)
        (base / one / "d/f").write_text(one)
    for place, target in (("a/l", "../b"), ("b/l", "../a/d"), ("c/l", "../a"), ("a/d/l", "../../c/f"), ("b/d/l", "..")):
        (base / place).symlink_to(target)
    (base / "al").symlink_to("a")
    return base


STEPS = st.lists(st.sampled_from(["a", "b", "c", "d", "l", "al", "..", "."]), max_size=6).map(
    lambda s: "/".join([*s, "f"])
)


@given(STEPS)
def test_what_is_below_is_what_a_walk_without_links_comes_to(maze: Path, written: str) -> None:
    path = maze / written
    if not path.is_file():
        return
    inside = {
        (status.st_dev, status.st_ino)
        for folder, _, files in os.walk(maze / "a", followlinks=False)
        for status in (os.lstat(f"{folder}/{name}") for name in files)
    }
    found = path.stat()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PREFECT__FLOW_RUN_ID", RUN)
        patched.setenv("EARMARK_ROOTS", str(maze / "al"))  # a root may be a link itself
        try:
            require_below_roots("input", str(path))
            allowed = True
        except ConfigError:
            allowed = False
    assert allowed == ((found.st_dev, found.st_ino) in inside)
