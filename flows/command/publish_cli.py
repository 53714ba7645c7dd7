"""`earmark publish`: a version leaves for the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.flows.command.options import JsonOption, StoreOption, VersionArgument, open_store, print_json


def publish(
    corpus: VersionArgument,
    repo: Annotated[
        str, typer.Option(metavar="ORG/NAME", help="The dataset repository; created if it does not exist.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which files would be uploaded and which the Hub has; send nothing.")
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Publish only if the repository is private; a new one is created private.")
    ] = False,
    no_audio: Annotated[bool, typer.Option("--no-audio", help="Publish rows without their audio.")] = False,
    allow_builtin: Annotated[
        bool, typer.Option("--allow-builtin", help="Also publish labels of builtin annotators, which are for trials.")
    ] = False,
    allow_findings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file of reviewed findings; each line has a finding's digits in [] and a reason.",
        ),
    ] = None,
    audited: Annotated[
        float | None,
        typer.Option(min=0, max=1, metavar="LEAST", help="Publish only if audits say at least LEAST, with 95 %."),
    ] = None,
    collection: Annotated[
        str | None,
        typer.Option(metavar="TITLE", help="Add the repository to its owner's collection of this title; made if new."),
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Publish to this branch, not to main, so that others can check the version first; no tag is made.",
        ),
    ] = None,
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
    from earmark.schemas.errors import HubError
    from earmark.tasks.build.progress import shown

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
    with shown():
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
    from earmark.tasks.build.registry import find_corpus
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
