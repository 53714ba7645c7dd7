"""A simulated judge of known accuracy, lean, ties and halo through the whole of `pseudo-preferences`, at 5,000 pairs.

    .venv/bin/python -m tests.benchmarks.bench_judge [--prompts 1667] [--settings 6]

Prints each share of the flow's own output beside the closed form, and ends with an error where one lies further from it
than four standard errors. Three pairs a prompt; every request goes over HTTP to a local server and into the ledger.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.pseudo_preferences.simulated import Judge, build, figures, make_music

JUDGES = (
    Judge(0.8, lean=0.15, ties=0.05, halo=0.2),
    Judge(0.9),
    Judge(0.7, lean=0.4),
    Judge(0.8, ties=0.2),
    Judge(0.8, halo=0.6),
    Judge(0.34, lean=0.3, ties=0.1, halo=0.5),
)
MOST = 4.0


def main() -> None:
    """Run each judge and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=1667)
    parser.add_argument("--settings", type=int, default=len(JUDGES))
    options = parser.parse_args()
    print("| accuracy, lean, ties, halo | share | of | measured | expected | sigmas |\n|---|---|---:|---:|---:|---:|")
    far = []
    with tempfile.TemporaryDirectory() as folder:
        known = make_music(Path(folder) / "pool", options.prompts)
        for number, judge in enumerate(JUDGES[: options.settings]):
            start = time.perf_counter()
            found = figures(judge, build(judge, Path(folder) / "pool", Path(folder) / f"store{number}"), known)
            name = ", ".join(f"{rate:g}" for rate in judge)
            for one in found:
                cells = (name, one.name, f"{one.of:,}", f"{one.share:.4f}", f"{one.expected:.4f}", f"{one.sigmas:.1f}")
                print(f"| {' | '.join(cells)} |", flush=True)
            print(f"\n{time.perf_counter() - start:.0f} s\n", flush=True)
            far += [(name, one) for one in found if one.sigmas > MOST]
    if far:
        raise SystemExit(f"further than {MOST} standard errors: {far}")


if __name__ == "__main__":
    main()
