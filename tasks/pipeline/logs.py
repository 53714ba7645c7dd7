"""Write logs for machines: a JSON object per line, with its run, shard and request. No Prefect.

`EARMARK_LOG=json` makes the command write them to standard error, progress included. Workers get the same lines through
`PREFECT_LOGGING_SETTINGS_PATH=deploy/logging.yaml`.
"""

import json
import logging
import os
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from weakref import WeakSet

from earmark.schemas.errors import EarmarkError

RUN: ContextVar[str | None] = ContextVar("run", default=None)
"""The current run of `earmark build`; threads of its steps inherit it."""


TELEMETRY_OFF = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
"""Prefect's own settings; set before its import, unless the environment sets them."""


class JsonLines(logging.Formatter):
    """Records as lines of JSON: time, level, logger, message; run, shard and request if known."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
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


class Told(logging.Filter):
    """Filter that makes Prefect log a fault of ours once, as its message without a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._told: WeakSet[EarmarkError] = WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        """Pass a record unless its fault was logged before; strip the traceback of our own faults."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:  # Prefect logs "NoneType: None" for a state that a task returned
            record.exc_info = None
        if not isinstance(error, EarmarkError):
            return True
        if error in self._told:
            return False
        self._told.add(error)
        record.msg, record.args, record.exc_info = str(error), (), None
        return True


_TOLD = Told()


def tell_plainly() -> None:
    """Add the filter `Told` to the logs of Prefect's runs; repeated calls change nothing."""
    for name in ("flow_runs", "task_runs", "engine"):
        logging.getLogger(f"prefect.{name}").addFilter(_TOLD)


def wanted() -> bool:
    """Return whether the environment asks for logs as JSON."""
    return os.environ.get("EARMARK_LOG") == "json"


def set_up() -> None:
    """Write our own records to standard error as JSON lines, if asked; turn off Prefect's telemetry."""
    for name, value in TELEMETRY_OFF.items():
        os.environ.setdefault(name, value)
    ours = logging.getLogger("earmark")
    if wanted() and not ours.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        ours.addHandler(handler)
        ours.setLevel(os.environ.get("EARMARK_LOG_LEVEL", "INFO").upper())
        ours.propagate = False


def _about(record: logging.LogRecord) -> dict[str, Any]:
    """Return the context of a record: its own (from Prefect's loggers), else the current one."""
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
    """Return Prefect's flow and task run, if Prefect runs."""
    if (context := sys.modules.get("prefect.context")) is None:
        return None, None
    flow, task = context.FlowRunContext.get(), context.TaskRunContext.get()
    return flow and flow.flow_run, task and task.task_run
