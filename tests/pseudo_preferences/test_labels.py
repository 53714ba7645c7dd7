"""Labels and the bias report against the method's rule in plain Python, whatever a judge answers."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.reasons import current_word
from earmark.tasks.annotation.request import Answer, Outcome, Unanswered
from earmark.tasks.evaluation.juries import ask_each
from earmark.tasks.pipeline.plan import Plan
from earmark.tasks.pipeline.rows import Rows, read_rows
from earmark.tasks.pseudo_preferences.judging import JUDGE, dimensions_of, judge_pairs
from earmark.tasks.pseudo_preferences.labels import card_sections, expected, keep_consistent, read_ranks
from earmark.tasks.pseudo_preferences.pairs import import_tables, measure_clips, plan_build, plan_pairs, write_clips
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import open_store, verify
from tests.builds import rows_of
from tests.conftest import examples
from tests.pseudo_preferences.music import Row, config_of, make_pool
from tests.runner import scripted

BOTH = ("musicality", "alignment")
PROMPTS = 4
PAIRS = PROMPTS * 3
SPLITS = {"train": 0.4, "validation": 0.3, "test": 0.3}

# What one pass says of a dimension; a fault is final or may pass. A request about both fails by the first fault.
FAULTS = ("refused", "timed_out")
ANSWERS = st.fixed_dictionaries({name: st.sampled_from(["A", "B", "tie"] * 4 + [*FAULTS]) for name in BOTH})
ORDERS = ("forward", "reverse")
ONE_MIND = st.fixed_dictionaries({name: st.sampled_from(["a", "b", "tie"]) for name in BOTH})


def outcome_of(key: str, said: Any) -> Outcome:
    """What is written for a request: an answer, or a reject's reason."""
    if isinstance(said, str):
        return Unanswered(key, said, "no answer", final=said == "refused")
    return Answer(key, {**said, "reason": f"because {key[:4]}"})


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small pool, with a store that holds a planned stage for each way to ask."""
    folder = tmp_path_factory.mktemp("pool")
    make_pool(folder, PROMPTS)
    return folder


def ways(pool: Path) -> dict[tuple[tuple[str, ...], tuple[str, ...]], PseudoPreferences]:
    """Configs by dimensions and required dimensions."""
    found = {}
    for dimensions in (BOTH, ("alignment", "musicality"), ("musicality",), ("alignment",)):
        for size in range(1, len(dimensions) + 1):
            for require in itertools.combinations(dimensions, size):
                held = {"dimensions": dimensions, "require": require, "most_failed": 1.0}
                found[dimensions, require] = config_of(pool, "http://127.0.0.1:9/v1", judge=held, shares=SPLITS)
    return found


def chosen(stage: Stage, config: PseudoPreferences) -> None:
    """Read the pool and choose its pairs."""
    pool = measure_clips(stage, config, import_tables(stage, config))
    write_clips(stage, config, pool)
    plan_pairs(stage, config, pool)


@contextmanager
def judged(pool: Path, config: PseudoPreferences, draws: Mapping[tuple[str, str], Any]) -> Iterator[tuple[Stage, Plan]]:
    """A stage with labels, from what the judge says of each pair in each order."""
    planned = pool / "planned"
    if not planned.is_dir():
        with plan_build(config, open_store(str(pool / "first"))).stage() as stage:
            chosen(stage, config)
            shutil.copytree(stage.folder, planned)
    with tempfile.TemporaryDirectory() as store:
        plan = Plan(
            open_store(store), plan_build(config, open_store(str(pool / "first")), {}).made, "0" * 64, dict, config
        )
        with plan.stage() as stage:
            shutil.copytree(planned, stage.folder, dirs_exist_ok=True)
            questions = Rows(stage.work / "questions.parquet", PAIRS)
            answers = {
                JUDGE.pose(config, one).request.key: request_says(draws[str(place), order], names.split("+"))
                for place, row in enumerate(sorted(read_rows(questions), key=lambda row: str(row["pair_id"])))
                for order in ORDERS
                for names in [dimensions_of(config)]
                for one in [{**row, "order": order, "dimensions": names}]
            }
            with scripted(lambda request: outcome_of(request.key, answers[request.key])):
                keep_consistent(stage, config, ask_each(judge_pairs, stage, config, questions))
            yield stage, plan


def rows_in(stage: Stage, table: str) -> list[Row]:
    return [
        row
        for paths in stage.tables().get(table, {}).values()
        for path in paths
        for row in pq.read_table(path).to_pylist()
    ]


def request_says(said: Mapping[str, str], dimensions: Iterable[str]) -> dict[str, str] | str:
    """What a request about these dimensions comes to."""
    faults = [said[name] for name in dimensions if said[name] in FAULTS]
    return faults[0] if faults else {name: said[name] for name in dimensions}


def passes_say(
    draws: Mapping[tuple[str, str], Any], dimensions: tuple[str, ...]
) -> dict[tuple[int, str, tuple[str, ...]], dict[str, str] | str]:
    """What every request comes to, by the pair's place, the order and the dimensions that it asks for."""
    return {(int(place), order, dimensions): request_says(said, dimensions) for (place, order), said in draws.items()}


def own(said: Mapping[str, str], order: str, dimension: str) -> str | None:
    """What a pass prefers in the pair's letters: shown as (b, a), the first is b."""
    shown = {"A": "a", "B": "b"} if order == "forward" else {"A": "b", "B": "a"}
    return shown.get(said[dimension], "tie")


DRAWS = st.lists(
    st.one_of(
        st.tuples(ANSWERS, ANSWERS),
        ONE_MIND.map(
            lambda minds: tuple(
                {name: {"a": "AB"[turn], "b": "BA"[turn]}.get(mind, "tie") for name, mind in minds.items()}
                for turn in (0, 1)
            )
        ),
    ),
    min_size=PAIRS,
    max_size=PAIRS,
)


@pytest.mark.slow
@examples(12)
@given(drawn=DRAWS, way=st.integers(0, 7))
def test_labels_are_what_both_orders_agree_on(pool: Path, drawn: list[tuple[Any, Any]], way: int) -> None:
    found = ways(pool)
    assert len(found) == 8
    (dimensions, require), config = list(found.items())[way]
    draws = {(str(n), order): said for n, two in enumerate(drawn) for order, said in zip(ORDERS, two, strict=True)}
    with judged(pool, config, draws) as (stage, _):
        pairs = sorted(rows_in(stage, "pairs"), key=lambda row: str(row["pair_id"]))
        labels = {row["pair_id"]: row for row in rows_in(stage, "labels")}
        judgments = rows_in(stage, "judgments")
        bias = rows_in(stage, "bias")
        refused = rejects_in(stage, "labels")
        unanswered = rejects_in(stage, "judge")
        steps = {step.name: step for step in stage.steps()}
    assert len(pairs) == PAIRS
    said = passes_say(draws, dimensions)
    choices = {
        (place, order, name): own(answer, order, name)
        for (place, order, names), answer in said.items()
        if not isinstance(answer, str)
        for name in names
    }
    valid: dict[str, dict[str, str]] = {}
    for place, pair in enumerate(pairs):
        key = pair["pair_id"]
        both = {name: [choices.get((place, order, name)) for order in ORDERS] for name in dimensions}
        agreed = {name: one for name, (one, two) in both.items() if one == two and one is not None}
        valid[key] = agreed
        if all(name in agreed for name in require):
            label = labels.pop(key)
            assert {name: label[name] for name in BOTH} == {name: agreed.get(name) for name in BOTH}
            for name in ("split", "prompt_id", "modality", "generation_a", "generation_b", "model_a", "model_b"):
                assert label[name] == pair[name]
            assert key not in refused
            continue
        wrong = sorted(name for name in require if None not in both[name] and name not in agreed)
        missing = any(None in both[name] for name in require)
        expected = "unanswered" if missing else "inconsistent"
        reject = refused.pop(key)
        assert reject["reason"] == expected
        assert all(name in reject["detail"] for name in wrong)
    assert not labels
    assert not refused
    check_judgments(judgments, pairs, said)
    failed = {
        f"{pairs[place]['pair_id']} {order} {'+'.join(names)}": current_word(answer)
        for (place, order, names), answer in said.items()
        if isinstance(answer, str)
    }
    assert {item: row["reason"] for item, row in unanswered.items()} == failed
    assert steps["judge"].entered == len(said) == PAIRS * 2
    assert steps["judge"].kept == len(said) - len(failed)
    assert steps["judge"].rejected == Counter(failed.values())
    assert steps["labels"].entered == PAIRS == steps["labels"].kept + sum(steps["labels"].rejected.values())
    check_bias(bias, pairs, judgments, valid, config.judge.annotator)


def rejects_in(stage: Stage, step: str) -> dict[str, Row]:
    """A step's rejects by item."""
    rows = pq.read_table(stage.work / "rejects" / f"{step}.parquet").to_pylist()
    found = {str(row["item"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def check_judgments(
    judgments: list[Row], pairs: list[Row], said: Mapping[tuple[int, str, tuple[str, ...]], dict[str, str] | str]
) -> None:
    """Every answer is a row, mapped to the pair's letters, whether or not the pair has a label."""
    expected = {
        (pairs[place]["pair_id"], order, name): (answer[name], own(answer, order, name))
        for (place, order, names), answer in said.items()
        if not isinstance(answer, str)
        for name in names
    }
    found = {(row["pair_id"], row["order"], row["dimension"]): (row["position"], row["choice"]) for row in judgments}
    assert found == expected
    assert len(judgments) == len(found)


def check_bias(
    bias: list[Row], pairs: list[Row], judgments: list[Row], valid: Mapping[str, Mapping[str, str]], judge_name: str
) -> None:
    """Shares, consistency and agreement between the dimensions, counted anew."""
    of = {row["pair_id"]: row for row in pairs}
    choice = {(row["pair_id"], row["order"], row["dimension"]): row["choice"] for row in judgments}
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key, pair in of.items():
        models = " / ".join(sorted((pair["model_a"], pair["model_b"])))
        scopes = [("all", "all"), ("modality", pair["modality"]), ("model_pair", models), ("judge", judge_name)]
        for name in BOTH:
            if all((key, order, name) in choice for order in ORDERS):
                for scope, value in scopes:
                    groups[scope, value, name].append(key)
    found = {(row["scope"], row["value"], row["dimension"], row["set"]): row for row in bias}
    assert len(found) == len(bias) == 3 * len(groups)
    for (scope, value, name), keys in groups.items():
        agreed = [key for key in keys if name in valid[key]]
        sets = {
            "original": [choice[key, "forward", name] for key in keys],
            "reversed": [choice[key, "reverse", name] for key in keys],
            "agreed": [valid[key][name] for key in agreed],
        }
        both = [valid[key] for key in agreed if len(valid[key]) == 2]
        for called, chosen in sets.items():
            row = found[scope, value, name, called]
            count = max(1, len(chosen))
            assert row["pairs"] == len(chosen)
            for letter in ("a", "b", "tie"):
                assert row[f"share_{letter}"] == pytest.approx(chosen.count(letter) / count)
            first = {"original": "a", "reversed": "b"}.get(called)
            assert row["share_first"] == (first and pytest.approx(chosen.count(first) / count))
            assert row["consistency"] == pytest.approx(len(agreed) / len(keys))
            if called == "agreed" and both:
                same = sum(two["musicality"] == two["alignment"] for two in both) / len(both)
                assert row["same_as_other"] == pytest.approx(same)
            else:
                assert row["same_as_other"] is None


@pytest.mark.slow
@given(drawn=DRAWS)
@settings(max_examples=4, deadline=None)
def test_whatever_is_answered_can_be_committed_and_no_split_leaks(pool: Path, drawn: list[tuple[Any, Any]]) -> None:
    config = ways(pool)[BOTH, BOTH]
    draws = {(str(n), order): said for n, two in enumerate(drawn) for order, said in zip(ORDERS, two, strict=True)}
    with judged(pool, config, draws) as (stage, plan):
        version = plan.commit(stage, sections=card_sections(stage))
        assert verify(version) == []
        tables = {name: rows_of(version, name) for name in ("clips", "pairs", "judgments", "labels")}
        inconsistent = [row for row in rows_of(version, "rejects") if row["reason"].startswith("inconsistent")]
    places: dict[str, set[str]] = defaultdict(set)
    for row in (row for rows in tables.values() for row in rows):
        for name in ("prompt_id", "clip_sha256", "pair_id", "generation_id", "generation_a", "generation_b"):
            if name in row:
                places[row[name]].add(row["split"])
    assert all(len(splits) == 1 for splits in places.values())
    assert len({split for splits in places.values() for split in splits}) > 1
    passes = Counter(row["pair_id"] for row in tables["judgments"])
    assert all(passes[row["item"]] == 4 for row in inconsistent)  # both passes, both dimensions


@pytest.mark.parametrize(("fault", "stops"), [("timed_out", True), ("refused", False)])
def test_answers_that_may_still_come_stop_the_build(pool: Path, fault: str, stops: bool) -> None:
    config = config_of(pool, "http://127.0.0.1:9/v1", shares=SPLITS)
    said = {"musicality": "A", "alignment": "tie"}
    draws: dict[tuple[str, str], Any] = {(str(n), order): said for n in range(PAIRS) for order in ORDERS}
    draws["3", "reverse"] = {"musicality": "A", "alignment": fault}
    if not stops:
        with judged(pool, config, draws) as (stage, _):
            assert [row["reason"] for row in rejects_in(stage, "judge").values()] == ["refused"]
        return
    with (
        pytest.raises(EarmarkError, match=r"^1 of 24 requests have no answer yet, most for 'timed_out'"),
        judged(pool, config, draws),
    ):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"ranks": 1}',
        '{"ranks": [1]}',
        '{"ranks": {"musicality": 1}}',
        '{"ranks": {"musicality": {"ant": "first"}}}',
        '{"ranks": {"musicality": {"ant": null}}}',
        '{"ranks": {"musicality": {"ant": [1]}}}',
        "\udcff",
    ],
)
def test_a_file_of_known_ranks_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ranks.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match="known_order") as caught:
        read_ranks(path)
    assert len(str(caught.value).splitlines()) == 1
    assert str(tmp_path) not in str(caught.value)


def test_known_ranks(tmp_path: Path) -> None:
    path = tmp_path / "ranks.json"
    path.write_text('{"about": "x", "ranks": {"musicality": {"ant": 1, "bee": 2.5, "cat": 1}}}')
    known = read_ranks(path)["musicality"]
    assert [expected(known[a], known[b]) for a, b in (("ant", "bee"), ("bee", "ant"), ("ant", "cat"))] == [
        "a",
        "b",
        "tie",
    ]
