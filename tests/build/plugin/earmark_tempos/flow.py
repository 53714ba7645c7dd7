"""`tempos`, as a flow."""

from __future__ import annotations

from prefect import flow

from earmark_tempos.corpus import Tempos
from earmark_tempos.steps import plan_build, read_notes
from tasks.store.versions import open_store


@flow(name="tempos")
def build(config: Tempos, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None) -> str:
    """Build a version of `tempos`, or find it up to date; its name."""
    plan = plan_build(config, open_store(store), inputs)
    with plan.stage() as stage:
        if (done := plan.up_to_date(tidy=False)) and not force:
            return done.name
        read_notes(stage, config)
        return plan.commit(stage).name
