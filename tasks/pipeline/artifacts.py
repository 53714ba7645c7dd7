"""Publish a build's artifacts on Prefect's page: funnel, rows, card sections, report link, and parents as assets."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.assets import Asset, AssetProperties, materialize
from prefect.events import emit_event
from prefect.runtime import deployment, flow_run
from prefect.settings import get_current_settings

from earmark.tasks.store.manifest import REPORT
from earmark.tasks.store.versions import Version


def run_name() -> str:
    """Return a run's name: its flow, the schedule of a rebuild, and its scheduled start, in UTC."""
    at = flow_run.scheduled_start_time or datetime.now(UTC)
    name = (flow_run.flow_name == "rebuild" and deployment.name) or flow_run.flow_name
    return f"{name} {at.astimezone(UTC):%Y-%m-%d %H:%M}"


def announce(event: str, corpus: str, facts: Mapping[str, Any]) -> None:
    """Emit an event about a corpus, for Prefect's automations: `earmark.committed` or `earmark.published`.

    Outside a flow run there is no server to take it: nothing is sent.
    """
    if flow_run.id:
        emit_event(f"earmark.{event}", {"prefect.resource.id": f"earmark.corpus.{corpus}"}, payload=dict(facts))


def show(version: Version, sections: Mapping[str, str] | None = None) -> str:
    """Publish a version's artifacts and lineage to a permanent Prefect server, if one is configured.

    Args:
        version: the committed version.
        sections: the corpus's own sections of the card, such as the report of a judge's bias.

    Returns:
        The version's name.
    """
    if get_current_settings().api.url:
        made = materialize(asset_of(version), name="show", asset_deps=parents_of(version))(leave_artifacts)
        made(version, dict(sections or {}))
        manifest = version.manifest
        facts = {"version": version.name, "digest": manifest.digest(), "rows": manifest.rows}
        announce("committed", version.corpus, facts)
    return version.name


def asset_of(version: Version) -> Asset:
    """Return the corpus as an asset, materialized by its versions."""
    return Asset(
        key=f"earmark://{version.corpus}", properties=AssetProperties(name=version.corpus, url=report_url(version))
    )


def report_url(version: Version) -> str | None:
    """Return the address of a version's report where `earmark serve` shows it (`EARMARK_REPORTS`); browsers refuse
    links to files."""
    served = os.environ.get("EARMARK_REPORTS")
    return f"{served}/{version.corpus}/{version.name}" if served else None


def parents_of(version: Version) -> list[str | Asset]:
    """Return the parent corpora as assets, without the corpus itself."""
    return [f"earmark://{p.corpus}" for p in version.manifest.parents if p.corpus != version.corpus]


def leave_artifacts(version: Version, sections: Mapping[str, str]) -> None:
    """Create tables of rows and of the funnel, the sections as Markdown, and a link to the report."""
    manifest, corpus = version.manifest, version.corpus
    rows = [
        {"table": table, "split": split, "rows": count}
        for table, splits in manifest.rows.items()
        for split, count in splits.items()
    ]
    create_table_artifact(rows, key=f"{corpus}-rows", description=f"Rows of {corpus} {version.name}")
    funnel = [
        {"step": step.name, "unit": step.unit, "in": step.entered, "kept": step.kept, "gone": step.entered - step.kept}
        for step in manifest.steps
    ]
    create_table_artifact(funnel, key=f"{corpus}-funnel", description=f"From input to rows: {corpus} {version.name}")
    for title, text in sections.items():
        key = "".join(letter if letter.isalnum() else "-" for letter in title.lower()).strip("-")
        create_markdown_artifact(f"## {title}\n\n{text}", key=f"{corpus}-{key}", description=f"{corpus} {version.name}")
    if link := report_url(version):
        create_link_artifact(link, key=f"{corpus}-version", link_text=f"{corpus} {version.name}: report")
    else:
        text = f"{corpus} {version.name}: open its `{REPORT}` in the store, or `earmark inspect view {corpus}`"
        create_markdown_artifact(text, key=f"{corpus}-version", description=f"{corpus} {version.name}")
