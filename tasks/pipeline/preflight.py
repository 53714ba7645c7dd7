"""Check a build before it starts: the first rows of every list, and the annotators. No Prefect."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from pydantic import BaseModel

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig, Engine
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import EarmarkError, Faults, MissingExtraError
from earmark.schemas.places import told
from earmark.schemas.reasons import find_reason, options_of
from earmark.schemas.rejects import Note, Reject
from earmark.tasks.annotation.backend import check_annotator
from earmark.tasks.importers.lines import first_rows
from earmark.tasks.pipeline.inputs import Input, checked_inputs
from earmark.tasks.pipeline.mirror import bring
from earmark.tasks.store.versions import Store

ROWS = 100  # per list
MOST_ROWS = 2_000  # per source that is a folder of many lists
CLIPS = 20  # clips to look for among these rows


def check(corpus: Corpus, config: BuildConfig, store: Store) -> None:
    """Check all inputs before a build starts.

    Raises:
        Faults: the faults, one line each.
    """
    checks: list[Callable[[], object]] = [partial(check_engine, config)]
    checks += [partial(store.find, spec) for spec in config.parents()]
    checks += [partial(check_annotator, one) for one in _annotators(config)]
    checks += [partial(_look, one, config) for one in checked_inputs(corpus, config)]
    if faults := tuple(dict.fromkeys(line for one in checks for line in _fault(one))):
        raise Faults(faults)


def check_engine(config: BuildConfig) -> None:
    """Check that the config's cluster can be used, before any step runs.

    Raises:
        MissingExtraError: the extra of the cluster that the config names is not installed.
    """
    runner = Engine.named(config.engine).runner
    if runner != "threads" and find_spec(f"prefect_{runner}") is None:
        raise MissingExtraError(f"engine = '{runner}'", runner)


def _fault(one: Callable[[], object]) -> list[str]:
    try:
        one()
    except EarmarkError as error:
        return [str(error)]
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
    """Check one input.

    Raises:
        EarmarkError: it cannot be read; or, unless the config allows any loss, none of its first rows is usable, or
            none of their clips exists.
    """
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
