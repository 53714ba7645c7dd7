"""Qualify judges on gold before paying for rows: measure their accuracy, and refuse poor ones.

    EXAM = Exam(judge_pairs, questions, answers)

    qualify(stage, config, EXAM, pairs)                            # in a flow, before the first walk that is paid for
    judged = ask_each(judge_pairs, stage, config, pairs)           # tasks/evaluation/juries.py

Questions go through the corpus's own walk and the ledger, so no answer is asked again. A dry run counts them; `earmark
qualify` asks them and nothing else.
"""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypedDict

import pyarrow as pa

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import ConfigError, Faults, InputError
from earmark.schemas.judges import QUALIFICATION, Judging, QualificationRow, Qualified
from earmark.schemas.tables import UNSPLIT
from earmark.tasks.evaluation.influence import share
from earmark.tasks.pipeline.ask import Config, Row
from earmark.tasks.pipeline.forecast import ImaginedSessions, Story, run_dry
from earmark.tasks.pipeline.plan import staying
from earmark.tasks.pipeline.rows import Rows, keep_rows, read_rows
from earmark.tasks.pipeline.sessions import clip_media, sessions_of_build
from earmark.tasks.pipeline.step import Enough
from earmark.tasks.pipeline.walk import Draw, Walk, Walked
from earmark.tasks.store.result_table import ResultColumn, ResultTable, interval
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store, ledger_address

ALL = "all"


class Given(NamedTuple):
    """Answer to a gold question, in one dimension."""

    dimension: str  # the dimension
    choice: str | None  # the answer, in the words of the question's truth, or `tie`; None without an answer
    first: str  # the answer for the side shown first; for yes and no: yes
    second: str  # the answer for the second side; no


@dataclass(frozen=True)
class Exam(Generic[Config]):
    """A corpus's declaration for qualifying its judges."""

    walk: Walk[Config]  # asks the role `judge` about rows
    # makes rows for the walk, of the gold table and of the rows to be asked about; each also has `control`, `domain`,
    # and `truth`: the right answer by dimension, if known
    questions: Callable[[Stage, Config, Rows], Iterable[Row]]
    # reads a draw of the walk by dimension; a draw without an answer has no value
    answers: Callable[[Row], Iterable[Given]]


class GoldQuestion(TypedDict):
    """Keys of each question, beside those of the corpus's walk.

    `at` is its number, `alike` that of the first question with one of its requests: people's votes on the same pair
    are questions of their own, whose answers are the same.
    """

    at: int
    alike: int
    control: str
    domain: str
    truth: dict[str, str]


class Qualifying(ImaginedSessions):
    """Replacement of sessions while judges answer gold and nothing is built; earlier questions get imagined answers."""

    figures: list[QualificationRow]  # rows of the table `qualification`
    faults: list[str]  # shortfalls, a line each


def qualify(stage: Stage, config: Any, exam: Exam[Any], rows: Rows) -> None:
    """Ask each judge with `qualify` about gold, and write its accuracy (the table `qualification`).

    Raises:
        Faults: a judge is less accurate than `least`, or leans more than `most_lean`; with the figures.
        InputError: there is nothing to ask.
        Enough: in `earmark eval qualify`, which stops here.
    """
    asking = stage.forecast
    if isinstance(asking, Qualifying):
        stage = replace(stage, forecast=None)
    figures: list[QualificationRow] = []
    faults: list[str] = []
    for number, (label, one) in enumerate(config.by_judge().items()):
        if one.judge.qualify is None:
            continue
        questions = list(exam.questions(stage, one, rows))
        if not questions:
            raise InputError("judge.qualify: no row gives a question; name a table of gold, or more controls")
        about = "qualify" if len(config.jurors()) == 1 else f"qualify {label}"
        part = f"qualify-{number}"
        kept = keep_rows(stage, part, questions, max(1, one.judge.batch_requests // 4) if one.judge.batch else 100)
        walked = exam.walk(stage, one, kept, part=part, about=about)
        if stage.forecast is None:
            found: list[Any] = [{"judge": label, **row} for row in measure(walked, exam)]
            figures += found
            faults += shortfalls(one.judge, found)
    if isinstance(asking, Qualifying):
        asking.figures, asking.faults = figures, faults
        raise Enough
    if stage.forecast is None and figures:
        if faults:
            raise Faults((*faults, "no row was asked about; the answers are kept"))
        stage.write(QUALIFICATION, UNSPLIT, [pa.Table.from_pylist(figures, QUALIFICATION.schema)])


def qualify_alone(
    corpus: Corpus, story: Story, config: Qualified, store: Store
) -> tuple[list[QualificationRow], list[str]]:
    """Ask gold and nothing else; the ledger keeps the answers, and nothing is built.

    Returns:
        Rows of the table `qualification`, and the shortfalls.

    Raises:
        ConfigError: no judge of the config has gold.
        InputError: an input is missing.
        StopRun: a fault of every request, or the budget's end.
    """
    if not any(one.qualify for one in config.jurors()):
        raise ConfigError("expected [judge.qualify] in the config: it says what gold the judge answers")
    asking = Qualifying(staying(config, store, corpus.name).for_forecast(), ledger_address(store), clip_media(store))
    asking.figures, asking.faults = [], []
    with tempfile.TemporaryDirectory() as folder, sessions_of_build(store):
        run_dry(corpus, story, store, Path(folder), asking)
    return asking.figures, asking.faults


def measure(walked: Walked, exam: Exam[Any]) -> Iterator[Row]:
    """Yield the figures of one judge: by dimension, then by domain and by control. A missing answer is wrong."""
    asked: Sequence[GoldQuestion] = read_rows(walked.source)
    questions: list[GoldQuestion] = [{**row, "at": at, "alike": at} for at, row in enumerate(asked)]
    answers: dict[str, list[tuple[GoldQuestion, Given]]] = {}
    seen: set[tuple[str, int, str]] = set()
    first: dict[str, int] = {}
    draw: Draw
    for draw in walked.read_draws():
        if not draw["last"]:
            continue
        question = questions[draw["at"]]
        question["alike"] = min(question["alike"], first.setdefault(draw["request_key"], draw["at"]))
        for given in exam.answers(draw):
            key = (
                given.dimension,
                draw["at"],
                draw["request_key"],
            )  # the same clip twice is one request in both orders
            if key not in seen:
                answers.setdefault(given.dimension, []).append((question, given))
            seen.add(key)
    for dimension, held in answers.items():
        for domain, control in _cells([question for question, _ in held]):
            cell = [
                (question, given)
                for question, given in held
                if domain in (ALL, question["domain"]) and control in (ALL, question["control"])
            ]
            row = figures_of(cell)
            if not row["known"] and control != "same" and (domain, control) != (ALL, ALL):
                continue
            weight = log_odds(row["agreed_accuracy"], row["agreed"]) if domain == control == ALL else None
            yield {"domain": domain, "dimension": dimension, "control": control, **row, "weight": weight}


def _cells(questions: Sequence[GoldQuestion]) -> list[tuple[str, str]]:
    """List the cells: all, each control, and each domain if there are several."""
    domains = sorted({row["domain"] for row in questions})
    controls = dict.fromkeys(row["control"] for row in questions)
    split = [(domain, ALL) for domain in domains] if len(domains) > 1 else []
    return [(ALL, ALL), *((ALL, control) for control in controls), *split]


def figures_of(answers: Sequence[tuple[GoldQuestion, Given]]) -> Row:
    """Return counts and shares of some answers in one dimension.

    Args:
        answers: each with its question, numbered by `at`; `choice` is None without an answer, which is wrong if the
            truth is known, and excluded from the other shares.
    """
    answered = [one for _, one in answers if one.choice is not None]
    known = [(row, one, row["truth"][one.dimension]) for row, one in answers if one.dimension in row["truth"]]
    right = share([one.choice == truth for _, one, truth in known], [row["alike"] for row, _, _ in known])
    by_question: dict[int, list[tuple[str | None, str]]] = {}
    for row, one, truth in known:
        by_question.setdefault(row["at"], []).append((one.choice, truth))
    orders = max(map(len, by_question.values()), default=0)
    agreed = [held[0] for held in by_question.values() if len(held) == orders and len(set(held)) == 1 and held[0][0]]
    return {
        "questions": len({row["at"] for row, _ in answers}),
        "requests": len(answers),
        "answers": len(answered),
        "known": len(known),
        "accuracy": right.value,
        "low": right.low,
        "high": right.high,
        "agreed": len(agreed),
        "agreed_accuracy": _share(choice == truth for choice, truth in agreed),
        "share_first": _share(one.choice == one.first for one in answered),
        "share_second": _share(one.choice == one.second for one in answered),
        "share_tie": _share(one.choice == "tie" for one in answered),
        "tpr": _share(one.choice == one.first for _, one, truth in known if one.choice and truth == one.first),
        "fpr": _share(one.choice == one.first for _, one, truth in known if one.choice and truth == one.second),
    }


def log_odds(share: float | None, count: int) -> float:
    """Return the weight of a vote by its probability of being right (Nitzan and Paroush 1982, Int. Economic Review 23).

    Add half a right and half a wrong answer, so that it is finite; return 0 if it is no better than chance.
    """
    if not count or share is None:
        return 0.0
    p = (share * count + 0.5) / (count + 1)
    return max(0.0, math.log(p / (1 - p)))


def shortfalls(judge: Judging, figures: Sequence[QualificationRow]) -> list[str]:
    """Return the shortfalls of a judge's figures from its `qualify`, a line each."""
    assert judge.qualify is not None
    whole = [row for row in figures if row["domain"] == row["control"] == ALL]
    faults = []
    for row in whole:
        known = [
            one for one in figures if one["dimension"] == row["dimension"] and one["domain"] == ALL != one["control"]
        ]
        each = ", ".join(f"{one['control']} {one['known']}" for one in known if one["known"])
        who, of = f"{judge.label} on {row['dimension']}", f"of {row['known']} requests with a known answer ({each})"
        if not row["answers"]:
            faults.append(f"{who}: none of {row['requests']} requests of the qualification has an answer")
            continue
        lean = abs((row["share_first"] or 0.0) - (row["share_second"] or 0.0))
        if row["accuracy"] is None and judge.qualify.least > 0:
            faults.append(
                f"{who}: no question has a known answer; add votes (judge.qualify.gold) or a control that has one, or "
                "set least = 0"
            )
        elif (row["accuracy"] or 0.0) < judge.qualify.least:
            spread = "" if row["low"] is None else f" (95 %: {row['low']:.3f} to {row['high']:.3f})"
            unanswered = f"; {row['requests'] - row['answers']} of {row['requests']} without an answer count as wrong"
            faults.append(
                f"{who}: {row['accuracy']:.3f}{spread} {of} have the right answer, expected {judge.qualify.least:g} "
                f"(judge.qualify.least); first {row['share_first']:.3f}, tie {row['share_tie']:.3f}"
                f"{unanswered if row['answers'] < row['requests'] else ''}"
            )
        if lean > judge.qualify.most_lean:
            faults.append(
                f"{who}: of {row['answers']} answers {row['share_first']:.3f} prefer what is shown first and "
                f"{row['share_second']:.3f} the second, expected at most {judge.qualify.most_lean:g} between them "
                "(judge.qualify.most_lean)"
            )
    return faults


def qualification_section(stage: Stage) -> dict[str, str]:
    """Return the card's table of judges' results on gold, by its heading; empty without results."""
    rows: list[QualificationRow] = stage.rows(QUALIFICATION)
    return {"Qualification": qualification_table(rows, says=_GOLD).markdown()} if rows else {}


_GOLD = (
    "Before the first row, judges answered gold: questions with known answers. Positive is what is shown first (of "
    "yes and no: yes), so TPR less FPR is what a judge hears beyond its position bias. `agreed` counts questions to "
    "which both orders got one answer. A request without an answer counts as wrong. In brackets, 95 %."
)


def qualification_table(rows: Sequence[QualificationRow], title: str = "", says: str = "") -> ResultTable:
    """Tabulate judges' results on gold; a table with a judge's name as its title has no column of judges."""
    names = (*(() if title else ("judge",)), "dimension", "domain", "control", "requests", "answers", "known")
    shares = [
        ResultColumn(name, decimals=3)
        for name in ("right", "agreed right", *["first", "second", "tie", "TPR", "FPR", "weight"])
    ]
    return ResultTable(
        title,
        (*names, shares[0], "agreed", *shares[1:]),
        tuple(
            (
                *(() if title else (row["judge"],)),
                *(row["dimension"], row["domain"], row["control"], row["requests"], row["answers"], row["known"]),
                interval({"value": row["accuracy"], "low": row["low"], "high": row["high"]}),
                *(row["agreed"], row["agreed_accuracy"], row["share_first"], row["share_second"], row["share_tie"]),
                *(row["tpr"], row["fpr"], row["weight"]),
            )
            for row in rows
        ),
        says,
        drop=("agreed", "second", "first", "requests", "agreed right", "answers", "weight"),
    )


def _share(yes: Iterable[bool]) -> float | None:
    held = list(yes)
    return sum(held) / len(held) if held else None
