"""Every corpus at its paper's size, or a share of it, from nothing to a committed version, against servers of ours.

    .venv/bin/python -m tests.benchmarks.rehearse [--corpus NAME ...] [--share 0.02] [--latency-ms 75] [--slots 64]
        [--kills 10] [--append] [--jobs 2]

Clips are 3 s of noise, each its own; texts are made up. A server in a process of its own answers as a model would, as
the schema wants it, after `--latency-ms` (a tenth of the answers take four times as long), and 1 % of exchanges go
wrong in one of eight ways. Each build is `earmark build`, a process of its own, whose processor time, memory and steps
are measured; then the same command again, which finds the version up to date; then once more with `--force`, which
reads every answer from the ledger. With `--slots`, the server works on so many requests of a model at once (others wait
in line, so it sends no 429), and of each model the table says which share of its slots was taken from the first request
to any model on: until the last, and while more of its requests were still to come than it has slots. With `--kills`,
the corpus is built once more, killed (SIGKILL) at so many random moments: no more requests may be sent again than were
in flight then at most, and the version is the same. With `--append`, inputs then grow by a hundredth, and the table
says what the next version took. With `--jobs`, so many corpora are built side by side, the largest first, once the
inputs of all are there. The last lines say how long all first builds took together, and what one `earmark rebuild`
takes that finds all corpora up to date: they share a store, whose ledger is not counted in the column of its size. Full
size takes about an hour and a half and 60 GB; it is never part of CI.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import numpy as np
import soundfile

from earmark.tasks.pipeline.registry import find_corpus
from tests.builds import contents_of, write_toml

RATE_HZ, SECONDS = 16_000, 3.0
PLACES = 64  # requests in flight to one model
ASKED = {
    "retry_base_s": 0.05,
    "total_timeout_s": 120.0,
    "max_concurrency": PLACES,
    "retries": 8,
}
MODELS = ("ant", "bee", "cat", "dog")
FAULTS = ("reset", "429", "429_retry_after", "500", "503", "truncated_body", "truncated_json", "wrong_content_type")


class Size(NamedTuple):
    """What a build took.

    Attributes:
        wall_s: seconds until the command ended.
        processor_s: of the build's process and those it waited for.
        peak_mb: the most memory of that process.
        steps: seconds until each step's output was there, from the one before it.
        clips: how many clips went to models, and how many were decoded for them; empty where none did.
    """

    wall_s: float
    processor_s: float
    peak_mb: float
    steps: dict[str, float]
    clips: str = ""


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


def serve(corpus: str, latency_s: float, slots: int | None) -> None:
    """Answer as the model of a corpus would, until the process is ended; prints the port."""
    import asyncio

    from tests.instruction_rubrics.rubrics import rubric_answer
    from tests.music_prompts.prompt_builds import writing_answer
    from tests.score_questions.questions import exam_answer
    from tests.servers.faults import Faults
    from tests.servers.openai_server import OpenAIServer, caption_answer, critic_answer, listening_answer

    answers = {
        "mos-preferences": critic_answer,
        "pseudo-preferences": listening_answer,
        "captions": caption_answer,
        "instruction-rubrics": rubric_answer,
        "score-questions": exam_answer,
        "music-prompts": writing_answer,
    }

    async def run() -> None:
        kinds = tuple(kind for kind in FAULTS if not (slots and kind.startswith("429")))  # one that queues says no 429
        faults = Faults(rate=0.01, kinds=kinds, latency_s=latency_s, long_tail=True)
        server = await OpenAIServer(faults, answers.get(corpus, caption_answer), slots=slots).start()
        print(f"port={server.port}", flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def server_of(corpus: str, latency_ms: float, slots: int | None) -> Iterator[str]:
    """A server in a process of its own; gives its address."""
    command = [sys.executable, "-m", "tests.benchmarks.rehearse", "--serve", corpus, "--latency-ms", f"{latency_ms}"]
    command += ["--slots", str(slots)] if slots else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline().partition("=")[2])
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def measured(command: list[str], folder: Path) -> Size:
    """Run a command to its end, which must be a good one; a corpus's folder of the store tells its steps."""
    steps: dict[str, float] = {}
    ended = threading.Event()
    start = time.perf_counter()

    def watch() -> None:
        last = start
        while not ended.wait(0.05):
            try:
                done = sorted(folder.glob(".staging/*/steps/*.output"))
            except FileNotFoundError:  # the commit has taken a folder away meanwhile
                continue
            for path in done:
                if path.stem not in steps:
                    now = time.perf_counter()
                    steps[path.stem], last = now - last, now

    threading.Thread(target=watch, daemon=True).start()
    with tempfile.TemporaryFile("w+") as words:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=words)
        _, status, used = os.wait4(process.pid, 0)
        ended.set()
        words.seek(0)
        text = words.read()
    if status:
        raise SystemExit(f"{' '.join(command)}: ended with {os.waitstatus_to_exitcode(status)}: {text[-1000:]}")
    heard = re.search(r"([\d,]+) clips encoded for models; ([\d,]+) decoded", text)
    clips = f"{heard[1]} / {heard[2]}" if heard else "–"
    return Size(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, steps, clips)


def killed(command: list[str], address: str, requests: int, kills: int) -> int:
    """Run a command until it is done, killed at random moments before; how many requests were in flight then at most.

    Args:
        command: a build that goes on where it was.
        address: the server that it asks.
        requests: how many different ones it sends undisturbed; a kill comes after a drawn number of them.
        kills: how many.
    """
    dice, lost = random.Random(17), 0
    for after in sorted(dice.sample(range(1, requests), max(0, min(kills, requests - 1)))):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while counts_of(address)["distinct"] < after:
            if process.poll() is not None:
                raise SystemExit(f"the build ended before it had sent {after} requests")
            time.sleep(0.02)
        process.kill()
        process.wait()
        lost += PLACES * max(1, counts_of(address)["models"])
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return lost


def tables_of(folder: Path) -> dict[str, bytes]:
    """A version's tables; its manifest also names the server's address."""
    return {path: content for path, content in contents_of(folder).items() if path.endswith(".parquet")}


def counts_of(address: str, about: str = "counts") -> dict[str, Any]:
    """What the server was asked, or when each model worked (`work`)."""
    with urlopen(f"{address}/{about}") as reply:
        counts: dict[str, Any] = json.load(reply)
    return counts


def busy(work: Mapping[str, Sequence[tuple[float, float]]], slots: int | None) -> str:
    """Of each model, the share of its slots that was taken from the first request to any model on: until the last one
    ended, and as long as more of its requests were still to come than it has slots, so that it could have been full.
    """
    if not slots or not any(work.values()):
        return "–"
    first = min(start for spans in work.values() for start, _ in spans)
    last = max(end for spans in work.values() for _, end in spans)
    return ", ".join(
        f"{model} {taken(spans, first, last, slots):.0%}, {taken(spans, first, enough(spans, slots), slots):.0%}"
        for model, spans in sorted(work.items())
    )


def enough(spans: Sequence[tuple[float, float]], slots: int) -> float:
    """When as many of a model's requests were still to start as it has slots."""
    return sorted(start for start, _ in spans)[-min(slots, len(spans))]


def taken(spans: Sequence[tuple[float, float]], start: float, end: float, slots: int) -> float:
    """The share of slots that spans of time took between two moments."""
    return sum(max(0.0, min(end, ends) - max(start, starts)) for starts, ends in spans) / max(end - start, 1e-9) / slots


class Rehearsal(NamedTuple):
    """A corpus to build: its inputs and config lie in a folder, without a server's address yet."""

    corpus: str
    options: argparse.Namespace
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "inputs/build.toml"

    def prepare(self, share: float) -> None:
        """Write inputs, those that are not there yet, and the config."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        values = {"corpus": self.corpus, **CORPORA[self.corpus](self.config.parent, share, "http://127.0.0.1:0/v1")}
        write_toml(find_corpus(self.corpus).config, values, self.config)

    @contextmanager
    def served(self) -> Iterator[str]:
        """Give the address of a new server, which the config names from now on."""
        with server_of(self.corpus, self.options.latency_ms, self.options.slots) as address:
            self.config.write_text(re.sub(r"http://127\.0\.0\.1:\d+", address, self.config.read_text()))
            yield address

    @property
    def versions(self) -> Path:
        return self.folder.parent / "store" / self.corpus

    def command(self, store: Path | None = None) -> list[str]:
        words = [sys.executable, "-m", "earmark", "build", self.corpus, "-c", str(self.config), "--json"]
        return [*words, "--store", str(store or self.versions.parent)]


class FirstBuild(NamedTuple):
    """What the first build took, what its server was asked for it, and when each model worked."""

    size: Size
    counts: dict[str, Any]
    work: dict[str, Any]


def build_first(one: Rehearsal, address: str) -> FirstBuild:
    """Build a corpus from nothing."""
    size = measured(one.command(), one.versions)
    first = FirstBuild(size, counts_of(address), counts_of(address, "work") if one.options.slots else {})
    print(f"{one.corpus}: {size.wall_s:.0f} s", file=sys.stderr, flush=True)
    return first


def rehearse(one: Rehearsal, first: FirstBuild, address: str) -> str:
    """Build a corpus as the options say, after its first build; return a line of the table."""
    corpus, options, counts = one.corpus, one.options, first.counts
    again, forced = measured(one.command(), one.versions), measured([*one.command(), "--force"], one.versions)
    if more := counts_of(address)["asked"] - counts["asked"]:
        raise SystemExit(f"{corpus}: {more} requests were sent again")
    twice = "–"
    if options.kills:
        other = one.folder / "killed"
        with one.served() as address:
            lost = killed(one.command(other), address, counts["distinct"], options.kills)
            after = counts_of(address)
        again_sent = (after["repeats"] - after["faults"]) - (counts["repeats"] - counts["faults"])  # draws repeat too
        twice = f"{max(0, again_sent)} of {lost}"
        if again_sent > lost:
            raise SystemExit(f"{corpus}: {again_sent} requests were sent again, at most {lost} were in flight")
        if tables_of(one.versions / "v1") != tables_of(other / corpus / "v1"):
            raise SystemExit(f"{corpus}: another version than without kills")
    more_rows = "–"
    if options.append:
        one.prepare(options.share * 1.01)
        with one.served() as address:
            grown = measured(one.command(), one.versions)
            more_rows = f"{counts_of(address)['asked']:,}; {grown.wall_s:.0f}; {grown.processor_s:.0f}"
    manifest = json.loads((one.versions / "v1/manifest.json").read_text())
    rows = sum(sum(splits.values()) for name, splits in manifest["rows"].items() if name != "rejects")
    size = first.size
    each = f"{1000 * size.processor_s / counts['asked']:.2f}" if counts["asked"] else "–"
    disk = sum(path.stat().st_size for path in one.versions.rglob("*") if path.is_file())
    longest = max(size.steps, key=lambda name: size.steps[name], default="–")
    cells = (
        corpus, f"{rows:,}", f"{size.wall_s:.0f}", f"{counts['asked']:,}", f"{counts['faults']:,}",
        f"{size.processor_s:.0f}", each, size.clips, f"{size.peak_mb:,.0f}", f"{disk / 1e6:,.0f}",
        f"{longest} {size.steps.get(longest, 0):.0f}", f"{again.wall_s:.1f}", f"{forced.wall_s:.0f}",
        busy(first.work, options.slots), twice, more_rows,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def nothing_to_do(folder: Path, corpora: Sequence[str]) -> Size:
    """What one process takes to find the corpora of a folder up to date."""
    builds = [f'[[builds]]\ncorpus = "{corpus}"\nconfig = "{corpus}/inputs/build.toml"\n' for corpus in corpora]
    (folder / "rebuild.toml").write_text("\n".join(builds))
    store = folder / "store"
    before = sorted(store.glob("*/v*"))
    command = [sys.executable, "-m", "earmark", "rebuild", "-c", str(folder / "rebuild.toml"), "--store", str(store)]
    took = measured(command, store)
    if sorted(store.glob("*/v*")) != before:
        raise SystemExit("rebuild: built a version, though all were up to date")
    return took


COLUMNS = (
    "corpus", "rows", "wall, s", "requests", "faults", "processor, s", "ms a request", "clips sent / decoded",
    "peak, MB", "store, MB", "longest step, s", "no-op, s", "from the ledger, s",
    "slots taken, and while more was left to ask",
    "sent again, of those in flight at most", "1 % more: requests; wall, s; processor, s",
)  # fmt: skip
HEAD = f"| {' | '.join(COLUMNS)} |\n|---|{'--:|' * (len(COLUMNS) - 1)}"


def main() -> None:
    """Rehearse the corpora and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this; may be given more than once")
    parser.add_argument("--share", type=float, default=1.0, help="of the paper's size, such as 0.02")
    parser.add_argument("--latency-ms", type=float, default=75.0)
    parser.add_argument("--slots", type=int, help="requests of a model that its server works on at once")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--append", action="store_true", help="build once more with a hundredth more rows")
    parser.add_argument("--jobs", type=int, default=1, help="how many corpora are built at once")
    parser.add_argument("--folder", type=Path, help="where inputs and stores go; default: a temporary one")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.latency_ms / 1000, options.slots)
        return
    os.environ["EARMARK_SALT"] = "of all stores of a rehearsal"  # else each has ids of its own
    print(HEAD, flush=True)
    corpora = [corpus for corpus in LARGEST_FIRST if corpus in (options.corpus or CORPORA)]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, ExitStack() as servers:
        rehearsals = [Rehearsal(corpus, options, Path(folder) / corpus) for corpus in corpora]
        for one in rehearsals:
            one.prepare(options.share)
        addresses = [servers.enter_context(one.served()) for one in rehearsals]
        start = time.perf_counter()
        with ThreadPoolExecutor(options.jobs) as builds:
            firsts = list(builds.map(build_first, rehearsals, addresses))
        together_s = time.perf_counter() - start
        for row in map(rehearse, rehearsals, firsts, addresses):
            print(row, flush=True)
        none = nothing_to_do(Path(folder), corpora)
    requests = sum(first.counts["asked"] for first in firsts)
    print(f"{requests:,} requests; all first builds, {options.jobs} at once: {together_s:,.0f} s")
    print(
        f"earmark rebuild, nothing to do: {none.processor_s:.1f} s of processor time, {none.wall_s:.1f} s by the clock"
    )


if __name__ == "__main__":
    main()
