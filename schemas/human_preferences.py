"""Config of `human-preferences`, and what the command line knows of it (CMI-Pref and CMI-RewardBench)."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from earmark.schemas.config import ClipsConfig
from earmark.schemas.corpus import Corpus, Start, View, Workload, Writer, read_story
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.places import without_places
from earmark.schemas.rating_sources import NOT_A_RATING, Cell
from earmark.schemas.registry import OneOf
from earmark.schemas.toml import Model, Name, changed, filled, without
from earmark.schemas.vote_tables import TABLES


class VoteSource(Model):
    """One export of votes, or one set of rated clips."""

    name: Name = Field(description="What tables and licences call it.")
    format: Annotated[str, OneOf("earmark.tasks.importers.votes:VOTE_LAYOUTS")] = Field(
        description="The layout, as its owner publishes it."
    )
    root: str = Field(default=".", description="The folder that `files` and the clips' paths start from.")
    files: tuple[str, ...] = Field(
        default=(), description="The exports; a folder stands for its .json files. Not needed for `musiceval`."
    )
    audio_root: str | None = Field(default=None, description="Where the clips lie; without it, `root`.")
    clips: Literal["here", "elsewhere"] = Field(
        default="here", description="elsewhere: its clips are not at hand, and are neither measured nor missed."
    )
    columns: dict[str, str] = Field(
        default={}, description="For `votes` and `pam`: our name of a column, and the name that it has in the files."
    )
    split: Literal["draw", "native", "train", "validation", "test"] | None = Field(
        default=None,
        description="draw: into the balanced test split or training; native: the publisher's; or one split for all. "
        "Without it: test for `music-arena` and `pam`, native for `musiceval`, draw for the others.",
    )
    ties: Literal["keep", "drop", "drop-bad"] | None = Field(
        default=None,
        description="Whether votes for neither clip stay; drop-bad: only if both clips are as good. Without it: not in "
        "`music-arena`.",
    )
    untrained: tuple[Literal["musicality", "alignment", "overall"], ...] = Field(
        default=(), description="Dimensions that stay out of `training`; `benchmark` and the other tables have them."
    )
    scale: tuple[float, float] = Field(default=(1.0, 5.0), description="Least and greatest rating of rated clips.")
    not_a_rating: tuple[Cell, ...] = NOT_A_RATING
    positive: Literal["a", "b"] | None = Field(
        default=None,
        description="`votes` only: the clip that a number above 0 prefers, where comparisons are rated from -3 to 3 "
        "(ITU-T P.800: b); its size is the confidence: 1, 2, 3 stand as 1, 3, 5.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.scale[0] < self.scale[1]:
            raise ValueError(f"source '{self.name}': expected a scale that rises, found {list(self.scale)}")
        return self


class Splitting(Model):
    """Contents of the balanced splits.

    They hold equally much with and without lyrics, with and without reference audio, in each combination. Within these,
    samples are drawn at random.
    """

    test: int = Field(default=500, ge=0, description="Samples (`unit`) to draw into `test`.")
    validation: int = Field(default=0, ge=0, description="Samples (`unit`) to draw into `validation`.")
    apart: tuple[Literal["annotator"], ...] = Field(
        default=(), description="Besides prompts and clips, what may not stand in two splits."
    )


class HumanPreferences(ClipsConfig):
    """Build config of `human-preferences`."""

    corpus: Literal["human-preferences"] = "human-preferences"
    sources: tuple[VoteSource, ...] = Field(min_length=1)
    unit: Literal["vote", "comparison"] = Field(
        default="vote",
        description="What a sample of `training`, `benchmark` and the drawn splits is: a vote, as CMI-Pref counts, or "
        "what all votes on two clips say together.",
    )
    audio: Literal["none", "index", "embed"] = Field(
        default="none", description="none: as the exports name it; index: hash and measure clips; embed: hold them too."
    )
    split: Splitting = Splitting()

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [source.name for source in self.sources]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"expected each source once, found '{twice}' twice")
        return self

    def targets(self) -> dict[str, int]:
        """Comparisons that are drawn into splits."""
        return {"test, comparisons drawn": self.split.test, "validation, comparisons drawn": self.split.validation}

    def source_of(self, file: str) -> str:
        """Return the source's name, with which the names of its files begin."""
        return file.partition("/")[0]

    def identity(self) -> dict[str, Any]:
        values = without(super().identity(), "sources.root", "sources.audio_root", "sources.links", "salt")
        newer = ("not_a_rating", "positive", "untrained")  # without them, a version of before is up to date
        values = changed(values, "sources", lambda each: [filled(one, newer, False) for one in each])
        return changed(values, "sources.files", without_places)


_PAIR = ("text", "lyrics", "reference_audio", "a_audio", "b_audio")
_CLIPS = ("clips", "clip_id")
_GROUPS = ("modality", "vocals", "confidence_band", "month", "length", "model", "models", "annotator")


def _preference(name: str, task: str, dimension: str, first: str, says: str) -> Evaluation:
    groups = (first, *(group for group in _GROUPS if group != first))
    params = {"task": task, "dimension": dimension}
    prompt = f"vote-pair-{dimension}"
    facts = {"dimensions": [dimension]}
    # an arena's battles are read by musicality where clips are rated one by one, as in the released script
    rated = "musicality" if dimension == "overall" else dimension
    modes = (
        Mode("holistic", prompt, shows=_PAIR, json_field=dimension, facts=facts, says="Both clips in one request."),
        Mode("forced", f"vote-choice-{dimension}", shows=_PAIR, ties=False, facts=facts, says="A or B, and no tie."),
        Mode(
            "single",
            f"clip-rating-{rated}",
            shows=_PAIR[:3],
            answer="scalar",
            each="clip",
            facts={"dimensions": [rated]},
            says="Each clip by itself, rated from 1 to 5; the higher is preferred.",
        ),
    )
    order = "clip_a and clip_b of the table benchmark"
    sql = "human_preferences/tested_pairs"
    return Evaluation(name, "preference", sql, says, modes, groups, order=order, clips=_CLIPS, params=params)


def _scalar(name: str, task: str, dimension: str, says: str) -> Evaluation:
    params = {"task": task, "dimension": dimension}
    sql = "human_preferences/tested_clips"
    facts = {"dimensions": [dimension]}
    mode = Mode("score", f"clip-rating-{dimension}", ("text", "clip=audio"), facts=facts, says="A rating from 1 to 5.")
    return Evaluation(name, "scalar", sql, says, (mode,), groups=("system", "length"), clips=_CLIPS, params=params)


EVALUATIONS = (
    _scalar("pam-musicality", "pam", "musicality", "PAM: how musical is a clip? Scores against mean ratings."),
    _scalar("pam-alignment", "pam", "alignment", "PAM: does a clip follow its text? Scores against mean ratings."),
    _scalar("musiceval-musicality", "musiceval", "musicality", "MusicEval: how musical is a clip?"),
    _preference(
        "music-arena", "music-arena", "overall", "month", "Music Arena: which of two clips did a visitor like?"
    ),
    _preference("cmi-pref-musicality", "cmi-pref", "musicality", "modality", "CMI-Pref: which clip is more musical?"),
    _preference("cmi-pref-alignment", "cmi-pref", "alignment", "modality", "CMI-Pref: which clip follows the prompt?"),
)

VIEWS = (
    *(
        View(
            f"{dimension}-clips",
            "preference",
            "human_preferences/preferred_clips",
            f"A prompt and two generations; chosen is the one that people preferred ({dimension}).",
            {"dimension": dimension},
        )
        for dimension in ("musicality", "alignment", "overall")
    ),
    View(
        "training",
        "rows",
        "human_preferences/trained_on",
        "Pairs and scalar ratings in one list, with the clips, as a reward model with both losses reads them.",
    ),
    *(
        View(
            f"{dimension}-lists",
            "rows",
            "human_preferences/listed",
            f"A prompt and all its clips, with scores and ranks from votes or ratings ({dimension}).",
            {"dimension": dimension},
        )
        for dimension in ("musicality", "alignment", "overall")
    ),
    View(
        "votes",
        "rows",
        "human_preferences/as_shown",
        "Single votes on musicality and alignment, in the letters that were shown; clips by the names in their source.",
        writers=(
            Writer(
                "cmi-pref",
                "earmark.tasks.importers.cmi_pref:write",
                ".jsonl",
                "what reads CMI-Pref's release, such as `human-preferences` itself",
            ),
        ),
    ),
    View(
        "benchmark",
        "rows",
        "human_preferences/released",
        "The benchmark in CMI-RewardBench's own layout, a line a comparison or rated clip.",
        writers=(
            Writer(
                "cmi-rewardbench",
                "earmark.tasks.human_preferences.released:write",
                ".jsonl",
                "the scripts of CMI-RewardBench, and `earmark eval run FILE --layout cmi-rewardbench`",
                audio=True,
                whole="all_test.jsonl",
            ),
        ),
    ),
)

_START = Start(
    "earmark.tasks.importers.votes:VOTE_LAYOUTS",
    """audio = {audio}   # "index" measures the clips, which exports and the report's players need

[[sources]]
name = {name}
format = {format}   # the layout that takes most of its first rows
root = {folder}
files = [{base}]
# audio_root = "clips"   # where the clips lie, if not below root
# clips = "elsewhere"   # if they are not at hand

[split]
test = 0   # samples to draw into the split test
""",
)

CORPUS = Corpus(
    name="human-preferences",
    source="vote exports, arena logs, rated sets",
    holds="votes, agreement, balanced test split, five-task benchmark",
    paper="CMI-Pref, CMI-RewardBench",
    config=HumanPreferences,
    tables=TABLES,
    story=read_story("human_preferences"),
    plan="earmark.tasks.human_preferences.sources:plan_build",
    inputs="earmark.tasks.human_preferences.sources:inputs",
    flow="earmark.flows.human_preferences:build",
    schedule="45 5 * * *",
    start=_START,
    scale=(Workload("4,027 votes, no questions", 4_027, audio_s=120, built="all, ten times"),),
    recount="earmark.tasks.human_preferences.derived:recount",
    card="earmark.tasks.human_preferences.report:card_sections",
    report="earmark.tasks.human_preferences.report:sections",
    views=VIEWS,
    evaluations=EVALUATIONS,
    layouts={"cmi-rewardbench": "earmark.tasks.human_preferences.released:read"},
    ranked="human_preferences/ranked",
)
