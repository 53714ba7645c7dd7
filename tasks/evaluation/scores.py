"""Read a file of another model's scores, in CSV, JSON lines or Parquet, strictly."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.evaluations import Evaluation
from earmark.schemas.files import require_regular
from earmark.tasks.evaluation.asking import INCONSISTENT, Prediction, leader
from earmark.tasks.evaluation.samples import LETTERS, Samples
from earmark.tasks.store.sql import exactly, literal

FORMATS = {  # reader and writer by a file's ending
    ".csv": ("read_csv({}, header = true, all_varchar = true)", "FORMAT csv, HEADER"),
    ".tsv": ("read_csv({}, header = true, all_varchar = true, delim = '\t')", "FORMAT csv, HEADER, DELIMITER '\t'"),
    ".jsonl": ("read_ndjson({})", "FORMAT json"),
    ".ndjson": ("read_ndjson({})", "FORMAT json"),
    ".parquet": ("read_parquet({})", "FORMAT parquet"),
}


class NotCovered(InputError):
    """Error of a file of scores that says nothing of an evaluation."""


def require_form(evaluation: Evaluation) -> None:
    """Refuse a file of clip scores for an evaluation beyond numbers per clip.

    Raises:
        StoreError: the evaluation needs more than a number per clip.
    """
    if not evaluation.clips:
        what = {"yes_no": "a yes or no about each item", "choice": "a letter"}.get(evaluation.kind, "a number a sample")
        raise StoreError(
            f"evaluation '{evaluation.name}' asks for {what}: one score a clip cannot express it; give a row a sample, "
            "with its id"
        )


def order_of(evaluation: Evaluation) -> str:
    """Describe the clips behind the sides of a preference in a file of scores."""
    return f"{' and '.join(evaluation.sides)} are {evaluation.order}"


def _forms(evaluation: Evaluation) -> tuple[str, list[tuple[str, ...]]]:
    """Describe the possible columns of a file, and list them by name; the first complete set is read."""
    first, second = evaluation.sides
    match evaluation.kind:
        case "preference":
            says = (
                f"choice ({first}, {second}, tie), or score_{first} and score_{second}, or score (above 0 where "
                f"{first} is better), where {order_of(evaluation)}"
            )
            return says, [("choice",), (f"score_{first}", f"score_{second}"), ("score",)]
        case "yes_no":
            says = "items (a list: of each, the probability of yes), score (probability of yes, 0 to 1) or choice"
            return f"{says} (yes, no)", [("items",), ("score",), ("choice",)]
        case "scalar":
            return "score (a number)", [("score",)]
    return "choice (a letter)", [("choice",)]


def read_scores(path: Path, samples: Samples, shared: bool = False) -> dict[str, Prediction]:
    """Read predictions of the selected samples from a file; a sample with empty cells has no answer.

    Args:
        path: a file with the column `id` and, by the evaluation's kind, the columns of `_forms`.
        samples: the selected samples; the file may have others too.
        shared: whether the file may hold other evaluations' samples too.

    Raises:
        InputError: the file cannot be read, lacks a column, repeats an id, has an unknown id, lacks a sample, or holds
            an invalid score.
        NotCovered: a shared file has no sample of the evaluation.
    """
    table, evaluation = read_table(path), samples.evaluation
    known = {row[0] for row in samples.connection.execute("SELECT id FROM judged.everything").fetchall()}
    if shared and "id" in table.column_names and known.isdisjoint(map(str, table["id"].to_pylist())):
        raise NotCovered(f"{evaluation.name}, for which {path} has none of its samples")
    says, forms = _forms(evaluation)
    form = next((form for form in forms if {*form} <= {*table.column_names}), None)
    if "id" not in table.column_names or form is None:
        raise InputError(f"{path}: expected the columns id and {says}; found {', '.join(table.column_names)}")
    wanted = {row[0] for row in samples.connection.execute("SELECT id FROM judged.samples").fetchall()}
    sizes = samples.sizes()
    predictions: dict[str, Prediction] = {}
    for place, row in enumerate(table.select(["id", *form]).to_pylist(), 1):
        where = f"{path}, row {place}"
        name = "" if row["id"] is None else str(row["id"])
        if name not in known and shared:
            continue
        if name not in known:
            raise InputError(f"{where}: unknown id '{name[:80]}': no sample of '{evaluation.name}' has it")
        if name in predictions:
            raise InputError(f"{where}: id '{name}' stands there twice")
        predictions[name] = _prediction(where, name, row, form, evaluation, sizes.get(name))
    if missing := sorted(wanted - predictions.keys()):
        raise InputError(
            f"{path}: {len(missing):,} of {len(wanted):,} samples are missing, the first is '{missing[0]}'; "
            "give a sample without an answer a row with empty cells"
        )
    return {name: predictions[name] for name in wanted}


def format_of(path: Path) -> tuple[str, str]:
    """Return DuckDB's reader and writer for a file of scores.

    Raises:
        InputError: its ending is not a table's.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: expected a file that ends in {', '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]


def read_table(path: Path) -> pa.Table:
    """Read a table of CSV, JSON lines or Parquet.

    Raises:
        InputError: it has another format, or cannot be read.
    """
    reader, _ = format_of(path)
    try:
        require_regular(path)
        with duckdb.connect() as connection:
            return connection.sql(f"FROM {reader.format(literal(exactly(path)))}").to_arrow_table()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except duckdb.Error as error:
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None


def _prediction(
    where: str, name: str, row: Mapping[str, Any], form: tuple[str, ...], evaluation: Evaluation, size: int | None
) -> Prediction:
    values = [row[column] for column in form]
    if form == ("items",):
        return _of_items(where, name, values[0], size)
    if all(value is None or value == "" for value in values):
        return empty(name)
    if form == ("choice",):
        return _chosen(where, name, str(values[0]).strip(), evaluation, size)
    numbers = [number(where, column, value) for column, value in zip(form, values, strict=True)]
    if evaluation.kind != "preference":
        return Prediction(name, score=_share(where, numbers[0]) if evaluation.kind == "yes_no" else numbers[0])
    return preferred(name, numbers[0] if len(numbers) == 1 else numbers[0] - numbers[1], evaluation)


def preferred(name: str, lead: float, evaluation: Evaluation) -> Prediction:
    """Return the prediction of the side with the higher score, by the first side's lead."""
    return Prediction(name, score=lead, choice=leader(evaluation, lead))


def empty(name: str) -> Prediction:
    """Return the prediction of a sample with empty cells."""
    return Prediction(name, reason="no_score", detail="the file's cells are empty")


def _of_items(where: str, name: str, cell: Any, size: int | None) -> Prediction:
    """Read a list of probabilities, in CSV as JSON; a list without numbers is no answer."""
    try:
        values = json.loads(cell or "[]") if isinstance(cell, str | None) else cell
    except ValueError:
        values = None
    if not isinstance(values, list):
        raise InputError(f"{where}: expected items as a list such as [0.9, 0.2], found {str(cell)[:80]!r}")
    if all(value is None for value in values):
        return empty(name)
    numbers = [_share(where, number(where, "items", value)) for value in values]
    if size is not None and len(numbers) != size:
        raise InputError(f"{where}: expected {size} items, found {len(numbers)}")
    items = [{"item": str(place), "score": value} for place, value in enumerate(numbers, 1)]
    return Prediction(name, score=sum(numbers) / len(numbers), items=items)


def _share(where: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"{where}: expected a score from 0 to 1, found {value}")
    return value


def _chosen(where: str, name: str, choice: str, evaluation: Evaluation, size: int | None) -> Prediction:
    if evaluation.kind == "yes_no":
        if choice.casefold() not in ("yes", "no"):
            raise InputError(f"{where}: expected yes or no, found {choice[:80]!r}")
        return Prediction(name, score=float(choice.casefold() == "yes"))
    if evaluation.kind == "preference":
        first, second = evaluation.sides
        if choice.casefold() not in (first, second, "tie", INCONSISTENT):
            raise InputError(f"{where}: expected {first}, {second} or tie, found {choice[:80]!r}")
        return Prediction(name, choice=choice.casefold())
    if len(choice) != 1 or not choice.isascii() or not choice.isalpha():
        raise InputError(f"{where}: expected a letter, found {choice[:80]!r}")
    if size is not None and LETTERS.index(choice.upper()) >= size:
        raise InputError(f"{where}: expected a letter from A to {LETTERS[size - 1]}, found '{choice.upper()}'")
    return Prediction(name, choice=choice.upper())


def number(where: str, column: str, value: Any) -> float:
    """Parse a cell as a finite number.

    Raises:
        InputError: it is not one.
    """
    try:
        read = float(value)
    except (TypeError, ValueError):
        read = math.nan
    if not math.isfinite(read):
        raise InputError(f"{where}: expected a number as {column}, found {str(value)[:80]!r}")
    return read
