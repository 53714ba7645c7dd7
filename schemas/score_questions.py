"""Config and tables of `score-questions`: multiple-choice questions about scores, from forum threads (WildScore)."""

from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict

from pydantic import Field, model_validator

from earmark.schemas.annotation import DECIDES, AnnotatorConfig, Asked, Drawn
from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Beside, Corpus, Start, View, Workload, Writer, read_story
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.places import without_places
from earmark.schemas.tables import REJECTS, Column, Shares, Table, WholeFile
from earmark.schemas.toml import Flat, Model, Name, changed, only, without

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
"""Questions to a labeller, and the fields of its answers."""


_FILTER = {"adult": False, "longest_words": 200, "least_comments": 3}  # threads have 200 words at most, as in the paper
_IMAGES = {  # constants, as recorded configs hold them beside the folder
    "links": "refuse",
    "most": 4,
    "smallest_side": 64,
    "longest_side": 2048,
    "near_bits": 12,
    "hosts": ["i.redd.it", "preview.redd.it", "external-preview.redd.it", "i.imgur.com"],
    "per_second": 2.0,
    "timeout_s": 30.0,
    "largest_bytes": 20000000,
    "most_pixels": 50000000,
}


class DumpSource(Model):
    """The forum's dump."""

    name: Name = Field(default="reddit", description="The source, as `licences` and the tables name it.")
    submissions: tuple[str, ...] = Field(min_length=1, description="NDJSON files of submissions (RS), plain or `.zst`.")
    comments: tuple[str, ...] = Field(min_length=1, description="NDJSON files of comments (RC), plain or `.zst`.")
    subreddits: tuple[str, ...] = Field(default=(), description="Only these forums; without any, all.")
    years: tuple[Year, Year] = Field(default=(2012, 2022), description="First and last year, UTC.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.years[0] > self.years[1]:
            raise ValueError(f"expected years from first to last, found {self.years[0]}, {self.years[1]}")
        return self


class Detector(Model):
    """The detector of scores in images."""

    model: str = Field(
        default="staff-lines",
        description="`staff-lines`, or a detection model: a folder or Hub name for transformers, or YOLO's `.onnx`.",
    )
    classes: tuple[str, ...] = Field(
        default=(), description="Classes of that model that count as a score; without any, all that it knows."
    )
    least: float = Field(default=0.5, ge=0, le=1, description="Score from which an image counts as a score.")

    @model_validator(mode="before")
    @classmethod
    def _without_drawings(cls, values: Any) -> Any:
        """Drop `drawings` of configs for 1.0.0: builds measure no detector since."""
        return (
            {name: value for name, value in values.items() if name != "drawings"}
            if isinstance(values, dict)
            else values
        )

    @model_validator(mode="after")
    def _has_classes(self) -> Self:
        if self.classes and self.model == "staff-lines":
            raise ValueError("classes are those of a detection model: expected none with model = 'staff-lines'")
        return self


class Questions(Model):
    """Parts of a question."""

    comments: int = Field(default=6, ge=2, le=20, description="Best comments that the writer sees.")
    wrong: Literal["written", "comments"] = Field(
        default="written",
        description="Where wrong options come from: `written` as in the paper; `comments` lets other comments in, of "
        "which the reader says that they contradict the right one.",
    )


class QuestionWriter(Drawn):
    """The writer of questions and distractors."""

    tries: ClassVar[int] = 3  # draws of a text until it passes its checks
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    max_tokens: int = Field(default=800, ge=1)


class CommentJudge(Asked):
    """The judge between comments of the same score."""

    max_tokens: int = Field(default=16, ge=1)
    sees_image: bool = Field(default=True, description="Whether the judge gets the image too.")


class Labeller(Asked):
    """The labeller of a question's category, subcategory and difficulty."""

    tries: ClassVar[int] = 3  # as the writer's
    max_tokens: int = Field(default=200, ge=1)


class Reader(Asked):
    """The reader of every option: could it be right? Best another model than the writer."""

    max_tokens: int = Field(default=16, ge=1)
    sees_image: bool = Field(default=True, description="Whether the reader gets the image too.")


class ScoreQuestions(BuildConfig):
    """Build config of `score-questions`."""

    were_tables = {  # noqa: RUF012
        **{key: Flat(key, lambda table: table.get("examples"), lambda file: {"examples": file}) for key in LABELLED},
        "filter": Flat("languages", lambda table: table.get("languages"), lambda own: {"languages": own, **_FILTER}),
        "images": Flat("images", lambda table: table.get("folder"), lambda folder: {"folder": folder, **_IMAGES}),
        "review": Flat("review", lambda table: table.get("files"), lambda files: {"files": files, "flagged_by": "any"}),
    }
    corpus: Literal["score-questions"] = "score-questions"
    source: DumpSource
    languages: tuple[Annotated[str, Field(pattern="^[a-z]{2}$")], ...] = Field(
        default=(), description="Only threads in these languages, by ISO 639-1 (`en`); without any, all."
    )
    images: str | None = Field(
        default=None,
        description="Folder with `<submission>.png`, `<submission>_2.png` or `<submission>/…`; else downloaded from "
        "the hosts of Reddit and Imgur.",
    )
    detector: Detector = Detector()
    questions: Questions = Questions()
    writer: QuestionWriter
    judge: CommentJudge
    labeller: Labeller
    reader: Reader | None = Field(
        default=None, description="Checks every option; wrong ones that could be right leave. Without it, nobody does."
    )
    taxonomy: str | None = Field(
        default=None,
        description="JSON Lines of your experts: `question`, `category` and `subcategory`; without it, the prompt's "
        "own words.",
    )
    difficulty: str | None = Field(
        default=None, description="JSON Lines of your experts: `question` and `difficulty`; without it, the same."
    )
    review: tuple[str, ...] = Field(
        default=(),
        description="Reviews, of which one that flags a question leaves it out: CSV files, or Label Studio's JSON "
        "exports; see `earmark people review`.",
    )
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
        """Return the forum's name for the files of its dump; others are their own."""
        return self.source.name if file.startswith(f"{self.source.name}/") else file

    def asked(self) -> dict[str, AnnotatorConfig]:
        asked: dict[str, AnnotatorConfig] = {"writer": self.writer, "judge": self.judge, "labeller": self.labeller}
        return {**asked, **({"reader": self.reader} if self.reader else {})}

    def examples(self) -> dict[str, str | None]:
        """Return the files of labelled questions, as the config writes them, by what they label."""
        return {"taxonomy": self.taxonomy, "difficulty": self.difficulty}

    def identity(self) -> dict[str, Any]:
        # digests of the salt, now a constant, and of the files of labelled questions stand among the inputs
        values = without(super().identity(), "source.salt_env", "transcripts", *LABELLED)
        values = without(values, *(f"images.{name}" for name in ("folder", "links", "per_second", "timeout_s")))
        for path in ("source.submissions", "source.comments", "review.files", "detector.model"):
            values = changed(values, path, without_places)
        for name in self.asked():
            extra = ("sees_image",) if "sees_image" in values[name] else ()
            values = changed(values, name, only(*DECIDES, *extra))
        return values


class ScoreQuestion(TypedDict):
    """One row a multiple-choice question about a score, with the image."""

    question_id: Annotated[
        str, Column("Sixteen hexadecimal digits: the thread's salted hash.", names="question", role="is")
    ]
    split: Annotated[str, "Split of the thread's author."]
    question: Annotated[str, "The question, as the writer put it."]
    options: Annotated[list[str], "The options, in the order of their letters A, B, …"]
    truth_letter: Annotated[str, "Letter of the right option."]
    preference: Annotated[
        str,
        Column("Who decided which option is right.", unit="human or language_model", source="WildScore, ground truth"),
    ]
    category: Annotated[str, Column("One of five.", source="WildScore, taxonomy")]
    subcategory: Annotated[str, Column("One of twelve.", source="WildScore, taxonomy")]
    difficulty: Annotated[str, Column("How hard it is.", unit="easy, medium or hard")]
    image_sha256: Annotated[str, Column("SHA-256 of the image's bytes.", names="clip", role="is")]
    width: Annotated[int, Column("Width of the image.", unit="pixels")]
    height: Annotated[int, Column("Height of the image.", unit="pixels")]
    image: Annotated[WholeFile | None, Column("The score, re-encoded and without metadata.", feature="Image")]
    content_sha256: Annotated[str, "SHA-256 of question, options and image; reviews name it."]
    writer: Annotated[str, Column("Who wrote question and distractors.", names="annotator")]
    judge: Annotated[str | None, Column("Who settled a tie; null where people decided.", names="annotator")]
    labeller: Annotated[str, Column("Who told category and difficulty.", names="annotator")]
    request_key: Annotated[str, "Key in the ledger of the request that wrote the question."]
    source: Annotated[str, Column("The dump's name in the config.", names="source")]
    language: Annotated[
        str | None, Column("Language of the question; null where it has none, and in older versions.", unit="ISO 639-1")
    ]


class QuestionOption(TypedDict):
    """One row an option of a question."""

    question_id: Annotated[str, Column("The question.", names="question")]
    letter: Annotated[str, "Its letter."]
    split: Annotated[str, "Split of the question."]
    text: Annotated[str, "The option."]
    correct: Annotated[bool, "Whether it is the right one."]
    origin: Annotated[str, Column("Where it comes from.", unit="comment or distractor")]
    comment_id: Annotated[str | None, "Salted hash of the comment; null for a distractor."]
    votes: Annotated[
        int | None, Column("The comment's S = U - D; null for a distractor.", source="WildScore, ground truth")
    ]
    words: Annotated[int, Column("Its length.", unit="words")]
    may_be_right: Annotated[bool | None, "Whether the reader says that it could be right; null without a reader."]


class QuestionThread(TypedDict):
    """One row a thread that a question was made from, without names."""

    question_id: Annotated[str, Column("The question: the thread's salted hash.", names="question", role="is")]
    split: Annotated[str, "Split of its author."]
    author_id: Annotated[
        str, Column("Salted hash of the author, or of the thread where the account is gone.", names="annotator")
    ]
    forum: Annotated[str, "The forum; `[user]` for a person's own page."]
    year: Annotated[int, "Year of the submission, UTC."]
    words: Annotated[int, Column("Words of title and text.", unit="words")]
    comments: Annotated[int, "First-level comments."]
    best_votes: Annotated[int, "The best comment's S = U - D."]
    tied: Annotated[int, "Options whose comments have as many votes as the best; 1 where people decided."]
    tied_options: Annotated[
        list[str] | None,
        Column(
            "Those options, as a judge chose from them by letter; empty where people decided, null in older versions.",
            source="WildScore, ground truth",
        ),
    ]
    image_from: Annotated[
        str, Column("Where its image comes from.", unit="direct, gallery, page, preview, text or folder")
    ]
    detector: Annotated[str, "What said that the image is a score."]
    score_confidence: Annotated[float, Column("How sure it was.", unit="0 to 1")]
    staves: Annotated[int, "Staves that it found."]
    kind: Annotated[str | None, "Class of the detector's surest box; null in older versions."]
    source: Annotated[str, Column("The dump's name in the config.", names="source")]


class QuestionReview(TypedDict):
    """One row a reviewer's word on a question, also on those that left the set for it."""

    question_id: Annotated[str, Column("The question.", names="question")]
    reviewer: Annotated[str, Column("Who looked at it, as the review files name them.", names="annotator")]
    musically_correct: Annotated[bool, "Whether the right option is right."]
    options_relevant: Annotated[bool, "Whether all options belong to the question."]
    offensive: Annotated[bool, "Whether anything in it offends."]
    ambiguous: Annotated[bool, "Whether more than one option can be right."]
    flagged: Annotated[bool, "Whether that speaks for leaving it out."]
    note: Annotated[str | None, "The reviewer's words."]
    applies: Annotated[bool, "Whether it was given on the question as it reads now."]
    file: Annotated[str, "The review file."]
    line: Annotated[int, Column("Line, or task, in it, counted from 1.", unit="line")]
    source: Annotated[str, Column("The dump's name in the config.", names="source")]


class ScoreTranscript(TypedDict):
    """One row an image that was brought in another form, for controls without the image."""

    question_id: Annotated[str, Column("The question.", names="question")]
    split: Annotated[str, "Split of the question."]
    image_sha256: Annotated[str, Column("SHA-256 of the image's bytes.", names="clip")]
    form: Annotated[str, Column("What it is.", unit="caption, abc or musicxml")]
    text: Annotated[str, "The caption, or the notation."]
    source: Annotated[str, Column("The dump's name in the config.", names="source")]


QUESTIONS = Table(
    "questions",
    row=ScoreQuestion,
    key=("question_id",),
    exclusive=("image_sha256",),
    says=(
        "written by {writer}, request {request_key}",
        "{truth_letter} is right by {preference} preference; {category}, {subcategory}, {difficulty}",
    ),
    rows_per_group=5_000,
)
OPTIONS = Table(
    "options",
    row=QuestionOption,
    key=("question_id", "letter"),
    says=("{letter}: {text} ({origin}, {votes} votes); right: {correct}",),
)
SOURCES = Table(
    "sources",
    row=QuestionThread,
    key=("question_id",),
    exclusive=("author_id",),
    says=("from {forum}, {year}: {comments} comments, the best with {best_votes} votes",),
)
REVIEWS = Table(
    "reviews",
    row=QuestionReview,
    key=("question_id", "reviewer"),
    splits=False,
    optional=True,
    says=(
        "{reviewer}: correct {musically_correct}, relevant {options_relevant}, offensive {offensive}, "
        "ambiguous {ambiguous}; counted: {applies}",
    ),
)
TRANSCRIPTS = Table("transcripts", row=ScoreTranscript, key=("question_id", "form"), optional=True, says=("{form}",))

TABLES = (QUESTIONS, OPTIONS, SOURCES, REVIEWS, TRANSCRIPTS, REJECTS)

VIEWS = (
    View("exam", "sft", "score_questions/exam", "The question below its image; the right letter is the answer."),
    View("exam-rewarded", "grpo", "score_questions/exam", "The same; the right letter reaches the reward function."),
    View(
        "questions", "rows", "score_questions/exported", "Every question with its image, options and right letter.",
        writers=(
            Writer(
                "wildscore", "earmark.tasks.score_questions.released:write", ".csv",
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

_START = Start(
    ("reddit",),
    """
# images = "images"   # their folder, by submission; without it, they are downloaded

[source]
name = {name}
submissions = [{file}]
comments = [{beside}]   # the file whose name is most alike, check it
subreddits = {forums}   # the most frequent of its first rows, check it; without any, all

[questions]
wrong = "comments"   # `builtin:` writes poor wrong options; left out: a model writes them, as in the paper
""",
    ("writer", "judge", "labeller", "reader"),
    Beside("comments", "^RC|comment", "that begins with RC or has 'comment' in its name", "a dump's submissions"),
)

CORPUS = Corpus(
    name="score-questions",
    source="forum dumps + score images",
    holds="multiple-choice questions with ground truth, distractors, taxonomy, difficulty",
    paper="WildScore",
    config=ScoreQuestions,
    tables=TABLES,
    story=read_story("score_questions"),
    plan="earmark.tasks.score_questions.sources:plan_build",
    inputs="earmark.tasks.score_questions.sources:inputs",
    flow="earmark.flows.score_questions:build",
    schedule="0 7 * * *",
    start=_START,
    scale=(Workload("4,000 images, five stages", 4_000, requests=5, text_in=1_500, text_out=200),),
    report="earmark.tasks.score_questions.report:sections",
    hides_places=True,
    views=VIEWS,
    evaluations=EVALUATIONS,
    layouts={"wildscore": "earmark.tasks.score_questions.released:read"},
)
