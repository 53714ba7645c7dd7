"""Measure a build's losses of its inputs and at its asks, and stop a build that lost too much. No Prefect."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import duckdb
import pyarrow.parquet as pq

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import EarmarkError, Interrupted, TooManyRejects
from earmark.schemas.reasons import current_word, find_reason, options_of
from earmark.schemas.tables import RejectRow
from earmark.schemas.unseen import printable
from earmark.tasks.annotation.errors import LedgerError, LowShare, Stopped, one_line
from earmark.tasks.annotation.ledger_reports import received
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.sql import connect, query
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import has_ledger, ledger_address

FIRST = 20  # an ask that passes none of its first rows, this many, stops a build: further rows would cost money too
FORM = frozenset(("bad_answer", "empty", "truncated", "low_share"))
"""Faults in the form of an answer. Draws keep the words of backends and plug-ins, which may be older."""
QUOTED = 240  # characters of an answer in messages
RESUMING = "earmark resume --allow-rejects"
WAY_OUT = f"Answers are kept. To go on even so: {RESUMING}"


class FailedRow(NamedTuple):
    """Row that failed an ask."""

    reason: str
    detail: str  # expected and found
    value: str | None  # the answer as JSON, if it could be read
    request_key: str | None


class Why(NamedTuple):
    """Rows that an ask lost for one reason."""

    reason: str
    rows: int
    failed: bool  # whether no answer passed its check; else the walk gave up the rows because of the answer
    final: bool  # whether another run would give the same outcome
    example: FailedRow


class AskLoss(NamedTuple):
    """Counts of the rows at an ask, as of `tasks/pipeline/walk_losses.sql`."""

    ask: str
    role: str
    annotator: str
    came: int
    answered: int  # with an answer that passed its check
    passed: int  # answered rows that the walk did not give up here
    why: Sequence[Why]  # the most common first


class FirstRows:
    """First rows to end at each ask of a walk, in one process. Safe for threads."""

    def __init__(self, stage: Stage) -> None:
        self.fault: TooManyRejects | None = None  # the error that stops the walk
        self._stage = stage
        self._lock = Lock()
        self._passed: set[tuple[str, str]] = set()
        self._failed: dict[tuple[str, str], list[FailedRow]] = {}

    def passes(self, ask: str, role: str) -> None:
        """Note a row that passed an ask."""
        self._passed.add((ask, role))

    def fails(self, ask: str, role: str, annotator: str, failed: FailedRow) -> None:
        """Note a row that failed an ask.

        Raises:
            TooManyRejects: `FIRST` rows have failed, and none passed.
        """
        with self._lock:
            rows = self._failed.setdefault((ask, role), [])
            if (ask, role) in self._passed or len(rows) >= FIRST:
                return
            rows.append(failed)
            if len(rows) < FIRST:
                return
            by_reason: dict[str, list[FailedRow]] = {}
            for row in rows:
                by_reason.setdefault(row.reason, []).append(row)
            why = [Why(word, len(held), True, True, held[0]) for word, held in by_reason.items()]
            why.sort(key=lambda one: (-one.rows, one.reason))
            self.fault = none_passed(self._stage, AskLoss(ask, role, annotator, FIRST, 0, 0, why))
        raise self.fault


def none_passed(stage: Stage, loss: AskLoss) -> TooManyRejects:
    """Return the error of an ask that passed no row."""
    head = f"of the first {loss.came} rows none passed '{loss.ask}' ({loss.role}, {loss.annotator})"
    return _stop(stage, loss, head)


def check_answers(stage: Stage, config: BuildConfig, folder: Path, rows: int, partial: Collection[str] = ()) -> None:
    """Stop a build if one of its walk's asks lost all rows, or too many for answers of the wrong form.

    Args:
        stage: the build.
        config: its config; `most_rejected` sets the limit.
        folder: the walk's.
        rows: number of rows in the walk.
        partial: asks whose refused answers may be used in part.
    """
    if config.most_rejected is None:
        return
    for loss in losses_of_walk(stage, folder):
        failed = sum(one.rows for one in loss.why if one.failed and one.final)
        if not loss.answered and failed >= min(FIRST, rows) and loss.ask not in partial:
            raise none_passed(stage, loss)
        form = sum(one.rows for one in loss.why if one.failed and current_word(one.reason) in FORM)
        if form > config.most_rejected * loss.came:
            who = f"'{loss.ask}' ({loss.role}, {loss.annotator})"
            head = f"{form:,} of {loss.came:,} rows have no answer of the right form to {who}"
            raise _stop(stage, loss, f"{head}, more than most_rejected = {config.most_rejected:g}")


def tell_losses(error: EarmarkError, stage: Stage) -> None:
    """Add the lost rows to a build's error: a line per ask, an answer, and a server's last words."""
    if isinstance(error, Interrupted | Stopped):
        return
    try:
        text = _losses_text(error, stage)
    except (OSError, duckdb.Error, EarmarkError) as fault:  # such as a full disk: the build's own error stays the first
        text = f"the lost rows could not be counted: {one_line(str(fault), QUOTED)}"
    if text:
        error.add_note(text)


def _losses_text(error: EarmarkError, stage: Stage) -> str:
    folders = {path.parents[1] for path in stage.work.rglob("*.parquet") if path.parent.name in ("draws", "stopped")}
    losses = [loss for folder in sorted(folders) for loss in losses_of_walk(stage, folder)]
    if not losses:
        return ""
    stops = isinstance(error, TooManyRejects)
    lines = ["rows by question:" if stops else "rows by question, as far as they ended; the ledger keeps every answer:"]
    for loss in losses:
        why = ", ".join(f"{one.rows:,} {one.reason}" for one in loss.why)
        went = f"{loss.came:,} came, {loss.passed:,} passed" + (f" ({why})" if why else "")
        lines.append(f"  {loss.ask} ({loss.role}, {loss.annotator}): {went}")
    worst = max(losses, key=lambda loss: loss.came - loss.passed)
    if worst.why and not stops:
        lines += _quoted(stage, worst)
    words = [one.example.detail for loss in losses for one in loss.why if not one.final]
    lines += [f"  the server's last words: {one_line(words[-1], QUOTED)}"] if words else []
    return "\n".join(lines)


def losses_of_walk(stage: Stage, folder: Path) -> list[AskLoss]:
    """Count the rows of a walk at each ask, in the order of the asks."""
    draws, results = (
        [str(path) for path in [*folder.glob(f"{part}/*.parquet"), *folder.glob(f"stopped/{part}-*.parquet")]]
        for part in ("draws", "results")
    )
    if not draws:
        return []
    with connect(stage.work / "spill") as connection:
        rows = connection.execute(query("pipeline/walk_losses"), {"draws": draws, "results": results}).fetchall()
    return [AskLoss._make([*row[:-1], [_why(**one) for one in row[-1] or ()]]) for row in rows]


def _why(reason: str, rows: int, failed: bool, final: bool, one: Mapping[str, Any]) -> Why:
    return Why(reason, rows, failed, final, FailedRow(reason, one["detail"], one["value"], one["key"]))


def _stop(stage: Stage, loss: AskLoss, head: str) -> TooManyRejects:
    wide = max(len(f"{one.rows:,}") for one in loss.why)
    reasons = [f"  {one.rows:>{wide},}  {one.reason}  {one_line(one.example.detail, QUOTED)}" for one in loss.why]
    head = f"{stage.corpus}: {head}; nothing was committed"
    out = [LowShare.way_out] if any(one.reason == LowShare.reason for one in loss.why) else []
    return TooManyRejects("\n".join([head, *reasons, *_quoted(stage, loss), *out, WAY_OUT]))


def _quoted(stage: Stage, loss: AskLoss) -> list[str]:
    """Return an example of the failed answers, printable on a terminal."""
    for one in loss.why:
        if text := one.example.value or _received(stage, loss.annotator, one.example.request_key):
            return [f"  one of these answers to '{loss.ask}': {one_line(text, QUOTED)}"]
    return []


def _received(stage: Stage, annotator: str, key: str | None) -> str:
    """Read the last response to a request from the ledger: the model's text, or the whole response."""
    if key is None or not has_ledger(stage.store):
        return ""
    raws: list[str] = []
    with suppress(LedgerError):
        raws = [raw for *_, raw in received(ledger_address(stage.store), [annotator], [key])]
    with suppress(ValueError, LookupError, TypeError):
        return str(json.loads(raws[-1])["choices"][0]["message"]["content"])
    return raws[-1] if raws else ""


COMMONEST = 3
LONGEST_LINE = 240
TO_DO = "Mend the option or the input and build again; answers of models are kept.\n"


class Loss(NamedTuple):
    """Rejects of one step, file and reason, as of `tasks/pipeline/lost_rejects.sql`."""

    step: str
    file: str | None
    reason: str
    items: int
    examples: Sequence[RejectRow]  # the first three


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
    lines.append(f"{TO_DO}To commit what is left: most_rejected in the config, or {RESUMING}")
    raise TooManyRejects("\n".join(lines))


def check_main_table(stage: Stage, config: BuildConfig, corpus: Corpus) -> None:
    """Stop a build with an empty main table."""
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
    raise TooManyRejects("\n".join([*lines, f"{TO_DO}To commit it even so: {RESUMING}"]))


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
        example = example_line(loss.file, loss.examples[0]) if (loss := examples.get(reason)) else ""
        lines.append(_line(f"  {count:>{wide},}  {reason:<{long}}  {example}").rstrip())
        options = options_of(reason, config) if reason in examples else []
        lines += [_line(f"  {'':>{wide + long + 2}}  option {key}: {text}") for key, text in options]
    if (more := len(counts) - len(shown)) > 0:
        lines.append(f"  {'':>{wide}}  and {more} more {'reason' if more == 1 else 'reasons'}")
    return lines


def example_line(file: str | None, example: RejectRow) -> str:
    """Return a line about one reject: its place, and expected and found."""
    line = example["line"]
    return f"{file or example['item']}{'' if line is None else f' line {line}'}: {example['detail']}"


def _line(text: str) -> str:
    """Return one line for a terminal, without control characters."""
    plain = printable(text)
    return plain if len(plain) <= LONGEST_LINE else plain[: LONGEST_LINE - 1] + "…"
