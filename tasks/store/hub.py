"""The Hub: look at a repository, upload, commit once, check, tag. Each step can be repeated after a kill.

Nothing that a reader sees changes before the one commit, and the tag comes after the commit was checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled, RepositoryNotFoundError
from huggingface_hub.utils import disable_progress_bars

from earmark.schemas.errors import HubError, HubUnreachableError
from earmark.tasks.store.hub_tree import MOST_FILES, Difference, Entry, Remote, compare
from earmark.tasks.store.versions import MANIFEST

BATCH = 50  # files that are uploaded before progress is told; what is uploaded is not uploaded again
KIND = "dataset"
MAIN = "main"
_BRANCH = re.compile(r"[a-z0-9](?:[\w-]|[./](?=[\w-])){0,99}", re.ASCII | re.IGNORECASE)
_NO_BRANCH = re.compile(r"HEAD|refs/.*|v\d+|[0-9a-fA-F]{40}|.*\.lock(/.*)?")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True)
class State:
    """A repository as it is now."""

    head: str  # the commit of the branch that is published to; of main where there is no such branch yet
    has_branch: bool  # whether there is one
    private: bool  # whether only its owners see it
    tags: dict[str, str]  # commits by tag
    files: tuple[Remote, ...]  # what that commit holds
    manifest: dict[str, Any] | None  # its `manifest.json`, if there is one

    @property
    def earlier(self) -> list[str]:
        """Paths that the version there names as its own."""
        named = [str(file["path"]) for file in (self.manifest or {}).get("files", [])]
        return [*named, MANIFEST] if self.manifest is not None else []


@dataclass(frozen=True)
class Repo:
    """A repository of the Hub that `HF_ENDPOINT` names; the token comes from `HF_TOKEN` or from `hf auth login`."""

    name: str  # `ORG/NAME`
    branch: str | None = None  # beside main, which may change; None is main, whose versions have tags
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
        """What the Hub calls the branch."""
        return MAIN if self.branch is None else self.branch

    @property
    def url(self) -> str:
        """Its page."""
        return f"{constants.ENDPOINT}/datasets/{self.name}"

    def look(self) -> State | None:
        """What is there; None where there is no repository, or none that this token may see."""
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
            return State(head, self.revision in heads, bool(info.private), tags, files, manifest)

    def create(self, private: bool) -> None:
        """Make the repository, and the branch as a copy of main, unless they are there."""
        with _spoken(self.name):
            if get_token() is None:
                raise HubError("no token for the Hub: set HF_TOKEN, or log in with: hf auth login")
            self.api.create_repo(self.name, repo_type=KIND, private=private or None, exist_ok=True)
            if self.branch is not None:
                self.api.create_branch(self.name, branch=self.branch, repo_type=KIND, exist_ok=True)

    def files(self, revision: str) -> tuple[Remote, ...]:
        """The files of a revision."""
        with _spoken(self.name):
            listed = self.api.list_repo_tree(self.name, recursive=True, revision=revision, repo_type=KIND)
            return tuple(
                Remote(item.path, item.size, item.blob_id, item.lfs.sha256 if item.lfs else None)
                for item in listed
                if hasattr(item, "blob_id")
            )

    def commit(self, difference: Difference, head: str, title: str, told: str, advance: Callable[[int], None]) -> str:
        """Upload what differs, then change the branch, which must still be at the commit `head`, in one commit; its id.
        `advance` gets the number of files that were just uploaded.

        Raises:
            HubError: the Hub refused, or the branch moved meanwhile; it is as it was.
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

    def check(self, entries: Sequence[Entry], commit: str, earlier: Sequence[str]) -> None:
        """List a commit and compare every file's hash with ours.

        Raises:
            HubError: the first path that is missing or other there.
        """
        left = compare(entries, self.files(commit), earlier)
        if not left.none:
            path = left.upload[0].path if left.upload else left.delete[0]
            untagged = "; no tag was made" if self.branch is None else ""
            raise HubError(f"{self.name}: commit {commit[:12]} is not what was sent: {path} differs{untagged}")

    def tag(self, name: str, commit: str) -> None:
        """Give a commit its tag."""
        with _spoken(self.name):
            self.api.create_tag(self.name, tag=name, revision=commit, repo_type=KIND)

    def join(self, collection: str, private: bool) -> str:
        """Add the repository to its owner's collection of a title, which is made if there is none; its page.

        Raises:
            HubError: the Hub refuses; what is published stays published.
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

    def _manifest(self, revision: str) -> dict[str, Any]:
        path = self.api.hf_hub_download(self.name, MANIFEST, repo_type=KIND, revision=revision)
        try:
            found = json.loads(Path(path).read_bytes())
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("files"), list):
            raise HubError(f"{self.name}: its {MANIFEST} is not one of Earmark's; expected a repository of its own")
        return found


def _addition(entry: Entry) -> CommitOperationAdd:
    addition = CommitOperationAdd(entry.path, entry.source)
    addition.upload_info.sha256 = bytes.fromhex(entry.sha256)  # known already: no need to read the file again
    return addition


@contextmanager
def _spoken(repo: str) -> Iterator[None]:
    """Turn the client's errors into one line that says what to do."""
    try:
        yield
    except HfHubHTTPError as error:
        raise HubError(_advice(repo, error)) from None
    except OfflineModeIsEnabled:
        raise HubUnreachableError("the Hub's client is offline; unset HF_HUB_OFFLINE") from None
    except (HTTPError, OSError) as error:
        raise HubUnreachableError(
            f"{constants.ENDPOINT} cannot be reached or broke off: {_line(error)}; run again"
        ) from None
    except (RuntimeError, ValueError) as error:  # how the client tells of a broken upload or an answer out of shape
        if isinstance(error.__cause__, HfHubHTTPError):
            raise HubError(_advice(repo, error.__cause__)) from None
        raise HubError(f"{repo}: the upload failed: {_line(error)}; run again to go on") from None


def _advice(repo: str, error: HfHubHTTPError) -> str:
    status, said = error.response.status_code, _line(error.server_message or error)
    match status:
        case 401:
            return "the Hub does not accept the token: set HF_TOKEN to a valid one, or log in with: hf auth login"
        case 403:
            return f"the token may not write to {repo}: it needs the right to write there"
        case 404:
            return f"{repo}: not found, or the token may not see it: {said}"
        case 409 | 412:
            return f"{repo} was changed by someone else meanwhile; nothing was overwritten, run again"
        case _:
            return f"{repo}: the Hub answered {status}: {said}; run again to go on"


def _line(error: object) -> str:
    """An error's first words, without the token, should it be among them."""
    text = " ".join(str(error).split()) or type(error).__name__
    token = get_token()
    return (text.replace(token, "…") if token else text)[:300]
