"""`earmark ledger`: inspect requests to models and their answers."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from earmark.flows.command.options import JsonOption, StoreOption, open_store, print_json

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
    key: Annotated[
        str, typer.Argument(help="The request's key, or its first digits, as in the column judgments.request_key.")
    ],
    store: StoreOption = None,
) -> None:
    """Show one request with its attempts, raw responses and answer.

    **Example:** `earmark ledger show 3f9a51c2`
    """
    from earmark.tasks.annotation.ledger_reports import show as find

    print_json(find(_address(store), key))


@app.command()
def vacuum(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Shrink the database file by the space it no longer needs. No answer is lost.

    **Example:** `earmark ledger vacuum`
    """
    from earmark.tasks.annotation.ledger_reports import vacuum as shrink

    before, after = shrink(_address(store))
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after})
    else:
        print(f"{before:,} bytes before, {after:,} after")


@app.command()
def export(
    store: StoreOption = None,
    model: Annotated[str | None, typer.Option(help="Only requests to this annotator, as `backend:model`.")] = None,
) -> None:
    """Write all requests with their answers to standard output as JSON lines.

    **Example:** `earmark ledger export --model openai:gpt-4.1-mini > answers.jsonl`
    """
    from earmark.tasks.annotation.ledger_reports import export as rows

    for row in rows(_address(store), model=model):
        sys.stdout.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _address(store: str | None) -> str:
    from earmark.tasks.build.ledger import ledger_address

    return ledger_address(open_store(store))
