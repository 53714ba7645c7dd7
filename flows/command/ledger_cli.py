"""`earmark ledger`: look at what models were asked and what they answered."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

app = typer.Typer(
    help="Look at what models were asked, answered and cost.", no_args_is_help=True, rich_markup_mode="markdown"
)

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="DIR", help="The store whose ledger is meant; EARMARK_LEDGER names another."),
]


@app.command()
def stats(
    store: StoreOption = None, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Count requests, tokens, cost, rejects and faults by model.

    **Example:** `earmark ledger stats`
    """
    from earmark.flows.command.console import show_ledger
    from earmark.tasks.annotation.ledger_reports import stats as count

    found = count(_address(store))
    if as_json:
        print(json.dumps(found, indent=1, ensure_ascii=False, default=str))
    else:
        show_ledger(found)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="A request's key, or its first digits; `judgments.request_key` has it.")],
    store: StoreOption = None,
) -> None:
    """Show one request: what was asked, every attempt, the raw responses, the answer.

    **Example:** `earmark ledger show 3f9a51c2`
    """
    from earmark.tasks.annotation.ledger_reports import show as find

    print(json.dumps(find(_address(store), key), indent=1, ensure_ascii=False, default=str))


@app.command()
def vacuum(store: StoreOption = None) -> None:
    """Give back the space that the database no longer needs. No answer is lost.

    **Example:** `earmark ledger vacuum`
    """
    from earmark.tasks.annotation.ledger_reports import vacuum as shrink

    before, after = shrink(_address(store))
    print(f"{before:,} bytes before, {after:,} after")


@app.command()
def export(
    store: StoreOption = None,
    model: Annotated[str | None, typer.Option("--model", help="Only this annotator, as `backend:model`.")] = None,
) -> None:
    """Write every request with its answer as JSON lines to standard output.

    **Example:** `earmark ledger export --model openai:gpt-4.1-mini > answers.jsonl`
    """
    from earmark.tasks.annotation.ledger_reports import export as rows

    for row in rows(_address(store), model=model):
        sys.stdout.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _address(store: str | None) -> str:
    from earmark.tasks.build.ledger import ledger_address
    from earmark.tasks.store.versions import open_store

    return ledger_address(open_store(store))
