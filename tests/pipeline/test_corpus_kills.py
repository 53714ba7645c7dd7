"""Builds and publications of four corpora, killed at random moments: the same bytes, next to nothing asked twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.kills import CASES, PHASES, kill_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_eight_kills_over_four_corpora(tmp_path: Path) -> None:
    kills = list(kill_all(8, 17, tmp_path))
    assert Counter(kill.phase for kill in kills) == dict.fromkeys(PHASES, 1)
    assert Counter(kill.corpus for kill in kills) == dict.fromkeys(CASES, 2)
