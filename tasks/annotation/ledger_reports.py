"""Report on a ledger for a person: `earmark ledger stats`, `show`, `batches`, `vacuum`, `export`."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from earmark.tasks.annotation.errors import LedgerError, one_line
from earmark.tasks.annotation.ledger import connect
from earmark.tasks.annotation.ledger_rows import Driver, free_the_dead, shown

BY_MODEL = """
SELECT r.model, r.state, count(*) FROM requests r GROUP BY r.model, r.state ORDER BY r.model, r.state
"""
SPENT = """
SELECT r.model, count(*), sum(CASE WHEN a.status = 'failed' THEN 1 ELSE 0 END), sum(a.input_tokens),
sum(a.output_tokens), sum(a.cost_usd), avg(a.latency_s) FROM attempts a JOIN requests r ON r.id = a.request_id
GROUP BY r.model ORDER BY r.model
"""
REASONS = """
SELECT r.model, r.reason, count(*) FROM requests r WHERE r.state = 'rejected' GROUP BY r.model, r.reason
ORDER BY r.model, r.reason
"""
FAULTS = """
SELECT r.model, a.error_type, count(*) FROM attempts a JOIN requests r ON r.id = a.request_id
WHERE a.error_type IS NOT NULL GROUP BY r.model, a.error_type ORDER BY r.model, a.error_type
"""
LATENCIES_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # upper bounds of the latency buckets
WITHIN = ", ".join(f"sum(CASE WHEN a.latency_s <= {bound} THEN 1 ELSE 0 END)" for bound in LATENCIES_S)
LATENCIES = f"""
SELECT r.model, {WITHIN}, count(*), sum(a.latency_s) FROM attempts a JOIN requests r ON r.id = a.request_id
GROUP BY r.model ORDER BY r.model
"""
BATCHES = "SELECT state, count(*), sum(requests) FROM batches GROUP BY state ORDER BY state"
OPEN_BATCH = "SELECT id FROM batches WHERE (id = ? OR provider_id = ?) AND state IN ('intended', 'submitted')"
FREED = "UPDATE batches SET state = 'failed', owner = NULL, detail = 'freed by hand', updated_at = ? WHERE id = ?"
RECEIVED = """
SELECT r.model, r.body, a.raw FROM attempts a JOIN requests r ON r.id = a.request_id
WHERE a.status <> 'failed' AND a.raw IS NOT NULL
"""
OLD = "state <> 'open' AND owner IS NULL AND settled_at < ?"
OLD_ROWS = (
    f"DELETE FROM attempts WHERE request_id IN (SELECT id FROM requests WHERE {OLD})",
    f"DELETE FROM batch_requests WHERE request_id IN (SELECT id FROM requests WHERE {OLD})",
    f"DELETE FROM requests WHERE {OLD}",
)
PAGE = 1_000
_TEXT = re.compile(r'"text_sha256":\s*"([0-9a-f]{64})"')


class ModelCounts(TypedDict):
    """A model's requests by state; the rest stands there once it was asked."""

    open: int
    answered: int
    rejected: int
    attempts: NotRequired[int]
    failed_attempts: NotRequired[int]
    input_tokens: NotRequired[int]
    output_tokens: NotRequired[int]
    cost_usd: NotRequired[float]
    mean_latency_s: NotRequired[float]
    rejects: NotRequired[dict[str, int]]
    faults: NotRequired[dict[str, int]]


class LedgerCounts(TypedDict):
    """A ledger's counts."""

    ledger: str
    bytes: int
    models: dict[str, ModelCounts]
    batches: dict[str, dict[str, int]]  # by state: `batches` and their `requests`


class RequestFacts(TypedDict):
    """A request with its texts."""

    key: str
    model: str
    body: dict[str, Any]
    state: str
    answer: Any
    reason: str | None
    detail: str | None
    parser: str | None
    reply_model: str | None
    attempts: list["AttemptFacts"]


class AttemptFacts(TypedDict):
    """An exchange about a request; the columns of a query, in order."""

    number: int
    status: int | None
    error_type: str | None
    detail: str | None
    raw: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    latency_s: float
    started_at: float
    batch_id: str | None


class BatchFacts(TypedDict):
    """A provider's batch; the columns of a query, in order."""

    id: str
    provider_id: str | None
    model: str
    state: str
    requests: int
    created_at: float
    updated_at: float
    detail: str | None


REQUEST_FIELDS = [name for name in RequestFacts.__annotations__ if name != "attempts"]
REQUEST = f"SELECT id, {', '.join(REQUEST_FIELDS)} FROM requests"
ATTEMPTS = f"SELECT {', '.join(AttemptFacts.__annotations__)} FROM attempts WHERE request_id = ? ORDER BY number"
EACH_BATCH = f"SELECT {', '.join(BatchFacts.__annotations__)} FROM batches ORDER BY created_at DESC"


def stats(address: str | Path) -> LedgerCounts:
    """Return requests by state, attempts, tokens and cost per model, rejects and faults by type, batches, and size.

    Raises:
        LedgerError: there is no such ledger.
    """
    with closing(_existing(address)) as driver:
        models: dict[str, ModelCounts] = {}
        for model, state, count in driver.rows(BY_MODEL):
            models.setdefault(model, {"open": 0, "answered": 0, "rejected": 0})[state] = count  # type: ignore[literal-required]
        for model, attempts, failed, tokens_in, tokens_out, cost_usd, latency_s in driver.rows(SPENT):
            models[model] |= {
                "attempts": attempts,
                "failed_attempts": int(failed),
                "input_tokens": int(tokens_in),
                "output_tokens": int(tokens_out),
                "cost_usd": float(cost_usd),
                "mean_latency_s": float(latency_s),
            }
        for name, query in (("rejects", REASONS), ("faults", FAULTS)):
            for model, reason, count in driver.rows(query):
                models[model].setdefault(name, {})[reason] = count  # type: ignore[misc]
        batches = {state: {"batches": n, "requests": int(held)} for state, n, held in driver.rows(BATCHES)}
        return {"ledger": shown(address), "bytes": driver.size_bytes(), "models": models, "batches": batches}


def latencies(address: str | Path) -> dict[str, tuple[list[int], float]]:
    """Return each model's latencies: exchanges within each of `LATENCIES_S`, their number, and their total seconds.

    Raises:
        LedgerError: there is no such ledger.
    """
    with closing(_existing(address)) as driver:
        return {model: ([int(n) for n in counts], float(sum_s)) for model, *counts, sum_s in driver.rows(LATENCIES)}


def show(address: str | Path, key: str) -> RequestFacts:
    """Return a request with its texts and all its attempts.

    Args:
        address: path or URL.
        key: the request's key, or a unique prefix of it, in hexadecimal digits.

    Raises:
        LedgerError: no such ledger or key, or several keys with this prefix.
    """
    prefix = key.lower()
    if not prefix or len(prefix) > 64 or set(prefix) - set("0123456789abcdef"):
        raise LedgerError(f"ledger show: expected a key of up to 64 hexadecimal digits, found {key!r}")
    low, high = bytes.fromhex(prefix.ljust(64, "0")), bytes.fromhex(prefix.ljust(64, "f"))
    with closing(_existing(address)) as driver:
        found = driver.rows(f"{REQUEST} WHERE key >= ? AND key <= ? ORDER BY key LIMIT 2", (low, high))
        if not found:
            raise LedgerError(f"ledger {shown(address)}: no request whose key begins with {prefix}")
        if len(found) > 1:
            raise LedgerError(f"ledger {shown(address)}: several keys begin with {prefix}; give more digits")
        return _request(driver, found[0])


def batches(address: str | Path) -> list[BatchFacts]:
    """Return every provider batch and its state, newest first.

    Raises:
        LedgerError: there is no such ledger.
    """
    with closing(_existing(address)) as driver:
        return [
            cast(BatchFacts, dict(zip(BatchFacts.__annotations__, row, strict=True))) for row in driver.rows(EACH_BATCH)
        ]


def free_batch(address: str | Path, batch_id: str) -> int:
    """Release a batch's requests, to be asked again; return their number.

    Args:
        address: path or URL.
        batch_id: the batch's id, ours or the provider's.

    Raises:
        LedgerError: no such ledger, or no batch of this id is under way.
    """
    with closing(_existing(address)) as driver:
        found = driver.rows(OPEN_BATCH, (batch_id, batch_id))
        if not found:
            raise LedgerError(
                f"ledger batches: no batch '{one_line(batch_id, 80)}' is under way; run it without --free"
            )
        ((intent,),) = found
        free_the_dead(driver)
        ((owner,),) = driver.rows("SELECT owner FROM batches WHERE id = ?", (intent,))
        if owner is not None:
            raise LedgerError("ledger batches: a process that runs collects this batch; stop it first")
        (held,) = driver.rows("SELECT count(*) FROM requests WHERE owner = ?", (f"batch:{intent}",))
        driver.begin()
        driver.run("UPDATE requests SET owner = NULL WHERE owner = ?", (f"batch:{intent}",))
        driver.run(FREED, (driver.now(), intent))
        driver.commit()
        return int(held[0])


def received(
    address: str | Path, models: Sequence[str], keys: Sequence[str] | None = None
) -> list[tuple[str, str, str]]:
    """Read the answers of models: model, body of the request and raw response of each exchange.

    Args:
        address: path or URL.
        models: models of the answers.
        keys: keys of the requests; None reads all.

    Raises:
        LedgerError: there is no such ledger.
    """
    with closing(_existing(address, reading=True)) as driver:
        if keys is None:
            rows = [row for model in models for row in driver.rows(f"{RECEIVED} AND r.model = ?", (model,))]
        else:
            rows = driver.committed_in(f"{RECEIVED} AND r.key IN {{values}}", [bytes.fromhex(key) for key in keys])
        return [(model, body, raw) for model, body, raw in rows if model in models]


def vacuum(address: str | Path) -> tuple[int, int]:
    """Release free space; return the bytes before and after.

    Raises:
        LedgerError: there is no such ledger.
    """
    with closing(_existing(address)) as driver:
        before = driver.size_bytes()
        driver.vacuum()
        return before, driver.size_bytes()


def export(address: str | Path, *, model: str | None = None) -> Iterator[RequestFacts]:
    """Yield every request with its texts and attempts, in the order of first asking, as dicts for JSON lines.

    Args:
        address: path or URL.
        model: only this model's, if given.

    Raises:
        LedgerError: there is no such ledger.
    """
    with closing(_existing(address)) as driver:
        last = -1
        while page := driver.rows(f"{REQUEST} WHERE id > ? ORDER BY id LIMIT {PAGE}", (last,)):
            last = page[-1][0]
            for row in page:
                if model is None or row[2] == model:
                    yield _request(driver, row)


def count_old(address: str | Path, before: float) -> int:
    """Return the number of requests settled before a time, in seconds since 1970.

    Raises:
        LedgerError: there is no such ledger.
    """
    with closing(_existing(address, reading=True)) as driver:
        ((count,),) = driver.rows(f"SELECT count(*) FROM requests WHERE {OLD}", (before,))
        return int(count)


def prune(address: str | Path, before: float, out: Path) -> int:
    """Write the requests settled before a time to a new file of JSON lines, then remove them; return their number.

    The file is on disk before the first row goes. A build that needs a removed answer asks and pays again.

    Raises:
        LedgerError: there is no such ledger, or the file exists or cannot be written; the ledger is unchanged.
    """
    with closing(_existing(address)) as driver:
        driver.begin()
        try:
            with out.open("x", encoding="utf-8") as file:
                rows = driver.rows(f"{REQUEST} WHERE {OLD} ORDER BY id", (before,))
                for row in rows:
                    file.write(json.dumps(_request(driver, row), ensure_ascii=False, default=str) + "\n")
                file.flush()
                os.fsync(file.fileno())
            for statement in OLD_ROWS:
                driver.run(statement, (before,))
            _drop_unused_texts(driver)
            driver.commit()
        except OSError as error:
            driver.rollback()
            raise LedgerError(f"ledger prune: {out}: {error.strerror}; nothing was removed") from None
        except BaseException:
            driver.rollback()
            raise
        return len(rows)


def _drop_unused_texts(driver: Driver) -> None:
    used = {digest for (body,) in driver.rows("SELECT body FROM requests") for digest in _TEXT.findall(body)}
    for (digest,) in driver.rows("SELECT sha256 FROM texts"):
        if digest not in used:
            driver.run("DELETE FROM texts WHERE sha256 = ?", (digest,))


def _existing(address: str | Path, *, reading: bool = False) -> Driver:
    if "://" not in str(address) and not Path(address).is_file():
        raise LedgerError(f"ledger {address}: not found; a build makes it, and EARMARK_LEDGER names another")
    return connect(address, reading=reading)


def _request(driver: Driver, row: tuple[Any, ...]) -> RequestFacts:
    request_id, key, model, body, state, answer, reason, detail, parser, reply_model = row
    attempts = (zip(AttemptFacts.__annotations__, one, strict=True) for one in driver.rows(ATTEMPTS, (request_id,)))
    return {
        "key": bytes(key).hex(),
        "model": model,
        "body": _with_texts(driver, json.loads(body)),
        "state": state,
        "answer": None if answer is None else json.loads(answer),
        "reason": reason,
        "detail": detail,
        "parser": parser,
        "reply_model": reply_model,
        "attempts": [cast(AttemptFacts, dict(one)) for one in attempts],
    }


def _with_texts(driver: Driver, body: dict[str, Any]) -> dict[str, Any]:
    """Add the long texts to the canonical form, beside their digests."""
    for _, parts in body["messages"]:
        for part in parts:
            if "text_sha256" in part:
                found = driver.rows("SELECT text FROM texts WHERE sha256 = ?", (part["text_sha256"],))
                part["text"] = found[0][0] if found else None
    return body
