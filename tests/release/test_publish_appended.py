"""How much a version that grew by a hundredth uploads, counted in Xet's chunks on this disk."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from earmark.schemas.tables import Table, column
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.manifest import FileEntry, Manifest
from earmark.tasks.store.parquet import write_shards
from tests.conftest import ROOT
from tests.servers.hub import WRITER, HubServer

ROWS = 900_000  # the last row group is not full: appending changes it
TABLE = Table(
    name="pairs",
    description="Pairs.",
    schema=pa.schema(
        [
            column("pair_id", pa.string(), "Its id."),
            column("text", pa.string(), "Words."),
            column("gap", pa.float64(), "g"),
        ]
    ),
    key=("pair_id",),
)
SEND = """
import json, sys
from pathlib import Path
from earmark.tasks.release.publishing import bring, open_repo
from earmark.tasks.store.hub import Repo
from earmark.tasks.store.publication import bundled
from earmark.tasks.store.versions import Store, Version
from tests.release.test_publish_appended import TABLE
store, name = Store(Path(sys.argv[1])), sys.argv[2]
version, repo = Version("toy", store.folder("toy") / name), Repo("lab/toy")
with bundled(version, [TABLE], store, audio=True, say=print) as bundle:
    print(json.dumps(bring(repo, bundle, open_repo(repo, bundle, False, {}))))
"""


def make_version(store: Path, name: str, rows: int) -> int:
    """A version of so many rows, of which a smaller one's are the first; bytes of its table."""
    folder = store / "toy" / name
    ids = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(rows)]
    gaps = np.random.RandomState(1).uniform(0, 4, 2 * ROWS)[:rows]
    texts = [f"take {digest[:20]} of a tune with {digest[20:50]}" for digest in ids]
    table = pa.table({"pair_id": [digest[:16] for digest in ids], "text": texts, "gap": gaps})
    paths = write_shards(folder / "pairs", TABLE, "train", [table])
    (folder / "README.md").write_text(f"---\npretty_name: toy\n---\n{rows} rows\n")
    files = tuple(
        FileEntry(
            path=path.relative_to(folder).as_posix(),
            sha256=sha256_file(path),
            bytes=path.stat().st_size,
            rows=rows if path.suffix == ".parquet" else None,
            table="pairs" if path.suffix == ".parquet" else None,
            split="train" if path.suffix == ".parquet" else None,
        )
        for path in [*paths, folder / "README.md"]
    )
    manifest = Manifest(
        corpus="toy", version=name, build_key="k", inputs={}, config={}, code="c", libraries={}, steps=(), rejects={},
        rows={"pairs": {"train": rows}}, files=files,
    )  # fmt: skip
    (folder / "manifest.json").write_text(manifest.to_json())
    return files[0].bytes


def stored(folder: Path) -> int:
    """Bytes below a folder of chunks, without the books that Xet keeps of them."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and "shard" not in path.as_posix())


@pytest.mark.slow
def test_a_hundredth_appended_uploads_about_a_hundredth(tmp_path: Path) -> None:
    store = tmp_path / "store"
    whole = make_version(store, "v1", ROWS)
    make_version(store, "v2", ROWS + ROWS // 100)
    with HubServer(tmp_path / "hub", xet=True) as hub:
        kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_DISABLE_XET"}
        home = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": WRITER}
        sizes = [0]
        for name in ("v1", "v2", "v2"):
            send = [sys.executable, "-c", SEND, str(store), name]
            ended = subprocess.run(send, cwd=ROOT, env={**kept, **home}, capture_output=True, text=True, timeout=240)
            assert ended.returncode == 0, ended.stderr
            _, sent = json.loads(ended.stdout.splitlines()[-1])
            assert sent == (3 if len(sizes) < 3 else 0)
            sizes.append(stored(tmp_path / "hub" / "xet"))
        assert hub.put_bytes == 0
        assert len(hub.commits("lab/toy")) == 3
    first, second, third = (after - before for before, after in pairwise(sizes))
    assert first > whole * 0.9
    assert third == 0
    assert 0.005 * first < second < 0.03 * first, f"{second:,} of {first:,} bytes"
