"""Measure confounds of a judge's choices: loudness, length, sample rate, and playing order.

For each of these, the share of choices won by the clip with more of it. All together: the share of choices predicted
by a logistic regression on their differences alone, fitted on other prompts (`FOLDS` folds of whole prompts, in hash
order), beside the share of the more frequent letter, known without measuring.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.pseudo_tables import CLIPS, CONFOUNDS, JUDGMENTS, LABELS, PAIRS, ConfoundRow
from earmark.schemas.tables import UNSPLIT
from earmark.tasks.store.result_table import ResultColumn, ResultTable, interval
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage

Floats = npt.NDArray[np.float64]
Row = dict[str, Any]

FEATURES = ("louder", "longer", "higher_rate", "later")
TOGETHER = "together"
FOLDS = 5
RIDGE = 1.0  # penalty on the squared weights of standardised features; none on the intercept
NEWTON_STEPS = 50


def write_confounds(stage: Stage, config: PseudoPreferences) -> None:
    """Write `confounds` from the published clips, pairs, judgments and labels; write no table without a choice.

    Of several judges, each has rows of its own.
    """
    judges = list(config.by_judge()) if config.jurors() else []
    matched = " and ".join(config.judge.match) or None if config.jurors() else None
    with connect(stage.work / "spill") as connection:
        for table in (CLIPS, PAIRS, JUDGMENTS, LABELS):
            view_parquet(connection, table.name, stage.files(table.name), table.schema)
        rows = connection.execute(query("pseudo_preferences/confounds"), {"judges": judges}).fetchdf()
    results: list[Row] = []
    for key, group in rows.groupby(["set", "judge", "dimension"], sort=False):
        about = {"set": key[0], "judge": key[1], "dimension": key[2], "matched": matched}
        known = {name: group[name].to_numpy(float) for name in FEATURES}  # features known of every clip, and varying
        features = {name: values for name, values in known.items() if np.isfinite(values).all() and values.any()}
        measured = measure(group["prompt_id"].tolist(), group["a_won"].to_numpy(bool), features)
        results += [about | row for row in measured]
    if results:
        stage.write(CONFOUNDS, UNSPLIT, [pa.Table.from_pylist(results, CONFOUNDS.schema)])


def measure(prompts: Sequence[str], a_won: npt.NDArray[np.bool_], features: dict[str, Floats]) -> Iterator[Row]:
    """Yield the rows of `confounds` for one set of choices.

    Args:
        prompts: the prompt of each choice's clips: choices of the same prompt are no evidence for each other.
        a_won: whether a was preferred, (choices,).
        features: the excess of a over b, each (choices,).
    """
    from earmark.tasks.evaluation.influence import share  # brings SciPy, not needed for planning

    of = np.array(prompts)
    for name, values in features.items():
        differ = values != 0
        one = share((a_won == (values > 0))[differ], of[differ])
        yield {"feature": name, "choices": int(differ.sum()), "share": one.value, "low": one.low, "high": one.high}
    if features and len({*prompts}) > 1:
        together = share(predicted(prompts, a_won, np.stack([*features.values()], axis=1)) == a_won, of)
        majority = max(float(a_won.mean()), 1 - float(a_won.mean()))
        interval = {"share": together.value, "low": together.low, "high": together.high}
        yield {"feature": TOGETHER, "choices": len(a_won), **interval, "majority": majority}


def predicted(prompts: Sequence[str], a_won: npt.NDArray[np.bool_], features: Floats) -> npt.NDArray[np.bool_]:
    """Predict whether a wins by a regression on the other folds' choices, (choices,).

    Args:
        prompts: as for `measure`; two or more.
        a_won: as for `measure`.
        features: (choices, features).
    """
    by_hash = sorted(set(prompts), key=lambda name: hashlib.sha256(name.encode()).digest())
    fold_of = {name: place % FOLDS for place, name in enumerate(by_hash)}
    folds = np.array([fold_of[name] for name in prompts])
    says = np.zeros(len(a_won), bool)
    for fold in range(min(FOLDS, len(by_hash))):
        test = folds == fold
        spread = features[~test].std(axis=0)
        scaled = features / np.where(spread > 0, spread, np.inf)  # a constant feature says nothing
        intercept, weights = fit(scaled[~test], a_won[~test])
        says[test] = intercept + scaled[test] @ weights > 0
    return says


def fit(features: Floats, truth: npt.NDArray[np.bool_]) -> tuple[float, Floats]:
    """Fit intercept and weights of a logistic regression with `RIDGE`, by Newton's method (Hastie et al. 2009, 4.4.1).

    Features are (samples, features), standardised; the truth is (samples,).
    """
    width = features.shape[1]
    if truth.all() or not truth.any():
        return (1.0 if truth.all() else -1.0), np.zeros(width)
    given = np.column_stack([np.ones(len(truth)), features])
    penalty = np.array([0.0, *[RIDGE] * width])
    weights = np.zeros(width + 1)
    for _ in range(NEWTON_STEPS):
        chance = 0.5 * (1 + np.tanh(given @ weights / 2))
        slope = given.T @ (chance - truth) + penalty * weights
        curve = (given.T * (chance * (1 - chance))) @ given + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    return float(weights[0]), weights[1:]


def confounds_section(rows: Sequence[ConfoundRow]) -> str:
    """Write the card's table of confounds."""
    matched = rows[0]["matched"]
    alike = f" The judge heard each pair's clips made alike in {matched}; the figures are of the clips as they are."
    columns: tuple[str | ResultColumn, ...] = (
        "set",
        "judge",
        "dimension",
        "won by",
        "choices",
        *(ResultColumn(one, decimals=3) for one in _SHARES),
    )
    says = (
        "How often the louder (LUFS), the longer, the higher-rate clip and the one played later won, ties left out: of "
        "all `answers`, before the filter, and of the `labels` that are left; in brackets, 95 %. `together` is the "
        "share of choices that a logistic regression on these alone predicts for prompts that it was not fitted on; "
        "`majority` is what always saying the same letter gets right. Where `together` is far above it, a model may "
        f"learn loudness or length from the labels.{alike if matched else ''}"
    )
    shown = tuple(
        (
            *(row["set"], row["judge"], row["dimension"], row["feature"].replace("_", " "), row["choices"]),
            *(interval({"value": row["share"], "low": row["low"], "high": row["high"]}), row["majority"]),
        )
        for row in rows
    )
    return ResultTable("Confounds", columns, shown, says).markdown()


_SHARES = ("share", "majority")
