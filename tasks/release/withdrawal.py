"""Withdraw items: make new versions without them, in every corpus with them or derived rows: `earmark withdraw`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import StoreError
from earmark.schemas.tables import REJECTS, UNSPLIT
from earmark.tasks.pipeline.progress import say, working
from earmark.tasks.pipeline.report import make_page
from earmark.tasks.store.commit import Made, commit
from earmark.tasks.store.files import place, sha256_file
from earmark.tasks.store.lineage import Gone, is_current, named_kinds, restated, unsearchable, withdrawn_from
from earmark.tasks.store.manifest import CARD, PAGES, Parent, digest_of
from earmark.tasks.store.staging import Stage, staging, sweep_if_idle
from earmark.tasks.store.versions import Store, Version
from earmark.tasks.store.view_configs import card_parts
from earmark.tasks.store.withdrawals import Kind, Mark, Withdrawal, digest_of_value, save_withdrawal, withdrawals
from earmark.tasks.text.anonymity import annotator_key, salt_of


@dataclass(frozen=True, eq=False)
class Holding:
    """Version with withdrawn rows."""

    version: Version  # the version
    rows: dict[str, int]  # rows to remove, by table, including rejects
    newest: bool  # whether it is its corpus's newest version


@dataclass(frozen=True)
class Search:
    """Search result of a withdrawal."""

    kind: Kind  # kind of the withdrawn item
    name: str  # the withdrawal's name
    holdings: tuple[Holding, ...]  # every version with it or with derived rows; parents first, if possible
    marks: tuple[Mark, ...]  # marks to keep out of later versions
    seen: frozenset[str]  # digests of the manifests of all searched versions


def as_tables_have_it(store: Store, annotator: str) -> tuple[str, ...]:
    """Return an annotator's ids in the tables; hash `SOURCE/ID` by each salt in versions' configs, newest first.

    `SOURCE/ID` is the person's name in a source's export; other ids are returned unchanged.

    Raises:
        ConfigError: the salt in the environment is too short.
    """
    source, slash, who = annotator.partition("/")
    if not slash:
        return (annotator,)
    configs = [version.manifest.config for name in store.corpora() for version in store.versions(name)]
    named = [
        config["salt"]
        for config in configs
        if "salt" in config and any(s["name"] == source for s in config.get("sources") or ())
    ]
    keys = [annotator_key(salt_of(salt, store.root), source, who) for salt in dict.fromkeys(reversed(named))]
    return tuple(dict.fromkeys(keys)) or (annotator,)


def search(
    store: Store,
    corpora: Mapping[str, Corpus],
    kind: Kind,
    value: str,
    only: str | None = None,
    others: Sequence[str] = (),
) -> Search:
    """Search every version of the store; change nothing.

    Args:
        value: the annotator's id in the tables, the clip's SHA-256, or the prompt's id.
        only: only this corpus, and corpora derived from it.
        others: other ids of the same annotator, with other salts.

    Raises:
        StoreError: no version holds it.
    """
    name = digest_of_value(f"{kind}@{only or ''}", value)[:12]
    before = _recorded(store, name)
    marks = [*(before.marks if before else ()), *(Mark.of(kind, one, corpus=only) for one in (value, *others))]
    result = _look(store, corpora, kind, name, tuple(dict.fromkeys(marks)))
    if not result.holdings:
        other = ", or as SOURCE/ID with the salt of their build" if kind == "annotator" else ""
        raise StoreError(f"no version in {store.address} contains this {kind}; write it as in the tables{other}")
    return result


def _look(store: Store, corpora: Mapping[str, Corpus], kind: Kind, name: str, known: Sequence[Mark]) -> Search:
    marks, holdings, seen = list(known), [], set()
    parents = _parents(store)
    try:
        names, circle = [name for name in TopologicalSorter(parents).static_order() if name in parents], False
    except CycleError:  # of corpora, not of versions: a later one of captions reads prompts made from an earlier one
        names, circle = sorted(parents), True
    with working("look for rows", sum(len(store.versions(name)) for name in names)) as work:
        for corpus in names:
            if corpus not in corpora:
                raise StoreError(
                    f"{store.address} has versions of '{corpus}', an unknown corpus; install the package that adds it"
                )
            for version in (versions := store.versions(corpus)):
                store.fetch(version, tables_only=True)
                own = [mark for mark in marks if mark.corpus in (None, corpus)]
                gone = withdrawn_from(corpora[corpus].tables, version.table_files(), own) if own else Gone()
                if version == versions[-1] and (message := unsearchable(version, corpora[corpus].tables, own)):
                    say(message)
                seen.add(version.manifest.digest())
                work.advance()
                if rows := gone.counts:
                    holdings.append(Holding(version, rows, version == versions[-1]))
                    marks += _derived(
                        gone, [corpora[other] for other in names if corpus in parents[other] and other in corpora]
                    )
    marks = list(dict.fromkeys(marks))
    if circle and set(marks) != set(known):
        return _look(store, corpora, kind, name, marks)  # corpora before the one with the new marks may have such rows
    return Search(kind, name, tuple(holdings), tuple(marks), frozenset(seen))


def withdraw(store: Store, corpora: Mapping[str, Corpus], searched: Search, reason: str) -> Withdrawal:
    """Record the withdrawal, and make a version without its rows for every corpus with such rows in its newest version.

    The record comes first: from then on no commit brings the rows back, and versions with them are not published. The
    same command resumes after an interruption. Versions from builds under way are searched as well.

    Returns:
        The withdrawal as recorded.
    """
    if store.remote is not None:
        say(f"the withdrawal and the versions without it are sent to {store.address}")
    while True:
        withdrawal = _record(store, searched, reason)
        for holding in searched.holdings:
            name = holding.version.corpus
            if holding.newest and (made := _without(store, corpora[name], holding.version, withdrawal)):
                say(f"{name}: {made.name} is {holding.version.name} without what was withdrawn")
                rows = {**withdrawal.rows, name: holding.rows}
                withdrawal = withdrawal.model_copy(update={"made": (*withdrawal.made, made.as_parent()), "rows": rows})
                save_withdrawal(store.root, withdrawal, store.remote)
        store.refresh()
        known = searched.seen | {one.digest for one in withdrawal.made}
        if all(v.manifest.digest() in known for name in store.corpora() for v in store.versions(name)):
            for name in {holding.version.corpus for holding in searched.holdings}:
                sweep_if_idle(store, name)  # leftovers of a killed run hold the rows
            return withdrawal
        searched = _look(store, corpora, searched.kind, searched.name, withdrawal.marks)


def _recorded(store: Store, name: str) -> Withdrawal | None:
    return next((one for one in withdrawals(store.root) if one.name == name), None)


def _record(store: Store, searched: Search, reason: str) -> Withdrawal:
    before = _recorded(store, searched.name)
    versions = {(p.corpus, p.version): p for p in (before.versions if before else ())}
    versions |= {(h.version.corpus, h.version.name): h.version.as_parent() for h in searched.holdings}
    made = _made(store, before, searched) if before else {}
    withdrawal = Withdrawal(
        name=searched.name,
        kind=searched.kind,
        reason=reason,
        withdrawn=before.withdrawn if before else datetime.now(UTC),
        marks=searched.marks,
        versions=tuple(versions.values()),
        made=tuple(dict.fromkeys([*(before.made if before else ()), *made.values()])),
        rows={**(before.rows if before else {}), **{h.version.corpus: h.rows for h in searched.holdings if h in made}},
        seen=tuple(sorted(searched.seen)),
    )
    save_withdrawal(store.root, withdrawal, store.remote)
    return withdrawal


def _made(store: Store, withdrawal: Withdrawal, searched: Search) -> dict[Holding, Parent]:
    """Find the versions that a withdrawal made, by their manifests: a crash may have prevented its note."""
    made = {}
    for holding in searched.holdings:
        base, digest = holding.version, holding.version.manifest.digest()
        for version in store.versions(base.corpus):
            own = version.manifest
            follows = any(parent.digest == digest for parent in own.parents)
            if (
                follows
                and own.build_key == base.manifest.build_key
                and withdrawal.name_for(base.corpus) in own.applied_withdrawals
            ):
                made[holding] = version.as_parent()
    return made


def _without(store: Store, corpus: Corpus, version: Version, withdrawal: Withdrawal) -> Version | None:
    """Commit a version's own tables again, without the withdrawn rows.

    Return None if a build under way has committed a later version meanwhile: search that version next.

    Raises:
        StoreError: a file is not as committed.
    """
    manifest = version.manifest
    with staging(store, corpus.name, digest_of([withdrawal.name, manifest.digest()]), say=say) as staged:
        if store.newest(corpus.name) != version:
            return None
        stage = replace(staged, build_key=manifest.build_key)
        held = [entry for entry in manifest.files if entry.path not in PAGES]
        for entry in held:
            if sha256_file(path := version.whole(entry)) != entry.sha256:  # the new manifest would call it sound
                damaged = f"{corpus.name}@{version.name}"
                raise StoreError(
                    f"{path}: not as committed; restore it, and repeat; see: earmark inspect verify {damaged}"
                )
        older = _restate(stage, corpus, version)
        for entry in held:
            if entry.table not in older:
                place(version.path(entry), stage.version / entry.path)
        for number, path in enumerate(version.files(REJECTS.name, UNSPLIT)):
            place(path, stage.work / "rejects" / f"{number:06d}.parquet")
        for step in manifest.steps:
            stage.record(step)
        made = Made(
            corpus=corpus,
            config=manifest.config,
            inputs=manifest.inputs,
            commits=manifest.commits,
            code=manifest.code,
            libraries=manifest.libraries,
            parents=tuple(_successor(parent, store) for parent in manifest.parents if parent.corpus != corpus.name),
            prompts=manifest.prompts,
            models=manifest.models,
            page=partial(make_page, corpus),
            rules=manifest.rules,
            access=_access(version),
        )
        return commit(stage, made)


def _access(version: Version) -> dict[str, Any]:
    """Return the terms that a pulled version's card asks readers for: they hold for the rows that stay, too."""
    try:
        cards = [version.whole(entry) for entry in version.manifest.files if entry.path == CARD]
    except StoreError as error:  # no reason to keep a person's rows
        say(f"note: {error}; terms of access that this card may have had are not in the new version's")
        return {}
    facts = [item for card in cards for item in card_parts(card.read_text("utf-8"))[0].items()]
    return {name: value for name, value in facts if name.startswith("extra_gated_")}


def _restate(stage: Stage, corpus: Corpus, version: Version) -> set[str]:
    """Rewrite tables of an earlier release's schema in the current schema; return their names, and the rejects'."""
    written = {REJECTS.name}
    for table in corpus.tables:
        splits = {split: version.files(table.name, split) for split in version.manifest.rows.get(table.name, {})}
        if table.name not in written and not is_current(table, [path for paths in splits.values() for path in paths]):
            for split, paths in splits.items():
                stage.write(table, split, restated(table, paths))
            written.add(table.name)
    return written


def _successor(parent: Parent, store: Store) -> Parent:
    """Return the successor of a parent with withdrawn rows: the first later version without any."""
    withdrawn = {one.digest for each in withdrawals(store.root) for one in each.versions}
    if parent.digest not in withdrawn:
        return parent
    later = (v.as_parent() for v in store.versions(parent.corpus) if v.number > int(parent.version[1:]))
    return next((one for one in later if one.digest not in withdrawn), parent)


def _derived(gone: Gone, children: Sequence[Corpus]) -> list[Mark]:
    """Return the marks of other corpora's rows derived from the removed ones."""
    return [
        Mark.of(kind, id_, corpus.name)
        for corpus in sorted(children, key=lambda corpus: corpus.name)
        for kind, id_ in sorted(gone.things)
        if kind in named_kinds(corpus.tables)
    ]


def _parents(store: Store) -> dict[str, set[str]]:
    return {
        name: {p.corpus for v in store.versions(name) for p in v.manifest.parents if p.corpus != name}
        for name in store.corpora()
    }
