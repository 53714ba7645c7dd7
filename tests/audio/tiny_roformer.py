"""A small Mel-Band Roformer with random weights: checkpoint, YAML, and the list that audio-separator reads offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

LISTS = (
    "vr_download_list", "mdx_download_list", "mdx_download_vip_list", "demucs_download_list",
    "mdx23c_download_list", "mdx23c_download_vip_list", "roformer_download_list",
)  # fmt: skip
KIM: dict[str, Any] = {
    "dim": 384, "depth": 6, "stereo": True, "num_stems": 1, "time_transformer_depth": 1, "freq_transformer_depth": 1,
    "num_bands": 60, "dim_head": 64, "heads": 8, "attn_dropout": 0, "ff_dropout": 0, "flash_attn": True,
    "dim_freqs_in": 1025, "sample_rate": 44100, "stft_n_fft": 2048, "stft_hop_length": 441, "stft_win_length": 2048,
    "stft_normalized": False, "mask_estimator_depth": 2,
}  # fmt: skip
MASKS = 6.0  # with it, what is taken out is about as loud as what stays
TINY = {**KIM, "dim": 16, "depth": 2, "dim_head": 8, "heads": 2, "num_bands": 24}
CHECKPOINT = "tiny_mel_band_roformer.ckpt"


def make_roformer(
    folder: Path, model: dict[str, Any] = TINY, *, dim_t: int = 401, overlap: int = 2, seed: int = 7
) -> Path:
    """Write checkpoint, YAML and download list; the checkpoint's path. The same seed gives the same weights."""
    import torch
    from audio_separator.separator.uvr_lib_v5.roformer.mel_band_roformer import MelBandRoformer

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    made = MelBandRoformer(**model)
    with torch.no_grad():  # norms and masks that do something: a fresh model's masks are near nothing
        for name, value in made.named_parameters():
            if name.endswith("gamma"):
                value.add_(0.2 * torch.randn_like(value))
            if name.startswith("mask_estimators") and name.endswith("weight"):
                value.mul_(MASKS)
    torch.save(made.state_dict(), folder / CHECKPOINT)
    settings = {
        "audio": {"sample_rate": 44100, "hop_length": 441},
        "model": model,
        "training": {"instruments": ["vocals", "other"], "target_instrument": "vocals"},
        "inference": {"dim_t": dim_t, "num_overlap": overlap, "batch_size": 1},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(settings))
    lists: dict[str, Any] = {name: {} for name in LISTS}
    lists["roformer_download_list"] = {"Roformer Model: tiny": {CHECKPOINT: "tiny.yaml"}}
    (folder / "download_checks.json").write_text(json.dumps(lists))
    return folder / CHECKPOINT
