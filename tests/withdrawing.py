"""`python -m tests.withdrawing ANNOTATOR STORE` withdraws, as a process of its own that may be killed."""

from __future__ import annotations

import sys

from flows.registry import CORPORA, find_corpus
from tasks.store.versions import open_store
from tasks.withdrawal import search, withdraw
from tests.builds import serve_builds


def withdraw_annotator(annotator: str, store: str) -> None:
    """What `earmark withdraw --annotator` does."""
    corpora = {name: find_corpus(name) for name in CORPORA}
    held = open_store(store)
    withdraw(held, corpora, search(held, corpora, "annotator", annotator), "asked for")


if __name__ == "__main__":
    serve_builds(withdraw_annotator) if sys.argv[1:] == ["--serve"] else withdraw_annotator(*sys.argv[1:])
