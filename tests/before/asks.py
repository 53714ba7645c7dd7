"""Questions to the models that run in a build's own process, of every form of answer: `transformers:` and `vllm:`.

The release asked them once; its ledger has the answers under the keys that it made. Whoever asks them again, with that
ledger, must find each one: `ask(folder)` counts what was asked anew.

    python tests/before/asks.py FOLDER

asks them where `transformers`, and a `vllm`, are at hand; `make.py` does so with the release's code.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Ask, Audio, Choice, FreeText, Json, Message, ScaleRating, YesNo
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.audio.encode import Encoder

TINY = "tiny-listener"  # the model's folder, seen from where it was asked
MODELS: dict[str, dict[str, Any]] = {
    "plain": {"annotator": f"transformers:{TINY}", "max_tokens": 6, "repairs": 0},
    "drawn": {"annotator": f"transformers:{TINY}", "max_tokens": 6, "repairs": 0, "temperature": 0.8, "seed": 5},
    "offline": {"annotator": f"vllm:{TINY}", "max_tokens": 40, "repairs": 0, "seed": 3},
    "tuned": {
        "annotator": f"vllm:{TINY}",
        "max_tokens": 40,
        "repairs": 0,
        "temperature": 1.0,
        "yes_no_token_ids": (11, 12),
        "extra_body": {"engine": {"dtype": "float32", "max_model_len": 1024}, "top_k": 4},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"choice": {"enum": ["A", "B", "tie"]}},
    "required": ["choice"],
    "additionalProperties": False,
}
FORMS: tuple[Ask, ...] = (FreeText(), Json.of(SCHEMA), Choice(("A", "B", "tie")), YesNo(), ScaleRating())


def clips(folder: Path) -> list[Audio]:
    """The clips that are heard: files of the folder, by their names."""
    paths = sorted(folder.glob("*.flac"))
    return [Audio(hashlib.sha256(path.read_bytes()).hexdigest(), str(path), duration_s=2.0) for path in paths]


def requests_of(config: AnnotatorConfig, folder: Path) -> list[Request]:
    """Every form of answer about every clip, and a second draw of each."""
    heard = [Message.of("user", clip, "Which is right, and is there a drum?") for clip in clips(folder)]
    return [question(config, [one], form, sample=draw) for one in heard for form in FORMS for draw in range(2)]


def ask(folder: Path) -> dict[str, tuple[int, int]]:
    """Ask everything; how many requests and exchanges it took, by the name of the config."""
    counts = {}
    for name, values in MODELS.items():
        config = AnnotatorConfig.model_validate(values)
        with Session(config, ledger=folder / "ledger.sqlite", media=Media(load_audio=Encoder())) as session:
            report = session.ask(requests_of(config, folder))
        counts[name] = (report.distinct, report.exchanges)
    return counts


if __name__ == "__main__":
    print(json.dumps(ask(Path(sys.argv[1]))))
