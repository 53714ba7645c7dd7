"""Lyrics in which nothing is sung are instrumental: the SQL and the rule that keeps test data out say the same."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.pipeline.references import tells_apart
from earmark.tasks.store.sql import query

PARTS = (
    "[Chorus]",
    "(instrumental)",
    "[",
    "]",
    "(",
    ")",
    "no",
    "nobody",
    "Lyrics",
    "vocals",
    "n/a",
    "None",
    "la",
    "\n",
    " ",
)


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    opened = duckdb.connect()
    opened.execute(query("text/voice_of"))
    return opened


def voice(connection: duckdb.DuckDBPyConnection, lyrics: str | None) -> str | None:
    (found,) = connection.execute("SELECT voice_of($lyrics::VARCHAR)", {"lyrics": lyrics}).fetchall()[0]
    return found  # type: ignore[no-any-return]


def test_what_is_sung(connection: duckdb.DuckDBPyConnection) -> None:
    wanted = {None: None, "[Instrumental]": "instrumental", "No vocals": "instrumental", "[Verse]\nlala": "vocal"}
    wanted |= {"nobody": "vocal", "[Chorus] (no lyrics)": "instrumental"}
    assert {lyrics: voice(connection, lyrics) for lyrics in wanted} == wanted


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("".join))
def test_as_where_test_data_is_kept_out(connection: duckdb.DuckDBPyConnection, lyrics: str) -> None:
    assert voice(connection, lyrics) == ("vocal" if tells_apart("lyrics", lyrics) else "instrumental")
