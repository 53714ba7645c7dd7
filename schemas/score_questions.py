"""Config of `score-questions`: multiple-choice questions about score images, from forum threads (WildScore)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from schemas.annotation import DECIDES, AnnotatorConfig
from schemas.config import BuildConfig, Model, Name
from schemas.tables import Split

Year = Annotated[int, Field(ge=2005, le=2100)]

CATEGORIES: dict[str, tuple[str, ...]] = {
    "Harmony & Tonality": ("chord progressions", "modulation patterns", "modal mixture"),
    "Rhythm & Meter": ("metric structure", "rhythmic patterns"),
    "Texture": ("homophonic", "polyphonic", "orchestral"),
    "Expression & Performance": ("dynamics & articulation", "technique & interpretation"),
    "Form": ("phrase structure", "contrapuntal forms"),
}
DIFFICULTIES = ("easy", "medium", "hard")


class Source(Model):
    """The forum's dump."""

    name: Name = Field(default="reddit", description="The source, as `licences` and the tables name it.")
    submissions: tuple[str, ...] = Field(min_length=1, description="NDJSON files of submissions (RS), plain or `.zst`.")
    comments: tuple[str, ...] = Field(min_length=1, description="NDJSON files of comments (RC), plain or `.zst`.")
    subreddits: tuple[str, ...] = Field(default=(), description="Only these forums; without any, all.")
    years: tuple[Year, Year] = Field(default=(2012, 2022), description="First and last year, UTC.")
    salt_env: str = Field(
        default="EARMARK_SALT",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Name of the environment variable whose value salts the hashes of ids.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.years[0] > self.years[1]:
            raise ValueError(f"expected years from first to last, found {self.years[0]}, {self.years[1]}")
        return self


class Filter(Model):
    """Which threads are fit for a question."""

    longest_words: int = Field(default=200, ge=1, description="Most words of title and text together.")
    least_comments: int = Field(default=3, ge=1, description="Fewest first-level comments.")
    adult: bool = Field(default=False, description="Whether threads for adults are kept.")


class Images(Model):
    """Where the threads' images come from."""

    folder: str | None = Field(default=None, description="Folder of images named by submission; else downloaded.")


class Detector(Model):
    """What says whether an image is a score."""

    model: str = Field(default="staff-lines", description="`staff-lines`, or a detection model: a path or Hub name.")
    least: float = Field(default=0.5, ge=0, le=1, description="Score from which an image counts as a score.")


class Questions(Model):
    """What a question is made of."""

    comments: int = Field(default=6, ge=2, le=20, description="Best comments that the writer sees.")
    options: int = Field(default=4, ge=2, le=8, description="Options of a question, at most.")
    distractors: int = Field(default=3, ge=0, le=3, description="Of these, written as distractors, at most.")
    tries: int = Field(default=3, ge=1, le=100, description="Draws of one text, at most, until one passes its checks.")
    longest_option_words: int = Field(default=14, ge=5, description="Most words of an option.")


class Writer(AnnotatorConfig):
    """Who rewrites threads as questions, and writes distractors."""

    temperature: float | None = Field(default=0.7, ge=0, le=2)
    seed: int | None = Field(default=17, ge=0, description="Each try adds its number; None leaves it to the server.")
    max_tokens: int = Field(default=800, ge=1)
    sees_image: bool = Field(default=False, description="Whether the writer gets the image too.")
    most_failed: float = Field(
        default=0.02, ge=0, le=1, description="Share of requests that may stay unanswered; with more, the build stops."
    )


class Judge(AnnotatorConfig):
    """Who chooses between comments of the same score."""

    max_tokens: int = Field(default=16, ge=1)
    sees_image: bool = Field(default=True, description="Whether the judge gets the image too.")
    most_failed: float = Field(
        default=0.02, ge=0, le=1, description="Share of requests that may stay unanswered; with more, the build stops."
    )


class Labeller(AnnotatorConfig):
    """Who tells a question's category, subcategory and difficulty."""

    max_tokens: int = Field(default=200, ge=1)
    most_failed: float = Field(
        default=0.02, ge=0, le=1, description="Share of requests that may stay unanswered; with more, the build stops."
    )


class Review(Model):
    """What reviewers said; see `earmark review`."""

    files: tuple[str, ...] = Field(default=(), description="CSV files, or Label Studio's JSON exports.")
    flagged_by: Literal["any", "majority", "all"] = Field(
        default="any", description="How many of a question's reviewers must flag it before it is left out."
    )


class ScoreQuestions(BuildConfig):
    """Build config of `score-questions`."""

    corpus: Literal["score-questions"] = "score-questions"
    source: Source
    filter: Filter = Filter()
    images: Images = Images()
    detector: Detector = Detector()
    questions: Questions = Questions()
    writer: Writer
    judge: Judge
    labeller: Labeller
    review: Review = Review()
    shares: dict[Split, float] = Field(default={"test": 1.0}, description="Shares of authors by split.")

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        if any(share < 0 for share in self.shares.values()) or abs(sum(self.shares.values()) - 1) > 1e-6:
            raise ValueError(f"expected shares that add up to 1, found {self.shares}")
        return self

    def identity(self) -> dict[str, Any]:
        """The config without what cannot change a row: where files and servers are, pace, patience and money."""
        values = self.recorded()
        del values["licences"]
        for name in ("submissions", "comments", "salt_env"):
            del values["source"][name]
        del values["images"]["folder"], values["review"]["files"]
        for name in ("writer", "judge", "labeller"):
            extra = ("sees_image",) if "sees_image" in values[name] else ()
            values[name] = {key: values[name][key] for key in (*DECIDES, *extra)}
        return values
