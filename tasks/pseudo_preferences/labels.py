"""Turn a judge's answers into labels, both orders agreeing, and measure its position bias (the paper's Table 8)."""

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from earmark.schemas.judges import QUALIFICATION
from earmark.schemas.pseudo_preferences import ORDERS, PseudoPreferences
from earmark.schemas.pseudo_tables import BIAS, CLIPS, CONFOUNDS, JUDGMENTS, LABELS, PAIRS, PEOPLE, BiasRow, PeopleRow
from earmark.schemas.tables import UNSPLIT
from earmark.tasks.evaluation.influence import share
from earmark.tasks.evaluation.juries import alphas, combine_votes
from earmark.tasks.evaluation.qualification import qualification_section
from earmark.tasks.importers.music import read_ranks
from earmark.tasks.pipeline.ask import LASTING
from earmark.tasks.pipeline.preferences import preference_matrices
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import DRAW, Walked
from earmark.tasks.pseudo_preferences.confounds import confounds_section, write_confounds
from earmark.tasks.pseudo_preferences.judging import judge_pairs
from earmark.tasks.store.result_table import ResultColumn, ResultTable, interval
from earmark.tasks.store.sql import by_split, connect, literal, query, view_parquet
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
    """Return the rows of `people` on musicality or alignment, from rows of `heard_by_people.sql` on both.

    A pass is right if it prefers the people's choice; a tie of the judge is wrong, and the people's ties appear only in
    the confusion. Both passes together give the judge's confidence: 1 if they prefer one clip, 0.75 if one of them is a
    tie, 0.5 if they cancel out. The expected calibration error is the mean gap, weighed by pairs, between it and the
    share that is right (Naeini et al. 2015, AAAI), one bin a value; half of a cancelled pair counts as right.
    """
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
    said = share(credits, [row["prompt_id"] for row in rows])
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


@step("judgments", unit="requests", final=True, label="keep what both orders agree on")
def keep_consistent(stage: Stage, config: PseudoPreferences, judged: dict[str, Walked]) -> Done[None]:
    """Write `judgments`, `labels` and `bias`: a label is the agreement of both orders, of several judges the jury's.

    `judged` holds each judge's answers, by its label.

    Requests without an answer and pairs without a label are rejects.
    """
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "pairs", stage.files(PAIRS.name))
        _view_draws(connection, judged)
        connection.execute(query("pseudo_preferences/answered"))
        accounts = _write_judgments(stage, connection, config), _write_labels(stage, connection, config)
    write_confounds(stage, config)
    return Done(None, *accounts)


def _view_draws(connection: duckdb.DuckDBPyConnection, judged: dict[str, Walked]) -> None:
    for number, walked in enumerate(judged.values()):
        view_parquet(connection, f"draws_{number}", walked.draws(), pa.schema([*DRAW, *judge_pairs.columns]))
    parts = (f"SELECT {literal(judge)} AS judge, * FROM draws_{number}" for number, judge in enumerate(judged))
    connection.execute(f"CREATE VIEW draws AS {' UNION ALL '.join(parts)}")


def _write_judgments(stage: Stage, connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> Account:
    stage.write_splits(JUDGMENTS, by_split(connection, query("pseudo_preferences/judgments")))
    judges = list(config.by_judge())
    failed = connection.sql(query("pseudo_preferences/unanswered"), params={"judges": len(judges)}).to_arrow_table()
    pairs, answered = connection.execute(
        "SELECT (SELECT count(*) FROM pairs), (SELECT count(*) FROM draws WHERE reason IS NULL)"
    ).fetchall()[0]
    return Account(
        name="judge",
        entered=pairs * len(ORDERS) * len(judges),
        kept=answered,
        rejects=failed.drop_columns(["final"]),
        notes=(
            f"judged by {', '.join(judges)}, each pair in both orders",
            *(
                f"{judge} scores each clip by itself: both orders are alike, and its consistency says nothing"
                for judge in judges
                if judge.startswith("scorer:")
            ),
            *_unanswered_note(failed),
            *_unpriced_note(config),
        ),
    )


def _write_labels(stage: Stage, connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> Account:
    _decide(stage, connection, config)
    refused = connection.sql(
        "SELECT 'labels', pair_id, 'labels', reason, detail, NULL::VARCHAR, NULL::BIGINT FROM verdicts "
        "WHERE reason IS NOT NULL ORDER BY pair_id"
    ).to_arrow_table()
    judges = list(config.by_judge())
    by = {"judge": " + ".join(judges), "judges": judges}
    kept = stage.write_splits(LABELS, by_split(connection, query("pseudo_preferences/labels"), by))
    compared = _write_bias(stage, connection, config)
    return Account(
        name="labels",
        unit="pairs",
        follows="pairs",
        table=LABELS.name,
        entered=int(connection.execute("SELECT count(*) FROM pairs").fetchall()[0][0]),
        kept=kept,
        rejects=refused,
        notes=[*known_order_notes(connection, config), *compared],
    )


def recount(stage: Stage, config: PseudoPreferences) -> tuple[()]:
    """Count the judge's bias again from the published pairs and judgments, after a withdrawal."""
    if config.released:  # its judge's single passes are unknown
        stage.write(BIAS, UNSPLIT, [BIAS.schema.empty_table()])
        write_confounds(stage, config)
        return ()
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "pairs", stage.files(PAIRS.name))
        view_parquet(connection, "answered", stage.files(JUDGMENTS.name))
        _decide(stage, connection, config)
        _write_bias(stage, connection, config)
    write_confounds(stage, config)
    return ()


def _decide(stage: Stage, connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> None:
    """Create `passes`, `combined` and `verdicts`: the choice of each order, the judges' votes, and the result."""
    judges = list(config.by_judge())
    given = {"dimensions": list(config.judge.dimensions), "judges": judges}
    connection.execute(query("pseudo_preferences/passes"), given)
    connection.execute("CREATE VIEW votes AS SELECT pair_id AS item, dimension, judge, agreed AS choice FROM passes")
    combine_votes(connection, config.jury, len(judges), stage.rows(QUALIFICATION))
    connection.execute(query("pseudo_preferences/verdicts"), {"require": list(config.judge.require), "judges": judges})


def _write_bias(stage: Stage, connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> list[str]:
    """Write `bias` and `people`; return a note if people judged none of the pairs."""
    judges = list(config.by_judge())
    connection.register("alphas", alphas(connection, query("pseudo_preferences/vote_counts")))
    rows = connection.sql(query("pseudo_preferences/bias"), params={"judges": judges})
    stage.write(BIAS, UNSPLIT, [rows.to_arrow_table()])
    view_parquet(connection, "clips", stage.files(CLIPS.name))
    return write_people(stage, connection, config)


def known_order_notes(connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> list[str]:
    """Count the labels' agreement with a known order of the models."""
    if config.known_order is None:
        return []
    ranks = read_ranks(config.path(config.known_order))
    notes = []
    for dimension in config.judge.dimensions:
        rows = connection.execute(
            f"SELECT model_a, model_b, {dimension} FROM verdicts JOIN pairs USING (pair_id) "
            f"WHERE verdicts.reason IS NULL AND {dimension} IS NOT NULL ORDER BY pair_id"
        ).fetchall()
        known = ranks.get(dimension, {})
        judged = [(known[a], known[b], label) for a, b, label in rows if a in known and b in known]
        right = sum(label == expected(a, b) for a, b, label in judged)
        notes.append(f"{dimension}: {right} of {len(judged)} labels agree with the known order of the models")
    return notes


def expected(rank_a: float, rank_b: float) -> str:
    """Return the label expected from two known ranks; 1 is the best."""
    return "tie" if rank_a == rank_b else "a" if rank_a < rank_b else "b"


def card_sections(stage: Stage) -> dict[str, str]:
    """Return the card's own sections."""
    bias, confounds, people = stage.rows(BIAS), stage.rows(CONFOUNDS), stage.rows(PEOPLE)
    sections = {"Position bias": _bias_section(bias)} if bias else {}
    if confounds:
        sections["Confounds"] = confounds_section(confounds)
    sections |= qualification_section(stage)
    if people:
        sections["The judge against people"] = people_section(people)
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, LABELS.name, stage.files(LABELS.name), LABELS.schema)
        return sections | {
            grid.title: grid.markdown() for grid in preference_matrices(connection, "pseudo_preferences/ranked")
        }


def _bias_section(rows: Sequence[BiasRow]) -> str:
    scopes = ("all", "modality", *(["judge"] if any(row["set"] == "jury" for row in rows) else []))
    rows = [row for row in rows if row["scope"] in scopes]
    says = (
        "Shares in the pair's own letters. `shown first` is the share that prefers what the judge heard first: a judge "
        "without position bias has the same share for what it heard second. Consistency is the share of pairs on which "
        "both orders agree, `same in both` of these the share with one choice in both dimensions. The table `bias` has "
        "the same by pair of models and by judge."
    )
    names = ("a", "b", "tie", "shown first", "consistency", "same in both", "alpha")
    columns: tuple[str | ResultColumn, ...] = (
        "pairs",
        "dimension",
        "set",
        "count",
        *(ResultColumn(name, decimals=3) for name in names),
    )
    shown = tuple(
        (
            *(row["value"], row["dimension"], row["set"], row["pairs"], row["share_a"], row["share_b"]),
            *(row["share_tie"], row["share_first"], row["consistency"], row["same_as_other"], row["alpha"]),
        )
        for row in rows
    )
    return ResultTable("Position bias", columns, shown, says).markdown()


def _unanswered_note(failed: pa.Table) -> list[str]:
    ends = zip(failed["reason"].to_pylist(), failed["final"].to_pylist(), strict=True)
    unanswered = sum(not final and reason not in LASTING for reason, final in ends)
    if not unanswered:
        return []
    return [f"{unanswered} requests got no answer; building again with --force asks them, and them alone"]


def _unpriced_note(config: PseudoPreferences) -> list[str]:
    if all(one.budget_usd is None or one.charged is not None for one in config.jurors()):
        return []
    return ["judge.budget_usd had no effect: without money.prices nothing is known to cost anything"]
