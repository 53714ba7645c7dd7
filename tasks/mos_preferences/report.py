"""Build the report sections of `mos-preferences`: scores and gaps, categories, pairs and critiques with their clips."""

from collections import Counter
from itertools import pairwise
from typing import Literal

from earmark.schemas.critiques import PAIRED_CRITIQUES, ClipCritique, PairCritique
from earmark.schemas.mos_preferences import ClipPair
from earmark.tasks.mos_preferences.critiques import CriticQuestions
from earmark.tasks.pipeline.report import Material, count, histogram, sample, shares
from earmark.tasks.pipeline.rows import read_rows
from earmark.tasks.store.figures import AudioPlayer, Browser, Row, Section
from earmark.tasks.store.sql import query
from earmark.tasks.store.staging import Stage


def sections(material: Material) -> list[Section]:
    """Return the report's own sections."""
    db = material.db
    rated = Section(
        "Ratings",
        (
            histogram(
                db, "ratings", "mos", "Mean opinion score", "Every rated clip, whether paired or not.", unit="points"
            ),
        ),
    )
    drawn = Section(
        "Pairs",
        (
            histogram(db, "pairs", "mos_gap", "Gap between the two scores", "Chosen less rejected.", unit="points"),
            shares(db, "pairs", "category", "Pairs by category"),
            Browser("pairs", _pairs(material), count(db, "pairs")),
        ),
    )
    found = [rated, drawn]
    if count(db, "paired_critiques"):
        figures = (
            Browser("paired_critiques", _comparisons(material), count(db, "paired_critiques")),
            Browser("critiques", _critiques(material), count(db, "critiques")),
        )
        found.append(Section("Critiques", figures, "What the critic wrote; it knew no score."))
    return found


class ShownPair(ClipPair):
    """A pair with the files of its clips."""

    chosen_file: str
    rejected_file: str
    chosen_sha256: str
    rejected_sha256: str


def _pairs(material: Material) -> tuple[Row, ...]:
    pairs: list[ShownPair] = sample(
        material.db, "pairs", "pair_id", by="dataset", rows=query("mos_preferences/shown_pairs")
    )
    return tuple(
        Row(
            row["pair_id"],
            {"split": row["split"], "dataset": row["dataset"], "category": row["category"]},
            {
                # of the displayed figures: 3.375 and 3.25 read 3.38 and 3.25, and 0.125 would read 0.12
                "gap": f"{round(row['chosen_mos'], 2) - round(row['rejected_mos'], 2):.2f} points",
                "decile of the gap": str(row["gap_decile"]),
                **_chance(row["chosen_better_probability"]),
                "chosen file": row["chosen_file"],
                "rejected file": row["rejected_file"],
            },
            clips=(
                AudioPlayer(f"chosen, MOS {row['chosen_mos']:.2f}", row["chosen_sha256"]),
                AudioPlayer(f"rejected, MOS {row['rejected_mos']:.2f}", row["rejected_sha256"]),
            ),
        )
        for row in pairs
    )


def _chance(probability: float | None) -> dict[str, str]:
    """Return the chance that the chosen clip is better, if listeners' scores give it."""
    if probability is None:
        return {}
    return {"chance that the chosen clip is better": f"{probability:.1%}" if probability < 0.9995 else "over 99.9%"}


def _comparisons(material: Material) -> tuple[Row, ...]:
    critiques: list[PairCritique] = sample(material.db, "paired_critiques", "pair_id")
    return tuple(
        Row(
            row["pair_id"],
            {"split": row["split"], "dataset": row["dataset"], "model": row["model"]},
            {"asked with": row["prompt"], "tries": str(row["tries"])},
            {"what it wrote": row["rationale"]},
            (
                AudioPlayer(f"first: MOS {row['first_mos']:.2f}, scored {row['first_score']}", row["first_sha256"]),
                AudioPlayer(f"second: MOS {row['second_mos']:.2f}, scored {row['second_score']}", row["second_sha256"]),
            ),
        )
        for row in critiques
    )


def _critiques(material: Material) -> tuple[Row, ...]:
    critiques: list[ClipCritique] = sample(material.db, "critiques", "sample_id", most=20)
    return tuple(
        Row(
            row["sample_id"],
            {"split": row["split"], "dataset": row["dataset"], "model": row["model"]},
            texts={
                part.replace("_", " "): text
                for part in ("noise", "distortion", "naturalness", "continuity", "free_text")
                if (text := row[part])
            },
            clips=(AudioPlayer(f"MOS {row['mos']:.2f}", row["clip_sha256"]),),
        )
        for row in critiques
    )


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
