"""First drafts of changes, items and filters that pass, by set of prompts, written by a real model.

    .venv/bin/python -m tests.benchmarks.bench_rubric_drafts http://127.0.0.1:8080/v1 [--rows 50] [--sets default paper]

Asks once each at temperature 0 about the demo's English captions, and holds each answer to its schema and to the checks
of a build. The filter gets the builtin writer's items, and last one that nobody asked for. `--show` prints answers.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.annotation.prompts import own_words
from earmark.tasks.annotation.request import Answer, Unanswered
from earmark.tasks.annotation.session import Session
from earmark.tasks.instruction_rubrics.asks import DECOMPOSE, FILTER, PERTURB
from earmark.tasks.instruction_rubrics.attributes import offered
from earmark.tasks.instruction_rubrics.builtin import rubric_writer
from earmark.tasks.instruction_rubrics.decomposing import numbered
from tests.builds import config_from

DEMO = Path("data/demo/rubrics")
SETS: dict[str, dict[str, Any]] = {"default": {}, "paper": {"prompts": "paper-structure"}}
STRAY = "Is a bagpipe heard?"
ASKS = (DECOMPOSE, FILTER, PERTURB)


def rows_of(count: int) -> list[dict[str, Any]]:
    """Captions of the demo's music, as rows of all three asks."""
    texts: list[str] = []
    for name in ("music", "generated"):
        with (DEMO / f"{name}.csv").open(encoding="utf-8") as file:
            texts += [row["text"] for row in csv.DictReader(file)]
    rows = []
    for number, text in enumerate(texts[:count]):
        stray = {"dimension": "instrument", "question": STRAY, "basis": " ".join(text.split()[:2])}
        items = rubric_writer({"ask": "decompose", "instruction": text, "language": "en"}, [])["items"]
        about = {"caption": text, "instruction": text, "base": str(number), "domain": "music", "language": "en"}
        attributes = [one._asdict() for one in offered(17, str(number), "music", "en", full=True)]
        more = {"wording": "decompose-music", "attributes": attributes, "items": numbered([*items, stray])}
        rows.append({**about, **more, "written_by": None})
    return rows


def main() -> None:
    """Print a line for each set and ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--sets", nargs="+", choices=[*SETS], default=[*SETS])
    parser.add_argument("--asks", nargs="+", default=[ask.name for ask in ASKS])
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    asked = {"annotator": f"openai:{given.model}", "base_url": given.server, "repairs": 0, "max_concurrency": 2}
    asked |= {"max_tokens": 300, "read_timeout_s": 600.0, "total_timeout_s": 900.0}
    source = {"name": "demo", "subset": "demo", "domain": "music", "captions": "music.csv"}
    rows = rows_of(given.rows)
    for name, ask in ((name, ask) for name in given.sets for ask in ASKS if ask.name in given.asks):
        values = {"sources": [source], "judge": {"annotator": "builtin:rubric-judge-1"}, "writer": asked}
        config = config_from(InstructionRubrics, {**values, "asks": SETS[name]}, DEMO / "build.toml")
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, own_words(config.own_prompts()):
            requests = [ask.pose(config, row).request for row in rows]
            with Session(config.writer, ledger=Path(folder) / "ledger.sqlite") as session:
                report = session.ask(requests)
        ends: Counter[str] = Counter()
        for row, outcome in zip(rows, report.outcomes, strict=True):
            said_no = (outcome.reason, outcome.detail) if isinstance(outcome, Unanswered) else None
            fault = ask.check(config, row, outcome.value) if isinstance(outcome, Answer) else said_no
            ends[fault[0] if fault else "pass"] += 1
            if isinstance(outcome, Answer) and not fault and ask is FILTER:
                said = [one["verdict"] != "keep" for one in outcome.value["items"]]
                ends["stray found"] += said[-1]
                ends["others all kept"] += not any(said[:-1])
            if given.show:
                shown = outcome.value if isinstance(outcome, Answer) else fault
                print(f"{row['caption']}\n  {json.dumps(shown, ensure_ascii=False)}\n  {fault or 'pass'}")
        counts = ", ".join(f"{count} {end}" for end, count in ends.most_common())
        print(f"{name} {ask.name}: of {len(rows)}: {counts}; {report.output_tokens:,} tokens, "
              f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
