"""Define the fault of an answer, and stop a build with too many unanswered questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from earmark.schemas.errors import EarmarkError
from earmark.tasks.annotation.engine import about_refused
from earmark.tasks.annotation.errors import KeptRefused

LASTING = frozenset({"over_limit", "bad_media"})  # never sent; another run asks again, with the same outcome


class Fault(NamedTuple):
    """Fault of an answer: a fixed word, and expected and found in one line."""

    reason: str
    detail: str


def check_failed(most: float, asked: int, failures: Sequence[Mapping[str, Any]], refused_usd: float = 0.0) -> None:
    """Stop a build with too many unanswered requests that another run might still answer.

    Requests beyond the model's limits, or with an unreadable clip, do not count: they stay rejects. Requests that the
    server refuses count: a row that it cannot take looks the same as a fault of all rows.

    Args:
        most: allowed share of unanswered requests.
        asked: number of requests.
        failures: unanswered requests: rows with `reason`, `detail` and `final`.
        refused_usd: greatest cost of asking again for kept answers that today's rules refuse.

    Raises:
        EarmarkError: with their number, most common reason, and the server's words.
    """
    if refused := [row["detail"] for row in failures if row["reason"] == KeptRefused.reason]:
        raise EarmarkError(
            f"{about_refused(len(refused), refused_usd)}: earmark resume. The first of them: {refused[0]}"
        )
    passing = [row for row in failures if not row["final"] and row["reason"] not in LASTING]
    if not passing or len(passing) <= most * asked:
        return
    reasons = [row["reason"] for row in passing]
    commonest = max(sorted(set(reasons)), key=reasons.count)
    words = next(row["detail"] for row in passing if row["reason"] == commonest)
    ways = {"bad_request": "keep such rows as rejects: most_failed", "low_share": "take such answers: least_share"}
    way_out = f" (or {ways[commonest]})" if commonest in ways else ""
    raise EarmarkError(
        f"{len(passing)} of {asked} requests have no answer yet, most for '{commonest}': {words}; answers are kept: "
        f"when the cause is gone, go on with: earmark resume{way_out}"
    )
