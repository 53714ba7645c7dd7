"""`keep`: clips leave any corpus by a number of a scorer, as rejects by one rule; no clip is scored twice."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from pydantic import ValidationError

from earmark.schemas.config import ClipsConfig
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.schemas.mos_preferences import CORPUS, MosPreferences
from earmark.schemas.reasons import REASONS
from earmark.schemas.registry import load
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.versions import Store, open_store
from tests.builds import build_version, config_of, forecast, rows_of
from tests.conftest import ROOT
from tests.runner import run_flow

SCORER = 'model = "scorer:lab_keep:score"\nversion = "1"\nscores = ["level", "seconds"]\n'
PACKAGE = """
from pathlib import Path
import numpy as np

def score(samples, rate):
    level = np.sqrt(np.mean(samples.astype(float) ** 2))
    with Path(__file__).with_name("calls.txt").open("a") as file:
        print(level, file=file)
    if len(samples) == 1600:
        raise RuntimeError("too short for me")
    return {"level": level, "seconds": len(samples) / rate}
"""
LEVELS = {f"{number}.wav": number / 10 for number in range(1, 6)}
SOURCE = {"name": "s", "format": "table", "files": {"train": "r.csv"}, "columns": {"file": "f", "mos": "m"}}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scorer, its file beside five rated tones of known level; gives the notes of its calls."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/lab_keep.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "level.toml").write_text(SCORER)
    for name, level in LEVELS.items():
        tone = level * np.sqrt(2) * np.sin(2 * np.pi * 440 * np.arange(8_000) / 16_000)
        soundfile.write(tmp_path / name, tone, 16_000, subtype="FLOAT")
    (tmp_path / "r.csv").write_text("f,m\n" + "".join(f"{name},3\n" for name in LEVELS))
    yield tmp_path / "site/calls.txt"
    sys.modules.pop("lab_keep", None)


def count(calls: Path) -> int:
    return len(calls.read_text().splitlines()) if calls.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("level >= 0.25", {3, 4, 5}),
        ("level < 0.25", {1, 2}),
        ("seconds <= 0.5", {*range(1, 6)}),
    ],
)
def test_a_condition_drops_clips_and_scores_each_once(
    condition: str, kept: set[int], calls: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    config = config_of(tmp_path, SOURCE, audio="index", keep=f"level.toml {condition}")
    story = load(CORPUS.flow).story
    plan = forecast(CORPUS, story, config, Store(store))
    assert plan is not None
    assert (plan["stage"], plan["to_ask"], plan["about"], count(calls)) == ("keep", 5, "5 clips scored", 0)
    version = build_version(config, store)
    assert {row["file"] for row in rows_of(version, "ratings")} == {f"{one}.wav" for one in kept}
    rejects = rows_of(version, "rejects") if len(kept) < len(LEVELS) else []
    assert [one["reason"] for one in rejects] == ["low_score"] * (len(LEVELS) - len(kept))
    assert all(one["detail"].startswith(f"expected {condition}, found ") for one in rejects)
    assert "scorer:lab_keep:score@1" in version.manifest.models
    assert build_version(config, store).name == version.name
    assert count(calls) == len(LEVELS)
    known = forecast(CORPUS, story, config, Store(store))
    assert known is not None
    assert (known["to_ask"], known["from_ledger"]) == (0, 5)
    other = config_of(tmp_path, SOURCE, audio="index", keep="level.toml level > 0.15")
    assert len(rows_of(build_version(other, store), "ratings")) == 4
    assert count(calls) == len(LEVELS)


def test_a_clip_that_cannot_be_scored_is_a_fault(calls: Path, tmp_path: Path) -> None:
    """A few are rejects; more than one in fifty stop the build, which asks them again."""
    soundfile.write(tmp_path / "1.wav", np.full(1_600, 0.5), 16_000)
    config = config_of(tmp_path, SOURCE, audio="index", keep="level.toml seconds > 0.1")
    with pytest.raises(EarmarkError, match=r"1 of 5 requests have no answer yet.*too short for me"):
        build_version(config, tmp_path / "store")
    assert REASONS["low_score"].kind == "rule"


def test_what_decides_scores_is_in_the_build_key(calls: Path, tmp_path: Path) -> None:
    def key(keep: str | None, text: str = SCORER) -> str:
        (tmp_path / "level.toml").write_text(text)
        config = config_of(tmp_path, SOURCE, audio="index", keep=keep)
        return str(load(CORPUS.plan)(config, open_store(str(tmp_path / "store")), None).build_key)

    plain = key("level.toml level >= 0.25")
    assert plain == key(f"{tmp_path}/level.toml level >= 0.25", SCORER + 'lower = ["seconds"]\n')
    others = [
        key(None),
        key("level.toml level >= 0.3"),
        key("level.toml seconds >= 0.25"),
        key("level.toml level >= 0.25", SCORER.replace('"1"', '"2"')),
        key("level.toml level >= 0.25", SCORER + "hearing = { sample_rate_hz = 8000 }\n"),
    ]
    assert len({plain, *others}) == 6
    assert "keep" not in config_of(tmp_path, SOURCE, audio="index").recorded()


@pytest.mark.parametrize(
    ("keep", "audio", "said"),
    [
        *((odd, "index", "expected 'FILE.toml SCORE >= NUMBER'") for odd in (
            "level >= 1", "level.toml >= x", "level.toml level == 1", "level.toml level >= 1 ", "level.toml a b >= 1",
            "level.toml level >= 1 or 1", "level.toml level >=1", "s3://b/level.toml level >= 1", "level.toml >= 1e3",
        )),
        ("level.toml level >= 1", "none", "keep: expected audio = 'index' beside it"),
        ("level.toml >= 1", "index", r"expected a score of level.toml \(level, seconds\), found none named"),
        ("level.toml loud >= 1", "index", "found 'loud'"),
        ("none.toml loud >= 1", "index", "keep: expected the TOML file of a scorer, found no file"),
        ("words.toml level >= 1", "index", "expected a scorer of clips alone"),
    ],
)  # fmt: skip
def test_another_condition_is_refused(keep: str, audio: str, said: str, calls: Path, tmp_path: Path) -> None:
    (tmp_path / "words.toml").write_text(SCORER + 'takes = ["text"]\n')
    with pytest.raises(ConfigError, match=said):
        build_version(config_of(tmp_path, SOURCE, audio=audio, keep=keep), tmp_path / "store")


def test_parameters_of_a_run_name_no_scorer(calls: Path, tmp_path: Path) -> None:
    """Starting runs gives no access to code."""
    values: dict[str, Any] = {"sources": [SOURCE], "audio": "index", "keep": "level.toml level >= 1"}
    with pytest.raises(ValidationError, match="expected no scorer among a run's parameters"):
        MosPreferences.model_validate(values)


AUDIO = [name for name in corpora() if issubclass(find_corpus(name).config, ClipsConfig)]
INDEXED = {"mos-preferences": {"audio": "index"}, "human-preferences": {"audio": "index"}}


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDIO)
def test_every_corpus_with_audio_drops_clips(
    name: str, calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo without the softer half of its clips, each scored once for two conditions."""
    monkeypatch.setenv("EARMARK_SALT", "a salt of at least so many characters")
    folder = Path(shutil.copytree(ROOT / "data/demo", tmp_path / "demo"))
    shutil.copy(tmp_path / "level.toml", folder)
    corpus, store = find_corpus(name), tmp_path / "store"
    values = {**read_toml(folder / f"{name}.toml"), **INDEXED.get(name, {}), "most_rejected": None}

    def built(least: float) -> Any:
        keep = f"level.toml level >= {least:.6f}"
        config = parse_config(corpus.config, {**values, "keep": keep}, folder / f"{name}.toml")
        return run_flow(load(corpus.flow), config, store)

    whole = built(0.0)
    levels = [float(level) for level in calls.read_text().split()]
    some = built(float(np.median(levels)))
    main = corpus.story.main_table
    assert rows_of(some, main) != rows_of(whole, main)
    assert count(calls) == len(levels)
    assert "low_score" in {row["reason"] for row in rows_of(some, "rejects")}
