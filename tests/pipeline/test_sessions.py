"""Sessions of a build: one an annotator, and no model in this process that is not asked."""

from __future__ import annotations

import hashlib
import pickle
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import soundfile

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Audio
from earmark.tasks.annotation.errors import BudgetExhausted
from earmark.tasks.annotation.ledger import connect
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.pipeline.sessions import _OF_BUILD, Sessions, forget_clips, sessions_of_build
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import LocalServer, config_for, requests_for
from tests.pipeline.test_shards import elsewhere
from tests.servers.faults import Faults

__all__ = ["elsewhere"]  # fixtures


def test_a_model_in_this_process_is_closed_by_the_first_walk_that_does_not_ask_it(tmp_path: Path) -> None:
    judge, writer = AnnotatorConfig(annotator="transformers:judge"), AnnotatorConfig(annotator="transformers:writer")
    server = AnnotatorConfig(annotator="openai:reader", base_url="http://127.0.0.1:9/v1")
    with Sessions(Store(tmp_path)) as sessions:
        first = sessions.of({"judge": judge, "verifier": judge, "reader": server})
        assert first["judge"] is first["verifier"]
        second = sessions.of({"writer": writer})
        assert not first["judge"]._thread.is_alive()
        assert first["reader"]._thread.is_alive()  # a server's session keeps its pace and its budget
        third = sessions.of({"judge": judge, "writer": writer, "reader": server})
        assert third["writer"] is second["writer"]
        assert third["reader"] is first["reader"]
        assert third["judge"] is not first["judge"]
    assert not any(session._thread.is_alive() for session in third.values())


@pytest.mark.slow
@pytest.mark.parametrize("in_processes", [False, True])
def test_roles_of_a_model_spend_one_budget(tmp_path: Path, elsewhere: Any, in_processes: bool) -> None:
    """Three roles would spend 0.02 each; the fourth has a budget of its own."""
    prices = {"input_per_million": 1.0, "output_per_million": 10.0}
    with LocalServer(Faults()) as server:
        roles = {
            f"role{heat}": config_for(
                server, prices=prices, budget_usd=0.02 if heat else 0.01, max_tokens=100, temperature=heat / 10
            )
            for heat in range(4)
        }
        with Sessions(Store(tmp_path)) as sessions, ThreadPoolExecutor(4) as threads:
            opened = sessions.of({name: roles[name] for name in ("role0", "role1")}, roles.values())
            opened |= sessions.of({name: roles[name] for name in ("role2", "role3")}, roles.values())
            asked: dict[str, Any] = dict(opened)
            if in_processes:
                asked = {name: elsewhere(pickle.dumps(session)) for name, session in opened.items()}

            def ask(name: str) -> None:
                with pytest.raises(BudgetExhausted, match=r"budget_usd = 0\.0"):
                    asked[name].ask(requests_for(roles[name], 200))

            list(threads.map(ask, roles))
        ledger = connect(tmp_path / "ledger.sqlite")
        [(spent,)] = ledger.rows("SELECT sum(cost_usd) FROM attempts")
        ledger.close()
    assert 0.015 < spent <= 0.03


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
def test_forgotten_clips_leave_the_memory_of_the_process(tmp_path: Path) -> None:
    """Small things between the clips' bytes keep glibc from giving them back by itself."""
    path, between = tmp_path / "clip.wav", list[bytes]()
    soundfile.write(path, np.random.default_rng(17).uniform(-0.5, 0.5, 16_000 * 20), 16_000)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    with sessions_of_build(Store(tmp_path)):
        sessions = _OF_BUILD.get()
        assert sessions is not None
        encoder = sessions.media.load_audio
        assert isinstance(encoder, Encoder)
        for at in range(800):
            encoder(Audio(sha256, str(path), start_s=at / 100, end_s=at / 100 + 3))
            between.append(bytes([at % 256]) * 1000)
        before = psutil.Process().memory_info().rss
        forget_clips()
        assert before - psutil.Process().memory_info().rss > 30e6
    assert len(between) == 800
