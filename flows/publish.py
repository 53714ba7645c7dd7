"""Publish a version to the Hub: check it, gather the publishable data, send it as one commit and one tag."""

from collections.abc import Sequence

from prefect import flow

from earmark.tasks.exports.playable import view_writer
from earmark.tasks.pipeline.flow import announce
from earmark.tasks.pipeline.logs import tell_plainly
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.release.publishing import (
    bring,
    check_audited,
    check_clean,
    check_fit,
    gathered,
    keep_receipt,
    open_repo,
    read_gate,
    read_reviewed,
)
from earmark.tasks.store.hub import Repo
from earmark.tasks.store.receipts import SentVersion
from earmark.tasks.store.versions import open_store

tell_plainly()


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
    views: Sequence[str] = (),
    gate: str | None = None,
) -> dict[str, object]:
    """Publish a version, or find it already published. A killed run can be repeated.

    Args:
        corpus: `CORPUS`, its newest version, or `CORPUS@vN`.
        repo: `ORG/NAME` on the Hub of `HF_ENDPOINT`; the token comes from `HF_TOKEN`.
        store: the store: a folder, or a URL such as s3://bucket/prefix.
        private: the repository must be private; a new one is created private.
        audio: whether to publish audio, if its licence allows.
        allow_builtin: whether to publish labels of a `builtin:` annotator.
        allow_findings: a reviewed list of findings allowed to be published.
        audited: the precision required of the newest audit.
        collection: title of the owner's collection for the repository.
        branch: a branch beside main, created if missing and made equal to the version; main and tags stay.
        views: exports' views to publish as further configs, with their clips.
        gate: a YAML file with `extra_gated_…` facts of the card: readers must ask the owner for access.

    Returns:
        The receipt, and the number of files sent.
    """
    place, target, reviewed = open_store(store), Repo(repo, branch), read_reviewed(allow_findings)
    asked_of_readers = read_gate(gate)
    version = place.find(corpus)
    known = find_corpus(version.corpus)
    check_fit(version, allow_builtin)
    check_audited(place, version, audited)
    writer = view_writer(views, version, known, place)
    with gathered(version, known, place, audio, writer, asked_of_readers) as bundle:
        check_clean(bundle, known, reviewed)
        state = open_repo(target, bundle, private, asked_of_readers)
        commit, uploaded = bring(target, bundle, state)
        receipt = keep_receipt(place, target, bundle, state, commit, reviewed)
    announce("published", version.corpus, receipt.model_dump(mode="json", include={"version", "repo", "tag", "commit"}))
    joined = target.join(collection, private) if collection else None
    sent = SentVersion(**receipt.model_dump(), uploaded=uploaded, url=target.url, collection=joined)
    return sent.model_dump(mode="json")
