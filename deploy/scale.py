"""Compute the needs of each corpus at its paper's size, ten and a hundred times it, as the tables of deploy/SCALE.md.

    python deploy/scale.py            # prints them
    python deploy/scale.py --write    # puts them into deploy/SCALE.md

Counts stand in the corpora's declarations; what a model or a disk does in a second is assumed, and stands in `ASSUMED`;
what was measured of it says so there.
"""

import argparse
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simulation import Setting, simulate

from earmark.schemas.corpus import Workload
from earmark.tasks.pipeline.registry import all_corpora

ASSUMED = {
    "tokens of a second of audio": 25.0,
    "seconds that a judge takes for a request": 4.0,
    "requests that one GPU's server works on at once": 32.0,
    "requests that a worker keeps in flight": 64.0,
    "seconds of a worker's processor that a request takes (measured)": 0.0036,
    "times real time that one GPU separates": 60.0,
    "US dollars for a million tokens in": 0.4,
    "US dollars for a million tokens out": 1.6,
    "bytes of a second of audio (FLAC, 16 kHz, mono)": 17_000.0,
    "bytes of an answer in the ledger": 3_000.0,
}
FILE = Path(__file__).with_name("SCALE.md")
BEGIN, END = "<!-- deploy/scale.py begins -->", "<!-- deploy/scale.py ends -->"
GPUS = 8
BUSY = {
    "slots": "the model's GPUs",
    "places": "requests in flight",
    "workers": "workers' processors",
    "server": "the model's server",
    "cap": "the quota",
}
SIMULATED = 5_000_000  # requests; beyond so many time grows in proportion


WORKLOADS = {
    f"{corpus.name}, {work.part}" if work.part else corpus.name: work
    for corpus in all_corpora()[0].values()
    for work in corpus.scale
}
"""By the name of the corpus and of its part."""


@dataclass(frozen=True)
class Needs:
    """Resources of a workload at a multiple of its size."""

    requests: float
    tokens_in: float
    tokens_out: float
    gpu_h: float
    stored_bytes: float
    cost_usd: float
    wall_h: float
    first: str


def needs(work: Workload, times: int) -> Needs:
    """Return the resources; the time is for four workers and `GPUS` GPUs behind one address."""
    items, requests = work.items * times, work.items * times * work.requests
    tokens_in = requests * (work.heard_s * ASSUMED["tokens of a second of audio"] + work.text_in)
    tokens_out = requests * work.text_out
    asked_h, first = _asking(requests)
    separated_h = 0.0
    if work.separated:
        separated_h = items * work.audio_s / ASSUMED["times real time that one GPU separates"] / 3600
    slots = ASSUMED["requests that one GPU's server works on at once"]
    gpu_h = requests * ASSUMED["seconds that a judge takes for a request"] / slots / 3600 + separated_h
    audio = items * work.audio_s * (work.bytes_s or ASSUMED["bytes of a second of audio (FLAC, 16 kHz, mono)"])
    cost_usd = tokens_in / 1e6 * ASSUMED["US dollars for a million tokens in"]
    cost_usd += tokens_out / 1e6 * ASSUMED["US dollars for a million tokens out"]
    return Needs(
        requests,
        tokens_in,
        tokens_out,
        gpu_h,
        audio + requests * ASSUMED["bytes of an answer in the ledger"],
        cost_usd,
        asked_h + separated_h / GPUS,
        "GPUs that separate" if work.separated else first,
    )


@cache
def _asking(requests: float) -> tuple[float, str]:
    """Hours that the simulation gives, and what is busiest; long runs grow in proportion."""
    if not requests:
        return 0.0, "the disk"
    if requests > SIMULATED:
        wall_h, first = _asking(requests / 10)
        return 10 * wall_h, first
    outlook = simulate(
        Setting(
            requests=int(requests),
            latency_s=ASSUMED["seconds that a judge takes for a request"],
            spread=0.3,
            workers=4,
            concurrency=int(ASSUMED["requests that a worker keeps in flight"]),
            worker_s=ASSUMED["seconds of a worker's processor that a request takes (measured)"],
            slots=GPUS * int(ASSUMED["requests that one GPU's server works on at once"]),
        )
    )
    return outlook.wall_s / 3600, BUSY[outlook.first]


def tables() -> str:
    """Return the three tables and the assumptions, in Markdown."""
    parts = []
    for times, title in ((1, "At the papers' size"), (100, "At a hundred times that")):
        rows = [
            _row(name, work, needs(work, times), work.built if times == 1 else "nothing")
            for name, work in WORKLOADS.items()
        ]
        parts.append(
            f"### {title}\n\n"
            "| corpus | of | requests | tokens in | out | GPU hours | stored | US dollars | hours | busiest | built |\n"
            "|---|---|--:|--:|--:|--:|--:|--:|--:|---|---|\n" + "\n".join(rows)
        )
    grown = [_grown(name, work, needs(work, 1), needs(work, 10)) for name, work in WORKLOADS.items()]
    parts.insert(
        1,
        "### At ten times the papers' rows\n\n"
        "Hours of what models limit are simulated, request by request. What no model limits was run: its growth\n"
        "stands in [RESULTS.md](../tests/benchmarks/RESULTS.md) (`python -m tests.benchmarks.bench_ten_times`).\n\n"
        "| corpus | requests | stored | hours | growth of hours | busiest |\n|---|--:|--:|--:|--:|---|\n"
        + "\n".join(grown),
    )
    assumed = "\n".join(f"- {name}: {value:,g}" for name, value in ASSUMED.items())
    return "\n\n".join([*parts, f"### Assumed\n\n{assumed}"])


def _row(name: str, work: Workload, need: Needs, built: str) -> str:
    cells = (
        name,
        work.size,
        f"{need.requests:,.0f}",
        _short(need.tokens_in),
        _short(need.tokens_out),
        f"{need.gpu_h:,.1f}",
        _short(need.stored_bytes) + "B",
        f"{need.cost_usd:,.0f}",
        f"{need.wall_h:,.1f}",
        need.first,
        built,
    )
    return f"| {' | '.join(cells)} |"


def _grown(name: str, work: Workload, once: Needs, more: Needs) -> str:
    run = "ten times" in work.built
    hours = ("–", "run") if run else (f"{more.wall_h:,.1f}", f"{more.wall_h / once.wall_h:.2f}")
    return f"| {' | '.join((name, f'{more.requests:,.0f}', f'{_short(more.stored_bytes)}B', *hours, more.first))} |"


def _short(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {unit}".strip() if unit else f"{number:.0f}"
        number /= 1000
    return f"{number:.3g} T"


def main() -> None:
    """Print the tables, or put them where the plan has them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put them into deploy/SCALE.md")
    if not parser.parse_args().write:
        print(tables())
        return
    before, _, rest = FILE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    FILE.write_text(f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
