"""Pairs from rated clips: our SQL beside a plain pandas self-merge, in one run.

    .venv/bin/python -m tests.benchmarks.bench_pairs [--clips 10000000]

Prints rows per second, peak memory of the process that did the work, and ratios. Every case runs in a process of its
own, so that one's memory is not counted as another's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = {
    # name: clips, contents, systems, speakers, quota
    "70k": (70_000, 7_000, 150, 300, 75_000),
    "10M": (10_000_000, 100_000, 150, 3_000, 20_000_000),
}


def make_ratings(folder: Path, clips: int, contents: int, systems: int, speakers: int) -> None:
    """Write the published table `ratings` with made-up values, as the build would."""
    import duckdb

    from earmark.schemas.mos_preferences import RATINGS
    from earmark.tasks.store.parquet import write_shards

    query = f"""
        SELECT 'bench/clip-' || lpad(i::VARCHAR, 8, '0') || '.wav' AS sample_id, 'bench' AS dataset, NULL AS subset,
            'train' AS split, 'clip-' || lpad(i::VARCHAR, 8, '0') || '.wav' AS file,
            1 + (md5_number_lower('mos' || i) % 401) / 100.0 AS mos, NULL AS votes, NULL AS mos_std, NULL AS mos_se,
            1.0 AS scale_min, 5.0 AS scale_max, 'system-' || (md5_number_lower('sys' || i) % {systems}) AS system_id,
            'speaker-' || (md5_number_lower('spk' || i) % {speakers}) AS speaker_id,
            'content-' || (md5_number_lower('txt' || i) % {contents}) AS content_id, NULL AS condition_id,
            NULL AS clip_sha256, NULL AS duration_s, NULL AS sample_rate_hz, NULL AS channels,
            'bench/list.csv' AS source_file, i + 1 AS source_line, NULL AS audio
        FROM range({clips}) t(i) ORDER BY i"""
    with duckdb.connect(config={"memory_limit": "2GB"}) as connection:
        reader = connection.sql(query).to_arrow_reader(100_000)
        write_shards(folder, RATINGS, "train", reader)


def ours(folder: Path, quota: int, write: bool) -> dict[str, float]:
    """Draw, pick and derive the pairs; then, if asked, write the published table."""
    from earmark.schemas.mos_preferences import PAIRS, MosPreferences
    from earmark.tasks.mos_preferences.clips import RatedClips
    from earmark.tasks.mos_preferences.pairs import draw_and_pick, pair_rows
    from earmark.tasks.store.parquet import write_shards
    from earmark.tasks.store.sql import connect, query

    config = MosPreferences.model_validate(
        {
            "sources": [{"name": "bench", "format": "bvcc", "root": "."}],
            "quotas": {"bench": {"train": quota}},
        }
    )
    start = time.perf_counter()
    clips = RatedClips({"train": sorted(folder.glob("*.parquet"))})
    with connect(folder / "spill") as connection:
        clips.open(connection, config.seed)
        drawn = draw_and_pick(connection, config)
        connection.execute("DROP TABLE clips")
        connection.execute(query("mos_preferences/gap_scale"))
        picked_s = time.perf_counter() - start
        if write:
            write_shards(folder / "pairs", PAIRS, "train", pair_rows(connection, clips, "train"))
    return {"pairs": drawn.kept, "picked_s": picked_s, "total_s": time.perf_counter() - start}


def pandas_merge(folder: Path, quota: int) -> dict[str, float]:
    """What one would write in an afternoon: merge each kind of group with itself, drop what is no pair, sample."""
    import pandas as pd

    start = time.perf_counter()
    columns = ["sample_id", "mos", "content_id", "system_id", "speaker_id"]
    clips = pd.read_parquet(sorted(folder.glob("*.parquet")), columns=columns)
    parts = []
    for key, other in (("content_id", "system_id"), ("system_id", "content_id")):
        both = clips.merge(clips, on=key, suffixes=("_a", "_b"))
        both = both[(both["sample_id_a"] < both["sample_id_b"]) & (both["mos_a"] != both["mos_b"])]
        both = both[both[f"{other}_a"] != both[f"{other}_b"]]
        parts.append(both.sample(min(quota // 3, len(both)), random_state=17))
    first, second = (
        clips.sample(quota // 3, replace=True, random_state=seed).reset_index(drop=True) for seed in (1, 2)
    )
    loose = first.add_suffix("_a").join(second.add_suffix("_b"))
    loose = loose[(loose["mos_a"] != loose["mos_b"]) & (loose["content_id_a"] != loose["content_id_b"])]
    parts.append(loose[loose["system_id_a"] != loose["system_id_b"]])
    pairs = pd.concat(parts)
    pairs["gap"] = (pairs["mos_a"] - pairs["mos_b"]).abs()
    pairs["normalized"] = (pairs["gap"] / pairs["gap"].quantile(0.9)).clip(upper=1)
    return {"pairs": len(pairs), "picked_s": time.perf_counter() - start, "total_s": time.perf_counter() - start}


def run_case(way: str, folder: Path, quota: int) -> dict[str, float]:
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.bench_pairs",
        "--way",
        way,
        "--at",
        str(folder),
        "--quota",
        str(quota),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"failed": done.returncode}
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--way", choices=["ours", "pandas"])
    parser.add_argument("--at", type=Path)
    parser.add_argument("--quota", type=int)
    given = parser.parse_args()
    if given.way:
        found = ours(given.at, given.quota, write=True) if given.way == "ours" else pandas_merge(given.at, given.quota)
        found["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(json.dumps(found))
        return
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(
        f"{'case':6} {'way':7} {'clips':>11} {'pairs':>11} {'pick s':>8} {'+write s':>8} {'pairs/s':>10} {'peak GB':>8}"
    )
    for name in given.cases:
        clips, contents, systems, speakers, quota = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            make_ratings(Path(folder), clips, contents, systems, speakers)
            results = {
                way: run_case(way, Path(folder), quota) for way in (("ours", "pandas") if name == "70k" else ("ours",))
            }
        for way, found in results.items():
            if "failed" in found:
                print(f"{name:6} {way:7} {clips:>11,} ended with exit code {found['failed']}")
                continue
            rate = found["pairs"] / found["picked_s"]
            print(
                f"{name:6} {way:7} {clips:>11,} {found['pairs']:>11,} {found['picked_s']:>8.2f} "
                f"{found['total_s']:>8.2f} {rate:>10,.0f} {found['peak_gb']:>8.2f}"
            )
        if "pandas" in results and "failed" not in results["pandas"]:
            ratio = results["pandas"]["picked_s"] / results["ours"]["picked_s"]
            memory = results["pandas"]["peak_gb"] / results["ours"]["peak_gb"]
            print(f"{name:6} pandas takes {ratio:.1f} times as long to pick and {memory:.1f} times the memory")


if __name__ == "__main__":
    main()
