"""Check answers and translations of `instruction-rubrics` by pure rules over words."""

import re
from collections.abc import Sequence

from earmark.tasks.instruction_rubrics.attributes import DROPPED
from earmark.tasks.instruction_rubrics.rows import BareItem, ItemReply, WordChange
from earmark.tasks.pipeline.ask import Fault
from earmark.tasks.text.bilingual import HAN, Language, language_of, negates, quotes, straight, without_speech
from earmark.tasks.text.numbers import differing

_NAME = re.compile(r"(?<![.!?。？！:：\"「『]\s)(?<!^)(?<![.!?。？！\"「『])\b([A-Z][\w'-]+)")
_TITLE = re.compile(r"[\"「『]((?:[^\s\"」』.!?,;:]+\s?){1,4})[\"」』]")


def perturbation_fault(caption: str, value: WordChange, names: Sequence[str]) -> Fault | None:
    """Return a fault unless a caption differs only in a detail and its dependent words, proved by undoing the changes.

    Args:
        caption: the original caption.
        value: the answer: `attribute`, `before`, `after`, `also`, `caption`.
        names: the offered attributes.
    """
    caption = straight(caption)
    before, after, changed = (straight(value[name]) for name in ("before", "after", "caption"))
    if plain(changed) == plain(caption) or plain(before) == plain(after):
        return Fault("wrong_change", "expected a detail changed, found the caption as it was")
    if value["attribute"] not in names:
        return Fault("wrong_change", f"expected one of {', '.join(names)}, found '{value['attribute'][:60]}'")
    if value["attribute"] == DROPPED and (added := {*plain(after).split()} - {*plain(before).split()}):
        found = " ".join(sorted(added))[:60]
        return Fault("wrong_change", f"expected words left out, found '{found}' in their place")
    if before not in caption:
        return Fault("wrong_change", f"expected words of the caption, found '{before[:60]}'")
    also = [(straight(one["before"]), straight(one["after"])) for one in value.get("also", ())]
    for old, new in also:
        if not _follows(caption, (before, after), (old, new)):
            return Fault(
                "wrong_change", f"expected words that must follow the change, found '{old[:40]}' to '{new[:40]}'"
            )
    if _can_be_undone(" ".join(caption.split()), " ".join(changed.split()), (before, after), also):
        return None
    return Fault("wrong_change", f"expected the rest unchanged after '{before[:40]}' became '{after[:40]}'")


def _follows(caption: str, main: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether words may change because others did: the same words again, their neighbours (the dog that
    *barks*), forms of the same word, words of grammar, and after a change of gender, words of gender."""
    (before, after), (old, new) = (tuple(map(plain, pair)) for pair in (main, other))
    if before and old.replace(before, after) == new:
        return True
    olds, news = _words(old), _words(new)
    changed = set(olds) ^ set(news)
    if changed <= _GRAMMAR or (changed <= _GENDER | _GRAMMAR and _GENDER & {*_words(before), *_words(after)}):
        return True
    if len(olds) == len(news) and all(_same_stem(*pair) for pair in zip(olds, news, strict=True)):
        return True
    text = plain(caption)
    ends = [(found.start(), found.end()) for found in re.finditer(re.escape(before), text)]
    return any(
        len(_words(text[min(end, found.end()) : max(start, found.start())])) <= 1
        for found in re.finditer(re.escape(old), text)
        for start, end in ends
    )


def _words(text: str) -> list[str]:
    """Return words; each Chinese character is one."""
    return re.findall(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W\u3400-\u9fff]+", text)


_GRAMMAR = frozenset(
    _words(
        "a an the he she it they him her them his hers its their theirs himself herself itself themselves who "
        "whose which this that these those is are was were be been being am has have had do does did s 他 她 它 "
        "们 的 了 在 一 个 这 那"
    )
)


_GENDER = frozenset(
    _words(
        "man men woman women boy boys girl girls male males female females gentleman lady guy guys mr mrs ms "
        "sir madam son daughter father mother brother sister husband wife 男 女 人 性 士 先 生 孩 子 声 父 母 "
        "哥 弟 姐 妹"
    )
)


def _same_stem(one: str, other: str) -> bool:
    common = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one == other or common >= max(3, len(one) - 3, len(other) - 3)


def _can_be_undone(caption: str, changed: str, main: tuple[str, str], also: Sequence[tuple[str, str]]) -> bool:
    """Return whether undoing the changes, including the main one, restores the old caption.

    Both are walked side by side: equal characters advance by one, changed words together with their replacement. Words
    at the beginning of a sentence may be capitalised, and a dropped sentence takes a space with it.
    """
    old, new = (" ".join(words.split()) for words in main)
    mains = [(old, new)] if new else [(old, ""), (f" {old}", ""), (f"{old} ", "")]
    pairs = [(one, two, True) for one, two in mains] + [(one, two, False) for one, two in also]
    pairs += [(_capital(one), _capital(two), is_main) for one, two, is_main in pairs]
    open_, seen = [(0, 0, False)], set[tuple[int, int, bool]]()
    while open_:
        at, place, used = open_.pop()
        if (at, place, used) in seen:
            continue
        seen.add((at, place, used))
        if used and caption[at:].strip() == changed[place:].strip() == "":
            return True
        open_ += [
            (at + len(one), place + len(two), used or is_main)
            for one, two, is_main in pairs
            if caption.startswith(one, at) and changed.startswith(two, place)
        ]
        if caption[at : at + 1] and caption[at : at + 1] == changed[place : place + 1]:
            open_.append((at + 1, place + 1, used))
    return False


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def usable_items(instruction: str, items: Sequence[BareItem]) -> tuple[list[BareItem], list[tuple[str, str]]]:
    """Return items based on words of the instruction with new questions; and reason and question of the others."""
    words, questions = plain(instruction), set[str]()
    usable: list[BareItem] = []
    dropped: list[tuple[str, str]] = []
    for item in items:
        if not plain(item["basis"]) or plain(item["basis"]) not in words:
            dropped.append(("basis_not_found", item["question"]))
        elif plain(item["question"]) in questions:
            dropped.append(("repeated_item", item["question"]))
        else:
            questions.add(plain(item["question"]))
            usable.append(item.copy())
    return usable, dropped


def items_fault(instruction: str, items: Sequence[BareItem]) -> Fault | None:
    """Return a fault if no item of a list is usable; a single bad item costs only itself."""
    if usable_items(instruction, items)[0]:
        return None
    return Fault("basis_not_found", f"expected words of the instruction, found '{items[0]['basis'][:60]}'")


def numbers_fault(count: int, answers: Sequence[ItemReply]) -> Fault | None:
    """Return a fault unless the answers are for items 1 to `count`, in order, once each."""
    numbers = [answer["id"] for answer in answers]
    if numbers == list(range(1, count + 1)):
        return None
    return Fault("bad_answer", f"expected answers to items 1 to {count}, found {numbers}")


def translation_fault(texts: Sequence[str], into: Language, translated: Sequence[str]) -> Fault | None:
    """Return a fault unless the number of texts is unchanged and each is in the target language, with its numbers."""
    if len(translated) != len(texts):
        return Fault("bad_answer", f"expected {len(texts)} texts, found {len(translated)}")
    for text in translated:
        if not HAN.search(without_speech(text)) if into == "zh" else language_of(text) == "zh":
            return Fault("not_translated", f"expected the language '{into}', found '{text[:60]}'")
    for text, other in zip(texts, translated, strict=True):
        if wrong := differing(text, "en" if into == "zh" else "zh", other, into, digits=True):
            return Fault(
                "not_translated", f"expected the same numbers, found {wrong[0]:g} in one alone: '{other[:60]}'"
            )
    return None


def lost(text: str, language: Language, translated: str, into: Language) -> list[str]:
    """List a translation's possible losses: `speech` (quoted words that are translated too), `numbers` (lost or added),
    `names`, `negations`. A flag, not a proof.

    Args:
        language: its language, en or zh.
        translated: the same in another language.
        into: that language.
    """
    losses = []
    text, translated = straight(text), straight(translated)
    own, other = text, translated
    for quote in quotes(text):  # speech left untranslated has lost nothing
        if quote in translated:
            own, other = own.replace(quote, ""), other.replace(quote, "")
        elif not _is_title(quote):
            losses = ["speech"]
    if differing(own, language, other, into):
        losses.append("numbers")
    if any(name.casefold() not in translated.casefold() for name in _names(text, language)):
        losses.append("names")
    if negates(text, language) != negates(translated, into):
        losses.append("negations")
    return losses


def plain(text: str) -> str:
    """Return a text without regard to case, blanks and forms of quotes, for comparing words."""
    return " ".join(straight(text).split()).casefold()


def _names(text: str, language: str) -> set[str]:
    """Return words in Latin letters kept by a translation: all in a Chinese text, quoted titles and names in
    English."""
    if language == "zh":
        return set(re.findall(r"[A-Za-z][\w'-]+", text))
    return {title for title in _TITLE.findall(text) if _is_title(title)} | set(_NAME.findall(text))


def _is_title(text: str) -> bool:
    words = text.split()
    return text[0].isupper() and all(word[0].isupper() or len(word) <= 3 for word in words)
