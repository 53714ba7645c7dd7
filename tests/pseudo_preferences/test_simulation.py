"""The simulation of workers and limits, against what can be reckoned by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.simulation import Setting, simulate

SETTINGS = st.builds(
    Setting,
    requests=st.integers(1, 300),
    latency_s=st.floats(0.01, 5),
    spread=st.sampled_from([0.0, 0.5]),
    workers=st.integers(1, 5),
    concurrency=st.integers(1, 20),
    per_minute=st.sampled_from([0.0, 60.0, 6000.0]),
    worker_s=st.sampled_from([0.0, 0.001, 0.1]),
    server_s=st.sampled_from([0.0, 0.01]),
    slots=st.sampled_from([0, 1, 8]),
)


def test_by_hand() -> None:
    plain = Setting(requests=1000, latency_s=0.5, concurrency=10)
    assert simulate(plain).wall_s == pytest.approx(50.0)
    assert simulate(replace(plain, workers=2)).wall_s == pytest.approx(25.0)
    assert simulate(replace(plain, per_minute=600)).wall_s == pytest.approx(99.9 + 0.5)
    assert simulate(replace(plain, tokens=100, tokens_per_minute=60_000)).wall_s == pytest.approx(99.9 + 0.5)
    assert simulate(replace(plain, slots=5)).wall_s == pytest.approx(100.0)
    assert simulate(replace(plain, latency_s=0.001, worker_s=0.01)).wall_s == pytest.approx(10.001)


def test_what_saturates_first_is_told() -> None:
    plain = Setting(requests=5000, latency_s=0.5, concurrency=10)
    assert simulate(plain).first == "places"
    assert simulate(replace(plain, per_minute=300)).first == "cap"
    assert simulate(replace(plain, slots=2)).first == "slots"
    assert simulate(replace(plain, latency_s=0.001, worker_s=0.01)).first == "workers"
    assert simulate(replace(plain, latency_s=0.001, server_s=0.01, workers=4)).first == "server"


def test_faults_are_asked_again() -> None:
    outlook = simulate(Setting(requests=10_000, latency_s=0.1, concurrency=50, faults=0.2))
    assert outlook.exchanges == pytest.approx(12_500, rel=0.05)


@given(SETTINGS)
def test_no_limit_is_passed(setting: Setting) -> None:
    outlook = simulate(setting)
    assert outlook.exchanges == setting.requests
    assert all(0 <= share <= 1.0001 or name == "cap" for name, share in outlook.busy.items())
    least = [setting.requests * setting.worker_s / setting.workers, setting.requests * setting.server_s]
    least.append((setting.requests - 1) * 60 / setting.per_minute if setting.per_minute else 0.0)
    assert outlook.wall_s >= max(least) - 1e-6
    assert simulate(setting) == outlook
