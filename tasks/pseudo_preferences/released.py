"""Build `pseudo-preferences` from existing labels in the layout of CMI-Pref-Pseudo, without asking a judge.

A generation is a clip of a prompt by a model, and a pair keeps the release's id. Rows sharing a prompt, its words or
reference, or a clip are in one split: the release's split for one of them, else a split drawn by the config.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from earmark.schemas.files import source_root
from earmark.schemas.places import below
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.pseudo_tables import BIAS, CLIPS, JUDGMENTS, LABELS, PAIRS
from earmark.schemas.reasons import AudioFault, Note, Reject
from earmark.schemas.tables import SPLITS, UNSPLIT, Table, split_ends
from earmark.tasks.audio.probe import SILENCE_DBFS
from earmark.tasks.importers.cmi_pref import Label, read_labels
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.table import table_file
from earmark.tasks.pipeline.grouping import group
from earmark.tasks.pipeline.inputs import Input
from earmark.tasks.pipeline.media import MEASURED, clip_below
from earmark.tasks.pipeline.references import Intake, measure_apart, references_of
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pseudo_preferences.clips import clip_rows, with_loudness
from earmark.tasks.pseudo_preferences.confounds import write_confounds
from earmark.tasks.store.parquet import record_schema, row_schema, write_rows
from earmark.tasks.store.sql import by_split, connect, create_table, query
from earmark.tasks.store.staging import Stage

LABELS_READ = record_schema(Label, "row int64")
MOVED = "labels moved out of the release's split, as they share a prompt, its words or reference, or a clip with others"
MEDIA = row_schema(f"file string, {MEASURED}, loudness_lufs float64")


def release_files(config: PseudoPreferences) -> list[ListFile]:
    """Return the release's files, by their names in the config."""
    assert config.released is not None
    return [table_file(config.path(below(config.released.root, name)), name) for name in config.released.files]


def read_release(config: PseudoPreferences) -> Iterator[Label | Reject | Note]:
    """Yield the content of the release's files, in order."""
    for file in release_files(config):
        yield from read_labels(file, str(config.clips_folder()))


def release_input(config: PseudoPreferences) -> Input:
    """Return the release's files with their audio as an input; each file is checked alone."""

    def labels(name: str, files: list[ListFile], read: Callable[[], Iterator[Label | Reject | Note]]) -> Input:
        root = source_root(config.clips_folder())
        return Input(
            name=name,
            files=lambda: [(file.name, file.path, root.folder) for file in files],
            read=read,
            root=root,
            clips=_clips_of,
            option="released.root",
        )

    files, folder = release_files(config), str(config.clips_folder())
    parts = tuple(labels(file.name, [file], partial(read_labels, file, folder)) for file in files)
    return replace(labels("released", files, partial(read_release, config)), parts=parts)


def _clips_of(row: Label) -> list[str]:
    return [name for name in (row.audio_a, row.audio_b, row.reference) if name]


def _places(config: PseudoPreferences, names: Iterator[str] | list[str]) -> dict[str, Path | AudioFault]:
    root = source_root(config.clips_folder())
    return {name: clip_below(root, name) for name in dict.fromkeys(names)}


@step("import", unit="released labels", label="import released labels")
def import_release(stage: Stage, config: PseudoPreferences) -> Done[Path]:
    """Read the release; reject unreadable and excluded rows.

    Raises:
        InputError: a file or one of its columns is missing.
    """
    intake = Intake(references_of(config, stage.store))
    rows = [(row, *one) for row, one in enumerate(intake.take(read_release(config), LABELS.name, config.limit))]
    path = stage.work / "released.parquet"
    write_rows(path, LABELS_READ, rows)
    return Done(path, intake.account())


@step("measure", label="")
def measure_release(stage: Stage, config: PseudoPreferences, labels: Path) -> Done[Path]:
    """Hash and measure every clip and reference, each once."""
    named = pq.read_table(labels, columns=["audio_a", "audio_b", "reference"])
    places = _places(config, [name for column in named.columns for name in column.to_pylist() if name])
    files = list(places.values())
    measured = with_loudness(stage, files, measure_apart(stage, config, "measure clips", files))
    media = stage.work / "media.parquet"
    write_rows(media, MEDIA, [(name, *each) for name, each in zip(places, measured, strict=True)])
    return Done(media)


@step("labels", unit="released labels", follows="import", table=LABELS.name, label="take released labels")
def take_released(stage: Stage, config: PseudoPreferences, labels: Path, media: Path) -> Done[None]:
    """Write the published tables; reject labels with unusable clips. Single passes stay unknown."""
    with connect(stage.work / "spill") as connection:
        for name, path, schema in (("read", labels, LABELS_READ), ("media", media, MEDIA)):
            connection.register(name, pq.read_table(path, schema=schema))
        connection.execute(query("text/plain_words"))
        connection.execute(query("text/voice_of"))
        limits = {"shortest_s": config.clips.shortest_s, "silence_dbfs": SILENCE_DBFS}
        connection.execute(query("pseudo_preferences/released_pairs"), limits)
        ties = connection.execute(query("pseudo_preferences/released_ties")).fetchall()
        numbers = group([keys for _, keys, _, _ in ties])
        groups = [(row, number, name, split) for number, (row, _, name, split) in zip(numbers, ties, strict=True)]
        create_table(connection, "groups", "row int64, number int64, name string, split string", groups)
        given = {"seed": config.seed, **split_ends(config.shares)}
        connection.execute(query("pseudo_preferences/released_splits"), given)
        moved = connection.execute(
            "SELECT read.split, taken.split, count(*) FROM taken JOIN read USING (row) "
            "WHERE read.split <> taken.split GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        stage.write_splits(CLIPS, lambda split: clip_rows(connection, config, split, "released_clips"))
        table: Table
        for table in (PAIRS, LABELS):
            columns = ", ".join(f'"{name}"' for name in table.schema.names)
            chosen = f"SELECT {columns} FROM taken WHERE split = $split ORDER BY pair_id"
            kept = stage.write_splits(table, by_split(connection, chosen))
        refused = connection.sql(
            "SELECT 'labels', pair_id, 'labels', reason, detail, source_file, line FROM released_pairs "
            "WHERE reason IS NOT NULL ORDER BY row"
        ).to_arrow_table()
        sources = dict(connection.execute("SELECT source_file, count(*) FROM read GROUP BY ALL").fetchall())
    for table, split in ((JUDGMENTS, SPLITS[0]), (BIAS, UNSPLIT)):
        stage.write(table, split, [table.schema.empty_table()])
    write_confounds(stage, config)
    where = ", ".join(f"{count:,} from {old} to {new}" for old, new, count in moved)
    notes = [f"{MOVED}: {where}"] if moved else []
    return Done(None, Account(kept + len(refused), kept, refused, sources=sources, notes=notes))
