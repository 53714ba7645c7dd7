"""`python -m tests.release.withdrawing ANNOTATOR STORE` withdraws, as a process of its own that may be killed."""

from __future__ import annotations

import sys

from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.release.withdrawal import search, withdraw
from earmark.tasks.store.versions import open_store
from tests.builds import serve_builds


def withdraw_annotator(annotator: str, store: str) -> None:
    known = {name: find_corpus(name) for name in corpora()}
    held = open_store(store)
    withdraw(held, known, search(held, known, "annotator", annotator), "asked for")


if __name__ == "__main__":
    serve_builds(withdraw_annotator) if sys.argv[1:] == ["--serve"] else withdraw_annotator(*sys.argv[1:])
