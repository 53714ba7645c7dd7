"""Make the Prefect flow of a corpus: plan, run the story of its module, commit."""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from prefect import flow
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.assets import Asset, AssetProperties, materialize
from prefect.events import emit_event
from prefect.flows import Flow
from prefect.runtime import deployment, flow_run
from prefect.settings import get_current_settings

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import EarmarkError
from earmark.tasks.annotation.prompts import own_words
from earmark.tasks.pipeline.funnel import tell_losses
from earmark.tasks.pipeline.logs import tell_plainly
from earmark.tasks.pipeline.plan import plan_build
from earmark.tasks.pipeline.progress import say
from earmark.tasks.pipeline.sessions import sessions_of_build
from earmark.tasks.pipeline.shards import Shards
from earmark.tasks.store.files import write_text
from earmark.tasks.store.manifest import REPORT
from earmark.tasks.store.objects import one_commit_each
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Version, open_store

Story: TypeAlias = Callable[[Stage, Any], Mapping[str, str] | None]
"""Stage every table of a version; return the corpus's own sections of the card, Markdown by heading."""
tell_plainly()
AT_ONCE = 8  # a late ask's model works while earlier asks of other shards run; they share one pace
PARAMETERS = """

Args:
    config: the build config.
    store: the store: a folder, or a URL such as s3://bucket/prefix.
    force: build again even if a version was built from the same inputs, config, prompts, schemas and code.
    inputs: digests of the input files, if the caller has just computed them.

Returns:
    The version's name.
"""


def corpus_flow(corpus: Corpus, *, at_once: int = AT_ONCE) -> Callable[[Story], Flow[..., str]]:
    """Make a story the Prefect flow that builds a corpus.

    Args:
        corpus: gives the flow's name and the plan of its builds.
        at_once: shards in work side by side.
    """

    def decorate(story: Story) -> Flow[..., str]:
        def build(
            config: BuildConfig, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
        ) -> str:
            version, sections = build_version(corpus, story, config, store, force=force, inputs=inputs)
            return version.name if sections is None else show(version, sections)

        build.__doc__ = (story.__doc__ or "") + PARAMETERS
        build.__module__ = story.__module__
        build.__annotations__ = {
            "config": corpus.config, "store": str, "force": bool, "inputs": dict[str, str] | None, "return": str
        }  # fmt: skip
        made = flow(name=corpus.name, flow_run_name=run_name, task_runner=Shards(at_once))(build)
        made.story = story  # type: ignore[attr-defined]  # for dry runs and tests, which need no Prefect
        return made

    return decorate


@one_commit_each()
def build_version(
    corpus: Corpus,
    story: Story,
    config: BuildConfig,
    store: str | Path,
    *,
    force: bool = False,
    inputs: dict[str, str] | None = None,
) -> tuple[Version, Mapping[str, str] | None]:
    """Build a version, or find it up to date; steps are tasks in a flow run, plain calls elsewhere.

    Returns:
        The version, and the card's own sections; None instead of sections if the version existed.
    """
    plan = plan_build(corpus, config, open_store(str(store)), inputs)
    config = plan.config
    with plan.stage() as stage, sessions_of_build(stage.store), own_words(config.own_prompts()) as chosen:
        if (done := plan.up_to_date(tidy=False)) and not force:
            return done, None
        if stage.store.remote is not None:
            say(f"{corpus.name}: the version will be sent to {stage.store.address}")
        try:
            sections = story(stage, config) or {}
            for prompt in (one for one in chosen.values() if one.own):
                write_text(stage.version / "prompts" / f"{prompt.id}.md", prompt.text)
            return plan.commit(stage, sections), sections
        except EarmarkError as error:
            tell_losses(error, stage)
            raise


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
