"""Read and write WildScore's released form: `data.csv`, a row a question, and its pictures in `images/`."""

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from PIL import Image

from earmark.schemas.errors import InputError
from earmark.schemas.files import Root
from earmark.schemas.reasons import Note, Reject
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.importers.table import named_rows, table_file
from earmark.tasks.score_questions.forum.pictures import FAULTS
from earmark.tasks.score_questions.option_order import LETTERS

Row = dict[str, Any]

LAYOUT, TABLE, IMAGES = "wildscore", "data.csv", "images"
SHOWN = ("PNG", "JPEG", "GIF", "WEBP")  # forms of pictures that models take
WANTED = {name: name for name in ("image", "question", "final_options", "truth_letter")}
OURS = {name: name for name in ("category", "subcategory", "difficulty", "preference")}


def read(path: Path, _: Path) -> dict[str, list[Row]]:
    """Read a folder with `data.csv`, or a table with the same columns, as rows of `questions`.

    `image` names a file beside the table or in its `images/`, with or without that folder, or embeds one. A missing or
    unreadable picture is null: such a question is asked by its words alone, and its `source` is the picture's name, so
    that questions about one picture still depend on each other. A question's id is its picture's name.

    Raises:
        InputError: the table cannot be read, or a row has another layout.
    """
    table = path / TABLE if path.is_dir() else path
    root, rows, seen = Root(table.parent.absolute()), list[Row](), Counter[str]()
    for line, row in named_rows(table_file(table, table.name), WANTED, OURS):
        if isinstance(row, Note):
            continue
        try:
            if isinstance(row, Reject):
                raise BadRow(row.reason, row.detail)
            options, truth = _options(row)
        except BadRow as bad:
            raise InputError(f"{table}, line {line}: {bad.detail}") from None
        name, content = _picture(row["image"], root)
        seen[name] += 1
        named = {"question_id": name if seen[name] == 1 else f"{name}-{seen[name]}", "split": "test"}
        about = {column: row[column] or None for column in OURS}
        rows.append({**named, "question": row["question"], "options": options, "truth_letter": truth, **about})
        rows[-1] |= picture_columns(content)
        if rows[-1]["image"] is None and (called := _called(row["image"])) is not None:
            rows[-1]["source"] = str(called.relative_to(IMAGES) if called.is_relative_to(IMAGES) else called)
    return {"questions": rows}


def _options(row: Row) -> tuple[list[str], str]:
    """Return the options in the order of their letters, and the right one's letter by its place."""
    try:
        held = json.loads(str(row["final_options"]))
    except ValueError:
        held = None
    if isinstance(held, list):
        held = dict(zip(LETTERS, held, strict=False))
    if not isinstance(held, dict) or not held or not all(isinstance(text, str) for text in held.values()):
        raise BadRow("bad_value", f"expected JSON of letters and texts as final_options, found {held!r:.80}")
    letters = sorted(held)
    if (truth := str(row["truth_letter"]).strip().upper()) not in letters or not row["question"]:
        raise BadRow(
            "bad_value", f"expected a question, and one of {', '.join(letters)} as truth_letter: {truth!r:.20}"
        )
    return [held[letter] for letter in letters], LETTERS[letters.index(truth)]


def _picture(cell: Any, root: Root) -> tuple[str, bytes | None]:
    """Return the name of a row's picture without its ending, and its bytes if it is there."""
    embedded = cell if isinstance(cell, dict) else {}
    name = _called(cell) or PurePosixPath("image")
    if embedded.get("bytes") is not None or name.is_absolute() or ".." in name.parts:
        return name.stem, embedded.get("bytes")
    places = [root.folder / IMAGES / name, root.folder / name]
    return name.stem, next((one.read_bytes() for one in places if one.is_file() and not root.leads_out(one)), None)


def _called(cell: Any) -> PurePosixPath | None:
    name = cell.get("path") if isinstance(cell, dict) else cell
    return PurePosixPath(str(name)) if name else None


def picture_columns(content: bytes | None) -> Row:
    """Return the columns of a picture, whose bytes stay as published: models see what the paper's saw."""
    try:
        with Image.open(io.BytesIO(content or b""), formats=SHOWN) as picture:
            (width, height), kind = picture.size, str(picture.format).lower()
    except (*FAULTS, Image.DecompressionBombError):
        return {"image": None}
    sha256 = hashlib.sha256(content or b"").hexdigest()
    image = {"bytes": content, "path": f"{sha256}.{'jpg' if kind == 'jpeg' else kind}"}
    return {"image_sha256": sha256, "width": width, "height": height, "image": image}


def write(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write a row per question: `image` is a file of `images/`, `final_options` JSON text of letter to option.

    The first four columns are the layout's; the others are Earmark's.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, (*WANTED, *OURS), lineterminator="\n")
        writer.writeheader()
        for batch in batches:
            for row in batch.to_pylist():
                columns = {name: row[name] for name in (*WANTED, *OURS)}
                writer.writerow({**columns, "image": PurePosixPath(row["image"]).name})
