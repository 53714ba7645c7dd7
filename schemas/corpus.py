"""Declare a corpus for the command line and the card, without running it."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from earmark.schemas.config import BuildConfig
from earmark.schemas.evaluations import Evaluation, Generation
from earmark.schemas.tables import Table

Kind = Literal["preference", "sft", "grpo", "rows"]

REQUIRED: dict[Kind, tuple[str, ...]] = {
    "preference": ("id", "split", "prompt"),
    "sft": ("id", "split", "prompt", "completion"),
    "grpo": ("id", "split", "prompt"),
    "rows": ("id", "split"),
}
ANSWERS = (("chosen", "rejected"), ("chosen_audio", "rejected_audio"))  # of a preference: texts, or clips
FORBIDDEN = ("margin",)


def names_clip(column: str) -> bool:
    """Return whether a view's column of that name holds clips."""
    return column == "audio" or column.endswith("_audio")


def names_file(column: str) -> bool:
    """Return whether a view's column of that name holds clips or images; an export writes both alike."""
    return names_clip(column) or column == "image" or column.endswith("_image")


@dataclass(frozen=True)
class Writer:
    """An export format that one corpus adds for one of its views."""

    format: str  # as in `--for FORMAT`
    # `module:function(batches: Iterator[pa.RecordBatch], path: Path) -> None`. It writes one split's rows; clips are
    # paths relative to `path`'s folder by then, where it is to write one file.
    function: str
    suffix: str  # the file's ending, such as `.json`; the file is `<split><suffix>`
    says: str  # what reads it, in a few words without a full stop: "Read by …", as the export's README says
    audio: bool = False  # whether clips and images are written beside it as files. Otherwise they stay SHA-256s.
    whole: str = ""  # the name of the one file that holds all splits, where the format has no files by split
    # folders of these names hold its files; where these are `<config>/<split><suffix>`, each is a config of `datasets`
    configs: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """Rows for a trainer.

    A corpus author writes a query in `tasks/<corpus>/` and a line in the corpus's `views`:

        View("musicality", "preference", "pseudo_preferences/preferred_clips", "…", {"dimension": …})

    The query sees each table of the version by its name, and the view's parameters as `$name`. It gives these columns,
    text as VARCHAR, and audio as the clip's SHA-256 (never its bytes; the export finds and writes the file):

    - every kind: `id` (unique), `split` (`'full'` for tables without splits).
    - `preference`: `prompt`, and either the texts `chosen` and `rejected` or the clips `chosen_audio` and
      `rejected_audio`.
    - `sft`: `prompt`, `completion`. A `preference` of texts serves for it too: the chosen text is the completion.
    - `grpo`: `prompt`; the other columns reach the reward function. `sft` and `preference` of texts serve too.
    - `rows`: anything; for plain JSON lines, WebDataset, and formats that the corpus adds.

    `prompt` is a VARCHAR, or a VARCHAR[] of the pieces of text between which the clips of `audios` stand: one piece
    more than there are clips; of a `preference` of clips two more, if each stands in its own prompt, before the last
    piece. `audios` (VARCHAR[], optional) are the clips that the prompt lets the model hear; where
    `prompt` is one VARCHAR, they come before it. `images` (VARCHAR[], optional) are the images that it shows, before
    all else. `wording` (STRUCT, optional) names the `prompt` file that asks a judge the same, its `clips` in the order
    of `audios`, and its other values. Own words of the version or the settings for that file become the row's prompt,
    and `system` their system turn; exports do not hold the column `wording`. Text from outside needs no cleaning:
    formats with markers such as `<audio>` defuse them. Every other column is an extra; clips among the extras stand in
    columns named `audio` or `…_audio`, images in `image` or `…_image`. No column is named `margin`, which trainers add
    to their loss: say `preference_margin`.
    """

    name: str  # as in `--view NAME`
    kind: Kind  # what a row is; decides which formats can hold it
    sql: str  # the query, `tasks/<sql>.sql`
    says: str  # one sentence for the list of views and for the export's README
    params: Mapping[str, str | int | float | list[str]] = field(default_factory=dict)  # values of the query's `$name`
    writers: tuple[Writer, ...] = ()  # further formats
    # of a completion and its row, the reward and whether it is right; what `earmark eval rollouts` draws by
    reward: Callable[[str, Mapping[str, Any]], tuple[float, bool]] | None = None


@dataclass(frozen=True)
class Story:
    """The corpus's own words on the dataset card."""

    title: str  # the card's heading
    summary: str  # one paragraph: what it is and what it is for
    method: tuple[str, ...]  # how it is made, a sentence a step
    main_table: str  # the table that `load_dataset` gives when none is named
    references: tuple[str, ...]  # the papers whose method it follows, one a line
    limits: tuple[str, ...]  # what a user must not conclude
    tags: tuple[str, ...] = ()  # words for the Hub
    tasks: tuple[str, ...] = ()  # what it trains or measures, in the Hub's words (`schemas/hub_vocabulary.json`)
    # the origin of its labels and texts beside asked models, in the Hub's words: `crowdsourced` or `found`
    annotations: tuple[str, ...] = ()
    # that its own prompts ask for, as ISO 639-1 codes; none where texts are as the inputs have them
    languages: tuple[str, ...] = ()


def read_story(corpus: str) -> Story:
    """Read the story of a corpus of ours from `stories/`."""
    values = tomllib.loads((Path(__file__).parent / f"stories/{corpus}.toml").read_text("utf-8"))
    told: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
    return Story(**told)


@dataclass(frozen=True)
class Beside:
    """A config's second file, found beside the first."""

    option: str  # of the file
    pattern: str  # a regular expression of its name, of any case
    words: str  # the pattern in words, after "expected one"
    first: str  # the first file, after "--from names"


@dataclass(frozen=True)
class Start:
    """The config that `earmark init` writes for a file."""

    layouts: str | tuple[str, ...]  # the registry of its layouts, or their names
    # TOML of the file, with values in braces: `name`, `format`, `file`, `folder`, `base` (the file's name), `beside`,
    # `audio` ("index" if a clip of the first rows lies beside it), `domain`, `subset`, `language`, `forums`
    text: str
    demo: tuple[str, ...] = ()  # tables that follow, as the demo has them
    beside: Beside | None = None


@dataclass(frozen=True)
class Workload:
    """Work on a corpus, or a part of it, at the size of its paper, for the plan in `deploy/SCALE.md`."""

    size: str  # the paper's, in words
    items: int  # how many of them
    requests: float = 0.0  # that a model gets for an item, without retries
    heard_s: float = 0.0  # seconds of audio in a request
    text_in: int = 0  # tokens of text in a request
    text_out: int = 0  # tokens of an answer
    audio_s: float = 0.0  # seconds of audio of an item that the store measures or keeps
    separated: bool = False  # whether the voice is taken out of it
    bytes_s: float | None = None  # of a second of the audio; None: as assumed for FLAC
    built: str = "all"  # how much of it was built on one machine, with servers of ours in place of models
    part: str = ""  # of the corpus


@dataclass(frozen=True)
class Corpus:
    """One corpus."""

    name: str  # as in `earmark build NAME`
    source: str  # what it is made from, in a few words
    holds: str  # what it holds, in a few words
    paper: str  # whose method it follows
    config: type[BuildConfig]  # the model of its build config
    tables: tuple[Table, ...]  # every table of a version, in the order of the card
    story: Story  # the card's words
    plan: str  # `module:function` that plans a build; imports no Prefect, so that "up to date" is said at once
    flow: str  # `module:flow` that builds it
    schedule: str = "0 3 * * *"  # when its deployment builds it: a cron expression, in UTC
    scale: tuple[Workload, ...] = ()  # what the plan of scale counts
    # how `earmark init` writes a config for a file; `earmark init NAME --from FILE` reads the file by the inputs
    start: Start | None = None
    # `module:function(config)` that yields the inputs of a build; `tasks/pipeline/inputs.py` tells how to write one
    inputs: str | None = None
    # `module:function` that writes the counted tables anew where rows were withdrawn; `recompute` in
    # `tasks/store/commit.py` tells how to write one. None where no table is counted from others.
    recount: str | None = None
    # `module:function` that gives the card's own sections from the tables alone, for a version of which rows were
    # withdrawn; None where they speak of more than the tables
    card: str | None = None
    # `module:function` that gives the report's own sections; `tasks/pipeline/report.py` tells how to write one
    report: str | None = None
    # `module:function(stage, config) -> lines` that says what a dry run shows of the corpus beside steps and tables
    preview: str | None = None
    # whether the file and line of a reject lead to a person: versions then name its source alone, and the store keeps
    # the rest for `earmark inspect explain`
    hides_places: bool = False
    views: tuple[
        View, ...
    ] = ()  # what `earmark export` gives to trainers; `schemas/corpus.py` tells how to declare one
    # what `earmark eval run` measures models with; `schemas/evaluations.py` tells how to declare one
    evaluations: tuple[Evaluation, ...] = ()
    # published benchmark files that the evaluations measure as they are, `earmark eval run FILE --layout NAME`:
    # `module:function(path, folder for embedded audio) -> rows by table`, where `file` in a row names a clip
    layouts: Mapping[str, str] = field(default_factory=dict)
    # the query `tasks/<ranked>.sql` of `earmark eval rank`, a row a vote between two systems: `board` (what is
    # ranked on its own), `modality`, `system_a`, `system_b`, `preference` (a, b or tie) and `cluster`, such as the
    # prompt. None where the corpus compares no systems.
    ranked: str | None = None
    # the prompts that `earmark eval score` measures submissions on; None where there are none
    generation: Generation | None = None
