"""Inputs of every corpus at its paper's size, or a share of it: clips of noise, each its own, and made-up texts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

RATE_HZ, SECONDS = 16_000, 3.0
PLACES = 64  # requests in flight to one model
ASKED = {
    "retry_base_s": 0.05,
    "total_timeout_s": 120.0,
    "max_concurrency": PLACES,
    "retries": 8,
}
MODELS = ("ant", "bee", "cat", "dog")


def write_clip(path: Path, seed: int, channels: int = 1) -> None:
    """Three seconds of noise of a seed's own, whose loudness moves; a file that is there stays.

    Of two channels, half of the noise is common to both, as a voice is in a mix.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    dice = np.random.default_rng(seed)
    frames = round(RATE_HZ * SECONDS)
    swell = np.interp(np.arange(frames), np.linspace(0, frames, 13), dice.uniform(0.05, 0.5, 13))
    noise = dice.uniform(-0.6, 0.6, (channels, frames))
    if channels > 1:
        noise = (noise + dice.uniform(-0.6, 0.6, frames)) / 2
    soundfile.write(path, (swell * noise).astype(np.float32).T, RATE_HZ, subtype="PCM_16")


def asked(base_url: str, model: str, **more: Any) -> dict[str, Any]:
    """An annotator on our server."""
    return {"annotator": f"openai:{model}", "base_url": base_url, **ASKED, **more}


def mos_preferences(folder: Path, share: float, base_url: str) -> dict[str, Any]:
    """74,478 pairs of rated clips, each compared by a critic (MOS-RMBench, Table 1)."""
    clips, pairs = max(60, round(20_000 * share)), round(74_478 * share)
    dice = random.Random(17)
    rows = ["file,mos,system,content"]
    for number in range(clips):
        write_clip(folder / f"clips/{number}.wav", number)
        rows.append(f"clips/{number}.wav,{dice.uniform(1, 5):.3f},s{number % 40},c{number // 10}")
    (folder / "ratings.csv").write_text("\n".join(rows) + "\n")
    columns = {"file": "file", "mos": "mos", "system": "system", "content": "content"}
    source = {"name": "study", "format": "table", "files": {"train": "ratings.csv"}, "columns": columns}
    return {
        "audio": "index",
        "sources": [source],
        "quotas": {"study": {"train": pairs}},
        "triplets": {"count": 0},
        "critiques": asked(base_url, "hears", clips=0, tries=2),
    }


def pseudo_preferences(folder: Path, share: float, base_url: str) -> dict[str, Any]:
    """129,545 pairs of generated music, each judged in both orders (CMI-RewardBench, section 3)."""
    pairs = round(129_545 * share)
    prompts = max(10, -(-pairs // 5))
    with (folder / "prompts.jsonl").open("w") as texts, (folder / "generations.jsonl").open("w") as made:
        for number in range(prompts):
            text = f"A tune in {60 + number} beats a minute, number {number * 7}"
            texts.write(json.dumps({"prompt_id": f"p{number}", "text": text}) + "\n")
            for at, model in enumerate(MODELS):
                name = f"p{number}-{model}"
                write_clip(folder / f"clips/{name}.wav", number * len(MODELS) + at)
                row = {"generation_id": name, "prompt_id": f"p{number}", "model": model, "audio": f"clips/{name}.wav"}
                made.write(json.dumps({**row, "status": "ok"}) + "\n")
    tables = {"prompts": "prompts.jsonl", "generations": "generations.jsonl"}
    return {**tables, "pairs": {"count": pairs}, "judge": asked(base_url, "hears")}


def tracks(folder: Path, share: float, channels: int) -> dict[str, Any]:
    rows = ["track_id,audio,artist_id,tags"]
    for number in range(max(20, round(55_701 * share))):
        write_clip(folder / f"clips/{number}.wav", number, channels)
        rows.append(f"t{number},clips/{number}.wav,a{number % 997},instrument---piano;mood/theme---calm")
    (folder / "tracks.csv").write_text("\n".join(rows) + "\n")
    return {"name": "tracks", "format": "table", "tracks": "tracks.csv"}


def captions(folder: Path, share: float, base_url: str) -> dict[str, Any]:
    """55,701 tracks, captioned by both pipelines (ATTM)."""
    two = {"listen": asked(base_url, "hears", ask="describe"), "refine": asked(base_url, "reads")}
    pipelines = [{"name": "direct", "listen": asked(base_url, "hears")}, {"name": "refined", **two}]
    return {"source": tracks(folder, share, 1), "pipelines": pipelines}


def instruction_rubrics(folder: Path, share: float, base_url: str) -> dict[str, Any]:
    """105,000 samples, half of them negatives (AnyAudio-Judge)."""
    from tests.instruction_rubrics.rubrics import caption

    rows = ["id,audio,text"]
    for number in range(max(60, round(105_000 * share / 2))):
        write_clip(folder / f"clips/{number}.wav", number)
        rows.append(f'c{number},clips/{number}.wav,"{caption(number)}"')
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    source = {"name": "music", "subset": "music", "domain": "music", "captions": "captions.csv"}
    return {
        "bench_share": 0.1,
        "sources": [source],
        "fingerprint": 0,
        "judge": asked(base_url, "hears"),
        "writer": asked(base_url, "writes"),
    }


def human_preferences(folder: Path, share: float, base_url: str) -> dict[str, Any]:
    """4,027 votes (CMI-Pref)."""
    from tests.human_preferences.votes import vote

    votes = round(4_027 * share)
    for number in range(votes):
        for letter in "ab":
            write_clip(folder / f"{number}-{letter}.wav", 2 * number + (letter == "a"))
    rows = [vote(number, f"w{number % 31}") for number in range(votes)]
    (folder / "votes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"name": "votes", "format": "cmi-pref", "root": ".", "files": ["votes.jsonl"], "audio_root": "."}
    return {"audio": "index", "sources": [source], "split": {"test": 0}}


def instrumentals(folder: Path, share: float, base_url: str) -> dict[str, Any]:
    """55,701 tracks, whose middle is taken out without a model (ATTM)."""
    source = tracks(folder, share, 2)
    return {"source": source, "separator": {"model": "centre-removal"}, "output": {"codec": "flac"}}


def score_questions(folder: Path, share: float, base_url: str) -> dict[str, Any]:
    """A dump of 2 GB, and 4,000 images of scores in it (WildScore)."""
    from tests.benchmarks.bench_forum import make_dump
    from tests.score_questions.drawings import score

    size, periods = max(2, 2_000 * share), folder / "periods.json"  # a dump that is there gets one more period
    before = json.loads(periods.read_text()) if periods.exists() else []
    periods.write_text(json.dumps([*before, size - sum(before)]))
    make_dump(folder, *before, size - sum(before))
    (folder / "images").mkdir(exist_ok=True)
    with (folder / "RS.ndjson").open() as lines:
        pictured = (row["id"] for row in map(json.loads, lines) if row["url"].endswith(".png"))
        for seed, name in zip(range(round(4_000 * share)), pictured, strict=False):
            score(seed).save(folder / f"images/{name}.png")
    source: dict[str, Any] = {
        "name": "forum",
        "submissions": ["RS.ndjson"],
        "comments": ["RC.ndjson"],
        "subreddits": ["musictheory"],
    }
    roles = {role: asked(base_url, role) for role in ("writer", "judge", "labeller")}
    return {"source": source, "images": "images", "most_rejected": 1.0, **roles}


def music_prompts(folder: Path, share: float, base_url: str) -> dict[str, Any]:
    """28,600 questions whether a track sounds like its tag, and 100 prompts (ATTM)."""
    from tests.music_prompts.prompt_builds import GENRES, INSTRUMENTS, MOODS, made_tracks, write_captions, write_tracks

    each = max(8, round(14_300 * share / len(GENRES + INSTRUMENTS + MOODS)))
    tracks = made_tracks(6 * each)
    write_tracks(folder / "tracks.tsv", tracks)
    spoken = [", ".join(tag.partition("---")[2] for tag in tags) for tags in tracks]
    for name in ("direct", "refined"):
        write_captions(
            folder / f"{name}.json", {f"{at % 100:02d}/{at}.mp3": f"Hear {text}." for at, text in enumerate(spoken, 1)}
        )
    for at in range(1, len(tracks) + 1):
        write_clip(folder / f"audio/{at % 100:02d}/{at}.wav", at)
    heard: dict[str, Any] = {
        "audio": "audio/{stem}.wav",
        "tracks": each,
        "untagged": each,
        "longest_s": 30.0,
    }
    return {
        "tracks": "tracks.tsv",
        "captions": [{"name": name, "file": f"{name}.json"} for name in ("direct", "refined")],
        "pool": {"popularity": 1, "mentions": 1, "recall": 0.0},
        "verification": asked(base_url, "hears", **heard),
        "synthesis": asked(base_url, "writes"),
    }


CORPORA: Mapping[str, Callable[[Path, float, str], dict[str, Any]]] = {
    "mos-preferences": mos_preferences,
    "pseudo-preferences": pseudo_preferences,
    "captions": captions,
    "instruction-rubrics": instruction_rubrics,
    "human-preferences": human_preferences,
    "instrumentals": instrumentals,
    "score-questions": score_questions,
    "music-prompts": music_prompts,
}


# By their time at full size: side by side, a long one that begins last would end alone.
LARGEST_FIRST = (
    "instruction-rubrics", "pseudo-preferences", "captions", "instrumentals", "mos-preferences", "score-questions",
    "music-prompts", "human-preferences",
)  # fmt: skip
