"""Caption clips without a model: put measurements of a clip and tags of its track in fixed sentences."""

import re
from collections.abc import Mapping
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.registry import register

_KEYS = ("C", "C sharp", "D", "E flat", "E", "F", "F sharp", "G", "A flat", "A", "B flat", "B")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@register("music-caption-1")
def music_caption(facts: Mapping[str, Any], clips: list[Mapping[str, float]]) -> str:
    """Describe a clip's tags, tempo, key, brightness and level.

    Args:
        facts: `tags`: words in sentence form; may be empty.
        clips: one clip's measurements, with `key` (0 to 11 major, 12 to 23 minor, -1 none).
    """
    if len(clips) != 1:
        raise InputError(f"expected one clip, found {len(clips)}")
    clip = clips[0]
    tags = [str(tag) for tag in facts.get("tags") or []]
    about = f"An instrumental piece with the marks of {_listed(tags)}" if tags else "An instrumental piece"
    tempo, key = clip["tempo_bpm"], int(clip.get("key", -1))
    pace = f"it moves at about {tempo:.0f} beats per minute" if tempo else "it has no clear beat"
    tonality = f"in {_KEYS[key % 12]} {'minor' if key >= 12 else 'major'}" if key >= 0 else "in no clear key"
    bright = "bright" if clip["centroid_hz"] > 2200 else "dark" if clip["centroid_hz"] < 1200 else "warm"
    level = "loud" if clip["loudness_lufs"] > -16 else "quiet" if clip["loudness_lufs"] < -28 else "moderate"
    return f"{about}; {pace}, {tonality}. The sound is {bright} and the level of the mix is {level}."


@register("caption-refine-1")
def refine_caption(facts: Mapping[str, Any], clips: list[Mapping[str, float]]) -> str:
    """Keep the first sentence of each of the `texts`, each once."""
    texts = [str(text).strip() for text in facts.get("texts") or []]
    if not any(texts):
        raise InputError("expected texts to refine, found none")
    return " ".join(dict.fromkeys(_SENTENCE.split(text)[0] for text in texts if text))


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
