"""The build key of every corpus: what can change a row changes it, what cannot leaves it, wherever inputs lie."""

from __future__ import annotations

import functools
import json
import shutil
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.instrumentals import Instrumentals
from earmark.schemas.pseudo_preferences import Released
from earmark.schemas.reasons import Reject
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.importers.lists import Rating, read_source
from earmark.tasks.pipeline import plan
from earmark.tasks.pipeline.inputs import digest_inputs, distinct
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.versions import open_store
from tests.builds import build_version, config_of
from tests.conftest import ROOT

DEMO = ROOT / "data/demo"
plan.code_digest = functools.cache(plan.code_digest)  # type: ignore[attr-defined]  # it does not change meanwhile

# Fields that cannot change a row, and so do not stand in the key, by the model that defines them. A field that is not
# in this list or the next must change the key: whoever adds one decides here.
CANNOT = {
    "BuildConfig": {
        "base": "where the config lies",
        "models": "what roles name of them stands in the roles",
        "most_rejected": "whether a build stops, never what it says",
    },
    "AnnotatorConfig": {
        **dict.fromkeys(("base_url", "api_key_env"), "where the server is, and who pays"),
        **dict.fromkeys(("budget_usd", "prices"), "money"),
        **dict.fromkeys(("max_concurrency", "requests_per_minute", "tokens_per_minute"), "pace"),
        **dict.fromkeys(("batch", "batch_requests", "batch_poll_s", "batch_settle_s"), "how it is sent"),
        **dict.fromkeys(("inline_batch", "max_tokens_field", "serve"), "how it is sent"),
        **dict.fromkeys(("retries", "retry_base_s", "patience_s"), "patience"),
        **dict.fromkeys(("read_timeout_s", "total_timeout_s"), "patience"),
        "most_failed": "whether a build stops, never what it says",
    },
    "Passing": dict.fromkeys(("least", "most_lean"), "whether a build stops, never what it says"),
    "Separation": {"compile": "pace"},
}
# Fields that name a place or a version: of these, what lies there stands in the key.
PLACES = {
    "Source": {"root", "audio_root"},
    "VoteSource": {"root", "audio_root"},
    "TrackSource": {"audio_root"},
    "Instrumentals": {"known_leads"},
    "Separation": {"model", "config", "precision"},  # `describe_separator` has the digest of them all
    "Captions": {"instrumentals"},
    "CaptionSource": {"audio_root", "version"},
    "MusicPrompts": {"keep"},
    "CaptionSet": {"version"},
    "PseudoPreferences": {"validation", "reference_captions"},
    "Released": {"root"},
    "Verification": {"audio"},
    "ScoreQuestions": {"transcripts", "images", "taxonomy", "difficulty"},
    "Decontaminate": {"against", "audio_roots"},
    "BuildConfig": {"asks"},  # tests/pipeline/test_own_prompts.py
}
# What a demo's config leaves out, so that each field of a config is there to be changed.
MORE: dict[str, dict[str, Any]] = {
    "captions": {"pipelines": "judged", "instrumentals": "instrumentals@v1", "segments": [1.5, 2]},
    "music-prompts": {
        "verification": {"model": "openai:m", "audio": "tracks/audio"},
        "keep": "music-prompts@v1",
        "captions": [{"name": "all", "version": "captions@v1"}],
    },
    "pseudo-preferences": {
        "judge": {"qualify": {"gold": "votes.csv"}},
        "judges": [{"model": "openai:m"}, {"model": "openai:n"}],
        "jury": "weighted",
        "pairs": {"count": 60, "near": "org/clap"},
    },
    "instruction-rubrics": {
        "judge": {"model": "openai:m", "qualify": {}},
        "similarity": {"model": "org/clap"},
        "labeller": {"model": "openai:m"},
        "reader": {"model": "openai:m"},
    },
}
NEVER_IN_A_KEY = ("Prices",)


def demo_values(name: str) -> dict[str, Any]:
    """What the demo's config of a corpus holds."""
    return read_toml(DEMO / f"{name}.toml")


def full_config(name: str) -> BuildConfig:
    """The demo's config with all parts of a config present; its inputs need not be there."""
    values = {**demo_values(name), **MORE.get(name, {})}
    if values.get("pipelines") == "judged":
        values["pipelines"] = [
            {**one, "checks": {"longest_words": 99}, "judge": {"model": "openai:m"}}
            for one in demo_values(name)["pipelines"]
        ]
    values.setdefault("licences", {"x": {"licence": "CC0-1.0"}})
    if name == "pseudo-preferences":
        values["validation"] = "human-preferences@v1"
    values["decontaminate"] = {"against": ["human-preferences@v1"], "near": ["org/clap >= 0.98"]}
    values["asks"] = {"caption-direct": "mine/words.md"}
    config = parse_config(find_corpus(name).config, values, DEMO / f"{name}.toml")
    if name == "pseudo-preferences":  # no config has both a judge and labels that are made already
        config = config.model_copy(update={"released": Released(files=("labels.jsonl",))})
    return config


def named(model: type[BaseModel], table: dict[str, Any]) -> set[str]:
    """The fields of a model that a table lists, under its own name or that of a model which it extends."""
    found: set[str] = set()
    for one in model.__mro__:
        own = f"{one.__module__.rpartition('.')[2]}.{one.__name__}"
        found |= {*table.get(own, ()), *table.get(one.__name__, ())}
    return found


def other(value: Any, annotation: Any) -> Any:
    """Another value for a field; not always a valid one: the key does not look."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, Path):
        return value / "elsewhere"
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, dict):
        return {**value, "x": "x"}
    if isinstance(value, tuple) and ">=" in str(value):
        return tuple(f"{one}1" for one in value)  # another number
    if isinstance(value, tuple) and value and isinstance(value[0], float):
        return (value[0] + 1, *value[1:])
    if isinstance(value, tuple):
        return value[1:] or ("x", "y")
    assert value is None
    wanted = [one for one in typing.get_args(annotation) if one is not type(None)]
    return 1 if set(wanted) & {int, float} else ("x",) if "tuple" in str(annotation) else "x"


Way = tuple[tuple[type[BaseModel], str], ...]


def variants(config: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    """Each field of a config, at any depth: the models and fields on the way to it, and a config with another value."""
    for name, field in type(config).model_fields.items():
        value, here = getattr(config, name), (*way, (type(config), name))
        parts = dict(enumerate(value)) if isinstance(value, tuple) else value if isinstance(value, dict) else {0: value}
        if not any(models_in(field.annotation)):
            yield here, config.model_copy(update={name: other(value, field.annotation)})
            continue
        if isinstance(value, BaseModel) and type(None) in typing.get_args(field.annotation):
            yield here, config.model_copy(update={name: None})
        for key, part in parts.items() if value is not None else ():
            for deeper, changed in variants(part, here):
                new = {**parts, key: changed}
                whole = tuple(new.values()) if isinstance(value, tuple) else new if isinstance(value, dict) else changed
                yield deeper, config.model_copy(update={name: whole})


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every model that a config's model is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_in(field.annotation)
    for argument in typing.get_args(annotation):
        yield from models_in(argument)


@pytest.mark.parametrize("name", corpora())
def test_each_field_changes_the_key_or_is_listed_as_one_that_cannot(name: str) -> None:
    config, seen = full_config(name), set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values that no config may hold are fit to tell keys apart
        before = config.identity()
        for way, changed in variants(config):
            seen |= set(way)
            listed = any(field in named(model, CANNOT) | named(model, PLACES) for model, field in way)
            same = changed.identity() == before
            dotted = ".".join(field for _, field in way)
            assert same == listed, (
                f"{name}: {dotted}: listed as one that cannot change a row: {listed}, same key: {same}"
            )
    fields = {(model, field) for model in models_in(type(config)) for field in model.model_fields}
    missed = {(model, field) for model, field in fields - seen if field not in named(model, CANNOT)}
    missed = {way for way in missed if way[0].__name__ not in NEVER_IN_A_KEY}
    assert not missed, f"give the demo's config or MORE a value for {missed}"


def test_the_lists_name_fields_that_there_are() -> None:
    used = {model for name in corpora() for model in models_in(find_corpus(name).config)} | {
        AnnotatorConfig,
        BuildConfig,
    }
    models = {base for model in used for base in model.__mro__ if issubclass(base, BaseModel)}
    for table in (CANNOT, PLACES):
        for owner, fields in table.items():
            held = [m for m in models if owner in (m.__name__, f"{m.__module__.rpartition('.')[2]}.{m.__name__}")]
            inheriting = {f for m in models for base in held if issubclass(m, base) for f in m.model_fields}
            assert set(fields) <= inheriting, (owner, set(fields) - inheriting)


def key_of(config: BuildConfig, store: Path) -> str:
    corpus = find_corpus(config.corpus)
    return plan.plan_build(corpus, config, open_store(str(store))).build_key


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's inputs at another place, for tests to change."""
    return Path(shutil.copytree(DEMO, tmp_path_factory.mktemp("inputs") / "demo"))


def config_at(folder: Path, name: str, **values: Any) -> BuildConfig:
    """The demo's config of a corpus, read from a copy of its folder."""
    return parse_config(find_corpus(name).config, {**demo_values(name), **values}, folder / f"{name}.toml")


@pytest.mark.parametrize("name", corpora())
def test_inputs_at_another_place_give_the_same_key(name: str, demo: Path, tmp_path: Path) -> None:
    here, store = config_at(demo, name), tmp_path / "store"
    away = Path(shutil.copytree(demo, tmp_path / "else where"))
    key = key_of(here, store)
    assert key_of(config_at(away, name), store) == key
    assert key_of(elsewhere(here, away), store) == key


NO_PLACES = {"mos-preferences": {"votes"}, "instruction-rubrics": {"music"}}  # a column, a domain; and folders, too


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "human-preferences")) for name in corpora()]
)
def test_what_lies_at_each_place_changes_the_key(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DEMO, tmp_path / "demo"))
    config, store = config_at(folder, name), tmp_path / "store"
    keys = [key_of(config, store)]
    for written in sorted(set(config.inputs()) - NO_PLACES.get(name, set())):
        place = folder / written
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file():
                with file.open("ab") as end:
                    end.write(b"\n")
        keys.append(key_of(config, store))
        assert len(set(keys)) == len(keys), written


def elsewhere(config: Any, folder: Path) -> Any:
    """A config that names folders of inputs by absolute paths, and with other pace, patience and money."""
    changed = {}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if name in named(type(config), PLACES) and isinstance(value, str) and (folder / value).exists():
            changed[name] = str(folder / value)
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            changed[name] = tuple(elsewhere(part, folder) for part in value)
        elif isinstance(value, BaseModel):
            changed[name] = elsewhere(value, folder)
        elif name in named(type(config), CANNOT) - {"base"}:
            changed[name] = other(value, field.annotation)
    return config.model_copy(update=changed)


RATED = {"name": "one", "format": "table", "columns": {"file": "f", "mos": "m", "content": "c"}}


def test_a_version_without_rows_is_not_up_to_date_once_its_audio_root_is_mended(tmp_path: Path) -> None:
    """The lists name clips by absolute paths, as labs write them; with a wrong root each of them is a reject."""
    clips = [f"{tmp_path}/audio/{system}/{content}.wav,{1 + number % 4},{content}" for number, (system, content)
             in enumerate((s, c) for s in "ab" for c in "xyz")]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(["f,m,c", *clips]))
    source, store = {**RATED, "files": {"train": "t.csv"}}, tmp_path / "store"
    wrong = config_of(tmp_path, {**source, "audio_root": "elsewhere"})
    mended = config_of(tmp_path, {**source, "audio_root": "audio"})
    assert sum(isinstance(row, Reject) for row in read_source(wrong.sources[0], wrong.path)) == len(clips)
    assert key_of(wrong, store) != key_of(mended, store)
    again = config_of(tmp_path, {**source, "audio_root": str(tmp_path / "audio")})
    assert key_of(again, store) == key_of(mended, store)
    version = build_version(mended, store)
    assert version.manifest.rows["ratings"] == {"train": len(clips)}


CELLS = ("a.wav", "x/a.wav", "/data/a.wav", "/data/x/a.wav", "/data/x/b.wav", "/data/xy/a.wav", "/other/c.wav",
         "../d.wav", "s3://bucket/x/a.wav")  # fmt: skip
ROOTS = ("/data", "/data/x", "/other", "/none", "s3://bucket/x", "s3://bucket", "lists")


def _written(path: Path, cells: list[str]) -> None:
    if path.suffix == ".csv":
        path.write_text("\n".join(["f,m,c", *(f"{cell},3,t" for cell in cells)]))
    elif path.suffix == ".jsonl":
        escaped = (json.dumps({"f": cell, "m": 3, "c": "t"}).replace("/", "\\/") for cell in cells)
        path.write_text("\n".join(escaped))
    else:
        pq.write_table(pa.table({"f": cells, "m": [3.0] * len(cells), "c": ["t"] * len(cells)}), path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    cells=st.lists(st.sampled_from(CELLS), min_size=1, max_size=4),
    roots=st.tuples(st.sampled_from(ROOTS), st.sampled_from(ROOTS)),
    ending=st.sampled_from(("csv", "jsonl", "parquet")),
)
def test_roots_give_the_same_key_if_and_only_if_they_give_the_same_rows(
    cells: list[str], roots: tuple[str, str], ending: str, tmp_path: Path
) -> None:
    _written(tmp_path / f"t.{ending}", cells)
    configs = [config_of(tmp_path, {**RATED, "files": {"train": str(tmp_path / f"t.{ending}")}, "audio_root": root})
               for root in roots]  # fmt: skip
    rows = [list(read_source(config.sources[0], config.path)) for config in configs]
    inputs = [
        digest_inputs(find_corpus(config.corpus), config, open_store(str(tmp_path / "store"))) for config in configs
    ]
    accepted = [[row for row in one if isinstance(row, Rating)] for one in rows]
    assert (inputs[0] == inputs[1]) == (accepted[0] == accepted[1])
    assert all(str(tmp_path) not in repr(config.identity()) for config in configs)


def test_files_of_one_name_are_both_inputs(tmp_path: Path) -> None:
    """Rows name a file that lies outside of the config's folder by its name alone."""
    for place in "ab":
        (tmp_path / place).mkdir()
        (tmp_path / place / "votes.csv").write_text(f"audio_a,audio_b,overall\n{place}1.wav,{place}2.wav,a\n")
    files = [str(tmp_path / place / "votes.csv") for place in "ab"]
    config = parse_config(
        HumanPreferences, {"sources": [{"name": "s", "format": "votes", "files": files}]}, tmp_path / "c.toml"
    )
    key = key_of(config, tmp_path / "store")
    (tmp_path / "a/votes.csv").write_text("audio_a,audio_b,overall\na1.wav,a2.wav,b\n")
    assert key_of(config, tmp_path / "store") != key


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(("a", "a (2)", "b")), st.integers()), max_size=6))
def test_nothing_hides_behind_a_name(pairs: list[tuple[str, int]]) -> None:
    assert list(distinct(pairs).values()) == [value for _, value in pairs]


def test_tracks_beyond_a_limit_are_inputs_where_names_of_files_are_rejected(tmp_path: Path) -> None:
    """A track without a file name of its own does not count towards the limit, in reading as in hashing."""
    for name, pitch in (("a", 200), ("b", 300)):
        tone = 0.5 * np.sin(2 * np.pi * pitch * np.arange(4_000) / 8_000)
        soundfile.write(tmp_path / f"{name}.wav", tone, 8_000)
    (tmp_path / "tracks.csv").write_text("track_id,audio\nno/name,a.wav\nb,b.wav\n")
    source = {"name": "t", "format": "table", "tracks": "tracks.csv"}
    values = {"source": source, "output": {"keep": "files"}}
    config = parse_config(Instrumentals, values, tmp_path / "c.toml", limit=1)
    key = key_of(config, tmp_path / "store")
    soundfile.write(tmp_path / "b.wav", np.zeros(4_000) + 0.25, 8_000)
    assert key_of(config, tmp_path / "store") != key
