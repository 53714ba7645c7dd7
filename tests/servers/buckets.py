"""Google's and Azure's buckets on this machine, in front of the S3 server of the tests and of Azurite."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from tests.servers.s3_server import S3Server

AZURITE = Path(".venv-azurite/node_modules/.bin/azurite-blob").absolute()
"""Microsoft's emulator (MIT), which `make .venv-azurite/.made` installs by npm."""
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of Azurite's one account, which its documentation prints."""

_OF_A_CONNECTION = ("connection", "keep-alive", "transfer-encoding", "date", "server")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """A server from its first connection on until the block ends."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            ends = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert process.poll() is None, f"{command[0]} ended at once"
                    assert time.monotonic() < ends, f"{command[0]} does not answer"
                    time.sleep(0.05)
            yield
        finally:
            process.terminate()


class GoogleServer(S3Server):
    """Google's XML protocol, which is S3's with headers of its own: they are put into S3's words and back."""

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of its clients."""
        return {"STORAGE_EMULATOR_HOST": self.url}

    def __init__(self) -> None:
        super().__init__()
        self._beside = S3Server()  # another door to the same buckets

    def __enter__(self) -> Self:
        self._beside.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._beside.__exit__(*error)

    def client(self) -> Any:
        """Amazon's client of the same buckets."""
        return self._beside.client()

    def arrow(self) -> Any:
        """The file system that pyarrow has of the same buckets."""
        return self._beside.arrow()

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        assert environ["HTTP_AUTHORIZATION"] == "Bearer emulator"
        environ["HTTP_AUTHORIZATION"] = (
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
        )
        uri = f"{quote(environ['PATH_INFO'].encode('latin-1'))}?{environ['QUERY_STRING']}"
        environ |= {"REQUEST_URI": uri, "RAW_URI": uri}  # moto takes `b%2D1`, as Google's clients write, for a name
        for name in [name for name in environ if name.startswith("HTTP_X_GOOG_")]:
            value = environ.pop(name)
            if name == "HTTP_X_GOOG_IF_GENERATION_MATCH":
                assert value == "0", "a generation of nought stands for no object"
                environ["HTTP_IF_NONE_MATCH"] = "*"
            else:
                environ[name.replace("_GOOG_", "_AMZ_")] = value

        def started(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            given = [(name.lower().replace("x-amz-", "x-goog-"), value) for name, value in headers]
            return start(status, [*given, ("x-goog-generation", "1")], *rest)

        return super()._answer(environ, started)


class AzureServer(S3Server):
    """Azurite behind an address that sees every request, as the other servers do."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._port = free_port()
        command = [str(AZURITE), "--location", str(folder), "--blobPort", str(self._port), "--silent"]
        self._azurite = running([*command, "--skipApiVersionCheck"], self._port)
        self._app = self._forward

    def __enter__(self) -> Self:
        self._azurite.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._azurite.__exit__(*error)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of its clients."""
        account = f"AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY}"
        end = f"BlobEndpoint={self.url}/{AZURE_ACCOUNT}"
        return {"AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;{account};{end};"}

    def client(self) -> Any:
        """Microsoft's own client of it."""
        from azure.storage.blob import BlobServiceClient

        direct = self.environment["AZURE_STORAGE_CONNECTION_STRING"].replace(
            f":{self._server.server_port}/", f":{self._port}/"
        )
        return BlobServiceClient.from_connection_string(direct)

    def make(self, bucket: str) -> None:
        self.client().create_container(bucket)

    def store(self, bucket: str, key: str, content: bytes, encoding: str | None = None) -> None:
        """Store a blob by a client that is not ours."""
        from azure.storage.blob import ContentSettings

        settings = ContentSettings(content_encoding=encoding) if encoding else None
        blob = self.client().get_blob_client(bucket, key)
        blob.upload_blob(content, overwrite=True, content_settings=settings)

    def remove(self, bucket: str, key: str) -> None:
        self.client().get_blob_client(bucket, key).delete_blob()

    def sizes(self, bucket: str, below: str) -> dict[str, int]:
        """Names below a prefix, and their sizes."""
        found = self.client().get_container_client(bucket).list_blobs(name_starts_with=below)
        return {blob.name: blob.size for blob in found}

    def arrow(self) -> Any:
        """The file system that pyarrow has of it."""
        from pyarrow.fs import AzureFileSystem

        place = {"blob_storage_authority": f"127.0.0.1:{self._port}", "blob_storage_scheme": "http"}
        return AzureFileSystem(AZURE_ACCOUNT, account_key=AZURE_KEY, **place)

    def _path(self, environ: dict[str, Any]) -> str:
        return str(environ["PATH_INFO"]).removeprefix(f"/{AZURE_ACCOUNT}")

    def _forward(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        headers = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
        headers |= {name.replace("_", "-"): environ[name] for name in ("CONTENT_TYPE", "CONTENT_LENGTH")
                    if environ.get(name)}  # fmt: skip
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        connection = HTTPConnection("127.0.0.1", self._port)
        try:
            connection.request(environ["REQUEST_METHOD"], environ["REQUEST_URI"], body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        given = [(name, value) for name, value in answer.getheaders() if name.lower() not in _OF_A_CONNECTION]
        start(f"{answer.status} {answer.reason}", given)
        return [content]


def server_of(kind: str, folder: Path) -> S3Server:
    """A server of buckets of one kind of URL."""
    return AzureServer(folder) if kind == "az" else {"s3": S3Server, "gs": GoogleServer}[kind]()


def has_azurite() -> bool:
    return AZURITE.is_file() and os.access(AZURITE, os.X_OK) and shutil.which("node") is not None
