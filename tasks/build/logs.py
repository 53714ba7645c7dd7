"""Logs for machines: a JSON object a line, with the run, the shard and the request that it is about. No Prefect.

`EARMARK_LOG=json` has the command write them to standard error, progress included. Workers get the same lines through
`PREFECT_LOGGING_SETTINGS_PATH=deploy/logging.yaml`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

RUN: ContextVar[str | None] = ContextVar("run", default=None)
"""The run of `earmark build` that is under way; threads that its steps start inherit it."""


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message; run, shard and request where they are known."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        held: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in _about(record).items() if value},
        }
        if record.exc_info:
            held["error"] = self.formatException(record.exc_info)
        return json.dumps(held, ensure_ascii=False, default=str)


def wanted() -> bool:
    """Whether the environment asks for logs as JSON."""
    return os.environ.get("EARMARK_LOG") == "json"


def set_up() -> None:
    """Write our own records to standard error as JSON lines, if the environment asks for it."""
    ours = logging.getLogger("earmark")
    if wanted() and not ours.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        ours.addHandler(handler)
        ours.setLevel(os.environ.get("EARMARK_LOG_LEVEL", "INFO").upper())
        ours.propagate = False


def _about(record: logging.LogRecord) -> dict[str, Any]:
    """What a record says of itself (Prefect's loggers do), else what is under way where it was made."""
    flow, task = _under_way()
    return {
        "run": RUN.get(),
        "flow_run": getattr(record, "flow_run_name", None) or getattr(flow, "name", None),
        "flow_run_id": str(getattr(record, "flow_run_id", None) or getattr(flow, "id", None) or ""),
        "shard": getattr(record, "task_run_name", None) or getattr(task, "name", None),
        "request": getattr(record, "request", None),
        "model": getattr(record, "model", None),
    }


def _under_way() -> tuple[Any, Any]:
    """Prefect's flow and task run, where Prefect runs at all."""
    if (context := sys.modules.get("prefect.context")) is None:
        return None, None
    flow, task = context.FlowRunContext.get(), context.TaskRunContext.get()
    return flow and flow.flow_run, task and task.task_run
