"""Read and write CMI-RewardBench's own files, `all_test.jsonl` and `all_train.jsonl`: a line per vote or rated clip.

`source` names the set of a line. A sample is a vote, not a pair: two votes on the same clips are two samples. In
these files no lyrics mean instrumental music, and every prompt counts as text, as in the benchmark's script.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Note, Reject, shown
from earmark.tasks.importers.cells import BadRow, clip, given, number
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.music import words
from earmark.tasks.importers.table import named_rows, table_file
from earmark.tasks.importers.votes import to_vote

Row = dict[str, Any]

SETS = {
    "PAM": "pam",
    "MusicEval": "musiceval",
    "SongEval": "musiceval",
    "Music Arena": "music-arena",
    "cmi-arena-annotation": "cmi-pref",
}
"""The benchmark's task by a part of `source`."""
WANTED = {"audio_a": "audio-path", "source": "source"}
VOTED = {
    "audio_b": "audio2", "text": "prompt", "lyrics": "lyrics", "prompt_id": "prompt id", "reference": "ref-audio-path",
    "model_a": "model_a", "model_b": "model_b", "annotator": "user id", "date": "date", "split": "split",
    "vote_id": "id",
    "musicality": "preference-musicality", "confidence_musicality": "confidence_preference-musicality",
    "alignment": "preference-alignment", "confidence_alignment": "confidence_preference-alignment",
    "overall": "preference",
}  # fmt: skip
RATED = {"rated_musicality": "musicality", "rated_alignment": "text-music alignment"}
_MONTH = re.compile(r"(?:^|/)MusicArena_data/[^/]+/([^/]+)/")
_SYSTEM = re.compile(r"(S\d+)_P\d+")


def read(path: Path, _: Path) -> dict[str, list[Row]]:
    """Read the lines of a file as rows of `benchmark`, `clips` and the tables joined by the evaluations.

    Raises:
        InputError: the file cannot be read, a line has another layout, or two lines have one id.
    """
    file, root = table_file(path, path.name), str(path.parent.absolute())
    tables, lines = BenchmarkTables([], [], [], [], {}), dict[tuple[str, str], int]()
    for line, row in named_rows(file, WANTED, {**VOTED, **RATED}):
        if isinstance(row, Note):
            continue
        try:
            if isinstance(row, Reject):
                raise BadRow(row.reason, row.detail)
            task, samples, votes = _task(row["source"]), len(tables.benchmark), len(tables.comparisons)
            (_add_ratings if task in ("pam", "musiceval") else _add_vote)(tables, task, row, file, line, root)
        except BadRow as bad:
            raise InputError(f"{path}, line {line}: {bad.detail}") from None
        added = [("vote", one["comparison_id"]) for one in tables.comparisons[votes:]]
        added += [("sample", one["sample_id"]) for one in tables.benchmark[samples:]]
        if first := next((lines[one] for one in added if lines.setdefault(one, line) != line), None):
            name = shown(row["vote_id"] or f"{task}-{line}")
            raise InputError(
                f"{path}, lines {first} and {line}: expected an id of its own for each line, found '{name}' in both; "
                f"write the set before it, such as '{task}/{name}', or leave out `id`"
            )
    return {**tables._asdict(), "clips": [{"clip_id": name, "file": file} for name, file in tables.clips.items()]}


class BenchmarkTables(NamedTuple):
    """Rows by table, and the files of clips."""

    benchmark: list[Row]
    comparisons: list[Row]
    votes: list[Row]
    ratings: list[Row]
    clips: dict[str, str | None]


def _task(source: Any) -> str:
    found = next((task for part, task in SETS.items() if part in str(source)), None)
    if found is None:
        raise BadRow("bad_value", f"expected a source such as {', '.join(SETS)}, found '{shown(source)}'")
    return found


def _add_vote(tables: BenchmarkTables, task: str, row: Row, file: ListFile, line: int, root: str) -> None:
    """Add a vote: of an arena on the whole, of CMI-Pref in each voted dimension."""
    ours = ("overall",) if task == "music-arena" else ("musicality", "alignment")
    others = {"musicality", "alignment", "overall"}.difference(ours)
    kept = {name: None if name.removeprefix("confidence_") in others else row[name] for name in VOTED}
    instrumental = not given(row["lyrics"]) if task == "cmi-pref" else None
    cells = {**kept, "audio_a": row["audio_a"], "instrumental": instrumental}
    vote = to_vote(cells, file, line, root, withheld=True)
    name, split = vote.vote_id or f"{task}-{line}", vote.split or "test"
    sides = [side or f"{name}/{letter}" for side, letter in ((vote.audio_a, "a"), (vote.audio_b, "b"))]
    tables.clips.update(zip(sides, (vote.audio_a, vote.audio_b), strict=True))
    if vote.reference:
        tables.clips[vote.reference] = vote.reference
    asked = {"text": True, "lyrics": vote.lyrics, "audio": vote.reference}
    month = vote.date[:7] if vote.date else next(iter(_MONTH.findall(vote.audio_a or "")), None)
    prompt = f"{task}/{vote.prompt_id or vote.text or name}"
    models = {"model_a": vote.model_a, "model_b": vote.model_b}
    tables.comparisons.append({"comparison_id": name, "split": split, "prompt_id": prompt, **models})
    if vote.annotator:  # tables of results name people by a digest, as in a version
        who = hashlib.sha256(f"{task}/{vote.annotator}".encode()).hexdigest()[:16]
        tables.votes.append({"comparison_id": name, "annotator": who})
    for dimension in ours:
        if (choice := getattr(vote, dimension)) is None:
            continue
        sure = getattr(vote, f"confidence_{dimension}")
        sample = {"sample_id": f"{name}-{dimension}", "split": split, "task": task, "dimension": dimension}
        tables.benchmark.append(
            {
                **sample,
                "comparison_id": name,
                "confidence": sure,
                "text": vote.text,
                "lyrics": vote.lyrics,
                "reference_clip": vote.reference,
                "clip_a": sides[0],
                "clip_b": sides[1],
                "preference": "tie" if choice == "both_bad" else choice,
                "modality": "+".join(part for part, value in asked.items() if value),
                "vocals": vote.vocals,
                "confidence_band": None if sure is None else "<3" if sure < 3 else ">3" if sure > 3 else "3",
                "month": month,
            }
        )


def _add_ratings(tables: BenchmarkTables, task: str, row: Row, _: ListFile, line: int, root: str) -> None:
    file, text = clip(row["audio_a"], root) if given(row["audio_a"]) else None, words(row["text"])
    name = file or f"{row['vote_id'] or f'{task}-{line}'}/a"  # a clip that is not at hand, as of votes
    parent = file.split("/")[-2] if file and "/" in file else None
    system = row["model_a"] or next(iter(_SYSTEM.findall(name)), None) or parent
    tables.clips[name] = file
    scores = {dimension: row[f"rated_{dimension}"] for dimension in ("musicality", "alignment")}
    if not any(map(given, scores.values())):
        raise BadRow("no_score", "expected a number as musicality or text-music alignment, found none")
    for dimension, cell in scores.items():
        if not given(cell):
            continue
        if not math.isfinite(score := number(cell)):
            raise BadRow("bad_value", f"expected a number as {RATED[f'rated_{dimension}']}, found '{shown(cell)}'")
        sample = f"{row['vote_id'] or f'{task}-{line}'}-{dimension}"
        prompt = f"{task}/{row['prompt_id'] or text or sample}"
        tables.ratings.append({"rating_id": sample, "prompt_id": prompt})
        held = {"task": task, "dimension": dimension, "text": text, "clip_a": name, "score": score, "system": system}
        tables.benchmark.append({"sample_id": sample, "split": row["split"] or "test", **held})


def write(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write rows of `released.sql` in the benchmark's form: absent values are empty texts."""
    names: Mapping[str, str] = {**WANTED, **VOTED, **RATED}
    columns = {"audio_a": "a_audio", "audio_b": "b_audio", "reference": "reference_audio", "vote_id": "id"}
    with path.open("w", encoding="utf-8", newline="\n") as lines:
        for batch in batches:
            for row in batch.to_pylist():
                written = {ours: row.get(columns.get(name, name)) for name, ours in names.items()}
                written = {name: "" if value is None else value for name, value in written.items()}
                lines.write(json.dumps(written, ensure_ascii=False) + "\n")
