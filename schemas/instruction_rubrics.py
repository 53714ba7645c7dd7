"""Config of `instruction-rubrics`: does this audio follow this instruction, item by item (AnyAudio-Judge)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from earmark.schemas.annotation import DECIDES, AnnotatorConfig, Drawn, Hearing
from earmark.schemas.config import BuildConfig, Linked, Model, Name
from earmark.schemas.corpus import Corpus, Story
from earmark.schemas.places import without_place
from earmark.schemas.registry import OneOf
from earmark.schemas.rubric_tables import CLIPS, INSTRUCTIONS, ITEMS, JUDGMENTS, LABELS, SAMPLES
from earmark.schemas.rubric_views import EVALUATIONS, VIEWS
from earmark.schemas.tables import REJECTS
from earmark.schemas.tracks import Fitness

Domain = Literal["speech", "sound", "music", "mixed"]
Language = Literal["en", "zh"]
Set = Literal["test", "train"]
Kind = Literal["swap", "perturb", "judged"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
SETS: tuple[Set, ...] = ("test", "train")
KINDS: tuple[Kind, ...] = ("swap", "perturb", "judged")


class CaptionSource(Linked):
    """A caption set: audio, and what is said of it or what it was generated from."""

    name: Name = Field(description="The source; tables and licences name it.")
    subset: Name = Field(description="The subset that it fills, such as `music-real`; several sources may share one.")
    domain: Domain = Field(description="Which prompts are asked; swapped instructions stay within a source.")
    format: Annotated[str, OneOf("earmark.tasks.importers.caption_sets:CAPTION_LAYOUTS")] = Field(
        default="table", description="`table`: id, audio, text, group?, model?."
    )
    captions: str = Field(description="The list.")
    audio_root: str | None = Field(default=None, description="Folder of the audio; without it, the list's own.")
    audio: str | None = Field(
        default=None, description="A clip's file below it, with columns in braces, such as `{ytid}.wav`."
    )
    language: Language = Field(default="en", description="Language of the captions.")
    generated: bool = Field(
        default=False, description="The audio was generated from these texts: it is judged twice, and may fail them."
    )
    set: Set | None = Field(default=None, description="`test` is the bench, `train` the corpus; without it, by hash.")


class Judge(Drawn):
    """Who hears the clips."""

    hearing: Hearing = Hearing()
    max_tokens: int = Field(default=512, ge=1)


class Writer(Drawn):
    """Who reads and writes: perturbs, decomposes, filters, labels, gives rationales, translates. It hears nothing."""

    tries: int = Field(default=3, ge=1, le=20, description="Draws of one answer, at most, until one passes its checks.")
    max_tokens: int = Field(default=2048, ge=1)


class Similarity(Model):
    """An audio-text model that helps to verify. Scores and thresholds are kept in the rows."""

    model: str = Field(description="A CLAP model of `transformers`: a folder or a name on the Hub.")
    least: float | None = Field(default=None, ge=-1, le=1, description="Positives score at least this.")
    most: float | None = Field(default=None, ge=-1, le=1, description="Swapped instructions score at most this.")


class Negatives(Model):
    """How negatives come about: weights of the kinds, and how hard is tried."""

    swap: float = Field(default=1.0, ge=0, description="Another sample's instruction.")
    perturb: float = Field(default=1.0, ge=0, description="One detail changed by the writer.")
    judged: float = Field(default=1.0, ge=0, description="Generated audio that both passes say has failed.")
    tries: int = Field(default=4, ge=1, le=50, description="Other instructions to try until one does not fit.")

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.swap + self.perturb <= 0:
            raise ValueError("expected a weight above 0 for 'swap' or 'perturb'")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """Weight by kind."""
        return {"swap": self.swap, "perturb": self.perturb, "judged": self.judged}


def has_chromaprint() -> bool:
    """Whether the system has Chromaprint, the library that acoustic fingerprints come from."""
    try:
        import chromaprint  # noqa: F401
    except ImportError:
        return False
    return True


class Disjoint(Model):
    """What keeps bench and corpus apart."""

    fingerprint: float = Field(
        default_factory=lambda: 0.9 if has_chromaprint() else 0.0,  # the value, not its absence, enters the build key
        ge=0,
        le=1,
        description=(
            "Likeness of acoustic fingerprints from which clips are one recording; other encodings have 0.95 and more, "
            "noises up to 0.87. 0 leaves them out. Left unset: 0.9 where Chromaprint, a system library, is there, or 0."
        ),
    )
    captions: float = Field(
        default=0.8, ge=0.5, le=1, description="Jaccard similarity from which captions are near-duplicates."
    )


class InstructionRubrics(BuildConfig):
    """Build config of `instruction-rubrics`."""

    corpus: Literal["instruction-rubrics"] = "instruction-rubrics"
    sources: tuple[CaptionSource, ...] = Field(min_length=1)
    clips: Fitness = Field(default=Fitness(shortest_s=0.5, longest_s=600.0), description="Which audio is fit.")
    embed: bool = Field(default=False, description="Whether the table `clips` holds the audio itself.")
    bench_share: float = Field(
        default=0.1, ge=0, le=1, description="Share of groups of clips that go to the bench, of sources without `set`."
    )
    counts: dict[Set, dict[str, int]] = Field(
        default={}, description="Samples by set and subset, both labels together; without a count, all there are."
    )
    spare: float = Field(
        default=0.5, ge=0, description="Captions taken beyond a count, as a share of it, for what is lost on the way."
    )
    judge: Judge
    writer: Writer
    labeller: Writer | None = Field(default=None, description="Labels items and gives rationales; else the writer.")
    translator: Writer | None = Field(default=None, description="Translates; else the writer.")
    similarity: Similarity | None = None
    negatives: Negatives = Negatives()
    disjoint: Disjoint = Field(default_factory=Disjoint)
    languages: tuple[Language, ...] = Field(default=LANGUAGES, min_length=1, description="Languages of the rows.")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(f"expected sources of different names, found {', '.join(names)}")
        domains: dict[str, str] = {}
        for source in self.sources:
            if domains.setdefault(source.subset, source.domain) != source.domain:
                raise ValueError(f"expected one domain a subset, found two in '{source.subset}'")
            if source.language not in self.languages:
                raise ValueError(f"expected '{source.language}', the language of '{source.name}', among 'languages'")
        for counts in self.counts.values():
            for subset, count in counts.items():
                if subset not in domains:
                    raise ValueError(f"expected a subset of {', '.join(domains)} in 'counts', found '{subset}'")
                if count < 0 or count % 2:
                    raise ValueError(f"expected even numbers in 'counts', half for each label, found {count}")
        return self

    @property
    def subsets(self) -> dict[str, Domain]:
        """Domain by subset, in the config's order."""
        return {source.subset: source.domain for source in self.sources}

    @property
    def bilingual(self) -> bool:
        """Whether anything is translated."""
        return len(set(self.languages)) > 1

    def asked(self) -> dict[str, AnnotatorConfig]:
        """Who is asked, by role."""
        return {
            "judge": self.judge,
            "writer": self.writer,
            "labeller": self.labeller or self.writer,
            "translator": self.translator or self.writer,
        }

    def for_forecast(self) -> Self:
        """Without similarity: measuring it would load the model, and what it keeps out is not asked about."""
        return self.model_copy(update={"similarity": None})

    def identity(self) -> dict[str, Any]:
        """The config without what cannot change a row: where files and servers are, pace, patience and money."""
        values = super().identity()
        for source in values["sources"]:
            del source["audio_root"], source["links"]
            source["captions"] = without_place(source["captions"])
        if self.similarity:
            values["similarity"]["model"] = without_place(self.similarity.model)
        decides = {"judge": ("hearing",), "writer": ("tries",)}
        for role in ("judge", "writer", "labeller", "translator"):
            if values[role] is not None:
                kept = (*DECIDES, *decides["judge" if role == "judge" else "writer"])
                values[role] = {name: values[role][name] for name in kept}
        return values


_STORY = Story(
    title="Instruction rubrics",
    summary=(
        "Clips with instructions that they follow or do not follow, one to one: each instruction taken apart into "
        "yes/no items, each item labelled for each clip, in two languages. The split `test` is a bench, `train` a "
        "corpus to train judges of instruction following on; they share no clip and no caption."
    ),
    method=(
        "Caption sets give clips and true captions. Rows of one clip, captions that say nearly the same and rows that "
        "their source groups stay in one split; so do recordings that sound the same, where fingerprints are compared.",
        "A judge that hears, an audio-text similarity, or both verify that a caption fits. Generated audio is judged "
        "twice: what fails both times is a hard negative, what passes both times a positive, the rest is rejected.",
        "Other negatives swap in another sample's instruction, or change one detail. The judge must say that the new "
        "instruction does not fit.",
        "Each instruction is taken apart once into independent yes/no items; a second reading removes what is not "
        "supported or said twice. If nothing is left, the instruction is its single item.",
        "Items of a positive are all yes. For a negative, a reader compares what is true of the clip with the "
        "instruction, item by item; a negative whose items all come out yes is rejected.",
        "Every subset holds as many positives as negatives. Instructions, items and rationales are translated; what "
        "loses numbers, names or negations is flagged.",
    ),
    main_table="samples",
    references=("AnyAudio-Judge: bench and corpus for rubric-based judging of instruction following.",),
    limits=(
        "Labels are made by models; only the rationale says why. No person has checked them.",
        "An item that the caption does not speak of is not asked: 'yes' means that nothing asked for is missing.",
        "Translations are made by a model; the column `flags` names what the back-check found.",
        "A model named `builtin:` measures the signal and compares words: for trying the pipeline.",
    ),
    tags=("audio", "music", "speech", "sound", "rubrics", "reward-model", "instruction-following"),
)

CORPUS = Corpus(
    name="instruction-rubrics",
    source="audio + captions",
    holds="hard negatives, rubric items, labels by item, in two languages; a bench and a corpus",
    paper="AnyAudio-Judge",
    config=InstructionRubrics,
    tables=(SAMPLES, INSTRUCTIONS, ITEMS, LABELS, JUDGMENTS, CLIPS, REJECTS),
    story=_STORY,
    plan="earmark.tasks.instruction_rubrics.sources:plan_build",
    peeks="earmark.tasks.instruction_rubrics.sources:peeks",
    flow="earmark.flows.instruction_rubrics:build",
    card="earmark.tasks.instruction_rubrics.report:card_sections",
    report="earmark.tasks.instruction_rubrics.report:sections",
    views=VIEWS,
    evaluations=EVALUATIONS,
    layouts={"anyaudio-judge-bench": "earmark.tasks.instruction_rubrics.released:read"},
)
