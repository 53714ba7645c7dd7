"""Declare evaluations of a version: samples with known answers, the ways to ask a model, and the counts.

A corpus author writes a query in `tasks/<corpus>/` and a few lines in the corpus's `evaluations`:

    Evaluation(
        "alignment", "yes_no", "instruction_rubrics/samples", "Does the caption fit the clip?",
        modes=(
            Mode("holistic", "judge-holistic-{language}", shows=("caption", "clip=audio")),
            Mode("rubric", "judge-item-{language}", shows=("item", "clip=audio"), items="items"),
        ),
        groups=("subset", "language"),
    )

`earmark eval run` runs any annotator over it, or reads a file of scores, and prints one table with all groups.

The query sees each table of the version by its name, and the evaluation's parameters as `$name`. It gives one row a
sample with these columns, text as VARCHAR:

- `id`: unique. `split`: the row's, or `'full'`. Where there is a split test or ood, only these are asked by default.
- `target`, what is true, never null:
    - `yes_no`: BOOLEAN, whether the sample is right (aligned, present).
    - `preference`: one of the evaluation's `sides` (`'a'`, `'b'`), or `'tie'`, as the published table names the clips.
      Files of scores mean the same clips.
    - `scalar`: DOUBLE, a mean opinion score.
    - `choice`: the letter of the right option.
- what a mode shows, and what tables group by. A group may be null: its row is in no group of that column
  then; one that is a list has its row in each of its groups.
- `language` (optional): `--language` chooses by it, and `{language}` in a prompt's name stands for it.
- `swapped` (optional): BOOLEAN, of a preference; whether a model is shown the second side first. Draw it from a hash of
  the id where the published order tells which clip is better. Only the asking knows of it: answers are turned back.
- `cluster` (optional): rows with the same value, such as pairs of one prompt, count as dependent in intervals.

Columns named `audio` or `…_audio` hold a clip's SHA-256, those named `image` or `…_image` an embedded image
(bytes and path). A prompt places them with `audio(clip)` and `image(page)`, and so cannot call them `audio` or `image`.
Null is a missing one. All other text is untrusted in prompts, as ever.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import ChosenPrompts, Declaring, OwnPrompts, placed_prompts, respelled_asks
from earmark.schemas.toml import Model

Blind = Literal["audio", "text"]


class ClipForm(Model):
    """Form of audio sent to an evaluated model or a scorer."""

    sample_rate_hz: int = Field(default=16_000, ge=8_000, le=192_000, description="Samples a second.")
    channels: Literal[1, 2] = Field(default=1, description="1 mixes down.")
    codec: Literal["wav", "flac"] = Field(default="wav", description="How clips are sent.")
    longest_s: float | None = Field(default=None, gt=0, description="What lies beyond is cut.")


class Examinee(Declaring, AnnotatorConfig):
    """The annotator of `earmark eval run`."""

    hearing: ClipForm = ClipForm()
    yes_no: Literal["probabilities", "words"] = Field(
        default="probabilities",
        description="Yes against no, and a rating's digits, by log-probabilities; by the word alone where a backend "
        "offers none.",
    )
    asks: OwnPrompts = Field(
        default={},
        description="Prompts of your own, or versions of the package's, by its name, before those that the version was "
        "built with.",
    )

    @classmethod
    def respelled(cls, values: dict[str, Any]) -> dict[str, Any]:
        return respelled_asks(values)

    def own_prompts(self) -> ChosenPrompts:
        """Return the prompt files, versions and set of `asks`."""
        return placed_prompts(self.asks, Path)


class Policy(Examinee):
    """Whose completions `earmark eval rollouts` draws: as it samples in training, and with the faults that it makes."""

    temperature: float | None = Field(default=1.0, gt=0, le=2, description="As in training; above 0.")
    repairs: int = Field(default=0, ge=0, le=0, description="A completion that cannot be used is a wrong one.")


class ClipWindows(Model):
    """Pieces of equal length that a scorer gets of a clip; their scores are averaged."""

    samples: int = Field(ge=1, description="Length of a window, in samples of the rate that the scorer gets.")
    hop: int | None = Field(default=None, ge=1, description="Samples from window to window. Default: its length.")
    short: Literal["repeat", "zeros"] = Field(
        default="repeat", description="What fills a clip that is shorter than a window: itself again, or silence."
    )


class Scorer(Declaring, AnnotatorConfig):
    """A scorer of clips for `--scorer`: a callable, an ONNX file, a server or a command."""

    version: str | None = Field(
        default=None,
        pattern=r"^[!-~]{1,80}$",
        description="Of a callable, server or command: another one scores anew. An ONNX file has its digest instead.",
    )
    command: tuple[str, ...] = Field(
        default=(), description="Of a command: program and arguments; two files follow, of clips and of scores."
    )
    takes: tuple[Literal["text", "lyrics", "reference"], ...] = Field(
        default=(), description="What it gets beside the clip: the prompt, the lyrics, the reference clip."
    )
    windows: ClipWindows | None = Field(default=None, description="ClipWindows of a callable or ONNX file.")
    dimensions: dict[str, str] = Field(
        default={},
        description="The score that stands for a corpus's dimension, by the dimension. Default: the score of its name, "
        "or the only score.",
    )
    scores: tuple[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")], ...] = Field(
        min_length=1, description="The names of the numbers that it gives."
    )
    lower: tuple[str, ...] = Field(default=(), description="Those of which less is better.")
    ranked: tuple[str, ...] = Field(default=(), description="Those that count in the Borda ranks; by default none.")
    hearing: ClipForm = Field(default=ClipForm(), description="The form in which it gets clips.")
    repairs: int = Field(default=0, ge=0, le=0, description="It would give the same numbers again.")
    inline_batch: int = Field(default=1, ge=1, description="Clips that are scored before the first is kept.")

    @property
    def model(self) -> str:
        """Return the text after `scorer:`."""
        return self.annotator.partition(":")[2]

    @property
    def form(self) -> Literal["callable", "onnx", "server", "command"]:
        """Return its form."""
        if self.base_url is not None:
            return "server"
        if self.command:
            return "command"
        return "onnx" if self.model.endswith(".onnx") else "callable"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.annotator.startswith("scorer:"):
            raise ValueError(f"expected an annotator that begins with scorer:, found '{self.annotator}'")
        if self.form == "callable" and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", self.model):
            raise ValueError(
                "expected scorer:package.module:callable, scorer:FILE.onnx, or scorer:NAME with base_url or command, "
                f"found '{self.annotator}'"
            )
        if (self.version is None) != (self.form == "onnx"):
            wrong = "an ONNX file goes by its digest: leave version out" if self.version else "version is missing"
            raise ValueError(f"{wrong} ('{self.annotator}')")
        if self.form != "server" and self.extra_body:
            raise ValueError("extra_body goes to servers; give a callable of your own what it needs")
        if self.form != "server" and self.hearing.channels != 1:
            raise ValueError("hearing.channels: a callable, ONNX file or command gets one channel")
        if self.form == "server" and self.command:
            raise ValueError("base_url and command: a scorer is a server or a command, not both")
        if self.form in ("server", "command") and self.windows is not None:
            raise ValueError("windows: a server or command gets whole clips, and cuts them itself")
        if self.form == "onnx" and self.takes:
            raise ValueError("takes: an ONNX file gets the clip alone")
        if odd := {*self.dimensions.values()} - {*self.scores}:
            raise ValueError(f"dimensions: '{min(odd)}' is none of its scores")
        if taken := {*self.scores} & {"fad", "clap", "ccs", "system", "scores"}:
            raise ValueError(f"scores: '{min(taken)}' is a word of `earmark eval score` itself; name it otherwise")
        if len({*self.scores}) < len(self.scores) or not {*self.lower, *self.ranked} <= {*self.scores}:
            raise ValueError("scores: expected each name once, and those of lower and ranked among them")
        return self


def names_image(column: str) -> bool:
    """Return whether an evaluation's column of that name holds pictures."""
    return column == "image" or column.endswith("_image")


@dataclass(frozen=True)
class Mode:
    """One way to ask a model."""

    name: str  # as in `--mode NAME`, such as `holistic` or `rubric`
    prompt: str  # the prompt file, without `.md`; `{language}` stands for the row's language
    # columns that the prompt gets, under their names, or under others as `"clip=audio"`; nothing else of a row reaches
    # a model. `"item"` stands for each member of `items`.
    shows: tuple[str, ...]
    # how the model answers; without it, as the evaluation's kind says. A `scalar` evaluation may be asked with
    # `yes_no`: the probability of yes is then the score.
    # - `yes_no`: Yes or No; its probability from log-probabilities where the backend offers them, else 1 and 0.
    # - `preference`: `A`, `B` or `tie`. The reverse order swaps what the prompt gets as a and b, or as `a_audio` and
    #   `b_audio`, `a_text` and `b_text`, …, or as first and second.
    # - `scores`: of a preference, text that ends with `Final Scores: [[x, y]]` (read as
    #   `schemas/critiques.py` says); the higher is preferred.
    # - `scalar`: a number, of the scale's digits by their log-probabilities, or in JSON.
    # - `choice`: a letter of `options`.
    answer: str | None = None
    json_field: str | None = None  # of a JSON object, the field that holds the answer; without it, a word is asked for
    # a column of lists (VARCHAR[], or STRUCT(id VARCHAR, text VARCHAR)[]); each member is asked in a request of its
    # own, which the prompt gets as `item`. A sample is yes if every item is (`schemas/rubric_rewards.py`); its score is
    # the mean over its items; one with an item that has no answer has none.
    items: str | None = None
    # whether all items are asked in one request, which the prompt gets as `items` (`id` from 1, `question`); the answer
    # is a JSON array of `id` and `answer` (yes, no)
    together: bool = False
    # of a preference that is asked by `scalar`, the prompt's name of a clip: `a_audio` and `b_audio` are rated by
    # themselves, and the higher is preferred
    each: str | None = None
    ties: bool = True  # whether a preference may be answered with tie, where it is asked by a word
    scale: tuple[int, int] = (1, 5)  # the digits of a `scalar` that is asked by a word
    options: str = "options"  # the column (VARCHAR[]) with the options of a `choice`, lettered from A
    # values for `builtin:` annotators, besides the texts that are shown
    facts: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""  # one sentence for the list of evaluations

    @property
    def shown(self) -> dict[str, str]:
        """The prompt's names of what it gets, and the columns that hold it; without `item`."""
        named = [name.partition("=") for name in self.shows if name != "item"]
        return {name: column or name for name, _, column in named}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a model is shown something of."""
        extra = [*([self.items] if self.items else ()), *(("a_audio", "b_audio") if self.each else ())]
        return tuple(dict.fromkeys([*self.shown.values(), *extra]))


@dataclass(frozen=True)
class Evaluation:
    """Samples with known answers."""

    name: str  # as in `--evaluation NAME`
    kind: str  # what is asked of a sample (`tasks/evaluation/kinds.py`); decides `target` and the metrics
    sql: str  # the query, `tasks/<sql>.sql`
    says: str  # one sentence for the list of evaluations and the head of the table
    # ways to ask a model; the first is the default. None where only files of scores are read.
    modes: tuple[Mode, ...] = ()
    # columns that the table has a block of rows for, besides the row over all. The first is the paper's; the mean over
    # its groups is given too. `"a+b"` groups by both columns together.
    groups: tuple[str, ...] = ()
    # of a preference, what the two clips are called in `target` and in files of scores (`score_a`, `score_b`)
    sides: tuple[str, str] = ("a", "b")
    order: str = ""  # of a preference, the published columns that name those clips, for who writes a file of scores
    # of a preference or scalar, the table of its clips and the column with their ids, beside which `file` and
    # `clip_sha256` name them too. The query then gives the ids, as `a_clip` and `b_clip`, or as `clip`; scores of clips
    # are read by them.
    clips: tuple[str, str] | None = None
    params: Mapping[str, str | int | float] = field(default_factory=dict)  # values of the query's `$name`
    # of a preference, the column whose three rows are the pairs of three clips; cycles are counted
    triplets: str | None = None
    beside: bool = False  # whether it is asked only where it is named, so that the others need not be
    claims: bool = False  # every row has the same label, which the table claims: people and judges audit it
    asks: str = ""  # what the page of an audit asks people about a row; empty for the kind's own question

    @property
    def dimension(self) -> str:
        """Return the rated dimension: its column in a file with several scores a clip."""
        return str(self.params.get("dimension", self.name))


@dataclass(frozen=True)
class Generation:
    """Prompts that systems generate audio for, and what a judge listens for: what `earmark eval score` measures."""

    table: str  # the table of prompts
    key: str  # the column with a prompt's id: a submission's file has it for a name
    text: str  # the column with the prompt
    concepts: tuple[Mode, ...]  # a question a concept, whose prompt answers Yes or No; `audio` is the clip
    # `module:function(version)` that gives the prompt of each question, by the prompt's id and the concept
    asked_by: str
    groups: tuple[str, ...] = ()  # columns that the results have rows for, besides the row over all
    ranked: str = "all"  # the group whose figures rank systems, as `column: value`; without such prompts, all
