"""Check and preview a build before it starts: its inputs' first rows, its annotators, and a dry run."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import duckdb
import pyarrow.parquet as pq
from pydantic import BaseModel

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import ENGINE, BuildConfig, Engine
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import EarmarkError, Faults, InputError, MissingExtraError, TooManyRejects
from earmark.schemas.places import told
from earmark.schemas.reasons import Note, Reject, find_reason, options_of
from earmark.schemas.registry import load
from earmark.tasks.annotation.backend import check_annotator
from earmark.tasks.importers.lines import first_rows
from earmark.tasks.pipeline.forecast import GROUPS, ImaginedSessions, Story, run_dry
from earmark.tasks.pipeline.funnel import RESUMING, check_inputs, check_main_table, losses_of
from earmark.tasks.pipeline.inputs import Input, checked_inputs
from earmark.tasks.pipeline.mirror import bring
from earmark.tasks.pipeline.sessions import clip_media
from earmark.tasks.store.commit import Made, unmet_lines
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

ROWS = 100  # per list
MOST_ROWS = 2_000  # per source that is a folder of many lists
CLIPS = 20  # clips to look for among these rows


def check(corpus: Corpus, config: BuildConfig, store: Store) -> None:
    """Check all inputs before a build starts.

    Raises:
        Faults: the faults, one line each.
    """
    checks: list[Callable[[], object]] = [check_engine]
    checks += [partial(store.find, spec) for spec in config.parents()]
    checks += [partial(check_annotator, one) for one in _annotators(config)]
    checks += [partial(_look, one, config) for one in checked_inputs(corpus, config)]
    if faults := tuple(dict.fromkeys(line for one in checks for line in _fault(one, config))):
        raise Faults(faults)


def check_engine() -> None:
    """Check that the cluster of `EARMARK_ENGINE` can be used, before any step runs."""
    runner = Engine.of_environment().runner
    if runner != "threads" and find_spec(f"prefect_{runner}") is None:
        raise MissingExtraError(f"{ENGINE}={runner}", runner)


def _fault(one: Callable[[], object], config: BuildConfig) -> list[str]:
    try:
        one()
    except EarmarkError as error:
        option = config.names(Path(error.path)) if isinstance(error, InputError) and error.path else ""
        return [f"{error}; {option} names it" if option else str(error)]
    return []


def _annotators(part: object) -> Iterator[AnnotatorConfig]:
    if isinstance(part, AnnotatorConfig):
        yield part
    elif isinstance(part, BaseModel):
        for name in type(part).model_fields:
            yield from _annotators(getattr(part, name))
    elif isinstance(part, tuple):
        for inner in part:
            yield from _annotators(inner)


def _look(one: Input, config: BuildConfig) -> None:
    """Check one input."""
    assert one.read is not None
    one.fetch()
    with first_rows(ROWS):
        found = [row for row in islice(one.read(), MOST_ROWS) if not isinstance(row, Note)]
    if config.most_rejected is None:
        return
    if not found and not one.may_be_empty:
        raise EarmarkError(f"{one.name}: expected rows, found none")
    if config.most_rejected == 1:
        return
    rejects = [row for row in found if isinstance(row, Reject)]
    if rejects and len(rejects) == len(found) and all(find_reason(each.reason).kind == "fault" for each in rejects):
        raise EarmarkError(
            f"{one.name}: none of the first {len(rejects)} rows can be used, {_commonest(rejects, config)}"
        )
    clips = list(islice((clip for row in found if not isinstance(row, Reject) for clip in one.clips_of(row)), CLIPS))
    paths = [clip for clip in clips if isinstance(clip, Path)]
    bring(paths[:1])
    if clips and not any(os.path.isfile(path) for path in paths):  # noqa: PTH113  # a name may be too long for any
        example = f"such as {told(clips[0])}; set {one.option}" if isinstance(clips[0], Path) else clips[0].detail
        raise EarmarkError(f"{one.name}: none of the first {len(clips)} clips is there, {example}")


def _commonest(rejects: Sequence[Reject], config: BuildConfig) -> str:
    """Return the most common reason, with an example and the options that can mend it."""
    reason, count = Counter(reject.reason for reject in rejects).most_common(1)[0]
    first = next(reject for reject in rejects if reject.reason == reason)
    where = first.source_file if first.line is None else f"{first.source_file}, line {first.line}"
    options = " or ".join(key for key, _ in options_of(reason, type(config)))
    return f"{count} are '{reason}': {where}: {first.detail}{'; set ' if options else ''}{options}"


EXAMPLES = 3  # examples of rejects per reason


class StepCounts(TypedDict):
    """Account of a step; `sure` if no imagined answer came before it."""

    name: str
    unit: str
    entered: int
    kept: int
    rejected: dict[str, int]
    dropped: dict[str, int]
    notes: tuple[str, ...]
    sure: bool


class RejectCounts(TypedDict):
    """Rejects of a step for a reason."""

    step: str
    reason: str
    kind: str
    items: int
    examples: list[dict[str, Any]]


class RowCounts(TypedDict):
    """Rows of a table by split, and by split and category if rows have both."""

    rows: dict[str, int]
    by: dict[str, int]


class Preview(TypedDict):
    """Forecast of a build; an up-to-date one has the first two keys alone."""

    asks: dict[str, Any] | None
    would_stop: str | None  # the reason to stop before the commit
    steps: NotRequired[list[StepCounts]]
    rejects: NotRequired[list[RejectCounts]]
    clips: NotRequired[dict[str, int]]
    not_embedded: NotRequired[int]
    tables: NotRequired[dict[str, RowCounts]]
    main_table: NotRequired[str]
    about: NotRequired[list[str]]


class BuildForecast(Preview):
    """A build's inputs, commits and requests."""

    corpus: str
    store: str
    build_key: str | None  # None before all clips are hashed
    up_to_date: str | None  # the version that it would repeat
    newest: str | None
    would_commit: str | None
    latest: str | None
    inputs: dict[str, str]
    targets: dict[str, int]


Lines = Callable[[Stage, Any], list[str]]
"""The corpus's own part of the preview (`Corpus.preview`): lines of 80 columns about the rows of its steps."""


def preview(made: Made, story: Story, config: BuildConfig, store: Store, ledger: str | Path) -> Preview:
    """Run a build's steps up to the first one that needs all answers, with at least one try per question, and count.

    Args:
        made: facts of the build: its corpus, models and parents.
        story: of its flow.
        config: the build config.
        store: of `scratch_store`.
        ledger: the address of the build's ledger; it is only read.

    Raises:
        InputError: an input is missing.
        LedgerError: the ledger cannot be read.
    """
    corpus = made.corpus
    with tempfile.TemporaryDirectory() as folder:
        counting = ImaginedSessions(config.for_forecast(), ledger, clip_media(store))
        stage = run_dry(corpus, story, store, Path(folder), counting)
        asks = counting.facts() or None
        return {
            "asks": asks,
            "steps": [
                StepCounts(
                    name=one.name,
                    unit=one.unit,
                    entered=one.entered,
                    kept=one.kept,
                    rejected=one.rejected,
                    dropped=one.dropped,
                    notes=one.notes,
                    sure=counting.sure is None or one.name in counting.sure,
                )
                for one in stage.steps()
            ],
            "rejects": [one for one in _rejects(stage) if counting.sure is None or one["step"] in counting.sure],
            "clips": store.looked.counts(),
            "not_embedded": len(store.looked.unheard),
            "tables": _tables(stage),
            "main_table": corpus.story.main_table,
            "about": [*(load(corpus.preview)(stage, config) if corpus.preview else []), *unmet_lines(made, stage)],
            "would_stop": _stop(stage, config, corpus, asks),
        }


def _rejects(stage: Stage) -> list[RejectCounts]:
    found: dict[tuple[str, str], RejectCounts] = {}
    for one in losses_of(stage):
        row = found.setdefault(
            (one.step, one.reason),
            {"step": one.step, "reason": one.reason, "kind": find_reason(one.reason).kind, "items": 0, "examples": []},
        )
        row["items"] += one.items
        room = EXAMPLES - len(row["examples"])
        row["examples"] += [{"file": one.file, **example} for example in one.examples[:room]]
    return sorted(found.values(), key=lambda row: (-row["items"], row["step"], row["reason"]))


def _tables(stage: Stage) -> dict[str, RowCounts]:
    """Count the rows of published tables."""
    tables: dict[str, RowCounts] = {}
    for name, splits in stage.tables().items():
        rows = {split: sum(pq.read_metadata(path).num_rows for path in paths) for split, paths in splits.items()}
        files = [str(path) for paths in splits.values() for path in paths]
        by: dict[str, int] = {}
        if {*GROUPS} <= {*pq.read_schema(files[0]).names}:
            counts = (
                f"SELECT {', '.join(GROUPS)}, count(*) FROM read_parquet(?, hive_partitioning = false) GROUP BY ALL"
            )
            with closing(duckdb.connect()) as connection:
                counted = connection.execute(f"{counts} ORDER BY ALL", [files]).fetchall()
            by = {" ".join(map(str, group)): count for *group, count in counted}
        tables[name] = {"rows": rows, "by": by}
    return tables


def _stop(stage: Stage, config: BuildConfig, corpus: Corpus, asks: Mapping[str, Any] | None) -> str | None:
    """Return the reason for a build to stop before its commit, judged by the finished steps."""
    built = replace(stage, forecast=None)
    try:
        check_inputs(built, config)
        if corpus.story.main_table in stage.tables() or (config.asked() and asks is None):
            check_main_table(built, config, corpus)
    except TooManyRejects as stop:
        return str(stop).replace(RESUMING, "earmark build --allow-rejects")  # there is no run to resume
    return None
