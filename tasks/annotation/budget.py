"""What requests cost, and a cap that is never passed: the worst case of what is in flight counts as spent."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from earmark.schemas.annotation import AnnotatorConfig, Prices
from earmark.tasks.annotation.answers import NO_USAGE, Reply
from earmark.tasks.annotation.errors import BudgetExhausted
from earmark.tasks.annotation.limits import ModelLimits, audio_tokens, text_tokens, tokens
from earmark.tasks.annotation.request import Request

NOTHING_USD = 1e-12  # sums of costs that differ by less are the same
SAFETY = 1.5
"""Factor on the estimated tokens in, for scripts with more tokens to a byte than English."""


class Bill(NamedTuple):
    """What a response comes to: tokens in and out, US dollars; `odd` says why they are an estimate, if they are."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    odd: str | None = None


class Budget:
    """Counts the spend of one annotator, over all its calls."""

    def __init__(self, config: AnnotatorConfig, limits: ModelLimits) -> None:
        self.cap_usd = config.budget_usd
        self.spent_usd = 0.0
        self.reserved_usd = 0.0
        self.doubtful_usd = 0.0  # worst cases of what was sent and never came back whole: it may have been charged
        self.odd_answers = 0  # those whose token counts could not be believed
        self._prices = config.charged
        self._discount = self._prices.batch_discount if self._prices and config.batch else 0.0
        self._limits = limits
        self._freed = asyncio.Event()

    def worst_usd(self, request: Request) -> float:
        """Most that the request may cost, in US dollars: a generous estimate in, `max_tokens` out."""
        heard = SAFETY * audio_tokens(request, self._limits)
        read = SAFETY * text_tokens(request, self._limits)
        return self._price(read, heard, request.sampling.max_tokens)

    def bill(self, request: Request, reply: Reply) -> Bill:
        """What a response cost, by the tokens that it reports; the most that it may have, where these cannot be.

        Where nothing is charged, as by builtin functions and many servers of one's own, nothing need be reported.
        """
        if reply.odd_usage == NO_USAGE and self._prices is None:
            return Bill()
        if reply.odd_usage is not None:
            most = request.sampling.max_tokens
            return Bill(tokens(request, self._limits), most, self.worst_usd(request), reply.odd_usage)
        cost = self._price(reply.input_tokens - reply.audio_tokens, reply.audio_tokens, reply.output_tokens)
        return Bill(reply.input_tokens, reply.output_tokens, cost)

    async def reserve(self, worst_usd: float) -> None:
        """Set the worst case aside; waits while what is in flight may still turn out cheaper.

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
        """Replace a reservation by what was spent."""
        self.reserved_usd = max(0.0, self.reserved_usd - worst_usd)
        self.spent_usd += cost_usd
        self._freed.set()

    def doubt(self, request: Request) -> None:
        """Count the worst case of a request whose answer was lost: nobody knows what it cost."""
        self.doubtful_usd += self.worst_usd(request)

    def exhausted(self, spent_usd: float, doubtful_usd: float, worst_usd: float) -> BudgetExhausted:
        """The error that says so."""
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
