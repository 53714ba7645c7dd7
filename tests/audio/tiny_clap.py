"""A tiny CLAP model with random weights: it tests plumbing and numbers, never what it says."""

from __future__ import annotations

from pathlib import Path

WORDS = ["A slow piece with piano and strings. A dog barks at a passing train, loud and clear."] * 4


def make_tiny_clap(folder: Path, *, fusion: bool = False) -> Path:
    """Write processor and weights into a folder; the same seed gives the same weights."""
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
        },
        audio_config={
            "hidden_size": 64, "patch_embeds_hidden_size": 8, "depths": [1] * 4, "num_hidden_layers": 4,
            "num_attention_heads": [1, 1, 2, 2], "projection_dim": 16, "enable_fusion": fusion,
        },
        projection_dim=16,
    )  # fmt: skip
    torch.manual_seed(7)
    ClapModel(config).eval().save_pretrained(folder)
    ClapProcessor(feature_extractor=listener, tokenizer=tokenizer).save_pretrained(folder)
    return folder
