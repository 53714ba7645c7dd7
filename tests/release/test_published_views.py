"""Views published with their clips: heard from the Hub, held back by licences, absent from a pulled version."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard

from earmark.schemas.config import Licence
from earmark.schemas.errors import ConfigError
from earmark.schemas.human_preferences import HumanPreferences
from earmark.tasks.exports.playable import view_writer
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.release.publishing import gathered, read_gate
from earmark.tasks.store.versions import Store, verify
from tests.builds import build_version, config_of, contents_of, read_config, rows_of
from tests.conftest import ROOT
from tests.human_preferences.votes import build_votes
from tests.mos_preferences.critiques import make_study
from tests.release.publications import Publications
from tests.runner import read_as
from tests.servers.hub import READER, WRITER, HubServer

pytestmark = pytest.mark.slow
CORPUS, VIEW = "mos-preferences", "preferred-clips"
TREE = f"view-{VIEW}/train-00000-of-00001.parquet"
DEMO = ROOT / "data/demo"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """A Hub, which every process that the tests start takes for the real one."""
    folder = tmp_path_factory.mktemp("hub")
    with HubServer(folder / "hub") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", server.endpoint)
        patch.setenv("HF_HOME", str(folder / "home"))
        patch.setenv("HF_HUB_DISABLE_XET", "1")
        patch.setenv("HF_TOKEN", WRITER)
        yield server


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """v1 has clips; v2 of another seed follows."""
    place = tmp_path_factory.mktemp("store")
    config = read_config(DEMO / f"{CORPUS}-audio.toml")
    build_version(config, place)
    build_version(config.model_copy(update={"seed": 18}), place)
    return Store(place)


@pytest.fixture(scope="module")
def press(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publications]:
    """Publishes in processes of their own."""
    with Publications(tmp_path_factory.mktemp("press")) as publications:
        yield publications


def earmark(store: Path, *words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "earmark", *words, "--store", str(store)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=240, cwd=ROOT, env={**os.environ, "COLUMNS": "80"}
    )
    assert ended.returncode == code, ended.stderr
    return ended.stderr if code else ended.stdout


def test_a_gated_repository_is_gated_before_its_files_come(
    hub: HubServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (ROOT / "flows/command/publish.md").read_text("utf-8")
    gate = tmp_path / "gate.yaml"
    gate.write_text(guide.partition("```yaml\n")[2].partition("```")[0])
    told: list[object] = []
    hub.harm = lambda kind, when, n: told.append(hub.repos["lab/gated"].get("gated")) if kind == "commit" else None
    words = ("publish", f"{CORPUS}@v1", "--repo", "lab/gated", "--gate", str(gate))
    assert "(public, gated;" in " ".join(earmark(store.root, *words, "--dry-run").split())
    assert "lab/gated" not in hub.repos
    try:
        earmark(store.root, *words)
        assert "all was there already" in earmark(store.root, *words)
    finally:
        hub.harm = lambda kind, when, n: None
    assert told == ["manual", "manual"]  # before and after the one commit
    other = Store(tmp_path / "other")
    earmark(other.root, "pull", "lab/gated@v1")
    assert verify(other.find(CORPUS)) == []
    for token in (READER, ""):
        with monkeypatch.context() as patch:
            patch.setenv("HF_TOKEN", token)
            refused = " ".join(earmark(tmp_path / "third", "pull", "lab/gated@v1", code=1).split())
        assert f"lab/gated asks readers for access: ask on {hub.endpoint}/datasets/lab/gated, wait" in refused
    card = DatasetCard.load(other.find(CORPUS).folder / "README.md").data
    assert card["extra_gated_fields"] == {"Affiliation": "text", "I use the clips for research alone": "checkbox"}
    assert card["extra_gated_prompt"].startswith("You agree")
    hub.repos["lab/gated"]["gated"] = False  # somebody opened it by hand
    earmark(store.root, *words)
    assert hub.repos["lab/gated"]["gated"] == "manual"
    terms = gate.read_text()
    gate.write_text("extra_gated_prompt: You agree to other terms.\n")
    for dry in ((), ("--dry-run",)):
        refused = " ".join(earmark(store.root, *words, *dry, code=1).split())
        assert "lab/gated holds v1 already, without these terms of access" in refused
        branch = (*words, "--repo", "lab/other", "--branch", "trial", *dry)
        assert "leave out --branch" in earmark(store.root, *branch, code=1)
    assert "lab/other" not in hub.repos
    gate.write_text(terms)
    gate.write_text("extra_gated_field: {}")
    with pytest.raises(ConfigError, match=r"expected some of extra_gated_fields, .*; found extra_gated_field$"):
        read_gate(str(gate))


def test_a_new_version_without_the_terms_of_its_repository_is_refused(
    hub: HubServer, press: Publications, store: Store, tmp_path: Path
) -> None:
    (gate := tmp_path / "gate.yaml").write_text("extra_gated_prompt: You agree to cite us.\n")
    assert press.run(store.root, f"{CORPUS}@v1", "lab/terms", gate=str(gate))["tag"] == "v1"
    commits = len(hub.commits("lab/terms"))
    words = ("publish", f"{CORPUS}@v2", "--repo", "lab/terms")
    refused = "lab/terms: its card asks readers for terms (extra_gated_prompt), and v2 comes without --gate"
    assert refused in " ".join(earmark(store.root, *words, "--dry-run", code=1).split())
    assert refused in press.run(store.root, f"{CORPUS}@v2", "lab/terms")["fault"]
    assert len(hub.commits("lab/terms")) == commits
    assert press.run(store.root, f"{CORPUS}@v2", "lab/terms", branch="trial")["branch"] == "trial"
    assert "(public, gated;" in " ".join(earmark(store.root, *words, "--branch", "trial", "--dry-run").split())
    hub.repos["lab/terms"]["gated"] = False  # somebody opened it by hand
    assert press.run(store.root, f"{CORPUS}@v2", "lab/terms")["tag"] == "v2"


def test_a_pulled_version_is_published_with_other_terms(
    hub: HubServer, press: Publications, store: Store, tmp_path: Path
) -> None:
    terms = {"old": "You agree to the old terms.\n\n---\nAsk before any use.\n", "new": "You agree to the new terms."}
    gates = {}
    for name, prompt in terms.items():
        facts = {"extra_gated_prompt": prompt, "extra_gated_fields": {name: {"type": "select", "options": ["a", "b"]}}}
        (path := tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(facts))
        gates[name] = str(path)
    assert press.run(store.root, f"{CORPUS}@v1", "lab/old", gate=gates["old"])["tag"] == "v1"
    other = Store(tmp_path / "other")
    earmark(other.root, "pull", "lab/old@v1")
    assert press.run(other.root, CORPUS, "lab/new", gate=gates["new"])["tag"] == "v1"
    text = (hub.folder / "objects" / hub.files("lab/new", "v1")["README.md"]["oid"]).read_text("utf-8")
    whole = (store.find(f"{CORPUS}@v1").folder / "README.md").read_text("utf-8")
    assert text == f"---\n{yaml.safe_dump(yaml.safe_load(Path(gates['new']).read_text()), sort_keys=False)}{whole[4:]}"
    assert DatasetCard(text).data["extra_gated_prompt"] == terms["new"]
    assert press.run(other.root, CORPUS, "lab/old", gate=gates["old"])["uploaded"] == 0
    refused = (
        "the card of v1 asks readers for terms (extra_gated_fields), and lab/open lets everyone read: give the terms"
    )
    assert refused in press.run(other.root, CORPUS, "lab/open")["fault"]
    assert refused in " ".join(
        earmark(other.root, "publish", CORPUS, "--repo", "lab/open", "--dry-run", code=1).split()
    )
    assert "lab/open" not in hub.repos
    assert press.run(other.root, CORPUS, "lab/hidden", private=True, audio=False)["held_audio"]
    text = (hub.folder / "objects" / hub.files("lab/hidden", "v1")["README.md"]["oid"]).read_text("utf-8")
    assert DatasetCard(text).data["extra_gated_prompt"] == terms["old"]
    clip = next(row["clip_sha256"] for row in rows_of(other.find(CORPUS), "ratings"))
    earmark(other.root, "withdraw", "--clip", clip, "--reason", "rights")
    shutil.rmtree(other.folder(CORPUS) / "v1")  # as flows/command/withdraw.md asks
    assert refused.replace("v1", "v2") in press.run(other.root, CORPUS, "lab/open")["fault"]
    assert press.run(other.root, CORPUS, "lab/hidden")["tag"] == "v2"
    (other.find(CORPUS).folder / "README.md").write_text("edited\n")  # no reason to keep a person's rows
    clip = next(row["clip_sha256"] for row in rows_of(other.find(CORPUS), "ratings"))
    earmark(other.root, "withdraw", "--clip", clip, "--reason", "rights")
    assert other.find(CORPUS).name == "v3"


def test_withdrawn_rows_do_not_come_back_by_a_pull(
    hub: HubServer, press: Publications, store: Store, tmp_path: Path
) -> None:
    """The published part has a manifest that no version of the store has."""
    own = Store(shutil.copytree(store.root, tmp_path / "own"))
    assert press.run(own.root, f"{CORPUS}@v1", "lab/part", audio=False)["held_audio"]
    clip = next(row["clip_sha256"] for row in rows_of(own.find(f"{CORPUS}@v1"), "ratings"))
    earmark(own.root, "withdraw", "--clip", clip, "--reason", "rights")
    for name in ("v1", "v2"):
        shutil.rmtree(own.folder(CORPUS) / name)  # as flows/command/withdraw.md asks
    refused = " ".join(earmark(own.root, "pull", "lab/part", code=1).split())
    assert f"{CORPUS} v1 holds rows that were withdrawn from this store (ratings 1, pairs " in refused
    assert [version.name for version in own.versions(CORPUS)] == ["v3"]
    assert not list(own.folder(CORPUS).glob(".pull/*"))
    earmark(tmp_path / "another", "pull", "lab/part")
    assert press.run(own.root, f"{CORPUS}@v3", "lab/part")["tag"] == "v3"
    shutil.rmtree(own.folder(CORPUS) / "v3")
    earmark(own.root, "pull", "lab/part@v3")


def test_converted_clips_are_published_where_their_originals_are_not(store: Store, tmp_path: Path) -> None:
    shutil.copytree(store.folder(CORPUS), tmp_path / CORPUS)  # without the media index, which knows the originals
    place, corpus = Store(tmp_path), find_corpus(CORPUS)
    version = place.find(f"{CORPUS}@v1")
    with gathered(version, corpus, place, True, view_writer([VIEW], version, corpus, place)) as bundle:
        shown = pd.concat([pd.read_parquet(one.source) for one in bundle.entries if one.path.startswith("view-")])
    ratings = pd.read_parquet(version.folder / "ratings").set_index("sample_id")
    pairs = pd.read_parquet(version.folder / "pairs").set_index("pair_id")
    assert set(shown.id) == set(pairs.index)
    for row in shown.itertuples():
        for side, cell in (("chosen", row.audio_chosen), ("rejected", row.audio_rejected)):
            assert cell["bytes"] == ratings.audio[pairs.at[row.id, f"{side}_id"]]["bytes"]


HEARD = """
import io, json, sys
import soundfile
from datasets import load_dataset
repo, config, clips = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
rows = 0
for row in load_dataset(repo, config, split="train", revision="v1", streaming=True):
    rows += 1
    for side in ("chosen", "rejected"):
        audio = row[f"audio_{side}"]
        heard, rate = soundfile.read(io.BytesIO(audio["bytes"]))
        clip, clip_rate = soundfile.read(clips[row["id"]][side])
        assert (heard == clip).all() and rate == clip_rate and len(heard)
assert rows == len(clips), rows
default = load_dataset(repo, revision="v1")
assert "audio_chosen" not in default["train"].features and default["train"].num_rows == rows
print("heard")
"""


def clips_of_pairs(version_folder: Path) -> dict[str, dict[str, str]]:
    """The files of both clips of each pair, by the tables alone."""
    files = pd.read_parquet(version_folder / "ratings").set_index("sample_id")["file"]
    pairs = pd.read_parquet(version_folder / "pairs")
    return {
        row.pair_id: {
            side: str(DEMO / "mos/chimes" / files[getattr(row, f"{side}_id")]) for side in ("chosen", "rejected")
        }
        for row in pairs.itertuples()
    }


def test_clips_are_heard_from_the_hub_and_a_pulled_version_is_the_whole_one(
    hub: HubServer, press: Publications, store: Store, tmp_path: Path
) -> None:
    repo, whole = "lab/heard", store.find(f"{CORPUS}@v1").folder
    plan = earmark(store.root, "publish", f"{CORPUS}@v1", "--repo", repo, "--view", VIEW, "--dry-run")
    assert f"view-{VIEW}" in plan
    assert "120" in plan
    assert repo not in hub.repos
    assert press.run(store.root, f"{CORPUS}@v1", repo, views=[VIEW])["tag"] == "v1"
    clips = json.dumps(clips_of_pairs(whole))
    ended = subprocess.run(
        [sys.executable, "-c", HEARD, repo, f"view-{VIEW}", clips], capture_output=True, text=True, timeout=240
    )
    assert ended.stdout == "heard\n", ended.stderr[-2000:]
    earmark(tmp_path, "pull", repo)
    assert contents_of(tmp_path / CORPUS / "v1") == contents_of(whole)
    assert "already here" in earmark(tmp_path, "pull", repo)
    assert "already here" in earmark(store.root, "pull", repo)

    assert press.run(store.root, f"{CORPUS}@v1", repo, views=[VIEW])["uploaded"] == 0
    assert "has a tag v1 with other files" in press.run(store.root, f"{CORPUS}@v1", repo)["fault"]
    assert press.run(store.root, f"{CORPUS}@v2", repo)["tag"] == "v2"
    assert TREE in hub.files(repo, "v1")
    assert TREE not in hub.files(repo, "v2"), "an earlier version's clips went with it"


def test_killed_while_clips_are_sent_nothing_is_published_and_nothing_sent_twice(
    hub: HubServer, press: Publications, store: Store
) -> None:
    repo, known, child = "lab/killed-views", threading.Event(), [0]
    before, sent = hub.asked["put"], hub.put_bytes

    def harm(kind: str, when: str, count: int) -> None:
        if (kind, when, count) == ("put", "after", before + 3):
            assert known.wait(60)
            os.kill(child[0], signal.SIGKILL)

    hub.harm = harm
    try:
        child[0] = press.begin(store.root, f"{CORPUS}@v1", repo, views=[VIEW], batch=2)
        known.set()
        assert press.said() == -signal.SIGKILL
    finally:
        hub.harm = lambda kind, when, n: None
    assert len(hub.commits(repo)) == 1, "the empty repository"
    told = press.run(store.root, f"{CORPUS}@v1", repo, views=[VIEW])
    assert told["tag"] == "v1"
    assert TREE in hub.files(repo, "v1")
    assert hub.put_bytes - sent <= told["bytes"]
    assert not (store.folder(CORPUS) / ".publish").exists()


def test_a_clip_without_licence_is_an_empty_cell_and_counted(tmp_path: Path) -> None:
    """The licence of each clip is looked up in the table `clips`."""
    corpus = find_corpus("human-preferences")
    demo = read_as(HumanPreferences, DEMO / "human-preferences.toml")
    closed = {
        **demo.licences,
        "music-arena": Licence(licence="in house", redistribute="rows"),
        "our-study": Licence(licence="in house", redistribute="none"),
    }
    version = build_votes(demo.model_copy(update={"licences": closed}), tmp_path)
    store = Store(tmp_path)
    clips = pd.read_parquet(version.folder / "clips")
    free = set(clips[clips.source.isin(["cmi-pref", "headphone-study"])].clip_sha256.dropna()) - set(
        clips[~clips.source.isin(["cmi-pref", "headphone-study"])].clip_sha256.dropna()
    )
    views = view_writer(["training"], version, corpus, store)
    with gathered(version, corpus, store, True, views) as bundle:
        (view,) = bundle.views
        files = [entry.source for entry in bundle.entries if entry.path.startswith("view-training/")]
        shown = pd.concat([pq.read_table(path).to_pandas() for path in files])
        rows = {entry.path: entry.source for entry in bundle.entries}
        kept = pd.concat([pd.read_parquet(rows[path]) for path in rows if path.startswith("training/")])
    assert set(shown.id) <= set(kept.row_id) < set(pd.read_parquet(version.folder / "training").row_id)
    sha_of = clips.set_index("clip_id").clip_sha256
    expected = {row.row_id: sha_of.get(row.clip) for row in kept.itertuples()}
    heard = held = 0
    for row in shown.itertuples():
        clip = expected[row.id]
        assert (row.audio is not None) == (clip in free)
        if row.audio is not None:
            assert row.audio["path"].startswith(clip)
            heard += 1
        else:
            held += 1
    assert heard
    assert held
    assert view.rows == len(shown)
    assert view.held >= held
    with gathered(version, corpus, store, False, views) as bundle:
        assert bundle.views[0].clips == 0


def test_a_view_whose_rows_a_licence_holds_back_names_the_licence_and_a_dry_run_offers_views_with_rows(
    tmp_path: Path, hub: HubServer
) -> None:
    make_study(tmp_path / "closed", 8)
    make_study(tmp_path / "open", 9)
    lines = (tmp_path / "open/ratings.csv").read_text().splitlines(keepends=True)
    (tmp_path / "open/ratings.csv").write_text(lines[0] + lines[-1])  # one clip makes no pair
    listed = {"format": "table", "columns": {"file": "wav_path", "mos": "score"}}
    sources = [
        {**listed, "name": name, "files": {"train": f"{name}/ratings.csv"}, "audio_root": name}
        for name in ("closed", "open")
    ]
    licences = {"closed": {"licence": "in house", "redistribute": "none"}}
    values = {"audio": "index", "triplets": {"count": 0}, "licences": licences}
    version, store = build_version(config_of(tmp_path, *sources, **values), tmp_path / "store"), tmp_path / "store"
    pairs = version.manifest.rows["pairs"]["train"]
    words = ("publish", CORPUS, "--repo", "lab/closed")
    for dry in ((), ("--dry-run",)):
        refused = " ".join(earmark(store, *words, "--view", VIEW, *dry, code=1).split())
        assert f"view '{VIEW}': licences hold back all its {pairs} rows, by redistribute = " in refused
        assert " of closed (in house); " in refused
    plan = " ".join(earmark(store, *words, "--dry-run").split())
    offered = plan.partition("--view ")[2].partition(" rows held back")[0].split(", ")
    assert VIEW in offered
    assert "critique-pairs" not in offered, "it has no critique"
    only = {**values, "licences": licences | {"open": {"redistribute": "none"}}}
    build_version(config_of(tmp_path, *sources, **only), tmp_path / "store")
    assert "licences hold every row back" in " ".join(earmark(store, *words, code=1).split())
    assert "lab/closed" not in hub.repos
