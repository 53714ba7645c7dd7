"""A tiny model of the Qwen2-Audio class with random weights: it tests plumbing and numbers, never what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = ["Yes and No are answers. Is there a drum? A B tie. You compare two clips of music."] * 4
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for p in m['content'] %}"
    "{% if p['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>{% else %}{{ p['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_model(folder: Path) -> Path:
    """Write processor and weights into a folder; the same seed gives the same weights, for vLLM and transformers."""
    import torch
    from transformers import (
        Qwen2AudioConfig,
        Qwen2AudioForConditionalGeneration,
        Qwen2AudioProcessor,
        WhisperFeatureExtractor,
    )

    tokenizer = _tokenizer()
    features = WhisperFeatureExtractor(feature_size=32, chunk_length=30, return_attention_mask=True)
    processor = Qwen2AudioProcessor(features, tokenizer, chat_template=TEMPLATE)
    config = Qwen2AudioConfig(
        audio_config={
            "model_type": "qwen2_audio_encoder",
            "num_mel_bins": 32,
            "d_model": 64,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "max_source_positions": 1500,
        },
        text_config={
            "model_type": "qwen2",
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
        },
        audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>"),
    )
    torch.manual_seed(7)
    model = Qwen2AudioForConditionalGeneration(config)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)  # so that clips differ in more than rounding
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    _name_for_vllm(folder / "model.safetensors")
    return folder


TURNS = (
    "{% for m in messages %}{% if m['role'] == 'system' and refuses %}{{ raise_exception('no system') }}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ 'A' if enable_thinking else '' }}{% endif %}"
)


def make_text_model(folder: Path, family: str, template: str | None = TURNS) -> Path:
    """Write tokenizer and weights of a language model of a family (llama, qwen3, gemma2) into a folder."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = _tokenizer()
    tokenizer.chat_template = template
    config = AutoConfig.for_model(
        family, vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=32,
        num_attention_heads=2, num_key_value_heads=1, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        WORDS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=SPECIAL)
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=SPECIAL[1:]
    )


def _name_for_vllm(file: Path) -> None:
    """Some versions of transformers write names that vLLM does not look for; they all read these."""
    from safetensors.torch import load_file, save_file

    held = load_file(file)
    renamed = {
        name.replace("language_model.model.model.", "language_model.model."): value for name, value in held.items()
    }
    save_file(renamed, file, metadata={"format": "pt"})


def token_ids(folder: Path, *words: str) -> tuple[int, ...]:
    """The one token of each word, with or without a space before it.

    Raises:
        ValueError: a word has no such token, or two.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for word in words:
        spelled = [ids[0] for form in (word, f" {word}") if len(ids := tokenizer.encode(form)) == 1]
        if len(spelled) != 1:
            raise ValueError(f"expected one token for {word!r}, found {len(spelled)}")
        found += spelled
    return tuple(found)
