"""Critiques of rated clips (MOS-RMBench): a model describes single clips, and compares and scores pairs."""

import re
from bisect import bisect_left
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, TypedDict

from pydantic import Field, field_validator

from earmark.schemas.annotation import DECIDES, Asked
from earmark.schemas.corpus import View
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.rewards import accuracy_reward, final_scores, mos_difference_reward
from earmark.schemas.tables import SPLIT_ALIASES, Column, Split, Table
from earmark.schemas.toml import LARGEST

FORM = "'Final Scores: [[x, y]]'"
# full-width signs, as Chinese models write them, and Markdown marks as blanks: one character each, so places stay
_PLAIN = (
    {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    | dict(zip(map(ord, "【】〔〕［］、\u3000\u00a0"), "[][][],  ", strict=True))
    | dict.fromkeys(map(ord, '*_`\\"$'), " ")
)
_ORDER = r"(?:\([^()\n]{0,60}\)|\[(?=[^\]\n]*[a-z])[^\[\]\n]{0,60}\](?=\s*[:=]))"  # of the clips, as a label may say it
_LABEL = re.compile(rf"\bfinal\s+scores?\b\s*(?:{_ORDER}\s*)?(?:is|are)?\s*[:=]?\s*", re.IGNORECASE | re.ASCII)
_NUMBER = r"(10|[1-9])(?:\.0{1,3})?(?:\s*/\s*10)?(?!\.?\d)"
_NAMED = r"(?:(?:audio|clip|sample)\s*{}(?:\s*score)?\s*[:=]\s*)"
_FIRST, _SECOND = rf"{_NAMED.format(1)}?{_NUMBER}", rf"{_NAMED.format(2)}?{_NUMBER}"
_BETWEEN = r"\s*(?:[,;|]|\band\b|\]\s*,?\s*\[)\s*"
_PAIR = rf"{_FIRST}{_BETWEEN}{_SECOND}"
_DOUBLE = re.compile(rf"\[\s*\[\s*{_PAIR}\s*\]\s*\]", re.IGNORECASE | re.ASCII)
_LABELLED = re.compile(
    rf"(?:\[\s*){{1,2}}{_PAIR}(?:\s*\]){{1,2}}(?!\s*,?\s*\[)|\(\s*{_PAIR}\s*\)"
    rf"|{_NAMED.format(1)}{_NUMBER}(?:{_BETWEEN}|\s*\n\s*){_NAMED.format(2)}{_NUMBER}"
    rf"|{_FIRST}\s*,\s+{_SECOND}(?!\s*[,;|/])",
    re.IGNORECASE | re.ASCII,
)
_SECOND_FIRST = (
    r"(?:\b(?:audio|clip|sample)\s*(?:2|two)|\bsecond)\b(?:\s*(?:audio|clip|sample)\b)?\W*(?:(?:and|comes|is|then)\b\W*)?"
    r"(?:\b(?:audio|clip|sample)\s*(?:1|one)|\bfirst)\b"
)
_SWAPPED = re.compile(rf"[(\[][^()\[\]\n]*?{_SECOND_FIRST}|\(\s*2\W+1\s*\)", re.IGNORECASE | re.ASCII)
_SWAPPED_AFTER = re.compile(rf"[\s.]*\([^()\n]*?{_SECOND_FIRST}\s*\)", re.IGNORECASE | re.ASCII)
_CLIP_2 = r"(?:(?:audio|clip|sample)\s*(?:2|two)|(?:the\s+)?second\s+(?:audio|clip|sample))\b"
_TURNED = re.compile(  # a sentence that gives the numbers another order
    rf"\bfirst\s+(?:number|score|value)(?:\s+(?:is|are|was|refers|belongs|stands|corresponds|given|for|of|to|"
    rf"the|score|that|rates|means))*\W+{_CLIP_2}|[\[(]\s*(?:audio|clip|sample)\s*2\s*[,;]\s*(?:audio|clip|sample)\s*1\s*"
    rf"[\])]|\b{_CLIP_2}(?:'s)?\s+(?:score|number)\s+(?:comes|is|stands)\s+first\b"
    r"|[(\[]\s*b\s*[,;/]\s*a\s*[)\]]|第[一1]个(?:分数|数字|得分)[^,。\n]{0,4}(?:片段|音频)\s*[2二]"
    r"|(?:片段|音频)\s*[2二]\s*在前(?=\s*(?:[,.;)。]|$))|顺序[^。\n]{0,4}(?:片段|音频)\s*[2二]"
    r"|\b(?:scores?|numbers?)\b[^.\n]{0,60}\b(?:reverse|reversed|swapped|opposite|inverted)\s+order\b",
    re.IGNORECASE | re.ASCII | re.MULTILINE,
)
_STATED = re.compile(  # a clip's score in the text: "Clip 1: 3/10", "I give clip 2 an 8"
    r"\b(?:audio|clip|sample)\s*([12])(?:'s)?(?:\s+(?:overall|final|score))*\s*(?:[:=]|\b(?:an?|gets|receives|scores|is)\b)"
    r"\s*(10|[1-9])(?:\s*(?:/|out\s+of)\s*(\d+))?(?=\s*(?:[,;.)\]|]\s|[)\]]|and\b|$))",
    re.IGNORECASE | re.ASCII | re.MULTILINE,
)
_OTHER_SCALE = re.compile(
    r"\bout\s+of\s+(five|[4-79])\b(?!\s+(?!stars|points|each|for|and)[a-z])"
    r"|\b(?:scale|range)\s+(?:of|from|is)?\s*[01]\s*(?:-|–|—|to)\s*([4-79])\b(?!\s*(?:k?hz|db|m?s|sec\w*)\b)"
    r"|\(\s*[01]\s*(?:-|–|—|to)\s*([4-79])\s*\)(?!\s*(?:k?hz|db|m?s|sec\w*)\b)|满分\s*(?:为|是)?\s*([五45])|([五5])分制",
    re.IGNORECASE | re.ASCII,
)
_ATTEMPT = re.compile(r"[\[(\s]*[-+]?[\d.]", re.ASCII)
_MARKS = " \t\r\n*_`"
_LINE_MARKS = f'{_MARKS}#>"-'


class Scores(NamedTuple):
    """Scores of two clips, 1 to 10."""

    first: int
    second: int


def read_scores(text: str) -> Scores | None:
    """Read the scores; None if they are missing or ambiguous.

    Tolerant of form: case, Markdown, line breaks, full-width signs, `.0`, `/10`, one pair of brackets for two, a
    singular label, the clips' names before the numbers, sentences after them. Strict about content: two integers from 1
    to 10, clip 1 first; a half point, a third number, two different pairs, or clip 2 named first, are none. So is a
    text that gives the numbers another order or scale.

    Strict of form as well: the training rewards of a policy (`final_scores` of `earmark/schemas/rewards.py`). They read
    the last line alone, which must be exactly `Final Scores: [[x, y]]`, so training teaches this form; a critique kept
    by a build ends in it too (`with_final_line`).
    """
    found = _find(text)
    return found and found[0]


def scores_fault(text: str) -> str:
    """Return the fault of a text without scores in words."""
    plain = text.translate(_PLAIN)
    said = _TURNED.search(plain) or _OTHER_SCALE.search(plain)
    last = text.strip().rpartition("\n")[2]
    found = said[0] if said and final_scores(text) else last
    return f"expected the last line {FORM}, clip 1 first, of 1 to 10, found {' '.join(found.split())[:80]!r}"


def with_final_line(text: str) -> str:
    """Return a model's text with its scores as the last line in the exact form, and nothing after it.

    A text with such an ending stays unchanged, without surrounding blanks.

    Raises:
        ValueError: it has no scores.
    """
    found = _find(text)
    if found is None:
        raise ValueError("expected scores, found none")
    (first, second), start = found
    if start is None:
        return text.strip()
    lines = text[:start].strip().split("\n")
    while lines and not lines[-1].strip(_LINE_MARKS):
        lines.pop()
    last = [line.rstrip(_MARKS) for line in lines[-1:]]
    return "\n".join([*lines[:-1], *last, f"Final Scores: [[{first}, {second}]]"])


def parts_under(text: str) -> dict[str, str]:
    """Return what stands below each aspect's heading up to another one, the longest if it heads several parts.

    A heading is the word before a colon, or alone on its line, in any Markdown. Without one, the part is empty.
    """
    folded = text.casefold()
    heads = {aspect: [found.span() for found in _heading(aspect).finditer(folded)] for aspect in ASPECTS}
    labels = [found.start() for found in _LABEL.finditer(folded)]

    def part(aspect: str) -> str:
        others = (start for other, spans in heads.items() if other != aspect for start, _ in spans)
        starts = sorted((*labels, *others))
        ends = (end for _, end in heads[aspect])
        parts = (folded[end : starts[at] if (at := bisect_left(starts, end)) < len(starts) else None] for end in ends)
        return max(parts, key=len, default="").strip()

    return {aspect: part(aspect) for aspect in ASPECTS}


@cache
def _heading(word: str) -> re.Pattern[str]:
    before = r"^[^a-z\n]*"
    return re.compile(
        rf"{word}[\s*_`\"']*[:：]|{before}{word}\b[^\n:：]{{0,40}}[:：]|{before}{word}[^a-z\n]*$|^[ \t]*#+.*\b{word}\b"
        rf"|{before}{word}[*_)\s]*[-–—|]",
        re.MULTILINE,
    )


def _find(text: str) -> tuple[Scores, int | None] | None:
    """Find the scores and their place, which is None for a last line in the exact form."""
    exact = final_scores(text)
    plain = text.translate(_PLAIN)
    labelled: list[tuple[int, re.Match[str]]] = []
    for label in _LABEL.finditer(plain):
        if pair := _LABELLED.match(plain, label.end()):
            if _SWAPPED.search(label[0]) or _SWAPPED_AFTER.match(plain, pair.end()):
                return None
            labelled.append((label.start(), pair))
        elif (attempt := _ATTEMPT.match(plain, label.end())) and not (
            exact and "[" not in attempt[0]
        ):  # invalid numbers: others do not replace them
            return None
    begin = labelled[0][0] if labelled else 0  # text before a label is a thought; a difference after it is a doubt
    pairs = [*labelled, *((pair.start(), pair) for pair in _DOUBLE.finditer(plain, begin))]
    read = {Scores(*(int(number) for number in pair.groups() if number)) for _, pair in pairs}
    if exact:
        read.add(Scores(*exact))
    if len(read) != 1 or _is_doubted(plain, scores := read.pop()):
        return None
    return scores, None if exact else pairs[0][0]


def _is_doubted(plain: str, scores: Scores) -> bool:
    """Return whether a text turns its scores round, or gives them on another scale than 1 to 10."""
    tops = ["".join(found).lower() for found in _OTHER_SCALE.findall(plain)]
    # scores beyond a scale are not of it: the text speaks of something else
    if _TURNED.search(plain) or any(max(scores) <= int({"five": 5, "五": 5}.get(top, top)) for top in tops):
        return True
    stated = {(clip, int(score), most) for clip, score, most in _STATED.findall(plain)}
    of_clips = [{score for clip, score, _ in stated if clip == side} for side in "12"]
    turned = of_clips == [{scores.second}, {scores.first}] and scores.first != scores.second
    return turned or any(most not in ("", "10") and score in scores for _, score, most in stated)


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
        "critique-preferences",
        "preference",
        "mos_preferences/critique_preferences",
        "Two clips with a critique each, the one with the higher MOS chosen, for a score after a critique "
        "(semi-scalar); needs a build with `[critiques]`.",
        {"ask": _DESCRIBE},
    ),
    View(
        "critique-grpo",
        "grpo",
        "mos_preferences/critique_grpo",
        "Two clips to compare, with what the rewards of `schemas/rewards.py` need; needs a build with `audio`.",
        {"ask": _COMPARE},
        reward=_reward,
    ),
    View(
        "scored-clips",
        "preference",
        "mos_preferences/preferred_clips",
        "Two clips, each in a user's turn of its own, the one with the higher MOS chosen, for a scalar reward "
        "(Bradley-Terry); needs a build with `audio`.",
        {"question": [f"{_DESCRIBE}\nClip: ", ""]},
    ),
    View(
        "rated-clips",
        "grpo",
        "mos_preferences/rated_clips",
        "A clip in the user's turn, and its MOS for a regression (mean squared error); needs a build with `audio`.",
        {"ask": _DESCRIBE},
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
