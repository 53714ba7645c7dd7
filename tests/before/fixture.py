"""The state before: what the demo wrote into its store before corpora asked models through one mechanism.

`demo.tar.zst` holds that store: each demo corpus's version, the ledger of what was asked and answered for them, and the
salt. `make.py` made it. Versions hold the sounds of `data/demo`, so these serve as the archive's dictionary;
`sounds.json` names them.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import tarfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import zstandard

from earmark.tasks.store.versions import Store, Version

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = Path(__file__).with_name("demo.tar.zst")
SOUNDS = Path(__file__).with_name("sounds.json")
LEDGER, SALT = "ledger.sqlite", "salt"
PAID = {  # the ledger's tables that grow by every exchange, and what tells their rows apart
    "requests": "key, model, state, answer, reason, created_at",
    "attempts": "(SELECT key FROM requests WHERE requests.id = request_id), number, status, started_at",
    "batches": "id, state",
}


def dictionary(sounds: Iterable[Path]) -> zstandard.ZstdCompressionDict:
    """The sounds, one after another, as what compression refers to."""
    return zstandard.ZstdCompressionDict(
        b"".join(path.read_bytes() for path in sounds), dict_type=zstandard.DICT_TYPE_RAWCONTENT
    )


def unpack(store: Path, names: Iterable[str] = ()) -> Store:
    """Write the store of the state before into a folder; with names, only what lies at its top under these.

    Raises:
        ValueError: a sound of `data/demo` is another one since; `make.py` says how to make the archive again.
    """
    named: dict[str, str] = json.loads(SOUNDS.read_bytes())
    for name, sha256 in named.items():
        if not (ROOT / name).is_file() or hashlib.sha256((ROOT / name).read_bytes()).hexdigest() != sha256:
            raise ValueError(f"{name}: expected the file that {ARCHIVE.name} refers to; see tests/before/make.py")
    content = zstandard.ZstdDecompressor(dict_data=dictionary(ROOT / name for name in named)).decompress(
        ARCHIVE.read_bytes()
    )
    wanted = set(names)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = [member for member in archive if not wanted or member.name.partition("/")[0] in wanted]
        archive.extractall(store, members, filter="data")
    return Store(store)


def seed(store: Path) -> Store:
    """Make a store that has the state before's ledger and salt, and no version: all that was asked is answered."""
    return unpack(store, (LEDGER, SALT))


def paid(store: Path) -> dict[str, set[tuple[object, ...]]]:
    """What a store's ledger knows of exchanges with models, by table. Every attempt is there before it is made."""
    with closing(sqlite3.connect(store / LEDGER)) as ledger:
        return {table: set(ledger.execute(f"SELECT {names} FROM {table}")) for table, names in PAID.items()}


def before(store: Store, corpus: str) -> Version:
    """The state before's version of a corpus."""
    return store.find(f"{corpus}@v1")
