"""What Prometheus reads: the numbers of the ledger and of the runs, in its format, over HTTP."""

from __future__ import annotations

import asyncio
import base64
import http.client
import logging
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from earmark.flows.command import metrics
from earmark.flows.command.metrics import Metrics, serve_metrics
from earmark.tasks.store.manifest import FileEntry, Manifest
from earmark.tasks.store.runs import save_run, start_run
from earmark.tasks.store.versions import Store, open_store
from tests.annotation.conftest import Bench, config_for, requests_for, serving
from tests.servers.faults import Faults
from tests.servers.s3_server import S3Server
from tests.store.objects import bucket, server

__all__ = ["bucket", "server"]  # fixtures

Samples = dict[tuple[str, ...], float]


def scraped(store: Path) -> Samples:
    """Every sample of the endpoint, by its name and the values of its labels, in the order of their names."""
    server = serve_metrics(str(store), "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=20) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    finally:
        server.shutdown()
        server.server_close()
    return {
        (s.name, *(value for _, value in sorted(s.labels.items()))): s.value
        for family in families
        for s in family.samples
    }


@pytest.mark.slow
def test_metrics_are_what_ledger_and_runs_hold(tmp_path: Path) -> None:
    assert scraped(tmp_path) == {}

    async def ask() -> int:
        server = await serving(Faults(rate=0.5, kinds=("429", "refusal"), most=1))
        report = await Bench(tmp_path / "ledger.sqlite", server).ask(
            config := config_for(server), requests_for(config, 40)
        )
        await server.stop()
        return report.answered

    answered = asyncio.run(ask())
    store = Store(tmp_path)
    done = start_run(store, "captions", tmp_path / "c.toml")
    save_run(store, done.model_copy(update={"state": "completed"}))
    start_run(store, "captions", tmp_path / "c.toml")

    found = scraped(tmp_path)
    model = "openai:tiny"
    assert found["earmark_requests", model, "answered"] == answered
    assert (
        found["earmark_requests", model, "rejected"]
        == 40 - answered
        == found["earmark_rejects_total", model, "refused"]
    )
    assert found["earmark_requests", model, "open"] == 0
    assert found["earmark_errors_total", model, "rate_limited"] > 0
    attempts = 40 + found["earmark_errors_total", model, "rate_limited"]
    assert found["earmark_attempts_total", model] == attempts
    assert (
        found["earmark_latency_seconds_bucket", "+Inf", model]
        == found["earmark_latency_seconds_count", model]
        == attempts
    )
    assert found["earmark_latency_seconds_sum", model] > 0
    assert found["earmark_tokens_total", "input", model] > 0
    assert found["earmark_reachable", "ledger"] == 1
    assert found["earmark_runs", "captions", "completed"] == found["earmark_runs", "captions", "running"] == 1


@pytest.mark.slow
def test_what_does_not_answer_is_told_beside_what_is_known(
    bucket: str, server: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "SHARE_OF_TIME", float("inf"))
    monkeypatch.setattr(metrics, "LEAST_AGE_S", 0.0)
    monkeypatch.setenv("EARMARK_LEDGER", "postgresql://nobody:geheim@127.0.0.1:9/answers")
    store = open_store(f"s3://{bucket}/store")
    start_run(store, "captions", Path("c.toml"))
    collector = Metrics(store)

    def found() -> tuple[dict[str, float], int]:
        held = {family.name: family.samples for family in collector.collect()}
        answers = {sample.labels["what"]: sample.value for sample in held["earmark_reachable"]}
        return answers, len(held["earmark_runs"])

    assert found() == ({"store": 1, "ledger": 0}, 1)
    server.denied = (f"/{bucket}",)
    try:
        with caplog.at_level(logging.WARNING, "earmark"):
            assert found() == ({"store": 0, "ledger": 0}, 1)
    finally:
        server.denied = ()
    assert any("access denied" in line for line in caplog.messages)
    assert not any("geheim" in line for line in caplog.messages)
    assert found() == ({"store": 1, "ledger": 0}, 1)


def test_only_known_hosts_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_METRICS_HOSTS", "metrics, Prometheus.lab.example")
    server = serve_metrics(str(tmp_path), "127.0.0.1", 0)
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)

    def status(host: str) -> int:
        connection.putrequest("GET", "/metrics", skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        assert ("earmark" in answer.read().decode()) == (answer.status == 200)
        assert answer.headers["Access-Control-Allow-Origin"] is None
        return answer.status

    start_run(Store(tmp_path), "captions", Path("c.toml"))
    for host in ("127.0.0.1:9464", "localhost", "LOCALHOST:80", "[::1]:9464", "127.8.8.8", "metrics:9464"):
        assert status(host) == 200, host
    assert status("prometheus.lab.example") == 200
    for host in (
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "",
        "::1:1",
    ):
        assert status(host) == 403, host
    connection.close()
    server.shutdown()
    server.server_close()


def test_reports_open_for_the_password_and_nothing_else_does(tmp_path: Path) -> None:
    folder = tmp_path / "captions" / "v1"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("<p>report")
    (folder / "secret.txt").write_text("x")
    manifest = Manifest(
        corpus="captions", version="v1", build_key="k", inputs={}, config={}, code="c", libraries={}, steps=(),
        rejects={}, rows={}, files=(FileEntry(path="report.html", sha256="s", bytes=9),),
    )  # fmt: skip
    (folder / "manifest.json").write_text(manifest.to_json())
    server = serve_metrics(str(tmp_path), "127.0.0.1", 0, "earmark:long password")

    def status(path: str, words: str = "earmark:long password", **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        given = {"Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"} if words else {}
        connection.request("GET", path, headers=given | headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    try:
        assert status("/reports/captions/v1") == (200, b"<p>report")
        request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/reports/captions/v1")
        request.add_header("Authorization", f"Basic {base64.b64encode(b'earmark:long password').decode()}")
        with urllib.request.urlopen(request, timeout=20) as answer:
            parts = answer.headers["Content-Security-Policy"].split(";")
        policy = {name: words for name, *words in map(str.split, parts)}
        assert (policy["sandbox"], policy["default-src"]) == (["allow-scripts"], ["'none'"])
        allowed = {word for name, words in policy.items() if name.endswith("-src") for word in words}
        assert allowed == {"'none'", "'unsafe-inline'", "data:", "blob:"}
        assert status("/reports/captions/v1", words="")[0] == 401
        assert status("/reports/captions/v1", words="earmark:other")[0] == 401
        assert status("/reports/captions/v1", words="", Authorization="Basic !")[0] == 401
        assert status("/reports/captions/v1", Host="evil.example")[0] == 403
        for path in ("captions/v2", "captions/v1/secret.txt", "captions/../captions/v1", "captions/v1%2Fsecret.txt"):
            assert status(f"/reports/{path}")[0] == 404
    finally:
        server.shutdown()
        server.server_close()
