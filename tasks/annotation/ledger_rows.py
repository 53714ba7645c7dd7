"""Define the rows of a ledger and their changes: plain functions on a database."""

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from earmark.schemas.places import without_user

ALIVE_S = 60.0  # seconds without a heartbeat after which a process is dead, even if its process id is in use (again)
LEDGER = "EARMARK_LEDGER"
BUDGETS_KEPT_S = 30 * 86_400.0
"""Seconds after which an unused shared budget is removed: no process of its build is at work any more."""
SCAN_FROM = 10_000
OPEN_HERE: set[str] = set()  # owners in this process: other runs with the same process id are from before a restart

Row: TypeAlias = tuple[Any, ...]


class Driver(Protocol):
    """Database. SQL is written with `?`; drivers translate. Not thread-safe: one caller at a time."""

    inline: bool  # statements are quick enough for the event loop, so that only begin and commit go to a thread
    # errors of a transaction undone in favour of another, which may be tried again
    conflicts: tuple[type[Exception], ...]

    def begin(self) -> None:
        """Start a transaction for writing."""

    def commit(self) -> None:
        """End the transaction; return when it is durable."""

    def rollback(self) -> None:
        """Undo the transaction; do nothing without a transaction."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Run a statement without a result."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a statement."""

    def rows_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query with `IN {values}`, for any number of values, in the open transaction."""

    def committed(self, sql: str) -> list[Row]:
        """Return the rows of a query over durable state; may run beside a transaction of this driver."""

    def committed_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows as `rows_in`, over durable state."""

    def now(self) -> float:
        """Return seconds since 1970, by the clock shared by all processes of this ledger; it never goes back."""

    def clock(self) -> float:
        """Return seconds since 1970 by the same clock, also after it was set back: for heartbeats."""

    def size_bytes(self) -> int:
        """Return the bytes on disk."""

    def vacuum(self) -> None:
        """Release free space."""

    def close(self) -> None:
        """Close the connections."""


class Finished(NamedTuple):
    """Settled request in the ledger. `answer` is JSON text; `reason` is set for rejects only."""

    answer: str | None
    reason: str | None
    detail: str | None
    parser: int
    reply_model: str | None


@dataclass(frozen=True, slots=True)
class Held:
    """Claimed request."""

    request_id: int  # its row
    attempts: int = 0  # number of earlier attempts
    # raw responses, paid for and not settled, oldest first, with their attempt numbers
    received: tuple[tuple[int, str], ...] = ()
    settled: Finished | None = None  # result of an earlier parser
    reopened: bool = False  # whether it had an earlier parser's answer, invalid by today's rules and reported as such

    @property
    def was_answered(self) -> bool:
        """Return whether an earlier parser found an answer."""
        return self.reopened or (self.settled is not None and self.settled.reason is None)


class Attempt(NamedTuple):
    """Exchange, recorded before its answer is read."""

    request_id: int
    number: int
    status: Literal["received", "failed"]
    started_at: float
    latency_s: float
    raw: str | None = None
    error_type: str | None = None
    detail: str | None = None
    batch_id: str | None = None


class ReadAttempt(NamedTuple):
    """Result of reading a recorded attempt."""

    request_id: int
    number: int
    status: Literal["ok", "unusable"]
    error_type: str | None
    detail: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: float


FINISHED = "SELECT key, answer, reason, detail, parser, reply_model FROM requests WHERE state <> 'open'"
IN_BATCHES = """
SELECT r.key FROM requests r JOIN batches b ON r.owner = 'batch:' || b.id
WHERE b.state IN ('intended', 'submitted') AND r.key IN {values}
"""  # one of unknown fate is looked for before anything is sent
CLAIM = """
INSERT INTO requests (key, model, body, owner, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, state = 'open'
WHERE requests.owner IS NULL AND (requests.state = 'open' OR requests.parser <> ?)
RETURNING id, created_at, answer, reason, detail, parser, reply_model
"""
RECORD = """
INSERT INTO attempts (request_id, number, status, started_at, latency_s, raw, error_type, detail, batch_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (request_id, number) DO NOTHING
"""
JUDGE = """
UPDATE attempts SET status = ?, error_type = ?, detail = ?, input_tokens = ?, output_tokens = ?, cost_usd = ?
WHERE request_id = ? AND number = ?
"""
SETTLE = """
UPDATE requests SET state = ?, answer = ?, reason = ?, detail = ?, parser = ?, reply_model = ?, owner = NULL,
settled_at = ? WHERE id = ? AND state = 'open'
"""
LATE = 1_000_000  # distance of a late attempt's number from all those that the claim's present holder gives
LOCK_REQUEST = "UPDATE requests SET owner = owner WHERE id = ?"  # in databases with row locks
LAST_NUMBER = "SELECT coalesce(max(number), 0) FROM attempts WHERE request_id = ?"
LOSE_SIGHT = """
UPDATE budgets SET doubtful_usd = doubtful_usd + reserved_usd, reserved_usd = 0 WHERE owner = ? AND reserved_usd <> 0
"""  # requests in flight at a process's death may have been charged
STILL_SILENT = "DELETE FROM runs WHERE owner = ? AND seen_at = ? RETURNING owner"  # in PostgreSQL it may beat meanwhile
FORGET = "DELETE FROM budgets WHERE name IN (SELECT name FROM budgets GROUP BY name HAVING max(used_at) < ?)"


def shown(address: str | Path) -> str:
    """Return an address without user, password and options: a file's path, or a server's host and database.

    Raises:
        ConfigError: its password cannot be told from the rest.
    """
    if "://" not in str(address):
        return str(address)
    return re.split("[?#]", without_user(LEDGER, str(address)))[0]


def migrations(kind: Literal["sqlite", "postgres"]) -> list[tuple[int, str]]:
    """Return the number and SQL of every migration, in order."""
    folder = resources.files("earmark.tasks.annotation") / "migrations" / kind
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [(int(file.name[:4]), file.read_text(encoding="utf-8")) for file in files]


def read_finished(driver: Driver, keys: Sequence[str]) -> dict[str, Finished]:
    """Return the settled requests among the keys, by key.

    For a large part of a ledger, a full scan is three times faster than single look-ups.
    """
    wanted = {bytes.fromhex(key) for key in keys}
    if len(wanted) > SCAN_FROM and len(wanted) * 4 > driver.committed("SELECT count(*) FROM requests")[0][0]:
        rows = [row for row in driver.committed(FINISHED) if bytes(row[0]) in wanted]
    else:
        rows = driver.committed_in(f"{FINISHED} AND key IN {{values}}", list(wanted))
    return {bytes(row[0]).hex(): Finished._make(row[1:]) for row in rows}


def read_in_batches(driver: Driver, keys: Sequence[str]) -> set[str]:
    """Return the keys among these of requests in batches at a provider, or in one that may have arrived."""
    return {bytes(key).hex() for (key,) in driver.committed_in(IN_BATCHES, [bytes.fromhex(key) for key in keys])}


def this_host() -> str:
    """Return this machine and process namespace, in which a process id can be looked up."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # not Linux
        namespace, boot = "", ""
    return f"{socket.gethostname()}/{boot}/{namespace}"


def claim(
    driver: Driver, owner: str, wanted: Sequence[tuple[str, str, str]], texts: dict[str, str], parser: int
) -> dict[str, Held]:
    """Claim requests for an owner; see `Ledger.claim`."""
    now = driver.now()
    for digest, text in texts.items():
        clean = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
        driver.run("INSERT INTO texts (sha256, text) VALUES (?, ?) ON CONFLICT (sha256) DO NOTHING", (digest, clean))
    held: dict[str, Held] = {}
    older: dict[int, str] = {}
    for key, model, body in sorted(wanted):  # a common order keeps row locks from crossing
        for request_id, created_at, *settled in driver.rows(
            CLAIM, (bytes.fromhex(key), model, body, owner, now, parser)
        ):
            kept = Finished._make(settled) if settled[3] is not None else None
            held[key] = Held(request_id, settled=kept, reopened=kept is None and settled[0] is not None)
            if created_at != now:
                older[request_id] = key
    if older:
        _add_history(driver, held, older)
    return held


def _add_history(driver: Driver, held: dict[str, Held], older: dict[int, str]) -> None:
    """Add the results of earlier runs: attempt numbers, and unread raw responses."""
    query = "SELECT request_id, number, CASE WHEN status <> 'failed' THEN raw END FROM attempts"
    counts: dict[int, int] = {}
    raws: dict[int, list[tuple[int, str]]] = {}
    for request_id, number, raw in sorted(driver.rows_in(f"{query} WHERE request_id IN {{values}}", list(older))):
        counts[request_id] = number
        if raw is not None:
            raws.setdefault(request_id, []).append((number, raw))
    for request_id, count in counts.items():
        key = older[request_id]
        held[key] = replace(held[key], attempts=count, received=tuple(raws.get(request_id, ())))


def record(driver: Driver, attempt: Attempt, *, late: bool = False) -> int:
    """Keep an attempt, once; return its number.

    Args:
        driver: the ledger's database, in a transaction.
        attempt: an exchange.
        late: its claim has ended: another process may be giving the same numbers.
    """
    if late:
        driver.run(LOCK_REQUEST, (attempt.request_id,))
        attempt = attempt._replace(number=LATE + driver.rows(LAST_NUMBER, (attempt.request_id,))[0][0])
    driver.run(RECORD, attempt)
    return attempt.number


def judge(driver: Driver, verdict: ReadAttempt) -> None:
    """Keep the verdict on an attempt."""
    driver.run(JUDGE, (*verdict[2:], *verdict[:2]))


def settle(driver: Driver, request_id: int, finished: Finished) -> None:
    """Settle a request that is open."""
    state = "rejected" if finished.reason else "answered"
    driver.run(SETTLE, (state, *finished, driver.now(), request_id))


def release(driver: Driver, owner: str, request_ids: Sequence[int]) -> None:
    """Release an owner's claims without settling them."""
    for request_id in request_ids:
        driver.run(
            "UPDATE requests SET owner = NULL WHERE id = ? AND state = 'open' AND owner = ?", (request_id, owner)
        )


def reopen(driver: Driver, request_id: int) -> None:
    """Release a claim with a kept answer invalid by today's rules; its responses stay, and the next run asks."""
    driver.run("UPDATE requests SET owner = NULL, parser = NULL WHERE id = ?", (request_id,))


def read_received(driver: Driver, keys: Sequence[str]) -> dict[str, list[str]]:
    """Return the raw responses of each key, oldest first."""
    query = "SELECT r.key, a.number, a.raw FROM attempts a JOIN requests r ON r.id = a.request_id"
    wanted = f"{query} WHERE a.status <> 'failed' AND a.raw IS NOT NULL AND r.key IN {{values}}"
    raws: dict[str, list[str]] = {}
    for key, _, raw in sorted(driver.committed_in(wanted, [bytes.fromhex(key) for key in keys])):
        raws.setdefault(bytes(key).hex(), []).append(raw)
    return raws


def free(driver: Driver, owner: str) -> None:
    """End all claims of an owner."""
    driver.run("UPDATE requests SET owner = NULL WHERE owner = ?", (owner,))
    driver.run("UPDATE batches SET owner = NULL WHERE owner = ?", (owner,))
    driver.run(LOSE_SIGHT, (owner,))
    driver.run("DELETE FROM runs WHERE owner = ?", (owner,))


def free_the_dead(driver: Driver) -> int:
    """End the claims of dead processes, and remove old budgets; return the number of processes."""
    now, here, freed = driver.clock(), this_host(), 0
    driver.run(FORGET, (driver.now() - BUDGETS_KEPT_S,))
    for owner, host, pid, seen_at in driver.rows("SELECT owner, host, pid, seen_at FROM runs"):
        lives = owner in OPEN_HERE or (abs(now - seen_at) <= ALIVE_S and (host != here or _running(pid)))
        if not lives and driver.rows(STILL_SILENT, (owner, seen_at)):
            free(driver, owner)
            freed += 1
    return freed


def _running(pid: int) -> bool:
    if pid == os.getpid():
        return False  # the owners of this process are known
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process, but alive
        return True
    return True


def enlist(driver: Driver, owner: str) -> bool:
    """Record a heartbeat of the process behind an owner; return whether it was not listed: its claims had ended."""
    now = driver.clock()
    if driver.rows("UPDATE runs SET seen_at = ? WHERE owner = ? RETURNING owner", (now, owner)):
        return False
    driver.run(
        "INSERT INTO runs (owner, host, pid, started_at, seen_at) VALUES (?, ?, ?, ?, ?)",
        (owner, this_host(), os.getpid(), now, now),
    )
    return True
