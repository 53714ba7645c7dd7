"""Builds that ask a judge, killed at random moments: the version is that of a calm build, and next to nothing is asked
twice."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.store.staging import STAGING
from earmark.tasks.store.versions import Store, verify
from tests.annotation.test_kills import Server, received, slow_server
from tests.builds import Builds, contents_of
from tests.conftest import kill_count
from tests.pseudo_preferences.music import make_pool, write_config

CORPUS = "pseudo-preferences"
CONCURRENCY = 8
BEFORE_COMMIT = "steps/labels.json"  # the last thing that a build does before it commits
PROMPTS = 50
REQUESTS = PROMPTS * 3 * 2
BATCH = {"batch": True, "batch_requests": 60, "batch_poll_s": 0.05, "batch_settle_s": 0.2}


server = slow_server("--listen", "--latency-ms", "20", "--batch-s", "0.2", scope="module")


@pytest.fixture
def builds() -> Iterator[Builds]:
    with Builds("tests.pseudo_preferences.music") as started:
        yield started


class Harried:
    """A store whose builds are killed, and what its ledger and the server say of them.

    Args:
        root: the store's folder.
        server: who is asked; it counts for all stores.
        most: requests that one kill may cost.
    """

    def __init__(self, root: Path, server: Server, most: int) -> None:
        self.root = root
        self.server = server
        self.most = most
        self.before = server.counts()["asked"]
        self.lost = 0

    @property
    def asked(self) -> int:
        """Requests that reached the server for this store."""
        return self.server.counts()["asked"] - self.before

    @property
    def done(self) -> bool:
        return (self.root / CORPUS / "v1" / "manifest.json").is_file()

    def count_lost(self) -> None:
        """What the kill cost: requests that the server got and whose answers no ledger holds."""
        asked = self.server.settled()["asked"] - self.before
        ledger = self.root / "ledger.sqlite"
        lost = asked - (received(ledger) if ledger.is_file() else 0) - self.lost
        assert 0 <= lost <= self.most
        self.lost += lost

    def near_commit(self) -> bool:
        """Whether a build is about to commit."""
        return bool(list((self.root / CORPUS).glob(f"{STAGING}/*/{BEFORE_COMMIT}")))


def harass(
    kills: int,
    server: Server,
    builds: Builds,
    folder: Path,
    *,
    batch: bool = False,
    requests: int = REQUESTS,
    prompts: int = PROMPTS,
    **values: Any,
) -> None:
    """Kill builds, store after store, each until its version is there; then compare with a build left alone."""
    make_pool(folder / "pool", prompts)
    options = {"max_concurrency": CONCURRENCY, **(BATCH if batch else {}), **values.pop("judge", {})}
    config = write_config(folder / "pool", server.base_url, judge=options, **values)
    draw = random.Random(kills)
    calm = Harried(folder / "calm", server, 0)
    builds.start(config, calm.root)
    started = time.monotonic()
    assert builds.said() == 0
    build_s = time.monotonic() - started
    assert calm.asked == requests
    expected = contents_of(calm.root / CORPUS / "v1")

    done = stores = 0
    while done < kills:
        stores += 1
        store = Harried(folder / f"{stores}", server, 0 if batch else CONCURRENCY)
        while not store.done and done < kills:
            child = builds.start(config, store.root)
            if draw.random() < 0.2:
                while not builds.ended(0.001) and not store.near_commit():
                    pass
                builds.ended(draw.uniform(0, 0.1 * build_s))
            else:
                builds.ended(draw.uniform(0, 0.8 * build_s))
            builds.kill(child)
            code = builds.said()
            assert code in (0, -signal.SIGKILL)
            done += code != 0
            if not batch:
                store.count_lost()
        builds.start(config, store.root)
        assert builds.said() == 0
        assert requests <= store.asked <= requests + store.lost
        assert contents_of(store.root / CORPUS / "v1") == expected
        assert [version.name for version in Store(store.root).versions(CORPUS)] == ["v1"]
        assert verify(Store(store.root).versions(CORPUS)[0]) == []
        assert not list((store.root / CORPUS).glob(f"{STAGING}*"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_kills(server: Server, builds: Builds, tmp_path: Path) -> None:
    harass(kill_count(100), server, builds, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_around_provider_batches(server: Server, builds: Builds, tmp_path: Path) -> None:
    harass(kill_count(20), server, builds, tmp_path, batch=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twelve_kills_of_a_jury_that_is_qualified(server: Server, builds: Builds, tmp_path: Path) -> None:
    """Each of three judges answers ten questions of each control, then all pairs; one clip twice is one request."""
    prompts, each, names = 15, 10, ("one", "two", "three")
    gold = each + 5 * 2 * each
    harass(
        12,
        server,
        builds,
        tmp_path,
        prompts=prompts,
        requests=len(names) * (gold + 2 * 3 * prompts),
        judge={"qualify": {"each": each, "least": 0.0}, "require": ["musicality"]},
        judges=[{"annotator": f"openai:{name}"} for name in names],
        jury="majority",
    )
