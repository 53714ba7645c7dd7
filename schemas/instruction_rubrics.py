"""Config of `instruction-rubrics`: does this audio follow this instruction, item by item (AnyAudio-Judge)."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, field_validator, model_validator

from earmark.schemas.annotation import DECIDES, AnnotatorConfig, Drawn
from earmark.schemas.config import ClipsConfig
from earmark.schemas.corpus import Corpus, Start, Workload, read_story
from earmark.schemas.judges import QUALIFICATION, Judging, Passing, Qualified, judge_identity
from earmark.schemas.places import without_place
from earmark.schemas.registry import OneOf
from earmark.schemas.rubric_tables import CLIPS, INSTRUCTIONS, ITEMS, JUDGMENTS, LABELS, SAMPLES
from earmark.schemas.rubric_views import EVALUATIONS, VIEWS
from earmark.schemas.tables import REJECTS
from earmark.schemas.toml import Flat, Model, Name
from earmark.schemas.tracks import Lengths, of_lengths

Domain = Literal["speech", "sound", "music", "mixed"]
Language = Literal["en", "zh"]
Set = Literal["test", "train"]
Kind = Literal["swap", "perturb", "judged"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
SETS: tuple[Set, ...] = ("test", "train")
KINDS: tuple[Kind, ...] = ("swap", "perturb", "judged")
NEAR_CAPTIONS = 0.8  # Jaccard similarity from which captions are near-duplicates
SPARE = 0.5  # captions taken beyond a count, as a share of it, for what is lost on the way
Subject = Literal["positives", "swaps", "changes"]
Verifier = Literal["text", "audio", "similarity"]
Hears = Literal["audio", "similarity"]
PAPER: dict[Domain, dict[Subject, tuple[Verifier, ...]]] = {
    "speech": {"positives": (), "swaps": ("audio",), "changes": ()},
    "sound": {"positives": ("similarity",), "swaps": ("similarity",), "changes": ()},
    "music": {"positives": ("audio",), "swaps": ("audio",), "changes": ("audio",)},
    "mixed": {"positives": ("audio",), "swaps": ("audio",), "changes": ()},
}
"""Verifiers of sources that name none, by AnyAudio-Judge's section 3; the guide's table has a line a subset. The
paper names no check of swapped instructions of films and of generated speech: a listener checks these."""


def _policy(value: Any) -> Any:
    """`none`, one verifier, or a list of those that must agree, as a list."""
    return () if value == "none" else (value,) if isinstance(value, str) else value


_Hears: TypeAlias = Annotated[
    tuple[Hears, ...] | None,
    BeforeValidator(_policy, json_schema_input_type=tuple[Hears, ...] | Hears | Literal["none"] | None),
]
_Verifiers: TypeAlias = Annotated[
    tuple[Verifier, ...] | None,
    BeforeValidator(_policy, json_schema_input_type=tuple[Verifier, ...] | Verifier | Literal["none"] | None),
]  # Prefect checks a deployment's parameters by the schema: it must allow what the validator takes


class Verify(Model):
    """Verification of a source's rows: `none`, one verifier, or a list that must all agree."""

    positives: _Hears = Field(
        default=None,
        description="`audio` (the judge listens), `similarity`, both in a list, or `none`; unset: as the paper. "
        "Generated audio that is heard is heard twice.",
    )
    swaps: _Verifiers = Field(
        default=None, description="Another sample's instruction: the same, or `text` (the labeller compares captions)."
    )
    changes: _Verifiers = Field(default=None, description="Captions with a detail changed: the same.")
    least: float | None = Field(default=None, ge=-1, le=1, description="In place of `similarity.least`.")
    most: float | None = Field(default=None, ge=-1, le=1, description="In place of `similarity.most`.")


class CaptionSource(Model):
    """A caption set: audio, and what is said of it or what it was generated from."""

    name: Name = Field(description="The source; tables and licences name it.")
    subset: Name = Field(description="The subset that it fills, such as `music-real`; several sources may share one.")
    domain: Domain = Field(description="Which prompts are asked; swapped instructions stay within a source.")
    format: Annotated[str, OneOf("earmark.tasks.importers.caption_sets:CAPTION_LAYOUTS")] = Field(
        default="table", description="`table`: id, audio, text, group?, model?."
    )
    captions: str | None = Field(default=None, description="The list.")
    version: str | None = Field(
        default=None,
        description="Instead of a list: `captions` (the store's newest) or `captions@vN`, built with `segments`.",
    )
    split: Literal["train", "validation", "test", "ood"] | None = Field(
        default=None, description="Of a version, only this split."
    )
    audio_root: str | None = Field(default=None, description="Folder of the audio; without it, the list's own.")
    audio: str | None = Field(
        default=None, description="A clip's file below it, with columns in braces, such as `{ytid}.wav`."
    )
    language: Language = Field(default="en", description="Language of the captions.")
    generated: bool = Field(
        default=False,
        description="The audio was generated from these texts, and may fail them; what a judge hears is judged twice.",
    )
    describes: Literal["fully", "partly"] | None = Field(
        default=None,
        description="Whether what a caption does not name is not in its clip; unset: fully. "
        "Where it is partly, the judge hears items of negatives that the caption does not decide.",
    )
    verify: Verify = Verify()
    set: Set | None = Field(default=None, description="`test` is the bench, `train` the corpus; without it, by hash.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.captions is None) == (self.version is None):
            raise ValueError(f"expected either 'captions' or 'version' in source '{self.name}'")
        if self.version is None and self.split is not None:
            raise ValueError(f"'split' picks from a 'version'; source '{self.name}' has a list")
        for key, value in (("audio_root", self.audio_root), ("audio", self.audio)):
            if self.version is not None and value is not None:
                raise ValueError(f"expected no '{key}' beside 'version' in source '{self.name}': it has its own audio")
        if self.version is not None and self.version.partition("@")[0] != "captions":
            raise ValueError(f"expected 'captions' or 'captions@vN' in 'version', found '{self.version}'")
        return self

    @property
    def full(self) -> bool:
        """Return whether its captions name all sounds."""
        return self.describes != "partly"


class ClipQualify(Passing):
    """Recorded clips with their own caption and with another's, and limits for the judge to pass."""


class ClipJudge(Drawn, Judging):
    """The listener of the clips."""

    qualify: ClipQualify | None = Field(
        default=None, description="Gold that is asked before all else; `earmark eval qualify` asks it alone."
    )
    max_tokens: int = Field(default=512, ge=1)


class TextModel(Drawn):
    """The text model: perturbs, decomposes, filters, labels, gives rationales, translates. It hears nothing."""

    tries: ClassVar[int] = 3  # draws of one answer until one passes its checks, as everywhere
    max_tokens: int = Field(default=2048, ge=1)


class SimilarityModel(Model):
    """An audio-text model that helps to verify. Scores and thresholds are kept in the rows."""

    model: str = Field(
        description="A CLAP model: a folder or a name on the Hub, or a checkpoint file of LAION's (`.pt`)."
    )
    least: float | None = Field(default=None, ge=-1, le=1, description="Positives score at least this.")
    most: float | None = Field(default=None, ge=-1, le=1, description="Swapped instructions score at most this.")
    set_by: str | None = Field(
        default=None, description="What set the thresholds, for the card; `earmark eval calibrate` writes it."
    )


def has_chromaprint() -> bool:
    """Return whether the system has Chromaprint, the library of acoustic fingerprints."""
    try:
        import chromaprint  # noqa: F401
    except ImportError:
        return False
    return True


class Decomposition(Model):
    """Decomposition of instructions into items."""

    prompts: Literal["domain", "general"] = Field(
        default="domain",
        description="domain: a prompt for speech, sound, music and mixed audio each, with its dimensions, and as many "
        "items as there are; general: one for all, of 20 items at most.",
    )
    stability: float = Field(
        default=0.0, ge=0, le=1, description="Share of instructions taken apart twice, to report how far both agree."
    )


def _kinds_of(table: dict[str, Any]) -> list[str] | None:
    kinds: list[str] = [kind for kind in KINDS if table.get(kind, 1)]
    return None if kinds == [*KINDS] else kinds


def _weights_of(kinds: Sequence[str]) -> dict[str, Any]:
    return {**{kind: float(kind in kinds) for kind in KINDS}, "tries": 4, "undecided": "hear"}


def _disjoint(fingerprint: float) -> dict[str, Any]:
    return {"fingerprint": fingerprint, "captions": NEAR_CAPTIONS}


class InstructionRubrics(ClipsConfig, Qualified):
    """Build config of `instruction-rubrics`."""

    were_tables = {  # noqa: RUF012
        "negatives": Flat("negatives", _kinds_of, _weights_of),
        "disjoint": Flat("fingerprint", lambda table: table.get("fingerprint"), _disjoint),
        "clips": of_lengths(0.5, 600.0),
    }
    corpus: Literal["instruction-rubrics"] = "instruction-rubrics"
    sources: tuple[CaptionSource, ...] = Field(min_length=1)
    length_s: Lengths = Field(default=(0.5, 600.0), description="Shortest and longest clip; others are rejects.")
    embed: bool = Field(default=False, description="Whether the table `clips` holds the audio itself.")
    bench_share: float = Field(
        default=0.1, ge=0, le=1, description="Share of groups of clips that go to the bench, of sources without `set`."
    )
    counts: dict[Set, dict[str, int]] = Field(
        default={}, description="Samples by set and subset, both labels together; without a count, all there are."
    )
    judge: ClipJudge
    writer: TextModel
    labeller: TextModel | None = Field(default=None, description="Labels items and gives rationales; else the writer.")
    reader: TextModel | None = Field(
        default=None,
        description="A second model that answers each item from the instruction alone; items that it denies are "
        "flagged, since yes would not mean aligned. Without it, nobody does.",
    )
    decomposition: Decomposition = Decomposition()
    similarity: SimilarityModel | None = None
    negatives: tuple[Kind, ...] = Field(
        default=KINDS,
        description="Kinds of negatives, as many of each: `swap`, another sample's instruction; `perturb`, one detail "
        "changed by the writer; `judged`, generated audio that both passes say has failed.",
    )
    fingerprint: float = Field(
        default_factory=lambda: 0.9 if has_chromaprint() else 0.0,  # the value, not its absence, enters the build key
        ge=0,
        le=1,
        description=(
            "Likeness of acoustic fingerprints from which clips of bench and corpus are one recording; other encodings "
            "have 0.95 and more, noises up to 0.87. 0 leaves them out. Left unset: 0.9 where Chromaprint, a system "
            "library, is there, or 0."
        ),
    )
    languages: tuple[Language, ...] = Field(
        default=LANGUAGES,
        description="Languages of the rows; empty: each row is in its source's language, and nothing is translated.",
    )
    trains: str | None = Field(
        default=None, description="The model to be trained on this; the card says where it verified or labelled."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(f"expected sources of different names, found {', '.join(names)}")
        domains: dict[str, str] = {}
        for source in self.sources:
            if domains.setdefault(source.subset, source.domain) != source.domain:
                raise ValueError(f"expected one domain a subset, found two in '{source.subset}'")
            if source.language not in self.rows_in(source.language):
                raise ValueError(f"expected '{source.language}', the language of '{source.name}', among 'languages'")
            self._check_policy(source)
        for counts in self.counts.values():
            for subset, count in counts.items():
                if subset not in domains:
                    raise ValueError(f"expected a subset of {', '.join(domains)} in 'counts', found '{subset}'")
                if count < 0 or count % 2:
                    raise ValueError(f"expected even numbers in 'counts', half for each label, found {count}")
        return self

    @field_validator("negatives")
    @classmethod
    def _made_ones(cls, value: tuple[Kind, ...]) -> tuple[Kind, ...]:
        if {"swap", "perturb"}.isdisjoint(value):
            raise ValueError("expected 'swap', 'perturb', or both")
        return value

    @property
    def weights(self) -> dict[str, float]:
        """Return the weight of each kind of negative."""
        return {kind: float(kind in self.negatives) for kind in KINDS}

    def _check_policy(self, source: CaptionSource) -> None:
        if source.generated and not self.verifiers(source.name, "positives"):
            raise ValueError(f"expected a verifier in 'verify.positives' of '{source.name}': it is generated")
        subjects: tuple[tuple[Subject, str], ...] = (("positives", "least"), ("swaps", "most"), ("changes", "most"))
        for subject, bound in subjects:
            if "similarity" in self.verifiers(source.name, subject) and self.bound(source.name, bound) is None:
                raise ValueError(
                    f"expected [similarity] with a model, and its '{bound}' or 'verify.{bound}', since similarity "
                    f"verifies the {subject} of '{source.name}'; or set 'verify.{subject}'"
                )

    def source(self, name: str) -> CaptionSource:
        """Return the source of a name."""
        return next(source for source in self.sources if source.name == name)

    def verifiers(self, name: str, subject: Subject) -> tuple[Verifier, ...]:
        """Return the verifiers of a source's rows.

        Where it does not say, as the paper's: similarity in place of a listener only where there is a threshold for it,
        and beside the listener too where [similarity] has one for all sources.
        """
        source = self.source(name)
        own: tuple[Verifier, ...] | None = getattr(source.verify, subject)
        if own is not None:
            return own
        of_paper = PAPER[source.domain][subject]
        if source.generated and subject == "positives":
            of_paper = of_paper or ("audio",)
        if subject == "changes":
            return of_paper
        which = "least" if subject == "positives" else "most"
        if self.bound(name, which) is None:
            return tuple("audio" if one == "similarity" else one for one in of_paper)
        if getattr(self.similarity, which) is not None and "similarity" not in of_paper:
            return (*of_paper, "similarity")
        return of_paper

    def judged(self, name: str) -> bool:
        """Return whether the judge hears a source's generated clips: twice, and failures are negatives."""
        return self.source(name).generated and "audio" in self.verifiers(name, "positives")

    def bound(self, name: str, which: str) -> float | None:
        """Return the threshold `least` or `most` of a source; None without a model."""
        if self.similarity is None:
            return None
        own: float | None = getattr(self.source(name).verify, which)
        shared: float | None = getattr(self.similarity, which)
        return shared if own is None else own

    @property
    def subsets(self) -> dict[str, Domain]:
        """Domain by subset, in the config's order."""
        return {source.subset: source.domain for source in self.sources}

    def rows_in(self, language: str) -> tuple[str, ...]:
        """Return the languages of the rows made from a text."""
        return self.languages or (language,)

    @property
    def bilingual(self) -> bool:
        """Return whether anything is translated."""
        return len(set(self.languages)) > 1

    def asked(self) -> dict[str, AnnotatorConfig]:
        return {
            "judge": self.judge,
            "writer": self.writer,
            "labeller": self.labeller or self.writer,
            "translator": self.writer,
            "reader": self.reader or self.writer,  # asked only where the config names one
        }

    def reads(self) -> tuple[str, ...]:
        """Return the versions of captions among the sources."""
        return tuple(source.version for source in self.sources if source.version)

    def targets(self) -> dict[str, int]:
        """Return the number of samples of a set and subset, in each language; half of them negatives."""
        unit = "samples a language" if self.languages else "samples"
        return {
            f"{split} {subset}, {unit}": count
            for split, counts in self.counts.items()
            for subset, count in counts.items()
        }

    def for_forecast(self) -> Self:
        """Without similarity: measuring it would load the model, and what it keeps out is not asked about."""
        subjects: tuple[Subject, ...] = ("positives", "swaps", "changes")
        resolved = [
            source.model_copy(
                update={
                    "verify": source.verify.model_copy(
                        update={subject: self.verifiers(source.name, subject) for subject in subjects}
                    )
                }
            )
            for source in self.sources
        ]
        return self.model_copy(update={"similarity": None, "sources": tuple(resolved)})

    def identity(self) -> dict[str, Any]:
        values = super().identity()
        for source in values["sources"]:
            del source["audio_root"], source["links"], source["version"]  # versions stand among the parents
            source["captions"] = source["captions"] and without_place(source["captions"])
        if self.similarity:
            values["similarity"]["model"] = without_place(self.similarity.model)
        values["judge"] = judge_identity(values["judge"], (*DECIDES, "hearing"))
        for role in ("writer", "labeller", "translator", "reader"):
            if values[role] is not None:
                values[role] = {name: values[role][name] for name in (*DECIDES, "tries")}
        return values


_START = Start(
    "earmark.tasks.importers.caption_sets:CAPTION_LAYOUTS",
    """
[[sources]]
name = {name}
subset = {subset}   # what it fills; several sources may share one
domain = {domain}   # speech | sound | music | mixed: not told by the file, check it
format = {format}   # the layout that takes most of its first rows
captions = {file}
# audio_root = "audio"   # where the clips lie, if not beside the list
language = {language}   # of the captions: en | zh
""",
    ("judge", "writer"),
)

CORPUS = Corpus(
    name="instruction-rubrics",
    source="audio + captions",
    holds="hard negatives, rubric items, labels by item, in two languages; a bench and a corpus",
    paper="AnyAudio-Judge",
    config=InstructionRubrics,
    tables=(SAMPLES, INSTRUCTIONS, ITEMS, LABELS, JUDGMENTS, CLIPS, QUALIFICATION, REJECTS),
    story=read_story("instruction_rubrics"),
    plan="earmark.tasks.instruction_rubrics.sources:plan_build",
    inputs="earmark.tasks.instruction_rubrics.sources:inputs",
    flow="earmark.flows.instruction_rubrics:build",
    schedule="0 6 * * *",
    start=_START,
    scale=(
        Workload(
            "105,000 samples, four stages", 105_000, requests=4, heard_s=10, text_in=700, text_out=250, audio_s=10
        ),
    ),
    card="earmark.tasks.instruction_rubrics.report:card_sections",
    report="earmark.tasks.instruction_rubrics.report:sections",
    views=VIEWS,
    evaluations=EVALUATIONS,
    layouts={"anyaudio-judge-bench": "earmark.tasks.instruction_rubrics.released:read"},
)
