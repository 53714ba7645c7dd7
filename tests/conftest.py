"""What all tests share."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

if importlib.util.find_spec("hypothesis"):  # vLLM's environment has no property tests
    from hypothesis import settings

    # How long an example takes depends on what else the machine does; it proves nothing.
    settings.register_profile("earmark", deadline=None)
    settings.load_profile("earmark")


def real_lists() -> Path:
    """The folder of real lists: `EARMARK_REAL`, else `shared/real` beside the repository."""
    return Path(os.environ.get("EARMARK_REAL") or ROOT.parent / "shared" / "real")


@pytest.fixture
def real() -> Path:
    """The real lists, which are not part of the repository; a test that needs them is skipped without."""
    folder = real_lists()
    if not (folder / "mos").is_dir():
        pytest.skip(f"no real lists in {folder}; set EARMARK_REAL to a folder that holds them")
    return folder
