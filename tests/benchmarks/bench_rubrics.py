"""Planning `instruction-rubrics`: from measured captions to every request that is known, counted against the ledger.

    .venv/bin/python -m tests.benchmarks.bench_rubrics [--samples 105000]

Prints seconds for each part, requests by ask, and that none stands twice. Captions are drawn from two thousand words;
the clips are not there, since planning reads no sound.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SUBSETS = ("speech-real", "speech-gen", "sound-real", "sound-gen", "music-real", "music-gen", "mix")


def config_for(samples: int) -> Any:
    """The paper's corpus: seven subsets of equal size, three of them generated."""
    from schemas.config import parse_config
    from schemas.instruction_rubrics import InstructionRubrics

    sources = [
        {"name": name, "subset": name, "domain": {"mix": "mixed"}.get(name, name.partition("-")[0]),
         "captions": f"{name}.csv", "generated": name.endswith("-gen"), "set": "train"}
        for name in SUBSETS
    ]  # fmt: skip
    asked = {"annotator": "openai:a-model", "base_url": "http://127.0.0.1:9/v1"}
    counts = {"train": dict.fromkeys(SUBSETS, samples // len(SUBSETS) // 2 * 2)}
    values = {"sources": sources, "counts": counts, "judge": asked, "writer": asked, "disjoint": {"fingerprint": 0}}
    return parse_config(InstructionRubrics, values, Path("build.toml"))


def heard(config: Any, samples: int) -> list[dict[str, Any]]:
    """Captions as `index` leaves them, a half more than the counts and their spare need."""
    from tasks.instruction_rubrics.altering import instruction_id

    dice = random.Random(17)
    words = ["".join(dice.choices("abcdefghijklmnoprstuvw", k=dice.randint(3, 9))) for _ in range(2000)]
    rows: list[dict[str, Any]] = []
    for source in config.sources:
        each = samples // len(SUBSETS) * (3 if source.generated else 2)
        for number in range(each // 2 * 3 // 2):
            text = " ".join(dice.choices(words, k=dice.randint(8, 24))) + "."
            rows.append(
                {"row": len(rows), "source": source.name, "item": f"{source.name}{number}", "file": "c.wav",
                 "text": text, "origin": None, "generator": None, "source_file": source.captions, "line": number + 2,
                 "subset": source.subset, "domain": source.domain, "language": "en", "generated": source.generated,
                 "set": source.set, "path": "/clips/c.wav", "clip_sha256": f"{len(rows):064x}", "duration_s": 10.0,
                 "sample_rate_hz": 16_000, "channels": 1, "peak_dbfs": -1.0,
                 "instruction_id": instruction_id(source.name, source.domain, "en", text)}
            )  # fmt: skip
    return rows


def main() -> None:
    """Plan once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=105_000)
    samples = parser.parse_args().samples

    from tasks.instruction_rubrics.forecast import asks_of, plan_captions
    from tasks.store.staging import Stage
    from tasks.store.versions import Store

    config = config_for(samples)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Store(Path(folder) / "store"), "instruction-rubrics", "bench", Path(folder) / "stage")
        for part in ("work", "steps", "version"):
            (stage.folder / part).mkdir(parents=True)
        rows = heard(config, samples)
        pq.write_table(pa.Table.from_pylist(rows), stage.work / "heard.parquet")
        started = time.perf_counter()
        plan_captions(stage, config)
        chosen = time.perf_counter()
        told = dict(asks_of(stage, config, Path(folder) / "ledger.sqlite"))
        counted = time.perf_counter()
    print(f"{samples:,} samples of {len(rows):,} captions")
    print(f"group, place and choose captions, plan negatives  {chosen - started:7.1f} s")
    print(f"make the known requests and count all             {counted - chosen:7.1f} s")
    print(f"in all                                            {counted - started:7.1f} s")
    for name, found in told.items():
        print(f"  {name:20} {found['requests']:9,} requests, {found['distinct']:9,} distinct")
    print(f"  in all               {sum(found['requests'] for found in told.values()):9,} requests")
    assert all(found["requests"] == found["distinct"] for found in told.values()), "a question stands twice"


if __name__ == "__main__":
    main()
