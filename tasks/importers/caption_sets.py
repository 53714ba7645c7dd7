"""Register the layouts of caption sets, `captions.<format>` among the entry points `earmark.importers`.

A set pairs clips with texts.
"""

import os
import re
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.places import without_place
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import Registry, register, registered
from earmark.tasks.importers.cells import BadRow, clip, given, identifier
from earmark.tasks.importers.json_arrays import read_json
from earmark.tasks.importers.lines import most_rows, read_rows
from earmark.tasks.importers.lists import Cells, ListFile, by_its_header, names_columns, parsed, require_once
from earmark.tasks.importers.music import words
from earmark.tasks.importers.table import kind_of, named_rows

HEADER = ["id", "caption"]
HEADINGS = ("caption", "captions", "text", "description")  # in a first line: no caption is this word alone


class ListedCaption(NamedTuple):
    """A caption set's text for a clip."""

    item: str  # the clip in the set's words: a path or an id
    text: str
    source_file: str
    line: int  # line of a TSV, or place in a JSON array, from 1
    source: str | None = None  # the clip's dataset, if the set names it


def read_captions(path: Path, written: str) -> Iterator[ListedCaption | Reject | Note]:
    """Yield a caption or a reject for each line or object of a `.json` or `.tsv` file (also `.gz`), in order.

    Rows and rejects name the file by `written`, its path as the config writes it.

    `jamendo_qwen.json` is one array, `[{"path": "00/1085700.mp3", "caption": "…"}]`, with the path of the original
    audio; `jamendo_train.tsv` holds `id<tab>caption` lines with or without a header; the baseline reads a
    field that begins with a quote to the next one.

    Raises:
        InputError: the file is missing, or is not what its ending says.
    """
    name = without_place(written)
    match path.name.lower().removesuffix(".gz").rpartition(".")[2]:
        case "json":
            rows = _objects(path, name)
        case "tsv":
            rows = _lines(path, name)
        case _:
            raise InputError(f"{name}: expected captions in a file ending in .json or .tsv, found '{shown(written)}'")
    lines: dict[str, int] = {}

    def parse(cells: Cells, line: int) -> ListedCaption:
        caption = ListedCaption(identifier(cells[0], "item"), words(cells[1], "caption") or "", name, line)
        require_once(lines, caption.item, line, "clip")
        return caption

    yield from parsed(name, rows, parse)
    if not lines:
        yield Note(f"{name} holds no captions")


def _lines(path: Path, name: str) -> Iterable[tuple[int, list[Any] | Reject]]:
    for line, cells in read_rows(path, name, "\t"):
        if isinstance(cells, Reject):
            yield line, cells
        elif len(cells) != len(HEADER):
            detail = f"expected {len(HEADER)} fields, found {len(cells)}"
            yield line, Reject(shown("\t".join(cells)), "bad_line", detail, name, line)
        elif line > 1 or cells[1].strip().lower() not in HEADINGS:
            yield line, list(cells)


def _objects(path: Path, name: str) -> Iterable[tuple[int, list[Any] | Reject]]:
    array = read_json(path, name, list, "a JSON array of objects")
    for place, row in enumerate(array[: most_rows()], 1):
        if isinstance(row, dict):
            yield place, [row.get("path"), row.get("caption")]
        else:
            detail = f"expected an object with path and caption, found {shown(row)}"
            yield place, Reject(shown(row), "bad_line", detail, name, place)


class Instruction(NamedTuple):
    """A caption set's entry for a clip."""

    item: str  # the row's id, with the text's column where a row holds several
    audio: str  # path below the set's audio folder
    text: str
    group: str | None  # groups of the set, such as a recording or an artist; `youtube:ID` is shared by all sets
    model: str | None  # generator of the audio
    source_file: str
    line: int


@dataclass(frozen=True)
class CaptionLayout:
    """A layout of caption sets."""

    # Yields an instruction or a reject for each text, in order. Arguments: the list, its path as the config writes it,
    # the absolute folder of the audio (no clip may leave it), and the config's pattern of a clip's file below it.
    read: Callable[[Path, str, str, str | None], Iterator[Instruction | Reject | Note]]


class CaptionColumns(NamedTuple):
    """Columns of a table, and a pattern of them for the clip's file."""

    item: str
    texts: tuple[str, ...]
    audio: str
    group: str | None = None
    model: str | None = None
    some_texts: bool = False  # whether a row may leave texts out
    kind: str = ""  # type of the file, if its ending does not show it
    video: str | None = None  # instead of a group: the column whose file or id begins with the id of a YouTube video
    mended: Callable[[Instruction, str], Instruction] | None = None  # adds what no column tells, by the audio folder

    @property
    def layout(self) -> CaptionLayout:
        """Return the layout of such tables."""
        return CaptionLayout(partial(_read_table, self))


YOUTUBE = "youtube:"
_AUDIOSET = re.compile(r"Y([\w-]{11})(?:\.wav)?")
_VIDEO = re.compile(r"(?:.*/)?([\w-]{11})(?:_[^/]*)?(?:\.\w+)?")


def read_caption_set(
    path: Path, written: str, layout: str, root: Path, pattern: str | None = None
) -> Iterator[Instruction | Reject | Note]:
    """Yield an instruction or a reject for each text, in order.

    Args:
        written: the list as the config writes it, for rows and rejects.
        layout: a name in `CAPTION_LAYOUTS`.
        root: folder of the audio, absolute; clips may not leave it.
        pattern: a clip's file below the folder, with columns in braces; default: the layout's own.

    Raises:
        InputError: the list or a column is missing, or the pattern has no column.
    """
    return CAPTION_LAYOUTS.find(layout).read(path, written, str(root), pattern)


def _read_table(
    form: CaptionColumns, path: Path, written: str, root: str, pattern: str | None
) -> Iterator[Instruction | Reject | Note]:
    """Read the texts of a table; require the list and the wanted columns."""
    pattern = pattern or form.audio
    fields = fields_of(pattern)
    name = without_place(written)
    texts = form.texts
    wanted = (form.item, *fields, *((form.video,) if form.video else ()), *(() if form.some_texts else texts))
    optional = (*(texts if form.some_texts else ()), form.group, form.model)
    seen: set[str] = set()
    file = by_its_header(ListFile(path, name, "", form.kind or kind_of(name, written)))
    for line, row in named_rows(file, {n: n for n in wanted}, {n: n for n in optional if n}):
        if isinstance(row, Reject | Note):
            yield row
        else:
            yield from _texts(row, form, pattern, root, (name, line), seen)


def fields_of(pattern: str) -> tuple[str, ...]:
    """Return the columns named by a pattern."""
    try:
        fields = tuple(field for _, field, _, _ in string.Formatter().parse(pattern) if field is not None)
    except ValueError:
        fields = ()
    if not fields or not all(field.replace("_", "a").isalnum() for field in fields):
        raise InputError(f"audio: expected a pattern with columns in braces, such as '{{id}}.wav', found '{pattern}'")
    return fields


def _texts(
    row: dict[str, Any], form: CaptionColumns, pattern: str, root: str, place: tuple[str, int], seen: set[str]
) -> Iterator[Instruction | Reject]:
    columns = [name for name in form.texts if given(row.get(name))] if form.some_texts else list(form.texts)
    for column in columns or form.texts[:1]:
        try:
            item = identifier(row[form.item], "item")
            item = f"{item}#{column}" if len(form.texts) > 1 else item
            audio = _audio(row, pattern, root)
            text = words(row[column], "caption") or ""
            group = identifier(row[form.group], "group") if form.group and given(row.get(form.group)) else None
            if form.video:
                group = video_of(str(row[form.video])) or identifier(row[form.video], "group")
            model = identifier(row[form.model], "model") if form.model and given(row.get(form.model)) else None
            if names_columns(str(row[form.item]), audio):
                raise BadRow("bad_line", f"expected a caption, found the names of columns ('{shown(item)}', '{audio}')")
            if item in seen:
                raise BadRow("duplicate_id", f"expected each id once, found '{shown(item)}' again")
        except BadRow as bad:
            yield Reject(shown(row[form.item]), bad.reason, bad.detail, *place)
            continue
        seen.add(item)
        found = Instruction(item, audio, text, group, model, *place)
        yield form.mended(found, root) if form.mended else found


def video_of(name: str) -> str | None:
    """Return the YouTube video of a clip's id or file as a group shared by all sets; None if the name has no video id.

    A video's id has eleven letters, digits, `-` or `_`; a start, an end or an augmentation's number follow after `_`.
    """
    match = _VIDEO.fullmatch(name)
    return f"{YOUTUBE}{match.group(1)}" if match else None


def _in_excerpts(found: Instruction, root: str) -> Instruction:
    """Name the file that Song Describer ships for the listed track `14/214.mp3`: its excerpt `14/214.2min.mp3`."""
    return _with_file(found, root, found.audio, f"{found.audio.removesuffix('.mp3')}.2min.mp3")


def _of_audioset(found: Instruction, root: str) -> Instruction:
    """Name the file and the video of WavCaps' clip `Yb0RFKhbpFJA.wav` of AudioSet: it ships `Yb0RFKhbpFJA.flac`."""
    match = _AUDIOSET.fullmatch(found.item)
    if match is None:
        return found
    sound = found._replace(group=f"{YOUTUBE}{match.group(1)}")
    return _with_file(sound, root, sound.audio.replace(".wav.flac", ".flac"), sound.audio)


def _with_file(found: Instruction, root: str, *files: str) -> Instruction:
    """Name the first of some files that is below the folder, or without any the first."""
    there = (file for file in files if os.path.isfile(Path(root, file)))  # noqa: PTH113  # a name may be too long
    return found._replace(audio=next(there, files[0]))


def _audio(row: dict[str, Any], pattern: str, root: str) -> str:
    """Return a clip's file. Each column value is a name or path below the root, at any place in the pattern."""
    values = {field: clip(row[field], root) for field in fields_of(pattern)}
    return clip(pattern.format(**values), root)


def _read_list(path: Path, written: str, root: str, pattern: str | None) -> Iterator[Instruction | Reject | Note]:
    """Read clips and captions from JSON or TSV by `read_captions`."""
    pattern = pattern or "{path}"
    if set(fields_of(pattern)) != {"path"}:
        raise InputError(f"audio: expected '{{path}}' alone in the pattern of a caption list, found '{pattern}'")
    for caption in read_captions(path, written):
        if not isinstance(caption, ListedCaption):
            yield caption
            continue
        try:
            audio = clip(pattern.format(path=clip(caption.item, root)), root)
        except BadRow as bad:
            yield Reject(shown(caption.item), bad.reason, bad.detail, caption.source_file, caption.line)
        else:
            yield Instruction(caption.item, audio, caption.text, None, None, caption.source_file, caption.line)


LP_TEXTS = ("caption_writing", "caption_summary", "caption_paraphrase")
AUDIOCAPS = register("captions.audiocaps")(
    CaptionColumns("audiocap_id", ("caption",), "{youtube_id}_{start_time}.wav", video="youtube_id").layout
)
CLOTHO = register("captions.clotho")(
    CaptionColumns("file_name", tuple(f"caption_{n}" for n in range(1, 6)), "{file_name}", some_texts=True).layout
)
# Ends in .json. data_aug2/ID_1.wav derives from data/ID.wav, MusicCaps' clip of the video.
MUSICBENCH = register("captions.musicbench")(
    CaptionColumns("location", ("main_caption",), "{location}", kind="jsonl", video="location").layout
)
MUSICCAPS = register("captions.musiccaps")(CaptionColumns("ytid", ("caption",), "{ytid}.wav", video="ytid").layout)
SONG_DESCRIBER = register("captions.song-describer")(
    CaptionColumns("caption_id", ("caption",), "{path}", "artist_id", mended=_in_excerpts).layout
)
# Captions generated from attributes are left out, as its authors advise.
LP_MUSICCAPS = register("captions.lp-musiccaps")(
    CaptionColumns("fname", LP_TEXTS, "{fname}.wav", some_texts=True, video="ytid").layout
)
LP_MUSICCAPS_MTT = register("captions.lp-musiccaps-mtt")(
    CaptionColumns("track_id", LP_TEXTS, "{path}", some_texts=True).layout
)
WAVCAPS = register("captions.wavcaps")(
    CaptionColumns("id", ("caption",), "{id}.flac", mended=_of_audioset).layout
)  # JSON of one source; its rows stand under `data`
INSTRUCT_TTS = register("captions.instruct-tts")(
    CaptionColumns("id", ("APS", "DSD", "RP"), "{id}.wav", some_texts=True).layout
)
TABLE = register("captions.table")(CaptionColumns("id", ("text",), "{audio}", "group", "model").layout)
LISTED = register("captions.caption-list")(CaptionLayout(_read_list))
CAPTION_LAYOUTS = Registry(
    "layout of caption sets", "earmark.importers", CaptionLayout, registered("earmark.tasks.importers"), "captions."
)
