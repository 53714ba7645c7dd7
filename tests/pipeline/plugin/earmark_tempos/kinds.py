"""A kind of evaluation: a tempo is right within four per cent, or by another rule at its double or half too."""

from __future__ import annotations

from earmark.plugins import Prediction, SampleKind


def credit(target: float, prediction: Prediction, threshold: float | None) -> dict[str, float]:
    """Credit a tempo by both rules."""
    ratio = (prediction.score or 0.0) / target
    near = [abs(ratio / octave - 1) <= 0.04 for octave in (1.0, 2.0, 0.5)]
    return {"accuracy": float(near[0]), "accuracy_octave": float(any(near))}


TEMPO = SampleKind(
    "tempo",
    clips=(),
    scored=(),
    headline="accuracy",
    chance=None,
    credits=credit,
    cell="a tempo",
    coin=lambda evaluation, row, drawn: 40 + 160 * drawn,
)
