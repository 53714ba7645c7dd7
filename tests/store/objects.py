"""Fixtures: a local server of buckets, and a bucket of it that this process's clients use."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from earmark.tasks.store.versions import Store, open_store
from tests.servers.buckets import has_azurite, server_of
from tests.servers.s3_server import S3Server

NEEDS_AZURITE = pytest.mark.skipif(not has_azurite(), reason="no Azurite; `make test-slow` installs it by npm")
ON_EVERY_CLOUD = pytest.mark.parametrize("server", ["s3", "gs", pytest.param("az", marks=NEEDS_AZURITE)], indirect=True)
"""The test holds on Amazon's, Google's and Azure's protocol; without this mark, Amazon's stands for all."""


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server of buckets: of S3, unless `ON_EVERY_CLOUD` asks for another."""
    with server_of(getattr(request, "param", "s3"), tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture
def bucket(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty bucket's name; what this machine keeps of it is below the test's folder."""
    for name, value in {**server.environment, "EARMARK_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    name = f"b-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]}"
    server.make(name)
    return name


def kind_of(server: S3Server) -> str:
    """The kind of URL that a server's buckets have."""
    return {"STORAGE_EMULATOR_HOST": "gs", "AZURE_STORAGE_CONNECTION_STRING": "az"}.get(
        next(iter(server.environment)), "s3"
    )


def another_machine(url: str, folder: Path) -> Store:
    """Be, for the rest of the test, a machine that has seen nothing yet: the store as it sees it."""
    os.environ["EARMARK_CACHE"] = str(folder)  # which `bucket` has set, and sets back
    return open_store(url)


def put(server: S3Server, bucket: str, folder: Path, below: str = "") -> str:
    """Put all files of a folder into a bucket; their common URL."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            server.store(bucket, f"{below}/{path.relative_to(folder).as_posix()}".strip("/"), path.read_bytes())
    return f"s3://{bucket}/{below}".rstrip("/")


def uncommitted(server: S3Server, url: str) -> dict[str, list[str]]:
    """The objects that belong to no version, by `corpus/vN`: that folder has no manifest, or an empty one."""
    _, _, bucket, root = url.split("/", 3)
    sizes = {key.removeprefix(f"{root}/"): size for key, size in server.sizes(bucket, f"{root}/").items()}
    found: dict[str, list[str]] = {}
    for path in sizes:
        folder = "/".join(PurePosixPath(path).parts[:2])
        manifest = f"{folder}/manifest.json"
        if "/v" in folder and path != manifest and not sizes.get(manifest):
            found.setdefault(folder, []).append(path)
    return found
