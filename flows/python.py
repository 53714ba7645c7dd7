"""Provide Earmark to Python, as `import earmark`: build, open, judge, export and publish versions.

    import earmark

    pairs = earmark.build("mos-preferences", "my.toml").datasets("pairs", "train")

It does the commands' work, with the same records of runs, and prints nothing unless `progress=True`. Inside a running
event loop, as in a notebook, work runs in a separate thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from earmark.schemas import rewards as rewards
from earmark.schemas.annotation import Declarations
from earmark.schemas.config import BuildConfig
from earmark.schemas.toml import checked, parse_config
from earmark.tasks.pipeline.progress import hidden, shown
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.files import write_text
from earmark.tasks.store.versions import Store, Version, open_store

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa
    from datasets import Dataset

    from earmark.schemas.results import EvaluationFacts
    from earmark.tasks.exports.readme import ExportRecord
    from earmark.tasks.store.diff import Change
    from earmark.tasks.store.explain import RowFacts

Result = TypeVar("Result")


@dataclass(frozen=True)
class Opened:
    """One version of a corpus."""

    version: Version  # its place and manifest
    store: Store  # its store

    def __str__(self) -> str:
        return f"{self.version.corpus}@{self.version.name}"

    @property
    def rows(self) -> dict[str, dict[str, int]]:
        """Return the number of rows in each table, by split."""
        return {table: dict(splits) for table, splits in self.version.manifest.rows.items()}

    def arrow(self, table: str, split: str | None = None, columns: list[str] | None = None) -> pa.Table:
        """Return a table, or one split of it.

        Raises:
            StoreError: the table or split does not exist.
        """
        import pyarrow.parquet as pq

        return pq.read_table(self.version.files(table, split), columns=columns, partitioning=None)

    def pandas(self, table: str, split: str | None = None, columns: list[str] | None = None) -> pd.DataFrame:
        """Return the table of `arrow` as a pandas frame."""
        frame: pd.DataFrame = self.arrow(table, split, columns).to_pandas()
        return frame

    def duckdb(self, table: str, split: str | None = None) -> duckdb.DuckDBPyRelation:
        """Return the table of `arrow` as a relation reading its files on demand."""
        import duckdb

        files = [str(path) for path in self.version.files(table, split)]
        return duckdb.connect().read_parquet(files, hive_partitioning=False)

    def datasets(self, table: str, split: str) -> Dataset:
        """Return a split for Hugging Face's `datasets`; sound is decoded by the table's features."""
        from datasets import load_dataset

        self.version.files(table, split)  # lists the existing tables if there is none
        return load_dataset(str(self.version.folder), table, split=split)

    def torch(self, table: str, split: str) -> Dataset:
        """Return the split of `datasets` with rows as tensors, for torch's `DataLoader`."""
        return self.datasets(table, split).with_format("torch")

    def explain(self, row: str) -> list[RowFacts]:
        """Return the path of a row or reject from its input line through each step.

        Raises:
            StoreError: the row does not exist.
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
    ) -> EvaluationFacts:
        """Measure a model on the version's samples; return the facts of the record. Answers are kept in the ledger.

        Args:
            annotator: `backend:model`.
            evaluation: its name; required if the corpus has several.
            mode: form of the question; by default the evaluation's first.
            split: only this; the evaluation's by default.
            limit: most samples.
            base_url: the server's address, including /v1.
            settings: a TOML file with the annotator's options, such as budget_usd.
            progress: whether to show progress.

        Raises:
            EarmarkError: it cannot be measured, or the budget ends; answers are kept.
        """
        from earmark.tasks.evaluation import judging
        from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart

        config = judging.examinee(annotator, base_url, Path(settings) if settings else None)
        wish = MeasurementOptions(evaluation, mode, SamplePart(split, None, limit))
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
    ) -> ExportRecord:
        """Write the version in a trainer's format; return the record in the folder's `export.json`.

        Raises:
            StoreError: the format cannot hold it, or the folder is not empty.
        """
        from earmark.tasks.exports.choosing import ExportOptions
        from earmark.tasks.exports.export import export

        wish = ExportOptions(format, view, table, split, limit, blind, (), force, None, clap)
        known = find_corpus(self.version.corpus)
        return _apart(lambda: export(self.version, known, self.store, Path(out), wish), progress)

    def publish(
        self, repo: str, *, private: bool = False, audio: bool = True, audited: float | None = None,
        branch: str | None = None, views: Sequence[str] = (), progress: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Publish the version to the Hub as one commit and one tag, or to a branch without a tag.

        The token comes from HF_TOKEN. `views` become further configs, with their clips.

        Raises:
            HubError: it was refused, or a secret or personal data would be published.
        """
        from earmark.flows.command.publish_cli import send

        options = {
            "private": private, "audio": audio, "allow_builtin": False, "allow_findings": None, "audited": audited,
            "branch": branch, "views": views,
        }  # fmt: skip
        return _apart(lambda: send(str(self), repo, str(self.store.root), options), progress)


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
    """Build a version, unless the newest is up to date. A failed build continues at its last step.

    Args:
        corpus: its name, as `earmark list` shows it.
        config: a TOML file; or its values; or the corpus's config model.
        base: the folder for relative paths in such values; those in a file are relative to the file's own.
        store: a folder or a URL such as s3://bucket/prefix; EARMARK_STORE, else data/store, by default.
        force: build even if a version is up to date.
        limit: only the first rows of each source.
        allow_rejects: commit despite lost inputs.
        progress: whether to show progress.

    Raises:
        ConfigError: the config belongs to another corpus.
        EarmarkError: the build failed; the same call continues it.
    """
    from earmark.flows.command.running import run_build

    place = open_store(store)
    path = Path(config) if isinstance(config, str | Path) else _kept(corpus, config, Path(base), place)
    built = _apart(
        lambda: run_build(corpus, path, place, force=force, limit=limit, allow_rejects=allow_rejects), progress
    )
    return Opened(built.version, place)


def open(spec: str, *, store: str | None = None) -> Opened:
    """Open the version named by `CORPUS` (its newest) or `CORPUS@vN`.

    Raises:
        StoreError: the version does not exist.
    """
    place = open_store(store)
    return Opened(place.find(spec), place)


def diff(old: Opened, new: Opened) -> list[Change]:
    """Count the rows added, removed and changed, by table and split.

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


def sql(statement: str, *, store: str | None = None, allow_files: bool = False) -> pa.Table:
    """Return the result of a SELECT over versions; `'CORPUS@vN'.TABLE` is a table, with `allow_files` files are too.

    Raises:
        InputError: the statement is not one SELECT, or DuckDB refuses it.
        StoreError: a version does not exist.
    """
    from earmark.tasks.store.select import select

    return select(open_store(store), statement, lambda rows, _: rows.to_arrow_table(), allow_files=allow_files)


def rubric(
    clips: Path | str,
    model: str,
    *,
    mode: str = "rubric",
    language: str | None = None,
    domain: str = "mixed",
    writer: str | None = None,
    config: Path | str | None = None,
    base_url: str | None = None,
    settings: Path | str | None = None,
    store: Path | str | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Judge clips against instructions, item by item, as `earmark eval rubric` does; return a row a clip.

    Args:
        clips: a table (`clip`, `instruction`), or a folder of clips with text files of their names.
        model: the judge, `backend:model`.
        mode: `rubric`, `array` or `holistic`.
        language: of rows that name none, `en` or `zh`.
        domain: of rows that name none.
        writer: the model that takes instructions apart; by default the judge.
        config: a config of `instruction-rubrics` in its place.
        base_url, settings: of the judge.
        store: whose ledger keeps the answers.
        progress: whether to show progress.

    Raises:
        EarmarkError: the clips cannot be read, or the budget ends; answers are kept.
    """
    import pandas as pd

    from earmark.tasks.evaluation import judging
    from earmark.tasks.instruction_rubrics.judging import judge_clips, writing

    judge = judging.examinee(model, base_url, Path(settings) if settings else None)
    wording = writing(writer, model, base_url, Path(config) if config else None)
    place = open_store(str(store) if store else None)
    wish: dict[str, Any] = {"mode": mode, "language": language, "domain": domain}
    return pd.DataFrame(_apart(lambda: judge_clips(Path(clips), place, judge, wording, **wish), progress))


def _apart(work: Callable[[], Result], progress: bool) -> Result:
    """Run the work, with or without progress; in a separate thread if this one runs an event loop."""

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
    """Keep values as a config file in the store for `earmark resume`; return the file."""
    if not isinstance(config, BuildConfig):  # a declared model may be another one by the time of `earmark resume`
        base = base.absolute()
        checked(Declarations, {"models": config.get("models", {})}, base / "config")  # the unused ones too
        config = parse_config(find_corpus(corpus).config, {"corpus": corpus, **config}, base / "config")
    base, config = config.base.absolute(), config.model_dump(mode="json", exclude={"base"}, exclude_unset=True)
    text = json.dumps({"base": str(base), "config": {**config}}, indent=1, sort_keys=True, default=str) + "\n"
    path = store.root / "configs" / f"{corpus}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    write_text(path, text)
    return path
