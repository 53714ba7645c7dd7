"""Record a listening test's scores of systems beside the version of its prompts."""

from collections.abc import Sequence
from pathlib import Path

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import InputError
from earmark.schemas.study import StudyPlan
from earmark.tasks.evaluation.leaderboard import OPINIONS
from earmark.tasks.evaluation.submission import prompts_of
from earmark.tasks.people.answers import Returned, mean_opinions, usable
from earmark.tasks.store.folder import records_of, write_record
from earmark.tasks.store.versions import Store, Version


def record_opinions(
    store: Store, version: Version, corpus: Corpus, plan: StudyPlan, returned: Sequence[Returned]
) -> Path:
    """Write mean opinion scores of a study of ratings, for `earmark eval rank`; return the folder.

    The version's prompts are the study's, by their ids. An earlier record of the same study is replaced.

    Raises:
        InputError: the study compares clips, nobody answered, or the version lacks a prompt of it.
    """
    spec = f"{corpus.name}@{version.name}"
    if plan.kind != "ratings" or corpus.generation is None:
        raise InputError(f"--record {spec}: expected a study of ratings, of systems that were given prompts")
    known = {row[corpus.generation.key] for row in prompts_of(version, corpus.generation)}
    if strange := sorted(plan.prompts.keys() - known):
        raise InputError(f"--record {spec}: the study's prompt '{strange[0]}' is none of that version")
    kept = usable(plan, returned)
    rows = mean_opinions(plan, kept)
    if not rows:
        raise InputError(f"--record {spec}: no answer counts yet")
    left_out = sorted({one.page for one in returned} - {one.page for one in kept})
    facts = {"study": plan.study, "manifest_sha256": version.manifest.digest(), "mos": rows, "left_out": left_out}
    return write_record(records_of(store, version) / f"study-{plan.study}", OPINIONS, facts)
