"""`music-prompts`: triplets of tags by stratum, drawn by seeded hash with genres in turn, and their examples."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.music_prompts import COOCCURRENCE, STRATA, TAGS, TRIPLETS, MusicPrompts
from earmark.tasks.build.step import Done, step
from earmark.tasks.music_prompts.sources import Lists
from earmark.tasks.music_prompts.tags import open_lists
from earmark.tasks.store.files import replacing
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage

STRATA_SCHEMA = pa.schema([("stratum", pa.string()), ("wanted", pa.int64()), ("candidates", pa.int64())])
LONGEST_SHOT = 1000  # longer captions are no examples: ten of them would crowd out the question


class Drawn(NamedTuple):
    """What prompts are written from."""

    queue: Path  # triplets in the order in which they will be tried
    shots: Path  # the example captions of each, by caption set and item
    strata: Path  # how many prompts each stratum wants, and how many triplets it has
    captions: Path  # the texts of the examples
    lexicon: Path  # all tags of the track list


@step("draw", label="draw triplets")
def draw_triplets(stage: Stage, config: MusicPrompts, lists: Lists) -> Done[Drawn]:
    """Draw triplets of each stratum from the published tables `tags` and `cooccurrence`."""
    queue, shots, strata = (stage.work / f"{name}.parquet" for name in ("queue", "shots", "strata"))
    drawn = Drawn(queue, shots, strata, lists.captions, lists.lexicon)
    with connect(stage.work / "spill") as connection:
        open_lists(connection, lists)
        for table in (TAGS.name, COOCCURRENCE.name):
            view_parquet(connection, table, [path for paths in stage.tables()[table].values() for path in paths])
        _open_kept(stage, connection, config)
        _write_queue(connection, config, drawn)
    return Done(drawn)


def _write_queue(connection: duckdb.DuckDBPyConnection, config: MusicPrompts, drawn: Drawn) -> None:
    wanted = config.prompts.model_dump()
    in_distribution = wanted["strict_id"] + wanted["improvised_id"]
    connection.execute("CREATE TABLE wanted (stratum VARCHAR, most BIGINT, start DOUBLE)")
    for place, name in enumerate(STRATA):
        start = sum(wanted[before] for before in STRATA[:place]) / max(1, sum(wanted.values()))
        most = round(wanted[name] * (1 + config.synthesis.spare))
        connection.execute("INSERT INTO wanted VALUES (?, ?, ?)", [name, most, start])
    share = wanted["strict_id"] / in_distribution if in_distribution else 0.0
    connection.execute(query("music_prompts/candidates"), {"seed": config.seed, "strict_share": share})
    queue = connection.sql(query("music_prompts/queue")).to_arrow_table()
    with replacing(drawn.queue) as path:
        pq.write_table(queue, path)
    connection.register("queue", queue)
    params = {"seed": config.seed, "shots": config.synthesis.shots, "longest": LONGEST_SHOT}
    with replacing(drawn.shots) as path:
        pq.write_table(connection.sql(query("music_prompts/shots"), params=params).to_arrow_table(), path)
    counts = dict(connection.execute("SELECT stratum, count(*) FROM candidates GROUP BY stratum").fetchall())
    write_rows(drawn.strata, STRATA_SCHEMA, [(s, wanted[s], counts.get(s, 0)) for s in STRATA])


def _open_kept(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MusicPrompts) -> None:
    """Make the view `kept`: triplets of the earlier version that the config names, with their strata."""
    if config.keep is None:
        connection.execute("CREATE TABLE kept (triplet_id VARCHAR, stratum VARCHAR)")
    else:
        view_parquet(connection, "kept", stage.store.find(config.keep).files(TRIPLETS.name))
