"""A tiny CLAP model with random weights: it tests plumbing and numbers, never what it says."""

from __future__ import annotations

from pathlib import Path

WORDS = ["A slow piece with piano and strings. A dog barks at a passing train, loud and clear."] * 4


def make_tiny_clap(folder: Path, *, fusion: bool = False, laion: bool = False) -> Path:
    """Write processor and weights into a folder; the same seed gives the same weights. With `laion`, the settings are
    those that its checkpoints share."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import ClapConfig, ClapFeatureExtractor, ClapModel, ClapProcessor, RobertaTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        WORDS, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=special)
    )
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer = RobertaTokenizerFast(tokenizer_object=made, model_max_length=40)
    listener = ClapFeatureExtractor(
        feature_size=64,
        max_length_s=2,
        sampling_rate=16_000,
        hop_length=160,
        truncation="fusion" if fusion else "rand_trunc",
    )
    config = ClapConfig(
        text_config={
            "vocab_size": 320, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 32, "max_position_embeddings": 50, "projection_dim": 16,
            **({"hidden_size": 64, "num_attention_heads": 1, "layer_norm_eps": 1e-5} if laion else {}),
        },
        audio_config={
            "hidden_size": 64, "patch_embeds_hidden_size": 8, "num_hidden_layers": 4,
            "depths": [1, 2, 1, 1] if laion else [1] * 4,
            "num_attention_heads": [1, 1, 2, 2], "projection_dim": 16, "enable_fusion": fusion,
        },
        projection_dim=16,
    )  # fmt: skip
    torch.manual_seed(7)
    model = ClapModel(config).eval()
    with torch.no_grad():  # an untrained text tower tells hardly any text from another
        for name, weight in model.text_model.named_parameters():
            if weight.ndim == 2 and "embeddings" not in name:
                weight *= 10
    model.save_pretrained(folder)
    ClapProcessor(feature_extractor=listener, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def write_checkpoint(folder: Path, path: Path) -> Path:
    """Write a model of `transformers` as LAION does: its names, with query, key and value in one, beside all that the
    training kept; and the tokenizer beside it."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer, ClapModel

    renames = {
        "text_model": "text_branch", "audio_model.audio_encoder": "audio_branch", "linear1": "0", "linear2": "2",
        "batch_norm": "bn0", "layernorm_before": "norm1", "layernorm_after": "norm2",
    }  # fmt: skip
    swin = {"attention.output.dense": "attn.proj", "attention.self": "attn", "intermediate.dense": "mlp.fc1",
            "output.dense": "mlp.fc2"}  # fmt: skip
    weights = {}
    for name, tensor in ClapModel.from_pretrained(folder).state_dict().items():
        for ours, theirs in {**renames, **(swin if name.startswith("audio") else {})}.items():
            name = name.replace(ours, theirs)
        if name.startswith("audio_branch") and ".attn.query." in name:
            weights[name.replace("query", "qkv")] = tensor
        elif name.startswith("audio_branch") and (".attn.key." in name or ".attn.value." in name):
            whole = name.replace(".key.", ".qkv.").replace(".value.", ".qkv.")
            weights[whole] = torch.cat([weights[whole], tensor])
        else:
            weights[name] = tensor
    for name in ("audio_branch.spectrogram_extractor.stft.conv_real.weight", "audio_branch.logmel_extractor.melW",
                 "audio_branch.layers.1.blocks.1.attn_mask", "audio_branch.tscam_conv.weight", "audio_branch.head.bias",
                 "text_transform.sequential.0.weight", "audio_transform.sequential.3.bias"):  # fmt: skip
        weights[name] = torch.zeros(2, 3)
    state = {f"module.{name}": tensor for name, tensor in weights.items()}
    best = {"name": "x", "epoch": 15, "best": np.float64(0.9), "optimizer": {"state": {}, "param_groups": []}}
    path.parent.mkdir(exist_ok=True)
    torch.save({**best, "state_dict": state}, path)
    AutoTokenizer.from_pretrained(folder).save_pretrained(path.parent)
    return path
