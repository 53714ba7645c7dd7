"""Small pools of generated music, configs that ask a local server about them, and a whole build in this process.

`python -m tests.pseudo_preferences.music CONFIG STORE` runs a build as a process of its own, to be killed.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from earmark.flows.pseudo_preferences import build
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.tasks.pipeline import plan
from tests.builds import config_from, serve_builds, write_toml
from tests.runner import read_as, run_flow

RATE_HZ = 16_000  # as models hear clips
MODELS = ("ant", "bee", "cat")
QUICK: dict[str, Any] = {
    "annotator": "openai:tiny",
    "retry_base_s": 0.01,
    "read_timeout_s": 10.0,  # on a busy machine less makes it ask twice
    "total_timeout_s": 60.0,
    "max_concurrency": 8,
}
"""A judge that does not wait long."""

Row = dict[str, Any]


build_judged = partial(run_flow, build)
read_config = partial(read_as, PseudoPreferences)


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs."""
    build_judged(read_config(Path(config)), Path(store))


def values_of(base_url: str, *, judge: Mapping[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    """What a config file holds: a judge behind a local server, and short clips that will do."""
    clips = {"shortest_s": 0.1, **values.pop("clips", {})}
    tables = {"prompts": "prompts.jsonl", "generations": "generations.jsonl"}
    shared = {**QUICK, "base_url": base_url, **(judge or {})}
    if "judges" in values:  # each has its own
        del shared["annotator"]
    return {**tables, **values, "clips": clips, "judge": shared}


def config_of(folder: Path, base_url: str, **values: Any) -> PseudoPreferences:
    """A build config over the pool in a folder; values as for `values_of`."""
    return config_from(
        PseudoPreferences, {"most_rejected": None, **values_of(base_url, **values)}, folder / "build.toml"
    )


def write_config(folder: Path, base_url: str, **values: Any) -> Path:
    """The same as a TOML file; its path."""
    return write_toml(PseudoPreferences, values_of(base_url, **values), folder / "build.toml")


def write_clip(path: Path, seed: int, seconds: float = 0.3, gain: float = 0.3) -> None:
    """Noise of a seed's own, in the format that the path's ending names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.RandomState(seed).uniform(-gain, gain, round(seconds * RATE_HZ))
    soundfile.write(path, samples, RATE_HZ, subtype="PCM_16")


def prompt_row(folder: Path, number: int) -> Row:
    """A prompt; by its number one of the four modalities."""
    row: Row = {"prompt_id": f"p{number:03d}", "text": f"A tune in {60 + number} beats a minute"}
    if number % 4 in (1, 3):
        row["lyrics"] = f"la la {number}\nla"
    if number % 4 in (2, 3):
        row["reference_audio"] = f"references/p{number:03d}.flac"
        write_clip(folder / row["reference_audio"], 1_000_000 + number)
    return row


def generation_row(folder: Path, prompt: int, model: str, take: int = 1) -> Row:
    """What a model made of a prompt, with its clip."""
    name = f"p{prompt:03d}-{model}-{take}"
    ending = "flac" if prompt % 2 else "wav"
    write_clip(folder / f"clips/{name}.{ending}", int.from_bytes(name.encode()[-9:], "big") % 2**31 + prompt * 7)
    audio = f"clips/{name}.{ending}"
    return {"generation_id": name, "prompt_id": f"p{prompt:03d}", "model": model, "audio": audio, "status": "ok"}


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """One JSON object a line."""
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def make_pool(
    folder: Path, prompts: int = 6, models: Sequence[str] = MODELS, takes: int = 1
) -> tuple[list[Row], list[Row]]:
    """Write a pool: every model makes as many takes of every prompt. Returns the rows of both tables."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [prompt_row(folder, number) for number in range(prompts)]
    made = [
        generation_row(folder, number, model, take)
        for number in range(prompts)
        for model in models
        for take in range(1, takes + 1)
    ]
    write_rows(folder / "prompts.jsonl", asked)
    write_rows(folder / "generations.jsonl", made)
    return asked, made


def warm_up() -> None:
    """Do once what every forked build would do again: late imports, and the digest of the code."""
    for name in ("pandas", "earmark.tasks.annotation.openai_compatible", "earmark.tasks.annotation.ledger_sqlite"):
        importlib.import_module(name)
    plan.code_digest("earmark.flows.pseudo_preferences")  # type: ignore[attr-defined]


def serve() -> None:
    """Serve builds, quickly."""
    warm_up()
    serve_builds(build_from_file)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else build_from_file(*sys.argv[1:])
