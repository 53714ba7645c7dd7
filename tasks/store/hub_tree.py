"""Compare a version's files with a repository's, without network access."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from earmark.schemas.errors import HubError
from earmark.tasks.store.manifest import Manifest

HUBS_OWN = ".gitattributes"  # the Hub writes it into every repository
MOST_FILES = 25_000  # of large files in one commit, by `create_commit`'s documentation


@dataclass(frozen=True)
class PublishedFile:
    """A file to be published."""

    path: str  # in the repository
    source: Path  # on this disk
    sha256: str  # SHA-256 of its bytes
    bytes: int  # its size


@dataclass(frozen=True)
class HubFile:
    """A file in the repository: large ones have a SHA-256, small ones only git's SHA-1 of the blob."""

    path: str
    bytes: int
    git_sha1: str
    sha256: str | None = None


@dataclass(frozen=True)
class TreeChanges:
    """Changes that make a repository's tree equal to a version's."""

    upload: tuple[PublishedFile, ...]  # files missing or different in the repository
    delete: tuple[str, ...]  # paths of an earlier version, absent from this one
    same: tuple[PublishedFile, ...]  # files already in the repository
    foreign: tuple[str, ...]  # paths outside of any version, kept, such as a LICENSE

    @property
    def none(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.upload and not self.delete


def compare(entries: Sequence[PublishedFile], remote: Iterable[HubFile], earlier: Iterable[str] = ()) -> TreeChanges:
    """Return the files to upload and delete; `earlier` are the paths listed by the published version."""
    there = {file.path: file for file in remote if file.path != HUBS_OWN}
    wanted = {entry.path for entry in entries}
    folders = {path.partition("/")[0] for path in wanted if "/" in path}
    named = set(earlier)
    extra = sorted(there.keys() - wanted)
    # A stray file in a table's folder would be loaded as rows, so it goes too.
    delete = [path for path in extra if path in named or ("/" in path and path.partition("/")[0] in folders)]
    same = [entry for entry in entries if entry.path in there and is_same(entry, there[entry.path])]
    equal = {entry.path for entry in same}
    return TreeChanges(
        upload=tuple(entry for entry in entries if entry.path not in equal),
        delete=tuple(delete),
        same=tuple(same),
        foreign=tuple(path for path in extra if path not in delete),
    )


def is_same(entry: PublishedFile, file: HubFile) -> bool:
    """Return whether a file in the repository has the same bytes as ours."""
    if file.bytes != entry.bytes:
        return False
    if file.sha256 is not None:
        return file.sha256 == entry.sha256
    return file.git_sha1 == git_sha1(entry.source)


def git_sha1(path: Path) -> str:
    """Return git's name for a file's content (SHA-1 of the blob)."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def check_successor(
    repo: str, manifest: Manifest, there: Mapping[str, object] | None, files: Iterable[HubFile], ordered: bool = True
) -> None:
    """Refuse a repository with other content, or with a later version if versions are `ordered`, as on main.

    Raises:
        HubError: the message names the content found.
    """
    if there is None:
        others = sorted(file.path for file in files if file.path not in (HUBS_OWN, "README.md"))
        if others:
            raise HubError(
                f"{repo} holds files that no version of {manifest.corpus} left there ({others[0]}, {len(others)} in "
                "all); expected an empty repository or one that Earmark published to"
            )
        return
    if there.get("corpus") != manifest.corpus:
        raise HubError(f"{repo} holds the corpus {there.get('corpus')}; expected {manifest.corpus}")
    theirs, ours = str(there.get("version")), manifest.version
    if ordered and theirs[1:].isdecimal() and int(theirs[1:]) > int(ours[1:]):
        raise HubError(f"{repo} holds {theirs} on main; publishing the older {ours} would replace it")
