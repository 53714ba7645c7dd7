"""Fit requests to the limits of models.

A model with too long a clip gives no warning: Qwen2-Audio drops all after 30 s, in vLLM and transformers alike, so the
judgment of a song would be of its intro. The table's values are from model cards; a config's `limits` override them,
and
an unlisted model has only the config's limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Audio, Image, Part, Text
from earmark.tasks.annotation.errors import OverLimit
from earmark.tasks.annotation.request import Request


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Limits and measures of a model; None is no known limit."""

    clip_s: float | None = None  # longest audible clip, in seconds
    audio_s: float | None = None  # most audio in a request, in seconds
    clips: int | None = None  # most clips in a request; 0 without audio input
    images: int | None = None  # most images in a request; 0 without image input
    context_tokens: int | None = None  # most tokens, in and out together
    audio_tokens_per_s: float = 32.0  # tokens per second of audio
    image_tokens: int = 1_500  # approximate tokens per image

    @property
    def boundless(self) -> bool:
        """Return whether the model has no known limit."""
        return self.clip_s is self.audio_s is self.clips is self.images is self.context_tokens is None


KNOWN: tuple[tuple[str, ModelLimits], ...] = (
    # The first entry with a name inside the model's name, in lower case, applies.
    ("qwen2-audio", ModelLimits(clip_s=30, images=0, context_tokens=8_192, audio_tokens_per_s=25)),
    # The processor pads to 300 s and drops the rest; Qwen3-Omni's does not.
    ("qwen2.5-omni", ModelLimits(clip_s=300, context_tokens=32_768, audio_tokens_per_s=25)),
    ("qwen3-omni", ModelLimits(context_tokens=65_536, audio_tokens_per_s=12.5)),
    # 20 and 40 windows of 30 s, after which the processors drop the rest; 25 tokens/s after pooling.
    ("audio-flamingo-3", ModelLimits(clip_s=600, images=0, context_tokens=32_768, audio_tokens_per_s=25)),
    ("music-flamingo", ModelLimits(clip_s=1_200, images=0, context_tokens=32_768, audio_tokens_per_s=25)),
    ("kimi-audio", ModelLimits(images=0, context_tokens=8_192, audio_tokens_per_s=12.5)),
    # 100 mel frames a second, subsampled by 4 and by 5.
    ("midashenglm", ModelLimits(images=0, context_tokens=32_768, audio_tokens_per_s=5)),
    ("gemini-", ModelLimits(audio_s=34_200, images=3_600, context_tokens=1_048_576, audio_tokens_per_s=32)),
    ("gpt-audio", ModelLimits(images=0, context_tokens=128_000, audio_tokens_per_s=10)),
    ("gpt-4o-audio", ModelLimits(images=0, context_tokens=128_000, audio_tokens_per_s=10)),
    ("gpt-4o-mini-audio", ModelLimits(images=0, context_tokens=128_000, audio_tokens_per_s=10)),
    ("gpt-4o", ModelLimits(clips=0, context_tokens=128_000)),
    ("gpt-4.1", ModelLimits(clips=0, context_tokens=1_047_576)),
)


def limits_of(config: AnnotatorConfig) -> ModelLimits:
    """Return the limits of the configured model: the table's values, overridden by the config."""
    name = config.annotator.partition(":")[2].lower()
    known = next((limits for part, limits in KNOWN if part in name), ModelLimits())
    return replace(known, **config.limits.model_dump(exclude_none=True))


def within(request: Request, limits: ModelLimits, *, cut: bool) -> tuple[Request, tuple[str, ...]]:
    """Return the request within the model's limits, with a note on each cut.

    A cut changes the audio form, so a cut request has another key than the whole.

    Raises:
        OverLimit: the request exceeds a limit, and cutting is not allowed or cannot help.
    """
    if limits.boundless:
        return request, ()
    audios = [part for part in request.parts() if isinstance(part, Audio)]
    _count("audio clips", len(audios), limits.clips)
    _count("images", sum(isinstance(part, Image) for part in request.parts()), limits.images)
    notes: list[str] = []
    longest = limits.clip_s
    lengths = [audio.length_s or 0.0 for audio in audios]
    total = sum(lengths if longest is None or not cut else [min(length, longest) for length in lengths])
    if limits.audio_s is not None and total > limits.audio_s:
        if not cut:
            raise OverLimit(f"expected at most {limits.audio_s:g} s of audio, found {total:g} s")
        share = limits.audio_s / len(audios)
        longest = share if longest is None else min(longest, share)
    if longest is not None and any(_beyond(audio, longest) for audio in audios):
        request = _cut(request, longest, notes, cut=cut)
    worst = tokens(request, limits)
    if limits.context_tokens is not None and worst + request.sampling.max_tokens > limits.context_tokens:
        raise OverLimit(
            f"expected at most {limits.context_tokens} tokens of context, found about {worst} in and up to "
            f"{request.sampling.max_tokens} out"
        )
    return request, tuple(notes)


def tokens(request: Request, limits: ModelLimits) -> int:
    """Estimate the input tokens: a token for 3 bytes of text (English has about 4), and the media."""
    return text_tokens(request, limits) + audio_tokens(request, limits)


def text_tokens(request: Request, limits: ModelLimits) -> int:
    """Estimate text and image tokens, including each message's frame."""
    count = 8 * len(request.messages)
    for part in request.parts():
        if isinstance(part, Text):
            count += len(part.text.encode("utf-8", "replace")) // 3 + 1
        elif isinstance(part, Image):
            count += limits.image_tokens
    return count


def audio_tokens(request: Request, limits: ModelLimits) -> int:
    """Estimate audio tokens; a clip of unknown length counts as the longest audible clip, or 30 s."""
    unknown = limits.clip_s or 30.0
    lengths = [unknown if a.length_s is None else a.length_s for a in request.parts() if isinstance(a, Audio)]
    return sum(int(length * limits.audio_tokens_per_s) + 2 for length in lengths)


def _count(what: str, found: int, most: int | None) -> None:
    if most is not None and found > most:
        raise OverLimit(f"expected at most {most} {what} in a request, found {found}")


def _beyond(audio: Audio, longest: float) -> bool:
    return audio.length_s is not None and audio.length_s > longest + 1e-6


def _cut(request: Request, longest: float, notes: list[str], *, cut: bool) -> Request:
    def shorter(part: Part) -> Part:
        if not isinstance(part, Audio) or not _beyond(part, longest):
            return part
        said = f"clip {part.sha256[:12]}: the model hears {longest:g} s of {part.length_s:g} s"
        if not cut:
            raise OverLimit(f"{said}; shorten it or set on_limit = 'cut'")
        notes.append(said)
        return replace(part, form=replace(part.form, longest_s=longest))

    messages = tuple(replace(m, parts=tuple(shorter(part) for part in m.parts)) for m in request.messages)
    return replace(request, messages=messages)
