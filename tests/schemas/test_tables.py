"""Tests of table types: the Arrow schemas that derive from them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from earmark.tasks.pipeline.registry import corpora, find_corpus
from tests.conftest import ROOT

COLUMNS = {
    name: ROOT / f"tests/{name.replace('-', '_')}/columns.txt" for name, one in corpora().items() if one.package is None
}
"""By corpus: every published column, a line each."""


def lines(corpus: str) -> Iterator[str]:
    """Yield corpus, table, column, type, nullability and metadata of each published column, in order."""
    for table in find_corpus(corpus).tables:
        yield f"{corpus} {table.name} {_metadata(table.schema.metadata)}"
        for field in table.schema:
            nullable = "nullable" if field.nullable else "required"
            yield f"  {field.name} {field.type} {nullable} {_metadata(field.metadata)}"


def _metadata(metadata: dict[bytes, bytes] | None) -> str:
    return json.dumps([[key.decode(), value.decode()] for key, value in (metadata or {}).items()], ensure_ascii=False)


@pytest.mark.parametrize("corpus", COLUMNS)
def test_published_columns_are_the_frozen_ones(corpus: str) -> None:
    """A changed line is a changed schema: every build of the corpus then has another key."""
    assert [*lines(corpus)] == COLUMNS[corpus].read_text("utf-8").splitlines(), "python -m tests.schemas.test_tables"


@pytest.mark.slow
def test_descriptions_stay_without_docstrings() -> None:
    """`python -OO` drops docstrings; cards go on to describe each table by that of its row."""
    lines = (
        "from earmark.tasks.pipeline.registry import corpora, find_corpus",
        "print([table.description for name in corpora() for table in find_corpus(name).tables])",
    )
    command = [sys.executable, "-OO", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([table.description for name in corpora() for table in find_corpus(name).tables])


if __name__ == "__main__":
    for name, path in COLUMNS.items():
        path.write_text("\n".join(lines(name)) + "\n", "utf-8")
