"""Compare each demo table of a build with that of the release before, row by row:

    python -m tests.before.compare captions music-prompts

builds these two demo corpora (without names, all eight) in a store of their own, on the ledger of the release, and
prints a line per table: its rows, and the columns that are new. It takes about ten seconds, and a few more a corpus.
`--store STORE` compares the newest versions of a store that is there instead, and builds nothing.

All tables must have the rows of the release, in its order, in all columns that it had, save what `MEANT` names;
`rejects` the same stages, reasons and rows in any order (details and descriptions may differ). The ledger must gain
nothing, save of the models in `ANEW`: each request that was paid is answered. The exit code is 1 where one
of that fails, and a line says which.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.reasons import current_word
from earmark.tasks.pipeline.registry import corpora
from earmark.tasks.store.versions import Store, Version
from tests.before.fixture import before, paid, seed, unpack

REJECTS = "rejects"
MEANT: dict[str, dict[str, tuple[str, ...] | None]] = {
    "instruction-rubrics": {"items": ("flags",)},  # quoted speech that is translated is no lost name
    "mos-preferences": {"pairs": ("gap_decile",)},  # tenths within each dataset and split
    "pseudo-preferences": {"confounds": ("low", "high")},  # intervals without resamples
    "score-questions": {"rejects": None},  # two images that shared a hash, and no ink, are no duplicates
}
"""Intended differences from the release, by corpus and table: these columns, and with `split` the order of rows;
None: all. The rest is compared."""
ANEW: set[str] = set()
"""Models that are new, or asked in other words since; no request of the release is gone."""
ROW = ("table", "item", "stage", "reason", "file", "line")  # what of a reject is compared; its detail may differ
HOUSE = tuple(name for name, one in corpora().items() if one.package is None)


def compare(old: Version, new: Version) -> Iterator[tuple[str, list[str]]]:
    """For each table of two versions: a line about it, and one for each difference that is none of a new column."""
    for table, splits in old.manifest.rows.items():
        if table not in new.manifest.rows:
            yield f"{old.corpus} {table}: gone", [f"{old.corpus} {table}: expected the table, found none"]
            continue
        was, now, meant = read(old, table), read(new, table), MEANT.get(old.corpus, {}).get(table, ())
        if meant is None:
            yield f"{old.corpus} {table}: meant to differ", []
            continue
        if "split" in meant:
            was, now = ({"all": one_split(rows, meant)} for rows in (was, now))
        elif meant:
            was, now = ({name: part.drop_columns(list(meant)) for name, part in rows.items()} for rows in (was, now))
        differences = rejects_differ(was, now) if table == REJECTS else rows_differ(was, now)
        added = [name for name in columns(now) if name not in columns(was)]
        more = f"; new columns: {', '.join(added)}" if added else ""
        state = "differs" if differences else "equal"
        yield (
            f"{old.corpus} {table}: {sum(splits.values()):,} rows, {state}{more}",
            [f"{old.corpus} {table}{line}" for line in differences],
        )
    for table in new.manifest.rows.keys() - old.manifest.rows.keys():
        yield f"{old.corpus} {table}: new, {sum(new.manifest.rows[table].values()):,} rows", []


def read(version: Version, table: str) -> dict[str, pa.Table]:
    """A table's rows by split, in the order of its files."""
    parts: dict[str, list[pa.Table]] = {}
    for entry in version.manifest.files:
        if entry.table == table:
            part = pq.ParquetFile(version.folder / entry.path).read().replace_schema_metadata(None)
            parts.setdefault(str(entry.split), []).append(part)
    return {split: pa.concat_tables(tables) for split, tables in parts.items()}


def one_split(splits: dict[str, pa.Table], without: tuple[str, ...]) -> pa.Table:
    """All rows of a table in the order of their ids, which stand in its first column, without some columns."""
    rows = pa.concat_tables(splits.values())
    return rows.sort_by(rows.column_names[0]).drop_columns(list(without))


def columns(splits: dict[str, pa.Table]) -> list[str]:
    return next(iter(splits.values())).column_names if splits else []


def rows_differ(was: dict[str, pa.Table], now: dict[str, pa.Table]) -> list[str]:
    """What differs in rows, by split and column; the first row that does."""
    lines = []
    for split in sorted(was.keys() | now.keys()):
        old, new = was.get(split), now.get(split)
        if old is None or new is None or len(old) != len(new):
            lines.append(f" {split}: expected {0 if old is None else len(old)} rows, found {len(new or ())}")
            continue
        for name in old.column_names:
            if name not in new.column_names:
                lines.append(f" {split}: expected the column {name}, found none")
            elif place := first_difference(old[name], new[name]):
                lines.append(f" {split}: {name} {place}")
    return lines


def first_difference(old: pa.ChunkedArray, new: pa.ChunkedArray) -> str | None:
    """The first of two columns' values that differ, in words; None where they are equal."""
    if old.equals(new):
        return None
    values = zip(old.to_pylist(), new.to_pylist(), strict=True)
    for row, (was, now) in enumerate(values):
        if was != now and not (was != was and now != now):
            return f"of row {row}: expected {shown(was)}, found {shown(now)}"
    return None if old.type == new.type else f"expected {old.type}, found {new.type}"


def shown(value: object) -> str:
    """A value, cut to be read."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def rejects_differ(was: dict[str, pa.Table], now: dict[str, pa.Table]) -> list[str]:
    """Which rejects came or went, by stage, reason and row."""
    old, new = (
        Counter(
            tuple(current_word(row[name]) if name == "reason" else row[name] for name in ROW)
            for part in splits.values()
            for row in part.to_pylist()
        )
        for splits in (was, now)
    )
    return [f": expected {row}, found none" for row in (old - new).elements()] + [
        f": expected none, found {row}" for row in (new - old).elements()
    ]


def asked(store: Path, old: Path) -> list[str]:
    """One line for each of the ledger's tables that is not as in the release."""
    was, now = paid(old), paid(store)
    anew = {key for key, model, *_ in now["requests"] - was["requests"] if model in ANEW}
    new = {table: {row for row in now[table] - was[table] if row[0] not in anew} for table in was}
    return [
        f"ledger: {table}: {len(new[table])} rows are new, {len(was[table] - now[table])} are gone"
        for table in was
        if new[table] or was[table] - now[table]
    ]


def build(names: list[str], store: Path) -> None:
    """Build demo corpora in a store."""
    from earmark.flows.command.running import demo_config, run_build

    for name in names:
        run_build(name, demo_config(name), Store(store))


def main() -> int:
    """Compare as the command line says; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", choices=[*HOUSE, []], help="demo corpora; all without")
    parser.add_argument("--store", type=Path, help="compare the newest versions of this store; build nothing")
    given = parser.parse_args()
    names = given.corpus or list(HOUSE)
    with tempfile.TemporaryDirectory() as folder:
        old = unpack(Path(folder) / "before")
        store = given.store or Path(folder) / "store"
        differences = []
        if not given.store:
            seed(store)
            build(names, store)
            differences = asked(store, old.root)
        for name in names:
            for line, found in compare(before(old, name), Store(store).find(name)):
                print(line)
                differences += found
    print("\n".join(differences) or ("equal" if given.store else "equal; not one request was made"))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
