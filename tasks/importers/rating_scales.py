"""Guess the scale of a column of ratings, and its cells that are no rating, from the cells and the column's name."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from earmark.schemas.reasons import shown
from earmark.tasks.importers.cells import BINARY, NEXT_STEP, THOUSANDS, rating_number
from earmark.tasks.importers.table import several

Scale = tuple[float, float]  # lowest and highest rating
SCALES = ((1, 5), (0, 1), (0, 5), (1, 7), (1, 9), (0, 10), (1, 10), (-3, 3), (0, 100))
UNSAID = ("", "na", "n/a", "n.a.", "nan", "none", "null", "-", "--", "?", "not rated", "keine angabe", "k.a.")
SENTINELS = frozenset((-9999.0, -999.0, -99.0, -9.0, -1.0, 0.0, 88.0, 98.0, 99.0, 998.0, 999.0, 9999.0))
ZERO_BESIDE = ((1, 5), (1, 7))  # scales beside which a 0 is no rating
MOST_SENTINELS = 0.4  # largest share of such cells
FEWEST, FEWER = 50, 10  # ratings for one beside their scale, and at that end of it
LISTED = 8  # most values beside a scale that are listed
FEW = 20  # most different words in a column of questions, and most listening tests
NO_ANSWER = re.compile(
    r"\b(?:don['’]?t know|do not know|not sure|unsure|can(?:no|['’])?t (?:say|tell|judge)|no (?:answer|opinion|rating)|"
    r"not rated|n/a|keine (?:angabe|antwort)|weiß nicht)\b",
    re.IGNORECASE,
)
BEST = re.compile(  # labels of a scale's better half, and of its worse one, in cells such as `5 - excellent`
    r"(?<!not )\b(?:excellent|very good|good|best|imperceptible|inaudible|not (?:at all )?annoying|sehr gut|gut|"
    r"ausgezeichnet|excelente|buen[ao]|bon|bonne|ottimo|buono)\b|优|很好|良好|とても良い|良い|좋음",
    re.IGNORECASE,
)
WORST = re.compile(
    r"(?<!not )\b(?:bad|very bad|poor|worst|(?<!not at all )annoying|very annoying|schlecht|mangelhaft|ungenügend|"
    r"mauvais|médiocre|mal[ao]|pésim[ao]|scarso|pessimo)\b|差|悪い|나쁨",
    re.IGNORECASE,
)
STEPS = re.compile(r"(?<![\w.–-])([01])\s*(?:-|–|—|~|～|to|bis|\.\.+)\s*(\d+)(?!\d)")  # of a scale


def numbers_of(cell: str) -> list[float]:
    """Return the numbers in a cell, which may hold several; NaN for words."""
    return [rating_number(one) for one in (several(cell) or [cell])]


def is_rating(cell: str) -> bool:
    """Return whether a cell holds numbers alone."""
    return all(value == value for value in numbers_of(cell))


def scale_of(cells: Sequence[str]) -> tuple[dict[str | float, int], Scale, Scale]:
    """Return cells unlike ratings with their counts, the least and greatest of the other ratings, and the scale."""
    texts = Counter(cell.strip().lower() for cell in cells if not is_rating(cell))
    missing: dict[str | float, int] = {word: count for word, count in texts.items() if word in UNSAID}
    values = Counter(value for cell in cells for value in numbers_of(cell) if value == value)
    odd = _sentinels(values)
    kept = [value for value in values if value not in odd]
    seen = min(kept), max(kept)
    return missing | {value: values[value] for value in sorted(odd)}, seen, fit_scale(*seen) or seen


def _sentinels(values: Counter[float]) -> set[float]:
    """Return the values beside the scale of all others, such as -1, 99 and 0 beside 1 to 5."""
    rest = {value for value in values if value not in SENTINELS}
    while len(rest) > 2 and (scale := fit_scale(min(rest), max(rest))):
        inside = {value for value in values if value not in rest and scale[0] <= value <= scale[1]}
        if 0 in values and (min(rest) > 1 or scale not in ZERO_BESIDE):  # a scale from 0, seldom used to its end
            inside |= {0.0} - rest
        if not inside:
            odd = {*values} - rest
            return odd if sum(values[one] for one in odd) <= MOST_SENTINELS * sum(values.values()) else set()
        rest |= inside
    return set()


def fit_scale(low: float, high: float) -> Scale | None:
    """Return the first usual scale with both ratings on it."""
    return next(((a, b) for a, b in SCALES if a - BINARY <= low and high <= b + BINARY), None)


def named_scale(mos: str | tuple[str, ...] | None, seen: Scale) -> Scale | None:
    """Return the scale in the name of a rating's column, such as `Quality (1-7)`."""
    ends = STEPS.search(mos) if isinstance(mos, str) else None
    scale = (float(ends[1]), float(ends[2])) if ends else None
    return scale if scale and scale[0] <= seen[0] and seen[1] <= scale[1] else None


def ambiguous(
    mos: str | tuple[str, ...] | None,
    cells: Sequence[str],
    missing: Mapping[str | float, int],
    seen: Scale,
    delimiter: str,
) -> Iterator[str]:
    """Yield a person's decisions about ratings with two readings.

    Args:
        delimiter: of the table; a semicolon is of countries that write a decimal comma.
    """
    zeros, others = missing.get(0.0, 0), {cell for cell in cells if is_rating(cell)}
    often = zeros * len(others) >= sum(map(is_rating, cells))  # as often as a rating is
    if zeros and (seen[1] == 4 or often) and not isinstance(mos, tuple):  # steps from 0, as jsPsych counts them
        yield (
            f"{mos} holds {zeros:,} times 0, and nothing above {seen[1]:g}: steps from 0 to {seen[1]:g}, or 0 for no "
            f"rating? Then scale = [0, {seen[1]:g}] without not_a_rating, or as written"
        )
    commas = [cell for cell in cells if re.fullmatch(r"\s*\d+(\s*,\s*\d+)+\s*", cell)]
    lists = [cell for cell in commas if cell.count(",") > 1 or rating_number(cell) > 5]
    if lists and all(re.fullmatch(r"\s*[1-5](\s*,\s*[1-5])+\s*", cell) for cell in commas):
        yield f"{mos} holds cells such as '{shown(lists[0])}': a decimal comma, or several ratings? Write 4.5, or 4;5"
    written, plain = {cell for cell in cells if "," in cell}, [cell for cell in others if "," not in cell]
    near = [value for cell in plain for value in numbers_of(cell)]  # two or more, with all of the others between them
    sure = near and all(min(near) <= rating_number(cell) <= max(near) for cell in written)
    if written and all(map(THOUSANDS.fullmatch, written)) and delimiter != ";" and not sure:
        yield f"{mos} holds cells such as '{shown(min(written))}': a decimal comma, or a thousand? Write 2.333, or 2333"
    shares = sum("%" in cell or "％" in cell for cell in cells)
    if 0 < shares < sum(map(is_rating, cells)):
        yield f"{mos} holds {shares:,} cells in percent beside others without a sign: write all on one scale"
    unsure = [cell for cell in cells if NO_ANSWER.search(cell) and is_rating(cell)]
    if unsure:
        yield (
            f"{mos} holds {len(unsure):,} cells such as '{shown(unsure[0])}': a rating, or not_a_rating = "
            f'["{shown(unsure[0])}"] with a scale that ends without it?'
        )


def worse_above(cells: Iterable[str]) -> str:
    """Return a cell whose label is of a scale's worse half, if such cells have greater numbers than those of the better
    half, as `5 - bad` and `1 - excellent` have; else an empty text."""
    marked = [(rating_number(cell), cell) for cell in dict.fromkeys(cells) if re.search(r"[^\W\d]", cell)]
    worst = [(value, cell) for value, cell in marked if value == value and WORST.search(cell)]
    best = [value for value, cell in marked if value == value and BEST.search(cell) and not WORST.search(cell)]
    turned = bool(worst and best) and fmean(value for value, _ in worst) > fmean(best)
    return max(worst)[1] if turned else ""


def apart(
    mos: str | tuple[str, ...] | None, cells: Sequence[str], missing: Container[str | float], rows: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a person's decision about the least and the greatest ratings, if they lie beside the scale of all others.

    One value does so by more than a step, several by more than that scale's width; or there are few of them, and many
    at the end of that scale, or all are means; or they are a hundredth beside 1 to 5.

    Args:
        rows: a name for the row of each cell, to find the first of them.
    """
    values = Counter(value for cell in cells for value in numbers_of(cell) if value == value and value not in missing)
    given = sorted(values)
    for scale in SCALES:
        low, high = scale
        rest = [one for one in given if low - BINARY <= one <= high + BINARY]
        ends = [one for one in given if one not in rest]
        if not ends or len(rest) < 3 or fit_scale(rest[0], rest[-1]) != scale:
            continue
        count, gap = (
            sum(values[end] for end in ends),
            min(abs(end - one) for end in ends for one in (rest[0], rest[-1])),
        )
        last = {rest[0] if end < low else rest[-1] for end in ends}
        ten = scale == (1, 9) and given[0] >= 0 and given[-1] <= 10  # a scale of 0 to 10, seldom used to its ends
        means = not ten and 2 * sum(value % 1 > 0 for value in rest) > len(rest)  # of which few are at an end
        many = all(one in scale and FEWER * count <= values[one] for one in last)
        rare = scale == (1, 5) and 2 * FEWEST * count <= values.total()  # of the usual scale
        far = gap > high - low and FEWER * count <= values.total()  # wider off than the scale itself
        if (len(ends) == 1 and gap > 1) or far or (FEWEST * count <= values.total() and (many or means)) or rare:
            often = f" ({count:,} times)" if count > 1 else ""
            # in full, as not_a_rating is compared; of many those that a build does not reject by itself come first
            ends.sort(key=lambda end: not low - NEXT_STEP <= end <= high + NEXT_STEP)
            listed = ", ".join(
                [*(repr(end).removesuffix(".0") for end in ends[:LISTED]), *["…"] * (len(ends) > LISTED)]
            )
            first = next((name for name, cell in zip(rows, cells, strict=False) if {*ends} & {*numbers_of(cell)}), "")
            yield (
                f"{mos if isinstance(mos, str) else 'the list'} holds {listed}{often}, all others within {low:g} to "
                f"{high:g}: a rating, or not_a_rating = [{listed}] with scale = [{low:g}, {high:g}]?"
                + (f" The first is of '{shown(first)}'" if first else "")
            )
            return


def scale_by_test(tests: Sequence[str], cells: Sequence[str], missing: Container[str | float]) -> dict[str, Scale]:
    """Return a scale for each listening test, if the scales of the tests differ in width."""
    ends: dict[str, list[float]] = {}
    for name, cell in zip(tests, cells, strict=True):
        ends.setdefault(name.strip(), []).extend(v for v in numbers_of(cell) if v == v and v not in missing)
    scales = {name: fit_scale(min(one), max(one)) or (min(one), max(one)) for name, one in ends.items() if one}
    wide = {high - low for low, high in scales.values()}
    return scales if len(scales) <= FEW and wide and max(wide) >= 2 * min(wide) else {}
