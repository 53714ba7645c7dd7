"""Count a version of `human-preferences` for card and report, as in CMI-RewardBench's Tables 1, 6 and 7."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable

import duckdb

from earmark.schemas.human_preferences import CORPUS
from earmark.tasks.evaluation.matrices import preference_matrices
from earmark.tasks.store.result_table import Interval, ResultTable, percent
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage

_HOLDS = """SELECT split, modality, coalesce(vocals, 'not known'), count(*), sum(votes)::BIGINT AS cast_here,
       cast_here / sum(cast_here) OVER () FROM comparisons GROUP BY split, modality, vocals ORDER BY ALL"""
_VOTES_A_PAIR = "SELECT votes, count(*) FROM comparisons GROUP BY votes ORDER BY votes"
_AGREEMENT = """SELECT value, dimension, comparisons, votes, vote_pairs, agree, rate, rate_low, rate_high, alpha,
       alpha_low, alpha_high FROM agreement WHERE list_contains($scopes, scope)
       QUALIFY scope <> 'annotator'
         OR row_number() OVER (PARTITION BY scope ORDER BY votes DESC, value, dimension) <= 200
       ORDER BY scope, CASE scope WHEN 'annotator' THEN -votes ELSE 0 END, value, dimension"""
_FACTS = (
    *("source", "votes", "pairs", "pairs of several votes", "votes on these", "prompts", "generations", "models"),
    *("annotators", "hours of generations", "hours of references"),
)


def grids(db: duckdb.DuckDBPyConnection) -> list[ResultTable]:
    """Return tables of counts, leaving out empty ones; `db` has a view of each published table by its name."""

    def rows(sql: str) -> tuple[tuple[str | float | int | None, ...], ...]:
        return tuple(db.execute(sql).fetchall())

    written = scripts(str(row[0]) for row in rows("SELECT feedback FROM votes WHERE feedback IS NOT NULL"))
    both = "SELECT * FROM dimensions ORDER BY source <> 'all', source, preferred DESC"
    found = (
        ResultTable(
            "Votes", _FACTS, rows(query("human_preferences/facts")), says="Models are those behind an API, too."
        ),
        ResultTable(
            "What prompts hold",
            ("split", "modality", "voice", "pairs", "votes", percent("share of votes")),
            rows(_HOLDS),
        ),
        ResultTable("Votes a pair", ("votes", "pairs"), rows(_VOTES_A_PAIR)),
        agreement_table(
            *(db, "Agreement of annotators", "source", ["all", "source"]),
            "Over pairs of votes on one pair of clips. Alpha is Krippendorff's, nominal: 1 is agreement, 0 is chance. "
            "Intervals cover 95 %, by bootstrap over pairs of clips.",
        ),
        ResultTable(
            "Musicality and alignment",
            ("source", "preferred clip", "votes", percent("share"), "confidence, musicality", "confidence, alignment"),
            rows(both),
            "How often a vote prefers one clip in both dimensions, and how sure the annotator is (1 to 5).",
        ),
        ResultTable(
            "Feedback by writing system",
            ("writing system", "votes with feedback", percent("share")),
            tuple((name, count, count / written.total()) for name, count in written.most_common()),
            "That of most letters; a language is not guessed from a few words.",
        ),
        *preference_matrices(db, str(CORPUS.ranked)),
    )
    return [grid for grid in found if grid.rows]


def agreement_table(
    db: duckdb.DuckDBPyConnection, title: str, heading: str, scopes: list[str], says: str
) -> ResultTable:
    """Return the agreement of annotators by the values of a scope."""
    columns = (heading, "dimension", "pairs", "votes", "pairs of votes", "agree", percent("rate"), "alpha")
    rows = [
        (*row[:6], *(None if row[at] is None else Interval(*row[at : at + 3]) for at in (6, 9)))
        for row in db.execute(_AGREEMENT, {"scopes": scopes}).fetchall()
    ]
    return ResultTable(title, columns, tuple(rows), says)


def scripts(texts: Iterable[str]) -> Counter[str]:
    """Count texts by writing system, the first word of most letters' Unicode names."""
    found: Counter[str] = Counter()
    for text in texts:
        letters = Counter(unicodedata.name(letter, "?").split()[0] for letter in text if letter.isalpha())
        name = max(sorted(letters), key=letters.__getitem__) if letters else "no letters"
        found["Chinese characters" if name == "CJK" else name.capitalize() if letters else name] += 1
    return found


def card_sections(stage: Stage) -> dict[str, str]:
    """Return the card's own sections."""
    with connect(stage.work / "spill") as db:
        for table in CORPUS.tables:
            view_parquet(db, table.name, stage.files(table.name), table.schema)
        return {grid.title: grid.markdown() for grid in grids(db)}
