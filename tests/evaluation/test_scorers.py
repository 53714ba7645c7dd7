"""`earmark eval score --scorer`: numbers of a callable, an ONNX file and a server, each clip's once."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, EarmarkError, InputError
from earmark.schemas.questions import Audio
from earmark.tasks.annotation.backend import Media, check_annotator
from earmark.tasks.annotation.errors import BadAnswer
from earmark.tasks.annotation.scorer import ScorerInput, as_json, identity
from earmark.tasks.evaluation.entries import Entry, borda_points
from earmark.tasks.evaluation.leaderboard import rank_submissions
from earmark.tasks.evaluation.scorers import clip_scores
from earmark.tasks.pipeline.scoring import read_scorers
from earmark.tasks.store.versions import Store, Version
from tests.conftest import ROOT
from tests.evaluation.test_score import RATE, built, generate, prompts_of, sha256, store

__all__ = ["built", "store"]  # fixtures

PACKAGE = """
import time
from pathlib import Path
import numpy as np

CALLS = Path(__file__).with_name("calls.txt")

def score(samples, rate):
    with CALLS.open("a") as file:
        file.write(f"{rate} {samples.shape} {samples.dtype}\\n")
    time.sleep(WAIT_S)
    level = float(np.sqrt(np.mean(samples.astype(float) ** 2)))
    if level > 0.5:
        raise RuntimeError("too loud\\nfor me")
    return {"rms": np.float32(level), "peak": np.array([abs(samples).max()]), "spare": "not wanted"}

class Peak:
    made = 0
    def __init__(self):
        type(self).made += 1
    def __call__(self, samples, rate):
        return {"top": abs(samples).max()}
"""


RMS = 'model = "scorer:lab_scorer.quality:score"\nversion = "1"\nscores = ["rms", "peak"]\n'
TOP = 'model = "scorer:lab_scorer.quality:Peak"\nversion = "1"\nscores = ["top"]\nhearing = {longest_s = 0.1}\n'


RECEIVED = """
SELECT count(DISTINCT requests.id) FROM requests JOIN attempts ON attempts.request_id = requests.id
WHERE model LIKE 'scorer:%' AND raw IS NOT NULL
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's package `lab_scorer`, which notes its calls; gives the notes."""
    folder = tmp_path / "site/lab_scorer"
    write_package(folder)
    monkeypatch.syspath_prepend(str(folder.parent))
    yield folder / "calls.txt"
    for name in [name for name in sys.modules if name.startswith("lab_scorer")]:
        del sys.modules[name]


def write_package(folder: Path, wait_s: float = 0.0) -> None:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "quality.py").write_text(PACKAGE.replace("WAIT_S", str(wait_s)))


def scorer_file(folder: Path, text: str = "") -> Path:
    path = folder / "rms.toml"
    path.write_text(text or RMS)
    return path


def run(store: Store, *words: str | Path, verb: str = "score") -> Any:
    done = CliRunner().invoke(
        app, ["eval", verb, "music-prompts", "--json", "--store", str(store.root), *map(str, words)]
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def calls(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


def levels_of(clips: dict[str, Path]) -> dict[str, float]:
    return {name: float(np.sqrt(np.mean(soundfile.read(path)[0] ** 2))) for name, path in clips.items()}


def mean_level(clips: dict[str, Path]) -> float:
    return float(np.mean([*levels_of(clips).values()]))


def heard(clips: dict[str, Path]) -> dict[str, ScorerInput]:
    return {name: ScorerInput(Audio(sha256(path), str(path))) for name, path in clips.items()}


def louder(folder: Path, version: Version, seed: int, factor: float) -> dict[str, Path]:
    clips = generate(folder, version, seed)
    for path in clips.values():
        soundfile.write(path, factor * soundfile.read(path)[0], RATE)
    return clips


@pytest.mark.slow
def test_a_callable_scores_each_clip_once(
    built: tuple[Version, Path], store: Store, package: Path, tmp_path: Path
) -> None:
    """Its numbers are those measured here; scoring again calls nothing, a further system costs its own clips."""
    version, count = built[0], len(prompts_of(built[0]))
    ours, theirs = generate(tmp_path / "ours", version, 1), louder(tmp_path / "theirs", version, 2, 1.5)
    words = ["--scorer", scorer_file(tmp_path)]
    plan = run(store, "-g", tmp_path / "ours", "--dry-run", *words)["asks"]
    assert [(one["to_ask"], one["from_ledger"]) for one in plan] == [(count, 0)]
    assert calls(package) == []
    facts = run(store, "-g", tmp_path / "ours", *words)
    assert calls(package) == [f"16000 ({RATE // 2},) float32"] * count
    levels = levels_of(ours)
    found = facts["groups"][0]["scores"]["rms"]
    assert found["value"] == pytest.approx(np.mean([*levels.values()]), rel=1e-3)
    assert found["low"] < found["value"] < found["high"]
    rows = {row["id"]: row for row in pq.read_table(Path(facts["folder"]) / "clips.parquet").to_pylist()}
    for name, level in levels.items():
        scores = {one["name"]: one["value"] for one in rows[name]["scores"]}
        peak = abs(soundfile.read(ours[name])[0]).max()
        assert scores == {"rms": pytest.approx(level, abs=1e-4), "peak": pytest.approx(peak, abs=1e-4)}
        assert len(rows[name]["request_keys"]) == 1
    strict = [levels[name] for name, row in rows.items() if "style: strict" in row["groups"]]
    of_group = next(one for one in facts["groups"] if one["group"] == "style: strict")
    assert of_group["scores"]["rms"]["value"] == pytest.approx(np.mean(strict), rel=1e-3)
    again = run(store, "-g", tmp_path / "ours", *words)
    assert {**again, "folder": ""} == {**facts, "folder": ""}
    assert len(calls(package)) == count
    run(store, "-g", tmp_path / "theirs", *words)
    assert len(calls(package)) == 2 * count
    board = run(store, "all", verb="rank")
    assert [row["scores"]["rms"]["value"] for row in board["groups"][0]["rows"]] == [
        pytest.approx(mean_level(clips), rel=1e-3) for clips in (ours, theirs)
    ]
    gap = next(one for one in board["differences"] if one["metric"] == "rms")
    assert gap["high"] < 0
    assert gap["p_holm"] < 0.01
    assert {one["points"] for one in board["ranking"]} == {0}, "no score counts in the ranks unless its config says so"
    page = (Path(board["folder"]) / "README.md").read_text("utf-8")
    assert "| system | FAD | FAD∞ | KAD | CLAP | CCS | rms | peak |" in page
    assert page.count("\\]") >= 6, "intervals"
    assert "(score-rms.svg)" in page
    assert (Path(board["folder"]) / "score-rms.svg").read_text("utf-8").count("<circle") == 2


@pytest.mark.slow
def test_scores_count_in_the_ranks_where_the_config_says_so(
    built: tuple[Version, Path], store: Store, package: Path, tmp_path: Path
) -> None:
    for number, name in enumerate(("soft", "mid", "loud")):
        louder(tmp_path / name, built[0], number, 1 + number)
    for ranked, winner in (("rms", "loud"), ("peak", "soft")):
        path = scorer_file(tmp_path, f'{RMS}ranked = ["{ranked}"]\nlower = ["peak"]\n')
        for name in ("soft", "mid", "loud"):
            run(store, "-g", tmp_path / name, "--scorer", path)
        board = run(store, "all", verb="rank")
        assert [one["points"] for one in board["ranking"]] == [2, 1, 0]
        assert board["ranking"][0]["system"] == winner
    assert len(calls(package)) == 3 * len(prompts_of(built[0])), "what counts is no other question"
    run(store, "-g", tmp_path / "soft", "--scorer", scorer_file(tmp_path, RMS.replace('"1"', '"2"')))
    assert len(calls(package)) == 4 * len(prompts_of(built[0])), "another version scores anew"
    with pytest.raises(InputError, match="different --scorer"):
        rank_submissions(built[0], store, ["all"], None, None)


def test_further_measures_have_points_of_their_own() -> None:
    """Against the same ranks given as CLAP scores: a further measure counts as one of the three does."""
    values = [0.3, 0.1, 0.2]
    as_more = [Entry(str(n), None, None, None, more={"x": value}) for n, value in enumerate(values)]
    as_clap = [Entry(str(n), None, value, None) for n, value in enumerate(values)]
    assert borda_points(as_more) == borda_points(as_clap) == {"0": 2, "1": 0, "2": 1}
    both = [one._replace(clap=-value) for one, value in zip(as_more, values, strict=True)]
    assert {*borda_points(both).values()} == {2}
    with pytest.raises(ValueError, match="expected x of every entry, or of none"):
        borda_points([*as_more, Entry("3", None, None, None)])


def test_a_clip_without_a_score_is_named(
    built: tuple[Version, Path], store: Store, package: Path, tmp_path: Path
) -> None:
    """What a callable raises for a clip leaves that clip without a score, and the rest scored; it is tried again."""
    ours = generate(tmp_path / "ours", built[0], 1)
    bad = [*ours][3]
    soundfile.write(ours[bad], np.full(RATE, 0.9), RATE)
    words = ["-g", tmp_path / "ours", "--scorer", scorer_file(tmp_path)]
    facts = run(store, *words)
    told = facts["unscored"]["rms"]
    assert (told["clips"], told["first"]) == (1, bad)
    assert told["why"].endswith("raised RuntimeError: too loud for me")
    assert facts["groups"][0]["scores"]["rms"]["clips"] == len(ours) - 1
    spoken = CliRunner().invoke(app, ["eval", "score", "music-prompts", "--store", str(store.root), *map(str, words)])
    assert f"clips without a score 'rms': 1, the first is '{bad}'" in " ".join(spoken.stdout.split())
    assert len(calls(package)) == len(ours) + 1
    generate(tmp_path / "theirs", built[0], 2)
    run(store, "-g", tmp_path / "theirs", "--scorer", scorer_file(tmp_path))
    with pytest.raises(InputError, match=f"1 of {len(ours)} clips of 'ours' have no score 'rms', .* '{bad}'"):
        rank_submissions(built[0], store, ["all"], None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": math.nan, "b": 1}, "score 'a': expected a finite number, found nan"),
        ({"a": 1, "b": -math.inf}, "score 'b': expected a finite number, found -inf"),
        ({"a": 1}, "expected the score 'b', found a"),
        ({}, "expected the score 'a', found none"),
        ([1, 2], "expected numbers by name, found list"),
        (0.5, "expected numbers by name, found float"),
        ({"a": np.ones(2), "b": 1}, "score 'a': expected one number, found array"),
        ({"a": "7", "b": 1}, "score 'a': expected one number, found '7'"),
        ({"a": None, "b": 1}, "score 'a': expected one number, found None"),
        ({"a": True, "b": 1}, "score 'a': expected one number, found True"),
        ({"a": np.bool_(True), "b": 1}, "score 'a': expected one number, found np.True_"),
    ],
)
def test_what_is_no_score_is_a_reject(given: Any, message: str) -> None:
    with pytest.raises(BadAnswer) as fault:
        as_json(given, ["a", "b"])
    assert str(fault.value).startswith(message)


def test_a_scorer_that_scores_nothing_ends_the_run(
    built: tuple[Version, Path], store: Store, package: Path, tmp_path: Path
) -> None:
    ours = generate(tmp_path / "ours", built[0], 1)
    path = scorer_file(tmp_path, RMS.replace('"peak"', '"none"'))
    (scorer,) = read_scorers([path])
    with pytest.raises(EarmarkError, match=r"scored no clip: '.+': expected the score 'none', found rms, peak, spare"):
        clip_scores(heard(ours), [scorer], store)
    assert len(calls(package)) == len(ours)
    with pytest.raises(EarmarkError, match="scored no clip"):
        clip_scores(heard(ours), [scorer], store)
    assert len(calls(package)) == len(ours), "an answer that does not fit is an outcome, not asked for again"


def test_lines_of_a_command_that_say_nothing_sure_are_no_scores(store: Store, tmp_path: Path) -> None:
    """Two lines of one clip; bytes that are no text, beside a good line after a byte-order mark."""
    (tmp_path / "odd.py").write_text(
        "import json, sys\n"
        "rows = [json.loads(line) for line in open(sys.argv[1])]\n"
        "lines = [json.dumps({'id': row['id'], 'level': place}).encode() for place, row in enumerate(rows)]\n"
        "twice = json.dumps({'id': rows[1]['id'], 'level': 9}).encode()\n"
        "open(sys.argv[2], 'wb').write(b'\\xef\\xbb\\xbf' + b'\\n'.join([*lines, twice, b'\\xff\\xfe']))\n"
    )
    (tmp_path / "odd.toml").write_text(
        f'model = "scorer:odd"\nversion = "1"\nscores = ["level"]\ncommand = [{json.dumps(sys.executable)}, "odd.py"]\n'
    )
    paths = {name: tmp_path / f"{name}.wav" for name in "ab"}
    for level, path in enumerate(paths.values(), 1):
        soundfile.write(path, np.full(1600, level / 10), 16_000)
    found = clip_scores(heard(paths), read_scorers([tmp_path / "odd.toml"]), store)
    scores = sorted((one.value is None, one.value, one.detail or "") for (one,) in found.values())
    assert scores[0] == (False, 0.0, "")
    assert scores[1][:2] == (True, None)
    assert "expected one line of scores for id '1', found more" in scores[1][2]


def test_a_class_is_made_once(built: tuple[Version, Path], store: Store, package: Path, tmp_path: Path) -> None:
    ours = heard(generate(tmp_path / "ours", built[0], 1))
    scores = clip_scores(ours, read_scorers([scorer_file(tmp_path, TOP)]), store)
    import lab_scorer.quality  # type: ignore[import-not-found]

    assert lab_scorer.quality.Peak.made == 1
    for name, (one,) in scores.items():
        assert one.value == pytest.approx(abs(soundfile.read(ours[name].clip.path)[0][: RATE // 10]).max(), abs=1e-4)


class Scoring(BaseHTTPRequestHandler):
    """A server that measures the level of the sound that it gets."""

    asked: list[dict[str, Any]]
    refuses: int
    answer: str

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append({**body, "path": self.path, "key": self.headers.get("Authorization")})
        if type(self).refuses:
            type(self).refuses -= 1
            self.send_error(503)
            return
        samples, _ = soundfile.read(io.BytesIO(base64.b64decode(body["audio"]["data"])))
        content = type(self).answer.replace("LEVEL", str(float(np.sqrt(np.mean(samples**2))))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextmanager
def serving(
    answer: str = '{"level": LEVEL, "took_s": 1}', refuses: int = 0, kind: type[Scoring] = Scoring
) -> Iterator[tuple[str, Any]]:
    kind = type("Kind", (kind,), {"asked": [], "refuses": refuses, "answer": answer})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", kind
        server.shutdown()


def served(folder: Path, url: str) -> Path:
    text = f"""model = "loud"
version = "3"
scores = ["level"]
[models.loud]
annotator = "scorer:loudness"
base_url = "{url}"
patience.retry_base_s = 0.01
sampling.extra_body = {{ axis = "all" }}
"""
    return scorer_file(folder, text)


@pytest.mark.slow
def test_a_server_scores_each_clip_once(
    built: tuple[Version, Path], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it fails at first, and when it moves to another address; a key of the environment stays here."""
    monkeypatch.setenv("OPENAI_API_KEY", "not for this server")
    ours = generate(tmp_path / "ours", built[0], 1)
    with serving(refuses=2) as (url, server):
        facts = run(store, "-g", tmp_path / "ours", "--scorer", served(tmp_path, url))
        assert len(server.asked) == len(ours) + 2
        assert facts["groups"][0]["scores"]["level"]["value"] == pytest.approx(mean_level(ours), rel=1e-3)
        one = server.asked[0]
        assert (one["path"], one["model"], one["scores"], one["axis"]) == ("/score", "loudness", ["level"], "all")
        assert {asked["key"] for asked in server.asked} == {None}
    with serving() as (url, server):
        assert run(store, "-g", tmp_path / "ours", "--scorer", served(tmp_path, url))["groups"] == facts["groups"]
        assert server.asked == []


@pytest.mark.parametrize("answer", ['{"level": NaN}', '{"other": 1}', "[LEVEL]", '{"level": 1e999}', "no JSON"])
def test_a_server_that_gives_no_number_is_asked_once(
    built: tuple[Version, Path], store: Store, tmp_path: Path, answer: str
) -> None:
    clips = dict([*heard(generate(tmp_path / "ours", built[0], 1)).items()][:2])
    with serving(answer) as (url, server):
        for _ in range(2):
            with pytest.raises(
                EarmarkError, match=r"scorer:loudness scored no clip: '.+': .*(expected|required|not of type)"
            ):
                clip_scores(clips, read_scorers([served(tmp_path, url)]), store)
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('model = "openai:gpt"\nversion = "1"\nscores = ["a"]', "begins with scorer:"),
        ('model = "scorer:lab"\nversion = "1"\nscores = ["a"]', "scorer:package.module:callable"),
        ('model = "scorer:os:listdir"\nscores = ["a"]', "version is missing"),
        ('model = "scorer:m.onnx"\nversion = "1"\nscores = ["a"]', "an ONNX file goes by its digest"),
        ('model = "scorer:nowhere.at:all"\nversion = "1"\nscores = ["a"]', "No module named 'nowhere'"),
        ('model = "scorer:math:nothing"\nversion = "1"\nscores = ["a"]', "has no attribute 'nothing'"),
        ('model = "scorer:math:pi"\nversion = "1"\nscores = ["a"]', "expected a callable, found float"),
        ('model = "scorer:math:sqrt"\nversion = "1"\nscores = ["clap"]', "'clap' is a word of `earmark"),
        ('model = "scorer:math:sqrt"\nversion = "1"\nscores = ["system"]', "'system' is a word of"),
        ('model = "scorer:math:sqrt"\nversion = "1"\nscores = ["a", "a"]', "each name once"),
        ('model = "scorer:math:sqrt"\nversion = "1"\nscores = ["a"]\nranked = ["b"]', "those of lower and ranked"),
        ('model = "scorer:math:sqrt"\nversion = "1"\nscores = []', "scores"),
    ],
)
def test_a_scorer_that_cannot_be_is_refused_before_anything_is_measured(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as fault:
        read_scorers([scorer_file(tmp_path, text)])
    assert message in str(fault.value)
    assert "\n" not in str(fault.value)


def test_two_scorers_cannot_give_one_score(tmp_path: Path) -> None:
    path = scorer_file(tmp_path, 'model = "scorer:math:sqrt"\nversion = "1"\nscores = ["a"]')
    with pytest.raises(ConfigError, match="two scorers give a score 'a'"):
        read_scorers([path, path])


def test_a_build_cannot_name_a_callable() -> None:
    """Configs of builds come as parameters of deployments too: they load no code by name."""
    with pytest.raises(ConfigError, match="answers no questions"):
        check_annotator(AnnotatorConfig(annotator="scorer:os:system"))
    assert Media().measure is None


@pytest.mark.slow
def test_a_scoring_that_was_killed_goes_on(built: tuple[Version, Path], store: Store, tmp_path: Path) -> None:
    count = len(generate(tmp_path / "ours", built[0], 1))
    write_package(tmp_path / "site/lab_scorer", wait_s=0.3)
    notes = tmp_path / "site/lab_scorer/calls.txt"
    command = [
        sys.executable,
        "-m",
        "earmark",
        "eval",
        "score",
        "music-prompts",
        "--store",
        str(store.root),
    ]
    command += ["-g", str(tmp_path / "ours"), "--scorer", str(scorer_file(tmp_path))]
    places = os.pathsep.join(map(str, (ROOT, ROOT / "deploy/import", tmp_path / "site")))
    environment = {**os.environ, "PYTHONPATH": places}
    with subprocess.Popen(command, env=environment) as killed:
        while len(calls(notes)) < 5:
            assert killed.poll() is None
            time.sleep(0.05)
        killed.kill()
    assert not (store.root / "evaluations").exists()
    before = len(calls(notes))
    with closing(sqlite3.connect(store.root / "ledger.sqlite")) as ledger:
        (kept,) = ledger.execute(RECEIVED).fetchone()
    assert before - 2 <= kept < count, "the clip at hand, and the one whose score was being written, at most"
    subprocess.run(command, env=environment, check=True)
    assert len(calls(notes)) == before + count - kept, "what is in the ledger is not scored again"


def make_model(path: Path, *, outputs: dict[str, float], rank: int = 2) -> Path:
    """An ONNX model whose outputs are the RMS of the samples times a factor each."""
    from onnx import TensorProto, helper, save_model

    shape: list[Any] = ["frames"] if rank == 1 else [1, "frames"]
    nodes = [
        helper.make_node("Mul", ["samples", "samples"], ["squares"]),
        helper.make_node("ReduceMean", ["squares"], ["mean"], keepdims=0),
        helper.make_node("Sqrt", ["mean"], ["root"]),
    ]
    factors = [helper.make_tensor(f"times_{name}", TensorProto.FLOAT, [], [value]) for name, value in outputs.items()]
    nodes += [helper.make_node("Mul", ["root", f"times_{name}"], [name]) for name in outputs]
    gives = [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in outputs]
    takes = [helper.make_tensor_value_info("samples", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "rms", takes, gives, factors)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


@pytest.mark.models
@pytest.mark.parametrize("rank", [1, 2])
def test_an_onnx_file_scores_each_clip_once(
    built: tuple[Version, Path], store: Store, tmp_path: Path, rank: int
) -> None:
    """By the file's content: moved, it scores nothing anew; with another factor, it scores all."""
    ours = generate(tmp_path / "ours", built[0], 1)
    make_model(tmp_path / "m.onnx", outputs={"level": 1.0, "half": 0.5}, rank=rank)
    path = scorer_file(tmp_path, 'model = "scorer:m.onnx"\nscores = ["level", "half"]\n')
    facts = run(store, "-g", tmp_path / "ours", "--scorer", path)
    rows = pq.read_table(Path(facts["folder"]) / "clips.parquet").to_pylist()
    for row in rows:
        level = levels_of(ours)[row["id"]]
        values = {one["name"]: one["value"] for one in row["scores"]}
        assert values == {"level": pytest.approx(level, abs=1e-4), "half": pytest.approx(level / 2, abs=1e-4)}
    assert sha256(tmp_path / "m.onnx") in facts["measured_by"]["scores"]["level"]["scorer"]
    (tmp_path / "m.onnx").rename(tmp_path / "moved.onnx")
    moved = scorer_file(tmp_path, 'model = "scorer:moved.onnx"\nscores = ["level", "half"]\n')
    plan = run(store, "-g", tmp_path / "ours", "--scorer", moved, "--dry-run")["asks"]
    assert plan[0]["to_ask"] == 0
    make_model(tmp_path / "moved.onnx", outputs={"level": 2.0, "half": 0.5})
    plan = run(store, "-g", tmp_path / "ours", "--scorer", moved, "--dry-run")["asks"]
    assert plan[0]["to_ask"] == len(ours)


@pytest.mark.models
def test_an_onnx_file_that_does_not_fit(built: tuple[Version, Path], store: Store, tmp_path: Path) -> None:
    clips = dict([*heard(generate(tmp_path / "ours", built[0], 1)).items()][:1])
    make_model(tmp_path / "m.onnx", outputs={"level": 1.0, "half": 0.5})
    wrong = scorer_file(tmp_path, 'model = "scorer:m.onnx"\nscores = ["level", "quarter"]\n')
    with pytest.raises(EarmarkError, match="expected the score 'quarter', found level, half"):
        clip_scores(clips, read_scorers([wrong]), store)
    make_model(tmp_path / "one.onnx", outputs={"output": 2.0})
    one = scorer_file(tmp_path, 'model = "scorer:one.onnx"\nscores = ["twice"]\n')
    (score,) = clip_scores(clips, read_scorers([one]), store)[next(iter(clips))]
    level = mean_level({name: Path(clip.clip.path) for name, clip in clips.items()})
    assert score.value == pytest.approx(2 * level, abs=1e-4)
    assert score.request_key
    assert identity(read_scorers([one])[0]) == f"scorer:onnx@{sha256(tmp_path / 'one.onnx')}"
    two = scorer_file(tmp_path, 'model = "scorer:one.onnx"\nscores = ["twice", "thrice"]\n')
    with pytest.raises(EarmarkError, match="expected 2 numbers in 'output', found 1"):
        clip_scores(clips, read_scorers([two]), store)
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"bad\.onnx: not a model of onnxruntime"):
        read_scorers([scorer_file(tmp_path, 'model = "scorer:bad.onnx"\nscores = ["a"]\n')])


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises((ConfigError, InputError)) as fault:
        read_scorers([tmp_path / "none.toml"])
    assert "config not found" in str(fault.value)
