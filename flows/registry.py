"""The corpora that can be built, a line each."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from schemas.corpus import Corpus
from schemas.errors import ConfigError

CORPORA = {
    "mos-preferences": "schemas.mos_preferences",
    "pseudo-preferences": "schemas.pseudo_preferences",
    "human-preferences": "schemas.human_preferences",
    "instrumentals": "schemas.instrumentals",
    "captions": "schemas.captions",
    "music-prompts": "schemas.music_prompts",
    "instruction-rubrics": "schemas.instruction_rubrics",
    "score-questions": "schemas.score_questions",
}


@cache
def find_corpus(name: str) -> Corpus:
    """The corpus of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in CORPORA:
        from schemas.config import nearest

        raise ConfigError(f"unknown corpus '{name}'{nearest(name, CORPORA)}")
    corpus: Corpus = import_module(CORPORA[name]).CORPUS
    return corpus


def load(reference: str) -> Any:
    """What `module:name` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
