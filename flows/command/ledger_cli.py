"""Implement `earmark ledger`: inspect requests to models and their answers."""

import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import JsonOption, StoreOption, is_unicode, open_store, option, print_json

app = typer.Typer(
    help="Inspect the ledger: requests to models, answers, cost. EARMARK_LEDGER replaces the store's own.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command()
def stats(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Count requests, tokens, cost, rejects and faults by model.

    **Example:** `earmark ledger stats`
    """
    from earmark.flows.command.console import show_ledger
    from earmark.tasks.annotation.ledger_reports import stats as count

    counts = count(_address(store))
    print_json(counts) if as_json else show_ledger(counts)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="The request's key or its first digits; see judgments.request_key.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one request with its attempts and answer; with `--json` its whole messages and raw responses too.

    **Examples:** `earmark ledger show 3f9a51c2` · `earmark ledger show 3f9a51c2 --json`
    """
    from earmark.flows.command.console import show_request
    from earmark.tasks.annotation.ledger_reports import show as find

    found = find(_address(store), key)
    print_json(found) if as_json else show_request(found)


@app.command()
def batches(
    store: StoreOption = None,
    free: Annotated[str | None, option("BATCH", "Free a lost batch: the next build asks and pays anew.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List batches at providers, or let one go that is lost there.

    **Example:** `earmark ledger batches`
    """
    from earmark.flows.command.console import tell
    from earmark.tasks.annotation.errors import one_line
    from earmark.tasks.annotation.ledger_reports import batches as every
    from earmark.tasks.annotation.ledger_reports import free_batch

    freed = free_batch(_address(store), free) if free is not None else None
    rows = every(_address(store))
    if as_json:
        print_json({"batches": rows, "freed_requests": freed})
        return
    if freed is not None:
        tell(f"{freed:,} requests of {one_line(str(free), 80)} are free: the next build asks them anew")
    for row in rows if freed is None else []:
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created_at"]))
        where = one_line(str(row["provider_id"] or row["id"]), 60)
        tell(f"{where}: {row['state']}, {row['requests']:,} requests to {one_line(row['model'], 60)}, since {begun}")
        if row["detail"]:
            tell(f"  {one_line(row['detail'], 200)}")
    if not rows:
        tell("no batches")


@app.command()
def vacuum(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Shrink the database file by the space it no longer needs. No answer is lost.

    **Example:** `earmark ledger vacuum`
    """
    from earmark.flows.command.console import tell
    from earmark.tasks.annotation.ledger_reports import vacuum as shrink

    before, after = shrink(_address(store))
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after})
    else:
        tell(f"{before:,} bytes before, {after:,} after")


@app.command()
def export(
    store: StoreOption = None,
    model: Annotated[str | None, option("TEXT", "Only requests to this annotator, as `backend:model`.")] = None,
) -> None:
    """Write all requests with their answers to standard output as JSON lines.

    **Example:** `earmark ledger export --model openai:gpt-4.1-mini > answers.jsonl`
    """
    from earmark.tasks.annotation.ledger_reports import export as rows

    for row in rows(_address(store), model=model):
        sys.stdout.write(json.dumps(row, ensure_ascii=not is_unicode(), default=str) + "\n")


@app.command()
def prune(
    before: Annotated[datetime, option("DATE", "Remove requests settled before it.", formats=["%Y-%m-%d"])],
    out: Annotated[Path, option("FILE", "Write them to this new file first, as JSON lines.")],
    dry_run: Annotated[bool, option("--dry-run", "Count them; write and remove nothing.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export old requests with their answers, then remove them from the store's own ledger.

    A build that needs a removed answer asks and pays again. A ledger shared by EARMARK_LEDGER is never pruned.

    **Example:** `earmark ledger prune --before 2026-01-01 --out old.jsonl --dry-run`
    """
    from earmark.flows.command.console import tell
    from earmark.schemas.errors import ConfigError, StoreError
    from earmark.tasks.annotation.ledger_reports import count_old
    from earmark.tasks.annotation.ledger_reports import prune as remove
    from earmark.tasks.store.runs import open_runs, under_way

    if shared := os.environ.get("EARMARK_LEDGER"):
        where = "a database" if "://" in shared else shared
        raise ConfigError(f"EARMARK_LEDGER names {where}; other stores may share it: unset it to prune this store's")
    place = open_store(store)
    if work := under_way(place):
        raise StoreError(f"{work} is under way and may need its answers; prune when it has ended")
    if unfinished := open_runs(place):
        run = unfinished[-1]
        raise StoreError(f"run {run.run} of {run.corpus} is {run.current_state()} and may need its answers; finish it")
    count = count_old(_address(store), before.timestamp())
    if not dry_run:
        count = remove(_address(store), before.timestamp(), out)
    if as_json:
        print_json({"requests": count, "file": None if dry_run else str(out), "dry_run": dry_run})
    elif dry_run:
        tell(f"{count:,} requests would be written to {out} and removed")
    else:
        tell(f"{count:,} requests are in {out} and no longer in the ledger; `earmark ledger vacuum` shrinks its file")


def _address(store: str | None) -> str:
    from earmark.tasks.store.versions import ledger_address

    return ledger_address(open_store(store))
