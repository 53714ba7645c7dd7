"""Small exports of votes, and a whole build of `human-preferences` without Prefect.

`python -m tests.human_preferences.votes CONFIG STORE` runs a build as a process of its own, to be killed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from earmark.flows.human_preferences import build
from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.toml import parse_config, read_toml
from tests.builds import serve_builds
from tests.runner import run_flow

Row = dict[str, Any]
SALT = "a salt of the tests, long enough"


build_votes = partial(run_flow, build)


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs."""
    path = Path(config)
    build_votes(parse_config(HumanPreferences, read_toml(path), path), Path(store))


def config_of(folder: Path, *sources: Row, **values: Any) -> HumanPreferences:
    """A build config whose paths start from a folder."""
    return parse_config(
        HumanPreferences, {"most_rejected": None, "sources": list(sources), **values}, folder / "build.toml"
    )


def vote(number: int = 0, who: str = "ann", **values: Any) -> Row:
    """A vote in CMI-Pref's first spelling, on two clips of a prompt of its own."""
    return {
        "audio-path": f"{number}-a.wav",
        "audio2": f"{number}-b.wav",
        "prompt": f"A tune, number {number}",
        "lyrics": "",
        "prompt id": f"p{number}",
        "ref-audio-path": "",
        "preference-musicality": "model_a",
        "confidence_preference-musicality": "4.0",
        "preference-alignment": "model_b",
        "confidence_preference-alignment": "2.5",
        "user id": who,
        "model_a": "ant",
        "model_b": "bee",
        **values,
    }


def write_jsonl(path: Path, rows: Iterable[Row]) -> None:
    """One JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def cmi(folder: Path, rows: Iterable[Row], **values: Any) -> Row:
    """A source of CMI-Pref votes, written to a folder."""
    name = values.get("name", "cmi")
    write_jsonl(folder / f"{name}.jsonl", rows)
    return {"name": name, "format": "cmi-pref", "files": [f"{name}.jsonl"], **values}


if __name__ == "__main__":
    serve_builds(build_from_file) if sys.argv[1:] == ["--serve"] else build_from_file(*sys.argv[1:])
