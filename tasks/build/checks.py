"""What a check holds against an answer, and when too many questions stay without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from earmark.schemas.errors import EarmarkError

LASTING = frozenset({"bad_request", "over_limit", "bad_media"})  # asked anew by a further run, with the same outcome


class Fault(NamedTuple):
    """What a check holds against an answer: a fixed word, and what was expected and found, in one line."""

    reason: str
    detail: str


def check_failed(most: float, asked: int, failures: Sequence[Mapping[str, Any]]) -> None:
    """Stop a build that too many requests left without an answer that another run might still get.

    A request that the model cannot take, or whose clip cannot be read, is no such request: it stays a reject.

    Args:
        most: share of the requests that may stay without an answer.
        asked: how many requests there were.
        failures: those without an answer: rows with `reason` and `final`.

    Raises:
        EarmarkError: how many, and their commonest reason.
    """
    passing = [row["reason"] for row in failures if not row["final"] and row["reason"] not in LASTING]
    if passing and len(passing) > most * asked:
        commonest = max(sorted(set(passing)), key=passing.count)
        raise EarmarkError(
            f"{len(passing)} of {asked} requests have no answer yet, most for '{commonest}'; answers are kept: "
            "when the cause is gone, go on with: earmark resume"
        )
