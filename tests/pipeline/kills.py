"""Builds and publications of four corpora, killed at random moments of each phase: the general way for all of them.

A build asks a model on this machine, which counts; a version is published to a Hub on this machine. Every kill is a
SIGKILL, and has a store or a repository of its own. What was hit is told by what the kill left, not by what was meant.
The moments of a build: while it waits for answers it is killed from outside, after a drawn number of requests; before
and after that, at a drawn file that it gives its name. These are counted by Python's audit events, in a process of
the test: the program has no hook for it.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.schemas.score_questions import ScoreQuestions
from earmark.tasks.store.staging import STAGING
from earmark.tasks.store.versions import MANIFEST, Store, verify
from tests.annotation.conftest import LocalServer
from tests.annotation.test_kills import received
from tests.builds import NAMED, ORDER, Builds, contents_of, write_toml
from tests.instruction_rubrics import rubrics
from tests.mos_preferences import critiques
from tests.pseudo_preferences import music
from tests.release.publications import Publications
from tests.score_questions import questions
from tests.servers.faults import Faults
from tests.servers.hub import HubServer
from tests.servers.openai_server import AnswerText, OpenAIServer, critic_answer, listening_answer

BUILDING = ("reading", "asking", "writing", "before the rename", "after the rename")
PUBLISHING = ("uploading", "before the tag", "after the tag")
PHASES = (*BUILDING, *PUBLISHING)
MOMENTS = ("before", "after")
LATENCY_S = 0.02
WAIT_S = 300.0
UPLOADS = 5  # files that the Hub's client sends at once
_VERSION = re.compile(r"/v\d+$")


@dataclass(frozen=True)
class Case:
    """A corpus to be built.

    Attributes:
        module: serves its builds (`python -m MODULE --serve`).
        answer: what the model says, a function of the request.
        write: writes its inputs to a folder, and the config that asks a server; the config's path.
        most: requests that are in flight at once, at most.
    """

    module: str
    answer: AnswerText
    write: Callable[[Path, str], Path]
    most: int


def _critiques(folder: Path, base_url: str) -> Path:
    critiques.make_study(folder, 16)
    return critiques.write_config(folder, base_url, {"tries": 3, "seed": 7, "max_concurrency": 4})


def _judgments(folder: Path, base_url: str) -> Path:
    music.make_pool(folder, 16)
    return music.write_config(folder, base_url)


def _rubrics(folder: Path, base_url: str) -> Path:
    rubrics.write_captions(folder, "real", map(rubrics.caption, range(24)))
    asked = {**rubrics.QUICK, "base_url": base_url}
    values = {
        "bench_share": 0.5,
        "sources": [{"name": "real", "subset": "real", "domain": "music", "captions": "real.csv"}],
        "length_s": [0.1, 600.0],
        "fingerprint": 0,
        "judge": {"annotator": "openai:hears", **asked},
        "writer": {"annotator": "openai:writes", **asked},
    }
    return write_toml(InstructionRubrics, values, folder / "build.toml")


def _questions(folder: Path, base_url: str) -> Path:
    (folder / "dump.ndjson").touch()  # the process makes its own threads
    source = {"submissions": ["dump.ndjson"], "comments": ["dump.ndjson"]}
    values = {"corpus": "score-questions", "source": source, **questions.asked_by(base_url, max_concurrency=4)}
    return write_toml(ScoreQuestions, values, folder / "build.toml")


CASES: Mapping[str, Case] = {
    "mos-preferences": Case("tests.mos_preferences.critiques", critic_answer, _critiques, 4),
    "pseudo-preferences": Case(
        "tests.pseudo_preferences.music", listening_answer, _judgments, music.QUICK["max_concurrency"]
    ),
    "instruction-rubrics": Case(
        "tests.instruction_rubrics.rubrics", rubrics.rubric_answer, _rubrics, 2 * rubrics.QUICK["max_concurrency"]
    ),
    "score-questions": Case("tests.score_questions.questions", questions.exam_answer, _questions, 4),
}


@dataclass(frozen=True)
class Kill:
    """One kill, and what it cost.

    Attributes:
        phase: what it hit, by what it left.
        done: requests (of a publication, to the Hub) that had been sent.
        lost: requests whose answers the ledger had not got (of a publication, large files that came twice).
        again: requests that the build which went on sent once more.
    """

    corpus: str
    phase: str
    done: int
    lost: int
    again: int


class Calm:
    """A build that nobody disturbs, and what it tells of its moments.

    Attributes:
        asked: requests that it sent, by content.
        named: its files in the order in which they got their names, and when.
        times: when its first and last request came, by the same clock.
        contents: every file of the version.
    """

    def __init__(self, corpus: str, folder: Path, server: OpenAIServer, builds: Builds, times: list[float]) -> None:
        self.root, self.case = folder / "calm", CASES[corpus]
        self.inputs = folder / "inputs"
        self.inputs.mkdir(parents=True)
        self.config = self.case.write(self.inputs, server.base_url)
        (self.inputs / NAMED).touch()
        builds.start(self.config, self.root)
        assert builds.said() == 0
        self.asked = server.faults.asked.copy()
        lines = [line.split("\t") for line in (self.inputs / NAMED).read_text("utf-8").splitlines()]
        (self.inputs / NAMED).unlink()
        self.named = [(float(at), name) for at, name in lines]
        self.times = min(times), max(times)
        self.contents = contents_of(self.root / corpus / "v1")

    def moments(self, phase: str) -> list[str]:
        """When to die in a phase: the number of a file that gets its name, from 1, and whether before or after that."""
        first, last = self.times
        rename = next(number for number, (_, name) in enumerate(self.named, 1) if _VERSION.search(name))
        read = range(1, 1 + sum(at < first for at, _ in self.named))
        wrote = range(1 + sum(at <= last for at, _ in self.named), rename - 1)  # then the manifest, then the rename
        around = {
            "before the rename": [f"{rename - 1} after", f"{rename} before"],
            "after the rename": [f"{rename} after", *(f"{n} before" for n in range(rename + 1, len(self.named) + 1))],
        }
        return around.get(phase) or [f"{n} {when}" for n in (read, wrote)[phase == "writing"] for when in MOMENTS]


class Bench:
    """Servers, processes that are forked for builds, and the calm builds: what all kills share."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng, self.stack = folder, random.Random(seed), ExitStack()
        self.calm: dict[str, Calm] = {}
        self.servers: dict[str, OpenAIServer] = {}
        self.builds: dict[str, Builds] = {}
        self.published: dict[str, tuple[Counter[str], dict[str, Any]]] = {}

    def __enter__(self) -> Bench:
        environment = {"EARMARK_SALT": "one salt for all stores", "HF_HUB_DISABLE_XET": "1"}
        self.hub = self.stack.enter_context(HubServer(self.folder / "hub"))
        environment |= {"HF_ENDPOINT": self.hub.endpoint, "HF_HOME": str(self.folder / "home")}
        self.stack.enter_context(_environment(environment))
        self.press = self.stack.enter_context(Publications(self.folder / "press"))
        for corpus, case in CASES.items():
            times: list[float] = []
            self.servers[corpus] = server = self.stack.enter_context(LocalServer(Faults(latency_s=LATENCY_S)))
            server.answer = _timed(case.answer, times)
            self.builds[corpus] = self.stack.enter_context(Builds(case.module))
            self.calm[corpus] = Calm(corpus, self.folder / corpus, server, self.builds[corpus], times)
            before = self.hub.asked.copy()
            receipt = self.publish(corpus, "calm")
            assert receipt.get("tag") == "v1", receipt
            self.published[corpus] = self.hub.asked - before, self.tree(corpus, "calm")
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def kill(self, number: int, corpus: str, phase: str) -> Kill:
        """Kill a build or publication in a phase, let another go on, and hold the end against the calm one's."""
        return (self._kill_build if phase in BUILDING else self._kill_publication)(f"{number}", corpus, phase)

    def _kill_build(self, name: str, corpus: str, phase: str) -> Kill:
        calm, builds, server = self.calm[corpus], self.builds[corpus], self.servers[corpus]
        store, before = self.folder / corpus / name, server.faults.asked.copy()
        if phase == "asking":
            upto = self.rng.randint(1, sum(calm.asked.values()) - calm.case.most)
            child, deadline = builds.start(calm.config, store), time.monotonic() + WAIT_S
            while (server.faults.asked - before).total() < upto and not builds.ended(0.001):
                assert time.monotonic() < deadline
            builds.kill(child)
        else:
            (calm.inputs / ORDER).write_text(self.rng.choice(calm.moments(phase)))
            builds.start(calm.config, store)
        code = builds.said()
        order = (calm.inputs / ORDER).read_text() if phase != "asking" else ""
        assert code == -signal.SIGKILL, f"{corpus}, {phase}: to be killed {order}, ended with {code}; {calm.named[-3:]}"
        (calm.inputs / ORDER).unlink(missing_ok=True)
        done = _settled(server, before)
        ledger = store / "ledger.sqlite"
        lost = done - (received(ledger) if ledger.is_file() else 0)
        hit = _phase_of(store / corpus, done, calm.asked.total())
        assert 0 <= lost <= calm.case.most, f"{corpus}: {lost} requests in flight, expected {calm.case.most} at most"
        builds.start(calm.config, store)
        assert builds.said() == 0
        asked = server.faults.asked - before
        again = asked.total() - calm.asked.total()
        assert not calm.asked - asked, f"{corpus}: requests of the calm build were never sent"
        assert again <= lost, f"{corpus}: {again} requests sent again, {lost} were in flight"
        (version,) = Store(store).versions(corpus)
        assert contents_of(version.folder) == calm.contents
        assert verify(version) == []
        assert not [path for path in store.rglob("*") if STAGING in path.parts or path.name.endswith(".tmp")]
        return Kill(corpus, hit, done, lost, again)

    def _kill_publication(self, name: str, corpus: str, phase: str) -> Kill:
        asked, tree = self.published[corpus]
        moments = {
            "uploading": [(kind, asked[kind]) for kind in ("preupload", "lfs_batch", "put") if asked[kind]],
            "before the tag": [("commit", 1)],
            "after the tag": [("tag", 1)],
        }
        kind, most = self.rng.choice(moments[phase])
        before, known, child = self.hub.asked.copy(), threading.Event(), [0]
        order = (kind, self.rng.choice(MOMENTS) if phase == "uploading" else "after")
        at = before[kind] + self.rng.randint(1, most)

        def harm(asked: str, when: str, count: int) -> None:
            if (asked, when, count) == (*order, at):
                assert known.wait(WAIT_S)
                os.kill(child[0], signal.SIGKILL)

        self.hub.harm = harm
        try:
            child[0] = self.press.begin(self.calm[corpus].root, f"{corpus}@v1", f"lab/{corpus}-{name}")
            known.set()
            assert self.press.said() == -signal.SIGKILL
        finally:
            self.hub.harm = lambda kind, when, n: None
        done = (self.hub.asked - before).total()
        repo = self.hub.repos[f"lab/{corpus}-{name}"]
        commits = len(self.hub.commits(f"lab/{corpus}-{name}"))
        hit = PUBLISHING[2 if "v1" in repo["tags"] else 1 if commits > 1 else 0]
        receipt = self.publish(corpus, name)
        assert receipt.get("tag") == "v1", receipt
        sent = self.hub.asked - before
        assert self.tree(corpus, name) == tree
        assert len(self.hub.commits(f"lab/{corpus}-{name}")) == len(self.hub.commits(f"lab/{corpus}-calm"))
        assert sent["tag"] <= 1 + (hit == "after the tag")
        twice = sent["put"] - asked["put"]
        assert twice <= UPLOADS, f"{corpus}: {twice} large files sent twice"
        return Kill(corpus, hit, done, twice, max(0, sent.total() - asked.total()))

    def publish(self, corpus: str, name: str) -> dict[str, Any]:
        """Publish the calm build's version to a repository of its own; the receipt."""
        return self.press.run(self.calm[corpus].root, f"{corpus}@v1", f"lab/{corpus}-{name}")

    def tree(self, corpus: str, name: str) -> dict[str, Any]:
        """What a repository holds at the version's tag."""
        return dict(self.hub.files(f"lab/{corpus}-{name}", "v1"))


def kill_all(kills: int, seed: int, folder: Path) -> Iterator[Kill]:
    """Kill so many times: every phase once in eight, every corpus twice; all pairs of both in thirty-two."""
    corpora = [*CASES]
    with Bench(folder, seed) as bench:
        for number in range(kills):
            row, phase = divmod(number, len(PHASES))
            yield bench.kill(number, corpora[(phase + row) % len(corpora)], PHASES[phase])


def _phase_of(corpus: Path, asked: int, in_all: int) -> str:
    """What a killed build was at, by what it left."""
    if (corpus / "v1").is_dir():
        return "after the rename"
    if list(corpus.glob(f"{STAGING}/*/version/{MANIFEST}")):
        return "before the rename"
    return "reading" if not asked else "asking" if asked < in_all else "writing"


def _settled(server: OpenAIServer, before: Counter[str]) -> int:
    """Requests since then, once all that a killed process had sent are counted."""
    count = -1
    while server.faults.open_now or count != (server.faults.asked - before).total():
        count = (server.faults.asked - before).total()
        time.sleep(0.05)
    return count


def _timed(answer: AnswerText, times: list[float]) -> AnswerText:
    def timed(body: dict[str, Any], content: str) -> str:
        times.append(time.monotonic())
        return answer(body, content)

    return timed


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
