"""Read the NISQA corpus (Mittag et al. 2021): simulated and live calls with a mean per file and the ratings' deviation.

`NISQA_Corpus/NISQA_corpus_file.csv` holds all databases, `<DB>/<DB>_file.csv` one; header `db,con,file,…,mos,…`.
The condition `con`, written as a whole number or a float, is the system; the reference file is the content; the
split stands in the database's name (`NISQA_TRAIN_SIM`, `NISQA_VAL_LIVE`, `NISQA_TEST_P501`). Means are comparable
only within a database, so the database is the subset.
"""

from functools import partial
from pathlib import Path

from earmark.schemas.errors import InputError
from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import shown
from earmark.schemas.registry import register
from earmark.tasks.importers.cells import BadRow, clip, deviation, identifier, score, votes
from earmark.tasks.importers.lists import (
    Cells,
    Found,
    Imported,
    ListFile,
    Rating,
    exists,
    headed_rows,
    list_file,
    parsed,
    published,
    require_folder,
    scale_of,
)

ALL = "NISQA_corpus_file.csv"
FOLDERS = ("NISQA_Corpus", "")
COLUMNS = ("filename_deg", "mos", "db", "con")
OPTIONAL = ("filename_ref", "votes", "mos_std", "filepath_deg")
SPLITS = {"TRAIN": "train", "VAL": "validation", "TEST": "test"}


def find(source: Source, root: Path) -> Found:
    """Find the list of all databases, else a list per database."""
    require_folder(source, root)
    for folder in FOLDERS:
        below = f"{folder}/{ALL}" if folder else ALL
        if exists(root / below):
            return Found((list_file(source, root, below),), folder=folder)
    for folder in FOLDERS:
        paths = sorted((root / folder).glob("*/*_file.csv"))
        lists = [
            list_file(source, root, p.relative_to(root).as_posix())
            for p in paths
            if p.name == f"{p.parent.name}_file.csv"
        ]
        if lists:
            return Found(tuple(lists), folder=folder)
    raise InputError(f"{source.name}: expected {ALL} or <DB>/<DB>_file.csv in {source.root}, found none")


def read(source: Source, root: Path) -> Imported:
    """Yield a mean per file."""
    release = find(source, root)
    yield from release.notes
    for file in release.lists:
        parse = partial(_mean, source, file, str(root), release.folder)
        yield from parsed(file.name, headed_rows(file, COLUMNS, OPTIONAL), parse)


def _mean(source: Source, file: ListFile, root: str, folder: str, cells: Cells, line: int) -> Rating:
    degraded, mos, db, con, reference, count, spread, path = cells
    db = identifier(db, "subset")
    wav = clip(path if path.strip() else f"{db}/deg/{identifier(degraded, 'file')}", root)
    condition = _condition(con)
    return Rating(
        file=wav,
        score=score(mos, scale_of(source, db)),
        source_file=file.name,
        line=line,
        split=_split(db),
        subset=db,
        system_id=condition,
        content_id=identifier(reference, "content") if reference.strip() else None,
        condition_id=condition,
        votes=votes(count) if count.strip() else None,
        mos_std=deviation(spread) if spread.strip() else None,
        audio=f"{folder}/{wav}" if folder else None,  # paths in the lists start from the corpus folder
    )


def _condition(cell: str) -> str:
    text = identifier(cell, "system")
    whole, dot, rest = text.partition(".")
    return whole if dot and whole.isdecimal() and not rest.strip("0") else text


def _split(db: str) -> str:
    for part in db.upper().split("_"):
        if part in SPLITS:
            return SPLITS[part]
    raise BadRow("bad_split", f"expected TRAIN, VAL or TEST in the database's name, found '{shown(db)}'")


LAYOUT = register("ratings.nisqa")(published(find, read, signature=r"db,con,file,"))
