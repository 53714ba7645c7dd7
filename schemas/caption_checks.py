"""Declare the checks after each stage of captions, and the effect of each fault."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from earmark.schemas.config import Model

CaptionFault = Literal[
    "empty",
    "truncated",
    "too_long",
    "not_english",
    "repeated_phrases",
    "mentions_vocals",
    "mentions_duration",
    "boilerplate",
]
EVERY: tuple[CaptionFault, ...] = get_args(CaptionFault)


class CaptionChecks(Model):
    """Checks of a stage's text. A fault is asked again and then a reject, unless `flag` names it."""

    look_for: tuple[CaptionFault, ...] = Field(default=EVERY, description="Faults to look for.")
    flag: tuple[CaptionFault, ...] = Field(default=(), description="Of these, faults that are noted in the row only.")
    longest_words: int = Field(default=150, ge=1, description="More words count as too long.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        missing = [name for name in self.flag if name not in self.look_for]
        if missing:
            raise ValueError(f"flag names '{missing[0]}', which look_for does not")
        return self
