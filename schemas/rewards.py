"""Rewards for training a judge of pairs by GRPO, after MOS-RMBench. A trainer can import this file or copy it: it needs
nothing but Python.

The policy hears two clips, writes a rationale and ends with `Final Scores: [[x, y]]`, two integers from 1 to 10. It is
right if the clip with the higher mean opinion score gets the higher score.

    from earmark.schemas.rewards import trl_reward
    GRPOTrainer(model, reward_funcs=trl_reward, train_dataset=rows)  # columns: prompt, better, mos_gap_normalized
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

Position: TypeAlias = Literal["first", "second"]

UNREADABLE = -1.0
"""Either reward where scores cannot be read: no better than the worst wrong answer, so silence never pays."""

_FINAL = re.compile(r"Final Scores: \[\[(10|[1-9]), (10|[1-9])\]\]", re.ASCII)


def final_scores(text: str) -> tuple[int, int] | None:
    """Return the two scores on the last line that is not empty, which must be exactly `Final Scores: [[x, y]]`.

    Strict, since a reward teaches the form; builds and `earmark eval run` read more (`schemas/critiques.py`).

    Space at the line's ends is forgiven. None without such a line, or with scores that are no integers from 1 to 10.
    """
    lines = text.strip().split("\n")
    found = _FINAL.fullmatch(lines[-1].strip())
    return (int(found[1]), int(found[2])) if found else None


def prefers(scores: tuple[int, int]) -> Position | None:
    """Return the clip with the higher score; None for a tie."""
    first, second = scores
    return None if first == second else "first" if first > second else "second"


def accuracy_reward(text: str, better: Position) -> float:
    """1 if the better clip got the higher score, else -1; a tie is wrong, and so are scores that cannot be read."""
    scores = final_scores(text)
    if scores is None:
        return UNREADABLE
    return 1.0 if prefers(scores) == better else -1.0


def mos_difference_reward(text: str, better: Position, mos_gap_normalized: float) -> float:
    """Return the MOS-difference reward of MOS-RMBench: small gaps, which are hard, earn more and are forgiven.

    0.5 * (1 + cos(d * pi)) if right, from 1 at no gap to 0 at a large one; 0.5 * (-1 + cos(d * pi)) if wrong, from 0
    to -1. `UNREADABLE` if the scores cannot be read.

    Args:
        better: the clip with the higher MOS.
        mos_gap_normalized: d, the gap over the 90th percentile of its dataset's gaps; clamped to 0 to 1.
    """
    scores = final_scores(text)
    if scores is None:
        return UNREADABLE
    wave = math.cos(min(max(mos_gap_normalized, 0.0), 1.0) * math.pi)
    return 0.5 * (1.0 + wave) if prefers(scores) == better else 0.5 * (-1.0 + wave)


def critique_reward(text: str, better: Position, mos_gap_normalized: float) -> float:
    """Return the sum of both: 1 to 2 if right, -2 to -1 if wrong, -2 if the scores cannot be read."""
    return accuracy_reward(text, better) + mos_difference_reward(text, better, mos_gap_normalized)


def _for_trl(name: str, reward: Callable[..., float], *columns: str) -> Callable[..., list[float]]:
    """Return a reward for TRL's `GRPOTrainer`: a function of completions (texts, or lists of messages: the last counts)
    and of the columns that the reward needs, by their names."""

    def rewards(completions: Sequence[Any], **given: Any) -> list[float]:
        rows = zip(completions, *(given[column] for column in columns), strict=True)
        return [reward(_text_of(one), *values) for one, *values in rows]

    rewards.__name__ = name
    return rewards


def _text_of(completion: Any) -> str:
    """Return the text of a completion in TRL's plain or conversational form."""
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"] if completion else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


trl_accuracy_reward = _for_trl("trl_accuracy_reward", accuracy_reward, "better")
trl_mos_difference_reward = _for_trl("trl_mos_difference_reward", mos_difference_reward, "better", "mos_gap_normalized")
trl_reward = _for_trl("trl_reward", critique_reward, "better", "mos_gap_normalized")
