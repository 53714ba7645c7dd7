"""`music-prompts`: a writer is asked until a prompt passes its checks; what comes of it is published."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.music_prompts import CORPUS, PROMPTS, SHOTS, SPLIT_OF, TRIPLETS, MusicPrompts
from schemas.tables import UNSPLIT
from tasks.annotation.outcome import Answer
from tasks.annotation.session import Session
from tasks.audio.probe import Probe
from tasks.build.asking import ask_checked, check_failed, clip_media
from tasks.build.ledger import has_ledger, ledger_address
from tasks.build.media import media_index
from tasks.importers.jamendo import Tag
from tasks.music_prompts.asking import concept_request, prompt_for, writing_request
from tasks.music_prompts.checks import Checked, check_prompt
from tasks.music_prompts.drawing import ANSWERED, FAILED, next_round, open_written, write_queue
from tasks.music_prompts.sources import import_lists, verified_clips
from tasks.music_prompts.tags import open_lists, opened_tags, questions, write_tags
from tasks.store.manifest import Step
from tasks.store.parquet import write_rows
from tasks.store.sql import connect, query
from tasks.store.staging import Stage
from tasks.store.versions import Store
from tasks.text.tag_words import Lexicon, written_forms

SPLITS_USED = tuple(dict.fromkeys(SPLIT_OF.values()))


def write_shard(stage: Stage, config: MusicPrompts, session: Session, drawn: Path, shard: int) -> int:
    """Have prompts written for one shard of a round; each is asked for until it passes, up to `synthesis.tries`.

    Leaves `work/answered/<round>-<shard>.parquet` and `work/failed/<round>-<shard>.parquet`.

    Returns:
        How many triplets it held.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """
    with pq.ParquetFile(drawn) as file:
        triplets = file.read_row_group(shard).to_pylist()
    lexicon = taxonomy(stage)

    def look(place: int, value: Any) -> Checked:
        style = triplets[place]["stratum"].partition("_")[0]
        return check_prompt(text_of(value), tags_of(triplets[place]), style, lexicon, config.synthesis.longest)

    requests = [writing_request(config, triplet, triplet["shots"]) for triplet in triplets]
    asked = ask_checked(session, requests, lambda place, value: look(place, value).fault, config.synthesis.tries)
    answered, failed = [], []
    for place, (triplet, one) in enumerate(zip(triplets, asked, strict=True)):
        name, outcome = triplet["triplet_id"], one.outcome
        if not isinstance(outcome, Answer):
            failed.append((name, outcome.reason, outcome.detail, outcome.final))
        elif one.fault:
            failed.append((name, one.fault.reason, f"{one.fault.detail}: {text_of(outcome.value)}", True))
        else:
            added, prompt = look(place, outcome.value).added, prompt_for(triplet["stratum"]).id
            text = text_of(outcome.value)
            answered.append((name, text, list(added), config.synthesis.annotator, prompt, outcome.key, one.tries))
    number = f"{drawn.stem}-{shard:06d}.parquet"
    write_rows(stage.work / "failed" / number, FAILED, failed)
    write_rows(stage.work / "answered" / number, ANSWERED, answered)
    return len(triplets)


def text_of(value: Any) -> str:
    """The prompt in an answer, on one line."""
    return " ".join(value["prompt"].split())


def tags_of(triplet: dict[str, Any]) -> tuple[Tag, Tag, Tag]:
    """The three tags of a row of the queue."""
    return (
        Tag("genre", triplet["genre"]),
        Tag("instrument", triplet["instrument"]),
        Tag("mood/theme", triplet["mood_theme"]),
    )


def taxonomy(stage: Stage) -> Lexicon:
    """The forms of every tag that the track list has, and of those that the reviewed list knows."""
    rows = pq.read_table(stage.work / "lexicon.parquet", columns=["category", "tag"]).to_pylist()
    return Lexicon([*(Tag(row["category"], row["tag"]) for row in rows), *written_forms()])


def check_round(stage: Stage, config: MusicPrompts) -> None:
    """Stop if too many requests have no answer that another run might still get.

    Raises:
        EarmarkError: how many, and their commonest reason.
    """
    with connect(stage.work / "spill") as connection:
        open_written(connection, stage)
        asked = connection.execute("SELECT (SELECT count(*) FROM answered) + (SELECT count(*) FROM failed)").fetchall()
        failures = connection.sql("SELECT reason, final FROM failed").to_arrow_table().to_pylist()
    check_failed(config.synthesis.most_failed, int(asked[0][0]), failures)


def write_prompts(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MusicPrompts) -> Step:
    """Write the published tables `prompts`, `triplets` and `shots`; triplets without a prompt are rejects."""
    open_written(connection, stage)
    kept = 0
    for split in SPLITS_USED:
        given = {"split": split}
        stage.write(TRIPLETS, split, [_rows(connection, "triplets", {**given, "keep": config.keep})])
        kept += stage.write(PROMPTS, split, [_rows(connection, "prompts", given)])
    stage.drop_empty_splits(TRIPLETS)
    stage.drop_empty_splits(PROMPTS)
    versions = {"versions": [held.name for held in config.captions if held.version]}
    stage.write(SHOTS, UNSPLIT, connection.sql(query("music_prompts/shown"), params=versions).to_arrow_reader(100_000))
    refused = _rows(connection, "refuse_triplets", {})
    stage.write_rejects("prompts", refused)
    strata = connection.execute(query("music_prompts/strata")).fetchall()
    tried = kept + refused.num_rows
    met = sum(candidates for _, _, candidates, _, _ in strata)
    stage.record(
        Step(
            name="triplets",
            place=4,
            unit="triplets",
            entered=met,
            kept=tried,
            dropped={"beyond the counts of prompts": met - tried},
            notes=tuple(_stratum_notes(config, strata)),
        )
    )
    return stage.record(
        Step(
            name="prompts",
            place=5,
            unit="triplets",
            stage="prompts",
            follows=("triplets",),
            entered=tried,
            kept=kept,
            rejected=dict(sorted(Counter(refused["reason"].to_pylist()).items())),
            table=PROMPTS.name,
            notes=(f"written by {config.synthesis.annotator}, up to {config.synthesis.tries} tries each",),
        )
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


def _rows(connection: duckdb.DuckDBPyConnection, name: str, given: dict[str, Any]) -> pa.Table:
    return connection.sql(query(f"music_prompts/{name}"), params=given).to_arrow_table()


def forecast(config: MusicPrompts, store: Store) -> dict[str, Any]:
    """What a build would ask at least: one try a prompt. Asks nothing and leaves nothing in the store's corpus.

    Where tags are to be verified, the pool is not known yet; triplets are then drawn as if all of them passed.

    Raises:
        InputError: a list is missing.
        LedgerError: the ledger cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(store, CORPUS.name, "dry-run", Path(folder))
        for part in ("work", "steps", "version"):
            (stage.folder / part).mkdir()
        import_lists(stage, config)
        unverified = config.model_copy(update={"verification": None})
        with connect(stage.work / "spill") as connection:
            open_lists(connection, stage)
            tags = questions(connection, config) if config.verification else []
            write_tags(stage, connection, unverified)
        draw(stage, config)
        drawn = next_round(stage, 0)
        triplets = pq.read_table(drawn).to_pylist() if drawn else []
        address = ledger_address(store) if has_ledger(store) else Path(folder) / "ledger.sqlite"
        with Session(config.synthesis, ledger=address, media=clip_media()) as session:
            written = session.forecast([writing_request(config, row, row["shots"]) for row in triplets])
        about = f"{len(triplets):,} prompts"
        facts = {"about": about, "prompts": len(triplets), "annotator": config.synthesis.annotator, **asdict(written)}
        if config.verification is None:
            return facts
        files = verified_clips(config, [row["file"] for row in tags])
        probes = zip(tags, media_index(store).look(files), strict=True)
        requests = [
            concept_request(config, row, p.clip_sha256, p.duration_s) for row, p in probes if isinstance(p, Probe)
        ]
        with Session(config.verification, ledger=address, media=clip_media()) as session:
            heard = session.forecast(requests)
        about = f"concepts in {len(requests):,} tags of tracks"
        verification = {"about": about, "annotator": config.verification.annotator, **asdict(heard)}
        return {**facts, "verification": verification}


def draw(stage: Stage, config: MusicPrompts) -> None:
    """Draw triplets from the tags of the pool; leaves the queue, its examples and the strata in `work`."""
    with connect(stage.work / "spill") as connection:
        open_lists(connection, stage)
        opened_tags(connection, stage)
        write_queue(stage, connection, config)
