"""The `earmark` command. Heavy imports wait inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from earmark.flows.command.audit_cli import app as audit_app
from earmark.flows.command.ending import end_in_order, machine_fault
from earmark.flows.command.export_cli import export
from earmark.flows.command.init_cli import init
from earmark.flows.command.judge_cli import judge
from earmark.flows.command.ledger_cli import app as ledger_app
from earmark.flows.command.options import (
    AllowRejectsOption,
    ConfigOption,
    CorpusArgument,
    JsonOption,
    KeepOption,
    LimitOption,
    StoreOption,
    VersionArgument,
    open_store,
    print_json,
)
from earmark.flows.command.prompts_cli import app as prompts_app
from earmark.flows.command.publish_cli import publish
from earmark.flows.command.qualify_cli import qualify
from earmark.flows.command.rebuild_cli import rebuild
from earmark.flows.command.review_cli import app as review_app
from earmark.flows.command.rollouts_cli import rollouts
from earmark.flows.command.score_cli import score
from earmark.flows.command.serve_cli import serve
from earmark.flows.command.sql_cli import sql
from earmark.flows.command.study_cli import app as study_app
from earmark.flows.command.view_cli import view
from earmark.flows.command.withdraw_cli import withdraw
from earmark.schemas.errors import EarmarkError, Faults, Interrupted, StoreError, TooManyRejects
from earmark.tasks.build.logs import set_up

app = typer.Typer(
    name="earmark",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"earmark {version('earmark')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print Earmark's version and exit."),
    ] = False,
) -> None:
    """Build versioned Parquet corpora for audio and music reward models."""


_BUILD, _LOOK, _GIVE, _TEND = "Build", "Inspect versions", "Export and publish", "Operate"


@app.command("list", rich_help_panel=_BUILD)
def list_corpora(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the corpora that can be built, and their newest versions.

    **Example:** `earmark list`
    """
    from earmark.flows.command import console
    from earmark.tasks.build.registry import all_corpora
    from earmark.tasks.store.versions import manifest_fault

    place = open_store(store)
    known, faults = all_corpora()
    newest = {name: place.latest(name) for name in known}
    damaged = [fault for version in newest.values() if version and (fault := manifest_fault(version))]
    if as_json:
        print_json([console.corpus_facts(corpus, newest[corpus.name]) for corpus in known.values()])
    else:
        console.show_corpora(list(known.values()), newest)
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show inputs, requests to models and their cost; build nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Build even if a version is up to date.")] = False,
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
    from earmark.flows.command.running import forecast_build, run_build

    place = open_store(store)
    if dry_run:
        facts = forecast_build(corpus, config, place, limit, allow_rejects=allow_rejects)
        print_json(facts) if as_json else console.show_plan(facts)
        return
    built = run_build(corpus, config, place, force=force, limit=limit, allow_rejects=allow_rejects)
    print_json({**console.version_facts(built.version), "new": built.new}) if as_json else console.show_built(built)


@app.command(rich_help_panel=_BUILD)
def schema(corpus: CorpusArgument) -> None:
    """Print the JSON Schema of a corpus's config, by which editors complete and check TOML.

    **Example:** `earmark schema mos-preferences > mos-preferences.schema.json`, and as the config's first line
    `#:schema ./mos-preferences.schema.json` (Even Better TOML, Taplo)
    """
    from earmark.tasks.build.registry import find_corpus

    config = find_corpus(corpus).config
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **config.model_json_schema()})


@app.command(rich_help_panel=_BUILD)
def demo(store: StoreOption = None, keep: KeepOption = True) -> None:
    """Build every corpus from the small inputs in data/demo.

    **Example:** `earmark demo`
    """
    from earmark.flows.command import console
    from earmark.flows.command.running import demo_config, run_build
    from earmark.tasks.build.registry import corpora

    place = open_store(store)
    console.show_demo([run_build(name, demo_config(name), place) for name, one in corpora().items() if not one.package])


app.command(rich_help_panel=_BUILD)(init)
app.command(rich_help_panel=_BUILD)(rebuild)


@app.command(rich_help_panel=_BUILD)
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Keep running and show changes until Ctrl-C.")] = False,
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
    if watch:
        from earmark.flows.command.watching import watch as show_changes

        show_changes(place)
        return
    runs = list_runs(place)
    if as_json:
        print_json([{**run.model_dump(mode="json"), "state": run.current_state()} for run in runs])
    else:
        console.show_runs(runs)
        for line in lines_about(place):
            print(f"known fault: {line}")


@app.command(rich_help_panel=_BUILD)
def resume(
    run: Annotated[
        str | None, typer.Argument(help="The run, as `earmark status` names it. Default: the newest unfinished run.")
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
    from earmark.flows.command.running import resume_run
    from earmark.tasks.store.runs import find_run

    place = open_store(store)
    unfinished = find_run(place, run)
    if unfinished.current_state() == "running":
        raise StoreError(f"run {unfinished.run} is still running (process {unfinished.pid} on {unfinished.host})")
    built = resume_run(unfinished, place, allow_rejects=allow_rejects)
    print_json(console.version_facts(built.version) | {"new": built.new}) if as_json else console.show_built(built)


@app.command(rich_help_panel=_LOOK)
def versions(corpus: CorpusArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List a corpus's versions with their rows, and where they were published.

    **Example:** `earmark versions mos-preferences`
    """
    from earmark.flows.command import console
    from earmark.tasks.build.registry import find_corpus
    from earmark.tasks.store.receipts import receipts

    place = open_store(store)
    find_corpus(corpus)
    committed, published = place.versions(corpus), receipts(place, corpus)
    if as_json:
        sent = [receipt.model_dump(mode="json") for receipt in published]
        print_json(
            [
                {**console.version_facts(version), "published": [s for s in sent if s["version"] == version.name]}
                for version in committed
            ]
        )
    else:
        console.show_versions(corpus, committed, published)


@app.command(rich_help_panel=_LOOK)
def diff(
    corpus: CorpusArgument,
    old: Annotated[str, typer.Argument(help="The earlier version, such as v1.")],
    new: Annotated[str, typer.Argument(help="The later version, such as v2.")],
    rows: Annotated[
        bool, typer.Option("--rows", help="Also list each row that was added, removed or changed.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the rows added, removed and changed from one version to another, by table and split.

    **Examples:** `earmark diff mos-preferences v1 v2` · `earmark diff mos-preferences v1 v2 --rows`
    """
    import duckdb

    from earmark.flows.command import console
    from earmark.tasks.build.registry import find_corpus
    from earmark.tasks.store.diff import changed_rows, diff_table

    place = open_store(store)
    before, after = place.find(f"{corpus}@{old}"), place.find(f"{corpus}@{new}")
    changes, listed = [], []
    for table in find_corpus(corpus).tables:
        with duckdb.connect() as connection:
            changes += diff_table(connection, table, before, after)
            if rows:
                listed += [{"table": table.name, **row} for row in changed_rows(connection, table)]
    if as_json:
        counts = [vars(change) for change in changes]
        print_json({"counts": counts, "rows": listed} if rows else {"counts": counts})
    else:
        console.show_diff(before, after, changes, listed)


@app.command(rich_help_panel=_LOOK)
def explain(
    corpus: VersionArgument,
    row: Annotated[
        str, typer.Argument(help="The key of a row, the item of a reject, or a file name as written in the input list.")
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the path of a row or reject from its input file and line through each step.

    **Example:** `earmark explain mos-preferences 4e7f0a1b2c3d4e5f`
    """
    from dataclasses import asdict

    from earmark.flows.command import console
    from earmark.tasks.build.registry import find_corpus
    from earmark.tasks.store.explain import explain as find_accounts

    version = open_store(store).find(corpus)
    accounts = find_accounts(version, find_corpus(version.corpus).tables, row)
    if as_json:
        print_json([{**asdict(account), "through": [s.model_dump() for s in account.through]} for account in accounts])
    else:
        console.show_accounts(version, accounts)


@app.command(rich_help_panel=_LOOK)
def verify(corpus: VersionArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Compare each file of a version with its hash in the manifest, and list known faults that may affect it.

    **Examples:** `earmark verify mos-preferences` · `earmark verify mos-preferences@v2`
    """
    from earmark.tasks.release.known_faults import lines_about
    from earmark.tasks.store.versions import verify as find_faults

    place = open_store(store)
    version = place.find(corpus)
    faults = place.remote.faults(version.manifest) if place.remote else find_faults(version)
    known = lines_about(place, version)
    count = len(version.manifest.files)
    if as_json:
        facts = {"corpus": version.corpus, "version": version.name, "files": count, "faults": faults}
        print_json({**facts, "known_faults": known})
    else:
        for line in known:
            print(f"known fault: {line}")
        for fault in faults:
            print(fault)
        if not faults:
            print(f"{version.corpus} {version.name}: all {count} files are as committed")
    if faults:
        named = "the file named above" if len(faults) == 1 else f"the {len(faults)} files named above"
        raise StoreError(f"{version.corpus} {version.name} differs from what was committed: see {named}")


@app.command(rich_help_panel=_TEND)
def doctor(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check the installation, servers and settings, and show how to fix what is missing.

    **Example:** `earmark doctor`
    """
    from earmark.flows.command import console
    from earmark.flows.command.doctor import examine

    findings = examine(open_store(store))
    print_json([vars(finding) for finding in findings]) if as_json else console.show_findings(findings)
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


app.add_typer(prompts_app, name="prompts", rich_help_panel=_BUILD)
app.command(rich_help_panel=_BUILD)(qualify)
app.command(rich_help_panel=_LOOK)(view)
app.command(rich_help_panel=_LOOK)(sql)
app.command(rich_help_panel=_LOOK)(judge)
app.command(rich_help_panel=_LOOK)(rollouts)
app.command(rich_help_panel=_LOOK)(score)
app.command(rich_help_panel=_GIVE)(export)
app.command(rich_help_panel=_GIVE)(publish)
app.add_typer(review_app, name="review", rich_help_panel=_GIVE)
app.add_typer(audit_app, name="audit", rich_help_panel=_GIVE)
app.add_typer(study_app, name="study", rich_help_panel=_GIVE)
app.command(rich_help_panel=_TEND)(serve)
app.command(rich_help_panel=_TEND)(withdraw)
app.add_typer(ledger_app, name="ledger", rich_help_panel=_TEND)


def main() -> None:
    """Run the command; every expected fault is one line on standard error and exit code 1."""
    line, code = _run()
    if line:
        print(line, file=sys.stderr)
    raise SystemExit(code)


def _run() -> tuple[str, int]:
    """The last line on standard error, and the exit code."""
    try:
        end_in_order()
        set_up()
        app()
    except EarmarkError as error:
        let_go(error)
        if isinstance(error, Interrupted):
            return str(error), error.code
        if isinstance(error, TooManyRejects):  # it has several lines
            return f"error: {error}", 1
        lines = error.lines if isinstance(error, Faults) else (str(error),)
        return "\n".join(f"error: {' '.join(line.split())}" for line in lines), 1
    except BrokenPipeError:
        return "", 1
    except Exception as error:
        if (line := machine_fault(error)) is None:
            raise
        let_go(error)
        return f"error: {line}", 1
    except SystemExit as ended:
        return "", ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    return "", 0


def let_go(error: BaseException) -> None:
    """Drop the frames of an error and of those that it came from: Prefect keeps the error, and the frames hold DuckDB's
    handles, about which its binding would print warnings when Python ends."""
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            one.__traceback__ = None  # a cleared frame still holds what a comprehension in it closes over
            left += [origin for origin in (one.__cause__, one.__context__) if origin is not None]


if __name__ == "__main__":
    main()
