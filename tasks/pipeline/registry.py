"""Find the corpora to build: our own, known by their files, and those of installed packages.

Our own corpus is a flow `flows/<corpus>.py` with its steps in `tasks/<corpus>/` and its shapes in
`schemas/<corpus>.py`, which exports `CORPUS`. Another package adds one by an entry point of the group
`earmark.corpora`, `my-corpus = "my_package.corpus:CORPUS"`; its schema, steps, prompts and queries lie in that package.
"""

from collections.abc import Iterator, Mapping
from functools import cache

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import ConfigError
from earmark.schemas.registry import Registered, Registry, folder_of
from earmark.schemas.toml import nearest


@cache
def _registry() -> Registry[Corpus]:
    own = {stem.replace("_", "-"): f"earmark.schemas.{stem}:CORPUS" for stem in _own()}
    return Registry("corpus", "earmark.corpora", Corpus, own)


def corpora() -> Mapping[str, Registered]:
    """Return every corpus by its name, our own first, without importing any.

    Raises:
        ConfigError: two packages, or a package and our own corpora, add the same name.
    """
    return _registry().entries


def all_corpora() -> tuple[dict[str, Corpus], dict[str, str]]:
    """Return every importable corpus, and the import errors of the others, by name."""
    return _registry().all()


def find_corpus(name: str) -> Corpus:
    """Return the corpus of that name.

    Raises:
        ConfigError: there is none, or the package that adds it cannot be imported.
    """
    if name not in corpora():
        raise ConfigError(f"unknown corpus '{name}'{nearest(name, corpora())}")
    return _registry().find(name)


def _own() -> Iterator[str]:
    rooms = {name: folder_of(f"earmark.{name}") for name in ("flows", "tasks", "schemas")}
    for path in sorted(rooms["flows"].glob("*.py")):
        if (rooms["tasks"] / path.stem).is_dir() and (rooms["schemas"] / path.name).is_file():
            yield path.stem
