"""`music-prompts`: what a build is made from, and its first step, reading the track list and the caption sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import ConfigError, StoreError
from schemas.files import Root
from schemas.music_prompts import CORPUS, PROMPTS, TAGS, CaptionSet, MusicPrompts
from schemas.places import without_place
from tasks.audio.probe import AudioFault
from tasks.build.fingerprint import file_digests, roots_digest
from tasks.build.media import audio_digest, clip_below, media_index
from tasks.build.mirror import present
from tasks.build.plan import Plan, make_plan
from tasks.build.preflight import Peek, require_folder
from tasks.build.progress import Work, working
from tasks.build.rejects import came_in, rejects_table
from tasks.importers.captions import Caption, read_captions
from tasks.importers.jamendo import Tag, Track, read_tag_map, read_tracks
from tasks.importers.recalls import Recall, read_recalls
from tasks.importers.rows import Note, Reject
from tasks.music_prompts.asking import prompt_digests
from tasks.store.manifest import Parent, Step
from tasks.store.parquet import write_rows
from tasks.store.sql import connect, query
from tasks.store.staging import Stage
from tasks.store.versions import Store
from tasks.text.tag_words import Lexicon, everyday_tags, list_files, names_voices, vocal_tags, written

TRACKS_SCHEMA = pa.schema(
    [("row", pa.int64()), ("track_id", pa.string()), ("file", pa.string()), ("has_audio", pa.bool_())]
)
TRACK_TAGS_SCHEMA = pa.schema([("track", pa.int64()), ("category", pa.string()), ("tag", pa.string())])
CAPTIONS_SCHEMA = pa.schema(
    [
        ("pipeline", pa.string()),
        ("item", pa.string()),
        ("text", pa.string()),
        ("voices", pa.bool_()),
        ("source", pa.string()),
    ]
)
MENTIONS_SCHEMA = pa.schema([("category", pa.string()), ("tag", pa.string()), ("captions", pa.int64())])
RECALLS_SCHEMA = pa.schema(
    [("category", pa.string()), ("tag", pa.string()), ("asked", pa.int64()), ("detected", pa.int64())]
)
LEXICON_SCHEMA = pa.schema(
    [
        ("category", pa.string()),
        ("tag", pa.string()),
        ("written", pa.string()),
        ("vocal", pa.string()),
        ("everyday", pa.bool_()),
        ("excluded", pa.bool_()),
    ]
)
SAMPLED_SCHEMA = pa.schema(
    [
        ("category", pa.string()),
        ("tag", pa.string()),
        ("track_id", pa.string()),
        ("file", pa.string()),
        ("place", pa.int64()),
    ]
)

CaptionRow = tuple[str, str, str, bool, str]


def plan_build(config: MusicPrompts, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a version would be made from; says whether there is anything to build.

    Raises:
        ConfigError: the config excludes a tag of the wrong form, or keeps from another corpus.
        StoreError: a version that the config names is not in the store.
    """
    models = (config.synthesis.annotator, *([config.verification.annotator] if config.verification else []))
    return make_plan(
        CORPUS,
        config,
        store,
        partial(digest_inputs, config, store),
        inputs=inputs,
        prompts=prompt_digests(config),
        models=models,
        parents=parents(config, store),
    )


def parents(config: MusicPrompts, store: Store) -> tuple[Parent, ...]:
    """The versions that are read: caption sets, and the one whose triplets stay."""
    if config.keep is not None and config.keep.partition("@")[0] != CORPUS.name:
        raise ConfigError(f"keep: expected a version of {CORPUS.name}, such as {CORPUS.name}@v1, found '{config.keep}'")
    found = [store.find(spec) for spec in config.reads()]
    return tuple(Parent(corpus=v.corpus, version=v.name, digest=v.manifest.digest()) for v in dict.fromkeys(found))


def digest_inputs(config: MusicPrompts, store: Store) -> dict[str, str]:
    """SHA-256 of every list, of the reviewed words, and of the audio that a judge would hear."""
    named = {"tracks": config.tracks, "synonyms": config.synonyms, "recalls": config.recalls}
    named |= {f"captions {held.name}": held.file for held in config.captions}
    files = [(f"{what}: {without_place(name)}", config.path(name)) for what, name in named.items() if name]
    digests = file_digests([*files, *list_files()])
    tracks = config.path(config.tracks)
    root = config.path(config.verification.audio) if config.verification else tracks.parent
    digests |= roots_digest("paths", [(tracks, root)], partial(_read_tracks, config))
    if config.verification is None:
        return digests
    with working("hash audio") as work:
        names = [row["file"] for row in sample_tracks(config)]
        audio = dict(zip(names, verified_clips(config, names), strict=True))
        return {**digests, "audio": audio_digest(audio, media_index(store), work.advance)}


def peeks(config: MusicPrompts) -> Iterator[Peek]:
    """What is looked at before a build starts: each list, and the folder that a judge would hear."""
    lists = tuple(config.path(name) for name in (config.tracks, config.synonyms) if name)
    yield Peek(without_place(config.tracks), partial(_read_tracks, config), lists=lists)
    for held in config.captions:
        if held.file is not None:
            read = partial(_file_captions, config, held)
            yield Peek(without_place(held.file), read, lists=(config.path(held.file),))
    if config.recalls is not None:
        yield Peek(without_place(config.recalls), partial(_recalls, config), lists=(config.path(config.recalls),))
    if config.verification is not None:
        folder = config.path(config.verification.audio)
        yield Peek("verification.audio", partial(require_folder, "verification.audio", folder))


def verified_clips(config: MusicPrompts, names: Iterable[str]) -> list[Path | AudioFault]:
    """The files of tracks that a judge would hear, or why they are not opened."""
    assert config.verification is not None
    root = Root(config.path(config.verification.audio), config.verification.links)
    return [clip_below(root, root.folder / name) for name in names]


def import_lists(stage: Stage, config: MusicPrompts) -> Step:
    """Read the track list and the caption sets; what cannot be read is a reject.

    Leaves `track_tags`, `lexicon`, `captions`, `mentions`, `recalls` and `sampled` as Parquet files in `work`.

    Raises:
        InputError: a file is missing or is not what it should be.
    """
    rejects: list[tuple[str, Reject]] = []
    notes: list[str] = []
    with working("import tracks") as work:
        tracks = list(_watched(_kept(_read_tracks(config), TAGS.name, rejects, notes), work))
    _write_tracks(stage, config, tracks)
    lexicon = lexicon_of(config, tracks)
    write_rows(stage.work / "lexicon.parquet", LEXICON_SCHEMA, lexicon)
    with working("import captions") as work:
        captions, mentions = _captions(stage, config, [Tag(row[0], row[1]) for row in lexicon], work, rejects, notes)
    write_rows(stage.work / "captions.parquet", CAPTIONS_SCHEMA, captions)
    counted = [(tag.category, tag.name, count) for tag, count in sorted(mentions.items())]
    write_rows(stage.work / "mentions.parquet", MENTIONS_SCHEMA, counted)
    recalls = [(*row.tag, row.asked, row.detected) for row in _kept(_recalls(config), TAGS.name, rejects, notes)]
    write_rows(stage.work / "recalls.parquet", RECALLS_SCHEMA, recalls)
    files = {held.name: without_place(held.file) for held in config.captions if held.file}
    read = [*(track.source_file for track in tracks), *(files.get(row[0], row[0]) for row in captions)]
    read += [without_place(config.recalls or "")] * len(recalls)
    stage.write_rejects("import", rejects_table("import", rejects), came_in(read, rejects))
    kept = len(tracks) + len(captions) + len(recalls)
    return stage.record(
        Step(
            name="import",
            place=1,
            unit="list rows",
            stage="import",
            entered=kept + len(rejects),
            kept=kept,
            rejected=dict(Counter(reject.reason for _, reject in rejects)),
            notes=(*notes, f"{len(tracks):,} tracks with {len(lexicon)} tags, and {len(captions):,} captions"),
        )
    )


def lexicon_of(config: MusicPrompts, tracks: Iterable[Track]) -> list[tuple[Any, ...]]:
    """Every tag of the tracks, how it is written, and what the reviewed lists and the config say of it."""
    tags = sorted({tag for track in tracks for tag in track.tags})
    excluded = {Tag(category, name) for category, names in config.pool.exclude.items() for name in names}
    return [(*tag, written(tag), vocal_tags().get(tag), tag in everyday_tags(), tag in excluded) for tag in tags]


def sample_tracks(config: MusicPrompts) -> list[dict[str, Any]]:
    """For each popular tag, the tracks that a judge would be asked about: those with audio that come first by hash."""
    return _sampled(config, *_track_rows(config, [row for row in _read_tracks(config) if isinstance(row, Track)]))


def _sampled(config: MusicPrompts, rows: list[tuple[Any, ...]], tags: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    if config.verification is None:
        return []
    with connect(Path()) as connection:
        connection.register("tracks", _arrow(TRACKS_SCHEMA, rows))
        connection.register("track_tags", _arrow(TRACK_TAGS_SCHEMA, tags))
        given = {"seed": config.seed, "popularity": config.pool.popularity, "tracks": config.verification.tracks}
        sampled: list[dict[str, Any]] = (
            connection.sql(query("music_prompts/sampled"), params=given).to_arrow_table().to_pylist()
        )
    return sampled


def _read_tracks(config: MusicPrompts) -> Iterator[Track | Reject | Note]:
    synonyms = read_tag_map(config.path(config.synonyms), config.synonyms) if config.synonyms else None
    audio = config.path(config.verification.audio) if config.verification else None
    return islice(read_tracks(config.path(config.tracks), config.tracks, synonyms, audio), config.limit)


def _write_tracks(stage: Stage, config: MusicPrompts, tracks: list[Track]) -> None:
    rows, tags = _track_rows(config, tracks)
    write_rows(stage.work / "track_tags.parquet", TRACK_TAGS_SCHEMA, tags)
    cells = [tuple(row[name] for name in SAMPLED_SCHEMA.names) for row in _sampled(config, rows, tags)]
    write_rows(stage.work / "sampled.parquet", SAMPLED_SCHEMA, cells)


def _track_rows(config: MusicPrompts, tracks: list[Track]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    files, there = [track.path for track in tracks], set[str]()
    if held := config.verification:
        stems = [str(PurePosixPath(path).with_suffix("")) for path in files]
        files = [held.file.format(path=path, stem=stem) for path, stem in zip(files, stems, strict=True)]
        there = present(config.path(held.audio), files)
    named = enumerate(zip(tracks, files, strict=True))
    rows = [(number, track.track_id, file, file in there) for number, (track, file) in named]
    return rows, [(number, *tag) for number, track in enumerate(tracks) for tag in track.tags]


def _recalls(config: MusicPrompts) -> Iterator[Recall | Reject | Note]:
    return read_recalls(config.path(config.recalls), config.recalls) if config.recalls else iter(())


def _captions(
    stage: Stage,
    config: MusicPrompts,
    tags: list[Tag],
    work: Work,
    rejects: list[tuple[str, Reject]],
    notes: list[str],
) -> tuple[list[CaptionRow], Counter[Tag]]:
    """Every caption, and in how many each tag is named."""
    lexicon = Lexicon(tags)
    rows: list[CaptionRow] = []
    mentions: Counter[Tag] = Counter()
    for held in config.captions:
        found = _version_captions(stage.store, held) if held.version else _file_captions(config, held)
        for caption in _watched(_kept(islice(found, config.limit), PROMPTS.name, rejects, notes), work):
            voices = names_voices(caption.text) is not None
            rows.append((held.name, caption.item, caption.text, voices, caption.source or held.name))
            mentions.update(lexicon.named(caption.text))
    if not config.captions:
        notes.append("no caption sets: tags count no mentions, and the writer sees no examples")
    return rows, mentions


def _file_captions(config: MusicPrompts, held: CaptionSet) -> Iterator[Caption | Reject | Note]:
    assert held.file is not None
    return read_captions(config.path(held.file), held.file)


def _version_captions(store: Store, held: CaptionSet) -> Iterator[Caption]:
    """Captions of a version of `captions`, in the order of its table.

    Raises:
        StoreError: the version has no table `captions` with the columns clip_id, pipeline, segment, text and source.
    """
    assert held.version is not None
    version = store.find(held.version)
    wanted = ["clip_id", "pipeline", "segment", "text", "source"]
    line = 0
    for path in version.files("captions"):
        with pq.ParquetFile(path) as file:
            if missing := set(wanted) - set(file.schema_arrow.names):
                raise StoreError(f"{held.version}: expected the columns {', '.join(wanted)}, found no {min(missing)}")
            for batch in file.iter_batches(columns=wanted):
                for row in batch.to_pylist():
                    line += 1
                    if held.pipeline in (None, row["pipeline"]):
                        item = f"{row['clip_id']}/{row['pipeline']}/{row['segment']}"
                        yield Caption(item, row["text"], f"{version.corpus}@{version.name}", line, row["source"])


def _kept(found: Iterable[Any], table: str, rejects: list[tuple[str, Reject]], notes: list[str]) -> Iterator[Any]:
    for row in found:
        if isinstance(row, Reject):
            rejects.append((table, row))
        elif isinstance(row, Note):
            notes.append(row.text)
        else:
            yield row


def _watched(rows: Iterable[Any], work: Work) -> Iterator[Any]:
    for number, row in enumerate(rows, 1):
        yield row
        if number % 1000 == 0:
            work.advance(1000)


def _arrow(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
