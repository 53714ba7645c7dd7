"""Write prompts for a text-to-music system without a model, in fixed sentences."""

from collections.abc import Mapping
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.registry import register


@register("music-prompt-1")
def music_prompt(facts: Mapping[str, Any], clips: list[Mapping[str, float]]) -> dict[str, str]:
    """Name a genre, an instrument and a mood or theme in one sentence, and the instruments to add in another.

    Args:
        facts: `genre`, `instrument`, `mood` in sentence form; `added`, further instruments, may be empty.

    Returns:
        `prompt`.
    """
    try:
        genre, instrument, mood = (str(facts[name]) for name in ("genre", "instrument", "mood"))
    except KeyError as missing:
        raise InputError(f"expected the facts genre, instrument and mood, found no {missing}") from None
    text = f"{genre[:1].upper()}{genre[1:]} music led by {instrument}. Mood or theme: {mood}."
    added = [str(name) for name in facts.get("added") or []]
    if added:
        names = " and ".join([", ".join(added[:-1]), added[-1]] if len(added) > 1 else added)
        text += f" With {names}."
    return {"prompt": text}
