"""The layouts of rated clips, `ratings.<format>` among the entry points `earmark.importers`."""

from __future__ import annotations

from pathlib import Path

from earmark.schemas.mos_preferences import Source
from earmark.schemas.registry import Registry
from earmark.tasks.importers import bvcc, nisqa, singmos, somos, table, tmhint_qi, vmc23
from earmark.tasks.importers.lists import RatingLayout, Resolve
from earmark.tasks.importers.rows import Imported

RATING_LAYOUTS = Registry(
    "layout of ratings",
    "earmark.importers",
    RatingLayout,
    {
        "bvcc": bvcc.LAYOUT,
        "nisqa": nisqa.LAYOUT,
        "singmos": singmos.LAYOUT,
        "somos": somos.LAYOUT,
        "tmhint-qi": tmhint_qi.LAYOUT,
        "vmc23": vmc23.LAYOUT,
        "table": table.LAYOUT,
    },
    prefix="ratings.",
)


def read_source(source: Source, resolve: Resolve) -> Imported:
    """Yield what a source's lists hold, in a fixed order. Nothing is opened before the first item is asked for.

    Raises:
        InputError: the source or one of its lists cannot be read at all.
    """
    return RATING_LAYOUTS.find(source.format).read(source, resolve)


def input_files(source: Source, resolve: Resolve) -> list[tuple[str, Path]]:
    """Every list that `read_source` opens: "<source name>/<path below its root>" and absolute path, sorted.

    Importers open what their own `find` returns and nothing else, so the two agree.
    """
    return sorted((file.name, file.path) for file in RATING_LAYOUTS.find(source.format).find(source, resolve).lists)


def list_root(source: Source, resolve: Resolve, path: Path) -> Path:
    """The folder that clips in a list of a source may not leave."""
    return RATING_LAYOUTS.find(source.format).clip_root(source, resolve, path)


def listing(source: Source, resolve: Resolve) -> dict[str, str] | None:
    """What an importer learns from the names in folders rather than from lists, or None where it looks at none."""
    look = RATING_LAYOUTS.find(source.format).listing
    return look(source, resolve) if look else None
