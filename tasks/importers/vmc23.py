"""Read VoiceMOS Challenge 2023 (Cooper et al. 2023): three tracks, means without a header, names without an ending.

Track 1, French speech synthesis: `VoiceMOS2023Track1-A-AD_test_0026` (system A, content AD_test_0026). Its two voices,
NEB and AD, are the hub and the spoke task of the Blizzard Challenge 2023, each a listening test of its own.
Track 2, singing voice conversion: `VoiceMOS2023Track2-B01-SF1-CDF1-30001` (system, source, target, utterance).
Track 3, noisy and enhanced Mandarin: `VoiceMOS2023Track3-CMGAN_snr-2_babble_TMHINT_b2_21_02`, names as in TMHINT-QI;
`Track3-TMHINT_…` are clean references, left out by the benchmark (1,960 of 2,215 rows remain).
"""

import re
from functools import partial
from pathlib import Path

from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import shown
from earmark.schemas.registry import register
from earmark.tasks.importers.cells import BadRow, clip, score
from earmark.tasks.importers.lists import (
    Cells,
    Imported,
    ListFile,
    Rating,
    bare_rows,
    find_parts,
    parsed,
    published,
    scale_of,
)
from earmark.tasks.importers.tmhint_qi import split_name

PARTS = {track: (f"{track}_answer.txt",) for track in ("track1", "track2", "track3")}
NAMES = {
    "track1": ("(?P<system>[^-]+)-(?P<content>(?=.)(?P<speaker>[^_]*).*)", "<system>-<content> after the track"),
    "track2": ("(?P<system>[^-]+)-(?P<speaker>.+)-(?P<content>[^-]+)", "<system>-<source>-<target>-<utterance>"),
}

find = partial(find_parts, folders=("", "DATA", "DATA/sets"), parts=PARTS)


def read(source: Source, root: Path) -> Imported:
    """Yield the means of all tracks; treat each track, and each voice of track 1, as a separate listening test."""
    release = find(source, root)
    yield from release.notes
    for file in release.lists:
        yield from parsed(file.name, bare_rows(file, 2), partial(_mean, source, file, str(root)))


def _mean(source: Source, file: ListFile, root: str, cells: Cells, line: int) -> Rating:
    wav, track = clip(cells[0], root), file.part
    prefix = f"VoiceMOS2023{track.capitalize()}-"
    if not wav.startswith(prefix):
        raise BadRow("bad_value", f"expected a name that starts with {prefix}, found '{shown(wav)}'")
    origin = _origin(track, wav[len(prefix) :].removesuffix(".wav"))
    subset = f"{track}-{origin[1]}" if track == "track1" else track
    value = score(cells[1], scale_of(source, subset))
    return Rating(wav, value, file.name, line, "test", subset, *origin)


def _origin(track: str, rest: str) -> tuple[str, str, str, str | None]:
    if track == "track3":
        if rest.startswith("TMHINT_"):
            raise BadRow("clean_reference", "the clean recording that others are compared with, not a rated system")
        return split_name(rest)
    pattern, form = NAMES[track]
    match = re.fullmatch(pattern, rest)
    if not match:
        raise BadRow("bad_value", f"expected {form}, found '{shown(rest)}'")
    system, speaker, content = match.group("system", "speaker", "content")
    return system, speaker, content, None


LAYOUT = register("ratings.vmc23")(published(find, read, signature=r"VoiceMOS2023Track\d-"))
