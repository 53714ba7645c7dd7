"""The empty database that Prefect's server begins with (`flows/command/prefect_database.sql.gz`), as SQL.

    python -m tests.flows.prefect_database

writes it anew: the outcome of all migrations of the Prefect that is installed.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

PACKED = Path(__file__).parents[2] / "flows/command/prefect_database.sql.gz"


def migrated(home: Path) -> str:
    """The database of a home as SQL, after Prefect brought it up to date, or made it, in a process of its own."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    words = [sys.executable, "-m", "tests.flows.prefect_database", "--migrate"]
    subprocess.run(words, env=own | {"PREFECT_HOME": str(home)}, check=True, timeout=300)
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        return "\n".join(database.iterdump())


def migrate() -> None:
    """Have Prefect make its database."""
    from prefect.server.database import provide_database_interface

    asyncio.run(provide_database_interface().create_db())


if __name__ == "__main__":
    if "--migrate" in sys.argv:
        migrate()
    else:
        with tempfile.TemporaryDirectory() as folder:
            PACKED.write_bytes(gzip.compress(migrated(Path(folder)).encode(), mtime=0))
