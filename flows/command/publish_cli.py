"""Implement the commands about the versions of a store: export, publish, pull, prune, withdraw."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.flows.command.options import (
    AudioRootOption,
    EachLimitOption,
    ForceOption,
    JsonOption,
    OutFolderOption,
    StoreOption,
    VersionArgument,
    VersionConfigOption,
    open_store,
    option,
    print_json,
)

if TYPE_CHECKING:
    from earmark.tasks.release.publishing import PublicationPlan
    from earmark.tasks.store.versions import Store


def publish(
    corpus: VersionArgument,
    repo: Annotated[str, option("ORG/NAME", "The dataset repository; created if it does not exist.")],
    dry_run: Annotated[bool, option("--dry-run", "Show what would be sent; send nothing.")] = False,
    private: Annotated[bool, option("--private", "Make a new repository private; refuse a public one.")] = False,
    no_audio: Annotated[bool, option("--no-audio", "Publish rows without their audio.")] = False,
    allow_builtin: Annotated[bool, option("--allow-builtin", "Publish labels of builtin annotators too.")] = False,
    allow_findings: Annotated[Path | None, option("FILE", "Reviewed findings: lines of [digits] and reason.")] = None,
    audited: Annotated[float | None, option("LEAST", "Refuse audits below this precision, 95 %.", min=0, max=1)] = None,
    view: Annotated[
        list[str] | None, option("NAME", "Add an export's view with its clips as a config; repeatable.")
    ] = None,
    gate: Annotated[Path | None, option("FILE", "Gate access; YAML with the card's extra_gated_… facts.")] = None,
    collection: Annotated[str | None, option("TITLE", "Add the repository to this collection of its owner.")] = None,
    branch: Annotated[str | None, option("NAME", "Publish to a branch for others to check; make no tag.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a version to the Hub as one commit and one tag. Interrupted uploads resume.

    The token comes from `HF_TOKEN`, or from `hf auth login`.

    **Examples:**

    `earmark publish mos-preferences --repo my-lab/mos-preferences --dry-run`

    `earmark publish mos-preferences@v2 --repo my-lab/mos-preferences --private`

    `earmark publish mos-preferences --repo my-lab/mos-preferences --branch trial`

    `earmark publish mos-preferences --repo my-lab/mos-preferences --view preferred-clips`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import stoppable
    from earmark.schemas.errors import HubError
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.store.receipts import SentVersion

    place = open_store(store)
    options: dict[str, Any] = {
        "private": private,
        "audio": not no_audio,
        "allow_builtin": allow_builtin,
        "allow_findings": str(allow_findings) if allow_findings else None,
        "audited": audited,
        "collection": collection,
        "branch": branch,
        "views": view or [],
        "gate": str(gate) if gate else None,
    }
    with stoppable("what was uploaded is kept, and unseen until all is there; run the same command again"), shown():
        plan = _forecast(corpus, repo, place, **options) if dry_run else None
        facts = plan or send(corpus, repo, str(place.root), options)
    if as_json:
        print_json(facts)
    elif plan is None:
        console.show_publication(SentVersion.model_validate(facts), no_audio)
    else:
        console.show_publication_plan(plan, no_audio)
    if plan and (findings := plan["findings"]):
        raise HubError(f"publishing would be refused: {len(findings)} findings of secrets or personal data")


def send(corpus: str, repo: str, store: str, options: dict[str, Any]) -> dict[str, Any]:
    """Run the flow's body here: one process and a few steps need no server of Prefect's."""
    from earmark.flows.publish import publish as run

    facts: dict[str, Any] = run.fn(corpus, repo, store, **options)
    return facts


def _forecast(
    corpus: str, repo: str, place: "Store", private: bool, audio: bool, allow_builtin: bool,
    allow_findings: str | None, audited: float | None, collection: str | None, branch: str | None,
    views: Sequence[str], gate: str | None,
) -> "PublicationPlan":  # fmt: skip
    from earmark.tasks.exports.playable import view_writer
    from earmark.tasks.exports.rows import count_rows
    from earmark.tasks.pipeline.registry import find_corpus
    from earmark.tasks.release.publishing import check_audited, check_fit, forecast, gathered, read_gate, read_reviewed
    from earmark.tasks.store.hub import Repo

    reviewed, terms = read_reviewed(allow_findings), read_gate(gate)
    version = place.find(corpus)
    known = find_corpus(version.corpus)
    check_fit(version, allow_builtin)
    check_audited(place, version, audited)
    with gathered(version, known, place, audio, view_writer(views, version, known, place), terms) as bundle:
        offered = [] if views else [view.name for view in known.views if count_rows(version, known, view)]
        return forecast(Repo(repo, branch), bundle, known, reviewed, private, terms, offered)


def withdraw(
    reason: Annotated[str, option("TEXT", "The reason, kept unpublished in the store; name nobody.")],
    annotator: Annotated[
        str | None, option("ID", "A person's id: as in the tables, or SOURCE/ID as in a vote export.")
    ] = None,
    clip: Annotated[str | None, option("SHA256", "The SHA-256 of a clip or image.")] = None,
    prompt: Annotated[str | None, option("ID", "The prompt's id.")] = None,
    corpus: Annotated[str | None, option("NAME", "Search this corpus alone.")] = None,
    dry_run: Annotated[bool, option("--dry-run", "Count the rows to remove; change nothing.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Withdraw an annotator, a clip or a prompt: make new versions without it and all that was made from it.

    Of each corpus that has it, the newest version gets a successor without its rows. The versions that hold it can no
    longer be published, and no later build brings it back. Those versions, copies published before, the ledger, stored
    audio and your inputs stay as they are: delete it there yourself. `--dry-run` counts the rows of each version.

    **Examples:**

    `earmark withdraw --annotator 3f1c9a… --reason "consent withdrawn" --dry-run`

    `earmark withdraw --clip 9f86d081… --reason "rights"`
    """
    from earmark.flows.command import console
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.pipeline.registry import corpora, find_corpus
    from earmark.tasks.release import withdrawal
    from earmark.tasks.store.receipts import receipts

    named = [(kind, value) for kind, value in (("annotator", annotator), ("clip", clip), ("prompt", prompt)) if value]
    if len(named) != 1:
        raise ConfigError("give exactly one of --annotator, --clip and --prompt")
    kind, value = named[0]
    value = value.lower() if kind == "clip" else value
    others: list[str] = []
    if kind == "clip" and not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ConfigError(f"expected a clip's SHA-256, 64 hexadecimal digits, found '{value}'")
    place = open_store(store)
    if corpus is not None:
        place.find(corpus)
    known = {name: find_corpus(name) for name, one in corpora().items() if not one.package or place.versions(name)}
    if kind == "annotator":
        value, *others = withdrawal.as_tables_have_it(place, value)
    with shown():
        search = withdrawal.search(place, known, kind, value, corpus, others)  # type: ignore[arg-type]
        made = () if dry_run else withdrawal.withdraw(place, known, search, reason).made
    held = {(one.version.corpus, one.version.name) for one in search.holdings}
    sent = [one for name in sorted({name for name, _ in held}) for one in receipts(place, name)]
    sent = [one for one in sent if (one.corpus, one.version) in held]
    copy = {"corpus", "version", "repo", "tag", "branch"}
    facts: dict[str, Any] = {
        "withdrawal": search.name,
        "dry_run": dry_run,
        "holding": [
            {"corpus": h.version.corpus, "version": h.version.name, "newest": h.newest, "rows": h.rows}
            for h in search.holdings
        ],
        "made": [{"corpus": one.corpus, "version": one.version} for one in made],
        "published": [one.model_dump(mode="json", include=copy) for one in sent],
    }
    print_json(facts) if as_json else console.show_withdrawal(search, made, sent, dry_run)


def export(
    corpus: VersionArgument,
    config: VersionConfigOption = None,
    format_: Annotated[str | None, option("--for FORMAT", "The trainer's format. Default: list all.")] = None,
    out: OutFolderOption = None,
    view: Annotated[str | None, option("NAME", "The view to export. Default: the first one that fits.")] = None,
    table: Annotated[str | None, option("NAME", "Export a table unchanged, for jsonl or webdataset.")] = None,
    split: Annotated[str | None, option("NAME", "Export only this split.")] = None,
    limit: EachLimitOption = None,
    blind: Annotated[bool, option("--blind", "Leave clips out of TRL's prompts: a control without audio.")] = False,
    audio_root: AudioRootOption = None,
    rollouts: Annotated[Path | None, option("DIR", "Leave out rows right in every draw of `eval rollouts`.")] = None,
    clap: Annotated[str | None, option("MODEL", "The CLAP model of embeddings: a folder or name.")] = None,
    force: ForceOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a version in the form that a trainer reads; without --for, list formats and views.

    **Examples:**

    `earmark export pseudo-preferences`

    `earmark export pseudo-preferences@v1 --for ms-swift --view musicality-clips --out exports/music`

    `earmark export mos-preferences --for jsonl --table pairs --split train --limit 1000 --out exports/pairs`

    `earmark export mos-preferences --for embeddings --clap laion/larger_clap_general --out exports/vectors`
    """
    from earmark.flows.command import console
    from earmark.flows.command.running import find_version
    from earmark.schemas.errors import ConfigError, StoreError
    from earmark.tasks.exports.choosing import ExportOptions, choose, offers
    from earmark.tasks.exports.export import export as write
    from earmark.tasks.exports.readme import command_of
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.pipeline.registry import find_corpus

    needs = {"--out": out, "--view": view, "--table": table, "--split": split, "--limit": limit, "--blind": blind,
             "--audio-root": audio_root, "--clap": clap, "--force": force}  # fmt: skip
    if format_ is None and (given := [name for name, value in needs.items() if value]):
        raise ConfigError(f"{', '.join(given)}: expected with --for FORMAT, found without; alone, formats are listed")
    place = open_store(store)
    version = find_version(place, corpus, config)
    known = find_corpus(version.corpus)
    if format_ is None:
        listed = offers(version, known)
        if as_json:
            print_json([{"view": o.view.name, "format": o.format, "refusal": o.refusal} for o in listed])
        else:
            console.show_offers(place, version, listed)
        return
    if rollouts is not None and table is not None:
        raise StoreError("--rollouts goes with a view, not with --table")
    if out is None:
        raise StoreError(f"the export for {format_} needs a folder: add --out DIR")
    wish = ExportOptions(format_, view, table, split, limit, blind, tuple(audio_root or ()), force, rollouts, clap)
    with shown():
        record = write(version, known, place, out, wish)
    if as_json:
        print_json({**record, "folder": str(out)})
    else:
        console.show_export(record, out, command_of(choose(version, known, wish), record))


def pull(
    repo: Annotated[
        str, typer.Argument(metavar="ORG/NAME[@vN]", help="The dataset repository: its newest version, or version N.")
    ],
    dry_run: Annotated[bool, option("--dry-run", "Show what would be pulled; download the manifest alone.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pull a published version from the Hub into the store, checked against its manifest.

    Then `inspect`, `eval`, `export` and builds take it as a version of your own. An interrupted pull resumes.

    **Examples:** `earmark pull my-lab/mos-preferences` · `earmark pull my-lab/mos-preferences@v2 --dry-run`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import command, stoppable
    from earmark.schemas.errors import HubError
    from earmark.schemas.places import VERSION
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.release.pulling import find_published
    from earmark.tasks.release.pulling import pull as bring
    from earmark.tasks.store.hub import Repo

    place = open_store(store)
    name, _, version = repo.partition("@")
    if "@" in repo and not VERSION.fullmatch(version):
        raise HubError(f"expected ORG/NAME or ORG/NAME@vN, found '{repo}'")
    with stoppable("what was downloaded is kept; run the same command again"), shown():
        published = find_published(Repo(name), version or None, place)
        if not dry_run:
            bring(published, place)
    manifest = published.manifest
    facts = {
        "corpus": manifest.corpus,
        "version": manifest.version,
        "repo": name,
        "commit": published.commit,
        "here": published.here,
        "files": len(manifest.files) + 1,
        "bytes": published.bytes + len(manifest.to_json().encode()),
        "rows": manifest.rows,
        "parents_missing": [f"{one.corpus}@{one.version}" for one in published.parents],
        "dry_run": dry_run,
    }
    if as_json:
        print_json(facts)
        return
    done = "already here" if published.here else "would be pulled" if dry_run else "pulled"
    spec = f"{manifest.corpus}@{manifest.version}"
    console.tell(f"{spec} of {name}: {done}; {facts['files']:,} files, {facts['bytes']:,} bytes")
    if published.parents:
        missing = ", ".join(f"{one.corpus} {one.version}" for one in published.parents)
        console.tell(f"it was made from versions that are not here: {missing}; publishing it again needs them")
    if not dry_run:
        console.tell(f"look at it with: {command(place, 'inspect', 'view', spec)}")


def prune(
    keep: Annotated[int, option("N", "Keep the newest N versions of each corpus.", min=1)],
    corpus: Annotated[str | None, typer.Argument(help="Prune this corpus alone.")] = None,
    keep_published: Annotated[bool, option("--keep-published", "Keep published versions too.")] = False,
    inputs: Annotated[bool, option("--inputs", "Remove this machine's copies of inputs behind URLs too.")] = False,
    dry_run: Annotated[bool, option("--dry-run", "Show what would go; remove nothing.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove old versions, except those from which remaining versions of other corpora were made.

    Answers in the ledger, evaluations and receipts stay, so that a removed version can be built again.

    **Examples:** `earmark prune --keep 3 --dry-run` · `earmark prune captions --keep 3 --keep-published`
    """
    from earmark.flows.command import console
    from earmark.flows.command.ending import stoppable
    from earmark.schemas.errors import InputError
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.release import pruning

    place = open_store(store)
    if corpus and "@" in corpus:
        raise InputError(f"prune: expected a corpus, found the version '{corpus}'; --keep N decides which versions go")
    corpora = [place.find(corpus).corpus] if corpus else place.corpora()
    decisions = pruning.decide(place, corpora, keep, keep_published)
    going = [one.version for one in decisions if one.stays is None]
    freed = pruning.freed_bytes(place, going)
    folder, cached = pruning.inputs_folder() if inputs else (None, 0)
    if not dry_run:
        with stoppable("run the same command again to go on"), shown():
            pruning.prune(place, decisions)
            if folder:
                pruning.remove_inputs(folder)
    rows = [
        {"corpus": one.version.corpus, "version": one.version.name, "removed": one.stays is None, "because": one.stays}
        for one in decisions
    ]
    if as_json:
        print_json({"versions": rows, "bytes": freed, "input_bytes": cached, "dry_run": dry_run})
        return
    console.show_pruned(decisions, freed + cached, dry_run)
