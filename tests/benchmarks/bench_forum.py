"""A forum's dump: our ingest and filter beside DuckDB's reader and a plain json loop.

    .venv/bin/python -m tests.benchmarks.bench_forum [--megabytes 2000]

The reader reads what its filter needs; once, all columns that ours reads, and no ingest can be quicker than that.
Ours is timed twice: what reads, filters and accounts for every line, and that with the scrubbing of what is kept.
Prints megabytes of NDJSON a second, peak memory of the process that did the work, and ratios. Every case runs in a
process of its own; the best of the rounds counts. Nine tenths of the dump are comments, half of them first-level; an
eighth of the submissions have an image, which is more than the forum of the paper has.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import zstandard

from earmark.schemas.score_questions import ScoreQuestions
from earmark.tasks.score_questions.forum.dump import COLUMNS
from earmark.tasks.score_questions.forum.scrubbing import scrub_threads
from earmark.tasks.score_questions.forum.threads import read_comments, read_submissions
from earmark.tasks.store.sql import MEMORY_LIMIT
from earmark.tasks.store.staging import staging
from earmark.tasks.store.versions import open_store

ROUNDS = 3
CASES = (
    "json loop",
    "reader alone",
    "reader alone, all columns",
    "ours: ingest and filter",
    "ours: and scrub",
    "reader alone, zstd",
    "ours: ingest and filter, zstd",
    "ours: and scrub, zstd",
)
FILES = ("RS", "RC")
TEXT = (
    "the chord of a dominant resolves to tonic in bar seven because this voice leading note pattern is written for "
    "piano and rhythm feels like measure phrase cadence"
)


def make_dump(folder: Path, *megabytes: float) -> None:
    """Write `RS.ndjson` and `RC.ndjson` of made-up threads, as archives have them, and both packed.

    Args:
        folder: where they go.
        megabytes: sizes of periods, one after the other; a period's comments go to its own threads, so a dump with one
            more period begins with the lines of the dump without it.
    """
    begins: list[int] = []  # the number of each period's first submission
    for name, share, make in (("RS", 0.1, _submission), ("RC", 0.9, _comment)):
        rng = random.Random(f"17 {name}")
        rows = [make(rng) for _ in range(4000)]
        number = 0
        with (folder / f"{name}.ndjson").open("w", encoding="utf-8") as file:
            for period, size in enumerate(megabytes):
                begins += [number] * (name == "RS")
                threads = max(100, int(size * 1_000_000) // 20 // 900)
                written = 0
                while written < size * share * 1_000_000:
                    line = rng.choice(rows).replace("@@@@@@@", f"{number:07d}")
                    line = line.replace("#######", f"{begins[period] + rng.randrange(threads):07d}")
                    written += file.write(line)
                    number += 1
        _pack(folder / f"{name}.ndjson")


def _pack(path: Path) -> None:
    with path.open("rb") as whole, path.with_name(f"{path.name}.zst").open("wb") as packed:
        zstandard.ZstdCompressor(level=3).copy_stream(whole, packed)


def _text(rng: random.Random, most: int) -> str:
    return " ".join(rng.choices(TEXT.split(), k=rng.randrange(5, most)))


def _time(rng: random.Random) -> int:
    return rng.randrange(1_330_000_000, 1_690_000_000)


def _submission(rng: random.Random) -> str:
    page = "https://www.reddit.com/r/musictheory/comments/@@@@@@@/"
    url = "https://i.redd.it/@@@@@@@.png" if rng.random() < 0.125 else page
    row = {
        "author": f"asker_{rng.randrange(99999)}", "author_flair_text": None, "created_utc": _time(rng),
        "domain": "i.redd.it", "edited": False, "gilded": 0, "id": "@@@@@@@", "is_self": False, "media_metadata": None,
        "num_comments": 12, "over_18": rng.random() < 0.02, "permalink": "/r/musictheory/comments/@@@@@@@/title/",
        "removed_by_category": rng.choice([None] * 9 + ["moderator"]), "score": rng.randrange(0, 300),
        "selftext": _text(rng, 260), "subreddit": "musictheory", "subreddit_id": "t5_2qh34", "title": _text(rng, 20),
        "upvote_ratio": 0.93, "url": url, "preview": None, "is_video": False,
    }  # fmt: skip
    return json.dumps(row) + "\n"


def _comment(rng: random.Random) -> str:
    thread = "t3_#######"
    row = {
        "author": f"helper_{rng.randrange(99999)}", "author_flair_css_class": None, "author_flair_text": None,
        "body": _text(rng, 120), "can_gild": True, "controversiality": 0, "created_utc": _time(rng),
        "distinguished": None, "edited": rng.choice([False, 1_600_000_000.0]), "gilded": 0, "id": "@@@@@@@",
        "is_submitter": False, "link_id": thread, "parent_id": thread if rng.random() < 0.5 else "t1_abc1234",
        "permalink": "/r/musictheory/comments/abc/x/def/", "score": rng.randrange(-5, 60),
        "retrieved_on": 1_690_000_000, "stickied": False, "subreddit": "musictheory", "subreddit_id": "t5_2qh34",
    }  # fmt: skip
    return json.dumps(row) + "\n"


def ours(folder: Path, end: str, scrub: bool) -> int:
    """The steps that read and filter, with every line accounted for, and the one that takes names out of texts.

    Returns:
        The first-level comments of the threads that were kept.
    """
    model = {"annotator": "builtin:score-question"}
    config = ScoreQuestions.model_validate({
        "source": {"submissions": [f"RS.ndjson{end}"], "comments": [f"RC.ndjson{end}"], "subreddits": ["musictheory"]},
        "writer": model, "judge": model, "labeller": model, "base": folder,
    })  # fmt: skip
    with staging(open_store(str(folder / "store")), "score-questions", "0" * 64, say=print) as stage:
        candidates = read_submissions(stage, config)
        answers = read_comments(stage, config, candidates)
        if scrub:
            scrub_threads(stage, config, candidates, answers)
        return sum(step.kept for step in stage.steps() if step.name == "comments")


def reader_alone(folder: Path, end: str, all_columns: bool = False) -> int:
    """DuckDB's reader with explicit columns; of comments, how many are first-level."""
    texts = {"RS": ("title", "selftext"), "RC": ("link_id", "parent_id", "body")}
    if all_columns:
        texts = {"RS": COLUMNS["submissions"], "RC": COLUMNS["comments"]}
    found = 0
    with duckdb.connect(config={"memory_limit": MEMORY_LIMIT}) as connection:
        for name, columns in texts.items():
            where = "parent_id = link_id" if name == "RC" else "title <> ''"
            read = f"read_json($file, columns = {dict.fromkeys(columns, 'VARCHAR')}, format = 'newline_delimited')"
            counts = ", ".join(f"sum(strlen({column}))" for column in columns)
            count = f"SELECT count(*), {counts} FROM {read} WHERE {where}"
            found = connection.execute(count, {"file": str(folder / f"{name}.ndjson{end}")}).fetchall()[0][0]
    return found


def json_loop(folder: Path) -> int:
    """What one would write first: `json.loads` a line, and the first-level filter."""
    found = 0
    for name in FILES:
        with (folder / f"{name}.ndjson").open(encoding="utf-8") as file:
            for line in file:
                row: dict[str, Any] = json.loads(line)
                found += name == "RC" and row["parent_id"] == row["link_id"]
    return found


def run_case(case: str, folder: Path) -> None:
    """One case in this process; prints its figures as JSON."""
    end = ".zst" if case.endswith("zstd") else ""
    start = time.perf_counter()
    if case.startswith("ours"):
        found = ours(folder, end, "scrub" in case)
    else:
        found = reader_alone(folder, end, "all" in case) if case.startswith("reader") else json_loop(folder)
    took_s = time.perf_counter() - start
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(json.dumps({"found": found, "took_s": took_s, "peak_gb": peak_gb}))


def bench_dump(megabytes: int, rounds: int) -> None:
    """Every case, beside each other."""
    with tempfile.TemporaryDirectory(prefix="bench-forum-") as scratch:
        folder = Path(scratch)
        make_dump(folder, megabytes)
        size_mb = sum((folder / f"{name}.ndjson").stat().st_size for name in FILES) / 1e6
        print(f"{size_mb:,.0f} MB of NDJSON, {os.cpu_count()} cores, Python {platform.python_version()}\n")
        print("| case | MB/s | × json loop | × reader | peak, GB | first-level or kept comments |")
        print("|---|---:|---:|---:|---:|---:|")
        rates: dict[str, float] = {}
        for case in CASES:
            runs = []
            for _ in range(rounds):
                command = [sys.executable, "-m", "tests.benchmarks.bench_forum", "--case", case, "--folder", scratch]
                environment = {**os.environ, "EARMARK_SALT": "a salt for benchmarks only"}
                done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
                runs.append(json.loads(done.stdout.splitlines()[-1]))
                shutil.rmtree(folder / "store", ignore_errors=True)
            best = min(runs, key=lambda run: run["took_s"])
            rates[case] = size_mb / best["took_s"]
            reader = rates.get("reader alone, zstd" if case.endswith("zstd") else "reader alone")
            share = f"{rates[case] / reader:.2f}" if reader else "–"
            peak = max(run["peak_gb"] for run in runs)
            times = rates[case] / rates["json loop"]
            print(
                f"| {case} | {rates[case]:,.0f} | {times:.1f} | {share} | {peak:.2f} | {best['found']:,} |", flush=True
            )


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        run_case(given.case, given.folder)
        return
    bench_dump(given.megabytes, given.rounds)


if __name__ == "__main__":
    main()
