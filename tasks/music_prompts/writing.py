"""Write prompts in rounds, and publish those passing their checks."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.music_prompts import PROMPTS, SHOTS, SPLIT_OF, TRIPLETS, MusicPrompts
from earmark.schemas.tables import UNSPLIT
from earmark.tasks.music_prompts.asking import WRITE, DrawnTriplet, checked_prompt, taxonomy, text_of
from earmark.tasks.music_prompts.drawing import PromptInputs
from earmark.tasks.pipeline.ask import Asker, GivenUp, Row
from earmark.tasks.pipeline.references import references_of
from earmark.tasks.pipeline.rows import Rows, keep_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked, walk
from earmark.tasks.store.parquet import row_schema
from earmark.tasks.store.sql import by_split, connect, query, view_parquet
from earmark.tasks.store.staging import Stage

SPLITS_USED = tuple(dict.fromkeys(SPLIT_OF.values()))
TRIPLETS_A_SHARD = 500
ANSWERED = row_schema(
    "triplet_id string, text string, added string[], writer string, prompt string, request_key string, tries int64"
)
FAILED = row_schema("triplet_id string, reason string, detail string")


def write_prompts(stage: Stage, config: MusicPrompts, drawn: PromptInputs) -> list[Walked]:
    """Write prompts round by round, replacing triplets given up by the next of their stratum.

    However often a build is interrupted, the prompts are those of the first usable triplets in the queue: the
    rounds of an interrupted run begin anew, with its answers from the ledger, unless its prompts are kept already.
    """
    if stage.output(keep_prompts.name) is not None:
        return []
    shutil.rmtree(stage.work / write_prompt.name, ignore_errors=True)
    rounds: list[Walked] = []
    for number in count():
        triplets = plan_round(stage, drawn, rounds)
        if not triplets.total:
            return rounds
        rounds.append(write_prompt(stage, config, triplets, part=f"{number:03d}"))
    raise AssertionError("a queue ends")


def plan_round(stage: Stage, drawn: PromptInputs, rounds: Sequence[Walked]) -> Rows:
    """Return the next round's triplets: as many of each stratum as still lack a prompt, in the queue's order."""
    with connect(stage.work / "spill") as connection:
        open_written(connection, drawn, rounds)
        triplets = connection.sql(query("music_prompts/round"), params={"lexicon": str(drawn.lexicon)}).to_arrow_table()
    return keep_rows(stage, f"round-{len(rounds):03d}", triplets, TRIPLETS_A_SHARD)


def open_written(connection: duckdb.DuckDBPyConnection, drawn: PromptInputs, rounds: Sequence[Walked]) -> None:
    """Create views of the draw, and of the answers and failures in all rounds so far."""
    for name in ("queue", "shots", "strata", "captions"):
        view_parquet(connection, name, [getattr(drawn, name)])
    answered = [result for walked in rounds for _, result in walked.results()]
    failed = []
    for walked in rounds:
        names = pq.read_table(walked.source.path, columns=["triplet_id"])["triplet_id"].to_pylist()
        failed += [{**end, "triplet_id": names[end["at"]]} for end in walked.given_up()]
    connection.register("answered", pa.Table.from_pylist(answered, ANSWERED))
    connection.register("failed", pa.Table.from_pylist(failed, FAILED))


@contextmanager
def with_lexicon(
    stage: Stage, config: MusicPrompts, triplets: list[DrawnTriplet], encoder: object
) -> Iterator[list[Row]]:
    """Give each triplet, in place of their file, the word forms of the whole taxonomy for checking prompts; and the
    texts no prompt may repeat."""
    lexicon = taxonomy(Path(triplets[0]["lexicon"]))
    references = references_of(config, stage.store)
    yield [{**triplet, "lexicon": lexicon, "references": references} for triplet in triplets]


@walk("write", asks=[WRITE], label="write prompts", opened=with_lexicon)
async def write_prompt(asker: Asker[MusicPrompts], triplet: DrawnTriplet) -> Row:
    """Have a prompt written naming the triplet's tags and no others; return a row of `ANSWERED`."""
    if triplet["unnatural"]:
        names = ", ".join(f"'{name}'" for name in triplet["unnatural"])
        raise GivenUp("prompts", "unnatural_words", f"expected tags as a person writes them, found {names}")
    reply = await asker.reply(WRITE, triplet)
    if reply.failure:
        raise GivenUp("prompts", *reply.failure)
    if triplet["references"] and (fault := triplet["references"].fault_of(text_of(reply.value))):
        raise GivenUp("prompts", "decontaminated", fault)
    return {
        "triplet_id": triplet["triplet_id"],
        "text": text_of(reply.value),
        "added": list(checked_prompt(asker.config, triplet, reply.value).added),
        "writer": reply.annotator,
        "prompt": reply.prompt,
        "request_key": reply.key,
        "tries": reply.draws,
    }


@step("prompts", unit="triplets", follows="triplets", table=PROMPTS.name, label="keep prompts that passed", final=True)
def keep_prompts(stage: Stage, config: MusicPrompts, drawn: PromptInputs, rounds: list[Walked]) -> Done[None]:
    """Write the published tables `prompts`, `triplets` and `shots`; reject triplets without a prompt."""
    with connect(stage.work / "spill") as connection:
        open_written(connection, drawn, rounds)
        triplets = by_split(connection, query("music_prompts/triplets"), {"keep": config.keep})
        stage.write_splits(TRIPLETS, triplets, SPLITS_USED)
        kept = stage.write_splits(PROMPTS, by_split(connection, query("music_prompts/prompts")), SPLITS_USED)
        versions = {"versions": [one.name for one in config.captions if one.version]}
        shown = connection.sql(query("music_prompts/shown"), params=versions)
        stage.write(SHOTS, UNSPLIT, shown.to_arrow_reader(100_000))
        refused = connection.sql(query("music_prompts/refuse_triplets")).to_arrow_table()
        strata = connection.execute(query("music_prompts/strata")).fetchall()
    tried = sum(walked.source.total for walked in rounds)
    candidates = sum(row[2] for row in strata)
    beyond = {"beyond the counts of prompts": candidates - tried}
    writer = f"written by {config.synthesis.annotator}, up to {config.synthesis.tries} tries each"
    return Done(
        None,
        Account(candidates, tried, filtered=beyond, name="triplets", notes=_stratum_notes(config, strata)),
        Account(tried, kept, refused, notes=(writer,)),
    )


def _stratum_notes(config: MusicPrompts, strata: Sequence[tuple[Any, ...]]) -> list[str]:
    notes = []
    for name, wanted, candidates, written, kept in strata:
        from_before = f", {kept} kept from {config.keep}" if config.keep and kept else ""
        notes.append(f"{name}: {written} of {wanted} prompts, from {candidates:,} triplets{from_before}")
        if written < wanted:
            why = "there are no more triplets" if candidates <= wanted else "too many prompts missed their checks"
            notes.append(f"{name}: {wanted - written} prompts are missing: {why}")
    return notes
