"""Tests of rows read from queries into their types."""

from __future__ import annotations

from typing import TypedDict

import duckdb
import pytest

from earmark.tasks.store.sql import rows_of


class Counted(TypedDict):
    """A name and a count."""

    name: str
    count: int


def test_a_query_gives_rows_of_the_type() -> None:
    rows = rows_of(duckdb.connect(), Counted, "SELECT 'a' AS name, $n AS count", {"n": 2})
    assert rows == [{"name": "a", "count": 2}]


@pytest.mark.parametrize("sql", ["SELECT 'a' AS name", "SELECT 'a' AS name, 2 AS count, 3 AS more"])
def test_a_query_with_other_columns_than_the_type_is_refused(sql: str) -> None:
    with pytest.raises(TypeError, match=r"Counted: expected columns .'count', 'name'., found"):
        rows_of(duckdb.connect(), Counted, sql)
