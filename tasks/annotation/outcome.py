"""How a request ends: with an answer, or as a reject with a typed reason. Nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that fits what was asked.

    Attributes:
        key: the request's key.
        value: text, a choice, JSON, or for yes/no a dict with `p_yes`.
        model: the model's name as the server reports it.
        notes: what was done to the request to fit the model's limits, such as cut audio.
        from_ledger: whether it was there already; says nothing of the answer.
    """

    key: str
    value: Any
    model: str | None = None
    notes: tuple[str, ...] = ()
    from_ledger: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Reject:
    """A request without a usable answer.

    Attributes:
        key: the request's key.
        reason: a fixed word; see `errors.py`.
        detail: what was expected and what was found, in one line.
        final: whether the ledger keeps it; others are asked anew by the next run.
        from_ledger: whether it was there already.
    """

    key: str
    reason: str
    detail: str
    final: bool = False
    notes: tuple[str, ...] = ()
    from_ledger: bool = field(default=False, compare=False)


Outcome: TypeAlias = Answer | Reject


@dataclass(frozen=True, slots=True)
class Report:
    """What one call to `Annotator.ask` came to.

    Attributes:
        outcomes: one for each request, in the order given.
        distinct: how many different requests there were; the counts below are of these.
        answered: how many have an answer.
        rejected: how many have none; `answered + rejected = distinct`.
        from_ledger: how many of both were in the ledger already.
        exchanges: how often the model was asked.
        input_tokens: tokens in.
        output_tokens: tokens out.
        spent_usd: what this call cost, in US dollars; 0 without prices.
        odd_usage: how many answers came with token counts that cannot be; the most that they may be counts for them.
    """

    outcomes: list[Outcome]
    distinct: int
    answered: int
    rejected: int
    from_ledger: int
    exchanges: int
    input_tokens: int
    output_tokens: int
    spent_usd: float
    odd_usage: int = 0

    def reasons(self) -> dict[str, int]:
        """Rejects by reason, counted over the outcomes."""
        return dict(sorted(Counter(o.reason for o in self.outcomes if isinstance(o, Reject)).items()))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What asking would come to; nothing was asked.

    Attributes:
        requests: all that were given.
        distinct: how many different ones.
        from_ledger: how many of these are finished already.
        over_limit: how many of these the model cannot take.
        to_ask: calls to make, without retries.
        input_tokens: estimate for those calls.
        most_output_tokens: if every answer ran to its cap.
        most_usd: upper estimate of the cost in US dollars; 0 without prices.
    """

    requests: int
    distinct: int
    from_ledger: int
    over_limit: int
    to_ask: int
    input_tokens: int
    most_output_tokens: int
    most_usd: float
