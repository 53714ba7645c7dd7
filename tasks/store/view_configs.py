"""Describe a publication's views on its card and in its manifest; a pulled version is restored without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from earmark.tasks.store.card import content_mark, split_order
from earmark.tasks.store.files import write_text
from earmark.tasks.store.manifest import CARD, FileEntry, Manifest
from earmark.tasks.store.parquet import file_entry
from earmark.tasks.store.result_table import ResultTable

PREFIX = "view-"  # of their configs and folders: a view may have a table's name
_HEADING, _TABLES = "## Views\n", "## Tables\n"
_SAYS = (
    "Further configs, made from the tables below when the version was published, with audio and images in their rows. "
    "Where a licence holds a clip back, its cell is empty."
)


@dataclass(frozen=True)
class PublishedView:
    """A view's rows as a further config of the card."""

    says: str  # its rows, a sentence
    files: tuple[FileEntry, ...]
    media: tuple[str, ...]  # its columns of audio and images
    clips: int  # cells with a clip or image
    held: int  # cells emptied by licences

    @property
    def config(self) -> str:
        """Return the name of its config and folder."""
        return str(self.files[0].table)

    @property
    def rows(self) -> int:
        """Return the number of its rows."""
        return sum(file.rows or 0 for file in self.files)


def card_with_views(card: str, views: Sequence[PublishedView]) -> str:
    """Return a card with the views as configs and a section before its tables."""
    facts, body = card_parts(card)
    for view in views:
        splits = split_order(list({str(file.split) for file in view.files}))
        facts["configs"].append(
            {
                "config_name": view.config,
                "description": content_mark(file.sha256 for file in view.files),
                "data_files": [{"split": split, "path": f"{view.config}/{split}-*.parquet"} for split in splits],
            }
        )
    rows = tuple((view.config, view.says, view.rows, view.clips, view.held) for view in views)
    columns = ("config", "what a row is", "rows", "clips", "clips held back")
    section = f"{_HEADING}\n{ResultTable('Views', columns, rows, _SAYS).markdown()}\n{_example(views)}\n"
    return card_of(facts, body.replace(_TABLES, f"{section}{_TABLES}", 1))


def without_views(manifest: Manifest, card: str, folder: Path) -> Manifest:
    """Write the card without views into a folder; return the manifest of the version before they were added."""
    facts, body = card_parts(card)
    facts["configs"] = [one for one in facts["configs"] if not one["config_name"].startswith(PREFIX)]
    before, _, rest = body.partition(_HEADING)
    _, mark, after = rest.partition(_TABLES)
    return with_card(manifest, folder, card_of(facts, before + mark + after)).model_copy(update={"views": ()})


def with_card(manifest: Manifest, folder: Path, card: str) -> Manifest:
    """Write a card into a folder; return the manifest with it in place of its own."""
    write_text(folder / CARD, card)
    entry = file_entry(folder / CARD, folder)
    files = tuple(entry if file.path == CARD else file for file in manifest.files)
    return manifest.model_copy(update={"files": files})


def card_parts(card: str) -> tuple[dict[str, Any], str]:
    """Return the facts at the head of a card, and its body."""
    head, _, body = card.removeprefix("---\n").partition("\n---\n")  # terms may hold a rule, further in
    return yaml.safe_load(head), body


def card_of(facts: dict[str, Any], body: str) -> str:
    """Return the card of facts and a body."""
    return f"---\n{yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)}---\n{body}"


def _example(views: Sequence[PublishedView]) -> str:
    heard = next((view for view in views for name in view.media if name.startswith("audio")), None)
    if heard is None:
        return ""
    column = next(name for name in heard.media if name.startswith("audio"))
    return (
        "```python\nimport io, soundfile\nfrom datasets import load_dataset\n"
        f'rows = load_dataset("ORG/NAME", "{heard.config}", split="{heard.files[0].split}", streaming=True)\n'
        f'audio = next(iter(rows))["{column}"]  # the file\'s bytes, and its name\n'
        'samples, sample_rate_hz = soundfile.read(io.BytesIO(audio["bytes"]))\n```\n'
    )
