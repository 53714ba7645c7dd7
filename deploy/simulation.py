"""Simulate the time of requests: discrete events of workers, a model's latency, and the limits of both.

    python deploy/simulation.py --requests 259090 --latency-ms 4000 --workers 4 --concurrency 64 --per-minute 10000

prints the time and what is busiest. `tests/benchmarks/bench_workers.py` holds it against measured runs.
"""

import argparse
import heapq
import json
import random
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Setting:
    """Parameters of a simulation."""

    requests: int  # how many are asked in all; workers share them until none is left
    latency_s: float  # mean time that the model takes
    spread: float = 0.0  # sigma of the latency's log-normal distribution; 0 for always the same
    workers: int = 1  # processes that ask
    concurrency: int = 32  # requests in flight of each
    per_minute: float = 0.0  # requests a minute of all together; 0 for no cap
    tokens_per_minute: float = 0.0  # tokens a minute of all together; 0 for no cap
    tokens: int = 0  # of a request, in and out
    worker_s: float = 0.0  # time that a worker itself needs for a request, one after the other: its processor's
    server_s: float = 0.0  # the same of the server, in front of the model
    slots: int = 0  # requests that the model works on at once; others wait. 0 for any number.
    faults: float = 0.0  # share of exchanges that fail and are asked again
    seed: int = 17  # of latencies and faults


@dataclass(frozen=True)
class Outlook:
    """Result of a simulation."""

    wall_s: float  # from the first request to the last answer
    exchanges: int  # requests and those that were asked again
    # share of the time that each limit was used: `places` in flight, the `workers` themselves, the `server`, the
    # model's `slots`, the `cap` a minute. What stands near 1 is what more of would help.
    busy: dict[str, float]

    @property
    def first(self) -> str:
        """Return the first resource to saturate."""
        limits = {name: share for name, share in self.busy.items() if name != "places"}
        highest = max(limits, key=lambda name: limits[name])
        return highest if limits[highest] > 0.9 else "places"


def simulate(setting: Setting) -> Outlook:
    """Play it through, event by event: a place in flight that is free takes the next request."""
    draw = random.Random(setting.seed)
    free = [(0.0, worker) for worker in range(setting.workers) for _ in range(setting.concurrency)]
    worker_free = [0.0] * setting.workers
    slots = [0.0] * setting.slots
    server_free = clock = wall = in_flight_s = served_s = 0.0
    cap_s = max(
        60.0 / setting.per_minute if setting.per_minute else 0.0,
        60.0 * setting.tokens / setting.tokens_per_minute if setting.tokens_per_minute else 0.0,
    )
    left, exchanges = setting.requests, 0
    while left:
        now, worker = heapq.heappop(free)
        left, exchanges = left - 1, exchanges + 1
        leaves = max(now, clock)  # the shared clock of the quota
        clock = leaves + cap_s
        sent = worker_free[worker] = max(leaves, worker_free[worker]) + setting.worker_s
        taken = server_free = max(sent, server_free) + setting.server_s
        if setting.slots:
            taken = max(taken, heapq.heappop(slots))
        latency_s = _latency(draw, setting)
        back = taken + latency_s
        if setting.slots:
            heapq.heappush(slots, back)
        served_s += latency_s
        in_flight_s += back - leaves
        wall = max(wall, back)
        if setting.faults and draw.random() < setting.faults:
            left += 1
        heapq.heappush(free, (back, worker))
    busy = {
        "places": in_flight_s / wall / (setting.workers * setting.concurrency),
        "workers": exchanges * setting.worker_s / wall / setting.workers,
        "server": exchanges * setting.server_s / wall,
        "slots": served_s / wall / setting.slots if setting.slots else 0.0,
        "cap": exchanges * cap_s / wall,
    }
    return Outlook(wall, exchanges, {name: round(share, 4) for name, share in busy.items()})


def _latency(draw: random.Random, setting: Setting) -> float:
    if not setting.spread:
        return setting.latency_s
    return setting.latency_s * draw.lognormvariate(-(setting.spread**2) / 2, setting.spread)


def main() -> None:
    """Simulate once and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--latency-ms", type=float, required=True, help="mean time that the model takes")
    parser.add_argument("--spread", type=float, default=0.3, help="sigma of the log-normal latency; 0 for none")
    parser.add_argument("--workers", type=int, default=1, help="processes that ask")
    parser.add_argument("--concurrency", type=int, default=32, help="requests in flight of each")
    parser.add_argument("--per-minute", type=float, default=0.0, help="requests a minute of all; 0 for no cap")
    parser.add_argument("--tokens-per-minute", type=float, default=0.0, help="tokens a minute of all; 0 for no cap")
    parser.add_argument("--tokens", type=int, default=0, help="of a request, in and out")
    parser.add_argument("--worker-ms", type=float, default=0.35, help="a worker's own time for a request")
    parser.add_argument("--server-ms", type=float, default=0.0, help="the server's own time for a request")
    parser.add_argument("--slots", type=int, default=0, help="requests that the model works on at once; 0 for any")
    parser.add_argument("--faults", type=float, default=0.0, help="share of exchanges that fail")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--json", action="store_true")
    given = vars(parser.parse_args())
    as_json = given.pop("json")
    seconds = {f"{name}_s": given.pop(f"{name}_ms") / 1000 for name in ("latency", "worker", "server")}
    outlook = simulate(Setting(**given, **seconds))
    if as_json:
        print(json.dumps({**asdict(outlook), "first": outlook.first}))
        return
    print(f"{outlook.wall_s:,.0f} s ({outlook.wall_s / 3600:.2f} h) for {outlook.exchanges:,} exchanges")
    print("busy: " + ", ".join(f"{name} {share:.0%}" for name, share in outlook.busy.items()))
    print(f"first to saturate: {outlook.first}")


if __name__ == "__main__":
    main()
