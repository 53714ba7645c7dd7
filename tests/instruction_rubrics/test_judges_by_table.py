"""Tables 1 to 5 of AnyAudio-Judge, printed from simulated judges whose accuracy is known by subset and language."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from earmark.tasks.instruction_rubrics.judging import JudgedClip, by_model
from earmark.tasks.store.result_table import Interval
from tests.evaluation.test_paper_tables import cells, table_of, written
from tests.human_preferences.votes import write_jsonl

COUNTS = {"speech-real": 1200, "speech-gen": 2000, "sound-real": 1000, "sound-gen": 1200, "music-real": 720,
          "music-gen": 800, "mix": 1000}  # fmt: skip
HEADINGS = ["Speech-Real", "Speech-Gen", "Sound-Real", "Sound-Gen", "Music-Real", "Music-Gen", "Mix"]
ACCURACY = {
    "holistic": {
        "zh": (67.33, 58.10, 54.10, 57.92, 64.58, 66.75, 52.90),
        "en": (65.42, 58.45, 54.10, 58.75, 68.61, 70.25, 52.50),
    },
    "trained": {
        "zh": (93.33, 80.15, 77.90, 82.50, 92.22, 80.13, 90.60),
        "en": (91.42, 78.85, 78.70, 84.67, 91.25, 79.87, 86.40),
    },
}
"""True accuracies in percent, of Qwen3-Omni-30B-A3B-Instruct asked about the whole, and of AnyAudio-Judge."""
SIGMAS = 4.0


@pytest.mark.slow
def test_accuracies_by_subset_and_language_are_the_judges_own(tmp_path: Path) -> None:
    """At the bench's full size. A judge has a sample right at its subset's and language's rate, by itself."""
    samples: list[dict[str, Any]] = []
    for subset, count in COUNTS.items():
        for number in range(count):
            one = f"{subset}-{number}"
            row = {"sample_id": one, "pair_id": f"{subset}-{number // 2}", "instruction_id": one, "split": "test",
                   "subset": subset, "follows": number % 2 == 0}  # fmt: skip
            samples += [{**row, "language": language} for language in ("en", "zh")]
    items = [{"instruction_id": row["instruction_id"], "item": 1, "language": row["language"]} for row in samples]
    version = written(tmp_path, "instruction-rubrics", samples=samples, items=items)
    places = {subset: at for at, subset in enumerate(COUNTS)}
    models = {}
    for seed, (model, rates) in enumerate(ACCURACY.items()):
        drawn = np.random.default_rng(seed).uniform(0, 100, len(samples))
        answers = [
            {"id": f"{row['sample_id']}-{row['language']}",
             "choice": "yes" if row["follows"] == (one < rates[row["language"]][places[row["subset"]]]) else "no"}
            for row, one in zip(samples, drawn, strict=True)
        ]  # fmt: skip
        write_jsonl(tmp_path / f"{model}.jsonl", answers)
        models[model] = [str(tmp_path / f"{model}.jsonl")]
    for table, language in (("anyaudio-judge-1", "zh"), ("anyaudio-judge-2", "en")):
        for model, found in cells(table_of(version, models, tmp_path, table)).items():
            assert [*found] == [*HEADINGS, "Avg"]
            variances = []
            for value, truth, count in zip(found.values(), ACCURACY[model][language], COUNTS.values(), strict=False):
                variances.append(truth * (100 - truth) / count)
                assert value is not None
                assert abs(value - truth) <= SIGMAS * variances[-1] ** 0.5, (table, model)
            assert found["Avg"] == pytest.approx(np.mean([*found.values()][:-1]))
            assert abs(found["Avg"] - np.mean(ACCURACY[model][language])) <= SIGMAS * sum(variances) ** 0.5 / 7
    both = cells(table_of(version, models, tmp_path, "anyaudio-judge-4"))
    for model, rates in ACCURACY.items():
        truth = {"Chinese ACC": np.mean(rates["zh"]), "English ACC": np.mean(rates["en"])}
        assert both[model] == pytest.approx(truth, abs=SIGMAS * 0.6)  # 50 / sqrt(7,920), and more for uneven subsets


def judged(model: str, score: float, rating: float | None) -> JudgedClip:
    return {"clip": "a.wav", "instruction": "x", "language": "en", "domain": "speech", "model": model, "rating": rating,
            "score": score, "follows": score > 0.5, "reason": None, "items": []}  # fmt: skip


def test_correlations_with_ratings_are_those_of_the_law_they_are_drawn_from() -> None:
    """Table 3. Of two normal variables with correlation r: Spearman's is 6/π asin(r/2), Kendall's 2/π asin(r)."""
    for seed, truth in enumerate((0.2, 0.614, 0.9)):
        x, y = np.random.default_rng(seed).multivariate_normal([0, 0], [[1, truth], [truth, 1]], 4000).T
        table = by_model([judged("m", float(one), float(two)) for one, two in zip(x, y, strict=True)])
        assert table.headings[-3:] == ("LCC", "SRCC", "KTAU")
        expected = (truth, 6 / math.pi * math.asin(truth / 2), 2 / math.pi * math.asin(truth))
        assert table.rows[0][-3:] == pytest.approx(expected, abs=SIGMAS / 4000**0.5)


def test_mean_scores_by_generator_are_the_generators_own() -> None:
    """Table 5, at 500 clips a generator whose scores spread by a fifth."""
    truth = {"Gemini 2.5-Pro": 0.875, "MOSS-VoiceGenerator": 0.806, "MiMo-Audio-7B-Instruct": 0.811}
    rows = []
    for seed, (model, mean) in enumerate(truth.items()):
        spread = mean * (1 - mean) / 0.2**2 - 1
        drawn = np.random.default_rng(seed).beta(mean * spread, (1 - mean) * spread, 500)
        rows += [judged(model, float(score), None) for score in drawn]
    found = {str(row[0]): row[3] for row in by_model(rows).rows}
    assert found.keys() == {"all", *truth}
    for model, mean in truth.items():
        value = found[model]
        assert not isinstance(value, str | Interval)
        assert value == pytest.approx(mean, abs=SIGMAS * 0.2 / 500**0.5)
