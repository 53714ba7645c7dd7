"""Tests of table types: the Arrow schemas that derive from them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from earmark.tasks.pipeline.registry import corpora, find_corpus

COLUMNS = Path(__file__).with_name("columns.txt")
"""Every published column, a line each: written with the tables as lists of Arrow fields, before rows were types."""


def lines() -> Iterator[str]:
    """Yield corpus, table, column, type, nullability and metadata of each published column, in order."""
    for name, one in corpora().items():
        if one.package is None:
            for table in find_corpus(name).tables:
                yield f"{name} {table.name} {_metadata(table.schema.metadata)}"
                for field in table.schema:
                    nullable = "nullable" if field.nullable else "required"
                    yield f"  {field.name} {field.type} {nullable} {_metadata(field.metadata)}"


def _metadata(metadata: dict[bytes, bytes] | None) -> str:
    return json.dumps([[key.decode(), value.decode()] for key, value in (metadata or {}).items()], ensure_ascii=False)


def test_published_columns_are_the_frozen_ones() -> None:
    """A changed line is a changed schema: every build of the corpus then has another key."""
    assert "\n".join(lines()).splitlines() == COLUMNS.read_text("utf-8").splitlines()


if __name__ == "__main__":
    COLUMNS.write_text("\n".join(lines()) + "\n", "utf-8")


def test_descriptions_stay_without_docstrings() -> None:
    """`python -OO` drops docstrings; cards go on to describe each table by that of its row."""
    lines = (
        "from earmark.tasks.pipeline.registry import corpora, find_corpus",
        "print([table.description for name in corpora() for table in find_corpus(name).tables])",
    )
    command = [sys.executable, "-OO", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([table.description for name in corpora() for table in find_corpus(name).tables])
