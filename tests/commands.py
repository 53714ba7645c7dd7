"""The words of every command that `earmark` has."""

from __future__ import annotations

from typing import Any

import typer

from earmark.flows.command.cli import app


def _paths(command: Any) -> list[str]:
    held = getattr(command, "commands", None)
    if held is None:
        return [""]
    return [f"{name} {rest}".strip() for name, inner in held.items() for rest in _paths(inner)]


COMMANDS = sorted(_paths(typer.main.get_command(app)))
