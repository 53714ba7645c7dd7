"""Declare views of a version's tables for trainers, in one shape for every export format.

A corpus author writes a query in `tasks/<corpus>/` and a line in the corpus's `views`:

    View("musicality", "preference", "pseudo_preferences/preferred_clips", "…", {"dimension": …})

The query sees each table of the version by its name, and the view's parameters as `$name`. It gives these columns,
text as VARCHAR, and audio as the clip's SHA-256 (never its bytes; the export finds and writes the file):

- every kind: `id` (unique), `split` (`'full'` for tables without splits).
- `preference`: `prompt`, and either the texts `chosen` and `rejected` or the clips `chosen_audio` and `rejected_audio`.
- `sft`: `prompt`, `completion`. A `preference` of texts serves for it too: the chosen text is the completion.
- `grpo`: `prompt`; the other columns reach the reward function. `sft` and `preference` of texts serve too.
- `rows`: anything; for plain JSON lines, WebDataset, and formats that the corpus adds.

`prompt` is a VARCHAR, or a VARCHAR[] of the pieces of text between which the clips of `audios` stand: one piece more
than there are clips. `audios` (VARCHAR[], optional) are the clips that the prompt lets the model hear; where `prompt`
is one VARCHAR, they come before it. `images` (VARCHAR[], optional) are the images that it shows, before all else.
`wording` (STRUCT, optional) names the `prompt` file that asks a judge the same, its `clips` in the order of `audios`,
and its other values. Own words of the version or the settings for that file become the row's prompt, and `system` their
system turn; exports do not hold the column `wording`.
Text from outside needs no cleaning: formats with markers such as `<audio>` defuse them. Every other column is an extra;
clips among the extras stand in columns named `audio` or `…_audio`, images in `image` or `…_image`. No column is named
`margin`, which trainers add to their loss: say `preference_margin`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
    says: str  # what reads it, one sentence
    audio: bool = False  # whether clips and images are written beside it as files. Otherwise they stay SHA-256s.
    whole: str = ""  # the name of the one file that holds all splits, where the format has no files by split
    # folders of these names hold its files, `<config>/<split><suffix>`, each a config of `datasets`
    configs: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """Rows for a trainer."""

    name: str  # as in `--view NAME`
    kind: Kind  # what a row is; decides which formats can hold it
    sql: str  # the query, `tasks/<sql>.sql`
    says: str  # one sentence for the list of views and for the export's README
    params: Mapping[str, str | int | float] = field(default_factory=dict)  # values of the query's `$name`
    writers: tuple[Writer, ...] = ()  # further formats
    # of a completion and its row, the reward and whether it is right; what `earmark eval rollouts` draws by
    reward: Callable[[str, Mapping[str, Any]], tuple[float, bool]] | None = None
