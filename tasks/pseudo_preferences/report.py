"""Build the report sections of `pseudo-preferences`: position bias, and pairs with both passes' answers."""

from typing import TypedDict

from earmark.schemas.pseudo_tables import GeneratedPair
from earmark.tasks.pipeline.preferences import preference_matrices
from earmark.tasks.pipeline.report import Material, count, sample, shares
from earmark.tasks.store.figures import AudioPlayer, Browser, Row, Section
from earmark.tasks.store.result_table import ResultTable, percent
from earmark.tasks.store.sql import query

_BIAS = 'scope, value, dimension, "set", pairs, share_a, share_b, share_tie, share_first, consistency'
_CONFOUNDS = "\"set\", judge, dimension, replace(feature, '_', ' '), choices, share, majority"


def sections(material: Material) -> list[Section]:
    """Return the report's own sections."""
    db = material.db
    leaning = ResultTable(
        "Choices before and after the consistency filter",
        (
            "pairs of",
            "value",
            "dimension",
            "set",
            "pairs",
            percent("a"),
            percent("b"),
            percent("tie"),
            percent("first shown"),
            percent("consistent"),
        ),
        tuple(db.execute(f"SELECT {_BIAS} FROM bias WHERE scope IN ('all', 'modality')").fetchall()),
        "A judge without position bias prefers what it hears first in half of the pairs.",
    )
    confounds = ResultTable(
        "How often the clip with more of something won",
        ("set", "judge", "dimension", "won by", "choices", percent("share"), percent("majority")),
        tuple(db.execute(f"SELECT {_CONFOUNDS} FROM confounds").fetchall()),
        "Together: choices that a regression on all of these predicts. The majority is what one letter gets right.",
    )
    return [
        *([Section("Position bias", (leaning,))] if leaning.rows else []),
        *([Section("Confounds", (confounds,))] if confounds.rows else []),
        Section(
            "Labels",
            (
                shares(db, "labels", "musicality", "Musicality, pairs by preferred clip"),
                shares(db, "labels", "alignment", "Alignment, pairs by preferred clip"),
                shares(db, "pairs", "modality", "Pairs by what the prompt holds"),
                *preference_matrices(db, "pseudo_preferences/ranked"),
            ),
        ),
        Section("Pairs and what the judge said", (Browser("pairs", _pairs(material), count(db, "pairs")),)),
    ]


class ShownAnswer(TypedDict):
    """A judge's answer about a pair."""

    judge: str
    order: str
    dimension: str
    choice: str
    reason: str


class ShownPairLabel(GeneratedPair):
    """A pair with its clips' hashes, its label, and the answers of both passes."""

    sha256_a: str
    sha256_b: str
    musicality: str | None
    alignment: str | None
    answers: list[ShownAnswer] | None


def _pairs(material: Material) -> tuple[Row, ...]:
    rows = []
    pairs: list[ShownPairLabel] = sample(
        material.db, "pairs", "pair_id", by="modality", rows=query("pseudo_preferences/shown_pairs")
    )
    for row in pairs:
        answers = row["answers"] or []
        several = len({one["judge"] for one in answers}) > 1
        said = {
            f"{one['judge'] + ', ' if several else ''}{one['order']}, {one['dimension']}: {one['choice']}": one[
                "reason"
            ]
            for one in answers
        }
        texts = {"prompt": row["text"], **({"lyrics": row["lyrics"]} if row["lyrics"] else {}), **said}
        clips = [
            AudioPlayer(f"a: {row['model_a']}", row["sha256_a"]),
            AudioPlayer(f"b: {row['model_b']}", row["sha256_b"]),
        ]
        if row["reference_sha256"]:
            clips.insert(
                0, AudioPlayer("reference of the prompt", None)
            )  # no config names its licence: it stays unheard
        tags = {
            "split": row["split"],
            "modality": row["modality"],
            "musicality": row["musicality"] or "no label",
            "alignment": row["alignment"] or "no label",
            "models": " / ".join(sorted((row["model_a"], row["model_b"]))),
        }
        rows.append(Row(row["pair_id"], tags, {"prompt id": row["prompt_id"]}, texts, tuple(clips)))
    return tuple(rows)
