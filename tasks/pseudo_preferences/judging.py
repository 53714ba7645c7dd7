"""Position-consistent judging (CMI-RewardBench, appendix on CMI-Pref-Pseudo): every pair is heard in both orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.pseudo_preferences import ORDERS, PseudoPreferences
from tasks.annotation.backend import question
from tasks.annotation.outcome import Answer
from tasks.annotation.prompts import Prompt, load_prompt
from tasks.annotation.request import Audio, AudioForm, Request
from tasks.annotation.session import Session
from tasks.store.parquet import write_rows
from tasks.store.staging import Stage

PAIRS_A_SHARD = 500
SHARDS_AT_ONCE = 4  # their requests share one pace; more shards would only hold more of them in memory
ANSWERED = pa.schema(
    [
        ("pair_id", pa.string()),
        ("order", pa.string()),
        ("dimension", pa.string()),
        ("choice", pa.string()),
        ("position", pa.string()),
        ("reason", pa.string()),
        ("judge", pa.string()),
        ("prompt", pa.string()),
        ("request_key", pa.string()),
        ("notes", pa.string()),
    ]
)
FAILED = pa.schema(
    [
        ("pair_id", pa.string()),
        ("order", pa.string()),
        ("dimensions", pa.string()),
        ("request_key", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("final", pa.bool_()),
    ]
)


class Pass(NamedTuple):
    """One request about a pair: in one order, on one or all dimensions."""

    pair_id: str
    order: str
    dimensions: tuple[str, ...]
    prompt: str
    request: Request


def judge_prompts(config: PseudoPreferences) -> list[tuple[Prompt, tuple[str, ...]]]:
    """The prompts that ask, each with the dimensions that it asks for."""
    folder = Path(str(resources.files("prompts")))
    dimensions = config.judge.dimensions
    if config.judge.separate or len(dimensions) == 1:
        return [(load_prompt(folder, f"music-pair-{name}"), (name,)) for name in dimensions]
    return [(load_prompt(folder, "music-pair"), tuple(dimensions))]


def prompt_digests(config: PseudoPreferences) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    return {prompt.id: prompt.sha256 for prompt, _ in judge_prompts(config)}


def passes_of(config: PseudoPreferences, pairs: Sequence[dict[str, Any]]) -> Iterator[Pass]:
    """The requests that judge pairs: both orders, and each dimension apart if the config says so.

    Args:
        config: the build config.
        pairs: rows of `questions.sql`.
    """
    form = AudioForm(**config.judge.hearing.model_dump())
    generations, prompts = config.path(config.generations).parent, config.path(config.prompts).parent
    asked = judge_prompts(config)
    for pair in pairs:
        a, b = (
            Audio(
                pair[f"{s}_sha256"], str(generations / pair[f"{s}_file"]), duration_s=pair[f"{s}_duration_s"], form=form
            )
            for s in ("a", "b")
        )
        reference = None
        if pair["reference_sha256"]:
            path, length = str(prompts / pair["reference_file"]), pair["reference_duration_s"]
            reference = Audio(pair["reference_sha256"], path, duration_s=length, form=form)
        for prompt, dimensions in asked:
            for order in ORDERS:
                first, second = (a, b) if order == "forward" else (b, a)
                messages = prompt.render(
                    text=pair["text"], lyrics=pair["lyrics"] or "", reference=reference, a=first, b=second
                )
                facts = {"text": pair["text"], "dimensions": list(dimensions)}
                request = question(config.judge, messages, prompt.ask, facts=facts)
                yield Pass(pair["pair_id"], order, dimensions, prompt.id, request)


def pairs_a_shard(config: PseudoPreferences) -> int:
    """How many pairs make a shard; with the provider's batch API, as many as fill one batch."""
    passes_a_pair = len(ORDERS) * len(judge_prompts(config))
    return max(1, config.judge.batch_requests // passes_a_pair) if config.judge.batch else PAIRS_A_SHARD


def judge_shard(stage: Stage, config: PseudoPreferences, session: Session, questions: Path, shard: int) -> int:
    """Ask about one shard of pairs (a row group of `questions`); what the ledger holds is not asked again.

    Leaves `work/judged/<shard>.parquet` and `work/failed/<shard>.parquet`.

    Returns:
        How many pairs it held.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """
    with pq.ParquetFile(questions) as file:
        pairs = file.read_row_group(shard).to_pylist()
    passes = list(passes_of(config, pairs))
    report = session.ask([one.request for one in passes])
    answered, failed = [], []
    for one, outcome in zip(passes, report.outcomes, strict=True):
        if isinstance(outcome, Answer):
            for dimension in one.dimensions:
                position = outcome.value[dimension]
                answered.append(
                    (
                        one.pair_id,
                        one.order,
                        dimension,
                        own_letter(position, one.order),
                        position,
                        outcome.value["reason"],
                        config.judge.annotator,
                        one.prompt,
                        outcome.key,
                        "; ".join(outcome.notes) or None,
                    )
                )
        else:
            named = "+".join(one.dimensions)
            failed.append((one.pair_id, one.order, named, outcome.key, outcome.reason, outcome.detail, outcome.final))
    write_rows(stage.work / "failed" / f"{shard:06d}.parquet", FAILED, failed)
    write_rows(stage.work / "judged" / f"{shard:06d}.parquet", ANSWERED, answered)
    return len(pairs)


def own_letter(position: str, order: str) -> str:
    """What the judge chose in the pair's own letters: in the reverse pass, A of the prompt is the pair's b."""
    if position == "tie":
        return "tie"
    return position.lower() if order == "forward" else {"A": "b", "B": "a"}[position]
