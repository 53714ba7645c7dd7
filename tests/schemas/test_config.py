"""A config that cannot be used is one line that says what, where and what was expected."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, ClassVar

import pytest

from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import ConfigError
from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.toml import Model, parse_config, read_toml
from earmark.tasks.pipeline.registry import corpora, find_corpus

TABLE = """
[[sources]]
name = "a"
format = "table"
files = { train = "t.csv" }
columns = { file = "f", mos = "m" }
"""


def parse(path: Path, text: str) -> MosPreferences:
    """The config that a file of this text holds."""
    path.write_text(text, encoding="utf-8")
    return parse_config(MosPreferences, read_toml(path), path)


# text, what the line says
FAULTS: list[tuple[str, str, str]] = [
    ("unknown key", "sed = 1\n" + TABLE, "unknown key 'sed'; did you mean 'seed'?"),
    ("unknown key of a source", TABLE + "splt = 'ood'\n", "unknown key 'sources[0].splt'; did you mean 'split'?"),
    ("unknown key of columns", TABLE.replace("mos =", "moss ="), "'sources[0].columns.moss'; did you mean 'mos'?"),
    ("unknown key of pairs", TABLE + "[pairs]\nper_clips = 3\n", "'pairs.per_clips'; did you mean 'per_clip'?"),
    (
        "a key like no other",
        "zzzzzz = 1\n" + TABLE,
        "unknown key 'zzzzzz'; known: asks, audio, corpus, critiques, decontaminate, keep,",
    ),
    ("a key over lines", '"a\\nb" = 1\n' + TABLE, "unknown key 'a"),
    ("a key that is ours alone", "base = '/etc'\n" + TABLE, "unknown key 'base'"),
    ("no sources", "seed = 1\n", "missing key 'sources'"),
    ("empty sources", "sources = []\n", "sources: "),
    ("sources that are no tables", "sources = 3\n", "sources: "),
    ("no name", TABLE.replace('name = "a"', ""), "missing key 'sources[0].name'"),
    ("no format", TABLE.replace('format = "table"', ""), "missing key 'sources[0].format'"),
    (
        "a name of other signs",
        TABLE.replace('"a"', '"A b"'),
        "sources[0].name: expected a name of at most 64 lower-case letters, digits, . _ -, found 'A b'",
    ),
    ("a name that climbs", TABLE.replace('"a"', '"../a"'), "sources[0].name: "),
    ("a name twice", TABLE + TABLE, "expected one source a name, found 'a' twice"),
    ("an unknown format", TABLE.replace('"table"', '"tabel"'), "sources[0].format: "),
    ("text for a number", "seed = 'x'\n" + TABLE, "seed: "),
    ("a number in quotes", "seed = '17'\n" + TABLE, "seed: input should be a valid integer, found '17'"),
    ("true for a number", "seed = true\n" + TABLE, "seed: input should be a valid integer, found True"),
    ("a day for a number", "seed = 2026-01-01\n" + TABLE, "seed: input should be a valid integer"),
    ("true for a share", TABLE + "shares = { train = true }\n", "sources[0].shares"),
    ("true for one of two numbers", TABLE + "scale = [true, 5]\n", "sources[0].scale"),
    ("a quota in quotes", TABLE + "[quotas.a]\ntrain = '1'\n", "quotas.a.train: "),
    ("a gap in quotes", TABLE + "[pairs]\nmin_gap = '0.5'\n", "pairs.min_gap: "),
    ("a seed below 0", "seed = -1\n" + TABLE, "seed: "),
    ("a seed past 64 bits", "seed = 36893488147419103232\n" + TABLE, "seed: "),
    ("a limit, which is a run's", "limit = 9\n" + TABLE, "key 'limit' is no option any more: give a run --limit N"),
    ("another corpus", "corpus = 'captions'\n" + TABLE, "corpus: "),
    ("an unknown split", TABLE.replace("train =", "rehearsal ="), "sources[0].files.rehearsal"),
    ("two names of one split", TABLE.replace('{ train = "t.csv" }', '{ dev = "a.csv", val = "b.csv" }'), "dev, val"),
    ("two quotas of one split", TABLE + "[quotas.a]\ndev = 1\nvalidation = 2\n", "dev, validation"),
    ("an unknown rule of splits", TABLE + "split = 'random'\n", "sources[0].split: expected one of native"),
    ("a table without columns", TABLE.replace("columns", "#"), "format 'table' needs 'files' and 'columns'"),
    ("a layout without root", TABLE.replace('"table"', '"bvcc"'), "format 'bvcc' needs 'root'"),
    ("a layout with columns", TABLE.replace('"table"', '"bvcc"') + "root = 'x'\n", "belong to format 'table' only"),
    ("a file outside the root", TABLE.replace("t.csv", "../t.csv") + "root = 'x'\n", "inside 'root'"),
    ("a scale upside down", TABLE + "scale = [5, 1]\n", "expected scale = [lowest, highest]"),
    ("a scale without end", TABLE + "scale = [1, inf]\n", "sources[0].scale"),
    ("a scale that is no number", TABLE + "scale = [1, nan]\n", "sources[0].scale"),
    ("a scale of three", TABLE + "scale = [1, 2, 3]\n", "sources[0].scale"),
    ("shares past 1", TABLE + "shares = { train = 0.9, test = 0.9 }\n", "expected shares that add up to 1"),
    ("shares below 0", TABLE + "shares = { train = 1.5, test = -0.5 }\n", "expected shares that add up to 1"),
    ("shares that are no number", TABLE + "shares = { train = nan }\n", "sources[0].shares"),
    ("a quota below 0", TABLE + "[quotas.a]\ntrain = -1\n", "quotas.a.train: "),
    ("a quota for nobody", TABLE + "[quotas.b]\ntrain = 1\n", "quotas: no source is named 'b'"),
    ("triplets for nobody", TABLE + "[triplets.datasets]\nb = 1\n", "triplets.datasets: no source is named 'b'"),
    ("more triplets than can be ranked", TABLE + "[triplets]\ncount = 1000000000\n", "triplets.count: "),
    ("no pairs per clip", TABLE + "[pairs]\nper_clip = 0\n", "pairs.per_clip: "),
    ("a gap below 0", TABLE + "[pairs]\nmin_gap = -1\n", "pairs.min_gap: "),
    ("a gap without end", TABLE + "[pairs]\nmin_gap = inf\n", "pairs.min_gap: "),
    ("no category", TABLE + "[pairs.balance]\nunmatched = 0\n", "expected a share above 0"),
    ("a share without end", TABLE + "[pairs.balance]\nunmatched = inf\n", "pairs.balance.unmatched: "),
    ("an unknown category", TABLE + "[pairs.balance]\nsame_text = 1\n", "pairs.balance.same_text"),
    ("not TOML", "seed = = 1\n", "not valid TOML: "),
    ("a table twice", TABLE + "[pairs]\n[pairs]\n", "not valid TOML: "),
    ("empty", "", "missing key 'sources'"),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_fault_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(tmp_path / "build.toml", text)
    line = str(caught.value)
    assert line.startswith(f"{tmp_path / 'build.toml'}: ")
    assert message in line
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize(
    ("corpus", "text"),
    [
        (
            PseudoPreferences,
            'prompts = "p"\ngenerations = "g"\n[judge]\nmodel = "builtin:x"\n[pairs]\ncount = NUMBER\n',
        ),
        (MosPreferences, TABLE + "[critiques]\nmodel = 'builtin:x'\nmax_tokens = NUMBER\n"),
        (HumanPreferences, "[split]\ntest = NUMBER\n[[sources]]\nname = 'a'\nformat = 'cmi-pref'\nfiles = ['a']\n"),
    ],
)
def test_whole_numbers_fit_a_column_of_integers(tmp_path: Path, corpus: type[BuildConfig], text: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text.replace("NUMBER", str(2**63 - 1)))
    with contextlib.suppress(ConfigError):  # only the size of the number is asked about
        parse_config(corpus, read_toml(path), path)
    path.write_text(text.replace("NUMBER", "99999999999999999999"))
    with pytest.raises(ConfigError, match="expected a whole number of at most 9223372036854775807"):
        parse_config(corpus, read_toml(path), path)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config not found: .*none\.toml$"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"expected a TOML file, found a folder$"):
        read_toml(tmp_path)
    (tmp_path / "latin.toml").write_bytes("name = 'é'".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"expected UTF-8 text, found byte 0xe9$"):
        read_toml(tmp_path / "latin.toml")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path / "file" / "build.toml")
    with pytest.raises(ConfigError, match=r"^[^\n]*$"):
        read_toml(tmp_path / "a\0b.toml")


def test_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    assert parse(tmp_path / "build.toml", "\ufeff" + TABLE).sources[0].name == "a"


def test_publishers_names_of_splits(tmp_path: Path) -> None:
    text = TABLE.replace('{ train = "t.csv" }', '{ train = "t", dev = "d", eval = "e" }') + "split = 'val'\n"
    config = parse(tmp_path / "build.toml", text + "[quotas.a]\nvalid = 3\neval = 4\n")
    assert config.sources[0].files == {"train": "t", "validation": "d", "test": "e"}
    assert config.sources[0].split == "validation"
    assert config.quotas == {"a": {"validation": 3, "test": 4}}


def identity(tmp_path: Path, text: str, folder: str = "one") -> dict[str, Any]:
    """What of a config enters the build key."""
    (tmp_path / folder).mkdir(exist_ok=True)
    return parse(tmp_path / folder / "build.toml", text).identity()


def test_identity_knows_no_place_and_no_order(tmp_path: Path) -> None:
    here = identity(tmp_path, "seed = 4\naudio = 'none'\n" + TABLE + "root = 'x'\n")
    there = identity(tmp_path, "audio = 'none'\nseed = 4\n" + TABLE + "root = '../elsewhere'\n", "two")
    assert here == there
    assert identity(tmp_path, "seed = 5\n" + TABLE) != here


class Checks(Model):
    renamed: ClassVar = {"longest": "max_words"}
    max_words: int = 3


class Strict(Checks):
    renamed: ClassVar = {"shortest": "min_words"}
    min_words: int = 1


class Renaming(BuildConfig):
    renamed: ClassVar = {"hears_s": "max_audio_s"}
    corpus: str = "renaming"
    max_audio_s: float = 30.0
    checks: tuple[Strict, ...] = ()


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"hears_s": 2}, "key 'hears_s' is now called 'max_audio_s'"),
        ({"hears_s": 2, "sed": 1}, "key 'hears_s' is now called 'max_audio_s'"),
        ({"checks": [{}, {"longest": 2}]}, "checks[1]: key 'longest' is now called 'max_words'"),
        ({"checks": [{"shortest": 2}]}, "checks[0]: key 'shortest' is now called 'min_words'"),
    ],
)
def test_a_renamed_key_is_one_line_that_names_the_new_key(values: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        parse_config(Renaming, values, tmp_path / "c.toml")
    hint = "; new spelling of a file: earmark doctor --config FILE"
    assert str(told.value) == f"{tmp_path / 'c.toml'}: {line}{hint}"


def test_the_config_of_an_earlier_version_is_read_with_the_keys_of_now() -> None:
    recorded = {"hears_s": 2, "checks": [{"longest": 5, "shortest": 2}]}
    config = Renaming.model_validate(recorded, context={"recorded": True})
    assert (config.max_audio_s, config.checks) == (2, (Strict(max_words=5, min_words=2),))


def models_in(model: Any) -> set[type[Model]]:
    """A config's model and all models in it."""
    inner = [field.annotation for field in model.model_fields.values()] if hasattr(model, "model_fields") else []
    below = [one for part in (*inner, *getattr(model, "__args__", ())) for one in models_in(part)]
    return {*below, model} if isinstance(model, type) and issubclass(model, Model) else set(below)


def test_every_renamed_key_of_a_corpus_leads_to_one_that_is_there(tmp_path: Path) -> None:
    models = {model for name in corpora() for model in models_in(find_corpus(name).config)}
    assert len(models) > 20
    for model in models:
        for old, new in model.renamed.items():
            assert old not in model.model_fields
            assert new in model.model_fields
            with pytest.raises(ConfigError, match=f"key '{old}' is now called '{new}';"):
                parse_config(model, {old: None}, tmp_path / "c.toml")
