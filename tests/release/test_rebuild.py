"""`earmark rebuild` for real: in order, going on after a failure, saying what to do, finding all up to date."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command import publish_cli
from earmark.flows.command.cli import app
from earmark.flows.rebuild import _options as advised
from earmark.schemas.rebuild import Publication
from earmark.tasks.store.staging import STAGING
from earmark.tasks.store.versions import Store, verify
from tests.annotation.test_kills import Server, slow_server
from tests.conftest import ROOT
from tests.deploy.test_deploy import Prefect, waited
from tests.flows.test_cli import as_json, earmark, environment
from tests.pseudo_preferences.music import make_pool, write_config
from tests.servers.hub import HubServer

DEMO = ROOT / "data/demo"
PROMPTS, CONCURRENCY = 20, 4
REQUESTS = PROMPTS * 3 * 2
REPO = "lab/mos"


def demo(name: str, folder: Path, *changes: tuple[str, str]) -> None:
    """The demo's config of a corpus, changed, with its paths as they are from elsewhere."""
    text = (DEMO / f"{name}.toml").read_text("utf-8")
    for old, new in (("tracks/", f"{DEMO}/tracks/"), ("tags/", f"{DEMO}/tags/"), *changes):
        assert old in text or old.endswith("/")
        text = text.replace(old, new)
    (folder / f"{name}.toml").write_text(text, "utf-8")


def task_states(home: Path, *names: str) -> dict[str, str]:
    """The states of the newest tasks of these names, as Prefect's page shows them."""
    newest = "SELECT name, state_name FROM task_run WHERE state_name IS NOT NULL ORDER BY expected_start_time"
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        return {name: state for name, state in database.execute(newest) if name in names}


@pytest.mark.slow
def test_a_failure_stops_only_what_reads_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    demo("instrumentals", tmp_path, ("tracks.tsv", "gone.tsv"))
    demo("captions", tmp_path, ("seed = 17", 'seed = 17\ninstrumentals = "instrumentals"'))
    demo("music-prompts", tmp_path)
    names = ("captions", "music-prompts", "instrumentals")
    config = tmp_path / "rebuild.toml"
    config.write_text("".join(f'[[builds]]\ncorpus = "{name}"\nconfig = "{name}.toml"\n' for name in names))

    before = {row["corpus"]: row["would"] for row in as_json(store, "rebuild", "-c", config, "--dry-run")}
    assert before == {"instrumentals": "fail", "captions": "wait", "music-prompts": "build"}
    assert not Store(store).versions("music-prompts")

    ended = earmark(store, "rebuild", "-c", config, "--json", code=1)
    rows = {row["corpus"]: row for row in json.loads(ended.stdout)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "instrumentals": "failed",
        "captions": "skipped",
        "music-prompts": "built",
    }
    assert rows["captions"]["detail"] == "instrumentals did not come to a version"
    assert "gone.tsv" in rows["instrumentals"]["detail"]
    assert ended.stderr.splitlines()[-1].startswith("error: 2 of 3 corpora need attention: ")

    assert task_states(tmp_path / "prefect", *names) == {
        "instrumentals": "Failed",
        "captions": "Skipped",
        "music-prompts": "Completed",
    }

    demo("instrumentals", tmp_path)
    shown = earmark(store, "rebuild", "-c", config).stdout
    assert task_states(tmp_path / "prefect", *names) == dict.fromkeys(names, "Completed")
    assert [Store(store).latest(name) is not None for name in names] == [True] * 3
    captions = Store(store).find("captions@v1").manifest
    assert [(parent.corpus, parent.version) for parent in captions.parents] == [("instrumentals", "v1")]
    assert shown.count("built") == 2

    again = earmark(store, "rebuild", "-c", config)
    assert "Prefect" not in again.stderr, "nothing is out of date, so no flow is started"
    assert again.stdout.count("up to date") == 3


def test_what_a_failed_publication_advises_has_all_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them, the same repository would be public, open, or hold the clips."""
    written = {"repo": REPO, "private": True, "audio": False, "allow_builtin": True, "views": ("a", "b")}
    written |= {"collection": "Speech quality", "gate": "gate.yaml", "allow_findings": "reviewed.txt"}
    publication = Publication.model_validate(written)
    assert set(written) == set(Publication.model_fields)
    given: dict[str, object] = {}

    def forecast(corpus: str, repo: str, place: Store, **options: object) -> dict[str, object]:
        given.update(options, repo=repo)
        return {"findings": []}

    monkeypatch.setattr(publish_cli, "_forecast", forecast)
    words = ["publish", "mos-preferences@v1", *advised(publication, tmp_path), "--dry-run", "--json"]
    ended = CliRunner().invoke(app, [*words, "--store", str(tmp_path)])
    assert ended.exit_code == 0, ended.output
    paths = {name: str(tmp_path / str(written[name])) for name in ("gate", "allow_findings")}
    assert given == {**written, **paths, "views": ["a", "b"], "audited": None, "branch": None}


@pytest.mark.slow
def test_a_trial_by_hand_is_no_input_of_a_rebuild(tmp_path: Path) -> None:
    store = tmp_path / "store"
    demo("instrumentals", tmp_path)
    demo("captions", tmp_path, ("seed = 17", 'seed = 17\ninstrumentals = "instrumentals"'))
    config = tmp_path / "rebuild.toml"
    names = ("captions", "instrumentals")
    config.write_text("".join(f'[[builds]]\ncorpus = "{name}"\nconfig = "{name}.toml"\n' for name in names))
    by_hand = ("build", "instrumentals", "--config", tmp_path / "instrumentals.toml")
    earmark(store, *by_hand)
    earmark(store, *by_hand, "--limit", "2")

    before = {row["corpus"]: row for row in as_json(store, "rebuild", "-c", config, "--dry-run")}
    assert {name: row["would"] for name, row in before.items()} == {"instrumentals": "nothing", "captions": "fail"}
    ended = earmark(store, "rebuild", "-c", config, "--json", code=1)
    rows = {row["corpus"]: row for row in json.loads(ended.stdout)}
    assert (rows["instrumentals"]["state"], rows["instrumentals"]["version"]) == ("up to date", "v1")
    assert rows["captions"]["state"] == "skipped"
    assert rows["captions"]["detail"] == before["captions"]["detail"]
    assert rows["captions"]["detail"].startswith("it would read instrumentals v2, and this rebuild's config makes v1")
    assert not Store(store).versions("captions")

    earmark(store, *by_hand, "--force")  # as the line says
    earmark(store, "rebuild", "-c", config)
    captions = Store(store).find("captions@v1").manifest
    assert [(parent.corpus, parent.version) for parent in captions.parents] == [("instrumentals", "v3")]


judge = slow_server("--listen", "--latency-ms", "400")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub, which every process that the test starts takes for the real one."""
    with HubServer(tmp_path / "hub") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub-home"))
        monkeypatch.setenv("HF_TOKEN", "hf_writer")
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        yield server


@pytest.fixture
def begun() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of the test, which do not outlive it."""
    begun: list[subprocess.Popen[bytes]] = []
    yield begun
    for process in begun:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_while_asking_and_while_publishing_it_goes_on(
    tmp_path: Path, judge: Server, hub: HubServer, begun: list[subprocess.Popen[bytes]]
) -> None:
    store = tmp_path / "store"
    make_pool(tmp_path / "pool", PROMPTS)
    patient = {"read_timeout_s": 60.0, "total_timeout_s": 300.0}  # a busy machine makes nobody ask twice
    write_config(tmp_path / "pool", judge.base_url, judge={"max_concurrency": CONCURRENCY, **patient})
    config = tmp_path / "rebuild.toml"
    asking = '[[builds]]\ncorpus = "pseudo-preferences"\nconfig = "pool/build.toml"\n'
    publishing = f"""
[[builds]]
corpus = "mos-preferences"
config = "{DEMO}/mos-preferences.toml"
publish = {{ repo = "{REPO}", allow_builtin = true }}
"""
    config.write_text(asking)  # alone, or the other may be published before the first kill

    log = tmp_path / "rebuild.log"

    def begin() -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "earmark", "rebuild", "--config", str(config)]
        with log.open("ab") as said:
            begun.append(subprocess.Popen(words, cwd=ROOT, env=environment(store), stdout=said, stderr=said))
        return begun[-1]

    def killed(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        assert process.wait(60) == -signal.SIGKILL, log.read_text("utf-8")
        left = Prefect(tmp_path / "prefect", "").processes
        waited("Prefect's server to end", lambda: not left(), 60)

    first = begin()
    waited("the judge to be asked", lambda: judge.counts()["asked"] >= REQUESTS // 5 or first.poll() is not None, 300)
    killed(first)
    assert judge.settled()["asked"] < REQUESTS
    assert not Store(store).versions("pseudo-preferences")

    config.write_text(asking + publishing)
    second = begin()
    hub.harm = lambda kind, when, n: second.kill() if (kind, when) == ("commit", "after") else None
    waited("the publication", lambda: second.poll() is not None, 300)
    killed(second)
    hub.harm = lambda kind, when, n: None
    assert hub.repos[REPO]["tags"] == {}, "expected the kill before the tag"

    rows = {row["corpus"]: row for row in as_json(store, "rebuild", "--config", config)}
    assert rows["mos-preferences"]["state"] == "up to date"
    assert {row["version"] for row in rows.values()} == {"v1"}
    assert REQUESTS <= judge.settled()["asked"] <= REQUESTS + 2 * CONCURRENCY
    assert hub.repos[REPO]["tags"] == {"v1": hub.commits(REPO)[0]["oid"]}
    assert len(hub.commits(REPO)) == 2, "the repository's first commit and the version's"
    for corpus in rows:
        assert [verify(version) for version in Store(store).versions(corpus)] == [[]]
        assert not list((store / corpus).glob(f"{STAGING}/*"))
