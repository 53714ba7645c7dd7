"""First drafts that pass under each version of the prompt that rewrites forum threads, written by a real model.

    .venv/bin/python -m tests.benchmarks.bench_schemas http://127.0.0.1:8080/v1 [--model smollm2] [--requests 30]

Asks about the demo's threads once each at temperature 0, and holds each answer to its schema and to the checks of a
build. The server is one that constrains answers, such as llama.cpp's.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from earmark.schemas.registry import load
from earmark.schemas.score_questions import ScoreQuestions
from earmark.schemas.toml import read_toml
from earmark.tasks.annotation.prompts import versions_of
from earmark.tasks.annotation.request import Answer, Outcome, Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.pipeline.forecast import Sampler, run_dry
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.score_questions.requests import REWRITING
from earmark.tasks.store.versions import Store
from tests.builds import config_from

DEMO = Path("data/demo/score-questions.toml")


class Collector(Sampler):
    """Keeps the rewriting requests of a dry run, with their rows."""

    def __init__(self, config: Any, wanted: int) -> None:
        super().__init__(config, range(0))
        self.wanted = wanted
        self.drafts: list[tuple[Any, Any, Request]] = []

    async def put(self, config: Any, part: str, ask: Any, role: str, row: Any, request: Request) -> Outcome:
        """Keep a rewriting request; imagine every answer."""
        if ask.name == "rewrite" and len(self.drafts) < self.wanted:
            self.drafts.append((ask, row, request))
        return await super().put(config, part, ask, role, row, request)


def first_drafts(version: int, server: str, model: str, wanted: int) -> tuple[Counter[str], int]:
    """Reasons of the first answers under a version, `passed` and `unusable` among them; and the tokens written."""
    corpus, values = find_corpus("score-questions"), read_toml(DEMO)
    asked = {"annotator": f"openai:{model}", "base_url": server, "repairs": 0, "max_concurrency": 2}
    values |= {"writer": {**asked, "max_tokens": 600}, "asks": {REWRITING: version}}
    config = config_from(ScoreQuestions, values, DEMO)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "dry").mkdir()
        (folder / "store").mkdir()
        collector = Collector(config, wanted)
        run_dry(corpus, load(corpus.flow).story, Store(folder / "store"), folder / "dry", collector)
        with Session(config.writer, ledger=folder / "ledger.sqlite") as session:
            report = session.ask([request for _, _, request in collector.drafts])
        reasons: Counter[str] = Counter()
        for (ask, row, _), outcome in zip(collector.drafts, report.outcomes, strict=True):
            if not isinstance(outcome, Answer):
                reasons[outcome.reason] += 1
            elif fault := ask.check(config, row, outcome.value):
                reasons[fault[0]] += 1
            else:
                reasons["passed" if outcome.value["usable"] else "unusable"] += 1
    return reasons, report.output_tokens


def main() -> None:
    """Print a line a version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--requests", type=int, default=30)
    given = parser.parse_args()
    for version in versions_of(REWRITING):
        reasons, tokens = first_drafts(version, given.server, given.model, given.requests)
        others = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common() if reason != "passed")
        print(
            f"{REWRITING}@{version}: {reasons['passed']} of {sum(reasons.values())} pass, {tokens:,} tokens; {others}"
        )


if __name__ == "__main__":
    main()
