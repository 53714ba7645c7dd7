"""Write the published tables of `instruction-rubrics` from the chosen pairs, a row for each language."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa

from earmark.schemas.instruction_rubrics import SETS, InstructionRubrics
from earmark.schemas.rubric_tables import CLIPS, INSTRUCTIONS, ITEMS, JUDGMENTS, LABELS, SAMPLES
from earmark.schemas.tables import AUDIO, UNSPLIT
from earmark.tasks.instruction_rubrics.asks import MISMATCH, READ, VERIFY
from earmark.tasks.instruction_rubrics.choosing import Chosen
from earmark.tasks.instruction_rubrics.leakage import check_leakage
from earmark.tasks.instruction_rubrics.pairs import SamplePair, choose
from earmark.tasks.instruction_rubrics.rows import (
    CandidateClip,
    JudgeDraw,
    NegativeRow,
    PairedRow,
    RubricRow,
    SampleLabels,
    VerifiedCaption,
)
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.media import with_audio
from earmark.tasks.pipeline.rows import Rows, Sorted, each_row
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked
from earmark.tasks.store.staging import Stage

ROWS_AT_ONCE = 5000
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
    """Balance positives and negatives and write every table, with a shard of rows in memory.

    `evidence` holds the requests about captions and their clips, and about other instructions on these clips.

    Raises:
        StoreError: bench and corpus would share a clip, a recording or a near-duplicate text.
    """
    pairs, accounts = choose(config, verified, negatives, rubrics)
    bases: dict[str, dict[str, int]] = {split: {} for split in SETS}  # of each clip the last base, in order
    for pair in pairs:
        bases[pair.split] |= {one.clip_sha256: one.base for one in (pair.positive, pair.negative)}
    facts, labels = Sorted(stage, "facts"), Sorted(stage, "labels")
    instructions: dict[str, Sorted] = {split: Sorted(stage, f"instructions-{split}") for split in SETS}
    texts = _put_rubrics(config, pairs, rubrics, labels, instructions)
    check_leakage(chosen.prints, config, {split: [*clips] for split, clips in bases.items()}, texts)
    _put_facts(pairs, verified, negatives, facts)
    bench = 2 * sum(pair.split == "test" for pair in pairs)
    ends = {"test": (0, bench), "train": (bench, 2 * len(pairs))}

    def samples(split: str) -> Iterator[tuple[PairedRow, SampleLabels]]:
        return zip(facts.read(*ends[split]), labels.read(*ends[split]), strict=True)

    def rubric_rows(split: str) -> Iterator[RubricRow]:
        return instructions[split].read(0, len(texts[split]))

    def clips(split: str) -> Iterator[pa.Table]:
        return _clip_batches(verified, list(bases[split].values()), config)

    kept = stage.write_splits(SAMPLES, lambda split: _batches(SAMPLES.schema, _sample_rows(samples(split))), SETS)
    stage.write_splits(LABELS, lambda split: _batches(LABELS.schema, _label_rows(samples(split))), SETS)
    stage.write_splits(
        INSTRUCTIONS, lambda split: _batches(INSTRUCTIONS.schema, _instruction_rows(rubric_rows(split), config)), SETS
    )
    stage.write_splits(ITEMS, lambda split: _batches(ITEMS.schema, _item_rows(rubric_rows(split), config)), SETS)
    stage.write_splits(CLIPS, clips, SETS)
    languages = f"{len(config.languages)} languages" if config.languages else "the language of their captions"
    entered = 2 * len(pairs) * (len(config.languages) or 1)
    accounts.append(Account(entered, kept, notes=[f"{len(pairs):,} pairs in {languages}"]))
    heard = {*bases["test"], *bases["train"]}
    stage.write(JUDGMENTS, UNSPLIT, _batches(JUDGMENTS.schema, _judgment_rows(evidence, heard)))
    return Done(None, *accounts)


def _put_rubrics(
    config: InstructionRubrics,
    pairs: Sequence[SamplePair],
    rubrics: Rows[RubricRow],
    labels: Sorted,
    instructions: Mapping[str, Sorted],
) -> dict[str, list[str]]:
    """Put the labels of each sample under its number, and each judged instruction without labels in its split; return
    the instructions' words by split."""
    positives: dict[str, list[int]] = defaultdict(list)
    negatives = {pair.negative.number: 2 * at + 1 for at, pair in enumerate(pairs)}
    for at, pair in enumerate(pairs):
        positives[pair.positive.instruction_id].append(2 * at)
    used = {*positives, *(pair.negative.instruction_id for pair in pairs)}
    texts: dict[str, list[str]] = {split: [] for split in SETS}
    for row in each_row(rubrics):
        if row["instruction_id"] not in used:
            continue
        spoken = {language: _texts(row, language)[0] for language in config.rows_in(row["language"])}
        for one in row["labelled"]:
            number = one["negative"]
            places = positives.get(row["instruction_id"], ()) if number is None else (negatives.get(number),)
            for place in (place for place in places if place is not None):
                labels.put(place, {"texts": spoken, "answers": one["answers"], "translations": one["translations"]})
        instructions[row["split"]].put(len(texts[row["split"]]), {**row, "labelled": []})
        texts[row["split"]].append(row["text"])
    return texts


def _put_facts(
    pairs: Sequence[SamplePair], verified: Rows[VerifiedCaption], negatives: Rows[NegativeRow], facts: Sorted
) -> None:
    """Put the caption or the negative of each sample under its number."""

    def put(at: int, row: VerifiedCaption | NegativeRow, **own: str) -> None:
        both = (f"{one.clip_sha256} {one.instruction_id}" for one in (pairs[at // 2].positive, pairs[at // 2].negative))
        sample = _digest("sample", row["clip_sha256"], row["instruction_id"], str(at % 2 == 0))
        facts.put(at, {**row, **own, "sample_id": sample, "pair_id": _digest("pair", *both)})

    positives = {pair.positive.base: 2 * at for at, pair in enumerate(pairs)}
    for caption in each_row(verified):
        if caption["base"] in positives:
            truth = {"truth": caption["text"], "truth_id": caption["instruction_id"]}
            put(positives[caption["base"]], caption, kind="pos", **truth)
    wrong = {pair.negative.number: 2 * at + 1 for at, pair in enumerate(pairs)}
    for number, row in enumerate(each_row(negatives)):
        if number in wrong:
            put(wrong[number], row)


def _sample_rows(samples: Iterable[tuple[PairedRow, SampleLabels]]) -> Iterator[Row]:
    for row, labels in samples:
        own = {
            **row,
            "follows": row["kind"] == "pos",
            "items": len(labels["answers"]),
            "items_yes": sum(one["answer"] for one in labels["answers"]),
            "source_line": row["line"],
        }
        for language, text in labels["texts"].items():
            yield {**own, "language": language, "instruction": text}


def _label_rows(samples: Iterable[tuple[PairedRow, SampleLabels]]) -> Iterator[Row]:
    for row, labels in samples:
        for language in labels["texts"]:
            other = labels["translations"].get(language)
            for place, answer in enumerate(labels["answers"]):
                yield {
                    **{name: row[name] for name in ("sample_id", "split", "clip_sha256", "source")},
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
        return other["texts"]
    return [rubric["text"], *(item["question"] for item in rubric["items"])]


def _judgment_rows(evidence: tuple[Walked, Walked], clips: set[str]) -> Iterator[Row]:
    """Yield the answers about clips in the samples, including those on instructions not taken."""
    for walked in evidence:
        drawn: Iterator[tuple[CandidateClip, JudgeDraw]] = walked.drawn()
        for row, draw in drawn:
            answered, value = draw["ask"] in JUDGES and draw["last"] and draw["reason"] is None, draw["value"]
            if not answered or value is None or row["clip_sha256"] not in clips:
                continue
            judged = row["candidates"][draw["candidate"]] if "candidate" in draw else row
            yield {
                **{name: row[name] for name in ("clip_sha256", "split", "subset", "source")},
                "instruction_id": judged["instruction_id"],
                "pass": draw.get("pass", 1),
                "question": draw["ask"],
                "answer": value["answer"] == "yes",
                "evidence": value["evidence"],
                "judge": draw["annotator"],
                "prompt": draw["prompt"],
                "request_key": draw["request_key"],
                "similarity": judged["similarity"],
            }


def _clip_batches(
    verified: Rows[VerifiedCaption], bases: Sequence[int], config: InstructionRubrics
) -> Iterator[pa.Table]:
    """Yield the clips of captions in the order of `bases`."""
    places = {base: at for at, base in enumerate(bases)}
    bare = pa.schema([field for field in CLIPS.schema if field.type != AUDIO])
    more = pa.schema([*bare, ("path", pa.string()), ("at", pa.int64())])
    rows = ({**row, "at": places[row["base"]]} for row in each_row(verified) if row["base"] in places)
    clips = pa.concat_tables([more.empty_table(), *_batches(more, rows)]).sort_by("at")
    files = [Path(path) for path in clips["path"].to_pylist()] if config.embed else None
    return with_audio(clips.select(bare.names), files)


def _batches(schema: pa.Schema, rows: Iterator[Row]) -> Iterator[pa.Table]:
    while batch := list(islice(rows, ROWS_AT_ONCE)):
        yield pa.Table.from_pylist(batch, schema)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
