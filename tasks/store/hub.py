"""Publish to the Hub: look at a repository, upload, commit once, check, tag. Each step can be repeated after a kill.
Readers see no change before the commit; the tag follows its check."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, HfFileSystem, constants, get_token
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import disable_progress_bars

from earmark.schemas.errors import HubError, HubUnreachableError, InputError
from earmark.schemas.places import hub_parts, path_below
from earmark.tasks.store.manifest import CARD, Manifest
from earmark.tasks.store.objects import BLOCK_BYTES, COMMITS, Object, first_words
from earmark.tasks.store.versions import MANIFEST

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


BATCH = 50  # files uploaded between progress reports; finished uploads are not repeated
KIND = "dataset"
MAIN = "main"
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # of this machine: the Hub is well
_BRANCH = re.compile(r"[a-z0-9](?:[\w-]|[./](?=[\w-])){0,99}", re.ASCII | re.IGNORECASE)
_NO_BRANCH = re.compile(r"HEAD|refs/.*|v\d+|[0-9a-fA-F]{40}|.*\.lock(/.*)?")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True)
class State:
    """Current state of a repository."""

    head: str  # commit of the target branch; of main until the branch exists
    has_branch: bool  # whether the target branch exists
    private: bool  # whether hidden from everyone but its owners
    tags: dict[str, str]  # commits by tag
    files: tuple[HubFile, ...]  # files of the head commit
    manifest: dict[str, Any] | None  # its `manifest.json`, if present
    gated: bool = False  # whether readers must ask for access

    @property
    def earlier(self) -> list[str]:
        """Return the paths listed by the published version's manifest."""
        if self.manifest is None:
            return []
        return [str(file["path"]) for key in ("files", "views") for file in self.manifest.get(key, [])] + [MANIFEST]


@dataclass(frozen=True)
class Repo:
    """A repository of the Hub at `HF_ENDPOINT`; the token comes from `HF_TOKEN` or from `hf auth login`."""

    name: str  # `ORG/NAME`
    branch: str | None = None  # a branch beside main, without tags; None: main, with tagged versions
    api: HfApi = field(default_factory=HfApi, compare=False)

    def __post_init__(self) -> None:
        if not _REPO.fullmatch(self.name):
            raise HubError(f"expected --repo ORG/NAME, found '{self.name}'")
        if self.branch in ("", MAIN):
            raise HubError(f"--branch '{self.branch}': leave --branch out to publish to main")
        if not _BRANCH.fullmatch(self.revision) or _NO_BRANCH.fullmatch(self.revision):
            raise HubError(
                "expected --branch with letters, digits, '-', '_', '.' and '/', and not as tags (v1), commits, HEAD, "
                f"refs/… and *.lock are named; found {self.branch!r}"
            )
        disable_progress_bars()

    @property
    def revision(self) -> str:
        """Return the Hub's name of the branch."""
        return MAIN if self.branch is None else self.branch

    @property
    def url(self) -> str:
        """Return the address of the repository's page."""
        return f"{constants.ENDPOINT}/datasets/{self.name}"

    def look(self) -> State | None:
        """Return the repository's state; None if it is missing or hidden from this token."""
        with _spoken(self.name):
            try:
                info = self.api.repo_info(self.name, repo_type=KIND)
            except RepositoryNotFoundError:
                return None
            refs = self.api.list_repo_refs(self.name, repo_type=KIND)
            heads = {branch.name: branch.target_commit for branch in refs.branches}
            head = heads.get(self.revision, info.sha)
            tags = {tag.name: tag.target_commit for tag in refs.tags}
            files = self.files(head)
            has_manifest = any(file.path == MANIFEST for file in files)
            manifest = self._manifest(head) if has_manifest else None
            return State(head, self.revision in heads, bool(info.private), tags, files, manifest, bool(info.gated))

    def create(self, private: bool) -> None:
        """Create the repository, and the branch as a copy of main, unless they exist."""
        with _spoken(self.name):
            if get_token() is None:
                raise HubError("no token for the Hub: set HF_TOKEN, or log in with: hf auth login")
            self.api.create_repo(self.name, repo_type=KIND, private=private or None, exist_ok=True)
            if self.branch is not None:
                self.api.create_branch(self.name, branch=self.branch, repo_type=KIND, exist_ok=True)

    def gate(self) -> None:
        """Have readers ask for access, which the owner grants, unless it is gated already."""
        with _spoken(self.name):
            if not self.api.repo_info(self.name, repo_type=KIND).gated:
                self.api.update_repo_settings(self.name, gated="manual", repo_type=KIND)

    def card(self, revision: str) -> dict[str, Any]:
        """Return the facts at the head of a revision's card."""
        from huggingface_hub import DatasetCard

        with _spoken(self.name):
            return dict(DatasetCard(self._read(CARD, revision).decode()).data.to_dict())

    def files(self, revision: str) -> tuple[HubFile, ...]:
        """Return the files of a revision."""
        with _spoken(self.name):
            listed = self.api.list_repo_tree(self.name, recursive=True, revision=revision, repo_type=KIND)
            return tuple(
                HubFile(item.path, item.size, item.blob_id, item.lfs.sha256 if item.lfs else None)
                for item in listed
                if hasattr(item, "blob_id")
            )

    def fetch(self, path: str, revision: str, folder: Path) -> Path:
        """Download a file of a revision into a folder, unless it is there; return its path."""
        with _spoken(self.name):
            return Path(self.api.hf_hub_download(self.name, path, repo_type=KIND, revision=revision, local_dir=folder))

    def manifest_digest(self, revision: str) -> str:
        """Return the SHA-256 of a revision's manifest."""
        with _spoken(self.name):
            return hashlib.sha256(self._read(MANIFEST, revision)).hexdigest()

    def date(self, revision: str) -> datetime:
        """Return the time of a commit."""
        with _spoken(self.name):
            made: datetime = self.api.list_repo_commits(self.name, repo_type=KIND, revision=revision)[0].created_at
            return made

    def commit(self, difference: TreeChanges, head: str, title: str, told: str, advance: Callable[[int], None]) -> str:
        """Upload the difference, then commit it to the branch if its head is still `head`; return the commit's id.

        `advance` gets the number of files just uploaded.

        Raises:
            HubError: the Hub refused, or the branch moved in between; it is unchanged.
        """
        if len(difference.upload) > MOST_FILES:
            raise HubError(
                f"expected at most {MOST_FILES:,} files in one commit, found {len(difference.upload):,}; "
                "build with embedded audio, or publish with --no-audio"
            )
        additions = [_addition(entry) for entry in difference.upload]
        with _spoken(self.name):
            for start in range(0, len(additions), BATCH):
                batch = additions[start : start + BATCH]
                self.api.preupload_lfs_files(
                    self.name, batch, repo_type=KIND, revision=self.revision, free_memory=False
                )
                advance(len(batch))
            deletions = [CommitOperationDelete(path, is_folder=False) for path in difference.delete]
            made = self.api.create_commit(
                self.name,
                [*additions, *deletions],
                commit_message=title,
                commit_description=told,
                repo_type=KIND,
                revision=self.revision,
                parent_commit=head,
            )
            return str(made.oid)

    def check(self, entries: Sequence[PublishedFile], commit: str, earlier: Sequence[str]) -> None:
        """Compare the hashes of a commit's files with the local ones.

        Raises:
            HubError: a path is missing or differs there (the first is named).
        """
        left = compare(entries, self.files(commit), earlier)
        if not left.none:
            path = left.upload[0].path if left.upload else left.delete[0]
            untagged = "; no tag was made" if self.branch is None else ""
            raise HubError(f"{self.name}: commit {commit[:12]} is not what was sent: {path} differs{untagged}")

    def tag(self, name: str, commit: str) -> None:
        """Tag a commit."""
        with _spoken(self.name):
            self.api.create_tag(self.name, tag=name, revision=commit, repo_type=KIND)

    def join(self, collection: str, private: bool) -> str:
        """Add the repository to its owner's collection, made if missing; return the collection's page.

        Raises:
            HubError: the Hub refuses; the publication stays.
        """
        try:
            with _spoken(self.name):
                owner = self.name.partition("/")[0]
                made = self.api.create_collection(collection, namespace=owner, private=private, exists_ok=True)
                self.api.add_collection_item(made.slug, self.name, item_type=KIND, exists_ok=True)
                return str(made.url)
        except HubError as error:
            line = f"{self.name} is published, but is not in the collection '{collection}': {error}; run again"
            raise HubError(line) from None

    def _read(self, path: str, revision: str) -> bytes:
        return Path(self.api.hf_hub_download(self.name, path, repo_type=KIND, revision=revision)).read_bytes()

    def _manifest(self, revision: str) -> dict[str, Any]:
        try:
            found = json.loads(self._read(MANIFEST, revision))
        except ValueError:
            found = None
        files = found.get("files") if isinstance(found, dict) else None
        named = isinstance(files, list) and all(isinstance(file, dict) and "path" in file for file in files)
        if not isinstance(found, dict) or not named:
            raise HubError(f"{self.name}: its {MANIFEST} is not one of Earmark's; expected a repository of its own")
        return found


def _addition(entry: PublishedFile) -> CommitOperationAdd:
    addition = CommitOperationAdd(entry.path, entry.source)
    addition.upload_info.sha256 = bytes.fromhex(entry.sha256)  # already known: saves reading the file again
    return addition


@contextmanager
def _spoken(repo: str) -> Iterator[None]:
    try:
        yield
    except HfHubHTTPError as error:
        raise HubError(_advice(repo, error)) from None
    except OfflineModeIsEnabled:
        raise HubUnreachableError("the Hub's client is offline; unset HF_HUB_OFFLINE") from None
    except (HTTPError, OSError) as error:
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        if isinstance(error.__cause__, HfHubHTTPError):  # the Hub did answer
            raise HubError(_advice(repo, error.__cause__)) from None
        if "xet" in str(error) and "404" in str(error):  # the client follows its own settings, not the Hub's
            raise HubError(f"{constants.ENDPOINT} has no Xet storage; set HF_HUB_DISABLE_XET=1 and run again") from None
        raise HubUnreachableError(
            f"{constants.ENDPOINT} cannot be reached or broke off: {_line(error)}; run again"
        ) from None
    except (RuntimeError, ValueError) as error:  # raised by the client for broken uploads and malformed answers
        if isinstance(error.__cause__, HfHubHTTPError):
            raise HubError(_advice(repo, error.__cause__)) from None
        raise HubError(f"{repo}: the upload failed: {_line(error)}; run again to go on") from None


def _advice(repo: str, error: HfHubHTTPError) -> str:
    if isinstance(error, GatedRepoError):
        page = f"{constants.ENDPOINT}/datasets/{repo}"
        return f"{repo} asks readers for access: ask on {page}, wait until it is granted, or check HF_TOKEN"
    status, said = error.response.status_code, _line(error.server_message or error)
    match status:
        case 401:
            return "the Hub does not accept the token: set HF_TOKEN to a valid one, or log in with: hf auth login"
        case 403:
            return f"the token may not write to {repo}: it needs the right to write there"
        case 404:
            return f"{repo}: the Hub answered 404: not found, or the token may not see it: {said}"
        case 409 | 412:
            return f"{repo} was changed by someone else meanwhile; nothing was overwritten, run again"
        case _:
            return f"{repo}: the Hub answered {status}: {said}; run again to go on"


def _line(error: object) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    token = get_token()
    return (text.replace(token, "…") if token else text)[:300]


MOST_PATHS = 1000  # paths in one request


class HubObjects:
    """Files on the Hub at `HF_ENDPOINT`; the token comes from `HF_TOKEN` or from `hf auth login`. A revision is
    resolved to its commit at first use, once for a whole build (`one_commit_each`); all reads are at this commit."""

    def __init__(self) -> None:
        self._api = HfApi(endpoint=_endpoint())
        self._files = HfFileSystem(endpoint=_endpoint(), skip_instance_cache=True)
        known = COMMITS.get()
        self._commits: dict[tuple[str, str], str] = {} if known is None else known

    def commit(self, url: str) -> str:
        """Return the commit of a URL's revision.

        Raises:
            InputError: the dataset or revision is missing, or hidden from the token.
        """
        repo, revision, _ = hub_parts(url)
        if (repo, revision) not in self._commits:
            with _one_line(url):
                try:
                    info = self._api.dataset_info(repo, revision=unquote(revision))
                except (RepositoryNotFoundError, RevisionNotFoundError):
                    raise InputError(
                        f"hf://datasets/{repo}@{revision}: expected a data set and a revision that the token may read, "
                        "found none; check both names, HF_TOKEN, and whether its page asks to accept terms"
                    ) from None
            self._commits[repo, revision] = str(info.sha)
        return self._commits[repo, revision]

    def look(self, urls: Sequence[str], seen: Callable[[], None]) -> list[Object | None]:
        """Return the Hub's facts about files; None for missing ones."""
        wanted: dict[str, list[tuple[str, str]]] = {}
        for url in urls:
            repo, revision, path = hub_parts(url)
            wanted.setdefault(f"{repo}@{revision}", []).append((path, url))
        objects: dict[str, Object] = {}
        for pairs in wanted.values():
            commit, repo = self.commit(pairs[0][1]), hub_parts(pairs[0][1])[0]
            urls_of = {path: url for path, url in pairs if path}
            paths = list(urls_of)
            for start in range(0, len(paths), MOST_PATHS):
                with _one_line(pairs[0][1]):
                    part = paths[start : start + MOST_PATHS]
                    listed = self._api.get_paths_info(repo, part, revision=commit, repo_type=KIND)
                objects |= {urls_of[item.path]: _object(item) for item in listed if hasattr(item, "blob_id")}
        for _ in urls:
            seen()
        return [objects.get(url) for url in urls]

    def listed(self, url: str) -> Iterator[tuple[str, Object]]:
        """Yield all files at or below a URL, with their URLs."""
        repo, _, path = hub_parts(url)
        (itself,) = self.look([url], lambda: None)
        if itself is not None:
            yield url, itself
            return
        with _one_line(url):
            try:
                items = list(
                    self._api.list_repo_tree(
                        repo, path or None, recursive=True, revision=self.commit(url), repo_type=KIND
                    )
                )
            except EntryNotFoundError:
                items = []
        root = url.rstrip("/").removesuffix(path).rstrip("/")
        for item in items:
            if hasattr(item, "blob_id"):
                try:
                    yield f"{root}/{path_below(item.path)}", _object(item)
                except ValueError as error:
                    raise InputError(f"{root}: {error}") from None

    def require(self, urls: Iterable[str]) -> None:
        """Refuse missing datasets."""
        for url in urls:
            self.commit(url)

    def blocks(self, url: str, start: int, state: Object) -> Iterator[bytes]:
        """Yield a file's bytes from `start` on; a commit's files never change."""
        repo, _, path = hub_parts(url)
        target = f"datasets/{repo}@{self.commit(url)}/{path}"
        with (
            _one_line(url),
            self._files.open(target, "rb", block_size=BLOCK_BYTES, cache_type="readahead", size=state.size) as file,
        ):
            file.seek(start)
            while block := file.read(BLOCK_BYTES):
                yield block


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or constants.ENDPOINT


def _object(item: Any) -> Object:
    return Object(item.lfs.sha256 if item.lfs else item.blob_id, item.size)


def _refused(url: str, error: HfHubHTTPError) -> InputError:
    status = error.response.status_code
    if status in (401, 403):
        return InputError(
            f"{url}: access denied ({first_words(error)}); check HF_TOKEN, and the terms on the data set's page"
        )
    return InputError(f"{url}: {_endpoint()} answered {status}: {first_words(error)}")


@contextmanager
def _one_line(url: str) -> Iterator[None]:
    """Shorten the Hub's errors to one line; pass errors about missing things."""
    try:
        yield
    except (EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError, FileNotFoundError):
        raise
    except OfflineModeIsEnabled:
        raise InputError(f"{url}: the Hub's client is offline; unset HF_HUB_OFFLINE") from None
    except HfHubHTTPError as error:
        raise _refused(url, error) from None
    except (HTTPError, OSError) as error:
        if isinstance(error.__cause__, HfHubHTTPError):  # the Hub did answer
            raise _refused(url, error.__cause__) from None
        raise InputError(f"{url}: {_endpoint()} cannot be reached: {first_words(error)}; build again") from None
