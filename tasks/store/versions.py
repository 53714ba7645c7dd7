"""Find, read and verify versions: a store has a folder for each corpus, with immutable versions `v1`, `v2` and on."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from earmark.schemas.errors import StoreError
from earmark.schemas.places import CORPUS, VERSION, require_below_roots
from earmark.tasks.store.files import DESKTOPS, no_link, replacing, sha256_file, write_text
from earmark.tasks.store.manifest import MANIFEST as MANIFEST
from earmark.tasks.store.manifest import PAGES, FileEntry, Manifest, Parent, read_manifest
from earmark.tasks.store.remote import Remote, open_remote, remote_of
from earmark.tasks.store.withdrawals import bring_withdrawals, withdrawal_against

DEFAULT_STORE = Path("data/store")
_SPEC = re.compile(rf"(?P<corpus>{CORPUS.pattern})(@(?P<version>{VERSION.pattern}))?")


@dataclass(frozen=True)
class Version:
    """A committed version."""

    corpus: str  # the corpus's name
    folder: Path  # `<store>/<corpus>/vN`
    remote: Remote | None = field(default=None, compare=False)  # the object store behind this copy, for messages

    @property
    def name(self) -> str:
        """Return the version's name, such as `v3`."""
        return self.folder.name

    @property
    def number(self) -> int:
        """Return the version's number, such as 3 for `v3`."""
        return int(self.name[1:])

    @cached_property
    def manifest(self) -> Manifest:
        """Return the version's manifest, read once.

        Raises:
            StoreError: it is damaged, or another version's, as of a folder renamed or copied by hand.
        """
        place = f"{self.remote.url}/{self.corpus}/{self.name}/{MANIFEST}" if self.remote else None
        manifest = read_manifest(self.folder / MANIFEST, place)
        if (manifest.corpus, manifest.version) != (self.corpus, self.name):
            raise StoreError(
                f"{place or self.folder / MANIFEST}: expected the manifest of {self.corpus} {self.name}, "
                f"found that of {manifest.corpus} {manifest.version}"
            )
        return manifest

    def as_parent(self) -> Parent:
        """Return the version as a parent of others."""
        return Parent(corpus=self.corpus, version=self.name, digest=self.manifest.digest())

    def files(self, table: str, split: str | None = None) -> list[Path]:
        """Return the Parquet files of a table or of a split of it, in reading order.

        Raises:
            StoreError: the table or split does not exist in the version, or a file is missing or of another size.
        """
        entries = self.manifest.entries(table, split)
        if not entries:
            known = ", ".join(sorted(self.manifest.rows))
            raise StoreError(f"{self.corpus} {self.name} has no table '{table}' with split '{split}'; tables: {known}")
        return [self.whole(entry) for entry in entries]

    def path(self, entry: FileEntry) -> Path:
        """Return the path of a file of the version.

        Raises:
            StoreError: a part of the path is a link.
        """
        return no_link(self.folder, entry.path)

    def whole(self, entry: FileEntry) -> Path:
        """Return the path of a file of the version, to be read.

        Raises:
            StoreError: it is missing, or of another size than in the manifest.
        """
        path = self.path(entry)
        found = path.stat().st_size if path.is_file() else None
        if found != entry.bytes:
            raise StoreError(
                f"{path}: expected {entry.bytes:,} bytes, as the manifest says, found "
                f"{'no file' if found is None else f'{found:,}'}; see: earmark inspect verify {self.corpus}@{self.name}"
            )
        return path

    def table_files(self) -> dict[str, dict[str, list[Path]]]:
        """Return the Parquet files of all tables by split, in reading order; raises as `files`."""
        rows = self.manifest.rows
        return {table: {split: self.files(table, split) for split in splits} for table, splits in rows.items()}

    def files_there(self, table: str) -> list[Path]:
        """Return the Parquet files of a table on this machine, whatever their state."""
        return [path for entry in self.manifest.entries(table) if (path := self.path(entry)).is_file()]


@dataclass(frozen=True)
class Store:
    """A folder of corpora, the annotation ledger, the media index and the run records."""

    root: Path  # the folder
    remote: Remote | None = None  # the object store behind this copy; None for a local store
    named: str = ""  # of a dry run: the address of the store that it stands for
    looked: Any = field(default=None, compare=False)  # of a dry run: results of clips, from `tasks/pipeline/media.py`

    @property
    def address(self) -> str:
        """Return the store's name in messages: its folder, or its URL."""
        return self.named or (self.remote.url if self.remote else str(self.root))

    def absolute(self) -> Store:
        """Return the same store with an absolute path, for processes in another folder."""
        return replace(self, root=self.root.absolute())

    def refresh(self, corpus: str | None = None) -> None:
        """Download withdrawals and manifests of an object store, for one corpus or all, and hide versions gone there.
        Other files are downloaded on demand."""
        if self.remote is None:
            return
        bring_withdrawals(self.root, self.remote)
        there = self.remote.committed(corpus)
        for copy in [version for name in ([corpus] if corpus else self.corpora()) for version in self.versions(name)]:
            if (copy.corpus, copy.name) not in there:  # renamed only: reading a store removes nothing
                with suppress(FileNotFoundError):  # another process was first
                    (copy.folder / MANIFEST).rename(self.folder(copy.corpus) / f"{copy.name}.gone")
        for (name, version), size in there.items():
            path = self.folder(name) / version / MANIFEST
            # damaged or mended there since, it has another size; whoever reads the version is told, nobody else
            if (not path.is_file() or path.stat().st_size != size) and (
                text := self.remote.manifest_text(name, version)
            ):
                with replacing(path) as new:
                    new.write_bytes(text)

    def fetch(self, version: Version, *, tables_only: bool = False) -> Version:
        """Download a version's files, or only its tables', if the store is a copy; return the version."""
        if self.remote is not None:
            entries = [entry for entry in version.manifest.files if entry.table or not tables_only]
            self.remote.fetch(version.manifest, version.folder, entries)
        return version

    def corpora(self) -> list[str]:
        """Return the names of corpora with at least one version."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if entry.is_dir() and self.versions(entry.name))

    def folder(self, corpus: str) -> Path:
        """Return the folder of a corpus's versions."""
        return self.root / corpus

    def versions(self, corpus: str) -> list[Version]:
        """Return the committed versions, oldest first, ignoring folders without a manifest."""
        folder = self.folder(corpus)
        if not folder.is_dir():
            return []
        found = [entry for entry in folder.iterdir() if VERSION.fullmatch(entry.name) and (entry / MANIFEST).is_file()]
        return sorted((Version(corpus, entry, self.remote) for entry in found), key=lambda version: version.number)

    def latest(self, corpus: str) -> Version | None:
        """Return the newest version, or None."""
        versions = self.versions(corpus)
        return versions[-1] if versions else None

    def newest(self, corpus: str) -> Version | None:
        """Return the newest version, or None; of an object store, refreshed and downloaded."""
        self.refresh(corpus)
        latest = self.latest(corpus)
        return self.fetch(latest) if latest else None

    def claim(self, corpus: str, claimant: str, before: Version | None) -> str | None:
        """Claim the name of the version after `before`, after all `vN` folders, even those without a manifest after a
        broken copy. Return None if another machine has committed a version since; its tables may be the same."""
        if self.remote is None:
            taken = [int(entry.name[1:]) for entry in self.folder(corpus).iterdir() if VERSION.fullmatch(entry.name)]
            return f"v{max(taken, default=0) + 1}"
        name, number = self.remote.claim(corpus, claimant), before.number if before else 0
        if name != f"v{number + 1}":
            self.refresh(corpus)
            latest = self.latest(corpus)
            if latest is not None and latest.number > number:
                return None
        return name

    def with_key(self, corpus: str, build_key: str) -> Version | None:
        """Return the newest version with this build key (its own, or of a build with equal tables) and nothing
        withdrawn.

        Raises:
            StoreError: a file of it is missing or of another size.
        """
        for version in reversed(self.versions(corpus)):
            if build_key in self.keys(version) and not withdrawal_against(self.root, version.manifest):
                self.require_whole(version)
                return version
        return None

    def require_whole(self, version: Version) -> None:
        """Check that no file of a version's data is missing or of another size, of an object store there.

        Raises:
            StoreError: a file is.
        """
        if self.remote is not None:
            self.remote.require_whole(version.manifest)
            return
        for entry in version.manifest.files:
            if entry.path not in PAGES:
                version.whole(entry)

    def keys(self, version: Version) -> set[str]:
        """Return a version's build keys: its own, and keys of later builds with the same tables."""
        beside = self._keys_of(version)
        return {version.manifest.build_key, *(beside.read_text("utf-8").split() if beside.is_file() else ())}

    def remember_key(self, version: Version, build_key: str) -> None:
        """Save beside a version, on this machine only, the key of another build of the same tables."""
        if build_key not in (keys := self.keys(version)):
            write_text(self._keys_of(version), "".join(f"{key}\n" for key in sorted({*keys, build_key})))

    def _keys_of(self, version: Version) -> Path:
        return self.folder(version.corpus) / f"{version.name}.keys"

    def find(self, spec: str, *, fetch: bool = True) -> Version:
        """Return the version named by `CORPUS` (its newest) or `CORPUS@vN`, downloaded with `fetch`.

        Raises:
            StoreError: `spec` is malformed, or the version does not exist.
        """
        match = _SPEC.fullmatch(spec)
        if match is None:
            name, _, number = spec.partition("@")
            hint = f"; versions are named v1, v2, …: {name}@v{number}" if number.isdecimal() else ""
            raise StoreError(f"expected CORPUS or CORPUS@vN, found '{spec}'{hint}")
        corpus, number = match.group("corpus", "version")
        versions = self.versions(corpus)
        if not versions:
            known = ", ".join(self.corpora()) or "none; build one first"
            raise StoreError(f"no version of '{corpus}' in {self.address}; corpora there: {known}")
        named = {version.name: version for version in versions}
        if number is not None and number not in named:
            raise StoreError(f"{corpus} has no {number} in {self.address}; found: {', '.join(named)}")
        version = versions[-1] if number is None else named[number]
        return self.fetch(version) if fetch else version


def open_store(where: str | None) -> Store:
    """Return the store named by `--store`, else `EARMARK_STORE`, else `data/store`.

    Raises:
        StoreError: the name is a URL of an unsupported kind or cannot be reached, or an existing file.
        ConfigError: the store is outside `EARMARK_ROOTS`, and is not `EARMARK_STORE`.
    """
    written = where.removeprefix("file://") if where else _default()
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
    _require_allowed(store.address)  # the URL of a copy decides, not its folder
    store.refresh()
    return store


def _require_allowed(address: str) -> None:
    """Refuse a store outside the environment's roots, except `EARMARK_STORE` itself."""
    own = os.environ.get("EARMARK_STORE")
    if own is None or _absolute(address) != _absolute(own.removeprefix("file://")):
        require_below_roots("store", address)


def is_default(store: Store) -> bool:
    """Return whether a command opens this store without `--store`."""
    return _absolute(store.address) == _absolute(_default())


def _default() -> str:
    return (os.environ.get("EARMARK_STORE") or str(DEFAULT_STORE)).removeprefix("file://")


def _absolute(address: str) -> str:
    return address.rstrip("/") if "://" in address else str(Path(address).expanduser().resolve())


def manifest_fault(version: Version) -> str | None:
    """Return a line on a manifest either damaged or of another version; None for a sound one."""
    try:
        _ = version.manifest
    except StoreError as error:
        return str(error)
    return None


def verify(version: Version) -> list[str]:
    """Compare all files of a version with its manifest; for an object store, the files of the copy.

    Returns:
        A line for each file missing, changed, or absent from the manifest; empty if all are as recorded.
    """
    faults = []
    for entry in version.manifest.files:
        try:
            path = version.path(entry)
        except StoreError as error:
            faults.append(str(error))
            continue
        if not path.is_file():
            faults.append(f"{entry.path}: missing")
        elif path.stat().st_size != entry.bytes:
            faults.append(f"{entry.path}: expected {entry.bytes} bytes, found {path.stat().st_size}")
        elif (found := sha256_file(path)) != entry.sha256:
            faults.append(f"{entry.path}: expected SHA-256 {entry.sha256[:16]}…, found {found[:16]}…")
    named = {entry.path for entry in version.manifest.files} | {MANIFEST}
    for path in sorted(version.folder.rglob("*")):
        relative = path.relative_to(version.folder).as_posix()
        if path.is_file() and relative not in named and path.name not in DESKTOPS:
            faults.append(f"{relative}: not named in the manifest")
    return faults


def ledger_address(store: Store) -> str:
    """Return the ledger's address: `EARMARK_LEDGER` (a file or a postgresql:// URL), else `<store>/ledger.sqlite`."""
    named = os.environ.get("EARMARK_LEDGER") or str(store.root / "ledger.sqlite")
    return named if "://" in named else str(Path(named).absolute())


def has_ledger(store: Store) -> bool:
    """Return whether a ledger exists: a dry run must not create an empty one."""
    address = ledger_address(store)
    return "://" in address or Path(address).is_file()
