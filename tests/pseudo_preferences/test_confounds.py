"""What choices follow besides the question: figures of simulated judges whose lean is known, and clips heard alike."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from sklearn.linear_model import LogisticRegression

from earmark.schemas.errors import ConfigError
from earmark.schemas.questions import Audio
from earmark.tasks.annotation.request import Answer, Outcome, Request
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.pseudo_preferences.confounds import FEATURES, TOGETHER, fit, measure
from earmark.tasks.store.versions import Version
from tests.builds import rows_of
from tests.pseudo_preferences.music import RATE_HZ, build_judged, config_of, write_clip, write_rows
from tests.pseudo_preferences.simulated import draw
from tests.runner import scripted

Row = dict[str, Any]
CHOICES = 2_000


def simulated(wins: Callable[[dict[str, Any], Any], Any], seed: int = 3) -> dict[str, Row]:
    """The figures by feature, of choices that `wins` makes from the differences and as many uniform draws."""
    source = np.random.default_rng(seed)
    features = {name: source.normal(size=CHOICES) for name in FEATURES[:3]}
    features["later"] = source.choice([-1.0, 1.0], CHOICES)
    a_won = np.asarray(wins(features, source.random(CHOICES)))
    prompts = [f"p{number // 4}" for number in range(CHOICES)]
    return {row["feature"]: row for row in measure(prompts, a_won, features)}


def test_a_judge_that_prefers_the_louder_is_found() -> None:
    found = simulated(lambda features, _: features["louder"] > 0)
    assert found["louder"]["share"] == 1.0
    assert found[TOGETHER]["share"] > 0.98
    for name in ("longer", "higher_rate", "later"):
        assert found[name]["low"] - 0.01 < 0.5 < found[name]["high"] + 0.01


@pytest.mark.parametrize("seed", range(5))
def test_a_fair_judge_is_predicted_no_better_than_by_the_majority(seed: int) -> None:
    found = simulated(lambda _, chance: chance < 0.7, seed)
    error = math.sqrt(0.7 * 0.3 / CHOICES)
    assert found[TOGETHER]["majority"] == pytest.approx(0.7, abs=3 * error)
    assert abs(found[TOGETHER]["share"] - found[TOGETHER]["majority"]) < 3 * error


@pytest.mark.parametrize("lean", [0.5, 1.5])
def test_a_judge_that_leans_is_predicted_as_often_as_its_lean_allows(lean: float) -> None:
    """It prefers the later clip with odds e^lean: nobody who knows its choices alone can predict more of them."""
    right = 1 / (1 + math.exp(-lean))
    found = simulated(lambda features, chance: chance < 1 / (1 + np.exp(-lean * features["later"])))
    error = math.sqrt(right * (1 - right) / CHOICES)
    assert found["later"]["share"] == pytest.approx(right, abs=3 * error)
    assert found[TOGETHER]["share"] == pytest.approx(right, abs=3 * error)


@pytest.mark.parametrize("scale", [0.0, 1.0, 50.0])
def test_the_regression_is_that_of_scikit_learn(scale: float) -> None:
    source = np.random.default_rng(5)
    features = source.normal(size=(300, 3))
    truth = scale * features[:, 0] - features[:, 1] + source.logistic(size=300) > 0.4
    intercept, weights = fit(features, truth)
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(features, truth)
    np.testing.assert_allclose(weights, theirs.coef_[0], atol=1e-4)
    assert intercept == pytest.approx(theirs.intercept_[0], abs=1e-4)


def test_choices_of_one_prompt_predict_nothing() -> None:
    rows = list(measure(["p"] * 4, np.array([True, False, True, True]), {"louder": np.array([1.0, -1.0, 2.0, 0.0])}))
    assert [(row["feature"], row["choices"], row["share"]) for row in rows] == [("louder", 3, 1.0)]


# -- through the flow -------------------------------------------------------------------------------------------------

PROMPTS = 60
LEVELS = (0.1, 0.2, 0.4, 0.8)
LENGTHS_S = (0.5, 0.55, 0.6, 0.65)


def make_music(folder: Path) -> None:
    """White noise, so that a level in dB is a loudness, of levels and lengths by hash."""
    prompts = [{"prompt_id": f"p{n}", "text": f"tune {n}"} for n in range(PROMPTS)]
    made = []
    for prompt in prompts:
        for number, model in enumerate(("ant", "bee")):
            name = f"{prompt['prompt_id']}-{model}"
            level, length = (int(draw(name, what) * 4) for what in ("level", "length"))
            seed = 2 * int(prompt["prompt_id"][1:]) + number
            write_clip(folder / f"{name}.wav", seed, LENGTHS_S[length], LEVELS[level])
            made.append(
                {"generation_id": name, "prompt_id": prompt["prompt_id"], "model": model, "audio": f"{name}.wav"}
            )
    write_rows(folder / "prompts.jsonl", prompts)
    write_rows(folder / "generations.jsonl", made)


def power_db(file: Path) -> float:
    """Mean power of a clip, in dB of full scale."""
    samples, _ = soundfile.read(file)
    return 10 * math.log10(float(np.mean(samples**2)))


class Listener:
    """Prefers the louder as music and the longer for its prompt, of the bytes that a model would get; else a tie."""

    def __init__(self) -> None:
        self.heard: list[tuple[tuple[float, int], tuple[float, int]]] = []
        self.keys: list[str] = []
        self._encoder = Encoder()

    def __call__(self, request: Request) -> Outcome:
        first, second = (self._listen(part) for part in request.parts() if isinstance(part, Audio))
        self.heard.append((first, second))
        self.keys.append(request.key)
        musicality = "tie" if abs(first[0] - second[0]) < 0.2 else "A" if first[0] > second[0] else "B"
        alignment = "tie" if first[1] == second[1] else "A" if first[1] > second[1] else "B"
        return Answer(request.key, {"musicality": musicality, "alignment": alignment, "reason": "heard"})

    def _listen(self, part: Audio) -> tuple[float, int]:
        samples, _ = soundfile.read(io.BytesIO(self._encoder(part)))
        return 10 * math.log10(float(np.mean(samples**2))), len(samples)


def built(folder: Path, store: Path, **judge: Any) -> tuple[Version, Listener]:
    listener = Listener()
    with scripted(listener):
        return build_judged(config_of(folder, "http://127.0.0.1:9/v1", judge=judge), store), listener


@pytest.fixture(scope="module")
def music(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips of known level and length."""
    folder = tmp_path_factory.mktemp("music")
    make_music(folder)
    return folder


@pytest.mark.slow
def test_the_flow_measures_loudness_and_finds_who_follows_it(music: Path, tmp_path: Path) -> None:
    version, _ = built(music, tmp_path)
    weighting = [row["loudness_lufs"] - power_db(music / row["file"]) for row in rows_of(version, "clips")]
    assert max(weighting) - min(weighting) < 0.5  # the weighting adds the same to all white noise
    found = {(row["set"], row["dimension"], row["feature"]): row for row in rows_of(version, "confounds")}
    for part in ("answers", "labels"):
        assert found[part, "musicality", "louder"]["share"] == 1.0
        assert found[part, "alignment", "longer"]["share"] == 1.0
        assert found[part, "musicality", TOGETHER]["share"] > 0.95 > found[part, "musicality", TOGETHER]["majority"]
    assert ("labels", "musicality", "later") not in found
    assert found["answers", "musicality", "later"]["share"] == 0.5  # both orders, and one mind
    assert all(row["matched"] is None for row in found.values())
    card = (version.folder / "README.md").read_text("utf-8")
    assert "## Confounds" in card
    assert "How often the clip with more of something won" in (version.folder / "report.html").read_text("utf-8")
    assert "The judge heard each pair's clips made alike" not in card


@pytest.mark.slow
def test_clips_are_heard_as_loud_and_as_long_as_each_other(music: Path, tmp_path: Path) -> None:
    plain, before = built(music, tmp_path / "plain")
    version, listener = built(music, tmp_path / "matched", match=["loudness", "length"], require=["alignment"])
    levels = [level for level, _ in {*map(tuple, (one for pair in before.heard for one in pair))}]
    assert len(listener.heard) == 2 * PROMPTS
    for (one, frames), (other, others) in listener.heard:
        assert frames == others
        assert one == pytest.approx(other, abs=0.2)
        assert max(one, other) < max(levels) + 0.1
    assert {frames for (_, frames), _ in listener.heard} <= {round(RATE_HZ * length) for length in LENGTHS_S}
    labels = rows_of(version, "labels")
    assert {(row["musicality"], row["alignment"]) for row in labels} == {("tie", "tie")}
    # a pair that is alike already is asked as before, so its answer is there
    alike = {key for key, (one, other) in zip(before.keys, before.heard, strict=True) if one == other}
    assert alike <= set(listener.keys)
    assert rows_of(plain, "confounds") != []
    assert "confounds" not in version.manifest.rows  # nothing but ties: nothing won


@pytest.mark.slow
def test_figures_of_matched_clips_are_of_the_clips_as_they_are(music: Path, tmp_path: Path) -> None:
    version, _ = built(music, tmp_path, match=["loudness"])
    found = {(row["set"], row["dimension"], row["feature"]): row for row in rows_of(version, "confounds")}
    assert found["labels", "alignment", "longer"]["share"] == 1.0
    assert ("labels", "musicality", "louder") not in found
    assert {row["matched"] for row in found.values()} == {"loudness"}
    assert "made alike in loudness" in (version.folder / "README.md").read_text("utf-8")


def test_a_jury_hears_alike(music: Path) -> None:
    judges = [{"annotator": "openai:m", "match": ["loudness"]}, {"annotator": "openai:n"}]
    with pytest.raises(ConfigError, match=r"match in \[judge\], the same for all"):
        config_of(music, "http://127.0.0.1:9/v1", judges=judges)
