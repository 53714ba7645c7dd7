"""Config and tables of `pseudo-preferences` (CMI-Pref-Pseudo: position-consistent judge labels on generated music)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from earmark.schemas.annotation import DECIDES, AnnotatorConfig, Asked, Hearing, Prices
from earmark.schemas.config import BuildConfig, Linked, Model
from earmark.schemas.corpus import Corpus, Story
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.places import without_place
from earmark.schemas.tables import REJECTS, Shares, Table, audio_column, columns, integer, number, text
from earmark.schemas.views import View

Dimension = Literal["musicality", "alignment"]
DIMENSIONS: tuple[Dimension, ...] = ("musicality", "alignment")
MODALITIES = ("text", "text+lyrics", "text+audio", "text+lyrics+audio")
Modality = Literal["text", "text+lyrics", "text+audio", "text+lyrics+audio"]
ORDERS = ("forward", "reverse")


class Pairing(Model):
    """Which generations are compared, and how many pairs are kept."""

    count: int | None = Field(default=None, ge=1, description="Pairs in all; without it, all there are.")
    same_model: bool = Field(default=False, description="Whether two generations of one model may be compared.")
    modalities: dict[Modality, Annotated[float, Field(ge=0)]] = Field(
        default={"text": 1.0, "text+lyrics": 1.0, "text+audio": 1.0, "text+lyrics+audio": 1.0},
        description="Shares of the modalities in `count`; what one cannot fill goes to the others.",
    )
    per_prompt: int | None = Field(default=None, ge=1, description="Pairs of one prompt at most.")


class Clips(Model):
    """Which generations are fit to be judged."""

    shortest_s: float = Field(default=2.0, ge=0, description="Shorter clips are rejects.")
    silence_dbfs: float = Field(default=-60.0, le=0, description="Clips whose peak is lower are rejects.")
    embed: bool = Field(default=False, description="Whether the table `clips` holds the audio files themselves.")


class Judge(Asked):
    """Who judges the pairs, and what a label needs."""

    dimensions: tuple[Dimension, ...] = Field(default=DIMENSIONS, min_length=1, description="What is asked.")
    require: tuple[Dimension, ...] = Field(
        default=DIMENSIONS, min_length=1, description="Dimensions in which both passes must agree for a label."
    )
    separate: bool = Field(default=False, description="One request for each dimension, instead of one for all.")
    hearing: Hearing = Hearing()

    @model_validator(mode="after")
    def _asked(self) -> Self:
        missing = [name for name in self.require if name not in self.dimensions]
        if missing:
            raise ValueError(f"require names '{missing[0]}', which dimensions does not ask")
        if len(set(self.dimensions)) < len(self.dimensions):
            raise ValueError("expected each dimension once")
        return self


class Validation(Model):
    """What the judge is held against."""

    against: str = Field(
        pattern=r"^human-preferences(@v[1-9][0-9]*)?$",
        description="A version of human-preferences with votes on the same clips: human-preferences@vN, or the newest.",
    )


class PseudoPreferences(Linked, BuildConfig):
    """Build config of `pseudo-preferences`."""

    corpus: Literal["pseudo-preferences"] = "pseudo-preferences"
    prompts: str = Field(description="Table of prompts: prompt_id, text, lyrics?, reference_audio?.")
    generations: str = Field(description="Table of generations: generation_id, prompt_id, model, audio, status?.")
    pairs: Pairing = Pairing()
    clips: Clips = Clips()
    judge: Judge
    prices: Prices | None = Field(default=None, description="What the judge's provider charges.")
    shares: Shares = Field(
        default={"train": 0.9, "validation": 0.05, "test": 0.05}, description="Shares of prompts by split."
    )
    known_order: str | None = Field(
        default=None,
        description="For demos: a JSON file with the models' true ranks, to report how often labels agree.",
    )

    validation: Validation | None = Field(
        default=None,
        validation_alias=AliasChoices("validation", "validate"),
        description="People's votes on the same clips, to report how often the judge is right.",
    )

    @model_validator(mode="before")
    @classmethod
    def _priced(cls, values: Any) -> Any:
        """Prices stand beside the judge, not in it; the judge needs them for its budget."""
        if isinstance(values, dict) and isinstance(values.get("judge"), dict) and values.get("prices") is not None:
            return {**values, "judge": {"prices": values["prices"], **values["judge"]}}
        return values

    def reads(self) -> tuple[str, ...]:
        """The version with people's votes."""
        return (self.validation.against,) if self.validation else ()

    def asked(self) -> dict[str, AnnotatorConfig]:
        """Who is asked, by role."""
        return {"judge": self.judge}

    def for_forecast(self) -> Self:
        """Without audio in the tables."""
        return self.model_copy(update={"clips": self.clips.model_copy(update={"embed": False})})

    def identity(self) -> dict[str, Any]:
        """The config without what cannot change an answer: where files and servers are, pace, patience and money."""
        values = super().identity()
        del values["prices"], values["links"], values["validation"]  # what it names stands among the parents
        for name in ("prompts", "generations", "known_order"):
            values[name] = without_place(values[name]) if values[name] else None
        values["judge"] = {name: values["judge"][name] for name in _DECIDES}
        return values


_DECIDES = (*DECIDES, "dimensions", "require", "separate", "hearing")

_METHOD = "CMI-RewardBench, appendix on CMI-Pref-Pseudo"
_CHOICES = "a, b or tie"

CLIPS = Table(
    name="clips",
    description="One row a generation that could be judged.",
    schema=columns(
        text("generation_id", "The generation's id in the input.", names="generation", role="is"),
        text("split", "Split of its prompt."),
        text("prompt_id", "The prompt that it was made from.", names="prompt"),
        text("model", "The model that made it.", names="source"),
        text("file", "Audio file as the table of generations names it."),
        text("clip_sha256", "SHA-256 of the audio file's bytes.", names="clip", role="is"),
        number("duration_s", "Length of the clip.", unit="s"),
        integer("sample_rate_hz", "Sample rate of the file.", unit="Hz"),
        integer("channels", "Channels of the file."),
        number("peak_dbfs", "Peak.", unit="dB of full scale", optional=True),
        text("source_file", "The table that the row came from."),
        integer("source_line", "Line in that table, counted from 1."),
        audio_column("The audio file as it was judged; null unless the config says `clips.embed`."),
    ),
    key=("generation_id",),
    exclusive=("prompt_id", "clip_sha256"),
    says=(
        "read from {source_file}, line {source_line}",
        "made by {model} from prompt {prompt_id}; {duration_s} s at {sample_rate_hz} Hz, peak {peak_dbfs} dBFS",
    ),
)

PAIRS = Table(
    name="pairs",
    description="One row two generations of one prompt that were given to the judge in both orders.",
    schema=columns(
        text(
            "pair_id",
            "Sixteen hexadecimal digits from the two generation ids, in either order.",
            names="pair",
            role="is",
        ),
        text("split", "Split of the prompt."),
        text("prompt_id", "The prompt of both generations.", names="prompt"),
        text("modality", "What the prompt holds: text, text+lyrics, text+audio, text+lyrics+audio."),
        text("text", "The prompt's text."),
        text("lyrics", "The prompt's lyrics.", optional=True),
        text("reference_sha256", "SHA-256 of the prompt's reference audio.", optional=True, names="clip"),
        text("generation_a", "Generation shown first in the forward pass.", names="generation"),
        text("generation_b", "Generation shown second in the forward pass.", names="generation"),
        text("model_a", "Model of generation a."),
        text("model_b", "Model of generation b."),
    ),
    key=("pair_id",),
    exclusive=("prompt_id",),
    says=("two generations of prompt {prompt_id} ({modality}), by {model_a} and {model_b}",),
)

JUDGMENTS = Table(
    name="judgments",
    description="One row an answer of the judge: a pair, in one order, on one dimension.",
    schema=columns(
        text("pair_id", "The pair.", names="pair"),
        text("split", "Split of the prompt."),
        text("order", "forward shows (a, b), reverse (b, a)."),
        text("dimension", "musicality or alignment."),
        text("choice", "The preferred generation, in the pair's own letters.", unit=_CHOICES),
        text("position", "What the judge said, by place in its prompt.", unit="A, B or tie"),
        text("reason", "The judge's reason, as it gave it."),
        text("judge", "The annotator: backend and model.", names="annotator"),
        text("prompt", "Prompt file and version that asked."),
        text("request_key", "The request's key in the ledger."),
        text("notes", "What was done to fit the model's limits, such as cut audio.", optional=True),
    ),
    key=("pair_id", "order", "dimension"),
    says=("judged {order} on {dimension}: {position} of the prompt, that is {choice}; request {request_key}",),
)

LABELS = Table(
    name="labels",
    description="One row a pair on which both orders agree in every required dimension.",
    schema=columns(
        text("pair_id", "The pair.", names="pair"),
        text("split", "Split of the prompt."),
        text("prompt_id", "The prompt of both generations.", names="prompt"),
        text("modality", "What the prompt holds."),
        text("generation_a", "The pair's generation a.", names="generation"),
        text("generation_b", "The pair's generation b.", names="generation"),
        text("model_a", "Model of generation a."),
        text("model_b", "Model of generation b."),
        text(
            "musicality",
            "Which sounds better as music; null if not agreed, or not asked.",
            unit=_CHOICES,
            source=_METHOD,
            optional=True,
        ),
        text(
            "alignment",
            "Which follows the prompt better; null if not agreed, or not asked.",
            unit=_CHOICES,
            source=_METHOD,
            optional=True,
        ),
        text("judge", "The annotator whose two passes agreed.", names="annotator"),
    ),
    key=("pair_id",),
    exclusive=("prompt_id",),
    says=("both orders agree: musicality {musicality}, alignment {alignment}",),
)

BIAS = Table(
    name="bias",
    description=(
        "How the judge's choices are shared out before and after the consistency filter, in the pair's own letters: "
        "one row a scope, dimension and set of judgments."
    ),
    schema=columns(
        text("scope", "all, modality, model_pair or judge: which pairs the row speaks of."),
        text("value", "The modality, the two models, or the judge; `all` for all.", names="annotator"),
        text("dimension", "musicality or alignment."),
        text("set", "original (forward pass), reversed (reverse pass) or agreed."),
        integer("pairs", "Pairs counted: answered in both orders; for agreed, those of equal choice."),
        number("share_a", "Share that prefers a.", unit="0 to 1"),
        number("share_b", "Share that prefers b.", unit="0 to 1"),
        number("share_tie", "Share of ties.", unit="0 to 1"),
        number("share_first", "Share for what was shown first.", unit="0 to 1", optional=True),
        number("consistency", "Share of the pairs on which both orders agree.", unit="0 to 1"),
        number(
            "same_as_other",
            "Of pairs agreed in both dimensions, the share with one choice in both.",
            unit="0 to 1",
            optional=True,
        ),
    ),
    key=("scope", "value", "dimension", "set"),
    splits=False,
    counted=True,
)

PEOPLE = Table(
    name="people",
    description="How the judge's choices compare with people's votes on the same clips; only with `[validation]`.",
    schema=columns(
        text("dimension", "musicality or alignment."),
        text(
            "measure",
            "accuracy, confidence (of what both passes agree on, by people's own), confusion, calibration, or "
            "calibration error.",
        ),
        text("value", "The pass or set, band, choices, or how sure both passes together are."),
        integer("pairs", "Pairs that the row counts."),
        number("share", "Share that is right; of a confusion, of what people chose.", unit="0 to 1"),
        number("low", "Lower end of its interval of 95 %.", unit="0 to 1", optional=True),
        number("high", "Upper end of its interval of 95 %.", unit="0 to 1", optional=True),
        number("expected", "What a calibrated judge would reach.", unit="0 to 1", optional=True),
    ),
    key=("dimension", "measure", "value"),
    splits=False,
    counted=True,
    optional=True,
)

TABLES = (CLIPS, PAIRS, JUDGMENTS, LABELS, BIAS, PEOPLE, REJECTS)

_STORY = Story(
    title="Pseudo preferences",
    summary=(
        "Pairs of generated music with a judge model's preferences on musicality and on alignment with the prompt, "
        "kept only where the judge prefers the same clip in both orders. For training reward models on generated music."
    ),
    method=(
        "Generations of one prompt by different models are paired, spread evenly over modalities and pairs of models, "
        "and picked by seeded hash order. Failed, empty, silent, too short and duplicate generations are rejects.",
        "A judge hears every pair twice, as (a, b) and as (b, a), and says for each dimension A, B or tie.",
        "A dimension's label is valid if both passes prefer the same clip or both say tie; a pair is kept if every "
        "required dimension is valid. The others are rejects, with both passes in `judgments`.",
        "`bias` compares the choices of the first pass, of the reversed pass and of the agreed set.",
        "Splits are by prompt: no prompt, and no clip, is in two of them.",
    ),
    main_table="labels",
    references=("CMI-RewardBench: CMI-Pref-Pseudo, pseudo-labels by position-consistent judging.",),
    limits=(
        "Labels are a model's, not people's; agreement with listeners is measured where a build names votes.",
        "A judge named `builtin:` measures the signal and hears no music: its labels are for trying the pipeline.",
        "The terms of the generating models hold for the audio.",
    ),
    tags=("audio", "music", "preference", "reward-model"),
)

_QUESTIONS = {
    "musicality": "Which of the two clips is better as music? Answer with A or B.",
    "alignment": "Which of the two clips follows the prompt better? Answer with A or B.",
}


def _views(dimension: Dimension, better: str) -> tuple[View, ...]:
    return (
        View(
            f"{dimension}-clips",
            "preference",
            "pseudo_preferences/preferred_clips",
            f"A prompt and two generations; chosen is the one that {better}.",
            {"dimension": dimension},
        ),
        View(
            f"{dimension}-choice",
            "preference",
            "pseudo_preferences/choices",
            f"Both generations in the prompt; chosen is the letter of the one that {better}.",
            {"dimension": dimension, "question": _QUESTIONS[dimension]},
        ),
    )


VIEWS = (*_views("musicality", "sounds better as music"), *_views("alignment", "follows the prompt better"))


def _evaluation(dimension: Dimension, says: str) -> Evaluation:
    mode = Mode(
        "pair",
        f"music-pair-{dimension}",
        ("text", "lyrics", "reference=reference_audio", "a=a_audio", "b=b_audio"),
        json_field=dimension,
        facts={"dimensions": [dimension]},
        says="The prompt and both clips; the answer is A, B or tie, with a reason.",
    )
    single = Mode(
        "single",
        f"clip-rating-{dimension}",
        ("text", "lyrics", "reference_audio"),
        answer="scalar",
        each="clip",
        facts={"dimensions": [dimension]},
        says="The prompt and each clip by itself, rated from 1 to 5; the higher is preferred.",
    )
    groups = ("modality", "length", "model", "models")
    return Evaluation(
        dimension,
        "preference",
        "pseudo_preferences/judged_pairs",
        says,
        (mode, single),
        groups,
        order="generation_a and generation_b of the table labels",
        clips=("clips", "generation_id"),
        params={"dimension": dimension},
    )


EVALUATIONS = (
    _evaluation("musicality", "Does a model prefer what both passes of the labelling judge preferred as music?"),
    _evaluation("alignment", "Does a model prefer what both passes of the labelling judge found closer to the prompt?"),
)

CORPUS = Corpus(
    name="pseudo-preferences",
    source="prompts + generated audio",
    holds="position-consistent judge labels on musicality and alignment",
    paper="CMI-Pref-Pseudo",
    config=PseudoPreferences,
    tables=TABLES,
    story=_STORY,
    plan="earmark.tasks.pseudo_preferences.pairs:plan_build",
    peeks="earmark.tasks.pseudo_preferences.pairs:peeks",
    flow="earmark.flows.pseudo_preferences:build",
    recount="earmark.tasks.pseudo_preferences.labels:recount",
    card="earmark.tasks.pseudo_preferences.labels:card_sections",
    report="earmark.tasks.pseudo_preferences.report:sections",
    views=VIEWS,
    evaluations=EVALUATIONS,
    ranked="pseudo_preferences/ranked",
)
