"""`pseudo-preferences`: from tables of prompts and generations to the pairs that a judge will hear."""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import partial
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.files import Root
from earmark.schemas.places import without_place
from earmark.schemas.pseudo_preferences import CORPUS, MODALITIES, PseudoPreferences
from earmark.schemas.pseudo_tables import CLIPS, PAIRS
from earmark.schemas.tables import split_ends
from earmark.tasks.audio.probe import AudioFault
from earmark.tasks.audio.similarity import DECIMALS
from earmark.tasks.build.fingerprint import file_digests, roots_digest
from earmark.tasks.build.grouping import group
from earmark.tasks.build.intake import Intake
from earmark.tasks.build.media import MEASURED, audio_digest, clap_at, clap_digest, clip_below, embeddings_of
from earmark.tasks.build.plan import Plan, make_plan
from earmark.tasks.build.preflight import Peek
from earmark.tasks.build.quotas import share_out
from earmark.tasks.build.references import measure_apart, references_of
from earmark.tasks.build.rows import Rows, keep_rows
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.importers.music import Generation, Prompt, read_generations, read_prompts, read_ranks
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.pseudo_preferences.clips import clip_rows, with_loudness
from earmark.tasks.pseudo_preferences.gold_files import gold_audio
from earmark.tasks.pseudo_preferences.judging import pairs_a_shard, prompt_digests
from earmark.tasks.pseudo_preferences.matching import CHANGED, matched
from earmark.tasks.pseudo_preferences.released import digest_released, peek_released
from earmark.tasks.store.parquet import record_schema, row_schema, to_table, write_rows
from earmark.tasks.store.sql import by_split, connect, create_table, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

PROMPTS, GENERATIONS = record_schema(Prompt, "row int64"), record_schema(Generation, "row int64")


class Pool(NamedTuple):
    """What was read of the inputs, and then measured of their audio."""

    prompts: Path
    generations: Path
    media: Path | None = None


SPOKEN = row_schema("heard_sha256 string, text string, clip_id string, pipeline string, segment int64")
MEDIA = row_schema(f"kind string, item int64, {MEASURED}, loudness_lufs float64")


def plan_build(config: PseudoPreferences, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a version would be made from; says whether there is anything to build."""
    if config.released:
        return make_plan(CORPUS, config, store, partial(digest_released, config, store), inputs=inputs)
    digest = partial(digest_inputs, config, store)
    models = (config.pairs.near,) if config.pairs.near else ()
    return make_plan(CORPUS, config, store, digest, inputs=inputs, prompts=prompt_digests(config), models=models)


def digest_inputs(config: PseudoPreferences, store: Store) -> dict[str, str]:
    """SHA-256 of both tables, and of the audio that they name."""
    written = [name for name in (config.prompts, config.generations, config.known_order, *config.golds()) if name]
    digests = file_digests((without_place(name), config.path(name)) for name in written)
    lists = [(path, path.parent) for path in (config.path(config.prompts), config.path(config.generations))]
    digests |= roots_digest("paths", lists, partial(_read_tables, config))
    digests |= clap_digest(store, "pairs.near", clap_at(config, config.pairs.near) if config.pairs.near else None)
    return {**digests, "audio": audio_digest(store, "hash audio", named_audio(config) | gold_audio(config))}


def peeks(config: PseudoPreferences) -> Iterator[Peek]:
    """What is looked at before a build starts: both tables, and the known order; or released labels."""
    if config.released:
        yield from peek_released(config)
        return
    prompts, generations, roots = config.path(config.prompts), config.path(config.generations), _roots(config)
    yield Peek(
        without_place(config.prompts),
        partial(read_prompts, prompts, config.prompts),
        lambda row: [clip_below(roots["reference"], row.reference_audio)] if row.reference_audio else [],
        "prompts: clips lie beside it",
        (prompts,),
    )
    yield Peek(
        without_place(config.generations),
        partial(read_generations, generations, config.generations),
        lambda row: [clip_below(roots["generation"], row.audio)],
        "generations: clips lie beside it",
        (generations,),
    )
    if config.known_order:
        ranks = config.path(config.known_order)
        yield Peek(without_place(config.known_order), lambda: [read_ranks(ranks)], lists=(ranks,))


def named_audio(config: PseudoPreferences) -> dict[str, Path | AudioFault]:
    """The audio file of every generation and reference that the tables name."""
    roots = _roots(config)
    files: dict[str, Path | AudioFault] = {}
    for row in _read_tables(config):
        if isinstance(row, Prompt) and row.reference_audio:
            files[f"reference {row.reference_audio}"] = clip_below(roots["reference"], row.reference_audio)
        elif isinstance(row, Generation):
            files[row.audio] = clip_below(roots["generation"], row.audio)
    return files


def _read_tables(config: PseudoPreferences) -> Iterator[Prompt | Generation | Reject | Note]:
    yield from read_prompts(config.path(config.prompts), config.prompts)
    yield from read_generations(config.path(config.generations), config.generations)


def _roots(config: PseudoPreferences) -> dict[str, Root]:
    """The folders that the tables name audio from: each its own."""
    tables = {"reference": config.prompts, "generation": config.generations}
    return {kind: Root(config.path(table).parent, config.links) for kind, table in tables.items()}


@step("import", unit="table rows", label="import prompts and generations")
def import_tables(stage: Stage, config: PseudoPreferences) -> Done[Pool]:
    """Read both tables; what cannot be read is a reject.

    Raises:
        InputError: a table or one of its columns is missing.
    """
    intake = Intake(references_of(config, stage.store))
    read = read_prompts(config.path(config.prompts), config.prompts)
    prompts = [(row, *one) for row, one in enumerate(intake.take(read, "prompts", config.limit))]
    known = {row[1] for row in prompts}
    made = (
        _without_prompt(row, intake.kept_out)
        for row in read_generations(config.path(config.generations), config.generations)
        if config.limit is None or not isinstance(row, Generation) or row.prompt_id in known
    )  # a trial: the first prompts, and what was made of them
    generations = [(row, *one) for row, one in enumerate(intake.take(made, "clips"))]
    tables = Pool(stage.work / "prompts.parquet", stage.work / "generations.parquet")
    write_rows(tables.prompts, PROMPTS, prompts)
    write_rows(tables.generations, GENERATIONS, generations)
    intake.notes.append(f"{len(prompts)} prompts and {len(generations)} generations")
    return Done(tables, intake.account())


@step("measure", label="")
def measure_clips(stage: Stage, config: PseudoPreferences, tables: Pool) -> Done[Pool]:
    """Hash and measure every generation and reference, each once."""
    prompts = pq.read_table(tables.prompts).to_pylist()
    generations = pq.read_table(tables.generations).to_pylist()
    wanted = [("generation", row["row"], row["audio"]) for row in generations]
    wanted += [("reference", row["row"], row["reference_audio"]) for row in prompts if row["reference_audio"]]
    roots = _roots(config)
    files = [clip_below(roots[kind], name) for kind, _, name in wanted]
    measured = with_loudness(stage, files, measure_apart(stage, config, "measure clips", files))
    rows = [(kind, item, *each) for (kind, item, _), each in zip(wanted, measured, strict=True)]
    media = stage.work / "media.parquet"
    write_rows(media, MEDIA, rows)
    return Done(tables._replace(media=media))


def _without_prompt(row: Generation | Reject | Note, kept_out: Set[str]) -> Generation | Reject | Note:
    """A reject in place of a generation whose prompt is kept out."""
    if not isinstance(row, Generation) or row.prompt_id not in kept_out:
        return row
    return Reject(
        row.generation_id, "decontaminated", "expected a prompt that is not kept out", row.source_file, row.line
    )


def open_pool(connection: duckdb.DuckDBPyConnection, pool: Pool, config: PseudoPreferences, store: Store) -> None:
    """Create the views and tables that say which prompts and generations can be used."""
    for name, schema in (("prompts", PROMPTS), ("generations", GENERATIONS), ("media", MEDIA)):
        view_parquet(connection, name, [getattr(pool, name)], schema)
    spoken = store.find(config.reference_captions).files("captions") if config.reference_captions else []
    view_parquet(connection, "spoken", spoken, SPOKEN)
    connection.execute(query("text/plain_words"))
    connection.execute(query("pseudo_preferences/refuse_prompts"))
    _group_prompts(connection)
    given = {"seed": config.seed, **split_ends(config.shares)}
    connection.execute(query("pseudo_preferences/asked_prompts"), given)
    limits = {"shortest_s": config.clips.shortest_s, "silence_dbfs": config.clips.silence_dbfs}
    connection.execute(query("pseudo_preferences/refuse_generations"), limits)


def _group_prompts(connection: duckdb.DuckDBPyConnection) -> None:
    """Create `prompt_groups`: prompts that share words or reference audio, also by way of others, in one split."""
    prompts = connection.execute(query("pseudo_preferences/prompt_ties")).fetchall()
    groups = group([[("words", words), *([("sound", sound)] if sound else [])] for _, words, sound, _ in prompts])
    rows = [(row, number, name) for number, (row, *_, name) in zip(groups, prompts, strict=True)]
    create_table(connection, "prompt_groups", "row int64, number int64, name string", rows)


@step("clips", unit="table rows", follows="import", label="write clips")
def write_clips(stage: Stage, config: PseudoPreferences, pool: Pool) -> Done[None]:
    """Write the published table `clips`; prompts and generations that cannot be used are rejects."""
    with connect(stage.work / "spill") as connection:
        open_pool(connection, pool, config, stage.store)
        refused = connection.sql(
            """SELECT 'prompts', prompt_id, 'clips', reason, detail, source_file, line,
                      [{'kind': 'prompt', 'id': prompt_id}] FROM refused_prompts
               UNION ALL
               SELECT 'clips', generation_id, 'clips', reason, detail, source_file, line, made_from
               FROM refused_generations
               ORDER BY ALL"""
        ).to_arrow_table()
        read = "(SELECT source_file FROM prompts UNION ALL SELECT source_file FROM generations)"
        sources = dict(connection.execute(f"SELECT source_file, count(*) FROM {read} GROUP BY ALL").fetchall())
        kept = stage.write_splits(CLIPS, lambda split: clip_rows(connection, config, split))
        prompts = int(connection.execute("SELECT count(*) FROM asked_prompts").fetchall()[0][0])
    notes = (f"{kept} clips of {prompts} prompts can be judged",)
    return Done(None, Account(sum(sources.values()), prompts + kept, refused, sources=sources, notes=notes))


@step("pairs", unit="candidate pairs", table=PAIRS.name, label="plan pairs")
def plan_pairs(stage: Stage, config: PseudoPreferences, pool: Pool) -> Done[Rows]:
    """Choose the pairs and write the published table `pairs`; one row a pair, with all the judge gets."""
    given = {"seed": config.seed, "same_model": config.pairs.same_model, "decimals": DECIMALS}
    with connect(stage.work / "spill") as connection:
        open_pool(connection, pool, config, stage.store)
        _view_embeddings(connection, stage.store, config)
        connection.execute(query("pseudo_preferences/compared"), given)
        connection.execute(query("pseudo_preferences/candidates"), {"per_prompt": config.pairs.per_prompt})
        connection.execute(query("text/voice_of"))
        counts = dict(connection.execute("SELECT modality, count(*) FROM candidates GROUP BY modality").fetchall())
        available = {name: counts.get(name, 0) for name in MODALITIES}
        entered = sum(available.values())
        wanted = config.pairs.count if config.pairs.count is not None else entered
        takes = share_out(wanted, available, config.pairs.modalities)  # type: ignore[arg-type]
        create_table(connection, "takes", "modality string, take int64", list(takes.items()))
        kept = stage.write_splits(PAIRS, by_split(connection, query("pseudo_preferences/pairs")))
        for name in (PAIRS.name, CLIPS.name):
            view_parquet(connection, name, stage.files(name))
        questions = connection.sql(query("pseudo_preferences/questions")).to_arrow_table()
        near = _nearness_notes(connection, config)
    if config.judge.match:
        changes = matched(stage, config, questions.to_pylist())
        for name in CHANGED:
            questions = questions.append_column(name, pa.array([one[name] for one in changes], pa.float64()))
    notes = [f"pairs by modality: {', '.join(f'{name} {count}' for name, count in takes.items())}", *near]
    if config.pairs.count is not None and kept < config.pairs.count:
        notes.append(f"{kept} of {config.pairs.count} pairs: there are no more generations to compare (pairs.count)")
    return Done(
        keep_rows(stage, "questions", questions, pairs_a_shard(config)),
        Account(entered, kept, filtered={"beyond pairs.count or its shares": entered - kept}, notes=notes),
    )


def _view_embeddings(connection: duckdb.DuckDBPyConnection, store: Store, config: PseudoPreferences) -> None:
    """Create `embeddings`: those of the generations that may be compared; none unless pairs are chosen by them."""
    rows = []
    if config.pairs.near is not None:
        made = connection.execute(query("pseudo_preferences/usable_clips")).fetchall()
        folder = config.path(config.generations).parent
        files = {clip: folder / file for _, clip, file in made}
        vectors = embeddings_of(store, clap_at(config, config.pairs.near), files)
        rows = [(row, vectors[clip]) for row, clip, _ in made]
    connection.register("embeddings", to_table(row_schema("row int64, embedding float32[]"), rows))  # large: no copy


def _nearness_notes(connection: duckdb.DuckDBPyConnection, config: PseudoPreferences) -> list[str]:
    """How near the clips of chosen pairs lie, beside those of all that could be chosen."""
    if config.pairs.near is None:
        return []
    chosen, candidates, nearer = connection.execute(query("pseudo_preferences/nearness")).fetchall()[0]
    if chosen is None:
        return []
    return [
        f"cosine of a pair's clips by {without_place(config.pairs.near)}: median {chosen:.4f} of the chosen pairs, "
        f"{candidates:.4f} of all that could be chosen; {nearer:.0%} of the chosen are nearer than that"
    ]
