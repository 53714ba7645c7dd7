"""Define the `earmark` command. Heavy imports wait inside the commands, so that `--help` answers at once."""

import shutil
import signal
import subprocess
import sys
import traceback
from io import TextIOWrapper
from typing import Annotated

import typer

from earmark.flows.command.audit_cli import app as audit_app
from earmark.flows.command.ending import CODES, Stoppable, interrupted, machine_fault, said, short_traceback
from earmark.flows.command.eval_cli import app as eval_app
from earmark.flows.command.init_cli import init
from earmark.flows.command.inspect_cli import app as inspect_app
from earmark.flows.command.ledger_cli import app as ledger_app
from earmark.flows.command.options import (
    AllowRejectsOption,
    ConfigOption,
    CorpusArgument,
    JsonOption,
    KeepOption,
    LimitOption,
    ProbedConfigOption,
    StoreOption,
    is_unicode,
    open_store,
    option,
    print_json,
)
from earmark.flows.command.prompts_cli import app as prompts_app
from earmark.flows.command.publish_cli import export, prune, publish, pull, withdraw
from earmark.flows.command.review_cli import app as review_app
from earmark.flows.command.schedule_cli import app as schedule_app
from earmark.flows.command.serve_cli import rebuild, serve
from earmark.flows.command.study_cli import app as study_app
from earmark.schemas.errors import ConfigError, EarmarkError, Faults, Interrupted, StoreError, TooManyRejects
from earmark.schemas.unseen import on_terminal
from earmark.tasks.pipeline.logs import set_up

app = typer.Typer(
    name="earmark",
    cls=Stoppable,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from earmark.flows.command.serving import CLONED, ROOT

        commit = ""
        if CLONED and shutil.which("git"):
            asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
            found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
            commit = f" ({found})" if found else ""
        print(f"earmark {version('earmark')}{commit}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, option("--version", "Print Earmark's version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Build versioned Parquet corpora for audio and music reward models."""


people = typer.Typer(help="Have people judge, rate or review.", no_args_is_help=True, rich_markup_mode="markdown")
for _name, _app in (("study", study_app), ("audit", audit_app), ("review", review_app)):
    people.add_typer(_app, name=_name)

_BUILD, _USE, _TEND = "Build", "Use versions", "Operate"


@app.command("list", rich_help_panel=_BUILD)
def list_corpora(
    corpus: Annotated[str | None, typer.Argument(help="List the versions of this corpus instead.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the corpora and their newest versions; or a corpus's versions, their rows and where they were published.

    **Examples:** `earmark list` · `earmark list mos-preferences`
    """
    from earmark.flows.command import console
    from earmark.tasks.pipeline.registry import all_corpora, find_corpus
    from earmark.tasks.store.receipts import receipts
    from earmark.tasks.store.versions import manifest_fault

    place = open_store(store)
    if corpus is not None:
        committed, published = place.versions(find_corpus(corpus).name), receipts(place, corpus)
        if as_json:
            sent = [receipt.model_dump(mode="json") for receipt in published]
            of = {version.name: [one for one in sent if one["version"] == version.name] for version in committed}
            print_json([{**console.version_facts(one), "published": of[one.name]} for one in committed])
        else:
            console.show_versions(place, corpus, committed, published)
        return
    known, faults = all_corpora()
    newest = {name: place.latest(name) for name in known}
    configs = {name: console.configs_of(place, name) for name in known}
    damaged = [fault for version in newest.values() if version and (fault := manifest_fault(version))]
    if as_json:
        print_json([console.corpus_facts(one, newest[name], configs[name]) for name, one in known.items()])
    else:
        console.show_corpora(list(known.values()), newest, configs)
    for fault in faults.values():
        print(fault, file=sys.stderr)
    if damaged:
        raise StoreError("; ".join(damaged))


@app.command(rich_help_panel=_BUILD)
def build(
    corpus: CorpusArgument,
    config: ConfigOption,
    store: StoreOption = None,
    limit: LimitOption = None,
    dry_run: Annotated[bool, option("--dry-run", "Show the first steps' results and the cost; keep nothing.")] = False,
    force: Annotated[bool, option("--force", "Build even if a version is up to date.")] = False,
    allow_rejects: AllowRejectsOption = False,
    keep: KeepOption = True,
    as_json: JsonOption = False,
) -> None:
    """Build a new version of a corpus, unless its newest version is up to date.

    **Examples:**

    `earmark build mos-preferences --config data/demo/mos-preferences.toml`

    `earmark build mos-preferences -c my.toml --limit 100 --store /data/earmark`
    """
    from earmark.flows.command import console
    from earmark.flows.command.previewing import print_preview
    from earmark.flows.command.running import forecast_build, run_build

    place = open_store(store)
    if dry_run:
        facts = forecast_build(corpus, config, place, limit, allow_rejects=allow_rejects, force=force)
        print_json(facts) if as_json else print_preview(facts)
        if facts["would_stop"]:
            raise typer.Exit(1)
        return
    built = run_build(corpus, config, place, force=force, limit=limit, allow_rejects=allow_rejects)
    print_json({**console.version_facts(built.version), "new": built.new}) if as_json else console.show_built(built)


@app.command(rich_help_panel=_BUILD)
def demo(store: StoreOption = None, keep: KeepOption = True) -> None:
    """Build every corpus from the small inputs in data/demo, and those of installed packages that bring a demo.

    **Example:** `earmark demo`
    """
    from earmark.flows.command import console
    from earmark.flows.command.running import demo_configs, run_build
    from earmark.tasks.pipeline.progress import shown

    place = open_store(store)
    with shown(brief=True):
        built = [run_build(name, path, place) for name, path in demo_configs().items()]
    console.show_demo(built)


app.command(rich_help_panel=_BUILD)(init)
app.command(rich_help_panel=_BUILD)(rebuild)


@app.command(rich_help_panel=_BUILD)
def status(
    watch: Annotated[bool, option("--watch", "Keep running and show changes until Ctrl-C.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs with their state, error and resume command, and the versions that a known fault may affect.

    **Examples:** `earmark status` · `earmark status --watch`
    """
    from earmark.flows.command import console
    from earmark.tasks.release.known_faults import lines_about
    from earmark.tasks.store.runs import list_runs

    place = open_store(store)
    if watch and as_json:
        raise ConfigError("--json: expected without --watch, which prints lines for people until Ctrl-C")
    if watch:
        from earmark.flows.command.watching import watch as show_changes

        show_changes(place)
        return
    runs = list_runs(place)
    if as_json:
        print_json([{**run.model_dump(mode="json"), "state": run.current_state()} for run in runs])
    else:
        console.show_runs(place, runs)
        for line in lines_about(place):
            console.tell(f"known fault: {line}")


@app.command(rich_help_panel=_BUILD)
def resume(
    run: Annotated[
        str | None, typer.Argument(help="A run of `earmark status`. Default: the newest unfinished.")
    ] = None,
    store: StoreOption = None,
    allow_rejects: AllowRejectsOption = False,
    keep: KeepOption = True,
    as_json: JsonOption = False,
) -> None:
    """Resume a run that failed or was interrupted. Finished steps and paid answers are kept.

    **Examples:** `earmark resume` · `earmark resume 20260102-030405-ab12`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import command
    from earmark.flows.command.running import resume_run
    from earmark.tasks.store.runs import find_run, open_runs

    place = open_store(store)
    unfinished = find_run(place, run)
    if unfinished.current_state() == "running":
        raise StoreError(f"run {unfinished.run} is still running (process {unfinished.pid} on {unfinished.host})")
    built = resume_run(unfinished, place, allow_rejects=allow_rejects)
    print_json(console.version_facts(built.version) | {"new": built.new}) if as_json else console.show_built(built)
    for left in (one for one in open_runs(place) if one.current_state() != "running"):
        again = command(place, "resume", left.run)
        console.tell(f"run {left.run} of {left.corpus} is unfinished too; go on with: {again}", place=console.errors)


app.add_typer(prompts_app, name="prompts", rich_help_panel=_BUILD)
app.add_typer(inspect_app, name="inspect", rich_help_panel=_USE)
app.add_typer(eval_app, name="eval", rich_help_panel=_USE)
app.command(rich_help_panel=_USE)(export)
app.command(rich_help_panel=_USE)(publish)
app.command(rich_help_panel=_USE)(pull)
app.add_typer(people, name="people", rich_help_panel=_USE)
app.add_typer(schedule_app, name="schedule", rich_help_panel=_TEND)
app.command(rich_help_panel=_TEND)(serve)
app.command(rich_help_panel=_TEND)(withdraw)
app.command(rich_help_panel=_TEND)(prune)
app.add_typer(ledger_app, name="ledger", rich_help_panel=_TEND)


@app.command(rich_help_panel=_TEND)
def doctor(
    config: ProbedConfigOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    vllm: Annotated[bool, option("--vllm", "Print commands that make an environment for vLLM.")] = False,
) -> None:
    """Check the installation, servers and settings, and show how to fix what is missing.

    With a config of 1.0.0, print the config in the present spelling.

    **Examples:** `earmark doctor` · `earmark doctor --config captions.toml`
    """
    from earmark.flows.command import console
    from earmark.flows.command.doctor import VLLM_FOLDER, VLLM_SETUP, examine, probe_models
    from earmark.flows.command.respelling import is_settings, left_out, model_of, renewed
    from earmark.schemas.toml import read_toml

    if vllm:
        lines = [*VLLM_SETUP, f"export EARMARK_VLLM={VLLM_FOLDER}/bin/python"]
        print_json(lines) if as_json else print(*lines, sep="\n")
        return
    if config and ((text := renewed(config)) or is_settings(config)):
        notes = ["in the present spelling"]
        if text:
            values = read_toml(config)
            lost = left_out(model_of(config, values), values)
            notes = ["in the spelling of 1.0.0; the output has that of now", *lost]
        if as_json:
            print_json({"config": text, "notes": notes})
            return
        print(text or "", end="")
        print(*(on_terminal(f"{config}: {note}") for note in notes), sep="\n", file=sys.stderr)
        return
    place = open_store(store)
    findings = probe_models(config, place) if config else examine(place)
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        rows = [(finding.what, finding.state, finding.detail) for finding in findings]
        console.print_table("check", "state", "detail", rows=rows)
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def main() -> None:
    """Run the command; end with exit code 1 and one line on standard error for an expected fault."""
    line, code = _run()
    said()
    if line and sys.stderr.isatty():
        from earmark.tasks.pipeline.progress import folded

        line = "\n".join(folded(line, shutil.get_terminal_size().columns))
    if line:
        print(on_terminal(line), file=sys.stderr)
    if code in CODES.values():  # Python takes its handlers away before it ends: one more signal would change the code
        for number in CODES:
            signal.signal(number, signal.SIG_IGN)
        exec("")  # Python forgets a Ctrl-C during another exec, such as a dataclass's, which ends `python -m` by SIGINT
    raise SystemExit(code)


def _run() -> tuple[str, int]:
    """Run the command; return the last line for standard error, and the exit code."""
    if isinstance(sys.stdout, TextIOWrapper) and not is_unicode():
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it
    try:
        set_up()
        app()
    except EarmarkError as error:
        let_go(error)
        if isinstance(error, Interrupted):
            return str(error), error.code
        lines = error.lines if isinstance(error, Faults) else (str(error),)
        several = isinstance(error, TooManyRejects)
        said = [f"error: {line if several else ' '.join(line.split())}" for line in lines]
        return "\n".join([*said, *getattr(error, "__notes__", ())]), 1
    except KeyboardInterrupt as stop:  # the command itself is done
        return "", interrupted(stop, "").code
    except BrokenPipeError:
        return "", 1
    except Exception as error:  # noqa: BLE001 - an unexpected error ends in ten lines, the rest in a file
        line = machine_fault(error)
        text = "\n".join(short_traceback(error)) if line is None else f"error: {line}"
        let_go(error)
        return text, 1
    except SystemExit as ended:
        return "", ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    return "", 0


def let_go(error: BaseException) -> None:
    """Drop the frames of an error and its causes: Prefect keeps the error, and the frames hold DuckDB's handles; its
    binding would print warnings about them when Python ends."""
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            one.__traceback__ = None  # a cleared frame still holds the closures of its comprehensions
            left += [origin for origin in (one.__cause__, one.__context__) if origin is not None]
