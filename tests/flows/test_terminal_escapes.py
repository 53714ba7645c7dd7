"""Text from outside reaches a terminal as text: no escape, control or direction of its own."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from earmark.flows.command import console
from earmark.flows.command.tables import TextTable
from earmark.schemas.unseen import on_terminal
from earmark.tasks.pipeline import progress
from earmark.tasks.store.result_table import ResultTable

HOSTILE = "clip\x1b[2J\x1b]0;title\x07\x9b31m\u202egpj\u2066.wav\r\x08"
STEERS = set("\x1b\x9b\x07\x08\r\u202e\u2066")


def test_a_text_keeps_its_visible_characters_and_places() -> None:
    shown = on_terminal(HOSTILE)
    assert not STEERS & set(shown)
    assert len(shown) == len(HOSTILE)
    assert on_terminal("é 音楽\ta\nb") == "é 音楽\ta\nb"


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_progress_and_messages_cannot_be_steered(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    bars = progress.FootOfScreen(Console(file=out, force_terminal=False, width=200))
    monkeypatch.setattr(progress, "_display", bars if terminal else progress.PlainLines())
    progress.say(f"read {HOSTILE}")
    with progress.working(f"index {HOSTILE}", 3) as work:
        work.advance()
        if terminal:
            bars.console.print(bars)
    assert "index clip" in out.getvalue()
    assert not STEERS & set(out.getvalue())


def test_tables_and_lines_of_commands_cannot_be_steered(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(console, "console", Console(file=out, width=200))
    console.tell(HOSTILE, head="corpus ")
    console.console.print(TextTable(ResultTable("", ("name",), ((HOSTILE,),))))
    assert out.getvalue().count("clip") == 2
    assert not STEERS & set(out.getvalue())
