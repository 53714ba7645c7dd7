"""The demo's study, started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from earmark.schemas.study import StudyPlan
from earmark.tasks.people.answers import read_plan
from tests.browser import Tab, chromium
from tests.people.study_page import start_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start_study(tmp_path_factory.mktemp("start") / "study")


@pytest.fixture(scope="module")
def plan(study: Path) -> StudyPlan:
    return read_plan(study)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A tab of a browser that the tests of a file share."""
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
