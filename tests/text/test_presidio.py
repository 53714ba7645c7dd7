"""Our rules beside Presidio's on the same cases."""

from __future__ import annotations

import pytest

from tests.text.cases import MEASURES, table
from tests.text.presidio import presidio_measures


@pytest.mark.slow
def test_no_worse_than_presidio() -> None:
    """Both miss and both stop music, each on the half that our rules were not tuned on."""
    pytest.importorskip("presidio_analyzer", reason="presidio-analyzer is not installed; `make test-slow` installs it")
    theirs = presidio_measures()
    ours = [MEASURES[1], MEASURES[3]]
    print(table([*ours, *theirs]))
    for our, their in zip(ours, theirs, strict=True):
        assert len(our.wrong(tuned=False)) <= len(their.wrong(tuned=False)), our.name
