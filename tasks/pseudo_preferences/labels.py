"""From a judge's answers to labels: what both orders agree on, and its position bias (the paper's Table 8)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.pseudo_preferences import (
    BIAS,
    CLIPS,
    JUDGMENTS,
    LABELS,
    ORDERS,
    PAIRS,
    PEOPLE,
    PseudoPreferences,
)
from earmark.schemas.tables import SPLITS, UNSPLIT
from earmark.tasks.build.checks import LASTING
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.build.walk import DRAW, Walked
from earmark.tasks.importers.music import read_ranks
from earmark.tasks.pseudo_preferences.judging import judge_pairs, passes_of
from earmark.tasks.pseudo_preferences.people import people_section, write_people
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage


@step("judgments", unit="requests", final=True, label="keep what both orders agree on")
def keep_consistent(stage: Stage, config: PseudoPreferences, judged: Walked) -> Done[None]:
    """Write `judgments`, `labels` and `bias`: a label is what both orders agree on.

    Requests without an answer and pairs without a label are rejects.
    """
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "pairs", _files(stage, PAIRS.name))
        view_parquet(connection, "draws", judged.draws(), pa.schema([*DRAW, *judge_pairs.columns]))
        connection.execute(query("pseudo_preferences/answered"))
        return Done(None, _write_judgments(stage, connection, config), _write_labels(stage, connection, config))


def _write_judgments(stage: Stage, connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> Account:
    for split in SPLITS:
        rows = connection.sql(query("pseudo_preferences/judgments"), params={"split": split}).to_arrow_reader(100_000)
        stage.write(JUDGMENTS, split, rows)
    stage.drop_empty_splits(JUDGMENTS)
    failed = connection.sql(query("pseudo_preferences/unanswered")).to_arrow_table()
    pairs, answered = connection.execute(
        "SELECT (SELECT count(*) FROM pairs), (SELECT count(*) FROM draws WHERE reason IS NULL)"
    ).fetchall()[0]
    return Account(
        name="judge",
        entered=pairs * len(ORDERS) * len(passes_of(config)),
        kept=answered,
        rejects=failed.drop_columns(["final"]),
        notes=(
            f"judged by {config.judge.annotator}, each pair in both orders",
            *_unanswered_note(failed),
            *_unpriced_note(config),
        ),
    )


def _write_labels(stage: Stage, connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> Account:
    _decide(connection, config)
    refused = connection.sql(
        "SELECT 'labels', pair_id, 'labels', reason, detail, NULL::VARCHAR, NULL::BIGINT FROM verdicts "
        "WHERE reason IS NOT NULL ORDER BY pair_id"
    ).to_arrow_table()
    kept = 0
    for split in SPLITS:
        given = {"split": split, "judge": config.judge.annotator}
        rows = connection.sql(query("pseudo_preferences/labels"), params=given).to_arrow_reader(100_000)
        kept += stage.write(LABELS, split, rows)
    stage.drop_empty_splits(LABELS)
    _write_bias(stage, connection, config)
    view_parquet(connection, "clips", _files(stage, CLIPS.name))
    compared = write_people(stage, connection, config)
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
    """Count the judge's bias again from the published pairs and judgments, after some were withdrawn."""
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "pairs", _files(stage, PAIRS.name))
        view_parquet(connection, "answered", _files(stage, JUDGMENTS.name))
        _decide(connection, config)
        _write_bias(stage, connection, config)
        view_parquet(connection, "clips", _files(stage, CLIPS.name))
        write_people(stage, connection, config)
    return ()


def _decide(connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> None:
    """Create `passes` and `verdicts`: what each order chose, and what both agree on."""
    connection.execute(query("pseudo_preferences/passes"), {"dimensions": list(config.judge.dimensions)})
    connection.execute(query("pseudo_preferences/verdicts"), {"require": list(config.judge.require)})


def _write_bias(stage: Stage, connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> None:
    rows = connection.sql(query("pseudo_preferences/bias"), params={"judge": config.judge.annotator})
    stage.write(BIAS, UNSPLIT, [rows.to_arrow_table()])


def known_order_notes(connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> list[str]:
    """How often labels agree with an order of the models that is known by design.

    Raises:
        ConfigError: the file of known ranks is not one.
    """
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
    """The label that two known ranks ask for; 1 is the best."""
    return "tie" if rank_a == rank_b else "a" if rank_a < rank_b else "b"


def card_sections(stage: Stage) -> dict[str, str]:
    """The card's own sections."""
    sections = {"Position bias": _bias_section(stage)}
    people = _rows(_files(stage, PEOPLE.name)) if PEOPLE.name in stage.tables() else []
    return sections | ({"The judge against people": people_section(people)} if people else {})


def _bias_section(stage: Stage) -> str:
    """The card's table of how the judge's choices are shared out."""
    rows = [row for row in _rows(_files(stage, BIAS.name)) if row["scope"] in ("all", "modality")]
    lines = [
        "Shares in the pair's own letters. `shown first` is the share that prefers what the judge heard first: a judge "
        "without position bias has the same share for what it heard second. Consistency is the share of pairs on which "
        "both orders agree. The table `bias` has the same by pair of models and by judge.",
        "",
        "| pairs | dimension | set | count | a | b | tie | shown first | consistency | same in both dimensions |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        shares = [
            row[name] for name in ("share_a", "share_b", "share_tie", "share_first", "consistency", "same_as_other")
        ]
        shown = " | ".join("" if share is None else f"{share:.3f}" for share in shares)
        lines.append(f"| {row['value']} | {row['dimension']} | {row['set']} | {row['pairs']:,} | {shown} |")
    return "\n".join(lines)


def _unanswered_note(failed: pa.Table) -> list[str]:
    ends = zip(failed["reason"].to_pylist(), failed["final"].to_pylist(), strict=True)
    unanswered = sum(not final and reason not in LASTING for reason, final in ends)
    if not unanswered:
        return []
    return [f"{unanswered} requests got no answer; building again with --force asks them, and them alone"]


def _unpriced_note(config: PseudoPreferences) -> list[str]:
    if config.judge.budget_usd is None or config.judge.prices is not None:
        return []
    return ["judge.budget_usd had no effect: without [prices] nothing is known to cost anything"]


def _rows(paths: Sequence[Path]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.concat_tables([pq.read_table(p) for p in paths]).to_pylist() if paths else []
    return found


def _files(stage: Stage, table: str) -> list[Path]:
    return [path for paths in stage.tables()[table].values() for path in paths]
