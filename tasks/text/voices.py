"""Find words of voices, singing and lyrics in a text, by a reviewed list with a rule for each word.

`words/vocal_words.tsv` has a row for each word with its forms, its rule, and phrases in which it is not a voice ("inner
voice"; `*` is an instrument, `#` a number, `?` a word outside grammar). The rules are:

- `always`: "vocals", "lyrics", "falsetto"; even words excluding voices name them.
- `named`: unless it names a likeness: "rap-style beats", "chant-like drone".
- `group`: like `named`, and unless it is a group of instruments: "choir of trombones", "cello duet".
- `part`: like `named`, and unless it belongs to an instrument: "alto flute", "soprano and tenor saxes".
- `played`: like `named`, and unless an instrument does it: "the violin whispers", "sung by the trumpet".
- `pronoun`: unless somebody in its sentence plays, writes or moves: "he strums a guitar".
- `said`: like `played`, and only in sentences about a person: "she belts".

Verbs are from manner of speaking and nonverbal expression in Levin, English Verb Classes (1993), 37.3 and 40.2.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from earmark.schemas.tracks import Tag
from earmark.tasks.text.tag_words import instrument_words, read_list, tokens_of, vocal_tags, written, written_forms

LONGEST_FORM = 3
_MARKS = frozenset(",.;:!?()\n")
_SENTENCE_ENDS = frozenset(".;!?\n")
_JOINING = frozenset({",", "and", "then", "but"})
_RUN_TOGETHER = re.compile(
    r"^(?:vocal|voice|singer|choir|lyric)(?=\w{3})|(?<=\w{3})(?:vocals?|voices?|singers?|singing|choirs?|lyrics)$"
)
_PLAYING = re.compile(
    r"(?:play|strum|pluck|pick|bow|drum|tap|clap|stomp|compos|writ|wrote|improvis|conduct|solo|walk|run|rid|danc|march|"
    r"fight|driv|travel|dream)(?:s|es|ed|ing|ning|ming|ping|ding)?"
)


class Word(NamedTuple):
    """Rule of a form on the list, and its excluded phrases."""

    counts: str
    phrases: tuple[tuple[str, ...], ...]


def names_voices(text: str) -> str | None:
    """Return the first word of a text about voices, singing or lyrics, or None."""
    tokens = tokens_of(text)
    for at in range(len(tokens)):
        for length in range(LONGEST_FORM, 0, -1):
            form = tuple(tokens[at : at + length])
            word = _words().get(form)
            if word and _counts(word, tokens, at, at + len(form)):
                return " ".join(form)
    return None


def calls_for_voices(tag: Tag) -> str | None:
    """Return the reason a tag asks for voices, from the reviewed lists or its own words; None if it does not."""
    if tag in written_forms():
        return vocal_tags().get(tag)
    ran = _RUN_TOGETHER.search(tag.name)
    word = names_voices(tag.name) or names_voices(written(tag)) or (ran and ran[0])
    return vocal_tags().get(tag) or (f"names voices: {word}" if word else None)


def _counts(word: Word, tokens: Sequence[str], start: int, end: int) -> bool:
    if any(_stands_around(tokens, start, end, phrase) for phrase in word.phrases):
        return False
    if word.counts == "always":
        return True
    verb = word.counts in {"played", "said"} and tokens[end - 1].endswith(("s", "ed", "ing"))
    if tokens[end : end + 1] and tokens[end] in _beside("likeness") and not (verb and tokens[end] == "like"):
        return False
    return _RULES[word.counts](tokens, start, end)


def _stands_around(tokens: Sequence[str], start: int, end: int, phrase: tuple[str, ...]) -> bool:
    """Return whether tokens around a form match a phrase containing it."""
    form = tuple(tokens[start:end])
    places = (at for at in range(len(phrase)) if phrase[at : at + len(form)] == form and at <= start)
    around = (tokens[start - at : start - at + len(phrase)] for at in places)
    return any(len(words) == len(phrase) and all(map(_fits, words, phrase)) for words in around)


def _fits(token: str, wanted: str) -> bool:
    match wanted:
        case "*":
            return _sounds(token)
        case "#":
            return token in _beside("number") or token.isdigit()
        case "?":
            return token not in _beside("grammar") and token not in _MARKS
    return token == wanted


def _sounds(token: str) -> bool:
    return token in instrument_words() or token in _beside("sounding")


def _of_voices(tokens: Sequence[str], start: int, end: int) -> bool:
    """Return whether a group is not of instruments: no "brass choir", no "choir of low trombones"."""
    clause = start
    while clause > 0 and tokens[clause - 1] not in _MARKS:
        clause -= 1
    if any(map(_sounds, tokens[clause:start])):
        return False
    bearing = ("of", "for", "by", "between", "on")
    return not (tokens[end : end + 1] and tokens[end] in bearing and _instrument_comes(tokens, end + 1, 3))


def _of_a_singer(tokens: Sequence[str], start: int, end: int) -> bool:
    """Return whether a part is no instrument's, unlike in "alto flute", "alto clef" or "alto saxophones"."""
    after = end
    while after < len(tokens) and (tokens[after] in {",", "and", "or"} or _is_part(tokens[after])):
        after += 1
    if after == len(tokens) or (after > end and not _is_part(tokens[after - 1])):
        return True
    return tokens[after] in _beside("line") or not (_sounds(tokens[after]) or tokens[after] == "clef")


def _is_part(token: str) -> bool:
    word = _words().get((token,))
    return token == "bass" or (word is not None and word.counts == "part")


def _by_a_person(tokens: Sequence[str], start: int, end: int) -> bool:
    """Return whether no instrument does the verb: before it, after it ("singing violins"), or behind "by"."""
    if tokens[end : end + 1] == ["by"]:
        return not _instrument_comes(tokens, end + 1, 4)
    if tokens[end : end + 1] and tokens[end] not in _beside("grammar") and _instrument_comes(tokens, end, 2):
        return False
    before, passive, joined = start - 1, False, False
    while before >= 0 and (tokens[before] in _beside("skipped") | _JOINING or tokens[before].endswith("ly")):
        passive |= tokens[before] in _beside("passive")
        joined |= tokens[before] in _JOINING
        before -= 1
    if before < 0:
        return True
    if joined:  # "the violin whispers, then shouts": judge by the verb before it
        other = _words().get((tokens[before],))
        return other is None or other.counts not in {"played", "said"} or _by_a_person(tokens, before, before + 1)
    return not _sounds(tokens[before]) or (passive and not tokens[start].endswith("ing"))


def _of_somebody(tokens: Sequence[str], start: int, end: int) -> bool:
    """Return whether a sentence mentions a person, and no instrument does the verb."""
    sentence = _sentence(tokens, start)
    named = (at for at, token in enumerate(sentence) if token in _beside("person"))
    return any(
        sentence[at + 1 : at + 2] == [] or sentence[at + 1] not in _beside("likeness") for at in named
    ) and _by_a_person(tokens, start, end)


def _not_playing(tokens: Sequence[str], start: int, end: int) -> bool:
    """Return whether nobody in a sentence plays, writes or moves."""
    return not any(map(_PLAYING.fullmatch, _sentence(tokens, start)))


def _sentence(tokens: Sequence[str], at: int) -> list[str]:
    first, last = at, at
    while first > 0 and tokens[first - 1] not in _SENTENCE_ENDS:
        first -= 1
    while last < len(tokens) and tokens[last] not in _SENTENCE_ENDS:
        last += 1
    return list(tokens[first:last])


def _instrument_comes(tokens: Sequence[str], start: int, most: int) -> bool:
    """Return whether an instrument occurs within `most` words, before any mark, person or other word of grammar."""
    for token in tokens[start : start + most]:
        if _sounds(token):
            return True
        if token in _MARKS or token in _beside("person") or token in _beside("grammar") - {"the", "a", "an", "its"}:
            return False
    return False


_RULES: dict[str, Callable[[Sequence[str], int, int], bool]] = {
    "named": lambda tokens, start, end: True,
    "group": _of_voices,
    "part": _of_a_singer,
    "played": _by_a_person,
    "pronoun": _not_playing,
    "said": _of_somebody,
}


@cache
def _words() -> dict[tuple[str, ...], Word]:
    words = {}
    for line in read_list("vocal_words.tsv").splitlines()[1:]:
        forms, counts, phrases = line.split("\t")
        word = Word(counts, tuple(tuple(phrase.split()) for phrase in phrases.split(" | ") if phrase))
        words.update({tuple(tokens_of(form)): word for form in forms.split(" | ")})
    return words


@cache
def _beside(kind: str) -> frozenset[str]:
    """Return the words of a kind that decide the meaning of words beside them."""
    rows = (line.split("\t") for line in read_list("beside_voices.tsv").splitlines()[1:])
    return frozenset(word for named, words in rows if named.startswith(kind) for word in words.split())
