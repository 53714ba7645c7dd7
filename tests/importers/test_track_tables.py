"""Tables of tracks: tags as people, pandas and other programs write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from earmark.schemas.reasons import Note, Reject
from earmark.schemas.tracks import Track
from earmark.tasks.importers.caption_sets import Instruction, read_caption_set
from earmark.tasks.importers.music import ListedGeneration, read_generations, read_prompts
from earmark.tasks.importers.tracks import read_recalls, read_track_table

TAGS = ["rock", "female vocals", "drum'n'bass"]


def read(folder: Path, *cells: Any) -> list[Track | Reject | Note]:
    """Read a table with these cells of tags."""
    rows = [{"track_id": f"t{n}", "audio": f"{n}.flac", "tags": cell} for n, cell in enumerate(cells)]
    pd.DataFrame(rows).to_csv(folder / "t.csv", index=False)
    return list(read_track_table(folder / "t.csv", "t.csv"))


def tags(rows: list[Track | Reject | Note]) -> list[list[str]]:
    return [[tag.name for tag in row.tags] for row in rows if isinstance(row, Track)]


@pytest.mark.parametrize("cell", ["; ".join(TAGS), ", ".join(TAGS), "|".join(TAGS), TAGS, json.dumps(TAGS)])
def test_tags_are_parted_however_they_are_written(tmp_path: Path, cell: Any) -> None:
    assert tags(read(tmp_path, "rock", cell, None)) == [["rock"], TAGS, []]


def test_lists_without_quotes_and_of_other_scripts_are_lists(tmp_path: Path) -> None:
    cells = ["[rock, piano]", "[]", json.dumps(["café", "🎻"]), "['Folk, World, & Country', 'live [loud]']"]
    assert tags(read(tmp_path, *cells)) == [
        ["rock", "piano"],
        [],
        ["café", "🎻"],
        ["folk, world, & country", "live [loud]"],
    ]


@pytest.mark.parametrize("last", ["rock; piano", "[live]; [loud]"])
def test_a_comma_is_part_of_a_tag_where_the_column_has_semicolons(tmp_path: Path, last: str) -> None:
    found = tags(read(tmp_path, "Folk, World, & Country", "Funk | Soul", last))
    assert found == [["folk, world, & country"], ["funk | soul"], last.split("; ")]


def test_words_of_a_list_without_commas_are_not_run_together(tmp_path: Path) -> None:
    (reject,) = read(tmp_path, np.array(["rock", "female vocals"]))
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.line) == ("bad_value", 2)


@pytest.mark.parametrize("cell", ["{rock,pop}", "array(['rock', 'pop'])", "('rock', 'pop')", "{'genre': ['rock']}"])
def test_lists_of_other_programs_are_no_tags(tmp_path: Path, cell: str) -> None:
    (first, reject) = read(tmp_path, "(live) takes", cell)
    assert isinstance(reject, Reject)
    assert reject.reason == "bad_value"
    assert tags([first]) == [["(live) takes"]]


def test_entities_and_forms_of_unicode_do_not_part_or_double_a_tag(tmp_path: Path) -> None:
    cells = ("R&amp;B, pop", "cafe\u0301, caf\u00e9", json.dumps(["R&amp;B"]))
    assert tags(read(tmp_path, *cells)) == [["r&b", "pop"], ["caf\u00e9"], ["r&b"]]


READERS: dict[str, tuple[str, str, Callable[[Path], Any]]] = {  # its header, a row, and how it is read
    "tracks": ("track_id,audio", "t{n},{n}.mp3", lambda path: read_track_table(path, path.name)),
    "generations": (
        "generation_id,prompt_id,model,audio",
        "g{n},p1,m1,{n}.mp3",
        lambda path: read_generations(path, path.name),
    ),
    "captions": (
        "id,text,audio",
        "c{n},A bell {n}.,{n}.mp3",
        lambda path: read_caption_set(path, path.name, "table", path.parent),
    ),
    "prompts": ("prompt_id,text", "p{n},A bell {n}.", lambda path: read_prompts(path, path.name)),
    "recalls": ("category,tag,asked,detected", "genre,rock{n},3,2", lambda path: read_recalls(path, path.name)),
}


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize("mark", [";", "\t", "|", ","])
@pytest.mark.parametrize("kind", READERS)
def test_tables_are_split_by_their_headers_mark(kind: str, mark: str, name: str, tmp_path: Path) -> None:
    header, form, reader = READERS[kind]
    lines = [header, *(form.format(n=n) for n in range(3))]
    (tmp_path / "plain.csv").write_text("\n".join(lines))
    (tmp_path / name).write_text("\n".join(lines).replace(",", mark))
    plain = [row._replace(source_file=name) for row in reader(tmp_path / "plain.csv")]
    assert len(plain) == 3
    assert list(reader(tmp_path / name)) == plain


def test_commas_in_cells_between_semicolons_part_tags(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("track_id;audio;tags\n1;1.mp3;rock,female vocals\n")
    assert tags(list(read_track_table(tmp_path / "t.csv", "t.csv"))) == [["rock", "female vocals"]]


@pytest.mark.parametrize("again", ["header", "id"])
@pytest.mark.parametrize("kind", ["tracks", "generations", "captions"])
def test_a_second_header_is_no_row(kind: str, again: str, tmp_path: Path) -> None:
    header, form, reader = READERS[kind]
    second = header if again == "header" else ",".join(["ID", *["File"] * header.count(",")])
    (tmp_path / "t.csv").write_text("\n".join([header, second, form.format(n=1), form.format(n=2)]))
    reject, *rows = reader(tmp_path / "t.csv")
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.line) == ("bad_line", 2)
    assert "found the names of columns ('" in reject.detail
    assert len([row for row in rows if isinstance(row, Track | ListedGeneration | Instruction)]) == 2


def test_a_track_called_like_a_column_stays(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("track_id,audio\nid,id.mp3\nfile,x/file\n")
    rows = list(read_track_table(tmp_path / "t.csv", "t.csv"))
    assert [row.path for row in rows if isinstance(row, Track)] == ["id.mp3", "x/file"]
