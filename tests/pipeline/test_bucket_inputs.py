"""Inputs in Google's and Azure's buckets: read from servers that speak their protocols, as files are read."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from earmark.schemas.errors import InputError
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.places import place_of, url_fault, url_of
from earmark.tasks.pipeline.mirror import bring, bring_folder, present
from earmark.tasks.store.bucket_objects import BucketObjects
from earmark.tasks.store.objects import BLOCK_BYTES, first_words
from tests.builds import build_version, config_of, contents_of
from tests.pseudo_preferences.music import write_clip
from tests.servers.buckets import AZURE_KEY, server_of
from tests.servers.s3_server import S3Server
from tests.store.objects import NEEDS_AZURITE

HOLDERS = {"gs": "bucket", "az": "container"}


@pytest.fixture(params=["gs", pytest.param("az", marks=NEEDS_AZURITE)])
def cloud(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, S3Server]]:
    """A kind of URL, and its server, which holds the empty bucket `lab`."""
    kind: str = request.param
    with server_of(kind, tmp_path / "server") as server:
        for name, value in {**server.environment, "EARMARK_CACHE": str(tmp_path / "cache")}.items():
            monkeypatch.setenv(name, value)
        server.make("lab")
        yield kind, server
        if kind == "gs":  # what moto holds outlives its server
            server.clear("lab")


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
def test_a_version_from_a_bucket_is_that_of_the_disk(cloud: tuple[str, S3Server], tmp_path: Path) -> None:
    kind, server = cloud
    names = [f"audio/c{number}.wav" for number in range(4)]
    for number, name in enumerate(names):
        write_clip(tmp_path / "here" / name, number)
    rows = "f,m,s\n" + "".join(f"{name},{2 + i % 3},s{i % 2}\n" for i, name in enumerate(names))
    (tmp_path / "here/rows.csv").write_text(rows)
    for name in ("rows.csv", *names):
        server.store("lab", f"study/{name}", (tmp_path / "here" / name).read_bytes())
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
def test_objects_come_whole_are_renewed_and_go(cloud: tuple[str, S3Server]) -> None:
    kind, server = cloud
    long = bytes(range(256)) * (BLOCK_BYTES // 256) + b"end"
    for name, content in {"a/long.bin": long, "a/b/ä +.txt": b"x", "a/empty": b""}.items():
        server.store("lab", f"{name}", content)
    urls = [f"{kind}://lab/a/{name}" for name in ("long.bin", "b/ä +.txt", "empty", "none")]
    assert [content_of(url) for url in urls] == [long, b"x", b"", None]
    server.store("lab", "a/long.bin", b"short")
    assert content_of(urls[0]) == b"short"
    server.remove("lab", "a/long.bin")
    assert content_of(urls[0]) is None
    folder = place_of(f"{kind}://lab/a")
    bring_folder(folder, lambda name: name.endswith(".txt"))
    assert [path.name for path in folder.rglob("*.txt")] == ["ä +.txt"]
    assert present(folder, ["b/ä +.txt", "long.bin"]) == {"b/ä +.txt"}


@pytest.mark.slow
def test_a_missing_bucket_ends_in_one_line(cloud: tuple[str, S3Server]) -> None:
    kind, _ = cloud
    with pytest.raises(InputError, match=rf"^{kind}://none: expected a {HOLDERS[kind]} 'none', found none") as caught:
        content_of(f"{kind}://none/x")
    assert "\n" not in str(caught.value)
    assert content_of(f"{kind}://lab/x") is None, "a bucket without objects is there"


@pytest.mark.slow
def test_what_a_client_would_decode_is_refused(cloud: tuple[str, S3Server]) -> None:
    kind, server = cloud
    server.store("lab", "a/rows.csv", gzip.compress(b"f,m,s\n"), "gzip")
    server.store("lab", "a/plain.csv", b"f,m,s\n")
    message = f"^{kind}://lab/a/rows.csv: stored with Content-Encoding: gzip; store it without$"
    for bringing in (
        lambda: bring([place_of(f"{kind}://lab/a/rows.csv")]),
        lambda: bring_folder(place_of(f"{kind}://lab/a")),
    ):
        with pytest.raises(InputError, match=message):
            bringing()
    objects, url = BucketObjects(kind), f"{kind}://lab/a/plain.csv"
    (state,) = objects.look([url])
    assert state is not None
    server.store("lab", "a/plain.csv", b"other")
    with pytest.raises(FileNotFoundError):
        list(objects.blocks(url, 0, state))


@pytest.mark.slow
@NEEDS_AZURITE
def test_a_container_whose_folders_are_blobs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    with server_of("az", tmp_path) as server:
        ((name, secret),) = server.environment.items()
        monkeypatch.setenv(name, secret)
        server.make("lab")
        for blob, content in {
            "a/": b"",
            "a/b/": b"",
            "a/b/c/d.wav": b"RIFF",
            "a/rows.csv": b"f",
            "a/none": b"",
        }.items():
            server.store("lab", blob, content)
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
        assert content_of("az://lab/a/rows.csv") == b"f"
        assert content_of("az://lab/a/other.csv") is None, "a token for objects may not look at their container"


def test_what_a_library_says_is_cut() -> None:
    assert len(first_words(ValueError("long " * 1000))) == 300
    assert first_words(EOFError()) == "EOFError"


@pytest.mark.slow
@NEEDS_AZURITE
def test_a_wrong_key_and_a_missing_account_end_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
    with server_of("az", tmp_path) as server:
        ((name, secret),) = server.environment.items()
        wrong = "A" * 86 + "=="
        signed = f"BlobEndpoint={server.url}/devstoreaccount1;SharedAccessSignature=sv=2024-01-01&sig=geheim"
        for given in (secret.replace(AZURE_KEY, wrong), signed):
            monkeypatch.setenv(name, given)
            with pytest.raises(InputError, match=r"az://lab.*access denied") as caught:
                content_of("az://lab/x")
            assert wrong not in str(caught.value)
            assert "geheim" not in str(caught.value)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", HOLDERS)
def test_a_place_leads_back_to_its_url(kind: str) -> None:
    assert url_of(place_of(f"{kind}://lab/a/b.csv")) == f"{kind}://lab/a/b.csv"
    assert url_fault(f"{kind}://lab/a/b.csv") is None
    for url in (f"{kind}://u:pw@lab/a", f"{kind}://lab/a?b", f"{kind}://lab/../a", f"{kind}://"):
        fault = url_fault(url)
        assert fault is not None
        assert f"{kind}://{HOLDERS[kind]}/key" in fault
        assert "pw" not in fault
