"""Implement `earmark init pseudo-preferences --from FOLDER`: a folder of systems, and the prompts beside them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from earmark.flows.command.init_layouts import document
from earmark.flows.command.init_ratings import Line, Proposal, printable
from earmark.schemas.errors import InputError
from earmark.schemas.pseudo_preferences import CORPUS
from earmark.schemas.rejects import shown
from earmark.tasks.importers.column_words import read_name
from earmark.tasks.importers.sniffing import AUDIO, Sample, read_sample

TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
TEXTS = frozenset({"text", "prompt", "caption", "description", "instruction"})
FEW_PROMPTS = 100  # fewer get a larger share of the test split, for it to hold several
LEAST = 0.5  # share of the clips with a known prompt


def propose_folder(folder: Path, config: Path) -> Proposal:
    """Propose a config for the clips of systems, a folder each, named by their prompts.

    Raises:
        InputError: no such folders, or no table of prompts naming their clips.
    """
    clips = sorted(place for place in folder.glob("*/*") if place.suffix.lower() in AUDIO and place.is_file())
    systems = Counter(place.parent.name for place in clips)
    if len(systems) < 2:
        raise InputError(
            f"--from {folder}: expected two folders or more of sound files, one a system (sysA/0001.wav), found "
            f"{len(systems)}"
        )
    ending = Counter(place.suffix for place in clips).most_common(1)[0][0]
    stems = {place.stem for place in clips}
    beside = [place for place in sorted(folder.iterdir()) if place.suffix.lower() in TABLES and place.is_file()]
    fits = [(fit, place) for place in beside if (fit := _prompts(place, stems))]
    if not fits:
        names = ", ".join(place.name for place in beside) or "no table"
        raise InputError(
            f"--from {folder}: expected a table of prompts whose ids name the clips (such as '{shown(min(stems))}') "
            f"and a column of texts, found {names}"
        )
    (columns, known), table = max(fits, key=lambda one: one[0][1])
    here = config.absolute().parent
    lines = [
        Line("prompts", os.path.relpath(table, here)),
        Line(
            "generations",
            _below(os.path.relpath(folder, here), f"{{model}}/{{prompt_id}}{ending}"),
            "the files themselves",
        ),
    ]
    renamed = {ours: theirs for ours, theirs in columns.items() if ours != theirs}
    lines += [Line("prompt_columns", renamed)] if renamed else []
    if len(stems) < FEW_PROMPTS:
        shares = {"train": 0.7, "test": 0.3}
        lines.append(Line("shares", shares, f"{len(stems)} prompts: for the test split to hold some"))
    text = document("a folder", CORPUS.name, "".join(f"\n{line.text()}" for line in lines) + "\n", ("judge",))
    other = len(clips) - sum(place.suffix == ending for place in clips)
    named = ", ".join(f"{ours} = {theirs}" for ours, theirs in columns.items())
    counted = ", ".join(f"{name} ({n:,})" for name, n in sorted(systems.items()))
    said = [
        f"{len(clips):,} clips of {len(systems)} systems: {counted}",
        f"prompts: {table.name}, {named}; they name {known:,} of {len(stems):,} clips",
    ]
    said += [f"left out: {other:,} files that do not end in {ending}"] if other else []
    facts = {"clips": len(clips), "systems": dict(systems), "prompts": table.name, "columns": columns}
    return Proposal(text, facts, [printable(line) for line in said])


def _below(folder: str, pattern: str) -> str:
    return pattern if folder == "." else f"{folder}/{pattern}"


def _prompts(table: Path, stems: set[str]) -> tuple[Mapping[str, str], int] | None:
    """Find the columns of ids and texts in a table of prompts, and count clips named by its ids; return None for other
    tables."""
    try:
        sample: Sample = read_sample(table)
    except InputError:  # an unrelated file
        return None
    cells = {name: [row[at].strip() for row in sample.rows] for at, name in enumerate(sample.names) if name}
    known = {name: len(stems & {*values}) for name, values in cells.items()}
    ids = max(known, key=lambda name: known[name], default=None)
    if ids is None or known[ids] < LEAST * len(stems):
        return None
    texts = [
        name for name in cells if name != ids and {*read_name(name).words} & TEXTS and "id" not in read_name(name).words
    ]
    if len(texts) != 1:
        texts = [name for name in texts if name == "text"]
    return ({"prompt_id": ids, "text": texts[0]}, known[ids]) if texts else None
