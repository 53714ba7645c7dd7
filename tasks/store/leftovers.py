"""What killed commits left in an object store: objects under a name without a manifest, uploads that never ended.

Nobody reads them as a version, and a build that goes on uses them; where none does, they only cost money.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from earmark.schemas.errors import StoreError
from earmark.tasks.store.manifest import MANIFEST
from earmark.tasks.store.objects import one_line
from earmark.tasks.store.remote import CLOSED, Remote

_VERSION = re.compile(r"v[1-9][0-9]*")


class Leftover(NamedTuple):
    """Objects of one version that was never committed."""

    corpus: str
    version: str
    paths: tuple[str, ...]
    bytes: int
    written: datetime  # when the last of them came


class Unended(NamedTuple):
    """An upload in parts that never ended."""

    key: str
    upload: str
    written: datetime  # when it began


def find_leftovers(remote: Remote) -> list[Leftover]:
    """All objects under names of versions that have no manifest, or an empty one that a sweep put, by version."""
    root = remote.url.partition("://")[2]
    with one_line(remote.url, StoreError):
        objects: dict[str, dict[str, Any]] = remote.files.find(remote.url, detail=True)
    by_version: dict[tuple[str, str], list[str]] = {}
    for path in objects:
        corpus, *inner = path.removeprefix(f"{root}/").split("/")
        if len(inner) < 2 or not _VERSION.fullmatch(inner[0]) or inner[1:] == [MANIFEST]:
            continue
        manifest = objects.get(f"{root}/{corpus}/{inner[0]}/{MANIFEST}")
        if manifest is None or manifest["size"] == len(CLOSED):
            by_version.setdefault((corpus, inner[0]), []).append(path)
    return [
        Leftover(
            corpus,
            version,
            tuple(paths),
            sum(objects[path]["size"] for path in paths),
            max(objects[path]["LastModified"] for path in paths),
        )
        for (corpus, version), paths in sorted(by_version.items())
    ]


def find_unended(remote: Remote) -> Iterator[Unended]:
    """All uploads in parts below the store that never ended."""
    bucket, _, prefix = remote.url.partition("://")[2].partition("/")
    more: dict[str, str] = {}
    while True:
        with one_line(remote.url, StoreError):
            page = remote.files.call_s3(
                "list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/" if prefix else "", **more
            )
        for one in page.get("Uploads", ()):
            yield Unended(one["Key"], one["UploadId"], one["Initiated"])
        if not page.get("IsTruncated"):
            return
        more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def remove_unended(remote: Remote, left: Unended) -> None:
    """Remove the parts of an upload."""
    with one_line(remote.url, StoreError):
        remote.files.call_s3(
            "abort_multipart_upload", Bucket=remote.url.split("/")[2], Key=left.key, UploadId=left.upload
        )
