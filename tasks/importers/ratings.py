"""Register the layouts of rated clips, `ratings.<format>` among the entry points `earmark.importers`."""

from __future__ import annotations

from pathlib import Path

from earmark.schemas.rating_sources import Source
from earmark.schemas.registry import Registry, registered
from earmark.schemas.rejects import Note
from earmark.tasks.importers.lists import RatingLayout, Resolve
from earmark.tasks.importers.rows import Imported

RATING_LAYOUTS = Registry(
    "layout of ratings",
    "earmark.importers",
    RatingLayout,
    registered("earmark.tasks.importers"),
    "ratings.",
)


def read_source(source: Source, resolve: Resolve) -> Imported:
    """Yield the content of a source's lists, in a fixed order. Open nothing before the first item is requested.

    Raises:
        InputError: the source or a list of it cannot be read at all.
    """
    if source.best == "low":
        yield Note(f"{source.name}: best = low, so ratings are turned on their scale: the lowest stands as the highest")
    yield from RATING_LAYOUTS.find(source.format).read(source, resolve)


def input_files(source: Source, resolve: Resolve) -> list[tuple[str, Path]]:
    """List the files opened by `read_source`: "<source name>/<path below its root>" and absolute path, sorted.

    Importers open only the result of their own `find`, so the two agree.
    """
    return sorted((file.name, file.path) for file in RATING_LAYOUTS.find(source.format).find(source, resolve).lists)
