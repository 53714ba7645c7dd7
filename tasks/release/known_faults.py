"""Find versions and evaluations that a known fault of an earlier Earmark may have damaged, by one dated table.

A version's manifest names its `rules`; for versions of earlier rules, functions here check manifests or tables. A
developer who mends a fault with wrong rows increments `RULES`, adds a row to `known_faults.toml` and a function here.
"""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from earmark.tasks.pipeline import believed_answers as believed
from earmark.tasks.pipeline.media import clips_decoded_in_part
from earmark.tasks.store.sql import view_parquet
from earmark.tasks.store.versions import Store, Version


@dataclass(frozen=True)
class KnownFault:
    """Fault with wrong rows."""

    name: str  # its name in messages and scripts
    mended: str  # the date, as in the changelog
    rules: int  # versions of these or later rules are free of it
    corpora: tuple[str, ...]  # affected corpora; empty for all
    touches: Callable[[Version], bool]  # whether a version of earlier rules may have it
    says: str  # the damage, and the remedy


def _contested_clip(version: Version) -> bool:
    """Return whether rows were rejected for other system, speaker, content or condition than their clip's first."""
    steps = [step for step in version.manifest.steps if step.name == "merge"]
    return any(step.rejected.get("conflicting_facts") for step in steps)


def _number_as_rating(version: Version) -> bool:
    """Return whether the rating of a table came from a column of ids, ages, counters or times."""
    columns = [source.get("columns") or {} for source in version.manifest.config.get("sources", ())]
    names = [str(one.get("mos", "")) for one in columns]
    words = {word.lower() for name in names for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return bool(
        words & {"id", "ids", "age", "order", "time", "timestamp", "count", "number", "index", "played", "trial"}
    )


def _quoted_between_tabs(version: Version) -> bool:
    """Return whether the version read a list of ratings with tabs, where an open quote could swallow the next rows."""
    sources = version.manifest.config.get("sources", ())
    written = [one for source in sources for one in (source.get("files") or {}).values()]
    return any(isinstance(one, str) and one.lower().removesuffix(".gz").endswith(".tsv") for one in written)


def _sound_cut(version: Version) -> bool:
    """Return whether a clip of the version was, or may have been, decoded in part."""
    clips = clips_decoded_in_part(Store(version.folder.parents[1]))
    if clips is not None and not clips:
        return False
    with duckdb.connect() as connection:
        for table in version.manifest.rows:
            if not (files := version.files_there(table)):
                continue
            view_parquet(connection, table, files)
            for column, *_ in connection.execute(f'DESCRIBE "{table}"').fetchall():
                if not column.endswith("sha256"):
                    continue
                if clips is None:
                    return True
                named = f'SELECT 1 FROM "{table}" WHERE list_contains($clips, "{column}") LIMIT 1'
                if connection.execute(named, {"clips": sorted(clips)}).fetchone():
                    return True
    return False


def _any_row(version: Version, table: str, holds: str) -> bool:
    """Return whether a condition in SQL holds for a row of a table, or may, where the table's files are not here."""
    if not (files := version.files_there(table)):
        return bool(version.manifest.rows.get(table))
    with duckdb.connect() as connection:
        view_parquet(connection, table, files)
        return bool(connection.execute(f'SELECT 1 FROM "{table}" WHERE {holds} LIMIT 1').fetchone())


def _read_battles(version: Version) -> bool:
    sources = version.manifest.config.get("sources", ())
    return any(source.get("format") == "music-arena-battles" for source in sources)


TOUCHES: dict[str, Callable[[Version], bool]] = {
    "before-1.0": lambda version: True,
    "contested-clip": _contested_clip,
    "number-as-rating": _number_as_rating,
    "quote-between-tabs": _quoted_between_tabs,
    "sound-cut": _sound_cut,
    "notice-as-answer": lambda version: _any_row(version, "questions", "preference = 'human'"),
    "half-corpus": believed.was_refused_requests,
    "half-answer": believed.holds_half_answers,
    "thought-as-answer": believed.holds_thoughts,
    "fence-in-text": believed.holds_fences,
    "guessed-probability": believed.holds_guessed_probabilities,
    "deleted-later": lambda version: bool(version.manifest.rows.get("questions")),
    "votes-apart": lambda version: _any_row(version, "comparisons", "modality = 'none' OR month LIKE '1970%'"),
    "sessions-as-people": _read_battles,
}
"""Tests, by name of a fault, of versions of earlier rules that may have it."""
FAULTS = tuple(
    KnownFault(**one | {"corpora": tuple(one.get("corpora", ())), "touches": TOUCHES[one["name"]]})
    for one in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["faults"]
)
HIDDEN_ORDER = (
    "score-file-order (mended 2026-11-22): a file of scores was compared with a hidden order of the clips: run "
    "earmark eval run --scores again"
)
_SCORED = ("human-preferences", "mos-preferences")


def known_faults(version: Version) -> list[KnownFault]:
    """Return the known faults that may have damaged a version."""
    corpus, rules = version.corpus, version.manifest.rules
    return [
        fault
        for fault in FAULTS
        if rules < fault.rules and (not fault.corpora or corpus in fault.corpora) and fault.touches(version)
    ]


def wrong_evaluations(store: Store, corpus: str, version: str = "*") -> list[Path]:
    """Return the folders below the store's `evaluations/` with results of score files read in a hidden order."""
    if corpus not in _SCORED:
        return []
    results = sorted((store.root / "evaluations" / corpus).glob(f"{version}/*/evaluation.json"))
    return [path.parent for path in results if _hidden_order(path)]


def _hidden_order(path: Path) -> bool:
    """Return whether an evaluation of pairs from a file lacks the order of its sides."""
    facts = facts_of(path)
    return facts.get("kind") == "preference" and facts.get("scores") is not None and "order" not in facts


def facts_of(path: Path) -> dict[str, Any]:
    """Read a JSON record beside versions; empty if it is not a JSON object."""
    try:
        facts = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def lines_about(store: Store, only: Version | None = None) -> list[str]:
    """Return a line per known fault and corpus with its versions (or only `only`), and for evaluations."""
    lines = []
    for corpus in [only.corpus] if only else store.corpora():
        by_fault: dict[KnownFault, list[str]] = {}
        for version in [only] if only else store.versions(corpus):
            for fault in known_faults(version):
                by_fault.setdefault(fault, []).append(version.name)
        lines += [
            f"{corpus} {', '.join(names)}: {fault.name} (mended {fault.mended}): {fault.says}"
            for fault, names in by_fault.items()
        ]
        if wrong := wrong_evaluations(store, corpus, only.name if only else "*"):
            lines.append(f"{', '.join(folder.relative_to(store.root).as_posix() for folder in wrong)}: {HIDDEN_ORDER}")
    return lines
