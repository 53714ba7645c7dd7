"""Config and tables of `mos-preferences` (MOS-RMBench: preference pairs from mean opinion scores)."""

from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import Field, field_validator, model_validator

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import ClipsConfig
from earmark.schemas.corpus import Corpus, View, Workload, read_story
from earmark.schemas.critiques import CRITIQUE_EVALUATIONS, CRITIQUE_VIEWS, CRITIQUES, PAIRED_CRITIQUES, Critiques
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.places import without_places
from earmark.schemas.rating_sources import APART, NEWER, Source, canonical_splits
from earmark.schemas.tables import REJECTS, Column, Split, Table, WholeFile
from earmark.schemas.toml import LARGEST, Model, changed, filled, nearest, without

CATEGORIES = ("same_content", "same_source", "unmatched")
Count = Annotated[int, Field(ge=0, le=LARGEST)]
FewTriplets = Annotated[int, Field(ge=0, lt=1_000_000)]  # DuckDB's min_by ranks no more


class Pairs(Model):
    """Drawing of pairs, and the number kept."""

    min_gap: float = Field(
        default=0.0, ge=0, description="Least MOS difference, on a 1-to-5 scale; equal MOS are never a pair."
    )
    draws: int = Field(
        default=2, ge=1, le=64, description="Neighbours a clip meets in each of its groups, without a quota."
    )
    per_clip: int | None = Field(
        default=16, ge=1, le=LARGEST, description="Pairs that one clip may be part of at most."
    )
    balance: dict[Literal["same_content", "same_source", "unmatched"], Annotated[float, Field(ge=0)]] = Field(
        default={"same_content": 1.0, "same_source": 1.0, "unmatched": 1.0},
        description="Shares of the categories in a quota; 0 leaves a category out.",
    )
    gap_edges: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=(),
        description="MOS gaps, on a 1-to-5 scale, at which a further bin begins, as [0.5, 1.0]: what a quota gives a "
        "category is shared over the bins evenly, as far as there are such pairs.",
    )

    @field_validator("gap_edges")
    @classmethod
    def _ascending(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(left >= right for left, right in pairwise(value)):
            raise ValueError(f"expected edges in ascending order, found {list(value)}")
        return value

    @field_validator("balance")
    @classmethod
    def _some_share(cls, value: dict[str, float]) -> dict[str, float]:
        if not any(value.values()):
            raise ValueError("expected a share above 0 for at least one category")
        return value


class Triplets(Model):
    """Number of triplets A > B > C, to measure preference cycles."""

    count: FewTriplets = Field(default=100, description="Triplets a dataset.")
    datasets: dict[str, FewTriplets] = Field(default={}, description="Other counts for single datasets.")
    splits: tuple[Split, ...] = Field(default=("test", "ood"), description="Splits that they are drawn from.")


class MosPreferences(ClipsConfig):
    """Build config of `mos-preferences`."""

    corpus: Literal["mos-preferences"] = Field(default="mos-preferences", description="The corpus to build.")
    audio: Literal["none", "index", "convert"] = Field(
        default="none",
        description="none: lists only; index: hash and measure the clips; convert: hold them as 16 kHz mono WAV too.",
    )
    sources: tuple[Source, ...] = Field(min_length=1, description="The rated corpora.")
    quotas: dict[str, dict[Split, Count]] = Field(default={}, description="Pairs to keep a dataset and split.")
    pairs: Pairs = Field(default=Pairs(), description="Which pairs are drawn and kept.")
    triplets: Triplets = Field(default=Triplets(), description="Which triplets A > B > C are drawn and kept.")
    critiques: Critiques | None = Field(default=None, description="Who describes clips and pairs in words, and which.")

    def source_of(self, file: str) -> str:
        """Return the source's name, with which the names of its files begin."""
        return file.partition("/")[0]

    def asked(self) -> dict[str, AnnotatorConfig]:
        return {"critic": self.critiques} if self.critiques else {}

    def targets(self) -> dict[str, int]:
        """Pairs a dataset and split, and triplets a dataset that may hold a split which they are drawn from."""
        pairs = {f"{split} {name}, pairs": n for name, each in self.quotas.items() for split, n in each.items()}
        names = [source.name for source in self.sources if {*source.splits()} & {*self.triplets.splits}]
        triplets = {name: self.triplets.datasets.get(name, self.triplets.count) for name in names}
        return pairs | {f"{name}, triplets": count for name, count in triplets.items()}

    def kept_apart(self) -> list[tuple[str, str, str]]:
        return [("ratings", one.name, APART[one.split]) for one in self.sources if one.split in APART]

    def for_forecast(self) -> Self:
        """Without converted audio."""
        return self if self.audio == "none" else self.model_copy(update={"audio": "index"})

    def identity(self) -> dict[str, Any]:
        values = without(super().identity(), "sources.root", "sources.audio_root", "sources.links")
        # without them, a version of before is up to date
        values = changed(values, "sources", lambda each: [filled(one, NEWER, "high") for one in each])
        values = changed(values, "sources.files", without_places)
        return {**values, "critiques": self.critiques.identity()} if self.critiques else values

    @field_validator("quotas", mode="before")
    @classmethod
    def _canonical_quotas(cls, value: Any) -> Any:
        return {k: canonical_splits(v) for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("sources")
    @classmethod
    def _one_source_a_name(cls, sources: tuple[Source, ...]) -> tuple[Source, ...]:
        """Join the files of tables that have one name and differ in nothing else."""
        joined: dict[str, Source] = {}
        for source in sources:
            first = joined.setdefault(source.name, source)
            if first is source:
                continue
            same = {*source.lists()} & {*first.lists()}
            if same or not source.files or source.model_copy(update={"files": first.files}) != first:
                raise ValueError(f"expected one source a name, found '{source.name}' twice, with other files alone")
            files: dict[Split, str | tuple[str, ...]] = dict(first.files)
            for split in source.files:
                files[split] = tuple(one for of, one in (*first.lists(), *source.lists()) if of == split)
            joined[source.name] = first.model_copy(update={"files": files})
        return tuple(joined.values())

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names = [source.name for source in self.sources]
        quotas, triplets, licences = set(self.quotas), set(self.triplets.datasets), set(self.licences)
        critiques = set(self.critiques.datasets) if self.critiques else set()
        models = [part for one in self.asked().values() for part in (one.annotator, one.annotator.partition(":")[2])]
        for table, named in (
            ("quotas", quotas),
            ("triplets.datasets", triplets),
            ("critiques.datasets", critiques),
            ("licences", licences),
        ):
            for name in sorted(named):
                if name not in (*names, *(models if table == "licences" else ())):
                    raise ValueError(f"{table}: no source is named '{name}'{nearest(name, names)}")
        return self


_MOS = "MOS-RMBench, section on data construction"


class ClipRating(TypedDict):
    """One row a rated clip that could be used: its mean opinion score and what is known of its making."""

    sample_id: Annotated[
        str, Column("Dataset and file name; the clip's id everywhere in this corpus.", names="rated_clip", role="is")
    ]
    dataset: Annotated[str, Column("Name of the source in the build config.", names="source")]
    subset: Annotated[str | None, "Listening test within the dataset; MOS compare only within one."]
    split: Annotated[str, "train, validation, test or ood."]
    file: Annotated[str, "Audio file as the publisher's list names it."]
    mos: Annotated[float, Column("Mean opinion score.", unit="points on the dataset's scale")]
    votes: Annotated[int | None, "Ratings (of listeners, where they are known) behind the mean."]
    mos_std: Annotated[float | None, Column("Sample standard deviation of the ratings.", unit="points")]
    mos_se: Annotated[float | None, Column("Standard error of the mean, mos_std / sqrt(votes).", unit="points")]
    scale_min: Annotated[float, "Lowest possible rating."]
    scale_max: Annotated[float, "Highest possible rating."]
    system_id: Annotated[str | None, "System that produced the clip."]
    speaker_id: Annotated[str | None, "Speaker or voice."]
    content_id: Annotated[str | None, "What is said or sung; null where the list does not tell."]
    condition_id: Annotated[str | None, "Degradation, such as noise type and level."]
    clip_sha256: Annotated[
        str | None, Column("SHA-256 of the audio file's bytes.", source="audio index", names="clip", role="is")
    ]
    duration_s: Annotated[float | None, Column("Length of the clip.", unit="s", source="audio index")]
    sample_rate_hz: Annotated[int | None, Column("Sample rate of the file.", unit="Hz", source="audio index")]
    channels: Annotated[int | None, Column("Channels of the file.", source="audio index")]
    source_file: Annotated[str, "Source name and path of the list that the row came from."]
    source_line: Annotated[int, "Line in that list, counted from 1 (the first, where ratings were averaged)."]
    audio: Annotated[WholeFile | None, "The clip as 16 kHz mono WAV; null unless the config says `audio = convert`."]


class ClipPair(TypedDict):
    """One row an unordered pair of clips with different MOS; the clip with the higher MOS is chosen."""

    pair_id: Annotated[
        str, Column("Sixteen hexadecimal digits from the two sample ids, in either order.", names="pair", role="is")
    ]
    dataset: Annotated[str, Column("Dataset of both clips.", names="source")]
    split: Annotated[str, "Split of both clips."]
    category: Annotated[str, Column("same_content, same_source or unmatched.", source=_MOS)]
    group_id: Annotated[str, "The group that both clips were drawn from."]
    chosen_id: Annotated[str, Column("sample_id of the clip with the higher MOS.", names="rated_clip")]
    rejected_id: Annotated[str, Column("sample_id of the clip with the lower MOS.", names="rated_clip")]
    chosen_mos: Annotated[float, Column("MOS of the chosen clip.", unit="points on the dataset's scale")]
    rejected_mos: Annotated[float, Column("MOS of the rejected clip.", unit="points on the dataset's scale")]
    mos_gap: Annotated[float, Column("chosen_mos - rejected_mos.", unit="points on the dataset's scale")]
    mos_gap_normalized: Annotated[
        float,
        Column(
            "mos_gap over the 90th percentile of the dataset's gaps, at most 1; gaps of tests with narrower scales are "
            "widened first.",
            unit="0 to 1",
            source="MOS-RMBench, MOS-difference reward",
        ),
    ]
    gap_decile: Annotated[
        int,
        Column(
            "Tenth of the dataset's and split's pairs by mos_gap, ten bins of equal size.",
            unit="1 (small) to 10 (large)",
            source="MOS-RMBench, error analysis by MOS difference",
        ),
    ]
    chosen_mos_se: Annotated[float | None, Column("Standard error of chosen_mos.", unit="points")]
    rejected_mos_se: Annotated[float | None, Column("Standard error of rejected_mos.", unit="points")]
    chosen_better_probability: Annotated[
        float | None,
        Column(
            "Phi(mos_gap / sqrt(chosen_mos_se^2 + rejected_mos_se^2)): that the true means stand in this order; "
            "null where a standard error is unknown or both are 0.",
            unit="0.5 to 1",
            source="normal approximation of the difference of two independent means (Welch 1938, Biometrika 29)",
        ),
    ]


class ClipTriplet(TypedDict):
    """Three clips of one group with MOS A > B > C, for measuring cycles in a model's preferences."""

    triplet_id: Annotated[
        str, Column("Sixteen hexadecimal digits from the three sample ids.", names="triplet", role="is")
    ]
    dataset: Annotated[str, Column("Dataset of the clips.", names="source")]
    split: Annotated[str, "Split of the clips."]
    category: Annotated[str, Column("Kind of the group: same_content, same_source or unmatched.", source=_MOS)]
    group_id: Annotated[str, "The group that the clips were drawn from."]
    a_id: Annotated[str, Column("sample_id of the clip with the highest MOS.", names="rated_clip")]
    b_id: Annotated[str, Column("sample_id of the clip between.", names="rated_clip")]
    c_id: Annotated[str, Column("sample_id of the clip with the lowest MOS.", names="rated_clip")]
    a_mos: Annotated[float, Column("MOS of a.", unit="points on the dataset's scale")]
    b_mos: Annotated[float, Column("MOS of b.", unit="points on the dataset's scale")]
    c_mos: Annotated[float, Column("MOS of c.", unit="points on the dataset's scale")]


RATINGS = Table(
    "ratings",
    row=ClipRating,
    key=("sample_id",),
    exclusive=("sample_id", "clip_sha256"),
    says=(
        "read from {source_file}, line {source_line}",
        "MOS {mos} on a scale from {scale_min} to {scale_max}; ratings: {votes}, standard error: {mos_se}",
        "system {system_id}, speaker {speaker_id}, content {content_id}, condition {condition_id}",
        "placed in split {split}, listening test {subset}",
    ),
)
PAIRS = Table(
    "pairs",
    row=ClipPair,
    key=("pair_id",),
    exclusive=("chosen_id", "rejected_id"),
    says=(
        "both clips stand in group {group_id}; they make a {category} pair",
        "MOS {chosen_mos} is above {rejected_mos}: a gap of {mos_gap}, in tenth {gap_decile} of the split's pairs, "
        "{mos_gap_normalized} of the dataset's 90th percentile (at most 1)",
        "probability that the chosen clip is truly better: {chosen_better_probability}",
    ),
)
TRIPLETS = Table(
    "triplets",
    row=ClipTriplet,
    key=("triplet_id",),
    says=("all three clips stand in group {group_id}, each two a {category} pair", "MOS {a_mos} > {b_mos} > {c_mos}"),
)

TABLES = (RATINGS, PAIRS, TRIPLETS, CRITIQUES, PAIRED_CRITIQUES, REJECTS)

VIEWS = (
    View(
        "preferred-clips",
        "preference",
        "mos_preferences/preferred_clips",
        "Two clips, the one with the higher MOS chosen; needs a build with `audio`.",
        {"question": "Give a clip of good audio quality."},
    ),
    *CRITIQUE_VIEWS,
)

_MODES = (
    Mode(
        "pair", "judge-speech-pair", ("a=a_audio", "b=b_audio"), says="Both clips are heard; the answer is A, B or tie."
    ),
    Mode(
        "forced",
        "judge-speech-forced",
        ("a=a_audio", "b=b_audio"),
        ties=False,
        says="Both clips are heard; the answer is the better one's identifier, A or B (MOS-RMBench, Figure 9).",
    ),
    Mode(
        "scores",
        "speech-critique-pair",
        ("first=a_audio", "second=b_audio"),
        answer="scores",
        says="Both clips are heard, described and scored from 1 to 10; --draws N averages N answers.",
    ),
    Mode(
        "single",
        "speech-rating",
        (),
        answer="scalar",
        each="clip",
        says="Each clip by itself, rated from 1 to 5; the higher is preferred.",
    ),
)
_SIDES, _CLIPS = ("chosen", "rejected"), ("ratings", "sample_id")

EVALUATIONS = (
    Evaluation(
        "quality",
        "preference",
        "mos_preferences/judged_pairs",
        "Which of two clips did listeners score higher? Accuracy by dataset, as MOS-RMBench reports it.",
        modes=_MODES,
        groups=("dataset", "category", "gap", "gap_decile", "length"),
        sides=_SIDES,
        order="chosen_id and rejected_id of the table pairs",
        clips=_CLIPS,
    ),
    Evaluation(
        "cycles",
        "preference",
        "mos_preferences/judged_triplets",
        "How often do a model's preferences run in circles? Each two clips of every triplet A > B > C.",
        modes=_MODES,
        groups=("dataset", "category"),
        sides=_SIDES,
        order="the clips with the higher and the lower MOS of the table triplets; the id ends in which two",
        clips=_CLIPS,
        params={"dimension": "quality"},
        triplets="triplet",
        beside=True,
    ),
    Evaluation(
        "mos",
        "scalar",
        "mos_preferences/rated_means",
        "How good is a clip? Scores against the MOS of rated clips, by clip and by system.",
        modes=(Mode("score", "speech-rating", ("clip=audio",), says="A rating from 1 to 5."),),
        groups=("dataset", "test"),
        clips=_CLIPS,
        params={"dimension": "quality"},
        beside=True,
    ),
    *CRITIQUE_EVALUATIONS,
)

CORPUS = Corpus(
    name="mos-preferences",
    source="MOS corpora",
    holds="chosen/rejected pairs with gaps, triplets, critiques",
    paper="MOS-RMBench",
    config=MosPreferences,
    tables=TABLES,
    story=read_story("mos_preferences"),
    plan="earmark.tasks.mos_preferences.sources:plan_build",
    inputs="earmark.tasks.mos_preferences.sources:inputs",
    flow="earmark.flows.mos_preferences:build",
    scale=(
        Workload("74,478 pairs, no questions", 74_478, audio_s=4, built="all, ten times"),
        Workload(
            "74,478 pairs compared, 1.5 tries",
            74_478,
            requests=1.5,
            heard_s=8,
            text_in=400,
            text_out=400,
            part="critiques",
        ),
    ),
    preview="earmark.tasks.mos_preferences.preview:rating_lines",
    report="earmark.tasks.mos_preferences.report:sections",
    views=VIEWS,
    evaluations=EVALUATIONS,
)
