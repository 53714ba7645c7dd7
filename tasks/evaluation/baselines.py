"""Make baselines for a table: the truth, chance, and rules of length or level alone."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from earmark.schemas.evaluations import Evaluation
from earmark.tasks.audio.probe import Probe
from earmark.tasks.evaluation.kinds import Prediction, find_kind, leader

MEASURES = {"longest": "duration_s", "loudest": "level_dbfs"}

Row = Mapping[str, Any]


def baselines(
    evaluation: Evaluation, rows: Sequence[Row], clips: Mapping[str, Probe]
) -> tuple[dict[str, dict[str, Prediction]], list[str]]:
    """Predict each sample by each baseline, by id.

    Args:
        rows: one row per sample: `id`, `target`, and if present `swapped`, `audio` or `a_audio` and `b_audio`, and
            `options`, their number.
        clips: measures of clips, by SHA-256.

    Returns:
        Predictions by baseline; and a sentence for each missing baseline.
    """
    rules: dict[str, Callable[[Row], Any]] = {"oracle": lambda row: row["target"]}
    kind = find_kind(evaluation.kind)
    if rows and kind.first(evaluation, rows[0]) is not None:
        rules["always first"] = lambda row: kind.first(evaluation, row)
    measured, without = _measured(evaluation, rows, clips)
    rules |= measured
    if kind.credited and len({row["target"] for row in rows}) > 1:  # else it is the truth again
        common = sorted(Counter(row["target"] for row in rows).items(), key=lambda one: (-one[1], str(one[0])))[0][0]
        rules["majority"] = lambda row: common
    rules["coin"] = lambda row: kind.coin(evaluation, row, _drawn(row))
    made = {name: {row["id"]: kind.predict(row["id"], rule(row)) for row in rows} for name, rule in rules.items()}
    return made, without


def _measured(
    evaluation: Evaluation, rows: Sequence[Row], clips: Mapping[str, Probe]
) -> tuple[dict[str, Callable[[Row], Any]], list[str]]:
    """Return the rules of clips' measures, if every clip was measured."""
    columns = [f"{side}audio" for side in find_kind(evaluation.kind).clips]
    if not columns or not set(columns) <= rows[0].keys():
        return {}, []
    lacking = sum(any(row[name] not in clips for name in columns) for row in rows)
    if lacking:
        line = f"no baselines longest and loudest: clips of {lacking:,} samples are not in the store's media index"
        return {}, [line]

    def rule(measure: str) -> Callable[[Row], Any]:
        def decide(row: Row) -> Any:
            values = [getattr(clips[row[name]], measure) for name in columns]
            return values[0] if len(values) == 1 else leader(evaluation, values[0] - values[1])

        return decide

    return {name: rule(measure) for name, measure in MEASURES.items()}, []


def _drawn(row: Row) -> float:
    """Draw a number from 0 to 1 by hash of the id, so that tables are reproducible."""
    return int.from_bytes(hashlib.sha256(f"coin {row['id']}".encode()).digest()[:6], "big") / 2**48
