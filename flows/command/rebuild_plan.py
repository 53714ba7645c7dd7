"""Plan a rebuild without Prefect: read its config, order the corpora, find outdated ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from earmark.flows.command.running import plan_build, read_config
from earmark.schemas.errors import EarmarkError
from earmark.schemas.rebuild import Rebuild
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.pipeline.progress import shown
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.release.rebuilding import CorpusPlace, in_order, newer_input
from earmark.tasks.store.versions import Store


def read_rebuild(path: Path) -> Rebuild:
    """Read the config of a rebuild."""
    return parse_config(Rebuild, read_toml(path), path)


def places_of(config: Rebuild, store: Store) -> list[CorpusPlace]:
    """Return the corpora in build order.

    Raises:
        ConfigError: a build config belongs to another corpus, or two corpora read each other.
    """
    configs = {
        member.corpus: (member, read_config(find_corpus(member.corpus), config.base / member.config))
        for member in config.builds
    }
    return in_order(configs, store)


@dataclass(frozen=True)
class CorpusState:
    """The state of a corpus before a rebuild."""

    corpus: str
    # a rebuild's action; `wait` is for its inputs, and then perhaps build
    would: Literal["nothing", "build", "wait", "fail"]
    version: str | None = None  # the up-to-date version
    detail: str = ""  # the corpora it waits for, or the reason against building
    publish: str | None = None  # the repository to publish to


def forecast(config: Rebuild, store: Store) -> list[CorpusState]:
    """Return the state of each corpus, in the order of the rebuild; build nothing.

    A corpus after one to be built is not examined: its inputs do not exist yet.
    """
    stands: dict[str, CorpusState] = {}
    with shown():
        for place in places_of(config, store):
            stands[place.member.corpus] = _stand(place, config.base, store, stands)
    return list(stands.values())


def _stand(place: CorpusPlace, base: Path, store: Store, stands: Mapping[str, CorpusState]) -> CorpusState:
    name = place.member.corpus
    repo = place.member.publish.repo if place.member.publish else None
    if waits := [other for other in place.after if stands[other].would != "nothing"]:
        return CorpusState(name, "wait", detail=f"comes after {', '.join(waits)}", publish=repo)
    if reason := newer_input({other: stands[other].version for other in place.after}, store):
        return CorpusState(name, "fail", detail=reason)
    try:
        plan, _ = plan_build(name, base / place.member.config, store)
        done = plan.up_to_date(tidy=False)
    except EarmarkError as error:
        return CorpusState(name, "fail", detail=str(error))
    return CorpusState(name, "nothing" if done else "build", done.name if done else None, publish=repo)
