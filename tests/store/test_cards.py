"""Readers without our code: other tools read a version's tables, and its card says what they hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import duckdb
import pandas as pd
import pytest
import yaml

from earmark.schemas.mos_preferences import PAIRS, RATINGS
from earmark.tasks.store.card import markdown_cell
from earmark.tasks.store.diff import changed_values, diff_table
from earmark.tasks.store.versions import Version
from tests.builds import build_version, config_of, rows_of
from tests.store.test_versions import TABLES, config, lists, shared

__all__ = ["shared"]  # fixtures


LOAD = """
import json, sys
from datasets import load_dataset
print(json.dumps({table: {split: len(rows) for split, rows in load_dataset(sys.argv[1], table).items()}
                  for table in sys.argv[2:]}))
"""


@pytest.mark.slow
def test_datasets_loads_every_table(shared: tuple[Path, Version], tmp_path: Path) -> None:
    version = shared[1]
    names = list(version.manifest.rows)
    places = {"HF_HOME": str(tmp_path / "hf"), "HF_DATASETS_CACHE": str(tmp_path / "hf/d"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", LOAD, str(version.folder), *names]
    done = subprocess.run(command, env=os.environ | places, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == version.manifest.rows


@pytest.mark.slow
def test_duckdb_and_pandas_read_every_table(shared: tuple[Path, Version]) -> None:
    version = shared[1]
    for table in TABLES:
        count = sum(version.manifest.rows[table.name].values())
        query = f"SELECT count(*) FROM '{version.folder}/{table.name}/*.parquet'"
        assert duckdb.sql(query).fetchall() == [(count,)]
        frame = pd.read_parquet(version.folder / table.name)
        assert (len(frame), list(frame.columns)) == (count, table.schema.names)


def head_and_body(version: Version) -> tuple[dict[str, Any], str]:
    """The card's YAML and its text."""
    _, head, body = (version.folder / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(head), body


def test_card_names_every_table_column_and_reason(shared: tuple[Path, Version]) -> None:
    version = shared[1]
    head, body = head_and_body(version)
    assert [held["config_name"] for held in head["configs"]] == [table.name for table in TABLES]
    assert [held["config_name"] for held in head["configs"] if held.get("default")] == ["pairs"]
    for table in TABLES:
        assert f"### `{table.name}`" in body
        assert all(f"| `{name}` |" in body for name in table.schema.names)
    assert "clean\\_reference | 1 |" in body
    assert_tables_hold(body)


def test_what_the_card_names_as_a_config_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("f,m\na,1\nb,2\nc,5\n")
    (tmp_path / "u.csv").write_text("f,m\n")
    table = {"name": "one", "format": "table", "columns": {"file": "f", "mos": "m"}}
    files = {"train": "t.csv", "test": "u.csv"}
    version = build_version(config_of(tmp_path, {**table, "files": files}), tmp_path / "store")
    head, _ = head_and_body(version)
    loaded = {
        config["config_name"]: {
            split: len(rows)
            for split, rows in datasets.load_dataset(
                str(version.folder), config["config_name"], cache_dir=str(tmp_path / "cache")
            ).items()
        }
        for config in head["configs"]
    }
    assert loaded == {"ratings": {"train": 3}, "pairs": {"train": 3}}
    assert version.manifest.rows["rejects"] == {"full": 0}


def assert_tables_hold(body: str) -> None:
    """Each Markdown table has as many cells in each row as in its head."""
    width = 0
    for line in body.splitlines():
        cells = len(line.replace("\\\\", "").replace("\\|", "").split("|")) if line.startswith("|") else 0
        assert not (width and cells) or cells == width, line
        width = cells


@pytest.mark.parametrize("text", ["a|b", "a\nb", "a\\|b", "`a`|", "<script>x</script>", "[x](y) *z*", "|\r\n|---|"])
def test_hostile_text_stays_in_its_cell(text: str) -> None:
    cell = markdown_cell(text)
    assert len(cell.splitlines()) == 1
    plain = cell.replace("\\\\", "")
    assert all(plain[at - 1] == "\\" for at, sign in enumerate(plain) if sign in "|`<[*")


def test_hostile_names_cannot_break_the_card(tmp_path: Path) -> None:
    name = "a|b`<script>[x](y).csv"
    (tmp_path / name).write_text("f,m\n")
    table = {"format": "table", "columns": {"file": "f", "mos": "m"}}
    (tmp_path / "u.csv").write_text("f,m\na|b\\,3\n`c`,2\n<b>,9\n")
    built = config_of(
        tmp_path,
        {"name": "one", "files": {"test": name}, **table},
        {"name": "a.-_1", "files": {"test": "u.csv"}, **table},
    )
    version = build_version(built, tmp_path / "store")
    head, body = head_and_body(version)
    with_rows = {name for name, splits in version.manifest.rows.items() if any(splits.values())}
    assert {config["config_name"] for config in head["configs"]} == with_rows == {"ratings", "rejects"}
    assert_tables_hold(body)
    assert "<script>" not in body.replace("\\<script", "")
    assert "a\\|b\\`" in body


def test_pairs_hold_no_clip_that_ratings_lack(shared: tuple[Path, Version]) -> None:
    clips = {row["sample_id"] for row in rows_of(shared[1], RATINGS.name)}
    used = {row[side] for row in rows_of(shared[1], PAIRS.name) for side in ("chosen_id", "rejected_id")}
    assert used <= clips


@pytest.mark.slow
def test_card_counts_what_changed_as_diff_does(tmp_path: Path) -> None:
    folder = lists(tmp_path)
    first = build_version(config(folder), folder / "store")
    second = build_version(config(folder, seed=18), folder / "store")
    assert "## Changes since" not in head_and_body(first)[1]
    with duckdb.connect() as connection:
        changes = [change for table in TABLES for change in diff_table(connection, table, first, second)]
    differing = [
        f"| `{change.table}` | {change.split} | {change.added} | {change.removed} | {change.changed} |"
        for change in changes
        if change.added or change.removed or change.changed
    ]
    assert differing
    with duckdb.connect() as connection:
        for table in TABLES:
            diff_table(connection, table, first, second)
            cells = list(changed_values(connection, table, first, second))
            old, new = (
                {tuple(row[key] for key in table.key): row for row in rows_of(one, table.name)}
                if table.key and table.name in one.manifest.rows
                else {}
                for one in (first, second)
            )
            assert {(one.key, one.column) for one in cells} == {
                (key, name) for key in old.keys() & new.keys() for name in old[key] if old[key][name] != new[key][name]
            }
            assert all((old[one.key][one.column], new[one.key][one.column]) == (one.old, one.new) for one in cells)
    told = head_and_body(second)[1].partition("## Changes since v1")[2].partition("## Licences")[0]
    assert [line for line in told.splitlines() if line.startswith("| `")] == differing


@pytest.mark.slow
def test_card_draws_the_flow_and_names_licences(tmp_path: Path) -> None:
    folder = lists(tmp_path)
    licences = {"one": {"licence": "CC-BY-4.0 | <b>", "redistribute": "rows"}}
    _, body = head_and_body(build_version(config(folder, licences=licences), folder / "store"))
    drawn = body.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [line.split()[0] for line in drawn if line != "  ↓"][:3] == ["import-one", "import-vmc23", "merge"]
    assert drawn[2] == "  ↓", "sources are read side by side"
    assert "| one | CC-BY-4.0 \\| \\<b\\> | rows, not audio |" in body
    assert_tables_hold(body)
