"""Implement `earmark publish`: publish a version to the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from earmark.flows.command.options import JsonOption, StoreOption, VersionArgument, open_store, option, print_json


def publish(
    corpus: VersionArgument,
    repo: Annotated[str, option("ORG/NAME", "The dataset repository; created if it does not exist.")],
    dry_run: Annotated[bool, option("--dry-run", "Show what would be sent; send nothing.")] = False,
    private: Annotated[bool, option("--private", "Make a new repository private; refuse a public one.")] = False,
    no_audio: Annotated[bool, option("--no-audio", "Publish rows without their audio.")] = False,
    allow_builtin: Annotated[bool, option("--allow-builtin", "Publish labels of builtin annotators too.")] = False,
    allow_findings: Annotated[Path | None, option("FILE", "Reviewed findings: lines of [digits] and reason.")] = None,
    audited: Annotated[float | None, option("LEAST", "Refuse audits below this precision, 95 %.", min=0, max=1)] = None,
    collection: Annotated[str | None, option("TITLE", "Add the repository to this collection of its owner.")] = None,
    branch: Annotated[str | None, option("NAME", "Publish to a branch for others to check; make no tag.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a version to the Hub as one commit and one tag. Interrupted uploads resume.

    The token comes from `HF_TOKEN`, or from `hf auth login`.

    **Examples:**

    `earmark publish mos-preferences --repo my-lab/mos-preferences --dry-run`

    `earmark publish mos-preferences@v2 --repo my-lab/mos-preferences --private`

    `earmark publish mos-preferences --repo my-lab/mos-preferences --branch trial`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import stoppable
    from earmark.schemas.errors import HubError
    from earmark.tasks.pipeline.progress import shown

    place = open_store(store)
    options = {
        "private": private,
        "audio": not no_audio,
        "allow_builtin": allow_builtin,
        "allow_findings": str(allow_findings) if allow_findings else None,
        "audited": audited,
        "collection": collection,
        "branch": branch,
    }
    with stoppable("what was uploaded is kept, and unseen until all is there; run the same command again"), shown():
        facts = (_forecast if dry_run else send)(corpus, repo, str(place.root), options)
    if as_json:
        print_json(facts)
    elif dry_run:
        console.show_publication_plan(facts)
    else:
        console.show_publication(facts)
    if findings := facts.get("findings"):
        raise HubError(f"publishing would be refused: {len(findings)} findings of secrets or personal data")


def send(corpus: str, repo: str, store: str, options: dict[str, Any]) -> dict[str, Any]:
    """Run the flow's body here: one process and a few steps need no server of Prefect's."""
    from earmark.flows.publish import publish as run

    facts: dict[str, Any] = run.fn(corpus, repo, store, **options)
    return facts


def _forecast(corpus: str, repo: str, store: str, options: dict[str, Any]) -> dict[str, Any]:
    from earmark.tasks.pipeline.registry import find_corpus
    from earmark.tasks.release.publishing import check_audited, check_fit, forecast, gathered, read_reviewed
    from earmark.tasks.store.hub import Repo

    place, target = open_store(store), Repo(repo, options["branch"])
    reviewed = read_reviewed(options["allow_findings"])
    version = place.find(corpus)
    known = find_corpus(version.corpus)
    check_fit(version, options["allow_builtin"])
    check_audited(place, version, options["audited"])
    with gathered(version, known, place, options["audio"]) as bundle:
        return forecast(target, bundle, known, reviewed, options["private"])
