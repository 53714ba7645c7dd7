"""Parse the cells of lists: scores, counts, ids, paths of clips. Raise `BadRow` for any other content."""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from earmark.schemas.places import place_of
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.tables import SPLITS, common_split

AS_FILES = "write them to files, as flows/topics/mos_preferences/lists.md shows, and name these in the table"
LONGEST_ID = 1024  # characters; a longer id is a misread row

_NO_WIDTH = "\u200b\u2060\ufeff"  # spaces that pages and spreadsheets leave around a copied name

_absolute: ContextVar[list[tuple[str, str]] | None] = ContextVar("absolute", default=None)


class Scale(NamedTuple):
    """Range and missing values of a rating."""

    low: float
    high: float
    missing: frozenset[str | float] = frozenset()  # numbers, and lower-case texts, meaning no rating
    turned: bool = False  # whether the lowest is the best


class BadRow(Exception):
    """A row without a valid rating; the reader of its list turns it into a `Reject`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class BadList(BadRow):
    """A row proving the whole list misread: reading of the list stops."""


def given(cell: Any) -> bool:
    """Return whether a cell holds anything but space."""
    return cell is not None and cell != [] and not (isinstance(cell, str | bytes) and not cell.strip())


def number(cell: Any) -> float:
    """Parse a number as lists write it (`4`, ` 4.0 `, `4e0`, `−4`, `４`); return NaN for `4_0`, `4,5`, True."""
    if cell.__class__ is str:
        if not cell.isascii():  # float() takes digits of any script
            cell = cell.translate(_PLAIN)
        if "_" in cell or not cell.isascii():
            return math.nan
    elif cell.__class__ is bool:
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def decimal(cell: Any) -> float:
    """Parse a number, also with a decimal comma; else return NaN."""
    return number(cell.replace(",", ".", 1) if isinstance(cell, str) and "." not in cell else cell)


# The minus sign of typography, and the full-width digits of Chinese and Japanese.
_PLAIN = str.maketrans("−－＋．０１２３４５６７８９", "--+.0123456789")
_NUMBER = r"([+-]?\d+(?:[.,]\d+)?)"
# "4,75", "80%", "4 stars", "5 - Excellent", "3.5 ± 0.1", "Excellent (5)": a decimal comma, a rating with its unit,
# before its label or its interval, or after its label.
_WRITTEN = re.compile(
    rf"\s*{_NUMBER}\s*(?:%|％|stars?|points?|分|点|점)?\s*(?:[-–—:=().]+\s*[^\d\s].*|(?:±|\+/-).*)?"
    rf"|\s*[^\W\d][^\d()（）]*[(（]\s*{_NUMBER}\s*[)）]\s*"
)

# A day that a spreadsheet made of a rating: "04. Mai" and "4-May" of 4.5, "3-Aug" of 3.8 or 8/3.
_DAY = re.compile(
    r"\s*\d{1,2}[-. ]+(?:jan|janv|january|januar|feb|february|februar|févr|fev|mär|märz|marz|mrz|mars?|march|mrt|apr|"
    r"april|avr|abr|mai|may|mei|mag|maj|jun|juni|june|juin|giu|jul|juli|july|juil|lug|aug|august|août|ago|sept?|"
    r"september|set|oct|october|okt|oktober|ott|out|nov|november|dec|december|dez|dezember|déc|dic|ene|gen)"
    r"\.?(?:[-. ]+\d+)?\s*",
    re.IGNORECASE,
)


def is_day(cell: str) -> bool:
    """Return whether a cell is a day as a spreadsheet shows it, such as `3-Jan`."""
    return _DAY.fullmatch(cell) is not None


def rating_number(cell: Any) -> float:
    """Parse a rating as people write it: a number, also with a decimal comma, a unit or a label; else return NaN."""
    value = number(cell)
    if value == value or not isinstance(cell, str) or _DAY.fullmatch(cell):
        return value
    match = _WRITTEN.fullmatch(cell.translate(_PLAIN))
    return number((match[1] or match[2]).replace(",", ".")) if match else math.nan


THOUSANDS = re.compile(r"\s*[1-9]\d{0,2},\d{3}\s*")  # or a decimal comma before three digits
NEXT_STEP = 1.0  # points beyond a scale at which a rating looks like its next step
BINARY = 1e-6  # points beyond a scale's end that a number written out of binary may lie, such as 5.0000001
NOISE = 0.01  # points beyond a scale within a mean's rounding


def missing_cells(written: Iterable[str | float | bool]) -> frozenset[str | float]:
    """Normalise the config's `not_a_rating` cells for comparison in `score`."""
    return frozenset(_comparable(cell) for cell in written)


def _comparable(cell: Any) -> str | float:
    value = number(cell)
    return value if value == value else str(cell).strip().lower()


def score(cell: Any, scale: Scale) -> float:
    """Return a rating or a mean on the source's scale, inverted if the lowest is the best.

    Raises:
        BadRow: the cell holds no such rating.
        BadList: the cell looks like the next step of the scale, so the scale does not fit the list.
    """
    low, high, missing, turned = scale
    value = rating_number(cell)
    if high >= 1000 and isinstance(cell, str) and THOUSANDS.fullmatch(cell):
        value = math.nan  # 1,000 may be one or a thousand
    if missing and ("" if cell is None or cell != cell else _comparable(cell)) in missing:
        raise BadRow("not_a_rating", f"not_a_rating holds '{shown(cell)}'")
    if low - BINARY <= value <= high + BINARY:
        value = min(max(value, low), high)
        return round(low + high - value, 9) if turned else value
    beyond = max(low - value, value - high)
    if NOISE < beyond <= NEXT_STEP:
        ends = (math.floor(min(low, value)), math.ceil(max(high, value)))
        raise BadList(
            "score_out_of_scale",
            f"{value:g} looks like the next step of scale = [{low:g}, {high:g}]: write scale = [{ends[0]}, {ends[1]}], "
            f"or not_a_rating = [{value:g}]",
        )
    if not given(cell):
        raise BadRow("score_missing", f"expected a score from {low:g} to {high:g}, found an empty cell")
    if math.isfinite(value):
        raise BadRow("score_out_of_scale", f"expected a score from {low:g} to {high:g}, found {shown(cell)}")
    raise BadRow("score_not_a_number", f"expected a score from {low:g} to {high:g}, found '{shown(cell)}'")


def votes(cell: Any) -> int:
    """Return the number of ratings behind a mean; read `8.0` as 8."""
    if not given(cell):
        raise BadRow("missing_value", "expected a number of votes, found an empty cell")
    value = decimal(cell)
    if "," in str(cell) and len(str(cell).strip().rpartition(",")[2]) == 3:
        value = math.nan  # 1,000 may be one or a thousand
    if value >= 1 and value.is_integer() and value < 2**53:
        return int(value)
    raise BadRow("bad_value", f"expected a whole number of votes from 1, found '{shown(cell)}'")


def deviation(cell: Any) -> float:
    """Return the standard deviation of the ratings behind a mean."""
    if not given(cell):
        raise BadRow("missing_value", "expected a standard deviation, found an empty cell")
    value = decimal(cell)
    if 0 <= value < math.inf:
        return value
    raise BadRow("bad_value", f"expected a standard deviation from 0, found '{shown(cell)}'")


# An id of more digits than its writing keeps: `1.23E+11` as Excel shows it, `1.2345678901234568e+18` of a float.
_ROUNDED = re.compile(r"\s*\d(?:[.,](\d+))?[eE]\+(\d{1,4})\s*")
MOST_DIGITS = 15  # behind the first, in a float


def is_rounded(cell: str) -> bool:
    """Return whether a cell is a number that lost its last digits in a spreadsheet or as a float."""
    match = _ROUNDED.fullmatch(cell) if "+" in cell else None
    return match is not None and int(match[2]) > min(len(match[1] or ""), MOST_DIGITS)


def _with_article(word: str) -> str:
    return f"{'an' if word[0] in 'aeio' else 'a'} {word}"


def identifier(cell: Any, word: str) -> str:
    """Return an id without the space around it.

    Args:
        cell: text, or the value of a Parquet or JSON cell.
        word: the kind of id, for the detail of a reject.
    """
    text: str = cell.strip() if cell.__class__ is str else _as_text(cell, word).strip()
    a_word = _with_article(word)
    if text and len(text) <= LONGEST_ID and text.isprintable():
        if is_rounded(text):
            raise BadRow(
                "bad_value",
                f"expected {a_word} in full, found '{text}', rounded as by a spreadsheet: export that column as text",
            )
        return text
    if not text:
        raise BadRow("missing_value", f"expected {a_word}, found an empty cell")
    if len(text) > LONGEST_ID:
        raise BadRow("bad_value", f"expected {a_word} of at most {LONGEST_ID} characters, found {len(text)}")
    for char in text:  # spaces of other scripts are allowed; control characters and lone surrogates are not
        if ord(char) < 32 or 127 <= ord(char) < 160 or 0xD800 <= ord(char) < 0xE000:
            raise BadRow("bad_value", f"expected {a_word} without control characters, found '{shown(text)}'")
    return text


def normal(text: str) -> str:
    """Return a name in one form of Unicode (NFC); forms look alike."""
    return unicodedata.normalize("NFC", text)


def clip(cell: Any, root: str) -> str:
    """Return a clip's name or path below the list's folder, without `./` and double `/`; reject a path outside it.

    Args:
        cell: a path with `/` between its parts.
        root: the folder, absolute; a path below it, or a URL of a file in it, is made relative to it.
    """
    text = identifier(cell, "file")
    if not text.isascii():
        text = text.strip(_NO_WIDTH) or text
    if text[0] != "/" and ".." not in text and "\\" not in text and ":" not in text:
        return _short(text) if "//" in text or "./" in text else text
    place = str(place_of(text)) if text.startswith(("s3://", "hf://datasets/")) else text
    drive = len(text) > 1 and text[1] == ":" and text[0].isalpha()
    if drive or "\\" in text:
        expected = "expected a path below the root: replace its '\\' by '/' in the list"
        raise BadRow(
            "path_outside_root", f"{expected}{' and leave out its drive' if drive else ''}, found '{shown(text)}'"
        )
    if ".." in text.split("/"):
        way = (
            ": leave out '../' in the list, and take as the root the folder that the rest starts from"
            if text.startswith("../")
            else ", with '/' only"
        )
        raise BadRow("path_outside_root", f"expected a path below the root{way}, found '{shown(text)}'")
    if place[0] == "/":
        if not place.startswith(root.rstrip("/") + "/"):
            raise BadRow("path_outside_root", f"expected a path below the root, found '{shown(text)}'")
        relative = PurePosixPath(place).relative_to(root).as_posix()
        if (decided := _absolute.get()) is not None:
            decided.append((text, relative))
        return relative
    return text if "://" in text else _short(text)


def _short(path: str) -> str:
    """Return a relative path without empty parts and `.`, which name the same file."""
    *folders, name = path.split("/")
    return "/".join([*(part for part in folders if part not in ("", ".")), name])


def other_forms(name: str) -> list[str]:
    """List a name's other spellings in Unicode: an accented letter is one character, or a letter and its accent."""
    forms = () if name.isascii() else (normal(name), unicodedata.normalize("NFD", name))
    return [form for form in forms if form != name]


def same_name(one: str, other: str) -> bool:
    """Return whether two names differ at most in their form of Unicode."""
    return one == other or one in other_forms(other)


def one_spelling(rows: Iterable[Any], fields: tuple[str, ...]) -> Iterator[Any]:
    """Yield rows with each clip spelled as where it first stands, whatever the form of Unicode: it is one clip.

    Args:
        fields: those of a row's clips; a row need not have all.
    """
    first: dict[str, str] = {}
    for row in rows:
        if not isinstance(row, Reject | Note):
            for field in fields:
                name = getattr(row, field, None)
                if name and not name.isascii():
                    spelled = first.setdefault(normal(name), name)
                    row = row if spelled == name else row._replace(**{field: spelled})
        yield row


@contextmanager
def absolute_clips() -> Iterator[list[tuple[str, str]]]:
    """Collect clips named by an absolute path or URL while rows are read: cell, and path below the root.

    A root decides nothing else about rows: other absolute paths are rejects, relative ones stay unchanged.
    """
    decided: list[tuple[str, str]] = []
    before = _absolute.set(decided)
    try:
        yield decided
    finally:
        _absolute.reset(before)


def split_name(cell: Any) -> str:
    """Return the split for Earmark's or a publisher's name of it."""
    text = identifier(cell, "split") if given(cell) else ""
    split = common_split(text)
    if split not in SPLITS:
        raise BadRow("bad_split", f"expected one of {', '.join(SPLITS)}, found '{shown(text)}'")
    return split


def _as_text(cell: Any, word: str) -> str:
    """Return the text of a typed cell of JSON or Parquet; 3.0 gives `3`, since missing values turn ints to floats."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError as error:
            raise BadRow("bad_encoding", f"expected UTF-8 in the {word}, found byte {cell[error.start]:#04x}") from None
    if isinstance(cell, dict) and "bytes" in cell:
        raise BadRow("bad_value", f"expected {_with_article(word)}, found its bytes: {AS_FILES}")
    if isinstance(cell, list | dict):
        raise BadRow(
            "bad_value",
            f"expected {_with_article(word)}, found {'an array' if isinstance(cell, list) else 'an object'}",
        )
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell)) if abs(cell) < 2**53 else f"{cell:e}"  # beyond it, a float holds no id
    return str(cell)
