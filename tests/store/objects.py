"""Fixtures: a local S3 server, and a bucket of it that this process's clients use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from earmark.tasks.store.remote import Remote
from tests.servers.s3_server import S3Server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """An S3 server."""
    with S3Server() as started:
        yield started


@pytest.fixture
def bucket(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty bucket's name; what this machine keeps of it is below the test's folder."""
    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "EARMARK_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    name = f"b-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]}"
    s3fs.S3FileSystem().mkdir(name)
    return name


def put(bucket: str, folder: Path, below: str = "") -> str:
    """Put all files of a folder into a bucket; their common URL."""
    import s3fs

    url = f"s3://{bucket}/{below}".rstrip("/")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            s3fs.S3FileSystem().pipe_file(f"{url}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return url


def uncommitted(remote: Remote) -> dict[str, list[str]]:
    """The objects that belong to no version, by `corpus/vN`: that folder has no manifest, or an empty one."""
    root = remote.url.removeprefix("s3://")
    remote.files.invalidate_cache()
    sizes = {path.removeprefix(f"{root}/"): size for path, size in remote.files.du(root, total=False).items()}
    found: dict[str, list[str]] = {}
    for path in sizes:
        folder = "/".join(PurePosixPath(path).parts[:2])
        manifest = f"{folder}/manifest.json"
        if "/v" in folder and path != manifest and not sizes.get(manifest):
            found.setdefault(folder, []).append(path)
    return found
