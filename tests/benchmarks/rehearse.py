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
size takes about an hour and a half, with `--jobs 2` an hour and a quarter, and 60 GB; it is never part of CI.
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from earmark.tasks.pipeline.registry import find_corpus
from tests.benchmarks.paper_sizes import CORPORA, LARGEST_FIRST, PLACES
from tests.builds import contents_of, write_toml

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
    """Cost of a first build, with its server's counts and the times at which each model worked."""

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
    """Measure one process that finds the corpora of a folder up to date."""
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
