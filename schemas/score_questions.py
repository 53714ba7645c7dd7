"""Config and tables of `score-questions`: multiple-choice questions about scores, from forum threads (WildScore)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from earmark.schemas.annotation import DECIDES, AnnotatorConfig, Asked, Drawn
from earmark.schemas.config import BuildConfig, Linked, Model, Name
from earmark.schemas.corpus import Corpus, Story
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.places import without_place
from earmark.schemas.tables import (
    REJECTS,
    WORDS,
    Shares,
    Table,
    column,
    columns,
    flag,
    image_column,
    integer,
    number,
    text,
)
from earmark.schemas.views import View
from earmark.schemas.views import Writer as ExportWriter

Year = Annotated[int, Field(ge=2005, le=2100)]

CATEGORIES: dict[str, tuple[str, ...]] = {
    "Harmony & Tonality": ("chord progressions", "modulation patterns", "modal mixture"),
    "Rhythm & Meter": ("metric structure", "rhythmic patterns"),
    "Texture": ("homophonic", "polyphonic", "orchestral"),
    "Expression & Performance": ("dynamics & articulation", "technique & interpretation"),
    "Form": ("phrase structure", "contrapuntal forms"),
}
DIFFICULTIES = ("easy", "medium", "hard")
LABELLED = {"taxonomy": ("category", "subcategory"), "difficulty": ("difficulty",)}
"""What a labeller is asked, and the fields of its answer."""


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


class Images(Linked):
    """Where the threads' images come from, and which can be used."""

    folder: str | None = Field(
        default=None,
        description="Folder with `<submission>.png`, `<submission>_2.png` or `<submission>/…`; else downloaded.",
    )
    hosts: tuple[str, ...] = Field(
        default=("i.redd.it", "preview.redd.it", "external-preview.redd.it", "i.imgur.com"),
        description="The only hosts that images are downloaded from, by https.",
    )
    per_second: float = Field(default=2.0, gt=0, le=100, description="Downloads a second from one host, at most.")
    timeout_s: float = Field(default=30.0, gt=0, description="What one download may take.")
    most: int = Field(default=4, ge=1, le=20, description="Images of a submission that are looked at.")
    largest_bytes: int = Field(default=20_000_000, ge=1, description="Larger files are rejects.")
    most_pixels: int = Field(default=50_000_000, ge=1, le=150_000_000, description="Images of more are not decoded.")
    smallest_side: int = Field(default=64, ge=1, description="Images with a shorter side are rejects.")
    longest_side: int = Field(default=2048, ge=64, description="Larger images are scaled down to it.")
    near_bits: int = Field(
        default=12, ge=0, le=256, description="Images whose difference hashes are that near are duplicates."
    )


class Detector(Model):
    """What says whether an image is a score."""

    model: str = Field(
        default="staff-lines",
        description="`staff-lines`, or a detection model: a folder or Hub name for transformers, or YOLO's `.onnx`.",
    )
    classes: tuple[str, ...] = Field(
        default=(), description="Classes of that model that count as a score; without any, all that it knows."
    )
    least: float = Field(default=0.5, ge=0, le=1, description="Score from which an image counts as a score.")
    drawings: int = Field(
        default=100, ge=0, le=10_000, description="Drawings of each kind that it is measured on for the report, or 0."
    )

    @model_validator(mode="after")
    def _has_classes(self) -> Self:
        if self.classes and self.model == "staff-lines":
            raise ValueError("classes are those of a detection model: expected none with model = 'staff-lines'")
        return self


class Questions(Model):
    """What a question is made of."""

    comments: int = Field(default=6, ge=2, le=20, description="Best comments that the writer sees.")
    wrong: Literal["written", "comments"] = Field(
        default="written",
        description="Where wrong options come from: `written` as in the paper; `comments` lets other comments in, of "
        "which the reader says that they contradict the right one.",
    )
    options: int = Field(default=4, ge=2, le=8, description="Options of a question, at most.")
    least_options: int = Field(default=3, ge=2, le=8, description="Options of a question, at least.")
    distractors: int = Field(default=3, ge=0, le=3, description="Of these, written as distractors, at most.")
    tries: int = Field(default=3, ge=1, le=100, description="Draws of one text, at most, until one passes its checks.")
    longest_option_words: int = Field(default=14, ge=5, description="Most words of an option.")

    @model_validator(mode="after")
    def _enough_written(self) -> Self:
        if self.wrong == "written" and 1 + self.distractors < self.least_options:
            raise ValueError(
                f"one right and {self.distractors} written options are fewer than least_options = "
                f'{self.least_options}; raise distractors, or set wrong = "comments"'
            )
        return self


class Writer(Drawn):
    """Who rewrites threads as questions, and writes distractors."""

    temperature: float | None = Field(default=0.7, ge=0, le=2)
    max_tokens: int = Field(default=800, ge=1)
    sees_image: bool = Field(default=False, description="Whether the writer gets the image too.")


class Judge(Asked):
    """Who chooses between comments of the same score."""

    max_tokens: int = Field(default=16, ge=1)
    sees_image: bool = Field(default=True, description="Whether the judge gets the image too.")


class Labeller(Asked):
    """Who tells a question's category, subcategory and difficulty."""

    max_tokens: int = Field(default=200, ge=1)


class Examples(Model):
    """Labelled questions that a labeller is shown."""

    examples: str | None = Field(
        default=None,
        description="JSON Lines of your experts: `question`, and `difficulty`, or `category` and `subcategory`; "
        "without it, the prompt's own words.",
    )


class Reader(Asked):
    """Who checks every option: whether it could be right. Best another model than the writer."""

    max_tokens: int = Field(default=16, ge=1)
    sees_image: bool = Field(default=True, description="Whether the reader gets the image too.")


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
    reader: Reader | None = Field(
        default=None, description="Checks every option; wrong ones that could be right leave. Without it, nobody does."
    )
    taxonomy: Examples = Examples()
    difficulty: Examples = Examples()
    review: Review = Review()
    transcripts: str | None = Field(
        default=None,
        description="Folder with images in another form: `<image_sha256>.txt` (a caption), `.abc` or `.musicxml`.",
    )
    shares: Shares = Field(default={"test": 1.0}, description="Shares of authors by split.")

    @model_validator(mode="after")
    def _comments_are_read(self) -> Self:
        if self.questions.wrong == "comments" and self.reader is None:
            raise ValueError(
                'questions.wrong = "comments" needs a [reader], who says which comments contradict the right option; '
                'add one, or set wrong = "written"'
            )
        return self

    def source_of(self, file: str) -> str:
        """The forum's name for the files of its dump; others are their own."""
        return self.source.name if file.startswith(f"{self.source.name}/") else file

    def asked(self) -> dict[str, AnnotatorConfig]:
        asked: dict[str, AnnotatorConfig] = {"writer": self.writer, "judge": self.judge, "labeller": self.labeller}
        return {**asked, **({"reader": self.reader} if self.reader else {})}

    def examples(self) -> dict[str, str | None]:
        """The files of labelled questions, as the config writes them, by what they label."""
        return {"taxonomy": self.taxonomy.examples, "difficulty": self.difficulty.examples}

    def for_forecast(self) -> Self:
        """Without a measurement of the detector."""
        return self.model_copy(update={"detector": self.detector.model_copy(update={"drawings": 0})})

    def identity(self) -> dict[str, Any]:
        values = super().identity()
        del values["source"]["salt_env"]
        for label in LABELLED:  # the digests of their files stand among the inputs
            del values[label]
        del values["transcripts"]  # likewise
        for part, name in (("source", "submissions"), ("source", "comments"), ("review", "files")):
            values[part][name] = [without_place(written) for written in values[part][name]]
        for name in ("folder", "links", "per_second", "timeout_s"):
            del values["images"][name]
        values["detector"]["model"] = without_place(self.detector.model)
        for name in self.asked():
            extra = ("sees_image",) if "sees_image" in values[name] else ()
            values[name] = {key: values[name][key] for key in (*DECIDES, *extra)}
        return values


QUESTIONS = Table(
    name="questions",
    description="One row a multiple-choice question about a score, with the image.",
    schema=columns(
        text("question_id", "Sixteen hexadecimal digits: the thread's salted hash.", names="question", role="is"),
        text("split", "Split of the thread's author."),
        text("question", "The question, as the writer put it."),
        column("options", WORDS, "The options, in the order of their letters A, B, …"),
        text("truth_letter", "Letter of the right option."),
        text(
            "preference",
            "Who decided which option is right.",
            unit="human or language_model",
            source="WildScore, ground truth",
        ),
        text("category", "One of five.", source="WildScore, taxonomy"),
        text("subcategory", "One of twelve.", source="WildScore, taxonomy"),
        text("difficulty", "How hard it is.", unit="easy, medium or hard"),
        text("image_sha256", "SHA-256 of the image's bytes.", names="clip", role="is"),
        integer("width", "Width of the image.", unit="pixels"),
        integer("height", "Height of the image.", unit="pixels"),
        image_column("The score, re-encoded and without metadata."),
        text("content_sha256", "SHA-256 of question, options and image; reviews name it."),
        text("writer", "Who wrote question and distractors.", names="annotator"),
        text("judge", "Who settled a tie; null where people decided.", optional=True, names="annotator"),
        text("labeller", "Who told category and difficulty.", names="annotator"),
        text("request_key", "Key in the ledger of the request that wrote the question."),
        text("source", "The dump's name in the config.", names="source"),
    ),
    key=("question_id",),
    exclusive=("image_sha256",),
    says=(
        "written by {writer}, request {request_key}",
        "{truth_letter} is right by {preference} preference; {category}, {subcategory}, {difficulty}",
    ),
    rows_per_group=5_000,
)

OPTIONS = Table(
    name="options",
    description="One row an option of a question.",
    schema=columns(
        text("question_id", "The question.", names="question"),
        text("letter", "Its letter."),
        text("split", "Split of the question."),
        text("text", "The option."),
        flag("correct", "Whether it is the right one."),
        text("origin", "Where it comes from.", unit="comment or distractor"),
        text("comment_id", "Salted hash of the comment; null for a distractor.", optional=True),
        integer(
            "votes", "The comment's S = U - D; null for a distractor.", source="WildScore, ground truth", optional=True
        ),
        integer("words", "Its length.", unit="words"),
        flag("may_be_right", "Whether the reader says that it could be right; null without a reader.", optional=True),
    ),
    key=("question_id", "letter"),
    says=("{letter}: {text} ({origin}, {votes} votes); right: {correct}",),
)

SOURCES = Table(
    name="sources",
    description="One row a thread that a question was made from, without names.",
    schema=columns(
        text("question_id", "The question: the thread's salted hash.", names="question", role="is"),
        text("split", "Split of its author."),
        text("author_id", "Salted hash of the author, or of the thread where the account is gone.", names="annotator"),
        text("forum", "The forum; `[user]` for a person's own page."),
        integer("year", "Year of the submission, UTC."),
        integer("words", "Words of title and text.", unit="words"),
        integer("comments", "First-level comments."),
        integer("best_votes", "The best comment's S = U - D."),
        integer("tied", "Options whose comments have as many votes as the best; 1 where people decided."),
        text("image_from", "Where its image comes from.", unit="direct, gallery, page, preview or text"),
        text("detector", "What said that the image is a score."),
        number("score_confidence", "How sure it was.", unit="0 to 1"),
        integer("staves", "Staves that it found."),
        text("kind", "Class of the detector's surest box; null in older versions.", optional=True),
        text("source", "The dump's name in the config.", names="source"),
    ),
    key=("question_id",),
    exclusive=("author_id",),
    says=("from {forum}, {year}: {comments} comments, the best with {best_votes} votes",),
)

REVIEWS = Table(
    name="reviews",
    description="One row a reviewer's word on a question, also on those that left the set for it.",
    schema=columns(
        text("question_id", "The question.", names="question"),
        text("reviewer", "Who looked at it, as the review files name them.", names="annotator"),
        flag("musically_correct", "Whether the right option is right."),
        flag("options_relevant", "Whether all options belong to the question."),
        flag("offensive", "Whether anything in it offends."),
        flag("ambiguous", "Whether more than one option can be right."),
        flag("flagged", "Whether that speaks for leaving it out."),
        text("note", "The reviewer's words.", optional=True),
        flag("applies", "Whether it was given on the question as it reads now."),
        text("file", "The review file."),
        integer("line", "Line, or task, in it, counted from 1.", unit="line"),
        text("source", "The dump's name in the config.", names="source"),
    ),
    key=("question_id", "reviewer"),
    splits=False,
    optional=True,
    says=(
        "{reviewer}: correct {musically_correct}, relevant {options_relevant}, offensive {offensive}, "
        "ambiguous {ambiguous}; counted: {applies}",
    ),
)

TRANSCRIPTS = Table(
    name="transcripts",
    description="One row an image that was brought in another form, for controls without the image.",
    schema=columns(
        text("question_id", "The question.", names="question"),
        text("split", "Split of the question."),
        text("image_sha256", "SHA-256 of the image's bytes.", names="clip"),
        text("form", "What it is.", unit="caption, abc or musicxml"),
        text("text", "The caption, or the notation."),
        text("source", "The dump's name in the config.", names="source"),
    ),
    key=("question_id", "form"),
    optional=True,
    says=("{form}",),
)

TABLES = (QUESTIONS, OPTIONS, SOURCES, REVIEWS, TRANSCRIPTS, REJECTS)

_STORY = Story(
    title="Score questions",
    summary=(
        "Multiple-choice questions about images of real scores, made from what people asked and answered in a forum, "
        "to measure what vision-language models read in music notation."
    ),
    method=(
        "Threads of a forum's dump are filtered by length, answers and images; names, links and addresses are taken "
        "out of their texts, and ids are salted hashes.",
        "Images are re-encoded; near-duplicates and images without staves are left out.",
        "A language model rewrites each thread as an exam question, with its best comment as the right option. Wrong "
        'options are written; where the config says `wrong = "comments"`, other comments are wrong options, too.',
        "The right option is that of the first-level comment with the most votes (ups minus downs). Where several "
        "have as many, a language model chooses among them, and the row says so.",
        "Where the config names a reader, it checks each option by itself, with the score: what could be right is no "
        "wrong option, and a comment is one only if it contradicts the right one.",
        "A language model adds up to three distractors of 5 to 10 words. What repeats another option, speaks of "
        "other options, or gives the right one away by its length is asked for again.",
        "Options are shuffled by seed, so that each letter is right equally often. Category, subcategory and "
        "difficulty are a language model's.",
        "Reviewers may flag questions; flagged ones are rejects of the next version.",
    ),
    main_table="questions",
    references=("WildScore: questions about real-world scores from ten years of forum threads, and their taxonomy.",),
    limits=(
        "What most people voted for is taken as right; it may not be.",
        "A thread's author keeps their rights in its text and image; the forum's terms hold.",
        "Texts are scrubbed by rules, which leave about one in twenty hard cases; a name without a sign may stay.",
        "Ids cannot be looked up; who holds the dump can still find a thread by its image, or by counts and words.",
        "A model named `builtin:` fills in forms and sees no score: for trying the pipeline.",
    ),
    tags=("music", "sheet-music", "multiple-choice", "visual-question-answering"),
    tasks=("visual-question-answering", "multiple-choice"),
    languages=("en",),
)

VIEWS = (
    View("exam", "sft", "score_questions/exam", "The question below its image; the right letter is the answer."),
    View("exam-rewarded", "grpo", "score_questions/exam", "The same; the right letter reaches the reward function."),
    View(
        "questions", "rows", "score_questions/exported", "Every question with its image, options and right letter.",
        writers=(
            ExportWriter(
                "wildscore", "earmark.tasks.score_questions.exports:write_data_csv", ".csv",
                "what reads WildScore's own layout: `data.csv` and `images/`", audio=True, whole="data.csv",
            ),
        ),
    ),
)  # fmt: skip

_SHOWN = ("question", "options", "score_image")
_GROUPS = ("category", "subcategory", "difficulty", "preference")

EVALUATIONS = (
    Evaluation(
        "questions", "choice", "score_questions/asked", "Which option is right? (WildScore, Prompts 1 and 2)",
        modes=(
            Mode("image", "score-question-answer-image", _SHOWN, says="With the score's image."),
            Mode("text", "score-question-answer-text", _SHOWN[:2], says="The words alone: a control."),
        ),
        groups=_GROUPS,
    ),
    *(
        Evaluation(
            form, "choice", "score_questions/transcribed", f"Which option is right, by {says} instead of the image?",
            modes=(
                Mode("text", "score-question-answer-transcript", (*_SHOWN[:2], "transcript"), says="With that text."),
                Mode("words", "score-question-answer-text", _SHOWN[:2], says="Their words alone."),
            ),
            groups=_GROUPS, params={"form": form}, beside=True,
        )
        for form, says in {"caption": "a caption", "abc": "ABC notation", "musicxml": "MusicXML"}.items()
    ),
)  # fmt: skip

CORPUS = Corpus(
    name="score-questions",
    source="forum dumps + score images",
    holds="multiple-choice questions with ground truth, distractors, taxonomy, difficulty",
    paper="WildScore",
    config=ScoreQuestions,
    tables=TABLES,
    story=_STORY,
    plan="earmark.tasks.score_questions.sources:plan_build",
    peeks="earmark.tasks.score_questions.sources:peeks",
    flow="earmark.flows.score_questions:build",
    report="earmark.tasks.score_questions.report:sections",
    hides_places=True,
    views=VIEWS,
    evaluations=EVALUATIONS,
)
