"""`instruction-rubrics`: the published tables, a row a language, from the pairs that were chosen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from schemas.instruction_rubrics import SETS, InstructionRubrics
from schemas.rubric_tables import CLIPS, INSTRUCTIONS, ITEMS, JUDGMENTS, LABELS, SAMPLES
from schemas.tables import AUDIO, UNSPLIT, Table
from tasks.build.media import EMBEDDED_AT_ONCE, embed
from tasks.instruction_rubrics.apart import prove_apart
from tasks.instruction_rubrics.pairing import Parts, choose, read_parts
from tasks.instruction_rubrics.records import Record, read_records, read_said
from tasks.store.manifest import Step
from tasks.store.staging import Stage

ROWS_AT_ONCE = 20_000


def write_tables(stage: Stage, config: InstructionRubrics) -> Step:
    """Choose the pairs and write every table."""
    parts = read_parts(stage)
    pairs = choose(stage, config, parts)
    bases = {row["base"]: row for row in read_records(stage, "verified")}
    samples = [sample for pair in pairs for sample in _samples(pair, bases)]
    used = {sample["instruction_id"] for sample in samples}
    instructions = [row for row in parts.instructions.values() if row["instruction_id"] in used]
    prove_apart(stage, config, samples, [(row["split"], row["text"]) for row in instructions])
    kept = 0
    for split in SETS:
        held = [sample for sample in samples if sample["split"] == split]
        kept += stage.write(SAMPLES, split, _batches(SAMPLES, _sample_rows(held, parts, config)))
        stage.write(LABELS, split, _batches(LABELS, _label_rows(held, parts, config)))
        told = [row for row in instructions if row["split"] == split]
        stage.write(INSTRUCTIONS, split, _batches(INSTRUCTIONS, _instruction_rows(told, parts, config)))
        stage.write(ITEMS, split, _batches(ITEMS, _item_rows(told, parts, config)))
        clips = {sample["clip_sha256"]: bases[sample["base"]] for sample in held}
        stage.write(CLIPS, split, _clip_batches(list(clips.values()), config))
    for table in (SAMPLES, LABELS, INSTRUCTIONS, ITEMS, CLIPS):
        stage.drop_empty_splits(table)
    heard = {sample["clip_sha256"] for sample in samples}
    stage.write(JUDGMENTS, UNSPLIT, _batches(JUDGMENTS, _judgment_rows(stage, config, heard)))
    return stage.record(
        Step(
            name="samples",
            place=14,
            unit="sample rows",
            entered=len(samples) * len(config.languages),
            kept=kept,
            table=SAMPLES.name,
            notes=(f"{len(pairs):,} pairs in {len(config.languages)} languages",),
        )
    )


def _samples(pair: tuple[Record, Record], bases: dict[int, Record]) -> Iterator[Record]:
    """Both samples of a pair, with what does not depend on the language."""
    positive, negative = pair
    pair_id = _digest("pair", *(f"{bases[row['base']]['clip_sha256']} {row['instruction_id']}" for row in pair))
    for row, follows in ((positive, True), (negative, False)):
        clip = bases[row["base"]]
        kind = "pos" if follows else row["kind"]
        items = row["labelled"]["answers"]
        yield {
            **{name: row[name] for name in ("base", "split", "subset", "domain", "instruction_id", "source")},
            "sample_id": _digest("sample", clip["clip_sha256"], row["instruction_id"], str(follows)),
            "pair_id": pair_id,
            "clip_sha256": clip["clip_sha256"],
            "follows": follows,
            "kind": kind,
            "truth_id": row["instruction_id"] if follows else row["truth_id"],
            "truth": row["text"] if follows else row["truth"],
            "attribute": row.get("attribute"),
            "span_before": row.get("span_before"),
            "span_after": row.get("span_after"),
            "verified_by": row["verified_by"],
            "similarity": row.get("similarity"),
            "items": len(items),
            "items_yes": sum(item["answer"] for item in items),
            "source_file": row["source_file"],
            "source_line": row["line"],
            "labelled": row["labelled"],
        }


def _sample_rows(samples: Iterable[Record], parts: Parts, config: InstructionRubrics) -> Iterator[Record]:
    for sample in samples:
        for language in config.languages:
            text = _texts(parts, sample["instruction_id"], language)[0]
            yield {**sample, "language": language, "instruction": text}


def _label_rows(samples: Iterable[Record], parts: Parts, config: InstructionRubrics) -> Iterator[Record]:
    for sample in samples:
        labelled = sample["labelled"]
        for language in config.languages:
            own = labelled["language"] == language
            other = None if own else parts.answer_texts[labelled["at"], language]
            for number, answer in enumerate(labelled["answers"], 1):
                yield {
                    **{name: sample[name] for name in ("sample_id", "split", "clip_sha256", "source")},
                    "item": number,
                    "language": language,
                    "answer": answer["answer"],
                    "rationale": answer["rationale"] if other is None else other["translated"][number - 1],
                    "labelled_by": labelled["by"],
                    "prompt": labelled["prompt"],
                    "request_key": labelled["key"],
                }


def _instruction_rows(rows: Iterable[Record], parts: Parts, config: InstructionRubrics) -> Iterator[Record]:
    for row in rows:
        for language in config.languages:
            other = parts.instruction_texts.get((row["instruction_id"], language))
            yield {
                **{name: row[name] for name in ("instruction_id", "split", "domain", "source")},
                "language": language,
                "text": other["translated"][0] if other else row["text"],
                "original": other is None,
                "altered_from": row.get("altered_from"),
                "flags": other["flags"][0] if other else [],
                "written_by": other["by"] if other else row["written_by"],
            }


def _item_rows(rows: Iterable[Record], parts: Parts, config: InstructionRubrics) -> Iterator[Record]:
    for row in rows:
        for language in config.languages:
            other = parts.instruction_texts.get((row["instruction_id"], language))
            for number, item in enumerate(row["items"], 1):
                yield {
                    **{name: row[name] for name in ("instruction_id", "split", "source")},
                    "item": number,
                    "language": language,
                    "dimension": item["dimension"],
                    "question": other["translated"][number] if other else item["question"],
                    "basis": item["basis"],
                    "flags": other["flags"][number] if other else [],
                    "written_by": other["by"] if other else row["items_by"],
                }


def _texts(parts: Parts, name: str, language: str) -> list[str]:
    """An instruction and its questions in a language."""
    other = parts.instruction_texts.get((name, language))
    row = parts.instructions[name]
    return other["translated"] if other else [row["text"], *(item["question"] for item in row["items"])]


def _judgment_rows(stage: Stage, config: InstructionRubrics, heard: set[str]) -> Iterator[Record]:
    """What the judge said of clips that are in the samples, of instructions that were not taken too."""
    for name in ("verify", "contest"):
        jobs = read_records(stage, name)
        for row in read_said(stage, name, config.judge.most_failed):
            job = jobs[row["at"]]
            if row["value"] is None or job["clip_sha256"] not in heard:
                continue
            asked = job if name == "verify" else job["candidates"][row["number"] - 1]
            yield {
                **{column: job[column] for column in ("clip_sha256", "split", "subset", "source")},
                "instruction_id": asked["instruction_id"],
                "pass": row["number"] if name == "verify" else 1,
                "question": row["ask"],
                "answer": row["value"]["answer"] == "yes",
                "evidence": row["value"]["evidence"],
                "judge": row["by"],
                "prompt": row["prompt"],
                "request_key": row["request_key"],
                "similarity": asked["similarity"],
            }


def _clip_batches(clips: list[Record], config: InstructionRubrics) -> Iterator[pa.Table]:
    bare = pa.schema([field for field in CLIPS.schema if field.type != AUDIO])
    for start in range(0, len(clips), EMBEDDED_AT_ONCE if config.embed else ROWS_AT_ONCE):
        held = clips[start : start + (EMBEDDED_AT_ONCE if config.embed else ROWS_AT_ONCE)]
        table = pa.Table.from_pylist([{name: row[name] for name in bare.names} for row in held], bare)
        if config.embed:
            yield embed(table, [Path(row["path"]) for row in held], [row["clip_sha256"] for row in held])
        else:
            yield table.append_column("audio", pa.nulls(len(table), AUDIO))


def _batches(table: Table, rows: Iterable[Record]) -> Iterator[pa.Table]:
    held: list[Record] = []
    for row in rows:
        held.append({name: row[name] for name in table.schema.names})
        if len(held) == ROWS_AT_ONCE:
            yield pa.Table.from_pylist(held, table.schema)
            held = []
    if held:
        yield pa.Table.from_pylist(held, table.schema)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
