"""What the command line shows: tables for people, plain facts for scripts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

if TYPE_CHECKING:
    from earmark.flows.command.doctor import Finding
    from earmark.flows.command.rebuild_plan import Standing
    from earmark.flows.command.running import Built
    from earmark.schemas.corpus import Corpus
    from earmark.tasks.exports.choosing import Offer
    from earmark.tasks.release.rebuilding import Ending
    from earmark.tasks.store.diff import Change
    from earmark.tasks.store.explain import Account
    from earmark.tasks.store.receipts import Receipt
    from earmark.tasks.store.runs import Run
    from earmark.tasks.store.versions import Version

console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)  # files have room for wide tables
_STATE_COLOURS = {"ok": "green", "off": "dim", "bad": "red", "completed": "green", "running": "cyan"}


def corpus_facts(corpus: Corpus, newest: Version | None) -> dict[str, Any]:
    """A corpus as JSON."""
    return {
        "corpus": corpus.name,
        "from": corpus.source,
        "holds": corpus.holds,
        "paper": corpus.paper,
        "newest": newest.name if newest else None,
    }


def show_corpora(corpora: Sequence[Corpus], newest: Mapping[str, Version | None]) -> None:
    """Print the corpora."""
    grid = grid_of("corpus", "made from", "holds", "method of", "newest")
    for corpus in corpora:
        version = newest[corpus.name]
        grid.add_row(corpus.name, corpus.source, corpus.holds, corpus.paper, version.name if version else "–")
    console.print(grid)


def show_plan(facts: Mapping[str, Any]) -> None:
    """Print what a build would do and ask."""
    if facts["up_to_date"]:
        _print_line(f"{facts['corpus']}: already up to date: {facts['up_to_date']}; nothing would be built")
        return
    _print_line(f"{facts['corpus']}: would commit {facts['would_commit']} to {escape(facts['store'])}")
    asks = facts["asks"]
    if asks is None:
        _print_line("requests to models: none")
    else:
        for one in (asks, *(part for part in asks.values() if isinstance(part, Mapping))):
            show_questions(one)
    grid = grid_of("input", "SHA-256")
    for name, digest in facts["inputs"].items():
        grid.add_row(escape(name), digest[:16] + "…")
    console.print(grid)


def show_questions(asks: Mapping[str, Any]) -> None:
    """Print the requests to one model: what they are about, how many are answered, and the cost of the rest."""
    _print_line(f"requests to {escape(asks['annotator'])} about {asks['about']}: {asks['requests']:,}")
    _print_line(
        f"  already answered in the ledger: {asks['from_ledger']:,}; over the model's limits: {asks['over_limit']:,}"
    )
    _print_line(
        f"  to send: {asks['to_ask']:,} requests, about {asks['input_tokens']:,} tokens in, at most "
        f"{asks['most_output_tokens']:,} out, at most ${asks['most_usd']:,.2f}"
    )
    if asks.get("tries", 1) > 1:
        _print_line(f"  an answer that fails its check is requested again, at most {asks['tries']} times in all")


def version_facts(version: Version) -> dict[str, Any]:
    """A version as JSON."""
    manifest = version.manifest
    return {
        "corpus": version.corpus,
        "version": version.name,
        "folder": str(version.folder),
        "rows": manifest.rows,
        "rejects": manifest.rejects,
        "build_key": manifest.build_key,
        "digest": manifest.digest(),
        "notes": manifest.notes(),
    }


def show_built(built: Built) -> None:
    """Print what a build made, what it could not use, and how to load it."""
    version = built.version
    if not built.new:
        _print_line(f"{version.corpus}: already up to date: {version.name}")
        return
    manifest = version.manifest
    _print_line(f"[bold]{version.corpus} {version.name}[/bold] in {escape(str(version.folder))}")
    _show_rows([version])
    if manifest.rejects:
        shown = ", ".join(f"{reason} {count:,}" for reason, count in sorted(manifest.rejects.items()))
        _print_line(f"rejects: {escape(shown)}")
    _show_notes(version)
    _print_line(_load_line(version))


def _show_notes(version: Version) -> None:
    for note in version.manifest.notes():
        _print_line(f"note: {escape(note)}")


def show_demo(built: Sequence[Built]) -> None:
    """Print all that the demo built, and how to load it."""
    _show_rows([one.version for one in built])
    for one in built:
        if one.version.manifest.notes():
            _print_line(f"\n{one.version.corpus}")
            _show_notes(one.version)
    _print_line("\nLoad a version:")
    for one in built:
        _print_line("  " + _load_line(one.version))
    _print_line("\nOpen a report in a browser, to read and to listen:")
    for one in built:
        _print_line(f"  {one.version.folder / 'report.html'}")


def show_versions(corpus: str, versions: Sequence[Version], published: Sequence[Receipt] = ()) -> None:
    """Print a corpus's versions and where they were published."""
    from earmark.tasks.store.withdrawals import withdrawal_against

    if not versions:
        _print_line(f"{corpus}: no versions yet; build one with: earmark build {corpus} --config FILE")
        return
    _show_rows(versions)
    for version in versions:
        if withdrawal := withdrawal_against(version.folder.parent.parent, version.manifest):
            holds = "contains" if withdrawal.holds(version.manifest) else "was not searched for"
            _print_line(
                f"{version.name} {holds} data withdrawn on {withdrawal.withdrawn:%Y-%m-%d}; it cannot be published"
            )
    for receipt in published:
        rows = sum(receipt.held_rows.values())
        part = f", without {rows:,} rows" if rows else ""
        part += ", without audio" if receipt.held_audio else ""
        _print_line(
            f"{receipt.version} published {receipt.published:%Y-%m-%d} to {escape(receipt.repo)}"
            f" (commit {receipt.commit[:12]}{part})"
        )


def show_publication_plan(facts: Mapping[str, Any]) -> None:
    """Print what publishing would send and what is there."""
    name = f"{facts['corpus']} {facts['version']}"
    if facts["published"]:
        _print_line(
            f"{name}: already published to {facts['url']}, commit {facts['published'][:12]}; nothing would be sent"
        )
    else:
        kind = "private" if facts["private"] else "public"
        there = f"{facts['there']:,} files are there" if facts["exists"] else "it would be made"
        if facts["unreachable"]:
            there = "what is there is not known"
            _print_line(f"no comparison with {facts['repo']}: {escape(facts['unreachable'])}")
        _print_line(f"{name}: would be published to {facts['url']} ({kind}; {there})")
        grid = grid_of("upload", "bytes", right=1)
        for path, size in facts["upload"].items():
            grid.add_row(escape(path), f"{size:,}")
        grid.add_row(f"{len(facts['upload']):,} files", f"{sum(facts['upload'].values()):,}")
        console.print(grid)
        for path in facts["delete"]:
            _print_line(f"delete: {escape(path)}")
        for path in facts["foreign"]:
            _print_line(f"left alone: {escape(path)}")
    _show_unpublished(facts)
    for source, terms in facts["licences"].items():
        stated = escape(terms["licence"] or "not stated")
        _print_line(f"licence of {escape(source)}: {stated}; may be published: {terms['redistribute']}")
    for finding in facts["findings"]:
        _print_line(f"finding: {escape(finding)}")


def show_publication(facts: Mapping[str, Any]) -> None:
    """Print where a version was published, and how to load it."""
    name = f"{facts['corpus']} {facts['version']}"
    done = f"{facts['uploaded']:,} files sent" if facts["uploaded"] else "all was there already"
    _print_line(
        f"[bold]{name}[/bold] is published at {facts['url']}, tag {facts['tag']}, commit {facts['commit'][:12]}; {done}"
    )
    _show_unpublished(facts)
    from earmark.tasks.build.registry import find_corpus

    table = find_corpus(facts["corpus"]).story.main_table
    _print_line(
        escape(
            f'from datasets import load_dataset; rows = load_dataset("{facts["repo"]}", "{table}", '
            f'revision="{facts["tag"]}")'
        )
    )


def _show_unpublished(facts: Mapping[str, Any]) -> None:
    for what, key in (("rows", "held_rows"), ("clips", "held_audio")):
        if facts[key]:
            _print_line(
                f"not published {what}: " + ", ".join(f"{name} {count:,}" for name, count in facts[key].items())
            )


def show_runs(runs: Sequence[Run]) -> None:
    """Print the runs, newest last, and how to go on with those that did not end well."""
    if not runs:
        _print_line("no runs yet; start one with: earmark build CORPUS --config FILE")
        return
    console.print(runs_grid(runs))
    last = {(run.corpus, run.config): run for run in runs}
    for run in last.values():
        if run.current_state() in ("failed", "interrupted"):
            _print_line(f"go on with: earmark resume {run.run}")


def runs_grid(runs: Sequence[Run]) -> Grid:
    """The runs as a table."""
    grid = grid_of("run", "corpus", "started (UTC)", "state", "outcome")
    for run in runs:
        state = run.current_state()
        outcome = run.version or run.error or ("the process has ended" if state == "interrupted" else "")
        colour = _STATE_COLOURS.get(state, "red")
        grid.add_row(run.run, run.corpus, f"{run.started:%Y-%m-%d %H:%M:%S}", f"[{colour}]{state}[/]", escape(outcome))
    return grid


def show_standings(stands: Sequence[Standing]) -> None:
    """Print what a rebuild would do with each corpus, in its order."""
    words = {"nothing": "up to date", "build": "would be built", "wait": "waits for others", "fail": "cannot be built"}
    grid = grid_of("corpus", "state", "version", "because", "would publish to")
    for one in stands:
        grid.add_row(one.corpus, words[one.would], one.version or "–", escape(one.detail), escape(one.publish or ""))
    console.print(grid)


def show_endings(endings: Sequence[Ending]) -> None:
    """Print how each corpus came out of a rebuild, and what to do about those that did not come out well."""
    grid = grid_of("corpus", "state", "version", "more")
    for one in endings:
        colour = "green" if one.good else "yellow" if one.state == "skipped" else "red"
        grid.add_row(one.corpus, f"[{colour}]{one.state}[/]", one.version or "–", escape(one.detail))
    console.print(grid)
    for one in endings:
        if one.todo:
            _print_line(escape(f"{one.corpus}: {one.todo}"))


def show_diff(old: Version, new: Version, changes: Sequence[Change], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the counts of changes, then the rows if there are any."""
    _print_line(f"{old.corpus}: {old.name} → {new.name}")
    grid = grid_of("table", "split", "added", "removed", "changed", "same", right=4)
    for change in changes:
        counts = (change.added, change.removed, change.changed, change.same)
        grid.add_row(change.table, change.split, *(f"{count:,}" for count in counts))
    console.print(grid)
    signs = {"added": "+", "removed": "-", "changed": "~"}
    for row in rows:
        key = " ".join(str(value) for name, value in row.items() if name not in ("table", "what", "split"))
        print(f"{signs[row['what']]} {row['table']}/{row['split']} {key}")


def show_accounts(version: Version, accounts: Sequence[Account]) -> None:
    """Print how rows came to be."""
    for account in accounts:
        _print_line(f"[bold]{escape(account.name)}[/bold] · {version.corpus} {version.name}, table {account.table}")
        if account.table == "rejects" and account.row["file"] is not None:
            line = f", line {account.row['line']}" if account.row["line"] is not None else ""
            _print_line(f"  read from {escape(account.row['file'])}{line}")
        for sentence in account.says:
            _print_line(f"  {escape(sentence)}")
        for column, linked in account.links.items():
            _print_line(f"  [bold]{column}[/bold] {escape(linked.name)}")
            for sentence in linked.says:
                _print_line(f"    {escape(sentence)}")
        for table, count in account.used_in.items():
            _print_line(f"  used in {count:,} rows of {table}")
        for step in account.through:
            gone = {**step.rejected, **step.dropped}
            lost = "; ".join(f"{reason}: {count:,}" for reason, count in gone.items() if count)
            kept = f"kept {step.kept:,} of {step.entered:,} {step.unit}"
            _print_line(f"  [dim]step {step.name}: {kept}{f' ({escape(lost)})' if lost else ''}[/dim]")


def show_findings(findings: Sequence[Finding]) -> None:
    """Print the checks of `earmark doctor`."""
    grid = grid_of("check", "state", "detail")
    for finding in findings:
        grid.add_row(finding.what, f"[{_STATE_COLOURS[finding.state]}]{finding.state}[/]", escape(finding.detail))
    console.print(grid)


def show_ledger(stats: Mapping[str, Any]) -> None:
    """Print counts of requests, answers and cost by model."""
    _print_line(f"{escape(str(stats['ledger']))}, {stats['bytes']:,} bytes")
    grid = grid_of("model", "answered", "rejected", "open", "attempts", "failed", "tokens in", "out", "USD", right=8)
    for model, facts in stats["models"].items():
        names = ("answered", "rejected", "open", "attempts", "failed_attempts", "input_tokens", "output_tokens")
        counts = [f"{facts.get(name, 0):,}" for name in names]
        grid.add_row(escape(model), *counts, f"{facts.get('cost_usd', 0):.2f}")
    console.print(grid)
    for model, facts in stats["models"].items():
        for what in ("rejects", "faults"):
            for reason, count in facts.get(what, {}).items():
                _print_line(f"{escape(model)}: {what.removesuffix('s')} {reason} {count:,}")
    for state, facts in stats["batches"].items():
        _print_line(f"batches {state}: {facts['batches']:,} with {facts['requests']:,} requests")


def show_offers(version: Version, offers: Sequence[Offer]) -> None:
    """Print the views of a version and the formats that can hold each."""
    for name, view in {offer.view.name: offer.view for offer in offers}.items():
        of_view = [offer for offer in offers if offer.view.name == name]
        _print_line(f"[bold]{name}[/bold]  {escape(view.says)}")
        _print_line(f"  for {', '.join(offer.format for offer in of_view if offer.refusal is None)}")
        refused: dict[str, list[str]] = {}
        for offer in of_view:
            if offer.refusal is not None:
                refused.setdefault(offer.refusal.partition(", and ")[0], []).append(offer.format)
        for reason, formats in refused.items():
            _print_line(f"  [dim]not for {', '.join(formats)}: {escape(reason)}[/dim]")
    grid = grid_of("format", "read by")
    for format_, says in {offer.format: offer.says for offer in offers}.items():
        grid.add_row(format_, escape(says))
    console.print(grid)
    _print_line("--blind leaves clips out of prompts: a control without audio, for text trainers")
    _print_line("export any table unchanged: --for jsonl or --for webdataset, with --table NAME")
    _print_line(
        escape(f"for example: earmark export {version.corpus}@{version.name} --for FORMAT --view VIEW --out DIR")
    )


def show_export(record: Mapping[str, Any], folder: Path, command: str) -> None:
    """Print what was exported, where to, and how to use it."""
    name = record.get("view") or record["table"]
    counts = ", ".join(f"{split} {count:,}" for split, count in record["rows"].items())
    clips = f"; {record['clips']:,} clips" if record["clips"] else ""
    _print_line(escape(f"{record['corpus']} {record['version']}: {name} for {record['format']} in {folder}"))
    _print_line(escape(f"rows: {counts}{clips}"))
    if command:
        _print_line(escape(f"use it there: {command}"))


def show_reviews(facts: Mapping[str, Any], out: Path | None) -> None:
    """Print the reviews: how many, what is flagged, how far reviewers agree."""
    of = f"{facts['corpus']} {facts['version']}"
    _print_line(
        f"{facts['reviews']:,} reviews by {len(facts['reviewers'])} reviewers; {facts['counted']:,} of them match "
        f"{of}; {facts['reviewed_questions']:,} of its {facts['questions']:,} questions are reviewed"
    )
    for reject in facts["refused"]:
        _print_line(escape(f"not read: {reject['source_file']}, {reject['line']}: {reject['detail']}"))
    flagged = facts["flagged"]
    _print_line(
        f"flagged: {len(flagged['any']):,} by any reviewer, {len(flagged['majority']):,} by a majority, "
        f"{len(flagged['all']):,} by all"
    )
    if facts["agreement"]:
        grid = grid_of("criterion", "reviewer", "and", "reviewed by both", "agree", "Cohen's kappa", right=3)
        for one in facts["agreement"]:
            kappa = "–" if one.kappa is None else f"{one.kappa:.2f}"
            grid.add_row(
                one.criterion.replace("_", " "), *one.reviewers, f"{one.both:,}", f"{100 * one.share:.0f} %", kappa
            )
        console.print(grid)
    if facts["alpha"]:
        grid = grid_of(
            "criterion, all reviewers", "questions", "reviews", "agree", "Krippendorff's alpha", "95 %", right=1
        )
        for all_ in facts["alpha"]:
            alpha = "–" if all_.alpha is None else f"{all_.alpha:.2f}"
            within = "–" if all_.low is None else f"{all_.low:.2f} to {all_.high:.2f}"
            counts = f"{all_.questions:,}", f"{all_.reviews:,}", f"{100 * all_.share:.0f} %"
            grid.add_row(all_.criterion.replace("_", " "), *counts, alpha, within)
        console.print(grid)
    if out is not None:
        _print_line(escape(f"written to {out}; add it to the config as [review] files = [...] and build again"))


def show_withdrawal(facts: Mapping[str, Any]) -> None:
    """Print which versions contain the withdrawn data, and the new versions without it."""
    grid = grid_of("corpus", "version", "rows to remove")
    for one in facts["holding"]:
        rows = ", ".join(f"{table} {count:,}" for table, count in one["rows"].items())
        grid.add_row(one["corpus"], one["version"], rows if one["newest"] else f"{rows} (an earlier version)")
    console.print(grid)
    if facts["dry_run"]:
        _print_line(
            "dry run, nothing changed: each newest version would get a successor without these rows, "
            "and the versions above could no longer be published"
        )
        return
    for made in facts["made"]:
        _print_line(f"[bold]{made['corpus']} {made['version']}[/bold] is the successor without it")
    _print_line(f"recorded as withdrawal {facts['withdrawal']}; the versions above can no longer be published")
    _print_line(
        "not changed: the versions above, the ledger, stored audio and your inputs; "
        "delete the data there yourself if it must go"
    )


def evaluation_facts(corpus: Corpus) -> list[dict[str, Any]]:
    """A corpus's evaluations as JSON."""
    return [
        {
            "evaluation": one.name,
            "kind": one.kind,
            "says": one.says,
            "modes": [mode.name for mode in one.modes],
            "groups": list(one.groups),
            "sides": list(one.sides) if one.kind == "preference" else None,
            "order": one.order or None,
        }
        for one in corpus.evaluations
    ]


def show_evaluations(version: Version, corpus: Corpus) -> None:
    """Print what a version can measure, and how."""
    if not corpus.evaluations:
        _print_line(f"{version.corpus} has no evaluation: it is not made for testing models")
        return
    grid = grid_of("evaluation", "kind", "what is measured", "modes", "groups")
    for one in corpus.evaluations:
        modes = ", ".join(mode.name for mode in one.modes) or "scores only"
        grid.add_row(one.name, one.kind.replace("_", "/"), one.says, modes, ", ".join(one.groups))
    console.print(grid)
    _print_line(f"evaluate a model: earmark judge {version.corpus}@{version.name} --annotator SPEC --evaluation NAME")


def show_evaluation(facts: Mapping[str, Any], folder: Path) -> None:
    """Print the table of results."""
    from earmark.tasks.evaluation.results import cells, headings, notes, source_of

    _print_line(f"[bold]{facts['corpus']} {facts['version']}[/bold], {facts['evaluation']}: {escape(source_of(facts))}")
    grid = grid_of(*headings(facts), right=len(headings(facts)) - 1)
    for row in cells(facts):
        grid.add_row(*map(escape, row))
    console.print(grid)
    for note in notes(facts):
        _print_line(f"note: {escape(note)}")
    _print_line(f"predictions and table in {escape(str(folder))}")


def show_template(done: Mapping[str, Any]) -> None:
    """Print what was written, and how it is read when it is filled."""
    path = escape(done["template"])
    _print_line(f"{done['rows']:,} rows to fill in {path}; then: earmark judge … {done['option']} {path}")


def show_unfed(evaluations: Sequence[str]) -> None:
    """Print the evaluations that a file of clips' scores says nothing of."""
    if evaluations:
        _print_line(f"note: not measured, because the file has none of their clips: {', '.join(evaluations)}")


def _show_rows(versions: Sequence[Version]) -> None:
    grid = grid_of("corpus", "version", "table", "split", "rows", right=1)
    for version in versions:
        name = (version.corpus, version.name)
        for table, splits in version.manifest.rows.items():
            for split, count in splits.items():
                grid.add_row(*name, table, split, f"{count:,}")
                name = ("", "")
    console.print(grid)


def _print_line(text: str) -> None:
    """Print a line without wrapping it: a script may read it."""
    console.print(text, soft_wrap=True)


def _load_line(version: Version) -> str:
    from earmark.tasks.build.registry import find_corpus

    folder = version.folder
    try:
        folder = folder.absolute().relative_to(Path.cwd())
    except ValueError:
        folder = folder.absolute()
    table = find_corpus(version.corpus).story.main_table
    return escape(f'from datasets import load_dataset; rows = load_dataset("{folder}", "{table}")')


def grid_of(*headings: str, right: int = 0) -> Grid:
    """A table whose last `right` columns hold numbers."""
    grid = Grid(box=None, header_style="bold", pad_edge=False)
    for index, heading in enumerate(headings):
        justify = "right" if index >= len(headings) - right else "left"
        grid.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return grid
