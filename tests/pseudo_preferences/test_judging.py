"""A build that asks a judge over the network: faults, outages, budgets, changes, forecasts, and what is kept secret."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import earmark.flows.pseudo_preferences as story
from earmark.flows.command.cli import app
from earmark.flows.command.running import forecast_build
from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.pseudo_preferences import CLIPS
from earmark.tasks.pipeline import walk
from earmark.tasks.pipeline.rows import Rows, Shard
from earmark.tasks.pseudo_preferences import judging
from earmark.tasks.store.explain import explain
from earmark.tasks.store.versions import Store, Version, verify
from tests.annotation.conftest import LocalServer, asked, model_server
from tests.builds import contents_of, rows_of
from tests.conftest import ROOT
from tests.pseudo_preferences import music
from tests.pseudo_preferences.music import (
    build_judged,
    config_of,
    generation_row,
    make_pool,
    write_clip,
    write_config,
    write_rows,
)
from tests.servers.faults import ALL, Faults
from tests.servers.openai_server import OpenAIServer, listening_answer

CORPUS = "pseudo-preferences"
PROMPTS = 4
PAIRS = PROMPTS * 3
PRICES = {"input_per_million": 10.0, "output_per_million": 10.0}


server = model_server(listening_answer)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    make_pool(tmp_path / "pool", PROMPTS)
    return tmp_path / "pool"


# -- faults -------------------------------------------------------------------------------------------------------


def assert_accounts(version: Version) -> None:
    """Every request is an answer or a typed reject, and every pair a label or a reject."""
    assert verify(version) == []
    rejects = rows_of(version, "rejects")
    unanswered = [row for row in rejects if row["stage"] == "judge"]
    pairs, judgments = rows_of(version, "pairs"), rows_of(version, "judgments")
    assert len(judgments) == 2 * (2 * len(pairs) - len(unanswered))
    assert len(pairs) == len(rows_of(version, "labels")) + sum(row["stage"] == "labels" for row in rejects)
    lost = {row["item"].split()[0] for row in unanswered}
    assert lost == {row["item"] for row in rejects if row["reason"] == "unanswered"}
    assert all(row["reason"] and row["detail"] and "\n" not in row["detail"] for row in rejects)


@pytest.mark.slow
def test_with_a_third_of_answers_faulty_every_request_ends(pool: Path, tmp_path: Path) -> None:
    make_pool(pool, 16)
    wild = Faults(rate=0.3, kinds=ALL, most=None, stall_s=2.0, enormous_bytes=2 << 20)
    with LocalServer(wild) as server:
        server.answer = listening_answer
        judge = {"most_failed": 1.0, "retries": 2, "repairs": 0}
        version = build_judged(config_of(pool, server.base_url, judge=judge), tmp_path / "store")
    assert_accounts(version)
    assert wild.numbers()["faults"] > 20
    reasons = {row["reason"] for row in rows_of(version, "rejects") if row["stage"] == "judge"}
    assert len(reasons) > 2
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        whole = build_judged(config_of(pool, server.base_url), tmp_path / "calm")
    sure = {(row["pair_id"], row["order"], row["dimension"]): row["choice"] for row in rows_of(whole, "judgments")}
    for row in rows_of(version, "judgments"):
        assert sure[row["pair_id"], row["order"], row["dimension"]] == row["choice"]


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("I'm unable to hear audio files, so I cannot compare them.", "refused"),
        ("As a text-based AI I cannot process audio.", "refused"),
        ("I cannot hear any difference in the sound of both.", None),
        ("A", None),
        ("", None),
    ],
)
def test_a_choice_by_a_judge_that_hears_nothing_is_none(pool: Path, reason: str, fault: str | None) -> None:
    config = config_of(pool, "http://127.0.0.1:9/v1")
    found = judging.JUDGE.check(config, {}, {"musicality": "tie", "alignment": "tie", "reason": reason})
    assert (found and found.reason) == fault


@pytest.mark.slow
def test_a_refusal_of_the_judge_is_a_reject_and_no_label(pool: Path, tmp_path: Path, server: OpenAIServer) -> None:
    def refuses_some(body: dict[str, Any], content: str) -> str:
        told = json.loads(listening_answer(body, content))
        return json.dumps(told | {"reason": "I cannot listen to audio."} if asked(server) % 3 == 0 else told)

    server.answer = refuses_some
    version = build_judged(config_of(pool, server.base_url), tmp_path / "store")
    assert_accounts(version)
    assert {row["reason"] for row in rows_of(version, "rejects") if row["stage"] == "judge"} == {"refused"}


@pytest.mark.slow
def test_patience_makes_up_for_faults(pool: Path, tmp_path: Path) -> None:
    with LocalServer(Faults(rate=0.3, kinds=("429", "500", "reset", "truncated_json", "wrong_shape"))) as server:
        server.answer = listening_answer
        config = config_of(pool, server.base_url)
        version = build_judged(config, tmp_path / "store")
        server.faults.rate = 0.0
        calm = build_judged(config, tmp_path / "calm")
    assert contents_of(version.folder) == contents_of(calm.folder)


@pytest.mark.slow
def test_a_server_that_is_down_gives_one_line_and_a_build_that_goes_on(
    pool: Path, tmp_path: Path, server: OpenAIServer
) -> None:
    judge = {"retries": 1, "max_concurrency": 2}
    store = tmp_path / "store"
    answer = server.answer
    config = config_of(pool, server.base_url, judge=judge)

    def until_it_fails(body: dict[str, Any], content: str) -> str:
        if asked(server) > 7:
            raise RuntimeError("down")
        return answer(body, content)

    server.answer = until_it_fails
    with pytest.raises(EarmarkError) as caught:
        build_judged(config, store)
    assert str(caught.value) == (
        f"{2 * PAIRS - 7} of {2 * PAIRS} requests have no answer yet, most for 'server_error': 500: 500 Internal "
        "Server Error Server got itself in trouble; answers are kept: when the cause is gone, go on with: "
        "earmark resume"
    )
    assert not list(store.glob("*/v*"))
    server.answer, before = answer, asked(server)
    version = build_judged(config, store)
    assert asked(server) - before == 2 * PAIRS - 7
    server.faults.asked.clear()
    assert contents_of(version.folder) == contents_of(build_judged(config, tmp_path / "calm").folder)


def test_a_server_that_is_not_there(pool: Path, tmp_path: Path) -> None:
    config = config_of(pool, "http://127.0.0.1:9/v1", judge={"retries": 0})
    with pytest.raises(EarmarkError, match=r"^the first \d+ questions all end alike: ClientConnectorError"):
        build_judged(config, tmp_path / "store")


@pytest.mark.slow
def test_audio_that_changes_under_the_build_names_no_place_of_this_machine(
    pool: Path, tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_pairs = story.plan_pairs

    def then_change(*args: Any) -> Any:
        questions = plan_pairs(*args)
        write_clip(pool / "clips/p000-ant-1.wav", 99)
        return questions

    monkeypatch.setattr(story, "plan_pairs", then_change)
    config = config_of(pool, server.base_url, judge={"most_failed": 1.0})
    with pytest.raises(InputError, match=r"^audio changed during the build; nothing was committed"):
        build_judged(config, tmp_path / "store")
    (rejected,) = (tmp_path / "store").rglob("work/rejects/judge.parquet")
    rejects = pq.read_table(rejected, partitioning=None).to_pylist()
    assert [row["reason"] for row in rejects] == ["bad_media"] * 4
    assert all("p000-ant-1.wav" in row["detail"] and str(tmp_path) not in row["detail"] for row in rejects)
    monkeypatch.undo()
    assert_accounts(build_judged(config, tmp_path / "store"))


# -- what asks again, and what does not -----------------------------------------------------------------------------


@pytest.mark.slow
def test_only_what_changes_an_answer_asks_again(
    pool: Path, tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"

    def more(**values: Any) -> int:
        """How many requests a forced build adds."""
        before = asked(server)
        build_judged(config_of(pool, values.pop("url", server.base_url), **values), store, force=True)
        return asked(server) - before

    assert more() == 2 * PAIRS
    assert more() == 0
    prompts, generations = (pool / f"{name}.jsonl" for name in ("prompts", "generations"))
    rows = [json.loads(line) for line in generations.read_text().splitlines()]
    asks = [json.loads(line) for line in prompts.read_text().splitlines()]
    random.Random(2).shuffle(rows)
    write_rows(generations, rows)
    write_rows(prompts, asks[::-1])
    pool = pool.rename(pool.with_name("moved"))
    prompts, generations = (pool / f"{name}.jsonl" for name in ("prompts", "generations"))
    with monkeypatch.context() as patched:
        patched.setattr(judging, "PAIRS_A_SHARD", 5)
        elsewhere = server.base_url.replace("127.0.0.1", "localhost")
        assert more(url=elsewhere, judge={"max_concurrency": 1, "require": ["musicality"], "retries": 9}) == 0

    write_rows(generations, [*rows, generation_row(pool, 0, "dog")])
    assert more(pairs={"count": PAIRS + 1}) == 2
    write_rows(generations, rows)
    assert more(judge={"temperature": 0.5}) == 2 * PAIRS
    assert more(judge={"annotator": "openai:other"}) == 2 * PAIRS
    clip = pool / "clips/p002-bee-1.wav"
    held = bytearray(clip.read_bytes())
    held[-1] ^= 1
    clip.write_bytes(held)
    assert more() == 4  # one bit, in two pairs
    asks[1]["text"] += "!"
    write_rows(prompts, asks)
    assert more() == 6  # the prompt's three pairs


@pytest.mark.parametrize("order", ["reversed", pytest.param("shuffled", marks=pytest.mark.slow)])
def test_the_order_of_shards_changes_no_byte(
    pool: Path, tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(judging, "PAIRS_A_SHARD", 2)
    in_order = walk.shards_of
    server.faults = Faults(rate=0.2, kinds=("refusal",), most=None)  # so that failures stand in order too
    config = config_of(pool, server.base_url, judge={"most_failed": 1.0})
    first = build_judged(config, tmp_path / "first")
    assert [row for row in rows_of(first, "rejects") if row["reason"] == "refused"]

    def otherwise(questions: Rows) -> list[Shard]:
        shards = in_order(questions)
        assert len(shards) == PAIRS // 2
        random.Random(4).shuffle(shards)
        return sorted(shards, key=lambda shard: shard.number, reverse=True) if order == "reversed" else shards

    monkeypatch.setattr(walk, "shards_of", otherwise)
    server.faults.asked.clear()
    server.faults.met.clear()
    second = build_judged(config, tmp_path / "second")
    assert contents_of(first.folder) == contents_of(second.folder)


# -- money, forecasts, the command line, secrets ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_budget_stops_the_build_and_a_larger_one_goes_on(pool: Path, tmp_path: Path, server: OpenAIServer) -> None:
    judge = {"budget_usd": 0.02, "max_tokens": 100, "max_concurrency": 2}
    with pytest.raises(EarmarkError) as caught:
        build_judged(config_of(pool, server.base_url, judge=judge, prices=PRICES), tmp_path / "store")
    assert len(str(caught.value).splitlines()) == 1
    some = asked(server)
    assert 0 < some < 2 * PAIRS
    assert some * 120 * 10 / 1e6 <= 0.02
    config = config_of(pool, server.base_url, judge={**judge, "budget_usd": 10.0}, prices=PRICES)
    version = build_judged(config, tmp_path / "store")
    assert server.faults.numbers() | {"most_open": 0} == {
        "asked": 2 * PAIRS, "distinct": 2 * PAIRS, "repeats": 0, "most_asked": 1, "faults": 0, "most_open": 0
    }  # fmt: skip
    assert contents_of(version.folder) == contents_of(build_judged(config, tmp_path / "calm").folder)


@pytest.mark.slow
def test_a_forecast_is_what_is_then_asked(pool: Path, tmp_path: Path, server: OpenAIServer) -> None:
    path = write_config(pool, server.base_url, judge={"max_tokens": 100}, prices=PRICES)
    config, store = music.read_config(path), Store(tmp_path / "store")
    for expected in (2 * PAIRS, 6):
        told = forecast_build(CORPUS, path, store)
        assert told["asks"]["to_ask"] == expected
        assert told["asks"]["from_ledger"] == told["asks"]["requests"] - expected
        assert not list(store.root.glob("*/.staging")) or expected == 6
        before = asked(server)
        version = build_judged(config, store.root)
        assert asked(server) - before == expected
        assert len(rows_of(version, "pairs")) * 2 == told["asks"]["requests"]
        spent = expected * 120 * 10 / 1e6
        assert spent <= told["asks"]["most_usd"]
        assert forecast_build(CORPUS, path, store)["up_to_date"] == version.name
        with (pool / "generations.jsonl").open("a") as file:
            file.write(json.dumps(generation_row(pool, 1, "dog")) + "\n")


def earmark(*words: str) -> str:
    """What a command of the command line prints."""
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_the_ledgers_reports_and_no_secret_anywhere(
    pool: Path, tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    key = "sk-test-4f8b2c61d09e7a35"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-77aa55cc")
    monkeypatch.setenv("EARMARK_KEY_HOSTS", f"OPENAI_API_KEY={server.base_url.removesuffix('/v1')}")
    server.expected_key = key
    store = tmp_path / "store"
    config = config_of(pool, server.base_url, prices=PRICES)
    with pytest.raises(EarmarkError) as caught:  # the server repeats the key that it was given
        build_judged(config, store)
    assert "sk-wrong" not in str(caught.value)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    version = build_judged(config, store)

    told = earmark("ledger", "stats", "--json", "--store", str(store))
    (stats,) = json.loads(told)["models"].values()
    assert (stats["open"], stats["answered"], stats["rejected"]) == (0, 2 * PAIRS, 0)
    assert stats["cost_usd"] == pytest.approx(2 * PAIRS * 120 * 10 / 1e6)
    table = earmark("ledger", "stats", "--store", str(store))
    row = rows_of(version, "judgments")[0]
    one = earmark("ledger", "show", row["request_key"][:20], "--json", "--store", str(store))
    assert json.loads(one)["answer"][row["dimension"]] == row["position"]
    lines = earmark("ledger", "export", "--store", str(store))
    exported = [json.loads(line) for line in lines.splitlines()]
    assert {held["key"] for held in exported} == {held["request_key"] for held in rows_of(version, "judgments")}
    assert earmark("ledger", "export", "--model", "openai:none", "--store", str(store)) == ""
    said = "".join(capfd.readouterr()) + told + table + one + lines
    for secret in (key, "sk-wrong-77aa55cc"):
        assert secret not in said
        for path, content in contents_of(store).items():
            assert secret.encode() not in content, path


@pytest.mark.slow
def test_the_ledger_holds_what_the_server_counted(pool: Path, tmp_path: Path, server: OpenAIServer) -> None:
    server.faults = Faults(rate=0.3, kinds=("500", "wrong_shape"), most=1)
    build_judged(config_of(pool, server.base_url), tmp_path / "store")
    with sqlite3.connect(tmp_path / "store/ledger.sqlite") as ledger:
        assert ledger.execute("SELECT count(*) FROM attempts").fetchone()[0] == asked(server)
    ledger.close()


@pytest.mark.slow
def test_embedded_audio_is_named_where_rows_are_shown(pool: Path, tmp_path: Path, server: OpenAIServer) -> None:
    version = build_judged(config_of(pool, server.base_url, clips={"embed": True}), tmp_path / "store")
    clip = rows_of(version, "clips")[0]
    (account,) = explain(version, [CLIPS], clip["generation_id"])
    assert account.row["audio"] == {"path": clip["audio"]["path"], "size_bytes": len(clip["audio"]["bytes"])}
    assert {**account.row, "audio": None} == {**clip, "audio": None}


# -- being stopped ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_judge_that_is_stopped_says_how_to_go_on(
    sent: signal.Signals, code: int, server: OpenAIServer, pool: Path, tmp_path: Path
) -> None:
    build_judged(config_of(pool, server.base_url, clips={"embed": True}), tmp_path / "store")
    server.faults.latency_s = 0.3
    before = asked(server)
    words = ["judge", CORPUS, "-e", "musicality", "--annotator", "openai:other", "--base-url", server.base_url]
    judge = subprocess.Popen(
        [sys.executable, "-m", "earmark", *words, "--split", "all"],
        cwd=ROOT,
        env={**os.environ, "EARMARK_STORE": str(tmp_path / "store")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests that run in the background ignore it
    )
    deadline = time.monotonic() + 120
    while asked(server) == before:
        assert judge.poll() is None, judge.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    judge.send_signal(sent)
    _, said = judge.communicate(timeout=60)
    assert judge.returncode == code, said
    assert said.splitlines()[-1] == "interrupted; answers are kept; run the same command again to continue"
    assert "Traceback" not in said
    assert "destroyed" not in said
