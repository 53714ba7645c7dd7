"""Places of rejects stay in the store, and find their way back to the rows that they are of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.tables import REJECTS
from earmark.tasks.store.explain import FOLDER, hide_places, with_places
from earmark.tasks.store.staging import staging
from earmark.tasks.store.versions import Version, open_store

PLACES = st.none() | st.tuples(st.sampled_from(["one/a.csv", "one/b/c.zst", "two"]), st.integers(1, 9))
REASONS = st.sampled_from(["duplicate", "removed"])


@pytest.mark.slow
@given(rows=st.lists(st.tuples(st.sampled_from(["", "x", "y"]), REASONS, PLACES), max_size=8))
def test_what_is_hidden_is_found_again(tmp_path_factory: Any, rows: list[tuple[str, str, Any]]) -> None:
    root = tmp_path_factory.mktemp("store")
    held = [("t", item, "read", reason, "said", *(place or (None, None))) for item, reason, place in rows]
    table = pa.Table.from_pylist([dict(zip(REJECTS.schema.names, row, strict=False)) for row in held], REJECTS.schema)
    with staging(open_store(str(root)), "c", "0" * 64, say=print) as stage:
        hidden = hide_places(stage, table)
        before = {path: path.read_bytes() for path in (root / "c" / FOLDER).glob("*")}
        assert hide_places(replace(stage), hidden) == hidden  # a version is committed anew after a withdrawal
        assert {path: path.read_bytes() for path in (root / "c" / FOLDER).glob("*")} == before
    assert hidden.schema.equals(REJECTS.schema)
    assert hidden["line"].null_count == len(rows)
    assert {file for file in hidden["file"].to_pylist() if file} <= {"one", "two"}
    version = cast(Version, SimpleNamespace(folder=root / "c/v1", manifest=SimpleNamespace(build_key="0" * 64)))
    found = [
        row
        for item in ("", "x", "y")
        for row in with_places(version, [one for one in hidden.to_pylist() if one["item"] == item])
    ]
    if any(place for _, _, place in rows):
        assert sorted(map(str, found)) == sorted(map(str, table.to_pylist()))


def test_a_version_of_another_store_tells_what_it_holds(tmp_path: Path) -> None:
    version = cast(Version, SimpleNamespace(folder=tmp_path / "c/v1", manifest=SimpleNamespace(build_key="0" * 64)))
    row = dict.fromkeys(REJECTS.schema.names)
    assert with_places(version, [row]) == [row]
