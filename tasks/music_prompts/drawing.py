"""Draw triplets of tags by stratum, by seeded hash with genres in turn, and their examples."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow.parquet as pq

from earmark.schemas.music_prompts import COOCCURRENCE, STRATA, TAGS, TRIPLETS, MusicPrompts
from earmark.tasks.music_prompts.sources import Lists
from earmark.tasks.music_prompts.tags import open_lists
from earmark.tasks.pipeline.step import Done, step
from earmark.tasks.store.files import replacing
from earmark.tasks.store.parquet import row_schema, write_rows
from earmark.tasks.store.sql import connect, create_table, query, view_parquet
from earmark.tasks.store.staging import Stage

STRATA_SCHEMA = row_schema("stratum string, wanted int64, candidates int64")
KEPT_SCHEMA = row_schema("triplet_id string, stratum string")
SPARE = 1.0  # triplets drawn for given-up ones, as a share of the count: writers fail on few
LONGEST_SHOT = 1000  # longer captions are no examples: ten of them would crowd out the question


class PromptInputs(NamedTuple):
    """The inputs of prompt writing."""

    queue: Path  # triplets in order of trial
    shots: Path  # the example captions of each, by caption set and item
    strata: Path  # prompts wanted and triplets available in each stratum
    captions: Path  # the texts of the examples
    lexicon: Path  # all tags of the track list


@step("draw", label="draw triplets")
def draw_triplets(stage: Stage, config: MusicPrompts, lists: Lists) -> Done[PromptInputs]:
    """Draw triplets of each stratum from the published tables `tags` and `cooccurrence`."""
    queue, shots, strata = (stage.work / f"{name}.parquet" for name in ("queue", "shots", "strata"))
    drawn = PromptInputs(queue, shots, strata, lists.captions, lists.lexicon)
    with connect(stage.work / "spill") as connection:
        open_lists(connection, lists)
        for table in (TAGS.name, COOCCURRENCE.name):
            view_parquet(connection, table, stage.files(table))
        files = stage.store.find(config.keep).files(TRIPLETS.name) if config.keep else []
        view_parquet(connection, "kept", files, KEPT_SCHEMA)
        _write_queue(connection, config, drawn)
    return Done(drawn)


def _write_queue(connection: duckdb.DuckDBPyConnection, config: MusicPrompts, drawn: PromptInputs) -> None:
    wanted = config.prompts.model_dump()
    strict = config.prompts.strict_id
    in_distribution = strict + config.prompts.improvised_id
    rows, before = [], 0
    for name in STRATA:
        rows.append((name, round(wanted[name] * (1 + SPARE)), before / max(1, sum(wanted.values()))))
        before += wanted[name]
    create_table(connection, "wanted", "stratum string, most int64, start float64", rows)
    share = strict / in_distribution if in_distribution else 0.0
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


def spare_lines(stage: Stage, config: MusicPrompts) -> list[str]:
    """Return lines about the triplets that a dry run, which imagines good prompts alone, does not ask about."""
    drawn = Counter(pq.read_table(stage.work / "queue.parquet", columns=["stratum"])["stratum"].to_pylist())
    if not (spare := sum(max(0, drawn[name] - wanted) for name, wanted in config.prompts.model_dump().items())):
        return []
    return [
        "requests not counted: a triplet left without a prompt gives its place to one of",
        f"  {spare:,} spare triplets, asked about as often: up to {config.synthesis.tries} times",
    ]
