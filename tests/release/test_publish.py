"""Publications to a local server that speaks the Hub's protocol: killed, repeated, refused, read back."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfApi

from earmark.schemas.config import Licence
from earmark.schemas.errors import HubError
from earmark.tasks.evaluation import reading
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.hub import PublishedFile, Repo
from earmark.tasks.store.receipts import receipts
from earmark.tasks.store.versions import Store
from tests.builds import build_version, config_of, read_config, rows_of
from tests.conftest import ROOT
from tests.release.publications import Publications
from tests.servers.hub import READER, WRITER, HubServer

CORPUS = "mos-preferences"
DEMO = ROOT / f"data/demo/{CORPUS}.toml"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """v1 and v2 differ by a seed; v3 holds back a source; v4 has a builtin critic; v5 holds clips; v6 an address."""
    place = tmp_path_factory.mktemp("publish") / "store"
    demo = read_config(DEMO)
    plain = demo.model_copy(update={"critiques": None})
    closed = {**demo.licences, "chimes": Licence(licence="in house", redistribute="none")}
    build_version(plain, place)
    build_version(plain.model_copy(update={"seed": 18}), place)
    build_version(plain.model_copy(update={"licences": closed}), place)
    build_version(demo, place)
    build_version(read_config(DEMO.with_name(f"{CORPUS}-audio.toml")).model_copy(update={"critiques": None}), place)
    lists = tmp_path_factory.mktemp("lists")
    rows = [f"clip{i}.wav,{1 + i % 5},{'ann.lee@mail.org' if i == 7 else f's{i % 3}'}" for i in range(30)]
    (lists / "r.csv").write_text("\n".join(["file,mos,speaker", *rows]) + "\n")
    columns = {"file": "file", "mos": "mos", "speaker": "speaker"}
    named = {"name": "study", "format": "table", "root": str(lists), "files": {"train": "r.csv"}, "columns": columns}
    build_version(config_of(lists, named), place)
    return Store(place)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """A Hub, which every process that the tests start takes for the real one."""
    folder = tmp_path_factory.mktemp("hub")
    with HubServer(folder / "hub") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", server.endpoint)
        patch.setenv("HF_HOME", str(folder / "home"))
        patch.setenv("HF_HUB_DISABLE_XET", "1")
        yield server


@pytest.fixture(scope="module")
def press(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publications]:
    """Publishes in processes of their own."""
    with Publications(tmp_path_factory.mktemp("press")) as publications:
        yield publications


def assert_published(hub: HubServer, store: Store, repo: str, version: str, commits: int = 2) -> None:
    """One commit beyond the first, one tag on it, and exactly the version's files."""
    found = store.find(f"{CORPUS}@{version}")
    assert len(hub.commits(repo)) == commits
    assert hub.repos[repo]["tags"][version] == hub.commits(repo)[0]["oid"]
    tree = hub.files(repo, version)
    assert tree.keys() - {".gitattributes"} == {file.path for file in found.manifest.files} | {"manifest.json"}
    for file in found.manifest.files:
        if file.table:
            assert tree[file.path]["lfs"]["oid"] == file.sha256


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "when", "n"),
    [
        ("create_repo", "after", 1),
        ("put", "after", 6),
        ("commit", "after", 1),
        ("tag", "after", 1),
        ("create_repo", "before", 1),
        ("refs", "after", 1),
        ("preupload", "after", 2),
        ("put", "before", 1),
        ("commit", "before", 1),
        ("tree", "after", 2),
        ("tag", "before", 1),
    ],
)
def test_killed_at_a_step_converges(
    hub: HubServer, press: Publications, store: Store, kind: str, when: str, n: int
) -> None:
    repo = f"lab/killed-{kind.replace('_', '-')}-{when}"
    known, child = threading.Event(), [0]
    before = hub.asked[kind]

    def harm(asked: str, moment: str, count: int) -> None:
        if (asked, moment, count) == (kind, when, before + n):
            assert known.wait(60)
            os.kill(child[0], signal.SIGKILL)

    sent = hub.put_bytes
    hub.harm = harm
    try:
        child[0] = press.begin(store.root, f"{CORPUS}@v1", repo, batch=4)
        known.set()
        assert press.said() == -signal.SIGKILL
    finally:
        hub.harm = lambda kind, when, n: None
    told = press.run(store.root, f"{CORPUS}@v1", repo)
    assert told.get("tag") == "v1", told
    assert_published(hub, store, repo, "v1")
    assert hub.put_bytes - sent <= told["bytes"], "a file was sent twice"


@pytest.mark.slow
def test_second_publication_sends_nothing(hub: HubServer, press: Publications, store: Store) -> None:
    repo = "lab/twice"
    first = press.run(store.root, f"{CORPUS}@v1", repo)
    (receipt,) = store.folder(CORPUS).glob("published/v1--lab--twice.json")
    kept, asked = receipt.read_bytes(), hub.asked.copy()
    again = press.run(store.root, f"{CORPUS}@v1", repo)
    assert (first["uploaded"] > 10, again["uploaded"]) == (True, 0)
    assert not {"preupload", "lfs_batch", "put", "commit", "tag"} & (hub.asked - asked).keys()
    assert receipt.read_bytes() == kept
    receipt.unlink()  # killed between the tag and the receipt
    press.run(store.root, f"{CORPUS}@v1", repo)
    assert json.loads(receipt.read_bytes())["commit"] == json.loads(kept)["commit"]

    press.run(store.root, f"{CORPUS}@v2", repo)
    assert_published(hub, store, repo, "v2", commits=3)
    assert press.run(store.root, f"{CORPUS}@v1", repo)["uploaded"] == 0
    shown = earmark(store, "list", CORPUS).stdout
    assert "v2 published" in shown
    assert f"to {repo} (commit {hub.commits(repo)[0]['oid'][:12]})" in shown


@pytest.mark.slow
def test_a_receipt_names_the_manifest_that_the_hub_has(
    hub: HubServer, press: Publications, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation after the publication is in no published card; the receipt stays, also where it was lost."""
    monkeypatch.setenv("HF_TOKEN", WRITER)
    repo, version = "lab/evaluated", store.find(f"{CORPUS}@v1")
    press.run(store.root, f"{CORPUS}@v1", repo)
    (receipt,) = store.folder(CORPUS).glob("published/v1--lab--evaluated.json")
    kept = receipt.read_bytes()
    scores = tmp_path / "scores.jsonl"
    rows = [{"id": row["pair_id"], "choice": "chosen"} for row in rows_of(version, "pairs")]
    scores.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    wish = MeasurementOptions(part=SamplePart("all"))
    _, record = reading.read(version, find_corpus(CORPUS), store, scores, wish, None)
    try:
        assert press.run(store.root, f"{CORPUS}@v1", repo)["uploaded"] == 0
        assert receipt.read_bytes() == kept
        receipt.unlink()
        press.run(store.root, f"{CORPUS}@v1", repo)
    finally:
        shutil.rmtree(record)
    api = HfApi(endpoint=hub.endpoint, token=WRITER)
    there = api.hf_hub_download(repo, "manifest.json", repo_type="dataset", revision="v1", local_dir=tmp_path)
    sent = hashlib.sha256(Path(there).read_bytes()).hexdigest()
    assert sent == json.loads(receipt.read_bytes())["published_manifest"]
    assert "already here" in earmark(store, "pull", f"{repo}@v1").stdout


READ = """
import json, sys
from datasets import load_dataset
local, repo, tables = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
for table in tables:
    ours, theirs = load_dataset(local, table), load_dataset(repo, table, revision="v2")
    stream = load_dataset(repo, table, revision="v2", streaming=True)
    for split in ours:
        assert theirs[split].features == ours[split].features == stream[split].features, table
        assert theirs[split].to_list() == ours[split].to_list() == list(stream[split]), table
    assert ours.keys() == theirs.keys() == stream.keys()
print("same")
"""


@pytest.mark.slow
def test_load_dataset_reads_it_back(hub: HubServer, press: Publications, store: Store) -> None:
    repo = "lab/read"
    press.run(store.root, f"{CORPUS}@v1", repo)
    press.run(store.root, f"{CORPUS}@v2", repo)
    hub.add_commit(repo, {"README.md": b"---\nconfigs: []\n---\nsomething else on main\n"})
    local = store.find(f"{CORPUS}@v2")
    tables = ",".join(local.manifest.rows)
    read = [sys.executable, "-c", READ, str(local.folder), repo, tables]
    ended = subprocess.run(read, capture_output=True, text=True, timeout=240)
    assert ended.stdout.endswith("same\n"), ended.stderr[-2000:]


def earmark(store: Store, *arguments: object, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [sys.executable, "-m", "earmark", *map(str, arguments), "--store", str(store.root)],
        cwd=ROOT,
        env={**os.environ, "HF_TOKEN": WRITER, "COLUMNS": "140", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended


@pytest.mark.slow
def test_the_command(hub: HubServer, store: Store) -> None:
    words = ("publish", f"{CORPUS}@v1", "--repo", "lab/command")
    plan = json.loads(earmark(store, *words, "--dry-run", "--json").stdout)
    assert (plan["exists"], plan["there"], plan["published"]) == (False, 0, None)
    assert "lab/command" not in hub.repos
    told = earmark(store, *words, "--private").stdout
    assert 'load_dataset("lab/command", "pairs", revision="v1")' in told
    assert hub.repos["lab/command"]["private"]
    again = earmark(store, *words, "--dry-run").stdout
    assert "already published" in again
    assert not list(store.folder(CORPUS).glob(".publish/*"))
    said = earmark(store, *words, code=1, HF_TOKEN="hf_unknown_to_this_hub").stderr.splitlines()
    assert said[-1].startswith("error: the Hub does not accept the token: set HF_TOKEN")
    assert "hf_unknown" not in "".join(said)


@pytest.mark.slow
def test_a_publication_joins_a_collection_once(hub: HubServer, store: Store) -> None:
    words = ("publish", f"{CORPUS}@v1", "--repo", "lab/joined", "--collection", "Audio rewards")
    for _ in range(2):
        told = earmark(store, *words).stdout
        assert f"in the collection {hub.endpoint}/collections/lab/audio-rewards-" in told.replace("\n", "")
    (collection,) = hub.collections.values()
    assert [(item["id"], item["type"]) for item in collection["items"]] == [("lab/joined", "dataset")]
    hub.refuse["add_item"] = 500
    try:
        said = earmark(store, *words, code=1).stderr.splitlines()[-1]
    finally:
        del hub.refuse["add_item"]
    assert said.startswith("error: lab/joined is published, but is not in the collection 'Audio rewards': ")


@pytest.mark.slow
def test_a_branch_is_published_to_and_main_stays(hub: HubServer, store: Store) -> None:
    words = ("publish", "--repo", "lab/tried")
    earmark(store, *words, f"{CORPUS}@v1")
    main, files = hub.repos["lab/tried"]["branches"]["main"], hub.files("lab/tried")
    plan = earmark(store, *words, f"{CORPUS}@v2", "--branch", "trial/2", "--dry-run").stdout
    assert "branch trial/2" in plan
    assert hub.repos["lab/tried"]["branches"].keys() == {"main"}
    for sent in (True, False):
        output = earmark(store, *words, f"{CORPUS}@v2", "--branch", "trial/2").stdout
        assert ("files sent" in output, "all was there already" in output) == (sent, not sent)
        assert 'load_dataset("lab/tried", "pairs", revision="trial/2")' in output
    repo = hub.repos["lab/tried"]
    assert repo["branches"]["main"] == main
    assert repo["tags"].keys() == {"v1"}
    assert hub.files("lab/tried", "trial/2").keys() - {".gitattributes"} == {
        file.path for file in store.find(f"{CORPUS}@v2").manifest.files
    } | {"manifest.json"}
    assert hub.files("lab/tried") == files
    assert "to lab/tried, branch trial/2 (commit" in earmark(store, "list", CORPUS).stdout
    earmark(store, *words, f"{CORPUS}@v2")
    assert hub.repos["lab/tried"]["tags"].keys() == {"v1", "v2"}, "a branch keeps no version from its tag"


@pytest.mark.parametrize(
    "branch",
    ["a..b", "/a", "a/", "-a", "a b", "a@{1}", "x\n", "v3", "0a" * 20, "HEAD", "refs/heads/main", "a.lock", "a.lock/b"],
)
def test_what_is_no_branch(branch: str) -> None:
    assert Repo("lab/x", "try/v3").revision == "try/v3"
    with pytest.raises(HubError, match="expected --branch with letters"):
        Repo("lab/x", branch)


@pytest.mark.slow
def test_branches_take_any_version_and_a_refusal_makes_none(hub: HubServer, press: Publications, store: Store) -> None:
    repo = "lab/branches"
    press.run(store.root, f"{CORPUS}@v1", repo)
    assert "is public, but --private asks" in fault(press, store, "v2", repo, branch="a/b", private=True)
    hub.refuse["branch"] = 409  # as if a tag had the name
    try:
        assert "the Hub made no branch a/b" in fault(press, store, "v2", repo, branch="a/b")
    finally:
        hub.refuse.clear()
    assert hub.repos[repo]["branches"].keys() == {"main"}
    for branch in ("a/b", "a--b"):
        for version in ("v2", "v1"):
            facts = press.run(store.root, f"{CORPUS}@{version}", repo, branch=branch)
            assert (facts.get("branch"), facts.get("uploaded", 0) > 0) == (branch, True), facts
    assert len([receipt for receipt in receipts(store, CORPUS) if receipt.repo == repo]) == 5


@pytest.mark.parametrize("branch", [None, "trial"])
def test_only_main_misses_a_tag(branch: str | None) -> None:
    empty = SimpleNamespace(list_repo_tree=lambda *place, **options: [])
    with pytest.raises(HubError, match=r"README\.md differs") as caught:
        Repo("lab/x", branch, cast(HfApi, empty)).check([PublishedFile("README.md", DEMO, "0" * 64, 1)], "c0ffee", [])
    assert ("no tag was made" in str(caught.value)) == (branch is None)


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["", "main"])
def test_main_is_no_branch_to_ask_for(hub: HubServer, press: Publications, store: Store, branch: str) -> None:
    message = "leave --branch out to publish to main"
    assert message in fault(press, store, "v1", "lab/unset", branch=branch)
    words = ("publish", f"{CORPUS}@v1", "--repo", "lab/unset", "--branch", branch, "--dry-run")
    assert message in earmark(store, *words, code=1).stderr
    assert "lab/unset" not in hub.repos


@pytest.mark.slow
def test_dry_run_needs_no_network(store: Store) -> None:
    words = ("publish", f"{CORPUS}@v1", "--repo", "lab/far")
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9"}  # nothing listens at the port for discarding
    plan = json.loads(earmark(store, *words, "--dry-run", "--json", **nowhere).stdout)
    assert plan["upload"].keys() == {entry.path for entry in store.find(f"{CORPUS}@v1").manifest.files} | {
        "manifest.json"
    }
    assert "cannot be reached" in plan["unreachable"]
    assert "no comparison with lab/far" in earmark(store, *words, "--dry-run", **nowhere).stdout
    assert "cannot be reached" in earmark(store, *words, code=1, **nowhere).stderr


def fault(press: Publications, store: Store, version: str, repo: str, **values: Any) -> str:
    """The line of a publication that is refused."""
    told = press.run(store.root, f"{CORPUS}@{version}", repo, **values)
    assert set(told) == {"fault"}
    line = str(told["fault"])
    assert "\n" not in line
    return line


@pytest.mark.slow
def test_tag_with_another_tree_is_refused(hub: HubServer, press: Publications, store: Store) -> None:
    repo = "lab/moved"
    press.run(store.root, f"{CORPUS}@v1", repo)
    hub.repos[repo]["tags"]["v1"] = hub.add_commit(repo, {"README.md": b"---\n---\nother words\n"})
    assert fault(press, store, "v1", repo).startswith(f"{repo} has a tag v1 with other files: README.md differs")
    assert len(hub.commits(repo)) == 3


@pytest.mark.slow
def test_writer_who_is_faster_is_not_overwritten(hub: HubServer, press: Publications, store: Store) -> None:
    repo = "lab/race"
    press.run(store.root, f"{CORPUS}@v1", repo)
    hub.during["commit"] = lambda: hub.add_commit(repo, {"LICENSE": b"theirs"}) and None
    assert "was changed by someone else" in fault(press, store, "v2", repo)
    assert "v2" not in hub.repos[repo]["tags"]
    press.run(store.root, f"{CORPUS}@v2", repo)
    assert {"LICENSE"} < hub.files(repo, "v2").keys()


@pytest.mark.slow
def test_files_of_an_earlier_version_go(hub: HubServer, press: Publications, store: Store) -> None:
    repo = "lab/tidy"
    press.run(store.root, f"{CORPUS}@v1", repo)
    hub.add_commit(repo, {"pairs/train-99999.parquet": b"stray rows", "docs/why.md": b"kept"})
    press.run(store.root, f"{CORPUS}@v5", repo, audio=True)
    there = hub.files(repo, "v5").keys()
    assert "docs/why.md" in there
    assert not {path for path in there if path.startswith("triplets/ood") or "99999" in path}


@pytest.mark.slow
def test_a_readme_written_by_hand_is_named_before_the_card_replaces_it(
    hub: HubServer, press: Publications, store: Store
) -> None:
    repo = "lab/by-hand"
    press.run(store.root, f"{CORPUS}@v1", repo)
    tree = {path: None for path in hub.files(repo) if path != ".gitattributes"}
    hub.add_commit(repo, {**tree, "README.md": b"# Our corpus\n"})
    del hub.repos[repo]["tags"]["v1"]
    words = ("publish", f"{CORPUS}@v1", "--repo", repo)
    for dry in (["--dry-run"], []):
        assert f"note: the card replaces the README.md of {repo};" in earmark(store, *words, *dry).stderr
    for version in ("v1", "v2"):  # there already, and after a card of Earmark's
        assert "replaces" not in earmark(store, "publish", f"{CORPUS}@{version}", "--repo", repo, "--dry-run").stderr


@pytest.mark.slow
def test_repository_of_something_else_is_refused(hub: HubServer, press: Publications, store: Store) -> None:
    press.run(store.root, f"{CORPUS}@v1", "lab/theirs")
    tree = {path: None for path in hub.files("lab/theirs") if path != ".gitattributes"}
    hub.add_commit("lab/theirs", {**tree, "data.csv": b"a,b\n"})
    del hub.repos["lab/theirs"]["tags"]["v1"]
    assert "holds files that no version of mos-preferences left there (data.csv" in fault(
        press, store, "v1", "lab/theirs"
    )
    odd = f'{{"corpus": "{CORPUS}", "version": "v1", "files": ["a"]}}'.encode()
    hub.add_commit("lab/theirs", {"data.csv": None, "manifest.json": odd})
    assert "its manifest.json is not one of Earmark's" in fault(press, store, "v1", "lab/theirs")
    press.run(store.root, f"{CORPUS}@v2", "lab/newer")
    assert "publishing the older v1 would replace it" in fault(press, store, "v1", "lab/newer")
    assert "is public, but --private asks" in fault(press, store, "v2", "lab/newer", private=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "said"),
    [("", "no token for the Hub: set HF_TOKEN"), ("hf_nobody", "does not accept the token"), (READER, "may not write")],
)
def test_token_that_cannot_write(hub: HubServer, press: Publications, store: Store, token: str, said: str) -> None:
    assert said in fault(press, store, "v1", "lab/forbidden", token=token)
    assert "lab/forbidden" not in hub.repos


@pytest.mark.slow
@pytest.mark.slow
def test_a_hub_without_xet_says_what_to_set(hub: HubServer, store: Store) -> None:
    words = ("publish", f"{CORPUS}@v1", "--repo", "lab/x")
    said = earmark(store, *words, code=1, HF_ENDPOINT=hub.endpoint, HF_HUB_DISABLE_XET="0").stderr
    assert "has no Xet storage; set HF_HUB_DISABLE_XET=1 and run again" in said


@pytest.mark.slow
def test_server_out_of_order(hub: HubServer, press: Publications, store: Store) -> None:
    hub.refuse["commit"] = 503
    try:
        assert "the Hub answered 503" in fault(press, store, "v1", "lab/broken")
    finally:
        hub.refuse.clear()
    assert len(hub.commits("lab/broken")) == 1
    press.run(store.root, f"{CORPUS}@v1", "lab/broken")
    assert_published(hub, store, "lab/broken", "v1")


@pytest.mark.slow
def test_builtin_labels_only_where_they_are_wanted(hub: HubServer, press: Publications, store: Store) -> None:
    assert "--allow-builtin" in fault(press, store, "v4", "lab/builtin")
    assert "lab/builtin" not in hub.repos
    assert press.run(store.root, f"{CORPUS}@v4", "lab/builtin", allow_builtin=True)["tag"] == "v4"


@pytest.mark.slow
def test_damaged_version_stays(hub: HubServer, press: Publications, tmp_path: Path) -> None:
    version = build_version(read_config(DEMO).model_copy(update={"critiques": None}), tmp_path / "store")
    path = version.files("pairs")[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "is not as committed" in fault(press, Store(tmp_path / "store"), "v1", "lab/damaged")
    assert "lab/damaged" not in hub.repos


@pytest.mark.slow
def test_held_back_rows(hub: HubServer, press: Publications, store: Store, tmp_path: Path) -> None:
    repo = "lab/held"
    told = press.run(store.root, f"{CORPUS}@v3", repo)
    version = store.find(f"{CORPUS}@v3")
    chimes = {
        table: sum(r.get("dataset") == "chimes" for r in rows_of(version, table)) for table in version.manifest.rows
    }
    assert told["held_rows"]["ratings"] == chimes["ratings"] > 0
    assert told["held_rows"]["pairs"] == chimes["pairs"] > 0
    rejects = rows_of(version, "rejects")
    assert told["held_rows"]["rejects"] == sum(not (r["file"] or "").startswith(("bvcc/", "vmc23/")) for r in rejects)

    tree = hub.files(repo, "v3")
    left = tree.keys() - {".gitattributes", "README.md", "manifest.json"}
    for path in left:
        (tmp_path / "x.parquet").write_bytes((hub.folder / "objects" / tree[path]["lfs"]["oid"]).read_bytes())
        rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
        assert not [row for row in rows if "chimes" in json.dumps(row, default=str)], path
    manifest = json.loads((hub.folder / "objects" / tree["manifest.json"]["oid"]).read_bytes())
    assert {file["path"] for file in manifest["files"]} == left | {"README.md"}
    assert sum(manifest["rows"]["ratings"].values()) == len(rows_of(version, "ratings")) - chimes["ratings"]
    card = (hub.folder / "objects" / tree["README.md"]["oid"]).read_text()
    assert f"| pairs | train | {manifest['rows']['pairs']['train']:,} |" in card
    assert press.run(store.root, f"{CORPUS}@v3", repo)["uploaded"] == 0, "the same part has the same bytes"
    older = card.replace("description: content ", "description: of the whole ")  # as earlier releases published it
    manifest["files"] = [file for file in manifest["files"] if file["path"] != "README.md"]
    changes = {"README.md": older.encode(), "manifest.json": json.dumps(manifest).encode()}
    hub.repos[repo]["tags"]["v3"] = hub.add_commit(repo, changes)
    assert press.run(store.root, f"{CORPUS}@v3", repo)["uploaded"] == 0, "a published card stays"
    assert not (store.folder(CORPUS) / ".publish").exists()


@pytest.mark.slow
def test_audio_leaves_only_where_it_may(hub: HubServer, press: Publications, store: Store, tmp_path: Path) -> None:
    clips = sum(row["audio"] is not None for row in rows_of(store.find(f"{CORPUS}@v5"), "ratings"))
    assert clips > 0
    assert press.run(store.root, f"{CORPUS}@v5", "lab/sound")["held_audio"] == {}
    assert_published(hub, store, "lab/sound", "v5")
    assert press.run(store.root, f"{CORPUS}@v5", "lab/silent", audio=False)["held_audio"] == {"ratings": clips}
    shown = earmark(store, "publish", f"{CORPUS}@v5", "--repo", "lab/silent", "--no-audio").stdout
    assert f"clips held back by --no-audio: ratings {clips}" in shown
    assert "redistribute" not in shown, "the licence allows them"
    tree = hub.files("lab/silent", "v5")
    for path in (path for path in tree if path.startswith("ratings/")):
        (tmp_path / "x.parquet").write_bytes((hub.folder / "objects" / tree[path]["lfs"]["oid"]).read_bytes())
        rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
        assert rows
        assert all(row["audio"] is None for row in rows)


@pytest.mark.slow
def test_personal_data_is_refused_unless_reviewed(
    hub: HubServer, press: Publications, store: Store, tmp_path: Path
) -> None:
    line = fault(press, store, "v6", "lab/personal")
    assert "ratings.speaker_id, sample_id study/clip7.wav: e-mail address [" in line
    assert "ann.lee" not in line
    reviewed = tmp_path / "reviewed.txt"
    mark = line.partition("[")[2].partition("]")[0]
    reviewed.write_text(f"# looked at by hand\n{mark} the speaker agreed\n")
    told = press.run(store.root, f"{CORPUS}@v6", "lab/personal", allow_findings=str(reviewed))
    assert told["allowed"] == [mark]


@pytest.mark.slow
def test_secret_of_this_machine_is_refused(hub: HubServer, press: Publications, store: Store) -> None:
    word = rows_of(store.find(f"{CORPUS}@v1"), "ratings")[0]["sample_id"]
    line = fault(press, store, "v1", "lab/secret", environment={"MY_LAB_TOKEN": word})
    assert "the value of MY_LAB_TOKEN" in line
    assert word not in line
