"""Hard pairs: `pairs.near` takes what lies nearest by embeddings, and changes nothing where it is not asked for."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.schemas.pseudo_preferences import MODALITIES, PseudoPreferences
from earmark.tasks.pipeline.grouping import share_out
from earmark.tasks.pipeline.media import similarity_of
from earmark.tasks.pseudo_preferences.pairs import plan_build
from earmark.tasks.store.sql import query
from earmark.tasks.store.versions import Store, open_store
from tests.annotation.conftest import model_server
from tests.audio.test_similarity import HAS_TRANSFORMERS
from tests.builds import rows_of
from tests.pseudo_preferences.music import Row, build_judged, config_of, make_pool
from tests.pseudo_preferences.test_music_pairs import NOWHERE, pairs_of
from tests.servers.openai_server import OpenAIServer, listening_answer

FOUR = ("ant", "bee", "cat", "dog")
Vectors = dict[str, Any]


server = model_server(listening_answer)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row], Vectors]:
    """Generations of eight prompts with an embedding each, which the store remembers: no model is needed then."""
    folder = tmp_path_factory.mktemp("pool")
    _, made = make_pool(folder, 8, FOUR, takes=2)
    return folder, made, remember(folder, folder / "store", made)


def remember(folder: Path, store: Path, made: list[Row], seed: int = 3) -> Vectors:
    """Keep an embedding of each generation, and give them by its id; some lie at one place, so that hashes decide."""
    (folder / "clap").mkdir(exist_ok=True)
    (folder / "clap/config.json").write_text("{}")
    similarity = similarity_of(Store(store), str(folder / "clap"))
    drawn = np.random.default_rng(seed).standard_normal((len(made), 3))
    drawn[::5] = drawn[0]
    vectors = {}
    with similarity._open() as connection:
        similarity._mark(connection)
        for row, one in zip(made, drawn, strict=True):
            vectors[row["generation_id"]] = (one / np.linalg.norm(one)).astype("<f4")
            clip = hashlib.sha256((folder / row["audio"]).read_bytes()).hexdigest()
            held = (similarity.digest, clip, vectors[row["generation_id"]].tobytes())
            connection.execute("INSERT INTO embeddings VALUES (?, ?, ?)", held)
        connection.commit()
    return vectors


def choices(
    made: list[Row], vectors: Vectors | None, count: int, *, seed: int = 17, per_prompt: int | None = None
) -> set[frozenset[str]]:
    """What is to be chosen, by numpy: of each prompt, modality and pair of models the nearest, by hash where equal."""

    def draw(name: str) -> int:
        return int.from_bytes(hashlib.md5(f"{seed}:{name}".encode()).digest()[8:], "little")

    def order(pair: tuple[Row, Row]) -> tuple[Any, ...]:
        names = sorted(row["generation_id"] for row in pair)
        a, b = (vectors[name].astype(np.float64) if vectors else np.ones(1) for name in names)
        cosine = round(float(a @ b / np.sqrt((a @ a) * (b @ b))), 4)
        pair_id = hashlib.md5("\n".join(names).encode()).hexdigest()[:16]
        return (-cosine, draw(names[0]) ^ draw(names[1]), pair_id)

    by_prompt = defaultdict(list)
    for pair in combinations(made, 2):
        if pair[0]["prompt_id"] == pair[1]["prompt_id"] and pair[0]["model"] != pair[1]["model"]:
            by_prompt[pair[0]["prompt_id"]].append(pair)
    limited = [pair for held in by_prompt.values() for pair in sorted(held, key=order)[:per_prompt]]
    places: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    met: dict[Any, int] = defaultdict(int)
    for pair in sorted(limited, key=order):
        modality = MODALITIES[int(pair[0]["prompt_id"][1:]) % 4]
        group = modality, frozenset(row["model"] for row in pair)
        met[group] += 1
        places[modality].append((met[group], order(pair), frozenset(row["generation_id"] for row in pair)))
    takes = share_out(count, {name: len(places[name]) for name in MODALITIES}, dict.fromkeys(MODALITIES, 1.0))
    return {names for modality, take in takes.items() for *_, names in sorted(places[modality])[:take]}


def named(pairs: list[Row]) -> set[frozenset[str]]:
    return {frozenset((row["generation_a"], row["generation_b"])) for row in pairs}


@pytest.mark.parametrize("options", [{"count": 24}, {"count": 31}, {"per_prompt": 3}, {"count": 9, "per_prompt": 2}])
def test_the_nearest_are_chosen_and_without_it_the_same_as_before(
    pool: tuple[Path, list[Row], Vectors], options: dict[str, int]
) -> None:
    folder, made, vectors = pool
    count, per_prompt = options.get("count", 10_000), options.get("per_prompt")
    plain = pairs_of(folder, pairs=options)
    assert named(plain) == choices(made, None, count, per_prompt=per_prompt)
    near = pairs_of(folder, pairs={**options, "near": "clap"})
    assert named(near) == choices(made, vectors, count, per_prompt=per_prompt) != named(plain)
    both = {row["pair_id"]: row for row in plain}
    assert all(both[row["pair_id"]] == row for row in near if row["pair_id"] in both)
    assert pairs_of(folder, pairs={**options, "near": "clap"}) == near


CANDIDATES = "SELECT pair_id, generation_a, generation_b, place FROM candidates ORDER BY ALL"


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    models=st.lists(st.sampled_from("abc"), min_size=2, max_size=7),
    per_prompt=st.none() | st.integers(1, 4),
)
def test_without_embeddings_or_with_equal_ones_hashes_alone_decide(
    seed: int, models: list[str], per_prompt: int | None
) -> None:
    """Off is as if all lay at one place: the order is that of the query before there were embeddings."""
    rows = [(n, f"g{n}", f"p{n % 2}", model, None) for n, model in enumerate(models)]
    found = []
    for embedding in (None, [0.6, 0.8]):
        with duckdb.connect() as db:
            db.execute("CREATE TABLE generations (row BIGINT, generation_id VARCHAR, prompt_id VARCHAR, model VARCHAR, "
                       "conditioned_on VARCHAR)")  # fmt: skip
            db.executemany("INSERT INTO generations VALUES (?, ?, ?, ?, ?)", rows)
            db.execute("CREATE TABLE asked_prompts AS SELECT concat('p', i) AS prompt_id, i AS row, 'train' AS split, "
                       "'text' AS usual FROM range(2) t(i)")  # fmt: skip
            db.execute("CREATE TABLE refused_generations (row BIGINT)")
            vectors = [] if embedding is None else [embedding] * len(rows)
            columns = {"row": pa.array(range(len(vectors)), pa.int64()), "embedding": vectors}
            db.register(
                "embeddings", pa.table(columns, pa.schema([("row", pa.int64()), ("embedding", pa.list_(pa.float32()))]))
            )
            db.execute(query("pseudo_preferences/compared"), {"seed": seed, "same_model": True, "decimals": 4})
            db.execute(query("pseudo_preferences/candidates"), {"per_prompt": per_prompt})
            found.append(db.execute(CANDIDATES).fetchall())
            hashes = "row_number() OVER (PARTITION BY prompt_id ORDER BY hash, pair_id)"
            limited = f"SELECT * FROM compared QUALIFY $most IS NULL OR {hashes} <= $most"
            models_of = "modality, least(model_a, model_b), greatest(model_a, model_b)"
            before = (f"SELECT pair_id, generation_a, generation_b, row_number() OVER (PARTITION BY {models_of} "
                      f"ORDER BY hash, pair_id) FROM ({limited}) ORDER BY ALL")  # fmt: skip
            assert db.execute(before, {"most": per_prompt}).fetchall() == found[-1]
    assert found[0] == found[1]


def test_the_model_is_part_of_what_is_built_and_nothing_is_where_there_is_none(tmp_path: Path) -> None:
    make_pool(tmp_path, 2)
    for name in ("clap", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(name))
    store = open_store(str(tmp_path / "store"))

    def plan(**pairs: Any) -> Any:
        return plan_build(config_of(tmp_path, NOWHERE, pairs={"count": 4, **pairs}), store)

    plain, near = plan(), plan(near="clap")
    assert "near" not in config_of(tmp_path, NOWHERE).identity()["pairs"]
    assert "pairs.near" not in plain.made.inputs
    assert near.made.inputs["pairs.near"] == similarity_of(store, str(tmp_path / "clap")).digest
    assert len({plan(near=one).build_key for one in ("clap", "other", "org/clap")} | {plain.build_key}) == 4
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "clap").rename(tmp_path / "elsewhere/clap")
    assert plan(near=str(tmp_path / "elsewhere/clap")).build_key == near.build_key


def test_a_pattern_of_files_is_embedded_from_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = make_pool(tmp_path, 4, FOUR)
    for row in made:
        name = f"gen/{row['model']}/{row['prompt_id']}{Path(row['audio']).suffix}"
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / row["audio"]).rename(tmp_path / name.replace(".flac", ".wav"))
    (tmp_path / "clap").mkdir()
    embedded: dict[str, Path] = {}

    def embed(store: Store, model: str, paths: dict[str, Path]) -> Vectors:
        embedded.update(paths)
        return {}

    monkeypatch.setattr("earmark.tasks.pseudo_preferences.pairs.embeddings_of", embed)
    pairs_of(tmp_path, generations="gen/{model}/{prompt_id}.wav", pairs={"count": 4, "near": "clap"})
    assert len(embedded) == len(made)
    assert {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in embedded.values()} == embedded


def test_near_needs_something_to_choose() -> None:
    with pytest.raises(ConfigError, match="pairs: near: expected count or per_prompt beside it"):
        config_of(Path(), NOWHERE, pairs={"near": "clap"})


@pytest.mark.skipif(HAS_TRANSFORMERS, reason="transformers is installed")
def test_without_the_extra_a_build_says_what_to_install(tmp_path: Path) -> None:
    make_pool(tmp_path, 2)
    (tmp_path / "clap").mkdir()
    with pytest.raises(MissingExtraError, match="needs the 'models' extra"):
        pairs_of(tmp_path, pairs={"count": 4, "near": "clap"})


@pytest.mark.slow
def test_the_card_tells_how_near_the_chosen_pairs_lie(tmp_path: Path, server: OpenAIServer) -> None:
    _, made = make_pool(tmp_path, 6, FOUR)
    vectors = remember(tmp_path, tmp_path / "store", made)
    config: PseudoPreferences = config_of(tmp_path, server.base_url, pairs={"count": 12, "near": "clap"})
    version = build_judged(config, tmp_path / "store")
    cosines = {}
    for one, other in combinations(made, 2):
        if one["prompt_id"] == other["prompt_id"]:
            names = one["generation_id"], other["generation_id"]
            cosines[frozenset(names)] = round(float(vectors[names[0]] @ vectors[names[1]]), 4)
    chosen = [cosines[names] for names in named(rows_of(version, "pairs"))]
    middle = float(np.median([*cosines.values()]))
    (note,) = [one for one in version.manifest.notes() if one.startswith("cosine")]
    assert note == (
        f"cosine of a pair's clips by clap: median {np.median(chosen):.4f} of the chosen pairs, {middle:.4f} of all "
        f"that could be chosen; {np.mean([one > middle for one in chosen]):.0%} of the chosen are nearer than that"
    )
    assert np.median(chosen) > middle
    assert note in " ".join((version.folder / "README.md").read_text("utf-8").split())


@pytest.mark.models
def test_a_model_embeds_what_no_one_did(tmp_path: Path) -> None:
    from tests.audio.tiny_clap import make_tiny_clap

    _, made = make_pool(tmp_path, 4, FOUR)
    make_tiny_clap(tmp_path / "clap")
    near = pairs_of(tmp_path, pairs={"count": 8, "near": "clap"})
    similarity = similarity_of(Store(tmp_path / "store"), str(tmp_path / "clap"))
    clips = {row["generation_id"]: hashlib.sha256((tmp_path / row["audio"]).read_bytes()).hexdigest() for row in made}
    vectors = similarity.embeddings(dict.fromkeys(clips.values()))
    assert named(near) == choices(made, {name: vectors[clip] for name, clip in clips.items()}, 8)
