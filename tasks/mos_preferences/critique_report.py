"""What the dataset card tells of the critiques: validity, tries, scores by gap, and whether position leaned."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow.parquet as pq

from schemas.critiques import PAIRED_CRITIQUES
from tasks.store.staging import Stage

READ = ("better", "first_score", "second_score", "tries", "mos_gap_normalized")
GAPS = (0.0, 0.25, 0.5, 0.75, 1.0)


def critique_sections(stage: Stage) -> dict[str, str]:
    """The card's section on comparisons of pairs; none where none was asked for."""
    step = stage.recorded(PAIRED_CRITIQUES.name)
    asked = 0 if step is None else step.kept + sum(step.rejected.values())
    if step is None or not asked:
        return {}
    files = [path for paths in stage.tables().get(PAIRED_CRITIQUES.name, {}).values() for path in paths]
    rows = [row for path in files for row in pq.read_table(path, columns=list(READ)).to_pylist()]
    tries = Counter(row["tries"] for row in rows)
    heard = pq.read_table(stage.work / "critiques" / "questions.parquet", columns=["better"])["better"].to_pylist()
    pairs = sum(side is not None for side in heard)
    lines = [
        f"Of {asked:,} pairs that the critic was to compare, {pairs:,} could be heard, and {step.kept:,} have a valid "
        "comparison: its scores agree with the listeners"
        + (f" (by try: {', '.join(f'{n} → {tries[n]:,}' for n in sorted(tries))})." if tries else "."),
        _by_position(rows, heard),
        "",
        "| MOS gap, of its dataset's 90th percentile | valid | mean score of the better | of the other | distance |",
        "|---|---:|---:|---:|---:|",
    ]
    for low, high in pairwise(GAPS):
        here = [
            row for row in rows if low <= row["mos_gap_normalized"] < high or (high == row["mos_gap_normalized"] == 1)
        ]
        if here:
            scored = [_scores(row) for row in here]
            better, other = (sum(side) / len(here) for side in zip(*scored, strict=True))
            lines.append(
                f"| {low:.2f} to {high:.2f} | {len(here):,} | {better:.2f} | {other:.2f} | {better - other:.2f} |"
            )
    return {"How the critic scored": "\n".join(lines)}


def _by_position(rows: list[dict[str, Any]], heard: list[str | None]) -> str:
    """How often a comparison is valid where the better clip came first, and where it came second."""
    said = []
    for side in ("first", "second"):
        asked, valid = heard.count(side), sum(row["better"] == side for row in rows)
        said.append(f"{valid:,} of {asked:,}{f' ({valid / asked:.1%})' if asked else ''} where it was heard {side}")
    return f"The better clip scored higher in {said[0]}, in {said[1]}: a critic without a lean has equal shares."


def _scores(row: dict[str, Any]) -> tuple[int, int]:
    """The scores of the better clip and of the other."""
    first, second = int(row["first_score"]), int(row["second_score"])
    return (first, second) if row["better"] == "first" else (second, first)
