"""Which importer reads which format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from schemas.mos_preferences import Source
from tasks.importers import bvcc, nisqa, singmos, somos, table, tmhint_qi, vmc23
from tasks.importers.lists import Found
from tasks.importers.rows import Imported

LAYOUTS: dict[str, ModuleType] = {
    "bvcc": bvcc,
    "nisqa": nisqa,
    "singmos": singmos,
    "somos": somos,
    "tmhint-qi": tmhint_qi,
    "vmc23": vmc23,
}
Resolve = Callable[[str], Path]


def read_source(source: Source, resolve: Resolve) -> Imported:
    """Yield what a source's lists hold, in a fixed order. Nothing is opened before the first item is asked for.

    Args:
        source: the source, as the build config holds it.
        resolve: makes a path as the config writes it absolute.

    Raises:
        InputError: the source or one of its lists cannot be read at all.
    """
    if source.format == "table":
        return table.read(source, resolve)
    read: Callable[[Source, Path], Imported] = LAYOUTS[source.format].read
    return read(source, resolve(source.root or ""))


def input_files(source: Source, resolve: Resolve) -> list[tuple[str, Path]]:
    """Every list that `read_source` opens: "<source name>/<path below its root>" and absolute path, sorted.

    Importers open what their own `find` returns and nothing else, so the two agree.
    """
    if source.format == "table":
        found = table.find(source, resolve)
    else:
        find: Callable[[Source, Path], Found] = LAYOUTS[source.format].find
        found = find(source, resolve(source.root or ""))
    return sorted((file.name, file.path) for file in found.lists)


def list_root(source: Source, resolve: Resolve, path: Path) -> Path:
    """The folder that clips in a list of a source may not leave."""
    if source.format == "table":
        return table.clip_root(source, resolve, path)
    return resolve(source.root or "")


def listing(source: Source, resolve: Resolve) -> dict[str, str] | None:
    """What an importer learns from the names in folders rather than from lists, or None where it looks at none."""
    if source.format != "tmhint-qi":
        return None
    return tmhint_qi.listing(source, resolve(source.root or ""))
