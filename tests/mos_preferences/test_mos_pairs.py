"""Random rating tables through the whole build; the published tables are held against the rules in plain Python."""

from __future__ import annotations

import math
import random
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from earmark.flows.mos_preferences import build
from earmark.schemas.mos_preferences import CATEGORIES, CORPUS, MosPreferences
from earmark.schemas.rating_sources import Source
from earmark.schemas.tables import SPLITS
from earmark.tasks.importers.lists import Rating
from earmark.tasks.mos_preferences import ratings
from earmark.tasks.pipeline.grouping import share_out
from earmark.tasks.pipeline.plan import Plan
from earmark.tasks.store.commit import Made
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.versions import Version, open_store
from tests.builds import build_version, config_of, rows_of
from tests.conftest import examples
from tests.mos_preferences.pair_rules import check_pairs, check_triplets, far_enough, group_of, possible_pairs

AS_FOUND = (Phase.explicit, Phase.reuse, Phase.generate)  # to shrink an example, hundreds of builds would run
DATASETS = ("one", "two")
Table = tuple[list[Rating], list[str]]


def source(name: str, **values: Any) -> dict[str, Any]:
    """A source that stands for rows which a test makes itself."""
    columns = {"file": "f", "mos": "m"}
    return {"name": name, "format": "table", "files": {"test": "t.csv"}, "columns": columns, **values}


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Up to 40 clips whose facts cross, repeat and are missing; means in steps, so that many are equal."""
    size = draw(st.integers(0, 40))
    rng = random.Random(draw(st.integers(0, 2**32)))
    few = draw(st.integers(1, 4))
    unknown = draw(st.sampled_from([0.0, 0.2, 0.7]))
    step = draw(st.sampled_from([1.0, 0.25, 0.1]))
    splits = draw(st.sampled_from([("test",), ("train", "test"), SPLITS, ("train", None), (None,)]))
    subsets = draw(st.sampled_from([(None,), (None, "s1"), ("s1", "s2")]))

    def fact(word: str, kinds: int) -> str | None:
        return None if rng.random() < unknown else f"{word}{rng.randrange(kinds)}"

    rows, datasets = [], []
    for number in range(size):
        rated = rng.random() < 0.5
        rows.append(
            Rating(
                file=f"{number}.wav",
                score=1 + step * rng.randrange(int(4 / step) + 1),
                source_file="list",
                line=number + 1,
                split=rng.choice(splits),
                subset=rng.choice(subsets),
                system_id=fact("sys", few),
                speaker_id=fact("spk", 3),
                content_id=fact("txt", few + 1),
                condition_id=fact("con", 2),
                votes=rng.randrange(1, 9) if rated else None,
                mos_std=rng.choice([0.0, 0.3, 1.1]) if rated and rng.random() < 0.8 else None,
            )
        )
        datasets.append(rng.choice(DATASETS))
    return rows, datasets


@st.composite
def configs(draw: st.DrawFn, **pairs: Any) -> MosPreferences:
    """Rules of every kind over the two datasets."""
    quota = st.dictionaries(st.sampled_from(SPLITS), st.integers(0, 60))
    weight = st.sampled_from([0.0, 1.0, 2.5])
    rules = st.fixed_dictionaries(
        {
            "min_gap": st.sampled_from([0.0, 0.25, 0.3, 1.0]),
            "draws": st.sampled_from([1, 2, 5]),
            "per_clip": st.sampled_from([None, 1, 3, 16]),
            "balance": st.fixed_dictionaries(dict.fromkeys(CATEGORIES, weight)).filter(lambda held: any(held.values())),
        }
    )
    return config_of(
        Path("/"),
        *(source(name, split=draw(st.sampled_from(["native", "native", "by-content", "ood"]))) for name in DATASETS),
        seed=draw(st.integers(0, 5)),
        quotas=draw(st.dictionaries(st.sampled_from(DATASETS), quota)),
        pairs={**draw(rules), **pairs},
        triplets={"count": draw(st.integers(0, 8)), "splits": draw(st.sampled_from([SPLITS, ("test", "ood"), ()]))},
    )


def build_rows(config: MosPreferences, rows: Sequence[Rating], dataset_of: Sequence[str], store_root: Path) -> Version:
    """Build from rows as importers yield them, so that any combination of unknown facts can be tried."""
    inputs = {"rows": digest_of([list(row) for row in rows])}
    made = Made(CORPUS, config.recorded(), inputs, code="", libraries={})
    plan = Plan(open_store(str(store_root)), made, digest_of([config.identity(), inputs]), lambda: inputs, config)

    def read(source: Source, resolve: object) -> Iterator[Rating]:
        return (row for row, name in zip(rows, dataset_of, strict=True) if name == source.name)

    with patch.object(ratings, "read_source", read), plan.stage() as stage:
        build.story(stage, config)  # type: ignore[attr-defined]
        return plan.commit(stage)


def built(config: MosPreferences, table: Table) -> tuple[Version, dict[str, list[dict[str, Any]]]]:
    with tempfile.TemporaryDirectory() as folder:
        version = build_rows(config, *table, Path(folder))
        return version, {name: rows_of(version, name) for name in version.manifest.rows}


@pytest.mark.slow
@examples(15, phases=AS_FOUND)
@given(config=configs(), table=tables())
def test_published_tables_keep_the_rules(config: MosPreferences, table: Table) -> None:
    version, found = built(config, table)
    ratings, pairs = found["ratings"], found["pairs"]
    assert len(ratings) + len(found["rejects"]) == len(table[0])
    check_pairs(ratings, pairs, config.pairs.min_gap, config.pairs.per_clip)
    assert {pair["category"] for pair in pairs} <= {name for name, share in config.pairs.balance.items() if share}
    check_triplets(ratings, found["triplets"], config.pairs.min_gap)
    assert {row["split"] for row in found["triplets"]} <= set(config.triplets.splits)
    assert all(n <= config.triplets.count for n in Counter(row["dataset"] for row in found["triplets"]).values())
    check_notes(config, version, pairs)


def check_notes(config: MosPreferences, version: Version, pairs: list[dict[str, Any]]) -> None:
    """A quota is never passed, and is short only with a note."""
    kept = Counter((pair["dataset"], pair["split"]) for pair in pairs)
    notes = version.manifest.notes()
    for dataset, quotas in config.quotas.items():
        for split, quota in quotas.items():
            count = kept[dataset, split]
            assert count <= quota
            short = [note for note in notes if note.startswith(f"{dataset} {split}: {count} of {quota} pairs; ")]
            assert len(short) == (count < quota)
    for dataset, split in kept:
        if any(note.startswith(f"{dataset} {split}: no systems and no speakers are known") for note in notes):
            of_split = [pair["category"] for pair in pairs if (pair["dataset"], pair["split"]) == (dataset, split)]
            assert {*of_split} == {"unmatched"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({}, True),
        ({"condition_id"}, True),
        ({"content_id"}, True),
        ({"content_id", "condition_id"}, False),
        ({"speaker_id"}, False),
        ({"system_id"}, False),
    ],
)
def test_a_list_whose_pairs_are_all_unmatched_is_told_so(known: set[str], told: bool) -> None:
    names = ("system_id", "speaker_id", "content_id", "condition_id")
    rows = [
        Rating(f"{n}.wav", 1.0 + n % 4, "list", n + 1, "test", **{name: f"{n % 3}" for name in names if name in known})
        for n in range(12)
    ]
    version, found = built(config_of(Path("/"), source("one")), (rows, ["one"] * 12))
    notes = [note for note in version.manifest.notes() if "so all pairs are unmatched" in note]
    assert bool(notes) == told
    assert found["pairs"]
    if told:
        assert {pair["category"] for pair in found["pairs"]} == {"unmatched"}


@pytest.mark.slow
@examples(15, phases=AS_FOUND)
@given(config=configs(per_clip=None), table=tables())
def test_quota_is_met_wherever_enough_pairs_exist(config: MosPreferences, table: Table) -> None:
    _, found = built(config, table)
    possible = possible_pairs(found["ratings"], config.pairs.min_gap)
    held: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for clip, category in possible.values():
        held[clip["dataset"], clip["split"]][category] += 1
    kept: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for pair in found["pairs"]:
        kept[pair["dataset"], pair["split"]][pair["category"]] += 1
    for dataset, quotas in config.quotas.items():
        for split, quota in quotas.items():
            available = {category: held[dataset, split][category] for category in CATEGORIES}
            wanted = share_out(quota, available, config.pairs.balance)
            assert {category: kept[dataset, split][category] for category in CATEGORIES} == wanted


@pytest.mark.slow
@examples(7, phases=AS_FOUND)
@given(table=tables(), min_gap=st.sampled_from([0.0, 0.3]))
def test_enough_draws_are_all_pairs(table: Table, min_gap: float) -> None:
    config = config_of(Path("/"), *map(source, DATASETS), pairs={"per_clip": None, "draws": 64, "min_gap": min_gap})
    version, found = built(config, table)
    drawn = {frozenset((pair["chosen_id"], pair["rejected_id"])) for pair in found["pairs"]}
    assert drawn == set(possible_pairs(found["ratings"], min_gap))
    counted = sum(step.dropped.get("equal MOS", 0) for step in version.manifest.steps)
    assert counted == sum(
        group_of(x, y) is not None and not far_enough(x, y, 0.0) for x, y in combinations(found["ratings"], 2)
    )


@pytest.mark.slow
@examples(5, phases=AS_FOUND)
@given(config=configs(), table=tables(), seed=st.integers(0, 99))
def test_order_of_lines_does_not_matter(config: MosPreferences, table: Table, seed: int) -> None:
    order = random.Random(seed).sample(range(len(table[0])), len(table[0]))
    shuffled = [table[0][at] for at in order], [table[1][at] for at in order]
    (_, first), (_, second) = built(config, table), built(config, shuffled)
    for name, key in (("pairs", "pair_id"), ("triplets", "triplet_id")):
        here, there = ({row[key]: row for row in found[name]} for found in (first, second))
        assert here == there


@pytest.mark.slow
@examples(5, phases=AS_FOUND)
@given(table=tables())
def test_split_by_content_shares_no_content(table: Table) -> None:
    config = config_of(Path("/"), *(source(name, split="by-content") for name in DATASETS))
    _, found = built(config, table)
    splits = defaultdict(set)
    for row in found["ratings"]:
        if row["content_id"] is not None:
            splits[row["dataset"], row["content_id"]].add(row["split"])
    assert all(len(held) == 1 for held in splits.values())
    assert len(found["ratings"]) == len(table[0])


def many(count: int, first: int = 0) -> list[Rating]:
    """Clips of 20 systems, 8 speakers and 60 contents."""
    rows = []
    for number in range(first, first + count):
        rng = random.Random(number)
        system, speaker, content = f"sys{rng.randrange(20)}", f"spk{rng.randrange(8)}", f"txt{rng.randrange(60)}"
        rows.append(
            Rating(
                f"{number}.wav", 1 + rng.randrange(33) / 8, "list", number + 1, "test", None, system, speaker, content
            )
        )
    return rows


def ids(config: MosPreferences, rows: list[Rating]) -> set[str]:
    return {pair["pair_id"] for pair in built(config, (rows, ["one"] * len(rows)))[1]["pairs"]}


@pytest.mark.slow
@examples(4, phases=AS_FOUND)
@given(table=tables(), quota=st.integers(1, 60), edges=st.sampled_from([[0.5], [0.5, 1.0, 2.0]]))
def test_a_quota_is_shared_over_bins_of_gaps(table: Table, quota: int, edges: list[float]) -> None:
    pairs = {"per_clip": None, "gap_edges": edges, "balance": {"unmatched": 1.0}}
    config = config_of(Path("/"), *(source(name, split="ood") for name in DATASETS), pairs=pairs)
    config = config.model_copy(update={"quotas": {name: {"ood": quota} for name in DATASETS}})
    _, found = built(config, table)

    def bins(gaps: Iterator[tuple[str, float]]) -> dict[str, Counter[str]]:
        counts: dict[str, Counter[str]] = {name: Counter() for name in DATASETS}
        for dataset, gap in gaps:
            counts[dataset][str(sum(gap >= edge for edge in edges))] += 1
        return counts

    clips = {row["sample_id"]: row["mos"] for row in found["ratings"]}
    possible = ((pair, *facts) for pair, facts in possible_pairs(found["ratings"], 0.0).items())
    gaps = ((row["dataset"], abs(clips[min(pair)] - clips[max(pair)]))
            for pair, row, category in possible if category == "unmatched")  # fmt: skip
    kept, there = bins((row["dataset"], row["mos_gap"]) for row in found["pairs"]), bins(gaps)
    for dataset in DATASETS:
        names = [str(number) for number in range(len(edges) + 1)]
        available = {name: there[dataset][name] for name in names}
        assert {name: kept[dataset][name] for name in names} == share_out(quota, available, dict.fromkeys(names, 1.0))


@pytest.mark.slow
def test_pairs_stay_when_clips_are_added() -> None:
    config = config_of(Path("/"), source("one"))
    before = ids(config, many(2000))
    after = ids(config, many(2000) + many(20, first=2000))
    assert len(before) > 5000
    assert len(before & after) >= 0.95 * len(before)


@pytest.mark.slow
def test_pairs_mostly_stay_under_a_quota() -> None:
    config = config_of(Path("/"), source("one"), quotas={"one": {"test": 900}})
    before = ids(config, many(2000))
    after = ids(config, many(2000) + many(20, first=2000))
    assert len(before) == len(after) == 900
    assert len(before & after) >= 0.9 * len(before)


@pytest.mark.slow
def test_another_seed_draws_other_pairs() -> None:
    first, second = (ids(config_of(Path("/"), source("one"), seed=seed), many(500)) for seed in (1, 2))
    assert len(first & second) < 0.5 * len(first)


@pytest.mark.slow
def test_growing_source_keeps_its_splits() -> None:
    config = config_of(Path("/"), source("one", split="by-content"))
    places = []
    for rows in (many(500), many(600)):
        found = built(config, (rows, ["one"] * len(rows)))[1]["ratings"]
        places.append({row["sample_id"]: row["split"] for row in found})
    assert places[0].items() <= places[1].items()
    shares = Counter(places[1].values())
    assert shares["train"] > shares["validation"] + shares["test"] > 0


@pytest.mark.slow
def test_quota_of_a_split_without_clips_is_told() -> None:
    config = config_of(Path("/"), source("one"), source("two"), quotas={"one": {"train": 5}, "two": {"ood": 7}})
    version, _ = built(config, (many(10), ["one"] * 10))
    notes = version.manifest.notes()
    assert any(note.startswith("one train: 0 of 5 pairs; ") for note in notes)
    assert any(note.startswith("two ood: 0 of 7 pairs; ") for note in notes)


@pytest.mark.parametrize("count", [3, 60])
def test_a_split_with_a_share_and_without_a_clip_is_named(count: int) -> None:
    """Against the splits of the table itself."""
    shares = {"train": 0.8, "validation": 0.1, "test": 0.1, "ood": 0.0}
    version, found = built(
        config_of(Path("/"), source("one", split="by-content", shares=shares)), (many(count), ["one"] * count)
    )
    there = {row["split"] for row in found["ratings"]}
    assert (there == {"train", "validation", "test"}) == (count == 60)
    (note, *others) = [note for note in version.manifest.notes() if "`shares` asks" in note] or [""]
    assert not others
    for split, share in shares.items():
        assert (f"{split} ({share:g})" in note) == (share > 0 and split not in there)


def test_triplets_that_fall_short_are_told() -> None:
    config = config_of(Path("/"), source("one"), source("two"), triplets={"count": 5})
    rows = [Rating(f"{n}.wav", float(1 + n % 2), "list", n + 1, "test") for n in range(10)]
    version, found = built(config, (rows, ["one"] * 10))
    assert found["triplets"] == []
    assert [note.split(";")[0] for note in version.manifest.notes() if "triplets" in note] == [
        "one: 0 of 5 triplets",
        "two: 0 of 5 triplets",
    ]


def test_triplets_of_one_category_fill_the_count_where_others_have_none() -> None:
    """60 clips without content and system give 34,220 unmatched triplets, and none of another category."""
    config = config_of(Path("/"), source("one"), triplets={"count": 100})
    rows = [Rating(f"{n}.wav", 1 + n / 15, "list", n + 1, "test") for n in range(60)]
    version, found = built(config, (rows, ["one"] * 60))
    assert Counter(row["category"] for row in found["triplets"]) == {"unmatched": 100}
    check_triplets(found["ratings"], found["triplets"], config.pairs.min_gap)
    assert [note for note in version.manifest.notes() if "of 100 triplets" in note] == []


@settings(max_examples=200, deadline=None)
@given(
    quota=st.integers(0, 500),
    available=st.fixed_dictionaries(dict.fromkeys(CATEGORIES, st.integers(0, 200))),
    weights=st.fixed_dictionaries(dict.fromkeys(CATEGORIES, st.sampled_from([0.0, 0.1, 1 / 3, 1.0, 7.0, 1e-9]))),
)
def test_share_out(quota: int, available: dict[str, int], weights: dict[str, float]) -> None:
    takes = share_out(quota, available, weights)
    open_ = {name: available[name] if weights[name] else 0 for name in CATEGORIES}
    assert all(0 <= takes[name] <= open_[name] for name in CATEGORIES)
    assert sum(takes.values()) == min(quota, sum(open_.values()))
    total = sum(weights.values())
    for name in CATEGORIES:  # who falls short of its share by more than rounding has nothing left to give
        if total and takes[name] < math.floor(quota * weights[name] / total):
            assert takes[name] == open_[name]


def listeners(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(["file,score,who,sys", *lines]) + "\n")


def test_ratings_by_listener_are_averaged(tmp_path: Path) -> None:
    rng = random.Random(3)
    scores = {f"{n}.wav": [rng.randrange(1, 6) for _ in range(1 + n % 7)] for n in range(30)}
    lines = [f"{file},{score},w{at},s{len(file)}" for file, held in scores.items() for at, score in enumerate(held)]
    rng.shuffle(lines)
    listeners(tmp_path / "t.csv", lines)
    columns = {"file": "file", "mos": "score", "listener": "who", "system": "sys"}
    config = config_of(tmp_path, source("one", columns=columns))
    version = build_version(config, tmp_path / "store")
    found = {row["file"]: row for row in rows_of(version, "ratings")}
    assert set(found) == set(scores)
    for file, held in scores.items():
        assert found[file]["votes"] == len(held)
        assert math.isclose(found[file]["mos"], statistics.fmean(held), rel_tol=1e-15)
        if len(held) == 1:
            assert found[file]["mos_std"] is found[file]["mos_se"] is None
        else:
            assert math.isclose(found[file]["mos_std"], statistics.stdev(held), rel_tol=1e-12, abs_tol=1e-15)
            error = statistics.stdev(held) / math.sqrt(len(held))
            assert math.isclose(found[file]["mos_se"], error, rel_tol=1e-12, abs_tol=1e-15)
        assert found[file]["source_line"] == 2 + min(at for at, line in enumerate(lines) if line.startswith(file + ","))
    check_pairs(rows_of(version, "ratings"), rows_of(version, "pairs"), 0.0, 16)
    notes = version.manifest.notes()
    assert f"one: averaged {len(lines)} ratings into 30 clips" in notes


def test_rows_that_contradict_are_rejects(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("f,m,s\na,1,x\nb,2,x\na,1,y\nb,3,x\nc,2,x\nd,4,y\n")
    (tmp_path / "test.csv").write_text("f,m,s\nc,2,x\ne,4,y\na,5,y\n")
    files = {"train": "train.csv", "test": "test.csv"}
    config = config_of(tmp_path, source("one", files=files, columns={"file": "f", "mos": "m", "system": "s"}))
    version = build_version(config, tmp_path / "store")
    assert {(row["file"], row["mos"], row["split"]) for row in rows_of(version, "ratings")} == {
        ("b", 2.5, "train"),
        ("c", 2.0, "train"),
        ("d", 4.0, "train"),
        ("e", 4.0, "test"),
    }
    found = {(row["item"], row["reason"], row["file"], row["line"]) for row in rows_of(version, "rejects")}
    assert found == {
        ("a", "conflicting_facts", "one/train.csv", 2),
        ("a", "conflicting_facts", "one/train.csv", 4),
        ("a", "conflicting_facts", "one/test.csv", 4),
        ("c", "conflicting_split", "one/test.csv", 2),
    }
    assert all(row["stage"] == "merge" and row["table"] == "ratings" for row in rows_of(version, "rejects"))


def test_a_contested_clip_is_refused_whole(tmp_path: Path) -> None:
    listeners(tmp_path / "t.csv", ["a,1,w1,x", "a,3,w2,y", "a,2,w3,x", "b,4,w1,x", "b,5,w2,x"])
    columns = {"file": "file", "mos": "score", "listener": "who", "system": "sys"}
    version = build_version(config_of(tmp_path, source("one", columns=columns)), tmp_path / "store")
    rejects = rows_of(version, "rejects")
    assert [(row["item"], row["reason"], row["line"]) for row in rejects] == [
        ("a", "conflicting_facts", line) for line in (2, 3, 4)
    ]
    assert "expected one system a clip, found x in one/t.csv line 2 and y in line 3" in rejects[0]["detail"]
    assert [(row["file"], row["mos"], row["votes"]) for row in rows_of(version, "ratings")] == [("b", 4.5, 2)]


def test_missing_split_is_a_reject_where_others_have_one() -> None:
    rows = [Rating("a.wav", 1.0, "list", 1, "test"), Rating("b.wav", 2.0, "list", 2, None)]
    _, found = built(config_of(Path("/"), source("one")), (rows, ["one", "one"]))
    assert [(row["item"], row["reason"], row["line"]) for row in found["rejects"]] == [("b.wav", "bad_split", 2)]


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_clips_for_a_pair(count: int) -> None:
    version, found = built(config_of(Path("/"), source("one")), (many(count), ["one"] * count))
    assert (len(found["ratings"]), found["pairs"], found["triplets"]) == (count, [], [])
    assert version.manifest.rows["rejects"] == {"full": 0}


@pytest.mark.parametrize(
    ("split", "columns", "files", "drawn"),
    [
        ("native", {}, {"train": "a.csv"}, False),
        ("native", {}, {"train": "a.csv", "test": "b.csv"}, True),
        ("native", {"split": "part"}, {"train": "a.csv"}, True),
        ("by-content", {}, {"train": "a.csv"}, True),
        ("by-content, all of it to train", {}, {"train": "a.csv"}, False),
        ("train", {}, {"test": "a.csv"}, False),
    ],
)
def test_triplets_are_forecast_where_their_splits_may_be(
    split: str, columns: dict[str, str], files: dict[str, str], drawn: bool, tmp_path: Path
) -> None:
    columns = {"file": "file", "mos": "mos", **columns}
    source = {"name": "study", "format": "table", "files": files, "columns": columns, "split": split.partition(",")[0]}
    if "all of it" in split:
        source["shares"] = {"train": 1.0, "test": 0.0}
    assert config_of(tmp_path, source).targets() == ({"study, triplets": 100} if drawn else {})
