"""Judges answer gold before the first pair: what is asked, what is measured, and when a build stops."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError, Faults, InputError
from earmark.schemas.questions import Audio
from earmark.tasks.annotation.request import Answer, Outcome, Request, Unanswered
from earmark.tasks.audio.encode import decode
from earmark.tasks.store.versions import Version
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.pseudo_preferences.music import (
    Row,
    build_judged,
    config_of,
    make_pool,
    read_config,
    write_config,
    write_rows,
)
from tests.runner import scripted
from tests.servers.openai_server import Faults as Trouble

PROMPTS = 6
PAIRS = PROMPTS * 3
URL = "http://127.0.0.1:9/v1"
ONE = {"dimensions": ["musicality"], "require": ["musicality"]}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool")
    make_pool(folder, PROMPTS)
    return folder


class Listener:
    """A judge that prefers the clip whose file the build did not make, and remembers what it was asked."""

    def __init__(self, *, honest: bool = True, leans: bool = False) -> None:
        self.honest, self.leans = honest, leans
        self.asked: list[list[Audio]] = []

    def __call__(self, request: Request) -> Outcome:
        clips = [part for part in request.parts() if isinstance(part, Audio)][-2:]
        self.asked.append(clips)
        made = ["/controls/" in clip.path for clip in clips]
        said = "tie" if made[0] == made[1] else "AB"[made[0] == self.honest]
        said = "A" if self.leans else said
        return Answer(request.key, {"musicality": said, "alignment": "tie", "reason": "listened"})


def qualified(pool: Path, judge: Listener, store: Path, **qualify: Any) -> list[Row]:
    """The rows of `qualification` of a build with this judge."""
    config = config_of(pool, URL, judge={**ONE, "qualify": {"each": 4, **qualify}})
    with scripted(judge):
        return rows_of(build_judged(config, store), "qualification")


@pytest.mark.slow
def test_controls_are_asked_in_both_orders_before_the_pairs(pool: Path, tmp_path: Path) -> None:
    judge = Listener()
    rows = qualified(pool, judge, tmp_path / "store")
    by_control = {row["control"]: row for row in rows if row["domain"] == "all"}
    assert [*by_control] == ["all", "same", "noise", "clipping", "lowpass", "silence"]  # no prompt: it asks alignment
    # the same clip twice is one request in both orders; each other control is two requests a question
    assert {name: row["answers"] for name, row in by_control.items()} == {
        "all": 36, "same": 4, "noise": 8, "clipping": 8, "lowpass": 8, "silence": 8,
    }  # fmt: skip
    for name, row in by_control.items():
        known = (row["accuracy"], row["tpr"], row["fpr"], row["agreed_accuracy"])
        assert known == ((None,) * 4 if name == "same" else (1.0, 1.0, 0.0, 1.0))
        assert (row["share_first"], row["share_tie"]) == {"same": (0.0, 1.0), "all": (4 / 9, 1 / 9)}.get(name, (0.5, 0))
    assert (0.7 < by_control["all"]["low"] < 0.8, by_control["all"]["weight"] > 2) == (True, True)
    domains = {row["domain"]: row["answers"] for row in rows if row["control"] == "all"}
    assert sum(count for name, count in domains.items() if name != "all") == domains["all"] == 36
    first, second = judge.asked[:36], judge.asked[36:]
    assert all("/controls/" in b.path or "/controls/" in a.path or a.sha256 == b.sha256 for a, b in first)
    assert len(second) == 2 * PAIRS
    assert not any("/controls/" in clip.path for clips in second for clip in clips)


@pytest.mark.slow
def test_degraded_clips_have_the_length_and_the_fault_that_they_are_named_for(pool: Path, tmp_path: Path) -> None:
    class Reader(Listener):
        def __call__(self, request: Request) -> Outcome:
            outcome = super().__call__(request)
            for clip in self.asked[-1]:
                if "/controls/" in clip.path:
                    samples, rate = decode(clip.path, clip.sha256)
                    seen[Path(clip.path).stem.split("-")[1]].append((samples, rate, clip.duration_s))
            return outcome

    seen: dict[str, list[Any]] = {name: [] for name in ("noise", "clipping", "lowpass", "silence")}
    qualified(pool, Reader(), tmp_path / "store")
    for made in seen.values():
        assert len(made) == 8
        assert all(len(samples) / rate == pytest.approx(length) == pytest.approx(0.3) for samples, rate, length in made)
    for samples, _, _ in seen["silence"]:
        assert not samples[: len(samples) // 2].any()
        assert samples[len(samples) // 2 + 1 :].any()


@pytest.mark.parametrize(
    ("judge", "options", "words"),
    [
        (Listener(honest=False), {}, "0.000 (95 %: 0.000 to 0.221) of 32 requests with a known answer ("),
        (
            Listener(),
            {"controls": ["same"]},
            "no question has a known answer; add votes (judge.qualify.gold) or a cont",
        ),
        (Listener(leans=True), {"least": 0.5, "most_lean": 0.2}, "of 36 answers 1.000 prefer what is shown fi"),
    ],
)
def test_a_build_stops_before_the_first_pair(
    pool: Path, tmp_path: Path, judge: Listener, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(Faults) as stopped:
        qualified(pool, judge, tmp_path / "store", **options)
    assert stopped.value.lines[0].startswith("openai:tiny on musicality: ")
    assert words in stopped.value.lines[0]
    assert stopped.value.lines[-1] == "no row was asked about; the answers are kept"
    assert len(judge.asked) == (36 if "controls" not in options else 4)
    assert not list((tmp_path / "store" / "pseudo-preferences").glob("v*"))


class Silent(Listener):
    """Right wherever it answers, which is only what it is asked first; it refuses all else."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.answers = answers

    def __call__(self, request: Request) -> Outcome:
        outcome = super().__call__(request)
        if len(self.asked) <= self.answers:
            return outcome
        return Unanswered(request.key, "refused", "the model answered no more", final=True)


def test_gold_without_an_answer_is_wrong(pool: Path, tmp_path: Path) -> None:
    """The first four of 36 requests are the controls `same`, whose truth is unknown; the 32 others have one."""
    with pytest.raises(Faults) as stopped:
        qualified(pool, Silent(5), tmp_path / "store")
    line = stopped.value.lines[0]
    assert line.startswith("openai:tiny on musicality: 0.031 ")
    assert re.search(
        r"of 32 requests with a known answer \((\w+ \d+, )*\w+ \d+\) have the right answer, expected 0.6", line
    )
    assert line.endswith("; 31 of 36 without an answer count as wrong")
    with pytest.raises(
        Faults, match="openai:tiny on musicality: none of 36 requests of the qualification has an answer"
    ):
        qualified(pool, Silent(0), tmp_path / "none", least=0.0)


@pytest.mark.slow
def test_the_table_and_the_card_show_requests_beside_answers(pool: Path, tmp_path: Path) -> None:
    config = config_of(pool, URL, judge={**ONE, "most_failed": 1.0, "qualify": {"each": 4, "least": 0.5}})
    judge = Silent(24)
    judge_pairs = Listener()
    with scripted(lambda request: (judge if len(judge.asked) < 36 else judge_pairs)(request)):
        version = build_judged(config, tmp_path / "store")
    rows = rows_of(version, "qualification")
    whole = next(row for row in rows if row["domain"] == row["control"] == "all")
    assert (whole["questions"], whole["requests"], whole["answers"], whole["known"]) == (20, 36, 24, 32)
    assert (whole["accuracy"], whole["tpr"], whole["fpr"]) == (20 / 32, 1.0, 0.0)
    assert whole["share_first"] + whole["share_second"] + whole["share_tie"] == pytest.approx(1.0)
    silence = next(row for row in rows if row["control"] == "silence")
    assert (silence["requests"], silence["answers"], silence["accuracy"], silence["share_tie"]) == (8, 0, 0.0, None)
    assert (silence["agreed"], silence["agreed_accuracy"]) == (0, None)
    assert "| all | all | 36 | 24 | 32 | 0.625 " in (version.folder / "README.md").read_text()


def write_gold(pool: Path, truths: list[dict[str, str]]) -> None:
    """A table of gold over the pool's own clips."""
    clips = sorted(path.relative_to(pool).as_posix() for path in (pool / "clips").iterdir())
    write_rows(
        pool / "gold.jsonl",
        [
            {"text": f"tune {n}", "audio_a": clips[n], "audio_b": clips[n + 1], "domain": "xy"[n % 2], **truth}
            for n, truth in enumerate(truths)
        ],
    )


@pytest.mark.slow
def test_gold_of_people_is_asked_and_counted_by_domain(pool: Path, tmp_path: Path) -> None:
    """A judge that always says the first clip: right in one order of a or b, never on a tie."""
    write_gold(pool, [{"musicality": "a"}, {"musicality": "b"}, {"musicality": "tie"}, {"alignment": "a"}] * 2)
    judge = Listener(leans=True)
    rows = qualified(pool, judge, tmp_path / "store", gold="gold.jsonl", controls=[], least=0.0)
    whole = next(row for row in rows if row["domain"] == row["control"] == "all")
    assert (whole["questions"], whole["answers"], whole["known"]) == (8, 16, 12)  # alignment is not asked
    assert whole["accuracy"] == pytest.approx(8 * 0.5 / 12)
    assert (whole["tpr"], whole["fpr"], whole["agreed"], whole["agreed_accuracy"]) == (1.0, 1.0, 0, None)
    assert {row["domain"] for row in rows} == {"all", "x", "y"}


@pytest.mark.slow
def test_each_vote_of_gold_counts_where_people_voted_on_one_pair(pool: Path, tmp_path: Path) -> None:
    """Three pairs of three votes each, one of which is what the judge says, first or last in the table."""
    for place in (0, 2):
        write_gold(pool, [{"musicality": "tie"}] * 3)
        lines = [json.loads(line) for line in (pool / "gold.jsonl").read_text("utf-8").splitlines()]
        votes = [{**line, "musicality": "tie" if at == place else "a"} for line in lines for at in range(3)]
        write_rows(pool / "gold.jsonl", votes)
        store = tmp_path / f"store-{place}"
        judge = Listener()  # says tie of clips that the build did not make
        rows = qualified(pool, judge, store, gold="gold.jsonl", controls=[], least=0.0)
        whole = next(row for row in rows if row["domain"] == row["control"] == "all")
        assert (whole["questions"], whole["known"], whole["agreed"]) == (9, 18, 9)
        assert whole["accuracy"] == pytest.approx(1 / 3)
        assert whole["agreed_accuracy"] == pytest.approx(1 / 3)
        assert whole["high"] - whole["low"] > 0.0
        assert len(judge.asked) == 6 + 2 * PAIRS  # a question is asked once, however many voted on it


def test_gold_that_cannot_be_used_is_no_gold(pool: Path, tmp_path: Path) -> None:
    write_gold(pool, [{"musicality": "a"}, {"musicality": "the first"}])
    with pytest.raises(InputError, match=r"gold\.jsonl, line 2: bad_value: expected a, b or tie in musicality or"):
        qualified(pool, Listener(), tmp_path / "store", gold="gold.jsonl")
    write_rows(pool / "gold.jsonl", [{"text": "t", "audio_a": "gone.wav", "audio_b": "x.wav", "musicality": "a"}])
    with pytest.raises(InputError, match=r"gold\.jsonl, line 1: file_missing"):
        qualified(pool, Listener(), tmp_path / "store", gold="gold.jsonl")
    with pytest.raises(ConfigError, match=r"judge\.qualify: expected gold, controls, or both"):
        config_of(pool, URL, judge={"qualify": {"controls": []}})


@pytest.fixture
def server() -> Any:
    with LocalServer(Trouble()) as started:
        yield started


@pytest.mark.slow
def test_the_command_asks_gold_alone_and_the_build_does_not_ask_it_again(
    pool: Path, tmp_path: Path, server: Any
) -> None:
    config = write_config(pool, server.base_url, judge={**ONE, "qualify": {"each": 3, "least": 0.0}})
    store = ["--store", str(tmp_path / "store"), "--config", str(config)]
    runner = CliRunner()
    told = runner.invoke(app, ["build", "pseudo-preferences", "--dry-run", "--json", *store])
    asks = json.loads(told.stdout)["asks"]
    assert (asks["stage"], asks["distinct"], asks["judge"]["distinct"]) == ("judge: qualify", 27, 2 * PAIRS)
    assert server.faults.asked.total() == 0
    first = runner.invoke(app, ["eval", "qualify", "pseudo-preferences", "--json", *store])
    assert first.exit_code == 0, first.output
    figures = json.loads(first.stdout)["figures"]
    assert server.faults.asked.total() == 27
    assert not (tmp_path / "store" / "pseudo-preferences" / "v1").exists()
    again = runner.invoke(app, ["eval", "qualify", "pseudo-preferences", *store])
    assert again.exit_code == 0
    assert "openai:tiny" in again.stdout
    version = build_judged(read_config(config), tmp_path / "store")
    assert server.faults.asked.total() == 27 + 2 * PAIRS
    assert rows_of(version, "qualification") == figures
    assert "## Qualification" in (version.folder / "README.md").read_text()
    write_config(pool, server.base_url, judge={**ONE, "qualify": {"each": 3, "least": 1.0}})
    bad = runner.invoke(app, ["eval", "qualify", "pseudo-preferences", *store])
    assert isinstance(bad.exception, Faults)
    assert server.faults.asked.total() == 27 + 2 * PAIRS
    write_config(pool, server.base_url, judge=ONE)
    none = runner.invoke(app, ["eval", "qualify", "pseudo-preferences", *store])
    assert isinstance(none.exception, ConfigError)
    assert "expected [judge.qualify] in the config" in str(none.exception)


class Crowd:
    """Models that prefer the clip whose hash is the higher, mostly; each is wrong, or ties, by draws of its own."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Outcome:
        self.asked.append(request.key)
        first, second = [part.sha256 for part in request.parts() if isinstance(part, Audio)][-2:]
        drawn = hashlib.sha256(f"{request.model} {min(first, second)} {max(first, second)}".encode()).digest()
        turned = hashlib.sha256(request.key.encode()).digest()[0] < 20
        said = {}
        for place, name in enumerate(("musicality", "alignment")):
            right = (drawn[place] > 40) != turned
            said[name] = "tie" if drawn[place] > 230 else "AB"[(first > second) != right]
        return Answer(request.key, {**said, "reason": "drawn"})


@pytest.mark.slow
def test_a_jury_asks_each_judge_what_it_would_be_asked_alone(pool: Path, tmp_path: Path) -> None:
    crowd = Crowd()
    with scripted(crowd):
        alone = build_judged(config_of(pool, URL, judge={"annotator": "openai:two"}), tmp_path / "alone")
        asked, judges = len(crowd.asked), [{"annotator": f"openai:{name}"} for name in ("one", "two", "three")]
        jury = config_of(pool, URL, judges=judges, jury="unanimity")
        version = build_judged(jury, tmp_path / "store")
    assert (asked, len(crowd.asked)) == (2 * PAIRS, 2 * PAIRS + 3 * 2 * PAIRS)
    judgments = rows_of(version, "judgments")
    assert Counter(row["judge"] for row in judgments) == dict.fromkeys((one["annotator"] for one in judges), 4 * PAIRS)
    keys = {row["request_key"] for row in rows_of(alone, "judgments")}
    assert {row["request_key"] for row in judgments if row["judge"] == "openai:two"} == keys
    assert set(version.manifest.models) == {one["annotator"] for one in judges}
    check_unanimity(version, [one["annotator"] for one in judges])


def check_unanimity(version: Version, judges: list[str]) -> None:
    """Labels, votes and bias by the rule in plain Python."""
    choices: dict[tuple[str, str, str], list[str]] = {}
    for row in rows_of(version, "judgments"):
        choices.setdefault((row["pair_id"], row["dimension"], row["judge"]), []).append(row["choice"])
    agreed = {key: held[0] if len(set(held)) == 1 else None for key, held in choices.items()}
    labels = {row["pair_id"]: row for row in rows_of(version, "labels")}
    assert labels
    for pair in {key[0] for key in agreed}:
        said = {name: {agreed[pair, name, judge] for judge in judges} for name in ("musicality", "alignment")}
        kept = all(len(held) == 1 and None not in held for held in said.values())
        assert kept == (pair in labels)
        if kept:
            label = labels[pair]
            assert {name: {label[name]} for name in said} == said
            for name in said:
                assert label[f"{name}_votes"] == [agreed[pair, name, judge] for judge in judges]
            assert label["judge"] == " + ".join(judges)
    undecided = [row for row in rows_of(version, "rejects") if row["reason"] == "jury_undecided"]
    assert len(undecided) + len(labels) == PAIRS
    bias = {(row["value"], row["dimension"], row["set"]): row for row in rows_of(version, "bias")}
    assert bias["all", "musicality", "original"]["pairs"] == 3 * PAIRS
    assert bias["all", "musicality", "jury"]["consistency"] == pytest.approx(
        sum(
            len({agreed[p, "musicality", j] for j in judges} - {None}) == 1
            and None not in {agreed[p, "musicality", j] for j in judges}
            for p in {key[0] for key in agreed}
        )
        / PAIRS
    )
    assert all(bias[judge, "musicality", "original"]["pairs"] == PAIRS for judge in judges)
    assert -1 <= bias["all", "musicality", "jury"]["alpha"] <= 1
    assert all(row["alpha"] is None for row in bias.values() if row["set"] != "jury")
