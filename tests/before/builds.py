"""The builds that `make.py` has the release make: their inputs, their configs, and what the model behind them says.

Each lies in a folder of its own, with its `store`:

| folder | what the release did there |
|---|---|
| `models` | captions by a server's model and by two in the process, in one corpus; answers with thoughts, cut answers |
| `asks` | every form of answer, asked of `transformers:` and `vllm:` (`asks.py`) |
| `killed` | a build of captions, killed while its model was asked |
| `takes` | the plug-in `lab_takes`: its corpus `studio-takes`, and its layout `panel-json` in `mos-preferences` |
| `sound` | clips that the release cut silently, heard by a model (`captions`) and measured (`mos-preferences`) |
| `ratings` | lists that it misread, two configs of one corpus: ages taken for ratings, and contested clips |
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.before.asks import TINY

PORT = 47_613
BASE_URL = (
    f"http://127.0.0.1:{PORT}/v1"  # where the models were when the release asked them; nobody listens there since
)
KILLED_TRACKS = 24
KILLED_AFTER = 9  # answers
KILLED_IN_FLIGHT = 3
CUT = ("chained.ogg", "joined.mp3", "without_header.mp3")
"""Clips of `sound` that the release read in part: two Ogg links; two MP3s, each with a Xing header; VBR without one."""
WHOLE = ("plain.flac", "plain.mp3")
LENGTH_S = {"chained.ogg": 6.0, "joined.mp3": 6.0, "without_header.mp3": 6.0, "plain.flac": 3.0, "plain.mp3": 3.0}
RATE_HZ = 16_000


def tone(seed: int, seconds: float, level: float = 0.2) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Samples (frames,), full scale ±1: a few partials and noise."""
    at = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    pitch = 110.0 * 2 ** (seed * 5 % 24 / 12)
    draw = np.random.default_rng(seed)
    partials = sum(np.sin(2 * np.pi * pitch * n * at) / n for n in range(1, 5))
    return (level * (partials / 2 + 0.05 * draw.standard_normal(len(at)))).astype(np.float32)


def coded(samples: Any, kind: str, subtype: str | None = None, **options: Any) -> bytes:
    """Samples as the bytes of an audio file."""
    held = io.BytesIO()
    soundfile.write(held, samples, RATE_HZ, format=kind, subtype=subtype, **options)
    return held.getvalue()


def write_tracks(folder: Path, count: int, seconds: float) -> None:
    """Tracks, and the table that names them."""
    (folder / "audio").mkdir(parents=True)
    for number in range(count):
        (folder / f"audio/t{number:02d}.flac").write_bytes(coded(tone(number, seconds), "FLAC"))
    rows = [f"t{n:02d},audio/t{n:02d}.flac,artist{n // 2},piano" for n in range(count)]
    (folder / "tracks.csv").write_text("\n".join(["track_id,audio,artist_id,tags", *rows]) + "\n")


def toml(values: Mapping[str, Any], *prefix: str) -> str:
    """A config's text: plain values, then tables, then lists of tables."""

    def is_table(value: object) -> bool:
        return isinstance(value, Mapping)

    def are_tables(value: object) -> bool:
        return isinstance(value, list) and any(map(is_table, value))

    def cell(value: Any) -> str:
        if is_table(value):
            return "{ " + ", ".join(f"{key} = {cell(held)}" for key, held in value.items()) + " }"
        return json.dumps(value)

    lines = [f"{key} = {cell(value)}" for key, value in values.items() if not is_table(value) and not are_tables(value)]
    for key, value in values.items():
        for one in value if are_tables(value) else [value] if is_table(value) else []:
            name = ".".join([*prefix, key])
            lines += [f"[[{name}]]" if are_tables(value) else f"[{name}]", toml(one, *prefix, key)]
    return "\n".join(lines)


def captions(pipelines: Iterable[Mapping[str, Any]], **values: Any) -> str:
    """A config of `captions` over the tracks beside it."""
    source = {"name": "lab", "format": "table", "tracks": "tracks.csv"}
    asked = [dict(pipeline) for pipeline in pipelines]
    return toml({"corpus": "captions", "seed": 17, "source": source, "pipelines": asked, **values}) + "\n"


def served(model: str, **more: Any) -> dict[str, Any]:
    """An annotator behind the server."""
    return {"annotator": f"openai:{model}", "base_url": BASE_URL, "retries": 1, "repairs": 0, **more}


def write_models(folder: Path) -> None:
    """Five tracks, and four pipelines: two models of a server, two that run in the process."""
    write_tracks(folder, 5, 2.5)
    anything = {"checks": {"look_for": []}, "tries": 1, "most_failed": 1.0, "repairs": 0, "max_tokens": 12}
    (folder / "captions.toml").write_text(
        captions(
            [
                {"name": "served", "listen": {**served("hears"), "ask": "describe"}, "refine": served("reads")},
                {"name": "inside", "listen": {"annotator": f"transformers:{TINY}", **anything}},
                {"name": "offline", "listen": {"annotator": f"vllm:{TINY}", **anything}},
                {"name": "thoughts", "listen": {**served("thinks"), "most_failed": 1.0}},
            ],
            most_rejected=1.0,
        )
    )


def write_asks(folder: Path) -> None:
    """Two clips."""
    folder.mkdir(parents=True)
    for number in range(2):
        (folder / f"clip{number}.flac").write_bytes(coded(tone(40 + number, 2.0), "FLAC"))


def write_killed(folder: Path) -> None:
    """Tracks enough to be killed among them."""
    write_tracks(folder, KILLED_TRACKS, 2.0)
    listen = served("hears", max_concurrency=KILLED_IN_FLIGHT)
    (folder / "captions.toml").write_text(captions([{"name": "direct", "listen": listen}]))


def write_takes(folder: Path) -> None:
    """A sheet of takes with a clip that is not there, and a panel of two listeners."""
    (folder / "clips").mkdir(parents=True)
    (folder / "panel").mkdir()
    names = [f"clips/sys{n % 3}-line{n // 3}.flac" for n in range(9)]
    for number, name in enumerate(names):
        (folder / name).write_bytes(coded(tone(60 + number, 1.0 + number / 10), "FLAC"))
    rows = [f"take{n},{name},{'keep' if n % 2 else 'drop'}" for n, name in enumerate([*names, "clips/lost.flac"])]
    (folder / "sheet.csv").write_text("\n".join(["take,clip,verdict", *rows]) + "\n")
    for listener in range(2):
        scores: dict[str, object] = {name: 1 + (n + listener) % 5 for n, name in enumerate(names)}
        (folder / f"panel/l{listener}.json").write_text(json.dumps(scores | {names[0]: None} if listener else scores))
    (folder / "studio-takes.toml").write_text('corpus = "studio-takes"\nsheet = "sheet.csv"\n')
    source = {"name": "panel", "format": "panel-json", "root": "."}
    (folder / "mos-preferences.toml").write_text(
        toml({"corpus": "mos-preferences", "audio": "index", "sources": [source]}) + "\n"
    )


def write_sound(folder: Path) -> None:
    """Clips that end before their file does, for who believes a header, and clips that do not."""
    audio = folder / "audio"
    audio.mkdir(parents=True)
    halves = [tone(80 + number, 3.0) for number in range(2)]
    (audio / "chained.ogg").write_bytes(b"".join(coded(half, "OGG", "VORBIS") for half in halves))
    (audio / "joined.mp3").write_bytes(b"".join(_mp3(half, "-V", "5") for half in halves))
    rising = np.concatenate([tone(90, 0.3, level=0.9), tone(91, 5.7, level=0.002)])
    rising[: RATE_HZ // 3] = np.random.default_rng(9).uniform(
        -0.9, 0.9, RATE_HZ // 3
    )  # the first frames are the largest
    (audio / "without_header.mp3").write_bytes(_mp3(rising, "-V", "4", "-t"))
    (audio / "plain.flac").write_bytes(coded(tone(92, 3.0), "FLAC"))
    (audio / "plain.mp3").write_bytes(_mp3(tone(93, 3.0), "-b", "64"))
    names = [*CUT, *WHOLE]
    rows = [f"{name.partition('.')[0]}-{name[-3:]},audio/{name},artist{n},piano" for n, name in enumerate(names)]
    (folder / "tracks.csv").write_text("\n".join(["track_id,audio,artist_id,tags", *rows]) + "\n")
    (folder / "captions.toml").write_text(
        captions([{"name": "direct", "listen": served("hears")}], tracks={"shortest_s": 0.5})
    )
    rated = [f"audio/{name},{1 + n}" for n, name in enumerate(names)]
    (folder / "ratings.csv").write_text("\n".join(["wav_path,score", *rated]) + "\n")
    source = {"name": "lab", "format": "table", "files": {"train": "ratings.csv"}, "scale": [1, 5],
              "columns": {"file": "wav_path", "mos": "score"}}  # fmt: skip
    (folder / "mos-preferences.toml").write_text(
        toml({"corpus": "mos-preferences", "audio": "convert", "sources": [source]}) + "\n"
    )


def _mp3(samples: Any, *options: str) -> bytes:
    """Samples as LAME writes them."""
    command = ["lame", "--quiet", *options, "-", "-"]
    return subprocess.run(command, input=coded(samples, "WAV", "PCM_16"), capture_output=True, check=True).stdout


def write_ratings(folder: Path) -> None:
    """A list whose ratings stand in the last column, and one with two texts a clip."""
    folder.mkdir(parents=True)
    lines = ["listener_age,file,order,speaker,likability"]
    for listener in range(6):
        heard = [n for n in range(8) if (n + listener) % 3]  # so that clips differ in who heard them
        lines += [f"{21 + 3 * listener},s{n}.wav,{n + 1},{n % 4},{(n * 17 + listener * 5) % 90 + 5}" for n in heard]
    (folder / "likability.csv").write_text("\n".join(lines) + "\n")
    age = {"name": "likability", "format": "table", "files": {"train": "likability.csv"}, "scale": [0, 100],
           "columns": {"file": "file", "mos": "listener_age", "speaker": "speaker"}}  # fmt: skip
    (folder / "age.toml").write_text(toml({"corpus": "mos-preferences", "sources": [age]}) + "\n")
    lines = ["wavname,text,score,listener_id"]
    for clip in range(12):
        if clip < 2:  # an anchor with another text stands first
            lines.append(f"c{clip}.wav,wrong words {clip},0,a0")
        lines += [f"c{clip}.wav,right words {clip},{4 + (clip + listener) % 6},b{listener}" for listener in range(3)]
    (folder / "relevance.csv").write_text("\n".join(lines) + "\n")
    columns = {"file": "wavname", "mos": "score", "listener": "listener_id", "content": "text"}
    contested = {"name": "relevance", "format": "table", "files": {"train": "relevance.csv"}, "scale": [0, 10],
                 "columns": columns}  # fmt: skip
    (folder / "contested.toml").write_text(toml({"corpus": "mos-preferences", "sources": [contested]}) + "\n")


MOODS = ("calm", "dark", "happy", "slow", "warm", "cold", "bright")
PLAYED = ("piano", "violin", "drums", "flute", "guitar", "organ", "harp")


def answer(body: dict[str, Any]) -> tuple[str, str]:
    """Return the answer of a model of the server, and its end: a function of the request."""
    words = hashlib.sha256(json.dumps(body["messages"], sort_keys=True).encode()).digest()
    told = " and then ".join(f"{MOODS[a % 7]} {PLAYED[a // 7 % 7]}" for a in words[2:6])
    said = f"This is a {MOODS[words[0] % 7]} piece for the {PLAYED[words[1] % 7]}, and it moves from {told}."
    if body["model"] != "thinks":
        return said, "stop"
    return (
        (f"<think>I hear something. It may be a {PLAYED[words[7] % 7]}.</think>\n\n{said}", "stop"),
        (f"The listener wants one caption, so I write one.\n</think>\n{said}", "stop"),
        (f"<think>I hear something, and I go on thinking about the {PLAYED[words[7] % 7]} and the", "length"),
        (said[: len(said) // 2], "length"),
        (f"```text\n{said}\n```", "stop"),
    )[_nth_clip(body)]


def _nth_clip(body: dict[str, Any]) -> int:
    """Which of five answers a clip gets."""
    return int(hashlib.sha256(json.dumps(body["messages"][-1], sort_keys=True).encode()).hexdigest(), 16) % 5


WRITE = {
    "models": write_models,
    "asks": write_asks,
    "killed": write_killed,
    "takes": write_takes,
    "sound": write_sound,
    "ratings": write_ratings,
}
