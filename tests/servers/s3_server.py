"""A local server that speaks S3's protocol (moto's), tells what is put and read, is interrupted, and denies access."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class S3Server:
    """An S3 server in a thread, and the base of those that stand for other clouds.

    Attributes:
        put: paths of all objects that clients put, in order.
        on_put: called with the path before an object is stored.
        read: paths of all objects whose bytes clients got, in order.
        ranges: which bytes those were, such as `bytes=0-99`.
        on_read: called with the path before an object's bytes are sent.
        denied: begins of paths that nobody may do anything with.
        cut: paths of objects whose bytes end too early.
    """

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.put: list[str] = []
        self.on_put: Callable[[str], None] = lambda path: None
        self.read: list[str] = []
        self.ranges: list[str] = []
        self.on_read: Callable[[str], None] = lambda path: None
        self.denied: tuple[str, ...] = ()
        self.cut: tuple[str, ...] = ()
        self._app: Any = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of its clients."""
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
        return {"AWS_ENDPOINT_URL": self.url, **keys}

    def client(self) -> Any:
        """Amazon's own client of it."""
        import boto3

        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=self.url, **keys)

    def make(self, bucket: str) -> None:
        self.client().create_bucket(Bucket=bucket)

    def store(self, bucket: str, key: str, content: bytes, encoding: str | None = None) -> None:
        """Store an object by a client that is not ours."""
        given = {"ContentEncoding": encoding} if encoding else {}
        self.client().put_object(Bucket=bucket, Key=key, Body=content, **given)

    def remove(self, bucket: str, key: str) -> None:
        self.client().delete_object(Bucket=bucket, Key=key)

    def clear(self, bucket: str) -> None:
        """Remove a bucket with all that it holds."""
        for key in self.sizes(bucket, ""):
            self.remove(bucket, key)
        self.client().delete_bucket(Bucket=bucket)

    def sizes(self, bucket: str, below: str) -> dict[str, int]:
        """Keys below a prefix, and their sizes."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=below)
        return {one["Key"]: one["Size"] for page in pages for one in page.get("Contents", ())}

    def arrow(self) -> Any:
        """The file system that pyarrow has of it."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(access_key="test", secret_key="test", endpoint_override=self.url, region="us-east-1")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], self._path(environ)
        if path.startswith(self.denied):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"" if method == "HEAD" else DENIED]
        if method == "PUT" and path.count("/") > 1:
            self.put.append(path)
            self.on_put(path)
        if method == "GET" and path.count("/") > 1:
            self.read.append(path)
            self.ranges.append(environ.get("HTTP_RANGE", ""))
            self.on_read(path)
        answer: Iterable[bytes] = self._app(environ, start)
        return _broken(answer) if method == "GET" and path in self.cut else answer

    def _path(self, environ: dict[str, Any]) -> str:
        """`/bucket/key` of a request."""
        path: str = environ["PATH_INFO"]
        return path


def _broken(answer: Iterable[bytes]) -> Iterator[bytes]:
    yield b"".join(answer)[:1000]
    raise ConnectionAbortedError("the server broke off")
