"""Choose, check and count the rows of a view or table before anything is written."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa

from earmark.schemas.config import ChosenPrompts
from earmark.schemas.corpus import ANSWERS, FORBIDDEN, REQUIRED, Corpus, View, names_file
from earmark.schemas.errors import StoreError
from earmark.schemas.tables import UNSPLIT, Table, embeds
from earmark.tasks.pipeline.progress import say
from earmark.tasks.pipeline.rows import WORDING, word, words_of
from earmark.tasks.store.card import split_order
from earmark.tasks.store.explain import links_of
from earmark.tasks.store.sql import connect, query, quoted, view_parquet
from earmark.tasks.store.versions import Version

BATCH = 8_192
ROLLOUTS, DRAWS = "rollouts.json", "rollouts.parquet"  # a record of `earmark eval rollouts`
_DAY = r"\d{4}-\d\d-\d\d"
_SPLIT = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Selection:
    """Rows to export, in the connection's table `selected`."""

    connection: duckdb.DuckDBPyConnection  # DuckDB with the version's tables as views, and `selected`
    name: str  # the view's or table's name
    columns: tuple[str, ...]  # its columns
    counts: dict[str, int]  # rows by split, in the order of splits

    def clips(self) -> Iterator[str]:
        """Yield every clip named by a row, once, in order: SHA-256, or `<SHA-256>.<extension>` from a table."""
        parts = [f'SELECT "{name}" AS clip FROM selected' for name in self.columns if names_file(name)]
        listed = [name for name in ("audios", "images") if name in self.columns]
        parts += [f"SELECT unnest({name}) AS clip FROM selected" for name in listed]
        if parts:
            both = " UNION ".join(parts)
            reader = self.connection.sql(f"SELECT clip FROM ({both}) WHERE clip IS NOT NULL ORDER BY clip")
            for batch in reader.to_arrow_reader(BATCH):
                yield from batch["clip"].to_pylist()

    def check(self, view: View, *, clips: bool) -> None:
        """Check that every row has the values required by its kind, and its clips if needed as files.

        Raises:
            StoreError: a row lacks a value or a clip, or a preference has equal answers.
        """
        answers = [both for both in ANSWERS if view.kind == "preference" and set(both) <= set(self.columns)][:1]
        for name in (*REQUIRED[view.kind], *(column for both in answers for column in both)):
            lacking = self._count(f'"{name}" IS NULL')
            if lacking and names_file(name) and clips:
                raise StoreError(
                    f"view '{self.name}': {lacking:,} of {sum(self.counts.values()):,} rows name no clip for {name}; "
                    "build the version with audio (option `audio`)"
                )
            if lacking and not names_file(name):
                raise StoreError(f"view '{self.name}': {lacking:,} rows have no {name}")
        self._check_prompt(clips)
        for chosen, rejected in answers:
            if same := self._count(f'"{chosen}" = "{rejected}"'):
                raise StoreError(f"view '{self.name}': {same:,} rows have the same answer as chosen and rejected")

    def _check_prompt(self, clips: bool) -> None:
        """Check that prompts name clips, and that their pieces fit between the clips."""
        has_audio = "audios" in self.columns
        if has_audio and clips and (lacking := self._count("list_count(audios) < len(audios)")):
            raise StoreError(
                f"view '{self.name}': {lacking:,} prompts name no clip; build the version with audio (option `audio`)"
            )
        pieces = "prompt" in self.columns and self.connection.execute("SELECT typeof(prompt) FROM selected LIMIT 1")
        if pieces and pieces.fetchall()[0][0] == "VARCHAR[]":
            between = "coalesce(len(audios), 0)" if has_audio else "0"
            judged = "2" if "chosen_audio" in self.columns else "1"  # a preferred clip may stand in its prompt
            if odd := self._count(f"len(prompt) - {between} NOT BETWEEN 1 AND {judged}"):
                raise StoreError(f"view '{self.name}': {odd:,} prompts do not have one text piece more than clips")

    def _count(self, condition: str) -> int:
        counted = self.connection.execute(f"SELECT count(*) FROM selected WHERE {condition}").fetchall()
        return int(counted[0][0])

    def uneven(self) -> pa.Schema | None:
        """Return the columns if one is empty in some split alone; None if each looks the same in all splits."""
        schema = self.connection.sql("SELECT * EXCLUDE (_place, split) FROM selected LIMIT 0").to_arrow_table().schema
        names = [quoted(field.name) for field in schema]
        held = [
            f"nullif(len({name}), 0)" if pa.types.is_list(field.type) else name
            for name, field in zip(names, schema, strict=True)
        ]
        counts = ", ".join(f"count({one})" for one in held)
        counted = self.connection.execute(f"SELECT {counts} FROM selected GROUP BY split").fetchall()
        filled = [[count > 0 for count in column] for column in zip(*counted, strict=True)]
        if all(all(column) or not any(column) for column in filled):
            return None
        for place, (name, field) in enumerate(zip(names, schema, strict=True)):
            days = f"regexp_full_match({name}, '{_DAY}')"
            if pa.types.is_string(field.type) and any(filled[place]) and not self._count(f"NOT {days}"):
                schema = schema.set(place, field.with_type(pa.timestamp("s")))  # as `datasets` reads days
        return schema

    def rows(self, split: str) -> Iterator[pa.RecordBatch]:
        """Yield a split's rows in a stable order, batch by batch."""
        order = "SELECT * EXCLUDE (_place) FROM selected WHERE split = $split ORDER BY _place"
        yield from self.connection.sql(order, params={"split": split}).to_arrow_reader(BATCH)


@contextmanager
def select_view(
    version: Version,
    corpus: Corpus,
    view: View,
    spill: Path,
    split: str | None,
    limit: int | None,
    rollouts: Path | None = None,
    words: ChosenPrompts | None = None,
) -> Iterator[Selection]:
    """Yield the selected rows of a view, ordered by `id`.

    Args:
        spill: an existing folder for rows exceeding the memory.
        limit: only the first rows of each split.
        rollouts: a record of `earmark eval rollouts`; rows right in all its draws are left out.
        words: prompts to use before the version's own.

    Raises:
        StoreError: the record is of another version or view; the view lacks the split, has no rows, or breaks the
            contract of `schemas/corpus.py`.
    """
    with opened(version, corpus, spill) as connection:
        connection.execute(f"CREATE TABLE everything AS {query(view.sql)}", dict(view.params) or None)
        if WORDING in connection.table("everything").columns:
            word(connection, view.name, words_of(version, words))
        everything = connection.table("everything")
        _check_columns(view, everything.columns)
        prompt = dict(zip(everything.columns, map(str, everything.types), strict=True)).get("prompt", "VARCHAR")
        if prompt not in ("VARCHAR", "VARCHAR[]"):
            raise StoreError(f"view '{view.name}': expected prompt as VARCHAR or VARCHAR[], found {prompt}")
        twice = connection.execute("SELECT id FROM everything GROUP BY id HAVING count(*) > 1 LIMIT 1").fetchall()
        if twice:
            raise StoreError(f"view '{view.name}': expected one row per id, found '{twice[0][0]}' twice")
        if rollouts is not None:
            rollouts_of(rollouts, version, view)
            draws = str(rollouts / DRAWS)
            easy = 'SELECT id FROM read_parquet($draws) GROUP BY id HAVING bool_and(coalesce("right", false))'
            connection.execute(f"DELETE FROM everything WHERE id IN ({easy})", {"draws": draws})
        yield _choose(connection, view.name, "SELECT *, id AS _order FROM everything", split, limit)


@contextmanager
def select_table(
    version: Version, corpus: Corpus, name: str, spill: Path, split: str | None, limit: int | None
) -> Iterator[Selection]:
    """Yield the selected rows of a published table unchanged, in their own order; embedded audio as its name, and where
    the table holds none, as the SHA-256 of the measured clip.

    A column naming a row of another table with a clip in a file is followed by this file's name.
    """
    tables = {table.name: table for table in corpus.tables if table.name in version.manifest.rows}
    if name not in tables:
        raise StoreError(f"{version.corpus} {version.name} has no table '{name}'; tables: {', '.join(tables)}")
    table = tables[name]
    with opened(version, corpus, spill) as connection:
        heard = {name: f"{quoted(name)}.path" for name in table.embedded} | _measured(connection, table)
        names = [f'{value} AS "{name}{"" if names_file(name) else "_audio"}"' for name, value in heard.items()]
        selected = ", ".join([f'"{field.name}"' for field in table.schema if not embeds(field)] + names)
        split_column = "" if "split" in table.schema.names else f", '{UNSPLIT}' AS split"
        connection.execute(f"CREATE VIEW everything AS SELECT {selected}{split_column} FROM {quoted(name)}")
        files, joins = [], []
        for number, (column, target) in enumerate(links_of([*tables.values()], table)):
            file, key = f"{column.removesuffix('_id')}_file", quoted(target.key[0])
            if "file" in target.schema.names and file not in table.schema.names:
                files.append(f", t{number}.file AS {quoted(file)}")
                joins.append(f" LEFT JOIN {quoted(target.name)} t{number} ON t{number}.{key} = e.{quoted(column)}")
        numbered = "SELECT *, row_number() OVER () AS _order FROM everything"
        numbered = f"SELECT e.*{''.join(files)} FROM ({numbered}) e{''.join(joins)}"
        yield _choose(connection, name, numbered, split, limit)


def _measured(connection: duckdb.DuckDBPyConnection, table: Table) -> dict[str, str]:
    """Return the column with the measured clip's SHA-256 by a table's column of audio, if that is empty."""
    clips = [ref.column for ref in table.refs if (ref.kind, ref.role) == ("clip", "is")]
    columns = [field.name for field in table.schema if embeds(field) == "Audio"]
    found = {}
    for column in columns:
        held = connection.execute(f"SELECT count({quoted(column)}) FROM {quoted(table.name)}").fetchall()[0][0]
        if not held and len(clips) == len(columns) == 1:
            found[column] = quoted(clips[0])
        elif not held:
            say(f"table {table.name}: the version holds no clips in {column}; export a view, or build it with audio")
    return found


@contextmanager
def select_clips(
    version: Version, corpus: Corpus, spill: Path, split: str | None, limit: int | None
) -> Iterator[Selection]:
    """Yield the clips named by a version's tables, ordered by SHA-256, once in each of their splits.

    Clips named only by tables without splits have the split `UNSPLIT`.

    Raises:
        StoreError: no clip is named, or the split does not exist.
    """
    named = ["SELECT NULL::VARCHAR AS clip_sha256, NULL::VARCHAR AS split"]
    for table in corpus.tables:
        split_column = "split" if table.splits else f"'{UNSPLIT}'"
        columns = [ref.column for ref in table.refs if ref.kind == "clip" and not ref.column.startswith("image")]
        named += [f'SELECT "{column}", {split_column} FROM {quoted(table.name)}' for column in columns]
    with opened(version, corpus, spill) as connection:
        connection.execute(f"CREATE VIEW named AS {' UNION '.join(named)}")
        connection.execute(query("exports/clips"), {"unsplit": UNSPLIT})
        if not connection.execute("SELECT count(*) FROM everything").fetchall()[0][0]:
            raise StoreError(
                f"{version.corpus} {version.name}: expected clips that are known by their SHA-256, found none; "
                "build a version with audio"
            )
        rows = "SELECT *, clip_sha256 AS _order FROM everything"
        yield _choose(connection, "clips", rows, split, limit)


def rollouts_of(folder: Path, version: Version, view: View) -> dict[str, Any]:
    """Return the facts of a record of `earmark eval rollouts`."""
    try:
        facts: dict[str, Any] = json.loads((folder / ROLLOUTS).read_bytes())
        of = facts["manifest_sha256"], facts["view"]
    except (OSError, ValueError, TypeError, KeyError):
        raise StoreError(f"--rollouts: expected a folder that `earmark eval rollouts` wrote, found {folder}") from None
    if of != (version.manifest.digest(), view.name):
        raise StoreError(
            f"--rollouts: {folder} is of {facts.get('corpus')} {facts.get('version')}, view '{of[1]}', and not of this "
            f"{version.name}, view '{view.name}'; draw again with: earmark eval rollouts"
        )
    return facts


def view_columns(version: Version, corpus: Corpus, view: View) -> tuple[str, ...]:
    """Return the columns of a view without reading rows."""
    with opened(version, corpus) as connection:
        described = connection.execute(f"DESCRIBE {query(view.sql)}", dict(view.params) or None).fetchall()
    return tuple(row[0] for row in described if row[0] != WORDING)


def count_rows(version: Version, corpus: Corpus, view: View) -> int:
    """Count a view's rows in a version."""
    with opened(version, corpus, None) as connection:
        counted = connection.execute(
            f"SELECT count(*) FROM ({query(view.sql)}\n)", dict(view.params) or None
        ).fetchall()
    return int(counted[0][0])


@contextmanager
def opened(version: Version, corpus: Corpus, spill: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield DuckDB with each table of a version as a view of its name, spilling to `spill` or a folder of its own."""
    with TemporaryDirectory(prefix="earmark-") as own, connect(spill or Path(own)) as connection:
        for table in corpus.tables:
            files = [version.whole(entry) for entry in version.manifest.entries(table.name)]
            name = quoted(table.name) if files else table.name  # an absent optional table is empty
            view_parquet(connection, name, files, table.schema)
        yield connection


def _choose(
    connection: duckdb.DuckDBPyConnection, name: str, rows: str, split: str | None, limit: int | None
) -> Selection:
    """Create the table `selected`: the rows of the wanted splits, numbered in order within each."""
    connection.execute(
        f"""CREATE TABLE selected AS
            SELECT * EXCLUDE (_order), row_number() OVER (PARTITION BY split ORDER BY _order) AS _place
            FROM ({rows}) WHERE $split IS NULL OR split = $split QUALIFY $limit IS NULL OR _place <= $limit""",
        {"split": split, "limit": limit},
    )
    counts = dict(connection.execute("SELECT split, count(*) FROM selected GROUP BY split").fetchall())
    if not counts:
        known = [row[0] for row in connection.execute("SELECT DISTINCT split FROM everything").fetchall()]
        if split is not None and known:
            raise StoreError(f"'{name}' has no row in split '{split}'; splits: {', '.join(split_order(known))}")
        raise StoreError(f"'{name}' has no rows in this version: nothing to export; --view names another")
    if odd := [key for key in counts if not _SPLIT.fullmatch(key or "")]:
        raise StoreError(f"'{name}': expected splits named by letters, found {odd[0]!r}")
    columns = [column for column in connection.table("selected").columns if column != "_place"]
    return Selection(connection, name, tuple(columns), {key: counts[key] for key in split_order(list(counts))})


def _check_columns(view: View, names: list[str]) -> None:
    missing = [name for name in REQUIRED[view.kind] if name not in names]
    if missing:
        raise StoreError(f"view '{view.name}': expected a column '{missing[0]}', found {', '.join(names)}")
    if view.kind == "preference" and not any(set(both) <= set(names) for both in ANSWERS):
        raise StoreError(f"view '{view.name}': expected chosen and rejected, or chosen_audio and rejected_audio")
    if banned := [name for name in names if name in FORBIDDEN]:
        raise StoreError(f"view '{view.name}': trainers add a column named '{banned[0]}' to their loss; rename it")
