"""Plan `human-preferences` builds and import their votes and ratings; no Prefect."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.files import Root, source_root
from earmark.schemas.human_preferences import CORPUS, HumanPreferences, VoteSource
from earmark.schemas.places import below, without_place
from earmark.schemas.reasons import Note, Reject
from earmark.tasks.importers.cells import one_spelling
from earmark.tasks.importers.lists import ListFile, require_below
from earmark.tasks.importers.rated_music import MusicRating
from earmark.tasks.importers.table import kind_of
from earmark.tasks.importers.votes import VOTE_LAYOUTS, Vote, VoteLayout
from earmark.tasks.pipeline.inputs import Input, distinct, file_digests, salt_input
from earmark.tasks.pipeline.mirror import is_list
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.references import PersonalIntake, references_of
from earmark.tasks.pipeline.step import Done, step
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.parquet import record_schema, write_rows
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

VOTES_READ = record_schema(Vote, "row int64, source string")
RATINGS_READ = record_schema(MusicRating, "row int64, source string")
LOCAL_BATTLES = (".json", ".json.gz")


def plan_build(config: HumanPreferences, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build."""
    return make_plan(CORPUS, config, store, inputs=inputs)


def inputs(config: HumanPreferences) -> Iterator[Input]:
    """Yield the salt, and each source's exports with their audio if the build reads it; each file is checked alone."""
    yield salt_input()
    for source in config.sources:
        parts = (source.model_copy(update={"files": (written,)}) for written in source.files)
        yield replace(_exports(config, source), name=source.name, parts=tuple(_exports(config, part) for part in parts))


def _is_battle(name: str) -> bool:
    return name.lower().endswith(LOCAL_BATTLES)


def _exports(config: HumanPreferences, source: VoteSource) -> Input:
    root = root_of(config, source)
    folders = [(config.path(source.root), is_list)] if layout_of(source).find else []
    battles = [(_path(config, source, written), _is_battle) for written in source.files]
    return Input(
        name="/".join((source.name, *map(without_place, source.files))),
        key=f"{source.name}/",
        folders=(*folders, *battles),
        files=lambda: [(file.name, file.path, root.folder) for file in input_files(config, source)],
        digest_files=partial(_files_digests, config, source),
        read=partial(read_source, config, source),
        root=root,
        clips=_clips_of if config.audio != "none" and source.clips == "here" else None,
    )


def layout_of(source: VoteSource) -> VoteLayout:
    """Return the layout of a source."""
    return VOTE_LAYOUTS.find(source.format)


def split_rule(source: VoteSource) -> str:
    """Return the rule placing a source's rows in splits."""
    return source.split or layout_of(source).split


def drops_ties(source: VoteSource) -> bool:
    """Return whether votes for neither clip are rejects."""
    return source.ties == "drop" if source.ties else layout_of(source).drops_ties


def drops_bad(source: VoteSource) -> bool:
    """Return whether votes calling both clips bad are rejects."""
    return source.ties == "drop-bad" or drops_ties(source)


def _path(config: HumanPreferences, source: VoteSource, written: str) -> Path:
    return config.path(below(source.root, written))


def _files_digests(config: HumanPreferences, source: VoteSource) -> dict[str, str]:
    """Return the SHA-256 of each file; one for all files of a folder, since they may be named after single votes."""
    if layout_of(source).find:
        return file_digests((file.name, file.path) for file in input_files(config, source))
    digests: list[tuple[str, str]] = []
    for written in source.files:
        path = _path(config, source, written)
        files = file_digests((file.name, file.path) for file in _files_of(source, written, path))
        digests += [(f"{source.name}/{without_place(written)}", digest_of(files))] if path.is_dir() else files.items()
    return distinct(digests)


def input_files(config: HumanPreferences, source: VoteSource) -> list[ListFile]:
    """List every file of a source; a folder stands for the `.json` files in it, by name.

    Raises:
        InputError: the config names none, a folder holds none, or an ending is unsupported.
    """
    if find := layout_of(source).find:
        files = find(source.name, config.path(source.root))
        for file in files:
            require_below(source_root(config.path(source.root)), file.path, file.name)
        return files
    if not source.files:
        raise InputError(f"source '{source.name}': expected files, found none")
    places = ((written, _path(config, source, written)) for written in source.files)
    return [file for written, path in places for file in _files_of(source, written, path)]


def _files_of(source: VoteSource, written: str, path: Path) -> list[ListFile]:
    if not path.is_dir():
        return [_list_file(source, written, path)]
    inside = sorted(one for one in path.iterdir() if _is_battle(one.name))
    if not inside:
        raise InputError(f"{source.name}: expected .json files in {written}, found none")
    files = [_list_file(source, str(PurePosixPath(written) / one.name), one) for one in inside]
    for file in files:
        require_below(source_root(path), file.path, file.name)
    return files


def _list_file(source: VoteSource, written: str, path: Path) -> ListFile:
    name = f"{source.name}/{without_place(written)}"
    return ListFile(path, name, "", "json" if layout_of(source).documents else kind_of(source.name, written))


def read_source(config: HumanPreferences, source: VoteSource) -> Iterator[Vote | MusicRating | Reject | Note]:
    """Yield the content of a source's files, in order."""
    rows = layout_of(source).read(source, input_files(config, source), str(root_of(config, source).folder))
    yield from one_spelling(rows, ("file", "audio_a", "audio_b", "reference"))


def root_of(config: HumanPreferences, source: VoteSource) -> Root:
    """Return the folder of a source's clips."""
    return source_root(config.path(source.audio_root or source.root))


def _clips_of(row: Vote | MusicRating) -> list[str]:
    named = (row.file,) if isinstance(row, MusicRating) else (row.audio_a, row.audio_b, row.reference)
    return [name for name in named if name]


class Exports(NamedTuple):
    """The imported rows, with people's ids hashed."""

    votes: Path  # Parquet, columns `VOTES_READ`
    ratings: Path  # Parquet, columns `RATINGS_READ`


@step("import", label="")
def import_sources(stage: Stage, config: HumanPreferences) -> Done[Exports]:
    """Read all exports of votes and all sets of rated clips.

    Raises:
        InputError: a file or one of its columns is missing.
    """
    references = references_of(config, stage.store)
    intakes = {kind: PersonalIntake(references, stage.store) for kind in ("votes", "ratings")}
    rows: dict[str, list[tuple[Any, ...]]] = {"votes": [], "ratings": []}
    for source in config.sources:
        kind = "ratings" if layout_of(source).rated else "votes"
        with working(f"import {source.name}"):
            taken = intakes[kind].take_from(source.name, read_source(config, source), kind, config.limit)
            rows[kind] += ((source.name, *row) for row in taken)
    exports = Exports(stage.work / "votes.parquet", stage.work / "ratings.parquet")
    write_rows(exports.votes, VOTES_READ, [(number, *row) for number, row in enumerate(rows["votes"])])
    write_rows(exports.ratings, RATINGS_READ, [(number, *row) for number, row in enumerate(rows["ratings"])])
    votes = replace(intakes["votes"].account(), name="import-votes", unit="votes", stage="import")
    ratings = replace(intakes["ratings"].account(), name="import-ratings", unit="rated clips", stage="import")
    rated = any(layout_of(source).rated for source in config.sources)
    return Done(exports, votes, *([ratings] if rated else []))
