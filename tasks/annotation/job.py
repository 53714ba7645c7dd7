"""A request on its way through one call, and the outcome that the ledger holds for it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from earmark.tasks.annotation.answers import low_share
from earmark.tasks.annotation.errors import LowShare
from earmark.tasks.annotation.ledger_rows import Finished, Held
from earmark.tasks.annotation.patience import Sent
from earmark.tasks.annotation.request import Answer, Outcome, Request, Unanswered

NOT_HELD = Held(0)


@dataclass(slots=True)
class Job:
    """Request on its way."""

    request: Request
    notes: tuple[str, ...] = ()
    held: Held = NOT_HELD
    lease: int = 0  # the ledger's at its claim
    attempts: int = 0  # number of its last attempt, over all runs
    failures: int = 0  # failed exchanges in this run
    unusable: int = 0  # unusable answers, over all runs: they were paid for
    refused: str = ""  # fault of the last unusable response
    sent_at: float = 0.0
    place: Sent | None = (
        None  # place among the questions of its kind; None for a retry of an earlier run's, if the server answers
    )
    waits: int = 0  # faults of this run about the server alone
    waits_since: float = 0.0  # monotonic time of the first such fault

    @property
    def key(self) -> str:
        """Return the request's key."""
        return self.request.key

    @property
    def row(self) -> int:
        """Return the request's row in the ledger."""
        return self.held.request_id

    @property
    def claim(self) -> tuple[int, int]:
        """Return the request's row and the lease of its claim."""
        return self.row, self.lease


def from_ledger(key: str, finished: Finished, notes: tuple[str, ...], least_share: float) -> Outcome:
    """Return the outcome kept in the ledger; an answer with a share below `least_share` is a reject."""
    if finished.reason is not None:
        return Unanswered(key, finished.reason, finished.detail or "", final=True, notes=notes, from_ledger=True)
    value = json.loads(finished.answer or "null")
    if (
        isinstance(value, dict)
        and (share := value.get("share", 1.0)) < least_share
        and {"p_yes", "score"} & value.keys()
    ):
        return Unanswered(key, LowShare.reason, low_share(share, least_share), notes=notes, from_ledger=True)
    return Answer(key, value, finished.reply_model, notes, from_ledger=True)
