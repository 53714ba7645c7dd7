"""Plan a version's inputs, staging and manifest from a config, and commit it. No Prefect."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from earmark.schemas.config import PROMPTS, BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import ConfigError, InputError, StoreError
from earmark.schemas.registry import Registered, load, named_in
from earmark.tasks.annotation.prompts import own_words, paper_structured, prompt_named, prompt_names, versions_of
from earmark.tasks.pipeline.ask import Ask, prompt_digests
from earmark.tasks.pipeline.code import code_digest
from earmark.tasks.pipeline.funnel import check_inputs, check_main_table
from earmark.tasks.pipeline.inputs import build_key, digest_inputs, digested, library_versions, named_digests
from earmark.tasks.pipeline.mirror import hub_commits
from earmark.tasks.pipeline.progress import again, say
from earmark.tasks.pipeline.references import check_apart, release_digests
from earmark.tasks.pipeline.registry import corpora
from earmark.tasks.pipeline.replied import note_names
from earmark.tasks.pipeline.report import make_page
from earmark.tasks.pipeline.scoring import score_limit, scorer_name
from earmark.tasks.store.commit import Made, commit
from earmark.tasks.store.files import write_text
from earmark.tasks.store.sql import connect, query
from earmark.tasks.store.staging import STAGING, Stage, staging, sweep_if_idle
from earmark.tasks.store.versions import Store, Version

NOTE = "prompts.json"  # in a staging folder: the prompts of its build


def staying(config: BuildConfig, store: Store, corpus: str) -> BuildConfig:
    """Return the config, fixed to the older prompt versions of its newest build unless it names versions itself.

    Its newest build is the newest version of this very config; else the newest one without a named version of that
    prompt; else an interrupted build, which used the first version of each prompt at release 1.0.0. A first build takes
    the newest prompts.
    """
    stays: dict[str, int] = {}
    builds = list(_builds(config, store, corpus))
    chosen = {*config.asks, *(paper_structured() if PROMPTS in config.asks else ())}
    for name in (one for one, files in prompt_names().items() if len(files) > 1 and one not in chosen):
        versions = versions_of(name)
        used = (one for one, asks in builds if name not in asks)
        names = ((version for version in versions if f"{name}@{version}" in prompts) for prompts in used)
        version = next((version for found in names for version in found), versions[-1])
        if version != versions[-1]:
            stays[name] = version
    return config.staying(stays)


def note_prompts(stage: Stage, prompts: Mapping[str, str]) -> None:
    """Save the names of a build's prompts beside its steps, for a later build with another config or code."""
    write_text(stage.folder / NOTE, json.dumps(sorted(prompts)) + "\n")


def _builds(config: BuildConfig, store: Store, corpus: str) -> Iterator[tuple[list[str], Mapping[str, Any]]]:
    """Yield each build's prompts by `name@version`, and the config's named prompt versions, best match first."""
    manifests = [version.manifest for version in reversed(store.versions(corpus))]
    mine = _but_asks(config.recorded())
    for one in manifests:
        if _but_asks(one.config) == mine:
            yield list(one.prompts), {}
    for one in manifests:
        yield list(one.prompts), one.config.get("asks") or {}
    staging = store.folder(corpus) / STAGING
    folders = staging.iterdir() if staging.is_dir() else ()
    for folder in sorted(folders, key=lambda one: -one.stat().st_mtime):
        if (folder / NOTE).is_file() or any(folder.glob("steps/*")):  # else killed before its first step: asked nothing
            yield _noted(folder), {}


def _noted(folder: Path) -> list[str]:
    note = folder / NOTE
    if note.is_file():
        return [str(one) for one in json.loads(note.read_text("utf-8"))]
    return [f"{name}@{versions_of(name)[0]}" for name, files in prompt_names().items() if len(files) > 1]


def _but_asks(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "asks"}


@dataclass(frozen=True)
class Plan:
    """Everything known about a build before it starts."""

    store: Store  # destination of the version
    made: Made  # the manifest's facts about the build
    build_key: str  # identifies everything that decides the version's rows
    digest_again: Callable[[], dict[str, str]]  # computes the current digests of the inputs
    config: BuildConfig  # the build config, with the prompt versions it stays on

    def up_to_date(self, *, tidy: bool = True) -> Version | None:
        """Return the version with the same build key, if any; `tidy` removes leftovers of killed builds."""
        version = self.store.with_key(self.made.corpus.name, self.build_key)
        if version is not None and tidy:
            sweep_if_idle(self.store, self.made.corpus.name)
        return version

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        """Lock the corpus and open its staging folder, which holds the finished steps of an interrupted build."""
        with staging(self.store, self.made.corpus.name, self.build_key, say=say) as stage:
            note_prompts(stage, self.made.prompts)
            yield stage

    def forget(self) -> None:
        """Drop the finished steps of an interrupted build, unless a build is running."""
        sweep_if_idle(self.store, self.made.corpus.name)

    def commit(self, stage: Stage, sections: Mapping[str, str] | None = None) -> Version:
        """Check the staged files and commit them as a version; add `sections` to the card, Markdown by heading.

        Raises:
            InputError: an input changed during the build.
            TooManyRejects: faults lost too much of a source, or the main table is empty.
            StoreError: a check failed.
        """
        with again():
            now, before = self.digest_again(), self.made.inputs
        for name in sorted(now.keys() | before.keys()):
            if now.get(name) != before.get(name):
                raise InputError(f"{name} changed during the build; nothing was committed, build again to read it anew")
        check_inputs(stage, self.config)
        check_main_table(stage, self.config, self.made.corpus)
        check_apart(stage, self.config, self.made.corpus.tables)
        check_splits(stage, self.config)
        note_names(stage)
        page = partial(make_page, self.made.corpus)
        version = commit(stage, replace(self.made, sections=dict(sections or {}), page=page))
        if version.manifest.build_key != self.build_key:
            say(f"the tables are those of {version.name}, byte by byte: no new version")
        return version


def check_splits(stage: Stage, config: BuildConfig) -> None:
    """Check that no value of the config's separated columns occurs in two splits."""
    for table, dataset, column in config.kept_apart():
        files = [str(path) for path in stage.files(table)]
        with connect(stage.work / "spill") as connection:
            shared = connection.execute(query("pipeline/in_two_splits").replace("$column", column), [files, dataset])
            if row := shared.fetchone():
                raise StoreError(f"{table}.{column}: expected each in one split of {dataset}, found '{row[0]}' in two")


def plan_build(corpus: Corpus, config: BuildConfig, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version of a corpus.

    Args:
        corpus: the corpus.
        config: the build config.
        store: destination of the version.
        inputs: digests of the input files, if the caller has just computed them.

    Raises:
        ConfigError: `[asks]` names a prompt that this build does not use.
        PromptError: an own prompt cannot replace the prompt it is named for.
    """
    config = staying(config, store, corpus.name)
    with own_words(config.own_prompts()) as own:
        plan: Plan = load(corpus.plan)(config, store, inputs)
    for name in config.asks:
        if name == PROMPTS:
            named = [own[one] for one, paper in paper_structured().items() if own[one].name == paper]
        else:
            named = [own[name]]
        what = "this set" if name == PROMPTS else "this prompt"
        if not any(one.id in plan.made.prompts for one in named):
            used = sorted(one.partition("@")[0] for one in plan.made.prompts)
            raise ConfigError(f"asks.{name}: this build asks nothing by {what}; it asks by {', '.join(used)}")
    return plan


def make_plan(
    corpus: Corpus,
    config: BuildConfig,
    store: Store,
    digest: Callable[[], dict[str, str]] | None = None,
    *,
    inputs: dict[str, str] | None = None,
    asks: Iterable[Ask[Any]] = (),
    prompts: dict[str, str] | None = None,
    models: tuple[str, ...] = (),
) -> Plan:
    """Gather everything a version depends on.

    Args:
        corpus: the corpus; its flow's source and imports enter the build key.
        config: the build config.
        store: destination of the version.
        digest: returns the SHA-256 of every input, by its name; without it, of the inputs that the corpus declares.
        inputs: a fresh result of `digest`, if the caller has one.
        asks: the questions of the flow, with their prompts.
        prompts: SHA-256 of every other prompt by `name@version`.
        models: models used besides the config's.
    """
    if (limit := score_limit(config)) is not None:
        models = (*models, scorer_name(limit.scorer))
    own_prompts = [prompt_named(name) for name in config.asks if name in _judged(corpus)]
    prompts = prompt_digests(config, asks) | (prompts or {}) | {one.id: one.sha256 for one in own_prompts if one.own}
    by_spec = {spec: store.find(spec) for spec in config.parents()}
    parents = {spec: version.as_parent() for spec, version in by_spec.items()}
    own = [corpora()[corpus.name]] if corpus.name in corpora() else []
    if digest is None and corpus.inputs is None:
        raise LookupError(f"corpus {corpus.name}: expected inputs of its own, or a digest; found neither")
    own_digests = digest or partial(digest_inputs, corpus, config, store)
    digest = partial(_all_digests, own_digests, config, store, named=any(entry.package for entry in own))
    inputs = digest() if inputs is None else inputs
    commits = hub_commits(config.path(written) for written in config.inputs())
    identity = {**config.identity(), "parents": [parents[spec].digest for spec in config.parents()]}
    libraries = library_versions()
    named = list(named_in(config))
    if packages := sorted({entry.package for entry in (*own, *named) if entry.package}):
        identity |= {"packages": packages}
        libraries |= dict(packages)
    made = Made(
        corpus=corpus,
        config=config.recorded(),
        inputs=inputs,
        commits=commits,
        code=code_digest(*(reference.partition(":")[0] for reference in (corpus.flow, *_references(named)))),
        libraries=libraries,
        parents=tuple({(p.corpus, p.version): p for p in parents.values() if p.corpus != corpus.name}.values()),
        prompts=prompts,
        models=tuple(dict.fromkeys((*(one.annotator for one in config.asked().values()), *models))),
    )
    return Plan(store, made, build_key(identity, inputs, corpus.tables, made.code, made.prompts), digest, config)


def _judged(corpus: Corpus) -> set[str]:
    """Return the prompts of a version's evaluations: the version stores own ones, though its build skips them."""
    modes = [mode for evaluation in corpus.evaluations for mode in evaluation.modes]
    return {mode.prompt.format(language=language) for mode in modes for language in ("en", "zh")}


def _all_digests(
    own: Callable[[], dict[str, str]], config: BuildConfig, store: Store, *, named: bool
) -> dict[str, str]:
    """Return the digests of a corpus's inputs, of benchmarks to keep out, and of files in a package's lists."""
    with digested() as lists:
        digests = own()
    limit = score_limit(config)
    digests |= release_digests(config, store) | (limit.digests if limit else {})
    return digests | (named_digests(store, config.base, lists) if named else {})


def _references(named: Iterable[Registered]) -> Iterator[str]:
    """Yield `module:name` of the code of config entries: the corpus imports none of it."""
    return (entry.declared if isinstance(entry.declared, str) else entry.declared.make for entry in named)
