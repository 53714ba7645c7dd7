"""Read SingMOS (Tang et al. 2024, 2025): singing voices, synthesised, converted and natural, in three layouts.

VoiceMOS 2024, track 2: `DATA/sets/{train,val,eval}_mos_list.txt`, rows `voicemos2024-track2-sys0001-utt0001,4.0`.
Version 1: `sets/*.txt` with such rows and `wav/`.
Later: `info/score.json`, where `utterance` holds for each clip `{sys_id, wav, score: {mos, scores[], judges[]}}`,
and `info/split.json`, where a dataset's splits list their clips; a dataset is a subset here.
None of them gives the lyrics.
"""

import json
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import Note, shown
from earmark.schemas.registry import register
from earmark.tasks.importers.cells import BadRow, Scale, clip, identifier, score
from earmark.tasks.importers.json_arrays import parse_object, read_text
from earmark.tasks.importers.lists import (
    Cells,
    Found,
    Imported,
    ListFile,
    Rating,
    bare_rows,
    exists,
    list_file,
    parsed,
    published,
    require_folder,
    scale_of,
)

FOLDERS = ("DATA/sets", "sets", "")
# In this order: "eval" holds "val".
SPLITS = {"eval": "test", "test": "test", "train": "train", "val": "validation", "dev": "validation"}
SCORES, SPLIT_LISTS = "info/score.json", "info/split.json"
Places = dict[str, list[tuple[str, str]]]  # clip -> every dataset and split naming it


def find(source: Source, root: Path) -> Found:
    """Find the lists of the present layout, the JSON layout first."""
    require_folder(source, root)
    if exists(root / SCORES):
        scores = list_file(source, root, SCORES, "scores")
        if exists(root / SPLIT_LISTS):
            return Found((scores, list_file(source, root, SPLIT_LISTS, "splits")), folder="info")
        note = Note(f"{source.name}: {SPLIT_LISTS} is not in {source.root}; the publisher's split is unknown")
        return Found((scores,), (note,), "info")
    for folder in FOLDERS:
        pattern = "*.txt" if folder else "*_mos_list.txt"
        splits = [(path, _split_of(path.stem)) for path in sorted((root / folder).glob(pattern))]
        lists = [list_file(source, root, p.relative_to(root).as_posix(), split) for p, split in splits if split]
        if lists:
            others = [p.relative_to(root).as_posix() for p, split in splits if not split]
            missing = [s for s in ("train", "validation", "test") if s not in {file.part for file in lists}]
            notes = [f"{source.name}: {p}: expected train, val or eval in its name; it is left out" for p in others]
            notes += [f"{source.name}: no {s} list is in {source.root}; its rows are left out" for s in missing]
            return Found(tuple(lists), tuple(Note(text) for text in notes), folder)
    raise InputError(
        f"{source.name}: expected {SCORES}, DATA/sets/<split>_mos_list.txt or sets/*.txt in {source.root}, found none"
    )


def read(source: Source, root: Path) -> Imported:
    """Yield a mean per clip."""
    release = find(source, root)
    yield from release.notes
    if release.folder == "info":
        yield from _read_json(source, root, release)
        return
    audio = f"{release.folder.removesuffix('sets')}wav/" if release.folder else ""
    for file in release.lists:
        yield from parsed(file.name, bare_rows(file, 2), partial(_mean, source, file, str(root), audio))


def _split_of(stem: str) -> str:
    return next((split for word, split in SPLITS.items() if word in stem.lower()), "")


def _mean(source: Source, file: ListFile, root: str, audio: str, cells: Cells, line: int) -> Rating:
    wav = clip(cells[0], root)
    bare = wav.removesuffix(".wav")
    made, _, utterance = bare.rpartition("-")
    system = made.rpartition("-")[2]
    if not (system and utterance):
        raise BadRow("bad_value", f"expected …<system>-<utterance>, found '{shown(wav)}'")
    value = score(cells[1], scale_of(source))
    place = f"{audio}{bare}.wav" if audio else None
    return Rating(wav, value, file.name, line, file.part, system_id=system, audio=place)


def _read_json(source: Source, root: Path, found: Found) -> Imported:
    scores, *rest = found.lists
    text = read_text(scores.path, scores.name)
    clips = _document(scores, text).get("utterance")
    if not isinstance(clips, dict):
        raise InputError(f"{scores.name}: expected an object under the key 'utterance', found none")
    places = _places(rest[0]) if rest else None
    rows = zip(_lines(text, list(clips)), clips.items(), strict=True)
    yield from parsed(scores.name, rows, partial(_entry, source, scores, str(root), places))


def _entry(source: Source, file: ListFile, root: str, places: Places | None, cells: Cells, line: int) -> Rating:
    name, entry = clip(cells[0], root), cells[1]
    if not isinstance(entry, dict) or not isinstance(entry.get("score"), dict):
        raise BadRow("bad_line", "expected an object with sys_id, wav and score, found something else")
    rated = entry["score"]
    subset, split = _place(places, name) if places is not None else (None, None)
    count, spread = _spread(rated.get("scores"), scale_of(source, subset))
    return Rating(
        file=name,
        score=score(rated.get("mos"), scale_of(source, subset)),
        source_file=file.name,
        line=line,
        split=split,
        subset=subset,
        system_id=identifier(entry.get("sys_id"), "system"),
        votes=count,
        mos_std=spread,
        audio=clip(entry["wav"], root) if entry.get("wav") else None,
    )


def _spread(scores: Any, scale: Scale) -> tuple[int | None, float | None]:
    """Return the number of ratings behind a mean, and their sample standard deviation."""
    if not scores:
        return None, None
    if not isinstance(scores, list):
        raise BadRow("bad_line", f"expected an array of scores, found {shown(scores)}")
    values = [score(each, scale) for each in scores]
    return len(values), statistics.stdev(values) if len(values) > 1 else None


def _places(file: ListFile) -> Places:
    places: Places = {}
    for dataset, splits in _document(file, read_text(file.path, file.name)).items():
        if not isinstance(splits, dict) or not all(isinstance(names, list) for names in splits.values()):
            raise InputError(f"{file.name}: expected arrays of clips by split under '{shown(dataset)}', found none")
        for split, names in splits.items():
            for name in names:
                places.setdefault(str(name).removesuffix(".wav"), []).append((dataset, split))
    return places


def _place(places: Places, name: str) -> tuple[str, str]:
    """Return the dataset and split of a clip; reject a clip in two splits."""
    named = places.get(name.removesuffix(".wav"))
    if not named:
        raise BadRow("bad_split", f"expected '{shown(name)}' in {SPLIT_LISTS}, found it in no split")
    words = shown(", ".join(sorted({split for _, split in named})))
    splits = {_split_of(split) for _, split in named}
    if "" in splits:
        raise BadRow("bad_split", f"expected train, val or test, found {words}")
    if len(splits) > 1:
        raise BadRow("conflicting_split", f"expected one split, found {words}")
    return identifier(min(named)[0], "subset"), splits.pop()


def _document(file: ListFile, text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except BadRow as bad:
        raise InputError(f"{file.name}: {bad.detail}") from None


def _lines(text: str, keys: list[str]) -> Iterator[int]:
    """Yield the line of each key of `utterance`; for an unusual spelling, the line of the key before."""
    at = max(text.find('"utterance"'), 0)
    line = 1 + text.count("\n", 0, at)
    for key in keys:
        there = max(text.find(spelt, at) for spelt in {json.dumps(key), json.dumps(key, ensure_ascii=False)})
        if there >= 0:
            line += text.count("\n", at, there)
            at = there
        yield line


LAYOUT = register("ratings.singmos")(
    published(find, read, signature=r"voicemos2024-track2-|sys\d{4}-utt\d+(\.wav)?,|\{")
)
