"""Versions made from the demo's inputs, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from earmark.tasks.store.versions import Store
from tests import builds
from tests.conftest import ROOT
from tests.pseudo_preferences import music

DEMO = ROOT / "data/demo"


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with `mos-preferences` v1 (lists alone) and v2 (with audio), and `pseudo-preferences` v1."""
    root: Path = tmp_path_factory.mktemp("exports") / "store"
    for config in ("mos-preferences.toml", "mos-preferences-audio.toml"):
        builds.build_version(builds.read_config(DEMO / config), root)
    music.build_judged(music.read_config(DEMO / "pseudo-preferences.toml"), root)
    return Store(root)
