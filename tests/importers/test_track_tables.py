"""Tables of tracks: tags as people, pandas and other programs write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from earmark.schemas.reasons import Note, Reject
from earmark.schemas.tracks import Track
from earmark.tasks.importers.tracks import read_track_table

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
