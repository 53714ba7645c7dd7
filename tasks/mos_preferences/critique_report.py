"""Write the card's section on critiques: validity, tries, scores by gap, and position bias."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Literal

from earmark.schemas.critiques import PAIRED_CRITIQUES, PairCritique
from earmark.tasks.mos_preferences.critiques import CriticQuestions
from earmark.tasks.pipeline.rows import read_rows
from earmark.tasks.store.staging import Stage

READ = ["better", "first_score", "second_score", "tries", "mos_gap_normalized"]
GAPS = (0.0, 0.25, 0.5, 0.75, 1.0)


def critique_sections(stage: Stage, questions: CriticQuestions) -> dict[str, str]:
    """Write the card's section on comparisons of pairs; return nothing without requested comparisons."""
    pairs = [row for row in read_rows(questions.rows) if row["kind"] == "paired"]
    if not pairs:
        return {}
    rows = stage.rows(PAIRED_CRITIQUES, READ)
    tries = Counter(row["tries"] for row in rows)
    better = [row["better"] for row in pairs if row["reason"] is None]
    lines = [
        f"Of {len(pairs):,} pairs that the critic was to compare, {len(better):,} could be heard, and {len(rows):,} "
        "have a valid comparison: its scores agree with the listeners"
        + (f" (by try: {', '.join(f'{n} → {tries[n]:,}' for n in sorted(tries))})." if tries else "."),
        _by_position(rows, better),
        "",
        "| MOS gap, of its dataset's 90th percentile | valid | mean score of the better | of the other | distance |",
        "|---|---:|---:|---:|---:|",
    ]
    for low, high in pairwise(GAPS):
        here = [
            row for row in rows if low <= row["mos_gap_normalized"] < high or (high == row["mos_gap_normalized"] == 1)
        ]
        if here:
            scores = [(row["first_score"], row["second_score"]) for row in here]
            best, other = (sum(map(side, scores)) / len(here) for side in (max, min))  # as the listeners say
            lines.append(f"| {low:.2f} to {high:.2f} | {len(here):,} | {best:.2f} | {other:.2f} | {best - other:.2f} |")
    return {"How the critic scored": "\n".join(lines)}


def _by_position(rows: list[PairCritique], better: list[Literal["first", "second"] | None]) -> str:
    """Compare the shares of valid comparisons with the better clip first and second."""
    shares = []
    for side in ("first", "second"):
        pairs, valid = better.count(side), sum(row["better"] == side for row in rows)
        shares.append(f"{valid:,} of {pairs:,}{f' ({valid / pairs:.1%})' if pairs else ''} where it was heard {side}")
    return f"The better clip scored higher in {shares[0]}, in {shares[1]}: a critic without a lean has equal shares."
