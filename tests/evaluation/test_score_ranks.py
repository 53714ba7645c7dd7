"""Rank records of submissions by the challenge's rules (ATTM, Table II)."""

from __future__ import annotations

from typing import Any

import pytest

from earmark.schemas.errors import InputError
from earmark.tasks.evaluation.entries import Entry
from earmark.tasks.evaluation.leaderboard import _check_alike, ranking
from tests.evaluation.test_entries import table_ii


def test_records_of_other_questions_are_not_ranked() -> None:
    measured = {"clap": None, "reference": None, "judge": None, "length_s": None}
    one = {
        "system": "one",
        "clips": 100,
        "lacking": [],
        "unanswered": {},
        "concepts_asked": 300,
        "measured_by": measured,
    }
    _check_alike([one, {**one, "system": "two", "unanswered": {"timeout": 6}}])
    with pytest.raises(InputError, match="7 of 300 concepts of 'two' have no answer"):
        _check_alike([one, {**one, "system": "two", "unanswered": {"timeout": 7}}])
    with pytest.raises(InputError, match="--length-s"):
        _check_alike([one, {**one, "system": "two", "measured_by": {**measured, "length_s": 10.0}}])


def record_of(entry: Entry, **more: Any) -> dict[str, Any]:
    """A record with an entry's figures on the prompts in distribution, and contrary ones over all prompts."""
    held = {kind: {"value": getattr(entry, kind)} for kind in ("fad", "clap", "ccs")}
    every = {kind: {"value": 1 - one["value"]} for kind, one in held.items()}
    groups = [{"group": "all", **every}, {"group": "distribution: id", **held}]
    system = {"system": entry.name, "team": entry.team, "track": entry.track}
    return {**system, "groups": groups, "measured_by": {}, **more}


def test_records_with_the_figures_of_table_ii_get_its_ranks_and_finalists() -> None:
    """MusicGen-small beats every submission but one: it is shown, and moves no rank."""
    entries, printed = table_ii()
    topline = record_of(Entry("musicgen-small", 0.574, 0.370, 0.875), topline=True)
    found = ranking([topline, *map(record_of, entries)], 6, "distribution: id")
    assert {one["system"]: one["rank"] for one in found} == {**printed, "e09": 13, "musicgen-small": None}
    assert found[-1]["system"] == "musicgen-small"
    finalists = {one["system"] for one in found if one["finalist"]}
    assert finalists == {"e01", "e05", "e07", "e08", "p00", "p05"}, "of e00 and p00, both sixth, by CLAP score"
    for wanted in range(1, 16):
        assert sum(one["finalist"] for one in ranking([*map(record_of, entries)], wanted, "distribution: id")) == wanted
    over_all = ranking([*map(record_of, entries)], None)
    assert next(one["rank"] for one in over_all if one["system"] == "baseline") < 17


def test_finalists_beat_the_baseline() -> None:
    entries = [
        Entry("a", 0.4, 0.3, 0.9, "A", "e"),
        Entry("baseline", 0.5, 0.2, 0.8),
        Entry("as good", 0.5, 0.2, 0.8, "B", "e"),
        Entry("worse", 0.9, 0.05, 0.4, "C", "p"),
    ]
    found = ranking([*map(record_of, entries)], 3, "distribution: id")
    assert [one["system"] for one in found if one["finalist"]] == ["a"]
    assert [one["system"] for one in found if one["baseline"]] == ["baseline"]
