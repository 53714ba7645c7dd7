"""A listening study: its config, the plan of who hears what, and the file that an annotator hands back."""

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Self, TypedDict

from pydantic import Field, field_validator, model_validator

from earmark.schemas.results import VersionFacts
from earmark.schemas.toml import LARGEST, Model, Name

FORMAT: Literal["earmark-study/1"] = "earmark-study/1"
PLAN = "plan.json"
ANSWERS = "answers"
PAGES = "pages"
PICTURES = "images"
UNPLAYABLE = "unplayable"
"""Field of an answer about clips that did not play: their letters, in place of answers to the questions."""
YEARS = "[0-9]{1,2}([.][0-9]+)?"
"""Form of a number of years, for a browser and for who reads its answers."""


class TypedFact(NamedTuple):
    """A field for a fact about a picture of a score."""

    label: str
    form: str  # for a browser and for who reads its answers; empty if it is not shown, or nobody can tell
    hint: str


_COUNTED = ("(0|[1-9][0-9]{0,2})?", "a number")
FACTS = {
    "clef": TypedFact(
        "Clef at the beginning, of the top staff", "(treble|bass|alto|tenor)?", "treble, bass, alto or tenor"
    ),
    "key signature": TypedFact(
        "Key signature",
        "(no sharps or flats|1 (sharp|flat)|[2-7] (sharps|flats))?",
        "2 sharps, 1 flat, no sharps or flats, …",
    ),
    "time signature": TypedFact(
        "Time signature as written", "([1-9][0-9]?/[1-9][0-9]?)?", "3/4, 6/8, …; for C 4/4, for C with a stroke 2/2"
    ),
    "staves": TypedFact("Staves of a system", *_COUNTED),
    "bars": TypedFact("Bars in all", *_COUNTED),
    **{name: TypedFact(f"{name.capitalize()} in all", *_COUNTED) for name in ("staccato dots", "slurs", "rests")},
}
"""Questions of the perception probe (`tasks/score_questions/made_music.py`), in its order and words."""


class Question(Model):
    """One question about a trial."""

    name: Name
    text: str = Field(min_length=1, description="What the annotator reads.")


ALIGNMENT = Question(name="alignment", text="Which clip follows the prompt better?")
MUSICALITY = Question(name="musicality", text="Which clip sounds better as music, whatever the prompt?")
CRITERIA = (
    Question(name="fidelity", text="How clean is the sound? Noise, distortion and dropouts lower it."),
    Question(name="adherence", text="How well does the clip follow the prompt: its genre, its instruments, its mood?"),
    Question(name="musicality", text="How good is it as music: rhythm, harmony, structure?"),
    Question(name="overall", text="All in all, how good is this clip for the prompt?"),
)
"""The four criteria of ATTM's listening test."""
TAKEN = (
    *("vote_id", "annotator", "prompt_id", "text", "lyrics", "date", "feedback", "reference", "expert", "system"),
    *("audio", "audio_a", "audio_b", "model_a", "model_b", "listened_a_s", "listened_b_s", UNPLAYABLE),
)
"""Columns of fetched votes and ratings besides the questions' own, and the field of clips that did not play."""


class AttentionChecks(Model):
    """Checks for annotators who do not listen."""

    repeats: int | None = Field(
        default=None, ge=0, description="Pairs of a page that come again in the other order (2), or rated clips (0)."
    )
    known: str | None = Field(
        default=None,
        description="Table of pairs whose answer is known: generation_a, generation_b, and a or b by question.",
    )
    most_failed: float = Field(
        default=0.34,
        ge=0,
        le=1,
        description="Share of known pairs that may be wrong, or of repeated ratings that may differ by more than 1.",
    )


class Example(Model):
    """A pair with its answer, which is shown before the first trial."""

    a: str = Field(description="A generation's id.")
    b: str = Field(description="Another of the same prompt.")
    says: str = Field(min_length=1, description="Why one is better, as the annotator reads it.")


EACH_SCORED = {"ood strict": 1, "id strict": 2, "id improvised": 2}
"""Prompts of ATTM's questionnaires, by distribution and style."""


class Study(Model):
    """Config of `earmark people study start`.

    CMI-RewardBench has pairs judged on alignment, then musicality, by forced choice with a confidence from 1 to 5;
    ATTM has questionnaires of five prompts, one of them out of distribution, with a clip of every system, rated.
    """

    name: Name
    kind: Literal["pairs", "ratings"] = Field(default="pairs", description="Compare two clips, or rate one.")
    seed: int = Field(default=17, ge=0, le=LARGEST, description="Seed of every choice that is drawn.")
    prompts: str = Field(
        default="", description="Table of prompts: prompt_id, text, lyrics?, reference_audio?, group?."
    )
    generations: str = Field(
        default="", description="Table of generations: generation_id, prompt_id, model, audio, status?."
    )
    scored_in: str | None = Field(
        default=None, description="In their place, the version whose scored systems are rated, as `music-prompts@v1`."
    )
    systems: tuple[str, ...] = Field(default=(), description="Of `scored_in`, these systems; without it, all.")
    finalists: int | None = Field(
        default=None, ge=1, description="Of `scored_in`, the first by rank that beat the baseline, and `systems`."
    )
    annotators: int = Field(ge=1, le=10_000, description="Pages, one an annotator.")
    sound: Literal["inside", "beside"] = Field(
        default="inside", description="Clips inside each page, or in a folder beside the pages."
    )
    must_hear: float = Field(default=0.95, ge=0, le=1, description="Share of each clip that must be heard.")
    consent: str | None = Field(default=None, description="Markdown file; the first screen, which asks for consent.")
    instructions: str | None = Field(default=None, description="Markdown file; the second screen.")
    criteria: str | None = Field(default=None, description="Markdown file; can be opened beside every trial.")
    questions: Annotated[tuple[Question, ...], Field(min_length=1)]
    examples: tuple[Example, ...] = ()
    checks: AttentionChecks = AttentionChecks()

    pairs: int | None = Field(default=None, ge=1, description="Pairs in all; without it, all that `choose` allows.")
    per_pair: int = Field(default=2, ge=1, description="Annotators of a pair.")
    per_annotator: int = Field(default=40, ge=1, description="Pairs of an annotator at most, without checks.")
    choose: Literal["models", "modality", "random", "uncertain"] = Field(
        default="models",
        description="Which pairs: every pair of models equally often, every modality equally often, by chance alone, "
        "or those on which the judge's orders disagree.",
    )
    uncertain_in: str | None = Field(
        default=None,
        pattern=r"^pseudo-preferences(@v[1-9][0-9]*)?$",
        description='The version whose judgments say what is uncertain, for `choose = "uncertain"`.',
    )
    ties: bool = Field(default=False, description="Whether an annotator may prefer neither.")

    questionnaires: int = Field(default=5, ge=1, description="Ratings: sets of prompts; annotators get them in turn.")
    each: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default={"ood": 1, "id": 4}, description="Ratings: prompts of a questionnaire, by the prompts' column `group`."
    )
    background: bool = Field(
        default=False,
        description="Ratings: first ask for years, profession and appreciation of music, which tell experts.",
    )
    scale: tuple[int, int] = Field(default=(1, 5), description="Ratings: the least and the greatest.")
    base: Path = Field(default=Path(), description="Folder that relative paths start from: the config file's own.")

    @model_validator(mode="before")
    @classmethod
    def _of_kind(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Add what the kind of study asks, and what a study of scored systems is by default: ATTM's."""
        scored = {"kind": "ratings", "background": True, "each": EACH_SCORED} if values.get("scored_in") else {}
        ratings = {**scored, **values}.get("kind") == "ratings"
        return {"questions": CRITERIA if ratings else (ALIGNMENT, MUSICALITY), **scored, **values}

    @field_validator("base")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.absolute()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names = [question.name for question in self.questions]
        if len(set(names)) < len(names):
            raise ValueError("questions: expected each name once")
        if taken := sorted({*TAKEN, *(f"confidence_{name}" for name in names)}.intersection(names)):
            raise ValueError(f"questions: '{taken[0]}' is a column of the answers already; choose another name")
        if (self.choose == "uncertain") != (self.uncertain_in is not None):
            raise ValueError("choose = 'uncertain' and uncertain_in go together")
        if bool(self.scored_in) == bool(self.prompts and self.generations):
            raise ValueError("expected 'prompts' and 'generations', or 'scored_in'")
        if self.scored_in is None and (self.systems or self.finalists):
            raise ValueError("'systems' and 'finalists' go with 'scored_in'")
        if self.kind == "pairs" and (self.background or self.scored_in):
            raise ValueError("'background' and 'scored_in' are of ratings")
        if self.kind == "pairs" and self.per_pair > self.annotators:
            raise ValueError(f"per_pair = {self.per_pair} needs as many annotators, found {self.annotators}")
        if not self.scale[0] < self.scale[1] <= self.scale[0] + 10:
            raise ValueError("scale: expected the least before the greatest, at most 11 steps")
        return self

    def path(self, written: str) -> Path:
        """Return the absolute path of a path as the config writes it."""
        return (self.base / written).absolute()


class Trial(Model):
    """One screen with questions."""

    id: str  # sixteen hexadecimal digits; all that a page knows of it
    # pair, repeat (a pair of this page in the other order, or a clip again), known, rating, row (of an audit), facts
    # (of a picture), or background (what the annotator knows of music)
    kind: Literal["pair", "repeat", "known", "rating", "row", "facts", "background"]
    prompt_id: str  # the prompt, an audited row's id, or a picture's file; empty for the background
    # generations by the letters under which they were heard; a rating has one, `a`
    clips: dict[str, str] = Field(default={})
    # the answers of a known pair, or the labels of an audited row, by question, in the page's letters
    expected: dict[str, str] = Field(default={})
    swapped: bool = False  # whether an audited row shows its second clip as A


class AnnotatorPage(Model):
    """One annotator's part of a study."""

    name: str  # p001, p002, …
    key: str  # 32 hexadecimal digits that nobody can guess; part of its address when it is served
    trials: tuple[Trial, ...]

    @property
    def items(self) -> list[Trial]:
        """Return the trials about clips or rows."""
        return [trial for trial in self.trials if trial.kind != "background"]


class Heard(Model):
    """A generation in a plan."""

    prompt_id: str
    model: str
    audio: str = Field(description="As the table of generations writes it.")
    sha256: str
    conditioned_on: str | None = None


class Wanted(Model):
    """A prompt in a plan."""

    text: str
    lyrics: str | None
    reference: str | None
    reference_caption: str | None = None


class Audited(Model):
    """Whose labels an audit is about."""

    corpus: str
    version: str
    manifest_sha256: str  # digest of the version's manifest
    evaluation: str
    stratify: str  # the column by which rows are drawn; empty for none
    sides: tuple[str, str]  # what the version calls the clips of a preference
    strata: dict[str, str]  # of each audited row, its value there
    totals: dict[str, int]  # rows that these were drawn from by label and stratum, joined by a tab
    every: int = 0  # all rows of the evaluation, of every split; 0 in older plans


class PrecisionFacts(TypedDict):
    """Share of right labels, with its 95 % interval; None without rows."""

    precision: float | None
    low: float | None
    high: float | None


class StratumFacts(PrecisionFacts):
    """Share of single reviewers who give a row's label."""

    stratum: str


class AuditCell(StratumFacts):
    """Rows of a label and stratum, by verdict, and the number that they were drawn from."""

    label: str
    confirmed: int
    refuted: int
    disputed: int
    unsure: int
    rows: NotRequired[int]  # missing in older records


class AuditFacts(VersionFacts):
    """`audit.json`."""

    evaluation: str
    stratify: str
    reviewers: int
    audited: int
    overall: PrecisionFacts
    alone: NotRequired[list[StratumFacts]]
    covered: float  # share of the version's rows of an audited label and stratum
    alpha: float | None
    cells: list[AuditCell]
    refused: NotRequired[list[str]]


class StudyPlan(Model):
    """Clips and letters of each annotator; the plan stays with the lab."""

    format: Literal["earmark-study/1"] = FORMAT
    study: str
    kind: Literal["pairs", "ratings", "audit", "facts"]
    questions: tuple[str, ...]
    choices: tuple[str, ...]
    most_failed: float
    prompts: dict[str, Wanted]
    generations: dict[str, Heard]
    pages: tuple[AnnotatorPage, ...]
    # the folders that the clips of generations and of prompts are named from, below the one that holds both, if these
    # are two and a prompt has reference audio
    generations_in: str = ""
    prompts_in: str = ""
    audited: Audited | None = None


Seconds = Annotated[float, Field(ge=0, le=31 * 86400, allow_inf_nan=False)]  # a page may stay open for days


class ScreenAnswer(Model):
    """The answer on one screen."""

    # the form's fields: a choice by question, `confidence_<question>`, `feedback`; or `unplayable` with `feedback`
    response: dict[str, str]
    heard_s: dict[str, Seconds]  # seconds of each clip that were played, by letter
    seconds: Seconds
    at: str = Field(max_length=40)


class AnswerFile(Model):
    """The file that a page hands back."""

    format: Literal["earmark-study/1"]
    study: str
    page: str
    key: str
    body: str  # JSON text of the answers by trial; the checksum is over exactly these characters
    crc32: str  # of the body in UTF-8, eight hexadecimal digits: it tells damage, not fraud
