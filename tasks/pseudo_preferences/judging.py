"""Position-consistent judging (CMI-RewardBench, appendix on CMI-Pref-Pseudo): every pair is heard in both orders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from earmark.schemas.pseudo_preferences import ORDERS, PseudoPreferences
from earmark.tasks.annotation.prompts import Prompt, prompt_named
from earmark.tasks.annotation.request import Audio, AudioForm
from earmark.tasks.build.ask import Ask, Asker, Posed, Row, pose, side_by_side
from earmark.tasks.build.forecast import imagined
from earmark.tasks.build.walk import walk

PAIRS_A_SHARD = 500
SCORED = ("confidence_musicality", "confidence_alignment", "quality_a", "quality_b", "following_a", "following_b")


def prompt_of(config: PseudoPreferences, dimensions: str) -> Prompt:
    """The prompt that asks for one dimension, or for several at once, joined by +."""
    several = "music-pair-scored" if config.judge.scores else "music-pair"
    return prompt_named(several if "+" in dimensions else f"music-pair-{dimensions}")


def passes_of(config: PseudoPreferences) -> list[str]:
    """The dimensions of each request about a pair: one by one or all at once, as the config says; joined by +."""
    dimensions = config.judge.dimensions
    return list(dimensions) if config.judge.separate else ["+".join(dimensions)]


def prompt_digests(config: PseudoPreferences) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    return {prompt.id: prompt.sha256 for prompt in (prompt_of(config, one) for one in passes_of(config))}


def pairs_a_shard(config: PseudoPreferences) -> int:
    """How many pairs make a shard; with the provider's batch API, as many as fill one batch."""
    passes_a_pair = len(ORDERS) * len(passes_of(config))
    batches = [one.batch_requests // passes_a_pair for one in config.jurors() if one.batch]
    return max(1, *batches) if batches else PAIRS_A_SHARD


def judge_request(config: PseudoPreferences, row: Row) -> Posed:
    """Which clip is better: a pair (a row of `questions.sql`) in one `order`, in one or more `dimensions`."""
    form = AudioForm(**config.judge.hearing.model_dump())
    generations, prompts = config.path(config.generations).parent, config.path(config.prompts).parent
    a, b = (
        Audio(
            row[f"{s}_sha256"],
            str(generations / row[f"{s}_file"]),
            end_s=row.get("heard_s"),
            duration_s=row[f"{s}_duration_s"],
            form=replace(form, gain_db=row.get(f"{s}_gain_db")),
        )
        for s in ("a", "b")
    )
    reference = None
    if row["reference_sha256"]:
        path, length = str(prompts / row["reference_file"]), row["reference_duration_s"]
        reference = Audio(row["reference_sha256"], path, duration_s=length, form=form)
    first, second = (a, b) if row["order"] == "forward" else (b, a)
    return pose(
        config.judge,
        prompt_of(config, row["dimensions"]),
        {"text": row["text"], "dimensions": row["dimensions"].split("+")},
        text=row["text"],
        lyrics=row["lyrics"] or "",
        reference=reference,
        a=first,
        b=second,
    )


def imagine_choice(config: PseudoPreferences, row: Row) -> dict[str, Any]:
    """What a dry run takes for an answer."""
    numbers = dict.fromkeys(SCORED, 4.5) if config.judge.scores else {}
    return {**dict.fromkeys(row["dimensions"].split("+"), "A"), **numbers, "reason": imagined(30)}


JUDGE = Ask("judge", annotator="judge", request=judge_request, imagine=imagine_choice, about="passes over pairs")


@walk(
    "judge",
    asks=[JUDGE],
    columns=[("pair_id", pa.string()), ("order", pa.string()), ("dimensions", pa.string())],
    label="judge pairs",
)
async def judge_pairs(asker: Asker[PseudoPreferences], pair: Row) -> None:
    """Ask about a pair in both orders; either may stay without an answer."""
    passes = [
        {**pair, "order": order, "dimensions": dimensions} for dimensions in passes_of(asker.config) for order in ORDERS
    ]
    await side_by_side(*(asker.reply(JUDGE, one) for one in passes))
