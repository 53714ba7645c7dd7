"""What a rebuild would do, known before Prefect is there: its config, its order, what is out of date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from earmark.flows.command.running import plan_build, read_config
from earmark.schemas.config import parse_config, read_toml
from earmark.schemas.errors import EarmarkError
from earmark.schemas.rebuild import Rebuild
from earmark.tasks.build.progress import shown
from earmark.tasks.build.registry import find_corpus
from earmark.tasks.release.rebuilding import Place, in_order
from earmark.tasks.store.versions import Store


def read_rebuild(path: Path) -> Rebuild:
    """Read the config of a rebuild.

    Raises:
        ConfigError: it is not one.
    """
    return parse_config(Rebuild, read_toml(path), path)


def places_of(config: Rebuild, store: Store) -> list[Place]:
    """The corpora in the order in which they are built.

    Raises:
        ConfigError: a build config is not one of its corpus, or two corpora read each other.
    """
    configs = {
        member.corpus: (member, read_config(find_corpus(member.corpus), config.base / member.config))
        for member in config.builds
    }
    return in_order(configs, store)


@dataclass(frozen=True)
class Standing:
    """How a corpus stands before a rebuild."""

    corpus: str
    # what a rebuild would do with it; `wait` is for what it reads, and then perhaps build
    would: Literal["nothing", "build", "wait", "fail"]
    version: str | None = None  # the one that is up to date
    detail: str = ""  # what it waits for, or why it cannot be built
    publish: str | None = None  # the repository that it would be published to


def forecast(config: Rebuild, store: Store) -> list[Standing]:
    """How each corpus stands, in the order of the rebuild; builds nothing.

    A corpus that comes after one that would be built is not looked at: what it reads is not there yet.
    """
    stands: dict[str, Standing] = {}
    with shown():
        for place in places_of(config, store):
            stands[place.member.corpus] = _stand(place, config.base, store, stands)
    return list(stands.values())


def _stand(place: Place, base: Path, store: Store, stands: Mapping[str, Standing]) -> Standing:
    name = place.member.corpus
    repo = place.member.publish.repo if place.member.publish else None
    if waits := [other for other in place.after if stands[other].would != "nothing"]:
        return Standing(name, "wait", detail=f"comes after {', '.join(waits)}", publish=repo)
    try:
        plan, _ = plan_build(name, base / place.member.config, store)
        done = plan.up_to_date(tidy=False)
    except EarmarkError as error:
        return Standing(name, "fail", detail=str(error))
    return Standing(name, "nothing" if done else "build", done.name if done else None, publish=repo)
