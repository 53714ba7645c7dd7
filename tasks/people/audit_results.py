"""Summarise an audit: reviewers' confirmation of rows' labels by label and stratum, and the contested rows."""

import csv
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from earmark.schemas.errors import InputError
from earmark.schemas.study import AuditCell, Audited, AuditFacts, PrecisionFacts, StratumFacts, StudyPlan, Trial
from earmark.tasks.people.answers import Returned
from earmark.tasks.people.auditing import QUESTION, UNSURE
from earmark.tasks.store.agreement import alpha
from earmark.tasks.store.folder import building, write_facts

RECORD, ROWS = "audit.json", "rows.csv"


class Verdict(NamedTuple):
    """Verdict of reviewers on a row."""

    row: str  # its id
    label: str  # its label in the version
    stratum: str  # its value in the stratifying column
    answers: Mapping[str, str]  # by reviewer, in the version's words
    # of the answers other than unsure: `confirmed` if more than half are the label, `refuted` if more than half are
    # another one, else `disputed`; `unsure` without any
    verdict: str
    instead: str  # the other answer of a refuted row
    why: str  # remarks beside their answers, by reviewer; may be empty


def verdicts(plan: StudyPlan, returned: Iterable[Returned]) -> list[Verdict]:
    """Return a verdict for each answered row.

    Raises:
        InputError: the plan is not an audit's.
    """
    audited = _audited(plan)
    answers: dict[str, dict[str, str]] = defaultdict(dict)
    labels: dict[str, str] = {}
    remarks: dict[str, list[str]] = defaultdict(list)
    by_page = {page.name: {trial.id: trial for trial in page.trials} for page in plan.pages}
    for one in returned:
        for trial_id, answer in one.judged.items():
            trial = by_page[one.page][trial_id]
            answers[trial.prompt_id][one.page] = _named(audited, trial, answer.response[QUESTION])
            labels[trial.prompt_id] = _named(audited, trial, trial.expected[QUESTION])
            if remark := " ".join(answer.response.get("feedback", "").split()):
                remarks[trial.prompt_id].append(f"{one.page}: {remark}")
    return [
        Verdict(row, labels[row], audited.strata[row], given, *_verdict(labels[row], given), "; ".join(remarks[row]))
        for row, given in sorted(answers.items())
    ]


def _audited(plan: StudyPlan) -> Audited:
    if plan.audited is None:
        raise InputError(f"{plan.study} is a study; read it with `earmark people study status`")
    return plan.audited


def _named(audited: Audited, trial: Trial, value: str) -> str:
    """Return an answer in the version's terms: a letter of the page stands for a side."""
    shown = reversed(audited.sides) if trial.swapped else audited.sides
    return dict(zip(("a", "b"), shown, strict=True)).get(value, value)


def _verdict(label: str, answers: Mapping[str, str]) -> tuple[str, str]:
    counts = Counter(value for value in answers.values() if value != UNSURE)
    if not counts:
        return "unsure", ""
    ((first, most),) = counts.most_common(1)
    if 2 * most <= counts.total():
        return "disputed", ""
    return ("confirmed", "") if first == label else ("refuted", first)


def summary(plan: StudyPlan, rows: list[Verdict]) -> AuditFacts:
    """Return the precision of each label and stratum and of the whole version, and the reviewers' agreement.

    Precision, with Wilson's interval, is the share of confirmed rows among rows not unsure; a disputed row is not
    confirmed. Rows are drawn from labels and strata in turn, so the overall figure weighs each cell by the rows that
    it was drawn from; its interval joins the cells' (Zou and Donner 2008, "MOVER"). `alone` is the rate of single
    reviewers giving the label, by stratum and overall: the human counterpart of models measured on the same rows.
    """
    audited = _audited(plan)
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in rows:
        cells[one.label, one.stratum][one.verdict] += 1
    table: list[AuditCell] = [
        {
            "label": label,
            "stratum": stratum,
            "confirmed": counts["confirmed"],
            "refuted": counts["refuted"],
            "disputed": counts["disputed"],
            "unsure": counts["unsure"],
            **_precision(counts),
            "rows": audited.totals.get(f"{label}\t{stratum}", 0),
        }
        for (label, stratum), counts in sorted(cells.items())
    ]
    decided = sum(cell["rows"] for cell in table if cell["precision"] is not None)
    alone = _alone(rows, audited.totals)
    return {
        "corpus": audited.corpus,
        "version": audited.version,
        "manifest_sha256": audited.manifest_sha256,
        "evaluation": audited.evaluation,
        "stratify": audited.stratify,
        "reviewers": len({name for one in rows for name in one.answers}),
        "audited": len(rows),
        "overall": _overall((cell["rows"], cell) for cell in table),
        "alone": alone if audited.stratify else alone[-1:],  # else its only stratum is the whole
        "covered": decided / (audited.every or sum(audited.totals.values()) or 1),
        "alpha": _agreement(rows, audited.sides),
        "cells": table,
    }


def _precision(counts: Mapping[str, int]) -> PrecisionFacts:
    decided = counts["confirmed"] + counts["refuted"] + counts["disputed"]
    return _wilson(counts["confirmed"], decided) if decided else {"precision": None, "low": None, "high": None}


def _alone(rows: list[Verdict], totals: Mapping[str, int]) -> list[StratumFacts]:
    """Return the share of right answers by stratum, then of all; unsure answers count as wrong. A row counts once for
    any number of answers: answers to a row are not independent, and the interval must respect this."""
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in rows:
        right = sum(answer == one.label for answer in one.answers.values())
        shares[one.label, one.stratum].append(right / len(one.answers))
    table = [
        (stratum, totals.get(f"{label}\t{stratum}", 0), _wilson(sum(right), len(right)))
        for (label, stratum), right in sorted(shares.items())
    ]
    strata = sorted({stratum for stratum, *_ in table})
    by_stratum = [(stratum, [cell for cell in table if cell[0] == stratum]) for stratum in strata]
    return [
        {"stratum": name, **_overall((rows, share) for _, rows, share in cells)}
        for name, cells in [*by_stratum, ("all", table)]
    ]


def _wilson(right: float, of: int) -> PrecisionFacts:
    """Return a share with its 95 % interval (Wilson 1927), for a possibly fractional count."""
    share, z2 = right / of, 1.959963984540054**2
    middle = share + z2 / (2 * of)
    half = (z2 * (share * (1 - share) / of + z2 / (4 * of * of))) ** 0.5
    return {"precision": share, "low": (middle - half) / (1 + z2 / of), "high": (middle + half) / (1 + z2 / of)}


def _overall(cells: Iterable[tuple[int, PrecisionFacts]]) -> PrecisionFacts:
    known = [
        (rows, share, low, high)
        for rows, one in cells
        for share, low, high in [(one["precision"], one["low"], one["high"])]
        if rows and share is not None and low is not None and high is not None
    ]
    total = sum(rows for rows, *_ in known)
    if not total:
        return {"precision": None, "low": None, "high": None}
    value = sum(rows / total * share for rows, share, _, _ in known)
    below = sum((rows / total * (share - low)) ** 2 for rows, share, low, _ in known) ** 0.5
    above = sum((rows / total * (high - share)) ** 2 for rows, share, _, high in known) ** 0.5
    return {"precision": value, "low": max(0.0, value - below), "high": min(1.0, value + above)}


def _agreement(rows: Iterable[Verdict], sides: tuple[str, str]) -> float | None:
    """Return Krippendorff's nominal alpha over rows, without unsure answers; None if undefined.

    A hash of the row names its sides: where the version calls each better clip `chosen`, reviewers who agree would
    all give one answer, which chance explains.
    """
    tables = []
    for one in rows:
        turned = hashlib.sha256(one.row.encode()).digest()[0] % 2
        named = dict(zip(sides, reversed(sides), strict=True)) if turned else {}
        tables.append(Counter(named.get(value, value) for value in one.answers.values() if value != UNSURE))
    values = sorted({value for counts in tables for value in counts})
    return alpha([[counts[value] for value in values] for counts in tables] or [[0]])


def write_record(folder: Path, facts: Mapping[str, Any], rows: Sequence[Verdict], asked: Path) -> None:
    """Write `audit.json`, and `rows.csv` with every audited row, to withdraw or relabel refuted ones.

    Args:
        asked: of an exam, the table of its samples; each reviewer's answers are then written as a model's are.
    """
    with building(folder, force=True, record=RECORD) as place:
        write_facts(place, RECORD, facts)
        if asked.is_file():
            exam = pd.read_csv(asked, dtype=str)
            for name in sorted({name for one in rows for name in one.answers}):
                given = {one.row: one.answers.get(name) for one in rows}
                exam["choice"] = exam["id"].map({row: answer for row, answer in given.items() if answer != UNSURE})
                exam.to_csv(place / f"answers-{name}.csv", index=False)
        with (place / ROWS).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("row", "stratum", "label", "verdict", "instead", "answers", "why"))
            for one in rows:
                answers = " ".join(f"{name}={value}" for name, value in sorted(one.answers.items()))
                writer.writerow((one.row, one.stratum, one.label, one.verdict, one.instead, answers, one.why))
