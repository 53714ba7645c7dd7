"""How a request ends: with an answer, or as a reject with a typed reason. Nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that fits what was asked."""

    key: str  # the request's key
    value: Any  # text, a choice, JSON, or for yes/no a dict with `p_yes`
    model: str | None = None  # the model's name as the server reports it
    notes: tuple[str, ...] = ()  # what was done to the request to fit the model's limits, such as cut audio
    from_ledger: bool = field(default=False, compare=False)  # whether it was there already; says nothing of the answer


@dataclass(frozen=True, slots=True)
class Reject:
    """A request without a usable answer."""

    key: str  # the request's key
    reason: str  # a fixed word; see `errors.py`
    detail: str  # what was expected and what was found, in one line
    final: bool = False  # whether the ledger keeps it; others are asked anew by the next run
    notes: tuple[str, ...] = ()
    from_ledger: bool = field(default=False, compare=False)  # whether it was there already


Outcome: TypeAlias = Answer | Reject


@dataclass(frozen=True, slots=True)
class Report:
    """What one call to `Annotator.ask` came to."""

    outcomes: list[Outcome]  # one for each request, in the order given
    distinct: int  # how many different requests there were; the counts below are of these
    answered: int  # how many have an answer
    rejected: int  # how many have none; `answered + rejected = distinct`
    from_ledger: int  # how many of both were in the ledger already
    exchanges: int  # how often the model was asked
    input_tokens: int  # tokens in
    output_tokens: int  # tokens out
    spent_usd: float  # what this call cost, in US dollars; 0 without prices
    # how many answers came with token counts that cannot be; the most that they may be counts for them
    odd_usage: int = 0

    def reasons(self) -> dict[str, int]:
        """Rejects by reason, counted over the outcomes."""
        return dict(sorted(Counter(o.reason for o in self.outcomes if isinstance(o, Reject)).items()))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What asking would come to; nothing was asked."""

    requests: int  # all that were given
    distinct: int  # how many different ones
    from_ledger: int  # how many of these are finished already
    over_limit: int  # how many of these the model cannot take
    to_ask: int  # calls to make, without retries
    input_tokens: int  # estimate for those calls
    most_output_tokens: int  # if every answer ran to its cap
    most_usd: float  # upper estimate of the cost in US dollars; 0 without prices
