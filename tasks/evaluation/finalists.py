"""Find the clips of scored systems and of the finalists among them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from earmark.schemas.errors import InputError
from earmark.tasks.audio.probe import Probe
from earmark.tasks.evaluation.leaderboard import EVERY, ranked_group, ranking, scored
from earmark.tasks.evaluation.submission import CLIPS, generation_of, prompts_of
from earmark.tasks.pipeline.media import media_index
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version


class ScoredClip(NamedTuple):
    """A scored system's clip of a prompt."""

    system: str
    prompt_id: str
    text: str  # the prompt
    group: str  # its groups, joined by spaces
    clip_sha256: str
    path: Path


def scored_clips(version: Version, store: Store, systems: Sequence[str], finalists: int | None) -> list[ScoredClip]:
    """Return the clips of the named systems and of so many finalists, or of all scored systems if neither is given.

    Raises:
        InputError: a system was not scored, systems cannot be compared, or a clip was moved or changed.
    """
    corpus = find_corpus(version.corpus)
    generation = generation_of(corpus)
    records = scored(version, store, (not finalists and systems) or [EVERY])
    if finalists:
        ranks = ranking([facts for facts, _ in records], finalists, ranked_group(corpus, records[0][0]))
        chosen = {*systems, *(one["system"] for one in ranks if one["finalist"])}
        if unknown := sorted(chosen - {facts["system"] for facts, _ in records}):
            raise InputError(f"{unknown[0]}: no record of this system on {version.corpus}@{version.name}")
        records = [(facts, folder) for facts, folder in records if facts["system"] in chosen]
    held = [
        (facts["system"], clip["id"], clip["clip_sha256"])
        for facts, folder in records
        for clip in pq.read_table(folder / CLIPS, columns=["id", "clip_sha256"]).to_pylist()
    ]
    index = media_index(store)
    found = index.places({sha256 for *_, sha256 in held}).values()
    paths = [path for places in found for path in places if path.is_file()]
    probes = zip(paths, index.look(paths), strict=True)
    known = {probe.clip_sha256: path for path, probe in probes if isinstance(probe, Probe)}
    if moved := [one for one in held if one[2] not in known]:
        raise InputError(
            f"{moved[0][0]}: {len(moved):,} clips were moved or changed since their scoring: score it again"
        )
    rows = {row[generation.key]: row for row in prompts_of(version, generation)}
    groups = {key: " ".join(str(row[name]) for name in generation.groups) for key, row in rows.items()}
    return [
        ScoredClip(system, key, rows[key][generation.text], groups[key], sha256, known[sha256])
        for system, key, sha256 in held
    ]
