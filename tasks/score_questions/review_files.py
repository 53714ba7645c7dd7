"""Write questions for reviewers as a spreadsheet table and a Label Studio project; write their reviews as a table."""

import base64
import csv
import json
import mimetypes
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.score_questions import QUESTIONS, ScoreQuestion
from earmark.tasks.score_questions.option_order import LETTERS
from earmark.tasks.score_questions.reviews import COLUMNS, CRITERIA, DELETES, ReviewerVerdict, count_answered, guarded
from earmark.tasks.store.files import DESKTOPS, replacing, sha256_file, write_embedded
from earmark.tasks.store.folder import PREPARED, RECORD, building, listed_files, version_facts, write_facts
from earmark.tasks.store.versions import Version

SHEET, TASKS, CONFIG = "reviews.csv", "label-studio-tasks.json", "label-studio.xml"
_SHOWN = ("image", "question", "options", "right", "category", "subcategory", "difficulty")
DIGESTS = "digests"  # another word than exports list their files by: no export takes such a folder for its own
_FOR_PEOPLE = frozenset((SHEET, TASKS, CONFIG, "README.md", "images"))
_MARKS = DESKTOPS | {PREPARED, RECORD}
_ELSEWHERE = "move it away, or choose another folder"
_AT_ONCE = 16


def write_review(version: Version, folder: Path, *, images_at: str | None = None, force: bool = False) -> int:
    """Write a version's questions for reviewers: `reviews.csv`, Label Studio's configuration and tasks, `images/`.

    Returns their number. `images_at` is as in `address_of`.

    Raises:
        StoreError: the folder is taken or holds answers, the version has no questions, or an image is not its row's.
    """
    count = 0
    with building(folder.absolute(), force=force, record=PREPARED, check=refuse_work) as place:
        (place / "images").mkdir()
        with (
            (place / SHEET).open("w", encoding="utf-8-sig", newline="") as sheet,
            (place / TASKS).open("w", encoding="utf-8") as tasks,
        ):
            table = csv.DictWriter(sheet, [*COLUMNS, *_SHOWN], lineterminator="\r\n")
            table.writeheader()
            for row in questions_of(version):
                assert row["image"] is not None
                name = write_embedded(row["image"], row["image_sha256"], place / "images", durable=False).name
                shown = _shown(row)
                table.writerow(_safe({**shown, "image": f"images/{name}"}))
                data = {**shown, "image": address_of(name, row["image"]["bytes"], images_at)}
                tasks.write(("[\n" if count == 0 else ",\n") + json.dumps({"data": data}, ensure_ascii=False))
                count += 1
            tasks.write("\n]\n" if count else "[]\n")
        if not count:
            raise StoreError(f"{version.corpus} {version.name} has no questions to review")
        pages = {CONFIG: template(CONFIG), "README.md": template("review.md")}
        write_mark(place, {**version_facts(version), "questions": count}, pages)
    return count


def write_mark(place: Path, facts: Mapping[str, Any], pages: Mapping[str, str] | None = None) -> None:
    """Write the record of a folder for people and pages beside it, with its files' digests except of `images/`."""
    write_facts(place, PREPARED, facts, pages)
    names = {path.relative_to(place).as_posix(): path for path in sorted(place.rglob("*")) if path.is_file()}
    kept = {name: path for name, path in names.items() if name != PREPARED and not name.startswith("images/")}
    write_facts(place, PREPARED, {**facts, DIGESTS: {name: sha256_file(path) for name, path in kept.items()}})


def refuse_work(folder: Path, written: Collection[str] = _FOR_PEOPLE) -> None:
    """Refuse to replace a folder that holds work: answers in its sheet, changed files, or files of others.

    Args:
        written: names of files and folders that the command writes; without it, those of a project for people.

    Raises:
        StoreError: it does.
    """
    if others := sorted({path.name for path in folder.iterdir()} - _MARKS.union(written)):
        found = f"holds {others[0]} too{f' and {len(others) - 1:,} more' if others[1:] else ''}"
        raise StoreError(f"--out: --force replaces what such a command wrote, and {folder} {found}; {_ELSEWHERE}")
    for name, digest in (listed_files(folder, PREPARED, DIGESTS) or {}).items():  # none of earlier releases
        if name != SHEET and (folder / name).is_file() and sha256_file(folder / name) != digest:
            raise StoreError(f"--out: --force replaces no changed file, and {folder / name} was changed; {_ELSEWHERE}")
    sheet = folder / SHEET
    try:
        answered = count_answered(sheet, SHEET) if sheet.is_file() else 0
    except InputError as error:
        raise StoreError(f"--out: --force replaces an empty sheet, and {sheet} was changed: {error}") from None
    if answered:
        rows = "1 row" if answered == 1 else f"{answered:,} rows"
        raise StoreError(f"--out: --force replaces an empty sheet, and {sheet} has answers in {rows}; {_ELSEWHERE}")


def template(name: str) -> str:
    """Read the text of a file beside this module."""
    return resources.files("earmark.tasks.score_questions").joinpath(name).read_text("utf-8")


def contents_of(version: Version) -> dict[str, str]:
    """Return the content hash of each question of a version, by its id."""
    rows = questions_of(version, ["question_id", "content_sha256"])
    return {row["question_id"]: row["content_sha256"] for row in rows}


def write_verdicts(path: Path, verdicts: Iterable[ReviewerVerdict]) -> None:
    """Write reviews as a CSV for builds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for verdict in sorted(verdicts, key=lambda one: (one.question_id, one.reviewer)):
            row = {name: getattr(verdict, name) for name in ("question_id", "content_sha256", "reviewer")}
            row |= {name: "yes" if verdict.answers[name] else "no" for name in CRITERIA}
            table.writerow(_safe({**row, DELETES: " ".join(verdict.deletes), "note": verdict.note or ""}))


def questions_of(version: Version, columns: list[str] | None = None) -> Iterator[ScoreQuestion]:
    """Yield the questions of a version, with all columns or some."""
    for path in version.files(QUESTIONS.name):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_AT_ONCE, columns=columns):
                yield from batch.to_pylist()


def _shown(row: ScoreQuestion) -> dict[str, str]:
    """Return the shared cells of both forms for a question."""
    names = ("question_id", "content_sha256", "question", "category", "subcategory", "difficulty")
    cells: Mapping[str, Any] = row
    lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, row["options"], strict=False)]
    right = lines[LETTERS.index(row["truth_letter"])]
    return {**{name: cells[name] for name in names}, "options": "\n".join(lines), "right": right}


def address_of(name: str, content: bytes, images_at: str | None) -> str:
    """Return Label Studio's address of an image: a URL below `images_at`, or the image itself as a data URL."""
    if images_at is not None:
        return f"{images_at.rstrip('/')}/{name}"
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _safe(row: Mapping[str, str]) -> dict[str, str]:
    return {name: guarded(cell) for name, cell in row.items()}
