"""Config and tables of `music-prompts` (the Academic Text-to-Music challenge's evaluation prompts, by its method)."""

from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict

from pydantic import Field, ValidationInfo, field_validator, model_validator

from earmark.schemas.annotation import DECIDES, AnnotatorConfig, Asked, Drawn
from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus, Start, View, Workload, read_story
from earmark.schemas.evaluations import Evaluation, Generation, Mode
from earmark.schemas.places import without_place
from earmark.schemas.tables import REJECTS, Column, Table
from earmark.schemas.toml import Model, Name, changed, moved, only, without
from earmark.schemas.tracks import audio_place, fields_checked

Category = Literal["genre", "instrument", "mood/theme"]
CATEGORIES: tuple[Category, ...] = ("genre", "instrument", "mood/theme")
STRATA = ("strict_id", "improvised_id", "strict_ood")
SPLIT_OF = {"strict_id": "test", "improvised_id": "test", "strict_ood": "ood"}


class CaptionSet(Model):
    """One pipeline's captions: a file, or a version of the corpus `captions`."""

    name: Name = Field(description="The pipeline; tables name it.")
    file: str | None = Field(default=None, description='JSON array of {"path", "caption"}, or TSV of id and caption.')
    version: str | None = Field(default=None, description="`captions` (the store's newest) or `captions@vN`.")
    pipeline: str | None = Field(default=None, description="Of a version, only this pipeline's captions.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.version is None):
            raise ValueError("expected either 'file' or 'version'")
        if self.pipeline is not None and self.version is None:
            raise ValueError("'pipeline' picks from a 'version'; a file is one pipeline's")
        return self


class TagPool(Model):
    """Conditions for a tag to be drawn, beside asking for no voices."""

    popularity: int = Field(default=100, ge=1, description="Tracks that carry it, at least.")
    mentions: int = Field(default=10, ge=0, description="Captions that name it, at least, over all caption sets.")
    recall: float = Field(default=0.85, ge=0, le=1, description="Share of its tracks on which a judge hears it.")
    exclude: dict[Category, tuple[str, ...]] = Field(default={}, description="Further tags to leave out.")


class Verification(Asked):
    """The listener that checks tracks against their tags."""

    audio: str = Field(
        description="Folder of the tracks' audio. A pattern such as `audio/{stem}_instrumental.flac` finds files of "
        "other names: {path} as listed, {stem} the same without its ending."
    )
    tracks: int = Field(default=100, ge=1, description="Tracks that carry it asked about for each tag, at most.")
    untagged: int = Field(
        default=100, ge=0, description="Tracks that do not carry it, for the specificity, at most; 0 asks about none."
    )
    max_tokens: int = Field(default=1, ge=1)

    @field_validator("audio")
    @classmethod
    def _pattern(cls, value: str) -> str:
        return fields_checked("audio", value)

    @property
    def place(self) -> tuple[str, str]:
        """The folder of the audio, and the pattern of a track's file below it."""
        return audio_place(self.audio)

    @model_validator(mode="before")
    @classmethod
    def _one_pattern(cls, values: Any, info: ValidationInfo) -> Any:
        if isinstance(values, dict) and "file" in values and not (info.context or {}).get("recorded"):
            raise moved(f"key 'file' stands in audio: write audio = {cls.respelled(values).get('audio')!r}")
        return values

    @classmethod
    def respelled(cls, values: dict[str, Any]) -> dict[str, Any]:
        audio, file = values.get("audio"), values.get("file", "{path}")
        kept = {key: value for key, value in values.items() if key != "file"}
        return kept if file == "{path}" or not audio else {**kept, "audio": f"{audio.rstrip('/')}/{file}"}

    def _as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        folder, file = audio_place(str(values.get("audio", "")))
        return {**values, "audio": folder.rstrip("/") or folder, "file": file}


class Counts(Model):
    """Number of prompts of each stratum."""

    strict_id: int = Field(default=40, ge=0, description="In distribution, only the given tags.")
    improvised_id: int = Field(default=40, ge=0, description="In distribution, one to three instruments more.")
    strict_ood: int = Field(default=20, ge=0, description="Out of distribution, only the given tags.")


class Synthesis(Drawn):
    """The writer of prompts."""

    temperature: float | None = Field(default=0.7, ge=0, le=2)
    max_tokens: int = Field(default=256, ge=1)
    shots: ClassVar[int] = 5  # example captions of each caption set
    tries: ClassVar[int] = 4  # times that a prompt is asked for before its triplet is given up


class MusicPrompts(BuildConfig):
    """Build config of `music-prompts`."""

    corpus: Literal["music-prompts"] = "music-prompts"
    tracks: str = Field(description="MTG-Jamendo's list: a TSV with tags as its last columns.")
    synonyms: str | None = Field(default=None, description="MTG-Jamendo's tag_map.json: synonyms become one tag.")
    captions: tuple[CaptionSet, ...] = Field(
        default=(), description="Caption sets, for mentions and example captions; without any, neither is used."
    )
    pool: TagPool = TagPool()
    verification: Verification | None = Field(default=None, description="Without it, tags are not verified.")
    recalls: str | None = Field(
        default=None, description="Verified elsewhere: a CSV or TSV of category, tag, asked, detected."
    )
    prompts: Counts = Counts()
    keep: str | None = Field(
        default=None,
        description="A version, such as `music-prompts@v1`, whose triplets stay where they are still valid.",
    )
    synthesis: Synthesis

    @model_validator(mode="after")
    def _fit(self) -> Self:
        names = [one.name for one in self.captions]
        if len(set(names)) < len(names):
            raise ValueError(f"expected caption sets of different names, found {', '.join(names)}")
        if self.verification is not None and self.recalls is not None:
            raise ValueError("expected 'verification' or 'recalls', found both")
        return self

    def reads(self) -> tuple[str, ...]:
        """Return the versions of captions that tags are looked for in, and the one whose triplets stay."""
        return (*(one.version for one in self.captions if one.version), *([self.keep] if self.keep else []))

    def targets(self) -> dict[str, int]:
        """Prompts a stratum."""
        return {f"{stratum}, prompts": count for stratum, count in self.prompts}

    def asked(self) -> dict[str, AnnotatorConfig]:
        writer: dict[str, AnnotatorConfig] = {"writer": self.synthesis}
        return {**writer, "judge": self.verification} if self.verification else writer

    def identity(self) -> dict[str, Any]:
        values = {**without(super().identity(), "prices"), "keep": self.keep is not None}
        for path in ("tracks", "synonyms", "recalls", "captions.file"):
            values = changed(values, path, lambda written: without_place(written) if written else None)
        values = changed(values, "captions.version", lambda name: name is not None)  # it stands among the parents
        values = changed(values, "synthesis", only(*DECIDES, *_WRITTEN))
        return changed(values, "verification", only(*DECIDES, *_HEARD))


_WRITTEN = ("shots", "tries", "spare", "longest")
_HEARD = ("file", "tracks", "untagged", "longest_s", "sample_rate_hz")

_METHOD = "ATTM, selection of tags"


class TagRow(TypedDict):
    """One row a tag of the track list: its figures, and whether it entered the pool."""

    category: Annotated[str, Column("What the tag speaks of.", unit="genre, instrument or mood/theme")]
    tag: Annotated[str, "The tag as the track list writes it."]
    written: Annotated[str, "The tag as a sentence has it."]
    tracks: Annotated[int, Column("Tracks that carry it.", source=_METHOD)]
    mentions: Annotated[
        int | None, Column("Captions that name it, by whole word forms; null without captions.", source=_METHOD)
    ]
    vocal: Annotated[str | None, "Why it asks for voices, by the reviewed list; null if not."]
    asked: Annotated[int | None, "Its tracks that a judge answered for; null if not verified."]
    detected: Annotated[int | None, "Of these, those on which the judge hears it."]
    recall: Annotated[float | None, Column("Share of `asked` that is `detected`.", unit="0 to 1", source=_METHOD)]
    recall_low: Annotated[
        float | None, Column("Lower end of the recall's 95 % interval.", unit="0 to 1", source="Wilson 1927")
    ]
    recall_high: Annotated[
        float | None, Column("Upper end of the recall's 95 % interval.", unit="0 to 1", source="Wilson 1927")
    ]
    untagged_asked: Annotated[int | None, "Tracks without it that a judge answered for; null if none."]
    untagged_detected: Annotated[int | None, "Of these, those on which the judge hears it."]
    specificity: Annotated[
        float | None,
        Column(
            "Share of `untagged_asked` on which the judge does not hear it. Lists leave out tags that fit: a perfect "
            "judge may stay below 1.",
            unit="0 to 1",
        ),
    ]
    specificity_low: Annotated[
        float | None, Column("Lower end of the specificity's 95 % interval.", unit="0 to 1", source="Wilson 1927")
    ]
    specificity_high: Annotated[
        float | None, Column("Upper end of the specificity's 95 % interval.", unit="0 to 1", source="Wilson 1927")
    ]
    verified: Annotated[bool, "Whether a judge was asked about it."]
    in_pool: Annotated[bool, "Whether prompts may use it."]
    criterion: Annotated[str | None, "The first criterion that it missed; null in the pool."]


class TagPair(TypedDict):
    """One row two tags of the pool of different categories, and the tracks that carry both: none, too."""

    category_a: Annotated[str, "Category of the first tag: genre or instrument."]
    tag_a: Annotated[str, "The first tag."]
    category_b: Annotated[str, "Category of the second tag: instrument or mood/theme."]
    tag_b: Annotated[str, "The second tag."]
    tracks: Annotated[int, "Tracks that carry both."]


class TagTriplet(TypedDict):
    """One row a genre, an instrument and a mood or theme that a prompt was written for."""

    triplet_id: Annotated[str, Column("Sixteen hexadecimal digits from the three tags.", names="prompt", role="is")]
    split: Annotated[str, "test if in distribution, ood if not."]
    stratum: Annotated[str, Column("Distribution and style.", unit="strict_id, improvised_id or strict_ood")]
    genre: Annotated[str, "The genre, as the track list writes it."]
    instrument: Annotated[str, "The instrument."]
    mood_theme: Annotated[str, "The mood or theme."]
    genre_instrument_tracks: Annotated[int, "Tracks that carry both."]
    genre_mood_tracks: Annotated[int, "Tracks that carry both."]
    instrument_mood_tracks: Annotated[int, "Tracks that carry both."]
    absent_pairs: Annotated[
        list[str], "Pairs of its tags that no track carries, such as `genre+instrument`; empty if in distribution."
    ]
    kept_from: Annotated[str | None, "The version that it was kept from; null if drawn anew."]


class PromptRow(TypedDict):
    """One row a prompt for text-to-music systems."""

    prompt_id: Annotated[str, Column("The triplet's id.", names="prompt", role="is")]
    split: Annotated[str, "test if in distribution, ood if not."]
    text: Annotated[str, "The prompt."]
    distribution: Annotated[str, Column("Whether its tags co-occur.", unit="id or ood")]
    style: Annotated[str, Column("Whether instruments were added.", unit="strict or improvised")]
    genre: Annotated[str, "The genre that it asks for, as a sentence has it."]
    instrument: Annotated[str, "The instrument."]
    mood_theme: Annotated[str, "The mood or theme."]
    added_instruments: Annotated[list[str], "Instruments that the writer added; empty if strict."]
    writer: Annotated[str, Column("The annotator that wrote it.", names=("source", "annotator"))]
    prompt: Annotated[str, "Prompt file and version that asked."]
    request_key: Annotated[str, "The request's key in the ledger."]
    tries: Annotated[int, "How many answers it took until one passed the checks."]


class ShotRow(TypedDict):
    """One row an example caption that the writer saw with a prompt's tags."""

    prompt_id: Annotated[str, Column("The prompt.", names="prompt", role="part")]
    place: Annotated[int, "Where it stood among the examples, from 1."]
    pipeline: Annotated[str, Column("The caption set.", names="source")]
    item: Annotated[str, "The clip, as the caption set names it."]
    text: Annotated[str, "The caption."]
    clip_id: Annotated[str | None, Column("The clip in the version of `captions`; null for files.", names="track")]
    source: Annotated[
        str, Column("The list that the clip is of, as `captions` names it; of files, the set.", names="source")
    ]


TAGS = Table(
    "tags",
    row=TagRow,
    key=("category", "tag"),
    splits=False,
    says=(
        "on {tracks} tracks, in {mentions} captions, recall {recall} ({detected} of {asked})",
        "heard on {untagged_detected} of {untagged_asked} tracks without it, specificity {specificity}",
        "in the pool: {in_pool}; criterion missed: {criterion}",
    ),
)
COOCCURRENCE = Table("cooccurrence", row=TagPair, key=("category_a", "tag_a", "category_b", "tag_b"), splits=False)
TRIPLETS = Table(
    "triplets",
    row=TagTriplet,
    key=("triplet_id",),
    exclusive=("triplet_id",),
    says=(
        "drawn as {stratum}: {genre}, {instrument}, {mood_theme}",
        "tracks with two of its tags: {genre_instrument_tracks}, {genre_mood_tracks}, {instrument_mood_tracks}",
    ),
)
PROMPTS = Table(
    "prompts", row=PromptRow, key=("prompt_id",), says=("written by {writer} in {tries} tries, request {request_key}",)
)
SHOTS = Table("shots", row=ShotRow, key=("prompt_id", "place"), splits=False)

TABLES = (PROMPTS, TRIPLETS, TAGS, COOCCURRENCE, SHOTS, REJECTS)

VIEWS = (
    View(
        "prompts",
        "grpo",
        "music_prompts/asked",
        "A prompt to generate music from; rewards get the genre, instrument and mood or theme to listen for.",
    ),
)

GENERATION = Generation(
    table="prompts",
    key="prompt_id",
    text="text",
    concepts=tuple(
        Mode(column, f"tag-{column.replace('_', '-')}", shows=("clip=audio", f"concept={column}"))
        for column in ("genre", "instrument", "mood_theme")
    ),
    asked_by="earmark.tasks.music_prompts.asking:concept_prompts",
    groups=("distribution", "style"),
    ranked="distribution: id",
)

EVALUATION = Evaluation(
    "prompt",
    "yes_no",
    "music_prompts/wanted",
    "Does the prompt ask for its genre, instrument and mood or theme, and for no voice?",
    modes=(Mode("read", "prompt-asks", shows=("prompt", "genre", "instrument", "mood_theme")),),
    groups=("distribution", "style"),
    claims=True,
    asks="Does the prompt ask for this genre, this instrument and this mood or theme, and for no voice?",
)

_START = Start(
    ("mtg-jamendo",),
    """
tracks = {file}
# synonyms = "tag_map.json"   # synonyms of tags

# [[captions]]   # for how often captions mention a tag, and for examples
# name = "direct"
# file = "captions.json"

[pool]
popularity = 100   # fewest tracks of a tag, as in the paper
mentions = 0   # fewest captions that mention it; the paper has 10, with captions
""",
    ("synthesis",),
)

CORPUS = Corpus(
    name="music-prompts",
    source="track tags + captions",
    holds="in- and out-of-distribution prompt sets",
    paper="ATTM",
    config=MusicPrompts,
    tables=TABLES,
    story=read_story("music_prompts"),
    plan="earmark.tasks.music_prompts.sources:plan_build",
    inputs="earmark.tasks.music_prompts.sources:inputs",
    flow="earmark.flows.music_prompts:build",
    schedule="0 5 * * *",
    start=_START,
    scale=(
        Workload("143 tags verified", 143, requests=200, heard_s=30, text_in=150, text_out=1, part="tags"),
        Workload("100 prompts, three draws", 100, requests=3, text_in=900, text_out=80),
    ),
    card="earmark.tasks.music_prompts.report:card_sections",
    report="earmark.tasks.music_prompts.report:sections",
    preview="earmark.tasks.music_prompts.drawing:spare_lines",
    views=VIEWS,
    evaluations=(EVALUATION,),
    generation=GENERATION,
)
