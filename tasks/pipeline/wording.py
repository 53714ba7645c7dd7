"""Choose the versions of the package's prompts: those in the config, else those of its newest build."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from earmark.schemas.config import BuildConfig
from earmark.tasks.annotation.prompts import prompt_names, versions_of
from earmark.tasks.store.files import write_text
from earmark.tasks.store.staging import STAGING, Stage
from earmark.tasks.store.versions import Store

NOTE = "prompts.json"  # in a staging folder: the prompts of its build


def staying(config: BuildConfig, store: Store, corpus: str) -> BuildConfig:
    """Return the config, fixed to the older prompt versions of its newest build unless it names versions itself.

    Its newest build is the newest version of this very config; else the newest one without a named version of that
    prompt; else an interrupted build, which used the first version of each prompt at release 1.0.0. A first build takes
    the newest prompts.
    """
    stays: dict[str, int] = {}
    builds = list(_builds(config, store, corpus))
    for name in (one for one, files in prompt_names().items() if len(files) > 1 and one not in config.asks):
        versions = versions_of(name)
        used = (one for one, asks in builds if name not in asks)
        names = ((version for version in versions if f"{name}@{version}" in prompts) for prompts in used)
        version = next((version for found in names for version in found), versions[-1])
        if version != versions[-1]:
            stays[name] = version
    return config.staying(stays)


def note_prompts(stage: Stage, prompts: Mapping[str, str]) -> None:
    """Save the names of a build's prompts beside its steps, for a later build with another config or code."""
    write_text(stage.folder / NOTE, json.dumps(sorted(prompts)) + "\n")


def _builds(config: BuildConfig, store: Store, corpus: str) -> Iterator[tuple[list[str], Mapping[str, Any]]]:
    """Yield each build's prompts by `name@version`, and the config's named prompt versions, best match first."""
    manifests = [version.manifest for version in reversed(store.versions(corpus))]
    mine = _but_asks(config.recorded())
    for one in manifests:
        if _but_asks(one.config) == mine:
            yield list(one.prompts), {}
    for one in manifests:
        yield list(one.prompts), one.config.get("asks") or {}
    staging = store.folder(corpus) / STAGING
    folders = staging.iterdir() if staging.is_dir() else ()
    for folder in sorted(folders, key=lambda one: -one.stat().st_mtime):
        if (folder / NOTE).is_file() or any(folder.glob("steps/*")):  # else killed before its first step: asked nothing
            yield _noted(folder), {}


def _noted(folder: Path) -> list[str]:
    note = folder / NOTE
    if note.is_file():
        return [str(one) for one in json.loads(note.read_text("utf-8"))]
    return [f"{name}@{versions_of(name)[0]}" for name, files in prompt_names().items() if len(files) > 1]


def _but_asks(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "asks"}
