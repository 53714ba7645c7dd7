"""Scores and rewards for judges of instruction rubrics, after AnyAudio-Judge. A trainer can import this file or copy
it: it needs nothing but Python.

The policy hears a clip, reads an instruction and its numbered items, and writes one JSON array with an object an item:
`{"id": 1, "answer": "yes", "evidence": "…"}`. The view `judge-grpo` has what the rewards need.

    from earmark.schemas.rubric_rewards import trl_reward
    GRPOTrainer(model, reward_funcs=trl_reward, train_dataset=rows)  # columns: prompt, answers, follows
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

FORMAT, GLOBAL, ITEMS = 0.1, 0.2, 0.7  # weights of the three rewards; the sum is 1 for a completion without fault
YES = 0.5  # an item is answered yes above this probability
ALL, SHARE = 1.0, 0.8
"""Shares of items answered yes from which a sample follows its instruction: the paper's rule (all yes is a match, any
no a mismatch), and that of the released script."""


def item_probability(yes_logit: float, no_logit: float) -> float:
    """Probability of yes, 0 to 1: the softmax over the logits (or log-probabilities) of yes and no alone."""
    gap = no_logit - yes_logit
    if gap > 0:
        return math.exp(-gap) / (1.0 + math.exp(-gap))
    return 1.0 / (1.0 + math.exp(gap))


def sample_score(probabilities: Sequence[float]) -> float:
    """Return a sample's score, 0 to 1: the mean over its items' probabilities of yes."""
    if not probabilities:
        raise ValueError("expected the probability of one item at least, found none")
    return math.fsum(probabilities) / len(probabilities)


def decide(probabilities: Sequence[float], share: float = ALL) -> bool:
    """Return whether a sample follows its instruction: the share of its items above `YES` reaches `share`.

    `earmark eval run` decides by the same function: `accuracy` by `ALL`, `accuracy_share` by `SHARE`.

    Raises:
        ValueError: there are none.
    """
    if not probabilities:
        raise ValueError("expected the probability of one item at least, found none")
    return sum(one > YES for one in probabilities) / len(probabilities) >= share


def accuracy(items: Sequence[Sequence[float]], follows: Sequence[bool], share: float = ALL) -> float:
    """Share of samples, 0 to 1, that are decided as their label says.

    Args:
        items: the probabilities of yes of each sample's items.
        follows: whether each sample follows its instruction.
        share: as in `decide`.

    Raises:
        ValueError: there are none, or not as many of both.
    """
    if not items:
        raise ValueError("expected one sample at least, found none")
    pairs = zip(items, follows, strict=True)
    return sum(decide(probabilities, share) == right for probabilities, right in pairs) / len(items)


def read_answers(text: str) -> dict[int, bool] | None:
    """Answer by the item's number, from 1; None where the text has none that can be read.

    Objects with `id` and `answer` are read wherever they stand: in a code block, among words, in an array that breaks
    off. Other fields do not matter. Numbers from 0 count from 1; a number that stands twice has no answer.
    """
    rows = [row for row in _records(_spoken(text)) if type(row.get("id")) is int and _is_yes(row) is not None]
    first = int(any(row["id"] == 0 for row in rows))
    counts = Counter(row["id"] for row in rows)
    return {row["id"] + first: bool(_is_yes(row)) for row in rows if counts[row["id"]] == 1} or None


def _spoken(text: str) -> str:
    """Return the text after a closed `<think>` block."""
    return text.rpartition("</think>")[2].strip()


def _records(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a text, each read by itself."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        try:
            row, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            at = end if "id" in row else at + 1  # records may stand inside another object
            yield row


def _is_yes(row: dict[str, Any]) -> bool | None:
    said = str(row.get("answer")).strip().lower()
    return {"yes": True, "no": False}.get(said)


def format_reward(text: str, answers: Sequence[bool]) -> float:
    """1 if the text is one JSON array, and each record has its number (1 to n or 0 to n - 1, in order), `yes` or `no`
    as `answer` and a sentence as `evidence`; else 0. Other fields do not matter."""
    try:
        rows = json.loads(_spoken(text))
    except (ValueError, RecursionError):
        return 0.0
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return 0.0
    complete = all(
        type(row.get("id")) is int
        and row.get("answer") in ("yes", "no")
        and isinstance(row.get("evidence"), str)
        and row["evidence"].strip()
        for row in rows
    )
    numbers = [row.get("id") for row in rows]
    return float(complete and any(numbers == [*range(first, first + len(answers))] for first in (0, 1)))


def global_reward(text: str, answers: Sequence[bool], follows: bool) -> float:
    """1 if the whole is judged right, else 0: a clip is judged to follow if every item is answered yes (`ALL`).

    An item that is not answered leaves the whole undecided, which is wrong.
    """
    found = read_answers(text)
    if found is None or found.keys() != set(range(1, len(answers) + 1)):
        return 0.0
    return float(decide([float(yes) for yes in found.values()]) == follows)


def balanced_item_reward(text: str, answers: Sequence[bool]) -> float:
    """Balanced accuracy over the items, 0 to 1: the mean of the share of yes items and of no items answered right.

    Of a sample whose items are all yes (or all no), that one share. So always saying yes earns half on a negative,
    however few of its items are no. Items that are not answered are wrong.
    """
    found = read_answers(text)
    if found is None:
        return 0.0
    shares = []
    for truth in (True, False):
        numbers = [number for number, answer in enumerate(answers, 1) if answer is truth]
        if numbers:
            shares.append(sum(found.get(number) is truth for number in numbers) / len(numbers))
    return sum(shares) / len(shares) if shares else 0.0


def rubric_reward(text: str, answers: Sequence[bool], follows: bool) -> float:
    """Return the weighted sum of the three, 0 to 1: `answers` are the labels of the items 1 to n."""
    return (
        FORMAT * format_reward(text, answers)
        + GLOBAL * global_reward(text, answers, follows)
        + ITEMS * balanced_item_reward(text, answers)
    )


def worth_training(rollouts: Iterable[tuple[str, bool]], rollouts_each: int = 4) -> list[str]:
    """Return the GRPO subset: samples that a policy does not get right in every one of its rollouts.

    Where all rollouts earn the same there is nothing to learn; samples that are never right stay, they may be learnt.

    Args:
        rollouts: a sample's id and whether this rollout got it right, such as `global_reward(…) == 1`.
        rollouts_each: how many rollouts each sample has.

    Returns:
        Ids in the order in which they were first met.
    """
    held: dict[str, list[bool]] = defaultdict(list)
    for sample, right in rollouts:
        held[sample].append(right)
    for sample, rights in held.items():
        if len(rights) != rollouts_each:
            raise ValueError(f"expected {rollouts_each} rollouts of each sample, found {len(rights)} of {sample}")
    return [sample for sample, rights in held.items() if not all(rights)]


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


trl_format_reward = _for_trl("trl_format_reward", format_reward, "answers")
trl_global_reward = _for_trl("trl_global_reward", global_reward, "answers", "follows")
trl_balanced_item_reward = _for_trl("trl_balanced_item_reward", balanced_item_reward, "answers")
trl_reward = _for_trl("trl_reward", rubric_reward, "answers", "follows")
