"""Free the space of old versions and downloaded inputs. No ledger row is removed: an answer paid for stays."""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from earmark.schemas.errors import StoreError
from earmark.schemas.places import VERSION, cache_folder
from earmark.tasks.pipeline.progress import say
from earmark.tasks.store.receipts import receipts
from earmark.tasks.store.remote import Remote
from earmark.tasks.store.runs import under_way
from earmark.tasks.store.staging import LOCK, locked
from earmark.tasks.store.versions import MANIFEST, Store, Version

PRUNED = ".pruned-"
INPUTS = "inputs"  # below the cache: copies of inputs behind URLs, downloaded anew when a build needs them


@dataclass(frozen=True)
class PruneDecision:
    """A version, and why it stays."""

    version: Version
    stays: str | None  # None: it goes


def decide(store: Store, corpora: Sequence[str], keep: int, keep_published: bool) -> list[PruneDecision]:
    """Decide which versions go: all but the newest `keep`, published ones if so wished, and versions that others,
    which stay, were made from.

    Args:
        store: the store; every corpus of it is searched for such others.
        corpora: the corpora to prune.
        keep: the number of newest versions that stay, 1 or more: numbers are never used again.
        keep_published: whether published versions stay.

    Raises:
        StoreError: a version that stays lacks a file, or has one of another size.
    """
    every = {(one.corpus, one.name): one for name in store.corpora() for one in store.versions(name)}
    stays: dict[tuple[str, str], str] = {key: "not asked for" for key in every if key[0] not in corpora}
    for name in corpora:
        versions = store.versions(name)
        stays |= {(name, one.name): f"newest {keep}" if keep > 1 else "newest" for one in versions[-keep:]}
        if keep_published:
            stays |= {(name, one.version): f"published to {one.repo}" for one in receipts(store, name)}
    left = [every[key] for key in stays if key in every]
    while left:
        version = left.pop()
        for parent in version.manifest.parents:
            key = (parent.corpus, parent.version)
            if parent.corpus != version.corpus and key in every and key not in stays:
                stays[key] = f"{version.corpus} {version.name} was made from it"
                left.append(every[key])
    decisions = [PruneDecision(one, stays.get(key)) for key, one in every.items() if key[0] in corpora]
    losing = {one.version.corpus for one in decisions if one.stays is None}
    for kept in [one.version for one in decisions if one.stays is not None and one.version.corpus in losing]:
        store.require_whole(kept)  # a sound version must not go in favour of a damaged one
    return decisions


def freed_bytes(store: Store, versions: Sequence[Version]) -> int:
    """Return the bytes that removing versions frees, of an object store there; files that others share by hard links
    free nothing."""
    if store.remote is not None:  # the copy may hold none of the files
        return sum(entry.bytes for one in versions for entry in one.manifest.files)
    stats = [path.stat() for one in versions for path in one.folder.rglob("*") if path.is_file()]
    links = Counter((stat.st_dev, stat.st_ino) for stat in stats)
    sizes = {(stat.st_dev, stat.st_ino): stat for stat in stats}
    return sum(stat.st_size for key, stat in sizes.items() if links[key] == stat.st_nlink)


def prune(store: Store, decisions: Sequence[PruneDecision]) -> None:
    """Remove the versions that go: each is gone at once for readers, and a killed removal is finished by the next.

    Raises:
        StoreError: a build is under way, which may read them.
    """
    if work := under_way(store):
        raise StoreError(f"{work} is under way; prune when it has ended")
    for corpus in {one.version.corpus: None for one in decisions}:
        with locked(store.folder(corpus) / LOCK, f"build of {corpus}", say):
            if store.remote is not None:
                _end_removals(store.folder(corpus), store.remote)
            _remove_renamed(store.folder(corpus))
            for version in (one.version for one in decisions if one.version.corpus == corpus and one.stays is None):
                if store.remote is not None:
                    store.remote.remove(version.manifest)
                version.folder.rename(version.folder.with_name(f"{PRUNED}{version.name}"))
                version.folder.with_suffix(".keys").unlink(missing_ok=True)
            _remove_renamed(store.folder(corpus))


def _remove_renamed(folder: Path) -> None:
    for doomed in folder.glob(f"{PRUNED}*"):
        doomed.unlink() if doomed.is_symlink() else shutil.rmtree(doomed)


def _end_removals(folder: Path, remote: Remote) -> None:
    """End removals from a bucket that were killed: of files there, and in the copy's folder of a corpus."""
    for name in remote.closed(folder.name):
        remote.discard(folder.name, name)
    left = [one for one in folder.iterdir() if VERSION.fullmatch(one.name) and not (one / MANIFEST).is_file()]
    there = remote.committed(folder.name)  # looked at afterwards: a reader may just have begun a folder
    for one in left:
        if (folder.name, one.name) not in there:
            shutil.rmtree(one)


def inputs_folder() -> tuple[Path, int]:
    """Return the folder of downloaded inputs, and its bytes."""
    folder = cache_folder() / INPUTS
    return folder, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remove_inputs(folder: Path) -> None:
    """Remove the downloaded inputs; the next build that names them downloads them again."""
    if folder.is_dir():
        shutil.rmtree(folder)
