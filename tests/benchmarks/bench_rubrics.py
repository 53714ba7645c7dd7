"""Planning `instruction-rubrics`: from measured captions to every request, counted against the ledger.

    .venv/bin/python -m tests.benchmarks.bench_rubrics [--samples 105000]

Prints seconds, memory, requests by ask, and that none stands twice. Captions are drawn from two thousand words;
the clips are not there, since planning reads no sound.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

SUBSETS = ("speech-real", "speech-gen", "sound-real", "sound-gen", "music-real", "music-gen", "mix")


def config_for(samples: int) -> Any:
    """The paper's corpus: seven subsets of equal size, three of them generated."""
    from earmark.schemas.instruction_rubrics import InstructionRubrics
    from earmark.schemas.toml import parse_config

    sources = [
        {"name": name, "subset": name, "domain": {"mix": "mixed"}.get(name, name.partition("-")[0]),
         "captions": f"{name}.csv", "generated": name.endswith("-gen"), "set": "train"}
        for name in SUBSETS
    ]  # fmt: skip
    asked = {"model": "openai:a-model"}
    counts = {"train": dict.fromkeys(SUBSETS, samples // len(SUBSETS) // 2 * 2)}
    values = {"sources": sources, "counts": counts, "judge": asked, "writer": asked, "fingerprint": 0}
    return parse_config(InstructionRubrics, values, Path("build.toml"))


def captions_of(config: Any, samples: int) -> list[dict[str, Any]]:
    """Captions as `index` leaves them, a half more than the counts and their spare need."""
    from earmark.tasks.instruction_rubrics.negatives import instruction_id

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

    from earmark.flows import instruction_rubrics
    from earmark.schemas.instruction_rubrics import CORPUS
    from earmark.tasks.store.versions import Store
    from tests.builds import forecast

    config = config_for(samples)
    rows = captions_of(config, samples)
    with tempfile.TemporaryDirectory() as folder:
        usable = Path(folder) / "usable.parquet"
        pq.write_table(pa.Table.from_pylist(rows), usable)
        started = time.perf_counter()
        with (
            patch.object(instruction_rubrics, "import_captions", lambda stage, config: usable),
            patch.object(instruction_rubrics, "index_clips", lambda stage, config, captions: usable),
            patch.object(instruction_rubrics, "check_inputs", lambda stage, config: None),
        ):
            facts = forecast(CORPUS, instruction_rubrics.build.story, config, Store(Path(folder) / "store")) or {}
        seconds = time.perf_counter() - started
    asks = {str(facts["stage"]): facts} | {name: part for name, part in facts.items() if isinstance(part, dict)}
    print(f"{samples:,} samples of {len(rows):,} captions")
    print(f"group and choose captions, make all requests and count them  {seconds:7.1f} s")
    print(f"most memory  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:7.2f} GiB")
    for name, part in asks.items():
        print(f"  {name:20} {part['requests']:9,} requests, {part['distinct']:9,} distinct")
    print(f"  in all               {sum(part['requests'] for part in asks.values()):9,} requests")
    assert all(part["requests"] == part["distinct"] for part in asks.values()), "a question stands twice"


if __name__ == "__main__":
    main()
