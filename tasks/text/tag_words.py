"""Tags as people write them: `electricguitar` is found in a text as "electric guitar" or "Electric-Guitars".

Whole words are compared, never parts of one, and the longest form wins: "punk rock" names punk rock and not rock too.
The lists behind it lie in `tasks/text/words/`, reviewed by hand: `forms.tsv` holds what no rule would give. A tag that
it does not know is split into the words that it does (`acidhouse` is "acid house"), or else is written as it stands.
Every tag is also found run together, as lists write it, and every instrument in the plural.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from earmark.tasks.importers.jamendo import Tag

LISTS = ("forms.tsv", "vocal.tsv", "everyday.tsv", "vocal_words.tsv")
_TOKEN = re.compile(r"[^\W_]+|[,.;:!?()\n]")  # marks are tokens too: no form goes across one


class Naming(NamedTuple):
    """A place of a text that names a tag."""

    words: str  # as the text has them, in lower case
    tags: tuple[Tag, ...]  # usually one; `choir` is a genre and an instrument


class Lexicon:
    """The forms of a set of tags, which texts are searched for."""

    def __init__(self, tags: Iterable[Tag]) -> None:
        self._forms: dict[tuple[str, ...], list[Tag]] = {}
        for tag in sorted(set(tags)):
            for form in dict.fromkeys((*forms_of(tag), tag.name)):
                for tokens in _numbers(tag, tuple(tokens_of(form))):
                    named = self._forms.setdefault(tokens, [])
                    if tag not in named:
                        named.append(tag)
        self._longest: dict[str, int] = {}
        for tokens in self._forms:
            self._longest[tokens[0]] = max(len(tokens), self._longest.get(tokens[0], 0))

    def namings(self, text: str) -> Iterator[Naming]:
        """Every place of a text that names a tag, in order; of overlapping forms the longest."""
        tokens = tokens_of(text)
        at = 0
        while at < len(tokens):
            for length in range(self._longest.get(tokens[at], 0), 0, -1):
                form = tuple(tokens[at : at + length])
                if tags := self._forms.get(form):
                    yield Naming(" ".join(form), tuple(tags))
                    at += len(form)
                    break
            else:
                at += 1

    def named(self, text: str) -> set[Tag]:
        """The tags that a text names."""
        return {tag for naming in self.namings(text) for tag in naming.tags}


def written(tag: Tag) -> str:
    """A tag as a sentence has it: `electric guitar`."""
    return forms_of(tag)[0]


def forms_of(tag: Tag) -> tuple[str, ...]:
    """How people write a tag: by the reviewed list, or else split into words that the list has; never empty."""
    return written_forms().get(tag) or (" ".join(_split(tag.name) or (tag.name,)),)


def runs_together(tag: Tag) -> bool:
    """Whether a tag's only form may be one that no person would write, such as `dubgrass`.

    That is a name that the reviewed list lacks, that is not made of its words alone, and that begins or ends in one of
    them. "bassoon" would be such a name too, were it not listed: whoever has texts should look whether they write it.
    """
    ends = {part for at in range(3, len(tag.name) - 2) for part in (tag.name[:at], tag.name[at:])}
    return not is_reviewed(tag) and not ends.isdisjoint(_single_words())


def is_reviewed(tag: Tag) -> bool:
    """Whether the words for a tag are the reviewed list's: its own form there, or a name made of listed words."""
    return tag in written_forms() or bool(_split(tag.name))


def names_voices(text: str) -> str | None:
    """The first word of a text that speaks of voices, singing or lyrics, or None.

    A word of the list counts unless it stands in a phrase that the list excuses, such as "soprano sax"; `*` in such a
    phrase is any instrument: "a lead guitar sings" speaks of no voice.
    """
    tokens = tokens_of(text)
    for at in range(len(tokens)):
        for length in (2, 1):
            form = tuple(tokens[at : at + length])
            phrases = _vocal_words().get(form)
            if phrases is not None and not any(_excuses(tokens, at, form, phrase) for phrase in phrases):
                return " ".join(form)
    return None


def _excuses(tokens: list[str], at: int, form: tuple[str, ...], phrase: tuple[str, ...]) -> bool:
    """Whether a phrase with a form in it stands around that form in a text."""
    start = at - next(n for n in range(len(phrase)) if phrase[n : n + len(form)] == form)
    around = tokens[max(0, start) : start + len(phrase)]
    return len(around) == len(phrase) and all(
        word == wanted or (wanted == "*" and word in _instrument_words())
        for word, wanted in zip(around, phrase, strict=True)
    )


def tokens_of(text: str) -> list[str]:
    """Words in lower case, and the marks between which a form must lie; hyphens part words, `&` is and."""
    return _TOKEN.findall(text.lower().replace("&", " and ").replace("’", "'"))


@cache
def written_forms() -> dict[Tag, tuple[str, ...]]:
    """Forms of every tag that the list knows; the first is how we write it."""
    return {tag: tuple(form.strip() for form in rest.split("|")) for tag, rest in _listed("forms.tsv")}


@cache
def _split(name: str) -> tuple[str, ...]:
    """The fewest words of the reviewed list that a run-together name is made of; empty if it is not."""
    if name in _single_words():
        return (name,)
    ways = [
        (name[:at], *rest)
        for at in range(3, len(name) - 2)
        if name[:at] in _single_words() and (rest := _split(name[at:]))
    ]
    return min(ways, key=len, default=())


@cache
def _single_words() -> frozenset[str]:
    return frozenset(form.lower() for forms in written_forms().values() for form in forms if len(tokens_of(form)) == 1)


@cache
def vocal_tags() -> dict[Tag, str]:
    """Tags that ask for voices, and why each does: the instrumental constraint leaves them out."""
    return dict(_listed("vocal.tsv"))


@cache
def everyday_tags() -> frozenset[Tag]:
    """Tags whose word any description of music may use without naming the tag, such as `beat` or `background`."""
    return frozenset(tag for tag, _ in _listed("everyday.tsv"))


def list_files() -> list[tuple[str, Path]]:
    """The lists of words, by the name that a manifest gives them; a version is made from them too."""
    return [(f"words/{name}", Path(str(resources.files("earmark.tasks.text.words").joinpath(name)))) for name in LISTS]


@cache
def _vocal_words() -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    """Words of voices, and the phrases in which each is none."""
    rows = (line.split("\t") for line in _read("vocal_words.tsv").splitlines()[1:])
    return {
        tuple(tokens_of(words)): [tuple(phrase.split()) for phrase in phrases.split(" | ") if phrase]
        for words, phrases in rows
    }


@cache
def _instrument_words() -> frozenset[str]:
    """Last words of what instruments are called, but for those that are voices."""
    tags = [tag for tag in written_forms() if tag.category == "instrument" and tag not in vocal_tags()]
    return frozenset(
        tokens[-1] for tag in tags for form in forms_of(tag) for tokens in _numbers(tag, tuple(tokens_of(form)))
    )


def _listed(name: str) -> Iterator[tuple[Tag, str]]:
    for line in _read(name).splitlines()[1:]:
        category, tag, rest = line.split("\t")
        yield Tag(category, tag), rest


def _read(name: str) -> str:
    return resources.files("earmark.tasks.text.words").joinpath(name).read_text("utf-8")


def _numbers(tag: Tag, tokens: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """A form, and of an instrument its plural."""
    yield tokens
    last = tokens[-1]
    if tag.category == "instrument" and (last.endswith("ss") or not last.endswith("s")):
        yield (*tokens[:-1], last + ("es" if last.endswith(("x", "ch", "sh", "ss")) else "s"))
