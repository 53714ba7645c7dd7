"""transformers on CPU with a tiny random model; and what is said where the libraries are missing."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.schemas.questions import Audio, AudioForm, Message, YesNo
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.errors import StopRun
from earmark.tasks.annotation.request import Answer, Request, Unanswered
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
    config = AnnotatorConfig(annotator=f"transformers:{model}", max_tokens=4, least_share=0.0)
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
    assert isinstance(text, Answer | Unanswered)
    assert isinstance(refused, Unanswered)
    assert refused.reason == "bad_request"
    assert shares == pytest.approx(_by_hand(model, clips), abs=1e-5)
    again = ask_all(config, requests[:3], ledger=tmp_path / "m.sqlite", media=media)
    assert again.outcomes == yes_no


@pytest.mark.models
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
def test_language_models_of_text_alone_answer(tmp_path: Path, family: str) -> None:
    """One whose template takes no system turn (Gemma's) gets its words before the first turn."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tests.annotation.tiny_model import TURNS, make_text_model

    template = TURNS.replace("and refuses", "") if family == "gemma2" else TURNS
    model = make_text_model(tmp_path / "model", family, template)
    config = AnnotatorConfig(annotator=f"transformers:{model}", max_tokens=4, least_share=0.0)
    thinks = config.model_copy(update={"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}})
    turns = [Message.of("system", "You compare."), Message.of("user", "Is there a drum?", "Yes or No?")]
    report = ask_all(config, [question(config, turns, YesNo()), question(config, turns)], ledger=tmp_path / "l.sqlite")
    judged, written = report.outcomes
    assert isinstance(judged, Answer), judged
    assert isinstance(written, Answer) or written.reason == "truncated"  # of random weights, often

    tokenizer, net = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model).eval()
    said = "<|im_start|>{}\nYou compare.{}Is there a drum?\nYes or No?<|im_end|>\n<|im_start|>assistant\n"
    split = ("user", "\n\n") if family == "gemma2" else ("system", "<|im_end|>\n<|im_start|>user\n")
    for prompt, config_, ledger in ((said, config, "a"), (f"{said}A", thinks, "b")):
        inputs = tokenizer(prompt.format(*split), add_special_tokens=False, return_tensors="pt")
        with torch.inference_mode():
            logprobs = torch.log_softmax(net(**inputs).logits[0, -1], -1)
        yes, no = (_mass(tokenizer, logprobs, word) for word in ("Yes", "No"))
        (outcome,) = ask_all(config_, [question(config_, turns, YesNo())], ledger=tmp_path / f"{ledger}.db").outcomes
        assert isinstance(outcome, Answer)
        assert outcome.value["p_yes"] == pytest.approx(yes / (yes + no), abs=1e-4)


@pytest.mark.models
def test_a_language_model_says_what_it_cannot_do(tmp_path: Path) -> None:
    from tests.annotation.tiny_model import make_text_model

    model = make_text_model(tmp_path / "model", "llama")
    config = AnnotatorConfig(annotator=f"transformers:{model}")
    with pytest.raises(StopRun, match="reads text alone, found a clip"):
        ask_all(config, [question(config, [Message.of("user", noise(tmp_path, 1), "?")])], ledger=tmp_path / "l.sqlite")
    base = make_text_model(tmp_path / "base", "llama", None)
    config = AnnotatorConfig(annotator=f"transformers:{base}")
    with pytest.raises(ConfigError, match="has no chat template"):
        ask_all(config, [question(config, [Message.of("user", "?")])], ledger=tmp_path / "m.sqlite")


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
        mass = [_mass(processor.tokenizer, logprobs, word) for word in ("Yes", "No")]
        found.append(mass[0] / sum(mass))
    return found


def _mass(tokenizer: Any, logprobs: Any, word: str) -> float:
    """Probability of a word as the first token, with or without a blank before it."""
    ids = [tokenizer.encode(form, add_special_tokens=False) for form in (word, f" {word}")]
    return sum(math.exp(logprobs[one[0]]) for one in ids if len(one) == 1)


@pytest.mark.skipif(HAS_TRANSFORMERS, reason="transformers is installed")
def test_without_transformers_the_missing_extra_is_named(tmp_path: Path) -> None:
    config = AnnotatorConfig(annotator="transformers:tiny")
    with pytest.raises(MissingExtraError, match=r"\[models\]"):
        ask_all(config, [question(config, [Message.of("user", "hello")])], ledger=tmp_path / "l.sqlite")
