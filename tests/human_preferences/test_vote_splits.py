"""Splits of comparisons: what shares anything stays together, and the drawn split is balanced."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.human_preferences.counting import SplitItem, place
from earmark.tasks.pipeline.grouping import group
from tests.builds import rows_of
from tests.human_preferences.votes import SALT, build_votes, cmi, config_of, vote

PIECES = st.lists(
    st.builds(
        SplitItem,
        ties=st.lists(st.integers(0, 30), min_size=1, max_size=3),
        fixed=st.sampled_from([None, None, None, "train", "validation", "test"]),
        cell=st.sampled_from(["x", "y", "z"]),
        draw=st.text("0123456789abcdef", min_size=8, max_size=8),
    ),
    max_size=60,
)


@given(PIECES, st.integers(0, 40))
def test_nothing_that_is_shared_crosses(pieces: list[SplitItem], count: int) -> None:
    splits, drawn = place(pieces, {"test": count})
    assert drawn["test"] <= count
    where: dict[object, set[str]] = {}
    for piece, split in zip(pieces, splits, strict=True):
        for tie in piece.ties:
            where.setdefault(tie, set()).add(split)
    assert all(len(found) == 1 for found in where.values())
    for piece, split in zip(pieces, splits, strict=True):
        if piece.fixed == "test":
            assert split == "test"


@given(PIECES)
def test_groups_are_those_that_ties_reach(pieces: list[SplitItem]) -> None:
    groups = group([piece.ties for piece in pieces])
    reach = [{number} for number in range(len(pieces))]
    for number, piece in enumerate(pieces):  # merge until nothing changes, the slow and plain way
        for other in range(number):
            if set(piece.ties) & set(pieces[other].ties):
                joined = reach[number] | reach[other]
                for member in joined:
                    reach[member] = joined
    for number in range(len(pieces)):
        for other in range(number):
            assert (groups[number] == groups[other]) == (reach[number] is reach[other])


def test_draw_is_balanced_and_keeps_its_choices() -> None:
    pieces = [SplitItem([n], None, "xyz"[n % 3 if n % 5 else 0], f"{n * 7919 % 1000:04d}") for n in range(600)]
    splits, drawn = place(pieces, {"test": 90})
    assert drawn["test"] == 90
    assert Counter(p.cell for p, s in zip(pieces, splits, strict=True) if s == "test") == {"x": 30, "y": 30, "z": 30}
    more = [*pieces, *(SplitItem([n], None, "x", f"9999{n}") for n in range(600, 620))]
    assert place(more, {"test": 90})[0][:600] == splits


def test_what_a_group_overfills_goes_to_the_room_that_is_left() -> None:
    pieces = [SplitItem([n // 4], None, "xy"[n % 2], str(n)) for n in range(40)]
    assert place(pieces, {"test": 8})[1] == {"test": 8}


@pytest.mark.slow
def test_votes_pulled_into_a_split_are_told_beside_those_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pair 0, of two votes, and pair 1 say what a fixed source tests; pair 2 what one validates."""
    monkeypatch.setenv("EARMARK_SALT", SALT)
    fixed = [
        cmi(tmp_path, [vote(at, **{"audio-path": f"{name}.wav"}) for at in held], name=name, split=name)
        for name, held in (("test", (0, 1)), ("validation", (2,)))
    ]
    free = cmi(tmp_path, [vote(0, "bob"), *(vote(at) for at in range(12))], name="free")
    for split in ({"test": 4}, {"test": 0}):
        config = config_of(tmp_path, *fixed, free, split=split)
        version = build_votes(config, tmp_path / f"store-{split['test']}")
        rows = rows_of(version, "comparisons")
        where = Counter(row["split"] for row in rows if row["source"] == "free" for _ in range(row["votes"]))
        assert where["test"] - 3 == split["test"]
        assert [note for note in version.manifest.notes() if "beside" in note] == [
            f"3 votes stand in test beside the {split['test']} drawn: they must stay with what a source put there",
            "1 votes stand in validation beside the 0 drawn: they must stay with what a source put there",
        ]
