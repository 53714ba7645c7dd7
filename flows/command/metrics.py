"""Serve metrics for Prometheus at one endpoint: requests to models, their answers and cost, and the state of builds.

They are read from the ledger and the store's run records on each scrape. A single endpoint thus covers all processes
and machines sharing them, and no counter restarts with a process.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from earmark.flows.command.reports import with_reports
from earmark.schemas.annotation import is_loopback
from earmark.schemas.errors import EarmarkError
from earmark.tasks.annotation.ledger_reports import LATENCIES_S, latencies, stats
from earmark.tasks.people.server import make_bounded_server
from earmark.tasks.pipeline.registry import corpora
from earmark.tasks.store.runs import list_runs
from earmark.tasks.store.versions import Store, has_ledger, ledger_address, open_store

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

LOG = logging.getLogger("earmark.metrics")
SHARE_OF_TIME = 0.05  # largest share of time spent on counting; a large ledger takes seconds
LEAST_AGE_S = 1.0


class Metrics(Collector):
    """Count a store's ledger and runs on request, and cache the counts briefly."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: list[Metric] = []
        self._ledger: list[Metric] = []
        self._good_until = 0.0

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics, or cached ones; for unreachable parts the last known ones."""
        if time.monotonic() >= self._good_until:
            started = time.monotonic()
            answers = GaugeMetricFamily(
                "earmark_reachable", "Whether what other machines share answers (1) or not (0).", labels=["what"]
            )
            if self.store.remote is not None:  # other machines may have committed to it
                answers.add_metric(["store"], _answers(self.store.refresh))
            if has_ledger(self.store):
                answers.add_metric(["ledger"], _answers(self._read_ledger))
            self._known = [answers, *_of_runs(self.store), *self._ledger]
            took_s = time.monotonic() - started
            self._good_until = time.monotonic() + max(LEAST_AGE_S, took_s / SHARE_OF_TIME)
        yield from self._known

    def _read_ledger(self) -> None:
        self._ledger = _of_ledger(ledger_address(self.store))


def serve_metrics(store: str | None, host: str, port: int, password: str | None = None) -> Any:
    """Serve Prometheus on `http://host:port/metrics`, in a thread; with a password also reports; return the server.

    Accepted names are this machine's, the listening host and those in `EARMARK_METRICS_HOSTS`: a page in a
    browser that resolves its own name to this machine learns nothing.
    """
    registry = CollectorRegistry()
    place = open_store(store)
    metrics, app = Metrics(place), make_wsgi_app(registry)
    if password:
        app = with_reports(app, place, password)
    further = re.split(r"[\s,]+", os.environ.get("EARMARK_METRICS_HOSTS", ""))
    app = for_hosts(app, {name.lower() for name in (host, *further) if name})
    server = make_bounded_server(app, host, port)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    registry.register(metrics)  # only now: nothing answers before
    return server


def for_hosts(app: WSGIApplication, names: Collection[str], setting: str = "EARMARK_METRICS_HOSTS") -> WSGIApplication:
    """Return an application answering 403 unless the request's Host is this machine or a listed name, in lower case;
    `setting` names the variable for further names."""

    def checked(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        host = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(:[0-9]{1,5})?", environ.get("HTTP_HOST", "").lower())
        if host and (is_loopback(host[1]) or host[1] in names):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"unknown Host; name it in {setting}\n".encode()]

    return checked


def main() -> None:
    """`python -m earmark.flows.command.metrics`: the endpoint as a process, for the store of `EARMARK_STORE`."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=9464)
    arguments = options.parse_args()
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    serve_metrics(None, arguments.host, arguments.port)
    signal.sigwait(ends)


def _answers(read: Callable[[], None]) -> bool:
    try:
        read()
    except EarmarkError as error:
        LOG.warning("metrics: %s", error)
        return False
    return True


def _of_runs(store: Store) -> list[Metric]:
    runs = GaugeMetricFamily("earmark_runs", "Builds by their state.", labels=["corpus", "state"])
    for (corpus, state), count in sorted(
        Counter((run.corpus, run.current_state()) for run in list_runs(store)).items()
    ):
        runs.add_metric([corpus, state], count)
    newest = GaugeMetricFamily("earmark_newest_version", "Number of the newest version.", labels=["corpus"])
    made = GaugeMetricFamily("earmark_newest_version_rows", "Its rows, by table.", labels=["corpus", "table"])
    for corpus in corpora():
        if version := store.latest(corpus):
            newest.add_metric([corpus], version.number)
            for table, splits in version.manifest.rows.items():
                made.add_metric([corpus, table], sum(splits.values()))
    return [runs, newest, made]


def _of_ledger(address: str) -> list[Metric]:
    requests = GaugeMetricFamily("earmark_requests", "Requests; open ones wait.", labels=["model", "state"])
    attempts = CounterMetricFamily("earmark_attempts", "Exchanges with models.", labels=["model"])
    errors = CounterMetricFamily("earmark_errors", "Exchanges that gave no usable answer.", labels=["model", "type"])
    rejects = CounterMetricFamily("earmark_rejects", "Requests given up.", labels=["model", "reason"])
    tokens = CounterMetricFamily("earmark_tokens", "Tokens.", labels=["model", "direction"])
    cost = CounterMetricFamily("earmark_cost_usd", "Spent, in US dollars.", labels=["model"])
    latency = HistogramMetricFamily("earmark_latency_seconds", "Seconds that an exchange took.", labels=["model"])
    for model, facts in stats(address)["models"].items():
        for state, held in (("open", facts["open"]), ("answered", facts["answered"]), ("rejected", facts["rejected"])):
            requests.add_metric([model, state], held)
        attempts.add_metric([model], facts.get("attempts", 0))
        for counts, family in ((facts.get("faults", {}), errors), (facts.get("rejects", {}), rejects)):
            for reason, count in counts.items():
                family.add_metric([model, reason], count)
        tokens.add_metric([model, "input"], facts.get("input_tokens", 0))
        tokens.add_metric([model, "output"], facts.get("output_tokens", 0))
        cost.add_metric([model], facts.get("cost_usd", 0.0))
    for model, (within, sum_s) in latencies(address).items():
        bounds = [*(f"{bound:g}" for bound in LATENCIES_S), "+Inf"]
        latency.add_metric([model], list(zip(bounds, map(float, within), strict=True)), sum_s)
    return [requests, attempts, errors, rejects, tokens, cost, latency]


if __name__ == "__main__":
    main()
