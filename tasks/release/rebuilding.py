"""Order the corpora of a rebuild, and describe its outcome. No Prefect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.schemas.rebuild import Member
from earmark.tasks.store.versions import Store


@dataclass(frozen=True)
class CorpusPlace:
    """Place of a corpus in a rebuild."""

    member: Member  # the corpus, its config and its repository
    # corpora of this rebuild to build first: it reads their newest version, or a named version that does not exist yet
    after: tuple[str, ...]


@dataclass(frozen=True)
class Ending:
    """Outcome of a corpus in a rebuild."""

    corpus: str
    state: Literal["built", "up to date", "failed", "skipped", "not published"]
    version: str | None = None  # the current version of its config
    detail: str = ""  # the reason, or its address if published
    todo: str = ""  # advice for the user, if any

    @property
    def good(self) -> bool:
        """Return whether the outcome is as wanted."""
        return self.state in ("built", "up to date")


class RebuildFailed(EarmarkError):
    """Failure of some corpora of a rebuild; the others succeeded."""

    def __init__(self, endings: Sequence[Ending]) -> None:
        self.endings = tuple(endings)  # outcome of each
        bad = [f"{ending.corpus} {ending.state}" for ending in endings if not ending.good]
        super().__init__(f"{len(bad)} of {len(endings)} corpora need attention: {', '.join(bad)}")


def in_order(configs: Mapping[str, tuple[Member, BuildConfig]], store: Store) -> list[CorpusPlace]:
    """Sort the corpora by their dependencies, else in the order of the config.

    Raises:
        ConfigError: two corpora read each other.
    """
    after = {name: _reads(name, config, configs, store) for name, (_, config) in configs.items()}
    try:
        order = list(TopologicalSorter(after).static_order())
    except CycleError as error:
        raise ConfigError(f"these corpora read each other: {' → '.join(error.args[1])}; name a version (@vN)") from None
    return [CorpusPlace(configs[name][0], after[name]) for name in order]


def skip_reason(before: Sequence[Ending]) -> str | None:
    """Return the reason to skip a corpus after these outcomes, or None."""
    stuck = [ending.corpus for ending in before if ending.version is None]
    return f"{', '.join(stuck)} did not come to a version" if stuck else None


def newer_input(made: Mapping[str, str | None], store: Store) -> str | None:
    """Return why a corpus may not be built from the corpora before it, or None: it would read another version than the
    rebuild came to, such as a trial by hand.

    Args:
        made: the versions that the rebuild came to, by corpus.
    """
    for corpus, version in made.items():
        newest = store.latest(corpus)
        if newest is not None and newest.name != version:
            return (
                f"it would read {corpus} {newest.name}, and this rebuild's config makes {version}: build that config "
                f"with --force, so that it is the newest, or name {corpus}@{version}"
            )
    return None


def _reads(name: str, config: BuildConfig, members: Mapping[str, object], store: Store) -> tuple[str, ...]:
    named = [spec.partition("@") for spec in config.parents()]
    versions = {corpus: {version.name for version in store.versions(corpus)} for corpus, _, _ in named}
    waits = {corpus for corpus, _, version in named if corpus in members and version not in versions[corpus]}
    return tuple(sorted(waits - {name}))
