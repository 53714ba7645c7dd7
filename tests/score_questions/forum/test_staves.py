"""Staves are found where there are five lines with notes on them, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from earmark.tasks.score_questions.forum.staves import confidence, find_staves
from tests.score_questions import drawings

SEEDS = range(1000, 1012)  # none of which the method was tuned on


@pytest.mark.parametrize("change", drawings.SCORES.values(), ids=list(drawings.SCORES))
def test_finds_scores(change: Callable[[Image.Image, int], Image.Image]) -> None:
    found = [confidence(find_staves(change(drawings.score(seed), seed))) >= 0.5 for seed in SEEDS]
    assert sum(found) >= 0.95 * len(SEEDS)


@pytest.mark.parametrize("draw", drawings.NON_SCORES.values(), ids=list(drawings.NON_SCORES))
def test_finds_none_elsewhere(draw: Callable[[int], Image.Image]) -> None:
    found = [confidence(find_staves(draw(seed))) >= 0.5 for seed in SEEDS]
    assert sum(found) <= 0.05 * len(SEEDS)


@pytest.mark.parametrize("staves", [1, 2, 3, 4])
def test_boxes_lie_on_the_staves(staves: int) -> None:
    space = 10
    found = find_staves(drawings.score(7, staves=staves, space=space))
    assert len(found) == staves
    for number, staff in enumerate(found):
        assert abs(staff.top - (5 + 11 * number) * space) <= space
        assert abs(staff.height - 4 * space) <= space
        assert staff.width > 500


def test_boxes_are_in_pixels_of_the_image_as_it_is() -> None:
    page = drawings.score(3, staves=1, space=10)
    (small,), (large,) = find_staves(page), find_staves(page.resize((page.width * 4, page.height * 4)))
    for name in ("left", "top", "width", "height"):
        assert abs(4 * getattr(small, name) - getattr(large, name)) <= 60


def test_light_on_dark_is_a_score_too() -> None:
    page = Image.fromarray(255 - np.asarray(drawings.score(5)))
    assert confidence(find_staves(page)) >= 0.5


@pytest.mark.parametrize("size", [(1, 1), (3, 2000), (2000, 3), (64, 64)])
@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16"])
def test_any_image_can_be_looked_at(size: tuple[int, int], mode: str) -> None:
    assert find_staves(Image.new(mode, size)) == []


def test_empty_staves_are_no_score() -> None:
    page = Image.new("L", (600, 200), 255)
    pixels = np.asarray(page).copy()
    pixels[60:110:10, 20:580] = 0
    assert confidence(find_staves(Image.fromarray(pixels))) < 0.5


def test_the_same_image_gives_the_same_answer() -> None:
    page = drawings.photographed(drawings.score(11), 11)
    assert find_staves(page) == find_staves(page.copy())


def test_a_strip_far_wider_than_high_is_looked_at() -> None:
    """Its columns shift by more than its height while slopes are tried."""
    pixels = np.full((40, 1400), 255, np.uint8)
    pixels[5:30:5] = 0
    (staff,) = find_staves(Image.fromarray(pixels))
    assert (staff.left, staff.width) == (0, 1400)
