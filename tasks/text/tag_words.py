"""Find tags as written by people: `electricguitar` is found as "electric guitar" or "Electric-Guitars".

Only whole words are compared, and the longest form wins: "punk rock" does not name rock too. The lists are in
`tasks/text/words/`, reviewed by hand: `forms.tsv` has forms that no rule would give. A tag unknown to it is split into
known words (`acidhouse` is "acid house"), or else kept as written. Every tag is also found run together, as in lists,
and every instrument in the plural.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from earmark.schemas.tracks import Tag

LISTS = ("forms.tsv", "vocal.tsv", "everyday.tsv", "vocal_words.tsv", "beside_voices.tsv")
_TOKEN = re.compile(r"[^\W_]+|[,.;:!?()\n]")  # marks are tokens too: no form spans them


class Naming(NamedTuple):
    """A place of a text naming a tag."""

    words: str  # from the text, in lower case
    tags: tuple[Tag, ...]  # usually one; `choir` is a genre and an instrument


class Lexicon:
    """Forms of a set of tags, to search texts for."""

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
        """Yield every place of a text naming a tag, in order; of overlapping forms the longest."""
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
        """Return the tags named by a text."""
        return {tag for naming in self.namings(text) for tag in naming.tags}


def written(tag: Tag) -> str:
    """Return a tag as written in a sentence: `electric guitar`."""
    return forms_of(tag)[0]


def forms_of(tag: Tag) -> tuple[str, ...]:
    """Return the written forms of a tag: from the reviewed list, else split into its words; never empty."""
    return written_forms().get(tag) or (" ".join(_split(tag.name) or (tag.name,)),)


def runs_together(tag: Tag) -> bool:
    """Return whether a tag's only form may be unnatural, such as `dubgrass`.

    Such a name is missing from the reviewed list, is not composed of its words alone, and begins or ends in a word of
    it. "bassoon" would be such a name too, were it not listed: check texts for it, if there are any.
    """
    ends = {part for at in range(3, len(tag.name) - 2) for part in (tag.name[:at], tag.name[at:])}
    return not is_reviewed(tag) and not ends.isdisjoint(_single_words())


def is_reviewed(tag: Tag) -> bool:
    """Return whether the words for a tag are reviewed: listed themselves, or composed of listed words."""
    return tag in written_forms() or bool(_split(tag.name))


def tokens_of(text: str) -> list[str]:
    """Return words in lower case, and the marks limiting forms; hyphens separate words, `&` is and."""
    return _TOKEN.findall(text.lower().replace("&", " and ").replace("’", "'"))


@cache
def written_forms() -> dict[Tag, tuple[str, ...]]:
    """Return the forms of every tag of the list; the first is our way to write it."""
    return {tag: tuple(form.strip() for form in rest.split("|")) for tag, rest in _listed("forms.tsv")}


@cache
def _split(name: str) -> tuple[str, ...]:
    """Return the fewest words of the reviewed list composing a run-together name; empty if there are none."""
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
    """Return tags asking for voices, with the reasons: the instrumental constraint leaves them out."""
    return dict(_listed("vocal.tsv"))


@cache
def everyday_tags() -> frozenset[Tag]:
    """Return tags with an everyday word, such as `beat` or `background`, used in texts without naming the tag."""
    return frozenset(tag for tag, _ in _listed("everyday.tsv"))


def list_files() -> list[tuple[str, Path]]:
    """Return the lists of words by their names in a manifest, as versions depend on them too."""
    return [(f"words/{name}", Path(str(resources.files("earmark.tasks.text.words").joinpath(name)))) for name in LISTS]


@cache
def instrument_words() -> frozenset[str]:
    """Return the last words of instruments' names, except voices."""
    tags = [tag for tag in written_forms() if tag.category == "instrument" and tag not in vocal_tags()]
    return frozenset(
        tokens[-1] for tag in tags for form in forms_of(tag) for tokens in _numbers(tag, tuple(tokens_of(form)))
    )


def _listed(name: str) -> Iterator[tuple[Tag, str]]:
    for line in read_list(name).splitlines()[1:]:
        category, tag, rest = line.split("\t")
        yield Tag(category, tag), rest


def read_list(name: str) -> str:
    """Return the text of a list of words."""
    return resources.files("earmark.tasks.text.words").joinpath(name).read_text("utf-8")


def _numbers(tag: Tag, tokens: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a form, and for an instrument its plural."""
    yield tokens
    last = tokens[-1]
    if tag.category == "instrument" and (last.endswith("ss") or not last.endswith("s")):
        yield (*tokens[:-1], last + ("es" if last.endswith(("x", "ch", "sh", "ss")) else "s"))
