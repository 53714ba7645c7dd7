"""Earmark from Python, as `import earmark` gives it: build, open, judge, export and publish versions.

    import earmark

    pairs = earmark.build("mos-preferences", "my.toml").datasets("pairs", "train")

It does what the commands do, with the same records of runs, and prints nothing unless `progress=True`. Inside a running
event loop, as in a notebook, work goes on in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from earmark.schemas import rewards as rewards
from earmark.schemas.config import BuildConfig, parse_config
from earmark.tasks.build.progress import hidden, shown
from earmark.tasks.build.registry import find_corpus
from earmark.tasks.store.files import write_text
from earmark.tasks.store.versions import Store, Version, open_store

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa
    from datasets import Dataset

    from earmark.tasks.store.diff import Change
    from earmark.tasks.store.explain import Account

Result = TypeVar("Result")


@dataclass(frozen=True)
class Opened:
    """One version of a corpus."""

    version: Version  # where it lies, and its manifest
    store: Store  # the store that holds it

    def __str__(self) -> str:
        return f"{self.version.corpus}@{self.version.name}"

    @property
    def rows(self) -> dict[str, dict[str, int]]:
        """How many rows each table has, by split."""
        return {table: dict(splits) for table, splits in self.version.manifest.rows.items()}

    def arrow(self, table: str, split: str | None = None, columns: list[str] | None = None) -> pa.Table:
        """A table, or one split of it.

        Raises:
            StoreError: the version has no such table or split.
        """
        import pyarrow.parquet as pq

        return pq.read_table(self.version.files(table, split), columns=columns, partitioning=None)

    def pandas(self, table: str, split: str | None = None, columns: list[str] | None = None) -> pd.DataFrame:
        """As `arrow`, for pandas."""
        frame: pd.DataFrame = self.arrow(table, split, columns).to_pandas()
        return frame

    def duckdb(self, table: str, split: str | None = None) -> duckdb.DuckDBPyRelation:
        """As `arrow`, as a relation that reads the files when it is asked."""
        import duckdb

        files = [str(path) for path in self.version.files(table, split)]
        return duckdb.connect().read_parquet(files, hive_partitioning=False)

    def datasets(self, table: str, split: str) -> Dataset:
        """One split for Hugging Face's `datasets`; sound is decoded as the table's features say."""
        from datasets import load_dataset

        self.version.files(table, split)  # says what there is instead
        return load_dataset(str(self.version.folder), table, split=split)

    def torch(self, table: str, split: str) -> Dataset:
        """As `datasets`, whose rows are tensors: what torch's `DataLoader` takes."""
        return self.datasets(table, split).with_format("torch")

    def explain(self, row: str) -> list[Account]:
        """The way of a row or reject from its input line through each step.

        Raises:
            StoreError: there is no such row.
        """
        from earmark.tasks.store.explain import explain

        return explain(self.version, find_corpus(self.version.corpus).tables, row)

    def judge(
        self,
        annotator: str,
        evaluation: str | None = None,
        *,
        mode: str | None = None,
        split: str | None = None,
        limit: int | None = None,
        base_url: str | None = None,
        settings: Path | str | None = None,
        progress: bool = False,
    ) -> dict[str, Any]:
        """Measure a model on the version's samples; gives the facts of the record. Answers are kept in the ledger.

        Args:
            annotator: `backend:model`.
            evaluation: which; needed where the corpus has several.
            mode: how the question is put; the evaluation's first by default.
            split: only this; the evaluation's by default.
            limit: only so many samples.
            base_url: the server's address, including /v1.
            settings: a TOML file with the annotator's options, such as budget_usd.
            progress: show it.

        Raises:
            EarmarkError: it cannot be measured, or the budget ends; what was answered is kept.
        """
        from earmark.tasks.evaluation import judging
        from earmark.tasks.evaluation.samples import Part, Wish

        config = judging.examinee(annotator, base_url, Path(settings) if settings else None)
        wish = Wish(evaluation, mode, Part(split, None, limit))
        known = find_corpus(self.version.corpus)
        return _apart(lambda: judging.judge(self.version, known, self.store, config, wish, None)[0], progress)

    def export(
        self,
        format: str,
        out: Path | str,
        *,
        view: str | None = None,
        table: str | None = None,
        split: str | None = None,
        limit: int | None = None,
        blind: bool = False,
        clap: str | None = None,
        force: bool = False,
        progress: bool = False,
    ) -> dict[str, Any]:
        """Write the version in the form that a trainer reads; gives the record in the folder's `export.json`.

        Raises:
            StoreError: the format cannot hold it, or the folder is not empty.
        """
        from earmark.tasks.exports.choosing import Wish
        from earmark.tasks.exports.export import export

        wish = Wish(format, view, table, split, limit, blind, (), force, None, clap)
        known = find_corpus(self.version.corpus)
        return _apart(lambda: export(self.version, known, self.store, Path(out), wish), progress)

    def publish(
        self, repo: str, *, private: bool = False, audio: bool = True, audited: float | None = None,
        branch: str | None = None, progress: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Publish the version to the Hub as one commit and one tag, or to a branch without a tag.

        The token comes from HF_TOKEN.

        Raises:
            HubError: it was refused, or a secret or personal data would go out.
        """
        from earmark.flows.command.publish_cli import send

        options = {"private": private, "audio": audio, "allow_builtin": False, "allow_findings": None}
        root = str(self.store.root)
        return _apart(lambda: send(str(self), repo, root, {**options, "audited": audited, "branch": branch}), progress)


def build(
    corpus: str,
    config: Path | str | Mapping[str, Any] | BuildConfig,
    *,
    base: Path | str = ".",
    store: str | None = None,
    force: bool = False,
    limit: int | None = None,
    allow_rejects: bool = False,
    progress: bool = False,
) -> Opened:
    """Build a version, unless the newest is up to date. A build that failed goes on where it stopped.

    Args:
        corpus: its name, as `earmark list` shows it.
        config: a TOML file; or its values; or the corpus's config model.
        base: the folder that paths in such values start from; those in a file start from the file's own.
        store: a folder or s3://bucket/prefix; EARMARK_STORE, else data/store, by default.
        force: build even if a version is up to date.
        limit: only the first rows of each source.
        allow_rejects: commit whatever was lost of the inputs.
        progress: show it.

    Raises:
        ConfigError: the config is none of that corpus.
        EarmarkError: the build failed; the same call goes on.
    """
    from earmark.flows.command.running import run_build

    place = open_store(store)
    path = Path(config) if isinstance(config, str | Path) else _kept(corpus, config, Path(base), place)
    built = _apart(
        lambda: run_build(corpus, path, place, force=force, limit=limit, allow_rejects=allow_rejects), progress
    )
    return Opened(built.version, place)


def open(spec: str, *, store: str | None = None) -> Opened:
    """The version that `CORPUS` (its newest) or `CORPUS@vN` names.

    Raises:
        StoreError: there is none.
    """
    place = open_store(store)
    return Opened(place.find(spec), place)


def diff(old: Opened, new: Opened) -> list[Change]:
    """How many rows were added, removed and changed, by table and split.

    Raises:
        ValueError: the versions are of two corpora.
    """
    import duckdb

    from earmark.tasks.store.diff import diff_table

    if old.version.corpus != new.version.corpus:
        raise ValueError(f"expected two versions of one corpus, found {old} and {new}")
    changes = []
    for table in find_corpus(old.version.corpus).tables:
        with duckdb.connect() as connection:
            changes += diff_table(connection, table, old.version, new.version)
    return changes


def sql(statement: str, *, store: str | None = None) -> pa.Table:
    """What a SELECT gives over versions, where `'CORPUS@vN'.TABLE` is a table.

    Raises:
        InputError: it is not one SELECT, or DuckDB refuses it.
        StoreError: there is no such version.
    """
    from earmark.tasks.store.select import refused, select

    with tempfile.TemporaryDirectory(prefix="earmark-") as spill, refused():
        return select(open_store(store), statement, Path(spill)).to_arrow_table()


def _apart(work: Callable[[], Result], progress: bool) -> Result:
    """Do it, with or without progress; in a thread of its own where an event loop runs in this one."""

    def run() -> Result:
        with shown() if progress else hidden():
            return work()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(contextvars.copy_context().run, run).result()


def _kept(corpus: str, config: Mapping[str, Any] | BuildConfig, base: Path, store: Store) -> Path:
    """Keep values as a config file in the store, so that `earmark resume` finds them; gives the file."""
    if isinstance(config, BuildConfig):
        base, config = config.base, config.model_dump(mode="json", exclude={"base"}, exclude_unset=True)
    base = base.absolute()
    parse_config(find_corpus(corpus).config, {"corpus": corpus, **config}, base / "config")
    text = json.dumps({"base": str(base), "config": {**config}}, indent=1, sort_keys=True, default=str) + "\n"
    path = store.root / "configs" / f"{corpus}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    write_text(path, text)
    return path
