"""A version of a million preferences: its commit (checks, card, report), and its export in each format.

    .venv/bin/python -m tests.benchmarks.bench_versions [--pairs 1000000]

Prints seconds and peak memory. Every case runs in a process of its own. The rows are made up: generations of 46 to a
prompt, each with each, judged in both orders; the clips, two kilobytes each, lie in the table `clips`.
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
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

PER_PROMPT = 46  # generations: 1,035 pairs
PAIRS_PER_PROMPT = PER_PROMPT * (PER_PROMPT - 1) // 2
CLIP_BYTES = 2_000
KEY = "b" * 64
EXPORTS = (
    # format, view or table, blind
    ("jsonl", "labels", False),
    ("jsonl", "musicality-clips", False),
    ("ms-swift", "musicality-clips", False),
    ("ms-swift", "musicality-choice", False),
    ("llama-factory", "musicality-choice", False),
    ("trl-reward", "musicality-choice", True),
    ("trl-grpo", "musicality-choice", True),
)

GENERATIONS = f"""
    SELECT g, 'g' || lpad(g::VARCHAR, 9, '0') AS generation_id, g // {PER_PROMPT} AS p,
        'p' || lpad((g // {PER_PROMPT})::VARCHAR, 7, '0') AS prompt_id, 'model-' || (g % 7) AS model,
        sha256(repeat(chr((65 + g % 26)::INTEGER), {CLIP_BYTES} - 12) || lpad(g::VARCHAR, 12, '0')) AS clip_sha256,
        encode(repeat(chr((65 + g % 26)::INTEGER), {CLIP_BYTES} - 12) || lpad(g::VARCHAR, 12, '0')) AS content
    FROM range($generations) t(g)"""

CLIPS = """
    SELECT generation_id, 'train' AS split, prompt_id, model, generation_id || '.wav' AS file, clip_sha256,
        10.0 AS duration_s, 16000 AS sample_rate_hz, 1 AS channels, -1.0 AS peak_dbfs,
        'generations.jsonl' AS source_file, g + 1 AS source_line,
        {'bytes': content, 'path': clip_sha256 || '.wav'} AS audio
    FROM generations ORDER BY generation_id"""

PAIRED = """
    CREATE TABLE paired AS
    SELECT left(md5(a.generation_id || b.generation_id), 16) AS pair_id, a.p, a.prompt_id,
        a.generation_id AS generation_a, b.generation_id AS generation_b, a.model AS model_a, b.model AS model_b,
        CASE hash(a.g, b.g) % 8 WHEN 0 THEN 'tie' WHEN 1 THEN 'a' WHEN 2 THEN 'a' WHEN 3 THEN 'a' WHEN 4 THEN 'a'
            ELSE 'b' END AS choice
    FROM generations AS a JOIN generations AS b ON a.p = b.p AND a.g < b.g ORDER BY pair_id"""

PAIRS = """
    SELECT pair_id, 'train' AS split, prompt_id, 'text' AS modality,
        'An upbeat tune in ' || (60 + p % 120) || ' beats a minute for string quartet, take ' || p AS text,
        NULL AS lyrics, NULL AS reference_sha256, generation_a, generation_b, model_a, model_b
    FROM paired ORDER BY pair_id"""

JUDGMENTS = """
    SELECT pair_id, 'train' AS split, "order", 'musicality' AS dimension, choice,
        CASE WHEN choice = 'tie' THEN 'tie'
            WHEN ("order" = 'forward') = (choice = 'a') THEN 'A' ELSE 'B' END AS position,
        'The first has a steadier pulse.' AS reason, 'openai:made-up' AS judge, 'music-pair@1' AS prompt,
        sha256(pair_id || "order") AS request_key, NULL AS notes
    FROM paired, (VALUES ('forward'), ('reverse')) AS orders("order") ORDER BY pair_id, "order" """

LABELS = """
    SELECT pair_id, 'train' AS split, prompt_id, 'text' AS modality, generation_a, generation_b, model_a, model_b,
        choice AS musicality, NULL AS alignment, 'openai:made-up' AS judge
    FROM paired ORDER BY pair_id"""


def stage_version(root: Path, pairs: int) -> dict[str, float]:
    """Write the tables into a staging folder, as a build that was killed just before its commit would leave them."""
    from earmark.schemas import pseudo_preferences as tables
    from earmark.schemas.tables import UNSPLIT
    from earmark.tasks.store.manifest import Step
    from earmark.tasks.store.sql import connect
    from earmark.tasks.store.staging import staging
    from earmark.tasks.store.versions import Store

    start = time.perf_counter()
    generations = -(-pairs // PAIRS_PER_PROMPT) * PER_PROMPT
    with staging(Store(root), tables.CORPUS.name, KEY, say=print) as stage, connect(stage.work / "spill") as connection:
        connection.execute(f"CREATE TABLE generations AS {GENERATIONS}", {"generations": generations})
        connection.execute(PAIRED)
        made = ((tables.CLIPS, CLIPS), (tables.PAIRS, PAIRS), (tables.JUDGMENTS, JUDGMENTS), (tables.LABELS, LABELS))
        for place, (table, query) in enumerate(made, 1):
            count = stage.write(table, "train", connection.sql(query).to_arrow_reader(20_000))
            stage.record(Step(name=table.name, place=place, unit="rows", entered=count, kept=count, table=table.name))
        stage.write(tables.BIAS, UNSPLIT, [])
    return {"seconds": time.perf_counter() - start}


def commit_version(root: Path) -> dict[str, float]:
    from earmark.schemas.pseudo_preferences import CORPUS
    from earmark.tasks.pipeline.report import make_page
    from earmark.tasks.store.commit import Made, commit
    from earmark.tasks.store.staging import staging
    from earmark.tasks.store.versions import Store

    with staging(Store(root), CORPUS.name, KEY, say=print) as stage:
        start = time.perf_counter()
        config = {"judge": {"annotator": "openai:made-up"}}
        page = partial(make_page, CORPUS)
        version = commit(stage, Made(CORPUS, config, {}, code="", libraries={}, models=("openai:made-up",), page=page))
        return {"seconds": time.perf_counter() - start, "rows": float(version.manifest.rows["labels"]["train"])}


def export_version(root: Path, case: int) -> dict[str, float]:
    from earmark.schemas.pseudo_preferences import CORPUS
    from earmark.tasks.exports.choosing import ExportOptions
    from earmark.tasks.exports.export import export
    from earmark.tasks.store.versions import Store

    format_, name, blind = EXPORTS[case]
    named: dict[str, Any] = {"table": name} if name == "labels" else {"view": name}
    store = Store(root)
    start = time.perf_counter()
    record = export(
        store.find(CORPUS.name), CORPUS, store, root / f"export-{case}", ExportOptions(format_, blind=blind, **named)
    )
    return {"seconds": time.perf_counter() - start, "rows": float(sum(record["rows"].values()))}


def run_case(*words: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_versions", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return {"failed": done.returncode}
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def cases(pairs: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is run, in order: its name and its words on the command line."""
    yield "(make the tables)", ("--case", "stage", "--pairs", str(pairs))
    yield "commit: checks, card, report", ("--case", "commit")
    for number, (format_, name, _) in enumerate(EXPORTS):
        yield f"export {format_}: {name}", ("--case", str(number))


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--case")
    parser.add_argument("--at", type=Path)
    given = parser.parse_args()
    if given.case:
        if given.case == "stage":
            found = stage_version(given.at, given.pairs)
        elif given.case == "commit":
            found = commit_version(given.at)
        else:
            found = export_version(given.at, int(given.case))
        found["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(json.dumps(found))
        return
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'case':42} {'rows':>10} {'seconds':>8} {'peak GB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, words in cases(given.pairs):
            found = run_case(*words, "--at", folder)
            if "failed" in found:
                print(f"{name:42} ended with exit code {found['failed']}")
                break
            print(f"{name:42} {found.get('rows', 0):>10,.0f} {found['seconds']:>8.1f} {found['peak_gb']:>8.2f}")


if __name__ == "__main__":
    main()
