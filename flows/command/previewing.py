"""Preview a build for a dry run and for `earmark init`, in lines of 80 columns."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from earmark.schemas.unseen import printable

if TYPE_CHECKING:
    from earmark.tasks.annotation.request import AskPlan
    from earmark.tasks.pipeline.forecast import BuildAsk
    from earmark.tasks.pipeline.preflight import BuildForecast
    from earmark.tasks.store.versions import Store

WIDTH = 80


def end_with_preview(name: str, path: Path, store: Store) -> None:
    """Print the preview of a config just written, or the reason for its refusal."""
    from earmark.flows.command.running import forecast_build
    from earmark.schemas.errors import EarmarkError, Faults

    try:
        print_preview(forecast_build(name, path, store))
    except EarmarkError as error:
        print("a build would refuse this config as it stands:")
        for line in error.lines if isinstance(error, Faults) else str(error).splitlines():
            print(*folded(line), sep="\n")


def print_preview(facts: BuildForecast) -> None:
    """Print the facts of `forecast_build`."""
    sys.stdout.writelines(f"{line}\n" for line in preview_lines(facts))


def preview_lines(facts: BuildForecast) -> Iterator[str]:
    """Yield the facts of `forecast_build` as lines."""
    if facts["up_to_date"]:
        from earmark.flows.command.console import up_to_date_lines

        names = (facts["corpus"], facts["up_to_date"], facts["newest"])
        yield from up_to_date_lines(*names, "; nothing would be built")
        return
    if facts["would_stop"]:
        yield f"{facts['corpus']}: a build would stop and commit nothing: see the end"
    else:
        yield f"{facts['corpus']}: would commit {facts['would_commit']}"
        yield f"  to {facts['store']}"
    yield from _inputs(facts)
    yield from _steps(facts)
    yield from _clips(facts["clips"])
    if facts["not_embedded"]:
        yield f"embeddings of {facts['not_embedded']:,} clips: not computed in a dry run"
        yield "  what they decide (near pairs, near-duplicates, similarity) is not known yet"
    for line in facts["about"]:
        yield from folded(line, "")
    yield from _requests(facts["asks"])
    yield from _tables(facts)
    if facts["would_stop"]:
        yield from ("", "a build would stop here:")
        for line in facts["would_stop"].splitlines():
            yield from folded(line)


def folded(text: str, indent: str = "  ") -> list[str]:
    """Fold a text to a terminal's width; text from outside cannot steer the terminal, and words stay whole."""
    lead = indent + " " * (len(text) - len(text.lstrip()))
    return wrap(
        printable(text.strip()), WIDTH, initial_indent=lead, subsequent_indent=f"{lead}  ", break_long_words=False,
        break_on_hyphens=False,
    ) or [""]  # fmt: skip


def columns(rows: Iterable[tuple[str, Any]], indent: str = "  ") -> list[str]:
    """Return names with a number each, the numbers in one column."""
    shown = [(printable(name), f"{value:,}" if isinstance(value, int) else str(value)) for name, value in rows]
    wide = min(max((len(name) for name, _ in shown), default=0), WIDTH - 16)
    right = max((len(value) for _, value in shown), default=0)
    return [f"{indent}{name:<{wide}}  {value:>{right}}" for name, value in shown]


def _inputs(facts: BuildForecast) -> Iterator[str]:
    yield "inputs, with the first digits of their SHA-256"
    for name, digest in facts["inputs"].items():
        yield f"  {digest[:12] or 'not hashed':<12}  {printable(name)}"
    if not all(facts["inputs"].values()) and facts["latest"]:
        yield from folded(
            f"not all clips are hashed yet: whether {facts['latest']} is up to date shows when a build hashes them"
        )


def _steps(facts: BuildForecast) -> Iterator[str]:
    sure = [step for step in facts["steps"] if step["sure"]]
    if sure:
        yield "steps"
    for step in sure:
        rejected, dropped = sum(step["rejected"].values()), sum(step["dropped"].values())
        lost = "".join(
            f", {count:,} {word}" for count, word in ((rejected, "rejected"), (dropped, "filtered")) if count
        )
        yield from folded(f"{step['name']}: {step['entered']:,} {step['unit']} in, {step['kept']:,} kept{lost}")
        for reject in (one for one in facts["rejects"] if one["step"] == step["name"]):
            yield from folded(f"{reject['items']:,} {reject['reason']}, such as", "    ")
            for example in reject["examples"]:
                place = example["file"] or example["item"]
                line = "" if example["line"] is None else f" line {example['line']}"
                yield from folded(f"{place}{line}: {example['detail']}", "      ")
        for reason, count in step["dropped"].items():
            yield from folded(f"{count:,} {reason}", "    ")
        for note in step["notes"]:
            yield from folded(note, "    ")
    if len(sure) < len(facts["steps"]):
        yield "steps after answers, if every answer is accepted"
    for step in (step for step in facts["steps"] if not step["sure"]):
        yield from folded(f"{step['name']}: {step['entered']:,} {step['unit']} in, {step['kept']:,} kept")


def _clips(counts: Mapping[str, int]) -> Iterator[str]:
    if not counts:
        return
    fine = {"known": "measured before", "measured": "measured now", "assumed": "not measured, assumed to be sound",
            "unfetched": "not fetched in a dry run, assumed to be sound"}  # fmt: skip
    found = sum(count for word, count in counts.items() if word != "file_missing")
    yield f"clips: {found:,} found of {sum(counts.values()):,}"
    yield from columns((fine.get(word, word), count) for word, count in sorted(counts.items()))


def _requests(asks: Any) -> Iterator[str]:
    if asks is None:
        yield "requests to models: none"
        return
    others: Any = (part for part in asks.values() if isinstance(part, dict) and "annotator" in part)
    parts: list[BuildAsk] = [asks, *others]
    for one in parts:
        yield from request_lines(one)
        for name, count in one["newer"].items():
            chosen = name.replace("@", " = ")
            yield from folded(f"{count:,} requests would be asked anew under {name} ([asks]: {chosen})", "  ")
        if one["tries"] > 1:
            yield f"  an answer that fails its check is requested again, at most {one['tries']} times"
        yield from columns((f"for rows of {group}", count) for group, count in one["by"].items())
    models = [part for part in parts if not _is_scorer(part)]
    if len(models) > 1:
        yield "requests to models in all"
        yield from _sent(models)


def print_plans(plans: Sequence[AskPlan], as_json: bool) -> None:
    """Print the requests to several models, or as JSON."""
    from earmark.flows.command.console import tell
    from earmark.flows.command.options import print_json

    if as_json:
        print_json({"asks": plans})
    for plan in () if as_json else plans:
        tell(*request_lines(plan))


def request_lines(asks: AskPlan) -> Iterator[str]:
    """Describe the requests to one model: their subjects, the answered count, and the cost of the rest."""
    yield from folded(f"requests to {asks['annotator']} about {asks['about']}: {asks['requests']:,}", "")
    yield f"  already answered in the ledger: {asks['from_ledger']:,}; over the model's limits: {asks['over_limit']:,}"
    if asks["in_batches"]:
        yield f"  in batches at the provider: {asks['in_batches']:,}"
    if asks["refused"]:
        yield from folded(
            f"of the answers in the ledger, {asks['refused']:,} are none by today's rules and are requested anew: at "
            f"most ${asks['refused_usd']:,.2f} of the cost",
            "  ",
        )
    if _is_scorer(asks):
        yield f"  to send: {asks['to_ask']:,} requests"
    else:
        yield from _sent([asks])


def _is_scorer(asks: AskPlan) -> bool:
    """Return whether a scorer is asked: it takes samples and gives numbers, so no tokens count."""
    return asks["annotator"].startswith("scorer:")


def _sent(plans: Sequence[AskPlan]) -> Iterator[str]:
    tokens = (sum(one["input_tokens"] for one in plans), sum(one["most_output_tokens"] for one in plans))
    usd, unpriced = sum(one["most_usd"] for one in plans), [one["annotator"] for one in plans if not one["priced"]]
    yield f"  to send: {sum(one['to_ask'] for one in plans):,} requests"
    yield f"  tokens: about {tokens[0]:,} in, at most {tokens[1]:,} out"
    if not unpriced or usd:
        yield f"  cost: at most ${usd:,.2f}"
    for name in dict.fromkeys(unpriced):
        yield f"  cost: no prices given for {name}"


def _tables(facts: BuildForecast) -> Iterator[str]:
    main, tables = facts["main_table"], facts["tables"]
    for name in sorted(tables, key=lambda name: (name == main, name)):
        rows = tables[name]["rows"]
        yield f"table {name}{' (the main table)' if name == main else ''}: {sum(rows.values()):,} rows"
        yield from columns((tables[name]["by"] or rows).items())
    if main not in tables:
        how = "made of the answers, so that its rows" if facts["asks"] else "made by steps after these; its rows"
        yield from folded(f"table {main} (the main table): {how} are not known yet", "")
        targets = Counter(facts["targets"])
        totals: Counter[str] = Counter()
        for name, count in targets.items():
            totals[f"all {name.rpartition(', ')[2]}"] += count
        yield from columns((targets | totals).items())
