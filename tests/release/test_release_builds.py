"""Builds of the release before, in the hands of this one: nothing paid is asked again, versions stay what they are."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from datasets import load_dataset

from earmark.flows.captions import build as build_captions
from earmark.flows.mos_preferences import build as build_pairs
from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.captions import CORPUS as CAPTIONS_CORPUS
from earmark.schemas.captions import Captions
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.toml import read_toml
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.session import Session
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.release.known_faults import known_faults
from earmark.tasks.store.versions import Version, verify
from tests.annotation.conftest import LocalServer
from tests.before import asks
from tests.before.builds import CUT, KILLED_AFTER, KILLED_IN_FLIGHT, KILLED_TRACKS, LENGTH_S, WHOLE, coded, tone
from tests.before.fixture import PLUGIN, Release, install, paid, release
from tests.builds import config_from, forecast, rows_of
from tests.conftest import ROOT
from tests.runner import run_flow
from tests.servers.faults import Faults
from tests.servers.openai_server import caption_answer

VERSIONS = (
    "models/captions@v1", "takes/studio-takes@v1", "takes/mos-preferences@v1", "sound/captions@v1",
    "sound/mos-preferences@v1", "ratings/mos-preferences@v1", "ratings/mos-preferences@v2",
)  # fmt: skip


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """All builds of the release. No test may change them."""
    return release(tmp_path_factory.mktemp("release"))


def rebuilt(made: Release, build: str, name: str) -> Version:
    """The version that this code builds from a build's config, in its store."""
    path = made.config(build, name)
    flow, shape = (build_captions, Captions) if name == "captions" else (build_pairs, MosPreferences)
    return run_flow(flow, config_from(shape, read_toml(path), path), made.store(build).root)


def take_names_from_one_module(package: Path) -> None:
    """Change what a lab changes in the release's plug-in: where its names are imported from."""
    source = package.resolve()
    package.unlink()
    package.mkdir()
    for file in source.glob("*.py"):
        text = re.sub(r"from earmark\.[\w.]+ import", "from earmark.plugins import", file.read_text("utf-8"))
        (package / file.name).write_text(text, "utf-8")


def command(made: Release, build: str, *words: object, code: int = 0, home: Path | None = None) -> str:
    """What `earmark` prints in the folder of a build, with the plug-in installed."""
    site = made.folder / "site"
    if not site.exists():
        install(site)
        take_names_from_one_module(site / PLUGIN.name)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
    own = {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "EARMARK_KEEP_S": "5", "EARMARK_STORE": "store"}
    ended = subprocess.run(
        [sys.executable, "-m", "earmark", *map(str, words)],
        cwd=made.folder / build, env=kept | own | {"PREFECT_HOME": str(home or made.prefect)},
        capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def measured(made: Release) -> dict[str, float]:
    """The lengths in s that the media index of `sound` has, by file."""
    with closing(sqlite3.connect(made.media("sound"))) as index:
        return {Path(path).name: length for path, length in index.execute("SELECT path, duration_s FROM media")}


@pytest.mark.parametrize("spec", VERSIONS)
def test_a_version_of_the_release_is_whole_and_loads(held: Release, spec: str, tmp_path: Path) -> None:
    build, _, name = spec.partition("/")
    version = held.store(build).find(name)
    assert verify(version) == []
    for table, splits in version.manifest.rows.items():
        if not any(splits.values()):
            continue  # `datasets` reads no file without rows
        loaded = load_dataset(str(version.folder), table, cache_dir=str(tmp_path))
        assert {split: len(rows) for split, rows in loaded.items()} == splits


def test_answers_of_models_in_the_process_are_found_under_their_keys(tmp_path: Path) -> None:
    """Every form of answer, `transformers:` and `vllm:`. Only what today's rules refuse would be asked (random
    models gave Yes and No a small share, text that does not end, and characters that do not); a dry run counts it."""
    made = release(tmp_path, "asks")
    folder = made.folder / "asks"
    shutil.copy(made.ledger("asks"), folder / "ledger.sqlite")
    was, counts = paid(made.store("asks").root), []
    for values in asks.MODELS.values():
        config = AnnotatorConfig.model_validate(values)
        media = Media(load_audio=Encoder())
        with Session(config, ledger=folder / "ledger.sqlite", media=media, reading=True) as session:
            counts.append(session.forecast(asks.requests_of(config, folder)))
    assert len(was["requests"]) == sum(count["distinct"] for count in counts) == 80
    assert [count["to_ask"] for count in counts] == [count["refused"] for count in counts]
    assert sum(count["from_ledger"] for count in counts) == 52
    assert paid(folder) == was


def test_a_dry_run_of_a_build_that_asked_models_asks_what_is_refused_now_alone(tmp_path: Path) -> None:
    """Its answers hold thoughts and broken ends: these are counted, and nothing else would be asked."""
    made = release(tmp_path, "models")
    asked, path = paid(made.store("models").root), made.config("models", "captions")
    facts = forecast(CAPTIONS_CORPUS, build_captions.story, config_from(Captions, read_toml(path), path),
                     made.store("models"))  # fmt: skip
    assert facts is not None
    parts = [facts, *(part for part in facts.values() if isinstance(part, dict) and "to_ask" in part)]
    assert sum(part["from_ledger"] for part in parts) > 0
    assert [part["to_ask"] for part in parts] == [part["refused"] for part in parts]
    assert paid(made.store("models").root) == asked


@pytest.mark.slow
def test_exactly_the_clips_that_the_release_cut_are_measured_and_asked_anew(tmp_path: Path) -> None:
    made = release(tmp_path, "sound")
    was, asked = made.store("sound").find("captions@v1"), paid(made.store("sound").root)
    assert [fault.name for fault in known_faults(was)] == ["sound-cut"]  # nobody has looked: it may
    faults = Faults()
    with LocalServer(faults) as server:
        server.answer = caption_answer
        config = made.config("sound", "captions")
        text = config.read_text()
        config.write_text(text.replace(text.partition('base_url = "')[2].partition('"')[0], server.base_url))
        now = rebuilt(made, "sound", "captions")
    assert sum(faults.asked.values()) == len(CUT)
    assert len(paid(made.store("sound").root)["requests"]) == len(asked["requests"]) + len(CUT)
    lengths = measured(made)
    assert lengths == {name: pytest.approx(LENGTH_S[name], abs=0.2) for name in (*CUT, *WHOLE)}
    keys = [{row["heard_sha256"]: row["request_key"] for row in rows_of(version, "raw")} for version in (was, now)]
    files = {sha256(path.read_bytes()).hexdigest(): path.name for path in made.folder.glob("sound/audio/*")}
    assert {files[clip] for clip in keys[0] if keys[0][clip] != keys[1][clip]} == set(CUT)
    assert [fault.name for fault in known_faults(was)] == ["sound-cut"]  # it is
    assert known_faults(now) == []


@pytest.mark.slow
def test_a_killed_build_goes_on_and_repeats_what_was_in_flight(tmp_path: Path) -> None:
    made = release(tmp_path, "killed")
    root = made.store("killed").root
    finished = {bytes(key).hex() for key, _, state, *_ in paid(root)["requests"] if state == "answered"}
    assert KILLED_AFTER - KILLED_IN_FLIGHT <= len(finished) < KILLED_TRACKS
    faults = Faults()
    with LocalServer(faults) as server:
        server.answer = caption_answer
        config = made.config("killed", "captions")
        text = config.read_text()
        config.write_text(text.replace(text.partition('base_url = "')[2].partition('"')[0], server.base_url))
        version = rebuilt(made, "killed", "captions")
    asked = sum(faults.asked.values())
    assert asked == KILLED_TRACKS - len(finished)
    assert finished < {row["request_key"] for row in rows_of(version, "raw")}
    assert sum(version.manifest.rows["captions"].values()) + sum(version.manifest.rejects.values()) == KILLED_TRACKS


def test_the_fixture_holds_what_the_release_cut_and_misread(held: Release) -> None:
    """What parts that mend these faults start from: their measurements, requests and rows were wrong."""
    lengths = measured(held)
    assert all(lengths[name] < 0.6 * LENGTH_S[name] for name in CUT)
    assert all(lengths[name] == pytest.approx(LENGTH_S[name], abs=0.15) for name in WHOLE)
    heard = rows_of(held.store("sound").find("captions@v1"), "raw")
    assert len({row["request_key"] for row in heard}) == len({row["heard_sha256"] for row in heard}) == len(CUT + WHOLE)
    ages, contested = (rows_of(held.store("ratings").find(f"mos-preferences@v{n}"), "ratings") for n in (1, 2))
    assert {20 < row["mos"] < 40 for row in ages} == {True}
    first = known_faults(held.store("ratings").find("mos-preferences@v1"))
    assert "number-as-rating" in [fault.name for fault in first]
    assert {row["mos"] for row in contested if row["file"] in ("c0.wav", "c1.wav")} == {0.0}


def test_a_run_that_was_killed_never_ended_in_the_records_of_prefect(held: Release) -> None:
    with closing(sqlite3.connect(held.prefect / "prefect.db")) as database:
        states = [state for (state,) in database.execute("SELECT state_type FROM flow_run")]
    assert states.count("RUNNING") == 1
    assert set(states) == {"RUNNING", "COMPLETED"}


@pytest.mark.slow
def test_the_command_resumes_a_killed_run_on_the_prefect_home_of_the_release(tmp_path: Path) -> None:
    made = release(tmp_path, "killed")
    config = made.config("killed", "captions")
    faults = Faults()
    with LocalServer(faults) as server:
        server.answer = caption_answer
        text = config.read_text()
        config.write_text(text.replace(text.partition('base_url = "')[2].partition('"')[0], server.base_url))
        (run,) = (made.store("killed").root / "runs").glob("*.json")
        assert "interrupted" in command(made, "killed", "status")
        command(made, "killed", "resume", run.stem)
    assert verify(made.store("killed").find("captions@v1")) == []
    assert sum(faults.asked.values()) < KILLED_TRACKS


@pytest.mark.slow
def test_a_plug_in_that_was_written_for_the_release_still_builds(tmp_path: Path) -> None:
    made = release(tmp_path, "takes")
    store = made.store("takes")

    def build(corpus: str, *more: str) -> str:
        return command(made, "takes", "build", corpus, "--config", f"{corpus}.toml", *more)

    for corpus, table in (("studio-takes", "takes"), ("mos-preferences", "pairs")):
        build(corpus, "--force")
        versions = store.find(f"{corpus}@v1"), store.find(corpus)
        was, now = (rows_of(version, table) for version in versions)
        changed = sum(
            one.pop("gap_decile", None) != other.pop("gap_decile", None) for one, other in zip(was, now, strict=True)
        )
        assert now == was
        assert (changed > 0) == (corpus == "mos-preferences"), "tenths are cut within each dataset and split since"
        assert "files are as committed" in command(made, "takes", "inspect", "verify", corpus)
    told = command(made, "takes", "inspect", "diff", *(f"{one.corpus}@{one.name}" for one in versions))
    assert f"gap_decile {changed}" in " ".join(told.split()), told

    assert "already up to date" in build("studio-takes")
    (made.folder / "takes/clips/sys1-line1.flac").write_bytes(coded(tone(5, 4.0), "FLAC"))
    assert "already up to date" not in build("studio-takes")
    lengths = {row["clip"]: row["duration_s"] for row in rows_of(store.find("studio-takes"), "takes")}
    assert lengths["clips/sys1-line1.flac"] == 4.0
