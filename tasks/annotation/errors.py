"""What can go wrong with a request, each with a word that tables keep and with what is done about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

from earmark.schemas.errors import EarmarkError

Remedy = Literal["retry", "repair", "reject", "stop"]


def one_line(text: str, most: int = 200) -> str:
    """Text from outside as one line that every terminal and table takes: no control characters, no half surrogates.

    Args:
        text: what somebody else wrote.
        most: longest line, in characters; what is longer ends in three dots.
    """
    line = " ".join(text[: 10 * most].split())
    if not line.isprintable():
        line = "".join(one if one.isprintable() else "\ufffd" for one in line)
    return line if len(line) <= most else line[: most - 3] + "..."


class AskError(Exception):
    """A fault of one exchange."""

    reason: ClassVar[str] = "error"  # the fixed word that rejects, attempts and counts carry
    # `retry` what may succeed later, `repair` an unusable answer by asking again, `reject` at once, `stop` the whole
    # run
    remedy: ClassVar[Remedy] = "reject"
    # whether the ledger keeps the reject. A fault of the network or the server is asked anew by the next run; a refusal
    # or an answer that never fits is an outcome that was paid for.
    final: ClassVar[bool] = False
    charged: bool = False  # whether the provider may have answered and charged for it

    def __init__(self, detail: str) -> None:
        super().__init__(one_line(detail, 1000))


class Retriable(AskError):
    """May succeed when tried again.

    Args:
        detail: one line.
        retry_after_s: how long the server asks to wait, in seconds.
        raw: what came back, if anything did.
    """

    remedy = "retry"

    def __init__(self, detail: str, *, retry_after_s: float | None = None, raw: str | None = None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
        self.raw = raw


class RateLimited(Retriable):
    """429: the server asks for patience."""

    reason = "rate_limited"


class ServerError(Retriable):
    """5xx, or a success status that carries an error."""

    reason = "server_error"


class Redirected(Retriable):
    """3xx: the answer is said to be elsewhere. Nobody goes there: the key belongs to the host that was asked."""

    reason = "redirected"


class ConnectionFailed(Retriable):
    """Refused, reset, or closed before the announced end of the body."""

    reason = "connection_failed"
    charged = True


class TimedOut(Retriable):
    """No connection, a silent connection, or an exchange beyond its time.

    Args:
        kind: `connect`, `read` or `total`.
        seconds: the limit that passed.
    """

    reason = "timed_out"

    def __init__(self, kind: Literal["connect", "read", "total"], seconds: float) -> None:
        super().__init__(f"{kind} took longer than {seconds:g} s")
        self.kind = kind
        self.charged = kind != "connect"


class WrongContentType(Retriable):
    """A success status with something else than JSON, as proxies answer."""

    reason = "wrong_content_type"
    charged = True


class MalformedResponse(Retriable):
    """JSON that is cut short, or a body of another protocol."""

    reason = "malformed_response"


@contextmanager
def shaped(what: str) -> Iterator[None]:
    """Read what a server sent, which may have any shape.

    Raises:
        MalformedResponse: it has not the shape that the block reads.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise MalformedResponse(f"expected {what}, found something else") from None


class TooLarge(AskError):
    """A response beyond `most_response_bytes`; reading it again would cost the same again."""

    reason = "too_large"
    charged = True
    remedy = "repair"
    final = True


class BadAnswer(AskError):
    """A complete answer that is not what was asked for."""

    reason = "bad_answer"
    remedy = "repair"
    final = True


class SchemaMismatch(BadAnswer):
    """JSON that does not fit the schema, or no JSON."""

    reason = "schema_mismatch"


class Empty(BadAnswer):
    """No text at all."""

    reason = "empty"


class Truncated(BadAnswer):
    """The answer ran into `max_tokens`."""

    reason = "truncated"


class Refused(AskError):
    """The model or the provider's filter declines. Asking again would press the point; it is an outcome."""

    reason = "refused"
    remedy = "reject"
    final = True


class BadRequest(AskError):
    """400, 413, 422: this request cannot succeed as it is."""

    reason = "bad_request"


class OverLimit(AskError):
    """Beyond what the model can hear or hold, with `on_limit = "refuse"`; never sent."""

    reason = "over_limit"


class BadMedia(AskError):
    """A clip or image that cannot be read, or is not the one that was indexed; never sent."""

    reason = "bad_media"


class BatchFailed(AskError):
    """The provider dropped the request from a batch, or the batch expired."""

    reason = "batch_failed"


class StopRun(AskError, EarmarkError):
    """A fault that every further request would meet. The run ends; what is answered is in the ledger."""

    remedy = "stop"


class AuthFailed(StopRun):
    """401, 403: no key, or one that is not accepted."""

    reason = "auth_failed"


class ModelMissing(StopRun):
    """404: no such model or path at this server."""

    reason = "model_missing"


class BatchUnreachable(StopRun):
    """The provider's batch API does not answer; what was submitted waits there."""

    reason = "batch_unreachable"


class QuotaExhausted(StopRun):
    """The account has no money or quota left; waiting does not help."""

    reason = "quota_exhausted"


class BudgetExhausted(StopRun):
    """The next request could pass `budget_usd`. Raise it and run again: nothing is asked twice."""

    reason = "budget_exhausted"


class LedgerError(EarmarkError):
    """A ledger that cannot be opened, read or written."""


class PromptError(EarmarkError):
    """A prompt file that is missing, malformed, or not the one its lock names."""
