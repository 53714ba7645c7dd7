"""Implement `earmark prompts`: show prompts, a build's requests, and trial answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.flows.command.options import (
    ConfigOption,
    CorpusArgument,
    JsonOption,
    StoreOption,
    open_store,
    option,
    print_json,
)

if TYPE_CHECKING:
    from earmark.schemas.questions import Part
    from earmark.tasks.pipeline.forecast import Shown

app = typer.Typer(
    help="The prompts of the package, and what a build with yours would send.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command("list")
def list_prompts(
    corpus: Annotated[str | None, typer.Argument(help="Only this corpus's.")] = None, as_json: JsonOption = False
) -> None:
    """List the prompts by corpus.

    **Example:** `earmark prompts list captions`
    """
    from earmark.flows.command import console
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.annotation.prompts import parse_prompt, prompt_names
    from earmark.tasks.pipeline.registry import find_corpus

    room = find_corpus(corpus).name if corpus else None
    prompts = sorted(
        (path.parent.name.replace("_", "-"), one.name, one.version, one.source)
        for files in prompt_names().values()
        for path, one in ((path, parse_prompt(path)) for path in files)
        if room in (None, path.parent.name.replace("_", "-"))
    )
    columns = ("corpus", "prompt", "version", "source")
    if not prompts:
        raise ConfigError(f"no prompt of this package asks for '{corpus}'")
    if as_json:
        print_json([dict(zip(columns, one, strict=True)) for one in prompts])
    else:
        console.print_table(*columns, rows=prompts)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A prompt, NAME or NAME@VERSION; `earmark prompts list` shows all.")],
) -> None:
    """Print a prompt's file, to be copied and changed.

    A config names the copy: `[asks]`, `rubric-decompose = "mine/decompose.md"`. It may use the same variables,
    and its answers have the same form.

    **Example:** `earmark prompts show rubric-decompose > mine/decompose.md`
    """
    from earmark.schemas.errors import ConfigError
    from earmark.schemas.toml import nearest
    from earmark.tasks.annotation.prompts import packaged, prompt_names

    known, (plain, _, version) = prompt_names(), name.partition("@")
    if plain not in known or not (version or "1").isdecimal():
        raise ConfigError(f"no prompt is named '{name}'{nearest(plain, known)}")
    typer.echo(packaged(plain, int(version) if version else None).text, nl=False)


@app.command()
def render(
    corpus: CorpusArgument,
    config: ConfigOption,
    row: Annotated[int, option("N", "Which question of each kind, in the order of the rows.", min=1)] = 1,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print one question of each kind as a model would get it, media by name; nothing is asked.

    What a question takes from the answers to earlier ones is imagined.

    **Example:** `earmark prompts render captions --config captions.toml --row 3`
    """
    from earmark.flows.command.running import story_of
    from earmark.tasks.pipeline.forecast import show_questions

    known, story, settings = story_of(corpus, config)
    shown = show_questions(known, story, settings, open_store(store), row)
    if as_json:
        print_json([_facts(one) for one in shown])
        return
    typer.echo("\n\n".join("\n".join(_lines(one)) for one in shown) or f"no question has number {row}")


@app.command("try")
def try_prompts(
    corpus: CorpusArgument,
    config: ConfigOption,
    limit: Annotated[int, option("--limit -n N", "Ask N questions of each kind.", min=1, max=100)] = 10,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the first questions of each kind; print answers, what the checks say of them, and the cost. Builds nothing.

    The answers stay in the ledger: a build that asks the same does not pay for them again.

    **Example:** `earmark prompts try captions --config captions.toml --limit 10`
    """
    from earmark.flows.command.ending import stoppable
    from earmark.flows.command.running import story_of
    from earmark.tasks.pipeline.forecast import try_questions

    known, story, settings = story_of(corpus, config)
    with stoppable("answers are kept; run the same command again to continue"):
        shown, spent_usd = try_questions(known, story, settings, open_store(store), limit)
    if as_json:
        print_json({"questions": [_facts(one) for one in shown], "spent_usd": spent_usd})
        return
    for one in shown:
        typer.echo(
            "\n".join([*_lines(one), "", f"# answer{'' if one.fault is None else ', refused'}", *_answer(one), ""])
        )
    bad = sum(one.fault is not None or _answered(one) is None for one in shown)
    typer.echo(f"{len(shown):,} questions, {bad:,} without an answer that can be used; {spent_usd:.4f} USD")


def _lines(shown: Shown) -> Iterator[str]:
    """Yield a question as text for pasting; messages are marked by their roles."""
    yield f"=== {shown.ask}: {shown.prompt}, to {shown.request.model}"
    for message in shown.request.messages:
        yield f"# {message.role}"
        yield from map(_part, message.parts)


def _part(part: Part) -> str:
    from earmark.schemas.questions import Audio, Text

    if isinstance(part, Text):
        return part.text
    if isinstance(part, Audio):
        span = "" if part.start_s is None else f", {part.start_s:g} to {part.end_s or part.duration_s or 0:g} s"
        return f"[audio: {part.path}{span}]"
    return f"[image: {part.path}]"


def _answered(shown: Shown) -> Any:
    return getattr(shown.outcome, "value", None)


def _answer(shown: Shown) -> Iterator[str]:
    import json

    from earmark.tasks.annotation.request import Unanswered

    if isinstance(shown.outcome, Unanswered):
        yield f"none: {shown.outcome.reason}: {shown.outcome.detail}"
        return
    yield json.dumps(_answered(shown), ensure_ascii=False)
    if shown.fault is not None:
        yield f"{shown.fault[0]}: {shown.fault[1]}"


def _facts(shown: Shown) -> dict[str, Any]:
    messages = [{"role": one.role, "content": [_part(part) for part in one.parts]} for one in shown.request.messages]
    facts = {"ask": shown.ask, "prompt": shown.prompt, "model": shown.request.model, "messages": messages}
    if shown.outcome is None:
        return facts
    lost = None if hasattr(shown.outcome, "value") else [shown.outcome.reason, shown.outcome.detail]
    return {**facts, "answer": _answered(shown), "fault": shown.fault or lost}
