"""Compare a judge with people on shared pairs: the accuracy of both passes and of their agreement.

A pass is right if it prefers the people's choice; a tie of the judge is wrong, and the people's ties
appear only in the confusion. Both passes together give the judge's confidence: 1 if they prefer one clip, 0.75 if one
of them is a tie, 0.5 if they cancel out. The expected calibration error is the mean gap, weighed by pairs, between
it and the share that is right (Naeini et al. 2015, AAAI), one bin a value; half of a cancelled pair counts as right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.pseudo_tables import PEOPLE, PeopleRow
from earmark.schemas.tables import UNSPLIT
from earmark.tasks.evaluation.statistics import accuracy
from earmark.tasks.store.result_table import ResultColumn, ResultTable, interval
from earmark.tasks.store.sql import query, view_parquet
from earmark.tasks.store.staging import Stage

Row = dict[str, Any]

FOR_A = {"a": 1.0, "tie": 0.5, "b": 0.0}
VOTES = ("preferences", "comparisons", "clips")


def write_people(stage: Stage, connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> list[str]:
    """Write `people`, if the config names votes; `passes`, `pairs` and `clips` are in the connection.

    Returns a note without anything to compare.
    """
    if config.validation is None:
        return []
    version = stage.store.find(config.validation)
    for name in VOTES:
        view_parquet(connection, f"people_{name}", version.files(name))
    heard = connection.sql(query("pseudo_preferences/heard_by_people")).to_arrow_table().to_pylist()
    rows = [one for dimension in config.judge.dimensions for one in measure(dimension, heard)]
    if not rows:
        return [f"no pair has two clips that people compared in {version.corpus} {version.name} (by SHA-256)"]
    stage.write(PEOPLE, UNSPLIT, [pa.Table.from_pylist(rows, PEOPLE.schema)])
    return []


def measure(dimension: str, heard: Iterable[Row]) -> list[Row]:
    """Return the rows of `people` on musicality or alignment, from rows of `heard_by_people.sql` on both."""
    rows = [row for row in heard if row["dimension"] == dimension]
    decided = [row for row in rows if row["people"] != "tie"]
    both = [row for row in decided if row["forward_choice"] and row["reverse_choice"]]
    kept = [row for row in both if row["agreed"]]
    judges = sorted({row["judge"] for row in rows})
    jury = [row for row in decided if row["jury"] and row["judge"] == judges[0]] if len(judges) > 1 else []
    found = [
        _right("accuracy", "forward pass", [row for row in decided if row["forward_choice"]], "forward_choice"),
        _right("accuracy", "reverse pass", [row for row in decided if row["reverse_choice"]], "reverse_choice"),
        _right("accuracy", "kept by the filter", kept, "agreed"),
        _right("accuracy", "left out by the filter", [row for row in both if not row["agreed"]], "forward_choice"),
        _right("accuracy", "kept by the jury", jury, "jury"),
        *(
            _right("confidence", band, [row for row in kept if row["band"] == band], "agreed")
            for band in ("<3", "3", ">3")
        ),
        *_confusion([row for row in rows if row["agreed"]]),
        *_calibration(both),
    ]
    return [{"dimension": dimension, **row} for row in found if row["pairs"]]


def _right(measured: str, value: str, rows: Sequence[Row], choice: str) -> Row:
    return _share(measured, value, rows, [float(row[choice] == row["people"]) for row in rows])


def _share(measured: str, value: str, rows: Sequence[Row], credits: Sequence[float]) -> Row:
    row: Row = {"measure": measured, "value": value, "pairs": len(rows)}
    if not rows:
        return row
    said = accuracy(credits, pd.factorize(pd.Series([row["prompt_id"] for row in rows]))[0])
    return {**row, "share": said.value, "low": said.low, "high": said.high}


def _confusion(rows: Sequence[Row]) -> list[Row]:
    """Return the shares of the judge's choices among the kept pairs of each choice of people."""
    found = []
    for people in FOR_A:
        group = [row for row in rows if row["people"] == people]
        for judge in FOR_A:
            credits = [float(row["agreed"] == judge) for row in group]
            held = _share("confusion", f"people {people}, judge {judge}", group, credits)
            found.append({**held, "pairs": int(sum(credits))})
    return found


def _calibration(rows: Sequence[Row]) -> list[Row]:
    """Return the reliability diagram, a row per bin, and the expected calibration error."""
    bins: dict[float, list[tuple[Row, float]]] = {}
    for row in rows:
        for_a = (FOR_A[row["forward_choice"]] + FOR_A[row["reverse_choice"]]) / 2
        credit = 0.5 if for_a == 0.5 else float((for_a > 0.5) == (row["people"] == "a"))
        bins.setdefault(max(for_a, 1 - for_a), []).append((row, credit))
    found, error = [], 0.0
    for sure, held in sorted(bins.items()):
        shown = _share("calibration", f"{sure:.2f}", [row for row, _ in held], [credit for _, credit in held])
        found.append({**shown, "expected": sure})
        error += len(held) * abs(shown["share"] - sure) / len(rows)
    return [*found, {"measure": "calibration error", "value": "all", "pairs": len(rows), "share": error}]


def people_section(rows: Sequence[PeopleRow]) -> str:
    """Write the card's table of the judge against people."""
    lines = [
        "Pairs whose two clips people compared too, by hash. A pass is right where it prefers what people "
        "prefer; the judge's ties are wrong; in brackets, 95 %. `expected` is how sure both passes together are.",
        "",
    ]
    for dimension in dict.fromkeys(row["dimension"] for row in rows):
        shares = {row["value"]: row for row in rows if (row["dimension"], row["measure"]) == (dimension, "accuracy")}
        one, kept = shares.get("forward pass"), shares.get("kept by the filter")
        if one and kept:
            lines += [
                f"{dimension.capitalize()}: one pass is right on {one['share']:.3f} of {one['pairs']:,} pairs; asking "
                f"in both orders keeps {kept['pairs']:,}, of which {kept['share']:.3f} are right "
                f"({kept['share'] - one['share']:+.3f}).",
                "",
            ]
    columns: tuple[str | ResultColumn, ...] = (
        "dimension",
        "measure",
        "of",
        "pairs",
        *(ResultColumn(one, decimals=3) for one in ("share", "expected")),
    )
    shown = tuple(
        (
            *(row["dimension"], row["measure"], row["value"], row["pairs"]),
            *(interval({"value": row["share"], "low": row["low"], "high": row["high"]}), row["expected"]),
        )
        for row in rows
    )
    return "\n".join([*lines, ResultTable("People", columns, shown).markdown()])
