"""`earmark schedule`: a config becomes a deployment on Prefect's server, and `earmark serve` runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.flows.command.schedules import add, name_of, rebuild_of, schedules, secrets_of
from earmark.schemas.errors import ConfigError
from earmark.schemas.rebuild import Publication
from earmark.tasks.store.versions import Store
from tests.conftest import ROOT
from tests.deploy.test_deploy import QUICK, waited
from tests.flows.day import free_port
from tests.servers.hub import WRITER, HubServer

SECRET = """
import sys
from earmark.flows.command.running import start_prefect
start_prefect()
from prefect.blocks.system import Secret
Secret(value=sys.argv[1]).save("hub-token", overwrite=True)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A lab's folder: a list of ratings and a config, and nothing of the repository."""
    rows = [f"clip{i}.wav,{1 + i % 5},s{i % 3}" for i in range(30)]
    (tmp_path / "ratings.csv").write_text("\n".join(["file,mos,speaker", *rows]) + "\n")
    path = tmp_path / "my.toml"
    path.write_text(
        'corpus = "mos-preferences"\naudio = "none"\n[[sources]]\nname = "study"\nformat = "table"\n'
        'files = {train = "ratings.csv"}\ncolumns = {file = "file", mos = "mos", speaker = "speaker"}\n'
        '[licences]\nstudy = {licence = "CC0-1.0", redistribute = "all"}\n'
    )
    return path


def test_a_build_config_becomes_a_rebuild_of_its_corpus(config: Path) -> None:
    publication = Publication(repo="lab/mos")
    made = rebuild_of(config, publication, Store(config.parent / "store"))
    (member,) = made.builds
    assert (member.corpus, member.publish, made.base) == ("mos-preferences", publication, config.parent)
    assert name_of(config, made) == "mos-preferences-my"
    assert name_of(config.with_name("mos-preferences.toml"), made) == "mos-preferences"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('corpus = "mos-preferences"\n', "sources"),
        ('corpus = "nothing"\n', "nothing"),
        ("seed = 1\n", 'expected corpus = "NAME" or [[builds]]'),
        ('[[builds]]\ncorpus = "mos-preferences"\nconfig = "my.toml"\n', "found --publish beside a rebuild's config"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused_before_it_is_scheduled(config: Path, text: str, line: str) -> None:
    other = config.with_name("other.toml")
    other.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(line)):
        rebuild_of(other, Publication(repo="lab/mos"), Store(config.parent / "store"))


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 0 30 2 *", "--cron: expected times that come, found '0 0 30 2 *'"),
        ("0 0 3 * * *", "--cron: expected minute, hour, day, month, weekday, found 6 in '0 0 3 * * *'"),  # as Quartz
        ("0 3 * * * * *", "--cron: expected minute, hour, day, month, weekday, found 7"),
        ("0 3 * *", '--cron, --timezone: Invalid cron string: "0 3 * *"'),
    ],
)
def test_times_that_never_come_are_refused_before_the_server_is_asked(config: Path, cron: str, says: str) -> None:
    store = Store(config.parent / "store")
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}"):
        add(rebuild_of(config, None, store), "never", cron, "UTC", store, {})


@pytest.mark.parametrize("words", [["lst"], ["resum", "nightly"]])
def test_a_misspelt_command_is_no_file_to_schedule(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["schedule", *words])
    assert done.exit_code == 2
    assert f"No such command '{words[0]}'" in done.stderr


@pytest.mark.parametrize("words", [["my.toml"], ["my", "--cron", "0 3 * * *"], ["add", "my", "--cron=0 3 * * *"]])
def test_other_words_are_a_file_to_schedule(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["schedule", *words])
    said = "config not found: my" if words[1:] else "Missing option '--cron'"
    assert said in f"{done.stderr} {done.exception}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_schedule_replaces_that_of_its_own_config_and_of_no_other_project(config: Path, tmp_path: Path) -> None:
    from prefect.testing.utilities import prefect_test_harness

    other = tmp_path / "other"
    shutil.copytree(config.parent, other, ignore=shutil.ignore_patterns("other"))
    second = config.with_name("second.toml")
    second.write_text(config.read_text())

    def schedule(path: Path, cron: str, store: Path) -> None:
        place = Store(store)
        add(rebuild_of(path, None, place), "nightly", cron, "UTC", place, {})

    store = tmp_path / "store"
    with prefect_test_harness(server_startup_timeout=120):
        schedule(config, "0 3 * * *", store)
        schedule(config, "0 4 * * *", store)
        for path, place in ((other / config.name, store), (second, store), (config, tmp_path / "elsewhere")):
            with pytest.raises(ConfigError) as refused:
                schedule(path, "0 5 * * *", place)
            assert str(refused.value).startswith(f"--name: 'nightly' schedules {config} into {store} already; give")
        assert [(one.name, one.when) for one in schedules()] == [("rebuild/nightly", "0 4 * * * UTC")]


def test_a_secret_is_named_by_its_block_and_a_value_in_its_place_is_not_repeated() -> None:
    assert secrets_of(["HF_TOKEN=hub-token"]) == {"HF_TOKEN": "{{ prefect.blocks.secret.hub-token }}"}
    with pytest.raises(ConfigError) as refused:
        secrets_of(["HF_TOKEN=hf_ABCdef"])
    assert "ABC" not in str(refused.value)


def test_the_automation_of_the_guide_is_one_of_prefects() -> None:
    from prefect.events.schemas.automations import AutomationCore

    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "flows/command/schedule.md").read_text("utf-8"), re.DOTALL)
    (automation,) = yaml.safe_load(text)["automations"]
    assert AutomationCore.model_validate(automation).trigger.expect == {"earmark.published"}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_scheduled_config_is_built_and_published_with_a_secret_of_prefect(config: Path) -> None:
    folder, home = config.parent, config.parent / "prefect"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_", "HF_"))}

    def earmark(*words: object, **more: str) -> Any:
        command = [sys.executable, "-m", "earmark", "schedule", *map(str, words), "--no-keep"]
        ended = subprocess.run(
            command, cwd=folder, env=environment | more, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout) if "--json" in words else ended.stdout

    def states() -> list[str]:
        return [one["last_state"] for one in earmark("list", "--json")]

    with HubServer(folder / "hub") as hub:
        environment = {
            **kept, **QUICK, "PREFECT_HOME": str(home), "EARMARK_KEEP_S": "0",
            "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1",
        }  # fmt: skip
        subprocess.run([sys.executable, "-c", SECRET, WRITER], cwd=folder, env=environment, check=True, timeout=120)
        planned = ("my.toml", "--cron", "* * * * *", "--publish", "lab/mos", "--secret", "HF_TOKEN=hub-token")
        made = earmark(*planned, "--json")
        assert made["name"] == "rebuild/mos-preferences-my"
        assert "* * * * * UTC" in earmark("list")
        words = ["serve", "--port", free_port(), "--metrics-port", 0]
        with (folder / "serve.log").open("wb") as log:
            serve = subprocess.Popen(
                [sys.executable, "-m", "earmark", *map(str, words)], cwd=folder, env=environment, stdout=log, stderr=log
            )
        try:
            waited("the version on the Hub", lambda: (folder / "data/store/mos-preferences/published").is_dir(), 240)
            waited("the run to end", lambda: "Completed" in states(), 60)
            earmark("pause", "mos-preferences-my")
            assert "paused" in earmark("list")
        finally:
            serve.send_signal(signal.SIGTERM)
            serve.wait(60)
        assert serve.returncode == 0
        assert "manifest.json" in hub.files("lab/mos", "v1")
        assert WRITER not in (folder / "serve.log").read_text("utf-8")
        earmark("remove", "mos-preferences-my")
        assert earmark("list", "--json") == []
