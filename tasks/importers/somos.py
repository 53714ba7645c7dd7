"""SOMOS (Maniati et al. 2022): 200 speech synthesis systems and natural speech (system 000), the clean subset.

`training_files/split1/clean/{TRAINSET,VALIDSET,TESTSET}` hold one row a listener under the header
`systemId,utteranceId,choice,listenerId`, `{train,valid,test}_mos_list.txt` the means under `utteranceId,mean`.
Ratings are preferred. An id is `<sentence>_<system>`, split from the right: sentences hold `_` and `-` themselves.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from earmark.schemas.mos_preferences import Source
from earmark.tasks.importers.cells import BadRow, clip, identifier, score, shown
from earmark.tasks.importers.lists import Cells, ListFile, Parse, find_parts, headed_rows, published, to_ratings
from earmark.tasks.importers.rows import Imported, Rating

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
    """Yield ratings, or means where a split has none."""
    found = find(source, root)
    yield from found.notes
    for file in found.lists:
        rated = file.kind in RATING_SETS
        columns = RATINGS if rated else MEANS
        rows = headed_rows(file, columns, published=columns)
        yield from to_ratings(file, rows, _parser(source, file, root), item=columns.index("utteranceId"))


def _parser(source: Source, file: ListFile, root: Path) -> Parse:
    low, high = source.scale
    split, name, base = file.part, file.name, str(root)
    rated = file.kind in RATING_SETS
    at_id = 1 if rated else 0
    at_score = at_id + 1

    def parse(cells: Cells, line: int) -> Rating:
        wav = clip(cells[at_id], base)
        bare = wav.removesuffix(".wav")
        sentence, _, system = bare.rpartition("_")
        if not (sentence and system):
            raise BadRow("bad_id", f"expected <sentence>_<system>, found '{shown(wav)}'")
        value = score(cells[at_score], low, high)
        listener = _listener(cells, system) if rated else None
        audio = f"audios/{bare}.wav"
        return Rating(wav, value, name, line, split, None, system, None, sentence, None, listener, None, None, audio)

    return parse


def _listener(cells: Cells, system: str) -> str:
    if cells[0].strip().zfill(len(system)) != system:  # a spreadsheet writes 015 as 15
        raise BadRow("conflicting_system", f"expected the system of the clip, {system}, found '{shown(cells[0])}'")
    return identifier(cells[3], "listener")


LAYOUT = published(find, read)
