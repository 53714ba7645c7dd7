"""Make `demo.tar.zst` again, from a checkout of the state that it holds:

    git worktree add ../before 4bd6c16 && make -C ../before setup
    python -m tests.before.make ../before

Do so where rows are meant to change, from the last state before that change, and say so in the commit; or where a new
pinned library writes other bytes, from the same state with the new pin. The same checkout gives the same archive.

Left out are the sounds and pictures in reports, which are most of a version's bytes; in the ledger, times and machines.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

import zstandard

from tests.before.fixture import ARCHIVE, LEDGER, ROOT, SALT, SOUNDS, dictionary

BUILD = """
import sys
from earmark.tasks.build import report
from earmark.tasks.store import figures
report.read_sounds = lambda stage, clips: {}
figures.Picture.address = "data:,"
from earmark.flows.command.cli import app
app(["demo", "--store", sys.argv[1]])
"""
UNTIMED = """
DELETE FROM runs;
CREATE TEMP TABLE places AS SELECT id, row_number() OVER (ORDER BY key) AS place FROM requests;
CREATE UNIQUE INDEX temp.by_id ON places (id);
CREATE TEMP TABLE tries AS SELECT a.id, p.place, row_number() OVER (ORDER BY p.place, number) AS nth
  FROM attempts a JOIN places p ON p.id = a.request_id;
CREATE UNIQUE INDEX temp.by_try ON tries (id);
UPDATE attempts SET request_id = -(SELECT place FROM tries t WHERE t.id = attempts.id),
  id = -(SELECT nth FROM tries t WHERE t.id = attempts.id), started_at = 0, latency_s = 0;
UPDATE attempts SET request_id = -request_id, id = -id;
UPDATE requests SET id = -(SELECT place FROM places p WHERE p.id = requests.id), created_at = 0, settled_at = 0,
  owner = NULL;
UPDATE requests SET id = -id;
"""
SOUND = {".flac", ".mp3", ".ogg", ".wav"}
DEMO_SALT = hashlib.sha256(b"the demo's people are invented").hexdigest()  # keeps nobody secret


def build(checkout: Path, store: Path) -> None:
    """Build every demo corpus with the checkout's own code and environment."""
    store.mkdir()
    (store / SALT).write_text(DEMO_SALT + "\n", "utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
    home = {"PREFECT_HOME": f"{store}.prefect", "EARMARK_KEEP_S": "0"}
    command: list[str | Path] = [checkout.absolute() / ".venv" / "bin" / "python", "-c", BUILD, str(store)]
    subprocess.run(command, check=True, cwd=checkout, stdin=subprocess.DEVNULL, env=kept | home)


def without_times(ledger: Path) -> None:
    """Order a ledger by keys, and leave out when and where it was written."""
    with closing(sqlite3.connect(ledger)) as connection:
        connection.executescript(UNTIMED)
        connection.execute("VACUUM")


def packed(store: Path) -> bytes:
    """The ledger, the salt and the versions as a tar archive, without owners and times."""
    content = io.BytesIO()
    versions = [path for path in sorted(store.glob("*/v1/**/*")) if path.is_file()]
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in [store / LEDGER, store / SALT, *versions]:
            member = tarfile.TarInfo(path.relative_to(store).as_posix())
            member.size = path.stat().st_size
            archive.addfile(member, io.BytesIO(path.read_bytes()))
    return content.getvalue()


def main(checkout: Path) -> None:
    """Write the archive and the list of sounds that it refers to."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        build(checkout, store)
        without_times(store / LEDGER)
        content = packed(store)
    sounds = [path for path in sorted((ROOT / "data" / "demo").rglob("*")) if path.suffix in SOUND]
    names = {path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sounds}
    SOUNDS.write_text(json.dumps(names, indent=1) + "\n", "utf-8")
    level = zstandard.ZstdCompressionParameters.from_level(19, window_log=25, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=level, dict_data=dictionary(sounds))
    ARCHIVE.write_bytes(compressor.compress(content))
    print(f"{ARCHIVE.name}: {len(content):,} bytes in {ARCHIVE.stat().st_size:,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
