"""Publications in processes of their own, to be killed: `python -m tests.release.publications --serve`.

They fork from one process that has imported all. `HF_ENDPOINT` is read when the Hub's client is imported, so it must be
in the environment before.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

from earmark.flows.publish import publish
from earmark.schemas.errors import EarmarkError
from earmark.tasks.store import hub
from tests.builds import Builds, serve_builds


def publish_from_file(wish: str, store: str) -> None:
    """Publish as a JSON file says; the receipt, or the one line of a fault, goes beside it."""
    path = Path(wish)
    values: dict[str, Any] = json.loads(path.read_bytes())
    os.environ["HF_TOKEN"] = values.pop("token")
    os.environ |= values.pop("environment", {})
    hub.BATCH = values.pop("batch", hub.BATCH)
    try:
        told: dict[str, Any] = publish.fn(store=store, **values)
    except EarmarkError as error:
        told = {"fault": str(error)}
    path.with_suffix(".told").write_text(json.dumps(told))


class Publications(Builds):
    """Starts publications in processes of their own, one at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__("tests.release.publications")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self, store: Path, corpus: str, repo: str, *, token: str = "hf_writer", **values: Any) -> int:
        """Begin a publication; its process number."""
        self.wish = self.folder / "wish.json"
        self.wish.write_text(json.dumps({"corpus": corpus, "repo": repo, "token": token, **values}))
        self.wish.with_suffix(".told").unlink(missing_ok=True)
        return self.start(self.wish, store)

    def run(self, store: Path, corpus: str, repo: str, **values: Any) -> dict[str, Any]:
        """Publish; the receipt, or `fault`."""
        self.begin(store, corpus, repo, **values)
        assert self.said() == 0
        told: dict[str, Any] = json.loads(self.wish.with_suffix(".told").read_bytes())
        return told


if __name__ == "__main__":
    serve_builds(publish_from_file) if sys.argv[1:] == ["--serve"] else publish_from_file(*sys.argv[1:])
