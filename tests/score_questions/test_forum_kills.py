"""Builds that read a forum's dump and download its images, killed: the version is a calm build's, images come once."""

from __future__ import annotations

import hashlib
import io
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from earmark.tasks.score_questions.forum.images import DOWNLOADED
from earmark.tasks.store.versions import Store, Version, verify
from tests.builds import Builds, contents_of
from tests.score_questions.drawings import NON_SCORES, score
from tests.score_questions.forum.builds import HOST, PORT
from tests.score_questions.forum.threads_of import comment, submission, write_dump
from tests.servers.image_server import ImageServer, serving

IMAGES = 16
BYSTANDERS = 40_000  # comments of other threads: reading takes long enough to be killed in
MOST_KILLS = 60
WAIT_S = 120.0

pytestmark = pytest.mark.slow


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageServer]:
    """A server with an image for each thread; every sixth is no score."""
    monkeypatch.setenv("EARMARK_SALT", "one salt for both stores")
    with serving(b"") as state:
        for number in range(IMAGES):
            draw = NON_SCORES["photos"](number) if number % 6 == 5 else score(number, staves=1, space=8, width=320)
            out = io.BytesIO()
            draw.save(out, "PNG")
            state.images[f"/good{number}.png"] = out.getvalue()
        monkeypatch.setenv(PORT, str(state.port))
        yield state


def link(server: ImageServer, number: int) -> str:
    """The address of a thread's image, as the dump has it."""
    return f"http://{HOST}:{server.port}/good{number}.png"


def write_config(folder: Path, server: ImageServer, bystanders: int = 0) -> Path:
    """A dump in both packings, and the config that reads it."""
    folder.mkdir()
    write_dump(folder / "RS.ndjson.zst", [submission(n, url=link(server, n)) for n in range(IMAGES)])
    answers = [comment(100 * n + place, n) for n in range(IMAGES) for place in range(4)]
    others = [comment(1_000_000 + n, 9000 + n % 50) for n in range(bystanders)]
    write_dump(folder / "RC.ndjson", [*others[::2], *answers, b'{"id": "cut', *others[1::2]])
    path = folder / "build.toml"
    path.write_text("""corpus = "score-questions"
[source]
submissions = ["RS.ndjson.zst"]
comments = ["RC.ndjson"]
[writer]
model = "builtin:score-writer-1"
[judge]
model = "builtin:score-judge-1"
[labeller]
model = "builtin:score-labeller-1"
""")
    return path


def kept(root: Path, server: ImageServer) -> set[str]:
    names = {hashlib.sha256(link(server, n).encode()).hexdigest(): f"/good{n}.png" for n in range(IMAGES)}
    return {names[path.name] for path in (root / DOWNLOADED).glob("??/*") if path.name in names}


def only(root: Path) -> Version:
    (version,) = Store(root).versions("score-questions")
    assert verify(version) == []
    return version


def check_like(harried: Path, calm: Path) -> None:
    """Both stores hold the same version, and no part of anything else."""
    assert contents_of(only(harried).folder) == contents_of(only(calm).folder)
    assert not list(harried.rglob("*.tmp"))
    assert not list(harried.rglob("candidates.parquet"))  # which has the dump's names
    assert {path.relative_to(harried) for path in harried.glob("score-questions/places/*")} == {
        path.relative_to(calm) for path in calm.glob("score-questions/places/*")
    }


def test_dying_before_any_file_changes_nothing(tmp_path: Path, server: ImageServer) -> None:
    """Every file that a build writes is a moment to be killed at; what was downloaded is not asked for again."""
    config = write_config(tmp_path / "dump", server)
    dies_at = config.with_name("dies_at")
    calm, harried = tmp_path / "calm", tmp_path / "harried"
    dice = random.Random(17)
    with Builds("tests.score_questions.forum.builds") as builds:
        builds.start(config, calm)
        assert builds.said() == 0
        assert sum(server.asked.values()) == IMAGES
        server.asked.clear()
        killed = 0
        for number in range(1, MOST_KILLS):
            upto = number if number < 6 else dice.randint(4, 10 + 5 * number)  # the commit alone names dozens of files
            held, asked = kept(harried, server), server.asked.copy()
            dies_at.write_text(str(upto))
            builds.start(config, harried)
            status = builds.said()
            assert all(server.asked[path] == asked[path] for path in held)
            if status == 0:
                break
            assert status == -9
            killed += 1
        else:
            pytest.fail(f"a build did not end in {MOST_KILLS} tries")
    assert killed >= 8
    assert kept(harried, server) == set(server.images)
    check_like(harried, calm)


def test_a_build_killed_while_it_reads_is_the_calm_one(tmp_path: Path, server: ImageServer) -> None:
    """Killed from outside as soon as a file of the reading is there, or soon after."""
    config = write_config(tmp_path / "dump", server, BYSTANDERS)
    calm, harried = tmp_path / "calm", tmp_path / "harried"
    dice, killed = random.Random(17), 0
    with Builds("tests.score_questions.forum.builds") as builds:
        builds.start(config, calm)
        assert builds.said() == 0
        for number in range(4):
            child, started = builds.start(config, harried), time.monotonic()
            staging, before = harried / "score-questions/.staging", files_below(harried)
            while files_below(staging) <= before and not builds.ended(0.001):
                assert time.monotonic() < started + WAIT_S
            builds.ended(dice.uniform(0, 0.1) * number)
            builds.kill(child)
            killed += builds.said() != 0
        builds.start(config, harried)
        assert builds.said() == 0
    assert killed >= 1
    check_like(harried, calm)


def files_below(folder: Path) -> set[Path]:
    """Every file below a folder that may change meanwhile."""
    try:
        return {path for path in folder.rglob("*") if path.is_file()}
    except FileNotFoundError:
        return set()
