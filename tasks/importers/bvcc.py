"""Read BVCC, the corpus of the VoiceMOS Challenge 2022's main track (Cooper and Yamagishi 2021, 2022).

`main/DATA/sets` holds, without headers, `{train,val,test}_mos_list.txt` (`sys64e2f-utt491a78a.wav,4.0`) and the
ratings behind them in `TRAINSET`, `DEVSET` and `TESTSET` (`system,wav,score,ignored,listener`, the listener's id
being the third `_` field of the last). The ratings are preferred. The lists publish no spoken text:
`transcriptions_clustered.csv` of UTMOS (Saeki et al. 2022) gives a cluster of equal texts, -1 where there is none.
"""

from functools import partial
from pathlib import Path

from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import register
from earmark.tasks.importers.cells import BadRow, clip, identifier, score
from earmark.tasks.importers.lists import (
    Cells,
    Found,
    Imported,
    ListFile,
    Rating,
    bare_rows,
    exists,
    find_parts,
    headed_rows,
    list_file,
    parsed,
    published,
    scale_of,
)

FOLDERS = ("main/DATA/sets", "DATA/sets", "sets", "")
PARTS = {
    "train": ("TRAINSET", "train_mos_list.txt"),
    "validation": ("DEVSET", "val_mos_list.txt"),
    "test": ("TESTSET", "test_mos_list.txt"),
}
RATING_SETS = ("TRAINSET", "DEVSET", "TESTSET")
TEXTS = "transcriptions_clustered.csv"


def find(source: Source, root: Path) -> Found:
    """Find the lists, and the clusters of texts if present."""
    found = find_parts(source, root, FOLDERS, PARTS)
    places = dict.fromkeys(("", found.folder, "main/DATA", "DATA", "main"))
    for place in places:
        below = f"{place}/{TEXTS}" if place else TEXTS
        if exists(root / below):
            return found._replace(lists=(*found.lists, list_file(source, root, below, "texts")))
    note = Note(f"{source.name}: {TEXTS} is not in {source.root}; what the clips say stays unknown")
    return found._replace(notes=(*found.notes, note))


def read(source: Source, root: Path) -> Imported:
    """Yield ratings, or means for a split without ratings."""
    release = find(source, root)
    yield from release.notes
    texts: dict[str, str] = {}
    for file in release.lists:
        if file.part == "texts":
            texts, unread = _read_texts(file)
            if unread:
                yield Note(f"{file.name}: {unread} lines could not be read; what those clips say stays unknown")
    audio = f"{release.folder.removesuffix('sets')}wav/" if release.folder else ""
    for file in release.lists:
        if file.part == "texts":
            continue
        rated = file.kind in RATING_SETS
        parse = partial(_rating, source, file, str(root), texts, audio)
        yield from parsed(file.name, bare_rows(file, 5 if rated else 2), parse, item=1 if rated else 0)


def _rating(
    source: Source, file: ListFile, root: str, texts: dict[str, str], audio: str, cells: Cells, line: int
) -> Rating:
    rated = file.kind in RATING_SETS
    wav_cell, score_cell = cells[1:3] if rated else cells
    wav = clip(wav_cell, root)
    system, dash, _ = wav.partition("-")
    if not system or not dash:
        raise BadRow("bad_value", f"expected <system>-<utterance>.wav, found '{shown(wav)}'")
    value = score(score_cell, scale_of(source))
    listener = _listener(cells, system) if rated else None
    content = texts.get(wav.removesuffix(".wav"))
    place = audio + wav if audio else None
    return Rating(
        wav, value, file.name, line, file.part, None, system, None, content, listener_id=listener, audio=place
    )


def _listener(cells: Cells, system: str) -> str:
    if cells[0].strip() != system:
        raise BadRow("conflicting_facts", f"expected the system of the clip, {system}, found '{shown(cells[0])}'")
    parts = cells[4].split("_", 3)
    return identifier(parts[2] if len(parts) > 2 else cells[4], "listener")


def _read_texts(file: ListFile) -> tuple[dict[str, str], int]:
    """Return the cluster of each clip, and the number of unreadable lines."""
    texts: dict[str, str] = {}
    unread = 0
    for _, cells in headed_rows(file, ("wav_name", "cluster")):
        if isinstance(cells, Reject | Note):
            unread += isinstance(cells, Reject)
            continue
        row: Cells = cells
        wav, cluster = (cell.strip() for cell in row)
        if cluster not in ("", "-1"):
            texts[wav.removesuffix(".wav")] = cluster
    return texts, unread


LAYOUT = register("ratings.bvcc")(
    published(find, read, signature=r"(sys[0-9a-f]{5},)?sys[0-9a-f]{5}-utt[0-9a-f]{7}(\.wav)?,")
)
