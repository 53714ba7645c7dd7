"""Exports of the demo's versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store

MUSIC = "pseudo-preferences"


def exported(store: Store, folder: Path, spec: str, format_: str, **wish: Any) -> Path:
    version = store.find(spec)
    export(version, find_corpus(version.corpus), store, folder, ExportOptions(format_, **wish))
    return folder
