"""Exports in the hands of the real trainers: each takes two steps on a tiny random model (`make test-trainers`)."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store
from tests.conftest import ROOT

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def make_tiny_text_model(folder: Path, texts: Sequence[str]) -> Path:
    """Write tokenizer and weights into a folder, from which TRL loads them by name."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learned.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=512, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=learned, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    torch.manual_seed(7)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


pytestmark = pytest.mark.trainers
MUSIC, VIEW = "pseudo-preferences", "musicality-choice"
STEPS = 2


def exported(store: Store, folder: Path, format_: str, view: str | None = None, spec: str = MUSIC) -> Path:
    """Export for a trainer; text-only trainers get the prompts without the clips."""
    version = store.find(spec)
    blind = format_.startswith("trl")
    export(version, find_corpus(version.corpus), store, folder, ExportOptions(format_, view=view, blind=blind))
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny model."""
    prompts = (ROOT / "data/demo/music/prompts.jsonl").read_text("utf-8").splitlines()
    return make_tiny_text_model(tmp_path_factory.mktemp("tiny"), [json.loads(line)["text"] for line in prompts])


def train(store: Store, tmp: Path, tiny: Path, format_: str, trainer: Any, config: Any, **more: Any) -> list[str]:
    """Load the export with `load_dataset`, as TRL's command does, and take two steps; the columns."""
    from datasets import load_dataset

    folder = exported(store, tmp / "export", format_, VIEW)
    rows = load_dataset(str(folder), cache_dir=str(tmp / "cache"))
    settings = config(
        output_dir=str(tmp / "out"), max_steps=STEPS, report_to=[], use_cpu=True, bf16=False, logging_steps=1,
        save_strategy="no", per_device_train_batch_size=2, **more.pop("settings", {}),
    )  # fmt: skip
    trained = trainer(model=str(tiny), args=settings, train_dataset=rows["train"], **more)
    before = {name: weight.detach().clone() for name, weight in trained.model.named_parameters()}
    trained.train()
    losses = [entry["loss"] for entry in trained.state.log_history if "loss" in entry]
    assert len(losses) == STEPS
    assert all(math.isfinite(loss) for loss in losses)
    if format_ != "trl-grpo":
        changed = [name for name, weight in trained.model.named_parameters() if not weight.equal(before[name])]
        assert changed
    return list(rows["train"].column_names)


def test_trl_reward(demo_store: Store, tmp_path: Path, tiny: Path) -> None:
    from trl import RewardConfig, RewardTrainer

    columns = train(demo_store, tmp_path, tiny, "trl-reward", RewardTrainer, RewardConfig)
    assert set(columns) == {"id", "prompt", "chosen", "rejected"}


def test_trl_dpo(demo_store: Store, tmp_path: Path, tiny: Path) -> None:
    from trl import DPOConfig, DPOTrainer

    train(demo_store, tmp_path, tiny, "trl-dpo", DPOTrainer, DPOConfig)


def test_trl_sft(demo_store: Store, tmp_path: Path, tiny: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    train(demo_store, tmp_path, tiny, "trl-sft", SFTTrainer, SFTConfig)


def test_trl_grpo_gives_the_columns_to_the_reward(demo_store: Store, tmp_path: Path, tiny: Path) -> None:
    from trl import GRPOConfig, GRPOTrainer

    seen: list[tuple[str, str]] = []

    def reward(completions: list[Any], chosen: list[str], rejected: list[str], **_: Any) -> list[float]:
        seen.extend(zip(chosen, rejected, strict=True))
        said = [completion[0]["content"] for completion in completions]
        return [float(c in text) - float(r in text) for text, c, r in zip(said, chosen, rejected, strict=True)]

    settings = {"num_generations": 2, "max_completion_length": 8}
    train(demo_store, tmp_path, tiny, "trl-grpo", GRPOTrainer, GRPOConfig, reward_funcs=reward, settings=settings)
    assert set(seen) <= {("A", "B"), ("B", "A")}
    assert len(seen) >= 2 * STEPS


def samples_of(path: Path) -> Any:
    """The first second of a clip as 8 kHz mono."""
    import torch
    from soundfile import read

    held, rate = read(io.BytesIO(path.read_bytes()), dtype="float32", always_2d=True)
    mono = torch.from_numpy(held.mean(axis=1)[:rate])
    return torch.nn.functional.interpolate(mono[None, None], size=8000)[0, 0]


def test_a_data_loader_and_two_towers_learn_from_pairs_of_clips(demo_store: Store, tmp_path: Path) -> None:
    import torch

    folder = exported(demo_store, tmp_path / "export", "jsonl", "musicality-clips")

    class Pairs(torch.utils.data.Dataset):  # type: ignore[misc]
        rows = tuple(map(json.loads, (folder / "train.jsonl").read_text("utf-8").splitlines()))

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, index: int) -> tuple[Any, Any, Any]:
            row = self.rows[index]
            words = torch.tensor([crc32(w.encode()) % 64 for w in row["prompt"].split()][:8] + [0] * 8)[:8]
            return words, *(samples_of(folder / row[name]) for name in ("chosen_audio", "rejected_audio"))

    torch.manual_seed(7)
    text = torch.nn.EmbeddingBag(64, 16)
    audio = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8000)), torch.nn.Conv1d(1, 16, 400, 160), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool1d(1), torch.nn.Flatten(), torch.nn.Linear(16, 16),
    )  # fmt: skip
    optimiser = torch.optim.AdamW([*text.parameters(), *audio.parameters()], lr=1e-2)
    losses = []
    for words, chosen, rejected in torch.utils.data.DataLoader(Pairs(), batch_size=8, shuffle=True):
        gap = (text(words) * (audio(chosen) - audio(rejected))).sum(dim=1)
        loss = -torch.nn.functional.logsigmoid(gap).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert len(losses) == 3
    assert all(math.isfinite(loss) for loss in losses)
    assert len(set(losses)) == 3


def test_the_webdataset_library_reads_the_shards(demo_store: Store, tmp_path: Path) -> None:
    import webdataset
    from soundfile import read

    folder = exported(demo_store, tmp_path / "export", "webdataset", "musicality-clips")
    rows = export_rows(folder)
    shards = sorted(str(path) for path in folder.glob("train-*.tar"))
    samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode())
    assert len(samples) == rows["train"]
    for sample in samples:
        assert sample["json"]["chosen_audio"] != sample["json"]["rejected_audio"]
        heard, rate = read(io.BytesIO(sample["chosen.flac"]))
        assert len(heard) > rate


def export_rows(folder: Path) -> dict[str, int]:
    """Rows by split, as `export.json` says."""
    rows: dict[str, int] = json.loads((folder / "export.json").read_text())["rows"]
    return rows


def test_ms_swift_loads_what_is_made_for_it(demo_store: Store, tmp_path: Path) -> None:
    python = ROOT / ".venv-swift/bin/python"
    if not python.exists():
        pytest.fail("no .venv-swift: run `make test-trainers`, which makes it")
    folders = {
        "clips": exported(demo_store, tmp_path / "clips", "ms-swift", "musicality-clips"),
        "scored": exported(demo_store, tmp_path / "scored", "ms-swift", "scored-clips", spec="mos-preferences@v2"),
        "choice": exported(demo_store, tmp_path / "choice", "ms-swift", VIEW),
        "grpo": exported(demo_store, tmp_path / "grpo", "ms-swift-grpo", VIEW),
    }
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path)}
    environment |= {"MODELSCOPE_CACHE": str(tmp_path / "modelscope")}
    command = [python, ROOT / "tests/exports/swift_loads.py", *folders.values()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for (name, folder), loaded in zip(folders.items(), said, strict=True):
        assert loaded["rows"] == export_rows(folder)["train"]
        for side in loaded["first"].values():
            marks = sum(message["content"].count("<audio>") for message in side["messages"])
            assert marks == len(side["audios"]) >= 1
            assert side["there"]
        assert set(loaded["first"]) == ({"chosen"} if name == "grpo" else {"chosen", "rejected"})
    clips, scored, choice, grpo = said
    for one in (clips, scored):
        assert one["first"]["chosen"]["audios"][-1] != one["first"]["rejected"]["audios"][-1]
    assert [message["role"] for message in scored["first"]["rejected"]["messages"]] == ["user"]
    assert {choice["first"][side]["messages"][-1]["content"] for side in ("chosen", "rejected")} == {"A", "B"}
    assert {"chosen", "rejected", "modality"} <= set(grpo["columns"])
