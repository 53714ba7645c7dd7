"""Read files of datasets on the Hub, `hf://datasets/owner/name@revision/path`, at the revision's commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from huggingface_hub import HfApi, HfFileSystem, constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from earmark.schemas.errors import InputError
from earmark.schemas.places import hub_parts, path_below
from earmark.tasks.store.objects import BLOCK_BYTES, COMMITS, Object, first_words

MOST_PATHS = 1000  # paths in one request
_KIND = "dataset"


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
                    listed = self._api.get_paths_info(repo, part, revision=commit, repo_type=_KIND)
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
                        repo, path or None, recursive=True, revision=self.commit(url), repo_type=_KIND
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
