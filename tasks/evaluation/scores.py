"""Read a file of another model's scores, in CSV, JSON lines or Parquet, strictly."""

import csv
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa

from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.evaluations import Evaluation
from earmark.schemas.files import require_regular
from earmark.tasks.evaluation.kinds import Parsing, Prediction, empty, find_kind
from earmark.tasks.evaluation.samples import Samples
from earmark.tasks.store.sql import exactly, literal, quoted

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
    """Refuse a file of clip scores for an evaluation beyond numbers per clip."""
    if not evaluation.clips:
        cell = find_kind(evaluation.kind).cell
        raise StoreError(
            f"evaluation '{evaluation.name}' asks for {cell}: one score a clip cannot express it; give a row a sample, "
            "with its id"
        )


def read_scores(path: Path, samples: Samples, shared: bool = False) -> dict[str, Prediction]:
    """Read predictions of the selected samples from a file; a sample with empty cells has no answer.

    Args:
        path: a file with the column `id` and, by the evaluation's kind, its `forms`.
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
    kind = find_kind(evaluation.kind)
    says, forms = kind.forms(evaluation)
    form = next((form for form in forms if {*form} <= {*table.column_names}), None)
    if "id" not in table.column_names or form is None:
        raise InputError(f"{path}: expected the columns id and {says}; found {', '.join(table.column_names)}")
    filled = {name for name in table.column_names if table[name].null_count < table.num_rows}
    if more := filled & {column for other in forms for column in other} - {*form}:
        raise InputError(
            f"{path}: expected one form of answers, {says}; found {', '.join(form)} and also "
            f"{', '.join(sorted(more))}: remove the columns of one of them"
        )
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
        cells = [row[column] for column in form]
        parsing = Parsing(where, name, form, evaluation, sizes.get(name))
        whole = all(cell is not None and cell != "" for cell in cells)
        predictions[name] = kind.parse(parsing, cells) if whole else empty(name)
    if missing := sorted(wanted - predictions.keys()):
        raise InputError(
            f"{path}: {len(missing):,} of {len(wanted):,} samples are missing, the first is '{missing[0]}'; "
            "give a sample without an answer a row with empty cells"
        )
    return {name: predictions[name] for name in wanted}


def format_of(path: Path) -> tuple[str, str]:
    """Return DuckDB's reader and writer for a file of scores."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: expected a file that ends in {', '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]


def read_table(path: Path) -> pa.Table:
    """Read a table of CSV, JSON lines or Parquet.

    Raises:
        InputError: it has another format, cannot be read, or has a row of other length than the header.
    """
    reader, _ = format_of(path)
    try:
        require_regular(path)
        with duckdb.connect() as connection:
            read = connection.sql(f"FROM {reader.format(literal(exactly(path)))}")
            # numbers beside texts come as JSON, in which texts have quotation marks
            mixed = [quoted(name) for name, kind in zip(read.columns, read.types, strict=True) if str(kind) == "JSON"]
            plain = ", ".join(f"{name} ->> '$' AS {name}" for name in mixed)
            table = (read.select(f"* REPLACE ({plain})") if mixed else read).to_arrow_table()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except duckdb.Error as error:
        _require_even(path, [])
        if "utf-" in str(error).lower().partition("possible solution")[0]:
            raise InputError(
                f"{path}: expected text in UTF-8, found another encoding; save the file as UTF-8"
            ) from None
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    _require_even(path, table.column_names)
    return table


def _require_even(path: Path, names: list[str]) -> None:
    """Refuse CSV with a row of other length than its header: DuckDB then looks for other delimiters and headers.

    Args:
        names: the columns that DuckDB found; if they are the header, it has read each row by it.
    """
    if path.suffix.lower() not in (".csv", ".tsv"):
        return
    with suppress(UnicodeDecodeError, csv.Error), path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        rows = csv.reader(file, delimiter=max(",;\t|", key=first.count))
        header = next(rows, [])
        for row in rows if names != header else ():
            if row and len(row) != len(header):
                raise InputError(
                    f"{path}, line {rows.line_num}: expected {len(header)} cells, as in the header, found {len(row)}"
                )
