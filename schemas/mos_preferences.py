"""Config and tables of `mos-preferences` (MOS-RMBench: preference pairs from mean opinion scores)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import LARGEST, BuildConfig, Linked, Model, Name, nearest
from earmark.schemas.corpus import Corpus, Story
from earmark.schemas.critiques import CRITIQUE_EVALUATIONS, CRITIQUE_VIEWS, CRITIQUES, PAIRED_CRITIQUES, Critiques
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.places import without_place
from earmark.schemas.registry import OneOf
from earmark.schemas.tables import (
    REJECTS,
    SPLIT_ALIASES,
    SPLITS,
    Shares,
    Split,
    Table,
    audio_column,
    columns,
    integer,
    number,
    text,
)
from earmark.schemas.views import View

CATEGORIES = ("same_content", "same_source", "unmatched")
Count = Annotated[int, Field(ge=0, le=LARGEST)]
FewTriplets = Annotated[int, Field(ge=0, lt=1_000_000)]  # DuckDB's min_by ranks no more


def _canonical_splits(value: Any) -> Any:
    """Accept the publishers' names for splits (dev, val, …)."""
    if isinstance(value, dict):
        names: dict[Any, list[str]] = {}
        for key in map(str, value):
            names.setdefault(SPLIT_ALIASES.get(key, key), []).append(key)
        for split, written in names.items():
            if len(written) > 1:
                raise ValueError(f"expected one entry a split, found {', '.join(written)} for {split}")
        return {SPLIT_ALIASES.get(str(key), key): held for key, held in value.items()}
    return value


class Columns(Model):
    """Which columns of a `table` source hold what. A column named here must exist, and its cells must be filled."""

    file: str = Field(description="Path or name of the audio file; identifies the clip.")
    mos: str = Field(description="The mean, or one rating; the rows of one file are averaged.")
    system: str | None = Field(default=None, description="The system that produced the clip.")
    speaker: str | None = Field(default=None, description="The speaker or voice.")
    content: str | None = Field(default=None, description="What is said or sung: text id, reference clip.")
    condition: str | None = Field(default=None, description="Degradation: noise, codec, signal-to-noise ratio.")
    listener: str | None = Field(default=None, description="Who rated; each counts once in the mean of a file.")
    votes: str | None = Field(default=None, description="How many ratings the mean stands on.")
    mos_std: str | None = Field(default=None, description="Sample standard deviation of those ratings.")
    subset: str | None = Field(default=None, description="Listening test; clips are paired only within one.")
    split: str | None = Field(default=None, description="The publisher's split (train, validation, test, ood).")

    def named(self) -> dict[str, str]:
        """Names of the table's columns, each with what it holds."""
        return {column: field for field, column in self.model_dump(exclude_none=True).items()}


IN_FILE_NAMES = ("system", "speaker", "content", "condition", "subset")


class Source(Linked):
    """One rated corpus on disk, in the layout that its owner publishes."""

    name: Name = Field(description="Name of the dataset in the tables.")
    format: Annotated[str, OneOf("earmark.tasks.importers.ratings:RATING_LAYOUTS")] = Field(
        description="The layout it is in: a publisher's, or any table with one rating or rated clip a row."
    )
    root: str | None = Field(default=None, description="Folder of the published layout.")
    files: dict[Split, str] = Field(
        default={}, description="`table` only: a file (CSV, TSV, JSON lines, Parquet) a split."
    )
    columns: Columns | None = Field(default=None, description="`table` only: which column holds what.")
    header: tuple[str, ...] = Field(
        default=(), description="`table` only: the columns' names, in their order, of a list without a header."
    )
    delimiter: Annotated[str, Field(max_length=1)] = Field(
        default="", description="`table` only: what stands between cells of a text list; a comma, in `.tsv` a tab."
    )
    file_name: str | None = Field(
        default=None,
        description="`table` only: a regular expression whose groups (?P<system>…), speaker, content, condition or "
        "subset are found in each clip's file name.",
    )
    scale: tuple[float, float] = Field(default=(1.0, 5.0), description="Lowest and highest possible rating.")
    split: str = Field(default="native", description="`native`, `by-content`, or one split for all rows.")
    shares: Shares = Field(
        default={"train": 0.8, "validation": 0.1, "test": 0.1}, description="Shares of contents with `by-content`."
    )
    repeat_votes: Literal["mean", "first", "last", "reject"] = Field(
        default="mean",
        description="Which ratings count of a listener who rated a clip more than once: their mean, one, or none.",
    )
    audio_root: str | None = Field(default=None, description="Folder that the list's file names start from.")

    _splits = field_validator("files", "shares", mode="before")(_canonical_splits)

    def splits(self) -> Iterable[str]:
        """The splits that rows of the source may be in, as far as the config tells."""
        if self.split == "by-content":
            return [split for split, share in self.shares.items() if share]
        if self.split != "native":
            return [self.split]
        return self.files if self.columns is not None and self.columns.split is None else SPLITS

    @field_validator("split")
    @classmethod
    def _known_split(cls, value: str) -> str:
        value = SPLIT_ALIASES.get(value, value)
        known = ("native", "by-content", *SPLITS)
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return value

    @field_validator("file_name")
    @classmethod
    def _groups_are_known(cls, value: str | None) -> str | None:
        try:
            groups = {*re.compile(value or "(?P<system>)").groupindex}
        except re.error as error:
            raise ValueError(f"expected a regular expression: {error}") from None
        if not groups or groups - {*IN_FILE_NAMES}:
            raise ValueError(f"expected groups (?P<NAME>…) of {', '.join(IN_FILE_NAMES)}, found {sorted(groups)}")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.format == "table":
            if not self.files or self.columns is None:
                raise ValueError(f"source '{self.name}': format 'table' needs 'files' and 'columns'")
        elif self.root is None:
            raise ValueError(f"source '{self.name}': format '{self.format}' needs 'root', the published folder")
        elif self.files or self.columns:
            raise ValueError(f"source '{self.name}': 'files' and 'columns' belong to format 'table' only")
        elif self.header or self.delimiter or self.file_name:
            raise ValueError(
                f"source '{self.name}': 'header', 'delimiter' and 'file_name' belong to format 'table' only"
            )
        if self.columns and self.header and (gone := sorted({*self.columns.named()} - {*self.header})):
            raise ValueError(f"source '{self.name}': columns names '{gone[0]}', which header does not")
        if self.columns and self.file_name:
            twice = {*re.compile(self.file_name).groupindex} & {*self.columns.model_dump(exclude_none=True)}
            if twice:
                raise ValueError(f"source '{self.name}': both columns and file_name give the {sorted(twice)[0]}")
        if self.root is not None and any(_climbs(file) for file in self.files.values()):
            raise ValueError(f"source '{self.name}': expected 'files' inside 'root', found a path that leaves it")
        if not self.scale[0] < self.scale[1]:
            raise ValueError(f"source '{self.name}': expected scale = [lowest, highest], found {list(self.scale)}")
        return self


class Pairs(Model):
    """How pairs are drawn and how many are kept."""

    min_gap: float = Field(default=0.0, ge=0, description="Least MOS difference; two equal MOS are never a pair.")
    min_probability: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Least chance that the clip with the higher MOS is truly better, by the standard errors of both; "
        "above 0, pairs whose chance is not known are left out.",
    )
    draws: int = Field(
        default=2, ge=1, le=64, description="Neighbours a clip meets in each of its groups, without a quota."
    )
    most_draws: int = Field(
        default=64, ge=1, le=4096, description="Neighbours a clip meets at most when a quota is short."
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
        description="MOS gaps at which a further bin begins, ascending, such as [0.5, 1.0]: what a quota gives a "
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
    """How many triplets A > B > C are kept, for measuring preference cycles."""

    count: FewTriplets = Field(default=100, description="Triplets a dataset.")
    datasets: dict[str, FewTriplets] = Field(default={}, description="Other counts for single datasets.")
    splits: tuple[Split, ...] = Field(default=("test", "ood"), description="Splits that they are drawn from.")


class MosPreferences(BuildConfig):
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
        """The source's name, with which the names of its files begin."""
        return file.partition("/")[0]

    def asked(self) -> dict[str, AnnotatorConfig]:
        return {"critic": self.critiques} if self.critiques else {}

    def targets(self) -> dict[str, int]:
        """Pairs a dataset and split, and triplets a dataset that may hold a split which they are drawn from."""
        pairs = {f"{split} {name}, pairs": n for name, each in self.quotas.items() for split, n in each.items()}
        names = [source.name for source in self.sources if {*source.splits()} & {*self.triplets.splits}]
        triplets = {name: self.triplets.datasets.get(name, self.triplets.count) for name in names}
        return pairs | {f"{name}, triplets": count for name, count in triplets.items()}

    def for_forecast(self) -> Self:
        """Without converted audio."""
        return self if self.audio == "none" else self.model_copy(update={"audio": "index"})

    def identity(self) -> dict[str, Any]:
        values = super().identity()
        for source in values["sources"]:
            del source["root"], source["audio_root"], source["links"]
            for name in ("header", "delimiter", "file_name"):  # without them, a version of before is up to date
                if not source[name]:
                    del source[name]
            source["files"] = {split: without_place(written) for split, written in source["files"].items()}
        if self.critiques:
            values["critiques"] = self.critiques.identity()
        return values

    @field_validator("quotas", mode="before")
    @classmethod
    def _canonical_quotas(cls, value: Any) -> Any:
        return {k: _canonical_splits(v) for k, v in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names = [source.name for source in self.sources]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"expected one source a name, found '{twice[0]}' twice")
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


def _climbs(path: str) -> bool:
    pure = PurePosixPath(path.replace("\\", "/"))
    return pure.is_absolute() or ".." in pure.parts


_MOS = "MOS-RMBench, section on data construction"

RATINGS = Table(
    name="ratings",
    description="One row a rated clip that could be used: its mean opinion score and what is known of its making.",
    schema=columns(
        text(
            "sample_id",
            "Dataset and file name; the clip's id everywhere in this corpus.",
            names="rated_clip",
            role="is",
        ),
        text("dataset", "Name of the source in the build config.", names="source"),
        text("subset", "Listening test within the dataset; MOS compare only within one.", optional=True),
        text("split", "train, validation, test or ood."),
        text("file", "Audio file as the publisher's list names it."),
        number("mos", "Mean opinion score.", unit="points on the dataset's scale"),
        integer("votes", "Ratings (of listeners, where they are known) behind the mean.", optional=True),
        number("mos_std", "Sample standard deviation of the ratings.", unit="points", optional=True),
        number("mos_se", "Standard error of the mean, mos_std / sqrt(votes).", unit="points", optional=True),
        number("scale_min", "Lowest possible rating."),
        number("scale_max", "Highest possible rating."),
        text("system_id", "System that produced the clip.", optional=True),
        text("speaker_id", "Speaker or voice.", optional=True),
        text("content_id", "What is said or sung; null where the list does not tell.", optional=True),
        text("condition_id", "Degradation, such as noise type and level.", optional=True),
        text(
            "clip_sha256",
            "SHA-256 of the audio file's bytes.",
            source="audio index",
            optional=True,
            names="clip",
            role="is",
        ),
        number("duration_s", "Length of the clip.", unit="s", source="audio index", optional=True),
        integer("sample_rate_hz", "Sample rate of the file.", unit="Hz", source="audio index", optional=True),
        integer("channels", "Channels of the file.", source="audio index", optional=True),
        text("source_file", "Source name and path of the list that the row came from."),
        integer("source_line", "Line in that list, counted from 1 (the first, where ratings were averaged)."),
        audio_column("The clip as 16 kHz mono WAV; null unless the config says `audio = convert`."),
    ),
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
    name="pairs",
    description="One row an unordered pair of clips with different MOS; the clip with the higher MOS is chosen.",
    schema=columns(
        text(
            "pair_id", "Sixteen hexadecimal digits from the two sample ids, in either order.", names="pair", role="is"
        ),
        text("dataset", "Dataset of both clips.", names="source"),
        text("split", "Split of both clips."),
        text("category", "same_content, same_source or unmatched.", source=_MOS),
        text("group_id", "The group that both clips were drawn from."),
        text("chosen_id", "sample_id of the clip with the higher MOS.", names="rated_clip"),
        text("rejected_id", "sample_id of the clip with the lower MOS.", names="rated_clip"),
        number("chosen_mos", "MOS of the chosen clip.", unit="points on the dataset's scale"),
        number("rejected_mos", "MOS of the rejected clip.", unit="points on the dataset's scale"),
        number("mos_gap", "chosen_mos - rejected_mos.", unit="points on the dataset's scale"),
        number(
            "mos_gap_normalized",
            "mos_gap over the 90th percentile of the dataset's gaps, at most 1.",
            unit="0 to 1",
            source="MOS-RMBench, MOS-difference reward",
        ),
        integer("gap_decile", "Decile of mos_gap within the dataset.", unit="1 (small) to 10 (large)"),
        number("chosen_mos_se", "Standard error of chosen_mos.", unit="points", optional=True),
        number("rejected_mos_se", "Standard error of rejected_mos.", unit="points", optional=True),
        number(
            "chosen_better_probability",
            "Phi(mos_gap / sqrt(chosen_mos_se^2 + rejected_mos_se^2)): that the true means stand in this order; "
            "null where a standard error is unknown or both are 0.",
            unit="0.5 to 1",
            source="normal approximation of the difference of two independent means (Welch 1938, Biometrika 29)",
            optional=True,
        ),
    ),
    key=("pair_id",),
    exclusive=("chosen_id", "rejected_id"),
    says=(
        "both clips stand in group {group_id}; they make a {category} pair",
        "MOS {chosen_mos} is above {rejected_mos}: a gap of {mos_gap}, decile {gap_decile} of the dataset's gaps, "
        "{mos_gap_normalized} of their 90th percentile (at most 1)",
        "probability that the chosen clip is truly better: {chosen_better_probability}",
    ),
)

TRIPLETS = Table(
    name="triplets",
    description="Three clips of one group with MOS A > B > C, for measuring cycles in a model's preferences.",
    schema=columns(
        text("triplet_id", "Sixteen hexadecimal digits from the three sample ids.", names="triplet", role="is"),
        text("dataset", "Dataset of the clips.", names="source"),
        text("split", "Split of the clips."),
        text("category", "Kind of the group: same_content, same_source or unmatched.", source=_MOS),
        text("group_id", "The group that the clips were drawn from."),
        text("a_id", "sample_id of the clip with the highest MOS.", names="rated_clip"),
        text("b_id", "sample_id of the clip between.", names="rated_clip"),
        text("c_id", "sample_id of the clip with the lowest MOS.", names="rated_clip"),
        number("a_mos", "MOS of a.", unit="points on the dataset's scale"),
        number("b_mos", "MOS of b.", unit="points on the dataset's scale"),
        number("c_mos", "MOS of c.", unit="points on the dataset's scale"),
    ),
    key=("triplet_id",),
    says=("all three clips stand in group {group_id}, each two a {category} pair", "MOS {a_mos} > {b_mos} > {c_mos}"),
)

TABLES = (RATINGS, PAIRS, TRIPLETS, CRITIQUES, PAIRED_CRITIQUES, REJECTS)

_STORY = Story(
    title="MOS preferences",
    summary=(
        "Pairs of rated speech and singing clips in which listeners scored one clip higher than the other, for "
        "training and testing reward models on audio quality. Each pair carries the gap between the two mean scores."
    ),
    method=(
        "Lists of rated clips are read as their owners publish them; the ratings of a clip are averaged, each listener "
        "counting once.",
        "Clips are paired within one listening test and split: same content from different sources, different contents "
        "from one source, or neither. The clip with the higher MOS is chosen.",
        "Pairs are drawn between neighbours on a line of hashed ids, limited to a number per clip, and picked by "
        "seeded hash order to fill the quotas, balanced over the three categories.",
        "Gaps are normalised by the 90th percentile of the dataset's gaps; where ratings per listener exist, the "
        "probability that the chosen clip is truly better is derived from the standard errors.",
        "Triplets A > B > C of one group are drawn in the same way, for measuring cycles.",
        "Where the config has `[critiques]`, a model that hears the audio alone describes clips along noise, "
        "distortion, naturalness and continuity, and compares and scores pairs in an order drawn by hash. A comparison "
        "is kept only if the clip with the higher MOS scores higher; else it is asked again, and at last is a reject.",
    ),
    main_table="pairs",
    references=("MOS-RMBench: recasting mean opinion scores as preferences for speech reward models.",),
    limits=(
        "MOS of different listening tests do not compare; clips are never paired across tests or datasets.",
        "A small gap may lie within the listeners' noise: see `chosen_better_probability` and `gap_decile`.",
        "Critiques are a model's words. Those of pairs were chosen for agreeing with the MOS, so their scores tell "
        "nothing of how often the model agrees; the accounts of `paired_critiques` do. A model named `builtin:` "
        "measured the signal and heard nothing.",
        "The licences of the rated corpora hold for their ratings and audio; this dataset adds none.",
    ),
    tags=("audio", "speech", "mos", "preference", "reward-model"),
    tasks=("audio-classification",),
)

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
    Mode("pair", "judge-speech-pair", ("a=a_audio", "b=b_audio"), says="Both clips are heard; the answer is A or B."),
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
        groups=("dataset", "category", "gap", "gap_decile", "gap_decile_of_split", "length"),
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
    *CRITIQUE_EVALUATIONS,
)

CORPUS = Corpus(
    name="mos-preferences",
    source="MOS corpora",
    holds="chosen/rejected pairs with gaps, triplets, critiques",
    paper="MOS-RMBench",
    config=MosPreferences,
    tables=TABLES,
    story=_STORY,
    plan="earmark.tasks.mos_preferences.sources:plan_build",
    peeks="earmark.tasks.mos_preferences.sources:peeks",
    flow="earmark.flows.mos_preferences:build",
    report="earmark.tasks.mos_preferences.report:sections",
    views=VIEWS,
    evaluations=EVALUATIONS,
)
