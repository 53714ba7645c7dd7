"""Tags as people write them: `electricguitar` is found in a text as "electric guitar" or "Electric-Guitars".

Whole words are compared, never parts of one, and the longest form wins: "punk rock" names punk rock and not rock too.
The lists behind it lie in `tasks/text/words/`, reviewed by hand; a tag that they do not know is written as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from earmark.tasks.importers.jamendo import Tag

LISTS = ("forms.tsv", "vocal.tsv", "everyday.tsv", "vocal_words.txt")
_TOKEN = re.compile(r"[^\W_]+|[,.;:!?()\n]")  # marks are tokens too: no form goes across one


class Naming(NamedTuple):
    """A place of a text that names a tag."""

    words: str  # as the text has them, in lower case
    tags: tuple[Tag, ...]  # usually one; `choir` is a genre and an instrument


class Lexicon:
    """The forms of a set of tags.

    Args:
        tags: what texts are searched for.
    """

    def __init__(self, tags: Iterable[Tag]) -> None:
        known = written_forms()
        self._forms: dict[tuple[str, ...], list[Tag]] = {}
        for tag in sorted(set(tags)):
            for form in known.get(tag, (tag.name,)):
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
    return written_forms().get(tag, (tag.name,))[0]


def names_voices(text: str) -> str | None:
    """The first word of a text that speaks of voices, singing or lyrics, or None."""
    tokens = tokens_of(text)
    for at in range(len(tokens)):
        for length in (2, 1):
            form = " ".join(tokens[at : at + length])
            if form in _vocal_words():
                return form
    return None


def tokens_of(text: str) -> list[str]:
    """Words in lower case, and the marks between which a form must lie; hyphens part words, `&` is and."""
    return _TOKEN.findall(text.lower().replace("&", " and ").replace("’", "'"))


@cache
def written_forms() -> dict[Tag, tuple[str, ...]]:
    """Forms of every tag that the list knows; the first is how we write it."""
    return {tag: tuple(form.strip() for form in rest.split("|")) for tag, rest in _listed("forms.tsv")}


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
def _vocal_words() -> frozenset[str]:
    return frozenset(_read("vocal_words.txt").split("\n")) - {""}


def _listed(name: str) -> Iterator[tuple[Tag, str]]:
    for line in _read(name).splitlines()[1:]:
        category, tag, rest = line.split("\t")
        yield Tag(category, tag), rest


def _read(name: str) -> str:
    return resources.files("earmark.tasks.text.words").joinpath(name).read_text("utf-8")


def _numbers(tag: Tag, tokens: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """A form, and of an instrument its plural."""
    yield tokens
    if tag.category == "instrument" and not tokens[-1].endswith("s"):
        yield (*tokens[:-1], tokens[-1] + ("es" if tokens[-1].endswith(("x", "ch", "sh")) else "s"))
