"""Small studies with clips, a critic behind a local server, and configs over both.

`python -m tests.mos_preferences.critiques CONFIG STORE` runs a build as a process of its own, to be killed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from earmark.schemas.mos_preferences import MosPreferences
from tests.builds import build_from_file, config_from, serve_builds, write_toml
from tests.pseudo_preferences.music import QUICK, write_clip


def make_study(folder: Path, clips: int = 12) -> list[str]:
    """Write a list of rated clips and their audio; returns the sample ids, best first."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["wav_path,score"]
    for number in range(clips):
        name = f"clips/c{number:03d}.wav"
        write_clip(folder / name, seed=number + 1)
        lines.append(f"{name},{5 - 4 * number / clips:.4f}")
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")
    return [f"study/{line.partition(',')[0]}" for line in lines[1:]]


def values_of(base_url: str, critiques: Mapping[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    """What a config file holds."""
    source = {
        "name": "study",
        "format": "table",
        "files": {"train": "ratings.csv"},
        "columns": {"file": "wav_path", "mos": "score"},
    }
    asked = {**QUICK, "base_url": base_url, "retries": 2, **(critiques or {})}
    return {"sources": [source], "critiques": asked, "triplets": {"count": 0}, **values}


def config_of(folder: Path, base_url: str, critiques: Mapping[str, Any] | None = None, **values: Any) -> MosPreferences:
    """A build config over the study in a folder."""
    return config_from(
        MosPreferences, {"most_rejected": None, **values_of(base_url, critiques, **values)}, folder / "build.toml"
    )


def write_config(folder: Path, base_url: str, critiques: Mapping[str, Any] | None = None) -> Path:
    """The same as a TOML file; its path."""
    return write_toml(MosPreferences, values_of(base_url, critiques), folder / "build.toml")


if __name__ == "__main__":
    serve_builds(build_from_file) if sys.argv[1:] == ["--serve"] else build_from_file(*sys.argv[1:])
