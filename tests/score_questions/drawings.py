"""Drawings that a detector is measured on, and the demo's pictures: engraved scores, and what could be taken for one.

Everything is drawn from a seed with Pillow and numpy alone; no photo or score comes from anywhere else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

INK, PAPER = 20, 255
WORDS = ("the", "chord", "of", "bar", "seven", "moves", "to", "a", "voice", "in", "its", "own", "key", "rhythm")


def score(seed: int, *, staves: int | None = None, space: int | None = None, width: int = 640) -> Image.Image:
    """A page of engraved music: clefs, notes with stems and beams, bar lines.

    Args:
        seed: what notes it has, and all that is not given.
        staves: how many; by seed one to four.
        space: pixels between two staff lines; by seed 7 to 13.
        width: of the page, in pixels.
    """
    rng = random.Random(f"score {seed}")
    staves = staves or rng.randint(1, 4)
    space = space or rng.randint(7, 13)
    height = staves * 11 * space + 4 * space
    page = Image.new("L", (width, height), PAPER)
    pen = ImageDraw.Draw(page)
    for staff in range(staves):
        _staff(pen, rng, 3 * space, (5 + 11 * staff) * space, width - 3 * space, space)
    return page


def _staff(pen: ImageDraw.ImageDraw, rng: random.Random, left: int, top: int, right: int, space: int) -> None:
    stroke = max(1, round(space / 8))
    for line in range(5):
        pen.line([(left, top + line * space), (right, top + line * space)], INK, stroke)
    _clef(pen, left + space, top, space)
    bars = rng.randint(2, 4)
    start = left + 4 * space
    for bar in range(bars):
        begin = start + (right - start) * bar // bars
        end = start + (right - start) * (bar + 1) // bars
        pen.line([(end, top), (end, top + 4 * space)], INK, stroke)
        _bar(pen, rng, begin + space, end - space, top, space)


def _clef(pen: ImageDraw.ImageDraw, x: int, top: int, space: int) -> None:
    """A curl around the second line from below, with a stroke through it: as much of a G clef as a detector sees."""
    stroke = max(2, space // 4)
    pen.line([(x + space, top - space), (x + space, top + 5 * space)], INK, stroke)
    pen.ellipse([x, top + 2 * space, x + 2 * space, top + 4 * space], outline=INK, width=stroke)
    pen.arc([x, top - space, x + 2 * space, top + 3 * space], 60, 300, INK, stroke)
    pen.ellipse([x, top + 5 * space - stroke, x + space, top + 5 * space + stroke], fill=INK)


def _bar(pen: ImageDraw.ImageDraw, rng: random.Random, begin: int, end: int, top: int, space: int) -> None:
    count = max(1, min(rng.randint(2, 6), (end - begin) // (3 * space)))
    beamed = rng.random() < 0.4
    stroke = max(1, space // 6)
    tips = []
    for note in range(count):
        x = begin + (end - begin) * (2 * note + 1) // (2 * count)
        step = rng.randint(-2, 10)  # half spaces below the highest line
        y = top + step * space // 2
        head = [x - 0.65 * space, y - 0.48 * space, x + 0.65 * space, y + 0.48 * space]
        pen.ellipse(head, fill=INK if rng.random() < 0.8 else PAPER, outline=INK, width=stroke)
        for ledger in (*range(top - space, y - 1, -space), *range(top + 5 * space, y + 1, space)):
            pen.line([(x - space, ledger), (x + space, ledger)], INK, stroke)
        up = beamed or step > 4
        tip = (x + 0.6 * space, y - 3.5 * space) if up else (x - 0.6 * space, y + 3.5 * space)
        tips.append(tip)
        if not beamed:
            pen.line([(tip[0], y), tip], INK, stroke)
        if rng.random() < 0.2:  # a sharp
            for shift in (-1.7, -1.2):
                pen.line([(x + shift * space, y - space), (x + shift * space, y + space)], INK, stroke)
    if beamed:
        level = min(y for _, y in tips)
        for tip in tips:
            pen.line([(tip[0], tip[1] + 3.5 * space), (tip[0], level)], INK, stroke)
        pen.rectangle([tips[0][0], level, tips[-1][0] + 1, level + space // 2], fill=INK)


def photo(seed: int) -> Image.Image:
    """Blobs and shades, as a photograph has."""
    rng = np.random.default_rng(seed)
    small = rng.uniform(0, 255, (rng.integers(4, 12), rng.integers(5, 16))).astype(np.uint8)
    shades = Image.fromarray(small).resize((600, 420), Image.Resampling.BICUBIC)
    grain = rng.normal(0, 8, (420, 600))
    page = Image.fromarray(np.clip(np.asarray(shades, np.float64) + grain, 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(page)
    for _ in range(rng.integers(2, 8)):
        x, y, size = (int(value) for value in rng.integers([0, 0, 20], [560, 380, 160]))
        pen.ellipse([x, y, x + size, y + size], fill=int(rng.integers(0, 255)))
    return page.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 2))))


def table(seed: int) -> Image.Image:
    """Ruled rows and columns with words in the cells; some have just five lines."""
    rng = random.Random(f"table {seed}")
    rows, columns, high = rng.choice([4, 4, 5, 7, 10]), rng.randint(2, 6), rng.randint(16, 34)
    page = Image.new("L", (60 + 100 * columns, 60 + rows * high), PAPER)
    pen = ImageDraw.Draw(page)
    for row in range(rows + 1):
        pen.line([(30, 30 + row * high), (30 + 100 * columns, 30 + row * high)], INK, 1)
    if rng.random() < 0.7:
        for column in range(columns + 1):
            pen.line([(30 + 100 * column, 30), (30 + 100 * column, 30 + rows * high)], INK, 1)
    for row in range(rows):
        for column in range(columns):
            pen.text(
                (36 + 100 * column, 31 + row * high + high // 2 - 7), rng.choice(WORDS), INK, ImageFont.load_default(10)
            )
    return page


def text_page(seed: int) -> Image.Image:
    """Lines of prose, here and there with a heading."""
    rng = random.Random(f"text {seed}")
    size = rng.randint(9, 16)
    page = Image.new("L", (600, rng.randint(200, 600)), PAPER)
    pen = ImageDraw.Draw(page)
    y = 20
    while y < page.height - 2 * size:
        pen.text(
            (30, y), " ".join(rng.choices(WORDS, k=540 // (4 * size)))[: 900 // size], INK, ImageFont.load_default(size)
        )
        y += round(1.5 * size) + (size if rng.random() < 0.1 else 0)
    return page


def tab(seed: int) -> Image.Image:
    """Guitar tablature: six lines, or four for a bass, with numbers of frets on them."""
    rng = random.Random(f"tab {seed}")
    strings, space = rng.choice([6, 6, 6, 4]), rng.randint(8, 13)
    systems = rng.randint(1, 4)
    page = Image.new("L", (640, 40 + systems * (strings + 4) * space), PAPER)
    pen = ImageDraw.Draw(page)
    for system in range(systems):
        top = 30 + system * (strings + 4) * space
        for line in range(strings):
            pen.line([(20, top + line * space), (620, top + line * space)], INK, 1)
        for x in (20, 220, 420, 620):
            pen.line([(x, top), (x, top + (strings - 1) * space)], INK, 1)
        for x in range(40, 610, rng.randint(18, 40)):
            y = top + rng.randrange(strings) * space
            pen.rectangle([x - 3, y - 5, x + 5, y + 5], fill=PAPER)
            pen.text((x - 3, y - 7), str(rng.randint(0, 12)), INK, ImageFont.load_default(10))
    return page


def plot(seed: int) -> Image.Image:
    """A curve or bars over a grid with axes."""
    rng = random.Random(f"plot {seed}")
    page = Image.new("L", (560, 400), PAPER)
    pen = ImageDraw.Draw(page)
    lines = rng.randint(4, 9)
    for line in range(lines):
        y = 360 - line * 320 // (lines - 1)
        pen.line([(50, y), (530, y)], 170 if rng.random() < 0.8 else INK, 1)
        pen.text((14, y - 7), str(line * 10), INK, ImageFont.load_default(10))
    pen.line([(50, 40), (50, 360)], INK, 2)
    if rng.random() < 0.5:
        for bar in range(8):
            pen.rectangle([70 + 56 * bar, 360 - rng.randint(20, 300), 105 + 56 * bar, 360], fill=110)
    else:
        phase, cycles = rng.uniform(0, 6), rng.uniform(1, 4)
        points = [(50 + x, 200 - 120 * math.sin(phase + cycles * x / 76)) for x in range(480)]
        pen.line(points, INK, 2)
    return page


def ruled_page(seed: int) -> Image.Image:
    """Writing paper: many equal lines, with words on them."""
    rng = random.Random(f"ruled {seed}")
    space = rng.randint(14, 24)
    page = Image.new("L", (520, 420), PAPER)
    pen = ImageDraw.Draw(page)
    for y in range(30, 410, space):
        pen.line([(10, y), (510, y)], 150, 1)
        if rng.random() < 0.6:
            pen.text((20, y - 12), " ".join(rng.choices(WORDS, k=rng.randint(2, 9))), INK, ImageFont.load_default(11))
    return page


NON_SCORES: dict[str, Callable[[int], Image.Image]] = {
    "photos": photo,
    "tables": table,
    "text pages": text_page,
    "guitar tabs": tab,
    "plots": plot,
    "ruled pages": ruled_page,
}
"""What is no score, by kind."""


def skewed(page: Image.Image, seed: int) -> Image.Image:
    """A page that lay askew in the scanner."""
    angle = random.Random(f"skew {seed}").uniform(-5, 5)
    return page.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor=PAPER)


def noisy(page: Image.Image, seed: int) -> Image.Image:
    """A bad copy: grain, specks, and ink that is not black."""
    rng = np.random.default_rng(seed)
    pixels = 255 - (255 - np.asarray(page, np.float64)) * rng.uniform(0.6, 0.95) + rng.normal(0, 18, page.size[::-1])
    specks = rng.random(pixels.shape)
    pixels[specks < 0.004] = 0
    pixels[specks > 0.996] = 255
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def photographed(page: Image.Image, seed: int) -> Image.Image:
    """A page on a table before a camera: seen from the side, unevenly lit, a little out of focus."""
    rng = np.random.default_rng(seed)
    width, height = page.size
    bent = rng.uniform(0, 0.05, 8) * np.array([width, height] * 4)
    corners = np.array([0, 0, 0, height, width, height, width, 0]) + bent * [-1, -1, -1, 1, 1, 1, 1, -1]
    seen = page.transform(page.size, Image.Transform.QUAD, corners, Image.Resampling.BICUBIC, fillcolor=150)
    light = np.linspace(rng.uniform(0.45, 0.7), rng.uniform(0.85, 1.0), width)[None, :]
    light = light * np.linspace(1.0, rng.uniform(0.75, 1.0), height)[:, None]
    pixels = np.asarray(seen.filter(ImageFilter.GaussianBlur(0.7)), np.float64) * light + rng.normal(
        0, 4, (height, width)
    )
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


SCORES: dict[str, Callable[[Image.Image, int], Image.Image]] = {
    "clean": lambda page, seed: page,
    "skewed": skewed,
    "noisy": noisy,
    "photographed": photographed,
}
"""What can have happened to a page of music."""
