"""Turn tables of prompts and generations into pairs for a judge, for `pseudo-preferences`."""

from collections.abc import Callable, Iterator, Set
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.files import Root, source_root
from earmark.schemas.places import clips_folder, without_place
from earmark.schemas.pseudo_preferences import CORPUS, MODALITIES, PseudoPreferences
from earmark.schemas.pseudo_tables import CLIPS, PAIRS
from earmark.schemas.reasons import AudioFault, Note, Reject
from earmark.schemas.tables import split_ends
from earmark.tasks.audio.probe import SILENCE_DBFS
from earmark.tasks.audio.similarity import DECIMALS
from earmark.tasks.importers.music import ListedGeneration, MusicPrompt, read_generations, read_prompts, read_ranks
from earmark.tasks.pipeline.grouping import group, share_out
from earmark.tasks.pipeline.inputs import Input, file_digests
from earmark.tasks.pipeline.media import MEASURED, clap_at, clap_digest, clip_below, embeddings_of
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.pipeline.references import Intake, measure_apart, references_of
from earmark.tasks.pipeline.rows import Rows, keep_rows
from earmark.tasks.pipeline.scoring import scorer_name
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pseudo_preferences.clips import clip_rows, with_loudness
from earmark.tasks.pseudo_preferences.gold_files import gold_audio
from earmark.tasks.pseudo_preferences.judging import CHANGED, JUDGE, matched, pairs_a_shard
from earmark.tasks.pseudo_preferences.released import release_input
from earmark.tasks.pseudo_preferences.scored import scorer_digests, scorers_of
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.parquet import record_schema, row_schema, to_table, tuples_of, write_rows
from earmark.tasks.store.sql import by_split, connect, create_table, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

PROMPTS, GENERATIONS = record_schema(MusicPrompt, "row int64"), record_schema(ListedGeneration, "row int64")


class Pool(NamedTuple):
    """The inputs as read, and later the measurements of their audio."""

    prompts: Path
    generations: Path
    media: Path | None = None


SPOKEN = row_schema("heard_sha256 string, text string, clip_id string, pipeline string, segment int64")
MEDIA = row_schema(f"kind string, item int64, {MEASURED}, loudness_lufs float64")


Entries = Iterator[MusicPrompt | ListedGeneration | Reject | Note]


def plan_build(config: PseudoPreferences, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build."""
    if config.released:
        return make_plan(CORPUS, config, store, inputs=inputs)
    models = (*([config.pairs.near] if config.pairs.near else []),
              *(scorer_name(scorer) for scorer, _ in scorers_of(config).values()))  # fmt: skip
    return make_plan(CORPUS, config, store, inputs=inputs, asks=[JUDGE], models=models)


def inputs(config: PseudoPreferences) -> Iterator[Input]:
    """Yield a release's labels, or both tables with their audio, gold, the known order and the embedding model."""
    if config.released:
        yield release_input(config)
        return

    def table(key: str, written: str, read: Callable[[], Entries], clips: Callable[[Any], list[str]]) -> Input:
        path, name = config.path(written), without_place(written)
        files = [] if "{" in written else [(name, path, path.parent)]
        option = f"{key}: clips lie beside it"
        return Input(name=name, files=lambda: files, read=read, root=_root(config, written), clips=clips, option=option)

    prompts = table(
        "prompts",
        config.prompts,
        partial(_prompts, config),
        lambda row: [row.reference_audio] if row.reference_audio else [],
    )
    generations = table("generations", config.generations, partial(_generations, config), lambda row: [row.audio])

    def audio(store: Store) -> dict[str, Path | AudioFault]:
        references = {f"reference {name}": place for name, place in prompts.named_audio().items()}
        return references | generations.named_audio() | gold_audio(config)

    def pattern(store: Store) -> dict[str, str]:
        if "{" not in config.generations:
            return {}
        names = [row.audio for row in _generations(config) if isinstance(row, ListedGeneration)]
        return {generations.name: digest_of(names)}

    yield Input(
        name="prompts and generations",
        files=lambda: [*prompts.files(), *generations.files()],
        read=lambda: chain(_prompts(config), _generations(config)),
        audio=audio,
        parts=(prompts, generations),
        more=pattern,
    )
    if config.known_order:
        ranks, name = config.path(config.known_order), without_place(config.known_order)
        yield Input(name=name, files=lambda: [(name, ranks, None)], read=lambda: [read_ranks(ranks)])
    golds = [(without_place(written), config.path(written)) for written in config.golds()]
    model = clap_at(config, config.pairs.near) if config.pairs.near else None
    yield Input(name="scorers", more=lambda store: scorer_digests(config))
    yield Input(name="gold", more=lambda store: file_digests(golds))
    yield Input(name="pairs.near", more=lambda store: clap_digest(store, "pairs.near", model))


def _root(config: PseudoPreferences, table: str) -> Root:
    return source_root(clips_folder(config.path(table)))


def _prompts(config: PseudoPreferences) -> Iterator[MusicPrompt | Reject | Note]:
    return read_prompts(config.path(config.prompts), config.prompts, dict[str, str](config.prompt_columns.items()))


def _generations(config: PseudoPreferences) -> Iterator[ListedGeneration | Reject | Note]:
    return read_generations(
        config.path(config.generations), config.generations, dict[str, str](config.generation_columns.items())
    )


@step("import", unit="table rows", label="import prompts and generations")
def import_tables(stage: Stage, config: PseudoPreferences) -> Done[Pool]:
    """Read both tables; reject unreadable rows.

    Raises:
        InputError: a table or one of its columns is missing.
    """
    intake = Intake(references_of(config, stage.store))
    prompts = [(row, *one) for row, one in enumerate(intake.take(_prompts(config), "prompts", config.limit))]
    known = {row[1] for row in prompts}
    made = (
        _without_prompt(row, intake.kept_out)
        for row in _generations(config)
        if config.limit is None or not isinstance(row, ListedGeneration) or row.prompt_id in known
    )  # a trial: the first prompts, and their generations
    generations = [(row, *one) for row, one in enumerate(intake.take(made, "clips"))]
    tables = Pool(stage.work / "prompts.parquet", stage.work / "generations.parquet")
    write_rows(tables.prompts, PROMPTS, prompts)
    write_rows(tables.generations, GENERATIONS, generations)
    intake.notes.append(f"{len(prompts)} prompts and {len(generations)} generations")
    return Done(tables, intake.account())


@step("measure", label="")
def measure_clips(stage: Stage, config: PseudoPreferences, tables: Pool) -> Done[Pool]:
    """Hash and measure every generation and reference, each once."""
    made = tuples_of(pq.read_table(tables.generations), "row", "audio")
    references = tuples_of(pq.read_table(tables.prompts), "row", "reference_audio")
    wanted = [("generation", row, file) for row, file in made]
    wanted += [("reference", row, file) for row, file in references if file]
    roots = {"reference": _root(config, config.prompts), "generation": _root(config, config.generations)}
    files = [clip_below(roots[kind], name) for kind, _, name in wanted]
    measured = with_loudness(stage, files, measure_apart(stage, config, "measure clips", files))
    rows = [(kind, item, *each) for (kind, item, _), each in zip(wanted, measured, strict=True)]
    media = stage.work / "media.parquet"
    write_rows(media, MEDIA, rows)
    return Done(tables._replace(media=media))


def _without_prompt(row: ListedGeneration | Reject | Note, kept_out: Set[str]) -> ListedGeneration | Reject | Note:
    if not isinstance(row, ListedGeneration) or row.prompt_id not in kept_out:
        return row
    return Reject(
        row.generation_id, "decontaminated", "expected a prompt that is not kept out", row.source_file, row.line
    )


def open_pool(connection: duckdb.DuckDBPyConnection, pool: Pool, config: PseudoPreferences, store: Store) -> None:
    """Create the views and tables of usable prompts and generations."""
    for name, schema in (("prompts", PROMPTS), ("generations", GENERATIONS), ("media", MEDIA)):
        view_parquet(connection, name, [getattr(pool, name)], schema)
    spoken = store.find(config.reference_captions).files("captions") if config.reference_captions else []
    view_parquet(connection, "spoken", spoken, SPOKEN)
    connection.execute(query("text/plain_words"))
    connection.execute(query("pseudo_preferences/refuse_prompts"))
    _group_prompts(connection)
    given = {"seed": config.seed, **split_ends(config.shares)}
    connection.execute(query("pseudo_preferences/asked_prompts"), given)
    limits = {"shortest_s": config.clips.shortest_s, "silence_dbfs": SILENCE_DBFS}
    connection.execute(query("pseudo_preferences/refuse_generations"), limits)


def _group_prompts(connection: duckdb.DuckDBPyConnection) -> None:
    """Create `prompt_groups`: prompts sharing words or reference audio, directly or through others, in one split."""
    prompts = connection.execute(query("pseudo_preferences/prompt_ties")).fetchall()
    groups = group([[("words", words), *([("sound", sound)] if sound else [])] for _, words, sound, _ in prompts])
    rows = [(row, number, name) for number, (row, *_, name) in zip(groups, prompts, strict=True)]
    create_table(connection, "prompt_groups", "row int64, number int64, name string", rows)


@step("clips", unit="table rows", follows="import", label="write clips")
def write_clips(stage: Stage, config: PseudoPreferences, pool: Pool) -> Done[None]:
    """Write the published table `clips`; reject unusable prompts and generations."""
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
    """Choose the pairs and write the published table `pairs`; a row per pair, with all the judge's inputs."""
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
        near = _nearness_notes(connection, config, known=not (stage.store.looked and stage.store.looked.unheard))
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
    """Create `embeddings` of the comparable generations; empty unless pairs are chosen by them."""
    rows = []
    if config.pairs.near is not None:
        made = connection.execute(query("pseudo_preferences/usable_clips")).fetchall()
        files = {clip: config.clips_folder() / file for _, clip, file in made}
        vectors = embeddings_of(store, clap_at(config, config.pairs.near), files)
        rows = [(row, vectors[clip]) for row, clip, _ in made if clip in vectors]  # in a dry run some are missing
    connection.register("embeddings", to_table(row_schema("row int64, embedding float32[]"), rows))  # large: no copy


def _nearness_notes(connection: duckdb.DuckDBPyConnection, config: PseudoPreferences, known: bool) -> list[str]:
    """Report the nearness of the clips in chosen pairs, beside all possible pairs."""
    if config.pairs.near is None or not known:
        return []
    chosen, candidates, nearer = connection.execute(query("pseudo_preferences/nearness")).fetchall()[0]
    if chosen is None:
        return []
    return [
        f"cosine of a pair's clips by {without_place(config.pairs.near)}: median {chosen:.4f} of the chosen pairs, "
        f"{candidates:.4f} of all that could be chosen; {nearer:.0%} of the chosen are nearer than that"
    ]
