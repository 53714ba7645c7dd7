"""Read and write AnyAudio-Judge-Bench's rows in their released form, Parquet or JSON lines."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any, NotRequired, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.errors import InputError
from earmark.schemas.instruction_rubrics import LANGUAGES
from earmark.schemas.reasons import Note, Reject
from earmark.schemas.tables import AUDIO
from earmark.tasks.importers.table import named_rows, table_file
from earmark.tasks.text.bilingual import language_of


class ReleasedRow(TypedDict):
    """A row in the released form."""

    uuid: str
    audio: Any  # a file's name, or its bytes and path
    caption: str
    label: str
    type: str
    subset: str
    rubric: list[dict[str, str]]
    language: str | None


class ReleasedSample(TypedDict):
    """A row of `samples`; `asked` leaves it for `items`."""

    sample_id: str
    split: str
    pair_id: str
    subset: str
    instruction_id: str
    language: str | None
    instruction: str
    kind: str
    follows: bool
    file: str | None
    asked: NotRequired[list[str]]


WANTED = {name: name for name in ("uuid", "audio", "caption", "label", "type", "subset", "rubric")}
QUESTION = ("question", "题目")
RELEASED = pa.schema(
    [
        ("uuid", pa.string()),
        ("audio", AUDIO),
        *((name, pa.string()) for name in ("caption", "label", "type", "subset")),
        ("rubric", pa.list_(pa.struct([(name, pa.string()) for name in ("dimension", "question", "basis")]))),
    ]
)


def read(path: Path, embedded: Path) -> dict[str, list[Any]]:
    """Read the rows of a file, or of all files below a folder, as rows of `samples` and `items`.

    A row's language is its `language` column, else `en` or `zh` in the names of folder and file (the released config),
    else that of all captions of the file together. A row without questions is asked about its caption as the only item.
    `kind` holds the published `type`.

    Args:
        path: the file or folder.
        embedded: the folder for audio embedded in tables; the rows name it by its file's name.

    Raises:
        InputError: a file cannot be read, or a row has another layout.
    """
    found = [path]
    if path.is_dir():
        found = [one for one in sorted(path.rglob("*")) if one.suffix in (".parquet", ".jsonl") and one.is_file()]
    if not found:
        raise InputError(f"{path}: expected files that end in .parquet or .jsonl, found none")
    samples: list[ReleasedSample] = []
    for one in found:
        first = len(samples)
        rows: Iterator[tuple[int, Any]] = named_rows(table_file(one, one.name), WANTED, {"language": "language"})
        for line, row in rows:
            if isinstance(row, Reject):
                raise InputError(f"{one}, line {line}: {row.detail}")
            if not isinstance(row, Note):
                samples.append(_sample(row, f"{one}, line {line}", embedded))
        place = one.relative_to(path.parent) if path.is_dir() else Path(path.parent.name, path.name)
        named = [word for word in re.split(r"[^a-z]+", str(place).lower()) if word in LANGUAGES]
        language = named[-1] if named else language_of("\n".join(row["instruction"] for row in samples[first:]))
        for sample in samples[first:]:
            sample |= {"language": sample["language"] or language}
    of_file: dict[str, str] = {}  # samples of one clip depend on each other, also where the clips are not at hand
    for sample in samples:
        if sample["file"] is not None:
            sample["pair_id"] = of_file.setdefault(sample["file"], sample["pair_id"])
    items = [
        {"instruction_id": sample["instruction_id"], "language": sample["language"], "item": place, "question": text}
        for sample in samples
        for place, text in enumerate(sample.pop("asked"), 1)
    ]
    return {"samples": samples, "items": items}


def _sample(row: ReleasedRow, where: str, embedded: Path) -> ReleasedSample:
    if row["label"] not in ("yes", "no"):
        raise InputError(f"{where}: expected yes or no as label, found {str(row['label'])[:80]!r}")
    key, caption, rubric = str(row["uuid"] or ""), str(row["caption"] or ""), row["rubric"] or []
    if not key or not caption or not isinstance(rubric, list):
        raise InputError(f"{where}: expected a uuid, a caption and a list as rubric")
    asked = [next((item[name] for name in QUESTION if item.get(name)), None) for item in rubric]
    return {
        "sample_id": key,
        "split": "test",
        "pair_id": key,
        "subset": row["subset"],
        "instruction_id": key,
        "language": row["language"],
        "instruction": caption,
        "kind": row["type"],
        "follows": row["label"] == "yes",
        "file": _file(row["audio"], where, embedded),
        "asked": [str(one) for one in asked if one] or [caption],
    }


def _file(audio: Any, where: str, embedded: Path) -> str | None:
    """Return the file named by a row, or a file written from its embedded audio."""
    if not isinstance(audio, Mapping):
        return None if audio is None else str(audio)
    content, name = audio.get("bytes"), str(audio.get("path") or "")
    if content is None:
        return name or None
    if not isinstance(content, bytes):
        raise InputError(f"{where}: expected the bytes of a file as audio, found {type(content).__name__}")
    path = embedded / f"{hashlib.sha256(content).hexdigest()}{PurePosixPath(name).suffix or '.wav'}"
    path.write_bytes(content)
    return path.name


def write(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write rows of `bench_rows.sql` in the released form: `en/test.parquet` and `zh/test.parquet` beside a folder of
    clips, with paths relative to the export."""
    with ExitStack() as files:
        writers: dict[str, pq.ParquetWriter] = {}
        for batch in batches:
            for language in batch["language"].unique().to_pylist():
                rows = batch.filter(pc.field("language") == language).to_pylist()
                held = [{name: row[name] for name in WANTED} for row in rows]
                for row in held:
                    row["audio"] = {"bytes": None, "path": row["audio"]}
                if language not in writers:
                    place = path.parent / language / path.name
                    place.parent.mkdir(exist_ok=True)
                    writers[language] = files.enter_context(pq.ParquetWriter(place, RELEASED, compression="zstd"))
                writers[language].write_table(pa.Table.from_pylist(held, RELEASED))
