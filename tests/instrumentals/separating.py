"""Small tracks, configs over them, and a whole build of `instrumentals` without Prefect.

`python -m tests.instrumentals.separating --serve` forks builds that may be killed.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from earmark.flows.instrumentals import build
from earmark.schemas.instrumentals import Instrumentals
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.pipeline import plan
from tests.builds import serve_builds
from tests.runner import run_flow

RATE_HZ = 16_000


build_separated = partial(run_flow, build)


def values_of(**values: Any) -> dict[str, Any]:
    """What a config file holds: a table of tracks beside it; `None` leaves a key of `source` out."""
    source = {"name": "own", "format": "table", "tracks": "tracks.jsonl", **values.pop("source", {})}
    held = {name: value for name, value in source.items() if value is not None}
    return {"corpus": "instrumentals", "length_s": [0.2, 7200.0], **values, "source": held}


def config_of(folder: Path, **values: Any) -> Instrumentals:
    """A build config over the tracks in a folder."""
    return parse_config(Instrumentals, {"most_rejected": None, **values_of(**values)}, folder / "build.toml")


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs."""
    path = Path(config)
    build_separated(parse_config(Instrumentals, read_toml(path), path), Path(store))


def song(path: Path, seed: int, seconds: float = 1.0, *, channels: int = 2, rate: int = RATE_HZ, **form: Any) -> Path:
    """A track: a tone in the middle, noise of its own on each side. A mono one is all middle."""
    time = np.arange(round(seconds * rate)) / rate
    random = np.random.RandomState(seed)
    lead = 0.3 * np.sin(2 * np.pi * (300 + 10 * (seed % 40)) * time)
    sides = 0.05 * random.uniform(-1, 1, (len(time), channels))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, lead[:, None] + sides, rate, **form)
    return path


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def make_tracks(folder: Path, count: int, seconds: float = 1.0) -> list[dict[str, Any]]:
    """Write tracks and their table; returns its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        file = f"audio/{number:04d}.flac"
        song(folder / file, number, seconds)
        rows.append({"track_id": f"t{number:04d}", "audio": file, "artist_id": f"a{number // 3}", "tags": "rock;calm"})
    write_rows(folder / "tracks.jsonl", rows)
    return rows


def serve() -> None:
    """Serve builds, quickly: all is imported and the code is digested once."""
    importlib.import_module("pandas")
    plan.code_digest("earmark.flows.instrumentals")  # type: ignore[attr-defined]
    serve_builds(build_from_file)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else build_from_file(*sys.argv[1:])
