"""Plan `mos-preferences` builds before any flow starts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from earmark.schemas.mos_preferences import CORPUS, MosPreferences
from earmark.schemas.places import below, url_of, without_place
from earmark.schemas.rating_sources import Source
from earmark.tasks.audio.probe import AudioFault
from earmark.tasks.importers.ratings import RATING_LAYOUTS, input_files, list_root, listing, read_source
from earmark.tasks.importers.rows import Note, Rating, Reject
from earmark.tasks.importers.table import is_pattern
from earmark.tasks.mos_preferences.audio import find_audio, places_of, root_of
from earmark.tasks.mos_preferences.critiquing import COMPARE, DESCRIBE, kinds_asked
from earmark.tasks.pipeline.fingerprint import file_digests, roots_digest
from earmark.tasks.pipeline.media import audio_digest, clip_below
from earmark.tasks.pipeline.mirror import bring, bring_first, bring_folder, is_list
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.pipeline.preflight import Peek
from earmark.tasks.pipeline.scratch import SAMPLE, in_order
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.versions import Store


def plan_build(config: MosPreferences, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build."""
    digest = partial(digest_inputs, config, store)
    return make_plan(CORPUS, config, store, digest, inputs=inputs, asks=[DESCRIBE, COMPARE])


def digest_inputs(config: MosPreferences, store: Store) -> dict[str, str]:
    """Return the SHA-256 of every list, and of its audio files if the build reads them."""
    digests: dict[str, str] = {}
    for source in config.sources:
        _bring_lists(config, source)
        lists = input_files(source, config.path)
        digests |= file_digests(lists)
        roots = [(path, list_root(source, config.path, path)) for _, path in lists]
        digests |= roots_digest(f"{source.name}/paths", roots, partial(read_source, source, config.path))
        if names := listing(source, config.path):
            digests[f"{source.name}/folders"] = digest_of(names)
        if config.audio != "none" or source.name in heard_sources(config):
            files = named_audio(config, source, store)
            digests[f"{source.name}/audio"] = audio_digest(store, f"hash audio of {source.name}", files)
    return digests


def peeks(config: MosPreferences) -> Iterator[Peek]:
    """Return the inputs read before a build starts: each table, or each published folder."""
    for source in config.sources:
        heard = config.audio != "none" or source.name in heard_sources(config)
        parts = [source.model_copy(update={"files": {split: file}}) for split, file in source.lists()]
        for part in parts or [source]:
            name = "/".join((source.name, *(without_place(file) for _, file in part.lists())))
            yield Peek(name, partial(_peek, config, part), partial(_clip, config, part) if heard else None)


def _peek(config: MosPreferences, source: Source) -> Iterator[Rating | Reject | Note]:
    _bring_lists(config, source)
    bring((path for _, path in input_files(source, config.path)), stream=True)
    yield from read_source(source, config.path)


def _clip(config: MosPreferences, source: Source, row: Rating) -> list[Path | AudioFault]:
    root = root_of(config, source)
    bring_first([places_of(root.folder, row.file, row.audio)])
    return [clip_below(root, find_audio(root.folder, row.file, row.audio))]


def _bring_lists(config: MosPreferences, source: Source) -> None:
    for _, file in source.lists():
        if is_pattern(file):
            folder = below(source.root, file) if source.root else file
            bring_folder(config.path(folder.rpartition("/")[0] or "."), is_list)
    if source.format != "table" and source.root is not None:
        # names of audio files are brought too if they carry the split
        bring_folder(
            config.path(source.root), (lambda name: True) if RATING_LAYOUTS.find(source.format).listing else is_list
        )


def heard_sources(config: MosPreferences) -> list[str]:
    """Return the sources heard by a critic."""
    if not kinds_asked(config.critiques) or config.critiques is None:
        return []
    return list(config.critiques.datasets) or [source.name for source in config.sources]


def named_audio(config: MosPreferences, source: Source, store: Store) -> dict[str, Path | AudioFault]:
    """Return the audio file of every clip in a source's lists; of clips behind a URL a dry run brings some."""
    rows = (row for row in read_source(source, config.path) if isinstance(row, Rating))
    named = {row.file: row.audio for row in islice(rows, config.limit)}
    root = root_of(config, source)
    if url_of(root.folder):
        places = [places_of(root.folder, file, audio) for file, audio in named.items()]
        bring_first(places if store.looked is None else in_order([*places], lambda one: one[0])[:SAMPLE])
    return {file: clip_below(root, find_audio(root.folder, file, audio)) for file, audio in named.items()}
