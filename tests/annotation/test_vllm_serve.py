"""`vllm:` starts a server, asks it, and ends it: against a stand-in that takes the words of `vllm serve`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.schemas.questions import Ask, Choice, FreeText, Json, Message, ScaleRating, YesNo
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.errors import ModelMissing, ServerGone, Unsupported
from earmark.tasks.annotation.progress import Progress
from earmark.tasks.annotation.request import Answer, Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.annotation.vllm_serve import VARIABLE, VllmServe, stage_of
from earmark.tasks.audio.encode import Encoder
from tests.annotation.conftest import ask_all
from tests.annotation.test_children import lives, until
from tests.before import asks
from tests.before.fixture import paid, release
from tests.conftest import ROOT

SLACK_S = 10.0  # of a busy machine


class StandIn:
    """The requests and options that a stand-in of `vllm serve` received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lines(self, name: str) -> list[Any]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def started(self) -> list[Any]:
        return self.lines("started")

    @property
    def answered(self) -> list[str]:
        """The last words of each question that was answered."""
        return [body["messages"][-1]["content"] for body in self.lines("answered")]

    def running(self) -> list[int]:
        pids = [one[name] for one in self.started for name in ("pid", "engine")]
        return [one.pid for one in psutil.process_iter() if one.pid in pids and lives(one)]

    def logs(self) -> list[Path]:
        return sorted((self.folder / "tmp").glob("earmark-vllm-*/log"))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """`EARMARK_VLLM` names the stand-in."""
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S {ROOT}/tests/servers/vllm_stand_in.py "$@"\n')
    python.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv(VARIABLE, str(python))
    monkeypatch.setenv("STAND_IN", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-vllm")
    monkeypatch.setenv("GROQ_API_KEY", "not-for-vllm")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return StandIn(tmp_path)


def config_of(model: str, **values: Any) -> AnnotatorConfig:
    return AnnotatorConfig.model_validate({"annotator": f"vllm:{model}", "retry_base_s": 0.05, **values})


def requests_of(config: AnnotatorConfig, *asks: Ask, words: str = "?") -> list[Request]:
    return [question(config, [Message.of("user", f"{words} {n}")], ask) for n, ask in enumerate(asks)]


def one_line(error: pytest.ExceptionInfo[EarmarkError]) -> str:
    said = str(error.value)
    assert "\n" not in said
    return said


@pytest.mark.slow
def test_every_form_of_answer_is_asked_as_the_engine_in_the_process_was(stand_in: StandIn, tmp_path: Path) -> None:
    config = config_of(
        "plain",
        extra_body={"engine": {"dtype": "float32", "enforce_eager": True, "enable_prefix_caching": False}, "top_k": 4},
        serve={"tensor_parallel_size": 2, "data_parallel_size": 3, "gpu_memory_utilization": 0.5},
        seed=3,
    )
    forms = (FreeText(), Json.of({"type": "object"}), Choice(("tie", "A")), YesNo(), ScaleRating(1, 3))
    report = ask_all(config, requests_of(config, *forms), ledger=tmp_path / "l.sqlite")
    values = [outcome.value for outcome in report.outcomes if isinstance(outcome, Answer)]
    assert values[:3] == ["so", {"a": 1}, "tie"], report.outcomes
    assert values[3]["p_yes"] == pytest.approx(1 / (1 + 2.718281828**-1))
    assert 1 < values[4]["score"] < 3
    bodies = {body["messages"][0]["content"]: body for body in stand_in.lines("answered")}
    assert [bodies[f"? {n}"].get("structured_outputs") for n in range(5)] == [
        None, {"json": {"type": "object"}}, {"choice": ["tie", "A"]}, None, None,
    ]  # fmt: skip
    assert [bodies[f"? {n}"].get("logprob_token_ids") for n in (3, 4)] == [[11, 12], [21, 22, 23]]
    assert all(body["top_k"] == 4 and "engine" not in body for body in bodies.values())
    (started,) = stand_in.started
    words = started["words"]
    assert words[:4] == ["-m", "vllm.entrypoints.cli.main", "serve", "plain"]
    assert {
        "--host=127.0.0.1", "--dtype=float32", "--enforce-eager", "--no-enable-prefix-caching", "--seed=3",
        "--tensor-parallel-size=2", "--data-parallel-size=3", "--gpu-memory-utilization=0.5",
    } < set(words)  # fmt: skip
    assert '"temperature": 1.0' in next(word for word in words if word.startswith("--override-generation-config="))
    assert "VLLM_API_KEY" in started["names"]
    assert not {"OPENAI_API_KEY", "GROQ_API_KEY", "PYTHONPATH"} & set(started["names"])
    assert stand_in.running() == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_defaults_of_sampling_in_the_engine_are_told_to_have_no_effect(caplog: Any) -> None:
    said = {"temperature": 0.6, "max_new_tokens": 20}
    VllmServe(config_of("plain", extra_body={"engine": {"override_generation_config": said}}), Media())
    (told,) = (one.getMessage() for one in caplog.records)
    assert told.startswith("extra_body.engine.override_generation_config.temperature has no effect: ")


def test_a_key_is_made_for_each_server_and_stands_nowhere(stand_in: StandIn, tmp_path: Path, caplog: Any) -> None:
    keys = set()
    with caplog.at_level("DEBUG"):
        for number in range(2):
            config = config_of("plain")
            with Session(config, ledger=tmp_path / f"{number}.sqlite") as session:
                session.ask(requests_of(config, FreeText()))
                pid = stand_in.started[-1]["pid"]
                key = psutil.Process(pid).environ()["VLLM_API_KEY"]
                assert len(key) > 30
                assert key not in " ".join(psutil.Process(pid).cmdline())
                keys.add(key)
                written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
                assert not any(key.encode() in content for content in written)
    assert len(keys) == 2
    assert not any(key in caplog.text for key in keys)


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        ("memory", ServerGone, "out of memory; set serve.tensor_parallel_size.*No available memory for the cache"),
        ("architecture", ModelMissing, r"unknown architecture; .*\['NoSuchModel'\] are not supported"),
        ("option", Unsupported, "an option that this vLLM does not take.*--dtipe=float32"),
        ("missing", ModelMissing, "no such model.*lab/none is not a local folder"),
        ("killed", ServerGone, "out of memory; .*'EngineCore': -9"),
    ],
)
def test_a_server_that_ends_while_it_loads_is_one_line_and_its_log_stays(
    stand_in: StandIn, tmp_path: Path, model: str, kind: type[Exception], said: str
) -> None:
    config = config_of(model)
    with pytest.raises(kind, match=said) as error:
        ask_all(config, requests_of(config, *[FreeText()] * 8), ledger=tmp_path / "l.sqlite")
    (log,) = stand_in.logs()
    assert str(log) in one_line(error)
    assert len(stand_in.started) == 1
    assert stand_in.running() == []


def test_a_start_that_fails_leaves_no_server_for_who_never_closes(stand_in: StandIn) -> None:
    backend = VllmServe(config_of("plain", extra_body={"topk": 4}), Media())
    with pytest.raises(Unsupported):
        asyncio.run(backend.open())
    assert stand_in.running() == []


@pytest.mark.slow
def test_a_server_that_hangs_while_it_loads_is_ended_after_patience_s(stand_in: StandIn, tmp_path: Path) -> None:
    config = config_of("hangs", patience_s=1.0)
    with pytest.raises(ServerGone, match=r"loading, and no word for 1 s \(patience_s\)") as error:
        ask_all(config, requests_of(config, FreeText()), ledger=tmp_path / "l.sqlite")
    assert one_line(error).endswith(str(stand_in.logs()[0]))
    assert stand_in.running() == []


@pytest.mark.slow
def test_a_slow_start_says_how_far_it_is(stand_in: StandIn, tmp_path: Path) -> None:
    config, looks = config_of("slow"), list[Progress]()
    with Session(config, ledger=tmp_path / "l.sqlite", on_progress=looks.append) as session:
        (waiting,) = {session._annotator.backend}
        said = set()
        thread = threading.Thread(target=lambda: session.ask(requests_of(config, FreeText())))
        thread.start()
        while thread.is_alive():
            said.add(re.sub(r" \(.*", "", str(getattr(waiting, "waiting", None))))
            time.sleep(0.02)
    stages = {"downloading 41 %", "loading 50 %", "compiling"}
    assert {f"vllm serve: {stage}" for stage in stages} <= said, said
    assert any(str(look.waiting).startswith("vllm serve: ") for look in looks)
    assert stand_in.answered == ["? 0"]


@pytest.mark.slow
def test_a_port_that_is_taken_meanwhile_is_left_for_another(stand_in: StandIn, tmp_path: Path) -> None:
    config = config_of("taken")
    assert ask_all(config, requests_of(config, FreeText()), ledger=tmp_path / "l.sqlite").answered == 1
    assert len({word for one in stand_in.started for word in one["words"] if word.startswith("--port=")}) == 2


@pytest.mark.slow
def test_a_server_that_crashes_is_started_again_and_nothing_is_asked_twice(stand_in: StandIn, tmp_path: Path) -> None:
    config = config_of("crashes-5", max_concurrency=1)
    report = ask_all(config, requests_of(config, *[FreeText()] * 9), ledger=tmp_path / "l.sqlite")
    assert report.answered == 9
    assert sorted(stand_in.answered) == [f"? {n}" for n in range(9)]
    assert len(stand_in.started) == 3  # four answers each
    assert stand_in.running() == []


@pytest.mark.slow
def test_a_server_that_crashes_again_and_again_stops_the_build_which_goes_on_later(
    stand_in: StandIn, tmp_path: Path
) -> None:
    config = config_of("crashes-3", max_concurrency=1)
    requests = requests_of(config, *[FreeText()] * 12)
    with pytest.raises(ServerGone, match="ended with code 1: RuntimeError: CUDA error: an illegal memory access"):
        ask_all(config, requests, ledger=tmp_path / "l.sqlite")
    assert len(stand_in.started) == 4
    assert len(stand_in.answered) == 8
    assert ask_all(config, requests, ledger=tmp_path / "l.sqlite").from_ledger == 8
    assert sorted(stand_in.answered) == sorted({*stand_in.answered})


def test_a_server_that_crashes_before_its_first_answer_stops_the_build(stand_in: StandIn, tmp_path: Path) -> None:
    config = config_of("crashes-1", max_concurrency=4)
    with pytest.raises(ServerGone, match="an illegal memory access"):
        ask_all(config, requests_of(config, *[FreeText()] * 4), ledger=tmp_path / "l.sqlite")
    assert len(stand_in.started) == 1


@pytest.mark.slow
def test_a_server_that_does_not_end_in_order_is_killed(stand_in: StandIn, tmp_path: Path) -> None:
    config = config_of("stubborn")
    assert ask_all(config, requests_of(config, FreeText()), ledger=tmp_path / "l.sqlite").answered == 1
    assert stand_in.running() == []


PARENT = """
import sys
from earmark.tasks.annotation.session import Session
from tests.annotation.test_vllm_serve import config_of, requests_of, FreeText
config = config_of(sys.argv[1])
with Session(config, ledger=sys.argv[2]) as session:
    session.ask(requests_of(config, FreeText()))
    print("answered", flush=True)
    sys.stdin.read()
"""


def parent_of(model: str, ledger: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "deploy/import")])
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, model, str(ledger)],
        env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("model", ["plain", "stubborn", "hangs"])
def test_a_killed_build_leaves_no_server(stand_in: StandIn, tmp_path: Path, model: str) -> None:
    parent = parent_of(model, tmp_path / "l.sqlite")
    until(lambda: stand_in.started and (model == "hangs" or stand_in.answered))
    assert len(stand_in.running()) == 2
    parent.kill()
    parent.communicate()
    until(lambda: stand_in.running() == [], 2 + SLACK_S)


@pytest.mark.slow
def test_what_a_build_and_its_guard_left_behind_is_ended_before_the_next_server(
    stand_in: StandIn, tmp_path: Path
) -> None:
    parent = parent_of("plain", tmp_path / "l.sqlite")
    until(lambda: stand_in.answered)
    (guard,) = psutil.Process(parent.pid).children()
    for process in (guard, psutil.Process(parent.pid)):
        process.kill()
    parent.communicate()
    until(lambda: len(stand_in.running()) == 1, SLACK_S)  # the server died with its guard, what it started lives on
    other = parent_of("plain", tmp_path / "other.sqlite")
    until(lambda: len(stand_in.answered) == 2)
    until(lambda: len(stand_in.running()) == 2, SLACK_S)  # the other's alone
    other.communicate()
    assert stand_in.running() == []


def test_answers_of_the_engine_in_the_process_are_taken_and_no_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release's ledger answers what today's rules accept, though its parser was another."""
    monkeypatch.delenv(VARIABLE, raising=False)
    made = release(tmp_path, "asks")
    folder = made.folder / "asks"
    ledger = Path(shutil.copy(made.ledger("asks"), folder / "ledger.sqlite"))
    with closing(sqlite3.connect(ledger)) as held:
        held.execute("UPDATE requests SET parser = parser - 1")
        held.commit()
    asked, attempts = 0, paid(folder)["attempts"]
    for name in ("offline", "tuned"):
        config = AnnotatorConfig.model_validate(asks.MODELS[name])
        requests = asks.requests_of(config, folder)
        with Session(config, ledger=ledger, media=Media(load_audio=Encoder())) as session:
            known = [one for one, held in zip(requests, session.known(requests), strict=True) if held is not None]
            report = session.ask(known)
        assert report.exchanges == 0
        assert report.from_ledger == report.distinct == len(known)
        asked += len(known)
    assert asked > 20
    assert paid(folder)["attempts"] == attempts


def test_without_an_environment_the_line_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("plain")
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=r"EARMARK_VLLM, which is not set; run 'earmark doctor --vllm'"):
        ask_all(config, requests_of(config, FreeText()), ledger=tmp_path / "l.sqlite")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError, match=f"found no program at {tmp_path}"):
        ask_all(config, requests_of(config, FreeText()), ledger=tmp_path / "l.sqlite")


def test_lines_of_a_real_log_say_how_far_it_is() -> None:
    core = "(EngineCore pid=17668) INFO 11-25 09:41:11 "
    stages = {
        "(APIServer pid=9) WARNING 11-25 09:40:59 [vllm.py:1703] Enforce eager set, disabling torch.compile": None,
        "(APIServer pid=9) INFO 11-25 09:41:00 [base.py:280] Multi-modal warmup completed in 0.188s": None,
        core + "[core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m'": "loading",
        core + "[cpu_model_runner.py:68] Starting to load model m...": "loading",
        "Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00, 9.63it/s]": "loading 100 %",
        core + "[monitor.py:48] torch.compile took 12.31 s in total": "compiling",
    }
    assert {line: stage_of(line) for line in stages} == stages


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"base_url": "http://127.0.0.1:1/v1"}, "write openai:plain for one that runs already"),
        ({"inline_batch": 4}, "inline_batch: vllm: batches by itself; set max_concurrency"),
        ({"annotator": "openai:m", "serve": {"max_num_seqs": 4}}, "'openai:m' has none"),
        ({"serve": {"dtype": "float16"}}, "serve.dtype"),
    ],
)
def test_options_without_a_meaning_are_refused_in_one_line(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config_of("plain", **values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"extra_body": {"engine": {"host": "0.0.0.0"}}}, r"extra_body\.engine\.host"),
        ({"extra_body": {"engine": {"api-key": "x"}}}, r"extra_body\.engine\.api_key"),
        (
            {"extra_body": {"engine": {"max_model_len": 9}}, "serve": {"max_model_len": 9}},
            "max_model_len: expected in serve or in extra_body.engine, found in both",
        ),
        ({"annotator": "vllm:--host=0.0.0.0"}, "expected vllm: and a model's name or folder"),
    ],
)
def test_options_that_the_backend_sets_itself_are_refused(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    config = config_of("plain", **values)
    with pytest.raises(ConfigError, match=said):
        ask_all(config, requests_of(config, FreeText()), ledger=tmp_path / "l.sqlite")


def test_a_field_that_the_server_does_not_know_is_no_field_that_it_leaves_out(
    stand_in: StandIn, tmp_path: Path
) -> None:
    config = config_of("plain", extra_body={"topk": 4})
    with pytest.raises(Unsupported, match=r"extra_body\.topk: this vLLM knows no such field"):
        ask_all(config, requests_of(config, FreeText()), ledger=tmp_path / "l.sqlite")
    assert stand_in.running() == []


def test_a_word_of_several_tokens_is_a_bad_request(stand_in: StandIn, tmp_path: Path) -> None:
    config = config_of("plain")
    report = ask_all(config, requests_of(config, YesNo("two words", "No")), ledger=tmp_path / "l.sqlite")
    assert report.reasons() == {"bad_request": 1}
