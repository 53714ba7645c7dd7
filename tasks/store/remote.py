"""A store in an object store (`s3://bucket/prefix`): versions lie there, and this machine keeps a copy to work in.

A build works in the copy's staging folder as in any store. Its commit claims the next name by an object that can be
made only once (S3's conditional put), uploads the files, and puts the manifest last, again only if there is none: what
has no manifest is no version, and two committers never write below one name. A build that is killed midway finds its
claim again and sends what is missing. Readers get the manifests at once and a version's files when they ask for it.
Whoever removes what a commit sent puts an empty manifest first, in the same way: one of the two comes too late.

The address of a copy stands in its file `.remote`, so a path to the copy names the remote store too. Ledger, media
index and run records stay on this machine; `EARMARK_LEDGER` names a ledger that machines share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from earmark.schemas.errors import StoreError
from earmark.schemas.places import cache_folder
from earmark.tasks.store.files import replacing, write_text
from earmark.tasks.store.manifest import MANIFEST, FileEntry, Manifest, claimant_of
from earmark.tasks.store.objects import blocks, one_line, open_objects, require_bucket

ADDRESS = ".remote"
CLAIMS = ".claims"
CLOSED = b""  # the manifest of a name whose objects were discarded: no commit can put its own there


@dataclass(frozen=True)
class Remote:
    """The versions of a store behind a URL."""

    url: str  # such as `s3://bucket/prefix`; without user, password, query or closing slash

    @property
    def copy(self) -> Path:
        """This machine's copy: below `EARMARK_CACHE`, else below `~/.cache/earmark`."""
        return cache_folder() / "stores" / hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @cached_property
    def files(self) -> Any:
        """The file system.

        Raises:
            MissingExtraError: the extra `scale` is not installed.
        """
        return open_objects(f"a store at {self.url}")

    def committed(self, corpus: str = "*") -> set[tuple[str, str]]:
        """Corpus and name of the committed versions, of one corpus or all: those that have a manifest."""
        with self._one_line():
            manifests = self.files.glob(f"{self.url}/{corpus}/v*/{MANIFEST}", detail=True)
        return {(path.split("/")[-3], path.split("/")[-2]) for path, facts in manifests.items() if facts["size"]}

    def read_manifest(self, corpus: str, name: str) -> Manifest:
        """A version's manifest."""
        with self._one_line():
            return Manifest.model_validate_json(self.files.cat_file(f"{self.url}/{corpus}/{name}/{MANIFEST}"))

    # -- commit -----------------------------------------------------------------------------------------------

    def claim(self, corpus: str, claimant: str) -> str:
        """Claim the name of the next version; an interrupted build of the same content gets the one that it had, unless
        the files that it sent were discarded since."""
        number = max((int(name[1:]) for _, name in self.committed(corpus)), default=0) + 1
        while not self._claims(corpus, f"v{number}", claimant):
            number += 1
        return f"v{number}"

    def _claims(self, corpus: str, version: str, claimant: str) -> bool:
        """Claim a name; whether it is this build's and may still become a version."""
        claim = f"{corpus}/{CLAIMS}/{version}.json"
        while not self._create(claim, json.dumps({"claimant": claimant}).encode()):
            holder = self._claimant(corpus, version)
            if holder == claimant:
                break
            if holder is not None:
                return False
        with self._one_line():
            return not self.files.exists(f"{self.url}/{corpus}/{version}/{MANIFEST}")

    def _claimant(self, corpus: str, version: str) -> str | None:
        """Who claimed a name; None where the claim is gone."""
        try:
            with self._one_line():
                held = json.loads(self.files.cat_file(f"{self.url}/{corpus}/{CLAIMS}/{version}.json"))
        except FileNotFoundError:
            return None
        return str(held.get("claimant", ""))

    def send(self, folder: Path, manifest: Manifest, before: Manifest | None) -> None:
        """Upload a version's files, but not its manifest. Files that the version before has too are copied within the
        object store.

        Raises:
            StoreError: the object store cannot be written.
        """
        place = f"{self.url}/{manifest.corpus}/{manifest.version}"
        lying = {entry.sha256: entry.path for entry in before.files} if before else {}
        for entry in manifest.files:
            target = f"{place}/{entry.path}"
            if self._holds(target, entry):
                continue
            with self._one_line():
                if before and entry.sha256 in lying:
                    source = f"{self.url}/{before.corpus}/{before.version}/{lying[entry.sha256]}"
                    self.files.cp_file(source, target)
                else:
                    self.files.put_file(str(folder / entry.path), target, Metadata={"sha256": entry.sha256})

    def conclude(self, folder: Path, manifest: Manifest) -> None:
        """Put a version's manifest, only if there is none: all its files were sent.

        Raises:
            StoreError: the object store cannot be written, or another build has committed other content.
        """
        place = f"{self.url}/{manifest.corpus}/{manifest.version}"
        claimant = claimant_of(manifest.build_key, manifest.applied_withdrawals)
        if self._claimant(manifest.corpus, manifest.version) != claimant:
            raise StoreError(f"{place}: the claim to this name was removed meanwhile from {CLAIMS}/; build again")
        text = (folder / MANIFEST).read_bytes()
        if not self._create(f"{manifest.corpus}/{manifest.version}/{MANIFEST}", text):
            with self._one_line():
                found = self.files.cat_file(f"{place}/{MANIFEST}")
            if found == CLOSED:
                raise StoreError(f"{place}: what was sent of this version was discarded meanwhile; build again")
            if found != text:
                raise StoreError(f"{place}: another build has committed this version with other content; build again")

    def discard(self, corpus: str, version: str) -> bool:
        """Remove what a commit sent; whether it was so: a version that is there stays one.

        The name is closed first, by the object that a commit puts last: either the commit has ended, and nothing is
        removed, or it never can.
        """
        place = f"{self.url}/{corpus}/{version}"
        closed = self._create(f"{corpus}/{version}/{MANIFEST}", CLOSED)
        with self._one_line():
            if not closed and self.files.cat_file(f"{place}/{MANIFEST}") != CLOSED:
                return False
            folder = place.partition("://")[2] + "/"
            sent = [path for path in self.files.find(place) if path.startswith(folder) and path != folder + MANIFEST]
            if sent:
                self.files.rm([f"s3://{path}" for path in sent])
        return True

    def _holds(self, target: str, entry: FileEntry) -> bool:
        """Whether an earlier try has sent a file whole: its hash was stored with it."""
        try:
            with self._one_line():
                return bool(
                    self.files.info(target)["size"] == entry.bytes
                    and self.files.metadata(target).get("sha256") == entry.sha256
                )
        except FileNotFoundError:
            return False

    def _create(self, path: str, content: bytes) -> bool:
        """Make an object that is not there; whether it was so."""
        with self._one_line():
            try:
                self.files.pipe_file(f"{self.url}/{path}", content, mode="create")
            except FileExistsError:
                return False
        return True

    # -- reading ----------------------------------------------------------------------------------------------

    def fetch(self, manifest: Manifest, folder: Path, entries: Sequence[FileEntry]) -> None:
        """Bring files of a version into a folder, those that are not there yet.

        Raises:
            StoreError: a file is missing or is not what the manifest says.
        """
        place = f"{self.url}/{manifest.corpus}/{manifest.version}"
        for entry in entries:
            path = folder / entry.path
            if path.is_file() and path.stat().st_size == entry.bytes:
                continue
            with replacing(path) as temporary, temporary.open("wb") as file:
                digest = hashlib.sha256()
                for block in self._blocks(f"{place}/{entry.path}"):
                    digest.update(block)
                    file.write(block)
                if digest.hexdigest() != entry.sha256:
                    raise StoreError(f"{place}/{entry.path}: not what was committed; see earmark verify")

    def faults(self, manifest: Manifest) -> list[str]:
        """Compare every object of a version with its manifest; as `versions.verify`, at the remote end."""
        place = f"{self.url}/{manifest.corpus}/{manifest.version}"
        found = []
        for entry in manifest.files:
            digest = hashlib.sha256()
            try:
                for block in self._blocks(f"{place}/{entry.path}"):
                    digest.update(block)
            except StoreError:
                found.append(f"{entry.path}: missing in {place}")
                continue
            if digest.hexdigest() != entry.sha256:
                given = f"expected SHA-256 {entry.sha256[:16]}…, found {digest.hexdigest()[:16]}…"
                found.append(f"{entry.path}: {given} in {place}")
        named = {entry.path for entry in manifest.files} | {MANIFEST}
        root = place.partition("://")[2] + "/"
        with self._one_line():
            there = [path.removeprefix(root) for path in self.files.find(place)]
        return found + [f"{path}: not named in the manifest in {place}" for path in there if path not in named]

    def _blocks(self, target: str) -> Iterator[bytes]:
        try:
            yield from blocks(self.files, target, StoreError)
        except FileNotFoundError:
            raise StoreError(f"{target}: missing") from None

    def _one_line(self) -> AbstractContextManager[None]:
        return one_line(self.url, StoreError)


def open_remote(url: str) -> Remote:
    """The store at a URL, with a copy on this machine that knows its address.

    Raises:
        StoreError: the URL is of an unsupported kind or holds a secret; its bucket is not there or closed to us.
        MissingExtraError: the extra `scale` is not installed.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3":
        raise StoreError(f"store: expected a folder, file:// or s3:// URL, found a {parts.scheme}:// URL")
    if "@" in parts.netloc or parts.query or parts.fragment or not parts.netloc:
        raise StoreError(
            "store: expected s3://bucket/prefix without user, password or query; keys are in AWS_… variables"
        )
    if odd := sorted(set(url) & set("*[]{}\n")):
        raise StoreError(f"store: expected a URL without wildcard characters, found {odd[0]!r}")
    remote = Remote(url.rstrip("/"))
    require_bucket(remote.files, remote.url, StoreError)
    if not (remote.copy / ADDRESS).is_file():
        write_text(remote.copy / ADDRESS, remote.url + "\n")
    return remote


def remote_of(copy: Path) -> Remote | None:
    """The store whose copy a folder is, if it is one."""
    try:
        return open_remote((copy / ADDRESS).read_text("utf-8").strip())
    except (FileNotFoundError, NotADirectoryError):
        return None
