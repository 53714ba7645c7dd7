"""Logs for machines: every line is JSON and says which run, shard and request it is about."""

from __future__ import annotations

import json
import logging
import logging.config
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from earmark.schemas.errors import ConfigError
from earmark.tasks.pipeline.logs import RUN, JsonLines, tell_plainly
from tests.annotation.test_kills import Server
from tests.conftest import ROOT
from tests.flows.test_cli import environment
from tests.pseudo_preferences.music import make_pool, write_config


def record(**more: object) -> logging.LogRecord:
    held = logging.LogRecord("earmark.annotation", logging.WARNING, __file__, 1, "%s waits", ("x\ny",), None)
    vars(held).update(more)
    return held


def test_a_record_is_one_line_with_what_it_is_about() -> None:
    token = RUN.set("20260102-030405-ab12")
    try:
        line = JsonLines().format(record(request="3f9a", task_run_name="judge-0004"))
    finally:
        RUN.reset(token)
    assert "\n" not in line
    held = json.loads(line)
    assert held.pop("time").endswith("+00:00")
    assert held == {
        "level": "warning",
        "logger": "earmark.annotation",
        "message": "x\ny waits",
        "run": "20260102-030405-ab12",
        "shard": "judge-0004",
        "request": "3f9a",
    }


def test_prefect_tells_a_fault_of_ours_once_and_without_its_frames(caplog: pytest.LogCaptureFixture) -> None:
    tell_plainly()
    tell_plainly()
    log = logging.getLogger("prefect.flow_runs")
    for error in (ConfigError("my.toml: sources: expected a list"), ValueError("a bug")):
        try:
            raise error
        except (ConfigError, ValueError):
            log.exception("Encountered exception during execution: %r", error)
            log.error("Execution exited with unexpected exception", exc_info=True)
    assert [(one.getMessage(), bool(one.exc_info)) for one in caplog.records] == [
        ("my.toml: sources: expected a list", False),
        ("Encountered exception during execution: ValueError('a bug')", True),
        ("Execution exited with unexpected exception", True),
    ]


def test_workers_logging_names_what_is_there() -> None:
    settings = yaml.safe_load((ROOT / "deploy/logging.yaml").read_text("utf-8"))
    logging.config.DictConfigurator(settings)  # type: ignore[attr-defined]
    assert settings["formatters"]["json"]["()"] == f"{JsonLines.__module__}.{JsonLines.__name__}"


@pytest.mark.slow
def test_a_builds_lines_tell_run_shard_and_request(tmp_path: Path) -> None:
    server = Server("--listen", "--fault-rate", "0.3", "--faults", "429,500")
    try:
        make_pool(tmp_path / "pool", 4)
        config = write_config(tmp_path / "pool", server.base_url)
        ended = subprocess.run(
            [sys.executable, "-m", "earmark", "build", "pseudo-preferences", "-c", str(config)],
            cwd=ROOT,
            env={**environment(tmp_path / "store"), "EARMARK_LOG": "json"},
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        server.process.kill()
        server.process.communicate()
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    faults = [line for line in lines if line["logger"] == "earmark.annotation"]
    assert faults
    (run,) = {line["run"] for line in faults}
    for line in faults:
        assert line["shard"].startswith("judge-")
        assert len(line["request"]) == 64
        assert line["model"] == "openai:tiny"
    assert any(line["message"].startswith(f"run {run}: building") for line in lines)
