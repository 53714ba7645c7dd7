"""Config and tables of `music-prompts` (the Academic Text-to-Music challenge's evaluation prompts, by its method)."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from earmark.schemas.annotation import DECIDES, AnnotatorConfig, Asked, Drawn, Prices
from earmark.schemas.config import BuildConfig, Linked, Model, Name
from earmark.schemas.corpus import Corpus, Story
from earmark.schemas.evaluations import Generation, Mode
from earmark.schemas.places import without_place
from earmark.schemas.tables import REJECTS, WORDS, Table, column, columns, flag, integer, number, text
from earmark.schemas.views import View

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


class Pool(Model):
    """What a tag must meet to be drawn."""

    popularity: int = Field(default=100, ge=1, description="Tracks that carry it, at least.")
    mentions: int = Field(default=10, ge=0, description="Captions that name it, at least, over all caption sets.")
    recall: float = Field(default=0.85, ge=0, le=1, description="Share of its tracks on which a judge hears it.")
    instrumental: bool = Field(default=True, description="Whether tags that ask for voices are left out.")
    exclude: dict[Category, tuple[str, ...]] = Field(default={}, description="Further tags to leave out.")


class Verification(Linked, Asked):
    """Who listens whether tracks that carry a tag sound like it."""

    audio: str = Field(description="Folder of the tracks' audio.")
    file: str = Field(
        default="{path}", description="A track's file below it: {path} as listed, {stem} the same without its ending."
    )
    tracks: int = Field(default=100, ge=1, description="Tracks that carry it asked about for each tag, at most.")
    untagged: int = Field(
        default=100, ge=0, description="Tracks that do not carry it, for the specificity, at most; 0 asks about none."
    )
    longest_s: float = Field(default=30.0, gt=0, description="What the judge hears of each, from its start.")
    sample_rate_hz: int = Field(default=16_000, ge=8_000, le=192_000)
    max_tokens: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _fields(self) -> Self:
        try:
            self.file.format(path="", stem="")
        except (KeyError, IndexError, ValueError):
            raise ValueError("expected {path} or {stem} in 'file' and no other field") from None
        return self


class Counts(Model):
    """How many prompts of each stratum."""

    strict_id: int = Field(default=40, ge=0, description="In distribution, only the given tags.")
    improvised_id: int = Field(default=40, ge=0, description="In distribution, one to three instruments more.")
    strict_ood: int = Field(default=20, ge=0, description="Out of distribution, only the given tags.")


class Synthesis(Drawn):
    """Who writes the prompts, from what examples, and how often it may try."""

    temperature: float | None = Field(default=0.7, ge=0, le=2)
    max_tokens: int = Field(default=256, ge=1)
    shots: int = Field(default=5, ge=0, le=50, description="Example captions of each caption set.")
    tries: int = Field(
        default=4, ge=1, le=100, description="Times a prompt is asked for before its triplet is given up."
    )
    spare: float = Field(
        default=1.0, ge=0, description="Triplets drawn in place of given-up ones, at most, as a share of the count."
    )
    longest: int = Field(default=400, ge=20, description="Longest prompt, in characters.")


class MusicPrompts(BuildConfig):
    """Build config of `music-prompts`."""

    corpus: Literal["music-prompts"] = "music-prompts"
    tracks: str = Field(description="MTG-Jamendo's list: a TSV with tags as its last columns.")
    synonyms: str | None = Field(default=None, description="MTG-Jamendo's tag_map.json: synonyms become one tag.")
    captions: tuple[CaptionSet, ...] = Field(
        default=(), description="Caption sets, for mentions and example captions; without any, neither is used."
    )
    pool: Pool = Pool()
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
    prices: Prices | None = Field(default=None, description="What the provider of `synthesis` charges.")

    @model_validator(mode="before")
    @classmethod
    def _priced(cls, values: Any) -> Any:
        """Prices stand beside the writer, not in it; the writer needs them for its budget."""
        if isinstance(values, dict) and isinstance(values.get("synthesis"), dict) and values.get("prices") is not None:
            return {**values, "synthesis": {"prices": values["prices"], **values["synthesis"]}}
        return values

    @model_validator(mode="after")
    def _fit(self) -> Self:
        names = [one.name for one in self.captions]
        if len(set(names)) < len(names):
            raise ValueError(f"expected caption sets of different names, found {', '.join(names)}")
        if self.verification is not None and self.recalls is not None:
            raise ValueError("expected 'verification' or 'recalls', found both")
        return self

    def reads(self) -> tuple[str, ...]:
        """The versions of captions that tags are looked for in, and the one whose triplets stay."""
        return (*(one.version for one in self.captions if one.version), *([self.keep] if self.keep else []))

    def targets(self) -> dict[str, int]:
        """Prompts a stratum."""
        return {f"{stratum}, prompts": count for stratum, count in self.prompts}

    def asked(self) -> dict[str, AnnotatorConfig]:
        writer: dict[str, AnnotatorConfig] = {"writer": self.synthesis}
        return {**writer, "judge": self.verification} if self.verification else writer

    def identity(self) -> dict[str, Any]:
        values = super().identity()
        del values["prices"]
        for name in ("tracks", "synonyms", "recalls"):
            values[name] = without_place(values[name]) if values[name] else None
        for one in values["captions"]:  # versions stand among the parents
            one["file"] = without_place(one["file"]) if one["file"] else None
            one["version"] = one["version"] is not None
        values["keep"] = self.keep is not None
        values["synthesis"] = {name: values["synthesis"][name] for name in (*DECIDES, *_WRITTEN)}
        if self.verification is not None:
            values["verification"] = {name: values["verification"][name] for name in (*DECIDES, *_HEARD)}
        return values


_WRITTEN = ("shots", "tries", "spare", "longest")
_HEARD = ("file", "tracks", "untagged", "longest_s", "sample_rate_hz")

_METHOD = "ATTM, selection of tags"

TAGS = Table(
    name="tags",
    description="One row a tag of the track list: its figures, and whether it entered the pool.",
    schema=columns(
        text("category", "What the tag speaks of.", unit="genre, instrument or mood/theme"),
        text("tag", "The tag as the track list writes it."),
        text("written", "The tag as a sentence has it."),
        integer("tracks", "Tracks that carry it.", source=_METHOD),
        integer(
            "mentions",
            "Captions that name it, by whole word forms; null without captions.",
            source=_METHOD,
            optional=True,
        ),
        text("vocal", "Why it asks for voices, by the reviewed list; null if not.", optional=True),
        integer("asked", "Its tracks that a judge answered for; null if not verified.", optional=True),
        integer("detected", "Of these, those on which the judge hears it.", optional=True),
        number("recall", "Share of `asked` that is `detected`.", unit="0 to 1", source=_METHOD, optional=True),
        number(
            "recall_low", "Lower end of the recall's 95 % interval.", unit="0 to 1", source="Wilson 1927", optional=True
        ),
        number(
            "recall_high",
            "Upper end of the recall's 95 % interval.",
            unit="0 to 1",
            source="Wilson 1927",
            optional=True,
        ),
        integer("untagged_asked", "Tracks without it that a judge answered for; null if none.", optional=True),
        integer("untagged_detected", "Of these, those on which the judge hears it.", optional=True),
        number(
            "specificity",
            "Share of `untagged_asked` on which the judge does not hear it. Lists leave out tags that fit: a perfect "
            "judge may stay below 1.",
            unit="0 to 1",
            optional=True,
        ),
        number(
            "specificity_low",
            "Lower end of the specificity's 95 % interval.",
            unit="0 to 1",
            source="Wilson 1927",
            optional=True,
        ),
        number(
            "specificity_high",
            "Upper end of the specificity's 95 % interval.",
            unit="0 to 1",
            source="Wilson 1927",
            optional=True,
        ),
        flag("verified", "Whether a judge was asked about it."),
        flag("in_pool", "Whether prompts may use it."),
        text("criterion", "The first criterion that it missed; null in the pool.", optional=True),
    ),
    key=("category", "tag"),
    splits=False,
    says=(
        "on {tracks} tracks, in {mentions} captions, recall {recall} ({detected} of {asked})",
        "heard on {untagged_detected} of {untagged_asked} tracks without it, specificity {specificity}",
        "in the pool: {in_pool}; criterion missed: {criterion}",
    ),
)

COOCCURRENCE = Table(
    name="cooccurrence",
    description="One row two tags of the pool of different categories, and the tracks that carry both: none, too.",
    schema=columns(
        text("category_a", "Category of the first tag: genre or instrument."),
        text("tag_a", "The first tag."),
        text("category_b", "Category of the second tag: instrument or mood/theme."),
        text("tag_b", "The second tag."),
        integer("tracks", "Tracks that carry both."),
    ),
    key=("category_a", "tag_a", "category_b", "tag_b"),
    splits=False,
)

TRIPLETS = Table(
    name="triplets",
    description="One row a genre, an instrument and a mood or theme that a prompt was written for.",
    schema=columns(
        text("triplet_id", "Sixteen hexadecimal digits from the three tags.", names="prompt", role="is"),
        text("split", "test if in distribution, ood if not."),
        text("stratum", "Distribution and style.", unit="strict_id, improvised_id or strict_ood"),
        text("genre", "The genre, as the track list writes it."),
        text("instrument", "The instrument."),
        text("mood_theme", "The mood or theme."),
        integer("genre_instrument_tracks", "Tracks that carry both."),
        integer("genre_mood_tracks", "Tracks that carry both."),
        integer("instrument_mood_tracks", "Tracks that carry both."),
        column(
            "absent_pairs",
            WORDS,
            "Pairs of its tags that no track carries, such as `genre+instrument`; empty if in distribution.",
        ),
        text("kept_from", "The version that it was kept from; null if drawn anew.", optional=True),
    ),
    key=("triplet_id",),
    exclusive=("triplet_id",),
    says=(
        "drawn as {stratum}: {genre}, {instrument}, {mood_theme}",
        "tracks with two of its tags: {genre_instrument_tracks}, {genre_mood_tracks}, {instrument_mood_tracks}",
    ),
)

PROMPTS = Table(
    name="prompts",
    description="One row a prompt for text-to-music systems.",
    schema=columns(
        text("prompt_id", "The triplet's id.", names="prompt", role="is"),
        text("split", "test if in distribution, ood if not."),
        text("text", "The prompt."),
        text("distribution", "Whether its tags co-occur.", unit="id or ood"),
        text("style", "Whether instruments were added.", unit="strict or improvised"),
        text("genre", "The genre that it asks for, as a sentence has it."),
        text("instrument", "The instrument."),
        text("mood_theme", "The mood or theme."),
        column("added_instruments", WORDS, "Instruments that the writer added; empty if strict."),
        text("writer", "The annotator that wrote it.", names=("source", "annotator")),
        text("prompt", "Prompt file and version that asked."),
        text("request_key", "The request's key in the ledger."),
        integer("tries", "How many answers it took until one passed the checks."),
    ),
    key=("prompt_id",),
    says=("written by {writer} in {tries} tries, request {request_key}",),
)

SHOTS = Table(
    name="shots",
    description="One row an example caption that the writer saw with a prompt's tags.",
    schema=columns(
        text("prompt_id", "The prompt.", names="prompt", role="part"),
        integer("place", "Where it stood among the examples, from 1."),
        text("pipeline", "The caption set.", names="source"),
        text("item", "The clip, as the caption set names it."),
        text("text", "The caption."),
        text("clip_id", "The clip in the version of `captions`; null for files.", optional=True, names="track"),
        text("source", "The list that the clip is of, as `captions` names it; of files, the set.", names="source"),
    ),
    key=("prompt_id", "place"),
    splits=False,
)

TABLES = (PROMPTS, TRIPLETS, TAGS, COOCCURRENCE, SHOTS, REJECTS)

_STORY = Story(
    title="Music prompts",
    summary=(
        "Prompts for text-to-music systems, each from a genre, an instrument and a mood or theme of real tracks: in "
        "distribution where all pairs of its tags occur together in the tracks, out of distribution where a pair never "
        "does. For evaluating generation with concepts that can be checked."
    ),
    method=(
        "Tags must be carried by enough tracks, named in enough captions, heard by a judge on enough of their own "
        "tracks where audio was at hand, and ask for no voices. `tags` holds every tag's figures and fate.",
        "Triplets are drawn by seeded hash, genres in turn: in distribution if each pair of tags stands on one track "
        "at least (not necessarily the same), out of distribution if one pair stands on none.",
        "A model writes the prompt from example captions: strict prompts name the three tags and no other of the "
        "taxonomy, improvised ones add one to three instruments, none speaks of voices. What does not pass is asked "
        "again, and after some tries another triplet of the same stratum takes its place.",
    ),
    main_table="prompts",
    references=("ATTM: Academic Text-to-Music challenge, construction of the evaluation prompts.",),
    limits=(
        "Out of distribution means: not together in this track list. It says nothing of what a model was trained on.",
        "Which tags a prompt names is judged by word forms; a paraphrase without them counts as not named.",
        "A writer named `builtin:` fills in a template: its prompts are for trying the pipeline.",
    ),
    tags=("music", "text-to-music", "evaluation", "prompts"),
    tasks=("text-to-audio",),
    languages=("en",),
)

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
        Mode(column, f"concept-{column.replace('_', '-')}", shows=("clip=audio", f"concept={column}"))
        for column in ("genre", "instrument", "mood_theme")
    ),
    groups=("distribution", "style"),
)

CORPUS = Corpus(
    name="music-prompts",
    source="track tags + captions",
    holds="in- and out-of-distribution prompt sets",
    paper="ATTM",
    config=MusicPrompts,
    tables=TABLES,
    story=_STORY,
    plan="earmark.tasks.music_prompts.sources:plan_build",
    peeks="earmark.tasks.music_prompts.sources:peeks",
    flow="earmark.flows.music_prompts:build",
    card="earmark.tasks.music_prompts.card:sections",
    report="earmark.tasks.music_prompts.report:sections",
    views=VIEWS,
    generation=GENERATION,
)
