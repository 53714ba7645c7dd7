"""Critiques of rated clips (MOS-RMBench): a model describes single clips, and compares and scores pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from pydantic import Field, field_validator

from earmark.schemas.annotation import DECIDES, Asked, Hearing
from earmark.schemas.config import LARGEST
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.rewards import accuracy_reward, mos_difference_reward
from earmark.schemas.tables import SPLIT_ALIASES, Column, Split, Table
from earmark.schemas.views import View

ASPECTS = ("noise", "distortion", "naturalness", "continuity")


class Critiques(Asked):
    """The writer of critiques, and its clips and pairs."""

    temperature: float | None = Field(
        default=0.7, ge=0, le=2, description="Above 0, so that a pair that is asked again gets another answer."
    )
    datasets: tuple[str, ...] = Field(default=(), description="Sources whose clips are heard; all without it.")
    splits: tuple[Split, ...] = Field(default=("train",), min_length=1, description="Splits whose clips are heard.")
    clips: int | None = Field(
        default=None, ge=0, le=LARGEST, description="Single clips to describe, of those in pairs; 0 none, unset all."
    )
    pairs: int | None = Field(default=None, ge=0, le=LARGEST, description="Pairs to compare; 0 none, unset all.")
    tries: int = Field(
        default=3, ge=1, le=20, description="How often a pair is asked in all until the chosen clip scores higher."
    )
    free_text: bool = Field(
        default=False,
        description="A single clip's critic also writes a few sentences of free text beside the four parts.",
    )
    hearing: Hearing = Field(default=Hearing(), description="The form in which the critic gets audio.")

    @field_validator("splits", mode="before")
    @classmethod
    def _canonical_splits(cls, value: Any) -> Any:
        """Accept the publishers' names for splits (dev, val, …)."""
        return [SPLIT_ALIASES.get(name, name) for name in value] if isinstance(value, list | tuple) else value

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide the critiques."""
        values = self.model_dump(mode="json", context={"recorded": True})
        named = (*DECIDES, "datasets", "splits", "clips", "pairs", "tries", "hearing")
        return {name: values[name] for name in named} | ({"free_text": True} if self.free_text else {})


_METHOD = "MOS-RMBench, section on critiques"
AskedModel = Annotated[
    str, Column("The annotator that wrote it: backend and model; `builtin:` measured the signal.", names="annotator")
]
AskedPrompt = Annotated[str, "Prompt file and version that asked."]
AskedRequestKey = Annotated[str, "The request's key in the ledger."]
AskedTries = Annotated[int, "How often it was asked until the answer was valid."]
AskedNotes = Annotated[str | None, "What was done to fit the model's limits, such as cut audio."]


class ClipCritique(TypedDict):
    """One row a clip that a model described in words; only where the config has `[critiques]`."""

    sample_id: Annotated[str, Column("The clip.", names="rated_clip")]
    dataset: Annotated[str, Column("Dataset of the clip.", names="source")]
    split: Annotated[str, "Split of the clip."]
    clip_sha256: Annotated[str, Column("SHA-256 of the audio file that was heard.", names="clip")]
    duration_s: Annotated[float, Column("Length of the clip.", unit="s")]
    mos: Annotated[float, Column("MOS of the clip; the model did not know it.", unit="points")]
    noise: Annotated[str, Column("Background noise, and whether it hinders understanding.", source=_METHOD)]
    distortion: Annotated[str, Column("Compression, electrical noise, clipping.", source=_METHOD)]
    naturalness: Annotated[str, Column("Whether it sounds like a real person.", source=_METHOD)]
    continuity: Annotated[str, Column("Whether it flows; drop-outs, interruptions.", source=_METHOD)]
    model: AskedModel
    prompt: AskedPrompt
    request_key: AskedRequestKey
    tries: AskedTries
    notes: AskedNotes
    free_text: Annotated[
        str | None,
        Column("The clip as a whole in the model's own words; null without `critiques.free_text`.", source=_METHOD),
    ]


class PairCritique(TypedDict):
    """One row a pair that a model compared in words and scored, in agreement with the listeners: the clip with
    the higher MOS has the higher score. Only where the config has `[critiques]`.
    """

    pair_id: Annotated[str, Column("The pair.", names="pair")]
    dataset: Annotated[str, Column("Dataset of both clips.", names="source")]
    split: Annotated[str, "Split of both clips."]
    first_id: Annotated[
        str, Column("sample_id of the clip that was heard first, by a hash of seed and pair.", names="rated_clip")
    ]
    second_id: Annotated[str, Column("sample_id of the clip that was heard second.", names="rated_clip")]
    first_sha256: Annotated[str, Column("SHA-256 of the first clip's audio file.", names="clip")]
    second_sha256: Annotated[str, Column("SHA-256 of the second clip's audio file.", names="clip")]
    better: Annotated[str, Column("Which of them has the higher MOS.", unit="first or second")]
    first_mos: Annotated[float, Column("MOS of the first clip.", unit="points")]
    second_mos: Annotated[float, Column("MOS of the second clip.", unit="points")]
    mos_gap_normalized: Annotated[float, Column("As in `pairs`.", unit="0 to 1")]
    rationale: Annotated[
        str,
        Column(
            "What the model wrote: four parts on both clips, then the line `Final Scores: [[x, y]]`, which is put into "
            "this form and ends the text.",
            source=_METHOD,
        ),
    ]
    first_score: Annotated[int, Column("The model's score of the first clip.", unit="1 to 10")]
    second_score: Annotated[int, Column("The model's score of the second clip.", unit="1 to 10")]
    model: AskedModel
    prompt: AskedPrompt
    request_key: AskedRequestKey
    tries: AskedTries
    notes: AskedNotes


CRITIQUES = Table(
    "critiques",
    row=ClipCritique,
    key=("sample_id",),
    optional=True,
    exclusive=("sample_id",),
    says=("described by {model} with {prompt} (request {request_key}); its MOS is {mos}",),
)
PAIRED_CRITIQUES = Table(
    "paired_critiques",
    row=PairCritique,
    key=("pair_id",),
    optional=True,
    exclusive=("first_id", "second_id"),
    says=(
        "compared by {model} with {prompt} (request {request_key}), try {tries}: the {better} clip is the chosen one",
        "scores {first_score} and {second_score}; MOS {first_mos} and {second_mos}",
    ),
)

# A policy is trained on the words that its teacher got: of `speech-critique`, `speech-critique-free` and
# `speech-critique-pair`.
_DESCRIBE = """Describe objectively what can be heard in one clip, under four headings:

- noise: is there noise in the background, of what kind and how loud, and does it make the voice hard to understand?
- distortion: are there artefacts of compression, electrical noise, clipping, or other distortion of the voice?
- naturalness: does it sound like a real person, or synthetic, robotic, muffled or wrongly stressed?
- continuity: does it flow, or are there drop-outs, interruptions, stutters or cuts?

Write one to three plain sentences under each. Begin the four parts with "Noise:", "Distortion:", "Naturalness:" and
"Continuity:", each on a new line."""
_FREE = """After them, in a paragraph of its own after an empty line, write two to four sentences of free text: how the
voice sounds as a whole, what strikes the ear first, and whatever else can be heard that no heading covers."""
_COMPARE = """You hear two clips, clip 1 and clip 2, and compare them under four headings:

- noise: background noise, of what kind and how loud, and whether it makes the voice hard to understand;
- distortion: artefacts of compression, electrical noise, clipping, or other distortion of the voice;
- naturalness: whether it sounds like a real person, or synthetic, robotic, muffled or wrongly stressed;
- continuity: whether it flows, or has drop-outs, interruptions, stutters or cuts.

Under each heading write one to three plain sentences that speak of both clips. Then give each clip an overall score,
an integer from 1 to 10, where 10 is best. Begin the four parts with "Noise:", "Distortion:", "Naturalness:" and
"Continuity:", each on a new line. End with one line of exactly this form:
Final Scores: [[clip1_score, clip2_score]]"""


def _reward(text: str, row: Mapping[str, Any]) -> tuple[float, bool]:
    reward = mos_difference_reward(text, row["better"], row["mos_gap_normalized"])
    return reward, accuracy_reward(text, row["better"]) == 1


CRITIQUE_VIEWS = (
    View(
        "critique-clips",
        "sft",
        "mos_preferences/critique_clips",
        "A clip and its description in four parts, and free text where the critic wrote some; needs a build with "
        "`[critiques]`.",
        {"ask": _DESCRIBE, "free": _FREE},
    ),
    View(
        "critique-pairs",
        "sft",
        "mos_preferences/critique_pairs",
        "Two clips, the comparison and scores that agree with the listeners; needs a build with `[critiques]`.",
        {"ask": _COMPARE},
    ),
    View(
        "critique-grpo",
        "grpo",
        "mos_preferences/critique_grpo",
        "Two clips to compare, with what the rewards of `schemas/rewards.py` need; needs a build with `audio`.",
        {"ask": _COMPARE},
        reward=_reward,
    ),
)

CRITIQUE_EVALUATIONS = (
    Evaluation(
        "critiques",
        "yes_no",
        "mos_preferences/judged_critiques",
        "Is what the critic wrote of a clip right? All claim it: what counts is the share of Yes.",
        modes=(
            Mode("whole", "judge-critique", ("clip=clip_audio", "critique"), says="The clip and what was written."),
        ),
        groups=("dataset", "model"),
        beside=True,
        asks="Is what the critique says of the clip right?",
    ),
    Evaluation(
        "comparisons",
        "yes_no",
        "mos_preferences/judged_comparisons",
        "Is what the critic wrote of two clips right? All claim it: what counts is the share of Yes.",
        modes=(
            Mode(
                "whole",
                "judge-critique-pair",
                ("first=a_audio", "second=b_audio", "critique"),
                says="Both clips and what was written.",
            ),
        ),
        groups=("dataset", "gap", "tries", "model"),
        beside=True,
        asks="Is what the critique says right? Its clip 1 is clip A here, its clip 2 clip B.",
    ),
)
