"""Config and tables of `pseudo-preferences` (CMI-Pref-Pseudo: position-consistent judge labels on generated music)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from earmark.schemas.annotation import DECIDES, AnnotatorConfig
from earmark.schemas.config import ClipsConfig
from earmark.schemas.corpus import Beside, Corpus, Start, View, Workload, Writer, read_story
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.judges import QUALIFICATION, Judged, Judging, Jury, Qualify
from earmark.schemas.places import clips_folder, without_place, without_places
from earmark.schemas.pseudo_tables import (
    BIAS,
    CLIPS,
    CONFOUNDS,
    DIMENSIONS,
    JUDGMENTS,
    LABELS,
    PAIRS,
    PEOPLE,
    Dimension,
)
from earmark.schemas.tables import REJECTS, Shares
from earmark.schemas.toml import Flat, Model, Name, changed, filled, without

MODALITIES = ("text", "text+lyrics", "text+audio", "text+lyrics+audio")
Modality = Literal["text", "text+lyrics", "text+audio", "text+lyrics+audio"]
ORDERS = ("forward", "reverse")


Matched = Literal["loudness", "length"]


class Pairing(Model):
    """Comparison of generations, and the number of pairs."""

    count: int | None = Field(default=None, ge=1, description="Pairs in all; without it, all there are.")
    same_model: bool = Field(default=False, description="Whether two generations of one model may be compared.")
    modalities: dict[Modality, Annotated[float, Field(ge=0)]] = Field(
        default={"text": 1.0, "text+lyrics": 1.0, "text+audio": 1.0, "text+lyrics+audio": 1.0},
        description="Shares of the modalities in `count`; what one cannot fill goes to the others.",
    )
    per_prompt: int | None = Field(default=None, ge=1, description="Pairs of one prompt at most.")
    near: str | None = Field(
        default=None,
        min_length=1,
        description="Hard pairs first: those whose clips lie nearest by the embeddings of this CLAP model of "
        "`transformers` (a folder or a name on the Hub), within each modality and pair of models.",
    )

    @model_validator(mode="after")
    def _chooses(self) -> Self:
        if self.near is not None and self.count is None and self.per_prompt is None:
            raise ValueError("near: expected count or per_prompt beside it; without these all pairs are taken")
        return self


class ClipLimits(Model):
    """Conditions for a generation to be judged."""

    shortest_s: float = Field(default=2.0, ge=0, description="Shorter clips are rejects.")
    embed: bool = Field(default=False, description="Whether the table `clips` holds the audio files themselves.")


class PairJudge(Judging):
    """The judge of the pairs, and the conditions for a label."""

    name: Name | None = Field(default=None, description="Tells two judges apart that are the same model.")
    qualify: Qualify | None = Field(
        default=None, description="Gold that is asked before all else; `earmark eval qualify` asks it alone."
    )
    dimensions: tuple[Dimension, ...] = Field(default=DIMENSIONS, min_length=1, description="What is asked.")
    require: tuple[Dimension, ...] = Field(
        default=DIMENSIONS, min_length=1, description="Dimensions in which both passes must agree for a label."
    )
    scores: bool = Field(
        default=False,
        description="Ask also how sure the judge is, and for a score of each clip, as CMI-Pref-Pseudo has.",
    )
    match: tuple[Matched, ...] = Field(
        default=(),
        description="In what a pair's clips are made alike before they are heard: `loudness` (gated, LUFS) turns the "
        "louder down, `length` cuts the longer.",
    )

    tie_margin: float = Field(
        default=0.0, ge=0, description="Of a scorer: difference of two clips' scores up to which a pair is a tie."
    )

    @property
    def scorer_file(self) -> str | None:
        """Return the TOML file of a scorer as the judge."""
        backend, _, file = self.annotator.partition(":")
        return file if backend == "scorer" else None

    @property
    def label(self) -> str:
        who = self.annotator if self.scorer_file is None else f"scorer:{without_place(self.scorer_file)}"
        return f"{who} ({self.name})" if self.name else who

    def _as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        return values if self.tie_margin else without(values, "tie_margin")  # as in versions of before

    @model_validator(mode="after")
    def _scores_clips(self, info: ValidationInfo) -> Self:
        """Refuse what a scorer cannot do; from run parameters, any scorer: it may run code."""
        if self.scorer_file is None:
            if self.tie_margin:
                raise ValueError("tie_margin: expected a scorer, whose numbers have a difference")
            return self
        if not (info.context or {}).get("file"):
            raise ValueError("expected no scorer among a run's parameters; a config file may name one")
        if not self.scorer_file.endswith(".toml"):
            raise ValueError(f"expected scorer:FILE.toml, found '{self.annotator}'")
        if self.scores or self.match or self.qualify:
            raise ValueError("scores, match and qualify: a scorer hears each clip alone and answers no questions")
        return self

    @model_validator(mode="after")
    def _asked(self) -> Self:
        if len(set(self.match)) < len(self.match):
            raise ValueError("match: expected each word once")
        if self.scores and len(self.dimensions) < len(DIMENSIONS):
            raise ValueError("scores are asked with both dimensions in one request: expected both in 'dimensions'")
        if self.scores and self.annotator.startswith("builtin:"):
            raise ValueError(f"scores: {self.annotator} gives none")
        missing = [name for name in self.require if name not in self.dimensions]
        if missing:
            raise ValueError(f"require names '{missing[0]}', which dimensions does not ask")
        if len(set(self.dimensions)) < len(self.dimensions):
            raise ValueError("expected each dimension once")
        return self


class Released(Model):
    """Labels that are made already, in the layout of CMI-Pref-Pseudo."""

    root: str = Field(default=".", description="The folder that `files` and the clips' paths start from.")
    files: tuple[str, ...] = Field(min_length=1, description="JSON lines as CMI-Pref-Pseudo has them, or a table.")


MADE = ("prompts", "generations", "judge")  # what a build needs that makes its labels
ASKED = ("judges", "known_order", "reference_captions", "validation")  # what speaks of labels that a build makes


class PseudoPreferences(ClipsConfig, Judged):
    """Build config of `pseudo-preferences`."""

    renamed = {"validate": "validation"}  # noqa: RUF012
    were_tables = {  # noqa: RUF012
        "validation": Flat("validation", lambda old: old.get("against"), lambda name: name and {"against": name}),
        "jury": Flat("jury", lambda old: old.get("combine"), lambda rule: {"combine": rule, "margin": 0.0}),
    }
    corpus: Literal["pseudo-preferences"] = "pseudo-preferences"
    prompts: str = Field(
        default="", description="Table of prompts: prompt_id, text, lyrics?, reference_audio?, reference_caption?."
    )
    generations: str = Field(
        default="",
        description="Table of generations: generation_id, prompt_id, model, audio, status?, conditioned_on?. Or a "
        "pattern of the files themselves: `{model}/{prompt_id}.wav`.",
    )
    prompt_columns: dict[Literal["prompt_id", "text", "lyrics", "reference_audio", "reference_caption"], str] = Field(
        default={}, description="Our name of a column or key of `prompts`, and the name that it has there."
    )
    generation_columns: dict[
        Literal["generation_id", "prompt_id", "model", "audio", "status", "conditioned_on"], str
    ] = Field(default={}, description="The same of `generations`.")
    released: Released | None = Field(
        default=None, description="Released labels to take as they are, in place of prompts, generations and a judge."
    )
    reference_captions: str | None = Field(
        default=None,
        pattern=r"^captions(@v[1-9][0-9]*)?$",
        description="A version of captions that describes the references, for generations conditioned on a caption.",
    )
    pairs: Pairing = Pairing()
    clips: ClipLimits = ClipLimits()
    if TYPE_CHECKING:
        judge: PairJudge  # whoever labels needs one; what takes released labels asks for none
    else:
        judge: PairJudge | None = Field(
            default=None, description="The judge; beside `[[judges]]`, what all of them share."
        )
    judges: tuple[PairJudge, ...] = Field(
        default=(), description="Several judges of the same pairs, each with what `[judge]` does not say for all."
    )
    jury: Jury = Field(
        default="majority",
        description="Rule to join several judges: all agree; more than half of all; or the highest sum of the log-odds "
        "of each judge's accuracy on gold (`judge.qualify`). A judge whose passes differ does not vote.",
    )
    shares: Shares = Field(
        default={"train": 0.9, "validation": 0.05, "test": 0.05}, description="Shares of prompts by split."
    )
    known_order: str | None = Field(
        default=None,
        description="For demos: a JSON file with the models' true ranks, to report how often labels agree.",
    )
    validation: str | None = Field(
        default=None,
        pattern=r"^human-preferences(@v[1-9][0-9]*)?$",
        description="People's votes on the same clips, to report how often the judge is right: human-preferences@vN, "
        "or the newest.",
    )

    @classmethod
    def respelled(cls, values: dict[str, Any]) -> dict[str, Any]:
        return super().respelled({cls.renamed.get(key, key): value for key, value in values.items()})

    @model_validator(mode="after")
    def _made_or_released(self) -> Self:
        missing = [name for name in MADE if not getattr(self, name)]
        if self.released is None and missing:
            raise ValueError(f"missing key '{missing[0]}'")
        asked = [name for name in (*MADE, *ASKED) if getattr(self, name)]
        if self.released is not None and asked:
            raise ValueError(f"{asked[0]}: expected none beside [released], whose labels are made already")
        return self

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        """Answers of several judges are combined: all must be asked the same."""
        if len({(one.dimensions, one.require, one.scores, one.match) for one in self.jurors()}) > 1:
            raise ValueError("judges: expected dimensions, require, scores and match in [judge], the same for all")
        return self

    def reads(self) -> tuple[str, ...]:
        """Return the versions with people's votes and with captions of references."""
        against = (self.validation,) if self.validation else ()
        return (*against, self.reference_captions) if self.reference_captions else against

    def targets(self) -> dict[str, int]:
        """Pairs, if the config counts them."""
        return {"pairs": self.pairs.count} if self.pairs.count else {}

    def asked(self) -> dict[str, AnnotatorConfig]:
        if self.released:
            return {}
        judges = {"judge": self.judge, **{f"judges[{n}]": one for n, one in enumerate(self.judges) if n}}
        return {role: one for role, one in judges.items() if one.scorer_file is None}

    def for_forecast(self) -> Self:
        """Without audio in the tables."""
        return self.model_copy(update={"clips": self.clips.model_copy(update={"embed": False})})

    def clips_folder(self) -> Path:
        """Return the folder of the clips: beside the table of generations, or a release's own."""
        if self.released:
            return self.path(self.released.root)
        return clips_folder(self.path(self.generations))

    def identity(self) -> dict[str, Any]:
        # what `validation` and `reference_captions` name stands among the parents
        values = without(super().identity(), "prices", "links", "validation", "reference_captions")
        values = filled(values, ("prompt_columns", "generation_columns"))  # else no version of before is up to date
        for name in ("prompts", "generations", "known_order"):
            values = changed(values, name, lambda written: without_place(written) if written else None)
        values = changed(values, "pairs.near", without_places) if self.pairs.near else without(values, "pairs.near")
        if self.released:
            values = {**values, "released": without_places(self.released.files)}
        return self.judges_identity(values, _DECIDES)


_DECIDES = (*DECIDES, "dimensions", "require", "separate", "scores", "hearing", "match", "tie_margin")

TABLES = (CLIPS, PAIRS, JUDGMENTS, LABELS, BIAS, CONFOUNDS, PEOPLE, QUALIFICATION, REJECTS)

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
        View(
            f"{dimension}-lists",
            "rows",
            "pseudo_preferences/listed",
            f"A prompt and all its generations, with the share of pairs in which each {better}, and ranks.",
            {"dimension": dimension},
        ),
    )


VIEWS = (
    *_views("musicality", "sounds better as music"),
    *_views("alignment", "follows the prompt better"),
    View(
        "labels",
        "rows",
        "pseudo_preferences/released",
        "Labels with their prompts and clips.",
        writers=(
            Writer(
                "cmi-pref",
                "earmark.tasks.importers.cmi_pref:write",
                ".jsonl",
                "what reads CMI-Pref-Pseudo's release",
                audio=True,
            ),
        ),
    ),
)


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
    groups = ("modality", "vocals", "length", "model", "models")
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

_START = Start(
    ("generations",),
    """
prompts = {beside}   # the file whose name is most alike, check it
generations = {file}
""",
    ("judge",),
    Beside(
        "prompts",
        "prompt",
        "with 'prompt' in its name",
        "the generations (columns generation_id, prompt_id, model, audio)",
    ),
)

CORPUS = Corpus(
    name="pseudo-preferences",
    source="prompts + generated audio",
    holds="position-consistent judge labels on musicality and alignment",
    paper="CMI-Pref-Pseudo",
    config=PseudoPreferences,
    tables=TABLES,
    story=read_story("pseudo_preferences"),
    plan="earmark.tasks.pseudo_preferences.pairs:plan_build",
    inputs="earmark.tasks.pseudo_preferences.pairs:inputs",
    flow="earmark.flows.pseudo_preferences:build",
    schedule="30 3 * * *",
    start=_START,
    scale=(
        Workload(
            "129,545 pairs in both orders", 129_545, requests=2, heard_s=60, text_in=500, text_out=150, audio_s=60
        ),
    ),
    recount="earmark.tasks.pseudo_preferences.labels:recount",
    card="earmark.tasks.pseudo_preferences.labels:card_sections",
    report="earmark.tasks.pseudo_preferences.report:sections",
    views=VIEWS,
    evaluations=EVALUATIONS,
    ranked="pseudo_preferences/ranked",
)
