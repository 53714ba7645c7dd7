"""Earmark: versioned Parquet corpora for audio and music reward models.

    import earmark

    version = earmark.build("mos-preferences", "my.toml")
    pairs = version.datasets("pairs", "train")

`earmark.flows.python` says what each name does; nothing of it is imported before it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from earmark.flows.python import Opened as Opened
    from earmark.flows.python import build as build
    from earmark.flows.python import diff as diff
    from earmark.flows.python import open as open
    from earmark.flows.python import rewards as rewards
    from earmark.flows.python import rubric as rubric
    from earmark.flows.python import sql as sql

__all__ = ["Opened", "build", "diff", "open", "rewards", "rubric", "sql"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("earmark")
    if name not in __all__:
        raise AttributeError(f"module 'earmark' has no attribute '{name}'")
    from earmark.flows import python

    return getattr(python, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
