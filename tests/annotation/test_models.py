"""transformers on CPU with a tiny random model; and what is said where the libraries are missing."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import MissingExtraError
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.outcome import Answer, Reject
from earmark.tasks.annotation.request import Audio, AudioForm, Message, Request, YesNo
from earmark.tasks.audio.encode import Encoder
from tests.annotation.conftest import ask_all

HAS_TRANSFORMERS = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


def noise(folder: Path, seed: int) -> Audio:
    """A clip of two seconds."""
    path = folder / f"{seed}.wav"
    tone = np.sin(np.arange(32_000) * 0.02 * (seed + 1)) * 0.3
    soundfile.write(path, tone + 0.1 * np.random.default_rng(seed).standard_normal(32_000), 16_000)
    return Audio(hashlib.sha256(path.read_bytes()).hexdigest(), str(path), duration_s=2.0)


@pytest.mark.models
def test_transformers_answers_with_text_and_probabilities(tmp_path: Path) -> None:
    from tests.annotation.tiny_model import make_tiny_model

    model = make_tiny_model(tmp_path / "model")
    config = AnnotatorConfig(annotator=f"transformers:{model}", max_tokens=4)
    clips = [noise(tmp_path, seed) for seed in range(3)]

    def ask(clip: Audio, form: YesNo | None) -> Request:
        return question(config, [Message.of("user", clip, "Is there a drum?")], form)

    wrong = Audio(clips[0].sha256, clips[0].path, duration_s=2.0, form=AudioForm(sample_rate_hz=8000))
    requests = [ask(clip, YesNo()) for clip in clips] + [ask(clips[0], None), ask(wrong, YesNo())]
    media = Media(load_audio=Encoder())
    report = ask_all(config, requests, ledger=tmp_path / "l.sqlite", media=media)
    *yes_no, text, refused = report.outcomes
    shares = []
    for outcome in yes_no:
        assert isinstance(outcome, Answer), outcome
        shares.append(outcome.value["p_yes"])
    assert all(0 < share < 1 for share in shares)
    assert len(set(shares)) == 3
    assert isinstance(text, Answer | Reject)
    assert isinstance(refused, Reject)
    assert refused.reason == "bad_request"
    assert shares == pytest.approx(_by_hand(model, clips), abs=1e-5)
    again = ask_all(config, requests[:3], ledger=tmp_path / "m.sqlite", media=media)
    assert again.outcomes == yes_no


def _by_hand(model: Path, clips: list[Audio]) -> list[float]:
    """P(yes) straight from transformers."""
    import torch
    from transformers import AutoModelForMultimodalLM, AutoProcessor

    processor = AutoProcessor.from_pretrained(model)
    net = AutoModelForMultimodalLM.from_pretrained(model).eval()
    found = []
    for clip in clips:
        samples, rate = soundfile.read(clip.path, dtype="float32")
        content = [{"type": "audio"}, {"type": "text", "text": "Is there a drum?"}]
        prompt = processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
        inputs = processor(text=prompt, audio=[samples], sampling_rate=rate, return_tensors="pt")
        with torch.inference_mode():
            logprobs = torch.log_softmax(net(**inputs).logits[0, -1], -1)
        mass = []
        for word in ("Yes", "No"):
            ids = [processor.tokenizer.encode(form) for form in (word, f" {word}")]
            mass.append(sum(math.exp(logprobs[i[0]]) for i in ids if len(i) == 1))
        found.append(mass[0] / sum(mass))
    return found


@pytest.mark.skipif(HAS_TRANSFORMERS, reason="transformers is installed")
def test_without_transformers_the_missing_extra_is_named(tmp_path: Path) -> None:
    config = AnnotatorConfig(annotator="transformers:tiny")
    with pytest.raises(MissingExtraError, match=r"earmark\[audio\]"):
        ask_all(config, [question(config, [Message.of("user", "hello")])], ledger=tmp_path / "l.sqlite")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vllm is installed")
def test_without_vllm_the_missing_extra_is_named(tmp_path: Path) -> None:
    config = AnnotatorConfig(annotator="vllm:tiny")
    with pytest.raises(MissingExtraError, match=r"'\.\[cuda\]'"):
        ask_all(config, [question(config, [Message.of("user", "hello")])], ledger=tmp_path / "l.sqlite")
