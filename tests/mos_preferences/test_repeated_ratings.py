"""Several ratings of one clip: their mean, whatever the order of rows; pandas counts the same from the same rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.mos_preferences import MosPreferences
from earmark.tasks.mos_preferences.ratings import IMPORTED, average
from tests.builds import build_version, config_of, rows_of
from tests.mos_preferences.test_mos_pairs import examples, source

Row = dict[str, Any]
NAMED = {"file": "f", "mos": "m", "listener": "who"}
RATINGS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(0, 3)).map(
        lambda drawn: {"file": f"{drawn[0]}.wav", "score": float(drawn[1]), "listener_id": f"w{drawn[2]}"}
    ),
    min_size=1,
    max_size=60,
)


def merge(config: MosPreferences, rows: list[Row]) -> dict[str, Row]:
    """What becomes of each clip; every row is in a mean or among those left out."""
    blank = dict.fromkeys(IMPORTED.names)
    held = [
        {**blank, **row, "dataset": "one", "split": "test", "source_file": "list", "line": at, "row": at}
        for at, row in enumerate(rows, 1)
    ]
    with duckdb.connect() as connection:
        connection.register("imported", pa.Table.from_pylist(held, IMPORTED))
        average(connection, config)
        merged = connection.sql("SELECT * FROM merged").to_arrow_table().to_pylist()
        assert len(merged) == len({row["file"] for row in merged})
        left_out = connection.sql("SELECT row, reason, detail FROM repeated").to_arrow_table().to_pylist()
    assert len({row["row"] for row in left_out}) == len(left_out)
    assert all(row["reason"] and row["detail"] for row in left_out)
    return {row["file"]: row for row in merged}


def check(found: dict[str, Row], ratings: pd.DataFrame) -> None:
    """The published clips are those of the frame (a rating a row: file, score), by pandas' mean and deviation."""
    expected = ratings.groupby("file")["score"].agg(["mean", "count", "std"])
    assert set(found) == set(expected.index)
    for file, (mean, count, std) in expected.iterrows():
        row = found[str(file)]
        assert row["mos"] == pytest.approx(mean, rel=1e-12)
        if count > 1:
            assert row["votes"] == count
            assert row["mos_std"] == pytest.approx(std, rel=1e-9, abs=1e-12)
        else:
            assert row["mos_std"] is None


@examples(12)
@given(rows=RATINGS, seed=st.integers(0, 99))
def test_ratings_without_a_listener_are_averaged_in_any_order(rows: list[Row], seed: int) -> None:
    unnamed = [{**row, "listener_id": None} for row in rows]
    shuffled = random.Random(seed).sample(unnamed, len(unnamed))
    one, other = (merge(config_of(Path("/"), source("one")), held) for held in (unnamed, shuffled))
    check(one, pd.DataFrame(rows))
    facts = ("mos", "votes", "mos_std")
    assert {f: [row[name] for name in facts] for f, row in one.items()} == {
        f: [row[name] for name in facts] for f, row in other.items()
    }


@examples(12)
@given(rows=RATINGS, rule=st.sampled_from(["mean", "first", "last", "reject"]), seed=st.integers(0, 99))
def test_a_listener_counts_once(rows: list[Row], rule: str, seed: int) -> None:
    config = config_of(Path("/"), source("one", columns=NAMED, repeat_votes=rule))
    found = merge(config, rows)
    by_listener = pd.DataFrame(rows).groupby(["file", "listener_id"], as_index=False)["score"]
    match rule:
        case "mean" | "first" | "last":
            check(found, by_listener.agg(rule))
        case _:
            once = by_listener.agg(["first", "count"]).query("count == 1").rename(columns={"first": "score"})
            check(found, once) if len(once) else None
            assert set(found) == set(once["file"])
    if rule == "mean":
        shuffled = merge(config, random.Random(seed).sample(rows, len(rows)))
        assert {f: (row["mos"], row["mos_std"]) for f, row in found.items()} == {
            f: (row["mos"], row["mos_std"]) for f, row in shuffled.items()
        }


@examples(12)
@given(rows=RATINGS, sizes=st.lists(st.integers(1, 4), min_size=60, max_size=60))
def test_published_means_weigh_the_ratings_behind_them(rows: list[Row], sizes: list[int]) -> None:
    """Means with their votes and deviations give what the ratings give; one that is there twice counts once."""
    means, ratings = [], []
    rng = random.Random(7)
    for row, size in zip(rows, sizes, strict=False):
        drawn = pd.Series([row["score"], *(float(rng.randrange(1, 6)) for _ in range(size - 1))])
        std = None if size == 1 else drawn.std()
        mean = {"file": row["file"], "score": drawn.mean(), "votes": size, "mos_std": std}
        if mean in means:
            continue
        means.append(mean)
        ratings += [{"file": row["file"], "score": score} for score in drawn]
    columns = {"file": "f", "mos": "m", "votes": "n", "mos_std": "s"}
    found = merge(config_of(Path("/"), source("one", columns=columns)), [*means, *means[:3]])
    check(found, pd.DataFrame(ratings))


@pytest.mark.slow
def test_a_note_says_what_was_averaged_and_a_reject_what_was_not(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("f,m,who\na,1,w1\na,3,w2\na,2,w1\na,5,w2\nb,4,w1\n")
    version = build_version(config_of(tmp_path, source("one", columns=NAMED)), tmp_path / "store")
    assert {(row["file"], row["mos"], row["votes"]) for row in rows_of(version, "ratings")} == {
        ("a", 2.75, 2),
        ("b", 4.0, 1),
    }
    notes = version.manifest.notes()
    assert "one: averaged 5 ratings into 2 clips" in notes
    assert any('2 ratings are by listeners who had rated the clip before; repeat_votes = "mean"' in n for n in notes)
    config = config_of(tmp_path, source("one", columns=NAMED, repeat_votes="last"))
    version = build_version(config, tmp_path / "store")
    rejects = rows_of(version, "rejects")
    assert [(row["item"], row["reason"], row["line"]) for row in rejects] == [("a", "repeated_vote", n) for n in (2, 3)]
    assert (
        rejects[0]["detail"]
        == 'expected one rating a listener, found 2 by one listener; repeat_votes = "last" leaves this one out'
    )


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_real_ratings_by_listener(real: Path, tmp_path: Path, named: bool) -> None:
    """VoiceMOS 2024 track 3, which publishes each listener's rating; pandas reads the same file."""
    folder = real / "mos/vmc24-track3"
    columns = {"file": "sample_id", "mos": "ovr", **({"listener": "listener"} if named else {})}
    files = {"test": "track3_listener_wise_answer.csv"}
    config = config_of(folder, {"name": "vmc24", "format": "table", "files": files, "columns": columns})
    version = build_version(config, tmp_path / "store")
    found = {row["file"]: row for row in rows_of(version, "ratings")}
    frame = pd.read_csv(folder / files["test"], encoding="utf-8-sig")
    check(found, frame.rename(columns={"sample_id": "file", "ovr": "score"}))
    assert rows_of(version, "rejects") == []
    assert "vmc24: averaged 1,400 ratings into 280 clips" in version.manifest.notes()


def test_a_source_of_rejects_alone_is_not_said_to_name_no_splits(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text("f,m\n" + "".join(f"g{i}.wav,{1 + i % 5}\n" for i in range(9)))
    (tmp_path / "bad.csv").write_text("f,m,s\n" + "".join(f"b{i}.wav,9,test\n" for i in range(9)))
    columns = {"file": "f", "mos": "m"}
    config = config_of(
        tmp_path,
        {"name": "good", "format": "table", "files": {"train": "good.csv"}, "columns": columns},
        {"name": "bad", "format": "table", "files": {"train": "bad.csv"}, "columns": {**columns, "split": "s"}},
    )
    version = build_version(config, tmp_path / "store")
    assert version.manifest.rejects == {"score_out_of_scale": 9}
    assert not [note for note in version.manifest.notes() if "name no splits" in note]
