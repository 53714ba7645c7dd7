"""Measure a build's losses of its inputs, and refuse too large ones. No Prefect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import TooManyRejects
from earmark.schemas.reasons import find_reason, options_of
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.sql import connect, query
from earmark.tasks.store.staging import Stage

COMMONEST = 3
LONGEST_LINE = 240
TO_DO = "Mend the option or the input and build again; answers of models are kept.\n"


class Loss(NamedTuple):
    """Rejects of one step, file and reason, as of `tasks/pipeline/lost_rejects.sql`."""

    step: str
    file: str | None
    reason: str
    items: int
    examples: Sequence[Mapping[str, Any]]  # the first three


class SourceLosses(NamedTuple):
    """A source's losses to faults in a reading or indexing step."""

    step: str
    entered: int
    faults: int


def check_inputs(stage: Stage, config: BuildConfig) -> None:
    """Stop a build if faults in the finished steps lost more than `most_rejected` of a source.

    The share combines all steps that read or index a source: each step's share is of its own input.

    Raises:
        TooManyRejects: with the source, the most common reasons, and the options that can mend them.
    """
    if stage.forecast is not None:
        return  # a dry run counts requests, even with part of the inputs
    if config.most_rejected is None:
        return
    losses = losses_of(stage)
    most = Fraction(str(config.most_rejected))
    over = {source: shares for source, shares in shares_of(stage, config, losses).items() if lost(shares) > most}
    if not over:
        return
    units = {step.name: step.unit for step in stage.steps()}  # in the order of the story
    lines = []
    for source, shares in over.items():
        inner = sorted((share for share in shares if share.faults), key=lambda share: list(units).index(share.step))
        of = ", ".join(f"{share.faults:,} of {share.entered:,} {units[share.step]}" for share in inner)
        lines.append(f"source {source} lost {of} to faults")
        steps = {share.step for share in shares}
        mine = [one for one in losses if one.step in steps and _source(stage, config, one) == source]
        lines += _reasons([one for one in mine if find_reason(one.reason).kind == "fault"], type(config))
    lines[0] = f"{stage.corpus}: {lines[0]}, more than most_rejected = {config.most_rejected:g}; nothing was committed"
    lines.append(f"{TO_DO}To commit what is left: most_rejected in the config, or earmark resume --allow-rejects")
    raise TooManyRejects("\n".join(lines))


def check_main_table(stage: Stage, config: BuildConfig, corpus: Corpus) -> None:
    """Stop a build with an empty main table.

    Raises:
        TooManyRejects: with the step that kept nothing, the most common reasons, and the options that can mend them.
    """
    name = corpus.story.main_table
    if config.most_rejected is None or any(pq.read_metadata(path).num_rows for path in stage.files(name)):
        return
    ends = _dead_end(stage.steps())
    losses = losses_of(stage)
    mine = [one for one in losses if one.step in {step.name for step in ends}] or losses
    lines = [f"{stage.corpus}: the main table '{name}' would be empty; nothing was committed"]
    lines += [f"step {step.name}: {step.entered:,} {step.unit} came in, none was kept" for step in ends]
    lines += _reasons(mine, type(config), Counter({k: n for step in ends for k, n in step.dropped.items()}))
    lines += [f"  {note}" for step in ends for note in step.notes]
    raise TooManyRejects("\n".join([*lines, f"{TO_DO}To commit it even so: earmark resume --allow-rejects"]))


def shares_of(stage: Stage, config: BuildConfig, losses: Iterable[Loss]) -> dict[str, list[SourceLosses]]:
    """Return each source's losses to faults, step by step; sources by name."""
    faults: Counter[tuple[str, str]] = Counter()
    for one in losses:
        if find_reason(one.reason).kind == "fault":
            faults[one.step, _source(stage, config, one)] += one.items
    found: dict[str, list[SourceLosses]] = {}
    for step, entered in stage.entered().items():
        came: Counter[str] = Counter()
        for file, count in entered.items():
            came[config.source_of(file)] += count
        for source, count in came.items():
            found.setdefault(source, []).append(SourceLosses(step, count, faults[step, source]))
    return dict(sorted(found.items()))


def lost(shares: Iterable[SourceLosses]) -> Fraction:
    """Return the exact share of a source lost over several steps."""
    left = Fraction(1)
    for share in shares:
        left *= 1 - Fraction(share.faults, share.entered) if share.entered else 1
    return 1 - left


def losses_of(stage: Stage) -> list[Loss]:
    """Read the rejects of the finished steps, largest count first."""
    if not (files := [str(path) for path in stage.rejects()]):
        return []
    with connect(stage.work / "spill") as connection:
        return [Loss(*row) for row in connection.execute(query("pipeline/lost_rejects"), {"files": files}).fetchall()]


def _source(stage: Stage, config: BuildConfig, one: Loss) -> str:
    """Return the source of a reject; in a step with a single source, rejects need not name a file."""
    known = stage.entered().get(one.step, {})
    return config.source_of(next(iter(known)) if len(known) == 1 else one.file or "")


def _dead_end(steps: Sequence[Step]) -> list[Step]:
    """Return the steps of the first place in the funnel where all kept nothing."""
    for place in sorted({step.place for step in steps}):
        here = [step for step in steps if step.place == place]
        if not any(step.kept for step in here):
            return here
    return []


def _reasons(losses: Sequence[Loss], config: type[BuildConfig], dropped: Counter[str] | None = None) -> list[str]:
    """Return the most common reasons, aligned: each with an example, and below it the options that can mend it."""
    counts = Counter(dropped or {})
    for one in losses:
        counts[one.reason] += one.items
    examples = {one.reason: one for one in reversed(losses)}
    shown = counts.most_common(COMMONEST)
    wide = max((len(f"{count:,}") for _, count in shown), default=0)
    long = max((len(reason) for reason, _ in shown), default=0)
    lines = []
    for reason, count in shown:
        example = _example(examples[reason]) if reason in examples else ""
        lines.append(_line(f"  {count:>{wide},}  {reason:<{long}}  {example}").rstrip())
        options = options_of(reason, config) if reason in examples else []
        lines += [_line(f"  {'':>{wide + long + 2}}  option {key}: {text}") for key, text in options]
    if (more := len(counts) - len(shown)) > 0:
        lines.append(f"  {'':>{wide}}  and {more} more {'reason' if more == 1 else 'reasons'}")
    return lines


def _example(one: Loss) -> str:
    return example_line(one.file, one.examples[0])


def example_line(file: str | None, example: Mapping[str, Any]) -> str:
    """Return a line about one reject: its place, and expected and found."""
    line = example["line"]
    return f"{file or example['item']}{'' if line is None else f' line {line}'}: {example['detail']}"


def _line(text: str) -> str:
    """Return one line for a terminal, without control characters."""
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return plain if len(plain) <= LONGEST_LINE else plain[: LONGEST_LINE - 1] + "…"
