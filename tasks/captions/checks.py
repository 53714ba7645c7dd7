"""Check captions by pure rules over their words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache

from earmark.schemas.caption_checks import CaptionChecks
from earmark.tasks.pipeline.checks import Fault
from earmark.tasks.text.voices import names_voices

PHRASE_WORDS, PHRASE_TIMES = 4, 3
LATIN_SHARE, ENGLISH_SHARE = 0.9, 0.05

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SENTENCE = re.compile(r"[^.!?\n]+")
_COUNT = (
    r"(?:\d+(?:[.,]\d+)?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|"
    r"fifty|sixty|ninety|few|several|many|couple of|half an?)"
)
_UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?)"
_ABOUT = r"(?:about|after|almost|around|exactly|for|in|just over|just under|nearly|over|roughly|under|within)"
_SPAN = (
    r"(?:clip|cut|cue|excerpt|fade|fragment|ident|intro|jingle|loop|outro|preview|recording|sample|segment|snippet|"
    r"spot)"
)
_DURATION = re.compile(  # "10s" to "40s" before a clip's name are seconds, "80s track" is a decade
    rf"\b(?:{_COUNT}|half)[\s-]*{_UNIT}\b|\b(?:\d?[1-9]|1[1-9]0|[2-9]\d0)s\b|\b\d+(?:\.\d+)? s\b|"
    rf"\b[1-4]0s[\s-]+{_SPAN}s?\b|"
    rf"\b\d+s[\s-](?:long|in length)\b|\b\d+ ?(?:m|min) ?\d+ ?s?\b|\b\d+['′]\s?\d{{2}}\b|"
    rf"\b{_ABOUT} (?:an? |the )?(?:full |whole )?(?:minute|hour)\b|\b{_UNIT}[\s-]long\b|\b\d{{1,2}}:\d{{2}}\b",
    re.IGNORECASE,
)
_OPENING = re.compile(
    r"^\W*(?:(?:sure|certainly|of course|absolutely|okay|ok)\b[,!.]|here(?:'s|’s| is| are)\b|"
    r"(?:the )?(?:refined |final |revised |concise |short(?:er)? )?(?:caption|description|answer|output)\s*(?:is\s*)?:|"
    r"i(?:'m|’m| am) sorry\b|i can(?:no|')t\b|note:)",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\bas an ai\b|\blanguage model\b|let me know if|```", re.IGNORECASE)
SHORTEST_WORDS = 5  # fewer are no caption
_ENGLISH = frozenset(
    re.findall(
        "[a-z]+",
        "the and with of is that this it by to for from while which its has are as an at into over creating featuring "
        "throughout feel",
    )
)


def find_faults(text: str, checks: CaptionChecks) -> list[Fault]:
    """Return a fault for each broken rule, in the order of `checks.look_for`; for an empty text only this fault."""
    if detail := _empty(text):
        return [Fault("empty", detail)] if "empty" in checks.look_for else []
    details = {name: _RULES[name](text, checks) for name in checks.look_for if name != "empty"}
    return [Fault(name, detail) for name, detail in details.items() if detail]


def _empty(text: str) -> str | None:
    count = len(_WORD.findall(text))
    return f"expected at least {SHORTEST_WORDS} words, found {count}" if count < SHORTEST_WORDS else None


def _truncated(text: str, checks: CaptionChecks) -> str | None:
    end = text.rstrip().rstrip("\"'”’)]*_")
    ended = end.endswith((".", "!", "?", "…", "。"))
    return None if ended else f"expected a sentence's end, found '{text.rstrip()[-20:]}'"


def _too_long(text: str, checks: CaptionChecks) -> str | None:
    count = len(_WORD.findall(text))
    return f"expected at most {checks.longest_words} words, found {count}" if count > checks.longest_words else None


def _not_english(text: str, checks: CaptionChecks) -> str | None:
    """Require Latin letters, and English function words: a caption of a dozen words has at least one."""
    letters = [sign for sign in text if sign.isalpha()]
    latin = sum(map(_is_latin, letters))
    if latin < LATIN_SHARE * len(letters):
        return f"expected Latin letters, found {latin} of {len(letters)}"
    words = [word.lower() for word in _WORD.findall(text)]
    english = sum(word in _ENGLISH for word in words)
    if len(words) >= 12 and english < ENGLISH_SHARE * len(words):
        return f"expected English, found {english} of {len(words)} words among its commonest"
    return None


@cache
def _is_latin(sign: str) -> bool:
    return unicodedata.name(sign, "").startswith("LATIN")


def _repeated_phrases(text: str, checks: CaptionChecks) -> str | None:
    words = [word.lower() for word in _WORD.findall(text)]
    phrases = Counter(tuple(words[at : at + PHRASE_WORDS]) for at in range(len(words) - PHRASE_WORDS + 1))
    phrase, times = max(phrases.items(), key=lambda item: item[1], default=((), 0))
    if times >= PHRASE_TIMES:
        return f"expected no phrase {PHRASE_TIMES} times, found '{' '.join(phrase)}' {times} times"
    sentences = Counter(" ".join(_WORD.findall(part.lower())) for part in _SENTENCE.findall(text))
    twice = [said for said, count in sentences.items() if count > 1 and len(said.split()) >= PHRASE_WORDS]
    return f"expected each sentence once, found '{twice[0][:40]}' twice" if twice else None


def _mentions_vocals(text: str, checks: CaptionChecks) -> str | None:
    word = names_voices(text)
    return f"expected no word of voices, singing or lyrics, found '{word}'" if word else None


def _mentions_duration(text: str, checks: CaptionChecks) -> str | None:
    found = _DURATION.search(text)
    return f"expected no length of time, found '{found[0]}'" if found else None


def _boilerplate(text: str, checks: CaptionChecks) -> str | None:
    found = _OPENING.search(text) or _ASIDE.search(text)
    return f"expected the caption alone, found '{found[0].strip()[:40]}'" if found else None


_RULES: dict[str, Callable[[str, CaptionChecks], str | None]] = {
    "truncated": _truncated,
    "too_long": _too_long,
    "not_english": _not_english,
    "repeated_phrases": _repeated_phrases,
    "mentions_vocals": _mentions_vocals,
    "mentions_duration": _mentions_duration,
    "boilerplate": _boilerplate,
}
