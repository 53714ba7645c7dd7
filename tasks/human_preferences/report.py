"""Build the report sections of `human-preferences`: agreement, both dimensions, splits, comparisons to listen to."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

import duckdb

from earmark.schemas.human_preferences import CORPUS
from earmark.tasks.pipeline.preferences import preference_matrices
from earmark.tasks.pipeline.report import Material, count, sample, shares
from earmark.tasks.store.figures import AudioPlayer, Bars, Browser, Row, Section
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


def sections(material: Material) -> list[Section]:
    """Return the report's own sections."""
    found = [_votes(material)]
    if count(material.db, "agreement"):
        found.append(_agreement(material))
    found.append(
        Section("Comparisons", (Browser("comparisons", _compared(material), count(material.db, "comparisons")),))
    )
    return found


def _votes(material: Material) -> Section:
    db = material.db
    months = db.execute(
        """SELECT left(date, 7), source, count(*), avg(confidence_musicality), avg(confidence_alignment)
           FROM votes WHERE date IS NOT NULL GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    figures: list[Bars | ResultTable] = [shares(db, "votes", "source", "Votes by source"), *grids(db)]
    if months:
        heads = ("month", "source", "votes", "confidence, musicality", "confidence, alignment")
        figures.append(ResultTable("Votes by month", heads, tuple(months)))
    return Section("Votes", tuple(figures))


def _agreement(material: Material) -> Section:
    of_annotators = "Pairs of one vote of the annotator's and one of another's."
    of_months = "By the month of a comparison's first vote."
    parts = (
        agreement_table(material.db, "By annotator", "annotator", ["annotator"], of_annotators),
        agreement_table(material.db, "Over time", "month", ["month"], of_months),
    )
    return Section("Agreement by annotator and month", tuple(one for one in parts if one.rows))


def _compared(material: Material) -> tuple[Row, ...]:
    rows = []
    shown = query("human_preferences/shown_comparisons")
    for row in sample(material.db, "comparisons", "comparison_id", by="modality", rows=shown):
        said = {
            name: f"{choice} ({votes} votes, confidence {'not given' if sure is None else f'{sure:.2f}'})"
            for name, choice, votes, sure in row["said"]
        }
        texts = {name: row[name] for name in ("text", "lyrics") if row[name]}
        if row["feedback"]:
            texts["what annotators wrote"] = "\n".join(row["feedback"])
        clips = [
            AudioPlayer(f"{side}: {row[f'model_{side}'] or 'model not told'}", row[f"sha256_{side}"])
            for side in ("a", "b")
        ]
        tags = {"split": row["split"], "source": row["source"], "modality": row["modality"]}
        rows.append(Row(row["comparison_id"], tags, {"prompt id": row["prompt_id"], **said}, texts, tuple(clips)))
    return tuple(rows)
