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
        _say(f"{facts['corpus']}: already up to date: {facts['up_to_date']}; nothing would be built")
        return
    _say(f"{facts['corpus']}: would commit {facts['would_commit']} to {escape(facts['store'])}")
    asks = facts["asks"]
    if asks is None:
        _say("questions to models: none")
    else:
        for facts_of in (asks, *(held for held in asks.values() if isinstance(held, Mapping))):
            show_questions(facts_of)
    grid = grid_of("input", "SHA-256")
    for name, digest in facts["inputs"].items():
        grid.add_row(escape(name), digest[:16] + "…")
    console.print(grid)


def show_questions(asks: Mapping[str, Any]) -> None:
    """Print what one model would be asked: what it is about, how much of it is answered, and the cost of the rest."""
    _say(f"questions to {escape(asks['annotator'])} about {asks['about']}: {asks['requests']:,}")
    _say(f"  answered in the ledger: {asks['from_ledger']:,}; beyond the model's limits: {asks['over_limit']:,}")
    _say(
        f"  to ask: {asks['to_ask']:,} calls, about {asks['input_tokens']:,} tokens in, at most "
        f"{asks['most_output_tokens']:,} out, at most ${asks['most_usd']:,.2f}"
    )
    if asks.get("tries", 1) > 1:
        _say(f"  what fails its check is asked again, up to {asks['tries']} times in all")


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
        _say(f"{version.corpus}: already up to date: {version.name}")
        return
    manifest = version.manifest
    _say(f"[bold]{version.corpus} {version.name}[/bold] in {escape(str(version.folder))}")
    _show_rows([version])
    if manifest.rejects:
        shown = ", ".join(f"{reason} {count:,}" for reason, count in sorted(manifest.rejects.items()))
        _say(f"rejects: {escape(shown)}")
    _show_notes(version)
    _say(_load_line(version))


def _show_notes(version: Version) -> None:
    for note in version.manifest.notes():
        _say(f"note: {escape(note)}")


def show_demo(built: Sequence[Built]) -> None:
    """Print all that the demo built, and how to load it."""
    _show_rows([one.version for one in built])
    for one in built:
        if one.version.manifest.notes():
            _say(f"\n{one.version.corpus}")
            _show_notes(one.version)
    _say("\nLoad one, for example:")
    for one in built:
        _say("  " + _load_line(one.version))
    _say("\nLook at one and listen to it, in a browser:")
    for one in built:
        _say(f"  {one.version.folder / 'report.html'}")


def show_versions(corpus: str, versions: Sequence[Version], published: Sequence[Receipt] = ()) -> None:
    """Print a corpus's versions and where they were published."""
    from earmark.tasks.store.withdrawals import withdrawal_against

    if not versions:
        _say(f"{corpus}: no versions yet; build one with: earmark build {corpus} --config FILE")
        return
    _show_rows(versions)
    for version in versions:
        if withdrawal := withdrawal_against(version.folder.parent.parent, version.manifest):
            holds = "holds" if withdrawal.holds(version.manifest) else "was not looked through for"
            _say(
                f"{version.name} {holds} what was withdrawn on {withdrawal.withdrawn:%Y-%m-%d}; it cannot be published"
            )
    for receipt in published:
        held = sum(receipt.held_rows.values())
        part = f", {held:,} rows held back" if held else ""
        part += ", audio held back" if receipt.held_audio else ""
        _say(
            f"{receipt.version} published {receipt.published:%Y-%m-%d} to {escape(receipt.repo)}"
            f" (commit {receipt.commit[:12]}{part})"
        )


def show_publication_plan(facts: Mapping[str, Any]) -> None:
    """Print what publishing would send and what is there."""
    name = f"{facts['corpus']} {facts['version']}"
    if facts["published"]:
        _say(f"{name}: already published to {facts['url']}, commit {facts['published'][:12]}; nothing would be sent")
    else:
        kind = "private" if facts["private"] else "public"
        there = f"{facts['there']:,} files are there" if facts["exists"] else "it would be made"
        if facts["unreachable"]:
            there = "what is there is not known"
            _say(f"no comparison with {facts['repo']}: {escape(facts['unreachable'])}")
        _say(f"{name}: would be published to {facts['url']} ({kind}; {there})")
        grid = grid_of("upload", "bytes", right=1)
        for path, size in facts["upload"].items():
            grid.add_row(escape(path), f"{size:,}")
        grid.add_row(f"{len(facts['upload']):,} files", f"{sum(facts['upload'].values()):,}")
        console.print(grid)
        for path in facts["delete"]:
            _say(f"delete: {escape(path)}")
        for path in facts["foreign"]:
            _say(f"left alone: {escape(path)}")
    _show_held(facts)
    for source, terms in facts["licences"].items():
        stated = escape(terms["licence"] or "not stated")
        _say(f"licence of {escape(source)}: {stated}; may be published: {terms['redistribute']}")
    for finding in facts["findings"]:
        _say(f"finding: {escape(finding)}")


def show_publication(facts: Mapping[str, Any]) -> None:
    """Print where a version was published, and how to load it."""
    name = f"{facts['corpus']} {facts['version']}"
    done = f"{facts['uploaded']:,} files sent" if facts["uploaded"] else "all was there already"
    _say(
        f"[bold]{name}[/bold] is published at {facts['url']}, tag {facts['tag']}, commit {facts['commit'][:12]}; {done}"
    )
    _show_held(facts)
    from earmark.tasks.build.registry import find_corpus

    table = find_corpus(facts["corpus"]).story.main_table
    _say(
        escape(
            f'from datasets import load_dataset; rows = load_dataset("{facts["repo"]}", "{table}", '
            f'revision="{facts["tag"]}")'
        )
    )


def _show_held(facts: Mapping[str, Any]) -> None:
    for what, key in (("rows", "held_rows"), ("clips", "held_audio")):
        if facts[key]:
            _say(f"held back {what}: " + ", ".join(f"{name} {count:,}" for name, count in facts[key].items()))


def show_runs(runs: Sequence[Run]) -> None:
    """Print the runs, newest last, and how to go on with those that did not end well."""
    if not runs:
        _say("no runs yet; start one with: earmark build CORPUS --config FILE")
        return
    console.print(runs_grid(runs))
    last = {(run.corpus, run.config): run for run in runs}
    for run in last.values():
        if run.current_state() in ("failed", "interrupted"):
            _say(f"go on with: earmark resume {run.run}")


def runs_grid(runs: Sequence[Run]) -> Grid:
    """The runs as a table."""
    grid = grid_of("run", "corpus", "started (UTC)", "state", "outcome")
    for run in runs:
        state = run.current_state()
        outcome = run.version or run.error or ("process is gone" if state == "interrupted" else "")
        colour = _STATE_COLOURS.get(state, "red")
        grid.add_row(run.run, run.corpus, f"{run.started:%Y-%m-%d %H:%M:%S}", f"[{colour}]{state}[/]", escape(outcome))
    return grid


def show_standings(stands: Sequence[Standing]) -> None:
    """Print what a rebuild would do with each corpus, in its order."""
    words = {"nothing": "up to date", "build": "would be built", "wait": "waits", "fail": "cannot be built"}
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
            _say(escape(f"{one.corpus}: {one.todo}"))


def show_diff(old: Version, new: Version, changes: Sequence[Change], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the counts of changes, then the rows if they were asked for."""
    _say(f"{old.corpus}: {old.name} → {new.name}")
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
        _say(f"[bold]{escape(account.name)}[/bold] · {version.corpus} {version.name}, table {account.table}")
        if account.table == "rejects" and account.row["file"] is not None:
            line = f", line {account.row['line']}" if account.row["line"] is not None else ""
            _say(f"  read from {escape(account.row['file'])}{line}")
        for sentence in account.says:
            _say(f"  {escape(sentence)}")
        for column, linked in account.links.items():
            _say(f"  [bold]{column}[/bold] {escape(linked.name)}")
            for sentence in linked.says:
                _say(f"    {escape(sentence)}")
        for table, count in account.used_in.items():
            _say(f"  stands in {count:,} rows of {table}")
        for step in account.through:
            gone = {**step.rejected, **step.dropped}
            lost = "; ".join(f"{reason}: {count:,}" for reason, count in gone.items() if count)
            kept = f"kept {step.kept:,} of {step.entered:,} {step.unit}"
            _say(f"  [dim]step {step.name}: {kept}{f' ({escape(lost)})' if lost else ''}[/dim]")


def show_findings(findings: Sequence[Finding]) -> None:
    """Print what `earmark doctor` found."""
    grid = grid_of("what", "state", "found")
    for finding in findings:
        grid.add_row(finding.what, f"[{_STATE_COLOURS[finding.state]}]{finding.state}[/]", escape(finding.found))
    console.print(grid)


def show_ledger(found: Mapping[str, Any]) -> None:
    """Print what models were asked and what it cost."""
    _say(f"{escape(str(found['ledger']))}, {found['bytes']:,} bytes")
    grid = grid_of("model", "answered", "rejected", "open", "attempts", "failed", "tokens in", "out", "USD", right=8)
    for model, facts in found["models"].items():
        names = ("answered", "rejected", "open", "attempts", "failed_attempts", "input_tokens", "output_tokens")
        counts = [f"{facts.get(name, 0):,}" for name in names]
        grid.add_row(escape(model), *counts, f"{facts.get('cost_usd', 0):.2f}")
    console.print(grid)
    for model, facts in found["models"].items():
        for what in ("rejects", "faults"):
            for reason, count in facts.get(what, {}).items():
                _say(f"{escape(model)}: {what.removesuffix('s')} {reason} {count:,}")
    for state, facts in found["batches"].items():
        _say(f"batches {state}: {facts['batches']:,} with {facts['requests']:,} requests")


def show_offers(version: Version, offers: Sequence[Offer]) -> None:
    """Print the views of a version and the formats that can hold each."""
    for name, view in {offer.view.name: offer.view for offer in offers}.items():
        held = [offer for offer in offers if offer.view.name == name]
        _say(f"[bold]{name}[/bold]  {escape(view.says)}")
        _say(f"  for {', '.join(offer.format for offer in held if offer.refusal is None)}")
        refused: dict[str, list[str]] = {}
        for offer in held:
            if offer.refusal is not None:
                refused.setdefault(offer.refusal.partition(", and ")[0], []).append(offer.format)
        for reason, formats in refused.items():
            _say(f"  [dim]not for {', '.join(formats)}: {escape(reason)}[/dim]")
    grid = grid_of("format", "read by")
    for format_, says in {offer.format: offer.says for offer in offers}.items():
        grid.add_row(format_, escape(says))
    console.print(grid)
    _say("--blind leaves clips out of prompts, for trainers of text: a control that hears nothing")
    _say("any table as it is: --for jsonl or --for webdataset, with --table NAME")
    _say(escape(f"for example: earmark export {version.corpus}@{version.name} --for FORMAT --view VIEW --out DIR"))


def show_export(record: Mapping[str, Any], folder: Path, command: str) -> None:
    """Print what was exported, where to, and how to use it."""
    name = record.get("view") or record["table"]
    counts = ", ".join(f"{split} {count:,}" for split, count in record["rows"].items())
    clips = f"; {record['clips']:,} clips" if record["clips"] else ""
    _say(escape(f"{record['corpus']} {record['version']}: {name} for {record['format']} in {folder}"))
    _say(escape(f"rows: {counts}{clips}"))
    if command:
        _say(escape(f"use it there: {command}"))


def show_reviews(facts: Mapping[str, Any], out: Path | None) -> None:
    """Print what reviewers said."""
    of = f"{facts['corpus']} {facts['version']}"
    _say(
        f"{facts['reviews']:,} reviews by {len(facts['reviewers'])} reviewers; {facts['counted']:,} of questions as "
        f"{of} has them, {facts['reviewed_questions']:,} of {facts['questions']:,}"
    )
    for reject in facts["refused"]:
        _say(escape(f"not read: {reject['source_file']}, {reject['line']}: {reject['detail']}"))
    flagged = facts["flagged"]
    _say(
        f"flagged: {len(flagged['any']):,} by any reviewer, {len(flagged['majority']):,} by a majority, "
        f"{len(flagged['all']):,} by all"
    )
    if facts["agreement"]:
        grid = grid_of("criterion", "reviewer", "and", "questions of both", "agree", "Cohen's kappa", right=3)
        for one in facts["agreement"]:
            kappa = "–" if one.kappa is None else f"{one.kappa:.2f}"
            grid.add_row(
                one.criterion.replace("_", " "), *one.reviewers, f"{one.both:,}", f"{100 * one.share:.0f} %", kappa
            )
        console.print(grid)
    if facts["alpha"]:
        grid = grid_of("criterion, of all", "questions", "reviews", "agree", "Krippendorff's alpha", "95 %", right=1)
        for all_ in facts["alpha"]:
            alpha = "–" if all_.alpha is None else f"{all_.alpha:.2f}"
            within = "–" if all_.low is None else f"{all_.low:.2f} to {all_.high:.2f}"
            counts = f"{all_.questions:,}", f"{all_.reviews:,}", f"{100 * all_.share:.0f} %"
            grid.add_row(all_.criterion.replace("_", " "), *counts, alpha, within)
        console.print(grid)
    if out is not None:
        _say(escape(f"written to {out}; name it in the config, [review] files = [...], and build again"))


def show_withdrawal(facts: Mapping[str, Any]) -> None:
    """Print which versions hold what is withdrawn, and which were made without it."""
    grid = grid_of("corpus", "version", "rows that leave")
    for held in facts["holding"]:
        rows = ", ".join(f"{table} {count:,}" for table, count in held["rows"].items())
        grid.add_row(held["corpus"], held["version"], rows if held["newest"] else f"{rows} (an earlier version)")
    console.print(grid)
    if facts["dry_run"]:
        _say("nothing was changed; each newest version would get a successor, and none of these could be published")
        return
    for made in facts["made"]:
        _say(f"[bold]{made['corpus']} {made['version']}[/bold] holds nothing of it")
    _say(f"recorded as withdrawal {facts['withdrawal']}; none of the versions above can be published")
    _say("not touched: the versions above, the ledger, kept audio and your inputs; delete there what must go")


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
        _say(f"{version.corpus} declares no evaluation: it is not made to test models with")
        return
    grid = grid_of("evaluation", "kind", "what is measured", "modes", "groups")
    for one in corpus.evaluations:
        modes = ", ".join(mode.name for mode in one.modes) or "scores only"
        grid.add_row(one.name, one.kind.replace("_", "/"), one.says, modes, ", ".join(one.groups))
    console.print(grid)
    _say(f"ask a model: earmark judge {version.corpus}@{version.name} --annotator SPEC --evaluation NAME")


def show_evaluation(facts: Mapping[str, Any], folder: Path) -> None:
    """Print the table of results."""
    from earmark.tasks.evaluation.results import cells, headings, notes, source_of

    _say(f"[bold]{facts['corpus']} {facts['version']}[/bold], {facts['evaluation']}: {escape(source_of(facts))}")
    grid = grid_of(*headings(facts), right=len(headings(facts)) - 1)
    for row in cells(facts):
        grid.add_row(*map(escape, row))
    console.print(grid)
    for note in notes(facts):
        _say(f"note: {escape(note)}")
    _say(f"predictions and table in {escape(str(folder))}")


def show_template(done: Mapping[str, Any]) -> None:
    """Print what was written, and how it is read when it is filled."""
    path = escape(done["template"])
    _say(f"{done['rows']:,} rows to fill in {path}; then: earmark judge … {done['option']} {path}")


def show_unfed(evaluations: Sequence[str]) -> None:
    """Print the evaluations that a file of clips' scores says nothing of."""
    if evaluations:
        _say(f"note: not measured, for the file has none of their clips: {', '.join(evaluations)}")


def _show_rows(versions: Sequence[Version]) -> None:
    grid = grid_of("corpus", "version", "table", "split", "rows", right=1)
    for version in versions:
        name = (version.corpus, version.name)
        for table, splits in version.manifest.rows.items():
            for split, count in splits.items():
                grid.add_row(*name, table, split, f"{count:,}")
                name = ("", "")
    console.print(grid)


def _say(text: str) -> None:
    """Print a sentence without breaking it into lines: what reads it may be a script."""
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
