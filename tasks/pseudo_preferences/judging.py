"""Judge every pair in both orders, for position consistency (CMI-RewardBench, appendix on CMI-Pref-Pseudo)."""

from collections.abc import Sequence

import pyarrow as pa

from earmark.schemas.pseudo_preferences import ORDERS, PseudoPreferences
from earmark.schemas.pseudo_tables import GeneratedPair
from earmark.schemas.questions import Audio, AudioForm
from earmark.tasks.audio.index import Beginning
from earmark.tasks.pipeline.ask import Ask, Asker, Fault, Row, Values, side_by_side
from earmark.tasks.pipeline.media import loudness_of
from earmark.tasks.pipeline.refused import refusal_fault
from earmark.tasks.pipeline.walk import walk
from earmark.tasks.store.staging import Stage

CHANGED = ("heard_s", "a_gain_db", "b_gain_db")
QUIETEST_LUFS = -70.0  # the absolute gate of BS.1770: at or below it, a clip has no loudness to match


class QuestionedPair(GeneratedPair):
    """A row of `questions.sql`, in an order and some dimensions."""

    reference_file: str | None
    reference_duration_s: float | None
    a_duration_s: float
    b_duration_s: float
    order: str
    dimensions: str


def matched(stage: Stage, config: PseudoPreferences, pairs: Sequence[Row]) -> list[Row]:
    """Return the changes to each pair's clips before hearing: `heard_s`, `a_gain_db`, `b_gain_db`; None is no change.

    Loudness is measured on the heard part: on the cut clips, if cut. Nothing is made louder, so nothing clips.

    Args:
        stage: the build.
        config: its config; `judge.match` names the properties to match.
        pairs: rows of `questions.sql`, or with their columns of clips.
    """
    judge = config.judge
    heard = [_shorter_s(pair) if "length" in judge.match else None for pair in pairs]
    gains: list[tuple[float | None, ...]] = [(None, None)] * len(pairs)
    if "loudness" in judge.match:
        folder = config.clips_folder()
        beginnings = [
            Beginning(pair[f"{side}_sha256"], folder / pair[f"{side}_file"], heard_s or pair[f"{side}_duration_s"])
            for pair, heard_s in zip(pairs, heard, strict=True)
            for side in "ab"
        ]
        loudness = loudness_of(stage.store, beginnings)
        gains = [_gains(*both) for both in zip(loudness[::2], loudness[1::2], strict=True)]
    return [{"heard_s": heard_s, "a_gain_db": a, "b_gain_db": b} for heard_s, (a, b) in zip(heard, gains, strict=True)]


def _shorter_s(pair: QuestionedPair) -> float | None:
    """Return the end of the shorter clip; None for clips of equal length."""
    a, b = pair["a_duration_s"], pair["b_duration_s"]
    return None if a == b else min(a, b)


def _gains(*loudness: float) -> tuple[float | None, ...]:
    """Return the gains bringing two clips to the lower loudness, in dB; None is no gain."""
    lower = min(loudness)
    if lower <= QUIETEST_LUFS:
        return None, None
    return tuple(round(lower - one, 2) if one > lower else None for one in loudness)


PAIRS_A_SHARD = 500


def prompt_of(config: PseudoPreferences, row: QuestionedPair) -> str:
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


def pair_values(config: PseudoPreferences, row: QuestionedPair) -> Values:
    """Show a prompt the text and clips of a pair (a row of `questions.sql`) in an `order`, in some `dimensions`."""
    generations = config.clips_folder()
    clips: Row = row
    a, b = (
        Audio(
            clips[f"{s}_sha256"],
            str(generations / clips[f"{s}_file"]),
            end_s=clips.get("heard_s"),
            duration_s=clips[f"{s}_duration_s"],
            form=AudioForm(gain_db=clips.get(f"{s}_gain_db")),
        )
        for s in ("a", "b")
    )
    reference = None
    if (sha256 := row["reference_sha256"]) and (file := row["reference_file"]):
        path = config.path(config.prompts).parent / file
        reference = Audio(sha256, str(path), duration_s=row["reference_duration_s"])
    first, second = (a, b) if row["order"] == "forward" else (b, a)
    shown = {"text": row["text"], "lyrics": row["lyrics"] or "", "reference": reference, "a": first, "b": second}
    return Values(shown, {"text": row["text"], "dimensions": row["dimensions"].split("+")})


def reason_fault(config: PseudoPreferences, row: QuestionedPair, value: Row) -> Fault | None:
    """Return the fault of a choice whose reason is a refusal: the clips were not heard."""
    return refusal_fault(value.get("reason") or "") if isinstance(value, dict) else None


JUDGE = Ask(
    "judge",
    annotator="judge",
    prompt=prompt_of,
    kinds=lambda config: [{"dimensions": dimensions_of(config)}],
    values=pair_values,
    check=reason_fault,
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
