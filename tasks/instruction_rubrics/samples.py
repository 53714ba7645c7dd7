"""Write the published tables of `instruction-rubrics` from the chosen pairs, a row for each language."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.instruction_rubrics import SETS, InstructionRubrics
from earmark.schemas.rubric_tables import CLIPS, INSTRUCTIONS, ITEMS, JUDGMENTS, LABELS, SAMPLES
from earmark.schemas.tables import AUDIO, UNSPLIT, Table
from earmark.tasks.instruction_rubrics.asks import MISMATCH, READ, VERIFY
from earmark.tasks.instruction_rubrics.choosing import Chosen
from earmark.tasks.instruction_rubrics.leakage import check_leakage
from earmark.tasks.instruction_rubrics.pairs import choose
from earmark.tasks.instruction_rubrics.rows import NegativeRow, RubricRow, SampleRow, VerifiedCaption
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.media import with_audio
from earmark.tasks.pipeline.rows import Rows, read_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked
from earmark.tasks.store.staging import Stage

ROWS_AT_ONCE = 20_000
JUDGES = (VERIFY.name, MISMATCH.name, READ.name)


@step("samples", unit="sample rows", table=SAMPLES.name, label="write samples")
def write_samples(
    stage: Stage,
    config: InstructionRubrics,
    chosen: Chosen,
    verified: Rows[VerifiedCaption],
    negatives: Rows[NegativeRow],
    rubrics: Rows[RubricRow],
    evidence: tuple[Walked, Walked],
) -> Done[None]:
    """Balance positives and negatives and write every table.

    `evidence` holds the requests about captions and their clips, and about other instructions on these clips.

    Raises:
        StoreError: bench and corpus would share a clip, a recording or a near-duplicate text.
    """
    clips, accounts = _write_pairs(stage, config, chosen, verified, negatives, rubrics)
    stage.write(JUDGMENTS, UNSPLIT, _batches(JUDGMENTS, _judgment_rows(evidence, clips)))
    return Done(None, *accounts)


def _write_pairs(
    stage: Stage,
    config: InstructionRubrics,
    chosen: Chosen,
    verified: Rows[VerifiedCaption],
    negatives: Rows[NegativeRow],
    rubrics: Rows[RubricRow],
) -> tuple[set[str], list[Account]]:
    """Write all tables but the judgments; return the clips used, and accounts. The judgments need none of these
    rows."""
    captions = read_rows(verified)
    by_base = {row["base"]: row for row in captions}
    by_id = {row["instruction_id"]: row for row in read_rows(rubrics)}
    pairs, accounts = choose(config, [row for row in captions if row["positive"]], read_rows(negatives), by_id)
    samples = [sample for pair in pairs for sample in _samples(pair, by_base)]
    used = {sample["instruction_id"] for sample in samples}
    instructions = [row for key, row in by_id.items() if key in used]
    check_leakage(chosen.prints, config, samples, [(row["split"], row["text"]) for row in instructions])
    kept = 0
    for split in SETS:
        own = [sample for sample in samples if sample["split"] == split]
        kept += stage.write(SAMPLES, split, _batches(SAMPLES, _sample_rows(own, by_id, config)))
        stage.write(LABELS, split, _batches(LABELS, _label_rows(own, by_id, config)))
        texts = [row for row in instructions if row["split"] == split]
        stage.write(INSTRUCTIONS, split, _batches(INSTRUCTIONS, _instruction_rows(texts, config)))
        stage.write(ITEMS, split, _batches(ITEMS, _item_rows(texts, config)))
        clips = {sample["clip_sha256"]: by_base[sample["base"]] for sample in own}
        stage.write(CLIPS, split, _clip_batches(list(clips.values()), config))
    for table in (SAMPLES, LABELS, INSTRUCTIONS, ITEMS, CLIPS):
        stage.drop_empty_splits(table)
    languages = f"{len(config.languages)} languages" if config.languages else "the language of their captions"
    notes = [f"{len(pairs):,} pairs in {languages}"]
    accounts.append(Account(len(samples) * (len(config.languages) or 1), kept, notes=notes))
    return {sample["clip_sha256"] for sample in samples}, accounts


def _samples(pair: tuple[Row, Row], captions: Mapping[int, VerifiedCaption]) -> Iterator[SampleRow]:
    """Yield both samples of a pair, with their language-independent fields."""
    positive, negative = pair
    pair_id = _digest("pair", *(f"{captions[row['base']]['clip_sha256']} {row['instruction_id']}" for row in pair))
    for row, follows in ((positive, True), (negative, False)):
        clip = captions[row["base"]]
        kind = "pos" if follows else row["kind"]
        items = row["labelled"]["answers"]
        sample: Any = {
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
            "verified": row["verified"],
            "similarity": row.get("similarity"),
            "items": len(items),
            "items_yes": sum(item["answer"] for item in items),
            "source_file": row["source_file"],
            "source_line": row["line"],
            "labelled": row["labelled"],
        }
        yield sample


def _sample_rows(
    samples: Iterable[SampleRow], rubrics: Mapping[str, RubricRow], config: InstructionRubrics
) -> Iterator[Row]:
    for sample in samples:
        for language in config.rows_in(rubrics[sample["instruction_id"]]["language"]):
            instruction = _texts(rubrics[sample["instruction_id"]], language)[0]
            yield {**sample, "language": language, "instruction": instruction}


def _label_rows(
    samples: Iterable[SampleRow], rubrics: Mapping[str, RubricRow], config: InstructionRubrics
) -> Iterator[Row]:
    for sample in samples:
        labelled = sample["labelled"]
        for language in config.rows_in(rubrics[sample["instruction_id"]]["language"]):
            other = labelled["translations"].get(language)
            for place, answer in enumerate(labelled["answers"]):
                yield {
                    **{name: sample[name] for name in ("sample_id", "split", "clip_sha256", "source")},
                    "item": answer["item"],
                    "language": language,
                    "answer": answer["answer"],
                    "rationale": other["texts"][place] if other else answer["rationale"],
                    "labelled_by": answer["by"],
                    "prompt": answer["prompt"],
                    "request_key": answer["key"],
                }


def _instruction_rows(rubrics: Iterable[RubricRow], config: InstructionRubrics) -> Iterator[Row]:
    for row in rubrics:
        for language in config.rows_in(row["language"]):
            other = row["translations"].get(language)
            yield {
                **{name: row[name] for name in ("instruction_id", "split", "domain", "source")},
                "language": language,
                "text": _texts(row, language)[0],
                "original": other is None,
                "altered_from": row.get("altered_from"),
                "flags": other["flags"][0] if other else [],
                "written_by": other["by"] if other else row["written_by"],
            }


def _item_rows(rubrics: Iterable[RubricRow], config: InstructionRubrics) -> Iterator[Row]:
    for row in rubrics:
        for language in config.rows_in(row["language"]):
            other, texts = row["translations"].get(language), _texts(row, language)
            for number, item in enumerate(row["items"], 1):
                yield {
                    **{name: row[name] for name in ("instruction_id", "split", "source")},
                    "item": number,
                    "language": language,
                    "dimension": item["dimension"],
                    "question": texts[number],
                    "basis": item["basis"],
                    "flags": [*item["flags"], *(other["flags"][number] if other else [])],
                    "written_by": other["by"] if other else row["items_by"],
                }


def _texts(rubric: RubricRow, language: str) -> list[str]:
    """Return an instruction and its questions in a language."""
    if other := rubric["translations"].get(language):
        texts: list[str] = other["texts"]
        return texts
    return [rubric["text"], *(item["question"] for item in rubric["items"])]


def _judgment_rows(evidence: tuple[Walked, Walked], clips: set[str]) -> Iterator[Row]:
    """Yield the answers about clips in the samples, including those on instructions not taken."""
    for walked in evidence:
        rows = read_rows(walked.source)
        for draw in walked.read_draws():
            row = rows[draw["at"]]
            answered = draw["ask"] in JUDGES and draw["last"] and draw["reason"] is None
            if not answered or row["clip_sha256"] not in clips:
                continue
            judged = row["candidates"][draw["candidate"]] if "candidate" in draw else row
            yield {
                **{name: row[name] for name in ("clip_sha256", "split", "subset", "source")},
                "instruction_id": judged["instruction_id"],
                "pass": draw.get("pass", 1),
                "question": draw["ask"],
                "answer": draw["value"]["answer"] == "yes",
                "evidence": draw["value"]["evidence"],
                "judge": draw["annotator"],
                "prompt": draw["prompt"],
                "request_key": draw["request_key"],
                "similarity": judged["similarity"],
            }


def _clip_batches(clips: list[VerifiedCaption], config: InstructionRubrics) -> Iterator[pa.Table]:
    bare = pa.schema([field for field in CLIPS.schema if field.type != AUDIO])
    files = [Path(row["path"]) for row in clips] if config.embed else None
    return with_audio(pa.Table.from_pylist(clips, bare), files)


def _batches(table: Table, rows: Iterator[Row]) -> Iterator[pa.Table]:
    while batch := list(islice(rows, ROWS_AT_ONCE)):
        yield pa.Table.from_pylist(batch, table.schema)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
