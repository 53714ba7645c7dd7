"""Share a budget between processes: the ledger holds each one's spending and possible debts.

A killed process leaves its reservation. Its cost is unknown, so it counts as spent for good. The budget of an ended
session stays for a while, closed: other processes may still be at work, and get no more of it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.budget import NOTHING_USD, Budget
from earmark.tasks.annotation.errors import BudgetExhausted
from earmark.tasks.annotation.ledger import Ledger
from earmark.tasks.annotation.ledger_rows import Driver
from earmark.tasks.annotation.limits import ModelLimits
from earmark.tasks.annotation.request import Request

LOOK_AGAIN_S = 1.0
ALL = ""  # owner of the row changed first by everyone, so that rows are locked in one order

KNOW = """
INSERT INTO budgets (name, owner, spent_usd, doubtful_usd, reserved_usd, used_at) VALUES (?, ?, 0, 0, 0, ?)
ON CONFLICT (name, owner) DO UPDATE SET used_at = excluded.used_at
"""
LOOK = "SELECT sum(spent_usd), sum(doubtful_usd), sum(reserved_usd), max(closed) FROM budgets WHERE name = ?"
ADD = """
UPDATE budgets SET spent_usd = spent_usd + ?, doubtful_usd = doubtful_usd + ?, reserved_usd = reserved_usd + ?
WHERE name = ? AND owner = ?
"""


class BudgetSums(NamedTuple):
    """Sums of all processes: spent, of unknown cost, and reserved."""

    spent_usd: float
    doubtful_usd: float
    reserved_usd: float
    granted: bool  # whether a reservation was granted
    closed: bool  # whether the budget's session has ended


def reserve(driver: Driver, name: str, owner: str, worst_usd: float, cap_usd: float) -> BudgetSums:
    """Reserve the worst case of a request if the cap allows; a change of the ledger."""
    driver.run(KNOW, (name, ALL, driver.now()))
    [(spent, doubtful, reserved, closed)] = driver.rows(LOOK, (name,))
    granted = not closed and spent + doubtful + reserved + worst_usd <= cap_usd
    if granted:
        driver.run(KNOW, (name, owner, driver.now()))
        driver.run(ADD, (0.0, 0.0, worst_usd, name, owner))
    return BudgetSums(spent, doubtful, reserved, granted, bool(closed))


def add(driver: Driver, name: str, owner: str, spent_usd: float, doubtful_usd: float, reserved_usd: float) -> None:
    """Add to the amounts of an owner; a change of the ledger."""
    driver.run(KNOW, (name, owner, driver.now()))
    driver.run(ADD, (spent_usd, doubtful_usd, reserved_usd, name, owner))


def close(driver: Driver, name: str) -> None:
    """Grant nothing more of a budget, as its session has ended; a change of the ledger."""
    driver.run(KNOW, (name, ALL, driver.now()))
    driver.run("UPDATE budgets SET closed = 1 WHERE name = ? AND owner = ?", (name, ALL))


class SharedBudget(Budget):
    """Part of one process in a budget.

    Args:
        config: has cap and prices.
        limits: of the model.
        ledger: an open ledger, shared by all processes.
        name: of the budget.
    """

    def __init__(self, config: AnnotatorConfig, limits: ModelLimits, ledger: Ledger, name: str) -> None:
        super().__init__(config, limits)
        self._ledger = ledger
        self._name = name

    async def reserve(self, worst_usd: float) -> None:
        """Reserve as `Budget.reserve`, for all processes together.

        Raises:
            BudgetExhausted: nothing is in flight anywhere and the cap could be passed, or the session has ended.
            LedgerError: the ledger cannot be written.
        """
        if self.cap_usd is not None:
            cap_usd = self.cap_usd

            def change(driver: Driver) -> BudgetSums:
                return reserve(driver, self._name, self._ledger.owner, worst_usd, cap_usd)

            while not (standing := await self._ledger.change(change)).granted:
                if standing.closed:
                    raise BudgetExhausted(f"budget_usd = {self.cap_usd:g}: the build that it was given to has ended")
                if standing.reserved_usd <= NOTHING_USD:
                    raise self.exhausted(standing.spent_usd, standing.doubtful_usd, worst_usd)
                self._freed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_S):
                        await self._freed.wait()
                await self._ledger.free_the_dead()
        self.reserved_usd += worst_usd

    def settle(self, worst_usd: float, cost_usd: float) -> None:
        """Settle as `Budget.settle`."""
        self._add(cost_usd, 0.0, -min(worst_usd, self.reserved_usd))
        super().settle(worst_usd, cost_usd)

    def doubt(self, request: Request) -> None:
        """Count as `Budget.doubt`."""
        self._add(0.0, self.worst_usd(request), 0.0)
        super().doubt(request)

    def _add(self, spent_usd: float, doubtful_usd: float, reserved_usd: float) -> None:
        if self.cap_usd is not None and (spent_usd or doubtful_usd or reserved_usd) and not self._ledger.broken:
            amounts = (spent_usd, doubtful_usd, reserved_usd)
            self._ledger.change_soon(lambda driver: add(driver, self._name, self._ledger.owner, *amounts))
