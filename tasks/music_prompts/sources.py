"""Plan `music-prompts` builds, and import the track list and the caption sets."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.files import source_root
from earmark.schemas.music_prompts import CORPUS, PROMPTS, TAGS, CaptionSet, MusicPrompts
from earmark.schemas.places import without_place
from earmark.schemas.reasons import AudioFault, Note, Reject
from earmark.schemas.toml import nearest
from earmark.schemas.tracks import Tag, Track, file_of
from earmark.tasks.importers.caption_sets import ListedCaption, read_captions
from earmark.tasks.importers.tracks import Recall, TagMap, read_recalls, read_tag_map, read_tracks
from earmark.tasks.music_prompts.asking import VERIFY, WRITE
from earmark.tasks.pipeline.inputs import Input, file_digests, require_folder
from earmark.tasks.pipeline.media import clip_below
from earmark.tasks.pipeline.mirror import present
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.pipeline.progress import Work, working
from earmark.tasks.pipeline.references import Intake, references_of
from earmark.tasks.pipeline.step import Done, step
from earmark.tasks.store.parquet import row_schema, tuples_of, write_rows
from earmark.tasks.store.sql import connect, create_table, query
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store
from earmark.tasks.text.tag_words import Lexicon, everyday_tags, list_files, runs_together, written
from earmark.tasks.text.voices import calls_for_voices, names_voices

TRACKS_COLUMNS = "row int64, track_id string, file string, has_audio bool"
TRACK_TAGS_COLUMNS = "track int64, category string, tag string"
CAPTIONS_SCHEMA = row_schema("pipeline string, item string, text string, voices bool, source string")
MENTIONS_SCHEMA = row_schema("category string, tag string, captions int64")
RECALLS_SCHEMA = row_schema(
    "category string, tag string, asked int64, detected int64, untagged_asked int64, untagged_detected int64"
)
LEXICON_SCHEMA = row_schema(
    "category string, tag string, written string, vocal string, everyday bool, excluded bool, run_together bool"
)
SAMPLED_SCHEMA = row_schema("category string, tag string, track_id string, file string, place int64, carried bool")

CaptionRow = tuple[str, str, str, bool, str]


class Lists(NamedTuple):
    """The imported inputs, each a Parquet file; `recalls` come from elsewhere, or from this build."""

    track_tags: Path
    lexicon: Path
    captions: Path
    mentions: Path
    recalls: Path
    sampled: Path


def plan_build(config: MusicPrompts, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build.

    Raises:
        ConfigError: the config keeps from another corpus.
        StoreError: a version in the config is not in the store.
    """
    if config.keep is not None and config.keep.partition("@")[0] != CORPUS.name:
        raise ConfigError(f"keep: expected a version of {CORPUS.name}, such as {CORPUS.name}@v1, found '{config.keep}'")
    return make_plan(CORPUS, config, store, inputs=inputs, asks=[VERIFY, WRITE])


def inputs(config: MusicPrompts) -> Iterator[Input]:
    """Yield the tracks with the audio for a judge, the captions, the recalls and the reviewed words."""
    judge, listed = config.verification, config.path(config.tracks)
    audio = config.path(judge.place[0]) if judge else None
    root = audio or listed.parent
    tracks = [(f"tracks: {without_place(config.tracks)}", listed, root)]
    if config.synonyms:
        tracks.append((f"synonyms: {without_place(config.synonyms)}", config.path(config.synonyms), root))

    def judged(store: Store) -> dict[str, Path | AudioFault]:
        rows = [row for row in _read_tracks(config) if isinstance(row, Track)]
        names = [row["file"] for row in _sampled(config, *_track_rows(config, rows))]
        return dict(zip(names, verified_clips(config, names), strict=True))

    read = partial(_read_tracks, config)
    yield Input(name=without_place(config.tracks), files=lambda: tracks, read=read, audio=judged if judge else None)
    for one in config.captions:
        if one.file is not None:
            yield _list_input(config, f"captions {one.name}", one.file, partial(_file_captions, config, one))
    if config.recalls is not None:
        yield _list_input(config, "recalls", config.recalls, partial(_recalls, config))
    yield Input(name="word lists", more=lambda store: file_digests(list_files()))
    if audio is not None:
        yield Input(name="verification.audio", read=partial(require_folder, "verification.audio", audio))


def _list_input(config: MusicPrompts, what: str, written: str, read: Callable[[], Iterable[Any]]) -> Input:
    name, path = without_place(written), config.path(written)
    return Input(name=name, files=lambda: [(f"{what}: {name}", path, None)], read=read)


def verified_clips(config: MusicPrompts, names: Iterable[str]) -> list[Path | AudioFault]:
    """Return the files of the judge's tracks, or the faults of unreadable ones."""
    assert config.verification is not None
    root = source_root(config.path(config.verification.place[0]))
    return [clip_below(root, name) for name in names]


@step("import", unit="list rows", label="")
def import_lists(stage: Stage, config: MusicPrompts) -> Done[Lists]:
    """Read the track list and the caption sets, and count the captions naming each tag.

    Raises:
        ConfigError: the config excludes a tag that no track has.
        InputError: a file is missing or invalid.
    """
    intake = Intake(references_of(config, stage.store))
    lists = Lists(*(stage.work / f"{name}.parquet" for name in Lists._fields))
    with working("import tracks") as work:
        tracks = list(_watched(intake.take(_read_tracks(config), TAGS.name), work))
    rows, tags = _track_rows(config, tracks)
    write_rows(lists.track_tags, row_schema(TRACK_TAGS_COLUMNS), tags)
    sampled = [tuple(row[name] for name in SAMPLED_SCHEMA.names) for row in _sampled(config, rows, tags)]
    write_rows(lists.sampled, SAMPLED_SCHEMA, sampled)
    lexicon = lexicon_of(config, tracks)
    write_rows(lists.lexicon, LEXICON_SCHEMA, lexicon)
    with working("import captions") as work:
        captions, mentions = _captions(stage, config, [Tag(row[0], row[1]) for row in lexicon], work, intake)
    write_rows(lists.captions, CAPTIONS_SCHEMA, captions)
    counted = [(tag.category, tag.name, count) for tag, count in sorted(mentions.items())]
    write_rows(lists.mentions, MENTIONS_SCHEMA, counted)
    decided = _recalls(config, {Tag(row[0], row[1]) for row in lexicon})
    recalls = [(*row.tag, row.asked, row.detected, None, None) for row in intake.take(decided, TAGS.name)]
    write_rows(lists.recalls, RECALLS_SCHEMA, recalls)
    intake.notes.append(f"{len(tracks):,} tracks with {len(lexicon)} tags, and {len(captions):,} captions")
    return Done(lists, intake.account())


def lexicon_of(config: MusicPrompts, tracks: Iterable[Track]) -> list[tuple[Any, ...]]:
    """Return every tag of the tracks, its written form, and its marks in the reviewed lists and the config."""
    tags = sorted({tag for track in tracks for tag in track.tags})
    excluded = {Tag(category, name) for category, names in config.pool.exclude.items() for name in names}
    if (unknown := sorted(excluded.difference(tags))) and config.limit is None:  # a limit leaves tags out
        category, name = unknown[0]
        hint = nearest(name, [tag.name for tag in tags if tag.category == category])
        raise ConfigError(f"pool.exclude: expected tags of the list, found '{name}' of {category}{hint}")
    return [
        (*tag, written(tag), calls_for_voices(tag), tag in everyday_tags(), tag in excluded, runs_together(tag))
        for tag in tags
    ]


def _sampled(config: MusicPrompts, rows: list[tuple[Any, ...]], tags: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Sample tracks for each popular tag for the judge: the first with audio by hash."""
    if config.verification is None:
        return []
    with connect(Path()) as connection:
        create_table(connection, "tracks", TRACKS_COLUMNS, rows)
        create_table(connection, "track_tags", TRACK_TAGS_COLUMNS, tags)
        judge = config.verification
        limits = {"popularity": config.pool.popularity, "tracks": judge.tracks, "untagged": judge.untagged}
        sampled = connection.sql(query("music_prompts/sampled"), params={"seed": config.seed, **limits})
        rows_of_tracks: list[dict[str, Any]] = sampled.to_arrow_table().to_pylist()
    return rows_of_tracks


def _read_tracks(config: MusicPrompts) -> Iterator[Track | Reject | Note]:
    audio = config.path(config.verification.place[0]) if config.verification else None
    return islice(read_tracks(config.path(config.tracks), config.tracks, _synonyms(config), audio), config.limit)


def _synonyms(config: MusicPrompts) -> TagMap | None:
    return read_tag_map(config.path(config.synonyms), config.synonyms) if config.synonyms else None


def _track_rows(config: MusicPrompts, tracks: list[Track]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    files, there = [track.path for track in tracks], set[str]()
    if judge := config.verification:
        files = [file_of(judge.place[1], path) for path in files]
        there = present(config.path(judge.place[0]), files)
    named = enumerate(zip(tracks, files, strict=True))
    rows = [(number, track.track_id, file, file in there) for number, (track, file) in named]
    return rows, [(number, *tag) for number, track in enumerate(tracks) for tag in track.tags]


def _recalls(config: MusicPrompts, tags: Collection[Tag] | None = None) -> Iterator[Recall | Reject | Note]:
    if config.recalls is None:
        return iter(())
    return read_recalls(config.path(config.recalls), config.recalls, _synonyms(config), tags)


def _captions(
    stage: Stage, config: MusicPrompts, tags: list[Tag], work: Work, intake: Intake
) -> tuple[list[CaptionRow], Counter[Tag]]:
    lexicon = Lexicon(tags)
    rows: list[CaptionRow] = []
    mentions: Counter[Tag] = Counter()
    for one in config.captions:
        entries = _version_captions(stage.store, one) if one.version else _file_captions(config, one)
        for caption in _watched(intake.take(islice(entries, config.limit), PROMPTS.name), work):
            voices = names_voices(caption.text) is not None
            rows.append((one.name, caption.item, caption.text, voices, caption.source or one.name))
            mentions.update(lexicon.named(caption.text))
    if not config.captions:
        intake.notes.append("no caption sets: tags count no mentions, and the writer sees no examples")
    return rows, mentions


def _file_captions(config: MusicPrompts, captions: CaptionSet) -> Iterator[ListedCaption | Reject | Note]:
    assert captions.file is not None
    return read_captions(config.path(captions.file), captions.file)


def _version_captions(store: Store, captions: CaptionSet) -> Iterator[ListedCaption]:
    """Yield captions of a version of `captions`, in the order of its table."""
    assert captions.version is not None
    version = store.find(captions.version)
    wanted = ["clip_id", "pipeline", "segment", "text", "source"]
    line = 0
    for path in version.files("captions"):
        with pq.ParquetFile(path) as file:
            if missing := set(wanted) - set(file.schema_arrow.names):
                raise StoreError(
                    f"{captions.version}: expected the columns {', '.join(wanted)}, found no {min(missing)}"
                )
            for batch in file.iter_batches(columns=wanted):
                for clip_id, pipeline, segment, text, source in tuples_of(batch, *wanted):
                    line += 1
                    if captions.pipeline in (None, pipeline):
                        item = f"{clip_id}/{pipeline}/{segment}"
                        yield ListedCaption(item, text, f"{version.corpus}@{version.name}", line, source)


def _watched(rows: Iterable[Any], work: Work) -> Iterator[Any]:
    for number, row in enumerate(rows, 1):
        yield row
        if number % 1000 == 0:
            work.advance(1000)
