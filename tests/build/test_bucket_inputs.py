"""Inputs in Google's and Azure's buckets: read from servers that speak their protocols, as files are read."""

from __future__ import annotations

import gzip
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.errors import InputError
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.places import place_of, url_fault, url_of
from earmark.tasks.build.mirror import bring, bring_folder, present
from earmark.tasks.store.bucket_objects import BucketObjects
from earmark.tasks.store.objects import BLOCK_BYTES, first_words
from tests.builds import build_version, config_of, contents_of
from tests.pseudo_preferences.music import write_clip
from tests.servers.buckets import AZURE_KEY, azure, google, has_azurite

CLIENTS = {"gs": "gcsfs", "az": "adlfs"}
HOLDERS = {"gs": "bucket", "az": "container"}
ENCODED: dict[str, dict[str, Any]] = {
    "gs": {"fixed_key_metadata": {"content_encoding": "gzip"}},
    "az": {"content_settings": {"content_encoding": "gzip"}},
}
SERVERS = {"gs": google, "az": azure}
NEEDS_AZURITE = pytest.mark.skipif(not has_azurite(), reason="no Azurite; `make test-slow` installs it by npm")


@pytest.fixture(params=["gs", pytest.param("az", marks=NEEDS_AZURITE)])
def cloud(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    """A kind of URL, and a client of its server, which holds the empty bucket `lab`."""
    kind: str = request.param
    with SERVERS[kind](tmp_path / "server") as environment:
        for name, value in {**environment, "EARMARK_CACHE": str(tmp_path / "cache")}.items():
            monkeypatch.setenv(name, value)
        yield kind, client(kind)


def client(kind: str) -> Any:
    """A client that shares nothing with those before it; the bucket is there."""
    if kind == "gs":
        from gcsfs.core import GCSFileSystem as files
    else:
        from adlfs import AzureBlobFileSystem as files
    files.clear_instance_cache()
    fresh = files(use_listings_cache=False)
    fresh.mkdir("lab")
    return fresh


def content_of(url: str) -> bytes | None:
    """What the place of a URL holds once it was brought."""
    path = place_of(url)
    bring([path])
    return path.read_bytes() if path.is_file() else None


def rated(root: str) -> MosPreferences:
    """A config whose one source is a table below a root."""
    columns = {"file": "f", "mos": "m", "system": "s"}
    source = {"name": "lab", "format": "table", "root": root, "files": {"train": "rows.csv"}, "columns": columns}
    return config_of(Path("/"), source, audio="index")


@pytest.mark.slow
def test_a_version_from_a_bucket_is_that_of_the_disk(cloud: tuple[str, Any], tmp_path: Path) -> None:
    kind, files = cloud
    names = [f"audio/c{number}.wav" for number in range(4)]
    for number, name in enumerate(names):
        write_clip(tmp_path / "here" / name, number)
    rows = "f,m,s\n" + "".join(f"{name},{2 + i % 3},s{i % 2}\n" for i, name in enumerate(names))
    (tmp_path / "here/rows.csv").write_text(rows)
    for name in ("rows.csv", *names):
        files.pipe_file(f"lab/study/{name}", (tmp_path / "here" / name).read_bytes())
    there = build_version(rated(f"{kind}://lab/study"), tmp_path / "store")
    here = build_version(rated(str(tmp_path / "here")), tmp_path / "other")
    tables = [
        {path: content for path, content in contents_of(one.folder).items() if path != "manifest.json"}
        for one in (there, here)
    ]
    assert tables[0] == tables[1]
    assert there.manifest.build_key == here.manifest.build_key
    assert build_version(rated(f"{kind}://lab/study"), tmp_path / "store").name == "v1"


@pytest.mark.slow
def test_objects_come_whole_are_renewed_and_go(cloud: tuple[str, Any]) -> None:
    kind, files = cloud
    long = bytes(range(256)) * (BLOCK_BYTES // 256) + b"end"
    for name, content in {"a/long.bin": long, "a/b/ä +.txt": b"x", "a/empty": b""}.items():
        files.pipe_file(f"lab/{name}", content)
    urls = [f"{kind}://lab/a/{name}" for name in ("long.bin", "b/ä +.txt", "empty", "none")]
    assert [content_of(url) for url in urls] == [long, b"x", b"", None]
    files.pipe_file("lab/a/long.bin", b"short")
    assert content_of(urls[0]) == b"short"
    files.rm_file("lab/a/long.bin")
    assert content_of(urls[0]) is None
    folder = place_of(f"{kind}://lab/a")
    bring_folder(folder, lambda name: name.endswith(".txt"))
    assert [path.name for path in folder.rglob("*.txt")] == ["ä +.txt"]
    assert present(folder, ["b/ä +.txt", "long.bin"]) == {"b/ä +.txt"}


@pytest.mark.slow
def test_a_missing_bucket_ends_in_one_line(cloud: tuple[str, Any]) -> None:
    kind, _ = cloud
    with pytest.raises(InputError, match=rf"^{kind}://none: expected a {HOLDERS[kind]} 'none', found none") as caught:
        content_of(f"{kind}://none/x")
    assert "\n" not in str(caught.value)
    assert content_of(f"{kind}://lab/x") is None, "a bucket without objects is there"


@pytest.mark.slow
def test_what_a_client_would_decode_is_refused(cloud: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kind, files = cloud
    files.pipe_file("lab/a/rows.csv", gzip.compress(b"f,m,s\n"), **ENCODED[kind])
    files.pipe_file("lab/a/plain.csv", b"f,m,s\n")
    message = f"^{kind}://lab/a/rows.csv: stored with Content-Encoding: gzip; store it without$"
    for bringing in (
        lambda: bring([place_of(f"{kind}://lab/a/rows.csv")]),
        lambda: bring_folder(place_of(f"{kind}://lab/a")),
    ):
        with pytest.raises(InputError, match=message):
            bringing()
    objects, url = BucketObjects(kind), f"{kind}://lab/a/plain.csv"
    (state,) = objects.look([url], lambda: None)
    assert state is not None
    monkeypatch.setattr(objects._files, "cat_file", lambda *_, **__: b"other bytes")
    with pytest.raises(FileNotFoundError):
        list(objects.blocks(url, 0, state))
    assert not logging.getLogger({"gs": "gcsfs", "az": "azure.identity"}[kind]).isEnabledFor(logging.ERROR)


@pytest.mark.slow
@NEEDS_AZURITE
def test_a_container_whose_folders_are_blobs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas

    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    with azure(tmp_path) as environment:
        ((name, secret),) = environment.items()
        monkeypatch.setenv(name, secret)
        client_of_lab = client("az")
        there = BlobServiceClient.from_connection_string(secret)
        for blob, content in {
            "a/": b"",
            "a/b/": b"",
            "a/b/c/d.wav": b"RIFF",
            "a/rows.csv": b"f",
            "a/none": b"",
        }.items():
            there.get_blob_client("lab", blob).upload_blob(content)
        folder = place_of("az://lab/a")
        bring_folder(folder / "rows.csv")
        assert (folder / "rows.csv").read_bytes() == b"f"
        bring_folder(folder)
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert files == {"rows.csv", "b/c/d.wav", "none"}

        allowed = ContainerSasPermissions(read=True, list=True)
        ends = datetime.now(UTC) + timedelta(hours=1)
        token = generate_container_sas(
            "devstoreaccount1", "lab", account_key=AZURE_KEY, permission=allowed, expiry=ends
        )
        (endpoint,) = re.findall("BlobEndpoint=[^;]*", secret)
        monkeypatch.setenv(name, f"{endpoint};SharedAccessSignature={token}")
        type(client_of_lab).clear_instance_cache()
        assert content_of("az://lab/a/rows.csv") == b"f"
        assert content_of("az://lab/a/other.csv") is None, "a token for objects may not look at their container"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError("Forbidden: b/lab/o\nno access"), "access denied (Forbidden: b/lab/o no access)"),
        ("NonRetryableError", "cannot be read: NonRetryableError"),
        ("ChecksumError", "cannot be read: ChecksumError"),
    ],
)
def test_faults_of_googles_client_are_one_line(error: OSError | str, message: str) -> None:
    from gcsfs import retry

    with (
        pytest.raises(InputError, match=rf"^gs://lab/x: {re.escape(message)}; check"),
        BucketObjects("gs")._one_line("gs://lab/x"),
    ):
        raise getattr(retry, error)() if isinstance(error, str) else error


def test_what_a_library_says_is_cut() -> None:
    assert len(first_words(ValueError("long " * 1000))) == 300
    assert first_words(EOFError()) == "EOFError"


@pytest.mark.slow
@NEEDS_AZURITE
def test_a_wrong_key_and_a_missing_account_end_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from adlfs import AzureBlobFileSystem

    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    with azure(tmp_path) as environment:
        (secret,) = environment.values()
        wrong = "A" * 86 + "=="
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", secret.replace(secret.split(";")[2][11:], wrong))
        AzureBlobFileSystem.clear_instance_cache()
        with pytest.raises(InputError, match=r"az://lab.*(access denied|cannot be read)") as caught:
            content_of("az://lab/x")
        assert wrong not in str(caught.value)
        assert "\n" not in str(caught.value)
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    AzureBlobFileSystem.clear_instance_cache()
    with pytest.raises(InputError, match=r"az://: set AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_CONNECTION_STRING"):
        content_of("az://lab/x")


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_place_leads_back_to_its_url(kind: str) -> None:
    assert url_of(place_of(f"{kind}://lab/a/b.csv")) == f"{kind}://lab/a/b.csv"
    assert url_fault(f"{kind}://lab/a/b.csv") is None
    for url in (f"{kind}://u:pw@lab/a", f"{kind}://lab/a?b", f"{kind}://lab/../a", f"{kind}://"):
        fault = url_fault(url)
        assert fault is not None
        assert f"{kind}://{HOLDERS[kind]}/key" in fault
        assert "pw" not in fault
