"""Find the ledger of a store's builds."""

from __future__ import annotations

import os
from pathlib import Path

from earmark.tasks.store.versions import Store


def ledger_address(store: Store) -> str:
    """Return the ledger's address: `EARMARK_LEDGER` (a file or a postgresql:// URL), else `<store>/ledger.sqlite`."""
    named = os.environ.get("EARMARK_LEDGER") or str(store.root / "ledger.sqlite")
    return named if "://" in named else str(Path(named).absolute())


def has_ledger(store: Store) -> bool:
    """Return whether a ledger exists: a dry run must not create an empty one."""
    address = ledger_address(store)
    return "://" in address or Path(address).is_file()
