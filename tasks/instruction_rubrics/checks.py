"""`instruction-rubrics`: which answers can stand, and what a translation has lost. Pure rules over words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from earmark.tasks.build.checks import Fault

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_EN_NUMBERS = {
    word: number
    for number, word in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 2
    )
}
_ZH_DIGITS = {sign: number for number, sign in enumerate("零一二三四五六七八九")} | {"两": 2, "俩": 2}
_ZH_NUMBER = re.compile(r"[一二三四五六七八九]?十[一二三四五六七八九]?|[二两俩三四五六七八九]")
_EN_NEGATION = re.compile(r"\b(?:no|not|never|none|neither|nor|without|cannot|\w+n['’]t)\b", re.IGNORECASE)
_ZH_QUESTION = re.compile(r"是否|能否|有否|(.)不\1|有没有")
_ZH_NEGATION = re.compile(r"[不没無无非未别]")
_NAME = re.compile(r"(?<![.!?。？！:：\"“「『]\s)(?<!^)(?<![.!?。？！\"“「『])\b([A-Z][\w'’-]+)")
_QUOTED = re.compile(r"[\"“「『]([^\"”」』]+)[\"”」』]")


def perturbation_fault(caption: str, value: Mapping[str, Any]) -> Fault | None:
    """Whether a changed caption is the old one but for one span, as the answer says.

    Args:
        caption: the caption that was to be changed.
        value: the answer: `before`, `after`, `caption`.
    """
    before, after, changed = value["before"], value["after"], value["caption"].strip()
    caption = caption.strip()
    if _plain(changed) == _plain(caption) or _plain(before) == _plain(after):
        return Fault("unchanged", "expected a detail changed, found the caption as it was")
    at = caption.find(before)
    if at < 0:
        return Fault("span_not_found", f"expected words of the caption, found '{before[:60]}'")
    while at >= 0:
        if caption[:at] + after + caption[at + len(before) :] == changed:
            return None
        at = caption.find(before, at + 1)
    return Fault("rest_changed", f"expected the rest unchanged after '{before[:40]}' became '{after[:40]}'")


def items_fault(instruction: str, items: Sequence[Mapping[str, Any]]) -> Fault | None:
    """Whether each item rests on words of the instruction, and no question stands twice."""
    words = _plain(instruction)
    for item in items:
        if _plain(item["basis"]) not in words:
            return Fault("basis_not_found", f"expected words of the instruction, found '{item['basis'][:60]}'")
    questions = Counter(_plain(item["question"]) for item in items)
    question, times = questions.most_common(1)[0]
    return Fault("repeated_item", f"expected each question once, found '{question[:60]}' again") if times > 1 else None


def numbers_fault(count: int, answers: Sequence[Mapping[str, Any]]) -> Fault | None:
    """Whether answers are there for the items 1 to `count`, in order, once each."""
    numbers = [answer["id"] for answer in answers]
    if numbers == list(range(1, count + 1)):
        return None
    return Fault("items_do_not_match", f"expected answers to items 1 to {count}, found {numbers}")


def translation_fault(texts: Sequence[str], into: str, translated: Sequence[str]) -> Fault | None:
    """Whether there are as many texts as before, each in the language asked for."""
    if len(translated) != len(texts):
        return Fault("texts_do_not_match", f"expected {len(texts)} texts, found {len(translated)}")
    for text in translated:
        han, words = len(_HAN.findall(text)), len(re.findall(r"[A-Za-z]+", text))
        if (han == 0) if into == "zh" else (han > words):
            return Fault("not_translated", f"expected the language '{into}', found '{text[:60]}'")
    return None


def lost(text: str, language: str, translated: str, into: str) -> list[str]:
    """What a translation may have lost: `numbers`, `names`, `negations`. A flag, not a proof.

    Args:
        text: the text.
        language: its language, en or zh.
        translated: the same in another language.
        into: that language.
    """
    losses = []
    if _numbers(text, language) - _numbers(translated, into):
        losses.append("numbers")
    if any(name.casefold() not in translated.casefold() for name in _names(text, language)):
        losses.append("names")
    if _negates(text, language) != _negates(translated, into):
        losses.append("negations")
    return losses


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _numbers(text: str, language: str) -> set[str]:
    """Numbers that a text names, as digits; one is no number: it stands for an article too often."""
    numbers = set(_DIGITS.findall(text))
    if language == "en":
        words = re.findall(r"[a-z]+", text.lower())
        numbers |= {str(_EN_NUMBERS[word]) for word in words if word in _EN_NUMBERS}
    else:
        numbers |= {str(_zh_number(sign)) for sign in _ZH_NUMBER.findall(text)}
    return numbers - {"1"}


def _zh_number(signs: str) -> int:
    tens, ten, ones = signs.rpartition("十")
    value = 10 * (_ZH_DIGITS[tens] if tens else 1) if ten else 0
    return value + (_ZH_DIGITS[ones] if ones else 0)


def _names(text: str, language: str) -> set[str]:
    """Words in Latin letters that a translation keeps: in a Chinese text all, in an English one what is quoted."""
    if language == "zh":
        return set(re.findall(r"[A-Za-z][\w'’-]+", text))
    return {quoted for quoted in _QUOTED.findall(text) if re.search(r"[A-Z]", quoted)} | set(_NAME.findall(text))


def _negates(text: str, language: str) -> bool:
    if language == "en":
        return bool(_EN_NEGATION.search(text))
    return bool(_ZH_NEGATION.search(_ZH_QUESTION.sub("", text)))
