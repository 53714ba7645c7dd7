"""A day of schedules, compressed: `earmark serve` builds as often as in a day of hourly builds; nothing piles up."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from earmark.tasks.store.staging import STAGING
from earmark.tasks.store.versions import Store, verify
from tests.annotation.test_ledger import postgres  # noqa: F401  (a fixture)
from tests.flows.day import Day, growth, quick_deployments, served

FIRES = int(os.environ.get("EARMARK_DAY_FIRES", "24"))
WARM = FIRES // 4  # until imports, caches and pools have been used
RESTS = 3
IDLE = 12  # threads of the server's pool that happen to wait or to have gone at a rest; one lost at a fire would be 24
POOL = 15  # connections that Prefect's server opens to PostgreSQL at most: 5 that it keeps, 10 for a rush


@pytest.fixture
def day(postgres: str, tmp_path: Path) -> Iterator[Day]:  # noqa: F811
    """`earmark serve` on PostgreSQL, with two corpora to build again and again."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE day")
    database = postgres.rpartition("/")[0].replace("://", "+asyncpg://") + "/day"
    store = tmp_path / "store"
    deployments = quick_deployments(tmp_path, store, every_s=6)
    with served(tmp_path, deployments, store, PREFECT_API_DATABASE_CONNECTION_URL=database) as serving:
        yield serving


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_day_leaves_nothing_behind(day: Day, tmp_path: Path) -> None:
    warm = day.fire(WARM)
    rests = [day.fire((FIRES - WARM) // RESTS) for _ in range(RESTS)]
    for rest in rests:
        assert rest.parts.keys() == warm.parts.keys() == {"serve", "server", "worker", "guard"}
        assert (rest.runs, rest.temporary) == (0, warm.temporary)
        assert rest.parts["server"]["sockets"] < POOL + 15, rest
    for part in warm.parts:
        told = [rest.parts[part] for rest in day.rests]
        assert growth(rests, part, "others") <= 2, told
        assert growth(rests, part, "threads") <= (IDLE if part == "server" else 4), told
        assert growth(rests, part, "sockets") <= (POOL if part == "server" else 4), told
        assert growth(rests, part, "memory_mib") < 48, told

    states = day.states()
    assert states.keys() <= {"COMPLETED", "CANCELLED"}, states  # cancelled: the one before still ran
    assert states["COMPLETED"] >= WARM + RESTS * ((FIRES - WARM) // RESTS)
    with urllib.request.urlopen(f"http://127.0.0.1:{day.metrics}/metrics", timeout=60) as answer:
        assert b'earmark_newest_version{corpus="mos-preferences"}' in answer.read()

    day.process.send_signal(signal.SIGTERM)
    assert day.process.wait(90) == 0
    assert day.prefect.processes() == []
    left = [path.relative_to(day.temporary) for path in day.temporary.rglob("*")]
    assert len(left) <= 2, "expected nothing but the empty folder that Prefect's worker makes when it starts"
    assert {path.parts[0] for path in left} <= {"runner_storage"}
    store = Store(tmp_path / "store")
    assert [verify(store.versions(corpus)[-1]) for corpus in ("mos-preferences", "music-prompts")] == [[], []]
    assert not list((tmp_path / "store").glob(f"*/{STAGING}/*"))
