"""Find the numbers of English and Chinese texts, in digits and words, to compare a text with its translation."""

import re
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from earmark.tasks.text.bilingual import Language

_EN_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_ZH_SCALES = {"百": 100, "千": 1_000, "万": 10_000, "萬": 10_000, "亿": 100_000_000, "億": 100_000_000}
_SCALES = _EN_SCALES | _ZH_SCALES
_EN_SCALE = "|".join(_EN_SCALES)
_DIGITS = re.compile(
    rf"(\d+(?:,\d{{3}})*(?:\.\d+)?)(?: ?({_EN_SCALE})\b|([百万萬亿億]|千(?![赫瓦克])))?", re.IGNORECASE
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_EN = {word: number for number, word in enumerate(_UNITS)} | {word: 20 + 10 * at for at, word in enumerate(_TENS)}
_EN |= {f"{word[:-1]}ies": _EN[word] for word in _TENS}
_EN_WORDS = re.compile(rf"\b(?:{'|'.join(sorted(_EN, key=len, reverse=True))})\b(?![’'])", re.IGNORECASE)
_EN_NUMBERS = re.compile(rf"{_EN_WORDS.pattern}|\b(?:{_EN_SCALE})\b")
_EN_AND = re.compile(r"\s+and\s+|,\s+")
_EN_MAYBE = {  # words that Chinese often has with a numeral
    "second": 2, "twice": 2, "double": 2, "both": 2, "pair": 2, "couple": 2, "duet": 2, "duo": 2, "dual": 2, "half": 2,
    "third": 3, "triple": 3, "trio": 3, "triplet": 3, "triad": 3, "quarter": 4, "quartet": 4, "fifth": 5, "quintet": 5,
    "eighth": 8, "octave": 8, "ninth": 9, "twelfth": 12, "dozen": 12,
}  # fmt: skip
_ORDINALS = ["zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"]
_COMPOUND = re.compile(rf"\b({'|'.join(_TENS)})[\s-]?({'|'.join(_ORDINALS[1:])})\b")  # twenty-first
_SMALLER_UNITS = (  # of a text, and of the other one
    (r"minute|分[钟鐘半]", r"second|秒", 60),
    (r"hour|小[时時]|[钟鐘][头頭]", r"minute|分[钟鐘]", 60),
    (r"\bdays?\b|[一整两二三四五六七八九十\d]天", r"hour|小[时時]|[钟鐘][头頭]", 24),
)
_UNITS_OF_THOUSAND = re.compile("[赫瓦克米]|hz\\b|watt|gram|met(?:er|re)|\\bk[wgm]\\b")
_EN_MAYBE |= {f"{word}th": number for word, number in _EN.items() if word in _UNITS}
_EN_MAYBE |= {f"{word[:-1]}ieth": _EN[word] for word in _TENS}
_EN_MAYBE |= {f"{word}s": number for word, number in _EN_MAYBE.items()}
_ZH = {sign: number for number, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2, "俩": 2}
_ZH_RUN = re.compile(r"[零〇一二两兩俩三四五六七八九十百千万萬亿億]{1,16}")
_ZH_MAYBE = re.compile(  # words with a numeral that count nothing that English counts by the same number
    "十分(?![之钟鐘])|[二三四五六七八九]重[奏唱]|二胡|三角|三弦|五声|四[周处處]|七弦|八度|[四八]分音|万[分物籁]|千篇|"
    "十六分音符|三连音|[三四五六七八九]度|三和弦"
)
_ZH_MORE = {"双": 2, "雙": 2, "对": 2, "半": 2}


class Numbers(NamedTuple):
    """The numbers of a text: those that it plainly has, of these those in digits, and all that it may have."""

    plain: frozenset[float]
    digits: frozenset[float]
    possible: frozenset[float]


@lru_cache(maxsize=1024)  # a translation is checked when it comes, and again for what it may have lost
def numbers_of(text: str, language: Language) -> Numbers:
    """Return the numbers of a text, except 0 and 1: one too often means an article."""
    digits, spelt, maybe = set[float](), set[float](), set[float]()
    for figure, *scales in _DIGITS.findall(text):
        value, scale = float(figure.replace(",", "")), _SCALES.get("".join(scales).lower(), 1)
        worth = round(value * scale, 6)
        digits.add(worth)
        maybe |= {value, worth}
    if language == "en":
        _read_english(text.lower(), spelt, maybe)
    else:
        _read_chinese(text, spelt, maybe)
    plain = digits | spelt
    maybe |= plain
    maybe |= _related(text.lower(), maybe)
    if re.search("年代|0s|ties", text):
        maybe |= {century + decade for century in (1900, 2000) for decade in maybe if decade in range(10, 100, 10)}
    years = {number for number in maybe if number % 1 == 0 and 1000 <= number < 2100}
    maybe |= {part for year in years for part in (year % 100, year // 100, year // 100 + 1)}
    maybe |= {
        100 * (century - 1) + decade
        for century in maybe
        if 10 < century < 22
        for decade in {0.0, *maybe}
        if decade < 100
    }
    none = {0.0, 1.0}
    return Numbers(frozenset(plain - none), frozenset(digits - none), frozenset(maybe))


def _related(text: str, numbers: set[float]) -> set[float]:
    """Return further numbers by which a translation may say the same: halves, hours after noon, thousands of a unit."""
    found = {float(int(number)) for number in numbers if number % 1 == 0.5}
    if re.search(r"\bhalf\b|半", text):
        found |= {number + 0.5 for number in {0.0, 1.0, *numbers}} | {30.0}
    if re.search(r"一半|\bhalf (?:of|the)\b", text):
        found.add(50.0)
    if re.search(r"\bp\.?m\b|[点點]", text):
        found |= {number + shift for number in numbers for shift in (-12, 12) if 0 < number + shift <= 24}
    if _UNITS_OF_THOUSAND.search(text):
        found |= {number * factor for number in numbers for factor in (1000, 1 / 1000)}
    return found


def _read_english(text: str, plain: set[float], maybe: set[float]) -> None:
    words = {*re.findall("[a-z]+", text)}
    maybe |= {float(_EN_MAYBE[word]) for word in words & _EN_MAYBE.keys()}
    for tens, unit in _COMPOUND.findall(text):  # the twenty-second voice, or a twenty-second clip
        maybe |= {float(_EN[tens]), _EN[tens] + float(_ORDINALS.index(unit))}
    text = _DIGITS.sub(" # ", _COMPOUND.sub(" # ", text))
    run: list[int] = []
    end = 0
    words_of_numbers = [*_EN_NUMBERS.finditer(text)]
    for found, then in zip_longest(words_of_numbers, words_of_numbers[1:]):
        word = found[0]
        value = _EN_SCALES.get(word) or _EN[word]
        scale = _EN_SCALES.get(then[0], 0) if then and text[found.end() : then.start()] in (" ", "-") else 0
        if len(run) == 8 or (run and not _goes_on(run, text[end : found.start()], value, scale)):
            plain.add(_worth(run))
            run = []
        end = found.end()
        maybe.add(_EN.get(word, 0))
        run.append(value)
    plain.update([_worth(run)] if run else [])


def _goes_on(run: list[int], between: str, value: int, scale: int) -> bool:
    """Return whether a word, with a scale behind it or 0, goes on with a number: lists such as `two, three or four` and
    `one hundred and two hundred` have several."""
    before = run[-1]
    if _EN_AND.fullmatch(between):
        return before >= 100 and scale != before
    year = len(run) == 1 and 10 <= before < 21 and 10 <= value < 100
    tens = 20 <= before < 100 and before % 10 == 0 and 0 < value < 10
    return re.fullmatch(r"[\s-]+", between) is not None and (before >= 100 or value >= 100 or year or tens)


def _worth(run: list[int]) -> float:
    """Return the number of words such as 1 100 20 4, or of a year such as 19 80 5."""
    if len(run) > 1 and 10 <= run[0] < 21 and 10 <= run[1] < 100:
        return 100 * run[0] + sum(run[1:])
    total, part = 0, 0
    for one in run:
        if one < 100:
            part += one
        elif one == 100:
            part = max(part, 1) * 100
        else:
            total, part = total + max(part, 1) * one, 0
    return float(total + part)


def _read_chinese(text: str, plain: set[float], maybe: set[float]) -> None:
    maybe |= {float(number) for sign, number in _ZH_MORE.items() if sign in text}
    for found in _ZH_RUN.finditer(text):
        maybe |= {float(_ZH[sign]) for sign in found[0] if sign in _ZH} | {_positional(found[0])}
    for run in _ZH_RUN.findall(_ZH_MAYBE.sub(" ", text)):
        if re.search("[十百千万萬亿億]", run):
            plain |= {_positional(run)} if re.search("[^百千万萬亿億]", run) else set()  # 百 alone: hundreds
        elif len(run) == 1 or (len(run) == 4 and run[0] in "一二"):  # a year; 三四个 is three or four, 四三拍 is 3/4
            plain.add(float("".join(str(_ZH[sign]) for sign in run)))


def _positional(run: str) -> float:
    total, part, digit = 0, 0, 0
    for sign in run:
        if sign in _ZH:
            digit = 10 * digit + _ZH[sign]
        elif sign in "亿億":
            total, part, digit = max(total + part + digit, 1) * _ZH_SCALES[sign], 0, 0
        elif sign in "万萬":
            total, part, digit = total + max(part + digit, 1) * 10_000, 0, 0
        else:
            part, digit = part + max(digit, 1) * {"十": 10, "百": 100, "千": 1_000}[sign], 0
    return float(total + part + digit)


def differing(text: str, language: Language, other: str, into: Language, *, digits: bool = False) -> list[float]:
    """Return the numbers that one of two texts has and the other cannot have.

    Args:
        digits: whether only numbers in digits count.
    """
    one, two = numbers_of(text, language), numbers_of(other, into)
    first, second = (one.digits, two.digits) if digits else (one.plain, two.plain)
    lost = first - two.possible - _in_smaller_units(other.lower(), two.possible, text.lower())
    return sorted(lost | (second - one.possible - _in_smaller_units(text.lower(), one.possible, other.lower())))


def _in_smaller_units(text: str, numbers: frozenset[float], other: str) -> set[float]:
    """Return a text's numbers in the smaller unit of another text, such as 90 for a minute and a half."""
    pairs = [parts for unit, smaller, parts in _SMALLER_UNITS if re.search(unit, text) and re.search(smaller, other)]
    return {parts * number for parts in pairs for number in {1.0, *numbers}}
