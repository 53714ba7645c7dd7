"""The corpora that can be built: those of this house, known by their files, and those of installed packages.

A corpus of this house is a flow `flows/<corpus>.py` with its steps in `tasks/<corpus>/` and its shapes in
`schemas/<corpus>.py`, which exports `CORPUS`. Another package adds one by an entry point of the group
`earmark.corpora`, `my-corpus = "my_package.corpus:CORPUS"`; its schema, steps, prompts and queries lie in that package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from schemas.config import nearest
from schemas.corpus import Corpus
from schemas.errors import ConfigError

GROUP = "earmark.corpora"


@dataclass(frozen=True, slots=True)
class Registered:
    """Where a corpus is declared.

    Attributes:
        reference: `module:name` of its `Corpus`.
        package: name and version of the package that adds it; None for those of this house.
    """

    reference: str
    package: tuple[str, str] | None = None


@cache
def corpora() -> dict[str, Registered]:
    """Every corpus by its name, those of this house first; nothing is imported.

    Raises:
        ConfigError: two packages, or a package and this house, add the same name.
    """
    known = {stem.replace("_", "-"): Registered(f"schemas.{stem}:CORPUS") for stem in _own()}
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
        package = (point.dist.name, point.dist.version) if point.dist else (point.module.partition(".")[0], "")
        if point.name in known:
            other = known[point.name].package
            raise ConfigError(
                f"corpus '{point.name}' is there twice: of {other[0] if other else 'Earmark'} and of the installed "
                f"package {package[0]}; remove that package, or rename its entry point"
            )
        known[point.name] = Registered(point.value, package)
    return known


@cache
def find_corpus(name: str) -> Corpus:
    """The corpus of that name.

    Raises:
        ConfigError: there is none, or the package that adds it cannot be imported.
    """
    if name not in corpora():
        raise ConfigError(f"unknown corpus '{name}'{nearest(name, corpora())}")
    found = corpora()[name]
    try:
        corpus = load(found.reference)
    except Exception as error:
        if found.package is None:
            raise
        raise ConfigError(
            f"corpus '{name}': the package {' '.join(found.package)} cannot be imported: "
            f"{type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(corpus, Corpus) or corpus.name != name:
        raise ConfigError(
            f"corpus '{name}': expected {found.reference} to be a Corpus of that name, found {corpus!r:.80}"
        )
    return corpus


def load(reference: str) -> Any:
    """What `module:name` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def _own() -> Iterator[str]:
    """Stems of this house's corpora."""
    rooms = {name: _folder(name) for name in ("flows", "tasks", "schemas")}
    for path in sorted(rooms["flows"].glob("*.py")):
        if (rooms["tasks"] / path.stem).is_dir() and (rooms["schemas"] / path.name).is_file():
            yield path.stem


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
