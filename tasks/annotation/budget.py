"""Count the cost of requests under a firm cap: the worst case of requests in flight counts as spent."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from earmark.schemas.annotation import AnnotatorConfig, Prices
from earmark.tasks.annotation.answers import NO_USAGE, Reply
from earmark.tasks.annotation.errors import BudgetExhausted
from earmark.tasks.annotation.limits import ModelLimits, audio_tokens, text_tokens, tokens
from earmark.tasks.annotation.request import Request

BATCH_DISCOUNT = 0.5  # share taken off in the batch APIs of OpenAI and Google
NOTHING_USD = 1e-12  # smaller differences between sums of costs are rounding
SAFETY = 1.5
"""Factor on the estimated input tokens, for scripts with more tokens per byte than English."""


class Bill(NamedTuple):
    """Cost of a response: tokens in and out, US dollars; `odd` gives the reason for an estimate, if any."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    odd: str | None = None


class Budget:
    """Spending of one annotator, over all its calls."""

    def __init__(self, config: AnnotatorConfig, limits: ModelLimits) -> None:
        self.cap_usd = config.budget_usd
        self.spent_usd = 0.0
        self.reserved_usd = 0.0
        self.doubtful_usd = 0.0  # worst cases of requests without a complete answer, which may have been charged
        self.odd_answers = 0  # answers with implausible token counts
        self._prices = config.charged
        self._discount = BATCH_DISCOUNT if self._prices and config.batch else 0.0
        self._limits = limits
        self._freed = asyncio.Event()

    def worst_usd(self, request: Request) -> float:
        """Return the highest cost of the request, in US dollars: a generous estimate in, `max_tokens` out."""
        heard = SAFETY * audio_tokens(request, self._limits)
        read = SAFETY * text_tokens(request, self._limits)
        return self._price(read, heard, request.sampling.max_tokens)

    def bill(self, request: Request, reply: Reply) -> Bill:
        """Return a response's cost by its token counts, or its highest cost if they are implausible.

        Without charges, as for builtin functions and many private servers, no counts are needed.
        """
        if reply.odd_usage == NO_USAGE and self._prices is None:
            return Bill()
        if reply.odd_usage is not None:
            most = request.sampling.max_tokens
            return Bill(tokens(request, self._limits), most, self.worst_usd(request), reply.odd_usage)
        cost = self._price(reply.input_tokens - reply.audio_tokens, reply.audio_tokens, reply.output_tokens)
        return Bill(reply.input_tokens, reply.output_tokens, cost)

    async def reserve(self, worst_usd: float) -> None:
        """Reserve the worst case; wait while requests in flight may still turn out cheaper.

        Raises:
            BudgetExhausted: nothing is in flight and the cap could be passed.
        """
        if self.cap_usd is not None:
            while self.spent_usd + self.doubtful_usd + self.reserved_usd + worst_usd > self.cap_usd:
                if self.reserved_usd <= NOTHING_USD:
                    raise self.exhausted(self.spent_usd, self.doubtful_usd, worst_usd)
                self._freed.clear()
                await self._freed.wait()
        self.reserved_usd += worst_usd

    def settle(self, worst_usd: float, cost_usd: float) -> None:
        """Replace a reservation by the actual cost."""
        self.reserved_usd = max(0.0, self.reserved_usd - worst_usd)
        self.spent_usd += cost_usd
        self._freed.set()

    def doubt(self, request: Request) -> None:
        """Count the worst case of a request with a lost answer: its cost is unknown."""
        self.doubtful_usd += self.worst_usd(request)

    def exhausted(self, spent_usd: float, doubtful_usd: float, worst_usd: float) -> BudgetExhausted:
        """Return the error of an exhausted budget."""
        return BudgetExhausted(
            f"budget_usd = {self.cap_usd:g}: spent {spent_usd:.4f}, up to {doubtful_usd:.4f} for "
            f"answers that were lost on the way, and the next request may cost {worst_usd:.4f}; "
            "what is answered is in the ledger: raise budget_usd and run again"
        )

    def _price(self, read: float, heard: float, said: float) -> float:
        prices = self._prices
        if prices is None:
            return 0.0
        return _usd(prices, read, heard, said) * (1.0 - self._discount)


def _usd(prices: Prices, read: float, heard: float, said: float) -> float:
    audio = prices.audio_input_per_million
    if audio is None:
        audio = prices.input_per_million
    return (read * prices.input_per_million + heard * audio + said * prices.output_per_million) / 1e6
