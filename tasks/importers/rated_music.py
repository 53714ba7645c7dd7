"""Read generated music with mean ratings: MusicEval (AudioMOS 2025, track 1) and the human evaluation of PAM.

MusicEval: on the Hub (BAAI/MusicEval), `data/{train,validation,test}-*.parquet` with the clip (its name alone is read),
`overall quality` and `textual alignment`. From the challenge, `sets/{train,dev,test}_mos_list.txt`, without a header,
of a clip such as `audiomos2025-track1-S002_P044.wav` (system, prompt), its musicality and its alignment; the texts of
the prompts in `prompt_info.txt`, for some systems in `demo_prompt_info.txt`.
PAM: clips in `human_eval/music/<system>/<id>.wav`; the columns of its scores could not be verified at their source,
so the config may name them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.human_preferences import VoteSource
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import register
from earmark.schemas.tables import SPLIT_ALIASES, SPLITS
from earmark.tasks.importers.cells import BadList, BadRow, Scale, clip, given, identifier, missing_cells, score
from earmark.tasks.importers.lines import read_lines
from earmark.tasks.importers.lists import Cells, ListFile, bare_rows, exists, parsed
from earmark.tasks.importers.music import words
from earmark.tasks.importers.table import named_rows, read_table
from earmark.tasks.importers.votes import VoteLayout

PARQUET = ("overall quality", "textual alignment", "audio")  # columns of BAAI/MusicEval on the Hub
LISTS = {"train": "train", "dev": "validation", "test": "test"}
DEMO_SYSTEMS = frozenset(("S001", "S006", "S013", "S017", "S018", "S033"))
PROMPTS, DEMO_PROMPTS = "prompt_info.txt", "demo_prompt_info.txt"
_NAME = re.compile(r"(?:audiomos2025-track1-)?(S\d+)_(P\d+)(?:\.wav)?")
_PROMPT = re.compile(r"(?:.*[_-])?(P\d+)(?:\.wav)?")
PAM_COLUMNS = {"file": "file", "musicality": "OVL", "alignment": "REL", "text": "text"}


class MusicRating(NamedTuple):
    """The mean ratings of a clip."""

    file: str
    system: str
    prompt_id: str | None
    text: str | None
    musicality: float | None
    alignment: float | None
    split: str | None
    source_file: str
    line: int


Rated = Iterator[MusicRating | Reject | Note]


def musiceval_files(source: str, root: Path) -> list[ListFile]:
    """List the existing lists of ratings, then those of prompts."""
    lists = [
        ListFile(root / f"{folder}{part}_mos_list.txt", f"{source}/{folder}{part}_mos_list.txt", split)
        for part, split in LISTS.items()
        for folder in ("sets/", "")
    ]
    found = [file for file in lists if exists(file.path)]
    for folder in ("data/", ""):
        for place in sorted((root / folder).glob("*.parquet")) if not found and exists(root / folder) else ():
            split = SPLIT_ALIASES.get(place.name.partition("-")[0], place.name.partition("-")[0])
            if split in SPLITS:
                lists.append(ListFile(place, f"{source}/{folder}{place.name}", split, "parquet"))
        found = found or [file for file in lists if file.kind == "parquet"]
    if not found:
        raise InputError(f"{source}: expected sets/train_mos_list.txt, dev or test in {root.name or root}, found none")
    places = [ListFile(root / f"{d}{n}", f"{source}/{d}{n}", n) for n in (PROMPTS, DEMO_PROMPTS) for d in ("", "sets/")]
    return [*found, *(file for file in places if exists(file.path))]


def read_musiceval(files: Sequence[ListFile], root: str, scale: Scale) -> Rated:
    """Yield the ratings of all lists."""
    texts: dict[str, dict[str, str]] = {PROMPTS: {}, DEMO_PROMPTS: {}}
    for file in files:
        if file.part in texts:
            texts[file.part].update(_texts(file))
    if not any(texts.values()):
        yield Note(f"{files[0].name.partition('/')[0]}: no {PROMPTS}; prompts have ids and no text")
    for file in files:
        if file.part in texts:
            continue
        rows = _embedded(file) if file.kind == "parquet" else bare_rows(file, 3)
        yield from parsed(file.name, rows, partial(_musiceval, file, root, scale, texts))


def _embedded(file: ListFile) -> Iterator[tuple[int, Cells | Reject | Note]]:
    """Yield name, musicality and alignment of each row of the Hub's Parquet, without reading its embedded sounds."""
    for line, cells in read_table(file, PARQUET, inner={"audio": "audio.path"}):
        if isinstance(cells, Reject | Note):
            yield line, cells
        else:
            row: Cells = cells
            yield line, [(row[2] or {}).get("path"), row[0], row[1]]


def _musiceval(
    file: ListFile, root: str, scale: Scale, texts: Mapping[str, dict[str, str]], cells: Cells, line: int
) -> MusicRating:
    name = clip(cells[0], root)
    parts = _NAME.fullmatch(name.rpartition("/")[2])
    if not parts:
        raise BadRow("bad_value", f"expected …S<system>_P<prompt>.wav, found '{shown(name)}'")
    system, prompt = parts.groups()
    demo = system in DEMO_SYSTEMS
    text = texts[DEMO_PROMPTS if demo and texts[DEMO_PROMPTS] else PROMPTS].get(prompt)
    prompt_id = f"demo-{prompt}" if demo else prompt
    scores = (score(cells[1], scale), score(cells[2], scale))
    return MusicRating(name, system, prompt_id, text, *scores, file.part, file.name, line)


def _texts(file: ListFile) -> dict[str, str]:
    """Read texts by prompt: lines of an id and a text, separated by a tab, comma or space."""
    found = {}
    for _, text in read_lines(file.path, file.name):
        if isinstance(text, Reject):
            continue  # its prompt has no text then
        name, *rest = re.split("\t" if "\t" in text else r"[,\s]", text.strip(), maxsplit=1)
        if (match := _PROMPT.fullmatch(name.strip())) and rest and rest[0].strip():
            found[match[1]] = rest[0].strip().strip('"')
    return found


def read_pam(file: ListFile, columns: Mapping[str, str], root: str, scale: Scale) -> Rated:
    """Yield the ratings of a table; allow an empty score if the other is given."""
    names = {**PAM_COLUMNS, **columns}
    wanted = {name: names[name] for name in ("file", "musicality", *columns)}
    extra = {n: names.get(n, n) for n in ("alignment", "text", "system", "prompt_id") if n not in wanted}
    for line, row in named_rows(file, wanted, extra):
        if isinstance(row, Reject | Note):
            yield row
            continue
        try:
            name = clip(row["file"], root)
            parts = name.split("/")
            stem = parts[-1].rpartition(".")[0] or parts[-1]
            system = row.get("system") or (parts[-2] if len(parts) > 1 else None)
            musicality, alignment = (
                score(row[d], scale) if given(row.get(d)) else None for d in ("musicality", "alignment")
            )
            if musicality is None and alignment is None:
                raise BadRow("score_missing", "expected a score for musicality or alignment, found neither")
            prompt = identifier(row.get("prompt_id") or stem, "prompt")
            made_by, text = identifier(system, "system"), words(row.get("text"))
            yield MusicRating(name, made_by, prompt, text, musicality, alignment, None, file.name, line)
        except BadList as bad:
            raise InputError(f"{file.name}, line {line}: {bad.detail}") from None
        except BadRow as bad:
            yield Reject(shown(row["file"]), bad.reason, bad.detail, file.name, line)


def _scale(source: VoteSource) -> Scale:
    return Scale(*source.scale, missing_cells(source.not_a_rating))


MUSICEVAL = register("votes.musiceval")(
    VoteLayout(
        lambda source, files, root: read_musiceval(files, root, _scale(source)),
        rated=True,
        find=musiceval_files,
        task="musiceval",
        split="native",
    )
)
PAM = register("votes.pam")(
    VoteLayout(
        lambda source, files, root: chain.from_iterable(
            read_pam(file, source.columns, root, _scale(source)) for file in files
        ),
        rated=True,
        task="pam",
        split="test",
    )
)
