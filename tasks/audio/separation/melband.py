"""Run a Mel-Band Roformer fast, with the operations of audio-separator's class and its weights.

(Wang, Lu & Won, "Mel-Band RoFormer for Music Source Separation", 2023, arXiv 2310.01809.) Differences from the class's
own `forward`: the residual stream stays in place and is added to, instead of being copied for each of the twelve turns
between time and frequency; a block takes a few sequences at a time, so that its temporaries stay in the processor's
caches and in memory already allocated (the class spends half its time on a CPU in page faults); on a CPU, weights are
packed once for oneDNN, an eighth faster at these shapes than unpacked products and fused with GELU and tanh; rotary
angles are computed once; masks are summed band by band instead of scattered. On a GPU a block takes everything at once.
In half precision the residual stream, norms, spectra and masks' sums stay in single precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch.nn import functional

TOKENS_AT_ONCE = 3200  # on a CPU: 20 MB in the widest temporary
Tensor: TypeAlias = Any  # torch has no types unless installed
Rotation: TypeAlias = tuple[Tensor, Tensor] | Tensor  # cosines and sines, or both as a complex number
FUSED = {torch.nn.GELU: "gelu", torch.nn.Tanh: "tanh"}


class MelBand:
    """Forward pass of a loaded model.

    Args:
        model: audio-separator's `MelBandRoformer` with its weights, on its device, in evaluation mode; one stem.
        dtype: of the matrix products: torch.float32, torch.float16 or torch.bfloat16. The model's own weights are
            converted.
        compiled: whether blocks are compiled (once a shape; takes a minute or two).
    """

    def __init__(self, model: Any, dtype: torch.dtype = torch.float32, compiled: bool = False) -> None:
        self.model, self.dtype = model, dtype
        self.device: torch.device = model.freq_indices.device
        self.channels: int = model.audio_channels
        sizes = [count * self.channels for count in model.num_freqs_per_band.tolist()]
        self._bands = [_span(part) for part in model.freq_indices.split(sizes)]
        self._overlaps = model.num_bands_per_freq.repeat_interleave(self.channels).float()[:, None]
        self._window = model.stft_window_fn(device=self.device)
        self._angles = model.layers[0][0].layers[0][0].rotary_embed.freqs.detach().float()
        self._rotations: dict[int, Rotation] = {}
        for part in (model.layers, model.band_split, model.mask_estimators):
            part.to(dtype)
        for norm in model.modules():
            if hasattr(norm, "gamma"):
                norm.float()
        # The compiler fuses operations by itself, and does not know packed products or complex numbers.
        self._complex = self.device.type == "cpu" and dtype == torch.float32 and not compiled
        if self._complex and torch.backends.mkldnn.is_available():
            pack(model.layers)
            pack(model.mask_estimators)
        self._block: Callable[..., Tensor] = torch.compile(block) if compiled else block

    def __call__(self, mix: Tensor) -> Tensor:
        """Return the voice.

        Args:
            mix: (windows, 2, frames), float32, on the model's device.

        Returns:
            (windows, 2, frames), up to a hop shorter unless the frames are a whole number of hops.
        """
        with torch.inference_mode():
            spectrum = self._spectrum(mix)
            x = self._split(spectrum)
            times, bands = x.shape[1:3]
            for along_time, along_frequency in self.model.layers:
                self._turn(along_time, x.transpose(1, 2), times)  # (windows, bands, times, dim): a view
                self._turn(along_frequency, x, bands)
            return self._voice(spectrum, self._masks(x), mix.shape[-1])

    def _spectrum(self, mix: Tensor) -> Tensor:
        """Return the spectrum, (windows, times, frequencies × channels, 2)."""
        flat = mix.reshape(-1, mix.shape[-1])
        spectrum = torch.stft(flat, **self.model.stft_kwargs, window=self._window, return_complex=True)
        spectrum = spectrum.unflatten(0, (mix.shape[0], self.channels)).permute(0, 3, 2, 1)
        return torch.view_as_real(spectrum.flatten(2).contiguous())

    def _split(self, spectrum: Tensor) -> Tensor:
        """Return a vector for each time and band, (windows, times, bands, dim)."""
        nets = self.model.band_split.to_features
        windows, times = spectrum.shape[:2]
        x = spectrum.new_empty(windows, times, len(nets), nets[0][1].out_features)
        for band, (span, (norm, linear)) in enumerate(zip(self._bands, nets, strict=True)):
            x[:, :, band] = linear(normed(norm, spectrum[:, :, span].flatten(2)).to(self.dtype))
        return x

    def _turn(self, transformer: Any, x: Tensor, length: int) -> None:
        """Run a transformer over the last but one dimension of (windows, sequences, length, dim), in place."""
        rotation = self._rotation(length)
        at_once = x.shape[1] if x.is_cuda else max(1, TOKENS_AT_ONCE // length)
        for window in [x] if x.is_cuda else x.split(1):
            for part in window.split(at_once, dim=1):
                sequences = part.reshape(-1, length, part.shape[-1])
                part.copy_(self._block(transformer, sequences, rotation, self.dtype).view(part.shape))

    def _rotation(self, length: int) -> Rotation:
        if length not in self._rotations:
            places = torch.arange(length, device=self.device, dtype=torch.float32)
            angles = places[:, None] * self._angles.to(self.device)
            turns = angles.cos(), angles.sin()
            self._rotations[length] = torch.complex(*turns) if self._complex else turns
        return self._rotations[length]

    def _masks(self, x: Tensor) -> Tensor:
        """Return the sum over bands of each frequency's mask, (windows, times, frequencies × channels, 2)."""
        windows, times = x.shape[:2]
        masks = x.new_zeros(windows, times, len(self._overlaps), 2)
        for band, (span, net) in enumerate(zip(self._bands, self.model.mask_estimators[0].to_freqs, strict=True)):
            masks[:, :, span] += net(x[:, :, band].to(self.dtype).contiguous()).float().unflatten(2, (-1, 2))
        return masks

    def _voice(self, spectrum: Tensor, masks: Tensor, frames: int) -> Tensor:
        masks /= self._overlaps.clamp(min=1e-8)
        voice = torch.view_as_complex(spectrum) * torch.view_as_complex(masks)
        voice = voice.unflatten(2, (-1, self.channels)).permute(0, 3, 2, 1).flatten(0, 1)
        length = frames if self.model.match_input_audio_length else None
        made = torch.istft(voice, **self.model.stft_kwargs, window=self._window, length=length)
        return made.unflatten(0, (-1, self.channels))


class Packed(torch.nn.Module):  # type: ignore[misc]
    """A linear layer with its weight in oneDNN's layout; single precision, on a CPU.

    Args:
        linear: the layer; its weight is not kept.
        then: the activation fused with the product: `none`, `gelu` or `tanh`.
    """

    def __init__(self, linear: Any, then: str) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), TOKENS_AT_ONCE)
        self.bias = None if linear.bias is None else linear.bias.detach()
        self._then: tuple[str, list[Any], str] = then, [], "none" if then == "gelu" else ""

    def forward(self, x: Tensor) -> Tensor:
        """Return the product of (…, in), contiguous."""
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, *self._then)


def pack(model: Any) -> None:
    """Replace a model's linear layers, and activations after them, by packed layers."""
    for module in list(model.modules()):
        children = list(module.named_children())
        for place, (name, child) in enumerate(children):
            if type(child) is not torch.nn.Linear:
                continue
            then, following = children[place + 1] if place + 1 < len(children) else ("", None)
            fused = FUSED.get(type(following), "none") if isinstance(module, torch.nn.Sequential) else "none"
            setattr(module, name, Packed(child, fused))
            if fused != "none":
                setattr(module, then, torch.nn.Identity())


def block(transformer: Any, x: Tensor, rotation: Rotation, dtype: torch.dtype) -> Tensor:
    """Run a transformer over sequences (sequences, length, dim) in float32; `x` itself may be overwritten."""
    for attention, feed in transformer.layers:
        x = x + _attended(attention, normed(attention.norm, x).to(dtype), rotation)
        norm, widen, gelu, _, narrow, _ = feed.net
        x = x + narrow(gelu(widen(normed(norm, x).to(dtype))))
    return normed(transformer.norm, x)


def normed(norm: Any, x: Tensor) -> Tensor:
    """Return x over its length, times √dim, times the learned gain, in float32; x itself without a norm."""
    if not hasattr(norm, "gamma"):
        return x
    return functional.normalize(x, dim=-1) * (norm.scale * norm.gamma)


def _attended(attention: Any, x: Tensor, rotation: Rotation) -> Tensor:
    queries_keys_values = attention.to_qkv(x).unflatten(-1, (3, attention.heads, -1))
    queries, keys, values = queries_keys_values.permute(2, 0, 3, 1, 4)
    attended = functional.scaled_dot_product_attention(rotated(queries, rotation), rotated(keys, rotation), values)
    attended = attended.transpose(1, 2) * attention.to_gates(x).sigmoid()[..., None]
    return attention.to_out[0](attended.flatten(2))


def rotated(x: Tensor, rotation: Rotation) -> Tensor:
    """Apply rotary positions (Su et al. 2021): rotate neighbouring numbers as pairs; angles in float32."""
    if not isinstance(rotation, tuple):
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * rotation).flatten(-2)
    cosine, sine = rotation
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], dim=-1).flatten(-2).to(x.dtype)


def _span(indices: Tensor) -> slice | Tensor:
    """Return indices as a slice if consecutive, as for mel bands; else unchanged."""
    first, last = int(indices[0]), int(indices[-1])
    if last - first + 1 == len(indices) and bool((indices[1:] > indices[:-1]).all()):
        return slice(first, last + 1)
    return indices
