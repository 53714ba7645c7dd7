"""A store is a folder of corpora; a corpus is a folder of immutable versions `v1`, `v2`, …"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from earmark.schemas.errors import StoreError
from earmark.schemas.places import require_below_roots
from earmark.tasks.store.files import sha256_file, write_text
from earmark.tasks.store.manifest import MANIFEST as MANIFEST
from earmark.tasks.store.manifest import Manifest, read_manifest
from earmark.tasks.store.remote import Remote, open_remote, remote_of
from earmark.tasks.store.withdrawals import bring_withdrawals, withdrawal_against

DEFAULT_STORE = Path("data/store")
_VERSION = re.compile(r"^v([1-9][0-9]*)$")
_SPEC = re.compile(r"^(?P<corpus>[a-z0-9][a-z0-9-]*)(@(?P<version>v[1-9][0-9]*))?$")


@dataclass(frozen=True)
class Version:
    """One committed version."""

    corpus: str  # the corpus's name
    folder: Path  # `<store>/<corpus>/vN`

    @property
    def name(self) -> str:
        """`v3`, for example."""
        return self.folder.name

    @property
    def number(self) -> int:
        """3 for `v3`."""
        return int(self.name[1:])

    @cached_property
    def manifest(self) -> Manifest:
        """The version's manifest, read once."""
        return read_manifest(self.folder / MANIFEST)

    def files(self, table: str, split: str | None = None) -> list[Path]:
        """The Parquet files of a table or of one of its splits, in reading order.

        Raises:
            StoreError: the version has no such table or split.
        """
        entries = self.manifest.entries(table, split)
        if not entries:
            known = ", ".join(sorted(self.manifest.rows))
            raise StoreError(f"{self.corpus} {self.name} has no table '{table}' with split '{split}'; tables: {known}")
        return [self.folder / entry.path for entry in entries]

    def table_files(self) -> dict[str, dict[str, list[Path]]]:
        """The Parquet files of every table by split, in reading order."""
        rows = self.manifest.rows
        return {table: {split: self.files(table, split) for split in splits} for table, splits in rows.items()}


@dataclass(frozen=True)
class Store:
    """A folder that holds corpora, the annotation ledger, the media index and the run records."""

    root: Path  # the folder
    remote: Remote | None = None  # the object store whose copy it is; None for a store of its own

    @property
    def address(self) -> str:
        """How messages name the store: its folder, or its URL."""
        return self.remote.url if self.remote else str(self.root)

    def absolute(self) -> Store:
        """The same store, for processes that work in another folder."""
        return replace(self, root=self.root.absolute())

    def refresh(self, corpus: str | None = None) -> None:
        """Bring what was withdrawn and the manifests of an object store's versions here, of one corpus or all.

        The versions' files come later. What is no longer there is no version here either.
        """
        if self.remote is None:
            return
        bring_withdrawals(self.root, self.remote)
        there = self.remote.committed(corpus or "*")
        for copy in [version for name in ([corpus] if corpus else self.corpora()) for version in self.versions(name)]:
            if (copy.corpus, copy.name) not in there:
                (copy.folder / MANIFEST).unlink(missing_ok=True)
        for name, version in there:
            if not (path := self.folder(name) / version / MANIFEST).is_file():
                write_text(path, self.remote.read_manifest(name, version).to_json())

    def fetch(self, version: Version, *, tables_only: bool = False) -> Version:
        """Bring a version's files here, or only its tables', if the store is an object store's copy; the version."""
        if self.remote is not None:
            entries = [entry for entry in version.manifest.files if entry.table or not tables_only]
            self.remote.fetch(version.manifest, version.folder, entries)
        return version

    def corpora(self) -> list[str]:
        """Names of the corpora that have at least one version."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if entry.is_dir() and self.versions(entry.name))

    def folder(self, corpus: str) -> Path:
        """Where a corpus's versions lie."""
        return self.root / corpus

    def versions(self, corpus: str) -> list[Version]:
        """The committed versions, oldest first. A folder without a manifest is none."""
        folder = self.folder(corpus)
        if not folder.is_dir():
            return []
        found = [entry for entry in folder.iterdir() if _VERSION.match(entry.name) and (entry / MANIFEST).is_file()]
        return sorted((Version(corpus, entry) for entry in found), key=lambda version: version.number)

    def latest(self, corpus: str) -> Version | None:
        """The newest version, or None where there is none yet."""
        versions = self.versions(corpus)
        return versions[-1] if versions else None

    def next_name(self, corpus: str, claimant: str) -> str:
        """The name of the next version: past every `vN` folder, even one that lost its manifest to a broken copy."""
        if self.remote is not None:
            return self.remote.claim(corpus, claimant)
        folder = self.folder(corpus)
        taken = [int(match[1]) for entry in folder.iterdir() if (match := _VERSION.match(entry.name))]
        return f"v{max(taken, default=0) + 1}"

    def with_key(self, corpus: str, build_key: str) -> Version | None:
        """The newest version that was built from the same inputs, config, prompts, schemas and code, or whose tables
        came out of them again, and that holds nothing that was withdrawn."""
        for version in reversed(self.versions(corpus)):
            if build_key in self.keys(version) and not withdrawal_against(self.root, version.manifest):
                return version
        return None

    def keys(self, version: Version) -> set[str]:
        """The build keys that a version answers for: its own, and those of later builds with the same tables."""
        beside = self._keys_of(version)
        return {version.manifest.build_key, *(beside.read_text("utf-8").split() if beside.is_file() else ())}

    def remember_key(self, version: Version, build_key: str) -> None:
        """Note beside a version, on this machine, that a build with this key made the same tables."""
        if build_key not in (keys := self.keys(version)):
            write_text(self._keys_of(version), "".join(f"{key}\n" for key in sorted({*keys, build_key})))

    def _keys_of(self, version: Version) -> Path:
        return self.folder(version.corpus) / f"{version.name}.keys"

    def find(self, spec: str) -> Version:
        """The version that `CORPUS` (its newest) or `CORPUS@vN` names.

        Raises:
            StoreError: the words do not name a version, or there is no such version.
        """
        match = _SPEC.match(spec)
        if match is None:
            raise StoreError(f"expected CORPUS or CORPUS@vN, found '{spec}'")
        versions = self.versions(match["corpus"])
        if not versions:
            known = ", ".join(self.corpora()) or "none; build one first"
            raise StoreError(f"no version of '{match['corpus']}' in {self.address}; corpora there: {known}")
        if match["version"] is None:
            return self.fetch(versions[-1])
        named = {version.name: version for version in versions}
        if match["version"] not in named:
            raise StoreError(
                f"{match['corpus']} has no {match['version']} in {self.address}; found: {', '.join(named)}"
            )
        return self.fetch(named[match["version"]])


def open_store(where: str | None) -> Store:
    """The store that `--store`, else `EARMARK_STORE`, else `data/store` names.

    Raises:
        StoreError: the name is a URL of an unsupported kind or cannot be reached, or an existing file.
        ConfigError: it lies outside `EARMARK_ROOTS`, and is not `EARMARK_STORE`.
        MissingExtraError: an object store without the extra `scale`.
    """
    written = where or os.environ.get("EARMARK_STORE") or str(DEFAULT_STORE)
    written = written.removeprefix("file://")
    if "://" in written:
        _require_allowed(written)
        remote = open_remote(written)
        store = Store(remote.copy, remote)
        store.refresh()
        return store
    root = Path(written).expanduser()
    if odd := sorted(set(str(root)) & set("*?[]{}\n")):
        raise StoreError(f"store: expected a path without wildcard characters, found {odd[0]!r} in {str(root)!r}")
    if root.exists() and not root.is_dir():
        raise StoreError(f"store: expected a folder, found a file: {root}")
    store = Store(root, remote_of(root))
    _require_allowed(store.address)  # a copy is where its URL is
    store.refresh()
    return store


def _require_allowed(address: str) -> None:
    """The store of the environment may lie anywhere, others below the environment's roots."""
    own = os.environ.get("EARMARK_STORE")
    if own is None or _absolute(address) != _absolute(own.removeprefix("file://")):
        require_below_roots("store", address)


def _absolute(address: str) -> str:
    return address.rstrip("/") if "://" in address else str(Path(address).expanduser().resolve())


def manifest_fault(version: Version) -> str | None:
    """What is wrong with a version's manifest itself, one line: not whole, or another version's; None if nothing is."""
    try:
        manifest = version.manifest
    except StoreError as error:
        return str(error)
    if (manifest.corpus, manifest.version) == (version.corpus, version.name):
        return None
    return (
        f"{version.folder / MANIFEST}: expected the manifest of {version.corpus} {version.name}, "
        f"found that of {manifest.corpus} {manifest.version}"
    )


def verify(version: Version) -> list[str]:
    """Compare every file of a version with its manifest; of an object store, those of the copy.

    Returns:
        One line for each file that is missing, changed, or not named in the manifest; empty if all is well.
    """
    fault = manifest_fault(version)
    faults = [fault] if fault else []
    for entry in version.manifest.files:
        path = version.folder / entry.path
        if not path.is_file():
            faults.append(f"{entry.path}: missing")
        elif path.stat().st_size != entry.bytes:
            faults.append(f"{entry.path}: expected {entry.bytes} bytes, found {path.stat().st_size}")
        elif (found := sha256_file(path)) != entry.sha256:
            faults.append(f"{entry.path}: expected SHA-256 {entry.sha256[:16]}…, found {found[:16]}…")
    named = {entry.path for entry in version.manifest.files} | {MANIFEST}
    for path in sorted(version.folder.rglob("*")):
        relative = path.relative_to(version.folder).as_posix()
        if path.is_file() and relative not in named:
            faults.append(f"{relative}: not named in the manifest")
    return faults
