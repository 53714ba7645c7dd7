"""`instruction-rubrics`: which captions are taken: groups that may not part, bench or corpus, as many as are needed."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.instruction_rubrics import InstructionRubrics
from schemas.rubric_tables import SAMPLES
from tasks.build.progress import working
from tasks.build.rejects import rejects_table
from tasks.importers.rows import Reject
from tasks.instruction_rubrics.apart import recordings_of
from tasks.instruction_rubrics.deciding import draw, groups_of, role_of
from tasks.store.files import replacing
from tasks.store.manifest import Step
from tasks.store.staging import Stage
from tasks.text.near_texts import near_groups

BASES_A_SHARD = 200
NOT_COMPARED = (
    "recordings were not compared by sound (disjoint.fingerprint = 0), only clips by hash and captions by words: "
    "another encoding or an excerpt of a clip may lie in the other split; 0.9 compares them and needs Chromaprint, a "
    "system library (Debian: libchromaprint1)"
)


def choose_captions(stage: Stage, config: InstructionRubrics) -> Step:
    """Place captions in bench and corpus and take as many as the counts need. Leaves `work/bases.parquet`.

    A caption's place in the draw follows from the seed, its clip and its words; with more captions, those that were
    taken stay, unless one of smaller hash comes before them.
    """
    rows = pq.ParquetFile(stage.work / "heard.parquet").read().to_pylist()
    with working("group captions"):
        crossing = _place_in_sets(rows, config, recordings_of(stage, config, rows))
    rejects = [
        Reject(row["item"], "in_bench", "expected a clip apart from the bench, found one of its group",
               row["source_file"], row["line"])
        for row in crossing
    ]  # fmt: skip
    stage.write_rejects("choose", rejects_table("choose", [(SAMPLES.name, reject) for reject in rejects]))
    left = {id(row) for row in crossing}
    taken = _taken([row for row in rows if id(row) not in left], config)
    taken.sort(key=lambda row: row["row"])
    table = pa.Table.from_pylist([{**row, "base": at} for at, row in enumerate(taken)]) if taken else None
    with replacing(stage.work / "bases.parquet") as temporary:
        pq.write_table(table if table is not None else _no_bases(stage), temporary, row_group_size=BASES_A_SHARD)
    return stage.record(
        Step(
            name="choose",
            place=3,
            unit="captions",
            stage="choose",
            follows=("index",),
            entered=len(rows),
            kept=len(taken),
            rejected=dict(Counter(reject.reason for reject in rejects)),
            dropped={"beyond the counts and their spare": len(rows) - len(rejects) - len(taken)},
            notes=() if config.disjoint.fingerprint else (NOT_COMPARED,),
        )
    )


def _no_bases(stage: Stage) -> pa.Table:
    empty = pq.ParquetFile(stage.work / "heard.parquet").schema_arrow.empty_table()
    for name, type_ in (("base", pa.int64()), ("split", pa.string()), ("group_id", pa.string())):
        empty = empty.append_column(name, pa.array([], type_))
    return empty.append_column("role", pa.array([], pa.string())).append_column("place", pa.array([], pa.float64()))


def _place_in_sets(
    rows: list[dict[str, Any]], config: InstructionRubrics, recordings: Sequence[str]
) -> list[dict[str, Any]]:
    """Give every row its `group_id` and `split`; returns the rows that their source keeps out of the bench, yet whose
    group is in it."""
    groups = groups_of(
        len(rows),
        (
            recordings,
            [f"{row['source']}\n{row['origin']}" if row["origin"] else None for row in rows],
            near_groups([row["text"] for row in rows], config.disjoint.captions),
        ),
    )
    members: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row, group in zip(rows, groups, strict=True):
        members[group].append(row)
    crossing: list[dict[str, Any]] = []
    for held in members.values():
        name = min(hashlib.sha256(f"{row['clip_sha256']}".encode()).hexdigest()[:16] for row in held)
        pinned = {row["set"] for row in held} - {None}
        by_hash = "test" if draw(config.seed, "bench", name) < config.bench_share else "train"
        split = "test" if "test" in pinned else "train" if pinned else by_hash
        for row in held:
            row["group_id"], row["split"] = name, split
            if split == "test" and row["set"] == "train":
                crossing.append(row)
    return crossing


def _taken(rows: Sequence[dict[str, Any]], config: InstructionRubrics) -> list[dict[str, Any]]:
    """As many captions of each set and subset as its count may need, with the role and place of each."""
    pools: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        base = f"{row['clip_sha256']}\n{row['instruction_id']}"
        weights = {kind: w for kind, w in config.negatives.weights.items() if row["generated"] or kind != "judged"}
        row["place"], row["role"] = draw(config.seed, "place", base), role_of(config.seed, base, weights)
        pools[row["split"], row["subset"]].append(row)
    taken: list[dict[str, Any]] = []
    for (split, subset), pool in sorted(pools.items()):
        pool.sort(key=lambda row: (row["place"], row["row"]))
        count = config.counts.get(split, {}).get(subset)  # type: ignore[call-overload]
        if count is not None:
            # Of real audio each caption can give a positive and a negative; of generated audio often only one of them.
            needed = count if any(row["generated"] for row in pool) else count / 2
            pool = pool[: math.ceil(needed * (1 + config.spare))]
        taken += pool
    return taken
