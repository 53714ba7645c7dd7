"""Films made of noise, and the config that cuts and captions them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from earmark.schemas.captions import Captions
from tests.builds import config_from
from tests.captions.captions import QUICK, words_of
from tests.instruction_rubrics.rubrics import rubric_answer
from tests.servers.openai_server import caption_answer

RATE = 8_000
SEGMENTS = [2, 4]
FILMS = 3


def answer(body: dict[str, Any], content: str) -> str:
    """A caption of its own for each clip, or what a build of rubrics is answered."""
    if "segment of a film" in words_of(body):
        return caption_answer(body, content)
    return rubric_answer(body, content)


def write_films(folder: Path) -> None:
    """Films: four seconds of black, eleven with a pause, four of black, a second of sound, and one that is silent."""
    rows = ["track_id,audio"]
    for number in range(FILMS):
        random = np.random.default_rng(number)
        scene = random.normal(0, 0.1, 11 * RATE)
        scene[5 * RATE : 5 * RATE + RATE // 5] = 0
        film = [np.zeros(4 * RATE), scene, np.zeros(4 * RATE), random.normal(0, 0.1, RATE)]
        soundfile.write(folder / f"film{number}.wav", np.concatenate(film), RATE, subtype="PCM_16")
        rows.append(f"film{number},film{number}.wav")
    soundfile.write(folder / "silent.wav", np.zeros(RATE * 5), RATE)
    (folder / "films.csv").write_text("\n".join([*rows, "silent,silent.wav"]) + "\n")


def films_config(folder: Path, base_url: str, **values: Any) -> Captions:
    listen = {**QUICK, "annotator": "openai:hears", "base_url": base_url, "ask": "mix"}
    more = {
        "corpus": "captions",
        "source": {"name": "films", "format": "table", "tracks": "films.csv"},
        "segments": SEGMENTS,
        "most_rejected": None,
        "pipelines": [{"name": "mix", "listen": {**listen, "hears_s": 4.0}}],
        **values,
    }
    return config_from(Captions, more, folder / "films.toml")
