"""Pair complete positives and negatives, one to one, with bench and corpus apart."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from sys import intern
from typing import NamedTuple, TypeAlias

from earmark.schemas.instruction_rubrics import NEAR_CAPTIONS, InstructionRubrics
from earmark.schemas.reasons import Reject
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.instruction_rubrics.asks import others
from earmark.tasks.instruction_rubrics.deciding import PairMember, choose_pairs, may_be_paired
from earmark.tasks.instruction_rubrics.rows import NegativeRow, RubricRow, VerifiedCaption
from earmark.tasks.instruction_rubrics.verification import reject_of
from earmark.tasks.pipeline.rows import Rows, each_row
from earmark.tasks.pipeline.step import Account
from earmark.tasks.text.near_texts import near_any

Pools: TypeAlias = Mapping[tuple[str, str], tuple[list[PairMember], list[PairMember]]]


class SamplePair(NamedTuple):
    """A positive and a negative of one split."""

    split: str
    positive: PairMember
    negative: PairMember


def choose(
    config: InstructionRubrics, verified: Rows[VerifiedCaption], negatives: Rows[NegativeRow], rubrics: Rows[RubricRow]
) -> tuple[list[SamplePair], list[Account]]:
    """Choose the published pairs, with a shard of rows in memory and what the choice needs of each.

    Args:
        verified: captions; those true of their clips are positives.
        negatives: clips with instructions wrong for them, by their number.
        rubrics: instructions with their items, labels and translations.

    Returns:
        The pairs, and the accounts `pairs` and `judged`.
    """
    true, labelled = _complete(config, each_row(rubrics))
    texts: dict[str, dict[str, str]] = {"test": {}, "train": {}}
    pools: dict[tuple[str, str], tuple[list[PairMember], list[PairMember]]] = defaultdict(lambda: ([], []))
    by_base: dict[int, PairMember] = {}
    paired = {row["base"] for row in each_row(negatives)}
    entered = alone = 0

    def chosen(row: VerifiedCaption | NegativeRow, number: int, kind: str) -> PairMember:
        key, clip = intern(row["instruction_id"]), intern(row["clip_sha256"])
        texts[row["split"]][key] = row["text"]
        return PairMember(row["place"], row["base"], number, clip, key, intern(kind))

    for caption in each_row(verified):
        if not caption["positive"]:
            continue
        entered += 1
        if not may_be_paired(caption["role"], caption["base"], paired):
            alone += 1
        elif caption["instruction_id"] in true:
            pool = pools[caption["split"], caption["subset"]]
            pool[0].append(chosen(caption, caption["base"], caption["role"]))
    for number, row in enumerate(each_row(negatives)):
        if number in labelled and row["kind"] == "judged":
            pools[row["split"], row["subset"]][1].append(chosen(row, number, row["kind"]))
        elif number in labelled:
            by_base[row["base"]] = chosen(row, number, row["kind"])
    whole = sum(len(ones) for ones, _ in pools.values())
    near = _near_bench(texts, config)
    rejects = _drop_near(pools, by_base, near, verified)
    pairs: list[SamplePair] = []
    notes: list[str] = []
    for (split, subset), pool in sorted(pools.items()):
        ones, twos = (sorted(rows, key=lambda row: (row.place, row.base)) for rows in pool)
        count = config.counts.get(split, {}).get(subset)  # type: ignore[call-overload]
        taken = choose_pairs(ones, twos, count, config.weights)
        pairs += [SamplePair(split, *both) for both in taken]
        if count is not None and 2 * len(taken) < count:
            notes.append(f"{split} {subset}: {2 * len(taken):,} of {count:,} samples; more captions are needed")
    kinds = Counter(pair.negative.kind for pair in pairs)
    if kinds:
        notes.insert(0, f"negatives: {', '.join(f'{kind} {count:,}' for kind, count in sorted(kinds.items()))}")
    return pairs, list(_accounts(pools, entered, alone, whole, rejects, kinds, notes))


def _drop_near(
    pools: dict[tuple[str, str], tuple[list[PairMember], list[PairMember]]],
    by_base: Mapping[int, PairMember],
    near: Mapping[str, str],
    verified: Rows[VerifiedCaption],
) -> list[tuple[str, Reject]]:
    """Give positives their negatives, and drop what nearly repeats the bench; return the rejects."""
    found: dict[int, str] = {}  # instruction by base
    for (split, subset), (ones, twos) in [*pools.items()]:
        left: list[PairMember] = []
        for one in ones:
            negative = by_base.get(one.base)
            keys = [each.instruction_id for each in (one, negative) if each and split == "train"]
            if (key := next((key for key in keys if key in near), None)) is None:
                left.append(one._replace(negative=negative))
            else:
                found[one.base] = key
        hard = [row for row in twos if row.instruction_id not in near]
        pools[split, subset] = (left, hard)
        if not left and not hard:
            del pools[split, subset]
    if not found:
        return []
    detail = "expected a caption apart from the bench, found nearly instruction"
    return [
        (SAMPLES.name, reject_of(row, "near_bench", f"{detail} {near[key]}", near[key]))
        for row in each_row(verified)
        if (key := found.get(row["base"])) is not None
    ]


def _accounts(
    pools: Pools,
    entered: int,
    alone: int,
    whole: int,
    rejects: list[tuple[str, Reject]],
    kinds: Counter[str],
    notes: list[str],
) -> Iterator[Account]:
    """Yield the accounts of the pairs and the hard negatives; `alone` positives never had a negative."""
    bereft = sum(row.negative is None and row.kind != "judged" for ones, _ in pools.values() for row in ones)
    pairs, judged = kinds.total(), sum(len(twos) for _, twos in pools.values())
    filtered = {
        "without items, rationales or translation": entered - alone - whole,
        "without a negative": alone + bereft,
        "beyond the counts or the shares": whole - len(rejects) - bereft - pairs,
    }
    yield Account(entered, pairs, rejects, filtered, notes=notes, name="pairs", unit="positives")
    beyond = {"beyond the counts or the shares": judged - kinds["judged"]}
    unit = "hard negatives of generated audio"
    yield Account(judged, kinds["judged"], filtered=beyond, name="judged", unit=unit)


def _complete(config: InstructionRubrics, rubrics: Iterable[RubricRow]) -> tuple[set[str], set[int]]:
    """Return the instructions with rationales, and the negatives with labels, in all languages."""
    true, negatives = set[str](), set[int]()
    for row in rubrics:
        for one in row["labelled"]:
            parts, into = (one["translations"], row["translations"]), others(config, row["language"])
            if one["failure"] is None and all(part[other]["failure"] is None for part in parts for other in into):
                if one["negative"] is None:
                    true.add(row["instruction_id"])
                else:
                    negatives.add(one["negative"])
    return true, negatives


def _near_bench(texts: Mapping[str, Mapping[str, str]], config: InstructionRubrics) -> dict[str, str]:
    """Return the corpus's instructions nearly repeating a bench instruction: id → the bench's id.

    Args:
        texts: the instructions' words by split and id.
    """
    bench = list(texts["test"])
    near = near_any(list(texts["train"].values()), list(texts["test"].values()), NEAR_CAPTIONS)
    return {name: bench[at] for name, at in zip(texts["train"], near, strict=True) if at is not None}
