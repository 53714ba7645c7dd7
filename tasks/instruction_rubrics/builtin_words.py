"""Find words about audio in English and Chinese for rules to change, ask about and look up; a small list."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from earmark.tasks.text.bilingual import HAN, Language

Pair: TypeAlias = tuple[str, str]  # a word in English and in Chinese


class WordGroup(NamedTuple):
    """Words of a dimension, excluding one another: swapping a word for another makes a caption wrong."""

    dimension: Pair
    domains: tuple[str, ...]  # of the rule for changing a word
    words: tuple[Pair, ...]


def _groups() -> list[WordGroup]:
    """Read `builtin_words.tsv`: dimension in both languages, domains, pairs of words; the last row has no dimension."""
    text = Path(__file__).with_suffix(".tsv").read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return [
        WordGroup((english, chinese), tuple(domains.split()), tuple(map(_pair, words.split("|"))))
        for english, chinese, domains, words in rows
    ]


def _pair(words: str) -> Pair:
    english, _, chinese = words.rpartition(" ")
    return english, chinese


*GROUPS, _OTHERS = _groups()

_WORD = re.compile(r"[a-z0-9]+(?:['’][a-z]+)?|[\u3400-\u4dbf\u4e00-\u9fff]+", re.IGNORECASE)
_LITTLE = frozenset(
    re.findall(
        r"\w+",
        "a an the of is are was were be it its to at on in by as and or with for from that this there which who whose "
        "has have having heard hear can you your clip audio does do s",
    )
)


@dataclass(frozen=True, slots=True)
class GroupWord:
    """A word of `GROUPS` in a text."""

    start: int  # start, end: its place
    end: int
    word: str  # as in the group
    dimension: str  # of the group, in the text's language
    others: tuple[str, ...]  # its possible replacements
    domains: tuple[str, ...]  # domains of the rule for changing it


def attribute_of(dimension: str) -> str:
    """Return the attribute of a group's dimension, given in either language."""
    english = next((en for (en, zh), _, _ in GROUPS if dimension in (en, zh)), dimension)
    return {"voice": "gender", "speaker": "gender", "number": "source", "key": "structure"}.get(english, english)


def named_in(text: str, language: Language) -> list[GroupWord]:
    """Return the words of `GROUPS` in a text, in its order; of nested words the longest."""
    named: list[GroupWord] = []
    for (english, chinese), domains, words in GROUPS:
        terms = tuple(pair[0 if language == "en" else 1] for pair in words)
        for term in terms:
            others = tuple(other for other in terms if other != term)
            for start, end in _places(text, term, language):
                named.append(GroupWord(start, end, term, english if language == "en" else chinese, others, domains))
    named.sort(key=lambda one: (one.start, -one.end))
    kept: list[GroupWord] = []
    for one in named:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept


def content(text: str) -> set[str]:
    """Return a text's content as comparable units: English words without endings, Chinese words of the list, else pairs
    of Chinese characters."""
    units: set[str] = set()
    for piece in _WORD.findall(text.lower()):
        if not HAN.match(piece):
            if piece not in _LITTLE:
                units.add(_stem(piece))
            continue
        left = piece
        for term in _CHINESE:
            if term in left:
                units.add(term)
                left = left.replace(term, " ")
        for run in left.split():
            units |= {run[at : at + 2] for at in range(max(1, len(run) - 1))}
    return units


def phrase_book(text: str, into: Language) -> str:
    """Translate word for word through the list: missing words stay in Chinese, and become `[?]` in English."""
    if into == "zh":
        words = text
        for english, chinese in _BY_LENGTH_EN:
            words = re.sub(rf"\b{re.escape(english)}\b", chinese, words, flags=re.IGNORECASE)
        words = re.sub(r"\b(?:an?|the|is|are|of)\b ?", "", words, flags=re.IGNORECASE)
        return re.sub(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])", "", " ".join(words.split()))
    words = text
    for english, chinese in _BY_LENGTH_ZH:
        words = words.replace(chinese, f" {english} ")
    words = re.sub(r"[\u3400-\u4dbf\u4e00-\u9fff]+", " [?] ", words.replace("的", " "))
    words = words.translate(str.maketrans("，。、；：！？“”（）", ',.,;:!?""()'))
    return re.sub(r"\s+([,.;:!?])", r"\1", " ".join(words.split()))


def _places(text: str, term: str, language: Language) -> Iterator[tuple[int, int]]:
    pattern = rf"\b{re.escape(term)}\b" if language == "en" else re.escape(term)
    for match in re.finditer(pattern, text, re.IGNORECASE):
        yield match.span()


def _stem(word: str) -> str:
    for ending in ("ing", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_PAIRS = [pair for group in (*GROUPS, _OTHERS) for pair in group.words]
_BY_LENGTH_EN = sorted(_PAIRS, key=lambda pair: (-len(pair[0]), pair))
_BY_LENGTH_ZH = sorted(_PAIRS, key=lambda pair: (-len(pair[1]), pair))
_CHINESE = sorted({pair[1] for pair in _PAIRS}, key=lambda term: (-len(term), term))
