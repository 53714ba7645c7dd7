"""Choose captions for `instruction-rubrics`: keep groups together, place them in bench or corpus, meet the counts."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from earmark.schemas.instruction_rubrics import NEAR_CAPTIONS, SPARE, InstructionRubrics
from earmark.schemas.reasons import Reject
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.importers.caption_sets import YOUTUBE
from earmark.tasks.instruction_rubrics.deciding import draw, role_of
from earmark.tasks.instruction_rubrics.leakage import recordings_of
from earmark.tasks.instruction_rubrics.rows import CaptionRow
from earmark.tasks.instruction_rubrics.similarity import similarities
from earmark.tasks.pipeline.grouping import group
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.rows import Rows, keep_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.store.staging import Stage
from earmark.tasks.text.near_texts import near_groups

# columns that place a caption; the others are read again for those taken
DECIDE = ["row", "source", "item", "text", "origin", "source_file", "line", "subset", "generated", "set", "path",
          "clip_sha256", "instruction_id"]  # fmt: skip
ROWS_AT_ONCE = 5000
NOT_COMPARED = (
    "recordings were not compared by sound (fingerprint = 0), only clips by hash and captions by words: "
    "another encoding or an excerpt of a clip may lie in the other split; 0.9 compares them and needs Chromaprint, a "
    "system library (Debian: libchromaprint1)"
)


class Chosen(NamedTuple):
    """The chosen captions."""

    captions: Rows[CaptionRow]  # with their place, role, split, and the similarity of clip and caption
    prints: Path | None  # acoustic fingerprints of the candidates' clips; None without comparison


@step("choose", unit="captions", follows="index", label="")
def choose_captions(stage: Stage, config: InstructionRubrics, usable: Path) -> Done[Chosen]:
    """Place captions in bench and corpus and take as many as the counts need.

    A caption's place in the draw follows from the seed, its clip and its words; with more captions, the taken ones
    stay, unless one of smaller hash comes before them.
    """
    rows: list[CaptionRow] = pq.ParquetFile(usable).read(DECIDE).to_pylist()
    recordings, prints = recordings_of(stage, config, rows)
    with working("group captions"):
        crossing = _place_in_sets(rows, config, recordings)
    rejects = [
        Reject(row["item"], "in_bench", "expected a clip apart from the bench, found one of its group",
               row["source_file"], row["line"], made_from=(("clip", row["clip_sha256"]),))
        for row in crossing
    ]  # fmt: skip
    left_out = {id(row) for row in crossing}
    taken = _taken([row for row in rows if id(row) not in left_out], config)
    taken.sort(key=lambda row: row["row"])
    cosines = similarities(stage, config, [(row, row["text"]) for row in taken], unknown=1.0)
    captions: Iterator[CaptionRow] = (
        {**whole, **row, "base": at, "similarity": next(cosines)}
        for at, (whole, row) in enumerate(zip(_whole(usable, {row["row"] for row in taken}), taken, strict=True))
    )
    return Done(
        Chosen(keep_rows(stage, "chosen", captions), prints),
        Account(
            entered=len(rows),
            kept=len(taken),
            rejects=[(SAMPLES.name, reject) for reject in rejects],
            filtered={"beyond the counts and their spare": len(rows) - len(rejects) - len(taken)},
            notes=() if config.fingerprint else (NOT_COMPARED,),
        ),
    )


def _whole(usable: Path, numbers: Set[int]) -> Iterator[CaptionRow]:
    """Yield the captions of these numbers with all their columns, in order, a batch in memory at a time."""
    for batch in pq.ParquetFile(usable).iter_batches(ROWS_AT_ONCE):
        yield from (row for row in batch.to_pylist() if row["row"] in numbers)


def _place_in_sets(rows: list[CaptionRow], config: InstructionRubrics, recordings: Sequence[str]) -> list[CaptionRow]:
    """Give every row its `group_id` and `split`; return the bench's rows kept out of it by their source."""
    near = near_groups([row["text"] for row in rows], NEAR_CAPTIONS)
    groups = group(
        [("recording", recording), ("text", text), *([_origin(row)] if row["origin"] else [])]
        for row, recording, text in zip(rows, recordings, near, strict=True)
    )
    members: dict[int, list[CaptionRow]] = defaultdict(list)
    for row, number in zip(rows, groups, strict=True):
        members[number].append(row)
    crossing: list[CaptionRow] = []
    for own in members.values():
        name = min(hashlib.sha256(f"{row['clip_sha256']}".encode()).hexdigest()[:16] for row in own)
        pinned = {row["set"] for row in own} - {None}
        by_hash = "test" if draw(config.seed, "bench", name) < config.bench_share else "train"
        split = "test" if "test" in pinned else "train" if pinned else by_hash
        for row in own:
            row |= {"group_id": name, "split": split}
            if split == "test" and row["set"] == "train":
                crossing.append(row)
    return crossing


def _origin(row: CaptionRow) -> tuple[str, ...]:
    """Return the origin of a row's clip; a video is the same in all sources."""
    origin = str(row["origin"])
    return ("origin", origin) if origin.startswith(YOUTUBE) else ("origin", row["source"], origin)


def _taken(rows: Sequence[CaptionRow], config: InstructionRubrics) -> list[CaptionRow]:
    """Take as many captions of each set and subset as its count may need, and give each its role and place."""
    pools: dict[tuple[str, str], list[CaptionRow]] = defaultdict(list)
    judged = {source.name for source in config.sources if config.judged(source.name)}
    for row in rows:
        base = f"{row['clip_sha256']}\n{row['instruction_id']}"
        weights = dict(config.weights)
        if row["source"] not in judged:
            del weights["judged"]
        row["place"], row["role"] = draw(config.seed, "place", base), role_of(config.seed, base, weights)
        pools[row["split"], row["subset"]].append(row)
    taken: list[CaptionRow] = []
    for (split, subset), pool in sorted(pools.items()):
        pool.sort(key=lambda row: (row["place"], row["row"]))
        count = config.counts.get(split, {}).get(subset)  # type: ignore[call-overload]
        if count is not None:
            # A caption of real audio can give a positive and a negative; of generated audio often only one of them.
            needed = count if any(row["generated"] for row in pool) else count / 2
            pool = pool[: math.ceil(needed * (1 + SPARE))]
        taken += pool
    return taken
