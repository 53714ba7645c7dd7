"""Read TMHINT-QI (Chen and Tsao 2021, InQSS): Mandarin speech, noisy, clean and enhanced, a row per listener.

`raw_data.csv` has the header `idx,method,uttr,snr,noise,quality_score,intelligibility_score,file_name`. The name
holds all facts about a clip: `KLT_snr-2_white_TMHINT_b2_21_01` is method KLT, noise white at snr -2, speaker b2,
content 21_01; `clean_TMHINT_b2_24_03` has no noise. Its publisher's split is the audio's folder, `train` or `test`.
"""

from functools import partial
from pathlib import Path

from earmark.schemas.errors import InputError
from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import Note, shown
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

PARTS = {"": ("raw_data.csv",)}
PUBLISHED = ("idx", "method", "uttr", "snr", "noise", "quality_score", "intelligibility_score", "file_name")
COLUMNS = ("file_name", "quality_score")
SPLITS = ("train", "test")

find = partial(find_parts, folders=("", "TMHINT-QI", "TMHINTQI"), parts=PARTS)


def read(source: Source, root: Path) -> Imported:
    """Yield a rating for each row."""
    release = find(source, root)
    yield from release.notes
    folder = root / release.folder
    splits = _splits(folder)
    if splits is None:
        yield Note(f"{source.name}: no folders train and test beside raw_data.csv; the publisher's split is unknown")
    for file in release.lists:
        rows = headed_rows(file, COLUMNS, ("idx",), PUBLISHED)
        yield from parsed(file.name, rows, partial(_rating, source, file, str(root), release.folder, splits))


def listing(source: Source, root: Path) -> dict[str, str] | None:
    """Return each clip's split from the folders, beyond the list; part of the build key."""
    return _splits(root / find(source, root).folder)


def split_name(name: str) -> tuple[str, str, str, str | None]:
    """Parse system, speaker, content and condition from a clip's name."""
    made, _, said = name.partition("_TMHINT_")
    system, _, condition = made.partition("_")
    speaker, _, content = said.partition("_")
    if not (system and speaker and content):
        raise BadRow("bad_value", f"expected <method>_<snr>_<noise>_TMHINT_<speaker>_<content>, found '{shown(name)}'")
    return system, speaker, content, condition or None


def _rating(
    source: Source, file: ListFile, root: str, folder: str, splits: dict[str, str] | None, cells: Cells, line: int
) -> Rating:
    wav = clip(cells[0], root)
    bare = wav.removesuffix(".wav")
    origin = split_name(bare)
    value = score(cells[1], scale_of(source))
    listener = identifier(cells[2], "listener") if cells[2].strip() else f"row-{line}"
    split = audio = None
    if splits is not None:
        split = splits.get(bare)
        if split is None:
            raise BadRow("bad_split", f"expected {shown(wav)}.wav in train or test, found it in neither")
        audio = f"{folder}/{split}/{bare}.wav" if folder else f"{split}/{bare}.wav"
    return Rating(wav, value, file.name, line, split, None, *origin, listener, audio=audio)


def _splits(folder: Path) -> dict[str, str] | None:
    """Return the split of each clip by name, or None unless both folders of audio exist."""
    if not all((folder / split).is_dir() for split in SPLITS):
        return None
    splits: dict[str, str] = {}
    for split in SPLITS:
        try:
            splits.update((path.stem, split) for path in (folder / split).iterdir() if path.suffix == ".wav")
        except OSError as error:
            raise InputError(f"{folder.name}/{split}: cannot be read: {error.strerror}") from None
    return splits


LAYOUT = register("ratings.tmhint-qi")(published(find, read, listing, signature=r"idx,method,uttr,snr,noise,"))
