"""Plan `instruction-rubrics` builds, import the captions of their sources, and index the clips; no Prefect."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from earmark.schemas.errors import StoreError
from earmark.schemas.files import Root, source_root
from earmark.schemas.instruction_rubrics import CORPUS, CaptionSource, InstructionRubrics
from earmark.schemas.places import without_place
from earmark.schemas.reasons import Note, Reject
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.audio.probe import SILENCE_DBFS
from earmark.tasks.audio.recordings import require_chromaprint
from earmark.tasks.importers.caption_sets import Instruction, read_caption_set
from earmark.tasks.instruction_rubrics.asks import ASKS
from earmark.tasks.instruction_rubrics.rows import CaptionRow
from earmark.tasks.pipeline.inputs import Input
from earmark.tasks.pipeline.media import MEASURED, clap_at, clap_digest, clip_below
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.references import Intake, measure_apart, references_of
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.store.licences import require_terms
from earmark.tasks.store.parquet import row_schema, write_rows
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store
from earmark.tasks.text.bilingual import is_other_language

IMPORTED = row_schema(
    "row int64, source string, item string, file string, text string, origin string, generator string, source_file "
    "string, line int64, subset string, domain string, language string, generated bool, set string"
)
MEDIA = row_schema(f"row int64, path string, {MEASURED}")


def plan_build(config: InstructionRubrics, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build.

    Raises:
        ConfigError: the config asks for acoustic fingerprints, and Chromaprint is not installed; or the licence of a
            source's version would be unknown by its name.
        StoreError: a source's version is not in the store.
    """
    if config.fingerprint:
        require_chromaprint()
    for source in config.sources:
        if source.version:
            require_terms(store.find(source.version), store, source.name, "sources.name")
    models = (config.similarity.model,) if config.similarity else ()
    return make_plan(CORPUS, config, store, inputs=inputs, asks=ASKS, models=models)


def inputs(config: InstructionRubrics) -> Iterator[Input]:
    """Yield the similarity model, and each source's list with its audio; a source's version is a parent."""
    model = clap_at(config, config.similarity.model) if config.similarity else None
    yield Input(name="similarity", more=lambda store: clap_digest(store, "similarity", model))
    for source in config.sources:
        if source.captions is not None:
            yield _list_input(config, source, source.captions)


def _list_input(config: InstructionRubrics, source: CaptionSource, captions: str) -> Input:
    name, root = f"{source.name}/{without_place(captions)}", _list_root(config, source)
    files = [(name, config.path(captions), root.folder)]
    return Input(
        name=name,
        key=f"{source.name}/",
        files=lambda: files,
        read=partial(listed, config, source),
        root=root,
        clips=lambda row: [row.audio],
        limit=config.limit,
        longest_s=config.length_s[1],
    )


def audio_root(config: InstructionRubrics, store: Store, source: CaptionSource) -> Root:
    """Return the folder of a source's audio."""
    return Root(store.find(source.version).folder) if source.version else _list_root(config, source)


def _list_root(config: InstructionRubrics, source: CaptionSource) -> Root:
    folder = config.path(source.audio_root) if source.audio_root else config.path(source.captions or "").parent
    return source_root(folder)


def listed(config: InstructionRubrics, source: CaptionSource) -> Iterator[Instruction | Reject | Note]:
    """Read the rows of a source's list; a caption in the other of the two languages is a reject."""
    assert source.captions is not None
    root = _list_root(config, source).folder
    for row in read_caption_set(config.path(source.captions), source.captions, source.format, root, source.audio):
        if isinstance(row, Instruction) and is_other_language(row.text, source.language):
            detail = f"expected language = '{source.language}', found '{row.text[:60]}'"
            yield Reject(row.item, "not_in_language", detail, row.source_file, row.line)
        else:
            yield row


def captioned_segments(store: Store, source: CaptionSource) -> Iterator[Instruction]:
    """Yield the captions of a version's segments, in its order; a recording's segments are one group."""
    assert source.version is not None
    version = store.find(source.version)
    if "segments" not in version.manifest.rows:
        raise StoreError(f"{source.version}: expected segments, found none; build captions with segments")
    with connect(Path()) as connection:
        for table in ("captions", "segments"):
            view_parquet(connection, table, version.files(table))
        rows = connection.sql(query("instruction_rubrics/captioned_segments"), params={"split": source.split})
        for batch in rows.to_arrow_reader(10_000):
            for item, file, text, recording, line in zip(*batch.to_pydict().values(), strict=True):
                yield Instruction(item, file, text, recording, None, f"{version.corpus}@{version.name}", line)


@step("import", unit="captions", label="")
def import_captions(stage: Stage, config: InstructionRubrics) -> Done[Path]:
    """Read every source's list; reject unreadable entries.

    Returns:
        The captions.

    Raises:
        InputError: a list or one of its columns is missing.
    """
    intake = Intake(references_of(config, stage.store))
    rows: list[tuple[Any, ...]] = []
    for source in config.sources:
        facts = (source.subset, source.domain, source.language, source.generated, source.set)
        with working(f"import {source.name}"):
            entries = captioned_segments(stage.store, source) if source.version else listed(config, source)
            for entry in intake.take(entries, SAMPLES.name, config.limit):
                rows.append((len(rows), source.name, *entry, *facts))
    captions = stage.work / "captions.parquet"
    write_rows(captions, IMPORTED, rows)
    return Done(captions, intake.account())


@step("index", unit="captions", follows="import", label="")
def index_clips(stage: Stage, config: InstructionRubrics, captions: Path) -> Done[Path]:
    """Hash and measure every clip; keep the captions of usable clips."""
    media, usable = stage.work / "media.parquet", stage.work / "usable.parquet"
    write_rows(media, MEDIA, _measured(stage, config, pq.ParquetFile(captions).read(["source", "file"]).to_pylist()))
    with connect(stage.work / "spill") as connection:
        for name, path in (("captions", captions), ("media", media)):
            view_parquet(connection, name, [path])
        limits = {"shortest_s": config.length_s[0], "silence_dbfs": SILENCE_DBFS}
        connection.execute(query("instruction_rubrics/refuse_captions"), limits)
        refused = connection.sql(
            "SELECT 'samples', item, 'index', reason, detail, source_file, line, made_from FROM refused ORDER BY row"
        ).to_arrow_table()
        kept = connection.sql(query("instruction_rubrics/usable_captions")).to_arrow_table()
        sources = dict(connection.execute("SELECT source_file, count(*) FROM captions GROUP BY ALL").fetchall())
    pq.write_table(kept, usable)
    return Done(usable, Account(sum(sources.values()), len(kept), refused, sources=sources))


def _measured(stage: Stage, config: InstructionRubrics, captions: list[CaptionRow]) -> list[tuple[Any, ...]]:
    roots = {source.name: audio_root(config, stage.store, source) for source in config.sources}
    paths = [roots[row["source"]].folder / row["file"] for row in captions]
    files = [clip_below(roots[row["source"]], path) for row, path in zip(captions, paths, strict=True)]
    measured = measure_apart(stage, config, "index audio", files, config.length_s[1])
    return [(row, str(path), *each) for row, (path, each) in enumerate(zip(paths, measured, strict=True))]
