"""What is wrong with a checkpoint is told in one line; a download leaves whole files whose hash is held."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.tasks.audio.separation import checkpoints
from earmark.tasks.audio.separation.checkpoints import KNOWN_SHA256, find_checkpoint, load_model
from earmark.tasks.audio.separation.choice import make_separator

SETTINGS = {
    "model": {"num_bands": 60, "stft_hop_length": 441},
    "training": {"instruments": ["vocals", "other"], "target_instrument": "vocals"},
    "inference": {"dim_t": 801, "num_overlap": 2},
}
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
with_separation = pytest.mark.skipif(importlib.util.find_spec("audio_separator") is None, reason="needs separation")
without_separation = pytest.mark.skipif(
    importlib.util.find_spec("audio_separator") is not None, reason="separation is there"
)


def write(folder: Path, settings: object = SETTINGS, weights: bytes = b"") -> tuple[str, Path]:
    (folder / "m.ckpt").write_bytes(weights)
    (folder / "m.yaml").write_text(settings if isinstance(settings, str) else yaml.dump(settings))
    return str(folder / "m.ckpt"), folder / "m.yaml"


def test_a_checkpoint_by_path(tmp_path: Path) -> None:
    found = find_checkpoint(*write(tmp_path))
    assert (found.name, found.sha256, found.settings) == ("m.ckpt", EMPTY_SHA256, SETTINGS)


def test_the_tuples_of_published_files_are_read_and_no_other_objects(tmp_path: Path) -> None:
    text = yaml.dump(SETTINGS) + "x: !!python/tuple [4096, 2048]\n"
    assert find_checkpoint(*write(tmp_path, text)).settings["x"] == (4096, 2048)
    with pytest.raises(ConfigError, match=r"m\.yaml cannot be read"):
        find_checkpoint(*write(tmp_path, yaml.dump(SETTINGS) + "x: !!python/object/apply:os.getcwd []\n"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("- a list", "expected the YAML of a Mel-Band Roformer"),
        ("a: [", "cannot be read"),
        ({**SETTINGS, "model": {"freqs_per_bands": [2, 2]}}, "expected the YAML of a Mel-Band Roformer"),
        ({**SETTINGS, "training": {"target_instrument": "drums"}}, "target_instrument: vocals, found drums"),
        ({**SETTINGS, "training": None}, "target_instrument: vocals, found None"),
        ({**SETTINGS, "inference": {}}, "expected a whole number as inference.dim_t"),
    ],
)
def test_a_wrong_yaml_is_one_line(tmp_path: Path, settings: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        find_checkpoint(*write(tmp_path, settings))
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    name, settings = write(tmp_path)
    with pytest.raises(ConfigError, match=r"expected its YAML at .*gone\.yaml, found nothing"):
        find_checkpoint(name, tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match=r"expected a checkpoint at .*gone\.ckpt, found nothing"):
        find_checkpoint(str(tmp_path / "gone.ckpt"), settings)
    with pytest.raises(ConfigError, match="name it as `settings`"):
        find_checkpoint(name)


def test_what_a_killed_download_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, folder: Path, models: Path) -> str:
        write(folder)
        return "m.yaml"

    monkeypatch.setattr(checkpoints, "_registry", dict)
    monkeypatch.setattr(checkpoints, "_download", download)
    for name in (".downloading-a1b2", ".downloading-worker-12-4242-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_bytes(b"weig")
    assert find_checkpoint("m.ckpt", models=tmp_path).path == tmp_path / "m.ckpt"
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "m.ckpt", "m.ckpt.sha256", "m.yaml"}


@without_separation
def test_without_the_extra_it_is_named(tmp_path: Path) -> None:
    name, settings = write(tmp_path)
    with pytest.raises(MissingExtraError, match="make setup-all"):
        make_separator(name, settings=settings)
    with pytest.raises(MissingExtraError, match="make setup-all"):
        make_separator("vocals_mel_band_roformer.ckpt")


@with_separation
@pytest.mark.models
class TestRegistry:
    """Names of audio-separator's registry; its downloader is replaced by one that writes small files."""

    NAME = "vocals_mel_band_roformer.ckpt"

    @pytest.fixture(autouse=True)
    def downloads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        from audio_separator.separator import Separator

        asked: list[str] = []

        def fetch(separator: Separator, url: str, path: str) -> None:
            asked.append(url)
            if url.endswith("download_checks.json"):
                lists = ("vr", "mdx", "mdx_vip", "demucs", "mdx23c", "mdx23c_vip", "roformer")
                names = [f"{name.removesuffix('_vip')}_download{'_vip' * name.endswith('_vip')}_list" for name in lists]
                Path(path).write_text("{" + ", ".join(f'"{name}": {{}}' for name in names) + "}")
            elif url.endswith(".yaml"):
                Path(path).write_text(yaml.dump(SETTINGS))
            else:
                Path(path).write_bytes(b"weights")

        monkeypatch.setattr(Separator, "download_file_if_not_exists", fetch)
        monkeypatch.setenv(checkpoints.CHECKPOINTS, str(tmp_path / "models"))
        monkeypatch.setenv("AUDIO_SEPARATOR_MODEL_DIR", str(tmp_path))
        return asked

    def test_a_name_is_downloaded_once_and_its_hash_held(
        self, tmp_path: Path, downloads: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(ConfigError, match="expected SHA-256 87201f4d31af…"):
            find_checkpoint(self.NAME)
        monkeypatch.delitem(KNOWN_SHA256, self.NAME)
        first, asked = find_checkpoint(self.NAME), len(downloads)
        assert find_checkpoint(self.NAME) == first
        assert len(downloads) == asked
        folder = tmp_path / "models"
        assert {path.name for path in folder.iterdir()} == {
            ".lock", self.NAME, f"{self.NAME}.sha256", "vocals_mel_band_roformer.yaml",
        }  # fmt: skip
        (folder / self.NAME).write_bytes(b"other weights")
        with pytest.raises(ConfigError, match="remove the file, and it is downloaded again"):
            find_checkpoint(self.NAME)

    def test_an_unknown_name_and_a_failing_download_are_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from audio_separator.separator import Separator

        with pytest.raises(ConfigError, match=r"expected centre-removal, a file name .*, found 'center-removal'"):
            make_separator("center-removal")

        def fail(separator: Separator, url: str, path: str) -> None:
            raise RuntimeError(f"Failed to download file from {url}, response code: 503")

        monkeypatch.setattr(Separator, "download_file_if_not_exists", fail)
        with pytest.raises(ConfigError, match=r"cannot be downloaded: .*503; put it and its YAML into .*models"):
            find_checkpoint(self.NAME)
        assert [path.name for path in (tmp_path / "models").iterdir()] == [".lock"]


@with_separation
@pytest.mark.models
def test_weights_that_do_not_fit_are_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tests.audio.tiny_roformer import TINY, make_roformer

    path = make_roformer(tmp_path)
    good = find_checkpoint(str(path), tmp_path / "tiny.yaml")
    settings = {**good.settings, "model": {**TINY, "dim": 32}}
    for checkpoint in (
        checkpoints.Checkpoint(path, good.sha256, settings),
        find_checkpoint(*write(tmp_path, good.settings, b"no weights")),
        find_checkpoint(*write(tmp_path, good.settings, b"")),
        find_checkpoint(*write(tmp_path, good.settings, path.read_bytes()[:5000])),
    ):
        with pytest.raises(ConfigError, match="expected weights that fit its YAML") as caught:
            load_model(checkpoint, "cpu")
        assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@with_separation
@pytest.mark.models
def test_devices_and_precisions_that_are_not_there(tmp_path: Path) -> None:
    import torch

    from tests.audio.tiny_roformer import make_roformer

    path, settings = str(make_roformer(tmp_path)), tmp_path / "tiny.yaml"
    with pytest.raises(ConfigError, match="expected auto, cpu, cuda or cuda:N, found 'gpu'"):
        make_separator(path, settings=settings, device="gpu")
    with pytest.raises(ConfigError, match=f"'cuda:99' is not there; found {torch.cuda.device_count()} CUDA devices"):
        make_separator(path, settings=settings, device="cuda:99")
    with pytest.raises(ConfigError, match="'float16' is for CUDA devices"):
        make_separator(path, settings=settings, device="cpu", precision="float16")
