"""Render the README of an export: its content, use and origin."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

import pyarrow as pa
import yaml

from earmark.tasks.exports.choosing import Target
from earmark.tasks.store.card import content_mark


class ExportRecord(TypedDict):
    """`export.json`."""

    format: str
    corpus: str
    version: str
    manifest_sha256: str
    view: NotRequired[str]
    table: NotRequired[str]
    limit: int | None
    blind: bool
    rollouts: dict[str, Any] | None
    model: NotRequired[str]
    model_sha256: NotRequired[str]
    rows: dict[str, int]
    clips: int
    files: dict[str, dict[str, Any]]


def render_readme(record: ExportRecord, target: Target, schema: pa.Schema | None = None) -> str:
    """Return the README's text; its YAML lets `load_dataset` read the folder.

    Args:
        schema: the columns, if JSON lines do not tell their types: of a column that is empty in one split, `datasets`
            would not read the next.
    """
    splits = list(record["rows"])
    sink = target.format.sink
    if sink in ("parquet", "jsonl"):
        mark = content_mark(facts["sha256"] for facts in record["files"].values())
        files = [{"split": split, "path": f"{split}.{sink}"} for split in splits]
        typed = {} if schema is None else {"features": [_feature(field.name, field.type) for field in schema]}
        configs = [{"config_name": "default", "description": mark, "data_files": files, **typed}]
    else:
        paths = {
            config: {split: f"{config}/{split}{target.format.suffix}" for split in splits} for config in target.configs
        }
        configs = [
            {"config_name": config, "data_files": files}
            for config, by_split in paths.items()
            if (files := [{"split": s, "path": path} for s, path in by_split.items() if path in record["files"]])
        ]
    head = f"---\n{yaml.safe_dump({'configs': configs}, sort_keys=False)}---\n" if configs else ""
    says = f"{target.view.says}\n\n" if target.view else ""
    counts = "".join(f"| {split} | {count:,} |\n" for split, count in record["rows"].items())
    command = command_of(target, record)
    use = f"In this folder:\n\n```\n{command}\n```\n\n" if command else ""
    return (
        f"{head}# {record['corpus']} {record['version']}: {_name(record)}, for {target.format.name}\n\n"
        f"{says}Read by {target.format.says}.\n\n| split | rows |\n|---|--:|\n{counts}\n{use}"
        f"{_clips(record)}`export.json` holds the files' hashes.\n\n"
        f"Made from the version whose manifest has SHA-256 `{record['manifest_sha256']}`.\n"
    )


def _feature(name: str, type_: pa.DataType) -> dict[str, Any]:
    """Return a column as the YAML of `datasets` has it; what JSON does not know is text there."""
    if pa.types.is_struct(type_):
        return {"name": name, "struct": [_feature(field.name, field.type) for field in type_]}
    if pa.types.is_list(type_):
        held = _feature("", type_.value_type)
        return {"name": name, "list": held.get("dtype") or held.get("struct") or {"list": held["list"]}}
    names = {"double": "float64", "float": "float32"}
    known = str(type_) in (*names, "bool", "timestamp[s]") or pa.types.is_integer(type_)
    return {"name": name, "dtype": names.get(str(type_), str(type_)) if known else "string"}


def _clips(record: ExportRecord) -> str:
    if "model" in record:
        of = f"{record['model']} (SHA-256 of its files `{record['model_sha256']}`)"
        return f"`embedding` is what {of} makes of `clip_sha256`, as the version's tables name clips; of length 1. "
    return f"Clips: {record['clips']:,}, named by the SHA-256 of the clip, paths from this folder. "


def command_of(target: Target, record: ExportRecord) -> str:
    """Return the command line that uses the export, for its folder."""
    split = "train" if "train" in record["rows"] else next(iter(record["rows"]))
    endings = {"tar": "-000000.tar", "parquet": ".parquet"}
    file = split + endings.get(target.format.sink, ".jsonl")
    return target.command.replace("{train}", file).replace("{split}", split).replace("{name}", _name(record))


def _name(record: ExportRecord) -> str:
    return record.get("view") or record["table"]
