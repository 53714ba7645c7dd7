"""Publish a version to the Hub: check it, bundle its publishable parts, send it, keep a receipt. No Prefect."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import yaml
from huggingface_hub import constants

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import ConfigError, HubError, HubUnreachableError, StoreError
from earmark.schemas.places import require_below_roots
from earmark.tasks.pipeline.progress import say, working
from earmark.tasks.release.evaluated import audit_section, covered_share, evaluations_of, newest_audits, section
from earmark.tasks.store.hub import Repo, State, TreeChanges, check_successor, compare
from earmark.tasks.store.licences import warnings_of
from earmark.tasks.store.lineage import unsearchable
from earmark.tasks.store.manifest import CARD
from earmark.tasks.store.publication import Bundle, Finding, MakeViews, bundled, read_allowed, scan
from earmark.tasks.store.receipts import Receipt, save_receipt
from earmark.tasks.store.versions import MANIFEST, Store, Version, verify
from earmark.tasks.store.view_configs import card_parts
from earmark.tasks.store.withdrawals import marks_for, withdrawal_against, withdrawals
from earmark.tasks.text.personal import Scanner, own_secrets

MOST_SHOWN = 20

FIELDS = "extra_gated_fields"
GATE = (FIELDS, *(f"extra_gated_{name}" for name in ("prompt", "heading", "description", "button_content")))


def check_fit(version: Version, allow_builtin: bool) -> None:
    """Check that a version is complete, and without builtin annotators' labels unless allowed.

    Raises:
        StoreError: a file differs from its commit.
        HubError: a builtin annotator labelled it.
    """
    with working(f"verify {version.corpus} {version.name}"):
        faults = verify(version)
    if faults:
        raise StoreError(f"{version.corpus} {version.name} is not as committed: {faults[0]}; nothing was published")
    builtin = sorted(model for model in version.manifest.models if model.startswith("builtin:"))
    if builtin and not allow_builtin:
        raise HubError(
            f"{version.corpus} {version.name} has labels of {builtin[0]}, which measures the signal and is for "
            "trials; publish them with --allow-builtin"
        )


def check_audited(store: Store, version: Version, least: float | None) -> None:
    """Check that people confirmed enough of a version's labels.

    Every audited evaluation must reach the precision by the lower end of its 95 % interval: a few rows prove nothing.

    Raises:
        HubError: this version has no audit, an audit covers a part of its rows, or its precision is too low.
    """
    if least is None:
        return
    wanted = f"{version.corpus} {version.name}: --audited wants a precision of {least:g} or more"
    audits = newest_audits(store, version)
    if not audits:
        raise HubError(f"{wanted}, and no audit of it is there; see `earmark people audit sample`")
    for facts in audits:
        low, name = facts["overall"]["low"], facts["evaluation"]
        if facts["covered"] < 1:
            raise HubError(
                f"{wanted}; the audit of {name} covers {covered_share(facts)} of the rows; draw more rows, of all "
                "splits (`--split all`) and languages; rows without clips cannot be audited"
            )
        if low is None or low < least:
            share = "nothing" if low is None else f"{facts['overall']['precision']:.3f}, and at least {low:.3f}"
            raise HubError(f"{wanted}; the audit of {name} says {share} (95 %)")


@contextmanager
def gathered(
    version: Version,
    corpus: Corpus,
    store: Store,
    audio: bool,
    views: MakeViews | None = None,
    gate: Mapping[str, Any] | None = None,
) -> Iterator[Bundle]:
    """Yield the bundle of a version's publishable parts and views, and report the parts held back.

    Raises:
        StoreError: rows of the version were withdrawn, or may have been; or a view is unknown or unfit.
    """
    store.refresh(version.corpus)
    if withdrawal := withdrawal_against(store.root, version.manifest):
        holds, advice = "holds", "publish a later version"
        if not withdrawal.holds(version.manifest):
            holds, advice = "was not looked through for", "give that withdrawal again, or build again"
        raise StoreError(
            f"{version.corpus} {version.name} {holds} what was withdrawn on {withdrawal.withdrawn:%Y-%m-%d} "
            f"({withdrawal.reason}); {advice}"
        )
    if told := unsearchable(version, corpus.tables, marks_for(withdrawals(store.root), corpus.name)):
        raise StoreError(f"{told}, and publish that version")
    records = [section(evaluations_of(store, version)), *map(audit_section, newest_audits(store, version))]
    evaluations = "\n".join(part for part in records if part)
    with bundled(
        version, corpus.tables, store, audio=audio, say=say, evaluations=evaluations, views=views, gate=gate
    ) as bundle:
        for warning in warnings_of(bundle.model_terms):
            say(warning)
        for what, counts in (("rows", bundle.held_rows), ("clips", bundle.held_audio)):
            if counts:
                say(f"held back {what}: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()))
        yield bundle


def check_clean(bundle: Bundle, corpus: Corpus, reviewed: Mapping[str, str]) -> None:
    """Check that a bundle holds no secrets or personal data.

    Raises:
        HubError: with the first finding; the first twenty were printed.
    """
    findings = find(bundle, corpus, reviewed)
    for finding in findings[:MOST_SHOWN]:
        say(str(finding))
    if findings:
        more = f" (and {len(findings) - 1:,} more)" if len(findings) > 1 else ""
        raise HubError(
            f"{bundle.version.corpus} {bundle.version.name} contains secrets or personal data: {findings[0]}{more}; "
            "mend the inputs, or list reviewed findings in a file for --allow-findings"
        )


def find(bundle: Bundle, corpus: Corpus, reviewed: Mapping[str, str]) -> list[Finding]:
    """Return all unreviewed findings of the scan."""
    with working("look for secrets and personal data", len(bundle.entries)) as work:
        return list(scan(bundle.entries, corpus.tables, Scanner(own_secrets()), reviewed, work.advance))


def read_reviewed(path: str | None) -> dict[str, str]:
    """Read the marks of reviewed findings.

    Raises:
        ConfigError: the file lies outside `EARMARK_ROOTS`.
    """
    if path is None:
        return {}
    require_below_roots("allow_findings", path)
    return read_allowed(Path(path))


def read_gate(path: str | None) -> dict[str, Any]:
    """Read the facts of a gated card: YAML whose keys begin with `extra_gated_`, as the Hub names them.

    Raises:
        ConfigError: the file lies outside `EARMARK_ROOTS`, cannot be read, or has other content.
    """
    if path is None:
        return {}
    require_below_roots("gate", path)
    try:
        facts = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError(f"--gate {path}: cannot be read: {why}") from None
    keys = ", ".join(GATE)
    if not isinstance(facts, dict) or not facts or set(facts) - set(GATE):
        odd = sorted(map(str, set(facts) - set(GATE))) if isinstance(facts, dict) else []
        raise ConfigError(f"--gate {path}: expected some of {keys}; found {odd[0] if odd else 'none of them'}")
    for name, value in facts.items():
        if not isinstance(value, dict if name == FIELDS else str) or not value:
            expected = "fields with their kinds" if name == FIELDS else "a text"
            raise ConfigError(f"--gate {path}: {name}: expected {expected}, found {value!r}")
    return facts


def open_repo(repo: Repo, bundle: Bundle, private: bool, gate: Mapping[str, Any]) -> State:
    """Create the repository and its branch if missing; check before and after that it is the right one.

    With facts of a gate, readers must ask before they see files; this is set before anything is sent.

    Raises:
        HubError: it holds something else, or is public instead of private; or the gate is refused.
    """
    state = repo.look()
    _check_gate(repo, bundle, state, private, gate)
    if state is not None:
        _check_state(repo, bundle, state, private)
    repo.create(private)
    if gate:
        repo.gate()
    state = repo.look()
    if state is None:
        raise HubError(f"{repo.name}: created, but this token may not read it; check the token's rights")
    if not state.has_branch:
        raise HubError(f"{repo.name}: the Hub made no branch {repo.revision}; is it a tag? choose another --branch")
    _check_state(repo, bundle, state, private)
    return state


def bring(repo: Repo, bundle: Bundle, state: State) -> tuple[str, int]:
    """Make the repository's branch equal to the bundle in one commit, check it, and tag it if it is main.

    Return the commit, and the number of sent files: none if all were present.

    Safe to repeat after a crash: uploaded files are not sent again, an existing commit compares equal, and an existing
    tag ends the work.

    Raises:
        HubError: the tag names another tree, or the Hub refused.
    """
    tag = bundle.manifest.version
    if done := tagged(repo, bundle, state):
        return done, 0
    difference = compare(bundle.entries, state.files, state.earlier)
    commit = state.head
    _tell_replaced(repo, state, difference)
    if not difference.none:
        title = f"{bundle.manifest.corpus} {tag}"
        message = f"Manifest {bundle.manifest.digest()}"
        with working(f"upload to {repo.name}", len(difference.upload)) as work:
            commit = repo.commit(difference, state.head, title, message, work.advance)
    repo.check(bundle.entries, commit, state.earlier)
    if repo.branch is None:
        repo.tag(tag, commit)
    return commit, len(difference.upload)


def tagged(repo: Repo, bundle: Bundle, state: State) -> str | None:
    """Return the commit of the version's tag, if it holds exactly this version.

    Return None without a tag, or for a branch other than main. A published card stays: later evaluations make no other
    version, nor do licences that an earlier release left out.

    Raises:
        HubError: the tag names something else.
    """
    tag = bundle.manifest.version
    if tag not in state.tags or repo.branch is not None:
        return None
    other = compare(bundle.entries, repo.files(state.tags[tag]), state.earlier)
    if not other.none:
        paths = [*(entry.path for entry in other.upload), *other.delete]
        if bundle.recarded and set(paths) <= {CARD, MANIFEST}:
            return state.tags[tag]
        raise HubError(
            f"{repo.name} has a tag {tag} with other files: {paths[0]} differs, {len(paths)} in all; a published "
            "version never changes: publish to another repository or to a --branch, or build a new version"
        )
    return state.tags[tag]


class PublicationPlan(TypedDict):
    """Forecast of a publication."""

    corpus: str
    version: str
    repo: str
    branch: str
    url: str
    exists: bool
    unreachable: str | None
    private: bool
    gated: bool
    published: str | None
    upload: dict[str, int]
    delete: list[str]
    there: int
    foreign: list[str]
    held_rows: dict[str, int]
    held_audio: dict[str, int]
    views: list[dict[str, Any]]
    offered: list[str]
    models: dict[str, Any]
    licences: dict[str, dict[str, Any]]
    findings: list[str]


def forecast(
    repo: Repo,
    bundle: Bundle,
    corpus: Corpus,
    reviewed: Mapping[str, str],
    private: bool,
    gate: Mapping[str, Any],
    offered: Sequence[str] = (),
) -> PublicationPlan:
    """Forecast a publication; send nothing, and create no repository.

    Without the Hub, compare with an empty repository, and give the reason as `unreachable`. `offered` are the views
    that could be further configs.

    Raises:
        HubError: publishing would be refused, for other reasons than findings.
    """
    unreachable = None
    try:
        state = repo.look()
    except HubUnreachableError as error:
        state, unreachable = None, str(error)
    _check_gate(repo, bundle, state, private, gate)
    if state is not None:
        _check_state(repo, bundle, state, private)
    done = tagged(repo, bundle, state) if state else None
    files, earlier = (state.files, state.earlier) if state else ((), [])
    difference = compare(bundle.entries, files, earlier) if not done else TreeChanges((), (), bundle.entries, ())
    if state is not None:
        _tell_replaced(repo, state, difference)
    return {
        "corpus": bundle.version.corpus,
        "version": bundle.version.name,
        "repo": repo.name,
        "branch": repo.revision,
        "url": repo.url,
        "exists": state is not None,
        "unreachable": unreachable,
        "private": state.private if state else private,
        "gated": bool(gate) or (state is not None and state.gated),
        "published": done,
        "upload": {entry.path: entry.bytes for entry in difference.upload},
        "delete": list(difference.delete),
        "there": len(difference.same),
        "foreign": list(difference.foreign),
        "held_rows": bundle.held_rows,
        "held_audio": bundle.held_audio,
        "views": [
            {
                "config": view.config,
                "rows": view.rows,
                "clips": view.clips,
                "held": view.held,
                "bytes": sum(file.bytes for file in view.files),
            }
            for view in bundle.views
        ],
        "offered": list(offered),
        "models": dict(bundle.model_terms),
        "licences": {name: terms.model_dump() for name, terms in bundle.licences.items()},
        "findings": [str(finding) for finding in find(bundle, corpus, reviewed)],
    }


def keep_receipt(
    store: Store, repo: Repo, bundle: Bundle, state: State, commit: str, reviewed: Mapping[str, str]
) -> Receipt:
    """Record the destination of the version."""
    receipt = Receipt(
        corpus=bundle.version.corpus,
        version=bundle.version.name,
        endpoint=constants.ENDPOINT,
        repo=repo.name,
        private=state.private,
        commit=commit,
        tag=bundle.manifest.version if repo.branch is None else None,
        branch=repo.branch,
        manifest=bundle.version.manifest.digest(),
        published_manifest=repo.manifest_digest(commit)
        if commit == state.tags.get(bundle.manifest.version)  # its card stays (`tagged`), and its manifest
        else bundle.manifest.digest(),
        files=len(bundle.entries),
        bytes=sum(entry.bytes for entry in bundle.entries),
        held_rows=bundle.held_rows,
        held_audio=bundle.held_audio,
        allowed=tuple(sorted(reviewed)),
        published=datetime.now(UTC),
    )
    save_receipt(store, receipt)
    return receipt


def _check_gate(repo: Repo, bundle: Bundle, state: State | None, private: bool, gate: Mapping[str, Any]) -> None:
    if gate and repo.branch is not None:
        raise HubError(f"--gate holds for all of {repo.name}, whose terms stand in main's card: leave out --branch")
    version = bundle.manifest.version
    if gate and state is not None and version in state.tags:
        terms = repo.card(state.tags[version])
        if any(terms.get(name) != gate.get(name) for name in GATE):
            raise HubError(
                f"{repo.name} holds {version} already, without these terms of access; a published version never "
                "changes: build a new version and publish it with --gate"
            )
    hidden = state.private or state.gated if state else private
    if not gate and not hidden and not (state and repo.branch is None and version in state.tags):
        card = next(entry.source for entry in bundle.entries if entry.path == CARD).read_text("utf-8")
        if asked := [name for name in GATE if name in card_parts(card)[0]]:  # a pulled version brings its terms
            raise HubError(
                f"the card of {version} asks readers for terms ({asked[0]}), and {repo.name} lets everyone read: give "
                "the terms with --gate FILE, or choose a private repository"
            )
    if gate or repo.branch is not None or state is None or version in state.tags or not state.gated:
        return
    if any(file.path == CARD for file in state.files):
        terms = repo.card(state.head)
        if asked := [name for name in GATE if name in terms]:
            raise HubError(
                f"{repo.name}: its card asks readers for terms ({asked[0]}), and {version} comes without --gate: give "
                "it, or open the repository on the Hub first"
            )


def _tell_replaced(repo: Repo, state: State, difference: TreeChanges) -> None:
    """Say that a repository made by hand loses its README to the card."""
    there = {file.path for file in state.files}
    if state.manifest is None and CARD in there & {entry.path for entry in difference.upload}:
        say(f"note: the card replaces the {CARD} of {repo.name}; take over what must stay")


def _check_state(repo: Repo, bundle: Bundle, state: State, private: bool) -> None:
    if private and not state.private:
        raise HubError(
            f"{repo.name} is public, but --private asks for a private repository; "
            "make it private, or leave --private out"
        )
    main = repo.branch is None
    if not main or bundle.manifest.version not in state.tags:
        check_successor(repo.name, bundle.manifest, state.manifest, state.files, ordered=main)
