"""The real `earmark` command in processes of its own: what it prints, how it ends, what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from earmark.flows.command.cli import app, let_go
from earmark.flows.command.running import resume_run, run_build
from earmark.schemas.errors import ConfigError
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.runs import list_runs, save_run, start_run
from earmark.tasks.store.versions import Store
from tests.builds import build_version, contents_of, read_config, rows_of
from tests.commands import COMMANDS
from tests.conftest import ROOT

CORPUS = "mos-preferences"
DEMO = ROOT / f"data/demo/{CORPUS}.toml"
HEAVY = {"prefect", "pandas", "pyarrow", "duckdb", "datasets", "pydantic", "numpy"}


def environment(store: Path) -> dict[str, str]:
    """A process's environment: this store, a home of Prefect's beside it, whose server ends with the build."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
    ours = {"EARMARK_STORE": str(store), "PREFECT_HOME": str(store.parent / "prefect"), "EARMARK_KEEP_S": "0"}
    return {**kept, **ours, "COLUMNS": "120"}


def earmark(
    store: Path, *arguments: object, python: tuple[str, ...] = (), code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, which must come with that exit code."""
    ended = subprocess.run(
        [sys.executable, *python, "-m", "earmark", *map(str, arguments)],
        cwd=ROOT,
        env=environment(store),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == code, f"{arguments}: {ended.stdout}\n{ended.stderr}"
    assert "Traceback" not in ended.stderr
    return ended


def test_a_shell_completes_commands(tmp_path: Path) -> None:
    asked = {"_EARMARK_COMPLETE": "complete_bash", "COMP_WORDS": "earmark re", "COMP_CWORD": "1"}
    ended = subprocess.run(
        [Path(sys.executable).with_name("earmark")],
        env=environment(tmp_path) | asked,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.split() == ["rebuild", "resume"]


def as_json(store: Path, *arguments: object) -> Any:
    """What a command prints with `--json`."""
    return json.loads(earmark(store, *arguments, "--json").stdout)


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_escapes_and_whole_json(tmp_path: Path) -> None:
    place = Store(tmp_path / "store")
    config = tmp_path / "prüfung-中𝄞.toml"
    start_run(place, CORPUS, config)

    async def ask() -> None:
        async with open_ledger(place.root / "ledger.sqlite") as ledger:
            await ledger.claim([("ab" * 32, "m", json.dumps({"messages": [], "said": config.stem}))], {}, 1)

    asyncio.run(ask())

    def printed(*words: str) -> str:
        command = [sys.executable, "-m", "earmark", *words]
        ascii_only = environment(place.root) | {"PYTHONIOENCODING": "ascii"}
        ended = subprocess.run(command, cwd=ROOT, env=ascii_only, capture_output=True, timeout=300, check=True)
        return ended.stdout.decode("ascii")

    assert "\\u2013" in printed("list")
    assert {one["corpus"] for one in json.loads(printed("list", "--json"))} == corpora().keys()
    assert [run["config"] for run in json.loads(printed("status", "--json"))] == [str(config)]
    assert json.loads(printed("ledger", "export"))["body"]["said"] == config.stem


def imported(ended: subprocess.CompletedProcess[str]) -> set[str]:
    """Top-level modules that a run with `-X importtime` imported."""
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    assert len(lines) > 50
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def state_of(store: Path) -> list[tuple[str, int, int]]:
    """Every file and folder of a store with its size and time of change, but for its two databases: reading one may
    fold its log in, and what is measured of audio is remembered."""
    databases = ("media.sqlite", "ledger.sqlite")
    found = [path for path in sorted(store.rglob("*")) if not path.name.startswith(databases)]
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in found]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two versions, built without Prefect's engine: the demo, and the demo with another seed."""
    place = tmp_path_factory.mktemp("cli") / "store"
    config = read_config(DEMO)
    build_version(config, place)
    build_version(config.model_copy(update={"seed": 18}), place)
    return place


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Ends what is left of a test's builds, however the test ends."""
    yield
    for process in running(tmp_path):
        with suppress(psutil.NoSuchProcess):  # it may end by itself meanwhile
            process.kill()


def running(place: Path) -> list[psutil.Process]:
    """Processes whose Prefect home lies in that folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.environ().get("PREFECT_HOME", "/")).is_relative_to(place):
                found.append(process)
        except psutil.Error:
            continue  # it has ended, or it is somebody else's
    return found


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"]).stdout  # in process: there are many
    assert "Example" in shown
    assert f"earmark {command}" in shown


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    ended = earmark(tmp_path / "store", "--help", python=("-X", "importtime"))
    assert all(command.split()[0] in ended.stdout for command in COMMANDS)
    assert not imported(ended) & HEAVY


@pytest.mark.slow
def test_planning_a_build_imports_no_more_than_it_needs() -> None:
    modules = [find_corpus(name).plan.partition(":")[0] for name in corpora()]
    command = [sys.executable, "-X", "importtime", "-c", "\n".join(f"import {module}" for module in modules)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not imported(ended) & {"prefect", "pandas", "scipy", "torch", "aiohttp", "jsonschema", "phonenumbers"}


PLAIN = {
    "demo": "builds for a person to look at",
    "ledger export": "prints JSON lines",
    "prompts show": "prints the prompt's file",
    "serve": "stays until it is ended",
    "schedule pause": "prints no figure",
    "schedule remove": "prints no figure",
    "schedule resume": "prints no figure",
    "eval reward-server": "stays until it is ended",
    "people study serve": "stays until it is ended",
    "inspect view": "stays until it is ended",
}
"""Commands without `--json`, and why."""


def test_commands_that_say_figures_say_them_as_json_too() -> None:
    def commands(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
        for word, one in group.commands.items():
            yield from commands(one, f"{name}{word} ") if hasattr(one, "commands") else [(f"{name}{word}", one)]

    lacking = {
        name for name, one in commands(get_command(app)) if not any("--json" in option.opts for option in one.params)
    }
    assert lacking == PLAIN.keys()


@pytest.mark.slow
def test_empty_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert [(corpus["corpus"], corpus["newest"]) for corpus in as_json(store, "list")] == [(n, None) for n in corpora()]
    assert as_json(store, "list", CORPUS) == []
    assert as_json(store, "status") == []
    assert "earmark build" in earmark(store, "list", CORPUS).stdout
    assert "earmark build" in earmark(store, "status").stdout
    assert not store.exists()


@pytest.mark.slow
def test_list_versions_and_verify(store: Path) -> None:
    assert {corpus["corpus"]: corpus["newest"] for corpus in as_json(store, "list")}[CORPUS] == "v2"
    assert CORPUS in earmark(store, "list").stdout
    found = as_json(store, "list", CORPUS)
    assert [version["version"] for version in found] == ["v1", "v2"]
    assert found[0]["rows"]["pairs"]["train"] > 0
    assert "pairs" in earmark(store, "list", CORPUS).stdout
    assert as_json(store, "inspect", "verify", f"{CORPUS}@v1")["faults"] == []
    assert f"{CORPUS} v2: all " in earmark(store, "inspect", "verify", CORPUS).stdout


@pytest.mark.slow
def test_diff(store: Path) -> None:
    counts = as_json(store, "inspect", "diff", f"{CORPUS}@v1", f"{CORPUS}@v2")["counts"]
    ratings = [count for count in counts if count["table"] == "ratings"]
    assert sum(count["same"] for count in ratings) > 0
    assert not any(count["added"] or count["removed"] or count["changed"] for count in ratings)
    added = sum(count["added"] for count in counts)
    rows = as_json(store, "inspect", "diff", f"{CORPUS}@v1", f"{CORPUS}@v2", "--rows")["rows"]
    assert added == sum(row["what"] == "added" for row in rows) > 0
    lines = earmark(store, "inspect", "diff", f"{CORPUS}@v1", f"{CORPUS}@v2", "--rows").stdout.splitlines()
    assert sum(line.startswith("+ ") for line in lines) == added
    assert (
        "expected CORPUS or CORPUS@vN" in earmark(store, "inspect", "diff", f"{CORPUS}@1", f"{CORPUS}@2", code=1).stderr
    )
    assert (
        f"versions are named v1, v2, …: {CORPUS}@v1"
        in earmark(store, "inspect", "diff", f"{CORPUS}@1", f"{CORPUS}@2", code=1).stderr
    )


@pytest.mark.slow
def test_explain(store: Path) -> None:
    version = build_version(read_config(DEMO), store)
    pair, clip = (rows_of(version, table)[0] for table in ("pairs", "ratings"))
    reject = next(row for row in rows_of(version, "rejects") if row["file"])
    spec = f"{CORPUS}@v1"

    told = earmark(store, "inspect", "explain", spec, pair["pair_id"]).stdout
    assert pair["chosen_id"] in told
    assert "read from" in told
    (account,) = as_json(store, "inspect", "explain", spec, pair["pair_id"])
    assert account["row"] == pair
    assert set(account["links"]) == {"chosen_id", "rejected_id"}

    assert (
        f"{clip['source_file']}, line {clip['source_line']}"
        in earmark(store, "inspect", "explain", spec, clip["sample_id"]).stdout
    )
    assert [account["table"] for account in as_json(store, "inspect", "explain", spec, clip["sample_id"])] == [
        "ratings"
    ]

    alone = clip["file"].rpartition("/")[2]
    assert clip["sample_id"] in earmark(store, "inspect", "explain", spec, alone).stdout, (
        "a file's name without its folder"
    )
    typed = pair["pair_id"][:-1] + ("0" if pair["pair_id"][-1] != "0" else "1")
    assert f"near it: {pair['pair_id']}" in earmark(store, "inspect", "explain", spec, typed, code=1).stderr

    told = earmark(store, "inspect", "explain", spec, reject["item"]).stdout
    assert reject["file"] in told
    assert reject in [account["row"] for account in as_json(store, "inspect", "explain", spec, reject["item"])]


@pytest.mark.slow
def test_doctor(store: Path) -> None:
    findings = {finding["what"]: finding for finding in as_json(store, "doctor")}
    assert findings["store"]["detail"] == f"{store} (versions: {CORPUS}: 2)"
    assert findings["core"]["state"] == "ok"
    assert findings["Prefect"]["state"] == "off"
    assert str(store) in earmark(store, "doctor").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", "mos-preferencs", "-c", DEMO), "unknown corpus 'mos-preferencs'; did you mean 'mos-preferences'?"),
        (("build", CORPUS, "-c", "no/such.toml"), "config not found: no/such.toml"),
        (("build", CORPUS, "-c", "{bad}"), "unknown key 'sources[0].rooot'; did you mean 'root'?"),
        (("list", "music"), "unknown corpus 'music'; "),
        (("inspect", "diff", f"{CORPUS}@v1", f"{CORPUS}@v9"), "has no v9"),
        (("inspect", "explain", CORPUS, "nothing"), "found 'nothing'"),
        (("inspect", "explain", f"{CORPUS}@v9", "nothing"), "has no v9"),
        (("inspect", "verify", f"{CORPUS}@v9"), "has no v9"),
        (("inspect", "verify", f"{CORPUS}@9"), "expected CORPUS or CORPUS@vN"),
        (("inspect", "verify", CORPUS, "--store", "ftp://bucket"), "ftp:// URL"),
        (("resume",), "nothing to resume"),
        (("resume", "20260102-030405-ab12"), "no run '20260102-030405-ab12'"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_fault_is_one_line_and_exit_code_1(
    arguments: tuple[object, ...], said: str, store: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('[[sources]]\nname = "a"\nformat = "bvcc"\nrooot = "x"\n')
    ended = earmark(store, *(bad if argument == "{bad}" else argument for argument in arguments), code=1)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert ended.stdout == ""


def test_neither_an_error_nor_what_it_came_from_holds_anything_open() -> None:
    class Handle:
        """What the frames hold."""

    handles: list[weakref.ref[Handle]] = []

    def read(handle: Handle) -> None:
        raise ValueError(f"cannot be read: {handle}")

    def scan() -> None:
        handle = Handle()
        handles.append(weakref.ref(handle))
        try:
            [read(handle) for _ in range(1)]
        except ValueError:
            raise KeyError("bad input") from None

    try:
        scan()
    except KeyError as error:
        kept = error
    assert handles[0]() is not None
    let_go(kept)
    assert handles[0]() is None


@pytest.mark.slow
def test_a_manifest_that_is_damaged_or_anothers_is_an_error(tmp_path: Path) -> None:
    version = build_version(read_config(DEMO).model_copy(update={"critiques": None}), tmp_path / "store")
    path = version.folder / "manifest.json"
    whole = path.read_text("utf-8")
    path.write_text(whole[: len(whole) // 2])
    ended = earmark(tmp_path / "store", "list", code=1)
    assert "manifest.json is not a valid manifest" in ended.stderr
    path.write_text(whole.replace(f'"corpus": "{CORPUS}"', '"corpus": "captions"', 1))
    for words in (("list",), ("inspect", "verify", CORPUS)):
        ended = earmark(tmp_path / "store", *words, code=1)
        assert f"expected the manifest of {CORPUS} v1, found that of captions v1" in ended.stdout + ended.stderr


@pytest.mark.slow
def test_a_build_settles_the_interrupted_runs_of_its_config(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    build_version(read_config(DEMO), store.root)
    open_run = start_run(store, CORPUS, DEMO)
    others = [start_run(store, CORPUS, DEMO, limit=3), start_run(store, CORPUS, DEMO, force=True)]
    for run in (open_run, *others):
        save_run(store, run.model_copy(update={"state": "interrupted", "error": "stopped"}))
    run_build(CORPUS, DEMO, store)  # up to date
    states = {run.run: (run.state, run.version, run.error) for run in list_runs(store)}
    assert states[open_run.run] == ("completed", "v1", None)
    assert {states[run.run][0] for run in others} == {"interrupted"}


@pytest.mark.slow
def test_resume_takes_the_newest_unfinished_run_and_names_those_that_are_left(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    build_version(read_config(DEMO), store.root)
    one = start_run(Store(tmp_path / "other"), CORPUS, DEMO)
    for run, config, state in (
        ("20260101-000000-aaaa", "older.toml", "failed"),
        ("20260102-000000-bbbb", str(DEMO), "interrupted"),
        ("20260103-000000-cccc", "under-way.toml", "running"),  # by the process of this test
    ):
        save_run(store, one.model_copy(update={"run": run, "config": config, "state": state}))
    ended = earmark(store.root, "resume")
    assert "already up to date: v1" in ended.stdout
    (line,) = (one for one in ended.stderr.splitlines() if "unfinished" in one)
    assert line.startswith(f"run 20260101-000000-aaaa of {CORPUS} is unfinished too; go on with: earmark resume 2026")
    assert {run.run[-4:]: run.state for run in list_runs(store)} == {
        "aaaa": "failed", "bbbb": "completed", "cccc": "running"
    }  # fmt: skip


def test_resume_of_a_completed_forced_run_builds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    build_version(read_config(DEMO), store.root)
    run = start_run(store, CORPUS, DEMO, force=True)
    built = resume_run(run.model_copy(update={"state": "completed", "version": "v1"}), store)
    assert (built.version.name, built.new, len(list_runs(store))) == ("v1", False, 1)


def test_resume_without_its_config_says_what_to_do(tmp_path: Path) -> None:
    store, lost = Store(tmp_path / "store"), tmp_path / "lost.toml"
    run = start_run(store, CORPUS, lost)
    says = rf"run {run.run}: expected its config {lost}, .* build {CORPUS} --config FILE"
    with pytest.raises(ConfigError, match=says):
        resume_run(run, store)


@pytest.mark.slow
def test_verify_tells_of_damage(tmp_path: Path) -> None:
    version = build_version(read_config(DEMO), tmp_path / "store")
    pairs, ratings = version.files("pairs")[0], version.files("ratings")[0]
    content = bytearray(pairs.read_bytes())
    content[len(content) // 2] ^= 1
    pairs.write_bytes(content)
    ratings.unlink()

    ended = earmark(tmp_path / "store", "inspect", "verify", CORPUS, code=1)
    (line,) = ended.stderr.splitlines()
    assert line == f"error: {CORPUS} v1 differs from what was committed: see the 2 files named above"
    assert sorted(fault.split(":")[0] for fault in ended.stdout.splitlines()) == [
        path.relative_to(version.folder).as_posix() for path in (pairs, ratings)
    ]
    ended = earmark(tmp_path / "store", "inspect", "verify", CORPUS, "--json", code=1)
    assert len(json.loads(ended.stdout)["faults"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("bild",),
        ("build", CORPUS),
        ("build", CORPUS, "-c", DEMO, "--limit", 0),
        ("inspect", "diff", f"{CORPUS}@v1"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments)) or "nothing",
)
def test_misuse_is_exit_code_2(arguments: tuple[object, ...], tmp_path: Path) -> None:
    earmark(tmp_path / "store", *arguments, code=2)


@pytest.mark.slow
def test_dry_run_changes_nothing(store: Path, tmp_path: Path) -> None:
    left = store / CORPUS / ".staging" / "0123456789abcdef"  # what a killed build left
    left.mkdir(parents=True)
    before = state_of(store)
    assert as_json(store, "build", CORPUS, "-c", DEMO, "--dry-run")["up_to_date"] == "v1"
    told = as_json(store, "build", CORPUS, "-c", DEMO, "--dry-run", "--limit", 300)
    assert told["up_to_date"] is None
    assert told["would_commit"] == "v3"
    assert "bvcc/main/DATA/sets/DEVSET" in told["inputs"]
    forced = as_json(store, "build", CORPUS, "-c", DEMO, "--dry-run", "--force")
    assert (forced["up_to_date"], forced["would_commit"]) == (None, "v3")
    assert forced["steps"]
    assert state_of(store) == before

    nowhere = tmp_path / "store"
    assert "would commit v1" in earmark(nowhere, "build", CORPUS, "-c", DEMO, "--dry-run").stdout
    assert not nowhere.exists()


@pytest.mark.slow
def test_build_once_then_up_to_date_without_prefect(tmp_path: Path, nothing_left: None) -> None:
    store = tmp_path / "store"
    first = as_json(store, "build", CORPUS, "-c", DEMO)
    assert (first["version"], first["new"]) == ("v1", True)
    again = earmark(store, "build", CORPUS, "-c", DEMO, python=("-X", "importtime"))
    assert again.stdout == f"{CORPUS}: already up to date: v1\n"
    assert "prefect" not in imported(again)
    assert [run["state"] for run in as_json(store, "status")] == ["completed"]

    direct = build_version(read_config(DEMO), tmp_path / "direct")
    assert contents_of(direct.folder) == contents_of(store / CORPUS / "v1")
