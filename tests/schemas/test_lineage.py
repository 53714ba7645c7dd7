"""Every column that names something declares it: withdrawals and licences follow declarations and nothing else."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.tables import THINGS, Table
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.versions import Version
from tests.before.fixture import CORPORA, before, unpack

TABLES = {name: [t for t in find_corpus(name).tables if t.key] for name in corpora()}
KNOWN = {"annotator", "clip", "prompt", "source"}
OF_NOTHING_WITHDRAWN = {  # what these name is no person who annotates, no file, no prompt, no source and no row
    "album_id", "artist_id", "checkpoint_sha256", "comment_id", "condition_id", "content_id", "content_sha256",
    "group_id", "speaker_id", "system_id",
}  # fmt: skip
PAIRS_OF_SAMPLES = ("instruction-rubrics", "samples", "pair_id")  # one of a pair may stay without the other


def undeclared(table: Table) -> list[str]:
    """The columns of texts that declare nothing."""
    declared = {ref.column for ref in table.refs}
    texts = (pa.string(), pa.list_(pa.field("element", pa.string())))
    return [field.name for field in table.schema if field.type in texts and field.name not in declared]


def texts_of(version: Version, table: Table) -> list[dict[str, Any]]:
    """A table's rows, without audio and numbers; none where the version has no such table."""
    columns = [*undeclared(table), *{ref.column for ref in table.refs}]
    paths = version.files(table.name) if table.name in version.manifest.rows else []
    return [row for path in paths for row in pq.ParquetFile(path).read(columns=columns).to_pylist()]


@pytest.mark.parametrize("corpus", TABLES)
def test_what_looks_like_an_id_is_declared(corpus: str) -> None:
    """A guard for new tables; the code does not look at names."""
    for table in TABLES[corpus]:
        looks = {name for name in undeclared(table) if name.endswith(("_id", "_sha256")) or name == "annotator"}
        assert looks - OF_NOTHING_WITHDRAWN <= {
            column for *at, column in [PAIRS_OF_SAMPLES] if at == [corpus, table.name]
        }


def test_a_kind_is_known_everywhere_or_what_some_row_is() -> None:
    refs = [(table, ref) for tables in TABLES.values() for table in tables for ref in table.refs]
    assert {ref.kind for _, ref in refs} == KNOWN | {ref.kind for _, ref in refs if ref.role == "is"}
    for table, ref in refs:
        assert ref.role != "mentions" or ref.column not in table.required


def test_a_reject_says_what_it_is_made_from() -> None:
    for name in corpora():
        (rejects,) = (table for table in find_corpus(name).tables if not table.key)
        assert rejects.schema.field("made_from").type == THINGS


def test_no_undeclared_column_of_the_demo_holds_the_id_of_a_thing(tmp_path: Path) -> None:
    """Real rows, whatever their columns are called: an id that stands elsewhere too is one that nobody follows."""
    store = unpack(tmp_path / "store")
    ids: set[str] = set()
    cells = defaultdict[tuple[str, str, str], set[str]](set)
    for corpus in CORPORA:
        version = before(store, corpus)
        for table in TABLES[corpus]:
            for row in texts_of(version, table):
                if not table.counted:  # of which a value may be a month or a modality
                    ids |= {row[one.column] for one in table.refs if one.role == "is" or one.kind != "source"}
                for name in undeclared(table):
                    held = row.get(name)  # the release before has not every column of now
                    cells[corpus, table.name, name] |= set(held if isinstance(held, list) else [held])
    ids = {id_ for id_ in ids if id_ and len(id_) > 3}  # shorter ones may be numbers of something else
    assert len(ids) > 1000
    assert {place: found for place, held in cells.items() if (found := held & ids)} == {}
