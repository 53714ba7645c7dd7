"""Read SOMOS (Maniati et al. 2022): 200 speech synthesis systems and natural speech (system 000), the clean subset.

`training_files/split1/clean/{TRAINSET,VALIDSET,TESTSET}` hold one row a listener under the header
`systemId,utteranceId,choice,listenerId`, `{train,valid,test}_mos_list.txt` the means under `utteranceId,mean`.
Ratings are preferred. An id is `<sentence>_<system>`, split from the right: sentences hold `_` and `-` themselves.
"""

from functools import partial
from pathlib import Path

from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import shown
from earmark.schemas.registry import register
from earmark.tasks.importers.cells import BadRow, clip, identifier, score
from earmark.tasks.importers.lists import (
    Cells,
    Imported,
    ListFile,
    Rating,
    find_parts,
    headed_rows,
    parsed,
    published,
    scale_of,
)

PARTS = {
    "train": ("TRAINSET", "train_mos_list.txt"),
    "validation": ("VALIDSET", "valid_mos_list.txt"),
    "test": ("TESTSET", "test_mos_list.txt"),
}
RATING_SETS = ("TRAINSET", "VALIDSET", "TESTSET")
RATINGS = ("systemId", "utteranceId", "choice", "listenerId")
MEANS = ("utteranceId", "mean")

find = partial(find_parts, folders=("training_files/split1/clean", "split1/clean", "clean", ""), parts=PARTS)


def read(source: Source, root: Path) -> Imported:
    """Yield ratings, or means for a split without ratings."""
    release = find(source, root)
    yield from release.notes
    for file in release.lists:
        rated = file.kind in RATING_SETS
        columns = RATINGS if rated else MEANS
        rows = headed_rows(file, columns, published=columns)
        parse = partial(_rating, source, file, str(root), rated)
        yield from parsed(file.name, rows, parse, item=columns.index("utteranceId"))


def _rating(source: Source, file: ListFile, root: str, rated: bool, cells: Cells, line: int) -> Rating:
    utterance, cell = cells[1:3] if rated else cells
    wav = clip(utterance, root)
    bare = wav.removesuffix(".wav")
    sentence, _, system = bare.rpartition("_")
    if not (sentence and system):
        raise BadRow("bad_value", f"expected <sentence>_<system>, found '{shown(wav)}'")
    value = score(cell, scale_of(source))
    listener = _listener(cells, system) if rated else None
    audio = f"audios/{bare}.wav"
    return Rating(
        wav, value, file.name, line, file.part, None, system, None, sentence, listener_id=listener, audio=audio
    )


def _listener(cells: Cells, system: str) -> str:
    if cells[0].strip().zfill(len(system)) != system:  # a spreadsheet writes 015 as 15
        raise BadRow("conflicting_facts", f"expected the system of the clip, {system}, found '{shown(cells[0])}'")
    return identifier(cells[3], "listener")


LAYOUT = register("ratings.somos")(
    published(find, read, signature=r"systemId,utteranceId,choice,listenerId|utteranceId,mean")
)
