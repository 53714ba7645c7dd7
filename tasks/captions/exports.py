"""Export captions in the forms of the text-to-music baseline; `tasks/importers/caption_sets.py` reads them back.

The baseline finds a caption's audio by its file: `00/1085700.mp3` in JSON; `1085700` as the id in a TSV, beside which
it has `audios/1085700.mp3`. It reads the TSV with quotes: a field that begins with one ends at the next.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pyarrow as pa
import soundfile

from earmark.schemas.errors import StoreError
from earmark.tasks.audio.sound import without_remarks
from earmark.tasks.store.parquet import tuples_of

SPLITS = {"validation": "val"}  # names of splits that the baseline has otherwise
ENDINGS = (".flac", ".wav", ".mp3")  # in the order in which its loader looks for them
SHORTEST_S = 5.0  # it cuts clips of 10 s, fills up what has half of that, and leaves out shorter files
_BREAK = re.compile(r"\s+")


def write_json(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write an array of `{"path", "caption"}`, with the path of the audio as the list names it.

    Raises:
        StoreError: a track has several captions.
    """
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, (name, caption) in enumerate(_captions(batches)):
            file.write("," if number else "")
            file.write("\n" + json.dumps({"path": name, "caption": caption}, ensure_ascii=False))
        file.write("\n]\n")


def write_tsv(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write `id<tab>caption` lines below this header: breaks within a caption become spaces.

    The id is the audio file's name without folder and ending. A caption that begins with a quote is quoted.

    Raises:
        StoreError: a track has several captions, or two tracks have files of one name.
    """
    _write_lines(path, _captions(batches))


def write_baseline(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write a split's folder as the baseline's preparation does: `jamendo_<split>.tsv`, and links in `audios`.

    Raises:
        StoreError: as for `write_tsv`; or a clip is shorter or of another format than the baseline reads.
    """
    split = SPLITS.get(path.stem, path.stem)
    audios = path.parent / split / "audios"
    audios.mkdir(parents=True)

    def linked() -> Iterator[tuple[str, str]]:
        for name, caption, audio in _captions(batches, "audio"):
            clip = path.parent / audio
            if clip.suffix not in ENDINGS:
                raise StoreError(f"{name}: expected {', '.join(ENDINGS)}, as the baseline reads, found {clip.suffix}")
            with without_remarks():
                length = soundfile.info(clip).duration
            if length < SHORTEST_S:
                detail = f"expected at least {SHORTEST_S:g} s, as the baseline takes, found {length:.2f} s"
                raise StoreError(f"{name}: {detail}; build with length_s = [{SHORTEST_S:g}, …]")
            (audios / f"{_id(name)}{clip.suffix}").symlink_to(Path("../..") / audio)
            yield name, caption

    _write_lines(path.parent / split / f"jamendo_{split}.tsv", linked())


def _write_lines(path: Path, captions: Iterator[tuple[str, ...]]) -> None:
    files: dict[str, str] = {}
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("id\tcaption\n")
        for name, caption in captions:
            if (first := files.setdefault(_id(name), name)) != name:
                raise StoreError(f"expected files of different names, found {first} and {name}; export with attm-json")
            text = _BREAK.sub(" ", caption).strip()
            if text.startswith('"'):
                text = '"' + text.replace('"', '""') + '"'
            file.write(f"{_id(name)}\t{text}\n")


def _id(name: str) -> str:
    return PurePosixPath(name).stem.removesuffix(".low")


def _captions(batches: Iterator[pa.RecordBatch], *more: str) -> Iterator[tuple[str, ...]]:
    """Yield path, caption and further columns; require a single caption per file: a film has one of each segment."""
    seen: set[str] = set()
    for batch in batches:
        for row in tuples_of(batch, "path", "caption", *more):
            if row[0] in seen:
                raise StoreError(
                    f"{row[0]}: expected one caption a track, found several (pipelines or segments); "
                    "export with --for jsonl, which names the pipeline"
                )
            seen.add(row[0])
            yield row
