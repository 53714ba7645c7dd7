"""Make the Prefect flow of a corpus: plan, run the story of its module, commit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from prefect import flow
from prefect.flows import Flow

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import EarmarkError
from earmark.tasks.annotation.prompts import own_words
from earmark.tasks.pipeline.artifacts import run_name, show
from earmark.tasks.pipeline.funnel import tell_losses
from earmark.tasks.pipeline.logs import tell_plainly
from earmark.tasks.pipeline.plan import plan_build
from earmark.tasks.pipeline.progress import say
from earmark.tasks.pipeline.sessions import sessions_of_build
from earmark.tasks.pipeline.shards import Shards
from earmark.tasks.store.files import write_text
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
