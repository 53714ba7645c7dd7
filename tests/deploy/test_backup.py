"""deploy/BACKUP.md, carried out: what was lost comes back, and nothing is asked for again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from earmark.tasks.annotation.ledger_reports import export
from earmark.tasks.store.versions import Store, verify
from tests.annotation.conftest import model_server
from tests.annotation.test_ledger import ledger, postgres, postgres_binaries  # noqa: F401  (fixtures)
from tests.builds import contents_of
from tests.conftest import ROOT
from tests.pseudo_preferences.music import build_judged, config_of, make_pool
from tests.servers.openai_server import OpenAIServer

CORPUS = "pseudo-preferences"
SECTIONS = (ROOT / "deploy/BACKUP.md").read_text("utf-8").split("\n## ")


def commands(section: str, database: str) -> str:
    (text,) = (part for part in SECTIONS if part.startswith(section))
    blocks = re.findall(r"([^\n]*[^\n]*\n(?:[^\n]+\n)*)\n```bash\n(.*?)```", text, re.DOTALL)
    other = {"sqlite": "PostgreSQL", "postgres": "SQLite"}[database]
    chosen = [block for before, block in blocks if other not in before]
    assert len(chosen) == len(blocks) - 1 == 2
    return "".join(chosen)


def carry_out(text: str, store: Path, backup: Path, address: str) -> None:
    """Run commands of the page in a shell."""
    binaries = postgres_binaries()
    path = os.pathsep.join([*([str(binaries)] if binaries else []), os.environ["PATH"]])
    environment = {**os.environ, "STORE": str(store), "BACKUP": str(backup), "EARMARK_LEDGER": address, "PATH": path}
    ended = subprocess.run(["bash", "-euo", "pipefail", "-c", text], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


judge = model_server()


@pytest.mark.slow
def test_what_was_lost_comes_back(
    ledger: str,  # noqa: F811
    judge: OpenAIServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_pool(tmp_path / "pool", 4)
    config = config_of(tmp_path / "pool", judge.base_url)
    store, backup = tmp_path / "store", tmp_path / "backup"
    database = "postgres" if "://" in ledger else "sqlite"
    address = ledger if database == "postgres" else str(store / "ledger.sqlite")
    monkeypatch.setenv("EARMARK_LEDGER", address)
    built = build_judged(config, store)
    expected, answers = contents_of(built.folder), list(export(address))
    asked = sum(judge.faults.asked.values())

    carry_out(commands("Back up", database), store, backup, address)
    shutil.rmtree(store)
    if database == "postgres":
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("TRUNCATE requests, attempts, texts CASCADE")
    carry_out(commands("Restore", database), store, backup, address)

    (version,) = Store(store).versions(CORPUS)
    assert verify(version) == []
    assert contents_of(version.folder) == expected
    assert list(export(address)) == answers
    assert build_judged(config, store).name == "v1"
    shutil.rmtree(store / CORPUS)
    assert contents_of(build_judged(config, store).folder) == expected
    assert sum(judge.faults.asked.values()) == asked, "the ledger's answers were asked for again"
