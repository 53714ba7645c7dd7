"""Judge every pair in both orders, for position consistency (CMI-RewardBench, appendix on CMI-Pref-Pseudo)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from earmark.schemas.pseudo_preferences import ORDERS, PseudoPreferences
from earmark.schemas.questions import Audio, AudioForm
from earmark.tasks.pipeline.ask import Ask, Asker, Row, Values, side_by_side
from earmark.tasks.pipeline.walk import walk

PAIRS_A_SHARD = 500


def prompt_of(config: PseudoPreferences, row: Row) -> str:
    """Return the name of the prompt for one dimension, or for several at once, joined by +."""
    several = "music-pair-scored" if config.judge.scores else "music-pair"
    return several if "+" in row["dimensions"] else f"music-pair-{row['dimensions']}"


def dimensions_of(config: PseudoPreferences) -> str:
    """Return the dimensions of each request about a pair, joined by +: one request asks all, as the paper's does."""
    return "+".join(config.judge.dimensions)


def pairs_a_shard(config: PseudoPreferences) -> int:
    """Return the pairs in a shard; with the provider's batch API, as many as fill one batch."""
    batches = [one.batch_requests // len(ORDERS) for one in config.jurors() if one.batch]
    return max(1, *batches) if batches else PAIRS_A_SHARD


def pair_values(config: PseudoPreferences, row: Row) -> Values:
    """Show a prompt the text and clips of a pair (a row of `questions.sql`) in an `order`, in some `dimensions`."""
    form = AudioForm(config.judge.hearing.sample_rate_hz)
    generations, prompts = config.clips_folder(), config.path(config.prompts).parent
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
    shown = {"text": row["text"], "lyrics": row["lyrics"] or "", "reference": reference, "a": first, "b": second}
    return Values(shown, {"text": row["text"], "dimensions": row["dimensions"].split("+")})


JUDGE = Ask(
    "judge",
    annotator="judge",
    prompt=prompt_of,
    kinds=lambda config: [{"dimensions": dimensions_of(config)}],
    values=pair_values,
    about="passes over pairs",
)


@walk(
    "judge",
    asks=[JUDGE],
    columns=[("pair_id", pa.string()), ("order", pa.string()), ("dimensions", pa.string())],
    label="judge pairs",
)
async def judge_pairs(asker: Asker[PseudoPreferences], pair: Row) -> None:
    """Ask about a pair in both orders; either may stay without an answer."""
    about = {**pair, "dimensions": dimensions_of(asker.config)}
    await side_by_side(*(asker.reply(JUDGE, {**about, "order": order}) for order in ORDERS))
