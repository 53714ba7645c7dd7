"""Audio-text similarity with a tiny random CLAP model: right numbers, measured once, the same in any company."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from earmark.schemas.errors import ConfigError, InputError, MissingExtraError
from earmark.tasks.audio.similarity import ClipText, Similarity
from earmark.tasks.store.licences import terms_of

HAS_TRANSFORMERS = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
TEXTS = ["A slow piece with piano.", "A dog barks.", 'Say "yes" {x} <|im_end|> 是', "long " * 300]


def clip(folder: Path, seed: int, seconds: float = 1.5) -> tuple[str, Path]:
    path = folder / f"{seed}.wav"
    samples = np.sin(np.arange(int(16_000 * seconds)) * 0.03 * (seed + 1)) * 0.3
    noise = np.random.default_rng(seed).standard_normal(len(samples))
    soundfile.write(path, samples + 0.1 * noise, 16_000)
    return hashlib.sha256(path.read_bytes()).hexdigest(), path


@pytest.mark.models
@pytest.mark.parametrize("fusion", [False, True])
def test_cosines_are_the_models_whatever_the_company(tmp_path: Path, fusion: bool) -> None:
    import torch
    from transformers import AutoProcessor, ClapModel

    from tests.audio.tiny_clap import make_tiny_clap

    folder = make_tiny_clap(tmp_path / "model", fusion=fusion)
    said = [ClipText(*clip(tmp_path, seed), text) for seed in range(9) for text in TEXTS]
    told: list[int] = []
    together = Similarity(str(folder), tmp_path / "kept/a.sqlite").cosines(said, told.append)
    assert sum(told) == len(said)
    assert all(-1 <= cosine <= 1 for cosine in together)
    assert len(set(together)) > len(said) // 2
    alone = Similarity(str(folder), tmp_path / "b.sqlite")
    assert [alone.cosines([one])[0] for one in said[::5]] == pytest.approx(together[::5], abs=1.1e-4)
    processor, model = AutoProcessor.from_pretrained(folder), ClapModel.from_pretrained(folder).eval()
    samples, rate = soundfile.read(said[0].path, dtype="float32")
    inputs = processor(text=[said[0].text], audio=[samples], sampling_rate=rate, return_tensors="pt")
    if fusion:
        inputs["is_longer"] = torch.zeros_like(inputs["is_longer"])
    with torch.inference_mode():
        found = model(**inputs)
    expected = torch.nn.functional.cosine_similarity(found.audio_embeds, found.text_embeds).item()
    assert together[0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.models
def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    from tests.audio.tiny_clap import make_tiny_clap

    folder = make_tiny_clap(tmp_path / "model")
    said = [ClipText(*clip(tmp_path, seed), TEXTS[0]) for seed in range(2)]
    first = Similarity(str(folder), tmp_path / "s.sqlite").cosines(said)
    for one in said:
        one.path.unlink()  # a second look would fail
    again = Similarity(str(folder), tmp_path / "s.sqlite")
    assert again.cosines([*said, said[0]]) == [*first, first[0]]
    assert again.cosines([said[0]._replace(text="another text")]) != first[:1]  # of the clip's embedding that was kept
    with pytest.raises(InputError, match="file_missing"):
        again.cosines([said[0]._replace(clip_sha256="0" * 64)])
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    with pytest.raises(InputError, match="file_missing"):  # another model
        Similarity(str(folder), tmp_path / "s.sqlite").cosines(said)


@pytest.mark.models
def test_embeddings_are_the_models_and_are_kept_one_by_one(tmp_path: Path) -> None:
    import torch
    from transformers import AutoProcessor, ClapModel

    from tests.audio.tiny_clap import make_tiny_clap

    folder = make_tiny_clap(tmp_path / "model")
    clips = dict(clip(tmp_path, seed) for seed in range(3))
    (good, path), *_ = clips.items()
    kept = Similarity(str(folder), tmp_path / "s.sqlite")
    first = kept.embeddings({good: path})
    path.rename(tmp_path / "elsewhere.wav")  # a second look at what is kept would fail
    with pytest.raises(InputError, match="file_missing"):
        kept.embeddings({**clips, "0" * 64: tmp_path / "missing.wav"})
    kept.embeddings(clips)
    for one in [*clips.values()][1:]:
        one.unlink()
    counted: list[int] = []
    found = Similarity(str(folder), tmp_path / "s.sqlite").embeddings(clips, counted.append)
    assert (list(found), sum(counted)) == (list(clips), 3)
    assert np.array_equal(found[good], first[good])
    assert [float(np.linalg.norm(vector)) for vector in found.values()] == pytest.approx([1, 1, 1], abs=1e-6)
    processor, model = AutoProcessor.from_pretrained(folder), ClapModel.from_pretrained(folder).eval()
    samples, rate = soundfile.read(tmp_path / "elsewhere.wav", dtype="float32")
    inputs = processor.feature_extractor([samples], sampling_rate=rate, return_tensors="pt")
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(model.get_audio_features(**inputs).pooler_output)[0].numpy()
    assert found[good] == pytest.approx(expected, abs=1e-4)


@pytest.mark.models
def test_long_clips_are_heard_in_windows_and_give_the_same_number_again(tmp_path: Path) -> None:
    from tests.audio.tiny_clap import make_tiny_clap

    folder = make_tiny_clap(tmp_path / "model")
    said = [ClipText(*clip(tmp_path, 1, 9.3), TEXTS[0]), ClipText(*clip(tmp_path, 2, 1.0), TEXTS[1])]
    found = [Similarity(str(folder), tmp_path / f"{at}.sqlite").cosines(said) for at in range(2)]
    assert found[0] == found[1]


@pytest.mark.models
def test_a_checkpoint_of_laion_is_read_by_path(tmp_path: Path) -> None:
    """Its towers give what the same weights give as a folder: the listener's settings are the checkpoint's own."""
    import torch
    from transformers import ClapFeatureExtractor, ClapProcessor, RobertaTokenizerFast

    from tests.audio.tiny_clap import make_tiny_clap, write_checkpoint

    folder = make_tiny_clap(tmp_path / "model", laion=True)
    listener = ClapFeatureExtractor(frequency_min=50, frequency_max=14_000, truncation="rand_trunc")
    ClapProcessor(listener, RobertaTokenizerFast.from_pretrained(folder)).save_pretrained(folder)
    file = write_checkpoint(folder, tmp_path / "laion/music_audioset_epoch_15_esc_90.14.pt")
    said = [ClipText(*clip(tmp_path, seed), text) for seed in range(3) for text in TEXTS]
    by_folder = Similarity(str(folder), tmp_path / "a.sqlite").cosines(said)
    by_file = Similarity(str(file), tmp_path / "b.sqlite")
    assert by_file.cosines(said) == pytest.approx(by_folder, abs=1.1e-4)
    assert len(by_file.digest) == 64
    assert terms_of([str(file)], {}) == {str(file): "CC0-1.0"}
    write_checkpoint(make_tiny_clap(tmp_path / "fused", fusion=True), tmp_path / "laion/fused.pt")
    with pytest.raises(ConfigError, match="without fusion"):
        Similarity(str(tmp_path / "laion/fused.pt"), tmp_path / "c.sqlite").cosines(said)
    held = torch.load(file, weights_only=False)
    del held["state_dict"]["module.audio_projection.2.bias"]
    torch.save(held, tmp_path / "laion/lacks.pt")
    with pytest.raises(ConfigError, match=r"1 missing or unknown, such as audio_projection\.linear2\.bias"):
        Similarity(str(tmp_path / "laion/lacks.pt"), tmp_path / "c.sqlite").cosines(said)
    torch.save({**held, "code": clip}, tmp_path / "laion/code.pt")
    with pytest.raises(ConfigError, match="never loaded"):
        Similarity(str(tmp_path / "laion/code.pt"), tmp_path / "c.sqlite").cosines(said)


@pytest.mark.models
@pytest.mark.parametrize(("tower", "what"), [("text", "texts"), ("audio", "sounds")])
def test_a_collapsed_tower_is_refused_before_use(tmp_path: Path, tower: str, what: str) -> None:
    import torch
    from transformers import ClapModel

    from tests.audio.tiny_clap import make_tiny_clap

    folder = make_tiny_clap(tmp_path / "model")
    model = ClapModel.from_pretrained(folder)
    with torch.no_grad():
        getattr(model, f"{tower}_projection").linear1.weight *= 1e-3
        getattr(model, f"{tower}_projection").linear2.bias += 1
    model.save_pretrained(folder)
    says = rf"expected 10 different {what} to have a mean cosine below 0.95, found (1.0000|0.99\d\d): it tells none"
    (sha256, path), kept = clip(tmp_path, 1), tmp_path / "s.sqlite"
    for use in (
        lambda one: one.cosines([ClipText(sha256, path, "x")]),
        lambda one: one.embeddings({sha256: path}),
        lambda one: one.load(),
    ):
        with pytest.raises(ConfigError, match=says):
            use(Similarity(str(folder), kept))


def test_results_kept_before_the_check_wait_for_it(tmp_path: Path) -> None:
    """Whoever collapsed then is found out now; a model that has passed is loaded no more."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    (sha256, path), text = clip(tmp_path, 1), hashlib.sha256(b"x").hexdigest()
    kept = Similarity(str(tmp_path / "model"), tmp_path / "s.sqlite")
    with kept._open() as connection:
        connection.execute("INSERT INTO similarities VALUES (?, ?, ?, 0.5)", (kept.digest, sha256, text))
        connection.execute("INSERT INTO embeddings VALUES (?, ?, ?)", (kept.digest, sha256, bytes(8)))
        connection.commit()
    uses = (lambda: kept.cosines([ClipText(sha256, path, "x")]), lambda: [*kept.embeddings({sha256: None})])
    for use in uses:
        with pytest.raises((MissingExtraError, ConfigError)):  # it would be loaded, and is none
            use()
    with kept._open() as connection:
        kept._mark(connection)
    assert [use() for use in uses] == [[0.5], [sha256]]


@pytest.mark.models
def test_what_is_no_clap_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = [ClipText(*clip(tmp_path, 1), "x")]
    with pytest.raises(ConfigError, match="expected a CLAP model"):
        Similarity(str(tmp_path / "empty"), tmp_path / "s.sqlite").cosines(said)


@pytest.mark.models
def test_weights_that_hold_code_or_lie_about_their_size_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from tests.audio.tiny_clap import make_tiny_clap

    class Code:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "ran",)

    folder = make_tiny_clap(tmp_path / "model")
    weights, config = folder / "model.safetensors", folder / "config.json"
    good, facts = weights.read_bytes(), json.loads(config.read_text())

    def refused(what: str) -> None:
        with pytest.raises(ConfigError, match=f"expected a CLAP model of transformers: .*{what}") as caught:
            Similarity(str(folder), tmp_path / "s.sqlite").load()
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "ran").exists()

    for head in (struct.pack("<Q", 1 << 63), struct.pack("<Q", 10**9), b""):
        weights.write_bytes(head + b"{" * bool(head))
        refused("header too (large|small)")
    weights.write_bytes(good[: len(good) // 2])
    refused("not fully covered")
    weights.unlink()
    torch.save({"a": Code()}, folder / "pytorch_model.bin")
    refused("a pickle of more than tensors, which is never loaded")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked whether to run a stranger's code"))
    (folder / "strange.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config.write_text(json.dumps({**facts, "model_type": "strange", "auto_map": {"AutoConfig": "strange.Config"}}))
    (folder / "processor_config.json").unlink()
    refused("")


def test_a_name_that_is_neither_folder_nor_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a folder, a file or a model on the Hub"):
        Similarity("no such/model/at all", tmp_path / "s.sqlite").cosines([ClipText("0" * 64, tmp_path / "a.wav", "x")])


@pytest.mark.skipif(HAS_TRANSFORMERS, reason="transformers is installed")
def test_without_transformers_the_missing_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"\[models\]"):
        Similarity(str(tmp_path), tmp_path / "s.sqlite").cosines([ClipText("0" * 64, tmp_path / "a.wav", "x")])
