"""Define the faults of a request, each with a fixed word for tables and with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

from earmark.schemas.errors import EarmarkError
from earmark.schemas.unseen import printable

Remedy = Literal["retry", "repair", "reject", "stop"]


def one_line(text: str, most: int = 200) -> str:
    """Return outside text as one printable line: no control characters, no lone surrogates.

    Args:
        text: the outside text.
        most: greatest length in characters; longer text ends in three dots.
    """
    line = printable(" ".join(text[: 10 * most].split()))
    return line if len(line) <= most else line[: most - 3] + "..."


class AskError(Exception):
    """Fault of one exchange."""

    reason: ClassVar[str] = "error"  # fixed word in rejects, attempts and counts
    # `retry` later, `repair` an unusable answer by asking again, `reject` at once, `stop` the whole run
    remedy: ClassVar[Remedy] = "reject"
    # True: the ledger keeps the reject, as the answer or refusal was paid for. False: the next run asks again, as after
    # faults of the network or the server.
    final: ClassVar[bool] = False
    charged: bool = False  # whether the provider may have answered and charged
    cut: bool = False  # whether a gateway gave up waiting, so that it is charged if the provider had time to answer
    way_out: ClassVar[str] = ""  # what a person can change where many questions have this fault

    def __init__(self, detail: str) -> None:
        super().__init__(one_line(detail, 1000))


class Retriable(AskError):
    """Fault with at most `most_tries` tries in a run: each paid answer costs money.

    Args:
        detail: message in one line.
        retry_after_s: wait requested by the server, in seconds.
        raw: response, if any.
    """

    remedy = "retry"
    most_tries: ClassVar[int] = 100

    def __init__(self, detail: str, *, retry_after_s: float | None = None, raw: str | None = None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
        self.raw = raw


class RateLimited(Retriable):
    """Rate limit of the server (HTTP 429)."""

    reason = "rate_limited"


class ServerError(Retriable):
    """HTTP 5xx, or a success status with an error in its body."""

    reason = "server_error"


class Unavailable(ServerError):
    """HTTP 502, 503 or 529: the server or its upstream is busy, loading or away."""


class ServerSpoke(ServerError):
    """Server's message in the place of an answer, with every mark of a success."""

    most_tries = 2


class Redirected(Retriable):
    """HTTP 3xx. Redirects are not followed: the key belongs to the requested host."""

    reason = "redirected"


class ConnectionFailed(Retriable):
    """Connection refused, reset, or closed before the announced end of the body.

    Args:
        detail: message in one line.
        refused: no server listens, so nothing was asked.
    """

    reason = "connection_failed"

    def __init__(self, detail: str, *, refused: bool = False) -> None:
        super().__init__(detail)
        self.refused, self.charged = refused, not refused


class TimedOut(Retriable):
    """No connection, a silent connection, or an exchange over its time limit.

    Args:
        kind: `connect`, `read` or `total`.
        seconds: the exceeded limit.
    """

    reason = "timed_out"

    def __init__(self, kind: Literal["connect", "read", "total"], seconds: float) -> None:
        super().__init__(f"{kind} took longer than {seconds:g} s")
        self.kind, self.seconds = kind, seconds
        self.charged = kind != "connect"


class WrongContentType(Retriable):
    """Success status with a body other than JSON, as from proxies."""

    reason = "wrong_content_type"
    charged = True
    most_tries = 2


class MalformedResponse(Retriable):
    """Truncated JSON, or a body of another protocol."""

    reason = "malformed_response"
    charged = True


class Misshapen(MalformedResponse):
    """Complete JSON of another protocol."""

    most_tries = 2


@contextmanager
def shaped(what: str) -> Iterator[None]:
    """Read a server's response, which may have any shape.

    Raises:
        MalformedResponse: the block found another shape.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise MalformedResponse(f"expected {what}, found something else") from None


class BrokenOff(Retriable):
    """Answer without a known end: the server broke it off, or does not report how it ended."""

    reason = "interrupted"
    charged = True
    most_tries = 2


class TooLarge(AskError):
    """Response over `most_response_bytes`; a second read would cost the same."""

    reason = "too_large"
    charged = True
    remedy = "repair"
    final = True


class BadAnswer(AskError):
    """Complete answer in another form than requested."""

    reason = "bad_answer"
    remedy = "repair"
    final = True


class SchemaMismatch(BadAnswer):
    """Answer without JSON, or with JSON outside the schema."""

    reason = "schema_mismatch"


class Empty(BadAnswer):
    """Answer without text."""

    reason = "empty"


class Truncated(BadAnswer):
    """Answer cut at `max_tokens`."""

    reason = "truncated"


class LowShare(AskError):
    """Requested words with too little of the first token's probability: the model was about to say something else.

    The same question gets the same probabilities, so only a further run asks again.
    """

    reason = "low_share"
    remedy = "reject"
    way_out = (
        "To go on: least_share of this annotator at such shares or below (kept answers are read again for nothing), "
        "another model, or, for one that thinks first, extra_body.chat_template_kwargs = { enable_thinking = false }"
    )


class Refused(AskError):
    """Refusal by the model or the provider's filter. It is an outcome: nothing asks again."""

    reason = "refused"
    remedy = "reject"
    final = True


class BadRequest(AskError):
    """HTTP 400, 413 or 422: this request cannot succeed as it is."""

    reason = "bad_request"


class RowRefused(BadRequest):
    """Bad request about a single row: it is too long, or its media cannot be read."""


class OverLimit(AskError):
    """Request beyond the model's limits, with `on_limit = "refuse"`; never sent."""

    reason = "over_limit"


class BadMedia(AskError):
    """Clip or image that cannot be read or differs from the indexed file; never sent."""

    reason = "bad_media"


class BatchFailed(AskError):
    """Request dropped from a batch by the provider, or expired with its batch."""

    reason = "batch_failed"


class StopRun(AskError, EarmarkError):
    """Fault common to every further request. The run ends; the ledger keeps the answers."""

    remedy = "stop"


class AuthFailed(StopRun):
    """HTTP 401 or 403: no key, or a rejected key."""

    reason = "auth_failed"


class ModelMissing(StopRun):
    """HTTP 404: no such model or path at this server."""

    reason = "model_missing"


class Unsupported(StopRun):
    """Parameter or kind of input unsupported by the model."""

    reason = "unsupported_option"


class Streamed(Unsupported):
    """Answer in a stream: it was paid for, and the next one would be a stream too."""

    charged = True


class AllAlike(StopRun):
    """Same fault in the first requests, or in many in a row: every further request would meet it."""

    reason = "all_alike"


class ServerGone(StopRun):
    """Server without an answer for `patience_s`."""

    reason = "server_gone"


class KeptRefused(StopRun):
    """Kept answers invalid by today's rules. The next run asks again, now that their number is known."""

    reason = "kept_refused"


class BatchUnreachable(StopRun):
    """Provider's batch API without a response or a submitted batch, which may wait there or in another account."""

    reason = "batch_unreachable"


class QuotaExhausted(StopRun):
    """Account without money or quota; waiting does not help."""

    reason = "quota_exhausted"


class BudgetExhausted(StopRun):
    """Next request may exceed `budget_usd`. Raise it and run again: nothing is asked twice."""

    reason = "budget_exhausted"


class Stopped(StopRun):
    """Stop of the caller: nothing more is sent, and requests in flight have ended."""

    reason = "stopped"

    def __init__(self) -> None:
        super().__init__("stopped before its answers came; what came is kept")

    def __reduce__(self) -> tuple[type[Stopped], tuple[()]]:
        return type(self), ()


class LedgerError(EarmarkError):
    """Ledger that cannot be opened, read or written."""


class PromptError(EarmarkError):
    """Prompt file that is missing, malformed, or different from its lock."""
