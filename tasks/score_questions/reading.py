"""Account for the reading of options: removed options with reasons, and the reader's results on right options."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from earmark.schemas.reasons import Reject
from earmark.schemas.score_questions import OPTIONS, ScoreQuestions
from earmark.tasks.pipeline.rows import read_rows
from earmark.tasks.pipeline.step import Account
from earmark.tasks.pipeline.walk import Walked
from earmark.tasks.score_questions.rows import OptionDraw, PooledThread
from earmark.tasks.score_questions.writing import READINGS
from earmark.tasks.store.result_table import ResultTable, percent, wilson

HEADING = "Whether wrong options could be right"
KINDS = {"distractor": "written", "comment": "other comments", "truth": "right options, for comparison"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader's answer about an option."""

    thread: str
    ask: str  # `contradict` or `check`
    kind: str  # `distractor`, `comment` or `truth`
    option: str
    may_be_right: bool | None  # the answer's verdict; None without an answer
    failure: tuple[str, str] | None  # reason and detail of a missing answer


@dataclass(frozen=True, slots=True)
class Kind:
    """Counts of the reading of options of a kind."""

    kind: str  # `distractor`, `comment` or `truth`
    answered: int  # options with an answer
    may_be_right: int  # possibly right options among these; comments count also if they do not contradict the right one
    unanswered: int  # options without an answer


def readings_of(written: Walked) -> list[Reading]:
    """Return the reading of every option, in order."""
    threads: list[PooledThread] = read_rows(written.source)
    draws: Iterable[OptionDraw] = written.read_draws()
    return [
        Reading(
            threads[draw["at"]]["thread_key"],
            draw["ask"],
            draw["kind"],
            draw["option"],
            None if draw["reason"] else draw["value"] == READINGS[draw["ask"]],
            (draw["reason"], draw["detail"]) if draw["reason"] else None,
        )
        for draw in draws
        if draw["ask"] in READINGS and draw["last"]
    ]


def kinds_of(readings: Iterable[Reading]) -> list[Kind]:
    """Count the readings by kind; omit absent kinds."""
    last = {(one.thread, one.option): one for one in readings}  # comments that contradict are read again by themselves
    counts = []
    for kind in KINDS:
        own = [one.may_be_right for one in last.values() if one.kind == kind]
        if own:
            counts.append(Kind(kind, len(own) - own.count(None), own.count(True), own.count(None)))
    return counts


def account_of(readings: Iterable[Reading]) -> Account:
    """Account for every wrong option read: it stays in its question, or is a reject, also without an answer."""
    last = {(one.thread, one.option): one for one in readings if one.kind != "truth"}
    rejects = [(OPTIONS.name, _reject(one)) for one in last.values() if one.may_be_right is not False]
    return Account(len(last), len(last) - len(rejects), rejects, name="options", unit="options")


def _reject(one: Reading) -> Reject:
    says = {
        "contradict": "expected an option that contradicts the right one, found one that does not",
        "check": "expected a wrong option, found one that could be right",
    }
    reason, detail = one.failure or ("may_be_right", says[one.ask])
    return Reject(one.thread, reason, f"{detail}: {one.option[:80]!r}", "", None)


def grid_of(kinds: Iterable[Kind]) -> ResultTable:
    """Tabulate the possibly right options by kind."""
    rows = tuple(
        (KINDS[one.kind], one.answered, one.may_be_right, wilson(one.may_be_right, one.answered))
        for one in kinds
        if one.answered
    )
    columns = ("options", "read", "could be right", percent("share"))
    says = "By the reader. Wilson intervals of 95 %. A reader who seldom says so of right options knows little."
    return ResultTable(HEADING, columns, rows, says)


def card_section(config: ScoreQuestions, kinds: Sequence[Kind]) -> dict[str, str]:
    """Write the card's section on the reader of the options and the share removed."""
    if config.reader is None:
        return {HEADING: "Nobody checked the options: the config names no `[reader]`."}
    wrong = [one for one in kinds if one.kind != "truth"]
    right, unanswered = sum(one.may_be_right for one in wrong), sum(one.unanswered for one in wrong)
    read = sum(one.answered for one in wrong) + unanswered
    share = (right + unanswered) / read if read else 0.0
    seen = "with" if config.reader.sees_image else "without"
    same = config.reader.annotator == config.writer.annotator
    lines = [
        f"`{config.reader.annotator}` read each option by itself, {seen} the score. Of {read:,} wrong options "
        f"{right + unanswered:,} left ({share:.1%}): {right:,} could be right, {unanswered:,} have no answer. "
        + ("**It also wrote the options: it is no independent reader.**" if same else "It did not write them."),
        "",
        *(
            "- {}: {:,} of {:,} could be right ({:.1%}, 95 %: {:.1%} to {:.1%})".format(
                KINDS[one.kind], one.may_be_right, one.answered, *interval[:3]
            )
            for one in kinds
            if (interval := wilson(one.may_be_right, one.answered))
        ),
    ]
    return {HEADING: "\n".join(lines)}
