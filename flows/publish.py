"""Publish a version to the Hub: prove it fit to leave, gather what may, send it as one commit and one tag."""

from __future__ import annotations

from prefect import flow

from earmark.tasks.build.registry import find_corpus
from earmark.tasks.release.publishing import (
    bring,
    check_audited,
    check_clean,
    check_fit,
    gathered,
    keep_receipt,
    open_repo,
    read_reviewed,
)
from earmark.tasks.store.hub import Repo
from earmark.tasks.store.versions import open_store


@flow(name="publish", flow_run_name="publish-{corpus}")
def publish(
    corpus: str,
    repo: str,
    store: str = "data/store",
    private: bool = False,
    audio: bool = True,
    allow_builtin: bool = False,
    allow_findings: str | None = None,
    audited: float | None = None,
    collection: str | None = None,
    branch: str | None = None,
) -> dict[str, object]:
    """Publish a version; one that is published already is found to be so. A run that was killed can be repeated.

    Args:
        corpus: `CORPUS`, its newest version, or `CORPUS@vN`.
        repo: `ORG/NAME` on the Hub that `HF_ENDPOINT` names; the token comes from `HF_TOKEN`.
        store: the store: a folder, or s3://bucket/prefix.
        private: the repository must be private; a new one is made so.
        audio: whether audio leaves, where its licence allows.
        allow_builtin: whether labels of a `builtin:` annotator may leave.
        allow_findings: a reviewed list of findings that may leave.
        audited: the precision that the newest audit must have.
        collection: title of a collection of the repository's owner that it is added to.
        branch: a branch beside main, made if there is none, that is made equal to the version; main and tags stay.

    Returns:
        The receipt, and how many files were sent.
    """
    place, target, reviewed = open_store(store), Repo(repo, branch), read_reviewed(allow_findings)
    version = place.find(corpus)
    known = find_corpus(version.corpus)
    check_fit(version, allow_builtin)
    check_audited(place, version, audited)
    with gathered(version, known, place, audio) as bundle:
        check_clean(bundle, known, reviewed)
        state = open_repo(target, bundle, private)
        commit, uploaded = bring(target, bundle, state)
        receipt = keep_receipt(place, target, bundle, state, commit, reviewed)
    joined = target.join(collection, private) if collection else None
    return {**receipt.model_dump(mode="json"), "uploaded": uploaded, "url": target.url, "collection": joined}
