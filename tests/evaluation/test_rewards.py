"""`earmark eval reward-server`: a scorer's numbers and a judge's probabilities over HTTP, and the guide's trainers."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile
import uvicorn
from typer.testing import CliRunner

from earmark.flows.command import reward_cli
from earmark.flows.command.cli import app
from earmark.flows.command.reward_cli import make_reward_app
from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Examinee
from earmark.schemas.instruction_rubrics import CORPUS
from earmark.schemas.mos_preferences import CORPUS as MOS
from earmark.tasks.evaluation.rewards import Rewarder, judge_rewarder, scorer_rewarder
from earmark.tasks.evaluation.samples import MeasurementOptions
from earmark.tasks.evaluation.scorers import clip_scores
from earmark.tasks.pipeline.scoring import read_scorers
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import LocalServer, asked
from tests.conftest import ROOT
from tests.evaluation.test_scorers import RMS, calls, heard, package, scorer_file
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer

__all__ = ["package"]  # fixture

GUIDE = (ROOT / "flows/command/reward-server.md").read_text("utf-8")
ASK, VERL, TRL, SWIFT = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@contextmanager
def serving(rewarder: Rewarder, *roots: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(make_reward_app(rewarder, roots), log_config=None)  # its errors reach `caplog`
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def post(url: str, body: Any, kind: str = "application/json", **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": kind, **headers})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        content = error.read()
        return error.code, json.loads(content)["error"] if content.startswith(b"{") else content.decode()


@pytest.fixture
def clips(tmp_path: Path) -> dict[str, Path]:
    """Clips of known level; the last is one that the scorer of the package raises for."""
    paths = {}
    for name, level in (("soft", 0.1), ("mid", 0.2), ("loud", 0.3), ("bad", 0.9)):
        paths[name] = tmp_path / f"rollouts/{name}.wav"
        paths[name].parent.mkdir(exist_ok=True)
        soundfile.write(paths[name], level * np.sign(np.sin(np.arange(1600))), 16_000)
    return paths


def test_a_scorer_rewards_each_clip_once(clips: dict[str, Path], package: Path, tmp_path: Path) -> None:
    """By path and by bytes, with null for a clip that it fails on; and it is a scorer's server itself."""
    (scorer,) = read_scorers([scorer_file(tmp_path, RMS + 'lower = ["peak"]\n')])
    store = Store(tmp_path / "store")
    items: list[Any] = [{"audio": str(path)} for path in clips.values()]
    items[1] = {"audio": {"data": b64encode(clips["mid"].read_bytes()).decode(), "format": "wav"}}
    with scorer_rewarder(scorer, "rms", store) as rewarder, serving(rewarder, tmp_path / "rollouts") as url:
        for _ in range(2):
            status, given = post(f"{url}/rewards", {"items": items})
            assert status == 200
            assert given["rewards"] == [pytest.approx(level, abs=1e-3) for level in (0.1, 0.2, 0.3)] + [None]
            assert given["items"][3]["detail"].endswith("raised RuntimeError: too loud for me")
        assert len(calls(package)) == 4 + 1, "what raised is tried again, all else is kept"
        assert post(f"{url}/score", {"audio": items[1]["audio"], "model": "x"})[1]["rms"] == pytest.approx(
            0.2, abs=1e-3
        )
        assert post(f"{url}/score", items[3])[0] == 422
        text = 'model = "it"\nversion = "1"\nscores = ["rms"]\n[models.it]\nannotator = "scorer:here"\n'
        (again,) = read_scorers([scorer_file(tmp_path, f'{text}base_url = "{url}"\n')])
        (score,) = clip_scores(heard({"soft": clips["soft"]}), [again], store)["soft"]
        assert score.value == pytest.approx(0.1, abs=1e-3)
    with scorer_rewarder(scorer, "peak", store) as rewarder, serving(rewarder, tmp_path / "rollouts") as url:
        assert post(f"{url}/rewards", {"items": items[:1]})[1]["rewards"] == [pytest.approx(-0.1, abs=1e-3)]
    with (
        pytest.raises(ConfigError, match="expected one of the scorer's scores: rms, peak"),
        scorer_rewarder(scorer, None, store),
    ):
        pass


def test_what_cannot_be_rewarded_is_refused(clips: dict[str, Path], package: Path, tmp_path: Path) -> None:
    (scorer,) = read_scorers([scorer_file(tmp_path)])
    (tmp_path / "rollouts/out.wav").symlink_to(scorer_file(tmp_path))
    refused = [
        ({"items": [{"audio": "/etc/passwd"}]}, "item 0: audio: expected a file below --audio-root"),
        ({"items": [{"audio": str(tmp_path / "rollouts/../rms.toml")}]}, "expected a file below --audio-root"),
        ({"items": [{"audio": str(tmp_path / "rollouts/out.wav")}]}, "expected a file below --audio-root"),
        ({"items": [{"audio": str(tmp_path / "rollouts/none.wav")}]}, "No such file"),
        ({"items": [{"audio": {"data": "?", "format": "wav"}}]}, "expected a path or"),
        ({"items": [{"text": "no clip"}]}, "item 0: expected audio, found none of 'audio'"),
        ({"items": "no list"}, "expected a list of objects"),
        ([], "expected an object"),
    ]
    with (
        scorer_rewarder(scorer, "rms", Store(tmp_path / "store")) as rewarder,
        serving(rewarder, tmp_path / "rollouts") as url,
    ):
        for body, message in refused:
            status, said = post(f"{url}/rewards", body)
            assert status == 400
            assert message in said
        assert post(f"{url}/rewards", {"items": []})[1]["rewards"] == []
        assert post(f"{url}/rewards", {"items": []}, kind="text/plain")[0] == 400, "what any web page can send"
        assert post(f"{url}/rewards", {"items": []}, Host="evil.example")[0] == 400
    assert calls(package) == []


def chance(body: dict[str, Any]) -> float:
    """A judge's probability of yes: that of the digit in what it is asked."""
    content = body["messages"][-1]["content"]
    words = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
    digits = re.findall(r"chance (\d)", words)
    return int(digits[-1]) / 10


def judged(body: dict[str, Any]) -> dict[str, Any]:
    p = chance(body)
    listed = [{"token": word, "logprob": float(np.log(max(one, 1e-9)))} for word, one in (("Yes", p), ("No", 1 - p))]
    best = max(listed, key=lambda one: float(str(one["logprob"])))
    return {**best, "top_logprobs": listed}


@pytest.fixture
def judge() -> Iterator[Examinee]:
    with LocalServer(Faults()) as server:
        server.answer = lambda body, _: "Yes" if chance(body) > 0.5 else "No"
        server.first_token = lambda body, _: judged(body)
        yield Examinee(annotator="openai:judge", base_url=server.base_url, retry_base_s=0.01)


def test_a_rubric_judge_rewards_by_the_mean_of_its_items(
    clips: dict[str, Path], judge: Examinee, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trainer of the guide gets the same numbers for the same completions."""
    store = Store(tmp_path / "store")
    audio = [str(clips["soft"]), str(clips["loud"])]
    with (
        judge_rewarder(CORPUS, MeasurementOptions("alignment", "rubric"), judge, store) as rewarder,
        serving(rewarder, tmp_path) as url,
    ):
        questions = ["chance 9?", "chance 4?"]
        _, given = post(f"{url}/rewards", {"items": [{"audio": audio[0], "instruction": "x", "questions": questions}]})
        assert given["rewards"] == [pytest.approx(0.65)]
        assert given["items"][0]["scores"] == {"1": pytest.approx(0.9), "2": pytest.approx(0.4)}
        status, said = post(f"{url}/rewards", {"items": [{"audio": audio[0]}]})
        assert (status, said) == (400, "item 0: expected audio, questions, found none of 'questions'")
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "rewards.py").write_text(ASK.replace("http://127.0.0.1:8017", url))
        monkeypatch.delitem(sys.modules, "rewards", raising=False)
        plugin = ModuleType("swift.rewards")
        vars(plugin).update({"ORM": object, "orms": {}})
        monkeypatch.setitem(sys.modules, "swift", ModuleType("swift"))
        monkeypatch.setitem(sys.modules, "swift.rewards", plugin)
        verl, trl, swift = ({}, {}, {})  # type: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
        for code, names in ((VERL, verl), (TRL, trl), (SWIFT, swift)):
            exec(code, names)
        texts = ["chance 7", "chance 2"]
        expected = [pytest.approx(0.7), pytest.approx(0.2)]
        assert trl["follows_the_clip"](texts, audio=audio, prompts=[]) == expected
        assert (
            trl["follows_the_clip"]([[{"role": "assistant", "content": one}] for one in texts], audio=audio) == expected
        )
        assert plugin.orms["earmark"]()(texts, audios=[[one] for one in audio], messages=[]) == expected
        alone = [
            verl["compute_score"]("earmark", text, "{}", {"audios": [one]})
            for text, one in zip(texts, audio, strict=True)
        ]
        assert alone == expected
        monkeypatch.delitem(sys.modules, "rewards")


def test_a_critic_rewards_by_its_rating(clips: dict[str, Path], tmp_path: Path) -> None:
    """A mode that rates each clip of a pair by itself rates one clip; a mode that compares is refused."""
    store = Store(tmp_path / "store")
    with LocalServer(Faults()) as server:
        server.answer = lambda *_: "4"
        critic = Examinee(annotator="openai:critic", base_url=server.base_url, retry_base_s=0.01, yes_no="words")
        wish = MeasurementOptions("quality")
        with judge_rewarder(MOS, wish, critic, store) as rewarder, serving(rewarder, tmp_path) as url:
            assert post(f"{url}/rewards", {"items": [{"audio": str(clips["mid"])}]})[1]["rewards"] == [4.0]
        compares = MeasurementOptions("quality", "pair")
        with pytest.raises(ConfigError, match="rates no clip by itself"), judge_rewarder(MOS, compares, critic, store):
            pass


def test_a_critique_of_two_clips_is_rewarded(clips: dict[str, Path], tmp_path: Path) -> None:
    """Its clips are `a_audio` and `b_audio`; both must lie below a root."""
    store, two = Store(tmp_path / "store"), {"a_audio": str(clips["mid"]), "critique": "Clip 1 is louder."}
    with (
        LocalServer(Faults()) as server,
        judge_rewarder(MOS, MeasurementOptions("comparisons"), words_judge(server), store) as rewarder,
        serving(rewarder, tmp_path / "rollouts") as url,
    ):
        items = [two | {"b_audio": str(clips["soft"])}]
        assert post(f"{url}/rewards", {"items": items})[1]["rewards"] == [1.0]
        status, said = post(f"{url}/rewards", {"items": [two | {"b_audio": "/etc/hostname"}]})
        assert (status, said) == (400, "item 0: b_audio: expected a file below --audio-root, found '/etc/hostname'")


def test_the_command_says_what_it_lacks() -> None:
    for words, message in (([], "expected --scorer, or a CORPUS"), (["instruction-rubrics"], "model")):
        done = CliRunner().invoke(app, ["eval", "reward-server", *words])
        assert done.exit_code != 0
        assert message in f"{done.output}{done.exception}"


def words_judge(server: OpenAIServer) -> Examinee:
    server.answer = lambda *_: "Yes"
    return Examinee(annotator="openai:judge", base_url=server.base_url, retry_base_s=0.01, yes_no="words")


def test_words_of_another_form_are_refused_and_not_rewarded(
    clips: dict[str, Path], package: Path, tmp_path: Path
) -> None:
    """A text in place of a list of texts would be asked letter by letter; nothing is asked, and nothing falls over."""
    soft = {"audio": str(clips["soft"])}
    (scorer,) = read_scorers([scorer_file(tmp_path, RMS + 'takes = ["text", "lyrics"]\n')])
    store = Store(tmp_path / "store")
    with scorer_rewarder(scorer, "rms", store) as rewarder, serving(rewarder, tmp_path / "rollouts") as url:
        for words, message in (
            ({"text": ["a"]}, "item 0: text: expected text, found ['a']"),
            ({"text": float("nan")}, "item 0: text: expected text, found nan"),
            ({"text": "a", "lyrics": 3}, "item 0: lyrics: expected text, found 3"),
        ):
            assert post(f"{url}/rewards", {"items": [soft | words]}) == (400, message)
    assert calls(package) == []
    wish = MeasurementOptions("alignment", "rubric")
    with (
        LocalServer(Faults()) as server,
        judge_rewarder(CORPUS, wish, words_judge(server), store) as rewarder,
        serving(rewarder, tmp_path) as url,
    ):
        for words, message in (
            ({"questions": "chance 9?"}, "item 0: questions: expected a list of texts, found 'chance 9?'"),
            ({"questions": [{"q": 1}]}, "item 0: questions: expected a list of texts, found [{'q': 1}]"),
            ({"questions": ["?"], "language": 3}, "item 0: language: expected text, found 3"),
            ({"questions": ["?"], "language": "../en"}, "item 0: language: no prompt asks in '../en'"),
        ):
            assert post(f"{url}/rewards", {"items": [soft | words]}) == (400, message)
        assert asked(server) == 0
        status, given = post(f"{url}/rewards", {"items": [soft | {"questions": ["?"], "language": None}]})
        assert (status, given["rewards"]) == (200, [1.0])


def test_bodies_that_no_trainer_sends_are_refused_and_break_nothing(
    clips: dict[str, Path], package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    (scorer,) = read_scorers([scorer_file(tmp_path)])
    monkeypatch.setattr(reward_cli, "LARGEST_BYTES", 100_000)
    named = {"data": b64encode(clips["soft"].read_bytes()).decode(), "format": "w" * 5000}
    with (
        scorer_rewarder(scorer, "rms", Store(tmp_path / "store")) as rewarder,
        serving(rewarder, tmp_path / "rollouts") as url,
    ):
        host = url.removeprefix("http://")

        def sent(body: Any, kind: str = "application/json") -> tuple[int, Any]:
            with closing(http.client.HTTPConnection(host)) as connection:
                connection.request("POST", "/rewards", body, {"Content-Type": kind})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

        assert sent(b"[" * 50_000) == (400, {"error": "expected JSON"})
        too_large = (400, {"error": "expected at most 100,000 bytes; send a smaller batch, or paths of clips"})
        assert sent(b" " * 100_001) == too_large
        assert sent(iter([b" " * 50_000] * 3)) == too_large, "a body in chunks names no length"
        assert sent(b'{"items": []}', "Application/JSON ; charset=utf-8")[0] == 200
        assert post(f"{url}/rewards", {"items": [{"audio": named}]})[0] == 200
        leaving = socket.create_connection(host.split(":"))
        leaving.sendall(b"POST /rewards HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n")
        leaving.sendall(b"Content-Length: 99\r\n\r\n{")
        leaving.close()
        assert post(f"{url}/rewards", {"items": []})[0] == 200
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []
