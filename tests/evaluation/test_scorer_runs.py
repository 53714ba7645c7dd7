"""`earmark eval run --scorer`: a callable, a command and a server give the pairs of a version the same numbers."""

from __future__ import annotations

import base64
import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import ClipWindows
from earmark.tasks.annotation.scorer import windows_of
from earmark.tasks.evaluation.scorers import clip_scores
from earmark.tasks.pipeline.scoring import read_scorers
from earmark.tasks.store.versions import Store, Version
from tests.builds import rows_of
from tests.evaluation.test_evaluation import built
from tests.evaluation.test_scorers import Scoring, heard, scorer_file, serving
from tests.pseudo_preferences.music import RATE_HZ

__all__ = ["built"]  # fixture

PACKAGE = """
import json, sys
from pathlib import Path
import numpy as np
import soundfile

CALLS = Path(__file__).with_name("calls.txt")

def score(samples, rate, text, lyrics, reference):
    with CALLS.open("a") as file:
        file.write("called\\n")
    level = float(np.sqrt(np.mean(np.square(samples, dtype=float))))
    heard = 0.0 if reference is None else float(np.abs(reference[0]).max())
    return {"level": level, "words": len(text) + len(lyrics or "") + heard}

if __name__ == "__main__":
    clips, scores = map(Path, sys.argv[-2:])
    with scores.open("w") as out:
        for line in clips.read_text().splitlines():
            row = json.loads(line)
            reference = row["reference"] and soundfile.read(row["reference"], dtype="float32")
            given = score(*soundfile.read(row["audio"], dtype="float32"), row["text"], row["lyrics"], reference)
            print(json.dumps({"id": row["id"], **given}), file=out)
"""
TAKES = f"""scores = ["level", "words"]
hearing = {{ sample_rate_hz = {RATE_HZ} }}
takes = ["text", "lyrics", "reference"]
dimensions = {{ musicality = "level", alignment = "words" }}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's package `lab_pairs`, which counts its calls."""
    place = tmp_path / "site/lab_pairs"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("")
    (place / "quality.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(place.parent))
    yield place
    for name in [name for name in sys.modules if name.startswith("lab_pairs")]:
        del sys.modules[name]


class PairScoring(Scoring):
    """A server that scores as the package does."""

    def do_POST(self) -> None:
        from lab_pairs.quality import score  # type: ignore[import-not-found]

        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        clip, reference = (
            body[name] and soundfile.read(io.BytesIO(base64.b64decode(body[name]["data"])), dtype="float32")
            for name in ("audio", "reference")
        )
        content = json.dumps(score(*clip, body["text"], body["lyrics"], reference)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def measure(store: Path, *words: str | Path) -> Any:
    done = CliRunner().invoke(
        app, ["eval", "run", "pseudo-preferences", "--split", "all", "--json", "--store", str(store), *map(str, words)]
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["callable", "command", "server"])
def test_each_form_gives_pairs_the_numbers_of_their_clips_and_prompts(
    built: tuple[Version, Store], tmp_path: Path, folder: Path, form: str
) -> None:
    version, store = built[0], tmp_path / "store"
    shutil.copytree(built[1].root, store)
    with serving(kind=PairScoring) as (url, _):
        heads = {
            "callable": 'model = "scorer:lab_pairs.quality:score"\n',
            "command": f'model = "scorer:pairs"\ncommand = ["{sys.executable}", "site/lab_pairs/quality.py"]\n',
            "server": f'model = "it"\n[models.it]\nannotator = "scorer:pairs"\nbase_url = "{url}"\n',
        }
        head, table, tail = heads[form].partition("[models")
        path = scorer_file(tmp_path, f'{head}version = "1"\n{TAKES}{table}{tail}')
        plans = measure(store, "--scorer", path, "--dry-run")["asks"]
        assert not (folder / "calls.txt").exists()
        records = {one["evaluation"]: one for one in measure(store, "--scorer", path)}
        count = len((folder / "calls.txt").read_text().splitlines())
        assert count == plans[0]["to_ask"] > 0
        assert measure(store, "--scorer", path) == [*records.values()]
        assert len((folder / "calls.txt").read_text().splitlines()) == count, "each clip of a prompt is scored once"
    assert records.keys() == {"musicality", "alignment"}
    clips = {row["generation_id"]: soundfile.read(row["file"])[0] for row in clips_with_files(version, built[1])}
    pairs = {row["pair_id"]: row for row in rows_of(version, "pairs")}
    for row in pq.read_table(Path(records["musicality"]["folder"]) / "predictions.parquet").to_pylist():
        pair = pairs[row["id"]]
        a, b = (float(np.sqrt(np.mean(clips[pair[f"generation_{side}"]] ** 2))) for side in "ab")
        assert row["score"] == pytest.approx(a - b, abs=1e-6)
        assert row["choice"] == ("a" if a > b else "b")
        assert len(row["request_keys"]) == 2
    alignment = pq.read_table(Path(records["alignment"]["folder"]) / "predictions.parquet").to_pylist()
    assert {row["choice"] for row in alignment} == {"tie"}, "both clips of a pair have the prompt's words"
    assert records["musicality"]["mode"] == "level"


def clips_with_files(version: Version, store: Store) -> list[dict[str, Any]]:
    """The generations with their files in the pool beside the store."""
    rows = rows_of(version, "clips")
    return [{**row, "file": next((store.root.parent / "pool").rglob(Path(row["file"]).name))} for row in rows]


@given(
    st.integers(1, 60),
    st.integers(1, 25),
    st.one_of(st.none(), st.integers(1, 30)),
    st.sampled_from(["repeat", "zeros"]),
)
def test_windows_are_those_of_a_second_implementation(length: int, size: int, hop: int | None, short: str) -> None:
    samples = np.arange(1, length + 1, dtype=np.float32)
    found = [piece.tolist() for piece in windows_of(samples, ClipWindows(samples=size, hop=hop, short=short))]  # type: ignore[arg-type]
    whole = [float(samples[place % length]) if short == "repeat" or place < length else 0.0 for place in range(size)]
    held = samples if length >= size else np.array(whole, np.float32)
    assert found == np.lib.stride_tricks.sliding_window_view(held, size)[:: hop or size].tolist()


@pytest.mark.slow
def test_scores_of_windows_are_averaged(built: tuple[Version, Store], tmp_path: Path, folder: Path) -> None:
    """ClipWindows are part of what is asked: others score anew."""
    (folder / "quality.py").write_text(
        "def first(samples, rate):\n    return {'first': float(abs(samples[0])) + len(samples)}\n"
    )
    path = tmp_path / "clip.wav"
    clip = np.random.default_rng(0).uniform(-0.5, 0.5, 16_000)
    soundfile.write(path, clip, 16_000, subtype="FLOAT")
    head = 'model = "scorer:lab_pairs.quality:first"\nversion = "1"\nscores = ["first"]\n'
    keys = set()
    for windows in ("", "windows = { samples = 4000 }\n", "windows = { samples = 4000, hop = 3000 }\n"):
        (score,) = clip_scores(heard({"a": path}), read_scorers([scorer_file(tmp_path, head + windows)]), built[1])["a"]
        starts = {"": [0], "windows = { samples = 4000 }\n": range(0, 12_001, 4000)}.get(
            windows, range(0, 12_001, 3000)
        )
        length = 4000 if windows else 16_000
        assert score.value == pytest.approx(np.mean(np.abs(clip[starts])) + length, abs=1e-4)
        keys.add(score.request_key)
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; print('weights are missing'); sys.exit(3)", "ended with 3: weights are missing"),
        ("pass", "gave the clip no line of scores"),
        ("import sys; open(sys.argv[-1], 'w').write('oh no')", "expected an object with an id, found oh no"),
        ("""import sys; open(sys.argv[-1], 'w').write('{"id": "0", "other": 1}')""", "expected the score 'level'"),
    ],
)
def test_a_commands_fault_is_one_line(built: tuple[Version, Store], tmp_path: Path, program: str, message: str) -> None:
    (tmp_path / "score.py").write_text(program)
    command = f'command = ["{sys.executable}", "score.py"]'
    path = scorer_file(tmp_path, f'model = "scorer:own"\nversion = "1"\nscores = ["level"]\n{command}\n')
    clip = tmp_path / "clip.wav"
    soundfile.write(clip, np.zeros(1600), 16_000)
    with pytest.raises(Exception, match="scored no clip") as fault:
        clip_scores(heard({"a": clip}), read_scorers([path]), Store(tmp_path / "store"))
    assert message in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('command = ["x"]\nwindows = { samples = 5 }', "gets whole clips"),
        ('dimensions = { quality = "b" }\ncommand = ["x"]', "dimensions: 'b' is none of its scores"),
        ('command = ["x"]\ntakes = ["mood"]', "takes"),
    ],
)
def test_a_scorer_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_scorers([scorer_file(tmp_path, f'model = "scorer:own"\nversion = "1"\nscores = ["a"]\n{text}\n')])


def test_an_evaluation_without_a_score_for_it_is_named(
    built: tuple[Version, Store], tmp_path: Path, folder: Path
) -> None:
    """A scorer with several scores says which of them stands for a dimension; the others are listed."""
    head = 'model = "scorer:lab_pairs.quality:score"\nversion = "1"\n'
    text = TAKES.replace(', alignment = "words"', "")
    path = scorer_file(tmp_path, head + text)
    words = ["--split", "all", "--store", str(built[1].root), "--scorer", str(path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["eval", "run", "pseudo-preferences", *words])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "not measured: alignment, for which scorer:lab_pairs.quality:score has no score 'alignment'" in said
    assert 'dimensions = { alignment = "level" }' in said
    both = CliRunner().invoke(app, ["eval", "run", "pseudo-preferences", *words, "--annotator", "openai:x"])
    assert both.exit_code != 0


def test_a_scorer_is_a_model_of_comparisons_and_tables(
    built: tuple[Version, Store], tmp_path: Path, folder: Path
) -> None:
    """Beside its negative, which is right where the scorer is wrong."""
    store = tmp_path / "store"
    shutil.copytree(built[1].root, store)
    head = f'model = "scorer:lab_pairs.quality:score"\nversion = "1"\n{TAKES}'
    (tmp_path / "loud.toml").write_text(head)
    (tmp_path / "soft.toml").write_text(f'{head}lower = ["level"]\n')
    files = [str(tmp_path / name) for name in ("loud.toml", "soft.toml")]
    words = ["pseudo-preferences", "-e", "musicality", "--split", "all", "--json", "--store", str(store)]
    compared = CliRunner().invoke(app, ["eval", "compare", *words, *files])
    assert compared.exit_code == 0, compared.output
    assert json.loads(compared.stdout)["models"] == ["loud", "soft"]
    listed = [word for file in files for word in ("-m", file)]
    table = CliRunner().invoke(app, ["eval", "tables", *words, *listed, "--by", "modality"])
    assert table.exit_code == 0, table.output
    loud, soft = (measure(store, "--scorer", file, "-e", "musicality")[0] for file in files)
    shares = [one["rows"][0]["metrics"]["accuracy"]["value"] for one in (loud, soft)]
    rows = pq.read_table(Path(loud["folder"]) / "predictions.parquet").to_pylist()
    assert {row["choice"] for row in rows} <= {"a", "b"}
    assert sum(shares) == pytest.approx(np.mean([row["target"] != "tie" for row in rows]))
