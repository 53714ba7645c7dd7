"""Define the export formats, entry points `earmark.exports`: accepted rows, shapes and commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from earmark.schemas.corpus import Kind, View
from earmark.schemas.registry import Registry, registered
from earmark.tasks.exports import shapes
from earmark.tasks.exports.rows import Selection
from earmark.tasks.exports.shapes import Shape
from earmark.tasks.exports.sinks import write_columns

Sink = Literal["parquet", "jsonl", "tar", "own"]
Write = Callable[[Iterator[pa.RecordBatch], Path], None]
"""Writes a split's rows; clips are paths relative to the file's folder."""
Row = Literal["preference", "clips", "sft", "grpo", "rows"]
TABLE: Row = "rows"
EMBEDDINGS = "embeddings"  # the format of a version's clips, in place of a view's or a table's rows


@dataclass(frozen=True)
class Format:
    """An export format."""

    name: str  # as in `--for NAME`
    says: str  # its readers, in a few words
    # shape functions by kind of row; `clips` are preferences between two clips. Empty for a format without rows of a
    # view or table.
    shapes: Mapping[Row, Shape]
    sink: Sink  # the kind of file; `own` with `write`
    hears: bool  # whether its trainer takes audio and images in prompts
    command: Mapping[Row, str]  # command to train or load, by kind of row; run in the export's folder
    refuses: str = ""  # reason for refusing other rows, a clause
    write: Write | None = None  # writes a file of an own kind, from unshaped rows
    suffix: str = ""  # the ending of such a file
    # writes further files for its trainer into the export's folder
    finish: Callable[[Path, Selection, Shape], None] | None = None

    def why_not(self, view: View, columns: Collection[str], blind: bool) -> str | None:
        """Return the reason this format cannot hold a view, as a clause; None if it can."""
        row = self.row(view.kind, columns)
        if row is None:
            content = _WHAT["clips" if _clips(view.kind, columns) else view.kind]
            return f"its rows are {content}, and {self.refuses}"
        shown = [what for name, what in (("audios", "clips"), ("images", "images")) if name in columns]
        if shown and not self.hears and not blind:
            return f"its prompts hold {' and '.join(shown)}, and {self.name} takes text only (--blind leaves them out)"
        return None

    def row(self, kind: Kind, columns: Collection[str]) -> Row | None:
        """Return the kind of row used by this format for rows of a view's kind; None if it refuses them."""
        if _clips(kind, columns):
            return "clips" if "clips" in self.shapes else None
        serves: dict[Kind, tuple[Row, ...]] = {
            "preference": ("preference", "sft", "grpo"),
            "sft": ("sft", "grpo"),
            "grpo": ("grpo",),
            "rows": ("rows",),
        }
        return next((row for row in serves[kind] if row in self.shapes), None)


_WHAT: Mapping[Row, str] = {
    "preference": "preferences between two texts",
    "clips": "preferences between two clips",
    "sft": "prompts with a completion",
    "grpo": "prompts without an answer",
    "rows": "not a trainer's",
}


def _clips(kind: Kind, columns: Collection[str]) -> bool:
    return kind == "preference" and "chosen" not in columns


LOAD = "python -c \"from datasets import load_dataset; print(load_dataset('.'))\""
_PLAIN: Mapping[Row, Shape] = dict.fromkeys(_WHAT, shapes.plain)
_TRL = "trl {} --model_name_or_path MODEL --dataset_name . --output_dir out"
_SWIFT_RLHF = "swift rlhf --rlhf_type {} --model MODEL --dataset {{train}}"
_LLAMA = "llamafactory-cli train --stage {} --dataset_dir . --dataset {{name}}_{{split}} --model_name_or_path MODEL …"


def _write_dataset_info(place: Path, selection: Selection, shape: Shape) -> None:
    """Write LLaMA-Factory's list of datasets, one for each split."""
    ranking = shape is shapes.llama_factory_preference
    columns = {"messages": "messages", "audios": "audios"}
    if "images" in selection.columns:
        columns["images"] = "images"
    info = {}
    for split in selection.counts:
        info[f"{selection.name}_{split}"] = {
            "file_name": f"{split}.jsonl",
            "formatting": "sharegpt",
            **({"ranking": True} if ranking else {}),
            "columns": {**columns, **({"chosen": "chosen", "rejected": "rejected"} if ranking else {})},
            "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
        }
    (place / "dataset_info.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8", newline="\n")


TRL_REWARD = Format(
    "trl-reward", "TRL's RewardTrainer", {"preference": shapes.trl_preference}, "parquet", False,
    {"preference": _TRL.format("reward")}, "RewardTrainer takes preferences between two texts",
)  # fmt: skip
TRL_DPO = Format(
    "trl-dpo", "TRL's DPOTrainer", {"preference": shapes.trl_preference}, "parquet", False,
    {"preference": _TRL.format("dpo")}, "DPOTrainer takes preferences between two texts",
)  # fmt: skip
TRL_SFT = Format(
    "trl-sft", "TRL's SFTTrainer", {"sft": shapes.trl_sft}, "parquet", False,
    {"sft": _TRL.format("sft")}, "SFTTrainer takes prompts with a completion",
)  # fmt: skip
TRL_GRPO = Format(
    "trl-grpo", "TRL's GRPOTrainer", {"grpo": shapes.trl_grpo}, "parquet", False,
    {"grpo": _TRL.format("grpo") + " --reward_funcs MODULE.FUNCTION"}, "GRPOTrainer takes prompts of text",
)  # fmt: skip
MS_SWIFT = Format(
    "ms-swift", "ms-swift: DPO and reward models (also between clips), SFT",
    {"preference": shapes.swift_preference, "clips": shapes.swift_preference, "sft": shapes.swift_sft},
    "jsonl", True,
    {
        "preference": _SWIFT_RLHF.format("dpo"),
        "clips": _SWIFT_RLHF.format("rm"),
        "sft": "swift sft --model MODEL --dataset {train}",
    },
    "ms-swift's DPO and SFT need answers (try ms-swift-grpo)",
)  # fmt: skip
MS_SWIFT_GRPO = Format(
    "ms-swift-grpo", "ms-swift's GRPO", {"grpo": shapes.swift_grpo}, "jsonl", True,
    {"grpo": _SWIFT_RLHF.format("grpo") + " --reward_funcs NAME --external_plugins FILE"},
    "ms-swift's GRPO takes prompts that a model answers in text",
)  # fmt: skip
VERL = Format(
    "verl", "verl's GRPO and PPO", {"grpo": shapes.verl}, "parquet", True,
    {"grpo": "python -m verl.trainer.main_ppo data.train_files={train} data.val_files={train} "
             "reward.custom_reward_function.path=FILE actor_rollout_ref.model.path=MODEL"},
    "verl takes prompts that a model answers in text",
)  # fmt: skip
LLAMA_FACTORY = Format(
    "llama-factory", "LLaMA-Factory: DPO, reward models, SFT",
    {"preference": shapes.llama_factory_preference, "sft": shapes.swift_sft}, "jsonl", True,
    {"preference": _LLAMA.format("dpo"), "sft": _LLAMA.format("sft")},
    "LLaMA-Factory takes clips in prompts only, and answers in text", finish=_write_dataset_info,
)  # fmt: skip
JSONL = Format(
    "jsonl", "anything: JSON lines, with the clips as files beside them", _PLAIN, "jsonl", True,
    dict.fromkeys(_WHAT, LOAD),
)  # fmt: skip
WEBDATASET = Format(
    "webdataset", "the webdataset library: tar shards of JSON and clips", _PLAIN, "tar", True,
    dict.fromkeys(
        _WHAT,
        "python -c \"import webdataset; "
        "print(next(iter(webdataset.WebDataset('{train}', shardshuffle=False))))\"",
    ),
)  # fmt: skip
CLIP_EMBEDDINGS = Format(
    "embeddings", "`datasets`, DuckDB and pandas: each clip's embedding by a CLAP model", {}, "parquet", True,
    {}, write=write_columns, suffix=".parquet",
)  # fmt: skip
FORMATS = Registry("export format", "earmark.exports", Format, registered("earmark.tasks.exports", mark="Format"))
