"""Plan `mos-preferences` builds before any flow starts."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from earmark.schemas.files import Root
from earmark.schemas.mos_preferences import CORPUS, MosPreferences
from earmark.schemas.places import below, url_of, without_place
from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import AudioFault
from earmark.tasks.importers.lists import RATING_LAYOUTS, Rating, input_files, read_source
from earmark.tasks.importers.table import is_pattern
from earmark.tasks.mos_preferences.clips import find_audio, places_of, root_of
from earmark.tasks.mos_preferences.critiquing import COMPARE, DESCRIBE, kinds_asked
from earmark.tasks.pipeline.inputs import Input, ListPlace
from earmark.tasks.pipeline.media import SAMPLE, clip_below, in_order
from earmark.tasks.pipeline.mirror import bring_first, is_list
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.versions import Store


def plan_build(config: MosPreferences, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build."""
    return make_plan(CORPUS, config, store, inputs=inputs, asks=[DESCRIBE, COMPARE])


def inputs(config: MosPreferences) -> Iterator[Input]:
    """Yield each source's lists with their audio if the build reads it; each table is checked alone."""
    for source in config.sources:
        parts = (source.model_copy(update={"files": {split: file}}) for split, file in source.lists())
        yield replace(_lists(config, source), name=source.name, parts=tuple(_lists(config, part) for part in parts))


def _lists(config: MosPreferences, source: Source) -> Input:
    root, layout = root_of(config, source), RATING_LAYOUTS.find(source.format)
    is_heard = config.audio != "none" or source.name in heard_sources(config)

    def files() -> list[ListPlace]:
        named = input_files(source, config.path)
        return [(name, path, layout.clip_root(source, config.path, path)) for name, path in named]

    def clip(row: Rating) -> Iterator[Path | AudioFault]:
        if is_heard:
            bring_first([places_of(root.folder, row.file, row.audio)])
            yield clip_below(root, find_audio(root.folder, row.file, row.audio))

    def folder_names(store: Store) -> dict[str, str]:
        names = layout.listing(source, config.path) if layout.listing else None
        return {f"{source.name}/folders": digest_of(names)} if names else {}

    return Input(
        name="/".join((source.name, *(without_place(file) for _, file in source.lists()))),
        key=f"{source.name}/",
        folders=tuple(_folders(config, source)),
        files=files,
        read=partial(read_source, source, config.path),
        audio=partial(_named_audio, config, source, root) if is_heard else None,
        places=clip,
        more=folder_names,
    )


def _folders(config: MosPreferences, source: Source) -> Iterator[tuple[Path, Callable[[str], bool]]]:
    for _, file in source.lists():
        if is_pattern(file):
            folder = below(source.root, file) if source.root else file
            yield config.path(folder.rpartition("/")[0] or "."), is_list
    if source.format != "table" and source.root is not None:
        # names of audio files are brought too if they carry the split
        listing_reads = RATING_LAYOUTS.find(source.format).listing
        yield config.path(source.root), (lambda name: True) if listing_reads else is_list


def heard_sources(config: MosPreferences) -> list[str]:
    """Return the sources heard by a critic."""
    if not kinds_asked(config.critiques) or config.critiques is None:
        return []
    return list(config.critiques.datasets) or [source.name for source in config.sources]


def _named_audio(config: MosPreferences, source: Source, root: Root, store: Store) -> dict[str, Path | AudioFault]:
    """Return the audio file of every clip in a source's lists; of clips behind a URL a dry run brings some."""
    rows = (row for row in read_source(source, config.path) if isinstance(row, Rating))
    named = {row.file: row.audio for row in islice(rows, config.limit)}
    if url_of(root.folder):
        places = [places_of(root.folder, file, audio) for file, audio in named.items()]
        bring_first(places if store.looked is None else in_order([*places], lambda one: one[0])[:SAMPLE])
    return {file: clip_below(root, find_audio(root.folder, file, audio)) for file, audio in named.items()}
