"""Thresholds of similarity by labelled pairs: `earmark eval calibrate`."""

from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError, InputError
from earmark.tasks.instruction_rubrics.calibrating import Calibration, ScoredPairs, calibrate, scored_pairs
from earmark.tasks.people.audit_results import Verdict, write_record
from earmark.tasks.store.versions import Store
from tests.builds import rows_of
from tests.conftest import ROOT
from tests.instruction_rubrics.rubrics import build_rubrics
from tests.instruction_rubrics.test_rubric_similarity import TEXTS, config_in, remember

FITTING, WRONG = norm(0.35, 0.1), norm(0.15, 0.1)  # similarities of texts that fit, and of those that do not


def calibrated(seed: int, each: int, error: float) -> Calibration:
    random = np.random.default_rng(seed)
    fitting, wrong = (of.rvs(each, random_state=random).round(4).tolist() for of in (FITTING, WRONG))
    return calibrate(ScoredPairs("clap", fitting, wrong), error)


@pytest.mark.slow
@pytest.mark.parametrize(("each", "error"), [(50, 0.1), (19, 0.05)])
def test_rates_hold_on_fresh_pairs_and_intervals_cover(each: int, error: float) -> None:
    """On average a fresh pair goes wrong at (n + 1 - rank) / (n + 1), by theory of order statistics: the rate at most,
    and less by a pair's weight at most."""
    found = [calibrated(seed, each, error) for seed in range(300)]
    rates = np.array([(WRONG.sf(one.least.value), FITTING.cdf(one.most.value)) for one in found])
    rank = np.ceil((each + 1) * (1 - error) - 1e-9)
    expected = (each + 1 - rank) / (each + 1)
    assert error - 1 / (each + 1) < expected <= error
    assert rates.mean(axis=0) == pytest.approx([expected] * 2, abs=4 * rates.std() / len(found) ** 0.5)
    for truth, ends in (
        (WRONG.ppf(1 - error), [one.least for one in found]),
        (FITTING.ppf(error), [one.most for one in found]),
    ):
        assert np.mean([one.low <= truth <= one.high for one in ends]) >= 0.92
    for one in found[:20]:
        assert one.least.errors <= error * each
        assert one.most.errors <= error * each


def test_counts_are_those_of_the_pairs() -> None:
    """By hand: 19 wrong and 19 fitting pairs, of which the highest and the lowest set the thresholds."""
    wrong, fitting = [at / 100 for at in range(19)], [(15 + at) / 100 for at in range(19)]
    found = calibrate(ScoredPairs("clap", fitting, wrong), 0.05)
    assert (found.least.value, found.most.value, found.pairs) == (0.1801, 0.1499, 38)
    assert (found.least.errors, found.least.kept, found.most.errors, found.most.kept) == (0, 15, 0, 15)
    assert found.between == 4 + 4  # 0.15 to 0.18 of both
    assert (found.least.high, found.most.low) == (1.0, -1.0)  # so few pairs bound the quantile on one side alone
    with pytest.raises(
        InputError, match=r"for an error of 0\.01, expected 99 pairs or more with a text that does not fit"
    ):
        calibrate(ScoredPairs("clap", fitting, wrong), 0.01)


def test_a_table_of_pairs_gives_lines_that_a_config_takes(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    every = [(clip, text) for clip in range(4) for text in range(4)]
    remember(config, tmp_path, {(a, b): round(0.5 * (a == b) + 0.01 * a + 0.001 * b, 4) for a, b in every})
    rows = [(f"{clip}.wav", TEXTS[text], "yes" if clip == text else "no") for clip, text in every]
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("clip", "text", "label"), *rows])
    said = [str(tmp_path / "pairs.csv"), "--model", str(tmp_path / "clap"), "--store", str(tmp_path / "store")]
    ran = CliRunner().invoke(app, ["eval", "calibrate", *said, "--error", "0.2"])
    assert ran.exit_code == 0, ran.output
    print(ran.output)
    _, _, lines = ran.output.partition("# in [[sources]] like these pairs:\n")
    verify, similarity = lines.split("\n\n")
    written = tomllib.loads(verify)["verify"]
    assert written == {"least": 0.0311, "most": 0.4999}  # above eleven of 12, and below all of 4
    facts = tomllib.loads(similarity)["similarity"]
    assert "16 labelled pairs, errors of 0.2 at most" in facts["set_by"]
    values = config.model_dump(mode="json", exclude={"corpus"}) | {"similarity": facts | written}
    assert config.model_validate(values | {"corpus": "instruction-rubrics"}).bound("list", "least") == 0.0311
    with pytest.raises(ConfigError, match="expected --model"):
        scored_pairs(tmp_path / "pairs.csv", None, Store(tmp_path / "store"))
    (tmp_path / "pairs.csv").write_text("clip,text,label\n0.wav,x,perhaps\n")
    with pytest.raises(InputError, match=r"pairs.csv, row 1: expected a clip, a text, and a label"):
        scored_pairs(tmp_path / "pairs.csv", "clap", Store(tmp_path / "store"))


@pytest.mark.slow
def test_an_audit_gives_its_versions_scores_and_the_card_says_what_set_them(tmp_path: Path) -> None:
    config = config_in(tmp_path, set_by="a hundred pairs, heard by us", least=0.0, most=0.45)
    config = config.model_copy(update={"judge": config.judge.model_copy(update={"model": "builtin:rubric-judge-1"})})
    remember(config, tmp_path, {(a, b): 0.5 if a == b else 0.1 + 0.01 * a for a in range(4) for b in range(4)})
    store = Store(tmp_path / "store")
    version = build_rubrics(config, store.root)
    samples = [row for row in rows_of(version, "samples") if row["language"] == "zh"]
    assert samples
    verdicts = [
        Verdict(f"{row['sample_id']}-zh", label, "all", {}, "confirmed", "", "")
        for row, label in ((row, "yes" if row["follows"] else "no") for row in samples)
    ]
    refuted = verdicts[0]._replace(verdict="refuted", instead={"yes": "no", "no": "yes"}[verdicts[0].label])
    unsure = verdicts[1]._replace(verdict="unsure")
    facts = {"corpus": version.corpus, "version": version.name, "evaluation": "alignment"}
    write_record(tmp_path / "audit", facts, [refuted, unsure, *verdicts[2:]], tmp_path / "none.csv")
    pairs = scored_pairs(tmp_path / "audit", None, store)
    told = [(row["similarity"], row["follows"] != (at == 0)) for at, row in enumerate(samples) if at != 1]
    assert sorted([(one, True) for one in pairs.fitting] + [(one, False) for one in pairs.wrong]) == sorted(told)
    assert pairs.model == "clap"
    card = (version.folder / "README.md").read_text("utf-8")
    assert "Set by: a hundred pairs, heard by us." in card
    assert re.search(r"\| list \| 0(\.0+)? \| 0\.45", card), card
    with pytest.raises(ConfigError, match="an audited version holds its model's scores"):
        scored_pairs(tmp_path / "audit", "clap", store)
    write_record(tmp_path / "audit", {**facts, "evaluation": "items"}, [], tmp_path / "none.csv")
    with pytest.raises(InputError, match="expected an audit of 'alignment'"):
        scored_pairs(tmp_path / "audit", None, store)


def test_the_guide_shows_the_command() -> None:
    guide = (ROOT / "flows/topics/instruction_rubrics/verification.md").read_text("utf-8")
    assert "earmark eval calibrate pairs.csv --model laion/clap-htsat-unfused" in guide
