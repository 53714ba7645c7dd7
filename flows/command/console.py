"""Print the command line's results: tables for people, plain facts for scripts."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from earmark.flows.command.ending import command
from earmark.flows.command.tables import TextTable
from earmark.schemas.unseen import on_terminal
from earmark.tasks.pipeline.progress import folded
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.result_table import ResultColumn, ResultPage, ResultTable, Value

if TYPE_CHECKING:
    from earmark.flows.command.rebuild_plan import CorpusState
    from earmark.flows.command.running import Built
    from earmark.schemas.corpus import Corpus
    from earmark.tasks.annotation.ledger_reports import LedgerCounts, ModelCounts, RequestFacts
    from earmark.tasks.exports.choosing import Offer
    from earmark.tasks.exports.readme import ExportRecord
    from earmark.tasks.release.pruning import PruneDecision
    from earmark.tasks.release.publishing import PublicationPlan
    from earmark.tasks.release.rebuilding import Ending
    from earmark.tasks.release.withdrawal import Search
    from earmark.tasks.store.diff import Cell, Change
    from earmark.tasks.store.explain import RowFacts
    from earmark.tasks.store.manifest import Parent
    from earmark.tasks.store.receipts import Receipt, SentVersion
    from earmark.tasks.store.runs import Run
    from earmark.tasks.store.versions import Store, Version

USD = ResultColumn("USD", decimals=2)
_LINE_ID = re.compile(r":[0-9]+#[0-9]+(-|$)")  # of a vote that its list gives no id
console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)  # files have room
errors = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 10_000)


def corpus_facts(corpus: Corpus, newest: Version | None, configs: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a corpus as JSON."""
    return {
        "corpus": corpus.name,
        "from": corpus.source,
        "holds": corpus.holds,
        "paper": corpus.paper,
        "newest": newest.name if newest else None,
        "configs": dict(configs),
    }


def configs_of(store: Store, corpus: str) -> dict[str, list[str]]:
    """Group a corpus's versions by their config from the store's runs; "" holds versions without one."""
    from earmark.tasks.store.runs import made_by

    runs, configs = made_by(store, corpus), dict[str, list[str]]()
    for version in store.versions(corpus):
        run = runs.get(version.name)
        limit = f" --limit {run.limit}" if run and run.limit else ""
        configs.setdefault(f"{_from_here(Path(run.config)) if run else ''}{limit}", []).append(version.name)
    return configs


def show_corpora(
    corpora: Sequence[Corpus], newest: Mapping[str, Version | None], configs: Mapping[str, Mapping[str, Sequence[str]]]
) -> None:
    """Print the corpora, and the versions of each config if several configs share a corpus."""
    names = {name: version.name if version else "–" for name, version in newest.items()}
    rows = [(one.name, one.source, one.holds, one.paper, names[one.name]) for one in corpora]
    print_table("corpus", "made from", "holds", "method of", "newest", rows=rows, drop=("method of",))
    for name, by_config in configs.items():
        if len(by_config) > 1:
            of = (f"{', '.join(names)} of {config or 'a config not known here'}" for config, names in by_config.items())
            tell(f": {'; '.join(of)}", head=name)


def version_facts(version: Version) -> dict[str, Any]:
    """Return a version as JSON."""
    manifest = version.manifest
    return {
        "corpus": version.corpus,
        "version": version.name,
        "folder": str(version.folder),
        "rows": manifest.rows,
        "rejects": manifest.rejects,
        "build_key": manifest.build_key,
        "digest": manifest.digest(),
        "notes": notes_of(version),
    }


def up_to_date_lines(corpus: str, name: str, newest: str | None, more: str = "") -> Iterator[str]:
    """Report that a build made nothing, and name the version of its config if not the newest."""
    yield f"{corpus}: already up to date: {name}{more}"
    if newest not in (None, name):
        yield (
            f"{newest}, the newest, is of another config or of other inputs. Commands take the newest unless told: "
            f"name {corpus}@{name}, or give export and eval --config"
        )


def show_built(built: Built) -> None:
    """Print a build's result, its rejects, and how to load it."""
    version = built.version
    if not built.new:
        tell(*up_to_date_lines(version.corpus, version.name, built.newest))
        return
    manifest = version.manifest
    tell(f" in {version.folder}", head=f"{version.corpus} {version.name}")
    _show_rows([version])
    if manifest.rejects:
        tell(f"rejects: {_counts(dict(sorted(manifest.rejects.items())))}")
    tell(*(f"note: {note}" for note in notes_of(version)))
    tell(_load_line(version.corpus, version.folder))


def notes_of(version: Version) -> list[str]:
    """Return notes for a version's readers: its steps' sentences, and whether it lacks rows, or rows for testing."""
    corpus, notes = find_corpus(version.corpus), version.manifest.notes()
    table = corpus.story.main_table
    rows = {split: count for split, count in version.manifest.rows.get(table, {}).items() if count}
    if not rows:
        return [*notes, f"no rows: {table}, the main table, is empty; its rejects say why"]
    if all(one.claims for one in corpus.evaluations) or {*rows} & {"test", "ood"}:
        return notes
    held = ", ".join(f"{split} {count:,}" for split, count in rows.items())
    return [
        *notes,
        f"no test rows: {table} holds {held}. What is trained on this version cannot be judged on it; the options of "
        f"{corpus.name} that give rows to test stand in its guide",
    ]


def show_demo(built: Sequence[Built]) -> None:
    """Print the demo's versions, and first steps."""
    versions = [one.version for one in built]
    rows = []
    for version in versions:
        main = find_corpus(version.corpus).story.main_table
        counts = version.manifest.rows
        rejects = sum(version.manifest.rejects.values())
        rows.append((version.corpus, version.name, main, sum(counts[main].values()), rejects))
    print_table("corpus", "version", "main table", "rows", "rejects", rows=rows)
    first = next((one for one in versions if one.corpus == "mos-preferences"), versions[0])
    folder = _from_here(first.folder)
    tell(
        "",
        "First, open a report in a browser, to read and to listen:",
        f"  {folder / 'report.html'}",
        "Load its rows:",
        f"  {_load_line(first.corpus, first.folder)}",
        "See all tables of a version, and how one row came to be:",
        f"  earmark list {first.corpus}",
        f"  earmark inspect explain {first.corpus} ROW   # its key, or a clip's file",
        "Then take a table of your own clips and ratings:",
        f"  earmark init {first.corpus} --from ratings.csv",
    )


def show_versions(place: Store, corpus: str, versions: Sequence[Version], published: Sequence[Receipt] = ()) -> None:
    """Print a corpus's versions and where they were published."""
    from earmark.tasks.store.withdrawals import withdrawal_against

    if not versions:
        tell(f"{corpus}: no versions yet; build one with: {command(place, 'build', corpus, '--config', 'FILE')}")
        return
    _show_rows(versions)
    for version in versions:
        if withdrawal := withdrawal_against(version.folder.parent.parent, version.manifest):
            holds = "contains" if withdrawal.holds(version.manifest) else "was not searched for"
            tell(f"{version.name} {holds} data withdrawn on {withdrawal.withdrawn:%Y-%m-%d}; it cannot be published")
    for receipt in published:
        rows = sum(receipt.held_rows.values())
        part = f", without {rows:,} rows" if rows else ""
        part += ", without audio" if receipt.held_audio else ""
        tell(
            f"{receipt.version} published {receipt.published:%Y-%m-%d} to {receipt.repo}"
            f"{f', branch {receipt.branch}' if receipt.branch else ''}"
            f" (commit {receipt.commit[:12]}{part})"
        )


def show_publication_plan(facts: PublicationPlan, no_audio: bool) -> None:
    """Print the files that publishing would send and the present files."""
    name = f"{facts['corpus']} {facts['version']}"
    if facts["published"]:
        tell(f"{name}: already published to {facts['url']}, commit {facts['published'][:12]}; nothing would be sent")
    else:
        kind = ("private" if facts["private"] else "public") + (", gated" if facts["gated"] else "")
        there = f"{facts['there']:,} files are there" if facts["exists"] else "it would be made"
        if facts["unreachable"]:
            there = "what is there is not known"
            tell(f"no comparison with {facts['repo']}: {facts['unreachable']}")
        tell(f"{name}: would be published to {facts['url']} ({kind}; branch {facts['branch']}; {there})")
        sizes = {**facts["upload"], f"{len(facts['upload']):,} files": sum(facts["upload"].values())}
        print_table("upload", "bytes", rows=sizes.items())
        tell(*(f"delete: {path}" for path in facts["delete"]), *(f"left alone: {path}" for path in facts["foreign"]))
    if views := facts["views"]:
        print_table("config", "rows", "clips", "clips held back", "bytes", rows=[(*one.values(),) for one in views])
    elif facts["offered"]:
        tell(f"further configs, with clips in their rows: --view {', '.join(facts['offered'])}")
    _show_unpublished(facts["held_rows"], facts["held_audio"], no_audio)
    for source, terms in facts["licences"].items():
        stated = terms["licence"] or "not stated"
        tell(f"licence of {source}: {stated}; may be published: {terms['redistribute']}")
    tell(*(f"finding: {finding}" for finding in facts["findings"]))


def show_publication(sent: SentVersion, no_audio: bool) -> None:
    """Print where a version was published, and how to load it."""
    done = f"{sent.uploaded:,} files sent" if sent.uploaded else "all was there already"
    where = f"branch {sent.branch}" if sent.branch else f"tag {sent.tag}"
    tell(
        f" is published at {sent.url}, {where}, commit {sent.commit[:12]}; {done}", head=f"{sent.corpus} {sent.version}"
    )
    if sent.collection:
        tell(f"in the collection {sent.collection}")
    _show_unpublished(sent.held_rows, sent.held_audio, no_audio)
    tell(_load_line(sent.corpus, sent.repo, f', revision="{sent.branch or sent.tag}"'))


def _show_unpublished(rows: Mapping[str, int], audio: Mapping[str, int], no_audio: bool) -> None:
    if rows:
        tell(f"rows held back by licences: {_counts(rows)}")
    if audio and no_audio:
        tell(f"clips held back by --no-audio: {_counts(audio)}")
    elif audio:
        tell(f"clips held back by licences: {_counts(audio)}")
        tell('clips of a source are published after a build with [licences.SOURCE] redistribute = "all"')


def show_runs(place: Store, runs: Sequence[Run]) -> None:
    """Print the runs, newest last, and how to continue the failed ones."""
    from earmark.tasks.store.runs import unsettled

    if not runs:
        tell(f"no runs yet; start one with: {command(place, 'build', 'CORPUS', '--config', 'FILE')}")
        return
    console.print(runs_grid(runs), crop=False)
    for run in unsettled(runs):
        if "nothing was committed" in (run.error or ""):  # it would end the same
            limit = ["--limit", run.limit] if run.limit else []
            again = command(place, "build", run.corpus, "--config", _from_here(Path(run.config)), *limit)
            tell(f"{run.run}: mend its config, then: {again}")
        elif run.current_state() in ("failed", "interrupted"):
            tell(f"go on with: {command(place, 'resume', run.run)}")


def runs_grid(runs: Sequence[Run]) -> TextTable:
    """Return the runs as a table."""

    def outcome(run: Run, state: str) -> str:
        return run.version or run.error or ("the process has ended" if state == "interrupted" else "")

    rows = [
        (run.run, run.corpus, f"{run.started:%Y-%m-%d %H:%M:%S}", state, outcome(run, state))
        for run in runs
        for state in [run.current_state()]
    ]
    headings = ("run", "corpus", "started (UTC)", "state", "outcome")
    return TextTable(ResultTable("", headings, tuple(rows), drop=("started (UTC)",)))


def show_standings(stands: Sequence[CorpusState]) -> None:
    """Print a rebuild's plan for each corpus, in its order."""
    words = {"nothing": "up to date", "build": "would be built", "wait": "waits for others", "fail": "cannot be built"}
    rows = [(one.corpus, words[one.would], one.version or "–", one.detail, one.publish or "") for one in stands]
    print_table("corpus", "state", "version", "because", "would publish to", rows=rows)


def show_endings(endings: Sequence[Ending]) -> None:
    """Print the result of a rebuild for each corpus, and the next step after a failure."""
    rows = [(one.corpus, one.state, one.version or "–", one.detail) for one in endings]
    print_table("corpus", "state", "version", "more", rows=rows)
    for one in endings:
        if one.todo:
            tell(f"{one.corpus}: {one.todo}")


def show_request(request: RequestFacts) -> None:
    """Print a request's model, the beginning of its texts, its answer and each attempt."""
    tell(f"{request['key'][:16]}… to {request['model']}: {request['state']}")
    for role, parts in request["body"]["messages"]:
        tell(*(f"  {role}: {_short(part.get('text', '…'))}" for part in parts if "text" in part))
    told = request["reason"] and f"{request['reason']}: {request['detail']}"
    tell(f"answer: {_short(told or request['answer'])}")
    rows = [
        (one["number"], one["status"], one["error_type"] or "", one["input_tokens"], one["output_tokens"],
         f"{one['latency_s']:.2f}", one["cost_usd"])
        for one in request["attempts"]
    ]  # fmt: skip
    print_table("attempt", "status", "fault", "tokens in", "out", "seconds", USD, rows=rows)
    tell("whole texts and raw responses: --json")


def show_pruned(decisions: Sequence[PruneDecision], freed: int, dry_run: bool) -> None:
    """Print each version with its fate, and the bytes freed."""
    gone = "would go" if dry_run else "removed"
    rows = [
        (one.version.corpus, one.version.name, "stays" if one.stays else gone, one.stays or "") for one in decisions
    ]
    print_table("corpus", "version", "fate", "because", rows=rows)
    count = sum(one.stays is None for one in decisions)
    tell(f"{count:,} versions {gone}, {freed:,} bytes {'would be ' if dry_run else ''}freed; the ledger stays")


def show_diff(
    old: Version, new: Version, changes: Sequence[Change], columns: Collection[tuple[int, Cell]],
    rows: Sequence[Mapping[str, Any]] = (), values: Sequence[Cell] = (),
) -> None:  # fmt: skip
    """Print the counts of changes, the changed columns with an example each, then the rows, if any."""
    tell(f"{old.corpus}: {old.name} → {new.name}")
    counts = [(one.table, one.split, one.added, one.removed, one.changed, one.same) for one in changes]
    print_table("table", "split", "added", "removed", "changed", "same", rows=counts)
    examples = [
        (one.table, one.column, count, f"{_short(one.old)} → {_short(one.new)} ({', '.join(map(str, one.key))})")
        for count, one in columns
    ]
    if examples:
        print_table("table", "column", "rows", f"for example, {old.name} → {new.name}", rows=examples)
    if any(_LINE_ID.search(str(part)) for _, one in columns for part in one.key):
        tell("note: ids such as FILE:LINE#1 count lines, as the list has no ids: a line more or less shifts later ones")
    by_row: dict[tuple[Any, ...], list[Cell]] = {}
    for one in values:
        by_row.setdefault((one.table, *one.key), []).append(one)
    signs = {"added": "+", "removed": "-", "changed": "~"}
    for row in rows:
        key = [value for name, value in row.items() if name not in ("table", "what", "split")]
        tell(f"{signs[row['what']]} {row['table']}/{row['split']} {' '.join(map(str, key))}")
        for one in by_row.get((row["table"], *key), ()) if row["what"] == "changed" else ():
            tell(f"    {one.column}: {_short(one.old)} → {_short(one.new)}")


def show_accounts(version: Version, accounts: Sequence[RowFacts]) -> None:
    """Print the origin of rows."""
    for account in accounts:
        tell(f" · {version.corpus} {version.name}, table {account.table}", head=account.name)
        if account.table == "rejects" and account.row["file"] is not None:
            line = f", line {account.row['line']}" if account.row["line"] is not None else ""
            tell(f"  read from {account.row['file']}{line}")
        tell(*(f"  {sentence}" for sentence in account.says))
        for column, linked in account.links.items():
            tell(f" {linked.name}", head=f"  {column}")
            tell(*(f"    {sentence}" for sentence in linked.says))
        for table, count in account.used_in.items():
            tell(f"  used in {count:,} row{'' if count == 1 else 's'} of {table}")
        for step in account.through:
            gone = {**step.rejected, **step.dropped}
            lost = "; ".join(f"{reason}: {count:,}" for reason, count in gone.items() if count)
            kept = f"kept {step.kept:,} of {step.entered:,} {step.unit}"
            tell(f"  step {step.name}: {kept}{f' ({lost})' if lost else ''}", style="dim")


def show_ledger(stats: LedgerCounts) -> None:
    """Print counts of requests, answers and cost by model."""
    tell(f"{stats['ledger']}, {stats['bytes']:,} bytes")
    columns = ("answered", "rejected", "open", "attempts", "failed", "tokens in", "out")
    rows = [
        (model, facts["answered"], facts["rejected"], facts["open"], facts.get("attempts", 0),
         facts.get("failed_attempts", 0), facts.get("input_tokens", 0), facts.get("output_tokens", 0), cost(facts))
        for model, facts in stats["models"].items()
    ]  # fmt: skip
    print_table("model", *columns, USD, rows=rows, drop=("attempts", "failed"))
    for model, facts in stats["models"].items():
        for what, counts in (("reject", facts.get("rejects", {})), ("fault", facts.get("faults", {}))):
            for reason, count in counts.items():
                tell(f"{model}: {what} {reason} {count:,}")
    for state, held in stats["batches"].items():
        tell(f"batches {state}: {held['batches']:,} with {held['requests']:,} requests")


def cost(facts: ModelCounts) -> str:
    """Return the cost of a model's answers in US dollars; say so if no prices were given for its tokens."""
    tokens = facts.get("input_tokens", 0) + facts.get("output_tokens", 0)
    return f"{facts.get('cost_usd', 0):.2f}" if facts.get("cost_usd") or not tokens else "no prices given"


def show_offers(place: Store, version: Version, offers: Sequence[Offer]) -> None:
    """Print the views of a version and the formats for each."""
    for name, view in {offer.view.name: offer.view for offer in offers}.items():
        of_view = [offer for offer in offers if offer.view.name == name]
        tell(f"  {view.says}", head=name)
        tell(f"  for {', '.join(offer.format for offer in of_view if offer.refusal is None)}")
        refused: dict[str, list[str]] = {}
        for offer in of_view:
            if offer.refusal is not None:
                refused.setdefault(offer.refusal.partition(", and ")[0], []).append(offer.format)
        for reason, formats in refused.items():
            tell(f"  not for {', '.join(formats)}: {reason}", style="dim")
    print_table("format", "read by", rows={offer.format: offer.says for offer in offers}.items())
    tell("--blind leaves clips out of prompts: a control without audio, for text trainers")
    tell("export any table unchanged: --for jsonl or --for webdataset, with --table NAME")
    tell("what a CLAP model makes of its clips: --for embeddings, with --clap MODEL")
    words = ("export", f"{version.corpus}@{version.name}", "--for", "FORMAT", "--view", "VIEW", "--out", "DIR")
    tell(f"for example: {command(place, *words)}")


def show_export(record: ExportRecord, folder: Path, use: str) -> None:
    """Print an export's content, its folder, and how to use it."""
    name = record.get("view") or record["table"]
    clips = f"; {record['clips']:,} clips" if record["clips"] else ""
    tell(f"{record['corpus']} {record['version']}: {name} for {record['format']} in {folder}")
    tell(f"rows: {_counts(record['rows'])}{clips}")
    if use:
        tell(f"use it there: {use}")


_UNCHANGED = (
    "not changed by a withdrawal: the versions above, the ledger, stored audio and your inputs; delete the data there "
    "yourself if it must go"
)


def show_withdrawal(search: Search, made: Sequence[Parent], sent: Sequence[Receipt], dry_run: bool) -> None:
    """Print the versions with withdrawn data, their publications, and the new versions without it."""
    rows = [
        (one.version.corpus, one.version.name, _counts(one.rows) + ("" if one.newest else " (an earlier version)"))
        for one in search.holdings
    ]
    print_table("corpus", "version", "rows to remove", rows=rows)
    for copy in sent:
        where = f"{copy.repo} as {copy.branch or copy.tag}"
        tell(f" is published to {where}: delete it there, or ask the owner to", head=f"{copy.corpus} {copy.version}")
    if dry_run:
        tell(
            "dry run, nothing changed: each newest version would get a successor without these rows, "
            "and the versions above could no longer be published"
        )
        tell(_UNCHANGED)
        return
    for one in made:
        tell(" is the successor without it", head=f"{one.corpus} {one.version}")
    tell(f"recorded as withdrawal {search.name}; the versions above can no longer be published")
    tell(_UNCHANGED)


def _show_rows(versions: Sequence[Version]) -> None:
    rows = []
    for version in versions:
        of_tables = [(name, *split) for name, splits in version.manifest.rows.items() for split in splits.items()]
        for place, (table, split, count) in enumerate(of_tables):
            rows.append((*(("", "") if place else (version.corpus, version.name)), table, split, count))
    print_table("corpus", "version", "table", "split", "rows", rows=rows)


def tell(*lines: str, head: str = "", style: str = "", place: Console | None = None) -> None:
    """Print lines, on a terminal broken at spaces. `head` begins each, in bold."""
    place = place or console
    for line in lines:
        whole = on_terminal(head + line)
        parts = [whole] if "load_dataset(" in line else folded(whole, place.width)  # keep code whole for copying
        for number, one in enumerate(parts):
            text = Text(one, style)
            if not number:
                text.stylize("bold", 0, len(head))
            place.print(text, soft_wrap=True)


def _load_line(corpus: str, place: Path | str, more: str = "") -> str:
    place = _from_here(place) if isinstance(place, Path) else place
    table = find_corpus(corpus).story.main_table
    return f'from datasets import load_dataset; rows = load_dataset("{place}", "{table}"{more})'


def _from_here(path: Path) -> Path:
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _short(value: Any) -> str:
    text = "–" if value is None else " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:39]}…"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def print_table(
    *columns: str | ResultColumn, rows: Iterable[Sequence[Value]] = (), drop: Sequence[str] = (), title: str = ""
) -> None:
    """Print rows below a title; `drop` lists columns to omit for lack of room."""
    print_result(ResultTable(title, columns, tuple(map(tuple, rows)), drop=tuple(drop)))


def print_result(table: ResultTable) -> None:
    """Print a table below its title and its sentence."""
    if table.title:
        tell("", head=table.title)
    if table.says:
        tell(table.says)
    console.print(TextTable(table), crop=False)


def print_page(page: ResultPage, *more: str) -> None:
    """Print the tables of a record, its notes, and more lines."""
    tell("", head=page.title)
    if page.says:
        tell(page.says)
    for table in page.tables:
        print_result(table)
    tell(*(f"note: {note}" for note in page.notes), *more)
