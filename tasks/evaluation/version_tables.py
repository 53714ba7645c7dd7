"""Tabulate a version's own figures as a paper does: the tables without models of `earmark eval tables`."""

from pathlib import Path

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import StoreError
from earmark.schemas.results import VersionFacts
from earmark.schemas.toml import read_toml
from earmark.tasks.evaluation.layouts import SHIPPED, StrictModel
from earmark.tasks.exports.rows import opened
from earmark.tasks.store.folder import records_of, version_facts, write_record
from earmark.tasks.store.result_table import ResultColumn, ResultPage, ResultTable
from earmark.tasks.store.sql import query
from earmark.tasks.store.versions import Store, Version

RECORD = "version-table.json"


class VersionLayout(StrictModel):
    """A table of a version; its query, of the same name, gives the cells as text."""

    title: str
    corpus: str
    counts: str  # which rows, and of which table
    notes: tuple[str, ...] = ()


class VersionTableFacts(VersionFacts):
    """Content of `version-table.json`: the headings and cells of a table."""

    title: str
    columns: list[str]
    rows: list[list[str | None]]
    notes: list[str]


def version_layouts() -> dict[str, Path]:
    """Return the files of the tables without models, by name."""
    return {path.stem: path.with_suffix(".toml") for path in sorted(SHIPPED.glob("*.sql"))}


def tabulate_version(
    version: Version, corpus: Corpus, store: Store, name: str, out: Path | None
) -> tuple[VersionTableFacts, Path]:
    """Count a version's rows as a table says, and write the table.

    Return the facts of `version-table.json`, and the folder.

    Raises:
        StoreError: it is a table of another corpus, or the version has nothing that it counts.
    """
    layout = VersionLayout.model_validate(read_toml(version_layouts()[name]))
    if layout.corpus != corpus.name:
        raise StoreError(f"'{layout.title}' is a table of {layout.corpus}; this is a version of {corpus.name}")
    with opened(version, corpus) as connection:
        found = connection.execute(query(f"evaluation/tables/{name}"))
        columns = [column[0] for column in found.description or ()]
        rows = found.fetchall()
    if not any(cell is not None for row in rows for cell in row[1:]):
        raise StoreError(f"'{layout.title}' counts {layout.counts}; {version.corpus}@{version.name} has none of them")
    facts: VersionTableFacts = {
        **version_facts(version),
        "title": layout.title,
        "columns": columns,
        "rows": [[*row] for row in rows],
        "notes": [*layout.notes],
    }
    folder = out or records_of(store, version) / f"table-{name}"
    return facts, write_record(folder, RECORD, facts, version_page(facts).files())


def version_page(facts: VersionTableFacts) -> ResultPage:
    """Return the page of a version's table; cells stand as their query wrote them, numbers to the right."""
    label, *headings = facts["columns"]
    columns: tuple[str | ResultColumn, ...] = (label, *(ResultColumn(heading, decimals=0) for heading in headings))
    table = ResultTable(facts["title"], columns, tuple(map(tuple, facts["rows"])))
    return ResultPage(f"{facts['corpus']} {facts['version']}", (table,), tuple(facts["notes"]))
