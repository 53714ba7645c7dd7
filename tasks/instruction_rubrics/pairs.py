"""Pair complete positives and negatives, one to one, with bench and corpus apart."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.schemas.reasons import Reject
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.instruction_rubrics.asks import others
from earmark.tasks.instruction_rubrics.deciding import choose_pairs
from earmark.tasks.instruction_rubrics.rows import Labelled, NegativeRow, RubricRow, VerifiedCaption
from earmark.tasks.instruction_rubrics.verification import reject_of
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.step import Account
from earmark.tasks.text.near_texts import near_any

Pair: TypeAlias = tuple[Row, Row]
Pools: TypeAlias = Mapping[tuple[str, str], tuple[list[Row], list[Row]]]


def choose(
    config: InstructionRubrics,
    positives: Sequence[VerifiedCaption],
    negatives: Sequence[NegativeRow],
    rubrics: Mapping[str, RubricRow],
) -> tuple[list[Pair], list[Account]]:
    """Choose the published pairs.

    Args:
        positives: captions true of their clips.
        negatives: clips with instructions wrong for them, by their number.
        rubrics: instructions with their items, labels and translations, by id.

    Returns:
        A positive and a negative each, both with their `labelled`; and the accounts `pairs` and `judged`.
    """
    labelled = {one["negative"]: one for row in rubrics.values() for one in row["labelled"]
                if one["negative"] is not None}  # fmt: skip
    true = {key: one for key, row in rubrics.items() for one in row["labelled"] if one["negative"] is None}
    whole = list(_whole(config, ((row, true.get(row["instruction_id"])) for row in positives), rubrics))
    false = list(_whole(config, ((row, labelled.get(number)) for number, row in enumerate(negatives)), rubrics))
    near = _near_bench([*whole, *false], config)
    by_base = {row["base"]: row for row in false if row["kind"] != "judged"}
    rejects: list[tuple[str, Reject]] = []
    pools: dict[tuple[str, str], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for row in whole:
        negative = by_base.get(row["base"])
        keys = [one["instruction_id"] for one in (row, negative) if one and row["split"] == "train"]
        if (key := next((key for key in keys if key in near), None)) is None:
            pools[row["split"], row["subset"]][0].append({**row, "negative": negative})
        else:
            detail = f"expected a caption apart from the bench, found nearly instruction {near[key]}"
            rejects.append((SAMPLES.name, reject_of(row, "near_bench", detail, near[key])))
    for row in false:
        if row["kind"] == "judged" and row["instruction_id"] not in near:
            pools[row["split"], row["subset"]][1].append(row)
    pairs: list[Pair] = []
    notes: list[str] = []
    for (split, subset), pool in sorted(pools.items()):
        ones, twos = (sorted(rows, key=lambda row: (row["place"], row["base"])) for rows in pool)
        count = config.counts.get(split, {}).get(subset)  # type: ignore[call-overload]
        taken = choose_pairs(ones, twos, count, config.negatives.weights)
        pairs += [(dict(one), dict(two)) for one, two in taken]
        if count is not None and 2 * len(taken) < count:
            notes.append(
                f"{split} {subset}: {2 * len(taken):,} of {count:,} samples; more captions or `spare` are needed"
            )
    kinds = Counter(negative["kind"] for _, negative in pairs)
    if kinds:
        notes.insert(0, f"negatives: {', '.join(f'{kind} {count:,}' for kind, count in sorted(kinds.items()))}")
    return pairs, list(_accounts(pools, len(positives), len(whole), rejects, kinds, notes))


def _accounts(
    pools: Pools, entered: int, whole: int, rejects: list[tuple[str, Reject]], kinds: Counter[str], notes: list[str]
) -> Iterator[Account]:
    alone = sum(row["negative"] is None and row["role"] != "judged" for ones, _ in pools.values() for row in ones)
    pairs, judged = kinds.total(), sum(len(twos) for _, twos in pools.values())
    filtered = {
        "without items, rationales or translation": entered - whole,
        "without a negative": alone,
        "beyond the counts or the shares": whole - len(rejects) - alone - pairs,
    }
    yield Account(entered, pairs, rejects, filtered, notes=notes, name="pairs", unit="positives")
    beyond = {"beyond the counts or the shares": judged - kinds["judged"]}
    unit = "hard negatives of generated audio"
    yield Account(judged, kinds["judged"], filtered=beyond, name="judged", unit=unit)


def _whole(
    config: InstructionRubrics,
    rows: Iterator[tuple[VerifiedCaption | NegativeRow, Labelled | None]],
    rubrics: Mapping[str, RubricRow],
) -> Iterator[Row]:
    """Yield labelled rows translated, with their instructions, into all languages."""
    for row, labelled in rows:
        if labelled is None or labelled["failure"] is not None:
            continue
        parts = (labelled["translations"], rubrics[row["instruction_id"]]["translations"])
        if all(part[into]["failure"] is None for part in parts for into in others(config, row["language"])):
            yield {**row, "labelled": labelled}


def _near_bench(rows: list[Row], config: InstructionRubrics) -> dict[str, str]:
    """Return the corpus's instructions nearly repeating a bench instruction: id → the bench's id."""
    texts: dict[str, dict[str, str]] = {"test": {}, "train": {}}
    for row in rows:
        texts[row["split"]][row["instruction_id"]] = row["text"]
    bench = list(texts["test"])
    near = near_any(list(texts["train"].values()), list(texts["test"].values()), config.disjoint.captions)
    return {name: bench[at] for name, at in zip(texts["train"], near, strict=True) if at is not None}
