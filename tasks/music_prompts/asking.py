"""`music-prompts`: the requests, to a judge about tags on tracks, and to a writer for prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from schemas.music_prompts import CATEGORIES, MusicPrompts
from tasks.annotation.backend import question
from tasks.annotation.prompts import Prompt, load_prompt
from tasks.annotation.request import Audio, AudioForm, Request, YesNo

CONCEPTS = {"genre": "concept-genre", "instrument": "concept-instrument", "mood/theme": "concept-mood-theme"}
STYLES = {"strict": "music-prompt-strict", "improvised": "music-prompt-improvised"}


def prompt_digests(config: MusicPrompts) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    names = [*STYLES.values(), *(CONCEPTS[category] for category in CATEGORIES if config.verification)]
    return {prompt.id: prompt.sha256 for prompt in map(prompt_named, names)}


@cache
def prompt_named(name: str) -> Prompt:
    """A prompt of the repository."""
    return load_prompt(Path(str(resources.files("prompts"))), name)


def concept_request(config: MusicPrompts, row: Mapping[str, Any], clip_sha256: str, duration_s: float) -> Request:
    """Whether a tag can be heard on a track.

    Args:
        config: the build config, with `verification`.
        row: a row of `questions.sql`: category, written, file.
        clip_sha256: SHA-256 of the track's file.
        duration_s: length of the track.
    """
    judge = config.verification
    assert judge is not None
    form = AudioForm(sample_rate_hz=judge.sample_rate_hz, longest_s=judge.longest_s)
    path = str(config.path(judge.audio) / row["file"])
    messages = prompt_named(CONCEPTS[row["category"]]).render(
        clip=Audio(clip_sha256, path, duration_s=duration_s, form=form), concept=row["written"]
    )
    return question(judge, messages, YesNo(), facts={"category": row["category"], "concept": row["written"]})


def writing_request(config: MusicPrompts, triplet: Mapping[str, Any], shots: Sequence[str]) -> Request:
    """A prompt for a triplet.

    Args:
        config: the build config.
        triplet: a row of `queue.sql`.
        shots: example captions.
    """
    prompt = prompt_for(triplet["stratum"])
    named = {
        "genre": triplet["genre_written"],
        "instrument": triplet["instrument_written"],
        "mood": triplet["mood_written"],
    }
    messages = prompt.render(**named, shots=list(shots))
    facts = {**named, "added": triplet["added"]}
    return question(config.synthesis, messages, prompt.ask, facts=facts)


def prompt_for(stratum: str) -> Prompt:
    """The prompt file that asks for a stratum's style."""
    return prompt_named(STYLES[stratum.partition("_")[0]])
