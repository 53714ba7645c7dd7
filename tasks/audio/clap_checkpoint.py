"""Load a checkpoint file of LAION's CLAP (`.pt`), weights only, as a model of `transformers`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

TOKENIZER = "FacebookAI/roberta-base"  # of all these checkpoints; taken from the file's folder if it is there
MOST_TOKENS = 77
_NAMES = (
    ("text_branch.", "text_model."),
    ("audio_branch.", "audio_model.audio_encoder."),
    ("_projection.0.", "_projection.linear1."),
    ("_projection.2.", "_projection.linear2."),
    (".bn0.", ".batch_norm."),
    (".norm1.", ".layernorm_before."),
    (".norm2.", ".layernorm_after."),
    (".mlp.fc1.", ".intermediate.dense."),
    (".mlp.fc2.", ".output.dense."),
    (".attn.proj.", ".attention.output.dense."),
    (".attn.", ".attention.self."),
)
_UNUSED = re.compile(  # training's own transforms and heads, and the spectrogram, computed by the feature extractor
    r"(text|audio)_transform\.|audio_branch\.((spectrogram|logmel)_extractor|tscam_conv|head)\.|.*(position_ids|attn_mask)$"
)


def load_checkpoint(path: Path) -> tuple[Any, Any]:
    """Return the processor and the model of a checkpoint without fusion."""
    import torch
    from transformers import AutoTokenizer, ClapConfig, ClapFeatureExtractor, ClapModel, ClapProcessor

    scalar = np._core.multiarray.scalar  # type: ignore[attr-defined] # of the epoch's best metrics
    numbers = [(scalar, "numpy.core.multiarray.scalar"), (scalar, "numpy._core.multiarray.scalar"), np.dtype,
               np.dtypes.Float64DType]  # fmt: skip
    with torch.serialization.safe_globals(numbers):
        held = torch.load(path, map_location="cpu", weights_only=True)
    weights = {name.removeprefix("module."): tensor for name, tensor in held.get("state_dict", held).items()}
    if "audio_branch.patch_embed.mel_conv2d.weight" in weights or "text_branch.pooler.dense.weight" not in weights:
        raise ValueError("expected a checkpoint of LAION's CLAP without fusion, with HTSAT and RoBERTa")
    with torch.device("meta"):
        model = ClapModel(ClapConfig(**_config(weights)))
    lacking, unexpected = model.load_state_dict(_renamed(weights), strict=False, assign=True)
    if named := [*({*lacking} & {name for name, _ in model.named_parameters()}), *unexpected]:
        raise ValueError(f"expected the weights of CLAP, found {len(named)} missing or unknown, such as {named[0]}")
    embeddings = model.text_model.embeddings
    embeddings.position_ids = torch.arange(len(embeddings.position_embeddings.weight))[None]
    embeddings.token_type_ids = torch.zeros_like(embeddings.position_ids)
    own = (path.parent / "tokenizer_config.json").is_file()
    tokenizer = AutoTokenizer.from_pretrained(path.parent if own else TOKENIZER, trust_remote_code=False)
    tokenizer.model_max_length = min(tokenizer.model_max_length, MOST_TOKENS)
    listener = ClapFeatureExtractor(frequency_min=50, frequency_max=14_000, truncation="rand_trunc")
    return ClapProcessor(feature_extractor=listener, tokenizer=tokenizer), model.float()


def _config(weights: Mapping[str, "torch.Tensor"]) -> dict[str, Any]:
    """Return the model's config by the shapes of its weights."""
    text, audio = "text_branch.encoder.layer", "audio_branch.layers"
    words, hidden = weights["text_branch.embeddings.word_embeddings.weight"].shape
    width, _, patch, _ = weights["audio_branch.patch_embed.proj.weight"].shape
    tables = [weights[f"{audio}.{n}.blocks.0.attn.relative_position_bias_table"] for n in range(_count(weights, audio))]
    projected = len(weights["text_projection.0.weight"])
    return {
        "projection_dim": projected,
        "text_config": {
            "vocab_size": words,
            "hidden_size": hidden,
            "num_hidden_layers": _count(weights, text),
            "num_attention_heads": hidden // 64,
            "intermediate_size": len(weights[f"{text}.0.intermediate.dense.weight"]),
            "max_position_embeddings": len(weights["text_branch.embeddings.position_embeddings.weight"]),
            "type_vocab_size": len(weights["text_branch.embeddings.token_type_embeddings.weight"]),
            "layer_norm_eps": 1e-5,
            "projection_dim": projected,
        },
        "audio_config": {
            "patch_embeds_hidden_size": width,
            "patch_size": patch,
            "hidden_size": len(weights["audio_branch.norm.weight"]),
            "depths": [_count(weights, f"{audio}.{n}.blocks") for n in range(len(tables))],
            "num_hidden_layers": len(tables),
            "num_attention_heads": [table.shape[1] for table in tables],
            "window_size": (int(len(tables[0]) ** 0.5) + 1) // 2,
            "projection_dim": projected,
        },
    }


def _count(weights: Mapping[str, Any], stem: str) -> int:
    """Return the number of numbered parts below a name."""
    return len({name[len(stem) + 1 :].partition(".")[0] for name in weights if name.startswith(f"{stem}.")})


def _renamed(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the used weights by their names in `transformers`."""
    renamed = {}
    for name, tensor in weights.items():
        if _UNUSED.match(name):
            continue
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        if ".qkv." in name:
            for part, each in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                renamed[name.replace("qkv", part)] = each
        else:
            renamed[name] = tensor
    return renamed
