"""Small track lists and caption sets, and a whole build of `music-prompts` in this process.

`python -m tests.music_prompts.prompt_builds CONFIG STORE` runs a build as a process of its own, to be killed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from earmark.flows.music_prompts import build
from earmark.schemas.music_prompts import MusicPrompts
from earmark.tasks.pipeline import plan
from tests.builds import config_from, serve_builds
from tests.runner import read_as, run_flow

GENRES = ("rock", "jazz", "ambient", "techno", "folk", "metal")
INSTRUMENTS = ("piano", "violin", "drums", "electricguitar", "flute")
MOODS = ("dark", "happy", "calm", "epic")
BUILTIN: dict[str, Any] = {"annotator": "builtin:music-prompt-1"}
QUICK: dict[str, Any] = {
    "annotator": "openai:tiny",
    "retry_base_s": 0.01,
    "total_timeout_s": 10.0,
    "max_concurrency": 8,
}
"""A writer that does not wait long."""


build_prompts = partial(run_flow, build)
read_config = partial(read_as, MusicPrompts)


def config_of(folder: Path, **values: Any) -> MusicPrompts:
    """A build config over `tracks.tsv` in a folder; small lists will do."""
    pool = {"popularity": 1, "mentions": 0, **values.pop("pool", {})}
    held = {"most_rejected": None, "tracks": "tracks.tsv", "synthesis": BUILTIN, **values, "pool": pool}
    return config_from(MusicPrompts, held, folder / "build.toml")


def write_tracks(path: Path, tracks: Iterable[Sequence[str]]) -> None:
    """A list in MTG-Jamendo's layout, one track a sequence of tags such as `genre---rock`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["TRACK_ID\tARTIST_ID\tALBUM_ID\tPATH\tDURATION\tTAGS"]
    for number, tags in enumerate(tracks, 1):
        ids = f"track_{number:07d}\tartist_{number % 7:06d}\talbum_{number % 11:06d}"
        lines.append("\t".join([ids, f"{number % 100:02d}/{number}.mp3", "180.5", *tags]))
    path.write_bytes("\r\n".join([*lines, ""]).encode())


def made_tracks(number: int, genres: Sequence[str] = GENRES) -> list[list[str]]:
    """Tags of tracks, so that most pairs of tags occur together and some never do."""
    tracks = []
    for at in range(number):
        genre, instrument = genres[at % len(genres)], INSTRUMENTS[at * 7 // 3 % len(INSTRUMENTS)]
        mood = MOODS[at * 5 // 4 % (len(MOODS) - (genre in GENRES[:2]))]  # rock and jazz are never epic
        tracks.append([f"genre---{genre}", f"instrument---{instrument}", f"mood/theme---{mood}"])
    return tracks


def write_captions(path: Path, captions: Mapping[str, str]) -> None:
    """A caption set: JSON with paths, or TSV with ids, by the path's ending."""
    if path.suffix == ".json":
        rows = [{"path": item, "caption": text} for item, text in captions.items()]
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        path.write_text("".join(f"{item}\t{text}\n" for item, text in captions.items()), encoding="utf-8")


def fenced(words: str, name: str) -> str:
    """What stands in a prompt between the marks of a name."""
    found = re.search(rf"<{name}-[0-9a-f]+>\n(.*?)\n</{name}-[0-9a-f]+>", words, re.DOTALL)
    assert found, f"no {name} in {words}"
    return found[1]


def writing_answer(body: Mapping[str, Any], content: str) -> str:
    """What a good writer says: a server's answer from the request's words; about every third prompt misses a tag."""
    if body.get("logprobs"):  # a judge of tags was asked: its log-probabilities count
        return "Yes"
    words = str(body["messages"][-1]["content"]).replace("\\n", "\n")
    genre, instrument, mood = (fenced(words, name) for name in ("genre", "instrument", "mood"))
    if int(content[:8], 16) % 3 == 0:
        return json.dumps({"prompt": f"A {genre} tune for {instrument}."})
    system = str(body["messages"][0]["content"])
    added = " Add oboe and ukulele." if "Add one, two or three" in system else ""
    return json.dumps({"prompt": f"{genre} for {instrument}. Mood: {mood}.{added}"})


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs."""
    build_prompts(read_config(Path(config)), Path(store))


def serve() -> None:
    """Serve builds, quickly."""
    plan.code_digest("earmark.flows.music_prompts")  # type: ignore[attr-defined]
    serve_builds(build_from_file)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else build_from_file(*sys.argv[1:])
