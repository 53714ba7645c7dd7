"""Keep a store in a bucket (`s3://bucket/prefix`, `gs://…`, `az://…`), with a working copy on this machine.

A build works in the copy's staging folder as in any store. Its commit claims the next name by an object created only
once (a conditional put), uploads the files, and puts the manifest last, again only if absent: a folder without a
manifest is no version, and two committers never write below the same name. A build killed midway finds its claim again
and sends missing files. Readers get the manifests at once, and a version's files on demand. To discard sent files, an
empty manifest is put first, in the same way: the commit or the discarding comes too late.

The address of a copy is in its file `.remote`, so a path to the copy names the remote store too. Withdrawals and
receipts are in both. Ledger, media index and run records stay on this machine; `EARMARK_LEDGER` names a shared ledger.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from earmark.schemas.errors import StoreError
from earmark.schemas.places import BUCKETS, CORPUS, VERSION, cache_folder, path_below, without_secrets
from earmark.tasks.store.bucket_objects import KEYS, MOST_COPIED, BucketObjects
from earmark.tasks.store.files import DESKTOPS, no_link, replacing, write_text
from earmark.tasks.store.manifest import MANIFEST, PAGES, FileEntry, Manifest, claimant_of

ADDRESS = ".remote"
CLAIMS = ".claims"
_FORMS = ", ".join(f"{kind}://{holder}/prefix" for kind, holder in BUCKETS.items())
SWEEPS = 10
CLOSED = b""  # manifest of a version that is removed or discarded: it blocks the commit's own


@dataclass(frozen=True)
class Remote:
    """Versions of a store behind a URL."""

    url: str  # such as `s3://bucket/prefix`; without user, password, query or closing slash

    @property
    def copy(self) -> Path:
        """Return the folder of this machine's copy, below `EARMARK_CACHE`, else below `~/.cache/earmark`."""
        return cache_folder() / "stores" / hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @cached_property
    def files(self) -> BucketObjects:
        """Return the objects of its bucket."""
        return BucketObjects(self.url.partition(":")[0], StoreError)

    def committed(self, corpus: str | None = None) -> dict[tuple[str, str], int]:
        """Return the bytes of committed versions' manifests by corpus and name, of one corpus or all."""
        return {name: size for name, size in self._manifests(corpus).items() if size != len(CLOSED)}

    def closed(self, corpus: str) -> list[str]:
        """Return the names of a corpus whose files are removed, or were to be when the removal was killed."""
        return sorted(name for (_, name), size in self._manifests(corpus).items() if size == len(CLOSED))

    def _manifests(self, corpus: str | None) -> dict[tuple[str, str], int]:
        corpora = [one for one in ([corpus] if corpus else self.files.folders(self.url)) if CORPUS.fullmatch(one)]
        names = [(one, name) for one in corpora for name in self.files.folders(f"{self.url}/{one}")
                 if VERSION.fullmatch(name)]  # fmt: skip
        found = self.files.look([f"{self.url}/{corpus}/{name}/{MANIFEST}" for corpus, name in names])
        return {name: held.size for name, held in zip(names, found, strict=True) if held is not None}

    def manifest_text(self, corpus: str, name: str) -> bytes:
        """Return the text of a version's manifest; none if the version is gone, or its removal has begun."""
        try:
            return self.files.read(f"{self.url}/{corpus}/{name}/{MANIFEST}")
        except FileNotFoundError:
            return CLOSED

    # -- commit -----------------------------------------------------------------------------------------------

    def claim(self, corpus: str, claimant: str) -> str:
        """Claim the name of the next version. An interrupted build of the same content gets its former name, unless its
        sent files were discarded since."""
        number = max((int(name[1:]) for _, name in self.committed(corpus)), default=0) + 1
        while not self.claims(corpus, f"v{number}", claimant):
            number += 1
        return f"v{number}"

    def claims(self, corpus: str, version: str, claimant: str) -> bool:
        """Claim a name; return whether it belongs to this build and may still become a version."""
        claim = f"{self.url}/{corpus}/{CLAIMS}/{version}.json"
        while not self.files.create(claim, json.dumps({"claimant": claimant}).encode()):
            holder = self._claimant(corpus, version)
            if holder == claimant:
                break
            if holder is not None:
                return False
        return self.files.look([f"{self.url}/{corpus}/{version}/{MANIFEST}"]) == [None]

    def _claimant(self, corpus: str, version: str) -> str | None:
        try:
            held = json.loads(self.files.read(f"{self.url}/{corpus}/{CLAIMS}/{version}.json"))
        except FileNotFoundError:
            return None
        return str(held.get("claimant", ""))

    def send(self, folder: Path, manifest: Manifest, before: Manifest | None) -> None:
        """Upload a version's files except its manifest; copy sound files of the previous version within the store.

        Raises:
            StoreError: the object store cannot be written.
        """
        place = f"{self.url}/{manifest.corpus}/{manifest.version}"
        lying = {entry.sha256: entry.path for entry in before.files} if before else {}
        for entry in manifest.files:
            target = f"{place}/{entry.path}"
            if self.files.sha256(target) == (entry.bytes, entry.sha256):  # sent whole by an earlier try
                continue
            if before and entry.sha256 in lying and entry.bytes <= MOST_COPIED:
                source = f"{self.url}/{before.corpus}/{before.version}/{lying[entry.sha256]}"
                if self.files.sha256(source) == (entry.bytes, entry.sha256):  # nobody has replaced it since
                    self.files.copy(source, target)
                    continue
            self.files.send(folder / entry.path, target, entry.sha256)

    def conclude(self, folder: Path, manifest: Manifest) -> None:
        """Put a version's manifest, after all its files, unless there is one already.

        Raises:
            StoreError: the object store cannot be written, or another build has committed other content.
        """
        place = f"{self.url}/{manifest.corpus}/{manifest.version}"
        claimant = claimant_of(manifest.build_key, manifest.applied_withdrawals)
        if self._claimant(manifest.corpus, manifest.version) != claimant:
            raise StoreError(f"{place}: the claim to this name was removed meanwhile from {CLAIMS}/; build again")
        text = (folder / MANIFEST).read_bytes()
        if not self.files.create(f"{place}/{MANIFEST}", text):
            found = self.files.read(f"{place}/{MANIFEST}")
            if found == CLOSED:
                raise StoreError(f"{place}: what was sent of this version was discarded meanwhile; build again")
            if found != text:
                raise StoreError(f"{place}: another build has committed this version with other content; build again")

    def discard(self, corpus: str, version: str) -> bool:
        """Remove the files sent by a commit, unless it has ended; return whether they were removed.

        The name is closed first, by the object put last by a commit: either the commit has ended, and nothing is
        removed, or it never can.

        Raises:
            StoreError: files stay although they were removed.
        """
        place = f"{self.url}/{corpus}/{version}"
        closed = self.files.create(f"{place}/{MANIFEST}", CLOSED)
        if not closed and self.files.read(f"{place}/{MANIFEST}") != CLOSED:
            return False
        for _ in range(SWEEPS):  # a commit that is still sending may add files meanwhile
            if not (sent := [url for url in self._there(place) if url != f"{place}/{MANIFEST}"]):
                return True
            with suppress(FileNotFoundError):  # another process removes them, too
                self.files.remove(sent)
        raise StoreError(f"{sent[0]}: is there again after each of {SWEEPS} removals (a lock of the bucket?)")

    def remove(self, manifest: Manifest) -> None:
        """Remove a version: its manifest is emptied first, so that no reader finds a version without its files, and
        that whoever comes after a kill knows it (`closed`), and ends the removal by `discard`.

        Raises:
            StoreError: files stay although they were removed.
        """
        place = f"{self.url}/{manifest.corpus}/{manifest.version}/{MANIFEST}"
        self.files.write(place, CLOSED)
        self.discard(manifest.corpus, manifest.version)
        with suppress(FileNotFoundError):  # another process removed it, too
            self.files.remove([place])

    # -- reading ----------------------------------------------------------------------------------------------

    def bring(self, root: Path, below: str) -> set[str]:
        """Download the JSON records of a folder of the store into its copy at `root`; return their names."""
        place, found = f"{self.url}/{below}/", set()
        for url, _ in self.files.listed(place[:-1]):
            name = url.removeprefix(place)
            if name.endswith(".json") and "/" not in name:
                write_text(root / below / path_below(name), self.files.read(url).decode())
                found.add(name)
        return found

    def fetch(self, manifest: Manifest, folder: Path, entries: Sequence[FileEntry]) -> None:
        """Download missing files of a version into a folder.

        Raises:
            StoreError: a file is missing or differs from the manifest.
        """
        place = f"{self.url}/{manifest.corpus}/{manifest.version}"
        for entry in entries:
            path = no_link(folder, entry.path)
            if path.is_file() and path.stat().st_size == entry.bytes:
                continue
            with replacing(path) as temporary, temporary.open("wb") as file:
                digest = hashlib.sha256()
                for block in self._blocks(f"{place}/{entry.path}"):
                    digest.update(block)
                    file.write(block)
                if digest.hexdigest() != entry.sha256:
                    raise StoreError(f"{place}/{entry.path}: not what was committed; see earmark inspect verify")

    def require_whole(self, manifest: Manifest) -> None:
        """Check that no object of a version's data is missing or of another size.

        Raises:
            StoreError: one is.
        """
        place = f"{self.url}/{manifest.corpus}/{manifest.version}"
        sizes = {url: held.size for url, held in self.files.listed(place)}
        for entry in [one for one in manifest.files if one.path not in PAGES]:
            found = sizes.get(f"{place}/{entry.path}")
            if found != entry.bytes:
                raise StoreError(
                    f"{place}/{entry.path}: expected {entry.bytes:,} bytes, as the manifest says, found "
                    f"{'none' if found is None else f'{found:,}'}; see: earmark inspect verify "
                    f"{manifest.corpus}@{manifest.version}"
                )

    def faults(self, manifest: Manifest) -> list[str]:
        """Compare all objects of a version with its manifest; the remote counterpart of `versions.verify`."""
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
        there = [url.removeprefix(f"{place}/") for url in self._there(place)]
        strays = [path for path in there if path not in named and path.rpartition("/")[2] not in DESKTOPS]
        return found + [f"{path}: not named in the manifest in {place}" for path in strays]

    def _there(self, place: str) -> list[str]:
        return [url for url, _ in self.files.listed(place) if url.startswith(f"{place}/")]

    def _blocks(self, target: str) -> Iterator[bytes]:
        try:
            yield from self.files.blocks(target)
        except FileNotFoundError:
            raise StoreError(f"{target}: missing") from None


def open_remote(url: str) -> Remote:
    """Return the store at a URL, with a copy on this machine containing its address."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreError(f"store: expected {_FORMS}: {error}") from None
    if parts.scheme not in BUCKETS:
        raise StoreError(f"store: expected a folder, file:// or {_FORMS}, found a {parts.scheme}:// URL")
    if "@" in parts.netloc or parts.query or parts.fragment or not parts.netloc:
        raise StoreError(f"store: expected {_FORMS} without user, password or query; keys are in {KEYS[parts.scheme]}")
    if odd := sorted(set(url) & set("*[]{}\n")):
        raise StoreError(f"store: expected a URL without wildcard characters, found {odd[0]!r}")
    remote = Remote(url.rstrip("/"))
    remote.files.require_listed(remote.url)
    if not (remote.copy / ADDRESS).is_file():
        write_text(remote.copy / ADDRESS, remote.url + "\n")
    return remote


def remote_of(copy: Path) -> Remote | None:
    """Return the store behind a copy's folder; None for a local store.

    Only the folder made by Earmark for a URL is its copy: any other folder with an address came from elsewhere, and
    would redirect this machine's builds, with its keys, to that address.
    """
    try:
        url = (copy / ADDRESS).read_text("utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if copy.resolve() != Remote(url).copy.resolve():
        raise StoreError(
            f"{copy / ADDRESS} sends what is built here to {without_secrets(url)[:120]!r}, and Earmark did not make "
            f"this copy (its copies lie in {cache_folder() / 'stores'}); give that URL as the store, or remove the file"
        )
    return open_remote(url)
