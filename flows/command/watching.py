"""Watch runs and requests to models for changes, for `earmark status --watch`."""

import sys
import time

from rich.console import Group
from rich.live import Live

from earmark.flows.command.console import USD, console, cost, runs_grid, tell
from earmark.flows.command.tables import TextTable
from earmark.tasks.annotation.ledger_reports import ModelCounts, stats
from earmark.tasks.store.result_table import ResultColumn, ResultTable, Value
from earmark.tasks.store.runs import list_runs
from earmark.tasks.store.versions import Store, has_ledger, ledger_address

EVERY_S = 1.0
SHARE_OF_TIME = 0.1  # most time for counting a large ledger
MOST_RUNS = 15


def watch(store: Store) -> None:
    """Show the newest runs and the models' counts until Ctrl-C: a live table, or a line for each change."""
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
                    tell(line)
                    printed.add(line)
            time.sleep(max(EVERY_S, models.took_s / SHARE_OF_TIME))
    except KeyboardInterrupt:
        return


class Models:
    """The ledger's counts by model, and the rate of answers between two reads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.took_s = 0.0  # of the last read
        self._before: dict[str, tuple[float, int]] = {}

    def look(self) -> dict[str, tuple[ModelCounts, float]]:
        """Return each model's counts, and its requests answered or given up per second since the last read."""
        if not has_ledger(self.store):
            return {}
        started = time.monotonic()
        by_model = {}
        for model, facts in stats(ledger_address(self.store))["models"].items():
            done = facts["answered"] + facts["rejected"]
            at, before = self._before.get(model, (started, done))
            by_model[model] = facts, (done - before) / (started - at) if started > at else 0.0
            self._before[model] = (started, done)
        self.took_s = time.monotonic() - started
        return by_model

    def grid(self) -> TextTable:
        """Return the counts as a table."""
        rows = [(model, *_cells(*facts)) for model, facts in self.look().items()]
        rate = ResultColumn("a second", decimals=1)
        headings = ("model", "answered", "rejected", "open", rate, "failed", "tokens", USD)
        return TextTable(ResultTable("", headings, tuple(rows), drop=("rejected", "failed", "tokens")))

    def lines(self) -> list[str]:
        """Return the counts as lines, without the rate: a line is printed once."""
        return [
            f"{model}: {facts['answered']:,} answered, {facts['rejected']:,} rejected, {facts['open']:,} open, "
            f"{cost(facts)}{' USD' if facts.get('cost_usd') else ''}"
            for model, (facts, _) in self.look().items()
        ]


def _cells(facts: ModelCounts, per_s: float) -> tuple[Value, ...]:
    tokens = facts.get("input_tokens", 0) + facts.get("output_tokens", 0)
    counts = facts["answered"], facts["rejected"], facts["open"]
    return *counts, per_s, facts.get("failed_attempts", 0), tokens, cost(facts)
