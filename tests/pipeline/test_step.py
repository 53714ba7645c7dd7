"""Declared steps: run once, skipped by a resumed build, accounted for, and given a place in the funnel."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from earmark.schemas.config import BuildConfig
from earmark.schemas.reasons import Reject
from earmark.tasks.pipeline.rows import Rows, keep_rows, read_rows, read_shard, shards_of
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.store.staging import Stage
from tests.pipeline.test_ask import staged

RAN: list[str] = []


class Config(BuildConfig):
    """A build of nothing."""

    corpus: str = "trial"


class Halves(NamedTuple):
    """What a step leaves for others."""

    small: Rows
    large: Path


class Named(NamedTuple):
    """An item of a mapped step."""

    name: str
    rows: int


@step("split", unit="numbers")
def split(stage: Stage, config: Config, count: int) -> Done[Halves]:
    """Small and large numbers; 3 is neither, and even ones are filtered."""
    RAN.append("split")
    small = keep_rows(stage, "small", [1, 2], 1)
    rejects = [("numbers", Reject("3", "audio_silent", "expected another number, found 3", "list.csv", 3))]
    account = Account(entered=7, kept=4, rejects=rejects, filtered={"even": 2, "none": 0}, sources={"list.csv": 7})
    return Done(Halves(small, stage.work / "large"), account)


@step("sum", unit="numbers", follows="split", table="sums")
def sum_up(stage: Stage, config: Config, halves: Halves, *, more: int = 0) -> Done[int]:
    """Their sum; fails the first time."""
    RAN.append("sum")
    if RAN.count("sum") == 1:
        raise KeyboardInterrupt
    return Done(sum(read_rows(halves.small)) + more, Account(4, 4), Account(9, 9, name="check", unit="checks"))


@step("each", unit="rows")
def each(stage: Stage, config: Config, item: Named, *, add: int) -> Done[int]:
    """One item's rows."""
    RAN.append(f"each {item.name}")
    return Done(item.rows + add, Account(item.rows, item.rows))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    RAN.clear()


def test_a_resumed_build_takes_what_finished_steps_left(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        halves = split(stage, Config(), 7)
        with pytest.raises(KeyboardInterrupt):
            sum_up(stage, Config(), halves)
        again = split(stage, Config(), 7)
        assert again == halves
        assert isinstance(again, Halves)
        assert isinstance(again.large, Path)
        assert sum_up(stage, Config(), again, more=4) == 7
        assert sum_up(stage, Config(), again, more=4) == 7
        steps = stage.steps()
    assert RAN == ["split", "sum", "sum"]
    first, second, third = steps
    assert (first.name, first.place, first.unit, first.entered, first.kept) == ("split", 1, "numbers", 7, 4)
    assert (first.rejected, first.dropped) == ({"audio_silent": 1}, {"even": 2})
    assert (second.name, second.place, second.follows, second.table) == ("sum", 2, ("split",), "sums")
    assert (third.name, third.place, third.follows, third.table, third.unit) == ("check", 3, (), None, "checks")


def test_a_step_killed_after_its_accounts_keeps_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(stage: Stage, name: str, text: str) -> None:
        raise KeyboardInterrupt

    RAN.append("sum")
    with staged(tmp_path) as stage:
        halves = split(stage, Config(), 7)
        with monkeypatch.context() as killed:
            killed.setattr(Stage, "keep_output", end)
            with pytest.raises(KeyboardInterrupt):
                sum_up(stage, Config(), halves)
        before = stage.steps()
        sum_up(stage, Config(), halves)
        assert stage.steps() == before
    assert [one.place for one in before] == [1, 2, 3]


def test_rejects_stand_under_another_word_where_an_account_says_so(tmp_path: Path) -> None:
    @step("read", unit="votes")
    def read(stage: Stage, config: Config) -> Done[None]:
        reject = ("votes", Reject("3", "audio_silent", "expected sound, found none", "votes.csv", 3))
        return Done(None, Account(3, 2, [reject], name="read-votes", stage="read"))

    with staged(tmp_path) as stage:
        read(stage, Config())
        (one,) = stage.steps()
        (path,) = stage.rejects("read-votes")
        assert (one.name, one.stage, one.rejected) == ("read-votes", "read", {"audio_silent": 1})
        assert pq.read_table(path)["stage"].to_pylist() == ["read"]


def test_rejects_and_sources_are_written_beside_the_accounts(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        split(stage, Config(), 7)
        (path,) = stage.rejects("split")
        (row,) = pq.read_table(path).to_pylist()
        assert {name: row[name] for name in ("table", "item", "stage", "reason", "file", "line")} == {
            "table": "numbers", "item": "3", "stage": "split", "reason": "audio_silent", "file": "list.csv", "line": 3
        }  # fmt: skip
        assert stage.entered() == {"split": {"list.csv": 7}}


def test_items_of_a_mapped_step_share_a_place_and_are_kept_one_by_one(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        split(stage, Config(), 7)
        items = [Named("b", 2), Named("a", 3)]
        assert each.map(stage, Config(), items, add=10) == [12, 13]
        assert each.map(stage, Config(), [*items, Named("c", 1)], add=10) == [12, 13, 11]
        places = {one.name: one.place for one in stage.steps()}
        each.forget(stage)
        assert each.map(stage, Config(), items, add=20) == [22, 23]
    assert RAN == ["split", "each b", "each a", "each c", "each b", "each a"]
    assert places == {"split": 1, "each-a": 2, "each-b": 2, "each-c": 2}


def test_shards_hold_every_row_once_in_order(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        for sizes in (3, [4, 0, 1, 2], [7]):
            rows = keep_rows(stage, "rows", [{"n": n} for n in range(7)], sizes)
            shards = shards_of(rows)
            assert rows.total == 7
            assert [shard.start for shard in shards] == [
                sum(one.rows for one in shards[:k]) for k in range(len(shards))
            ]
            assert [row for shard in shards for row in read_shard(rows, shard)] == read_rows(rows)
        assert shards_of(keep_rows(stage, "none", [])) == []
