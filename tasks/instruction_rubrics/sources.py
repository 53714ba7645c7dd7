"""`instruction-rubrics`: what a build is made from, the captions of its sources, and their clips. No Prefect."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from earmark.schemas.errors import StoreError
from earmark.schemas.files import Root
from earmark.schemas.instruction_rubrics import CORPUS, CaptionSource, InstructionRubrics
from earmark.schemas.places import without_place
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.audio.probe import AudioFault
from earmark.tasks.audio.recordings import require_chromaprint
from earmark.tasks.build.fingerprint import file_digests, roots_digest
from earmark.tasks.build.intake import Intake
from earmark.tasks.build.media import MEASURED, audio_digest, clap_at, clap_digest, clip_below
from earmark.tasks.build.plan import Plan, make_plan
from earmark.tasks.build.preflight import Peek
from earmark.tasks.build.progress import working
from earmark.tasks.build.references import measure_apart, references_of
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.importers.caption_sets import Instruction, read_caption_set
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.instruction_rubrics.asks import prompt_digests
from earmark.tasks.store.licences import require_terms
from earmark.tasks.store.parquet import row_schema, write_rows
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

IMPORTED = row_schema(
    "row int64, source string, item string, file string, text string, origin string, generator string, source_file "
    "string, line int64, subset string, domain string, language string, generated bool, set string"
)
MEDIA = row_schema(f"row int64, path string, {MEASURED}")


def plan_build(config: InstructionRubrics, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a version would be made from; says whether there is anything to build.

    Raises:
        ConfigError: the config asks for acoustic fingerprints, and Chromaprint is not installed; or a source is a
            version whose licence would not be known by its name.
        StoreError: a version that a source names is not in the store.
    """
    if config.disjoint.fingerprint:
        require_chromaprint()
    for source in config.sources:
        if source.version:
            require_terms(store.find(source.version), store, source.name, "sources.name")
    digest = partial(digest_inputs, config, store)
    models = (config.similarity.model,) if config.similarity else ()
    return make_plan(CORPUS, config, store, digest, inputs=inputs, prompts=prompt_digests(config), models=models)


def digest_inputs(config: InstructionRubrics, store: Store) -> dict[str, str]:
    """SHA-256 of every source's list, and of the audio that it names."""
    digests = clap_digest(store, "similarity", clap_at(config, config.similarity.model) if config.similarity else None)
    for source in config.sources:
        if source.captions is None:
            continue  # a version, which stands among the parents
        name, path = f"{source.name}/{without_place(source.captions)}", config.path(source.captions)
        digests |= file_digests([(name, path)])
        root = audio_root(config, store, source)
        read = partial(listed, config, source)
        digests |= roots_digest(f"{source.name}/paths", [(path, root.folder)], read)
        rows = [row for row in read() if isinstance(row, Instruction)]
        files = {row.audio: clip_below(root, row.audio) for row in rows[: config.limit]}
        label, longest_s = f"hash audio of {source.name}", config.clips.longest_s
        digests[f"{source.name}/audio"] = audio_digest(store, label, files, longest_s)
    return digests


def peeks(config: InstructionRubrics) -> Iterator[Peek]:
    """What is looked at before a build starts: each source's list, and its first clips."""
    for source in config.sources:
        if source.captions is not None:
            name, path = f"{source.name}/{without_place(source.captions)}", config.path(source.captions)
            clips = partial(_clip, _list_root(config, source))
            yield Peek(name, partial(listed, config, source), clips, lists=(path,))


def _clip(root: Root, row: Instruction) -> list[Path | AudioFault]:
    return [clip_below(root, row.audio)]


def audio_root(config: InstructionRubrics, store: Store, source: CaptionSource) -> Root:
    """Where a source's audio lies."""
    return Root(store.find(source.version).folder, "refuse") if source.version else _list_root(config, source)


def _list_root(config: InstructionRubrics, source: CaptionSource) -> Root:
    folder = config.path(source.audio_root) if source.audio_root else config.path(source.captions or "").parent
    return Root(folder, source.links)


def listed(config: InstructionRubrics, source: CaptionSource) -> Iterator[Instruction | Reject | Note]:
    """The rows of a source's list."""
    assert source.captions is not None
    root = _list_root(config, source).folder
    return read_caption_set(config.path(source.captions), source.captions, source.format, root, source.audio)


def captioned_segments(store: Store, source: CaptionSource) -> Iterator[Instruction]:
    """The captions of a version's segments, in its order; a recording's segments are one group.

    Raises:
        StoreError: the version has no segments.
    """
    assert source.version is not None
    version = store.find(source.version)
    if "segments" not in version.manifest.rows:
        raise StoreError(f"{source.version}: expected segments, found none; build captions with [segments]")
    with connect(Path()) as connection:
        for table in ("captions", "segments"):
            view_parquet(connection, table, version.files(table))
        rows = connection.sql(query("instruction_rubrics/captioned_segments"), params={"split": source.split})
        for batch in rows.to_arrow_reader(10_000):
            for row in batch.to_pylist():
                facts = (row["item"], row["file"], row["text"], row["recording_sha256"], None)
                yield Instruction(*facts, f"{version.corpus}@{version.name}", row["line"])


@step("import", unit="captions", label="")
def import_captions(stage: Stage, config: InstructionRubrics) -> Done[Path]:
    """Read every source's list; what cannot be read is a reject.

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
    """Hash and measure every clip; the captions whose clip can be used."""
    media, usable = stage.work / "media.parquet", stage.work / "usable.parquet"
    write_rows(media, MEDIA, _measured(stage, config, pq.ParquetFile(captions).read(["source", "file"]).to_pylist()))
    with connect(stage.work / "spill") as connection:
        for name, path in (("captions", captions), ("media", media)):
            view_parquet(connection, name, [path])
        limits = {"shortest_s": config.clips.shortest_s, "silence_dbfs": config.clips.silence_dbfs}
        connection.execute(query("instruction_rubrics/refuse_captions"), limits)
        refused = connection.sql(
            "SELECT 'samples', item, 'index', reason, detail, source_file, line, made_from FROM refused ORDER BY row"
        ).to_arrow_table()
        kept = connection.sql(query("instruction_rubrics/usable_captions")).to_arrow_table()
        sources = dict(connection.execute("SELECT source_file, count(*) FROM captions GROUP BY ALL").fetchall())
    pq.write_table(kept, usable)
    return Done(usable, Account(sum(sources.values()), len(kept), refused, sources=sources))


def _measured(stage: Stage, config: InstructionRubrics, captions: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows of `MEDIA`, one a caption."""
    roots = {source.name: audio_root(config, stage.store, source) for source in config.sources}
    paths = [roots[row["source"]].folder / row["file"] for row in captions]
    files = [clip_below(roots[row["source"]], path) for row, path in zip(captions, paths, strict=True)]
    measured = measure_apart(stage, config, "index audio", files, config.clips.longest_s)
    return [(row, str(path), *each) for row, (path, each) in enumerate(zip(paths, measured, strict=True))]
