"""Small lists of tracks, configs that ask a local server about them, and a whole build of `captions` in this process.

`python -m tests.captions.captions CONFIG STORE` runs a build as a process of its own, to be killed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from earmark.flows.captions import build
from earmark.schemas.captions import CORPUS, Captions
from earmark.tasks.audio import encode
from earmark.tasks.store.versions import Store
from tests.builds import config_from, forecast, serve_builds
from tests.pseudo_preferences.music import write_clip
from tests.runner import read_as, run_flow
from tests.servers.openai_server import MOODS, PLAYED, caption_answer

QUICK: dict[str, Any] = {
    "retry_base_s": 0.01,
    "total_timeout_s": 20.0,
    "max_concurrency": 4,
}
HEARS, READS = "openai:hears", "openai:reads"


build_captions = partial(run_flow, build)
read_config = partial(read_as, Captions)


def write_tracks(folder: Path, number: int, seconds: float = 0.5) -> None:
    """A table of tracks with audio of their own."""
    rows = ["track_id,audio,artist_id,tags"]
    for at in range(number):
        write_clip(folder / f"{at}.wav", at, seconds=seconds)
        tags = f"mood/theme---{MOODS[at % 7]};instrument---{PLAYED[at // 7 % 7]}"
        rows.append(f"t{at},{at}.wav,a{at % 5},{tags}")
    (folder / "tracks.csv").write_text("\n".join(rows) + "\n")


def direct(base_url: str, **values: Any) -> dict[str, Any]:
    asked = {**QUICK, "annotator": HEARS, "base_url": base_url}
    return {"name": "direct", "listen": {**asked, **values}}


def refined(base_url: str, reads_url: str | None = None, **values: Any) -> dict[str, Any]:
    """Pipeline B."""
    asked = {**QUICK, "annotator": HEARS, "base_url": base_url, "ask": "describe"}
    reads = {**QUICK, "annotator": READS, "base_url": reads_url or base_url}
    return {"name": "refined", "listen": {**asked, **values}, "refine": reads}


def config_of(folder: Path, *pipelines: Mapping[str, Any], **values: Any) -> Captions:
    """A build config over `tracks.csv` in a folder."""
    held = {
        "source": {"name": "made", "format": "table", "tracks": "tracks.csv"},
        "length_s": [0.1, 7200.0],
        "pipelines": list(pipelines),
        "most_rejected": None,
        **values,
    }
    return config_from(Captions, held, folder / "build.toml")


@contextmanager
def counting_readings() -> Iterator[Counter[str]]:
    """How often each clip is decoded for annotators, by its SHA-256, by either way into it."""
    count: Counter[str] = Counter()

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: str, sha256: str, *parts: Any) -> Any:
            count[sha256] += 1
            return real(path, sha256, *parts)

        return read

    ways = ("decode", "encode_parts")
    with patch.multiple(encode, **{name: counted(getattr(encode, name)) for name in ways}):
        yield count


def failing_once(body: dict[str, Any], content: str) -> str:
    """A caption that speaks of a singer at the first draw."""
    if body.get("seed") == 17:
        return "This is a calm song with a female singer and a piano in the background."
    return caption_answer(body, content)


def forecast_of(config: Captions, store: Path) -> dict[str, Any]:
    """Return the forecast of a dry run."""
    facts = forecast(CORPUS, build.story, config, Store(store))  # type: ignore[attr-defined]
    assert facts is not None
    return facts


def words_of(body: Mapping[str, Any]) -> str:
    """All text of a request."""
    return json.dumps(body["messages"])


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs."""
    build_captions(read_config(Path(config)), Path(store))


if __name__ == "__main__":
    serve_builds(build_from_file) if sys.argv[1:] == ["--serve"] else build_from_file(*sys.argv[1:])
