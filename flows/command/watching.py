"""`earmark status --watch`: runs and requests to models, as they change."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table as Grid

from earmark.flows.command.console import console, grid_of, runs_grid
from earmark.tasks.annotation.ledger_reports import stats
from earmark.tasks.build.ledger import has_ledger, ledger_address
from earmark.tasks.store.runs import list_runs
from earmark.tasks.store.versions import Store

EVERY_S = 1.0
SHARE_OF_TIME = 0.1  # that may go into counting a large ledger
MOST_RUNS = 15


def watch(store: Store) -> None:
    """Show the newest runs and the models' counts until Ctrl-C: a table that renews itself, or a line a change."""
    models = Models(store)
    try:
        if sys.stdout.isatty():
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(Group(runs_grid(list_runs(store)[-MOST_RUNS:]), "", models.grid()), refresh=True)
                    time.sleep(max(EVERY_S, models.took_s / SHARE_OF_TIME))
        printed: set[str] = set()
        while True:
            runs = [(run.run, run.corpus, run.current_state(), run.version, run.error) for run in list_runs(store)]
            for line in [*(" ".join(filter(None, run)) for run in runs[-MOST_RUNS:]), *models.lines()]:
                if line not in printed:
                    print(line, flush=True)
                    printed.add(line)
            time.sleep(max(EVERY_S, models.took_s / SHARE_OF_TIME))
    except KeyboardInterrupt:
        return


class Models:
    """The ledger's counts by model, and how fast answers come between two looks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.took_s = 0.0  # of the last look
        self._before: dict[str, tuple[float, int]] = {}

    def look(self) -> dict[str, dict[str, Any]]:
        """Each model's counts, with `per_s`: requests answered or given up a second since the last look."""
        if not has_ledger(self.store):
            return {}
        started = time.monotonic()
        by_model: dict[str, dict[str, Any]] = stats(ledger_address(self.store))["models"]
        for model, facts in by_model.items():
            done = facts["answered"] + facts["rejected"]
            at, before = self._before.get(model, (started, done))
            facts["per_s"] = (done - before) / (started - at) if started > at else 0.0
            self._before[model] = (started, done)
        self.took_s = time.monotonic() - started
        return by_model

    def grid(self) -> Grid:
        """The counts as a table."""
        rows = [(model, *_cells(facts)) for model, facts in self.look().items()]
        return grid_of(
            "model", "answered", "rejected", "open", "a second", "failed", "tokens", "USD", rows=rows, right=7
        )

    def lines(self) -> list[str]:
        """The counts as lines, without the speed: a line is printed once."""
        return [
            f"{model}: {facts['answered']:,} answered, {facts['rejected']:,} rejected, {facts['open']:,} open, "
            f"${facts.get('cost_usd', 0):.2f}"
            for model, facts in self.look().items()
        ]


def _cells(facts: Mapping[str, Any]) -> list[str]:
    tokens = facts.get("input_tokens", 0) + facts.get("output_tokens", 0)
    counts = [f"{facts[name]:,}" for name in ("answered", "rejected", "open")]
    failed, cost = facts.get("failed_attempts", 0), facts.get("cost_usd", 0.0)
    return [*counts, f"{facts['per_s']:.1f}", f"{failed:,}", f"{tokens:,}", f"{cost:.2f}"]
