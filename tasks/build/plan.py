"""From a config to a commit: what a version is made from, where it is staged, what its manifest says. No Prefect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.registry import Registered, load, named_in
from earmark.tasks.annotation.prompts import own_words
from earmark.tasks.build.code import code_digest
from earmark.tasks.build.fingerprint import build_key, library_versions
from earmark.tasks.build.losses import check_inputs, check_main_table
from earmark.tasks.build.mirror import hub_commits
from earmark.tasks.build.progress import say
from earmark.tasks.build.references import check_apart, release_digests
from earmark.tasks.build.registry import corpora
from earmark.tasks.build.report import make_page
from earmark.tasks.store.commit import Made, commit
from earmark.tasks.store.manifest import Parent
from earmark.tasks.store.staging import Stage, staging, sweep_if_idle
from earmark.tasks.store.versions import Store, Version


@dataclass(frozen=True)
class Plan:
    """What a build will make, known before it starts."""

    store: Store  # where the version goes
    made: Made  # everything that the manifest says of its making
    build_key: str  # names all that decides the version's rows
    digest_again: Callable[[], dict[str, str]]  # the inputs' digests as they are when it is called
    config: BuildConfig  # the build config

    def up_to_date(self, *, tidy: bool = True) -> Version | None:
        """The version that was built from the same things, if there is one; `tidy` removes what a killed build left."""
        version = self.store.with_key(self.made.corpus.name, self.build_key)
        if version is not None and tidy:
            sweep_if_idle(self.store, self.made.corpus.name)
        return version

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        """Hold the corpus's lock and work in its staging folder, where an interrupted build's finished steps are."""
        with staging(self.store, self.made.corpus.name, self.build_key, say=say) as stage:
            yield stage

    def forget(self) -> None:
        """Drop the finished steps of an interrupted build, unless a build is at work."""
        sweep_if_idle(self.store, self.made.corpus.name)

    def commit(self, stage: Stage, sections: Mapping[str, str] | None = None) -> Version:
        """Check what was staged and make it a version; `sections` are added to the card, Markdown by heading.

        Raises:
            InputError: an input changed while it was read.
            TooManyRejects: too much of a source was lost to faults, or the main table is empty.
            StoreError: a check failed.
        """
        now, before = self.digest_again(), self.made.inputs
        for name in sorted(now.keys() | before.keys()):
            if now.get(name) != before.get(name):
                raise InputError(f"{name} changed during the build; nothing was committed, build again to read it anew")
        check_inputs(stage, self.config)
        check_main_table(stage, self.config, self.made.corpus)
        check_apart(stage, self.config, self.made.corpus.tables)
        page = partial(make_page, self.made.corpus)
        version = commit(stage, replace(self.made, sections=dict(sections or {}), page=page))
        if version.manifest.build_key != self.build_key:
            say(f"the tables are those of {version.name}, byte by byte: no new version")
        return version


def plan_build(corpus: Corpus, config: BuildConfig, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a version of a corpus would be made from.

    Args:
        corpus: the corpus.
        config: the build config.
        store: where the version goes.
        inputs: digests of the input files, if the caller has just computed them.

    Raises:
        ConfigError: `[asks]` names a prompt that this build does not use.
        PromptError: an own prompt cannot stand for the one that it is named for.
    """
    with own_words(config.own_prompts()) as own:
        plan: Plan = load(corpus.plan)(config, store, inputs)
    for name, prompt in own.items():
        if prompt.id not in plan.made.prompts:
            used = sorted(one.partition("@")[0] for one in plan.made.prompts)
            raise ConfigError(f"asks.{name}: this build asks nothing by this prompt; it asks by {', '.join(used)}")
    return plan


def make_plan(
    corpus: Corpus,
    config: BuildConfig,
    store: Store,
    digest: Callable[[], dict[str, str]],
    *,
    inputs: dict[str, str] | None = None,
    prompts: dict[str, str] | None = None,
    models: tuple[str, ...] = (),
) -> Plan:
    """Gather what a version is made from.

    Args:
        corpus: the corpus; its flow's source and all that it imports enter the build key.
        config: the build config.
        store: where the version goes.
        digest: gives the SHA-256 of every input, by its name in the tables.
        inputs: what that gave just now, if the caller knows.
        prompts: SHA-256 of every prompt by `name@version`.
        models: those that are used besides the ones that the config asks.
    """
    by_spec = {spec: store.find(spec) for spec in config.parents()}
    parents = {spec: Parent(corpus=v.corpus, version=v.name, digest=v.manifest.digest()) for spec, v in by_spec.items()}
    digest = partial(_all_digests, digest, config, store)
    inputs = digest() if inputs is None else inputs
    commits = hub_commits(config.path(written) for written in config.inputs())
    identity = {**config.identity(), "parents": [parents[spec].digest for spec in config.parents()]}
    libraries = library_versions()
    named = list(named_in(config))
    own = [corpora()[corpus.name]] if corpus.name in corpora() else []
    if packages := sorted({entry.package for entry in (*own, *named) if entry.package}):
        identity["packages"] = packages
        libraries |= dict(packages)
    made = Made(
        corpus=corpus,
        config=config.recorded(),
        inputs=inputs,
        commits=commits,
        code=code_digest(*(reference.partition(":")[0] for reference in (corpus.flow, *_references(named)))),
        libraries=libraries,
        parents=tuple({(p.corpus, p.version): p for p in parents.values() if p.corpus != corpus.name}.values()),
        prompts=prompts or {},
        models=tuple(dict.fromkeys((*(one.annotator for one in config.asked().values()), *models))),
    )
    return Plan(store, made, build_key(identity, inputs, corpus.tables, made.code, made.prompts), digest, config)


def _all_digests(own: Callable[[], dict[str, str]], config: BuildConfig, store: Store) -> dict[str, str]:
    """The digests of a corpus's inputs, and of the released benchmarks that its config keeps out."""
    return own() | release_digests(config, store)


def _references(named: Iterable[Registered]) -> Iterator[str]:
    """`module:name` of what a config names that no module of the corpus imports: of packages, and builtin functions."""
    return (entry.declared for entry in named if isinstance(entry.declared, str))
