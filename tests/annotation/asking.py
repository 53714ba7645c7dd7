"""A process that asks, to be killed: prints `asking` when it begins and a digest of all outcomes when it is done.

python -m tests.annotation.asking <base_url> <ledger> <count> <options as JSON>
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from typing import Any

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.request import Outcome
from tests.annotation.conftest import QUICK, requests_for


def digest(outcomes: list[Outcome]) -> str:
    """SHA-256 of what a dataset would hold of the outcomes."""
    rows = [[o.key, getattr(o, "value", None), getattr(o, "reason", None), list(o.notes)] for o in outcomes]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


async def ask(base_url: str, ledger: str, count: int, options: dict[str, Any]) -> str:
    """Ask `count` requests; returns the digest."""
    config = AnnotatorConfig(**{"annotator": "openai:tiny", "base_url": base_url, **QUICK, **options})
    async with open_ledger(ledger) as opened, Annotator(config, opened) as annotator:
        print("asking", flush=True)
        report = await annotator.ask(requests_for(config, count))
    assert report.answered + report.rejected == count
    return digest(report.outcomes)


if __name__ == "__main__":
    _, url, path, number, held = sys.argv
    print(asyncio.run(ask(url, path, int(number), json.loads(held))), flush=True)
