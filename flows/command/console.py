"""What the command line shows: tables for people, plain facts for scripts."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

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
_STATE_COLOURS = {"ok": "green", "off": "dim", "completed": "green", "running": "cyan", "skipped": "yellow"}


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
    names = {name: version.name if version else "–" for name, version in newest.items()}
    rows = [(one.name, one.source, one.holds, one.paper, names[one.name]) for one in corpora]
    console.print(grid_of("corpus", "made from", "holds", "method of", "newest", rows=rows))


def show_plan(facts: Mapping[str, Any]) -> None:
    """Print what a build would do and ask."""
    if facts["up_to_date"]:
        _print(f"{facts['corpus']}: already up to date: {facts['up_to_date']}; nothing would be built")
        return
    _print(f"{facts['corpus']}: would commit {facts['would_commit']} to {facts['store']}")
    if targets := facts["targets"]:
        totals: Counter[str] = Counter()
        for name, count in targets.items():
            totals[f"all {name.rpartition(', ')[2]}"] += count
        rows = [(name, f"{count:,}") for name, count in (targets | totals).items()]
        console.print(grid_of("to be made", "rows", rows=rows, right=1))
    asks = facts["asks"]
    if asks is None:
        _print("requests to models: none")
    else:
        for one in (asks, *(part for part in asks.values() if isinstance(part, Mapping))):
            show_questions(one)
    rows = [(name, digest[:16] + "…") for name, digest in facts["inputs"].items()]
    console.print(grid_of("input", "SHA-256", rows=rows))


def show_questions(asks: Mapping[str, Any]) -> None:
    """Print the requests to one model: what they are about, how many are answered, and the cost of the rest."""
    _print(f"requests to {asks['annotator']} about {asks['about']}: {asks['requests']:,}")
    _print(
        f"  already answered in the ledger: {asks['from_ledger']:,}; over the model's limits: {asks['over_limit']:,}"
    )
    _print(
        f"  to send: {asks['to_ask']:,} requests, about {asks['input_tokens']:,} tokens in, at most "
        f"{asks['most_output_tokens']:,} out, at most ${asks['most_usd']:,.2f}"
    )
    if asks.get("tries", 1) > 1:
        _print(f"  an answer that fails its check is requested again, at most {asks['tries']} times in all")


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
        _print(f"{version.corpus}: already up to date: {version.name}")
        return
    manifest = version.manifest
    _print(f" in {version.folder}", head=f"{version.corpus} {version.name}")
    _show_rows([version])
    if manifest.rejects:
        _print(f"rejects: {_counts(dict(sorted(manifest.rejects.items())))}")
    _show_notes(version)
    _print(_load_line(version.corpus, version.folder))


def _show_notes(version: Version) -> None:
    _print(*(f"note: {note}" for note in version.manifest.notes()))


def show_demo(built: Sequence[Built]) -> None:
    """Print all that the demo built, and how to load it."""
    _show_rows([one.version for one in built])
    for one in built:
        if one.version.manifest.notes():
            _print(f"\n{one.version.corpus}")
            _show_notes(one.version)
    _print("\nLoad a version:")
    for one in built:
        _print("  " + _load_line(one.version.corpus, one.version.folder))
    _print("\nOpen a report in a browser, to read and to listen:")
    _print(*(f"  {one.version.folder / 'report.html'}" for one in built))


def show_versions(corpus: str, versions: Sequence[Version], published: Sequence[Receipt] = ()) -> None:
    """Print a corpus's versions and where they were published."""
    from earmark.tasks.store.withdrawals import withdrawal_against

    if not versions:
        _print(f"{corpus}: no versions yet; build one with: earmark build {corpus} --config FILE")
        return
    _show_rows(versions)
    for version in versions:
        if withdrawal := withdrawal_against(version.folder.parent.parent, version.manifest):
            holds = "contains" if withdrawal.holds(version.manifest) else "was not searched for"
            _print(f"{version.name} {holds} data withdrawn on {withdrawal.withdrawn:%Y-%m-%d}; it cannot be published")
    for receipt in published:
        rows = sum(receipt.held_rows.values())
        part = f", without {rows:,} rows" if rows else ""
        part += ", without audio" if receipt.held_audio else ""
        _print(
            f"{receipt.version} published {receipt.published:%Y-%m-%d} to {receipt.repo}"
            f"{f', branch {receipt.branch}' if receipt.branch else ''}"
            f" (commit {receipt.commit[:12]}{part})"
        )


def show_publication_plan(facts: Mapping[str, Any]) -> None:
    """Print what publishing would send and what is there."""
    name = f"{facts['corpus']} {facts['version']}"
    if facts["published"]:
        _print(f"{name}: already published to {facts['url']}, commit {facts['published'][:12]}; nothing would be sent")
    else:
        kind = "private" if facts["private"] else "public"
        there = f"{facts['there']:,} files are there" if facts["exists"] else "it would be made"
        if facts["unreachable"]:
            there = "what is there is not known"
            _print(f"no comparison with {facts['repo']}: {facts['unreachable']}")
        _print(f"{name}: would be published to {facts['url']} ({kind}; branch {facts['branch']}; {there})")
        sizes = {**facts["upload"], f"{len(facts['upload']):,} files": sum(facts["upload"].values())}
        rows = [(path, f"{size:,}") for path, size in sizes.items()]
        console.print(grid_of("upload", "bytes", rows=rows, right=1))
        for what, key in (("delete", "delete"), ("left alone", "foreign")):
            _print(*(f"{what}: {path}" for path in facts[key]))
    _show_unpublished(facts)
    for source, terms in facts["licences"].items():
        stated = terms["licence"] or "not stated"
        _print(f"licence of {source}: {stated}; may be published: {terms['redistribute']}")
    _print(*(f"finding: {finding}" for finding in facts["findings"]))


def show_publication(facts: Mapping[str, Any]) -> None:
    """Print where a version was published, and how to load it."""
    name = f"{facts['corpus']} {facts['version']}"
    done = f"{facts['uploaded']:,} files sent" if facts["uploaded"] else "all was there already"
    where = f"branch {facts['branch']}" if facts["branch"] else f"tag {facts['tag']}"
    _print(f" is published at {facts['url']}, {where}, commit {facts['commit'][:12]}; {done}", head=name)
    if facts.get("collection"):
        _print(f"in the collection {facts['collection']}")
    _show_unpublished(facts)
    _print(_load_line(facts["corpus"], facts["repo"], f', revision="{facts["branch"] or facts["tag"]}"'))


def _show_unpublished(facts: Mapping[str, Any]) -> None:
    for what, key in (("rows", "held_rows"), ("clips", "held_audio")):
        if facts[key]:
            _print(f"not published {what}: {_counts(facts[key])}")


def show_runs(runs: Sequence[Run]) -> None:
    """Print the runs, newest last, and how to go on with those that did not end well."""
    if not runs:
        _print("no runs yet; start one with: earmark build CORPUS --config FILE")
        return
    console.print(runs_grid(runs))
    last = {(run.corpus, run.config): run for run in runs}
    for run in last.values():
        if run.current_state() in ("failed", "interrupted"):
            _print(f"go on with: earmark resume {run.run}")


def runs_grid(runs: Sequence[Run]) -> Grid:
    """The runs as a table."""

    def outcome(run: Run, state: str) -> str:
        return run.version or run.error or ("the process has ended" if state == "interrupted" else "")

    rows = [
        (run.run, run.corpus, f"{run.started:%Y-%m-%d %H:%M:%S}", _coloured(state), outcome(run, state))
        for run in runs
        for state in [run.current_state()]
    ]
    return grid_of("run", "corpus", "started (UTC)", "state", "outcome", rows=rows)


def show_standings(stands: Sequence[Standing]) -> None:
    """Print what a rebuild would do with each corpus, in its order."""
    words = {"nothing": "up to date", "build": "would be built", "wait": "waits for others", "fail": "cannot be built"}
    rows = [(one.corpus, words[one.would], one.version or "–", one.detail, one.publish or "") for one in stands]
    console.print(grid_of("corpus", "state", "version", "because", "would publish to", rows=rows))


def show_endings(endings: Sequence[Ending]) -> None:
    """Print how each corpus came out of a rebuild, and what to do about those that did not come out well."""
    rows = [
        (one.corpus, _coloured(one.state, "green" if one.good else "red"), one.version or "–", one.detail)
        for one in endings
    ]
    console.print(grid_of("corpus", "state", "version", "more", rows=rows))
    for one in endings:
        if one.todo:
            _print(f"{one.corpus}: {one.todo}")


def show_diff(old: Version, new: Version, changes: Sequence[Change], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the counts of changes, then the rows if there are any."""
    _print(f"{old.corpus}: {old.name} → {new.name}")
    counts = [
        (one.table, one.split, *(f"{count:,}" for count in (one.added, one.removed, one.changed, one.same)))
        for one in changes
    ]
    console.print(grid_of("table", "split", "added", "removed", "changed", "same", rows=counts, right=4))
    signs = {"added": "+", "removed": "-", "changed": "~"}
    for row in rows:
        key = " ".join(str(value) for name, value in row.items() if name not in ("table", "what", "split"))
        print(f"{signs[row['what']]} {row['table']}/{row['split']} {key}")


def show_accounts(version: Version, accounts: Sequence[Account]) -> None:
    """Print how rows came to be."""
    for account in accounts:
        _print(f" · {version.corpus} {version.name}, table {account.table}", head=account.name)
        if account.table == "rejects" and account.row["file"] is not None:
            line = f", line {account.row['line']}" if account.row["line"] is not None else ""
            _print(f"  read from {account.row['file']}{line}")
        _print(*(f"  {sentence}" for sentence in account.says))
        for column, linked in account.links.items():
            _print(f" {linked.name}", head=f"  {column}")
            _print(*(f"    {sentence}" for sentence in linked.says))
        for table, count in account.used_in.items():
            _print(f"  used in {count:,} rows of {table}")
        for step in account.through:
            gone = {**step.rejected, **step.dropped}
            lost = "; ".join(f"{reason}: {count:,}" for reason, count in gone.items() if count)
            kept = f"kept {step.kept:,} of {step.entered:,} {step.unit}"
            _print(f"  step {step.name}: {kept}{f' ({lost})' if lost else ''}", style="dim")


def show_findings(findings: Sequence[Finding]) -> None:
    """Print the checks of `earmark doctor`."""
    rows = [(finding.what, _coloured(finding.state), finding.detail) for finding in findings]
    console.print(grid_of("check", "state", "detail", rows=rows))


def show_prompts(prompts: Sequence[Mapping[str, str]]) -> None:
    """Print prompts by corpus, with the source of each."""
    console.print(grid_of("corpus", "prompt", "source", rows=[tuple(one.values()) for one in prompts]))


def show_ledger(stats: Mapping[str, Any]) -> None:
    """Print counts of requests, answers and cost by model."""
    _print(f"{stats['ledger']}, {stats['bytes']:,} bytes")
    columns = {
        **{name: name for name in ("answered", "rejected", "open", "attempts")},
        **{"failed": "failed_attempts", "tokens in": "input_tokens", "out": "output_tokens"},
    }
    rows = [
        (model, *(f"{facts.get(key, 0):,}" for key in columns.values()), f"{facts.get('cost_usd', 0):.2f}")
        for model, facts in stats["models"].items()
    ]
    console.print(grid_of("model", *columns, "USD", rows=rows, right=8))
    for model, facts in stats["models"].items():
        for what in ("rejects", "faults"):
            for reason, count in facts.get(what, {}).items():
                _print(f"{model}: {what.removesuffix('s')} {reason} {count:,}")
    for state, facts in stats["batches"].items():
        _print(f"batches {state}: {facts['batches']:,} with {facts['requests']:,} requests")


def show_offers(version: Version, offers: Sequence[Offer]) -> None:
    """Print the views of a version and the formats that can hold each."""
    for name, view in {offer.view.name: offer.view for offer in offers}.items():
        of_view = [offer for offer in offers if offer.view.name == name]
        _print(f"  {view.says}", head=name)
        _print(f"  for {', '.join(offer.format for offer in of_view if offer.refusal is None)}")
        refused: dict[str, list[str]] = {}
        for offer in of_view:
            if offer.refusal is not None:
                refused.setdefault(offer.refusal.partition(", and ")[0], []).append(offer.format)
        for reason, formats in refused.items():
            _print(f"  not for {', '.join(formats)}: {reason}", style="dim")
    console.print(grid_of("format", "read by", rows={offer.format: offer.says for offer in offers}.items()))
    _print("--blind leaves clips out of prompts: a control without audio, for text trainers")
    _print("export any table unchanged: --for jsonl or --for webdataset, with --table NAME")
    _print("what a CLAP model makes of its clips: --for embeddings, with --clap MODEL")
    _print(f"for example: earmark export {version.corpus}@{version.name} --for FORMAT --view VIEW --out DIR")


def show_export(record: Mapping[str, Any], folder: Path, command: str) -> None:
    """Print what was exported, where to, and how to use it."""
    name = record.get("view") or record["table"]
    clips = f"; {record['clips']:,} clips" if record["clips"] else ""
    _print(f"{record['corpus']} {record['version']}: {name} for {record['format']} in {folder}")
    _print(f"rows: {_counts(record['rows'])}{clips}")
    if command:
        _print(f"use it there: {command}")


def show_reviews(facts: Mapping[str, Any], out: Path | None) -> None:
    """Print the reviews: how many, what is flagged, how far reviewers agree."""
    of = f"{facts['corpus']} {facts['version']}"
    _print(
        f"{facts['reviews']:,} reviews by {len(facts['reviewers'])} reviewers; {facts['counted']:,} of them match "
        f"{of}; {facts['reviewed_questions']:,} of its {facts['questions']:,} questions are reviewed"
    )
    _print(*(f"not read: {reject['source_file']}, {reject['line']}: {reject['detail']}" for reject in facts["refused"]))
    flagged = facts["flagged"]
    _print(
        f"flagged: {len(flagged['any']):,} by any reviewer, {len(flagged['majority']):,} by a majority, "
        f"{len(flagged['all']):,} by all"
    )
    if facts["agreement"]:
        pairs = [
            (one.criterion.replace("_", " "), *one.reviewers, *_shared(one.both, one.share), _two_digits(one.kappa))
            for one in facts["agreement"]
        ]
        headings = ("criterion", "reviewer", "and", "reviewed by both", "agree", "Cohen's kappa")
        console.print(grid_of(*headings, rows=pairs, right=3))
    if facts["alpha"]:
        alphas = [
            (
                *(one.criterion.replace("_", " "), f"{one.questions:,}", *_shared(one.reviews, one.share)),
                *(_two_digits(one.alpha), "–" if one.low is None else f"{one.low:.2f} to {one.high:.2f}"),
            )
            for one in facts["alpha"]
        ]
        headings = ("criterion, all reviewers", "questions", "reviews", "agree", "Krippendorff's alpha", "95 %")
        console.print(grid_of(*headings, rows=alphas, right=5))
    if out is not None:
        _print(f"written to {out}; add it to the config as [review] files = [...] and build again")


def show_withdrawal(facts: Mapping[str, Any]) -> None:
    """Print which versions contain the withdrawn data, and the new versions without it."""
    rows = [
        (one["corpus"], one["version"], _counts(one["rows"]) + ("" if one["newest"] else " (an earlier version)"))
        for one in facts["holding"]
    ]
    console.print(grid_of("corpus", "version", "rows to remove", rows=rows))
    if facts["dry_run"]:
        _print(
            "dry run, nothing changed: each newest version would get a successor without these rows, "
            "and the versions above could no longer be published"
        )
        return
    for made in facts["made"]:
        _print(" is the successor without it", head=f"{made['corpus']} {made['version']}")
    _print(f"recorded as withdrawal {facts['withdrawal']}; the versions above can no longer be published")
    _print(
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
        _print(f"{version.corpus} has no evaluation: it is not made for testing models")
        return
    rows = [
        (
            *(one.name, one.kind.replace("_", "/"), one.says),
            *(", ".join(mode.name for mode in one.modes) or "scores only", ", ".join(one.groups)),
        )
        for one in corpus.evaluations
    ]
    console.print(grid_of("evaluation", "kind", "what is measured", "modes", "groups", rows=rows))
    _print(f"evaluate a model: earmark judge {version.corpus}@{version.name} --annotator SPEC --evaluation NAME")


def show_evaluation(facts: Mapping[str, Any], folder: Path) -> None:
    """Print the table of results."""
    from earmark.tasks.evaluation.results import cells, headings, notes, source_of

    _print(f", {facts['evaluation']}: {source_of(facts)}", head=f"{facts['corpus']} {facts['version']}")
    console.print(grid_of(*headings(facts), rows=cells(facts), right=len(headings(facts)) - 1))
    _print(*(f"note: {note}" for note in notes(facts)), f"predictions and table in {folder}")


def show_comparison(facts: Mapping[str, Any], folder: Path) -> None:
    """Print models side by side."""
    from earmark.tasks.evaluation.comparison import grids, notes

    for title, head, rows in grids(facts):
        _print(f", {title}", head=f"{facts['corpus']} {facts['version']}")
        console.print(grid_of(*head, rows=rows, right=len(head) - 1))
    _print(*(f"note: {note}" for note in notes(facts)), f"tables and plot in {folder}")


def show_ranking(facts: Mapping[str, Any], folder: Path) -> None:
    """Print the leaderboards of systems."""
    from earmark.tasks.evaluation.ranking import grids, notes

    for title, head, rows in grids(facts):
        _print(title, style="bold")
        console.print(grid_of(*head, rows=rows, right=3))
    _print(*(f"note: {note}" for note in notes(facts)), f"boards, and who wins against whom, in {folder}")


def _show_rows(versions: Sequence[Version]) -> None:
    rows = []
    for version in versions:
        of_tables = [(name, *split) for name, splits in version.manifest.rows.items() for split in splits.items()]
        for place, (table, split, count) in enumerate(of_tables):
            rows.append((*(("", "") if place else (version.corpus, version.name)), table, split, f"{count:,}"))
    console.print(grid_of("corpus", "version", "table", "split", "rows", rows=rows, right=1))


def _print(*lines: str, head: str = "", style: str = "") -> None:
    """Print lines as they are, without wrapping them: a script may read them. `head` begins each, in bold."""
    for line in lines:
        console.print(Text.assemble((head, "bold"), (line, style)), soft_wrap=True)


def _load_line(corpus: str, place: Path | str, more: str = "") -> str:
    from earmark.tasks.build.registry import find_corpus

    if isinstance(place, Path):
        place = place.absolute()
        place = place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place
    table = find_corpus(corpus).story.main_table
    return f'from datasets import load_dataset; rows = load_dataset("{place}", "{table}"{more})'


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _shared(count: int, share: float) -> tuple[str, str]:
    return f"{count:,}", f"{100 * share:.0f} %"


def _two_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _coloured(state: str, otherwise: str = "red") -> Text:
    return Text(state, _STATE_COLOURS.get(state, otherwise))


def grid_of(*headings: str, rows: Iterable[Sequence[str | Text]] = (), right: int = 0) -> Grid:
    """A table of rows, printed as they are; its last `right` columns hold numbers."""
    grid = Grid(box=None, header_style="bold", pad_edge=False)
    for index, heading in enumerate(headings):
        justify = "right" if index >= len(headings) - right else "left"
        grid.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        grid.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return grid
