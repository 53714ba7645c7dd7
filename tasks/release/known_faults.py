"""Versions and evaluations that a known fault of an earlier Earmark can have touched: one dated table.

A version says in its manifest by which `rules` it was made; those of earlier rules are looked at here, by what their
manifests or tables hold. Whoever mends a fault that made wrong rows counts `RULES` up and adds a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from earmark.tasks.store.sql import query, view_parquet
from earmark.tasks.store.versions import Store, Version


@dataclass(frozen=True)
class KnownFault:
    """A fault that made wrong rows."""

    name: str  # what messages and scripts call it
    mended: str  # the day, as in the changelog
    rules: int  # versions made by these rules, or later ones, are free of it
    corpora: tuple[str, ...]  # which can have it; none for all
    touches: Callable[[Version], bool]  # whether a version of earlier rules can have it
    says: str  # what is wrong, and what to do


def _first_row_won(version: Version) -> bool:
    """Rows of one clip were rejected for another score, or for being there before."""
    steps = [step for step in version.manifest.steps if step.name == "merge"]
    return any(step.rejected.get(reason) for step in steps for reason in ("conflicting_score", "duplicate"))


def _first_rated_won(version: Version) -> bool:
    """Rows of a rated set were rejected for a clip that was there before."""
    steps = [step for step in version.manifest.steps if step.name == "ratings"]
    return any(step.rejected.get("duplicate_id") for step in steps)


def _left_its_root(version: Version) -> bool:
    """Rows were rejected because of the folder that the config named, which the build key left out."""
    return bool(version.manifest.rejects.get("path_outside_root"))


def _text_in_two_splits(version: Version) -> bool:
    """Words (with lyrics) of a pair stand in two splits. Where the tables are not here, any version with two splits."""
    splits = version.manifest.rows.get("pairs", {})
    files = [path for split in splits for path in version.files("pairs", split)]
    if len(splits) < 2 or not all(path.is_file() for path in files):
        return len(splits) > 1
    with duckdb.connect() as connection:
        view_parquet(connection, "pairs", files)
        connection.execute(query("text/plain_words"))
        return bool(connection.execute(query("pseudo_preferences/texts_in_two_splits")).fetchall())


FAULTS = (
    KnownFault(
        "first-row-wins",
        "2026-11-22",
        1,
        ("mos-preferences",),
        _first_row_won,
        "of several ratings of a clip the first was taken for their mean: build again",
    ),
    KnownFault(
        "first-rating-wins",
        "2026-11-22",
        1,
        ("human-preferences",),
        _first_rated_won,
        "of several ratings of a clip of a rated set (PAM, MusicEval) the first alone counted: build again",
    ),
    KnownFault(
        "root-not-in-key",
        "2026-11-22",
        1,
        (),
        _left_its_root,
        "rows lie outside of `root` or `audio_root`, and a build with a mended folder was called up to date: look at "
        "the rejects path_outside_root, mend the config, build again",
    ),
    KnownFault(
        "text-in-two-splits",
        "2026-11-22",
        1,
        ("pseudo-preferences",),
        _text_in_two_splits,
        "one text stands in two splits, in another spelling or with a reference: build again",
    ),
)
HIDDEN_ORDER = (
    "score-file-order (mended 2026-11-22): a file of scores was compared with a hidden order of the clips: run earmark "
    "judge --scores again"
)
_SCORED = ("human-preferences", "mos-preferences")


def known_faults(version: Version) -> list[KnownFault]:
    """The known faults that can have touched a version."""
    corpus, rules = version.corpus, version.manifest.rules
    return [
        fault
        for fault in FAULTS
        if rules < fault.rules and (not fault.corpora or corpus in fault.corpora) and fault.touches(version)
    ]


def wrong_evaluations(store: Store, corpus: str, version: str = "*") -> list[Path]:
    """Folders below the store's `evaluations/` with results of a file of scores that was read in a hidden order."""
    if corpus not in _SCORED:
        return []
    results = sorted((store.root / "evaluations" / corpus).glob(f"{version}/*/evaluation.json"))
    return [path.parent for path in results if _hidden_order(path)]


def _hidden_order(path: Path) -> bool:
    """Whether an evaluation is of pairs, from a file, and does not name the order that the file was read in."""
    facts = facts_of(path)
    return facts.get("kind") == "preference" and facts.get("scores") is not None and "order" not in facts


def facts_of(path: Path) -> dict[str, Any]:
    """What a record says that lies beside versions, as JSON; nothing where it is none of ours."""
    try:
        facts = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def lines_about(store: Store, only: Version | None = None) -> list[str]:
    """One line a known fault and corpus, naming the versions (or one) that it can have touched; so for evaluations."""
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
