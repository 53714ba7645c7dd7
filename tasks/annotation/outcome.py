"""Type the end of a request: an answer, or a reject with a typed reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer in the requested form."""

    key: str  # the request's key
    value: Any  # text, a choice, JSON, or for yes/no a dict with `p_yes`
    model: str | None = None  # model name reported by the server
    notes: tuple[str, ...] = ()  # changes to fit the model's limits, such as cut audio
    from_ledger: bool = field(default=False, compare=False)  # whether an earlier run left it; no part of the answer


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Request without a usable answer."""

    key: str  # the request's key
    reason: str  # fixed word; see `errors.py`
    detail: str  # expected and found, in one line
    final: bool = False  # whether the ledger keeps it; the next run asks others again
    notes: tuple[str, ...] = ()
    from_ledger: bool = field(default=False, compare=False)  # whether an earlier run left it


Outcome: TypeAlias = Answer | Unanswered


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a call to `Annotator.ask`."""

    outcomes: list[Outcome]  # outcomes in the order of the requests
    distinct: int  # number of distinct requests; the counts below are of these
    answered: int  # requests with an answer
    rejected: int  # requests without; `answered + rejected = distinct`
    from_ledger: int  # answered or rejected requests already in the ledger
    exchanges: int  # exchanges with the model
    input_tokens: int  # tokens in
    output_tokens: int  # tokens out
    spent_usd: float  # cost of this call in US dollars; 0 without prices
    # answers with impossible token counts; their greatest possible counts stand in
    odd_usage: int = 0

    def reasons(self) -> dict[str, int]:
        """Count the rejects among the outcomes by reason."""
        return dict(sorted(Counter(o.reason for o in self.outcomes if isinstance(o, Unanswered)).items()))


@dataclass(frozen=True, slots=True)
class Forecast:
    """Estimate of a call to `Annotator.ask`; nothing is asked."""

    requests: int  # number of requests
    distinct: int  # number of distinct requests
    from_ledger: int  # distinct requests finished already
    over_limit: int  # distinct requests beyond the model's limits
    to_ask: int  # calls to make, without retries
    input_tokens: int  # estimate for those calls
    most_output_tokens: int  # greatest number, with every answer at its cap
    most_usd: float  # upper estimate of the cost in US dollars; 0 without prices
    refused: int = 0  # calls for kept answers invalid by today's rules
    priced: bool = True  # whether the annotator has prices, or costs nothing
    refused_usd: float = 0.0  # their part of the cost
