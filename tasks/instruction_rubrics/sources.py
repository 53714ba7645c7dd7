"""`instruction-rubrics`: what a build is made from, the captions of its sources, and their clips. No Prefect."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from earmark.schemas.files import Root
from earmark.schemas.instruction_rubrics import CORPUS, CaptionSource, InstructionRubrics
from earmark.schemas.places import without_place
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.audio.probe import AudioFault
from earmark.tasks.audio.recordings import require_chromaprint
from earmark.tasks.build.fingerprint import file_digests, roots_digest
from earmark.tasks.build.intake import Intake
from earmark.tasks.build.media import MEASURED, audio_digest, clip_below, measure
from earmark.tasks.build.plan import Plan, make_plan
from earmark.tasks.build.preflight import Peek
from earmark.tasks.build.progress import working
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.importers.caption_sets import Instruction, read_caption_set
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.instruction_rubrics.asks import prompt_digests
from earmark.tasks.instruction_rubrics.similarity import model_digest
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
        ConfigError: the config asks for acoustic fingerprints, and Chromaprint is not installed.
    """
    if config.disjoint.fingerprint:
        require_chromaprint()
    digest = partial(digest_inputs, config, store)
    models = (config.similarity.model,) if config.similarity else ()
    return make_plan(CORPUS, config, store, digest, inputs=inputs, prompts=prompt_digests(config), models=models)


def digest_inputs(config: InstructionRubrics, store: Store) -> dict[str, str]:
    """SHA-256 of every source's list, and of the audio that it names."""
    digests = model_digest(config, store)
    for source in config.sources:
        name = f"{source.name}/{without_place(source.captions)}"
        digests |= file_digests([(name, config.path(source.captions))])
        lists = [(config.path(source.captions), audio_folder(config, source))]
        digests |= roots_digest(f"{source.name}/paths", lists, partial(listed, config, source))
        rows = [row for row in listed(config, source) if isinstance(row, Instruction)]
        root = Root(audio_folder(config, source), source.links)
        files = {row.audio: clip_below(root, root.folder / row.audio) for row in rows[: config.limit]}
        label, longest_s = f"hash audio of {source.name}", config.clips.longest_s
        digests[f"{source.name}/audio"] = audio_digest(store, label, files, longest_s)
    return digests


def peeks(config: InstructionRubrics) -> Iterator[Peek]:
    """What is looked at before a build starts: each source's list, and its first clips."""
    for source in config.sources:
        path, root = config.path(source.captions), Root(audio_folder(config, source), source.links)
        yield Peek(
            f"{source.name}/{without_place(source.captions)}",
            partial(listed, config, source),
            partial(_clip, root),
            lists=(path,),
        )


def _clip(root: Root, row: Instruction) -> list[Path | AudioFault]:
    return [clip_below(root, root.folder / row.audio)]


def audio_folder(config: InstructionRubrics, source: CaptionSource) -> Path:
    """Where a source's audio lies."""
    return config.path(source.audio_root) if source.audio_root else config.path(source.captions).parent


def listed(config: InstructionRubrics, source: CaptionSource) -> Iterator[Instruction | Reject | Note]:
    """The rows of a source's list."""
    path, root = config.path(source.captions), audio_folder(config, source)
    return read_caption_set(path, source.captions, source.format, root, source.audio)


@step("import", unit="captions", label="")
def import_captions(stage: Stage, config: InstructionRubrics) -> Done[Path]:
    """Read every source's list; what cannot be read is a reject.

    Returns:
        The captions.

    Raises:
        InputError: a list or one of its columns is missing.
    """
    intake = Intake()
    rows: list[tuple[Any, ...]] = []
    for source in config.sources:
        facts = (source.subset, source.domain, source.language, source.generated, source.set)
        with working(f"import {source.name}"):
            for entry in intake.take(listed(config, source), SAMPLES.name, config.limit):
                rows.append((len(rows), source.name, *entry, *facts))
    captions = stage.work / "captions.parquet"
    write_rows(captions, IMPORTED, rows)
    return Done(captions, intake.account())


@step("index", unit="captions", follows="import", label="")
def index_clips(stage: Stage, config: InstructionRubrics, captions: Path) -> Done[Path]:
    """Hash and measure every clip.

    Returns:
        Captions whose clip can be used.
    """
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
    roots = {source.name: Root(audio_folder(config, source), source.links) for source in config.sources}
    paths = [roots[row["source"]].folder / row["file"] for row in captions]
    files = [clip_below(roots[row["source"]], path) for row, path in zip(captions, paths, strict=True)]
    measured = measure(stage.store, "index audio", files, config.clips.longest_s)
    return [(row, str(path), *each) for row, (path, each) in enumerate(zip(paths, measured, strict=True))]
