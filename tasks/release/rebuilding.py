"""What a rebuild decides: which corpus comes after which, and what its end says to do. No Prefect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.schemas.rebuild import Member
from earmark.tasks.store.versions import Store


@dataclass(frozen=True)
class Place:
    """A corpus's place in a rebuild."""

    member: Member  # the corpus, its config and where it is published
    # the corpora of this rebuild whose newest version it reads, or whose named version is not there yet
    after: tuple[str, ...]


@dataclass(frozen=True)
class Ending:
    """How a corpus came out of a rebuild."""

    corpus: str
    state: Literal["built", "up to date", "failed", "skipped", "not published"]
    version: str | None = None  # the version that answers for its config now
    detail: str = ""  # the reason, or where it was published
    todo: str = ""  # what a person should do, if anything

    @property
    def good(self) -> bool:
        """Whether all that was wanted was done."""
        return self.state in ("built", "up to date")


class RebuildFailed(EarmarkError):
    """Some corpora did not come to what was wanted; the others did."""

    def __init__(self, endings: Sequence[Ending]) -> None:
        self.endings = tuple(endings)  # how each ended
        bad = [f"{ending.corpus} {ending.state}" for ending in endings if not ending.good]
        super().__init__(f"{len(bad)} of {len(endings)} corpora need attention: {', '.join(bad)}")


def in_order(configs: Mapping[str, tuple[Member, BuildConfig]], store: Store) -> list[Place]:
    """The corpora, each after those that it reads; else as the config lists them.

    Raises:
        ConfigError: two read each other.
    """
    after = {name: _reads(name, config, configs, store) for name, (_, config) in configs.items()}
    try:
        order = list(TopologicalSorter(after).static_order())
    except CycleError as error:
        raise ConfigError(f"these corpora read each other: {' → '.join(error.args[1])}; name a version (@vN)") from None
    return [Place(configs[name][0], after[name]) for name in order]


def skip_reason(before: Sequence[Ending]) -> str | None:
    """Why a corpus cannot be built after these, or None if it can."""
    stuck = [ending.corpus for ending in before if ending.version is None]
    return f"{', '.join(stuck)} did not come to a version" if stuck else None


def _reads(name: str, config: BuildConfig, members: Mapping[str, object], store: Store) -> tuple[str, ...]:
    named = [spec.partition("@") for spec in config.parents()]
    versions = {corpus: {version.name for version in store.versions(corpus)} for corpus, _, _ in named}
    waits = {corpus for corpus, _, version in named if corpus in members and version not in versions[corpus]}
    return tuple(sorted(waits - {name}))
