"""Kim's Mel-Band Roformer in torch and NumPy alone, for machines without audio-separator; it loads the same weights.

Holds the parts that `earmark.tasks.audio.separation.melband.MelBand` runs (Wang, Lu & Won 2023, arXiv 2310.01809), with
the names of audio-separator's state dict. It has no forward pass of its own.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

FFT, HOP, RATE_HZ, BANDS, CHANNELS = 2048, 441, 44_100, 60, 2
DIM, HEADS, HEAD_DIM, WIDER = 384, 8, 64, 4
MASKS = 6.0  # factor on the masks' weights: a fresh model takes nearly nothing out


def mel_bands() -> np.ndarray:
    """Return the frequencies of each band, (bands, FFT / 2 + 1), true inside: librosa's triangles on Slaney's scale."""
    linear_hz, per_octave = 200.0 / 3, np.log(6.4) / 27.0

    def hz(mels: np.ndarray) -> np.ndarray:
        return np.where(mels < 15, linear_hz * mels, 1000.0 * np.exp(per_octave * (mels - 15)))

    highest = 15 + np.log(RATE_HZ / 2 / 1000.0) / per_octave
    edges = hz(np.linspace(0.0, highest, BANDS + 2))[:, None]
    bins = np.fft.rfftfreq(FFT, 1 / RATE_HZ)
    rising, falling = (bins - edges[:-2]) / np.diff(edges[:-1], axis=0), (edges[2:] - bins) / np.diff(edges[1:], axis=0)
    inside = np.minimum(rising, falling) > 0
    inside[0, 0] = inside[-1, -1] = True
    return inside


class RootMeanSquare(nn.Module):
    """Learned gain of a norm over the last dimension."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = dim**0.5
        self.gamma = nn.Parameter(torch.ones(dim))


class Rotary(nn.Module):
    """Angles a place, of half a head's dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.freqs = nn.Parameter(10_000.0 ** -(torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM), requires_grad=False)


class GatedAttention(nn.Module):
    """Attention's layers."""

    def __init__(self, dim: int, rotary: Rotary) -> None:
        super().__init__()
        inner = HEADS * HEAD_DIM
        self.heads, self.rotary_embed, self.norm = HEADS, rotary, RootMeanSquare(dim)
        self.to_qkv, self.to_gates = nn.Linear(dim, 3 * inner, bias=False), nn.Linear(dim, HEADS)
        self.to_out = nn.Sequential(nn.Linear(inner, dim, bias=False), nn.Dropout(0))


class Widened(nn.Module):
    """Feed-forward layers."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        layers = nn.Linear(dim, WIDER * dim), nn.GELU(), nn.Dropout(0), nn.Linear(WIDER * dim, dim), nn.Dropout(0)
        self.net = nn.Sequential(RootMeanSquare(dim), *layers)


class OneDirection(nn.Module):
    """Transformer along time or along frequency."""

    def __init__(self, dim: int, rotary: Rotary) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleList([GatedAttention(dim, rotary), Widened(dim)])])
        self.norm = RootMeanSquare(dim)


class KimRoformer(nn.Module):
    """Model with random weights, reproducible by its seed.

    Args:
        depth: pairs of transformers; Kim's has 6.
        dim: width; Kim's has 384.
    """

    def __init__(self, depth: int = 6, dim: int = DIM, seed: int = 7) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.audio_channels, self.match_input_audio_length = CHANNELS, False
        self.stft_kwargs = {"n_fft": FFT, "hop_length": HOP, "win_length": FFT, "normalized": False}
        self.stft_window_fn = partial(torch.hann_window, FFT)
        inside = torch.from_numpy(mel_bands())
        places = torch.nonzero(inside)[:, 1]
        sizes = [2 * CHANNELS * int(count) for count in inside.sum(1)]
        self.register_buffer("freq_indices", (places[:, None] * CHANNELS + torch.arange(CHANNELS)).flatten(), False)
        self.register_buffer("num_freqs_per_band", inside.sum(1), False)
        self.register_buffer("num_bands_per_freq", inside.sum(0), False)
        along = Rotary(), Rotary()
        self.layers = nn.ModuleList(nn.ModuleList(OneDirection(dim, rotary) for rotary in along) for _ in range(depth))
        self.band_split = nn.Module()
        self.band_split.to_features = nn.ModuleList(
            nn.Sequential(RootMeanSquare(size), nn.Linear(size, dim)) for size in sizes
        )
        masks = nn.Module()
        masks.to_freqs = nn.ModuleList(nn.Sequential(_mlp(dim, size), nn.GLU(dim=-1)) for size in sizes)
        self.mask_estimators = nn.ModuleList([masks])
        with torch.no_grad():
            for name, value in self.named_parameters():
                if name.startswith("mask_estimators") and name.endswith("weight"):
                    value.mul_(MASKS)
        self.eval().requires_grad_(False)


def _mlp(dim: int, size: int) -> nn.Sequential:
    widths = dim, WIDER * dim, WIDER * dim, 2 * size
    layers: list[Any] = [
        layer for wide, next_wide in pairwise(widths) for layer in (nn.Linear(wide, next_wide), nn.Tanh())
    ]
    return nn.Sequential(*layers[:-1])
