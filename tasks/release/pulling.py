"""Pull a published version from the Hub into a store: download, verify against its manifest, rename. No Prefect."""

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants

from earmark.schemas.errors import HubError, StoreError
from earmark.schemas.places import VERSION
from earmark.tasks.pipeline.progress import say, working
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.files import sha256_file, sync, write_text
from earmark.tasks.store.hub import Repo, State
from earmark.tasks.store.lineage import withdrawn_from
from earmark.tasks.store.manifest import CARD, MANIFEST, Manifest, Parent, claimant_of, parse_manifest
from earmark.tasks.store.receipts import Receipt, receipts, save_receipt
from earmark.tasks.store.staging import LOCK, locked
from earmark.tasks.store.versions import Store, Version, verify
from earmark.tasks.store.view_configs import without_views
from earmark.tasks.store.withdrawals import marks_for, withdrawal_against, withdrawals

FOLDER, LOCK_OF_PULLS = ".pull", ".pull.lock"
AT_ONCE = 8  # downloads


@dataclass(frozen=True)
class PublishedVersion:
    """A tagged version of a repository."""

    repo: Repo
    commit: str  # of its tag
    manifest: Manifest  # as the store will hold it: without the views of the publication
    digest: str  # SHA-256 of the repository's manifest
    card: str | None  # the card without views; None if the repository's has none
    private: bool
    parents: tuple[Parent, ...]  # versions of other corpora that are not in the store
    here: bool  # the store holds it already

    @property
    def bytes(self) -> int:
        """Return the size of its files."""
        return sum(entry.bytes for entry in self.manifest.files)


def find_published(repo: Repo, name: str | None, store: Store) -> PublishedVersion:
    """Look at a repository's version; download its manifest alone.

    Args:
        repo: the repository.
        name: the version, such as `v2`; None takes the newest.
        store: the store to pull into.

    Raises:
        HubError: there is no such repository or version, it is not as its manifest says, or the Hub refuses.
        StoreError: the store holds another version of this name, or versions of another origin.
    """
    state = repo.look()
    if state is None:
        raise HubError(f"{repo.name}: not found on {constants.ENDPOINT}, or the token may not see it")
    commit = _commit(repo, state, name)
    place = f"{repo.name}@{commit[:12]}/{MANIFEST}"
    with tempfile.TemporaryDirectory() as folder:
        sent = parse_manifest(repo.fetch(MANIFEST, commit, Path(folder)).read_bytes(), place)
        manifest, card = sent, None
        if sent.views:
            path = repo.fetch(CARD, commit, Path(folder))
            if sha256_file(path) not in {entry.sha256 for entry in sent.files if entry.path == CARD}:
                raise HubError(f"{place}: {CARD} is not as the manifest says; nothing was pulled")
            manifest = without_views(sent, path.read_text("utf-8"), Path(folder))
            card = path.read_text("utf-8")
    if state.tags.get(manifest.version) != commit:
        raise HubError(f"{place} is the manifest of {manifest.version}, and that tag names another commit")
    find_corpus(manifest.corpus)
    sizes = {file.path: file.bytes for file in repo.files(commit)}
    for entry in sent.files:
        if sizes.get(entry.path) != entry.bytes:
            raise HubError(f"{place}: {entry.path}: expected {entry.bytes} bytes, found {sizes.get(entry.path)}")
    here = _is_here(store, repo, manifest, sent.digest())
    if (withdrawal := withdrawal_against(store.root, manifest)) and withdrawal.holds(manifest):
        raise StoreError(
            f"{manifest.corpus} {manifest.version} holds what was withdrawn from this store on "
            f"{withdrawal.withdrawn:%Y-%m-%d} ({withdrawal.reason}); it is not pulled"
        )
    parents = tuple(one for one in manifest.parents if one.corpus != manifest.corpus and not _holds(store, one))
    return PublishedVersion(repo, commit, manifest, sent.digest(), card, state.private, parents, here)


def pull(published: PublishedVersion, store: Store) -> Version:
    """Bring a published version into the store; a killed pull can be repeated.

    Raises:
        HubError: a download failed, or a file is not as the manifest says; the store is unchanged.
        StoreError: the store got another version of this name meanwhile, or rows of it were withdrawn from the store.
    """
    manifest, folder = published.manifest, store.folder(published.manifest.corpus)
    version = Version(manifest.corpus, folder / manifest.version)
    if not published.here:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / LOCK_OF_PULLS, f"pull of {manifest.corpus}", say):
            downloaded = folder / FOLDER / published.commit / manifest.version
            _download(published, downloaded)
            with locked(folder / LOCK, f"build of {manifest.corpus}", say):
                _require_none_withdrawn(store, Version(manifest.corpus, downloaded))
                if not _is_here(store, published.repo, manifest, published.digest):
                    _place(store, manifest, downloaded, version.folder)
            shutil.rmtree(folder / FOLDER)
    save_receipt(store, _receipt(published))
    return version


def _commit(repo: Repo, state: State, name: str | None) -> str:
    tags = sorted((tag for tag in state.tags if VERSION.fullmatch(tag)), key=lambda tag: int(tag[1:]))
    if not tags:
        raise HubError(f"{repo.name} has no version: expected tags v1, v2, … of `earmark publish`")
    if name is not None and name not in tags:
        raise HubError(f"{repo.name} has no {name}; versions there: {', '.join(tags)}")
    return state.tags[name or tags[-1]]


def _is_here(store: Store, repo: Repo, manifest: Manifest, digest: str) -> bool:
    """Return whether the store holds the version published under a digest; another one in its place is an error."""
    known = receipts(store, manifest.corpus)
    ours = [one for one in known if one.repo == repo.name and one.endpoint == constants.ENDPOINT]
    for version in store.versions(manifest.corpus):
        if version.name == manifest.version:
            sent = {one.published_manifest for one in ours if one.version == version.name}
            if version.manifest.digest() == manifest.digest() or digest in sent:
                _require_whole(store, version)
                return True
            raise StoreError(
                f"{store.address} holds another {manifest.corpus} {manifest.version}; pull into another: --store DIR"
            )
        if not ours:
            raise StoreError(
                f"{store.address} holds {manifest.corpus} {version.name}, which does not come from {repo.name}; "
                "pull into another: --store DIR"
            )
    place = store.folder(manifest.corpus) / manifest.version
    if store.remote is None and place.is_dir() and any(place.iterdir()):
        raise StoreError(
            f"{place}: expected a whole version or no folder, found one without {MANIFEST}; "
            "move it away, and pull again"
        )
    return False


def _require_whole(store: Store, version: Version) -> None:
    """Refuse a version with a missing file, or one of another size; an object store's copy is brought on demand."""
    if store.remote is not None:
        return
    for entry in version.manifest.files:
        try:
            version.whole(entry)
        except StoreError as error:
            raise StoreError(f"{error}; move the folder of the damaged version away, and pull again") from None


def _holds(store: Store, parent: Parent) -> bool:
    return any(version.name == parent.version for version in store.versions(parent.corpus))


def _download(published: PublishedVersion, folder: Path) -> None:
    manifest, repo = published.manifest, published.repo
    paths = [*(entry.path for entry in manifest.files), MANIFEST]
    with (
        working(f"download {manifest.corpus} {manifest.version}", len(paths)) as work,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        for _ in pool.map(lambda path: repo.fetch(path, published.commit, folder), paths):
            work.advance(1)
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # where the client notes what it has
    if published.card is not None:
        write_text(folder / CARD, published.card)
        write_text(folder / MANIFEST, manifest.to_json())
    with working(f"verify {manifest.corpus} {manifest.version}"):
        faults = verify(Version(manifest.corpus, folder))
    if faults:
        shutil.rmtree(folder)
        raise HubError(f"{repo.name}: {manifest.version} is not as its manifest says: {faults[0]}; nothing was pulled")


def _require_none_withdrawn(store: Store, version: Version) -> None:
    """Refuse rows that were withdrawn from the store: a part or a version with another card has another digest."""
    if marks := marks_for(withdrawals(store.root), version.corpus):
        gone = withdrawn_from(find_corpus(version.corpus).tables, version.table_files(), marks)
        if gone.counts:
            shutil.rmtree(version.folder.parents[1])
            rows = ", ".join(f"{name} {count:,}" for name, count in gone.counts.items())
            raise StoreError(
                f"{version.corpus} {version.name} holds rows that were withdrawn from this store ({rows}); "
                "it is not pulled"
            )


def _place(store: Store, manifest: Manifest, downloaded: Path, final: Path) -> None:
    if store.remote is not None:
        if not store.remote.claims(manifest.corpus, manifest.version, claimant_of(manifest.build_key, ())):
            raise StoreError(f"{store.address}: {manifest.corpus} {manifest.version} is claimed by another build")
        store.remote.send(downloaded, manifest, None)
        store.remote.conclude(downloaded, manifest)
    downloaded.rename(final)
    sync(final.parent)


def _receipt(published: PublishedVersion) -> Receipt:
    manifest = published.manifest
    return Receipt(
        corpus=manifest.corpus,
        version=manifest.version,
        endpoint=constants.ENDPOINT,
        repo=published.repo.name,
        private=published.private,
        commit=published.commit,
        tag=manifest.version,
        manifest=manifest.digest(),
        published_manifest=published.digest,
        files=len(manifest.files) + 1,
        bytes=published.bytes,
        published=published.repo.date(published.commit),
    )
