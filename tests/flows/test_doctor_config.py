"""`earmark doctor --config` asks each role of a config one tiny request of each kind, and leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from earmark.flows.command.cli import app
from tests.annotation.conftest import LocalServer
from tests.before.builds import captions, write_tracks
from tests.servers.faults import Faults
from tests.servers.openai_server import caption_answer


def test_each_role_is_probed_and_nothing_is_kept(tmp_path: Path) -> None:
    write_tracks(tmp_path, 30, 1.0)
    faults = Faults()
    with LocalServer(faults) as server:
        server.answer, server.keep_bodies = caption_answer, True
        models = {
            name: {"annotator": f"openai:{name}", "base_url": server.base_url, "sampling": {"max_tokens": 60}}
            for name in ("hears", "judges")
        }
        pipeline = {"name": "judged", "listen": {"model": "hears"}, "judge": {"model": "judges"}}
        (tmp_path / "c.toml").write_text(captions([pipeline], length_s=[0.5, 7200.0], models=models))
        words = ["doctor", "--config", str(tmp_path / "c.toml"), "--store", str(tmp_path / "store"), "--json"]
        told = CliRunner().invoke(app, words)
    found = {one["what"]: one for one in json.loads(told.stdout)}
    assert told.exit_code == 0
    assert {what: one["state"] for what, one in found.items()} == {
        "judged: listen (openai:hears): server": "off",  # it lists no models
        "judged: listen (openai:hears): text about audio": "ok",
        "judged: judge (openai:judges): server": "off",
        "judged: judge (openai:judges): yes or no": "ok",
        "probe": "ok",
    }
    assert found["probe"]["detail"].startswith("2 requests")
    assert [body["model"] for body in server.bodies] == ["hears", "judges"]
    assert not (tmp_path / "store/ledger.sqlite").exists()
