"""Print evaluations of models and reviews of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earmark.flows.command.console import print_table, tell

if TYPE_CHECKING:
    from earmark.schemas.corpus import Corpus
    from earmark.tasks.store.versions import Version


def show_reviews(facts: Mapping[str, Any], out: Path | None) -> None:
    """Print the reviews: their number, the flagged questions, the reviewers' agreement."""
    of = f"{facts['corpus']} {facts['version']}"
    tell(
        f"{facts['reviews']:,} reviews by {len(facts['reviewers'])} reviewers; {facts['counted']:,} of them match "
        f"{of}; {facts['reviewed_questions']:,} of its {facts['questions']:,} questions are reviewed"
    )
    tell(*(f"not read: {reject['source_file']}, {reject['line']}: {reject['detail']}" for reject in facts["refused"]))
    flagged = facts["flagged"]
    tell(
        f"flagged: {len(flagged['any']):,} by any reviewer, {len(flagged['majority']):,} by a majority, "
        f"{len(flagged['all']):,} by all"
    )
    if facts["agreement"]:
        pairs = [
            (one.criterion.replace("_", " "), *one.reviewers, *_shared(one.both, one.share), _two_digits(one.kappa))
            for one in facts["agreement"]
        ]
        headings = ("criterion", "reviewer", "and", "reviewed by both", "agree", "Cohen's kappa")
        print_table(*headings, rows=pairs, right=3)
    if facts["alpha"]:
        alphas = [
            (
                *(one.criterion.replace("_", " "), f"{one.questions:,}", *_shared(one.reviews, one.share)),
                *(_two_digits(one.alpha), "–" if one.low is None else f"{one.low:.2f} to {one.high:.2f}"),
            )
            for one in facts["alpha"]
        ]
        headings = ("criterion, all reviewers", "questions", "reviews", "agree", "Krippendorff's alpha", "95 %")
        print_table(*headings, rows=alphas, right=5)
    if out is not None:
        tell(f"written to {out}; add it to the config as [review] files = [...] and build again")


def evaluation_facts(corpus: Corpus) -> list[dict[str, Any]]:
    """Return a corpus's evaluations as JSON."""
    return [
        {
            "evaluation": one.name,
            "kind": one.kind,
            "says": one.says,
            "modes": [mode.name for mode in one.modes],
            "groups": list(one.groups),
            "sides": list(one.sides) if one.kind == "preference" else None,
            "order": one.order or None,
        }
        for one in corpus.evaluations
    ]


def show_evaluations(version: Version, corpus: Corpus) -> None:
    """Print a version's evaluations and their modes."""
    if not corpus.evaluations:
        tell(f"{version.corpus} has no evaluation: it is not made for testing models")
        return
    rows = [
        (
            *(one.name, one.kind.replace("_", "/"), one.says),
            *(", ".join(mode.name for mode in one.modes) or "scores only", ", ".join(one.groups)),
        )
        for one in corpus.evaluations
    ]
    print_table("evaluation", "kind", "what is measured", "modes", "groups", rows=rows)
    tell(f"evaluate a model: earmark eval run {version.corpus}@{version.name} --annotator SPEC --evaluation NAME")


def show_evaluation(facts: Mapping[str, Any], folder: Path) -> None:
    """Print the table of results."""
    from earmark.tasks.evaluation.results import cells, headings, notes, source_of

    tell(f", {facts['evaluation']}: {source_of(facts)}", head=f"{facts['corpus']} {facts['version']}")
    print_table(*headings(facts), rows=cells(facts), right=len(headings(facts)) - 1)
    tell(*(f"note: {note}" for note in notes(facts)), f"predictions and table in {folder}")


def show_comparison(facts: Mapping[str, Any], folder: Path) -> None:
    """Print models side by side."""
    from earmark.tasks.evaluation.comparison import grids, notes

    for title, head, rows in grids(facts):
        tell(f", {title}", head=f"{facts['corpus']} {facts['version']}")
        print_table(*head, rows=rows, right=len(head) - 1)
    tell(*(f"note: {note}" for note in notes(facts)), f"tables and plot in {folder}")


def show_ranking(facts: Mapping[str, Any], folder: Path) -> None:
    """Print the leaderboards of systems."""
    from earmark.tasks.evaluation.ranking import grids, notes

    for title, head, rows in grids(facts):
        tell(title, style="bold")
        print_table(*head, rows=rows, right=3)
    tell(*(f"note: {note}" for note in notes(facts)), f"boards, and who wins against whom, in {folder}")


def show_board(version: Version, board: Mapping[str, Any], folder: Path, more: Sequence[str]) -> None:
    """Print the leaderboards of scored systems, then more lines."""
    from earmark.tasks.evaluation.leaderboard import grids, notes

    for title, head, rows in grids(board):
        tell(f", {title}", head=f"{version.corpus} {version.name}")
        print_table(*head, rows=rows, right=0)
    tell(*notes(board), f"tables and plot in {folder}", *more)


def _shared(count: int, share: float) -> tuple[str, str]:
    return f"{count:,}", f"{100 * share:.0f} %"


def _two_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
