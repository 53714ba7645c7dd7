"""Check the tags and words of a written prompt, by pure functions over word forms."""

from collections.abc import Sequence
from typing import NamedTuple

from earmark.schemas.tracks import Tag
from earmark.tasks.pipeline.ask import Fault
from earmark.tasks.text.tag_words import Lexicon, Naming, everyday_tags, written
from earmark.tasks.text.voices import names_voices

MOST_ADDED = 3


class Checked(NamedTuple):
    """The result of checking a prompt: a fault, or its instruments beyond the triplet's own."""

    fault: Fault | None
    added: tuple[str, ...] = ()


def check_prompt(text: str, triplet: Sequence[Tag], style: str, lexicon: Lexicon, longest: int) -> Checked:
    """Check a prompt against its triplet and style.

    Args:
        triplet: the prompt's genre, instrument and mood or theme.
        style: `strict` or `improvised`.
        lexicon: the forms of the whole taxonomy.
        longest: most characters.

    Returns:
        The first fault: `too_long`, `mentions_vocals`, `wrong_tags`; for strict prompts `wrong_tags`; for improvised
        ones `wrong_instruments`. Everyday words such as "beat" count as no other tag.
    """
    if len(text) > longest:
        return _fault("too_long", f"expected at most {longest} characters, found {len(text)}")
    if word := names_voices(text):
        return _fault("mentions_vocals", f"expected no word of voices, singing or lyrics, found '{word}'")
    namings = list(lexicon.namings(text))
    named = {tag for naming in namings for tag in naming.tags}
    for tag in triplet:
        if tag not in named:
            return _fault("wrong_tags", f"expected the {tag.category} '{written(tag)}', found it nowhere")
    others = [n for n in namings if not set(n.tags) & set(triplet) and not set(n.tags) <= everyday_tags()]
    if style == "strict":
        if others:
            tag = others[0].tags[0]
            return _fault("wrong_tags", f"expected no other tag, found the {tag.category} '{others[0].words}'")
        return Checked(None)
    added = tuple(dict.fromkeys(name for naming in others if (name := _instrument(naming))))
    if not added:
        return _fault("wrong_instruments", f"expected one to {MOST_ADDED} further instruments, found none")
    if len(added) > MOST_ADDED:
        found = ", ".join(added)
        return _fault("wrong_instruments", f"expected one to {MOST_ADDED} further instruments, found {found}")
    return Checked(None, added)


def _instrument(naming: Naming) -> str | None:
    """Return the single instrument at a place: "bass guitar" is a form of bass too, but it is one instrument."""
    names = [written(tag) for tag in naming.tags if tag.category == "instrument"]
    return max(names, key=lambda name: len(name) if naming.words.startswith(name) else 0, default=None)


def _fault(reason: str, detail: str) -> Checked:
    return Checked(Fault(reason, detail))
