"""Walks: rows go through asks, each as soon as its own answer is there; what is written does not depend on timing."""

from __future__ import annotations

import asyncio
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import EarmarkError
from earmark.schemas.questions import Audio, FreeText, Message, YesNo
from earmark.schemas.reasons import Reject
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.prompts import Prompt, prompt_named
from earmark.tasks.annotation.request import Answer, Outcome, Request, Unanswered
from earmark.tasks.annotation.session import Session
from earmark.tasks.pipeline import sessions as build_sessions
from earmark.tasks.pipeline.ask import Ask, Asker, Fault, GivenUp, Posed, Row, pose, side_by_side
from earmark.tasks.pipeline.forecast import ImaginedSessions
from earmark.tasks.pipeline.imagined import imagined
from earmark.tasks.pipeline.rows import Rows, keep_rows
from earmark.tasks.pipeline.step import Done, rejects_table, step
from earmark.tasks.pipeline.walk import Walked, walk
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import open_store
from tests.annotation.conftest import LocalServer, config_for, requests_for
from tests.builds import contents_of, forecast
from tests.conftest import examples
from tests.runner import ScriptedSessions, scripted
from tests.servers.faults import Faults


class Trial(BuildConfig):
    """A build that asks one writer."""

    corpus: str = "trial"
    writer: AnnotatorConfig = AnnotatorConfig(annotator="openai:tiny")

    def asked(self) -> dict[str, AnnotatorConfig]:
        return {"writer": self.writer}


def posed(config: Trial, text: str) -> Posed:
    """A question in any words."""
    prompt: Prompt = prompt_named("caption-direct")
    return Posed(prompt, question(config.writer, [Message.of("user", text)]))


def not_short(config: Trial, row: Row, value: Any) -> Fault | None:
    """A check that some answers fail."""
    return Fault("too_few_words", f"expected more, found {value!r}") if str(value).startswith("short") else None


DRAFT = Ask(
    "draft",
    annotator="writer",
    request=lambda config, row: posed(config, f"draft {row['name']}"),
    imagine=lambda config, row: imagined(5),
    check=not_short,
    tries=lambda config: 3,
    about="names",
)
SIDES = Ask(
    "sides",
    annotator="writer",
    request=lambda config, row: posed(config, f"{row['side']} of {row['draft']}"),
    imagine=lambda config, row: imagined(3),
    about="sides of drafts",
)


@walk("trial", asks=[DRAFT, SIDES], columns=[("side", pa.string())])
async def write_about(asker: Asker[Trial], row: Row) -> list[str | None]:
    """A draft, then both of its sides; one side may stay without an answer."""
    draft = await asker(DRAFT, row)
    if draft == "no":
        raise GivenUp("draft", "unusable", "expected a draft, found none")
    sides = [{"side": side, "draft": draft} for side in ("left", "right")]
    if "strict" in draft:  # either side without an answer gives the row up
        return list(await side_by_side(*(asker(SIDES, side) for side in sides)))
    return [reply.value for reply in await side_by_side(*(asker.reply(SIDES, side) for side in sides))]


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    stage = Stage(open_store(str(folder / "store")), "trial", "0" * 64, folder / "stage")
    for part in ("work", "steps", "version"):
        (stage.folder / part).mkdir(parents=True, exist_ok=True)
    yield stage


def rows_in(stage: Stage, count: int, a_shard: int = 4) -> Rows:
    return keep_rows(stage, "names", [{"name": f"n{number}"} for number in range(count)], a_shard)


class Streaming:
    """A session whose answers come one by one, after delays of its own."""

    in_batches = False
    refused_usd = 0.0

    def __init__(self, answer: Callable[[Request], Outcome], seed: int) -> None:
        self.answer = answer
        self.order: list[str] = []
        self._delays = random.Random(seed)

    @contextmanager
    def streaming(self, hand_on: Callable[[str, Outcome], None], failed: Any) -> Iterator[Callable[..., None]]:
        timers: list[threading.Timer] = []

        def put(requests: list[Request]) -> None:
            for request in requests:
                self.order.append(words_of(request))
                delay = self._delays.choice((0.0, 0.001, 0.01))
                timers.append(threading.Timer(delay, hand_on, (request.key, self.answer(request))))
                timers[-1].start()

        yield put
        for timer in timers:
            timer.join()


@contextmanager
def streaming(answer: Callable[[Request], Outcome], seed: int) -> Iterator[Streaming]:
    """Have walks answered by such a session."""
    session = Streaming(answer, seed)
    given_to_all = ScriptedSessions(answer)
    given_to_all._session = session
    token = build_sessions._OF_BUILD.set(given_to_all)  # type: ignore[arg-type]
    try:
        yield session
    finally:
        build_sessions._OF_BUILD.reset(token)


def words_of(request: Request) -> str:
    (part,) = request.messages[-1].parts
    return str(getattr(part, "text", ""))


def answer_by(fates: list[str]) -> Callable[[Request], Outcome]:
    """Answers by a row's fate: good, short once, short for ever, refused, not there yet, no draft, or a lost side."""

    def answer(request: Request) -> Outcome:
        words = words_of(request)
        if words.startswith("draft"):
            fate = fates[int(words.partition(" n")[2])]
            if fate == "refused":
                return Unanswered(request.key, "refused", "no", final=True)
            if fate == "later":
                return Unanswered(request.key, "timed_out", "no answer in 5 s")
            if fate == "short" or (fate == "short once" and request.sample == 0):
                return Answer(request.key, f"short {words}")
            return Answer(request.key, "no" if fate == "no draft" else f"about {words} {fate}")
        if "lost" in words and words.startswith("left"):  # also of those that are strict
            return Unanswered(request.key, "refused", "no", final=True)
        return Answer(request.key, words.upper())

    return answer


PRICES = {"input_per_million": 10, "output_per_million": 10}
FATES = ("good", "short once", "short", "refused", "no draft", "lost", "lost strict", "later")


def plain(fates: list[str]) -> tuple[list[tuple[int, Any]], list[tuple[int, str]]]:
    """Results and rejects by the walk's rule in plain words: a second implementation without any timing."""
    results, rejects = [], []
    reasons = {
        "short": "too_few_words",
        "refused": "refused",
        "no draft": "unusable",
        "later": "timed_out",
        "lost strict": "refused",
    }
    for at, fate in enumerate(fates):
        if fate in reasons:
            rejects.append((at, reasons[fate]))
            continue
        draft = f"about draft n{at} {fate}"
        left = None if fate == "lost" else f"LEFT OF {draft.upper()}"
        results.append((at, [left, f"RIGHT OF {draft.upper()}"]))
    return results, rejects


@examples(15)
@given(fates=st.lists(st.sampled_from(FATES[:-1]), max_size=11), seeds=st.tuples(st.integers(), st.integers()))
def test_results_are_those_of_the_rule_whatever_comes_first(
    tmp_path_factory: pytest.TempPathFactory, fates: list[str], seeds: tuple[int, int]
) -> None:
    contents = []
    for seed in seeds:
        with staged(tmp_path_factory.mktemp("walk")) as stage, streaming(answer_by(fates), seed):
            walked = write_about(stage, Trial(), rows_in(stage, len(fates)))
        results, rejects = plain(fates)
        assert list(walked.results()) == results
        assert [(row["at"], row["reason"]) for row in walked.given_up()] == rejects
        contents.append(contents_of(walked.folder))
    assert contents[0] == contents[1]
    draws = list(walked.read_draws())
    assert [row["at"] for row in draws] == sorted(row["at"] for row in draws)
    for at, fate in enumerate(fates):
        drafts = [row for row in draws if row["at"] == at and row["ask"] == "draft"]
        assert len(drafts) == {"short": 3, "short once": 2}.get(fate, 1)
        assert [row["last"] for row in drafts] == [*[False] * (len(drafts) - 1), True]
        assert sum(row["at"] == at and row["ask"] == "sides" for row in draws) == 2 * (fate not in FATES[2:5])


def test_a_row_goes_on_while_another_waits_for_its_answer(tmp_path: Path) -> None:
    with staged(tmp_path) as stage, streaming(answer_by(["good"] * 8), 5) as session:
        session._delays = type("Slow", (), {"n": 0, "choice": lambda self, _: 0.3 if self.first() else 0.0})()
        session._delays.first = iter([True, *[False] * 99]).__next__  # type: ignore[attr-defined]
        write_about(stage, Trial(), rows_in(stage, 4))
    assert session.order.index("left of about draft n3 good") < session.order.index("left of about draft n0 good")
    last = max(session.order.index(f"right of about draft n{row} good") for row in (1, 2, 3))
    assert last < session.order.index("left of about draft n0 good")


@walk("beforehand", asks=[DRAFT], columns=[("side", pa.string())])
async def draft_beforehand(asker: Asker[Trial], row: Row) -> None:
    """Asks what `write_about` asks about each row first."""
    await asker.ahead(lambda scout: scout(DRAFT, row))


def test_what_is_asked_ahead_is_asked_once_and_counted_once(tmp_path: Path) -> None:
    counting = ImaginedSessions(Trial(), tmp_path / "ledger.sqlite", Media())
    with staged(tmp_path / "dry") as stage:
        imagining = Stage(stage.store, stage.corpus, "dry-run", stage.folder, counting)
        for told in (draft_beforehand, write_about):
            told(imagining, Trial(), rows_in(imagining, 11))
    assert (counting.facts()["stage"], counting.facts()["requests"]) == ("draft", 11)
    answer = answer_by(["short"] * 5 + ["refused"] * 6)
    with staged(tmp_path / "real") as stage, streaming(answer, 0) as session:
        ahead = draft_beforehand(stage, Trial(), rows_in(stage, 11))
        assert len(session.order) == 11 + 2 * 5, "with the further draws of what the check refuses"
        assert [data for _, data in ahead.results()] == [None] * 11, "nothing ends by it"
        assert not list(ahead.read_draws())
        assert not ahead.given_up()


def test_accounts_lead_from_stage_to_stage(tmp_path: Path) -> None:
    fates = ["good", "refused", "no draft", "lost"]
    with staged(tmp_path) as stage, scripted(answer_by(fates)):
        walked = write_about(stage, Trial(), rows_in(stage, 4))
        accounts = walked.accounts(
            ["draft", "sides"], lambda row, reason, detail: ("t", Reject(row["name"], reason, detail, "f", 1))
        )
    assert [(one.name, one.entered, one.kept, one.follows) for one in accounts] == [
        ("draft", 4, 2, ""),
        ("sides", 2, 2, "draft"),
    ]
    assert [reject.item for _, reject in accounts[0].rejects] == ["n1", "n2"]


def test_a_reject_of_no_file_names_none() -> None:
    rejects = [("t", Reject("n1", "unusable", "none", file, None)) for file in ("", "a.csv")]
    assert rejects_table("draft", rejects)["file"].to_pylist() == [None, "a.csv"]


def test_a_small_part_does_not_stop_a_build_whose_parts_together_lack_little(tmp_path: Path) -> None:
    with staged(tmp_path) as stage, pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnnotatorConfig, "most_failed", 0.05, raising=False)
        for part, fates in (("0", ["good"] * 10), ("1", ["later", "good"])):
            with scripted(answer_by(fates)):
                walked = write_about(stage, Trial(), rows_in(stage, len(fates)), part=part)
        assert [end["reason"] for end in walked.given_up()] == ["timed_out"]


def test_what_may_still_come_stops_the_build_and_is_asked_again(tmp_path: Path) -> None:
    fates = ["good", "later", "good", "good", "good", "good"]
    with staged(tmp_path) as stage:
        rows = rows_in(stage, len(fates), 2)
        with scripted(answer_by(fates)), pytest.MonkeyPatch.context() as patch:
            patch.setattr(AnnotatorConfig, "most_failed", 0.05, raising=False)
            with pytest.raises(EarmarkError, match=r"^1 of 16 requests have no answer yet, most for 'timed_out'"):
                write_about(stage, Trial(), rows)
        counted: list[str] = []

        def counting(request: Request) -> Outcome:
            counted.append(words_of(request))
            return answer_by(["good"] * 6)(request)

        with scripted(counting):
            walked = write_about(stage, Trial(), rows)
    assert sorted({words.split()[1] for words in counted if words.startswith("draft")}) == ["n0", "n1"]  # one shard
    assert list(walked.results()) == plain(["good"] * 6)[0]


@step("read")
def read_walks(stage: Stage, config: Trial, told: dict[str, list[Walked]]) -> Done[list[int]]:
    """Count the results of each walk."""
    return Done([len(list(walked.results())) for several in told.values() for walked in several])


def test_a_walk_that_a_finished_step_has_read_is_not_asked_again(tmp_path: Path) -> None:
    fates = ["good", "later", "good", "good", "lost", "good"]
    asked: list[str] = []

    def counting(request: Request) -> Outcome:
        asked.append(words_of(request))
        return answer_by(fates)(request)

    with staged(tmp_path) as stage, scripted(counting):
        rows = rows_in(stage, len(fates), 2)
        for round_ in range(3):
            if round_ == 2:
                fates[1] = "good"  # too late: the step has counted
            asked.clear()
            walked = write_about(stage, Trial(), rows)
            assert len(asked) == (16, 4, 0)[round_], "what may still come is asked again until it is read"
            if round_:
                assert read_walks(stage, Trial(), told={"walk": [walked]}) == [5]
    assert len(list(walked.results())) == 5


def test_a_walk_of_no_rows_can_be_read(tmp_path: Path) -> None:
    with staged(tmp_path) as stage, scripted(answer_by([])):
        assert read_walks(stage, Trial(), {"walk": [write_about(stage, Trial(), rows_in(stage, 0))]}) == [0]


def test_a_walk_whose_questions_cannot_be_told_apart_says_so(tmp_path: Path) -> None:
    with (
        staged(tmp_path) as stage,
        scripted(answer_by(["good"])),
        pytest.raises(ValueError, match=r"^walk alike: two questions of one row are alike in \['side'\]"),
    ):
        alike(stage, Trial(), rows_in(stage, 1))


@walk("alike", asks=[SIDES], columns=[("side", pa.string())])
async def alike(asker: Asker[Trial], row: Row) -> None:
    """Two questions with nothing to tell them apart by."""
    await side_by_side(*(asker.reply(SIDES, {"side": "left", "draft": draft}) for draft in "ab"))


def test_walks_and_steps_travel_by_their_names() -> None:
    assert pickle.loads(pickle.dumps(write_about)) is write_about
    assert pickle.loads(pickle.dumps(finish)) is finish


@step("finish", final=True)
def finish(stage: Stage, config: Trial, walked: Walked) -> Done[int]:
    """A step that no dry run reaches."""
    raise AssertionError("a dry run ends before its final step")


def test_a_dry_run_counts_every_question_of_the_flow(tmp_path: Path) -> None:
    def story(stage: Stage, config: Trial) -> None:
        finish(stage, config, write_about(stage, config, rows_in(stage, 7)))

    corpus: Any = type("Named", (), {"name": "trial"})
    facts = forecast(corpus, story, Trial(), open_store(str(tmp_path / "store")))
    assert facts is not None
    assert (facts["stage"], facts["about"], facts["requests"], facts["to_ask"]) == ("draft", "7 names", 7, 7)
    assert (facts["tries"], facts["sides"]["requests"], facts["sides"]["to_ask"]) == (3, 14, 14)
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").rglob("*.parquet"))


@pytest.mark.parametrize("words", [3, 5_000])
def test_requests_about_imagined_texts_count_each_however_long_they_are(words: int, tmp_path: Path) -> None:
    counting = ImaginedSessions(Trial(), tmp_path / "ledger.sqlite", Media())
    row = {"side": "left", "draft": imagined(words)}
    for _ in range(2):
        asyncio.run(counting.put(Trial(), "", SIDES, "writer", row, SIDES.pose(Trial(), row).request))
    assert len({request.key for request in counting.asks["sides"].uncounted}) == 2


def test_a_dry_run_that_counts_in_parts_counts_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def facts() -> dict[str, Any]:
        counting = ImaginedSessions(Trial(), tmp_path / "ledger.sqlite", Media())
        for name in ("a", "b", "a", "c", "d", "a", "e"):
            asyncio.run(counting.put(Trial(), "", DRAFT, "writer", {}, DRAFT.pose(Trial(), {"name": name}).request))
        return counting.facts()

    whole = facts()
    assert (whole["requests"], whole["distinct"], whole["to_ask"]) == (7, 5, 5)
    monkeypatch.setattr("earmark.tasks.pipeline.forecast.AT_ONCE", 2)
    assert facts() == whole


# -- the engine's stream ------------------------------------------------------------------------------------------


def test_a_stream_answers_what_a_call_answers(tmp_path: Path) -> None:
    faults = Faults(rate=0.3, kinds=("rate_limited", "wrong_shape", "cut", "server_error"))
    with LocalServer(faults) as server:
        config = config_for(server, max_concurrency=5, repairs=5, temperature=0.5)
        requests = requests_for(config, 40)
        with Session(config, ledger=tmp_path / "one.sqlite") as session:
            expected = {outcome.key: outcome for outcome in session.ask(requests).outcomes}
        outcomes: dict[str, list[Outcome]] = {}
        with Session(config, ledger=tmp_path / "two.sqlite") as session:
            session.ask(requests[:6])  # some are in the ledger
            with session.streaming(lambda key, one: outcomes.setdefault(key, []).append(one), print) as put:
                for start in range(0, 40, 7):
                    put([*requests[start : start + 7], requests[start]])  # some come twice
        assert outcomes.keys() == expected.keys()
        assert all(one == expected[key] for key, several in outcomes.items() for one in several)
        assert sorted(map(len, outcomes.values())) == [1] * 34 + [2] * 6
        before = sum(faults.asked.values())
        with Session(config, ledger=tmp_path / "two.sqlite") as session:
            assert session.ask(requests).from_ledger == 40
        assert sum(faults.asked.values()) == before


def test_a_stream_that_must_stop_says_so_and_its_session_can_go_on(tmp_path: Path) -> None:
    with LocalServer(Faults()) as server:
        config = config_for(server, budget_usd=0.000001, prices=PRICES)
        stops: list[BaseException] = []
        with Session(config, ledger=tmp_path / "l.sqlite") as session:
            with (
                pytest.raises(EarmarkError, match="budget"),
                session.streaming(lambda key, one: None, stops.append) as put,
            ):
                put(requests_for(config, 3))
            assert len(stops) == 1
        assert sum(server.faults.asked.values()) == 0


def test_a_stopped_walk_raises_in_one_line_and_goes_on_later(tmp_path: Path) -> None:
    with LocalServer(Faults()) as server:
        poor = config_for(server, budget_usd=0.01, prices=PRICES, max_tokens=100, max_concurrency=1)
        with staged(tmp_path) as stage:
            rows = rows_in(stage, 9, 3)
            with pytest.raises(EarmarkError, match="budget"):
                write_about(stage, Trial(writer=poor), rows)
            some = sum(server.faults.asked.values())
            walked = write_about(stage, Trial(writer=poor.model_copy(update={"budget_usd": 9.0})), rows)
        assert 0 < some < 27
        assert server.faults.numbers()["repeats"] == 0
        assert len(list(walked.results())) == 9
        assert pq.read_table(walked.draws()[0]).column_names[-1] == "side"


def test_an_exchange_leaves_no_loop_behind(tmp_path: Path) -> None:
    with staged(tmp_path) as stage, scripted(answer_by(["good"])):
        write_about(stage, Trial(), rows_in(stage, 1))
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_a_request_takes_the_form_that_is_named_then_the_prompts_own_then_free_text() -> None:
    config = AnnotatorConfig(annotator="openai:tiny")
    clip = Audio("0" * 64, "a.wav")
    free, named = prompt_named("caption-direct"), prompt_named("music-pair")
    assert pose(config, free, clip=clip).request.ask == FreeText()
    assert pose(config, free, None, YesNo(), clip=clip).request.ask == YesNo()
    pair = {"text": "a", "lyrics": "", "reference": None, "a": clip, "b": clip}
    assert pose(config, named, **pair).request.ask == named.ask(**pair)
