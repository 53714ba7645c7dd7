"""`pseudo-preferences`: a judge model's preferences on generated music, by the method of CMI-Pref-Pseudo.

Two generations of one prompt are judged in both orders; what both orders agree on is a label.
"""

from __future__ import annotations

from prefect import flow, unmapped

from schemas.pseudo_preferences import PseudoPreferences
from tasks.build.artifacts import run_name, show
from tasks.build.asking import asking
from tasks.build.progress import working
from tasks.build.shards import Shards
from tasks.pseudo_preferences.judging import SHARDS_AT_ONCE
from tasks.pseudo_preferences.labels import card_sections
from tasks.pseudo_preferences.pairs import plan_build
from tasks.pseudo_preferences.steps import count_rows, in_shards, judge, keep_consistent, plan_pairs, read_pool
from tasks.store.versions import open_store


@flow(
    name="pseudo-preferences",
    flow_run_name=run_name,
    task_runner=Shards(SHARDS_AT_ONCE),
)
def build(
    config: PseudoPreferences, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
) -> str:
    """Build a version of `pseudo-preferences`, or find it up to date.

    Args:
        config: the build config.
        store: the store: a folder, or s3://bucket/prefix.
        force: build again even if a version was built from the same inputs, config, prompts, schemas and code.
        inputs: digests of the input files, if the caller has just computed them.

    Returns:
        The version's name.
    """
    plan = plan_build(config, open_store(store), inputs)
    with plan.stage() as stage:
        if (done := plan.up_to_date(tidy=False)) and not force:
            return done.name
        read_pool(stage, config)
        plan.check_inputs(stage)
        questions = plan_pairs(stage, config)
        shards = in_shards(questions)
        with asking(stage.store, config.judge) as session, working("judge pairs", count_rows(questions)) as work:
            judge.map(
                unmapped(stage), unmapped(config), unmapped(session), unmapped(questions), shards, unmapped(work)
            ).result()
        keep_consistent(stage, config)
        said = card_sections(stage)
        version = plan.commit(stage, sections=said)
        return show(version, said)
