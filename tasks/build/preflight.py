"""What of a build can be seen to fail before it starts: the first rows of every list, and who is asked. No Prefect.

A corpus names its inputs by a function `peeks(config)`, which reads nothing itself and yields a `Peek` for each.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import EarmarkError, Faults, InputError, MissingExtraError
from earmark.schemas.places import told, url_of
from earmark.schemas.reasons import REASONS, options_of
from earmark.tasks.annotation.backend import check_annotator
from earmark.tasks.audio.probe import AudioFault
from earmark.tasks.build.mirror import bring
from earmark.tasks.importers.lines import first_rows
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.store.versions import Store

ROWS = 100  # of each list
MOST_ROWS = 2_000  # of a source that is a folder of many lists
CLIPS = 20  # that are looked for, of those rows


@dataclass(frozen=True)
class Peek:
    """An input whose beginning is looked at."""

    name: str  # how messages call it
    # yields what it holds: rows, `Reject`s and `Note`s; raises an `EarmarkError` if it cannot be read
    read: Callable[[], Iterable[Any]]
    # the file of each clip that a row names, or why it is not opened; None where no clips are looked at
    clips: Callable[[Any], Iterable[Path | AudioFault]] | None = None
    option: str = "audio_root"  # the keys of the config that say where the clips lie
    # the files that it reads, as far as the config names them; they are brought here if behind URLs
    lists: tuple[Path, ...] = ()
    may_be_empty: bool = False  # whether a build makes sense without a row of it


def require_folder(option: str, folder: Path) -> list[Path]:
    """A folder that a config's option names; one behind a URL is taken on trust.

    Raises:
        InputError: there is none.
    """
    if url_of(folder) is None and not folder.is_dir():
        raise InputError(f"{option}: expected a folder, found none at {folder}")
    return [folder]


def check(config: BuildConfig, store: Store, peeks: Iterable[Peek]) -> None:
    """Look at all inputs before a build starts.

    Raises:
        Faults: what is wrong with them, a line each.
    """
    checks: list[Callable[[], object]] = [partial(check_engine, config)]
    checks += [partial(store.find, spec) for spec in config.parents()]
    checks += [partial(check_annotator, one) for one in _annotators(config)]
    checks += [partial(_look, peek, config) for peek in peeks]
    if faults := tuple(dict.fromkeys(line for one in checks for line in _fault(one))):
        raise Faults(faults)


def check_engine(config: BuildConfig) -> None:
    """Say at once what a build would find out after its first steps.

    Raises:
        MissingExtraError: the extra of the cluster that the config names is not installed.
    """
    runner = config.engine.runner
    if runner != "threads" and find_spec(f"prefect_{runner}") is None:
        raise MissingExtraError(f"engine.runner = '{runner}'", runner)


def _fault(one: Callable[[], object]) -> list[str]:
    try:
        one()
    except EarmarkError as error:
        return [str(error)]
    return []


def _annotators(part: object) -> Iterator[AnnotatorConfig]:
    """Every annotator of a config, at any depth."""
    if isinstance(part, AnnotatorConfig):
        yield part
    elif isinstance(part, BaseModel):
        for name in type(part).model_fields:
            yield from _annotators(getattr(part, name))
    elif isinstance(part, tuple):
        for inner in part:
            yield from _annotators(inner)


def _look(peek: Peek, config: BuildConfig) -> None:
    """Look at one input.

    Raises:
        EarmarkError: it cannot be read; or, unless the config allows any loss, none of its first rows can be used, or
            none of their clips is there.
    """
    bring(peek.lists, stream=True)
    with first_rows(ROWS):
        found = [row for row in islice(peek.read(), MOST_ROWS) if not isinstance(row, Note)]
    if config.most_rejected is None:
        return
    if not found and not peek.may_be_empty:
        raise EarmarkError(f"{peek.name}: expected rows, found none")
    if config.most_rejected == 1:
        return
    rejects = [row for row in found if isinstance(row, Reject)]
    if rejects and len(rejects) == len(found) and all(REASONS[one.reason].kind == "fault" for one in rejects):
        raise EarmarkError(
            f"{peek.name}: none of the first {len(rejects)} rows can be used, {_commonest(rejects, config)}"
        )
    if peek.clips is not None:
        named = (clip for row in found if not isinstance(row, Reject) for clip in peek.clips(row))
        _look_for(peek, list(islice(named, CLIPS)))


def _commonest(rejects: Sequence[Reject], config: BuildConfig) -> str:
    """The commonest reason, with an example and the options that can mend it."""
    reason, count = Counter(reject.reason for reject in rejects).most_common(1)[0]
    first = next(reject for reject in rejects if reject.reason == reason)
    where = first.source_file if first.line is None else f"{first.source_file}, line {first.line}"
    options = " or ".join(key for key, _ in options_of(reason, type(config)))
    return f"{count} are '{reason}': {where}: {first.detail}{'; set ' if options else ''}{options}"


def _look_for(peek: Peek, clips: Sequence[Path | AudioFault]) -> None:
    paths = [clip for clip in clips if isinstance(clip, Path)]
    bring(paths[:1])
    if clips and not any(os.path.isfile(path) for path in paths):  # noqa: PTH113  # a name may be too long for any
        example = f"such as {told(clips[0])}; set {peek.option}" if isinstance(clips[0], Path) else clips[0].detail
        raise EarmarkError(f"{peek.name}: none of the first {len(clips)} clips is there, {example}")
