"""Keep rows between steps in a Parquet file below `work`, one row group per shard."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import accumulate, islice, pairwise, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.config import PROMPTS, ChosenPrompts
from earmark.schemas.errors import StoreError
from earmark.schemas.questions import Audio, Message, Text
from earmark.schemas.tables import R
from earmark.tasks.annotation.prompts import overriding, own_words, prompt_named, prompt_names, versions_of
from earmark.tasks.store.files import replacing, sha256_file
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Version

A_SHARD = 200
DATA = pa.schema([("data", pa.string())])  # rows of any shape, as JSON
RUN_BYTES = 32_000_000  # of rows that are sorted at once


class Rows(NamedTuple, Generic[R]):
    """File of rows of one type."""

    path: Path  # Parquet, one row group per shard
    total: int  # number of rows


class Shard(NamedTuple):
    """Rows processed together."""

    number: int  # index of the row group, from 0
    start: int  # number of its first row
    rows: int  # number of rows

    @property
    def name(self) -> str:
        """Return the name for its files and its task; it sorts like its number."""
        return f"{self.number:06d}"


def keep_rows(stage: Stage, name: str, rows: pa.Table | Iterable[R], a_shard: int | Sequence[int] = A_SHARD) -> Rows[R]:
    """Write `work/<name>.parquet`.

    Args:
        stage: the build.
        name: of the file.
        rows: a table, or values of any shape, stored as JSON.
        a_shard: rows per shard, or the sizes of all shards.
    """
    path, total = stage.work / f"{name}.parquet", 0
    parts = _sliced(rows, a_shard) if isinstance(rows, pa.Table) else _as_json(rows, a_shard)
    schema = rows.schema if isinstance(rows, pa.Table) else DATA
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for part in parts:
            writer.write_table(part, row_group_size=max(1, len(part)))
            total += len(part)
    return Rows(path, total)


def _sliced(rows: pa.Table, a_shard: int | Sequence[int]) -> Iterator[pa.Table]:
    sizes = repeat(a_shard, -(-len(rows) // a_shard)) if isinstance(a_shard, int) else a_shard
    for start, end in pairwise(accumulate(sizes, initial=0)):
        yield rows.slice(start, end - start)


def _as_json(rows: Iterable[Any], a_shard: int | Sequence[int]) -> Iterator[pa.Table]:
    """Yield the rows as tables of JSON texts, a shard at a time: all texts at once take as much memory as the rows."""
    texts = (json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows)
    for size in repeat(a_shard) if isinstance(a_shard, int) else a_shard:
        part = list(islice(texts, size))
        if not part and size:
            return
        yield pa.table([pa.array(part, pa.string())], DATA)


def shards_of(rows: Rows[Any]) -> list[Shard]:
    """Return a file's shards; none without rows."""
    metadata = pq.read_metadata(rows.path)
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    starts = accumulate(sizes, initial=0)
    return [Shard(number, start, size) for number, (start, size) in enumerate(zip(starts, sizes, strict=False)) if size]


def read_shard(rows: Rows[R], shard: Shard) -> list[R]:
    """Read the rows of a shard."""
    with pq.ParquetFile(rows.path) as file:
        return _values(file.read_row_group(shard.number))


def each_row(rows: Rows[R]) -> Iterator[R]:
    """Yield all rows of a file, with a shard in memory at a time."""
    with pq.ParquetFile(rows.path) as file:
        for number in range(file.num_row_groups):
            yield from _values(file.read_row_group(number))


def read_rows(rows: Rows[R]) -> list[R]:
    """Read all rows of a file."""
    return list(each_row(rows))


def _values(table: pa.Table) -> list[Any]:
    if table.schema.names == DATA.names:
        return [json.loads(text) for text in table["data"].to_pylist()]
    values: list[Any] = table.to_pylist()
    return values


class Sorted:
    """Rows on the disk, put in any order and read in the order of their numbers: sorted runs, merged as they are read.

    DuckDB's sort needs the more memory the longer the texts are, and refuses where it is short.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        self._folder = stage.work / "sorted" / name
        shutil.rmtree(self._folder, ignore_errors=True)  # of a step that was killed
        self._folder.mkdir(parents=True)
        self._runs: list[Path] = []
        self._held: list[tuple[int, str]] = []
        self._size = 0

    def put(self, number: int, row: object) -> None:
        """Keep a row under its number, until the first reading."""
        self._held.append((number, json.dumps(row)))
        self._size += len(self._held[-1][1])
        if self._size >= RUN_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._runs.append(self._folder / f"{len(self._runs):06d}.txt")
        with self._runs[-1].open("w", encoding="ascii") as file:
            file.writelines(f"{number} {text}\n" for number, text in sorted(self._held, key=itemgetter(0)))
        self._held, self._size = [], 0

    def read(self, start: int, end: int) -> Iterator[Any]:
        """Yield the rows numbered from `start` to before `end`, in order."""
        if self._held:
            self._flush()
        with ExitStack() as files:
            runs = [map(_numbered, files.enter_context(path.open(encoding="ascii"))) for path in self._runs]
            for number, text in merge(*runs, key=itemgetter(0)):
                if start <= number < end:
                    yield json.loads(text)


def _numbered(line: str) -> tuple[int, str]:
    number, _, text = line.partition(" ")
    return int(number), text


WORDING = "wording"  # a view's column with a row's prompt and its values; exports omit it
_ASKED = pa.schema(
    {"id": pa.string(), "system": pa.string(), "prompt": pa.list_(pa.string()), "audios": pa.list_(pa.string())}
)


def words_of(version: Version, chosen: ChosenPrompts | None = None) -> ChosenPrompts:
    """Return a version's own prompts, older package prompts and set from its build; `chosen` takes precedence.

    Raises:
        StoreError: a file of the version differs from its manifest.
    """
    asks = version.manifest.config.get("asks") or {}
    words: ChosenPrompts = {name: one for name, one in asks.items() if name == PROMPTS}
    for one, sha256 in version.manifest.prompts.items():
        name, _, which = one.partition("@")
        if name not in prompt_names():
            continue
        if which.startswith("own-"):
            words[name] = path = version.folder / "prompts" / f"{one}.md"
            if not path.is_file() or sha256_file(path) != sha256:
                raise StoreError(f"{version.corpus} {version.name}: prompts/{one}.md is not the file of the manifest")
        elif which.isdecimal() and int(which) in versions_of(name)[:-1]:
            words[name] = int(which)
    return overriding(words, chosen or {})


def word(connection: duckdb.DuckDBPyConnection, view: str, words: ChosenPrompts) -> None:
    """Reword rows of the table `everything` whose `wording` names a prompt with own words.

    Replace `prompt` and `audios` by the prompt rendered for the row, and set `system` to its system turn.

    Raises:
        StoreError: the prompt has other turns than a system's and a user's.
    """
    with own_words(words) as chosen:
        if mine := [name for name, prompt in chosen.items() if prompt.own or prompt.name != name]:
            query = f"SELECT id, audios, {WORDING} FROM everything WHERE {WORDING}.prompt IN (SELECT unnest($mine))"
            found = connection.sql(query, params={"mine": mine}).to_arrow_table().to_pylist()
            asked = pa.Table.from_pylist([_asked(view, row) for row in found], _ASKED)
            connection.register("asked_in_own_words", asked)
            connection.execute(
                """CREATE OR REPLACE TABLE everything AS
                   SELECT e.* REPLACE (coalesce(a.prompt, e.prompt) AS prompt, coalesce(a.audios, e.audios) AS audios),
                       a.system FROM everything e LEFT JOIN asked_in_own_words a USING (id)"""
            )
    connection.execute(f"ALTER TABLE everything DROP COLUMN {WORDING}")


def _asked(view: str, row: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(row[WORDING])
    prompt = prompt_named(values.pop("prompt"))
    clips = zip(values.pop("clips"), (Audio(clip or "", "") for clip in row["audios"]), strict=True)
    messages = prompt.render(**dict(clips), **values)
    if [one.role for one in messages] not in (["user"], ["system", "user"]):
        raise StoreError(f"view '{view}': {prompt.id}: expected a system turn at most and one user turn")
    pieces, audios = [""], list[str]()
    for part in messages[-1].parts:
        if isinstance(part, Text):
            pieces[-1] += part.text
        elif isinstance(part, Audio):
            audios.append(part.sha256)
            pieces.append("")
    return {"id": row["id"], "system": _system(messages[:-1]), "prompt": pieces, "audios": audios}


def _system(messages: Iterable[Message]) -> str | None:
    texts = [part.text for one in messages for part in one.parts if isinstance(part, Text)]
    return "\n".join(texts) or None
